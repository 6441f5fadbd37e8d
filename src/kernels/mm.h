/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products and convolutions behind kernels.h: the reference (k_ref.c), the libraries (k_blas.c, k_onednn.c) and
 * our own vector kernels (simd_gemm.c, simd_conv.c, simd_wino.c, simd_igemm.c, one table per instruction set, see
 * base/simd.h).
 *
 * The bits of a result depend on the path (fused or separate multiply-add, order of summation), never on the alignment
 * of the arguments, on the number of threads or on what other threads do. With our kernels a sample's result of a
 * forward pass does not depend on the batch around it either, as long as the same path is taken.
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

/* Loads a BLAS library, sets it to one thread and describes it; false when there is none. Call once, before the first
 * product. */
bool hdo__blas_open(char *name, size_t cap);
/* True if the library has kernels of its own for small products (OpenBLAS on AVX-512 machines): at most 10^6 terms. */
bool hdo__blas_small(void);
void hdo__blas_gemm(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B,
                    int ldb, float beta, float *C, int ldc);

/* Convolutions by oneDNN where it wins (k_onednn.c). Nothing is loaded before a geometry of its list is asked for. */
enum { HDO_CONV_FWD, HDO_CONV_BWD_X, HDO_CONV_BWD_W };
size_t hdo__onednn_work(int pass, const hdo_conv *c); /* scratch bytes; 0 where ours serve */
/* One of x, w, y is written: y by the forward pass, x (as dx) by bwd_x, w (as dw) by bwd_w. False: not done, and which
 * of the two happens depends on the geometry of the whole layer and on the machine only. */
bool hdo__onednn_conv(int pass, const hdo_conv *c, const float *x, const float *w, const float *y, hdo_arena *a);
/* What it does here, for people: NULL if it is not used, or (load = false) not loaded so far. */
const char *hdo__onednn_name(bool load);
/* For tests: the pass and the geometry (one sample) of entry i of what is used; false past the last. */
bool hdo__onednn_entry(int i, int *pass, hdo_conv *c);

/* Our own vector kernels. conv_*: any convolution; small ones go to direct kernels, 3 x 3 with many channels to
 * Winograd kernels, the rest to an implicit matrix product. */
typedef struct hdo_mm_simd {
    const char *name;
    /* True where `gemm` below is the better choice even when a BLAS library is there (measured: bench_kernels). */
    bool (*gemm_wins)(bool ta, bool tb, int M, int N, int K);
    void (*gemm)(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B, int ldb,
                 float beta, float *C, int ldc);
    size_t (*conv_work)(const hdo_conv *c);
    void (*conv_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y, hdo_arena *a);
    void (*conv_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
    void (*conv_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, float *db, hdo_arena *a);
} hdo_mm_simd;

extern const hdo_mm_simd hdo__mm_portable;
#ifdef HDO_HAVE_AVX2_BUILD
extern const hdo_mm_simd hdo__mm_avx2;
#endif

#endif
