/* SPDX-License-Identifier: Apache-2.0
 *
 * fd: one-sided finite differences (HDO, Definition 1),
 *
 *     G = (1/rv) sum_r  (F(x + nu u_r) - F(x)) / nu  u_r.
 *
 * The rv differences come first; then one pass regenerates the directions tile by tile and accumulates. Nothing of size
 * rv x d is ever held. Biased by at most nu L sqrt(d) (docs/theory.md); losses are double because the difference cancels.
 */
#include "estimator/estimator.h"

static size_t fd_work_bytes(const hdo_estimator *s, const hdo_objective *f) {
    (void)f;
    return hdo__arena_round((size_t)s->rv * sizeof(double)) + hdo__arena_round((size_t)s->rv * sizeof(float));
}

static hdo_status fd_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                              float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena);
    double *c = hdo__arena_doubles(w->arena, (size_t)s->rv);
    float *scale = hdo__arena_floats(w->arena, (size_t)s->rv);
    hdo_dirs u = hdo__request_dirs(s, f, q);
    if (u.dist == HDO_DIST_SPHERE) {
        hdo__dirs_sphere_scale(&u, s->rv, scale);
        u.scale = scale;
    }
    float nu = (float)hdo__request_nu(s, f, q);
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->loss(f, q->batch, q->x, w, &info->loss, f->n_buf > 0 ? g + f->d : NULL);
    if (st == HDO_OK) st = hdo__objective_loss_many(f, q->batch, q->x, &u, 0, s->rv, nu, w, c);
    if (st == HDO_OK) {
        for (int r = 0; r < s->rv; r++) c[r] = (c[r] - info->loss) / (double)nu;
        hdo__combine(&u, s->rv, c, g);
    }
    info->forward = s->rv + 1;
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_fd = {
    .name = "fd",
    .help = "one-sided finite differences along random directions (rv + 1 forward passes)",
    .needs = HDO_CAN_LOSS,
    .zeroth = true,
    .work_bytes = fd_work_bytes,
    .estimate = fd_estimate,
};
