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
hdo_gemm_fn hdo__ref_gemm;
hdo_conv_work_fn hdo__ref_conv_work;
hdo_conv_fwd_fn hdo__ref_conv_fwd;
hdo_conv_bwd_x_fn hdo__ref_conv_bwd_x;
hdo_conv_bwd_w_fn hdo__ref_conv_bwd_w;
hdo_score_top_fn hdo__ref_score_top;
hdo_score_loss_fn hdo__ref_score_loss;

/* Our vector kernels. conv_*: any convolution; small ones go to direct kernels, 3 x 3 with many channels to Winograd
 * kernels, the rest to an implicit matrix product. */
typedef struct hdo_mm_simd {
    const char *name;
    hdo_gemm_fn *gemm;
    hdo_conv_work_fn *conv_work;
    hdo_conv_fwd_fn *conv_fwd;
    hdo_conv_bwd_x_fn *conv_bwd_x;
    hdo_conv_bwd_w_fn *conv_bwd_w;
    hdo_sparse_work_fn *sparse_work;
    hdo_sparse_logits_fn *sparse_logits;
    hdo_score_top_fn *score_top;
    hdo_score_loss_fn *score_loss;
} hdo_mm_simd;

extern const hdo_mm_simd hdo__mm_portable;
#ifdef HDO_HAVE_AVX2_BUILD
extern const hdo_mm_simd hdo__mm_avx2;
#endif
#ifdef HDO_HAVE_AVX512_BUILD
extern const hdo_mm_simd hdo__mm_avx512;
#endif

#endif
