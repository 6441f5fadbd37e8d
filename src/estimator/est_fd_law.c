/* SPDX-License-Identifier: Apache-2.0
 *
 * fd-law: the random variable of fd, exactly in law, for losses that see a direction through k numbers only (softmax
 * regression; objective/span.h). With Q an orthonormal basis of what the batch loss sees (proof: docs/estimators.md),
 *
 *     (1/rv) sum_r c_r u_r   =law=   (1/rv) [ Q (sum_r c_r y_r - S Q'z) + S z ],      S = sqrt(sum_r c_r^2),
 *
 * y_r ~ N(0, I_k) and c_r = (F(x + nu Q y_r) - F(x)) / nu for every direction, z ~ N(0, I_d) once: O(d + rv k) instead
 * of O(rv d). No reverse pass. A part of the loss outside the span (l2 regulariser) is differentiated exactly, so with
 * l2 the law is that of fd on the data loss plus the exact gradient of the regulariser: less noise, same mean up to nu.
 *
 * Addresses: y_r takes the numbers of direction r from the start of its block on (k is at most the block's length), z
 * those of a direction number no estimate ever uses.
 */
#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"
#include "objective/span.h"

enum { Y_FLOATS = 1 << 15 }; /* y of the directions taken at once: 128 KiB, or one direction if that is more */

static int at_once(int k) {
    int n = k > 0 ? Y_FLOATS / k : HDO_DIRS_AT_ONCE;
    return n < 1 ? 1 : n < HDO_DIRS_AT_ONCE ? n : HDO_DIRS_AT_ONCE;
}

static size_t law_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)s;
    size_t k = (size_t)f->ops->span->most(f, batch), y = k > Y_FLOATS ? k : Y_FLOATS;
    return f->ops->span->work_bytes(f, batch) + hdo__arena_round(y * sizeof(float)) +
           2 * hdo__arena_round(k * sizeof(double)) + hdo__arena_round(HDO_DIRS_AT_ONCE * sizeof(double));
}

/* sum (k) = sum_r c_r y_r; returns sum_r c_r^2, or less than 0 when given up. */
static double sum_slopes(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, const hdo_dirs *u,
                         const hdo_span *span, hdo_work *w, double *sum) {
    size_t mark = hdo__arena_mark(w->arena), k = (size_t)span->k;
    int most = at_once(span->k);
    float *y = hdo__arena_floats(w->arena, (size_t)most * k);
    double *c = hdo__arena_doubles(w->arena, (size_t)most), nu = hdo__request_nu(s, f, q), S2 = 0.0;
    memset(sum, 0, k * sizeof *sum);
    for (int first = 0; first < s->rv; first += most) {
        int n = s->rv - first < most ? s->rv - first : most;
        if (hdo__request_given_up(q)) {
            S2 = -1.0;
            break;
        }
        for (int r = 0; r < n; r++) hdo__dirs_fill(u, first + r, u->lo, k, y + (size_t)r * k);
        f->ops->span->diff(f, q->batch, span, nu, n, y, w, c);
        for (int r = 0; r < n; r++) {
            double slope = c[r] / nu;
            S2 += slope * slope;
            for (size_t i = 0; i < k; i++) sum[i] += slope * (double)y[(size_t)r * k + i];
        }
    }
    hdo__arena_rewind(w->arena, mark);
    return S2;
}

static hdo_status law_block(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_block block,
                            hdo_work *w, float *g, double *loss) {
    size_t mark = hdo__arena_mark(w->arena);
    const hdo_span_ops *ops = f->ops->span;
    hdo_span span;
    hdo_status st = ops->open(f, q->batch, q->x, block.tensor, w, &span);
    if (st != HDO_OK) return st;
    hdo_dirs u = hdo__request_dirs(s, f, q);
    u.lo = block.lo;
    u.hi = block.hi;
    double *v = hdo__arena_doubles(w->arena, (size_t)span.k), *along = hdo__arena_doubles(w->arena, (size_t)span.k);
    double S2 = sum_slopes(s, f, q, &u, &span, w, v), S = sqrt(S2);
    if (S2 < 0.0) {
        hdo__arena_rewind(w->arena, mark);
        return HDO_E_STOPPED;
    }
    hdo_stream z = u.s;
    z.sub = UINT32_MAX;
    hdo__rng_normal(z, block.lo, block.hi - block.lo, g + block.lo);
    ops->project(f, q->batch, &span, g, w, along);
    for (int i = 0; i < span.k; i++) v[i] = (v[i] - S * along[i]) / (double)s->rv;
    hdo__scale(block.hi - block.lo, (float)(S / (double)s->rv), g + block.lo);
    ops->expand(f, q->batch, &span, v, w, g);
    ops->rest(f, &span, q->x, g);
    *loss = span.loss;
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

static hdo_status law_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                               float *g, hdo_estimate_info *info) {
    hdo_status st = HDO_OK;
    int blocks = hdo__block_count(s, f);
    hdo__keep_buffers(f, q, g);
    for (int b = 0; b < blocks && st == HDO_OK; b++) st = law_block(s, f, q, hdo__block_at(s, f, b), w, g, &info->loss);
    info->cost = info->forward = 1 + (int64_t)s->rv * blocks; /* losses evaluated, each in the small space */
    return st;
}

const hdo_estimator_ops hdo__est_fd_law = {
    .name = "fd-law",
    .help = "the law of fd in O(d + rv k) where the loss sees a direction through k numbers (softmax regression)",
    .needs = HDO_CAN_LOSS | HDO_CAN_SPAN,
    .zeroth = true,
    .gaussian = true,
    .difference = true,
    .family = HDO_EST_ONE_SIDED,
    .work_bytes = law_work_bytes,
    .estimate = law_estimate,
};
