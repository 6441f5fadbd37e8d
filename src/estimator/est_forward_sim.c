/* SPDX-License-Identifier: Apache-2.0
 *
 * forward-sim: the paper's simulation of forward mode. One gradient g by reverse mode, then literally
 *
 *     G = (1/rv) sum_r (u_r . g) u_r                       whole: one u over all coordinates
 *     G_l = (1/rv) sum_r (u_{l,r} . g_l) u_{l,r}           per-tensor: the same for every tensor l by itself
 *
 * A direction is written out once, at its full length: reading it again costs less than drawing it again (600 million
 * normals a second against several thousand million floats a second from cache or memory).
 */
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"

static size_t sim_work_bytes(const hdo_estimator *s, const hdo_objective *f) {
    return 2 * hdo__arena_round(f->d * sizeof(float)) + hdo__arena_round((size_t)s->rv * sizeof(float));
}

static void add_directions(const hdo_estimator *s, const hdo_objective *f, const hdo_dirs *u, const float *g, float *dir,
                           float *out) {
    memset(out, 0, f->d * sizeof(float));
    for (int r = 0; r < s->rv; r++) {
        hdo__dirs_fill(u, r, 0, f->d, dir);
        if (s->directions == HDO_DIRECTIONS_WHOLE) {
            hdo__axpy(f->d, (float)(hdo__dot(f->d, dir, g) / (double)s->rv), dir, out);
            continue;
        }
        for (int l = 0; l < f->n_tensors; l++) {
            size_t off = f->tensors[l].off, len = f->tensors[l].len;
            double c = hdo__dot(len, dir + off, g + off);
            hdo__axpy(len, (float)(c / (double)s->rv), dir + off, out + off);
        }
    }
}

static hdo_status sim_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                               float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena);
    float *grad = hdo__arena_floats(w->arena, f->d), *dir = hdo__arena_floats(w->arena, f->d);
    float *scale = hdo__arena_floats(w->arena, (size_t)s->rv);
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->grad(f, q->batch, q->x, w, grad, &info->loss, f->n_buf > 0 ? g + f->d : NULL);
    if (st == HDO_OK) {
        hdo_dirs u = hdo__request_dirs(s, f, q);
        if (u.dist == HDO_DIST_SPHERE) {
            hdo__dirs_sphere_scale(&u, s->rv, scale);
            u.scale = scale;
        }
        add_directions(s, f, &u, grad, dir, g);
    }
    info->backward = 1;
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_forward_sim = {
    .name = "forward-sim",
    .help = "forward mode as the paper simulates it: one gradient, then rv literal random vectors",
    .needs = HDO_CAN_GRAD,
    .zeroth = true,
    .work_bytes = sim_work_bytes,
    .estimate = sim_estimate,
};
