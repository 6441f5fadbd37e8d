/* SPDX-License-Identifier: Apache-2.0
 *
 * What the effective dimension says about a configuration, for a check before it runs: noise counts where a direction
 * will have been learnt when the run ends. tr phi_T(H) takes the place of d, and a node's noise is tr(C phi_T(H)).
 */
#include <math.h>

#include "lab/check/lab.h"
#include "lab/predict/predict_internal.h"

enum { SAMPLES_CHECK = 512, PRODUCTS_CHECK = 16 };

/* At equal rates n0 noisy nodes lower the noise of the mean beside n1 quiet ones while their ratio is below this
 * (docs/theory.md 3.8). Without quiet ones there is nothing to lose. */
static double break_even(const hdo_crowd *w, int k) {
    double quiet = 0.0;
    for (int i = 0; i < w->n_classes; i++) quiet += w->cls[i].zeroth ? 0 : w->cls[i].count;
    return quiet > 0.0 ? 2.0 + w->cls[k].count / quiet : HUGE_VAL;
}

static void say(hdo_check_result *r, int k, double even) {
    const hdo_check_class *c = &r->cls[k];
    double dim = r->curvature.effective_dim, T = r->curvature.horizon;
    if (!isfinite(even)) {
        hdo__check_note(r, HDO_CHECK_INFO, k,
                        "Class '%s': after %.0f steps about %.0f of %lld directions have been learnt (effective "
                        "dimension); there a node has %.3g times the noise of its batch.",
                        c->name, T, dim, (long long)r->live, c->noise_ratio);
    } else if (c->noise_ratio <= even) {
        hdo__check_note(r, HDO_CHECK_INFO, k,
                        "Class '%s': after %.0f steps about %.0f of %lld directions have been learnt (effective "
                        "dimension); there a node has %.3g times the noise of a first-order node, below the "
                        "break-even %.3g: at equal rates the class lowers the noise of the mean model.",
                        c->name, T, dim, (long long)r->live, c->noise_ratio, even);
    } else {
        hdo__check_note(r, HDO_CHECK_ADVICE, k,
                        "Class '%s': after %.0f steps about %.0f of %lld directions have been learnt (effective "
                        "dimension); there a node has %.3g times the noise of a first-order node, above the "
                        "break-even %.3g: rv = %.0f would do at equal rates, or lr: auto with mixing.average: auto.",
                        c->name, T, dim, (long long)r->live, c->noise_ratio, even, ceil(c->rv_even));
    }
}

static void judge(const hdo_crowd *w, const hdo_local *p, hdo_check_result *r) {
    double pace = 0.0, quiet = 0.0;
    for (int k = 0; k < w->n_classes; k++) pace += w->cls[k].count * r->cls[k].lr * w->cls[k].gain * w->part / w->n;
    hdo_horizon h = {pace, (double)(w->total > 0 ? w->total : 1)};
    r->curvature.horizon = h.steps;
    r->curvature.effective_dim = hdo__local_trace(p, hdo__learnt, &h);
    for (int k = 0; k < w->n_classes && quiet == 0.0; k++) {
        if (!w->cls[k].zeroth && w->cls[k].count > 0) quiet = hdo__crowd_noise(&w->cls[k], k, p, hdo__learnt, &h);
    }
    for (int k = 0; k < w->n_classes; k++) {
        hdo_crowd_class data = w->cls[k];
        if (!data.zeroth || data.count == 0) continue;
        double all = hdo__crowd_noise(&data, k, p, hdo__learnt, &h), even = break_even(w, k);
        data.zeroth = false;
        double own = hdo__crowd_noise(&data, k, p, hdo__learnt, &h), beside = quiet > 0.0 ? quiet : own;
        if (!(beside > 0.0) || !isfinite(all)) continue; /* no noise of the data: nothing to compare with */
        r->cls[k].noise_ratio = all / beside;
        if (isfinite(even) && even * beside > own) r->cls[k].rv_even = data.rv * (all - own) / (even * beside - own);
        say(r, k, even);
    }
}

hdo_status hdo_check_horizon(const hdo_config *config, hdo_check_result *r, hdo_error *e) {
    static const hdo_predict_options opt = {.samples = SAMPLES_CHECK, .products = PRODUCTS_CHECK};
    hdo_config *c = hdo__alloc(sizeof *c);
    hdo_local *p = hdo__alloc(sizeof *p);
    hdo_predictor *q = NULL;
    hdo_crowd w = {0};
    double *x = NULL;
    hdo_status st = c == NULL || p == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory for a spectrum") : HDO_OK;
    if (st != HDO_OK || config->steps < 1) goto out;
    *c = *config;
    hdo_config_as_base(c);
    for (int k = 0; k < c->n_classes; k++) c->population[k].lr = (hdo_choice){HDO_NUMBER, r->cls[k].lr};
    st = hdo_predictor_create(&q, c, &opt, NULL, e);
    if (st == HDO_E_UNSUPPORTED) { /* no gradients: nothing to say */
        st = HDO_OK;
        goto out;
    }
    if (st == HDO_OK)
        st = hdo__crowd_make(c, 0, q->run->problem.train != NULL ? q->run->problem.train->count : 0, &w, e);
    if (st != HDO_OK) goto out;
    size_t d = q->run->problem.objective->d;
    x = hdo__alloc(d * sizeof *x);
    if (x == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory for a point");
    for (size_t j = 0; j < d && st == HDO_OK; j++) x[j] = (double)q->run->population.models.X[j];
    q->lens.quick = true;
    if (st == HDO_OK) st = hdo__lens_look(&q->lens, x, p, e);
    if (st == HDO_OK) judge(&w, p, r);
    hdo__crowd_clear(&w);
out:
    hdo_predictor_destroy(q);
    hdo__free(x);
    hdo__free(p);
    hdo__free(c);
    return st;
}
