/* SPDX-License-Identifier: Apache-2.0
 *
 * Finite differences along random directions (HDO, Definition 1):
 *
 *     fd          G = (1/rv) sum_r  (F(x + nu u_r) - F(x)) / nu  u_r                     rv + 1 forward passes
 *     fd-central  G = (1/rv) sum_r  (F(x + nu u_r) - F(x - nu u_r)) / (2 nu)  u_r        2 rv forward passes
 *
 * Both estimate grad F_nu(x) = E grad F(x + nu u), off by at most nu L sqrt(d) (docs/theory.md). A central slope has an
 * error of second order in nu, a one-sided one of first order: in the mean over Gaussian u that difference is gone, in
 * the variance it is not. Losses are double because the difference cancels.
 *
 * per-tensor: every tensor is perturbed by itself, so an estimate takes rv forward passes a tensor.
 */
#include "estimator/estimator.h"

typedef struct fd_ctx {
    const hdo_objective *f;
    const hdo_request *q;
    hdo_work *w;
    double nu, loss; /* F(x); central: sum of all losses seen, for their mean */
    double *minus;   /* central: losses at x - nu u */
    int64_t forward;
} fd_ctx;

/* The step the arithmetic really takes: losses are evaluated with a float. */
static double float_nu(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q) {
    return (double)(float)hdo__request_nu(s, f, q);
}

static size_t fd_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)batch;
    return hdo__slopes_work_bytes(s, f);
}

static hdo_status fd_slopes(void *ctx, const hdo_dirs *u, int first, int k, double *slope) {
    fd_ctx *c = ctx;
    c->forward += k;
    hdo_status st = hdo__objective_loss_many(c->f, c->q->batch, c->q->x, u, first, k, (float)c->nu, c->w, slope);
    for (int r = 0; r < k; r++) slope[r] = (slope[r] - c->loss) / c->nu;
    return st;
}

static hdo_status fd_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                              float *g, hdo_estimate_info *info) {
    fd_ctx c = {.f = f, .q = q, .w = w, .nu = float_nu(s, f, q), .forward = 1};
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->loss(f, q->batch, q->x, w, &c.loss, f->n_buf > 0 ? g + f->d : NULL);
    if (st == HDO_OK) st = hdo__estimate_slopes(s, f, q, w, fd_slopes, &c, g);
    info->loss = c.loss;
    info->cost = info->forward = c.forward;
    return st;
}

const hdo_estimator_ops hdo__est_fd = {
    .name = "fd",
    .help = "one-sided finite differences along random directions (rv + 1 forward passes)",
    .needs = HDO_CAN_LOSS,
    .zeroth = true,
    .difference = true,
    .family = HDO_EST_ONE_SIDED,
    .work_bytes = fd_work_bytes,
    .estimate = fd_estimate,
};

/* ---- central ---- */

static size_t central_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    return fd_work_bytes(s, f, batch) + hdo__arena_round(HDO_DIRS_AT_ONCE * sizeof(double));
}

static hdo_status central_slopes(void *ctx, const hdo_dirs *u, int first, int k, double *slope) {
    fd_ctx *c = ctx;
    const hdo_batch *b = c->q->batch;
    c->forward += 2 * k;
    hdo_status st = hdo__objective_loss_many(c->f, b, c->q->x, u, first, k, (float)c->nu, c->w, slope);
    if (st == HDO_OK) st = hdo__objective_loss_many(c->f, b, c->q->x, u, first, k, (float)-c->nu, c->w, c->minus);
    for (int r = 0; r < k; r++) {
        c->loss += slope[r] + c->minus[r];
        slope[r] = (slope[r] - c->minus[r]) / (2.0 * c->nu);
    }
    return st;
}

/* F(x) itself is not needed. Reported is the mean of the 2 rv losses, which is F(x) to second order in nu; batch-norm
 * statistics take a pass at x, and then its loss is there too. */
static hdo_status central_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                                   float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena);
    fd_ctx c = {.f = f, .q = q, .w = w, .nu = float_nu(s, f, q)};
    c.minus = hdo__arena_doubles(w->arena, HDO_DIRS_AT_ONCE);
    double at_x = 0.0;
    hdo_status st = HDO_OK;
    hdo__keep_buffers(f, q, g);
    if (f->n_buf > 0) st = f->ops->loss(f, q->batch, q->x, w, &at_x, g + f->d);
    if (st == HDO_OK) st = hdo__estimate_slopes(s, f, q, w, central_slopes, &c, g);
    info->loss = f->n_buf > 0 ? at_x : c.loss / (double)c.forward;
    info->cost = info->forward = c.forward + (f->n_buf > 0 ? 1 : 0);
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_fd_central = {
    .name = "fd-central",
    .help = "central finite differences along random directions (2 rv forward passes)",
    .needs = HDO_CAN_LOSS,
    .zeroth = true,
    .difference = true,
    .family = HDO_EST_CENTRAL,
    .work_bytes = central_work_bytes,
    .estimate = central_estimate,
};
