/* SPDX-License-Identifier: Apache-2.0 — who went first when a run diverges: see fate.h. */
#include "record/fate.h"

#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "record/record.h"

_Static_assert(sizeof((hdo_fate){0}.lost) / sizeof(int) == HDO_CLASSES_MAX, "one count a class");

static double rate_of(const hdo_record *r, int node, uint32_t steps) {
    return hdo__schedule_lr(&r->population->classes[hdo__population_class(r->population, node)].schedule,
                            (int64_t)steps - 1);
}

/* Length of the node's newest own step. */
static double move_of(const hdo_record *r, int node) {
    const hdo_trail *t = &r->trail[node];
    return t->steps > 0 ? rate_of(r, node, t->steps) * t->g : 0.0;
}

/* Whose step made the model of this node: its own, unless one it averaged with took a clearly longer one. */
static int made_by(const hdo_record *r, int node) {
    int met = r->trail[node].met, by = node;
    int from = met == HDO_MET_ALL ? 0 : met, to = met == HDO_MET_ALL ? r->population->n : met + 1;
    for (int i = from; i >= 0 && i < to; i++) {
        double own = move_of(r, by), theirs = move_of(r, i);
        if (i != by && (theirs > 2.0 * own || (!isfinite(theirs) && isfinite(own)))) by = i;
    }
    return by;
}

/* Node by node, on the rank that has it. */
static void add_norm(void *ctx, void *v, size_t first, size_t count) {
    const hdo_record *r = ctx;
    int i = r->fate.first - r->population->models.first;
    (void)first;
    (void)count;
    if (i >= 0 && i < r->population->models.count)
        *(double *)v +=
            hdo__sumsq(r->problem->objective->d, r->population->models.X + (size_t)i * r->population->models.ld);
}

static hdo_status record(hdo_record *r, hdo_fate_what what, int node, double loss, hdo_error *e) {
    int first = what == HDO_FATE_ESTIMATE ? node : made_by(r, node);
    double x2 = 0.0;
    r->fate = (hdo_fate){.what = what, .node = node, .step = r->progress->step, .loss = loss, .first = first};
    r->fate.step_of_first = r->trail[first];
    hdo_status st = r->transport->ops->relay(r->transport, &x2, sizeof x2, 1, add_norm, r, e);
    r->fate.x_norm = sqrt(x2);
    return st;
}

static hdo_fate_what judge(const hdo_node_result *res, double limit) {
    if (res->status == HDO_E_SKIPPED) return HDO_FATE_NONE;
    if (!isfinite(res->loss)) return HDO_FATE_INFINITE;
    if (!isfinite(res->g2)) return HDO_FATE_ESTIMATE;
    return res->loss > limit ? HDO_FATE_LOSS : HDO_FATE_NONE;
}

/* Of several nodes seen in one step the one whose model came from the longest step; itself rather than its partner. */
static int worst_of_step(const hdo_record *r, double limit) {
    int worst = -1;
    double most = -1.0;
    for (int k = 0; k < r->population->n_active; k++) {
        int node = r->population->active[k];
        hdo_fate_what what = judge(&r->population->result[node], limit);
        if (what == HDO_FATE_NONE) continue;
        int by = made_by(r, node);
        double m = what == HDO_FATE_ESTIMATE ? (double)INFINITY : move_of(r, by) * (by == node ? 1.0 + 1e-9 : 1.0);
        if (worst < 0 || m > most || (isnan(m) && !isnan(most))) {
            worst = node;
            most = m;
        }
    }
    return worst;
}

static void follow(hdo_record *r, const hdo_plan *plan) {
    for (int k = 0; k < r->population->n_active; k++) {
        hdo_trail *t = &r->trail[r->population->active[k]];
        if (r->population->result[r->population->active[k]].status == HDO_E_SKIPPED) continue;
        *t = (hdo_trail){.g = sqrt(r->population->result[r->population->active[k]].g2),
                         .before = t->g,
                         .met = plan->allreduce ? HDO_MET_ALL : HDO_MET_NOBODY,
                         .steps = (uint32_t)(r->progress->step + 1)};
    }
    for (int k = 0; k < plan->n_pairs; k++) {
        r->trail[plan->pairs[k].a].met = plan->pairs[k].b;
        r->trail[plan->pairs[k].b].met = plan->pairs[k].a;
    }
}

hdo_status hdo__fate_step(hdo_record *r, const hdo_plan *plan, hdo_error *e) {
    hdo_status st = HDO_OK;
    if (r->fate.what == HDO_FATE_NONE) {
        double limit = hdo__record_loss_limit(r);
        int node = worst_of_step(r, limit);
        if (node >= 0) {
            const hdo_node_result *res = &r->population->result[node];
            hdo_fate_what what = judge(res, limit);
            if (what == HDO_FATE_ESTIMATE) follow(r, plan); /* this very step is the one */
            st = record(r, what, node, res->loss, e);
            if (what == HDO_FATE_ESTIMATE) return st;
        }
    }
    follow(r, plan);
    return st;
}

/* ---- ranks that do not wait for each other ---- */

bool hdo__fate_own(hdo_record *r, const hdo_plan *plan) {
    double limit = hdo__record_loss_limit(r);
    int node = worst_of_step(r, limit);
    bool first = node >= 0 && r->fate.what == HDO_FATE_NONE;
    if (node < 0) r->fate.what = HDO_FATE_NONE; /* it came back */
    if (first) {
        const hdo_node_result *res = &r->population->result[node];
        hdo_fate_what what = judge(res, limit);
        if (what == HDO_FATE_ESTIMATE) follow(r, plan);
        int by = what == HDO_FATE_ESTIMATE ? node : made_by(r, node); /* partners elsewhere have left no trail here */
        r->fate = (hdo_fate){.what = what, .node = node, .step = r->progress->step, .loss = res->loss, .first = by};
        r->fate.step_of_first = r->trail[by];
        if (what == HDO_FATE_ESTIMATE) return true;
    }
    follow(r, plan);
    return first;
}

static void add_trails(void *ctx, void *v, size_t first, size_t count) {
    const hdo_record *r = ctx;
    hdo_trail *trail = v;
    for (size_t k = 0; k < count; k++)
        if (hdo__transport_local(r->transport, (int)(first + k))) trail[k] = r->trail[first + k];
}

static void earliest(void *ctx, void *v, size_t first, size_t count) {
    const hdo_fate *own = ctx;
    hdo_fate *f = v;
    (void)first;
    (void)count;
    if (own->what != HDO_FATE_NONE && (f->what == HDO_FATE_NONE || own->step < f->step)) *f = *own;
}

/* A node that never stepped was lost through a model of another rank: the longest step of all is the one. */
static void blame(const hdo_record *r, hdo_fate *f) {
    if (f->what == HDO_FATE_NONE || f->step_of_first.steps > 0) return;
    for (int i = 0; i < r->population->n; i++) {
        double m = move_of(r, i), most = move_of(r, f->first);
        if (m > most || (!isfinite(m) && isfinite(most))) f->first = i;
    }
    f->step_of_first = r->trail[f->first];
}

hdo_status hdo__fate_join(hdo_record *r, hdo_error *e) {
    hdo_fate first = {.what = HDO_FATE_NONE};
    size_t n = (size_t)r->population->n;
    hdo_status st = r->transport->ops->relay(r->transport, &first, sizeof first, 1, earliest, &r->fate, e);
    hdo_trail *all = st == HDO_OK ? hdo__alloc(n * sizeof *all) : NULL;
    if (st == HDO_OK && all == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory for the trails of %zu nodes", n);
    st = hdo__transport_settle(r->transport, st, e);
    if (st == HDO_OK) st = r->transport->ops->relay(r->transport, all, sizeof *all, n, add_trails, r, e);
    if (st == HDO_OK) {
        memcpy(r->trail, all, n * sizeof *all);
        blame(r, &first);
        r->fate = first;
    }
    hdo__free(all);
    return st;
}

hdo_status hdo__fate_row(hdo_record *r, hdo_error *e) {
    double limit = hdo__record_loss_limit(r);
    int worst = -1, lost = 0;
    for (int k = 0; k < r->population->n_classes; k++) r->fate.lost[k] = 0;
    for (int i = 0; i < r->population->n; i++) {
        double loss = r->metrics->all[i].loss;
        if (loss <= limit || r->metrics->all[i].correct < 0) continue;
        lost++;
        r->fate.lost[hdo__population_class(r->population, i)]++;
        if (worst < 0 || !(loss <= r->metrics->all[worst].loss)) worst = i;
    }
    if (lost == 0 && r->progress->stop != HDO_DIVERGED) r->fate.what = HDO_FATE_NONE; /* it came back */
    if (r->progress->stop != HDO_DIVERGED || r->fate.what != HDO_FATE_NONE || worst < 0) return HDO_OK;
    hdo_fate before = r->fate;
    hdo_status st = record(r, HDO_FATE_VALIDATION, worst, r->metrics->all[worst].loss, e);
    for (int k = 0; k < r->population->n_classes; k++) r->fate.lost[k] = before.lost[k];
    return st;
}

static const char *what_name(hdo_fate_what what) {
    static const char *const names[] = {"unknown", "loss above the limit", "loss not finite", "estimate not finite",
                                        "validation loss above the limit"};
    return names[what];
}

/* rate: estimates grow from step to step, each step overshoots. overflow: the estimate itself is not finite while the
 * loss is. first-step: the very first was too long. jump: one long step out of order. */
static const char *reason(const hdo_fate *f) {
    const hdo_trail *t = &f->step_of_first;
    if (t->steps == 0) return "start";
    if (f->what == HDO_FATE_ESTIMATE && isfinite(t->before) && t->before < 1e18) return "overflow";
    if (!(t->before > 0.0)) return "first-step";
    return !(t->g <= 1.1 * t->before) ? "rate" : "jump";
}

void hdo__fate_put(hdo_json *j, const hdo_record *r) {
    const hdo_fate *f = &r->fate;
    const hdo_trail *t = &f->step_of_first;
    if (f->what == HDO_FATE_NONE) return;
    double lr = t->steps > 0 ? rate_of(r, f->first, t->steps) : (double)NAN;
    hdo__json_object(j, "divergence");
    hdo__json_text(j, "what", what_name(f->what));
    HDO_JSON_INTS(j, {"step", f->step}, {"node", f->node});
    hdo__json_text(j, "class", r->config->population[hdo__population_class(r->population, f->node)].name);
    HDO_JSON_REALS(j, {"loss", f->loss}, {"limit", hdo__record_loss_limit(r)}, {"start_loss", r->progress->start_loss});
    hdo__json_bool(j, "by_averaging", f->first != f->node);
    hdo__json_text(j, "why", reason(f));
    hdo__json_object(j, "first");
    hdo__json_int(j, "node", f->first);
    hdo__json_text(j, "class", r->config->population[hdo__population_class(r->population, f->first)].name);
    hdo__json_int(j, "step", (int64_t)t->steps - 1);
    HDO_JSON_REALS(j, {"g_norm", t->g}, {"g_norm_before", t->before > 0.0 ? t->before : (double)NAN}, {"lr", lr},
                   {"step_length", lr * t->g}, {"model_norm", f->x_norm});
    hdo__json_end(j, '}');
    hdo__json_object(j, "lost");
    for (int k = 0; k < r->population->n_classes; k++) hdo__json_int(j, r->config->population[k].name, f->lost[k]);
    hdo__json_end(j, '}');
    hdo__json_end(j, '}');
}
