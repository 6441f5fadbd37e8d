/* SPDX-License-Identifier: Apache-2.0
 *
 * forward-law: the random variable of forward-sim, exactly in law, from ONE Gaussian vector (docs/theory.md, section on
 * exact sampling). With chi ~ chi-square(rv) and z ~ N(0, I) independent,
 *
 *     (1/rv) sum_r (u_r . g) u_r   =law=   ((chi - sqrt(chi) z.ghat) / rv) g  +  (|g| sqrt(chi) / rv) z,   ghat = g/|g|.
 *
 * O(d) whatever rv. Per tensor: the same for every tensor with its own chi. It uses the gradient, so it simulates a
 * forward-mode node at first-order cost; a device that cannot back-propagate uses fd or forward.
 */
#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"

static size_t law_work_bytes(const hdo_estimator *s, const hdo_objective *f) {
    (void)s;
    return hdo__arena_round(f->d * sizeof(float));
}

/* out (len) holds z on entry and the estimate on exit. */
static void draw(double rv, double chi, const float *g, size_t len, float *out) {
    double norm2 = hdo__sumsq(len, g);
    if (!(norm2 > 0.0)) { /* g = 0 gives G = 0; a NaN gradient stays visible */
        memcpy(out, g, len * sizeof(float));
        return;
    }
    double norm = sqrt(norm2), root = sqrt(chi);
    double along = hdo__dot(len, out, g) / norm; /* z . ghat */
    hdo__axpby(len, (float)((chi - root * along) / rv), g, (float)(norm * root / rv), out);
}

static hdo_status law_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                               float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena);
    float *grad = hdo__arena_floats(w->arena, f->d);
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->grad(f, q->batch, q->x, w, grad, &info->loss, f->n_buf > 0 ? g + f->d : NULL);
    if (st == HDO_OK) {
        hdo_dirs u = hdo__request_dirs(s, f, q);
        hdo_stream chi = u.s;
        chi.who = hdo__stream(0, HDO_RNG_CHI, u.s.who & 0xffffffu, 0, 0).who;
        hdo__dirs_fill(&u, 0, 0, f->d, g);
        if (s->directions == HDO_DIRECTIONS_WHOLE) {
            draw(s->rv, hdo__rng_chi2(chi, 0, s->rv), grad, f->d, g);
        } else {
            for (int l = 0; l < f->n_tensors; l++) {
                size_t off = f->tensors[l].off;
                draw(s->rv, hdo__rng_chi2(chi, (uint64_t)l, s->rv), grad + off, f->tensors[l].len, g + off);
            }
        }
    }
    info->backward = 1;
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_forward_law = {
    .name = "forward-law",
    .help = "the law of forward-sim from one Gaussian vector, O(d) whatever rv",
    .needs = HDO_CAN_GRAD,
    .zeroth = true,
    .gaussian = true,
    .work_bytes = law_work_bytes,
    .estimate = law_estimate,
};
