/* SPDX-License-Identifier: Apache-2.0
 *
 * The two kernel tables. "ref" is plain C throughout. "auto" starts as "ref"; every entry is then replaced by the best
 * implementation this build and this machine have: our vector kernels for the instruction set that base/simd.h chose
 * (so HDO_SIMD=portable applies here too), and a BLAS library for the products where it wins.
 */
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/simd.h"
#include "hdo/config.h"
#include "kernels/attn.h"
#include "kernels/mm.h"

static const hdo_kernels k_ref = {
    .name = "ref",
    .gemm_name = "plain C",
    .conv_name = "plain C",
    .gemm = hdo__ref_gemm,
    .conv_work = hdo__ref_conv_work,
    .conv_fwd = hdo__ref_conv_fwd,
    .conv_bwd_x = hdo__ref_conv_bwd_x,
    .conv_bwd_w = hdo__ref_conv_bwd_w,
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
static char gemm_name[224], conv_name[64];
static const hdo_mm_simd *own;
static bool blas_small;

static void gemm_auto(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B,
                      int ldb, float beta, float *C, int ldc) {
    bool small = blas_small && (double)M * (double)N * (double)K <= 1e6;
    if (!small && own->gemm_wins(ta, tb, M, N, K))
        own->gemm(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
    else
        hdo__blas_gemm(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}

static void make_auto(void) {
    const hdo_attn_simd *attn = &hdo__attn_portable;
    own = &hdo__mm_portable;
#ifdef HDO_HAVE_AVX2_BUILD
    if (hdo__simd()->avx2) {
        own = &hdo__mm_avx2;
        attn = &hdo__attn_avx2;
    }
#endif
    k_auto = k_ref;
    k_auto.name = "auto";
    char blas[160];
    k_auto.blas = hdo__blas_open(blas, sizeof blas);
    k_auto.gemm = k_auto.blas ? gemm_auto : own->gemm;
    blas_small = hdo__blas_small();
    if (k_auto.blas) {
        snprintf(gemm_name, sizeof gemm_name, "%s; own %s for small and skinny products", blas, own->name);
    } else {
        snprintf(gemm_name, sizeof gemm_name, "none found; own %s", own->name);
    }
    k_auto.conv_work = own->conv_work;
    k_auto.conv_fwd = own->conv_fwd;
    k_auto.conv_bwd_x = own->conv_bwd_x;
    k_auto.conv_bwd_w = own->conv_bwd_w;
    snprintf(conv_name, sizeof conv_name, "own %s (direct, Winograd, implicit GEMM)", own->name);
    k_auto.gemm_name = gemm_name;
    k_auto.conv_name = conv_name;
    k_auto.attn_fwd = attn->attn_fwd;
    k_auto.attn_bwd = attn->attn_bwd;
    k_auto.attn_jvp = attn->attn_jvp;
    k_auto.attn_work = attn->attn_work;
    k_auto.vexp = attn->vexp;
    k_auto.gelu = attn->gelu;
}

const hdo_kernels *hdo__kernels(int which) {
    if (which == HDO_KERNELS_REF) return &k_ref;
    pthread_once(&once, make_auto);
    return &k_auto;
}
