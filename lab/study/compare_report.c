/* SPDX-License-Identifier: Apache-2.0 — a comparison as figures and as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/json.h"
#include "hdo/lab/report.h"
#include "lab/study/study_internal.h"

static const char *const names[] = {"distance", "gamma", "mg", "value", "grad", "gamma-mean"};
static const char *const titles[] = {"|mu_t - x*|^2", "consensus distance Gamma_t",     "second moment M_t^G",
                                     "f(y_t) - f*",   "mean of |grad f(mu)|^2 up to t", "mean of Gamma up to t"};
const char *hdo_quantity_name(hdo_quantity q) {
    return names[q];
}
const char *hdo_quantity_title(hdo_quantity q) {
    return titles[q];
}

/* ---- figures ---- */

hdo_status hdo_comparison_figures(const hdo_comparison *c, const char *base, unsigned formats, hdo_error *e) {
    size_t np = (size_t)c->n_points;
    double *x = calloc(2 * np, sizeof *x), *zero = x + np;
    if (x == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a figure");
    for (size_t i = 0; i < np; i++) x[i] = (double)c->t[i];
    hdo_status st = HDO_OK;
    for (int q = 0; q < HDO_QUANTITIES && st == HDO_OK; q++) {
        if (!c->verdict[q].measured) continue;
        int from = c->n_points > 1 ? 1 : 0; /* t = 0 has no logarithm */
        hdo_curve curve[2] = {
            {.n_runs = c->seeds,
             .n_points = c->n_points - from,
             .x = x + from,
             .mean = c->mean[q] + from,
             .se = c->se[q] + from},
            {.n_runs = 1, .n_points = c->n_points - from, .x = x + from, .mean = c->bound[q] + from, .se = zero}};
        snprintf(curve[0].label, sizeof curve[0].label, "measured (%d seeds)", c->seeds);
        snprintf(curve[1].label, sizeof curve[1].label, c->verdict[q].holds ? "bound" : "bound (assumptions fail)");
        hdo_figure f = {.title = titles[q],
                        .x_label = "round t",
                        .y_label = titles[q],
                        .log_x = true,
                        .log_y = true,
                        .curves = curve,
                        .n_curves = c->verdict[q].bounded ? 2 : 1};
        char name[HDO_PATH_MAX];
        snprintf(name, sizeof name, "%s-%s", base, names[q]);
        st = hdo_figure_write(&f, name, formats, e);
    }
    free(x);
    return st;
}

static void put_round(hdo_json *j, const char *key, bool known, int64_t t) {
    hdo__json_real(j, key, known ? (double)t : (double)NAN);
}

char *hdo_comparison_json(const hdo_comparison *c) {
    hdo_json j;
    char *inner = hdo_assessment_json(&c->assessment);
    hdo__json_begin(&j, true, 1);
    HDO_JSON_INTS(&j, {"seeds", c->seeds}, {"diverged", c->diverged});
    hdo__json_bool(&j, "violated", c->violated);
    hdo__json_object(&j, "quantities");
    for (int q = 0; q < HDO_QUANTITIES; q++) {
        const hdo_bound_check *v = &c->verdict[q];
        if (!v->measured) continue;
        hdo__json_object(&j, names[q]);
        hdo__json_bool(&j, "assumptions_hold", v->holds);
        hdo__json_bool(&j, "applies", v->bounded);
        hdo__json_bool(&j, "violated", v->violated);
        HDO_JSON_REALS(&j, {"mean", v->mean}, {"se", v->se}, {"bound", v->bound},
                       {"slack", v->bounded ? v->slack : (double)NAN}, {"tightest", v->tightest});
        put_round(&j, "tightest_t", v->bounded, v->tightest_t);
        hdo__json_real(&j, "worst_z", v->worst_z);
        put_round(&j, "worst_t", v->bounded, v->worst_t);
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, '}');
    hdo__json_raw(&j, "theory", inner != NULL ? inner : "null");
    free(inner);
    return hdo__json_finish(&j);
}
