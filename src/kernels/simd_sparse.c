/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits of many models from lists of inputs (sparse.h says what they are). Panels of outputs one after the other: the
 * weights of a panel are turned to (input, output), then every block of inputs meets every sample that has some there.
 * The sums of a sample rest in the second-level cache between blocks; rounding them to floats there changes nothing.
 */
#include "kernels/simd_mm.h"
#include "kernels/sparse.h"

#define PANEL ((size_t)HDO_SPARSE_PANEL)
#define PV (HDO_SPARSE_PANEL / VL) /* vectors of a panel */

/* One panel: dst (p, PANEL) from n rows of weights, each p long; zeros behind them, to `width`. */
static void turn_panel(size_t n, size_t width, size_t p, const float *const *w, float *dst) {
    for (size_t v = 0; v < width / VL; v++)
        for (size_t j = 0; j < p; j += VL) {
            vec r[VL];
            size_t left = p - j;
            MM_UNROLL for (size_t i = 0; i < VL; i++) {
                size_t k = v * VL + i;
                r[i] = k >= n ? v_zero() : left >= VL ? v_load(w[k] + j) : v_load_part(w[k] + j, left);
            }
            v_transpose(r);
            for (size_t i = 0; i < VL && i < left; i++) v_store(dst + (j + i) * PANEL + v * VL, r[i]);
        }
}

/* base (n) = bias + b sum_j w_j; the sum in double, j rising. */
static void panel_base(size_t n, size_t p, float b, const float *w, const float *bias, float *base) {
    double s[HDO_SPARSE_PANEL] = {0};
    for (size_t j = 0; j < p; j++)
        for (size_t k = 0; k < n; k++) s[k] += (double)w[j * PANEL + k];
    for (size_t k = 0; k < n; k++) base[k] = (float)((double)bias[k] + (double)b * s[k]);
}

MM_INLINE void panel_sum(int nv, const hdo_sparse *s, const float *w, float *z) {
    const hdo_sparse_entry *e = s->entry;
    const hdo_sparse_row *row = s->row;
    for (size_t q = 0; q < hdo__sparse_blocks(s->p); q++, w += (size_t)HDO_SPARSE_BLOCK * PANEL)
        for (uint32_t r = 0; r < s->rows[q]; r++, row++) {
            float *out = z + row->sample * PANEL;
            vec acc[PV];
            MM_UNROLL for (int v = 0; v < nv; v++) acc[v] = v_load(out + v * VL);
            for (const hdo_sparse_entry *end = e + row->count; e < end; e++) {
                vec x = v_set1(e->v);
                const float *wj = w + e->at;
                MM_UNROLL for (int v = 0; v < nv; v++) acc[v] = v_fma(x, v_load(wj + v * VL), acc[v]);
            }
            MM_UNROLL for (int v = 0; v < nv; v++) v_store(out + v * VL, acc[v]);
        }
}

size_t HDO_ISA_FN(hdo__sparse_work)(int B, int p) {
    return hdo__arena_round((size_t)p * PANEL * sizeof(float)) + hdo__arena_round((size_t)B * PANEL * sizeof(float));
}

void HDO_ISA_FN(hdo__sparse_logits)(const hdo_sparse *s, int K, int C_, const float *X, size_t ld, float *z,
                                    hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), models = (size_t)K, C = (size_t)C_, N = models * C;
    size_t p = (size_t)s->p, B = (size_t)s->B;
    float *w = hdo__arena_floats(a, p * PANEL), *out = hdo__arena_floats(a, B * PANEL);
    for (size_t j = 0; j < N; j += PANEL) {
        size_t n = N - j < PANEL ? N - j : PANEL, nv = n <= VL ? 1 : n <= 2 * VL ? 2 : n <= PANEL / 2 ? PV / 2 : PV;
        const float *from[HDO_SPARSE_PANEL];
        float bias[HDO_SPARSE_PANEL] = {0}, base[HDO_SPARSE_PANEL] = {0};
        for (size_t k = 0; k < n; k++) {
            size_t c = (j + k) / models;
            const float *x = X + (j + k) % models * ld;
            from[k] = x + c * p;
            bias[k] = x[C * p + c];
        }
        turn_panel(n, nv * VL, p, from, w);
        panel_base(n, p, s->b, w, bias, base);
        for (size_t i = 0; i < B; i++) memcpy(out + i * PANEL, base, nv * VL * sizeof(float));
        switch (nv) {
        case 1: panel_sum(1, s, w, out); break;
        case 2: panel_sum(2, s, w, out); break;
        case PV / 2: panel_sum(PV / 2, s, w, out); break;
        default: panel_sum(PV, s, w, out); break;
        }
        for (size_t i = 0; i < B; i++) memcpy(z + i * N + j, out + i * PANEL, n * sizeof(float));
    }
    hdo__arena_rewind(a, mark);
}
