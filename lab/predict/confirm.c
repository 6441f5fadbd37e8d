/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan, tried. Both sides get tuned rates: the planned ones times a power of two, found with seeds of their own, so
 * that neither side wins because the prediction missed the other's best rate. Then both run with the seeds that count.
 */
#include <math.h>
#include <stdio.h>

#include "lab/predict/predict_internal.h"

enum { TUNING_SEEDS = 3, OCTAVES = 3, OTHER_SEEDS = 1000000 };

typedef struct moments {
    double mean, se;
} moments;

static hdo_status run_side(const hdo_plan_table *t, const hdo_fleet_choice *o, double factor, int64_t first, int seeds,
                           moments *out, hdo_error *e) {
    hdo_config *r = hdo__alloc(sizeof *r);
    double sum = 0.0, sum2 = 0.0;
    hdo_status st = r == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory for a run") : HDO_OK;
    for (int s = 0; s < seeds && st == HDO_OK; s++) {
        hdo_run *run = NULL;
        hdo_stop why = HDO_RUNNING;
        *r = *t->c;
        r->population[t->fo].count = t->f->fo;
        r->population[t->zo].count = o->n0;
        r->population[t->fo].lr = (hdo_choice){HDO_NUMBER, factor * o->eta1};
        if (o->n0 > 0) {
            r->population[t->zo].lr = (hdo_choice){HDO_NUMBER, factor * o->eta0};
            r->population[t->zo].rv = o->rv;
        }
        r->steps = (int64_t)o->T;
        r->seed = first + s;
        r->eval = (hdo_eval_config){.mean_model = true};
        st = hdo_run_create(&run, r, NULL, e);
        while (st == HDO_OK && why == HDO_RUNNING) {
            st = hdo_run_advance(run, 100, &why, e);
            if (st == HDO_OK) st = hdo__study_tick(&t->q->hooks, "simulation", s, seeds, e);
        }
        double v = st == HDO_OK && why == HDO_COMPLETED ? hdo_run_last_row(run)->mu_loss : HUGE_VAL;
        sum += v;
        sum2 += v * v;
        hdo_run_destroy(run);
    }
    double n = (double)seeds, var = n > 1.0 ? (sum2 - sum * sum / n) / (n - 1.0) : 0.0;
    *out = (moments){isfinite(sum) ? sum / n : HUGE_VAL, var > 0.0 ? sqrt(var / n) : 0.0};
    hdo__free(r);
    return st;
}

/* Doubles or halves the planned rates as long as it gets better, at most eightfold. */
static hdo_status tune(const hdo_plan_table *t, const hdo_fleet_choice *o, double *factor, hdo_error *e) {
    int64_t first = t->c->seed + OTHER_SEEDS;
    int seeds = t->f->sim_seeds < TUNING_SEEDS ? t->f->sim_seeds : TUNING_SEEDS;
    moments best, now;
    *factor = 1.0;
    hdo_status st = run_side(t, o, 1.0, first, seeds, &best, e);
    for (int way = 1; way >= -1 && st == HDO_OK; way -= 2) {
        for (int k = 1; k <= OCTAVES && st == HDO_OK; k++) {
            st = run_side(t, o, ldexp(1.0, way * k), first, seeds, &now, e);
            if (st != HDO_OK || !(now.mean < best.mean)) break;
            best = now;
            *factor = ldexp(1.0, way * k);
        }
        if (*factor > 1.0) break; /* larger ones helped: smaller ones will not */
    }
    return st;
}

hdo_status hdo__plan_confirm(const hdo_plan_table *t, hdo_fleet_prediction *out, hdo_error *e) {
    hdo_plan_sim *s = &out->sim;
    moments a, b;
    s->seeds = t->f->sim_seeds;
    s->scale = out->scale;
    s->steps_without = out->without.T;
    s->steps_with = out->best.T;
    hdo_status st = tune(t, &out->without, &s->tuned_without, e);
    if (st == HDO_OK) st = tune(t, &out->best, &s->tuned_with, e);
    if (st == HDO_OK) st = run_side(t, &out->without, s->tuned_without, t->c->seed, s->seeds, &a, e);
    if (st == HDO_OK) st = run_side(t, &out->best, s->tuned_with, t->c->seed, s->seeds, &b, e);
    if (st != HDO_OK) return st;
    s->without = a.mean;
    s->without_se = a.se;
    s->with = b.mean;
    s->with_se = b.se;
    double diff = a.mean - b.mean;
    s->done = true;
    s->agrees = fabs(diff) <= 2.0 * hypot(a.se, b.se) || (diff > 0.0) == out->worth;
    return HDO_OK;
}
