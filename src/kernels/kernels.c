/* SPDX-License-Identifier: Apache-2.0
 *
 * The two kernel tables. "ref" is plain C throughout. "auto" starts as "ref"; every entry is then replaced by the best
 * implementation this build and this machine have: our vector kernels for the instruction set that base/simd.h chose
 * (so HDO_SIMD=portable applies here too), a BLAS library for the products where it wins, and oneDNN for the
 * convolutions where it does.
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

/* oneDNN's entries were measured without a bias: with one, and for its gradient, our kernels serve. */
static size_t conv_work_auto(const hdo_conv *c) {
    size_t most = own->conv_work(c);
    for (int pass = HDO_CONV_FWD; pass <= HDO_CONV_BWD_W; pass++) {
        size_t work = hdo__onednn_work(pass, c);
        most = work > most ? work : most;
    }
    return most;
}
static void conv_fwd_auto(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                          hdo_arena *a) {
    if (bias != NULL || !hdo__onednn_conv(HDO_CONV_FWD, c, x, w, y, a)) own->conv_fwd(c, x, w, bias, y, a);
}
static void conv_bwd_x_auto(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a) {
    if (!hdo__onednn_conv(HDO_CONV_BWD_X, c, dx, w, dy, a)) own->conv_bwd_x(c, dy, w, dx, a);
}
static void conv_bwd_w_auto(const hdo_conv *c, const float *x, const float *dy, float *dw, float *db, hdo_arena *a) {
    if (db != NULL || !hdo__onednn_conv(HDO_CONV_BWD_W, c, x, dw, dy, a)) own->conv_bwd_w(c, x, dy, dw, db, a);
}

static void make_auto(void) {
    const hdo_attn_simd *attn = &hdo__attn_portable;
    k_auto = k_ref;
    k_auto.name = "auto";
    own = &hdo__mm_portable;
#ifdef HDO_HAVE_AVX2_BUILD
    if (hdo__simd()->avx2) {
        own = &hdo__mm_avx2;
        k_auto.onednn = true; /* compared with this table only, and off where HDO_SIMD says portable */
        attn = &hdo__attn_avx2;
    }
#endif
    char blas[160];
    k_auto.blas = hdo__blas_open(blas, sizeof blas);
    k_auto.gemm = k_auto.blas ? gemm_auto : own->gemm;
    blas_small = hdo__blas_small();
    if (k_auto.blas) {
        snprintf(gemm_name, sizeof gemm_name, "%s; own %s for small and skinny products", blas, own->name);
    } else {
        snprintf(gemm_name, sizeof gemm_name, "none found; own %s", own->name);
    }
    k_auto.conv_work = k_auto.onednn ? conv_work_auto : own->conv_work;
    k_auto.conv_fwd = k_auto.onednn ? conv_fwd_auto : own->conv_fwd;
    k_auto.conv_bwd_x = k_auto.onednn ? conv_bwd_x_auto : own->conv_bwd_x;
    k_auto.conv_bwd_w = k_auto.onednn ? conv_bwd_w_auto : own->conv_bwd_w;
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

void hdo__conv_name(const hdo_kernels *k, bool load, char *out, size_t cap) {
    const char *library = k->onednn ? hdo__onednn_name(load) : NULL;
    snprintf(out, cap, "%s%s%s", k->conv_name, library != NULL ? "; " : "", library != NULL ? library : "");
}
