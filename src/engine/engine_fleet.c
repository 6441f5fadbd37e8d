/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of a member of a fleet: its nodes step, each at a copy of its model, because the member's other thread
 * (fleet/member.c) may average it with that of somebody else meanwhile; then they wish to meet somebody. On average a
 * node meets one other a step, as in a matching: it offers in every second of its steps, by an addressed coin, and is
 * asked as often.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "fleet/fleet.h"

#define LEAVE_S 3.0 /* to settle with everybody, at the end */

typedef struct fleet_engine {
    hdo_engine base;
    hdo_member *member; /* NULL before the first step and after the last */
    float *seen;        /* (count, ld): models as they are evaluated while others change them */
    double began_s;
    int64_t began_step;
    hdo_member_figures figures;
    hdo_member_stats stats; /* at the end */
    hdo_roster_view view;
    hdo_flow *flow; /* (n_flows) at the end */
    int n_flows;
} fleet_engine;

/* ---- one node ---- */

static void local_step(void *ctx, int node, hdo_work *w) {
    fleet_engine *g = ctx;
    hdo_population *p = g->base.population;
    const hdo_objective *f = g->base.problem->objective;
    size_t mark = hdo__arena_mark(w->arena), len = f->d + f->n_buf;
    float *estimate = hdo__arena_floats(w->arena, len), *copy = hdo__arena_floats(w->arena, len);
    int i = node - p->models.first;
    memcpy(copy, hdo__member_lock(g->member, i), len * sizeof(float));
    hdo__member_unlock(g->member, i);
    hdo__node_estimate(p, g->base.progress->step, node, copy, w, estimate);
    hdo__member_lock(g->member, i);
    hdo__node_move(p, node, estimate, w);
    hdo__member_unlock(g->member, i);
    hdo__arena_rewind(w->arena, mark);
}

/* Does node i offer after this step? Half of the steps, none in the warm-up. */
static bool offers(const fleet_engine *g, int node) {
    const hdo_config *c = g->base.config;
    int64_t step = g->base.progress->step, period = c->mixing.period > 0 ? c->mixing.period : 1;
    if (step < c->warmup || step % period != 0 || strcmp(c->mixing.kind, "none") == 0) return false;
    hdo_stream s = hdo__stream((uint64_t)c->seed, HDO_RNG_FLEET, (uint32_t)node, (uint64_t)step, 0);
    return hdo__rng_below(s, 1, 2) == 0;
}

/* ---- figures ---- */

/* This member's nodes, at its own step: others may change them meanwhile, so a copy is evaluated. */
static hdo_status evaluate_own(fleet_engine *g, hdo_error *e) {
    hdo_record *r = g->base.record;
    hdo_row *row = &r->row;
    const hdo_progress *now = g->base.progress;
    const hdo_population *p = g->base.population;
    hdo_models copy = p->models;
    hdo_metrics_part part;
    double nodes = 0.0;
    copy.X = g->seen;
    for (int i = 0; i < copy.count; i++) {
        float *to = g->seen + (size_t)i * copy.ld;
        const float *x = g->member != NULL ? hdo__member_lock(g->member, i) : p->models.X + (size_t)i * copy.ld;
        memcpy(to, x, copy.ld * sizeof(float));
        if (g->member != NULL) hdo__member_unlock(g->member, i);
    }
    hdo_status st = hdo__metrics_local(g->base.metrics, &copy, &part);
    if (st != HDO_OK) return hdo__fail(e, st, "evaluation failed: %s", hdo_status_text(st));
    *row = (hdo_row){.step = now->step,
                     .interactions = now->counts.interactions,
                     .parallel_time = (double)now->step,
                     .train_loss = now->step > 0 ? now->train_loss : (double)NAN,
                     .n_classes = p->n_classes,
                     .node0_loss = part.node0_loss,
                     .node0_acc = part.node0_acc,
                     .mu_loss = (double)NAN,
                     .mu_acc = (double)NAN,
                     .gamma = (double)NAN,
                     .mg = now->step > 0 ? now->mg : (double)NAN,
                     .y_loss = (double)NAN,
                     .present = p->models.count,
                     .forward = now->counts.forward,
                     .backward = now->counts.backward,
                     .jvp = now->counts.jvp,
                     .cost = now->counts.cost,
                     .bytes = now->counts.bytes,
                     .wall_s = hdo__now_s() - now->start_s,
                     .step_s = now->step_s,
                     .eval_s = now->eval_s};
    memcpy(row->lr, p->lr, sizeof row->lr);
    for (int k = 0; k < p->n_classes; k++) {
        static const hdo_group none = {(double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN};
        row->cls[k] = part.nodes[k] > 0 ? part.cls[k] : none;
        if (part.nodes[k] == 0) continue;
        hdo__group_merge(&row->all, nodes, &part.cls[k], (double)part.nodes[k]);
        nodes += (double)part.nodes[k];
    }
    return HDO_OK;
}

/* The target is that of the mean over all members that have evaluated; divergence is this member's own. */
static hdo_stop judge(fleet_engine *g) {
    const hdo_stop_config *s = &g->base.config->stop;
    const hdo_group *own = &g->base.record->row.all;
    hdo_roster_view v = {.loss = own->loss_mean, .accuracy = own->acc_mean};
    if (!isfinite(own->loss_mean) || own->loss_mean > hdo__record_loss_limit(g->base.record)) return HDO_DIVERGED;
    if (g->member != NULL) hdo__member_look(g->member, &v);
    bool reached = (s->loss > 0.0 && v.loss <= s->loss) || (s->accuracy > 0.0 && v.accuracy >= s->accuracy);
    return reached ? HDO_TARGET : HDO_RUNNING;
}

static void tell(fleet_engine *g) {
    const hdo_progress *now = g->base.progress;
    double s = hdo__now_s() - g->began_s;
    g->figures.step = (uint64_t)now->step;
    g->figures.steps_per_s = s > 0.0 ? (double)(now->step - g->began_step) / s : 0.0;
    if (g->member != NULL) hdo__member_tell(g->member, &g->figures);
}

/* ---- the end ---- */

static hdo_status keep_flows(fleet_engine *g, hdo_error *e) {
    const hdo_flows *f = hdo__member_flows(g->member);
    g->flow = hdo__alloc((size_t)(f->n + 1) * sizeof *g->flow);
    if (g->flow == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the end of the run");
    memcpy(g->flow, f->flow, (size_t)f->n * sizeof *g->flow);
    g->n_flows = f->n;
    return HDO_OK;
}

static hdo_status leave(fleet_engine *g, hdo_stop why, hdo_error *e) {
    hdo_progress *now = g->base.progress;
    hdo__member_look(g->member, &g->view);
    hdo__member_leave(g->member, why == HDO_TARGET ? HDO_LEAVING_TARGET : HDO_LEAVING,
                      why == HDO_DIVERGED ? 0.2 : LEAVE_S);
    hdo__member_stats(g->member, &g->stats);
    now->counts.interactions = (int64_t)g->stats.met;
    now->counts.bytes = (int64_t)g->stats.bytes;
    now->stop = why;
    hdo_status st = keep_flows(g, e);
    hdo__member_destroy(g->member);
    g->member = NULL;
    return st;
}

/* ---- evaluation ---- */

static bool fleet_evaluate(hdo_engine *base) {
    fleet_engine *g = (fleet_engine *)base;
    hdo_record *r = base->record;
    hdo_error e = {0};
    double t0 = hdo__now_s();
    hdo_status st = evaluate_own(g, &e);
    base->progress->eval_s += hdo__now_s() - t0;
    if (st == HDO_OK && base->progress->step == 0) base->progress->start_loss = r->row.all.loss_mean;
    if (st == HDO_OK) st = hdo__record_put_row(r, &e);
    if (st != HDO_OK) { /* a full disk: the figures of this member end here, its work need not */
        hdo__log(base->log, HDO_LOG_WARN, "%s", e.msg);
    }
    g->figures.evaluated = true;
    g->figures.loss = r->row.all.loss_mean;
    g->figures.accuracy = r->row.all.acc_mean;
    tell(g);
    hdo_stop why = base->progress->stop == HDO_RUNNING ? judge(g) : HDO_RUNNING;
    if (why == HDO_RUNNING) return true;
    base->progress->stop = why;
    if (g->member != NULL && leave(g, why, &e) != HDO_OK) hdo__log(base->log, HDO_LOG_WARN, "%s", e.msg);
    return true;
}

/* ---- a step ---- */

static hdo_status begin(fleet_engine *g, hdo_error *e) {
    const hdo_config *c = g->base.config;
    hdo_models *models = &g->base.population->models;
    const hdo_fleet_seat *f = g->base.fleet;
    hdo_member_setup s = {.id = f->id,
                          .bus = f->bus,
                          .config_text = f->config_text,
                          .log = g->base.log,
                          .X = models->X,
                          .ld = models->ld,
                          .len = models->len,
                          .beat_s = c->fleet.beat_s,
                          .forget_s = c->fleet.forget_s,
                          .clip = c->mixing.clip};
    g->base.population->slow = f->slow;
    g->began_s = hdo__now_s();
    g->began_step = g->base.progress->step;
    hdo_status st = hdo__member_create(&g->member, &s, e);
    if (st == HDO_OK) tell(g);
    return st == HDO_OK ? hdo__member_start(g->member, e) : st;
}

/* Sleeps what is left of the least time of a step, unless the run is to end. */
static void keep_pace(const fleet_engine *g, double started_s) {
    double until = started_s + g->base.fleet->pace_s;
    for (double left = until - hdo__now_s(); left > 0.0; left = until - hdo__now_s()) {
        double s = left < 0.05 ? left : 0.05;
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * s)}, NULL);
        if (g->base.hooks->hurry != NULL && g->base.hooks->hurry(g->base.hooks->ctx)) return;
    }
}

static hdo_status save(fleet_engine *g, unsigned say) {
    const hdo_checkpoint_config *c = &g->base.config->checkpoint;
    bool due = (c->every > 0 && g->base.progress->step % c->every == 0) || (say & HDO_SAY_SAVE) != 0;
    int n = g->base.population->models.count;
    hdo_error e = {0};
    if (g->base.record->dir[0] == '\0' || !due) return HDO_OK;
    for (int i = 0; i < n; i++) hdo__member_lock(g->member, i);
    hdo_status st = hdo__record_save(g->base.record, &e);
    for (int i = n - 1; i >= 0; i--) hdo__member_unlock(g->member, i);
    if (st != HDO_OK) { /* the next one may find room again; the steps go on */
        hdo__log(g->base.log, HDO_LOG_WARN, "%s", e.msg);
        g->base.record->saved_s = hdo__now_s();
    }
    return HDO_OK;
}

/* Why the run should end here; HDO_RUNNING: it should not. */
static hdo_stop reason(fleet_engine *g, unsigned say, bool sound, hdo_error *e, hdo_status *st) {
    char why[256];
    const hdo_member_id *id = &g->base.fleet->id;
    switch (hdo__member_ended(g->member, why, sizeof why)) {
    case HDO_MEMBER_TARGET: return HDO_TARGET;
    case HDO_MEMBER_STOP: g->base.fleet->was_stopped = true; return HDO_STOPPED;
    case HDO_MEMBER_REPLACED:
        *st = hdo__fail(e, HDO_E_ENGINE, "another process has taken the name '%s' in run '%s': this one ends", id->name,
                        id->run);
        return HDO_STOPPED;
    case HDO_MEMBER_REFUSED:
        *st = hdo__fail(e, HDO_E_ENGINE, "the server does not let member '%s' of run '%s' go on: %s", id->name, id->run,
                        why);
        return HDO_STOPPED;
    case HDO_MEMBER_ON: break;
    }
    if (!sound) return HDO_DIVERGED;
    if ((say & HDO_SAY_STOP) != 0) return HDO_STOPPED;
    if ((say & HDO_SAY_TIMEOUT) != 0) return HDO_TIMEOUT;
    if (g->base.progress->stop != HDO_RUNNING) return g->base.progress->stop;
    return g->base.progress->step >= g->base.config->warmup + g->base.config->steps ? HDO_COMPLETED : HDO_RUNNING;
}

static hdo_status fleet_step(hdo_engine *base, hdo_error *e) {
    fleet_engine *g = (fleet_engine *)base;
    hdo_population *p = base->population;
    hdo_progress *now = base->progress;
    double started = hdo__now_s();
    hdo_status st = g->member == NULL ? begin(g, e) : HDO_OK;
    if (st != HDO_OK) return st;
    p->n_own = p->n_active = p->models.count;
    for (int i = 0; i < p->n_own; i++) p->own[i] = p->active[i] = p->models.first + i;
    hdo__population_set_rates(p, now->step);
    hdo__population_each(p, local_step, g); /* the own nodes step */
    for (int i = 0; i < p->n_own; i++) {    /* and would like to meet somebody */
        if (offers(g, p->own[i])) hdo__member_wish(g->member, i, (uint64_t)now->step);
    }
    bool finite = hdo__population_collect(p, now, &st);
    bool sound = finite && st == HDO_OK;
    now->step++;
    if (st != HDO_OK)
        hdo__log(base->log, HDO_LOG_WARN, "the objective failed in step %lld: %s", (long long)now->step,
                 hdo_status_text(st));
    st = HDO_OK;
    keep_pace(g, started);
    tell(g);
    unsigned say = hdo__engine_opinion(base);
    save(g, say);
    hdo_stop why = reason(g, say, sound, e, &st);
    if (why == HDO_RUNNING) return HDO_OK;
    hdo_status left = leave(g, why, st == HDO_OK ? e : NULL);
    return st != HDO_OK ? st : left;
}

/* ---- the summary ---- */

static void put_flows(const fleet_engine *g, hdo_json *j) {
    char id[32];
    hdo__json_array(j, "flows");
    for (int k = 0; k < g->n_flows; k++) {
        const hdo_flow *f = &g->flow[k];
        hdo__json_object(j, NULL);
        snprintf(id, sizeof id, "%016llx", (unsigned long long)f->from);
        hdo__json_text(j, "node", id);
        snprintf(id, sizeof id, "%016llx", (unsigned long long)f->to);
        hdo__json_text(j, "partner", id);
        hdo__json_int(j, "epoch", f->epoch);
        hdo__json_int(j, "exchanges", f->count);
        hdo__json_real(j, "moved", f->sum);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, ']');
}

static void fleet_put(void *engine, hdo_json *j) {
    const fleet_engine *g = engine;
    const hdo_member_stats *s = &g->stats;
    const hdo_member_id *id = &g->base.fleet->id;
    hdo__json_object(j, "fleet");
    hdo__json_text(j, "run", id->run);
    hdo__json_text(j, "member", id->name);
    hdo__json_text(j, "class", id->role);
    hdo__json_int(j, "place", id->place);
    hdo__json_int(j, "nodes", id->nodes);
    hdo__json_int(j, "epoch", id->epoch);
    hdo__json_int(j, "members", g->view.members);
    hdo__json_int(j, "exchanges", (int64_t)s->met);
    hdo__json_int(j, "local", (int64_t)s->local);
    hdo__json_int(j, "offers", s->exchange.offers);
    hdo__json_int(j, "refused", s->exchange.refused);
    hdo__json_int(j, "declined", s->exchange.declined);
    hdo__json_int(j, "unknown", s->exchange.unknown);
    hdo__json_int(j, "asked", s->exchange.asked);
    hdo__json_int(j, "expired", s->exchange.expired);
    hdo__json_int(j, "unsettled", (int64_t)s->unsettled);
    hdo__json_int(j, "died", s->exchange.died);
    hdo__json_int(j, "far", s->exchange.far);
    hdo__json_int(j, "stale", s->exchange.stale);
    hdo__json_int(j, "missed", (int64_t)s->missed);
    hdo__json_int(j, "bytes", (int64_t)s->bytes);
    hdo__json_int(j, "reconnects", s->reconnects);
    hdo__json_int(j, "lost", s->lost);
    hdo__json_int(j, "turned_away", (int64_t)s->refused);
    hdo__json_real(j, "patience_s", s->round_s);
    hdo__json_object(j, "drops");
    for (int k = 1; k < HDO_DROPS; k++) hdo__json_int(j, hdo__fleet_drop_names[k], (int64_t)s->drops[k]);
    hdo__json_end(j, '}');
    put_flows(g, j);
    hdo__json_end(j, '}');
}

/* ---- the table ---- */

static bool fleet_fits(const hdo_engine *parts) {
    return parts->config->engine.id == HDO_ENGINE_FLEET;
}

static size_t fleet_state_bytes(const hdo_engine *parts) {
    return hdo__population_cells(parts->population) * sizeof(float);
}

static void fleet_destroy(hdo_engine *base) {
    fleet_engine *g = (fleet_engine *)base;
    hdo__member_destroy(g->member);
    hdo__free(g->seen);
    hdo__free(g->flow);
    hdo__free(g);
}

static hdo_status fleet_create(hdo_engine **out, const hdo_engine *parts, hdo_error *e) {
    fleet_engine *g = hdo__alloc(sizeof *g);
    *out = NULL;
    if (g == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the engine");
    g->base = *parts;
    g->seen = hdo__alloc(fleet_state_bytes(parts));
    if (g->seen == NULL) {
        hdo__free(g);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for copies of the models");
    }
    *out = &g->base;
    return HDO_OK;
}

const hdo_engine_ops hdo__engine_fleet = {.name = "fleet",
                                          .together = false,
                                          .fits = fleet_fits,
                                          .state_bytes = fleet_state_bytes,
                                          .create = fleet_create,
                                          .destroy = fleet_destroy,
                                          .step = fleet_step,
                                          .evaluate = fleet_evaluate,
                                          .put = fleet_put};
