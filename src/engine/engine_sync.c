/* SPDX-License-Identifier: Apache-2.0
 *
 * The synchronous engine: one step, in the order of the paper's algorithm. Who meets; every one of them takes a local
 * step with its own estimator; the pairs exchange their models and both take the average. All ranks do it together, to
 * the same bits as one. Nothing in here allocates.
 */
#include "base/arena.h"
#include "engine/engine.h"
#include "engine/undo.h"

typedef struct sync_engine {
    hdo_engine base;
    hdo_undo undo;
} sync_engine;

static void local_step(void *ctx, int node, hdo_work *w) {
    const hdo_engine *g = ctx;
    hdo_population *p = g->population;
    size_t mark = hdo__arena_mark(w->arena);
    float *estimate = hdo__arena_floats(w->arena, p->models.ld);
    hdo__node_estimate(p, g->progress->step, node, hdo__population_model(p, node), w, estimate);
    hdo__node_move(p, node, estimate, w);
    hdo__arena_rewind(w->arena, mark);
    hdo__exchange_ready(p, node, w);
}

/* Did a node, here or elsewhere, give up the step? */
static bool given_up(const hdo_population *p) {
    bool any = false;
    for (int k = 0; k < p->n_active && p->hurry != NULL; k++)
        any = any || p->result[p->active[k]].status == HDO_E_STOPPED;
    return any;
}

/* An objective failed, here or elsewhere: whoever has a node that did says why, and all ranks hear it. */
static hdo_status failed(hdo_engine *g, hdo_status st, hdo_error *e) {
    const hdo_population *p = g->population;
    hdo_status own = HDO_OK;
    for (int k = 0; k < p->n_own; k++) {
        hdo_status one = p->result[p->own[k]].status;
        if (one != HDO_OK && one != HDO_E_SKIPPED) own = one;
    }
    if (own != HDO_OK)
        hdo__problem_fail(g->problem, own, e, "the objective failed in step %lld: %s", (long long)g->progress->step,
                          hdo_status_text(own));
    own = hdo__transport_settle(g->transport, own, e);
    return own != HDO_OK ? own : st;
}

/* What the step adds up to, once all ranks know the results of all nodes. */
static hdo_status conclude(hdo_engine *g, const hdo_plan *plan, hdo_error *e) {
    hdo_progress *now = g->progress;
    hdo_status st = HDO_OK;
    int64_t before = now->counts.failed;
    bool finite = hdo__population_collect(g->population, now, &st);
    if (st != HDO_OK) return failed(g, st, e);
    hdo__engine_say_skips(g, before);
    hdo__population_advance_clocks(g->population, plan);
    hdo__population_follow_g2(g->population);
    st = hdo__fate_step(g->record, plan, e);
    if (st != HDO_OK) return st;
    now->step++;
    if (!finite) {
        now->stop = HDO_DIVERGED;
    } else if ((now->said & HDO_SAY_STOP) != 0) {
        now->stop = HDO_STOPPED;
    } else if ((now->said & HDO_SAY_TIMEOUT) != 0) {
        now->stop = HDO_TIMEOUT;
    }
    return HDO_OK;
}

/* One step of HDO (Algorithm 1, or its synchronous form with a matching). HDO_E_STOPPED: it was given up. */
static hdo_status step(hdo_engine *g, hdo_error *e) {
    hdo_population *p = g->population;
    hdo_progress *now = g->progress;
    hdo_transport *tp = g->transport;
    int64_t t = now->step;
    hdo_plan plan;
    hdo_status st = HDO_OK;

    if (hdo__population_wants_noise(p, t)) st = hdo__population_measure_noise(p, t, e); /* lr: balanced */
    if (st != HDO_OK) return st;
    hdo__population_churn(p, t);            /* who is here */
    st = hdo__population_add_to_y(p, t, e); /* the weighted average of the theorem, if it is kept */
    if (st != HDO_OK) return st;

    hdo__population_meet(p, t, &plan); /* who meets, and so who steps */
    hdo__population_set_rates(p, t);
    st = hdo__mixer_sound(&p->mixer, e);
    if (st == HDO_OK) st = hdo__exchange_begin(p, &plan, t, e);
    if (st != HDO_OK) return st;
    hdo__population_each(p, local_step, g);              /* everybody's own step */
    st = hdo__population_mix(p, &plan, &now->counts, e); /* the pairs average */
    if (st != HDO_OK) return st;

    now->said = hdo__engine_opinion(g);
    st = tp->ops->agree(tp, HDO_OK, &now->said, p->result, sizeof *p->result, e);
    if (st != HDO_OK) return st;
    return given_up(p) ? HDO_E_STOPPED : conclude(g, &plan, e);
}

/* ---- the table ---- */

/* A step, or nothing of it: where steps are long one may be given up, and then the state before it is back. */
static hdo_status sync_step(hdo_engine *base, hdo_error *e) {
    sync_engine *g = (sync_engine *)base;
    hdo__undo_keep(&g->undo, base->population, base->progress);
    hdo_status st = step(base, e);
    if (st != HDO_E_STOPPED) return st;
    hdo__undo_back(&g->undo, base->population, base->progress);
    base->progress->stop = HDO_STOPPED;
    hdo__log(base->log, HDO_LOG_INFO, "step %lld was given up: the state before it is kept",
             (long long)base->progress->step);
    return HDO_OK;
}

static bool sync_fits(const hdo_engine *parts) {
    (void)parts;
    return true;
}

static bool keeps_state(const hdo_engine *g) {
    return g->hooks->hurry != NULL && !g->config->mpi.async && hdo__steps_are_long(g->population);
}

static size_t sync_state_bytes(const hdo_engine *parts) {
    const hdo_population *p = parts->population;
    size_t models = hdo__population_cells(p) * sizeof(float);
    return keeps_state(parts) ? models * (hdo__population_has_momentum(p) ? 2 : 1) : 0;
}

static void sync_destroy(hdo_engine *base) {
    sync_engine *g = (sync_engine *)base;
    hdo__undo_clear(&g->undo);
    hdo__free(g);
}

static hdo_status sync_create(hdo_engine **out, const hdo_engine *parts, hdo_error *e) {
    sync_engine *g = hdo__alloc(sizeof *g);
    *out = NULL;
    if (g == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the engine");
    g->base = *parts;
    if (keeps_state(parts)) {
        if (hdo__undo_init(&g->undo, parts->population) != HDO_OK) {
            sync_destroy(&g->base);
            return hdo__fail(e, HDO_E_MEMORY, "out of memory for the state before a step");
        }
        parts->population->hurry = parts->hooks->hurry;
        parts->population->hurry_ctx = parts->hooks->ctx;
    }
    *out = &g->base;
    return HDO_OK;
}

const hdo_engine_ops hdo__engine_sync = {.name = "sync",
                                         .together = true,
                                         .fits = sync_fits,
                                         .state_bytes = sync_state_bytes,
                                         .create = sync_create,
                                         .destroy = sync_destroy,
                                         .step = sync_step};
