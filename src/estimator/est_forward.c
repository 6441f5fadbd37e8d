/* SPDX-License-Identifier: Apache-2.0
 *
 * forward: true forward-mode differentiation (Baydin et al., 2022). The slope u . grad F comes from one Jacobian-vector
 * product a direction: no reverse pass, no stored activations, no step nu, no bias:
 *
 *     G = (1/rv) sum_r (u_r . grad F) u_r,      E G = grad F,   E|G|^2 = (1 + (d+1)/rv) |grad F|^2  (Gaussian u).
 *
 * This is what a device that cannot back-propagate runs; forward-sim and forward-law draw the same random variable on
 * a device that can. per-tensor: one product a tensor and direction.
 */
#include "estimator/estimator.h"

typedef struct jvp_ctx {
    const hdo_objective *f;
    const hdo_request *q;
    hdo_work *w;
    double loss;
    float *buf; /* updated buffers of the first pass, then NULL */
    int64_t jvp;
} jvp_ctx;

static size_t forward_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)batch;
    return hdo__slopes_work_bytes(s, f);
}

static hdo_status jvp_slopes(void *ctx, const hdo_dirs *u, int first, int k, double *slope) {
    jvp_ctx *c = ctx;
    hdo_status st = c->f->ops->jvp(c->f, c->q->batch, c->q->x, u, first, k, c->w, &c->loss, slope, c->buf);
    c->buf = NULL;
    c->jvp += k;
    return st;
}

static hdo_status forward_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                                   float *g, hdo_estimate_info *info) {
    jvp_ctx c = {.f = f, .q = q, .w = w, .buf = f->n_buf > 0 ? g + f->d : NULL};
    hdo__keep_buffers(f, q, g);
    hdo_status st = hdo__estimate_slopes(s, f, q, w, jvp_slopes, &c, g);
    info->loss = c.loss;
    info->jvp = c.jvp;
    info->cost = HDO_COST_JVP * c.jvp;
    return st;
}

const hdo_estimator_ops hdo__est_forward = {
    .name = "forward",
    .help = "forward-mode differentiation: exact slopes along random directions (rv Jacobian-vector products)",
    .needs = HDO_CAN_JVP,
    .zeroth = true,
    .family = HDO_EST_FORWARD,
    .work_bytes = forward_work_bytes,
    .estimate = forward_estimate,
};
