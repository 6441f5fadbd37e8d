/* SPDX-License-Identifier: Apache-2.0
 *
 * Scaling laws on quadratics, measured: how error falls with the number of nodes at equal parallel time (docs/theory.md
 * 3.11), and from which d n0 / n on zeroth-order nodes cost more than they bring. Every law is a straight line in
 * logarithms; the exponent is fitted by least squares with the standard errors over seeds as weights.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/json.h"
#include "base/vec.h"
#include "hdo/experimental/formulas.h"
#include "hdo/lab/report.h"
#include "lab/study/study_internal.h"

enum { SEEDS_MAX = 64 };
#define SIGMAS 3.0 /* an exponent agrees if it is off by at most so many standard errors */

typedef struct job { /* one seed of one point */
    hdo_config config;
    int64_t stride; /* rounds between looks */
    bool gradient;  /* mean of |grad f(mu)|^2 over the run; otherwise mean of f(mu) - f* over its second half */
    double value;
    hdo_status st;
    hdo_error e;
} job;

static void run_job(job *j) {
    hdo_run *r = NULL;
    hdo_stop why = HDO_RUNNING;
    j->st = hdo_run_create(&r, &j->config, NULL, &j->e);
    if (j->st != HDO_OK) return;
    size_t d = r->problem.objective->d;
    double *mu = hdo__alloc(d * sizeof(double)), sum = 0.0, n = 0.0;
    const hdo_model_config *m = &j->config.model;
    if (mu == NULL) j->st = hdo__fail(&j->e, HDO_E_MEMORY, "out of memory for a run");
    while (j->st == HDO_OK && why == HDO_RUNNING) {
        if (j->gradient || 2 * r->progress.step >= j->config.steps) {
            double v = 0.0;
            memset(mu, 0, d * sizeof(double));
            for (int i = 0; i < r->population.models.count; i++)
                hdo__accumulate(d, r->population.models.X + (size_t)i * r->population.models.ld, mu);
            for (size_t k = 0; k < d; k++) {
                double h = hdo_quadratic_eigenvalue(m->smoothness, m->convexity, d, k),
                       x = mu[k] / (double)r->population.models.count;
                v += j->gradient ? h * h * x * x : 0.5 * h * x * x;
            }
            sum += v;
            n += 1.0;
        }
        j->st = hdo_run_advance(r, j->stride, &why, &j->e);
    }
    j->value = why == HDO_DIVERGED || n == 0.0 ? (double)NAN : sum / n;
    hdo__free(mu);
    hdo_run_destroy(r);
}

static void job_task(void *ctx, int task, hdo_work *w) {
    (void)w;
    run_job(&((job *)ctx)[task]);
}

typedef struct setting { /* one population on one problem */
    int d, fo, zo, rv;
    double lr;
    const char *mixing;
    int64_t steps, stride; /* rounds; rounds between looks */
    bool gradient;         /* as in job */
} setting;

typedef struct figure { /* a mean over seeds */
    double mean, se;
} figure;

typedef struct lab {
    hdo_team team;
    job *jobs; /* (SEEDS_MAX) */
    bool quick;
    int seeds, done, total;
    const hdo_study_hooks *hooks;
} lab;

/* Isotropic unless said otherwise, additive noise 1, no heterogeneity: what is left is the noise floor. */
static void problem(hdo_config *c, const setting *s) {
    hdo_config_default(c);
    snprintf(c->model.name, sizeof c->model.name, "quadratic");
    snprintf(c->data.name, sizeof c->data.name, "none");
    snprintf(c->mixing.kind, sizeof c->mixing.kind, "%s", s->mixing);
    c->model.dim = s->d;
    c->model.smoothness = c->model.convexity = 1.0;
    c->model.noise = 1.0;
    c->model.spread = 0.0;
    c->model.start = 1.0;
    c->steps = s->steps;
    c->threads = 1;
    c->eval = (hdo_eval_config){0};
    for (int k = 0; k < 2; k++) {
        c->population[k].lr = (hdo_choice){HDO_NUMBER, s->lr};
        c->population[k].batch = 1;
        c->population[k].rv = s->rv;
    }
    c->population[0].count = s->fo;
    c->population[1].count = s->zo;
}

static hdo_status measure(lab *l, const setting *s, figure *out, hdo_error *e) {
    hdo_config c;
    hdo_status st = hdo__study_tick(l->hooks, "scaling laws", l->done++, l->total, e);
    if (st != HDO_OK) return st;
    problem(&c, s);
    for (int k = 0; k < l->seeds; k++) {
        l->jobs[k] = (job){.config = c, .stride = s->stride, .gradient = s->gradient};
        l->jobs[k].config.seed = 1000 + k;
    }
    hdo__team_run(&l->team, l->seeds, job_task, l->jobs);
    double sum = 0.0, sum2 = 0.0, n = (double)l->seeds;
    for (int k = 0; k < l->seeds; k++) {
        if (l->jobs[k].st != HDO_OK) {
            if (e != NULL) *e = l->jobs[k].e;
            return l->jobs[k].st;
        }
        sum += l->jobs[k].value;
    }
    out->mean = sum / n;
    for (int k = 0; k < l->seeds; k++) sum2 += (l->jobs[k].value - out->mean) * (l->jobs[k].value - out->mean);
    out->se = sqrt(sum2 / (n - 1.0) / n);
    return HDO_OK;
}

/* ---- a straight line in logarithms ---- */

/* The laws are limits of small steps. `first` and `last` are relative errors a finite step makes at the ends of the
 * line, to first order; the terms left out are taken to be as large once more. */
static void allow(hdo_law *w, double first, double last, const char *why) {
    w->allowance = 2.0 * fabs(last - first) / fabs(log(w->x[w->n_points - 1] / w->x[0]));
    w->allowance_why = why;
}

const char *hdo_law_verdict_text(hdo_law_verdict v) {
    static const char *const text[] = {"agrees", "agrees only with the allowance for finite steps", "DOES NOT AGREE"};
    return text[v];
}

static void judge_exponent(hdo_law *w) {
    w->off = fabs(w->exponent - w->expected);
    w->off_se = w->off / w->exponent_se;
    w->verdict = w->off <= SIGMAS * w->exponent_se                  ? HDO_LAW_AGREES
                 : w->off <= SIGMAS * w->exponent_se + w->allowance ? HDO_LAW_ALLOWED
                                                                    : HDO_LAW_DISAGREES; /* NaN too */
}

static void fit(hdo_law *w, double noise_floor) {
    w->fit_points = w->n_points;
    w->floor = noise_floor;
    double sw = 0.0, sx = 0.0, sy = 0.0, sxx = 0.0, sxy = 0.0;
    for (int k = 0; k < w->n_points; k++) {
        double rel = fmax(w->se[k] / w->mean[k], noise_floor), weight = 1.0 / (rel * rel);
        double x = log(w->x[k]), y = log(w->mean[k]);
        if (!(w->mean[k] > 0.0)) continue;
        sw += weight;
        sx += weight * x;
        sy += weight * y;
        sxx += weight * x * x;
        sxy += weight * x * y;
    }
    double det = sw * sxx - sx * sx, level;
    w->exponent = (sw * sxy - sx * sy) / det;
    level = (sy - w->exponent * sx) / sw;
    double chi2 = 0.0;
    for (int k = 0; k < w->n_points; k++) {
        double rel = fmax(w->se[k] / w->mean[k], noise_floor);
        double r = (log(w->mean[k]) - level - w->exponent * log(w->x[k])) / rel;
        if (w->mean[k] > 0.0) chi2 += r * r;
    }
    w->chi2 = w->fit_points > 2 ? chi2 / (double)(w->fit_points - 2) : 0.0;
    w->exponent_se = sqrt(sw / det * fmax(1.0, w->chi2));
    double at = (sy - w->expected * sx) / sw; /* level of the law itself */
    for (int k = 0; k < w->n_points; k++) w->predicted[k] = exp(at) * pow(w->x[k], w->expected);
    judge_exponent(w);
}

/* ---- the laws ---- */

static void add_point(hdo_law *w, double x, figure y) {
    int k = w->n_points++;
    w->x[k] = x;
    w->mean[k] = y.mean;
    w->se[k] = y.se;
}

/* At equal parallel time P = T/n the published step makes the error ln(T)/n: half the nodes forward mode, d n0 = O(n).
 */
static hdo_status law_convex(lab *l, hdo_law *w, hdo_error *e) {
    *w = (hdo_law){.name = "speedup-convex",
                   .statement = "strongly convex: error at equal parallel time falls as ln(T)/n",
                   .x_label = "nodes n",
                   .y_label = "(f(mu) - f*) / ln T at equal parallel time",
                   .expected = -1.0};
    const double P = 400.0;
    const int most = l->quick ? 32 : 128;
    for (int n = 4; n <= most; n *= 2) {
        double T = P * n;
        setting s = {.d = 16, .fo = n / 2, .zo = n / 2, .rv = 17, .mixing = "pairwise", .stride = n};
        s.lr = 4.0 * n * log(T) / T;
        s.steps = (int64_t)T;
        figure y;
        hdo_status st = measure(l, &s, &y, e);
        if (st != HDO_OK) return st;
        add_point(w, n, (figure){y.mean / log(T), y.se / log(T)});
    }
    allow(w, 4.0 * log(4.0 * P) / P, 4.0 * log(most * P) / P, "relative error of the order of the step, 4 ln(T)/P");
    fit(w, 1e-3);
    return HDO_OK;
}

static hdo_status law_nonconvex(lab *l, hdo_law *w, hdo_error *e) {
    *w = (hdo_law){.name = "speedup-nonconvex",
                   .statement = "non-convex step: mean squared gradient at equal parallel time falls as 1/sqrt(n)",
                   .x_label = "nodes n",
                   .y_label = "mean |grad f(mu)|^2 at equal parallel time",
                   .expected = -0.5};
    const double P = l->quick ? 400.0 : 1600.0, d = 16.0; /* larger P: smaller steps, closer to the limit */
    const int most = l->quick ? 32 : 128;
    for (int n = 4; n <= most; n *= 2) {
        double T = P * n;
        setting s = {.d = 16, .fo = n / 2, .zo = n / 2, .rv = 17, .mixing = "pairwise", .stride = n / 2};
        s.lr = n / sqrt(d * T);
        s.steps = (int64_t)T;
        s.gradient = true;
        figure y;
        hdo_status st = measure(l, &s, &y, e);
        if (st != HDO_OK) return st;
        add_point(w, n, y);
    }
    allow(w, sqrt(4.0 / (d * P)), sqrt(most / (d * P)), "relative error of the order of the step, sqrt(n/(dP))");
    fit(w, 1e-3);
    return HDO_OK;
}

/* The step of the two laws of extra noise, and what it does beyond the law where zeroth-order nodes multiply the
 * squared gradient by omega: they multiply the disagreement too, which is about h^2 (1 + omega) of the noise, and the
 * mean model's own distance, h x/(2n) of it. */
static double small_step(const lab *l) {
    return l->quick ? 0.05 : 0.02;
}
static double finite_step(double h, double omega, double x, double n) {
    return h * h * (1.0 + omega) + h * x / (2.0 * n);
}
static const char finite_step_why[] = "relative error h^2 (1 + omega) + h x/(2n) with step h, omega = (d+1)/rv";

/* n nodes, all of first order. */
static setting first_order(const lab *l, int d, int n) {
    return (setting){.d = d,
                     .fo = n,
                     .rv = 1,
                     .lr = small_step(l),
                     .mixing = "matching",
                     .steps = l->quick ? 1500 : 4000,
                     .stride = 5};
}

/* A point of a law: noise of a population over that of first-order nodes only, minus one: n0 (d+1) / (rv n). */
static hdo_status add_excess(lab *l, hdo_law *w, double x, const setting *s, figure base, hdo_error *e) {
    figure y;
    hdo_status st = measure(l, s, &y, e);
    if (st != HDO_OK) return st;
    double ratio = y.mean / base.mean;
    double var = y.se * y.se / (y.mean * y.mean) + base.se * base.se / (base.mean * base.mean); /* relative */
    add_point(w, x, (figure){ratio - 1.0, ratio * sqrt(var)});
    return HDO_OK;
}

/* The law of the threshold in dimension d, from n0 zeroth-order nodes of 64 on. */
static hdo_status add_thresholds(lab *l, hdo_law *w, int d, int n0, hdo_error *e) {
    setting s = first_order(l, d, 64);
    figure base;
    hdo_status st = measure(l, &s, &base, e);
    for (; n0 <= 64 && st == HDO_OK; n0 *= 2) {
        s.fo = 64 - n0;
        s.zo = n0;
        st = add_excess(l, w, (d + 1.0) * n0 / 64.0, &s, base, e);
    }
    return st;
}

static hdo_status law_threshold(lab *l, hdo_law *w, hdo_error *e) {
    *w = (hdo_law){.name = "threshold",
                   .statement = "extra noise of n0 zeroth-order nodes is n0 (d+1)/n: free as long as d n0 = O(n)",
                   .x_label = "n0 (d+1) / n",
                   .y_label = "noise / noise of first-order nodes, minus 1",
                   .expected = 1.0};
    hdo_status st = add_thresholds(l, w, 7, l->quick ? 4 : 2, e); /* one to eight times n0/8 */
    if (st == HDO_OK) st = add_thresholds(l, w, 63, 16, e);       /* the same law in another dimension: 16 to 64 */
    if (st != HDO_OK) return st;
    double h = small_step(l);
    allow(w, finite_step(h, 8.0, w->x[0], 64.0), finite_step(h, 64.0, 64.0, 64.0), finite_step_why);
    fit(w, 0.01);
    return HDO_OK;
}

static hdo_status law_directions(lab *l, hdo_law *w, hdo_error *e) {
    *w = (hdo_law){.name = "directions",
                   .statement = "extra noise of zeroth-order nodes falls as 1/rv",
                   .x_label = "directions rv",
                   .y_label = "noise / noise of first-order nodes, minus 1",
                   .expected = -1.0};
    setting s = first_order(l, 31, 32);
    figure base;
    hdo_status st = measure(l, &s, &base, e);
    s.fo = s.zo = 16;
    for (s.rv = 1; s.rv <= (l->quick ? 16 : 64) && st == HDO_OK; s.rv *= 2) st = add_excess(l, w, s.rv, &s, base, e);
    if (st != HDO_OK) return st;
    double h = small_step(l), last = w->x[w->n_points - 1]; /* half the nodes: x of the law before is 16/rv */
    allow(w, finite_step(h, 32.0, 16.0, 32.0), finite_step(h, 32.0 / last, 16.0 / last, 32.0), finite_step_why);
    fit(w, 0.01);
    return HDO_OK;
}

hdo_status hdo_scaling_run(bool quick, int threads, const hdo_study_hooks *hooks, hdo_law law[HDO_LAWS], hdo_error *e) {
    static const hdo_study_hooks none = {0};
    lab l = {.quick = quick, .seeds = quick ? 8 : 32, .total = quick ? 24 : 34, .hooks = hooks != NULL ? hooks : &none};
    hdo_status (*const laws[HDO_LAWS])(lab *, hdo_law *, hdo_error *) = {law_convex, law_nonconvex, law_threshold,
                                                                         law_directions};
    hdo_status st = hdo__team_init(&l.team, threads > 0 ? threads : hdo__cpu_count(), 64);
    l.jobs = calloc(SEEDS_MAX, sizeof *l.jobs);
    if (st != HDO_OK || l.jobs == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory for the experiments");
    memset(law, 0, HDO_LAWS * sizeof *law);
    for (int k = 0; k < HDO_LAWS && st == HDO_OK; k++) {
        st = laws[k](&l, &law[k], e);
        law[k].seeds = l.seeds;
    }
    free(l.jobs);
    hdo__team_clear(&l.team);
    return st;
}

char *hdo_scaling_json(const hdo_law *law, int n) {
    static const char *const words[] = {"agrees", "agrees with allowance", "disagrees"};
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    hdo__json_array(&j, "laws");
    for (int k = 0; k < n; k++) {
        const hdo_law *w = &law[k];
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, "name", w->name);
        HDO_JSON_REALS(&j, {"expected", w->expected}, {"exponent", w->exponent}, {"se", w->exponent_se},
                       {"off_se", w->off_se}, {"limit_se", SIGMAS}, {"allowance", w->allowance});
        hdo__json_text(&j, "allowance_why", w->allowance_why);
        HDO_JSON_REALS(&j, {"chi2", w->chi2}, {"error_floor", w->floor});
        HDO_JSON_INTS(&j, {"seeds", w->seeds}, {"points", w->n_points});
        hdo__json_text(&j, "verdict", words[w->verdict]);
        hdo__json_bool(&j, "agrees", w->verdict != HDO_LAW_DISAGREES);
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    return hdo__json_finish(&j);
}

hdo_status hdo_scaling_figures(const hdo_law *law, int n, const char *base, unsigned formats, hdo_error *e) {
    hdo_status st = HDO_OK;
    for (int k = 0; k < n && st == HDO_OK; k++) {
        hdo_law w = law[k];
        double zero[16] = {0};
        hdo_curve curve[2] = {{.n_runs = w.seeds, .n_points = w.n_points, .x = w.x, .mean = w.mean, .se = w.se},
                              {.n_runs = 1, .n_points = w.n_points, .x = w.x, .mean = w.predicted, .se = zero}};
        snprintf(curve[0].label, sizeof curve[0].label, "measured: exponent %.3f +- %.3f", w.exponent, w.exponent_se);
        snprintf(curve[1].label, sizeof curve[1].label, "theory: exponent %g", w.expected);
        hdo_figure f = {.title = w.statement,
                        .x_label = w.x_label,
                        .y_label = w.y_label,
                        .log_x = true,
                        .log_y = true,
                        .curves = curve,
                        .n_curves = 2};
        char name[HDO_PATH_MAX];
        snprintf(name, sizeof name, "%s-%s", base, w.name);
        st = hdo_figure_write(&f, name, formats, e);
    }
    return st;
}
