/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of one instruction set: products, and convolutions sent to the kernel that fits them best.
 */
#include "kernels/simd_mm.h"

#define NAME_STR2(x) #x
#define NAME_STR(x) NAME_STR2(x)

#ifndef __AVX512F__
size_t HDO_ISA_FN(hdo__mm_conv_work)(const hdo_conv *c) {
    if (HDO_ISA_FN(hdo__wino_fits)(c)) return HDO_ISA_FN(hdo__wino_work)(c);
    bool fwd = HDO_ISA_FN(hdo__direct_fits)(c), bwd_w = HDO_ISA_FN(hdo__direct_fits_w)(c);
    size_t one = fwd || bwd_w ? HDO_ISA_FN(hdo__direct_work)(c) : 0;
    size_t two = fwd ? 0 : HDO_ISA_FN(hdo__igemm_work)(c), three = bwd_w ? 0 : HDO_ISA_FN(hdo__igemm_w_work)(c);
    size_t four = HDO_ISA_FN(hdo__stem_fits)(c) ? HDO_ISA_FN(hdo__stem_work)(c) : 0;
    if (two > one) one = two;
    if (three > one) one = three;
    return four > one ? four : one;
}

void HDO_ISA_FN(hdo__mm_conv_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                                  hdo_arena *a) {
    if (HDO_ISA_FN(hdo__wino_fits)(c))
        HDO_ISA_FN(hdo__wino_fwd)(c, x, w, bias, y, a);
    else if (HDO_ISA_FN(hdo__stem_fits)(c))
        HDO_ISA_FN(hdo__stem_fwd)(c, x, w, bias, y, a);
    else if (HDO_ISA_FN(hdo__direct_fits)(c))
        HDO_ISA_FN(hdo__direct_fwd)(c, x, w, bias, y, a);
    else
        HDO_ISA_FN(hdo__igemm_fwd)(c, x, w, bias, y, a);
}

void HDO_ISA_FN(hdo__mm_conv_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a) {
    if (HDO_ISA_FN(hdo__wino_fits)(c))
        HDO_ISA_FN(hdo__wino_bwd_x)(c, dy, w, dx, a);
    else if (HDO_ISA_FN(hdo__direct_fits)(c))
        HDO_ISA_FN(hdo__direct_bwd_x)(c, dy, w, dx, a);
    else
        HDO_ISA_FN(hdo__igemm_bwd_x)(c, dy, w, dx, a);
}

/* db (O) = sums of dy over samples and pixels: lanes in float within one map, maps in double. */
static void bias_grad(const hdo_conv *c, const float *dy, float *db) {
    size_t O = (size_t)c->O, map = (size_t)c->Ho * (size_t)c->Wo;
    for (size_t o = 0; o < O; o++) {
        double total = 0;
        for (size_t b = 0; b < (size_t)c->B; b++) {
            const float *g = dy + b * c->y_step + o * map;
            vec s0 = v_zero(), s1 = v_zero();
            size_t i = 0;
            for (; i + 2 * VL <= map; i += 2 * VL) {
                s0 = v_add(s0, v_load(g + i));
                s1 = v_add(s1, v_load(g + i + VL));
            }
            for (; i + VL <= map; i += VL) s0 = v_add(s0, v_load(g + i));
            if (i < map) s1 = v_add(s1, v_load_part(g + i, map - i));
            total += (double)v_sum(v_add(s0, s1));
        }
        db[o] = (float)total;
    }
}

void HDO_ISA_FN(hdo__mm_conv_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, float *db,
                                    hdo_arena *a) {
    if (HDO_ISA_FN(hdo__wino_fits)(c))
        HDO_ISA_FN(hdo__wino_bwd_w)(c, x, dy, dw, a);
    else if (HDO_ISA_FN(hdo__direct_fits_w)(c))
        HDO_ISA_FN(hdo__direct_bwd_w)(c, x, dy, dw, a);
    else
        HDO_ISA_FN(hdo__igemm_bwd_w)(c, x, dy, dw, a);
    if (db != NULL) bias_grad(c, dy, db);
}

#endif

const hdo_mm_simd HDO_CAT(hdo__mm, HDO_ISA) = {
    .name = NAME_STR(HDO_ISA),
    .gemm = HDO_ISA_FN(hdo__mm_gemm),
    .conv_work = MM_CONV_FN(hdo__mm_conv_work),
    .conv_fwd = MM_CONV_FN(hdo__mm_conv_fwd),
    .conv_bwd_x = MM_CONV_FN(hdo__mm_conv_bwd_x),
    .conv_bwd_w = MM_CONV_FN(hdo__mm_conv_bwd_w),
    .sparse_work = HDO_ISA_FN(hdo__sparse_work),
    .sparse_logits = HDO_ISA_FN(hdo__sparse_logits),
    .score_top = HDO_ISA_FN(hdo__score_top),
    .score_loss = HDO_ISA_FN(hdo__score_loss),
};
