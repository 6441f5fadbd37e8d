/* SPDX-License-Identifier: Apache-2.0
 *
 * The two kernel tables: "ref" is plain C throughout, "auto" our vector kernels for the instruction set that
 * base/simd.h chose (so HDO_SIMD applies here too).
 */
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdio.h>

#include "base/simd.h"
#include "hdo/experimental/config.h"
#include "kernels/attn.h"
#include "kernels/mm.h"

static const hdo_kernels k_ref = {
    .name = "ref",
    .title = "plain C",
    .gemm = hdo__ref_gemm,
    .conv_work = hdo__ref_conv_work,
    .conv_fwd = hdo__ref_conv_fwd,
    .conv_bwd_x = hdo__ref_conv_bwd_x,
    .conv_bwd_w = hdo__ref_conv_bwd_w,
    .score_top = hdo__ref_score_top,
    .score_loss = hdo__ref_score_loss,
    .attn_fwd = hdo__ref_attn_fwd,
    .attn_bwd = hdo__ref_attn_bwd,
    .attn_jvp = hdo__ref_attn_jvp,
    .attn_work = hdo__ref_attn_work,
    .vexp = hdo__ref_vexp,
    .gelu = hdo__ref_gelu,
};

/* Written once under `once`, read-only afterwards. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static hdo_kernels k_auto;
static char title[32];

static void make_auto(void) {
    const hdo_simd *simd = hdo__simd();
    const hdo_attn_simd *attn = &hdo__attn_portable;
    const hdo_mm_simd *mm = &hdo__mm_portable;
#ifdef HDO_HAVE_AVX2_BUILD
    if (simd->avx2) {
        mm = &hdo__mm_avx2;
        attn = &hdo__attn_avx2;
    }
#endif
#ifdef HDO_HAVE_AVX512_BUILD
    if (simd->avx512) mm = &hdo__mm_avx512;
#endif
    snprintf(title, sizeof title, "own, %s", simd->name);
    k_auto = (hdo_kernels){.name = "auto",
                           .title = title,
                           .gemm = mm->gemm,
                           .conv_work = mm->conv_work,
                           .conv_fwd = mm->conv_fwd,
                           .conv_bwd_x = mm->conv_bwd_x,
                           .conv_bwd_w = mm->conv_bwd_w,
                           .sparse_work = mm->sparse_work,
                           .sparse_logits = mm->sparse_logits,
                           .score_top = mm->score_top,
                           .score_loss = mm->score_loss,
                           .attn_fwd = attn->attn_fwd,
                           .attn_bwd = attn->attn_bwd,
                           .attn_jvp = attn->attn_jvp,
                           .attn_work = attn->attn_work,
                           .vexp = attn->vexp,
                           .gelu = attn->gelu};
}

const hdo_kernels *hdo__kernels(int which) {
    if (which == HDO_KERNELS_REF) return &k_ref;
    pthread_once(&once, make_auto);
    return &k_auto;
}
