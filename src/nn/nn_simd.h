/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise inner loops of the layers, one source (simd_nn.c) compiled per instruction set like base/simd.h. Plain C
 * is the meaning; the AVX2 build adds hand-written paths where the compiler does not find the vectors (pairs of
 * columns, rows of four), which give the same bits.
 */
#ifndef HDO_NN_NN_SIMD_H
#define HDO_NN_NN_SIMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/simd.h"

typedef struct hdo_nn_simd {
    /* v = max(v, 0); a NaN is passed on: divergence must show. */
    void (*relu)(size_t n, float *v);
    /* d = 0 where y <= 0. */
    void (*relu_mask)(size_t n, const float *y, float *d);
    /* y (M, O), rows ld apart: += b (O; may be NULL), then ReLU. */
    void (*bias)(int M, int O, const float *b, bool relu, float *y, int ld);
    /* sum (O) += columns of y (M, O). */
    void (*columns)(int M, int O, const float *y, float *sum);
    /* y = a b */
    void (*mul)(size_t n, const float *a, const float *b, float *y);
    /* y = a + b, then ReLU. */
    void (*add)(size_t n, const float *a, const float *b, bool relu, float *y);

    /* Batch-norm over one run of a channel. */
    double (*sum)(size_t n, const float *x);
    double (*sum_sq)(size_t n, const float *x, double mean); /* of (x - mean)^2 */
    void (*affine)(size_t n, const float *x, float mean, float scale, float shift, bool relu, float *y);
    /* sum += dy, dot += dy (x - mean) rstd */
    void (*dots)(size_t n, const float *x, const float *dy, float mean, float rstd, double *sum, double *dot);
    /* dx = scale (dy - a - (x - mean) rstd b) */
    void (*dx)(size_t n, const float *x, const float *dy, float mean, float rstd, float scale, float a, float b,
               float *dx);
    /* The same over many short runs side by side: everything is an array (n), sums are added to. */
    void (*sums)(size_t n, const float *x, double *sum);
    void (*squares)(size_t n, const float *x, const double *mean, double *sum);
    void (*affines)(size_t n, const float *x, const float *mean, const float *scale, const float *shift, bool relu,
                    float *y);
    void (*all_dots)(size_t n, const float *x, const float *dy, const float *mean, const float *rstd, double *sum,
                     double *dot);
    void (*all_dx)(size_t n, const float *x, const float *dy, const float *mean, const float *rstd, const float *scale,
                   const float *a, const float *b, float *dx);

    /* 2x2 max-pool of one map (2 Ho, 2 Wo) with rows W apart; place (Ho, Wo): 0 1 / 2 3, or NULL. */
    void (*pool2)(int Ho, int Wo, int W, bool relu, const float *x, float *y, uint8_t *place);
    void (*pool2_back)(int Ho, int Wo, int W, const uint8_t *place, const float *dy, float *dx); /* all four places */
    void (*pool2_pick)(int Ho, int Wo, int W, const uint8_t *place, const float *tx, float *ty);
    /* 3x3 max-pool of one map (H, W) with stride 2 and padding 1. */
    void (*pool3)(int H, int W, bool relu, const float *x, float *y);

    /* Layer-norm over rows of D numbers; b may be NULL. */
    void (*ln_fwd)(size_t rows, int D, float eps, const float *x, const float *w, const float *b, float *y);
    /* dw, db (D) are added to; dx may be NULL or dy. */
    void (*ln_bwd)(size_t rows, int D, float eps, const float *x, const float *w, const float *dy, float *dx,
                   double *dw, double *db);
    /* ty of one tangent; tx may be NULL (zero); tb may be NULL. */
    void (*ln_jvp)(size_t rows, int D, float eps, const float *x, const float *tx, const float *w, const float *tw,
                   const float *tb, float *ty);

    /* keep[2 i], keep[2 i + 1]: up where the low, high half of word[i] is >= limit, else 0. */
    void (*keep)(size_t words, const uint32_t *word, uint32_t limit, float up, float *keep);
} hdo_nn_simd;

/* The max-pools of one instruction set (simd_pool.c). */
#ifdef HDO_ISA
void HDO_ISA_FN(hdo__pool2)(int Ho, int Wo, int W, bool relu, const float *x, float *y, uint8_t *place);
void HDO_ISA_FN(hdo__pool2_back)(int Ho, int Wo, int W, const uint8_t *place, const float *dy, float *dx);
void HDO_ISA_FN(hdo__pool2_pick)(int Ho, int Wo, int W, const uint8_t *place, const float *tx, float *ty);
void HDO_ISA_FN(hdo__pool3)(int H, int W, bool relu, const float *x, float *y);
#endif

extern const hdo_nn_simd hdo__nn_portable;
#ifdef HDO_HAVE_AVX2_BUILD
extern const hdo_nn_simd hdo__nn_avx2;
#endif

#endif
