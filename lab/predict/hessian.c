/* SPDX-License-Identifier: Apache-2.0 — the spectrum of a problem at its start, for people: bins, dimensions, figures.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hdo/experimental/json.h"
#include "hdo/lab/report.h"
#include "lab/predict/predict_internal.h"

static const double DECADES = 6.0; /* of curvature, below the largest */

static int bin_of(const hdo_hessian_report *s, double l) {
    double at = l > 0.0 ? (1.0 + log10(l / s->l_max) / DECADES) * HDO_HESSIAN_BINS : 0.0;
    return at < 0.0 ? 0 : at >= HDO_HESSIAN_BINS ? HDO_HESSIAN_BINS - 1 : (int)at;
}

/* Directions flatter than the last bin are in it. */
static void fill_bins(const hdo_local *p, hdo_hessian_report *s) {
    if (!(s->l_max > 0.0)) return;
    s->n_bins = HDO_HESSIAN_BINS;
    for (int b = 0; b < s->n_bins; b++)
        s->curvature[b] = s->l_max * pow(10.0, DECADES * ((b + 0.5) / HDO_HESSIAN_BINS - 1.0));
    for (int i = 0; i < p->n_probe; i++) {
        const hdo_quadrature *q = &p->probe[i];
        for (int k = 0; k < q->n; k++) s->count[bin_of(s, q->node[k])] += q->norm2 * q->weight[k] / p->n_probe;
    }
    double all = 0.0;
    for (int i = 0; i < p->n_noise; i++) all += p->noise[i].norm2;
    for (int i = 0; i < p->n_noise && all > 0.0; i++) {
        const hdo_quadrature *q = &p->noise[i];
        for (int k = 0; k < q->n; k++) s->noise[bin_of(s, q->node[k])] += q->norm2 * q->weight[k] / all;
    }
}

/* tr phi_T(H), and the noise of a node of the first zeroth-order class beside that of its data alone. */
static void fill_times(const hdo_run *r, const hdo_local *p, hdo_hessian_report *s) {
    const hdo_class *zo = NULL;
    for (int k = 0; k < r->population.n_classes && zo == NULL; k++) {
        if (r->population.classes[k].estimator.ops->zeroth) zo = &r->population.classes[k];
    }
    double most = fmax(10.0, (double)r->config.steps * 100.0);
    s->n_times = p->n_probe > 0 ? HDO_HESSIAN_TIMES : 0;
    for (int i = 0; i < s->n_times; i++) {
        hdo_horizon h = {s->rate, pow(most, (double)i / (HDO_HESSIAN_TIMES - 1))};
        s->steps[i] = h.steps;
        s->effective_dim[i] = hdo__local_trace(p, hdo__learnt, &h);
        s->noise_ratio[i] = (double)NAN;
        if (zo == NULL) continue;
        double data = hdo__local_noise(p, hdo__learnt, &h) / zo->batch, gb2 = p->g2 + p->c2 / zo->batch;
        double slope = hdo__local_grad(p, hdo__learnt, &h);
        if (data > 0.0) s->noise_ratio[i] = 1.0 + (1.0 + (slope + s->effective_dim[i] * gb2) / data) / zo->estimator.rv;
    }
}

hdo_status hdo_hessian_measure(const hdo_config *c, const hdo_predict_options *opt, const hdo_study_hooks *hooks,
                               hdo_hessian_report *out, hdo_error *e) {
    static const hdo_predict_options usual = {0};
    memset(out, 0, sizeof *out);
    hdo_run *r = NULL;
    hdo_lens lens = {0};
    hdo_local *p = hdo__alloc(sizeof *p);
    if (p == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a spectrum");
    hdo_status st = hdo_run_create(&r, c, NULL, e);
    if (st == HDO_OK) st = hdo__lens_init(&lens, r, opt != NULL ? opt : &usual, hooks, e);
    if (st != HDO_OK) goto out;
    double *x = hdo__alloc(r->problem.objective->d * sizeof *x);
    if (x == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for a point");
        goto out;
    }
    for (size_t j = 0; j < r->problem.objective->d; j++) x[j] = (double)r->population.models.X[j];
    st = hdo__lens_look(&lens, x, p, e);
    hdo__free(x);
    if (st != HDO_OK) goto out;
    *out = (hdo_hessian_report){.d = r->problem.objective->d,
                                .live = p->live,
                                .loss = p->loss,
                                .g2 = p->g2,
                                .c2 = p->c2,
                                .trace = p->trace,
                                .l_max = p->l_max,
                                .l_min = p->l_min,
                                .gradient = p->gradient};
    double n = 0.0;
    for (int k = 0; k < r->population.n_classes; k++) {
        out->rate += r->population.classes[k].count * r->population.classes[k].schedule.lr;
        n += r->population.classes[k].count;
    }
    out->rate /= n;
    fill_bins(p, out);
    fill_times(r, p, out);
out:
    hdo__lens_clear(&lens);
    hdo_run_destroy(r);
    hdo__free(p);
    return st;
}

static void put_list(hdo_json *j, const char *key, const double *v, int n) {
    hdo__json_array(j, key);
    for (int i = 0; i < n; i++) hdo__json_real(j, NULL, v[i]);
    hdo__json_end(j, ']');
}

char *hdo_hessian_json(const hdo_hessian_report *s) {
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    HDO_JSON_INTS(&j, {"d", (int64_t)s->d}, {"live", (int64_t)s->live});
    hdo__json_text(&j, "measured_by", s->gradient ? "gradients" : "losses");
    HDO_JSON_REALS(&j, {"loss", s->loss}, {"gradient_norm2", s->g2}, {"sample_variance", s->c2}, {"trace", s->trace},
                   {"l_max", s->l_max}, {"l_min", s->l_min}, {"rate", s->rate});
    hdo__json_object(&j, "density");
    put_list(&j, "curvature", s->curvature, s->n_bins);
    put_list(&j, "directions", s->count, s->n_bins);
    put_list(&j, "noise", s->noise, s->n_bins);
    hdo__json_end(&j, '}');
    hdo__json_object(&j, "horizon");
    put_list(&j, "steps", s->steps, s->n_times);
    put_list(&j, "effective_dim", s->effective_dim, s->n_times);
    put_list(&j, "noise_ratio", s->noise_ratio, s->n_times);
    hdo__json_end(&j, '}');
    return hdo__json_finish(&j);
}

hdo_status hdo_hessian_figures(const hdo_hessian_report *s, const char *base, unsigned formats, hdo_error *e) {
    double zero[HDO_HESSIAN_BINS] = {0}, count[HDO_HESSIAN_BINS], noise[HDO_HESSIAN_BINS], x[2][HDO_HESSIAN_BINS];
    char path[HDO_PATH_MAX];
    int n[2] = {0, 0};
    for (int b = 0; b < s->n_bins; b++) { /* a logarithmic axis has no zero */
        if (s->count[b] > 0.0) x[0][n[0]] = s->curvature[b], count[n[0]++] = s->count[b];
        if (s->noise[b] > 0.0) x[1][n[1]] = s->curvature[b], noise[n[1]++] = s->noise[b];
    }
    hdo_curve c[2] = {
        {.label = "directions", .n_runs = 1, .n_points = n[0], .x = x[0], .mean = count, .se = zero},
        {.label = "share of the data's noise", .n_runs = 1, .n_points = n[1], .x = x[1], .mean = noise, .se = zero}};
    hdo_figure f = {.title = "spectrum of the Hessian at the start",
                    .x_label = "curvature",
                    .y_label = "directions in a bin",
                    .log_x = true,
                    .log_y = true,
                    .curves = c,
                    .n_curves = 2};
    if (n[0] == 0)
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "there is no spectrum to draw: without gradients only the trace is known");
    hdo_status st = hdo_figure_write(&f, base, formats, e);
    if (st != HDO_OK) return st;
    double dim[HDO_HESSIAN_TIMES], steps[HDO_HESSIAN_TIMES];
    memcpy(dim, s->effective_dim, sizeof dim);
    memcpy(steps, s->steps, sizeof steps);
    hdo_curve d = {.label = "tr phi", .n_runs = 1, .n_points = s->n_times, .x = steps, .mean = dim, .se = zero};
    hdo_figure g = {.title = "effective dimension at horizon T",
                    .x_label = "steps",
                    .y_label = "effective dimension",
                    .log_x = true,
                    .curves = &d,
                    .n_curves = 1};
    snprintf(path, sizeof path, "%s-dimension", base);
    return hdo_figure_write(&g, path, formats, e);
}
