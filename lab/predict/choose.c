/* SPDX-License-Identifier: Apache-2.0
 *
 * Are the zeroth-order nodes worth adding, by prediction? Descents are made at a few paces up to the largest stable
 * one; for every pace, number of nodes, rv, and rates equal or inverse to the noise of the classes the loss of the mean
 * model when the time, the traffic or the energy is spent is predicted. The least one of each side is then run.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/predict/predict_internal.h"

enum { PACES = 16, WORSE = 2, STEPS_MAX = 20000, RVS = 4 };
static const double WORK = 6e10;  /* most multiply-adds of one descent: some seconds */
static const double CLEAR = 0.01; /* a gain below 1% of the noise is none */

typedef hdo_plan_table table;

static hdo_price price(const table *t, int n0, int rv) {
    const hdo_estimator_ops *ops = hdo__estimator_of(t->c, t->c->population[t->zo].estimator);
    return hdo__fleet_price(t->f, ops, n0, rv, t->model_bytes);
}

/* Loss of the descent between its measured points: straight lines of loss over log(1 + step). */
static double free_at(const hdo_path *p, double t) {
    int i = 0;
    while (i + 2 < p->n && (double)p->at[i + 1].step < t) i++;
    if (p->n < 2) return p->at[0].val_loss;
    double lo = log1p((double)p->at[i].step), hi = log1p((double)p->at[i + 1].step);
    double a = p->at[i].val_loss - hdo__path_noise(p, p->at[i].step);
    double b = p->at[i + 1].val_loss - hdo__path_noise(p, p->at[i + 1].step);
    return a + (b - a) * (log1p(t) - lo) / (hi - lo);
}

static double learnt_noise(const hdo_path *p, const hdo_crowd *w, const table *t, int k, double pace) {
    hdo_horizon h = {pace, (double)p->total};
    return hdo__crowd_noise(&w->cls[k], hdo__predict_class(t->q, w->cls[k].name), &p->at[p->n / 2], hdo__learnt, &h);
}

static bool stable(const hdo_path *p, const hdo_crowd *w, const table *t) {
    for (int k = 0; k < w->n_classes; k++) {
        int at = hdo__predict_class(t->q, w->cls[k].name);
        for (int i = 0; i < p->n && w->cls[k].count > 0; i++) {
            if (w->cls[k].schedule.lr > hdo__crowd_limit(w, k, at, &p->at[i])) return false;
        }
    }
    return true;
}

/* One choice at one pace, rates equal or inverse to the noise; keeps it if it is better than *best. */
static hdo_status try_one(const table *t, const hdo_path *p, int n0, int rv, bool inverse, hdo_fleet_choice *best,
                          hdo_error *e) {
    hdo_crowd w;
    double pace = p->pace[0];
    t->c->population[t->fo].count = t->f->fo;
    t->c->population[t->zo].count = n0;
    t->c->population[t->zo].rv = rv;
    hdo_price one = price(t, n0, rv);
    hdo_fleet_choice o = {.n0 = n0, .rv = n0 > 0 ? rv : 0, .round_s = one.seconds};
    o.T = fmin((double)p->total, floor(hdo__fleet_rounds(t->f, &one, t->share) * (1.0 + 1e-9)));
    if (o.T < 1.0) return HDO_OK;
    o.seconds = o.T * one.seconds;
    o.bytes = o.T * one.bytes;
    o.joules = o.T * one.joules;
    hdo_status st = hdo__crowd_make(t->c, (int64_t)o.T,
                                    t->q->run->problem.train != NULL ? t->q->run->problem.train->count : 0, &w, e);
    if (st != HDO_OK) return st;
    double rate[2] = {pace, pace};
    if (inverse) {
        double a1 = learnt_noise(p, &w, t, t->fo, pace), a0 = learnt_noise(p, &w, t, t->zo, pace);
        double all = (t->f->fo / a1 + n0 / a0) / (t->f->fo + n0);
        rate[0] = pace / (a1 * all);
        rate[1] = pace / (a0 * all);
    }
    w.cls[t->fo].schedule.lr = rate[0];
    w.cls[t->zo].schedule.lr = rate[1];
    if (stable(p, &w, t)) st = hdo__crowd_enter(&w, e);
    if (st == HDO_OK && w.enter[0][0] != NULL) {
        o.eta1 = rate[0];
        o.eta0 = n0 > 0 ? rate[1] : 0.0;
        o.free_of = free_at(p, o.T);
        for (int k = 0; k < w.n_classes; k++) {
            if (w.cls[k].count > 0)
                o.noise += hdo__predict_part(p, &w, k, hdo__predict_class(t->q, w.cls[k].name), (int64_t)o.T, false);
        }
        o.loss = o.free_of + o.noise;
        o.ok = isfinite(o.loss);
        if (o.ok && (!best->ok || o.loss < best->loss)) *best = o;
    }
    hdo__crowd_clear(&w);
    return st;
}

static int rv_list(const table *t, int *rv) {
    const hdo_estimator_ops *ops = hdo__estimator_of(t->c, t->c->population[t->zo].estimator);
    int most = t->f->rv_max > 0 ? t->f->rv_max : 1, n = 0;
    double one = hdo__fleet_passes(ops, 1), slope = hdo__fleet_passes(ops, 2) - one,
           idle = (t->f->zo_speed / t->f->fo_speed - one + slope) / slope;
    rv[n++] = most;
    if (idle >= 1.0 && idle < most) rv[n++] = (int)idle;
    for (int r = most / 4; r >= 1 && n < RVS; r /= 4) rv[n++] = r;
    return n;
}

/* A population of the first-order nodes alone has every pace; its descents serve all. */
static hdo_status at_pace(const table *t, double pace, hdo_fleet_prediction *out, hdo_error *e) {
    hdo_crowd w;
    const hdo_path *p = NULL;
    t->c->population[t->fo].count = t->f->fo;
    t->c->population[t->zo].count = 0;
    hdo_status st =
        hdo__crowd_make(t->c, t->steps, t->q->run->problem.train != NULL ? t->q->run->problem.train->count : 0, &w, e);
    if (st != HDO_OK) return st;
    w.cls[t->fo].schedule.lr = pace;
    st = hdo__predict_path(t->q, &w, &p, e);
    hdo__crowd_clear(&w);
    if (st != HDO_OK || p->lost >= 0) return st;
    st = try_one(t, p, 0, 1, false, &out->without, e);
    int rv[RVS], n = rv_list(t, rv), row = 0;
    for (int n0 = 1, last = 0; !last && st == HDO_OK && row < HDO_PLAN_ROWS; n0 *= 2, row++) {
        if (n0 >= t->f->zo || row == HDO_PLAN_ROWS - 1) n0 = t->f->zo, last = 1;
        for (int i = 0; i < 2 * n && st == HDO_OK; i++)
            st = try_one(t, p, n0, rv[i / 2], i % 2 == 1, &out->rows[row], e);
        out->n_rows = row + 1;
    }
    return st;
}

/* ---- the whole ---- */

/* The two classes as the planner by bounds takes them: no momentum, constant rates, no warm-up. */
static hdo_status prepare(const hdo_config *config, hdo_config *c, table *t, hdo_error *e) {
    *c = *config;
    hdo_config_as_base(c);
    t->fo = t->zo = -1;
    for (int k = 0; k < c->n_classes; k++) {
        const hdo_estimator_ops *ops = hdo__estimator_of(c, c->population[k].estimator);
        if (ops == NULL) continue;
        *(ops->zeroth ? &t->zo : &t->fo) = k;
        c->population[k].momentum = c->population[k].weight_decay = 0.0;
        c->population[k].schedule.id = HDO_SCHEDULE_CONSTANT;
        if (c->population[k].lr.id != HDO_NUMBER) c->population[k].lr = (hdo_choice){HDO_NUMBER, 0.01};
    }
    c->warmup = 0;
    c->mixing.average.id = HDO_AVERAGE_EQUAL;
    snprintf(c->mixing.kind, sizeof c->mixing.kind, "matching"); /* n / 2 pairs that meet are a matching */
    if (t->fo >= 0 && t->zo >= 0 && c->n_classes == 2) return HDO_OK;
    return hdo__fail(e, HDO_E_CONFIG, "a plan by prediction needs one first-order and one zeroth-order class");
}

hdo_status hdo_plan_predict(const hdo_config *config, const hdo_fleet_plan *plan, const hdo_study_hooks *hooks,
                            hdo_fleet_prediction *out, hdo_error *e) {
    memset(out, 0, sizeof *out);
    hdo_config *c = hdo__alloc(sizeof *c);
    hdo_local *p = hdo__alloc(sizeof *p);
    table t = {.f = &plan->fleet, .c = c, .share = 1.0};
    double *x = NULL;
    hdo_status st = c == NULL || p == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory for a plan") : HDO_OK;
    if (st == HDO_OK) st = prepare(config, c, &t, e);
    if (st == HDO_OK) st = hdo_predictor_create(&t.q, c, NULL, hooks, e);
    if (st != HDO_OK) goto out;
    size_t d = t.q->run->problem.objective->d;
    t.model_bytes = 4.0 * (double)(d + t.q->run->problem.objective->n_buf);
    x = hdo__alloc(d * sizeof *x);
    if (x == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory for a point");
    for (size_t j = 0; j < d && st == HDO_OK; j++) x[j] = (double)t.q->run->population.models.X[j];
    if (st == HDO_OK) st = hdo__lens_look(&t.q->lens, x, p, e);
    if (st != HDO_OK) goto out;
    hdo_price one = price(&t, 0, 1);
    double batch = t.q->run->problem.train != NULL ? 256.0 : 1.0,
           T = floor(hdo__fleet_rounds(t.f, &one, 1.0) * (1.0 + 1e-9));
    double most =
        fmin(fmin(T, t.f->sim_steps > 0 && t.q->run->problem.train != NULL ? (double)t.f->sim_steps : STEPS_MAX),
             fmax(10.0, WORK / (6.0 * batch * (double)d)));
    out->scale = T > most ? most / T : 1.0;
    t.share = out->scale;
    t.steps = (int64_t)most;
    t.q->opt.batch = (int64_t)batch;
    for (int j = 0, worse = 0; j < PACES && worse < WORSE && st == HDO_OK; j++) { /* down, until both sides get worse */
        hdo_fleet_choice without = out->without, best = out->best;
        st = at_pace(&t, pow(2.0, -j) / p->l_max, out, e);
        for (int i = 0; i < out->n_rows; i++) {
            if (out->rows[i].ok && (!out->best.ok || out->rows[i].loss < out->best.loss)) out->best = out->rows[i];
        }
        bool same = without.ok && best.ok && out->without.loss == without.loss && out->best.loss == best.loss;
        worse = same ? worse + 1 : 0;
    }
    out->worth = plan->memory_ok && out->best.ok && out->without.ok &&
                 out->without.loss - out->best.loss > CLEAR * out->without.noise;
    if (st == HDO_OK && t.f->sim_seeds > 0 && out->best.ok && out->without.ok) st = hdo__plan_confirm(&t, out, e);
out:
    hdo_predictor_destroy(t.q);
    hdo__free(x);
    hdo__free(p);
    hdo__free(c);
    return st;
}

hdo_status hdo_plan_answer_find(const hdo_config *c, const hdo_fleet *f, const hdo_study_hooks *hooks,
                                hdo_plan_answer *out, hdo_error *e) {
    hdo_fleet untried = *f; /* tried at the rates of the prediction, if there is one */
    untried.sim_seeds = 0;
    *out = (hdo_plan_answer){.predicted = false};
    hdo_status st = hdo_plan_fleet(c, &untried, hooks, &out->plan, e);
    if (st != HDO_OK) return st;
    out->plan.fleet.sim_seeds = f->sim_seeds;
    out->predicted = hdo_plan_predict(c, &out->plan, hooks, &out->prediction, &out->why) == HDO_OK;
    if (!out->predicted && f->sim_seeds > 0) st = hdo_plan_fleet(c, f, hooks, &out->plan, e);
    out->worth = out->predicted ? out->prediction.worth : out->plan.worth;
    return st;
}
