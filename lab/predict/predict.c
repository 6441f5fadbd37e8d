/* SPDX-License-Identifier: Apache-2.0
 *
 * What a population makes of a problem. Noise that enters the mean model in step t shrinks in every later step by
 * (1 - p l)^2 and costs l/2 times what is left of it at the end: section 2 of docs/prediction.md, step by step, with
 * the noise measured along the descent and curvatures scaled by the trace of H where it changes. The nodes' spread is
 * the same sum with the contraction of the meetings in it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/predict/predict_internal.h"

enum { BATCH_MIN = 256, BATCH_MAX = 4096, BATCH_TIMES = 4, FINE = 1024 };

#define GAIN_MAX 0.9 /* beyond it the sum says: diverges */

/* ---- the sums of section 2 and 3 ---- */

typedef struct flow { /* noise of one class, or of the descent itself, on its way to the horizon */
    const hdo_path *path;
    const hdo_crowd *crowd; /* NULL: the descent */
    int k, point;
    int64_t horizon;
    bool spread; /* around the mean, not of it */
} flow;

static double entry(const flow *f, int64_t t) {
    if (f->crowd == NULL) return f->path->pace[t] * f->path->pace[t] / f->path->batch;
    return f->crowd->enter[f->k][f->spread][t];
}

/* l/2 times what is left at the horizon of unit noise in a direction of curvature l at the point. */
static double cost(const void *ctx, double l) {
    const flow *f = ctx;
    const hdo_path *p = f->path;
    if (!(l > 0.0)) return 0.0;
    double unit = l / p->at[f->point].trace, left = 1.0, sum = 0.0;
    int64_t first = f->point > 0 ? p->at[f->point - 1].step : 0;
    int64_t next = f->point + 1 < p->n ? p->at[f->point + 1].step : p->total + 1;
    int64_t stride = f->spread || p->total < FINE ? 1 : p->total / (FINE / 2); /* long runs: many alike steps at once */
    for (int64_t t = f->horizon - 1, n; t >= first && left > 1e-12; t -= n) {
        n = t - first + 1 < stride ? t - first + 1 : stride;
        int64_t mid = t - n / 2;
        if (f->spread && hdo__crowd_meets(f->crowd, t)) left *= f->crowd->lambda;
        double keep = 1.0 - p->pace[mid] * unit * p->scale[mid], k2 = fmin(1.0, keep * keep);
        double all = n == 1 ? k2 : pow(k2, (double)n);
        double alike = n == 1 ? 1.0 : k2 < 1.0 - 1e-12 ? (1.0 - all) / (1.0 - k2) : (double)n;
        if (mid < next) sum += hdo__path_hat(p, f->point, mid) * left * entry(f, mid) * alike;
        left *= all;
    }
    return 0.5 * unit * p->scale[f->horizon] * sum;
}

/* Curvature at the horizon that no product with H shows (kinks): in directions too flat to be learnt, so that noise of
 * directions stays. */
static double bulk_cost(const flow *f, double curvature, double noise) {
    double left = 1.0, sum = 0.0;
    int64_t first = f->point > 0 ? f->path->at[f->point - 1].step : 0;
    for (int64_t t = f->horizon - 1; t >= first && left > 1e-12; t--) {
        if (f->spread && hdo__crowd_meets(f->crowd, t)) left *= f->crowd->lambda;
        sum += hdo__path_hat(f->path, f->point, t) * left * entry(f, t);
    }
    return 0.5 * curvature * noise * sum;
}

static double bulk_at(const hdo_path *p, int64_t horizon) {
    double sum = 0.0;
    for (int i = 0; i < p->n; i++) sum += hdo__path_hat(p, i, horizon) * p->at[i].bulk;
    return sum;
}

/* What class k adds to the loss at the horizon; block: its number where the problem was looked at. */
double hdo__predict_part(const hdo_path *p, const hdo_crowd *w, int k, int block, int64_t horizon, bool spread) {
    const hdo_crowd_class *c = &w->cls[k];
    double sum = 0.0, flat = bulk_at(p, horizon);
    for (int i = 0; i < p->n; i++) {
        if (i > 0 && p->at[i - 1].step >= horizon) break;
        const hdo_local *at = &p->at[i];
        flow f = {p, w, k, i, horizon, spread};
        double part = hdo__crowd_noise(c, block, at, cost, &f);
        if (c->zeroth) {
            double each = c->blocks ? at->block[block][0].norm2 / (double)at->live : at->g2 + at->c2 / c->batch;
            double loop = hdo__crowd_gain(w, k, block, at, at->step < w->total ? at->step : w->total - 1);
            part += bulk_cost(&f, flat, each / c->rv);
            part /= 1.0 - fmin(loop, GAIN_MAX);
        }
        sum += part;
    }
    return sum;
}

double hdo__path_noise(const hdo_path *p, int64_t horizon) {
    double sum = 0.0;
    for (int i = 0; i < p->n && p->batch > 0.0; i++) {
        if (i > 0 && p->at[i - 1].step >= horizon) break;
        flow f = {.path = p, .point = i, .horizon = horizon};
        sum += hdo__local_noise(&p->at[i], cost, &f);
    }
    return sum;
}

/* ---- the descent that belongs to a population ---- */

hdo_status hdo__predict_path(hdo_predictor *q, const hdo_crowd *w, const hdo_path **out, hdo_error *e) {
    double *pace = hdo__alloc((size_t)w->total * sizeof *pace), momentum = 0.0, per_step = 0.0;
    if (pace == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a descent");
    for (int64_t t = 0; t < w->total; t++) pace[t] = hdo__crowd_pace(w, t);
    int64_t mid = w->warmup < w->total ? w->warmup : w->total - 1;
    for (int k = 0; k < w->n_classes; k++) {
        const hdo_crowd_class *c = &w->cls[k];
        momentum += c->momentum * c->count * w->part * hdo__crowd_speed(w, k, mid) / fmax(pace[mid], 1e-300);
        per_step += c->count * c->batch * w->part;
    }
    hdo_status st = HDO_OK;
    double around = 0.0; /* kinds of noise differ: so do their weights in the sum that tells descents apart */
    for (int k = 0; k < w->n_classes; k++) {
        for (int64_t t = 0; t < w->total && w->enter[k][1] != NULL; t++) around += (k + 1.0) * w->enter[k][1][t];
    }
    *out = NULL;
    for (int i = 0; i < q->n_paths && *out == NULL; i++) {
        hdo_path *p = &q->path[i];
        bool same =
            p->total == w->total && fabs(p->momentum - momentum) < 1e-9 && fabs(p->around - around) <= 1e-9 * around;
        for (int64_t t = 0; t < w->total && same; t++) same = fabs(p->pace[t] - pace[t]) <= 1e-9 * pace[t];
        if (same) *out = p;
    }
    if (*out == NULL) {
        if (q->n_paths == HDO_PATHS_MAX) hdo__path_clear(&q->path[--q->n_paths]);
        int64_t batch = q->opt.batch;
        if (batch <= 0) batch = (int64_t)fmin(BATCH_MAX, fmax(BATCH_MIN, BATCH_TIMES * per_step));
        st = hdo__path_make(&q->lens, &(hdo_descent){pace, w, momentum, batch}, &q->path[q->n_paths], e);
        q->path[q->n_paths].around = around;
        if (st == HDO_OK) *out = &q->path[q->n_paths++];
    }
    hdo__free(pace);
    return st;
}

/* ---- one population ---- */

int hdo__predict_class(const hdo_predictor *q, const char *name) {
    for (int k = 0; k < q->config.n_classes; k++) {
        if (strcmp(q->config.population[k].name, name) == 0) return k;
    }
    return 0;
}

/* Point nearest to the middle of the run: its spectrum stands for the run in ratios and dimensions. */
static const hdo_local *middle(const hdo_path *p, int64_t warmup, int64_t horizon) {
    int best = 0;
    int64_t want = (warmup < horizon ? warmup + horizon : horizon) / 2;
    for (int i = 1; i < p->n; i++) {
        if (llabs(p->at[i].step - want) < llabs(p->at[best].step - want)) best = i;
    }
    return &p->at[best];
}

/* Noise sum n_k v_k^2 A_k at pace sum n_k v_k is least for v_k inverse to A_k: then every class lowers it. */
static void best_rates(const hdo_crowd *w, const double *part, hdo_prediction *o) {
    int64_t t = w->total - 1 < w->warmup ? w->total - 1 : w->warmup;
    double sum = 0.0, pace = 0.0, inverse[HDO_CLASSES_MAX] = {0};
    for (int k = 0; k < w->n_classes; k++) {
        double v = hdo__crowd_speed(w, k, t), n = w->cls[k].count;
        if (!(part[k] > 0.0) || !(v > 0.0)) continue;
        inverse[k] = n * v * v / part[k];
        sum += n * inverse[k];
        pace += n * v;
    }
    o->noise_best = sum > 0.0 ? pace * pace / sum : (double)NAN;
    for (int k = 0; k < w->n_classes; k++) {
        hdo_predicted_class *r = &o->cls[k];
        double v = hdo__crowd_speed(w, k, t);
        r->lr_best = inverse[k] > 0.0 ? fmin(r->lr_max, r->lr * pace * inverse[k] / sum / v) : (double)NAN;
    }
}

static void describe(const hdo_predictor *q, const hdo_path *p, const hdo_crowd *w, hdo_prediction *o) {
    const hdo_local *mid = middle(p, w->warmup, w->total);
    hdo_horizon h = {o->pace > 0.0 ? o->pace : hdo__crowd_pace(w, mid->step < w->total ? mid->step : w->total - 1),
                     (double)(w->total - (w->warmup < w->total ? w->warmup : 0))};
    double dim = hdo__local_trace(mid, hdo__learnt, &h), fo = 0.0, total = 0.0, part[HDO_CLASSES_MAX];
    o->stable = p->lost < 0;
    for (int k = 0; k < w->n_classes; k++) {
        const hdo_crowd_class *c = &w->cls[k];
        if (!c->zeroth && c->count > 0 && fo == 0.0) fo = hdo__crowd_noise(c, 0, mid, hdo__learnt, &h);
        part[k] = c->count > 0 ? hdo__predict_part(p, w, k, hdo__predict_class(q, c->name), w->total, false) : 0.0;
        total += part[k];
    }
    for (int k = 0; k < w->n_classes; k++) {
        const hdo_crowd_class *c = &w->cls[k];
        hdo_predicted_class *r = &o->cls[k];
        hdo_crowd_class data = *c;
        data.zeroth = false;
        double own = hdo__crowd_noise(&data, 0, mid, hdo__learnt, &h);
        *r = (hdo_predicted_class){.count = c->count, .lr = c->schedule.lr, .weight = c->weight, .effective_dim = dim};
        snprintf(r->name, sizeof r->name, "%s", c->name);
        r->noise_ratio =
            hdo__crowd_noise(c, hdo__predict_class(q, c->name), mid, hdo__learnt, &h) / (fo > 0.0 ? fo : own);
        r->share = total > 0.0 ? part[k] / total : (double)NAN;
        r->lr_max = HUGE_VAL;
        for (int i = 0; i < p->n; i++)
            r->lr_max = fmin(r->lr_max, hdo__crowd_limit(w, k, hdo__predict_class(q, c->name), &p->at[i]));
        r->stable = c->count == 0 || !(c->schedule.lr > r->lr_max);
        o->stable = o->stable && r->stable;
    }
    o->n_classes = w->n_classes;
    best_rates(w, part, o);
}

/* `balanced` rates and `noise` weights count noise by its trace, as the run does, after the warm-up. */
static double whole(const void *ctx, double l) {
    (void)ctx;
    (void)l;
    return 1.0;
}

static hdo_status settle_rates(hdo_predictor *q, const hdo_config *c, hdo_crowd *w, hdo_error *e) {
    bool noise = c->mixing.average.id == HDO_AVERAGE_NOISE, balanced = false;
    for (int k = 0; k < w->n_classes; k++) balanced = balanced || w->cls[k].lr.id == HDO_LR_BALANCED;
    if (!noise && !balanced) return HDO_OK;
    hdo_local *p = hdo__alloc(sizeof *p);
    double *x = hdo__alloc(q->run->problem.objective->d * sizeof *x), ref = 0.0;
    hdo_status st = p == NULL || x == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory for a point") : HDO_OK;
    for (size_t j = 0; j < q->run->problem.objective->d && st == HDO_OK; j++)
        x[j] = (double)q->run->population.models.X[j];
    if (st == HDO_OK) st = hdo__lens_look(&q->lens, x, p, e);
    double rate = 0.0;
    for (int k = 0; k < w->n_classes && st == HDO_OK && ref == 0.0; k++) {
        if (w->cls[k].lr.id == HDO_LR_BALANCED) continue;
        ref = hdo__crowd_noise(&w->cls[k], hdo__predict_class(q, w->cls[k].name), p, whole, NULL);
        rate = w->cls[k].schedule.lr;
    }
    for (int k = 0; k < w->n_classes && st == HDO_OK; k++) {
        double a = hdo__crowd_noise(&w->cls[k], hdo__predict_class(q, w->cls[k].name), p, whole, NULL);
        if (w->cls[k].lr.id == HDO_LR_BALANCED) w->cls[k].schedule.lr = rate * ref / a;
        if (noise) w->cls[k].weight = 1.0 / a;
    }
    hdo__free(p);
    hdo__free(x);
    return st;
}

static void name_population(const hdo_config *c, char *buf, size_t cap) {
    size_t at = 0;
    buf[0] = '\0';
    for (int k = 0; k < c->n_classes && at < cap; k++) {
        if (c->population[k].count == 0) continue;
        int n = snprintf(buf + at, cap - at, "%s%lld%s", at > 0 ? "+" : "", (long long)c->population[k].count,
                         c->population[k].name);
        at += n > 0 ? (size_t)n : 0;
    }
}

hdo_status hdo_predict(hdo_predictor *q, const hdo_config *c, hdo_prediction *o, hdo_error *e) {
    memset(o, 0, sizeof *o);
    name_population(c, o->population, sizeof o->population);
    hdo_crowd w;
    const hdo_path *p = NULL;
    hdo_status st =
        hdo__crowd_make(c, q->opt.horizon, q->run->problem.train != NULL ? q->run->problem.train->count : 0, &w, e);
    if (st != HDO_OK) return st;
    st = settle_rates(q, c, &w, e);
    if (st == HDO_OK) st = hdo__crowd_enter(&w, e);
    if (st == HDO_OK) st = hdo__predict_path(q, &w, &p, e);
    if (st == HDO_OK) {
        o->horizon = w.total;
        o->pace = hdo__crowd_pace(&w, w.total - 1);
        describe(q, p, &w, o);
        for (int i = 0; i < p->n; i++) {
            int64_t t = p->at[i].step;
            double noise = 0.0, spread = 0.0, free_of = p->at[i].val_loss - hdo__path_noise(p, t);
            for (int k = 0; k < w.n_classes; k++) {
                if (w.cls[k].count == 0) continue;
                noise += hdo__predict_part(p, &w, k, hdo__predict_class(q, w.cls[k].name), t, false);
                spread += w.n > 1 ? hdo__predict_part(p, &w, k, hdo__predict_class(q, w.cls[k].name), t, true) : 0.0;
            }
            o->step[i] = (double)t;
            o->free_of[i] = free_of;
            o->mu[i] = free_of + noise;
            o->mean[i] = free_of + noise + spread;
            o->n_points = i + 1;
            o->val_loss_free = free_of;
            o->noise_mu = noise;
            o->spread = spread;
        }
        if (p->lost >= 0) o->val_loss_free = o->noise_mu = o->spread = (double)NAN;
        o->val_loss_mu = o->val_loss_free + o->noise_mu;
        o->val_loss_mean = o->val_loss_mu + o->spread;
    }
    hdo__crowd_clear(&w);
    return st;
}

/* ---- life ---- */

hdo_status hdo_predictor_create(hdo_predictor **out, const hdo_config *c, const hdo_predict_options *opt,
                                const hdo_study_hooks *hooks, hdo_error *e) {
    *out = NULL;
    hdo_status st = hdo_config_check(c, e);
    if (st != HDO_OK) return st;
    hdo_predictor *q = hdo__alloc(sizeof *q);
    if (q == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a prediction");
    q->config = *c;
    if (opt != NULL) q->opt = *opt;
    if (hooks != NULL) q->hooks = *hooks;
    hdo_config_as_base(&q->config); /* one node of every class, which never meet, serves to look at the problem */
    for (int k = 0; k < c->n_classes; k++) {
        q->config.population[k].count = 1;
        if (q->config.population[k].lr.id != HDO_NUMBER) q->config.population[k].lr = (hdo_choice){HDO_NUMBER, 0.01};
    }
    snprintf(q->config.mixing.kind, sizeof q->config.mixing.kind, "none");
    q->config.mixing.average.id = HDO_AVERAGE_EQUAL;
    q->config.churn = (hdo_churn_config){.model = c->churn.model};
    q->config.engine.id = HDO_ENGINE_SIM;
    st = hdo_run_create(&q->run, &q->config, NULL, e);
    if (st == HDO_OK) st = hdo__lens_init(&q->lens, q->run, &q->opt, &q->hooks, e);
    if (st == HDO_OK && (hdo__objective_can(q->run->problem.objective) & HDO_CAN_GRAD) == 0)
        st = hdo__fail(e, HDO_E_UNSUPPORTED, "a prediction needs gradients, and model '%s' has none", c->model.name);
    if (st != HDO_OK) {
        hdo_predictor_destroy(q);
        return st;
    }
    *out = q;
    return HDO_OK;
}

void hdo_predictor_destroy(hdo_predictor *q) {
    if (q == NULL) return;
    for (int i = 0; i < q->n_paths; i++) hdo__path_clear(&q->path[i]);
    if (q->lens.run != NULL) hdo__lens_clear(&q->lens);
    hdo_run_destroy(q->run);
    hdo__free(q);
}
