/* SPDX-License-Identifier: Apache-2.0 — a check as JSON and as a figure. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/json.h"
#include "lab/check/lab.h"
#include "hdo/lab/report.h"

static void put_agreement(hdo_json *j, const hdo_check_agreement *a) {
    hdo__json_object(j, "agreement");
    hdo__json_bool(j, "ok", a->ok);
    hdo__json_text(j, "reference", a->reference);
    HDO_JSON_INTS(j, {"directions", a->directions}, {"batch", a->batch});
    HDO_JSON_REALS(j, {"loss", a->loss}, {"grad_norm", a->grad_norm}, {"jvp_error", a->jvp_error},
                   {"central_error", a->central_error}, {"complex_error", a->complex_error});
    hdo__json_end(j, '}');
}

static void put_sweep(hdo_json *j, const hdo_check_sweep *w) {
    hdo__json_object(j, "nu_sweep");
    HDO_JSON_REALS(j, {"df", w->df}, {"nu_one_sided", w->nu_one}, {"nu_one_sided_low", w->lo_one},
                   {"nu_one_sided_high", w->hi_one}, {"nu_central", w->nu_central}, {"nu_central_low", w->lo_central},
                   {"nu_central_high", w->hi_central}, {"nu_theory", w->nu_theory});
    hdo__json_array(j, "points");
    for (int i = 0; i < w->n; i++) {
        hdo__json_object(j, NULL);
        HDO_JSON_REALS(j, {"nu", w->nu[i]}, {"one_sided", w->one_sided[i]}, {"central", w->central[i]});
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, ']');
    hdo__json_end(j, '}');
}

static void put_class(hdo_json *j, const hdo_check_class *c) {
    hdo__json_object(j, NULL);
    hdo__json_text(j, "name", c->name);
    hdo__json_text(j, "estimator", c->estimator);
    HDO_JSON_INTS(j, {"count", c->count}, {"rv", c->rv}, {"batch", c->batch});
    hdo__json_text(j, "directions", c->per_tensor ? "per-tensor" : "whole");
    HDO_JSON_REALS(j, {"nu", c->nu}, {"lr", c->lr}, {"loss", c->loss}, {"grad_norm", c->grad_norm},
                   {"cosine", c->cosine}, {"cosine_theory", c->cosine_theory}, {"variance", c->variance},
                   {"variance_se", c->variance_se}, {"variance_theory", c->variance_theory}, {"bias", c->bias},
                   {"bias_se", c->bias_se}, {"bias_bound", c->bias_bound}, {"slope_error", c->slope_error},
                   {"data_noise", c->data_noise}, {"lr_best", c->lr_best}, {"lr_max", c->lr_max},
                   {"rv_useful", c->rv_useful}, {"rv_data", c->rv_data}, {"noise_ratio", c->noise_ratio},
                   {"rv_even", c->rv_even}, {"time_s", c->time_s});
    HDO_JSON_INTS(j, {"samples", c->samples}, {"least_shard", c->least_shard},
                  {"memory_bytes", (int64_t)c->memory_bytes}, {"forward", c->forward}, {"backward", c->backward},
                  {"jvp", c->jvp});
    hdo__json_end(j, '}');
}

static void put_trial(hdo_json *j, const hdo_check_result *r) {
    const hdo_check_trial *t = &r->trial;
    hdo__json_object(j, "trial");
    hdo__json_int(j, "steps", t->steps);
    hdo__json_bool(j, "diverged", t->diverged);
    hdo__json_text(j, "class", t->diverged && t->cls >= 0 ? r->cls[t->cls].name : NULL);
    HDO_JSON_REALS(j, {"node", t->diverged && t->cls >= 0 ? (double)t->node : (double)NAN},
                   {"step", t->diverged && t->cls >= 0 ? (double)t->step : (double)NAN}, {"loss_start", t->loss_start},
                   {"loss_end", t->loss_end}, {"time_s", t->time_s});
    hdo__json_end(j, '}');
}

char *hdo_check_json(const hdo_check_result *r) {
    static const char *const level[] = {"info", "advice", "problem"};
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    hdo__json_text(&j, "model", r->model);
    hdo__json_text(&j, "data", r->data);
    HDO_JSON_INTS(&j, {"d", r->d}, {"live", r->live}, {"n", r->n}, {"tensors", r->n_tensors});
    put_agreement(&j, &r->agreement);
    put_sweep(&j, &r->sweep);
    hdo__json_object(&j, "curvature");
    HDO_JSON_REALS(&j, {"L", r->curvature.L}, {"trace", r->curvature.trace}, {"trace_se", r->curvature.trace_se},
                   {"dimension", r->curvature.dimension}, {"horizon", r->curvature.horizon},
                   {"effective_dim", r->curvature.effective_dim});
    hdo__json_end(&j, '}');
    hdo__json_array(&j, "classes");
    for (int k = 0; k < r->n_classes; k++) put_class(&j, &r->cls[k]);
    hdo__json_end(&j, ']');
    put_trial(&j, r);
    hdo__json_array(&j, "notes");
    for (int i = 0; i < r->n_notes; i++) {
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, "level", level[r->note[i].level]);
        hdo__json_text(&j, "class", r->note[i].cls >= 0 ? r->cls[r->note[i].cls].name : NULL);
        hdo__json_text(&j, "text", r->note[i].text);
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    hdo__json_real(&j, "time_s", r->time_s);
    return hdo__json_finish(&j);
}

/* Curves borrow the arrays of the result; the figure does not write to them. */
hdo_status hdo_check_figure(const hdo_check_result *r, const char *base, unsigned formats, hdo_error *e) {
    hdo_check_sweep w = r->sweep;
    double none[HDO_CHECK_NU_MAX] = {0};
    hdo_curve curves[2] = {
        {.label = "one-sided", .n_runs = 1, .n_points = w.n, .x = w.nu, .mean = w.one_sided, .se = none},
        {.label = "central", .n_runs = 1, .n_points = w.n, .x = w.nu, .mean = w.central, .se = none}};
    hdo_figure f = {.title = "Error of a difference slope against the step",
                    .x_label = "step nu",
                    .y_label = "relative error of the slope",
                    .log_x = true,
                    .log_y = true,
                    .curves = curves,
                    .n_curves = 2};
    return hdo_figure_write(&f, base, formats, e);
}
