/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates and weights while a run goes on. The mean model depends on v_k = w_k e_k / W alone; at a given pace its noise
 * is least for v_k inverse to a_k = tr(C_k phi_T(H)). Rates make it as far as half of each class's stable rate allows,
 * weights the rest. Everything follows from the mean model and the configuration by sums of fixed order: every rank
 * finds the same numbers, and a checkpoint needs no more than rates and weights.
 */
#include <math.h>

#include "lab/predict/predict_internal.h"

static const double SAFE_KINKS = 0.4; /* the limit of zeroth-order classes is 2 to 3 times too large with kinks */
static const double SAFE = 0.5;       /* of the largest stable rate of a class */
static const double START = 0.5;      /* pace times l_max, if no class says how fast */
static const double MOST = 2.0;       /* times the pace: a few nodes do not run for all */
enum { SAMPLES_AUTO = 256, PRODUCTS_AUTO = 10 };

/* The rate of the first class that has a number; otherwise what the curvature allows, and later what was chosen. */
static double wanted_pace(const hdo_run *r, const hdo_crowd *w, double l_max) {
    for (int k = 0; k < r->population.n_classes; k++) {
        if (!r->population.classes[k].chosen && w->cls[k].count > 0)
            return r->population.classes[k].schedule.lr * w->cls[k].gain;
    }
    double sum = 0.0, W = 0.0;
    for (int k = 0; k < r->population.n_classes; k++) {
        double n = w->cls[k].count / r->population.classes[k].noise;
        sum += n * r->population.classes[k].schedule.lr * w->cls[k].gain;
        W += n;
    }
    return r->progress.step == 0 ? START / l_max : fmin(sum / W, START / l_max); /* kept, unless curvature grew */
}

/* Rates of the chosen classes, sum n_k e_k = n pace, as near to inverse noise as limits allow. */
static void set_rates(hdo_run *r, const hdo_crowd *w, const double *a, const double *limit, double pace) {
    bool held[HDO_CLASSES_MAX] = {false};
    for (int round = 0; round < w->n_classes; round++) {
        double left = w->n * pace, sum = 0.0;
        for (int k = 0; k < w->n_classes; k++) {
            bool fixed = held[k] || !r->population.classes[k].chosen;
            if (fixed) left -= w->cls[k].count * r->population.classes[k].schedule.lr * w->cls[k].gain;
            if (!fixed) sum += w->cls[k].count / a[k];
        }
        for (int k = 0; k < w->n_classes; k++) {
            if (held[k] || !r->population.classes[k].chosen || w->cls[k].count == 0) continue;
            double e = fmax(0.0, left) / sum / a[k] / w->cls[k].gain;
            double most = fmin(SAFE * limit[k], MOST * pace / w->cls[k].gain);
            held[k] = e > most;
            r->population.classes[k].schedule.lr = fmin(e, most);
        }
    }
}

/* A class with a number says how fast: the others go as fast as it does, if they can, and weights do the rest. */
static void follow(hdo_run *r, const hdo_crowd *w, const double *limit, double pace) {
    for (int k = 0; k < w->n_classes; k++) {
        if (r->population.classes[k].chosen)
            r->population.classes[k].schedule.lr = fmin(pace / w->cls[k].gain, SAFE * limit[k]);
    }
}

static void set_weights(hdo_run *r, const hdo_crowd *w, const double *a) {
    double first = 0.0;
    for (int k = 0; k < w->n_classes; k++) { /* w_k e_k is inverse to a_k */
        double e = r->population.classes[k].schedule.lr * w->cls[k].gain;
        if (w->cls[k].count == 0 || !(e > 0.0)) continue;
        if (first == 0.0) first = a[k] * e; /* the first class has weight 1 */
        r->population.classes[k].noise = a[k] * e / first;
    }
}

static hdo_status apply(hdo_run *r, hdo_crowd *w, const hdo_local *p, hdo_error *e) {
    double a[HDO_CLASSES_MAX], limit[HDO_CLASSES_MAX], pace = wanted_pace(r, w, p->l_max);
    hdo_horizon h = {pace, (double)r->config.steps};
    bool all = true;
    if (!(p->l_max > 0.0))
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "the loss has no curvature here: `auto` has nothing to go by, give numbers");
    for (int k = 0; k < w->n_classes; k++) {
        a[k] = hdo__crowd_noise(&w->cls[k], k, p, hdo__learnt, &h);
        limit[k] = hdo__crowd_limit(w, k, k, p);
        if (w->cls[k].zeroth && r->problem.objective->kink != NULL) limit[k] *= SAFE_KINKS;
        all = all && (r->population.classes[k].chosen || w->cls[k].count == 0);
        if (w->cls[k].count > 0 && !(isfinite(a[k]) && a[k] > 0.0))
            return hdo__fail(e, HDO_E_UNSUPPORTED,
                             "class '%s' has no measurable noise: `auto` rates and weights need some", w->cls[k].name);
    }
    if (all) {
        set_rates(r, w, a, limit, pace);
    } else {
        follow(r, w, limit, pace);
    }
    if (r->config.mixing.average.id == HDO_AVERAGE_AUTO) set_weights(r, w, a);
    for (int k = 0; k < w->n_classes; k++) {
        if (w->cls[k].count == 0) continue;
        hdo__log(&r->log, HDO_LOG_INFO,
                 "auto: '%s' has lr %.4g (stable up to %.4g), weight %.4g, noise %.4g (step %lld)", w->cls[k].name,
                 r->population.classes[k].schedule.lr, limit[k], 1.0 / r->population.classes[k].noise, a[k] / a[0],
                 (long long)r->progress.step);
    }
    return HDO_OK;
}

hdo_status hdo_auto_tune(hdo_run *r, hdo_error *e) {
    static const hdo_predict_options opt = {.samples = SAMPLES_AUTO, .products = PRODUCTS_AUTO};
    size_t d = r->problem.objective->d;
    hdo_lens lens = {0};
    hdo_crowd w = {0};
    hdo_local *p = hdo__alloc(sizeof *p);
    double *x = hdo__alloc(d * sizeof *x);
    hdo_status st = p == NULL || x == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory for `auto`") : HDO_OK;
    if (st == HDO_OK) st = hdo__population_mean(&r->population, NULL, e); /* the mean model */
    if (st == HDO_OK) st = hdo__lens_init(&lens, r, &opt, NULL, e);
    if (st == HDO_OK) {
        lens.quick = true;
        lens.probes = lens.noises = 2;
        for (size_t j = 0; j < d; j++) x[j] = (double)r->population.mean.model[j];
        st = hdo__lens_look(&lens, x, p, e);
        p->step = r->progress.step;
    }
    if (st == HDO_OK && !p->gradient)
        st = hdo__fail(e, HDO_E_UNSUPPORTED, "`auto` needs gradients, and this model has none");
    if (st == HDO_OK)
        st = hdo__crowd_make(&r->config, 0, r->problem.train != NULL ? r->problem.train->count : 0, &w, e);
    if (st == HDO_OK) {
        for (int k = 0; k < w.n_classes; k++) w.cls[k].schedule.lr = r->population.classes[k].schedule.lr;
        st = apply(r, &w, p, e);
        hdo__crowd_clear(&w);
    }
    if (lens.run != NULL) hdo__lens_clear(&lens);
    hdo__free(p);
    hdo__free(x);
    return st;
}
