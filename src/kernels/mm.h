/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products and convolutions behind kernels.h: the reference (k_ref.c) and our vector kernels (simd_gemm.c,
 * simd_dot.c, simd_conv.c, simd_wino.c, simd_igemm.c, ...: one table per instruction set, see base/simd.h).
 *
 * The bits of a result of the vector kernels depend on the shape and the numbers, never on the instruction set, the
 * compiler, the alignment of the arguments, the number of threads or what other threads do (simd_mm.h says how). A
 * sample's result of a forward pass does not depend on the batch around it either, as long as the same path is taken.
 */
#ifndef HDO_KERNELS_MM_H
#define HDO_KERNELS_MM_H

#include "kernels/kernels.h"

/* Plain C, sums in double: the oracle. No scratch. */
void hdo__ref_gemm(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B, int ldb,
                   float beta, float *C, int ldc);
size_t hdo__ref_conv_work(const hdo_conv *c);
void hdo__ref_conv_fwd(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y, hdo_arena *a);
void hdo__ref_conv_bwd_x(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
void hdo__ref_conv_bwd_w(const hdo_conv *c, const float *x, const float *dy, float *dw, float *db, hdo_arena *a);
void hdo__ref_score_top(int K, int C, float *z, int32_t label, int64_t *hits);
void hdo__ref_score_loss(int K, int C, const float *e, const float *own, double *loss);

/* Our vector kernels. conv_*: any convolution; small ones go to direct kernels, 3 x 3 with many channels to Winograd
 * kernels, the rest to an implicit matrix product. */
typedef struct hdo_mm_simd {
    const char *name;
    void (*gemm)(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B, int ldb,
                 float beta, float *C, int ldc);
    size_t (*conv_work)(const hdo_conv *c);
    void (*conv_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y, hdo_arena *a);
    void (*conv_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
    void (*conv_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, float *db, hdo_arena *a);
    size_t (*sparse_work)(int B, int p);
    void (*sparse_logits)(const hdo_sparse *s, int K, int C, const float *X, size_t ld, float *z, hdo_arena *a);
    void (*score_top)(int K, int C, float *z, int32_t label, int64_t *hits);
    void (*score_loss)(int K, int C, const float *e, const float *own, double *loss);
} hdo_mm_simd;

extern const hdo_mm_simd hdo__mm_portable;
#ifdef HDO_HAVE_AVX2_BUILD
extern const hdo_mm_simd hdo__mm_avx2;
#endif
#ifdef HDO_HAVE_AVX512_BUILD
extern const hdo_mm_simd hdo__mm_avx512;
#endif

#endif
