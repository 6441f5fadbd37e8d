/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of the problem against their bounds. A run is advanced step by step; at a few hundred rounds, spaced evenly in
 * logarithm, the quantities of the theory are taken from the models themselves. The verdict compares the mean over
 * seeds minus four standard errors with the bound: one round after the start the bound is tight to a fraction of a per
 * cent, so plain means would fail by chance (docs/theory.md 5.2).
 *
 * Seeds run side by side, one thread each; every seed fills its own rows and sums are taken in seed order, so figures
 * do not depend on the number of threads.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "lab/study/study_internal.h"

enum { POINTS = 160, GRADS = 400 };
#define SIGMAS 4.0
#define ROUNDING 1e-5 /* relative: models are floats, and without noise a bound can be an equality */

/* Rounds to look at: 0, 1, ... T, evenly spaced in logarithm, each once. */
static int grid(int64_t T, int64_t *t) {
    int n = 0;
    t[n++] = 0;
    for (int k = 0; k < POINTS - 1 && T >= 1; k++) {
        int64_t at = (int64_t)llround(exp(log((double)T) * (double)k / (double)(POINTS - 2)));
        if (at > t[n - 1] && at <= T) t[n++] = at;
    }
    return n;
}

/* ---- one seed ---- */

typedef struct trial {
    const hdo_study *s;
    const hdo_comparison *c;
    int64_t seed, every; /* |grad f|^2 is taken every so many rounds */
    double rate;         /* of the weights of y; < 0: no y */
    bool threads;
    double *out; /* (HDO_QUANTITIES, n_points); NaN where not measured */
    bool diverged;
    hdo_status st;
    hdo_error e;
} trial;

typedef struct walker {
    hdo_run *run;
    hdo_exact_oracle o;
    double *mu, *y, *g;
    double grad_sum, grad_n, gamma_sum;
} walker;

static double mean_model(const hdo_run *r, double *mu) {
    size_t d = r->problem.objective->d;
    memset(mu, 0, d * sizeof(double));
    for (int i = 0; i < r->population.models.count; i++)
        hdo__accumulate(d, r->population.models.X + (size_t)i * r->population.models.ld, mu);
    for (size_t j = 0; j < d; j++) mu[j] /= (double)r->population.models.count;
    double sum = 0.0;
    for (int i = 0; i < r->population.models.count; i++) {
        const float *x = r->population.models.X + (size_t)i * r->population.models.ld;
        for (size_t j = 0; j < d; j++) sum += ((double)x[j] - mu[j]) * ((double)x[j] - mu[j]);
    }
    return sum / (double)r->population.models.count;
}

static void put(const trial *t, hdo_quantity q, int point, double v) {
    t->out[(int)q * t->c->n_points + point] = v;
}

/* What is known before round t + 1, at the models of time t. */
static hdo_status look(trial *t, walker *w, int64_t now, int point, double gamma) {
    const hdo_study *s = t->s;
    size_t d = s->k.d;
    bool same_f = s->config.data.split.id != HDO_SPLIT_DIRICHLET || s->run->problem.train == NULL; /* for every seed */
    if (s->x_star != NULL && same_f) {
        double a = 0.0;
        for (size_t j = 0; j < d; j++) a += (w->mu[j] - s->x_star[j]) * (w->mu[j] - s->x_star[j]);
        put(t, HDO_Q_DISTANCE, point, a);
    }
    put(t, HDO_Q_GAMMA, point, gamma);
    if (now > 0 && t->every > 0) put(t, HDO_Q_GRAD, point, w->grad_sum / w->grad_n);
    if (now > 0) put(t, HDO_Q_GAMMA_AVG, point, w->gamma_sum / (double)now);
    if ((now > 0 && t->rate < 0.0) || !same_f) return HDO_OK;
    double f; /* at the start, y_0 = mu_0: data problems start elsewhere for every seed */
    hdo_status st = hdo__oracle_grad(&w->o, -1, now == 0 ? w->mu : w->y, NULL, &f, &t->e);
    put(t, HDO_Q_VALUE, point, f - s->k.f_star.value);
    return st;
}

static hdo_status walk(trial *t, walker *w) {
    const hdo_comparison *c = t->c;
    size_t d = t->s->k.d;
    int64_t T = c->t[c->n_points - 1];
    int point = 0;
    hdo_stop why = HDO_RUNNING;
    hdo_status st = HDO_OK;
    for (int64_t now = 0; st == HDO_OK; now++) {
        double gamma = mean_model(w->run, w->mu);
        bool at = point < c->n_points && c->t[point] == now;
        if (at) st = look(t, w, now, point, gamma);
        if (st != HDO_OK || now == T) break;
        if (t->every > 0 && now % t->every == 0) {
            st = hdo__oracle_grad(&w->o, -1, w->mu, w->g, NULL, &t->e);
            for (size_t j = 0; j < d; j++) w->grad_sum += w->g[j] * w->g[j];
            w->grad_n += 1.0;
        }
        w->gamma_sum += gamma;
        if (t->rate >= 0.0) { /* y_{t+1} = sum w_k mu_{k-1} / S: weight of the newest is rate / (1 - (1-rate)^(t+1)) */
            double p = -expm1((double)(now + 1) * log1p(-t->rate));
            double share = t->rate > 0.0 ? t->rate / p : 1.0 / (double)(now + 1);
            for (size_t j = 0; j < d; j++) w->y[j] += share * (w->mu[j] - w->y[j]);
        }
        if (st == HDO_OK) st = hdo_run_advance(w->run, 1, &why, &t->e);
        if (st != HDO_OK || (why != HDO_RUNNING && why != HDO_COMPLETED)) break;
        if (at) put(t, HDO_Q_MG, point++, w->run->progress.mg_active); /* unbiased at t, without the past */
    }
    t->diverged = why == HDO_DIVERGED;
    return st;
}

static void run_trial(trial *t) {
    const hdo_study *s = t->s;
    walker w = {0};
    hdo_config *c = hdo__alloc(sizeof *c);
    size_t d = s->k.d;
    for (int k = 0; k < HDO_QUANTITIES * t->c->n_points; k++) t->out[k] = (double)NAN;
    w.mu = hdo__alloc(3 * d * sizeof(double));
    if (c == NULL || w.mu == NULL) {
        t->st = hdo__fail(&t->e, HDO_E_MEMORY, "out of memory for a run");
    } else {
        w.y = w.mu + d;
        w.g = w.y + d;
        *c = s->config;
        c->seed = t->seed;
        c->eval = (hdo_eval_config){0};
        c->stop = (hdo_stop_config){.diverged = s->config.stop.diverged};
        if (!t->threads) c->threads = 1;
        t->st = hdo_run_create(&w.run, c, NULL, &t->e);
        if (t->st == HDO_OK) t->st = hdo__oracle_init(&w.o, w.run, hdo__is_softmax_regression(c) ? 0 : 512, &t->e);
        if (t->st == HDO_OK) t->st = walk(t, &w);
    }
    hdo__oracle_clear(&w.o);
    hdo_run_destroy(w.run);
    hdo__free(w.mu);
    hdo__free(c);
}

static void trial_task(void *ctx, int task, hdo_work *w) {
    (void)w;
    run_trial(&((trial *)ctx)[task]);
}

/* ---- bounds at the same rounds ---- */

static void fill_bounds(hdo_comparison *c) {
    const hdo_assessment *a = &c->assessment;
    const hdo_constants *k = &a->constants;
    /* The start may differ from seed to seed. Bounds are concave in a_0 and F, so the mean start serves for the mean.
     */
    double a_0 = fmax(k->a_0.value, c->mean[HDO_Q_DISTANCE][0]), F = fmax(k->F.value, c->mean[HDO_Q_VALUE][0]);
    hdo_sc_iter it;
    if (a->sc_applies) hdo_theory_sc_iter_init(&it, &a->sys, a_0, k->Gamma_0.value);
    for (int i = 0; i < c->n_points; i++) {
        int64_t t = c->t[i];
        for (int q = 0; q < HDO_QUANTITIES; q++) c->bound[q][i] = HUGE_VAL;
        if (a->sc_applies) {
            while (it.t < t) hdo_theory_sc_iter_next(&it);
            c->bound[HDO_Q_DISTANCE][i] = it.a;
            c->bound[HDO_Q_GAMMA][i] = it.Gamma;
            c->bound[HDO_Q_MG][i] = a->MG_scale * hdo_theory_mg_bound(&a->sc, it.a, it.Gamma);
            if (t > 0) c->bound[HDO_Q_VALUE][i] = hdo_theory_sc_weighted(&a->sys, a_0, k->Gamma_0.value, t, 0.5).f_y;
        }
        if (a->nc_known && t > 0) {
            hdo_nc_bound b = hdo_theory_nc_bound(&a->nc, a->eta, F, k->Gamma_0.value, (double)t);
            c->bound[HDO_Q_GRAD][i] = b.total;
            c->bound[HDO_Q_GAMMA_AVG][i] = b.Gav;
        }
    }
}

static void judge(hdo_comparison *c, hdo_quantity q) {
    const hdo_assessment *a = &c->assessment;
    bool nc = q == HDO_Q_GRAD || q == HDO_Q_GAMMA_AVG;
    hdo_bound_check *v = &c->verdict[q];
    *v = (hdo_bound_check){.holds = nc ? a->nc_holds : a->sc_holds, .tightest = HUGE_VAL, .worst_z = -HUGE_VAL};
    for (int i = 0; i < c->n_points; i++) {
        double m = c->mean[q][i], se = c->se[q][i], b = c->bound[q][i];
        if (!isfinite(m) || (q == HDO_Q_VALUE && c->t[i] == 0)) continue; /* y_0 is only the start */
        v->measured = true;
        v->mean = m;
        v->se = se;
        v->bound = b;
        if (!isfinite(b)) continue;
        v->bounded = true;
        v->slack = m > 0.0 ? b / m : HUGE_VAL;
        if (c->t[i] > 0 && v->slack < v->tightest) {
            v->tightest = v->slack;
            v->tightest_t = c->t[i];
        }
        double z = se > 0.0 ? (m - b) / se : m > b * (1.0 + ROUNDING) ? HUGE_VAL : -HUGE_VAL;
        if (z > v->worst_z) {
            v->worst_z = z;
            v->worst_t = c->t[i];
        }
        if (m - SIGMAS * se > b * (1.0 + ROUNDING) + 1e-30) v->violated = true;
    }
    c->violated = c->violated || (v->violated && v->holds);
}

static void average(hdo_comparison *c, const trial *t) {
    for (int q = 0; q < HDO_QUANTITIES; q++) {
        for (int i = 0; i < c->n_points; i++) {
            double n = 0.0, sum = 0.0, sum2 = 0.0;
            for (int k = 0; k < c->seeds; k++) {
                double v = t[k].out[q * c->n_points + i];
                n += 1.0;
                sum += v; /* a diverged seed makes the mean infinite or NaN: that is what happened */
            }
            double mean = sum / n;
            for (int k = 0; k < c->seeds; k++) {
                double v = t[k].out[q * c->n_points + i] - mean;
                sum2 += v * v;
            }
            c->mean[q][i] = mean;
            c->se[q][i] = c->seeds > 1 ? sqrt(sum2 / (n - 1.0) / n) : 0.0;
        }
    }
}

/* `width` at a time. */
static hdo_status run_trials(hdo_study *s, trial *trials, int seeds, int width, hdo_error *e) {
    hdo_team team;
    hdo_status st = hdo__team_init(&team, width, 64);
    if (st != HDO_OK) return hdo__fail(e, st, "out of memory for %d threads", width);
    for (int k = 0; k < seeds && st == HDO_OK; k += 4 * width) {
        int n = seeds - k < 4 * width ? seeds - k : 4 * width;
        st = hdo__study_tick(&s->hooks, "seeds", k, seeds, e);
        if (st == HDO_OK) hdo__team_run(&team, n, trial_task, trials + k);
        for (int i = k; i < k + n && st == HDO_OK; i++) {
            st = trials[i].st;
            if (st != HDO_OK && e != NULL) *e = trials[i].e;
        }
    }
    hdo__team_clear(&team);
    return st;
}

hdo_status hdo_study_compare(hdo_study *s, int seeds, hdo_comparison *out, hdo_error *e) {
    memset(out, 0, sizeof *out);
    hdo_comparison *c = out;
    c->seeds = seeds;
    hdo_status st = hdo_study_assess(s, &c->assessment, e);
    if (st != HDO_OK) return st;
    int64_t t[POINTS + 1];
    c->n_points = grid(s->config.steps, t);
    size_t np = (size_t)c->n_points, cells = np * HDO_QUANTITIES;
    c->t = malloc(np * sizeof *c->t);
    double *all = calloc(3 * cells, sizeof *all), *raw = calloc((size_t)seeds * cells, sizeof *raw);
    trial *trials = calloc((size_t)seeds, sizeof *trials);
    c->mean[0] = all;
    if (c->t == NULL || all == NULL || raw == NULL || trials == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for %d seeds", seeds);
        goto out;
    }
    memcpy(c->t, t, np * sizeof *c->t);
    for (int q = 0; q < HDO_QUANTITIES; q++) {
        c->mean[q] = all + (size_t)q * np;
        c->se[q] = all + cells + (size_t)q * np;
        c->bound[q] = all + 2 * cells + (size_t)q * np;
    }
    bool cheap = s->run->problem.train == NULL; /* a gradient of f costs no more than a step */
    int64_t T = s->config.steps, every = cheap ? 1 : (T + GRADS - 1) / GRADS;
    double rate = c->assessment.sc_known && c->assessment.fy.ok ? c->assessment.fy.rate : -1.0;
    for (int k = 0; k < seeds; k++) {
        trials[k] = (trial){.s = s,
                            .c = c,
                            .seed = s->config.seed + k,
                            .every = every > 0 ? every : 1,
                            .rate = rate,
                            .threads = !cheap,
                            .out = raw + (size_t)k * cells};
    }
    st = run_trials(s, trials, seeds, cheap ? s->run->team.threads : 1, e);
    for (int k = 0; k < seeds; k++) c->diverged += trials[k].diverged;
    if (st != HDO_OK) goto out;
    average(c, trials);
    fill_bounds(c);
    for (int q = 0; q < HDO_QUANTITIES; q++) judge(c, (hdo_quantity)q);
out:
    free(raw);
    free(trials);
    if (st != HDO_OK) hdo_comparison_clear(c);
    return st;
}

void hdo_comparison_clear(hdo_comparison *c) {
    free(c->t);
    free(c->mean[0]);
    memset(c, 0, sizeof *c);
}
