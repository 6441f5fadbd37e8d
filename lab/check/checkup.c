/* SPDX-License-Identifier: Apache-2.0 — the whole of a check: slopes, then every class, then advice. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "lab/check/lab.h"

hdo_check_options hdo_check_default(void) {
    return (hdo_check_options){.time_s = 2.0, .directions = 16, .samples = 400, .try_steps = 60, .try_s = 20.0};
}

hdo_status hdo_check(const hdo_config *c, const hdo_check_options *options, hdo_check_result *out, hdo_error *e) {
    hdo_check_options o = options != NULL ? *options : hdo_check_default();
    if (o.directions < 2) o.directions = 2;
    if (o.directions > HDO_DIRS_AT_ONCE) o.directions = HDO_DIRS_AT_ONCE;
    if (o.samples < 2) o.samples = 2;
    memset(out, 0, sizeof *out);
    double start = hdo__now_s();
    hdo_lab lab = {0};
    hdo_status st = hdo_config_check(c, e);
    if (st == HDO_OK) st = hdo__lab_open(&lab, c, &o, e);
    if (st == HDO_OK) {
        memcpy(out->model, c->model.name, sizeof out->model);
        memcpy(out->data, lab.problem.train != NULL ? c->data.name : "none",
               lab.problem.train != NULL ? sizeof out->data : sizeof "none");
        out->d = (int64_t)lab.f->d;
        out->live = (int64_t)hdo__objective_live(lab.f);
        out->n_buf = (int64_t)lab.f->n_buf;
        out->n = lab.problem.n;
        out->n_tensors = lab.f->n_tensors;
        out->n_classes = c->n_classes;
        st = hdo__check_slopes(&lab, out, e);
    }
    for (int k = 0; k < c->n_classes && st == HDO_OK; k++) st = hdo__check_class(&lab, k, out, &out->cls[k], e);
    out->curvature.effective_dim = out->curvature.horizon = (double)NAN; /* hdo_check_horizon knows */
    for (int k = 0; k < out->n_classes; k++) out->cls[k].noise_ratio = out->cls[k].rv_even = (double)NAN;
    if (st == HDO_OK) hdo__check_advise(c, out);
    out->time_s = hdo__now_s() - start;
    hdo__lab_close(&lab);
    return st;
}
