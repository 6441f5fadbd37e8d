/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the simd_*.c files of products and convolutions: the vector type of one instruction set, the register tile
 * every matrix product is made of, and the prototypes these files share. HDO_ISA names the set, see base/simd.h.
 *
 * The bits of a result do not depend on the set. An output is a chain of fused multiply-adds in an order that a comment
 * at the top of each file states; vectors run over outputs, so their length is of no account. A sum over lanes has
 * eight lanes (sixteen in simd_dot.c) wherever it is done. Sizes that choose between two ways of summing (`fits`,
 * lengths of chains) are the same for all sets.
 */
#ifndef HDO_KERNELS_SIMD_MM_H
#define HDO_KERNELS_SIMD_MM_H

#include <string.h>

#include "base/fma.h"
#include "base/simd.h"
#include "kernels/mm.h"

#ifndef HDO_ISA
#error "simd_*.c are compiled once per instruction set with -DHDO_ISA=<name>, see meson.build"
#endif

#define MM_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define MM_UNROLL _Pragma("unroll")
#else
#define MM_UNROLL _Pragma("GCC unroll 16")
#endif

/* The vector type `vec` of VL floats and what is done with it. */
#if defined(__AVX512F__)
#include "kernels/simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/simd_avx2.h"
#else
#include "kernels/simd_plain.h"
#endif

/* The register tile: MR rows of A times NV vectors of B, as many sums as leave room for NV loads and one broadcast:
 * 12 of 16 registers, or 24 of 32. Eight or more hide the latency of the multiply-add (4 cycles, two per cycle). */
#ifdef __AVX512F__
#define MR 12
#else
#define MR 6
#endif
#define NV 2
#define NR (NV * VL)

/* X(1) .. X(MR): one piece of code for every number of rows. */
#ifdef __AVX512F__
#define MM_EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#define MM_EACH_ROW(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

/* acc (mr, nv) = sum over k of A[r * am + k * ak] B[k * ldb ...]; mr <= MR and nv <= NV must be constants. */
MM_INLINE void tile_sum(int mr, int nv, size_t K, const float *A, size_t am, size_t ak, const float *B, size_t ldb,
                        vec acc[MR][NV]) {
    MM_UNROLL for (int r = 0; r < mr; r++) {
        MM_UNROLL for (int v = 0; v < nv; v++) acc[r][v] = v_zero();
    }
    for (size_t k = 0; k < K; k++, A += ak, B += ldb) {
        vec b[NV];
        MM_UNROLL for (int v = 0; v < nv; v++) b[v] = v_load(B + v * VL);
        MM_UNROLL for (int r = 0; r < mr; r++) {
            vec a = v_set1(A[(size_t)r * am]);
            MM_UNROLL for (int v = 0; v < nv; v++) acc[r][v] = v_fma(a, b[v], acc[r][v]);
        }
    }
}

/* Products: see kernels.h; simd_gemm.c sends those that are better done along k to simd_dot.c. */
void HDO_ISA_FN(hdo__mm_gemm)(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda,
                              const float *B, int ldb, float beta, float *C, int ldc);

void HDO_ISA_FN(hdo__mm_dot)(size_t M, size_t N, size_t K, float alpha, const float *A, size_t lda, const float *B,
                             size_t ldb, float beta, float *C, size_t ldc);
#ifdef __AVX512F__ /* half a vector, or a sum over eight lanes: the same bits from the shorter one */
void HDO_CAT(hdo__mm_gemm, avx2)(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda,
                                 const float *B, int ldb, float beta, float *C, int ldc);
#endif

/* Lists of inputs: see kernels.h. */
size_t HDO_ISA_FN(hdo__sparse_work)(int B, int p);
void HDO_ISA_FN(hdo__sparse_logits)(const hdo_sparse *s, int K, int C, const float *X, size_t ld, float *z,
                                    hdo_arena *a);

/* One sample under many models: see kernels.h. */
void HDO_ISA_FN(hdo__score_top)(int K, int C, float *z, int32_t label, int64_t *hits);
void HDO_ISA_FN(hdo__score_loss)(int K, int C, const float *e, const float *own, double *loss);

/* Convolutions: sent to one of the kernels below (simd_mm.c). AVX-512 has none of its own. */
#ifdef __AVX512F__
#define MM_CONV_FN(name) HDO_CAT(name, avx2)
#else
#define MM_CONV_FN(name) HDO_ISA_FN(name)
#endif
size_t MM_CONV_FN(hdo__mm_conv_work)(const hdo_conv *c);
void MM_CONV_FN(hdo__mm_conv_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                                  hdo_arena *a);
void MM_CONV_FN(hdo__mm_conv_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
void MM_CONV_FN(hdo__mm_conv_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, float *db,
                                    hdo_arena *a);

/* Channels of the convolution that c is a part of: they choose the path, so that a part goes the way of the whole. */
static inline int whole_C(const hdo_conv *c) {
    return (int)(c->w_step / ((size_t)c->kh * (size_t)c->kw));
}
static inline int whole_O(const hdo_conv *c) {
    return (int)(c->y_step / ((size_t)c->Ho * (size_t)c->Wo));
}

/* Direct convolution: only where `fits` (forward, bwd_x) or `fits_w` (bwd_w) says so. */
bool HDO_ISA_FN(hdo__direct_fits)(const hdo_conv *c);
bool HDO_ISA_FN(hdo__direct_fits_w)(const hdo_conv *c);
size_t HDO_ISA_FN(hdo__direct_work)(const hdo_conv *c);
void HDO_ISA_FN(hdo__direct_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                                 hdo_arena *a);
void HDO_ISA_FN(hdo__direct_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
void HDO_ISA_FN(hdo__direct_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a);

/* Few channels, stride 2: forward only, where it fits. */
bool HDO_ISA_FN(hdo__stem_fits)(const hdo_conv *c);
size_t HDO_ISA_FN(hdo__stem_work)(const hdo_conv *c);
void HDO_ISA_FN(hdo__stem_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                               hdo_arena *a);

/* Winograd: only where it fits, all three passes. */
bool HDO_ISA_FN(hdo__wino_fits)(const hdo_conv *c);
size_t HDO_ISA_FN(hdo__wino_work)(const hdo_conv *c);
void HDO_ISA_FN(hdo__wino_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                               hdo_arena *a);
void HDO_ISA_FN(hdo__wino_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
void HDO_ISA_FN(hdo__wino_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a);

/* Implicit matrix product: any convolution. */
size_t HDO_ISA_FN(hdo__igemm_work)(const hdo_conv *c);   /* forward and bwd_x */
size_t HDO_ISA_FN(hdo__igemm_w_work)(const hdo_conv *c); /* bwd_w */
void HDO_ISA_FN(hdo__igemm_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                                hdo_arena *a);
void HDO_ISA_FN(hdo__igemm_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
void HDO_ISA_FN(hdo__igemm_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a);

#endif
