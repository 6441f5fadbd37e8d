/* SPDX-License-Identifier: Apache-2.0
 *
 * complex-step: for an analytic F the imaginary part of F(x + i nu u) / nu is the slope up to nu^2 / 6 times a third
 * derivative, and nothing is subtracted: nu may be as small as the exponent allows and the round-off floor of finite
 * differences is not there (Squire and Trapp 1998; as a zeroth-order oracle: Jongeneel, Yue and Kuhn, "Small errors in
 * random zeroth-order optimization are imaginary"):
 *
 *     G = (1/rv) sum_r  Im F(x + i nu u_r) / nu  u_r
 *
 * A model with kinks (ReLU, max-pool) is not analytic; there the real part picks the piece and the result is the slope
 * of that piece. Such models are refused unless `allow_piecewise` is set. One forward pass at x gives the loss that is
 * reported.
 */
#include <math.h>

#include "estimator/estimator.h"

static const double NU_MIN = 1e-100;

typedef struct complex_ctx {
    const hdo_objective *f;
    const hdo_request *q;
    hdo_work *w;
    double nu;
    int64_t forward;
} complex_ctx;

static size_t complex_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)batch;
    return hdo__slopes_work_bytes(s, f);
}

static hdo_status complex_slopes(void *ctx, const hdo_dirs *u, int first, int k, double *slope) {
    complex_ctx *c = ctx;
    c->forward += k;
    return c->f->ops->complex_step(c->f, c->q->batch, c->q->x, u, first, k, c->nu, c->w, slope);
}

static hdo_status complex_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                                   float *g, hdo_estimate_info *info) {
    /* Below NU_MIN only the exponent would change, and in the end underflow. */
    complex_ctx c = {.f = f, .q = q, .w = w, .nu = fmax(hdo__request_nu(s, f, q), NU_MIN), .forward = 1};
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->loss(f, q->batch, q->x, w, &info->loss, f->n_buf > 0 ? g + f->d : NULL);
    if (st == HDO_OK) st = hdo__estimate_slopes(s, f, q, w, complex_slopes, &c, g);
    info->forward = c.forward;
    info->cost = 1 + HDO_COST_COMPLEX * (c.forward - 1);
    return st;
}

const hdo_estimator_ops hdo__est_complex_step = {
    .name = "complex-step",
    .help = "imaginary part of the loss at x + i nu u: no subtraction, analytic models (rv complex forward passes)",
    .needs = HDO_CAN_COMPLEX,
    .zeroth = true,
    .family = HDO_EST_COMPLEX,
    .work_bytes = complex_work_bytes,
    .estimate = complex_estimate,
};
