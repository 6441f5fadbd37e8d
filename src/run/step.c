/* SPDX-License-Identifier: Apache-2.0
 *
 * One step, in the order of the paper's algorithm: who meets; every one of them takes a local step with its own
 * estimator; the pairs exchange their models and both take the average. Nothing in here allocates.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/vec.h"
#include "run/run_internal.h"

static void local_step(void *ctx, int node, hdo_work *w) {
    hdo_run *r = ctx;
    hdo_population *p = &r->population;
    hdo_transport *t = r->transport;
    size_t mark = hdo__arena_mark(w->arena);
    float *g = hdo__arena_floats(w->arena, p->models.ld);
    hdo__node_estimate(p, r->progress.step, node, hdo__population_model(p, node), w, g);
    hdo__node_move(p, node, g, w);
    hdo__arena_rewind(w->arena, mark);
    if (r->in_exchange) t->ops->exchange_ready(t, &p->models, node, w->arena == &p->team->arena[0]);
}

/* What this rank has to say about the step: the clock, and what the caller wants. */
_Static_assert((int)HDO_ASK_STOP == (int)HDO_SAY_STOP && (int)HDO_ASK_SAVE == (int)HDO_SAY_SAVE,
               "what a caller may ask for has the same numbers as what ranks say");
unsigned hdo__run_opinion(const hdo_run *r) {
    unsigned say = r->hooks.asked != NULL ? r->hooks.asked(r->hooks.ctx) & (HDO_SAY_STOP | HDO_SAY_SAVE) : 0;
    double now = hdo__now_s(), limit = r->progress.limit_s > 0.0 ? r->progress.limit_s : r->config.stop.time_s,
           every = r->config.checkpoint.every_s;
    if (limit > 0.0 && now - r->progress.session_s > limit) say |= HDO_SAY_TIMEOUT;
    if (every > 0.0 && now - r->record.saved_s >= every) say |= HDO_SAY_SAVE;
    if (r->transport->rank != 0) say &= ~(unsigned)HDO_SAY_SAVE; /* a signal comes to all, not in the same step */
    return say;
}

/* Did a node, here or elsewhere, give up the step? */
static bool given_up(const hdo_run *r) {
    bool any = false;
    for (int k = 0; k < r->population.n_active && r->undo.X != NULL; k++)
        any = any || r->population.result[r->population.active[k]].status == HDO_E_STOPPED;
    return any;
}

/* One step of HDO (Algorithm 1, or its synchronous form with a matching). */
hdo_status hdo__run_step(hdo_run *r, hdo_error *e) {
    hdo_plan plan;
    hdo_status st = HDO_OK;
    hdo__undo_keep(r);
    hdo_population *p = &r->population;
    int64_t t = r->progress.step;
    if (hdo__population_wants_noise(p, t)) st = hdo__population_measure_noise(p, t, e);
    if (st == HDO_E_STOPPED) hdo__undo_step(r);
    if (st != HDO_OK) return st == HDO_E_STOPPED ? HDO_OK : st;
    hdo__population_churn(p, t);
    st = hdo__population_add_to_y(p, t, e);
    if (st != HDO_OK) return st;
    hdo__population_meet(p, t, &plan); /* who meets, who steps */
    hdo__population_set_rates(p, t);

    hdo_transport *tp = r->transport;
    r->in_exchange = !plan.allreduce && tp->ranks > 1;
    if (!plan.allreduce) st = tp->ops->exchange_begin(tp, &plan, &p->models, t, e);
    if (st != HDO_OK) return st;
    hdo__population_each(p, local_step, r);                     /* everybody's own step */
    st = hdo__population_mix(p, &plan, &r->progress.counts, e); /* pairs average */
    if (st != HDO_OK) return st;
    r->progress.said = hdo__run_opinion(r);
    st = tp->ops->agree(tp, HDO_OK, &r->progress.said, r->population.result, sizeof *r->population.result, e);
    if (st != HDO_OK) return st;
    if (given_up(r)) {
        hdo__undo_step(r);
        return HDO_OK;
    }
    bool finite = hdo__population_collect(p, &r->progress, &st);
    if (st != HDO_OK)
        return hdo__fail(e, st, "the objective failed in step %lld: %s", (long long)r->progress.step,
                         hdo_status_text(st));
    hdo__population_advance_clocks(p, &plan);
    st = hdo__fate_step(&r->record, &plan, e);
    if (st != HDO_OK) return st;
    r->progress.step++;
    if (!finite) {
        r->progress.stop = HDO_DIVERGED;
    } else if ((r->progress.said & HDO_SAY_STOP) != 0) {
        r->progress.stop = HDO_STOPPED;
    } else if ((r->progress.said & HDO_SAY_TIMEOUT) != 0) {
        r->progress.stop = HDO_TIMEOUT;
    }
    return st;
}
