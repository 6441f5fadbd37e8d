/* SPDX-License-Identifier: Apache-2.0 — fo: the minibatch gradient itself, by reverse mode. */
#include "estimator/estimator.h"

static size_t fo_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)s;
    (void)f;
    (void)batch;
    return 0;
}

static hdo_status fo_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                              float *g, hdo_estimate_info *info) {
    (void)s;
    hdo__keep_buffers(f, q, g);
    info->backward = 1;
    info->cost = HDO_COST_GRADIENT;
    return f->ops->grad(f, q->batch, q->x, w, g, &info->loss, f->n_buf > 0 ? g + f->d : NULL);
}

const hdo_estimator_ops hdo__est_fo = {
    .name = "fo",
    .help = "gradient by back-propagation (first order)",
    .needs = HDO_CAN_GRAD,
    .family = HDO_EST_GRADIENT,
    .work_bytes = fo_work_bytes,
    .estimate = fo_estimate,
};
