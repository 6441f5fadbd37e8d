/* SPDX-License-Identifier: Apache-2.0
 *
 * Are the zeroth-order nodes worth adding? For every number of them, every rv and every step (equal, or in the ratio
 * a1/a0) the bound of the theory at the end of the time given; the least one wins. Time is what differs: a round lasts
 * as long as its slowest node, so more directions mean less noise and fewer rounds. The answer is then tried: both
 * populations are simulated, with the steps the bounds recommend, for the same simulated time.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/study/study_internal.h"

enum { PER_DECADE = 20, RV_MAX = 1 << 20 };

typedef struct desk { /* what the search reads */
    const hdo_fleet *f;
    const hdo_constants *k;
    const hdo_run *run;
    hdo_estimator est;            /* of the zeroth-order class */
    int fo, zo;                   /* class numbers */
    double sigma[2], varsigma[2]; /* first order, zeroth order */
    bool convex, pairs;
    double model_bytes;
} desk;

static hdo_price price(const desk *q, int n0, int rv) {
    return hdo__fleet_price(q->f, q->est.ops, n0, rv, q->model_bytes);
}

/* Bound of one choice at one step size; fills o. ratio: eta0 / eta1. */
static double evaluate(const desk *q, hdo_plan_option *o, double eta, double ratio) {
    int n = q->f->fo + o->n0, count[2] = {q->f->fo, o->n0};
    const bool zo[2] = {false, true};
    double step[2], w1 = n / (q->f->fo + ratio * o->n0), mean;
    step[0] = eta * w1;
    step[1] = eta * w1 * ratio;
    hdo_estimator s = q->est;
    s.rv = o->rv;
    double nu = step[1] / sqrt((double)q->k->d);
    if (q->k->df.value > 0.0) nu = fmax(nu, hdo_theory_nu_best(q->k->live, q->k->L_F.value, q->k->df.value));
    s.nu = (hdo_choice){HDO_NUMBER, nu};
    hdo_est_const est[2] = {{.rho = 1.0}, {.rho = 1.0}};
    if (o->n0 > 0) est[1] = hdo__class_est(&s, q->k, step[1], &nu);
    hdo_mix_const mix = n == 1 ? hdo_theory_mix_const(HDO_THEORY_GOSSIP, 1, 0.0)
                               : hdo_theory_mix_const(q->pairs ? HDO_THEORY_PAIR : HDO_THEORY_MATCH, n, 0.0);
    hdo_pop_spec p = {2, count, zo, est, step, q->sigma, q->varsigma};
    hdo_theory_problem pr =
        hdo__study_problem(&p, q->k, &mix, q->convex ? hdo__study_mode(q->k) : HDO_THEORY_MODE_U, &mean);
    double value = HUGE_VAL, start = 0.0;
    if (q->convex) {
        hdo_sys_coef y = hdo_theory_sys_coef(&pr, mean);
        hdo_sc_weighted w = hdo_theory_sc_weighted(&y, q->k->a_0.value, q->k->Gamma_0.value, (int64_t)o->T, 0.5);
        if (w.ok) value = w.f_y, start = w.init;
    } else if (ratio == 1.0) {
        hdo_nc_bound b = hdo_theory_nc_bound(&pr, mean, q->k->F.value, q->k->Gamma_0.value, o->T);
        if (b.ok) value = b.total, start = b.init;
    }
    if (value < o->bound) {
        o->bound = value;
        o->start = start;
        o->noise = value - start;
        o->eta1 = step[0];
        o->eta0 = o->n0 > 0 ? step[1] : 0.0;
        o->nu = o->n0 > 0 && s.ops->difference ? nu : 0.0;
        o->a0 =
            o->n0 > 0 ? hdo_theory_node_noise(&est[1], q->sigma[1], q->varsigma[1], q->k->balanced ? 2.0 : 3.0) : 0.0;
    }
    return value;
}

/* The best step for n0 nodes with rv directions in that share of the budgets. */
static hdo_plan_option option(const desk *q, int n0, int rv, double share, bool unequal) {
    hdo_plan_option o = {.n0 = n0, .rv = n0 > 0 ? rv : 0, .bound = HUGE_VAL};
    hdo_price one = price(q, n0, rv);
    o.round_s = one.seconds;
    o.T = floor(hdo__fleet_rounds(q->f, &one, share) * (q->pairs ? (q->f->fo + n0) / 2.0 : 1.0));
    if (o.T < 1.0) return o;
    double ratio = 1.0;
    if (unequal && n0 > 0 && q->f->fo > 0) {
        double nu;
        hdo_estimator s = q->est;
        s.rv = rv;
        hdo_est_const est = hdo__class_est(&s, q->k, 0.1 / q->k->L.value, &nu);
        double a0 = hdo_theory_node_noise(&est, q->sigma[1], q->varsigma[1], q->k->balanced ? 2.0 : 3.0);
        double a1 = q->sigma[0] * q->sigma[0];
        if (!(a1 > 0.0) || !isfinite(a0)) return o;
        ratio = a1 / a0;
    }
    double top = log10(2.0 / q->k->L.value);
    for (int k = 0; k <= 8 * PER_DECADE; k++) evaluate(q, &o, pow(10.0, top - (double)k / PER_DECADE), ratio);
    return o;
}

/* Powers of two, the most allowed, and the most that a zeroth-order node manages while a gradient is computed. */
static hdo_plan_option best_rv(const desk *q, int n0, double share, bool unequal) {
    hdo_plan_option best = {.n0 = n0, .bound = HUGE_VAL};
    double one = hdo__fleet_passes(q->est.ops, 1), slope = hdo__fleet_passes(q->est.ops, 2) - one;
    double idle = (q->f->zo_speed / q->f->fo_speed - (one - slope)) / slope;
    int most = q->f->rv_max, spare = idle >= 1.0 ? (int)fmin(idle, (double)most) : 1;
    for (int rv = 1, last = 0; !last; rv *= 2) {
        if (rv >= most) rv = most, last = 1;
        hdo_plan_option o = option(q, n0, rv, share, unequal);
        if (o.bound < best.bound || best.rv == 0) best = o;
    }
    hdo_plan_option o = option(q, n0, spare, share, unequal);
    return o.bound < best.bound ? o : best;
}

static void search(const desk *q, hdo_fleet_plan *p) {
    p->without = option(q, 0, 1, 1.0, false);
    p->best = p->equal = (hdo_plan_option){.bound = HUGE_VAL};
    for (int n0 = 1, last = 0; !last && p->memory_ok; n0 *= 2) {
        if (n0 >= q->f->zo) n0 = q->f->zo, last = 1;
        hdo_plan_option e = best_rv(q, n0, 1.0, false), u = best_rv(q, n0, 1.0, true);
        if (e.bound < p->equal.bound || p->equal.rv == 0) p->equal = e;
        hdo_plan_option b = q->convex && u.bound < e.bound ? u : e;
        if (p->n_rows == HDO_PLAN_ROWS) { /* keep the larger populations */
            memmove(p->rows, p->rows + 1, (HDO_PLAN_ROWS - 1) * sizeof *p->rows);
            p->n_rows--;
        }
        p->rows[p->n_rows++] = b;
        if (b.bound < p->best.bound || p->best.rv == 0) p->best = b;
    }
    p->gain = p->without.bound / p->best.bound;
    p->worth = p->memory_ok && p->best.rv > 0 && p->best.bound < p->without.bound;
}

/* ---- the trial ---- */

typedef struct trials {
    const desk *q;
    const hdo_config *c;
    const hdo_study_hooks *hooks;
    int seeds, done; /* of 2 seeds */
} trials;

static void population_of(hdo_config *r, const desk *q, const hdo_plan_option *o) {
    for (int i = 0; i < r->n_classes; i++) r->population[i].count = 0;
    r->population[q->fo].count = q->f->fo;
    r->population[q->zo].count = o->n0;
    r->population[q->fo].lr = (hdo_choice){HDO_NUMBER, o->eta1};
    if (o->n0 > 0) {
        r->population[q->zo].lr = (hdo_choice){HDO_NUMBER, o->eta0};
        r->population[q->zo].rv = o->rv;
        if (o->nu > 0.0) r->population[q->zo].nu = (hdo_choice){HDO_NUMBER, o->nu};
    }
    r->steps = (int64_t)o->T;
    r->warmup = 0;
    r->eval = (hdo_eval_config){.mean_model = true};
}

static hdo_status simulate_one(trials *w, const hdo_plan_option *o, double *mean, double *se, hdo_error *e) {
    hdo_config *r = hdo__alloc(sizeof *r);
    if (r == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a run");
    double sum = 0.0, sum2 = 0.0;
    hdo_status st = HDO_OK;
    *r = *w->c;
    population_of(r, w->q, o);
    for (int k = 0; k < w->seeds && st == HDO_OK; k++) {
        hdo_run *run = NULL;
        hdo_stop why = HDO_RUNNING;
        r->seed = w->c->seed + k;
        st = hdo_run_create(&run, r, NULL, e);
        while (st == HDO_OK && why == HDO_RUNNING) {
            st = hdo_run_advance(run, 100, &why, e);
            if (st == HDO_OK) st = hdo__study_tick(w->hooks, "simulation", w->done + k, 2 * w->seeds, e);
        }
        if (st == HDO_OK) {
            double v = hdo_run_last_row(run)->mu_loss;
            sum += v;
            sum2 += v * v;
        }
        hdo_run_destroy(run);
    }
    hdo__free(r);
    w->done += w->seeds;
    double n = (double)w->seeds, var = n > 1.0 ? (sum2 - sum * sum / n) / (n - 1.0) : 0.0;
    *mean = sum / n;
    *se = var > 0.0 ? sqrt(var / n) : 0.0;
    return st;
}

static hdo_status simulate(const desk *q, const hdo_config *c, hdo_fleet_plan *p, const hdo_study_hooks *h,
                           hdo_error *e) {
    hdo_plan_sim *s = &p->sim;
    double most = fmax(p->without.T, p->best.T), cap = (double)p->fleet.sim_steps;
    if (p->fleet.sim_seeds <= 0 || p->best.rv == 0 || !isfinite(p->best.bound) || !isfinite(p->without.bound))
        return HDO_OK;
    s->seeds = p->fleet.sim_seeds;
    s->scale = most > cap ? cap / most : 1.0;
    hdo_plan_option a = option(q, 0, 1, s->scale, false),
                    b = option(q, p->best.n0, p->best.rv, s->scale, p->best.eta0 != p->best.eta1);
    if (!isfinite(a.bound) || !isfinite(b.bound)) return HDO_OK;
    s->steps_without = a.T;
    s->steps_with = b.T;
    trials w = {.q = q, .c = c, .hooks = h, .seeds = s->seeds};
    hdo_status st = simulate_one(&w, &a, &s->without, &s->without_se, e);
    if (st == HDO_OK) st = simulate_one(&w, &b, &s->with, &s->with_se, e);
    if (st != HDO_OK) return st;
    double noise = 2.0 * sqrt(s->with_se * s->with_se + s->without_se * s->without_se), diff = s->without - s->with;
    s->done = true;
    s->agrees = fabs(diff) <= noise || (diff > 0.0) == p->worth;
    return HDO_OK;
}

/* ---- the answer ---- */

static void explain(const desk *q, hdo_fleet_plan *p) {
    const hdo_plan_option *b = &p->best, *w = &p->without;
    if (!p->memory_ok) {
        snprintf(p->reason, sizeof p->reason,
                 "a zeroth-order node needs %.3g MB for its model, the partner's and its "
                 "directions, and has %.3g MB",
                 p->memory_needed / 1e6, p->fleet.memory / 1e6);
        return;
    }
    if (b->rv == 0 || !isfinite(b->bound)) {
        snprintf(p->reason, sizeof p->reason,
                 "there is no bound with zeroth-order nodes: too few rounds fit into the time, "
                 "or a constant is unknown");
        return;
    }
    double ratio = b->a0 / p->a1, limit = 2.0 + (double)b->n0 / (double)(q->f->fo > 0 ? q->f->fo : 1);
    double slower = b->round_s / w->round_s;
    const char *what = b->start > b->noise ? "most of the bound is still the start" : "most of the bound is noise";
    if (p->worth) {
        snprintf(p->reason, sizeof p->reason,
                 "%d more nodes share the noise: one of them has %.3g times the noise of a first-order node (%s %.3g, "
                 "docs/theory.md 3.8), a round takes %.3g times as long, and %s",
                 b->n0, ratio, ratio < limit ? "below the break-even" : "above the break-even of equal steps,", limit,
                 slower, what);
    } else {
        snprintf(p->reason, sizeof p->reason,
                 "even the best choice, %d nodes with rv = %d, has %.3g times the noise of a first-order node each "
                 "(break-even %.3g) and rounds %.3g times as long; %s",
                 b->n0, b->rv, ratio, limit, slower, what);
    }
}

/* The two classes to plan with; a missing one is made from the other. */
static hdo_status two_classes(hdo_config *c, desk *q, hdo_error *e) {
    q->fo = q->zo = -1;
    for (int k = 0; k < c->n_classes; k++) {
        const hdo_estimator_ops *ops = hdo__estimator_of(c, c->population[k].estimator);
        if (ops == NULL) continue;
        if (!ops->zeroth && q->fo < 0) q->fo = k;
        if (ops->zeroth && q->zo < 0) q->zo = k;
    }
    if ((q->fo < 0 || q->zo < 0) && c->n_classes == HDO_CLASSES_MAX) {
        return hdo__fail(e, HDO_E_CONFIG, "the population needs a first-order and a zeroth-order class to plan with");
    }
    if (q->zo < 0) {
        q->zo = c->n_classes++;
        c->population[q->zo] = c->population[q->fo];
        snprintf(c->population[q->zo].name, HDO_NAME_MAX, "zo");
        snprintf(c->population[q->zo].estimator, HDO_NAME_MAX, "fd");
    }
    if (q->fo < 0) {
        q->fo = c->n_classes++;
        c->population[q->fo] = c->population[q->zo];
        snprintf(c->population[q->fo].name, HDO_NAME_MAX, "fo");
        snprintf(c->population[q->fo].estimator, HDO_NAME_MAX, "fo");
    }
    for (int k = 0; k < c->n_classes; k++) {
        c->population[k].count = k == q->fo ? q->f->fo : k == q->zo ? q->f->zo : 0;
        c->population[k].lr =
            c->population[k].lr.id == HDO_NUMBER ? c->population[k].lr : (hdo_choice){HDO_NUMBER, 0.01};
        c->population[k].momentum = c->population[k].weight_decay = 0.0;
        c->population[k].schedule.id = HDO_SCHEDULE_CONSTANT;
    }
    return HDO_OK;
}

/* Noise and heterogeneity of both classes; the plan is as good as what it knows least. */
static void take_noise(desk *q, const hdo_constants *k, hdo_fleet_plan *p) {
    int cls[2] = {q->fo, q->zo};
    p->quality = k->L.how;
    for (int i = 0; i < 2; i++) {
        bool at_minimum = q->convex && !k->same_hessian;
        hdo_constant v = at_minimum ? k->varsigma_O[cls[i]] : k->varsigma_U[cls[i]];
        q->sigma[i] = k->sigma[cls[i]].value;
        q->varsigma[i] = v.value;
        if (k->sigma[cls[i]].how < p->quality) p->quality = k->sigma[cls[i]].how;
        if (v.how < p->quality) p->quality = v.how;
    }
}

hdo_status hdo_plan_fleet(const hdo_config *config, const hdo_fleet *fleet, const hdo_study_hooks *hooks,
                          hdo_fleet_plan *p, hdo_error *e) {
    static const hdo_study_hooks none = {0};
    if (hooks == NULL) hooks = &none;
    memset(p, 0, sizeof *p);
    if (fleet->fo < 1 || fleet->zo < 1) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "a fleet needs at least one first-order node and one zeroth-order candidate, but has "
                         "%d and %d",
                         fleet->fo, fleet->zo);
    }
    p->fleet = *fleet;
    desk q = {.f = &p->fleet, .k = &p->constants};
    hdo_config *c = hdo__alloc(sizeof *c);
    hdo_study *s = NULL;
    if (c == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the plan");
    *c = *config;
    hdo_config_as_base(c); /* the plan makes classes of its own */
    if (strcmp(c->mixing.kind, "pairwise") != 0) snprintf(c->mixing.kind, sizeof c->mixing.kind, "matching");
    hdo_status st = two_classes(c, &q, e);
    if (st == HDO_OK) st = hdo_study_create(&s, c, hooks, e);
    if (st == HDO_OK) st = hdo_study_measure(s, NULL, e);
    if (st != HDO_OK) goto out;
    p->constants = s->k;
    q.run = s->run;
    q.est = s->run->population.classes[q.zo].estimator;
    q.pairs = strcmp(c->mixing.kind, "pairwise") == 0;
    q.convex = p->convex = s->k.convex && s->k.ell.value > 0.0;
    take_noise(&q, &s->k, p);
    snprintf(p->estimator, sizeof p->estimator, "%s", q.est.ops->name);
    snprintf(p->mixing, sizeof p->mixing, "%s", c->mixing.kind);
    if (p->fleet.rv_max < 1) p->fleet.rv_max = 1;
    if (p->fleet.rv_max > RV_MAX) p->fleet.rv_max = RV_MAX;
    if (p->fleet.sim_steps <= 0) p->fleet.sim_steps = 2000;
    double bytes = 4.0 * (double)(s->k.d + s->run->problem.objective->n_buf);
    q.model_bytes = bytes;
    p->memory_needed = 3.0 * bytes;
    p->memory_ok = !(p->fleet.memory > 0.0) || p->fleet.memory >= p->memory_needed;
    if (!(p->fleet.time > 0.0))
        p->fleet.time = (double)c->steps * price(&q, 0, 1).seconds / (q.pairs ? p->fleet.fo / 2.0 : 1.0);
    p->a1 = q.sigma[0] * q.sigma[0];
    search(&q, p);
    p->threshold = 2.0 + (double)p->best.n0 / (double)p->fleet.fo;
    p->rv_needed = hdo_theory_zo_rv(s->k.live, p->fleet.zo, p->fleet.fo, q.sigma[1], q.sigma[0], q.varsigma[1],
                                    s->k.balanced ? 2.0 : 3.0);
    explain(&q, p);
    st = simulate(&q, c, p, hooks, e);
out:
    hdo_study_destroy(s);
    hdo__free(c);
    return st;
}
