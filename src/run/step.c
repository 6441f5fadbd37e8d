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

enum { NODES_PER_TASK = 64, MANY_NODES = 8192 }; /* with very many nodes a task is a block of them */
#define SHORT_STEP_S 200e-6 /* a parallel region costs about 10 us on an idle machine, milliseconds on a busy one */

/* ---- the local step of one node ---- */

static void local_step(hdo_run *r, int node, hdo_work *w) {
    int i = node - r->rows.first, k = hdo__problem_class(&r->problem, node);
    const hdo_class *c = &r->classes[k];
    hdo_node_result *res = &r->result[node];
    float *x = r->rows.X + (size_t)i * r->rows.ld;
    float *mom = c->update.momentum > 0.0 ? r->momentum + (size_t)i * r->rows.ld : NULL;
    size_t mark = hdo__arena_mark(w->arena), d = r->problem.objective->d, n_buf = r->problem.objective->n_buf;

    hdo_batch batch = hdo__problem_batch(&r->problem, node, c->batch, r->batches[i], r->step, w->arena);
    float *g = hdo__arena_floats(w->arena, d + n_buf);
    float *copy = NULL; /* asynchronous: others may change the row meanwhile */
    if (r->async != NULL) {
        copy = hdo__arena_floats(w->arena, d + n_buf);
        hdo__async_read(r->async, i, d + n_buf, copy);
    }
    hdo_request q = {.batch = &batch,
                     .x = copy != NULL ? copy : x,
                     .seed = (uint64_t)r->config.seed,
                     .node = (uint32_t)node,
                     .step = r->step,
                     .eta = r->lr[k],
                     .hurry = r->undo.X != NULL ? r->hooks.hurry : NULL,
                     .hurry_ctx = r->hooks.ctx};
    hdo_estimate_info info = {0};
    res->status = hdo__request_given_up(&q)
                      ? HDO_E_STOPPED
                      : c->estimator.ops->estimate(&c->estimator, r->problem.objective, &q, w, g, &info);
    res->loss = info.loss;
    res->forward = info.forward;
    res->backward = info.backward;
    res->jvp = info.jvp;
    res->cost = info.cost;
    res->g2 = (double)NAN; /* no estimate */
    if (res->status == HDO_OK) {
        bool checked = r->async != NULL && hdo__async_checked(r->async);
        if (r->async != NULL) hdo__async_lock(r->async, i);
        if (checked) memcpy(copy, x, d * sizeof(float));
        res->g2 = hdo__update_apply(&c->update, d, r->problem.objective->idle, r->lr[k], x, g, mom, w);
        if (n_buf > 0) memcpy(x + d, g + d, n_buf * sizeof(float));
        if (r->async != NULL) hdo__async_unlock(r->async, i, checked ? copy : NULL);
    }
    r->batches[i]++;
    hdo__arena_rewind(w->arena, mark);
    if (r->in_exchange) r->transport->ops->exchange_ready(r->transport, &r->rows, node, w->arena == &r->team.arena[0]);
}

typedef struct step_ctx {
    hdo_run *r;
    const hdo_plan *plan;
    int n, per_task; /* stepping nodes, or pairs */
} step_ctx;

static void step_task(void *p, int task, hdo_work *w) {
    step_ctx *c = p;
    int last = (task + 1) * c->per_task < c->n ? (task + 1) * c->per_task : c->n;
    for (int k = task * c->per_task; k < last; k++) local_step(c->r, c->r->own[k], w);
}

static void average_task(void *p, int task, hdo_work *w) {
    step_ctx *c = p;
    (void)w;
    int last = (task + 1) * c->per_task < c->n ? (task + 1) * c->per_task : c->n;
    hdo_run *r = c->r;
    bool weighted = r->config.mixing.average.id == HDO_AVERAGE_NOISE;
    for (int k = task * c->per_task; k < last; k++) {
        if (r->mine[k] == NULL) continue;
        if (!weighted) {
            hdo__average(r->rows.len, r->mine[k], r->peer[k]);
            continue;
        }
        /* weights 1/a of the classes: sum of x_i / a_i over nodes is what this conserves */
        int local = c->plan->pairs[k].a, other = c->plan->pairs[k].b;
        if (local < r->rows.first || local >= r->rows.first + r->rows.count) {
            int swap = local;
            local = other;
            other = swap;
        }
        double wl = 1.0 / r->classes[hdo__problem_class(&r->problem, local)].noise,
               wo = 1.0 / r->classes[hdo__problem_class(&r->problem, other)].noise;
        hdo__average_weighted(r->rows.len, wl / (wl + wo), r->mine[k], wo / (wl + wo), r->peer[k]);
    }
}

/* Waking threads costs more than a short step: unless the user asked for a number of threads, the first steps run on
 * one thread and are timed, and the team is used only if they are long enough. The bits do not depend on it. */
static bool worth_threads(const hdo_run *r) {
    return r->team.threads > 1 && (r->config.threads > 0 || r->quickest_s > SHORT_STEP_S);
}

static void run_tasks(hdo_run *r, step_ctx *c, hdo_task fn) {
    hdo_team alone = {1, r->team.arena};
    c->per_task = c->n >= MANY_NODES ? NODES_PER_TASK : 1;
    hdo__team_run(worth_threads(r) ? &r->team : &alone, (c->n + c->per_task - 1) / c->per_task, fn, c);
}

/* Over nodes when there are enough of them, otherwise one node after the other with the team inside. */
void hdo__run_local_steps(hdo_run *r, const hdo_plan *plan) {
    step_ctx c = {.r = r, .plan = plan, .n = r->n_own};
    double start = hdo__now_s();
    if (c.n >= r->team.threads || !worth_threads(r)) {
        run_tasks(r, &c, step_task);
    } else {
        hdo_work w = {&r->team.arena[0], &r->team};
        for (int k = 0; k < c.n; k++) local_step(r, r->own[k], &w);
    }
    if (r->slow > 1.0) { /* mpi.slow: a straggler for experiments */
        double s = (r->slow - 1.0) * (hdo__now_s() - start);
        nanosleep(&(struct timespec){.tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - floor(s)))}, NULL);
    }
}

/* M^G = (1/n) sum |G_i|^2 over all nodes. Who did not step (pairwise time, churn) has no new estimate: the newest it
 * made counts, and who made none yet is left out. */
static double mean_g2(const hdo_run *r) {
    double sum = 0.0, n = 0.0;
    for (int i = 0; i < r->mixer.n; i++) {
        if (r->result[i].g2 == HDO_NO_ESTIMATE) continue;
        sum += r->result[i].g2;
        n += 1.0;
    }
    return sum / n;
}

/* Adds up what the nodes reported, in the order they stepped. False when a loss stopped being finite. */
bool hdo__run_collect(hdo_run *r, hdo_status *st) {
    double loss = 0.0, g2 = 0.0;
    bool finite = true;
    for (int k = 0; k < r->n_active; k++) {
        const hdo_node_result *res = &r->result[r->active[k]];
        if (res->status != HDO_OK) *st = res->status;
        finite = finite && isfinite(res->loss) && isfinite(res->g2);
        loss += res->loss;
        g2 += res->g2;
        r->forward += res->forward;
        r->backward += res->backward;
        r->jvp += res->jvp;
        r->cost += res->cost;
    }
    r->train_loss = loss / (double)r->n_active; /* NaN when nobody stepped */
    r->mg_active = g2 / (double)r->n_active;
    r->mg = mean_g2(r);
    return finite;
}

/* y_t = sum_{k<=t} w_k mu_{k-1} / S_t with w_k = (1-rate)^-k, kept as a running mean: the newest weight is
 * w_t / S_t = rate / (1 - (1-rate)^t) (HDO, strongly convex theorem). Called before step t = 1, 2, ... */
static hdo_status add_to_weighted_average(hdo_run *r, hdo_error *e) {
    if (r->y == NULL) return HDO_OK;
    hdo_status st = hdo__metrics_consensus(&r->metrics, &r->rows, &r->team, NULL, e);
    if (st != HDO_OK) return st;
    double rate = r->config.eval.weighted, t = (double)(r->step + 1);
    double w = rate < 1.0 ? -rate / expm1(t * log1p(-rate)) : 1.0;
    size_t len = r->problem.objective->d + r->problem.objective->n_buf;
    for (size_t j = 0; j < len; j++) r->y[j] = (float)((double)r->y[j] + w * (r->metrics.mu[j] - (double)r->y[j]));
    return HDO_OK;
}

/* Pairs of two local nodes, or those with one. */
static hdo_status average_pairs(hdo_run *r, const hdo_plan *plan, bool far, hdo_error *e) {
    hdo_transport *t = r->transport;
    hdo_status st = HDO_OK;
    for (int k = 0; k < plan->n_pairs && st == HDO_OK; k++) {
        bool is_far = hdo__transport_local(t, plan->pairs[k].a) != hdo__transport_local(t, plan->pairs[k].b);
        r->mine[k] = NULL;
        if (is_far == far) st = t->ops->exchange_wait(t, plan, &r->rows, k, &r->mine[k], &r->peer[k], e);
    }
    step_ctx c = {.r = r, .plan = plan, .n = plan->n_pairs};
    if (st == HDO_OK) run_tasks(r, &c, average_task);
    return st;
}

static hdo_status mix(hdo_run *r, const hdo_plan *plan, hdo_error *e) {
    if (plan->allreduce) {
        hdo_status st = hdo__metrics_consensus(&r->metrics, &r->rows, &r->team, NULL, e);
        if (st != HDO_OK) return st;
        for (int i = 0; i < r->rows.count; i++) {
            memcpy(r->rows.X + (size_t)i * r->rows.ld, r->metrics.mu_row, r->rows.len * sizeof(float));
        }
        r->interactions += r->mixer.n / 2;
        r->bytes += 2 * (int64_t)(r->mixer.n - 1) * (int64_t)(r->rows.len * sizeof(float));
        return HDO_OK;
    }
    r->transport->ops->exchange_send(r->transport, &r->rows);
    hdo_status st = average_pairs(r, plan, false, e); /* those at hand first: meanwhile the others' rows come */
    if (st == HDO_OK && r->transport->ranks > 1) st = average_pairs(r, plan, true, e);
    if (st != HDO_OK) return st;
    r->interactions += plan->n_pairs;
    r->bytes += 2 * (int64_t)plan->n_pairs * (int64_t)(r->rows.len * sizeof(float));
    return HDO_OK;
}

/* Nodes that come back with a fresh model get the common start again. */
static void churn(hdo_run *r) {
    int n = hdo__churn_step(&r->churn, r->step, r->returned);
    size_t len = r->problem.objective->d + r->problem.objective->n_buf;
    for (int k = 0; k < n && r->fresh != NULL; k++) {
        int i = r->returned[k] - r->rows.first;
        if (i < 0 || i >= r->rows.count) continue;
        memcpy(r->rows.X + (size_t)i * r->rows.ld, r->fresh, len * sizeof(float));
        if (r->momentum != NULL)
            memset(r->momentum + (size_t)i * r->rows.ld, 0, r->problem.objective->d * sizeof(float));
    }
}

/* Who steps: everybody, or in pairwise time the pair; less those that are away or too slow. */
void hdo__run_choose(hdo_run *r, hdo_plan *plan) {
    r->n_active = 0;
    if (plan->all_step) {
        for (int i = 0; i < r->mixer.n; i++) r->active[r->n_active++] = i;
    } else {
        for (int k = 0; k < plan->n_pairs; k++) {
            r->active[r->n_active++] = plan->pairs[k].a;
            r->active[r->n_active++] = plan->pairs[k].b;
        }
    }
    r->n_active = hdo__churn_filter_nodes(&r->churn, r->step, r->active, r->n_active);
    plan->n_pairs = hdo__churn_filter_pairs(&r->churn, r->step, r->mixer.pairs, plan->n_pairs);
    r->n_own = 0;
    for (int k = 0; k < r->n_active; k++) {
        if (hdo__transport_local(r->transport, r->active[k])) r->own[r->n_own++] = r->active[k];
    }
}

/* What this rank has to say about the step: the clock, and what the caller wants. */
_Static_assert((int)HDO_ASK_STOP == (int)HDO_SAY_STOP && (int)HDO_ASK_SAVE == (int)HDO_SAY_SAVE,
               "two names, one meaning");
unsigned hdo__run_opinion(const hdo_run *r) {
    unsigned say = r->hooks.asked != NULL ? r->hooks.asked(r->hooks.ctx) & (HDO_SAY_STOP | HDO_SAY_SAVE) : 0;
    double now = hdo__now_s(), limit = r->limit_s > 0.0 ? r->limit_s : r->config.stop.time_s,
           every = r->config.checkpoint.every_s;
    if (limit > 0.0 && now - r->session_s > limit) say |= HDO_SAY_TIMEOUT;
    if (every > 0.0 && now - r->saved_s >= every) say |= HDO_SAY_SAVE;
    if (r->transport->rank != 0) say &= ~(unsigned)HDO_SAY_SAVE; /* a signal comes to all, not in the same step */
    return say;
}

/* Did a node, here or elsewhere, give up the step? */
static bool given_up(const hdo_run *r) {
    bool any = false;
    for (int k = 0; k < r->n_active && r->undo.X != NULL; k++)
        any = any || r->result[r->active[k]].status == HDO_E_STOPPED;
    return any;
}

/* One step of HDO (Algorithm 1, or its synchronous form with a matching). */
hdo_status hdo__run_step(hdo_run *r, hdo_error *e) {
    hdo_plan plan;
    hdo_status st = HDO_OK;
    hdo__undo_keep(r);
    if (hdo__run_wants_noise(r)) st = hdo__run_measure_noise(r, e);
    if (st == HDO_E_STOPPED) hdo__undo_step(r);
    if (st != HDO_OK) return st == HDO_E_STOPPED ? HDO_OK : st;
    churn(r);
    st = add_to_weighted_average(r, e);
    if (st != HDO_OK) return st;
    hdo__mixer_plan(&r->mixer, r->step, &plan); /* who meets */
    hdo__run_choose(r, &plan);
    for (int k = 0; k < r->n_classes; k++) r->lr[k] = hdo__schedule_lr(&r->classes[k].schedule, r->step);

    hdo_transport *tp = r->transport;
    r->in_exchange = !plan.allreduce && tp->ranks > 1;
    if (!plan.allreduce) st = tp->ops->exchange_begin(tp, &plan, &r->rows, r->step, e);
    if (st != HDO_OK) return st;
    hdo__run_local_steps(r, &plan); /* everybody's own step */
    st = mix(r, &plan, e);          /* pairs average */
    if (st != HDO_OK) return st;
    r->said = hdo__run_opinion(r);
    st = tp->ops->agree(tp, HDO_OK, &r->said, r->result, sizeof *r->result, e);
    if (st != HDO_OK) return st;
    if (given_up(r)) {
        hdo__undo_step(r);
        return HDO_OK;
    }
    bool finite = hdo__run_collect(r, &st);
    if (st != HDO_OK)
        return hdo__fail(e, st, "the objective failed in step %lld: %s", (long long)r->step, hdo_status_text(st));
    hdo__run_advance_clocks(r, &plan);
    st = hdo__fate_step(r, &plan, e);
    if (st != HDO_OK) return st;
    r->step++;
    if (!finite) {
        r->stop = HDO_DIVERGED;
    } else if ((r->said & HDO_SAY_STOP) != 0) {
        r->stop = HDO_STOPPED;
    } else if ((r->said & HDO_SAY_TIMEOUT) != 0) {
        r->stop = HDO_TIMEOUT;
    }
    return st;
}
