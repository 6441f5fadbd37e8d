/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs whose oracle is outside: a machine, a person (hdo_ask, hdo_tell). Every node goes at its own pace:
 *
 *   free      it begins an estimate: its model is copied, its estimator run until answers are missing
 *   asking    questions are out. When all are told the estimator is run again from the beginning (objective/asked.h);
 *             when nothing is missing any more the node takes its step
 *   waiting   it waits for its partner in the plan of that step to have taken the step too; then both average
 *
 * Told in rounds (all that was asked, then asked again) this is the synchronous algorithm, to the bit. Whoever asks for
 * more while answers are due has free hands: nodes that wait for a late partner then average with it as it is
 * (hdo__asking_hurry). The late partner's model moves, its estimate stays that of the model it was begun at, as in the
 * asynchronous engine; when it has taken its step, that meeting is over for it.
 *
 * p->batches[i] is the number of steps node i has taken; the run is at the floor of their mean.
 */
#include "engine/engine_ask.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/vec.h"

enum { QUESTIONS_MAX = 1 << 20 }; /* of one estimate: the low bits of an id */

struct hdo_asking {
    hdo_engine base;
    hdo_asked *asked;
    float *at;          /* (n, ld): the model each estimate under way was begun at */
    uint8_t *under_way; /* (n) */
    uint8_t *failed;    /* (n): its answer will not come */
    int32_t *partner;   /* (n): in the plan of plan_step; -1: none */
    int64_t plan_step;
    int64_t total; /* steps of all nodes */
    int next_node; /* where the search for questions goes on */
    int64_t n_asked, n_told, n_failed, n_late;
};

hdo_asking *hdo__asking_of(hdo_engine *g) {
    return g->ops == &hdo__engine_ask ? (hdo_asking *)g : NULL;
}

static int64_t end_of(const hdo_asking *g) {
    return g->base.config->warmup + g->base.config->steps;
}

/* ---- ids: (step, node, number of the question), so that a question asked again after a resume has the id it had ----
 */

static uint64_t id_of(const hdo_asking *g, int node, int k) {
    uint64_t step = (uint64_t)g->base.population->batches[node], n = (uint64_t)g->base.population->n;
    return (step * n + (uint64_t)node) * QUESTIONS_MAX + (uint64_t)k + 1;
}

typedef struct address {
    int node, k;
    int64_t step;
} address;

static address address_of(const hdo_asking *g, uint64_t id) {
    uint64_t n = (uint64_t)g->base.population->n, row = (id - 1) / QUESTIONS_MAX;
    return (address){.node = (int)(row % n), .k = (int)((id - 1) % QUESTIONS_MAX), .step = (int64_t)(row / n)};
}

/* ---- one node ---- */

static hdo_status finish_step(hdo_asking *g, int i) {
    hdo_population *p = g->base.population;
    p->batches[i]++;
    p->waiting[i] = 1;
    g->under_way[i] = 0;
    g->failed[i] = 0;
    g->total++;
    return HDO_OK;
}

/* Runs the node's estimator against what is told; if nothing is missing the node moves. */
static hdo_status pass(hdo_asking *g, int i, hdo_error *e) {
    hdo_population *p = g->base.population;
    hdo_team alone = {1, p->team->arena, 0};
    hdo_work w = {&p->team->arena[0], &alone, 0};
    int64_t step = p->batches[i];
    size_t mark = hdo__arena_mark(w.arena);
    float *estimate = hdo__arena_floats(w.arena, p->models.ld);
    hdo_node_result before = p->result[i];
    hdo__asked_pass(g->asked, i);
    hdo__population_set_rates(p, step);
    hdo__node_estimate(p, step, i, g->at + (size_t)i * p->models.ld, &w, estimate);
    p->batches[i] = step;
    hdo_status st = p->result[i].status;
    const hdo_class *c = &p->classes[hdo__population_class(p, i)];
    if (g->asked->node[i].strayed) {
        st = hdo__fail(
            e, HDO_E_FAILED,
            "estimator '%s' asked another question when it was run again with the same answers: its questions "
            "must follow from its arguments and the answers alone",
            c->estimator.ops->name);
    } else if (g->asked->node[i].n > QUESTIONS_MAX) {
        st = hdo__fail(e, HDO_E_UNSUPPORTED, "an estimate of class '%s' asks more than %d questions: use fewer rv",
                       g->base.config->population[hdo__population_class(p, i)].name, (int)QUESTIONS_MAX);
    } else if (!hdo__asked_complete(g->asked, i)) {
        p->result[i] = before;
        st = HDO_OK;
    } else if (st == HDO_E_SKIPPED) { /* an estimator of one's own gave it up */
        p->result[i] = before;
        g->base.progress->counts.failed++;
        st = finish_step(g, i);
    } else if (st == HDO_OK) {
        hdo_counts *n = &g->base.progress->counts;
        hdo__node_move(p, i, estimate, &w);
        n->forward += p->result[i].forward;
        n->backward += p->result[i].backward;
        n->jvp += p->result[i].jvp;
        n->cost += p->result[i].cost;
        st = finish_step(g, i);
    } else {
        hdo__problem_fail(g->base.problem, st, e, "the estimate of node %d failed in step %" PRId64 ": %s", i, step,
                          hdo_status_text(st));
    }
    hdo__arena_rewind(w.arena, mark);
    return st;
}

static hdo_status begin(hdo_asking *g, int i, hdo_error *e) {
    hdo_population *p = g->base.population;
    const hdo_estimator_ops *ops = p->classes[hdo__population_class(p, i)].estimator.ops;
    memcpy(g->at + (size_t)i * p->models.ld, hdo__population_model(p, i), p->models.ld * sizeof(float));
    hdo__asked_begin(g->asked, i, hdo__estimator_find(ops->name) == ops); /* ours look at no answer before they ask */
    g->under_way[i] = 1;
    return pass(g, i, e);
}

/* ---- meetings ---- */

/* The partner of node i in the step it has just taken; -1: none. */
static int partner_of(hdo_asking *g, int i) {
    hdo_population *p = g->base.population;
    int64_t step = p->batches[i] - 1;
    if (g->plan_step != step) {
        hdo_plan plan;
        hdo__mixer_plan(&p->mixer, step, &plan);
        for (int k = 0; k < p->n; k++) g->partner[k] = -1;
        for (int k = 0; k < plan.n_pairs; k++) {
            g->partner[plan.pairs[k].a] = plan.pairs[k].b;
            g->partner[plan.pairs[k].b] = plan.pairs[k].a;
        }
        g->plan_step = step;
    }
    return g->partner[i];
}

static void average(hdo_asking *g, int i, int j) {
    hdo_population *p = g->base.population;
    hdo__average(p->models.len, hdo__population_model(p, i), hdo__population_model(p, j));
    g->base.progress->counts.interactions++;
    g->base.progress->counts.bytes += 2 * (int64_t)(p->models.len * sizeof(float));
}

/* True: node i waits no longer. */
static bool meet(hdo_asking *g, int i) {
    hdo_population *p = g->base.population;
    int j = partner_of(g, i);
    if (j >= 0 && p->batches[j] < p->batches[i]) return false; /* it has not taken that step yet */
    if (j >= 0 && p->waiting[j] && p->batches[j] == p->batches[i]) {
        average(g, i, j);
        p->waiting[j] = 0;
    }
    p->waiting[i] = 0; /* or the partner went on without it */
    return true;
}

bool hdo__asking_hurry(hdo_asking *g) {
    hdo_population *p = g->base.population;
    bool any = false;
    for (int i = 0; i < p->n; i++) {
        if (!p->waiting[i] || meet(g, i)) continue;
        average(g, i, partner_of(g, i));
        p->waiting[i] = 0;
        any = true;
    }
    return any;
}

/* ---- the run ---- */

/* Estimates whose answers are all there, then meetings. *moved: something happened. */
static hdo_status go_on(hdo_asking *g, bool *moved, hdo_error *e) {
    hdo_population *p = g->base.population;
    hdo_status st = HDO_OK;
    for (int i = 0; i < p->n && st == HDO_OK; i++) {
        if (g->failed[i]) {
            g->base.progress->counts.failed++;
            st = finish_step(g, i);
            *moved = true;
        } else if (g->under_way[i] && g->asked->node[i].open == 0) {
            st = pass(g, i, e);
            *moved = true;
        }
    }
    for (int i = 0; i < p->n && st == HDO_OK; i++) {
        if (p->waiting[i] && meet(g, i)) *moved = true;
    }
    return st;
}

static hdo_status begin_estimates(hdo_asking *g, bool *moved, hdo_error *e) {
    hdo_population *p = g->base.population;
    hdo_status st = HDO_OK;
    for (int i = 0; i < p->n && st == HDO_OK; i++) {
        if (g->under_way[i] || p->waiting[i] || p->batches[i] >= end_of(g)) continue;
        st = begin(g, i, e);
        *moved = true;
    }
    return st;
}

/* What the newest estimates add up to. */
static void figures(hdo_asking *g) {
    const hdo_population *p = g->base.population;
    hdo_progress *now = g->base.progress;
    double loss = 0.0, n_loss = 0.0, g2 = 0.0, n = 0.0;
    for (int i = 0; i < p->n; i++) {
        if (p->result[i].g2 == HDO_NO_ESTIMATE) continue;
        g2 += p->result[i].g2;
        n += 1.0;
        if (isnan(p->result[i].loss)) continue; /* of an estimate before a resume */
        loss += p->result[i].loss;
        n_loss += 1.0;
    }
    now->train_loss = loss / n_loss; /* NaN when nobody has made one */
    now->mg = now->mg_active = g2 / n;
    if (n > 0.0 && !isfinite(g2)) now->stop = HDO_DIVERGED;
}

/* As far as the answers carry, but at most to the next step of the run. */
static hdo_status ask_step(hdo_engine *base, hdo_error *e) {
    hdo_asking *g = (hdo_asking *)base;
    hdo_population *p = base->population;
    hdo_progress *now = base->progress;
    hdo_status st = HDO_OK;
    bool moved = true;
    g->total = 0; /* a resume brings steps of its own */
    for (int i = 0; i < p->n; i++) g->total += p->batches[i];
    while (moved && st == HDO_OK && now->step == g->total / p->n) {
        moved = false;
        st = go_on(g, &moved, e);
        if (st == HDO_OK && now->step == g->total / p->n) st = begin_estimates(g, &moved, e);
    }
    if (st != HDO_OK) return st;
    now->said = hdo__engine_opinion(base);
    if (now->step < g->total / p->n) {
        now->step++;
        figures(g);
    }
    if (now->stop == HDO_RUNNING && (now->said & HDO_SAY_STOP) != 0) now->stop = HDO_STOPPED;
    if (now->stop == HDO_RUNNING && (now->said & HDO_SAY_TIMEOUT) != 0) now->stop = HDO_TIMEOUT;
    return HDO_OK;
}

/* ---- questions and answers ---- */

const hdo_asked_question *hdo__asking_next(hdo_asking *g, uint64_t *id, int *node) {
    int n = g->base.population->n;
    for (int turn = 0; turn < n; turn++) {
        int i = (g->next_node + turn) % n;
        hdo_asked_node *v = &g->asked->node[i];
        for (int k = 0; k < v->n && g->under_way[i] && !g->failed[i]; k++) {
            hdo_asked_question *q = &v->question[k];
            if (q->out || q->told) continue;
            q->out = true;
            g->n_asked++;
            g->next_node = i;
            *id = id_of(g, i, k);
            *node = i;
            return q;
        }
    }
    return NULL;
}

bool hdo__asking_waits(const hdo_asking *g) {
    for (int i = 0; i < g->base.population->n; i++) {
        if (g->under_way[i] && !g->failed[i] && g->asked->node[i].open > 0) return true;
    }
    return false;
}

/* The question an answer belongs to. NULL and HDO_OK: it is late. */
static hdo_status look_up(hdo_asking *g, uint64_t id, address *where, hdo_asked_question **out, hdo_error *e) {
    const hdo_population *p = g->base.population;
    *out = NULL;
    *where = address_of(g, id);
    if (id > 0 && where->step < p->batches[where->node]) return HDO_OK; /* that step is over */
    bool asked = id > 0 && where->step == p->batches[where->node] && g->under_way[where->node] &&
                 where->k < g->asked->node[where->node].n && g->asked->node[where->node].question[where->k].out;
    if (!asked)
        return hdo__fail(e, HDO_E_MISUSE,
                         "nobody asked question %" PRIu64 ": ids come from hdo_ask, and after a resume it asks again",
                         id);
    hdo_asked_question *q = &g->asked->node[where->node].question[where->k];
    if (!q->told && !g->failed[where->node]) *out = q;
    return HDO_OK;
}

hdo_status hdo__asking_tell(hdo_asking *g, uint64_t id, double value, const float *gradient, hdo_error *e) {
    hdo_asked_question *q;
    address where;
    size_t d = g->base.problem->objective->d;
    hdo_status st = look_up(g, id, &where, &q, e);
    if (st != HDO_OK) return st;
    if (q == NULL) {
        g->n_late++;
        return HDO_OK;
    }
    if (q->kind == HDO_ASKED_GRADIENT && gradient == NULL)
        return hdo__fail(e, HDO_E_MISUSE, "question %" PRIu64 " is for a gradient of %zu numbers, and none was told",
                         id, d);
    bool finite = isfinite(value);
    for (size_t j = 0; q->kind == HDO_ASKED_GRADIENT && j < d; j++) finite = finite && isfinite(gradient[j]);
    if (!finite)
        return hdo__fail(
            e, HDO_E_MISUSE,
            "the answer to question %" PRIu64 " is not a finite number; say hdo_tell_failed if there is none", id);
    q->value = value;
    if (q->kind == HDO_ASKED_GRADIENT) memcpy(q->other, gradient, d * sizeof(float));
    q->told = true;
    g->asked->node[where.node].open--;
    g->n_told++;
    return HDO_OK;
}

hdo_status hdo__asking_fail(hdo_asking *g, uint64_t id, hdo_error *e) {
    hdo_asked_question *q;
    address where;
    hdo_status st = look_up(g, id, &where, &q, e);
    if (st != HDO_OK) return st;
    if (q == NULL) {
        g->n_late++;
        return HDO_OK;
    }
    g->failed[where.node] = 1;
    g->n_failed++;
    return HDO_OK;
}

/* ---- the table ---- */

static bool ask_fits(const hdo_engine *parts) {
    return hdo__asked_of(parts->problem->objective) != NULL;
}

static size_t ask_state_bytes(const hdo_engine *parts) {
    return hdo__population_cells(parts->population) * sizeof(float);
}

static void ask_destroy(hdo_engine *base) {
    hdo_asking *g = (hdo_asking *)base;
    g->base.population->waiting = NULL;
    hdo__free(g->at);
    hdo__free(g->under_way);
    hdo__free(g->failed);
    hdo__free(g->partner);
    hdo__free(g);
}

static hdo_status check(const hdo_engine *parts, hdo_error *e) {
    const hdo_config *c = parts->config;
    const hdo_population *p = parts->population;
    bool measured = false;
    for (int k = 0; k < p->n_classes; k++) measured = measured || p->classes[k].balanced || p->classes[k].chosen;
    if (parts->transport->ranks == 1 && c->engine.id != HDO_ENGINE_MPI && p->mixer.ops->all_step &&
        !p->mixer.ops->allreduce && c->mixing.average.id == HDO_AVERAGE_EQUAL && !(c->eval.weighted > 0.0) &&
        !p->churn.active && p->clock_s == NULL && !measured)
        return HDO_OK;
    return hdo__fail(
        e, HDO_E_UNSUPPORTED,
        "a run that is asked and told needs engine sim, mixing matching, graph or none, in which all nodes "
        "step, with equal averages; and neither churn, a time model, eval.weighted nor measured rates (lr: "
        "balanced, auto)");
}

static hdo_status ask_create(hdo_engine **out, const hdo_engine *parts, hdo_error *e) {
    hdo_population *p = parts->population;
    size_t n = (size_t)p->n;
    *out = NULL;
    hdo_status st = check(parts, e);
    if (st != HDO_OK) return st;
    hdo_asking *g = hdo__alloc(sizeof *g);
    if (g == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the engine");
    g->base = *parts;
    g->asked = hdo__asked_of(parts->problem->objective);
    g->plan_step = -1;
    g->at = hdo__alloc(hdo__population_cells(p) * sizeof(float));
    g->under_way = hdo__alloc(2 * n);
    g->failed = hdo__alloc(n);
    g->partner = hdo__alloc(n * sizeof(int32_t));
    if (g->at == NULL || g->under_way == NULL || g->failed == NULL || g->partner == NULL) {
        ask_destroy(&g->base);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the estimates of %d nodes", p->n);
    }
    for (int i = 0; i < p->n; i++) p->result[i].loss = (double)NAN; /* a resume does not bring them back */
    p->waiting = g->under_way + n;                                  /* kept by checkpoints */
    p->told = true;
    *out = &g->base;
    return HDO_OK;
}

static void ask_put(void *v, hdo_json *j) {
    const hdo_asking *g = v;
    hdo__json_object(j, "asked");
    HDO_JSON_INTS(j, {"questions", g->n_asked}, {"told", g->n_told}, {"failed", g->n_failed}, {"late", g->n_late});
    hdo__json_end(j, '}');
}

const hdo_engine_ops hdo__engine_ask = {.name = "ask",
                                        .together = true,
                                        .fits = ask_fits,
                                        .state_bytes = ask_state_bytes,
                                        .create = ask_create,
                                        .destroy = ask_destroy,
                                        .step = ask_step,
                                        .put = ask_put};
