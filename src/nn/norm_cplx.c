/* SPDX-License-Identifier: Apache-2.0 — normalisation at complex points. */
#include "nn/norm_cplx.h"

#include "kernels/cplx.h"

/* Number i of a + i nu t; t may be NULL (zero). */
static hdo_z number(const float *a, const float *t, size_t i, double nu) {
    return (hdo_z){(double)a[i], t != NULL ? nu * (double)t[i] : 0.0};
}

static void group_stats(const hdo_layer *l, double nu, const hdo_norm_group *g, const float *in, const float *tin,
                        hdo_z *mean, hdo_z *rstd) {
    double n = (double)g->runs * (double)g->len;
    hdo_z sum = {0.0, 0.0}, sq = {0.0, 0.0};
    if (g->fixed != NULL) {
        *mean = (hdo_z){g->fixed[0], 0.0};
        *rstd = (hdo_z){g->fixed[1], 0.0};
        return;
    }
    for (size_t r = 0, k = g->first; r < g->runs; r++, k += g->stride)
        for (size_t i = k; i < k + g->len; i++) sum = hdo__z_add(sum, number(in, tin, i, nu));
    *mean = (hdo_z){sum.re / n, sum.im / n};
    for (size_t r = 0, k = g->first; r < g->runs; r++, k += g->stride)
        for (size_t i = k; i < k + g->len; i++) {
            hdo_z off = hdo__z_sub(number(in, tin, i, nu), *mean);
            sq = hdo__z_add(sq, hdo__z_mul(off, off));
        }
    *rstd = hdo__z_inverse(hdo__z_sqrt((hdo_z){sq.re / n + (double)l->eps, sq.im / n}));
}

void hdo__norm_cplx(const hdo_layer *l, double nu, const hdo_norm_group *g, const hdo_io *io) {
    const float *in = io->in, *tin = io->tin;
    float *out = io->out, *tout = io->tout;
    hdo_z mean, rstd;
    group_stats(l, nu, g, in, tin, &mean, &rstd);
    for (size_t r = 0, k = g->first; r < g->runs; r++, k += g->stride)
        for (size_t i = 0; i < g->len; i++) {
            hdo_z xh = hdo__z_mul(hdo__z_sub(number(in, tin, k + i, nu), mean), rstd);
            hdo_z y = hdo__z_mul(number(g->w, g->tw, i * g->step, nu), xh);
            if (g->b != NULL) y = hdo__z_add(y, number(g->b, g->tb, i * g->step, nu));
            bool off = l->relu && y.re < 0.0;
            out[k + i] = off ? 0 : (float)y.re;
            tout[k + i] = off ? 0 : (float)(y.im / nu);
        }
}
