/* SPDX-License-Identifier: Apache-2.0
 *
 * fd-coord: differences along the coordinates (`cge` in the authors' code), for small d:
 *
 *     G_j = (F(x + nu e_j) - F(x)) / nu      for every j: d + 1 forward passes, no random direction, error nu H_jj / 2
 *
 * With `coords` = m > 0 an estimate takes only m coordinates, a uniformly random set drawn anew each step, and weighs
 * them by d/m, so that the mean is the same: E|G|^2 = (d/m)|g|^2 up to nu. rv, directions and distribution have no say.
 */
#include <string.h>

#include "estimator/estimator.h"

static size_t coord_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)s;
    (void)f;
    (void)batch;
    return hdo__arena_round(HDO_DIRS_AT_ONCE * sizeof(double));
}

static hdo_status coord_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                                 float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena), d = f->d;
    size_t m = s->coords > 0 && (size_t)s->coords < d ? (size_t)s->coords : d;
    double *c = hdo__arena_doubles(w->arena, HDO_DIRS_AT_ONCE);
    float nu = (float)hdo__request_nu(s, f, q);
    hdo_dirs u = hdo__request_dirs(s, f, q);
    /* A keyed bijection of 0 .. d-1: its first m values are the coordinates of this step, without an array. */
    hdo_perm axes = hdo__perm(hdo__sibling_stream(&u, HDO_RNG_CHI), d);
    u.dist = HDO_DIST_AXES;
    u.axes = m < d ? &axes : NULL;
    hdo__keep_buffers(f, q, g);
    memset(g, 0, d * sizeof(float));
    hdo_status st = f->ops->loss(f, q->batch, q->x, w, &info->loss, f->n_buf > 0 ? g + d : NULL);
    for (size_t first = 0; first < m && st == HDO_OK; first += HDO_DIRS_AT_ONCE) {
        int k = m - first < HDO_DIRS_AT_ONCE ? (int)(m - first) : HDO_DIRS_AT_ONCE;
        if (hdo__request_given_up(q)) {
            st = HDO_E_STOPPED;
            break;
        }
        st = hdo__objective_loss_many(f, q->batch, q->x, &u, (int)first, k, nu, w, c);
        for (int r = 0; r < k; r++) {
            size_t j = u.axes != NULL ? (size_t)hdo__perm_at(u.axes, first + (uint64_t)r) : first + (size_t)r;
            g[j] = (float)((c[r] - info->loss) / (double)nu * ((double)d / (double)m));
        }
    }
    info->cost = info->forward = (int64_t)m + 1;
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_fd_coord = {
    .name = "fd-coord",
    .help = "finite differences coordinate by coordinate, all or `coords` of them (d + 1 forward passes; small d)",
    .needs = HDO_CAN_LOSS,
    .zeroth = true,
    .axes = true,
    .difference = true,
    .family = HDO_EST_ONE_SIDED,
    .work_bytes = coord_work_bytes,
    .estimate = coord_estimate,
};
