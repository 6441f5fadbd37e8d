/* SPDX-License-Identifier: Apache-2.0
 *
 * Flat vectors. Storage float, sums double. The order of every sum is fixed (16 lanes, then a fixed tree), so a result
 * depends on nothing but the numbers: not on the instruction set, the compiler or the number of threads.
 */
#ifndef HDO_BASE_VEC_H
#define HDO_BASE_VEC_H

#include <stddef.h>

#include "base/simd.h"

static inline void hdo__axpy(size_t n, float a, const float *x, float *y) {
    hdo__simd()->axpy(n, a, x, y);
}
static inline void hdo__axpby(size_t n, float a, const float *x, float b, float *y) {
    hdo__simd()->axpby(n, a, x, b, y);
}
static inline void hdo__scale(size_t n, float a, float *x) {
    hdo__simd()->scale(n, a, x);
}
/* The mixing step: x and y both become (x + y) / 2, the same bits whichever is named first. */
static inline void hdo__average(size_t n, float *x, float *y) {
    hdo__simd()->average(n, x, y);
}
/* Both become wx x + wy y. The products are rounded first, so the order of the partners does not matter. In double:
 * weights that were floats would not add up to 1, and every exchange would shrink or stretch the models by 1e-7. */
static inline void hdo__average_weighted(size_t n, double wx, float *x, double wy, float *y) {
    for (size_t i = 0; i < n; i++) {
        float m = (float)(wx * (double)x[i] + wy * (double)y[i]);
        x[i] = m;
        y[i] = m;
    }
}
static inline double hdo__dot(size_t n, const float *x, const float *y) {
    return hdo__simd()->dot(n, x, y);
}
static inline double hdo__sumsq(size_t n, const float *x) {
    return hdo__simd()->sumsq(n, x);
}
static inline double hdo__distsq(size_t n, const float *x, const float *y) {
    return hdo__simd()->distsq(n, x, y);
}
/* sum += x, element by element, in double. */
static inline void hdo__accumulate(size_t n, const float *x, double *sum) {
    hdo__simd()->accumulate(n, x, sum);
}

#endif
