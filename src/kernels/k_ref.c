/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference matrix product and convolution: what the fast kernels have to mean. Plain loops in the order of the
 * definitions, every sum in double, rounded to float once. Taps outside the image are skipped, not multiplied by zero,
 * so that an infinite weight on a dead tap does not make NaN.
 */
#include <stddef.h>

#include "kernels/mm.h"
#include "kernels/score.h"

void hdo__conv_init(hdo_conv *c) {
    int h = c->H + 2 * c->pad - c->kh, w = c->W + 2 * c->pad - c->kw;
    c->Ho = h < 0 ? 0 : h / c->stride + 1;
    c->Wo = w < 0 ? 0 : w / c->stride + 1;
    c->x_step = (size_t)c->C * (size_t)c->H * (size_t)c->W;
    c->y_step = (size_t)c->O * (size_t)c->Ho * (size_t)c->Wo;
    c->w_step = (size_t)c->C * (size_t)c->kh * (size_t)c->kw;
}

void hdo__ref_gemm(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B, int ldb,
                   float beta, float *C, int ldc) {
    size_t am = ta ? 1 : (size_t)lda, ak = ta ? (size_t)lda : 1; /* strides of A over m and over k */
    size_t bn = tb ? (size_t)ldb : 1, bk = tb ? 1 : (size_t)ldb;
    for (size_t m = 0; m < (size_t)M; m++) {
        for (size_t n = 0; n < (size_t)N; n++) {
            double s = 0;
            for (size_t k = 0; k < (size_t)K; k++) s += (double)A[m * am + k * ak] * (double)B[n * bn + k * bk];
            float *out = C + m * (size_t)ldc + n;
            double old = beta == 0 ? 0 : (double)beta * (double)*out; /* beta 0: C may hold anything, even NaN */
            *out = (float)((double)alpha * s + old);
        }
    }
}

size_t hdo__ref_conv_work(const hdo_conv *c) {
    (void)c;
    return 0;
}

/* The source coordinate of output o and tap k is i = o * stride - pad + k. Taps [lo, hi) keep 0 <= i < n. */
static void taps_inside(const hdo_conv *c, int o, int kernel, int n, int *lo, int *hi) {
    int first = o * c->stride - c->pad;
    *lo = first < 0 ? -first : 0;
    *hi = n - first < kernel ? n - first : kernel;
}

void hdo__ref_conv_fwd(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y, hdo_arena *a) {
    (void)a;
    size_t map = (size_t)c->H * (size_t)c->W, taps = (size_t)c->kh * (size_t)c->kw;
    for (int b = 0; b < c->B; b++) {
        const float *xb = x + (size_t)b * c->x_step;
        float *to = y + (size_t)b * c->y_step;
        for (int o = 0; o < c->O; o++) {
            const float *wo = w + (size_t)o * c->w_step;
            for (int oy = 0; oy < c->Ho; oy++) {
                int ky0, ky1;
                taps_inside(c, oy, c->kh, c->H, &ky0, &ky1);
                for (int ox = 0; ox < c->Wo; ox++) {
                    int kx0, kx1;
                    taps_inside(c, ox, c->kw, c->W, &kx0, &kx1);
                    double s = bias != NULL ? (double)bias[o] : 0;
                    for (int ch = 0; ch < c->C; ch++)
                        for (int ky = ky0; ky < ky1; ky++) {
                            int iy = oy * c->stride - c->pad + ky, ix = ox * c->stride - c->pad;
                            const float *row = xb + (size_t)ch * map + (size_t)iy * (size_t)c->W;
                            const float *tap = wo + (size_t)ch * taps + (size_t)ky * (size_t)c->kw;
                            for (int kx = kx0; kx < kx1; kx++) s += (double)row[ix + kx] * (double)tap[kx];
                        }
                    *to++ = (float)s;
                }
            }
        }
    }
}

/* dx[b, ch, iy, ix] = sum of dy[b, o, oy, ox] w[o, ch, ky, kx] over all o and over the taps with
 * oy * stride = iy + pad - ky (and likewise ox): the reverse of the forward indexing, one sum per input pixel. */
void hdo__ref_conv_bwd_x(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a) {
    (void)a;
    size_t map = (size_t)c->Ho * (size_t)c->Wo, taps = (size_t)c->kh * (size_t)c->kw;
    for (int b = 0; b < c->B; b++) {
        const float *dyb = dy + (size_t)b * c->y_step;
        float *to = dx + (size_t)b * c->x_step;
        for (int ch = 0; ch < c->C; ch++)
            for (int iy = 0; iy < c->H; iy++)
                for (int ix = 0; ix < c->W; ix++) {
                    double s = 0;
                    for (int ky = 0; ky < c->kh; ky++) {
                        int sy = iy + c->pad - ky, oy = sy / c->stride;
                        if (sy < 0 || sy % c->stride != 0 || oy >= c->Ho) continue;
                        for (int kx = 0; kx < c->kw; kx++) {
                            int sx = ix + c->pad - kx, ox = sx / c->stride;
                            if (sx < 0 || sx % c->stride != 0 || ox >= c->Wo) continue;
                            const float *g = dyb + (size_t)oy * (size_t)c->Wo + (size_t)ox;
                            const float *tap = w + (size_t)ch * taps + (size_t)ky * (size_t)c->kw + (size_t)kx;
                            for (size_t o = 0; o < (size_t)c->O; o++)
                                s += (double)g[o * map] * (double)tap[o * c->w_step];
                        }
                    }
                    *to++ = (float)s;
                }
    }
}

void hdo__ref_conv_bwd_w(const hdo_conv *c, const float *x, const float *dy, float *dw, float *db, hdo_arena *a) {
    (void)a;
    size_t in_map = (size_t)c->H * (size_t)c->W, out_map = (size_t)c->Ho * (size_t)c->Wo;
    for (int o = 0; o < c->O; o++) {
        float *to = dw + (size_t)o * c->w_step;
        double bias = 0;
        for (int b = 0; b < c->B; b++) {
            const float *g = dy + (size_t)b * c->y_step + (size_t)o * out_map;
            for (size_t p = 0; p < out_map; p++) bias += (double)g[p];
        }
        if (db != NULL) db[o] = (float)bias;
        for (int ch = 0; ch < c->C; ch++)
            for (int ky = 0; ky < c->kh; ky++)
                for (int kx = 0; kx < c->kw; kx++) {
                    double s = 0;
                    for (int b = 0; b < c->B; b++) {
                        const float *g = dy + (size_t)b * c->y_step + (size_t)o * out_map;
                        const float *xc = x + (size_t)b * c->x_step + (size_t)ch * in_map;
                        for (int oy = 0; oy < c->Ho; oy++) {
                            int iy = oy * c->stride - c->pad + ky;
                            if (iy < 0 || iy >= c->H) continue;
                            for (int ox = 0; ox < c->Wo; ox++) {
                                int ix = ox * c->stride - c->pad + kx;
                                if (ix < 0 || ix >= c->W) continue;
                                s += (double)g[oy * c->Wo + ox] * (double)xc[iy * c->W + ix];
                            }
                        }
                    }
                    *to++ = (float)s;
                }
    }
}

void hdo__ref_score_top(int K, int C, float *z, int32_t label, int64_t *hits) {
    score_tops((size_t)K, (size_t)C, z, label, hits);
}

void hdo__ref_score_loss(int K, int C, const float *e, const float *own, double *loss) {
    score_losses((size_t)K, (size_t)C, e, own, loss);
}
