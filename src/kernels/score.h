/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-entropies of one sample under K models side by side, z (C, K): class by class, so that everything runs over
 * models. Plain C that a compiler turns into vectors of any length; kernels.h says what it computes.
 */
#ifndef HDO_KERNELS_SCORE_H
#define HDO_KERNELS_SCORE_H

#include "base/explog.h"

#define HDO_SCORE_INLINE static inline __attribute__((always_inline))
enum { HDO_SCORE_TILE = 32 }; /* models at a time */

/* z -= its largest class; hits += is that the label? The first of equals, and never one after a NaN. */
HDO_SCORE_INLINE void score_top(size_t n, size_t K, size_t C, float *z, int32_t label, int64_t *hits) {
    float top[HDO_SCORE_TILE];
    int32_t best[HDO_SCORE_TILE];
    for (size_t k = 0; k < n; k++) top[k] = z[k], best[k] = 0;
    for (size_t c = 1; c < C; c++) {
        const float *zc = z + c * K;
        for (size_t k = 0; k < n; k++) {
            best[k] = zc[k] > top[k] ? (int32_t)c : best[k];
            top[k] = zc[k] > top[k] ? zc[k] : top[k];
        }
    }
    for (size_t c = 0; c < C; c++)
        for (size_t k = 0; k < n; k++) z[c * K + k] -= top[k];
    for (size_t k = 0; k < n; k++) hits[k] += best[k] == label;
}

/* hdo__log for 1 <= x < 2^52, and what is not a number; the same operations without a branch. */
HDO_SCORE_INLINE double score_log(double x) {
    uint64_t bits, top, up = 0x4330000000000000u;
    double y, n;
    memcpy(&bits, &x, sizeof bits);
    top = (bits - 0x3fe6a09e667f3bcdu) >> 52;
    bits -= top << 52;
    memcpy(&y, &bits, sizeof y);
    up |= top;
    memcpy(&n, &up, sizeof n);
    double l = hdo__log_of(y, n - 0x1p52);
    return x < (double)INFINITY ? l : x;
}

/* loss += log(sum of e over classes) - own. */
HDO_SCORE_INLINE void score_loss(size_t n, size_t K, size_t C, const float *e, const float *own, double *loss) {
    double total[HDO_SCORE_TILE] = {0};
    for (size_t c = 0; c < C; c++)
        for (size_t k = 0; k < n; k++) total[k] += (double)e[c * K + k];
    for (size_t k = 0; k < n; k++) loss[k] += score_log(total[k]) - (double)own[k];
}

/* A whole tile has a constant length. */
HDO_SCORE_INLINE void score_tops(size_t K, size_t C, float *z, int32_t label, int64_t *hits) {
    size_t k = 0;
    for (; k + HDO_SCORE_TILE <= K; k += HDO_SCORE_TILE) score_top(HDO_SCORE_TILE, K, C, z + k, label, hits + k);
    if (k < K) score_top(K - k, K, C, z + k, label, hits + k);
}
HDO_SCORE_INLINE void score_losses(size_t K, size_t C, const float *e, const float *own, double *loss) {
    size_t k = 0;
    for (; k + HDO_SCORE_TILE <= K; k += HDO_SCORE_TILE) score_loss(HDO_SCORE_TILE, K, C, e + k, own + k, loss + k);
    if (k < K) score_loss(K - k, K, C, e + k, own + k, loss + k);
}

#endif
