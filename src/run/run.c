/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop, in the order of the paper's algorithm: who meets; every one of them takes a local step with its own
 * estimator; the pairs exchange their models and both take the average. Nothing in here allocates.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/vec.h"
#include "run/run_internal.h"

enum { NODES_PER_TASK = 64, MANY_NODES = 8192 }; /* with very many nodes a task is a block of them */
enum { TIMED_STEPS = 3 };
#define SHORT_STEP_S 200e-6 /* a parallel region costs about 10 us on an idle machine, milliseconds on a busy one */

/* ---- the local step of one node ---- */

/* Batch number `number` of the node's endless shuffled passes over its shard. */
hdo_batch hdo__run_batch(const hdo_run *r, const hdo_class *c, int node, int64_t number, hdo_arena *a) {
    hdo_batch b = {.size = c->batch, .node = node, .seed = (uint64_t)r->config.seed, .step = r->step, .train = true};
    if (r->train == NULL) return b;
    size_t B = (size_t)c->batch;
    int64_t *idx = hdo__arena_take(a, B * sizeof(int64_t));
    int32_t *label = hdo__arena_take(a, B * sizeof(int32_t));
    void *in = hdo__arena_take(a, B * (size_t)r->train->n_in * sizeof(float));
    hdo__sampler_batch(r->shards, (uint64_t)r->config.seed, node, number, c->batch, idx);
    hdo_stream augment = hdo__stream((uint64_t)r->config.seed, HDO_RNG_AUGMENT, (uint32_t)node, (uint64_t)r->step, 0);
    hdo__batch_gather(&b, r->train, idx, r->config.data.augment ? &augment : NULL, in, label);
    return b;
}

static void local_step(hdo_run *r, int node, hdo_work *w) {
    int i = node - r->rows.first, k = hdo__class_of(r, node);
    const hdo_class *c = &r->classes[k];
    hdo_node_result *res = &r->result[node];
    float *x = r->rows.X + (size_t)i * r->rows.ld;
    float *mom = c->update.momentum > 0.0 ? r->momentum + (size_t)i * r->rows.ld : NULL;
    size_t mark = hdo__arena_mark(w->arena), d = r->objective->d, n_buf = r->objective->n_buf;

    hdo_batch batch = hdo__run_batch(r, c, node, r->batches[i], w->arena);
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
                     .eta = r->lr[k]};
    hdo_estimate_info info = {0};
    res->status = c->estimator.ops->estimate(&c->estimator, r->objective, &q, w, g, &info);
    res->loss = info.loss;
    res->forward = info.forward;
    res->backward = info.backward;
    res->jvp = info.jvp;
    res->g2 = (double)NAN; /* no estimate */
    if (res->status == HDO_OK) {
        bool checked = r->async != NULL && hdo__async_checked(r->async);
        if (r->async != NULL) hdo__async_lock(r->async, i);
        if (checked) memcpy(copy, x, d * sizeof(float));
        res->g2 = hdo__update_apply(&c->update, d, r->objective->idle, r->lr[k], x, g, mom, w);
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
        double wl = 1.0 / r->classes[hdo__class_of(r, local)].noise,
               wo = 1.0 / r->classes[hdo__class_of(r, other)].noise;
        hdo__average_weighted(r->rows.len, (float)(wl / (wl + wo)), r->mine[k], (float)(wo / (wl + wo)), r->peer[k]);
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
static void local_steps(hdo_run *r, step_ctx *c) {
    double start = hdo__now_s();
    if (c->n >= r->team.threads || !worth_threads(r)) {
        run_tasks(r, c, step_task);
    } else {
        hdo_work w = {&r->team.arena[0], &r->team};
        for (int k = 0; k < c->n; k++) local_step(r, r->own[k], &w);
    }
    if (r->slow > 1.0) { /* mpi.slow: a straggler for experiments */
        double s = (r->slow - 1.0) * (hdo__now_s() - start);
        nanosleep(&(struct timespec){.tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - floor(s)))}, NULL);
    }
}

/* Adds up what the nodes reported, in the order they stepped. False when a loss stopped being finite. */
static bool collect(hdo_run *r, hdo_status *st) {
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
    }
    r->train_loss = loss / (double)r->n_active; /* NaN when nobody stepped */
    r->mg = g2 / (double)r->n_active;
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
    size_t len = r->objective->d + r->objective->n_buf;
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
    size_t len = r->objective->d + r->objective->n_buf;
    for (int k = 0; k < n && r->fresh != NULL; k++) {
        int i = r->returned[k] - r->rows.first;
        if (i < 0 || i >= r->rows.count) continue;
        memcpy(r->rows.X + (size_t)i * r->rows.ld, r->fresh, len * sizeof(float));
        if (r->momentum != NULL) memset(r->momentum + (size_t)i * r->rows.ld, 0, r->objective->d * sizeof(float));
    }
}

/* Who steps: everybody, or in pairwise time the pair; less those that are away or too slow. */
static void choose_active(hdo_run *r, hdo_plan *plan) {
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

hdo_status hdo__run_settle(hdo_run *r, hdo_status st, hdo_error *e) {
    return r->transport->ops->agree(r->transport, st, &(unsigned){0}, NULL, 0, e);
}

/* What this rank has to say about the step: the clock, and what the caller wants. */
_Static_assert((int)HDO_ASK_STOP == (int)HDO_SAY_STOP && (int)HDO_ASK_SAVE == (int)HDO_SAY_SAVE,
               "two names, one meaning");
static unsigned opinion(const hdo_run *r) {
    unsigned say = r->hooks.asked != NULL ? r->hooks.asked(r->hooks.ctx) & (HDO_SAY_STOP | HDO_SAY_SAVE) : 0;
    double now = hdo__now_s(), limit = r->config.stop.time_s, every = r->config.checkpoint.every_s;
    if (limit > 0.0 && now - r->start_s > limit) say |= HDO_SAY_TIMEOUT;
    if (every > 0.0 && now - r->saved_s >= every) say |= HDO_SAY_SAVE;
    if (r->transport->rank != 0) say &= ~(unsigned)HDO_SAY_SAVE; /* a signal comes to all, not in the same step */
    return say;
}

/* One step of HDO (Algorithm 1, or its synchronous form with a matching). */
static hdo_status one_step(hdo_run *r, hdo_error *e) {
    hdo_plan plan;
    hdo_status st = HDO_OK;
    if (hdo__run_wants_noise(r)) st = hdo__run_measure_noise(r, e);
    if (st != HDO_OK) return st;
    churn(r);
    st = add_to_weighted_average(r, e);
    if (st != HDO_OK) return st;
    hdo__mixer_plan(&r->mixer, r->step, &plan); /* who meets */
    choose_active(r, &plan);
    for (int k = 0; k < r->n_classes; k++) r->lr[k] = hdo__schedule_lr(&r->classes[k].schedule, r->step);

    hdo_transport *tp = r->transport;
    r->in_exchange = !plan.allreduce && tp->ranks > 1;
    if (!plan.allreduce) st = tp->ops->exchange_begin(tp, &plan, &r->rows, r->step, e);
    if (st != HDO_OK) return st;
    step_ctx c = {.r = r, .plan = &plan, .n = r->n_own};
    local_steps(r, &c);    /* everybody's own step */
    st = mix(r, &plan, e); /* pairs average */
    if (st != HDO_OK) return st;
    r->said = opinion(r);
    st = tp->ops->agree(tp, HDO_OK, &r->said, r->result, sizeof *r->result, e);
    if (st != HDO_OK) return st;
    bool finite = collect(r, &st);
    if (st != HDO_OK)
        return hdo__fail(e, st, "the objective failed in step %lld: %s", (long long)r->step, hdo_status_text(st));
    hdo__run_advance_clocks(r, &plan);
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

/* ---- rows ---- */

static hdo_status put_row(hdo_run *r, hdo_error *e) {
    hdo_status st = HDO_OK;
    r->has_row = true;
    for (int k = 0; k < r->n_sinks && st == HDO_OK; k++) st = r->sinks[k]->ops->row(r->sinks[k], &r->row, e);
    if (r->hooks.row != NULL && r->transport->rank == 0) r->hooks.row(r->hooks.ctx, &r->row);
    return st;
}

static hdo_stop judge_row(const hdo_run *r) {
    const hdo_stop_config *s = &r->config.stop;
    const hdo_group *all = &r->row.all;
    if (!isfinite(all->loss_mean) || all->loss_mean > s->diverged) return HDO_DIVERGED;
    bool reached = (s->loss > 0.0 && all->loss_mean <= s->loss) || (s->accuracy > 0.0 && all->acc_mean >= s->accuracy);
    return reached ? HDO_TARGET : HDO_RUNNING;
}

/* ---- the asynchronous engine ---- */

/* Rank 0: rows that have become complete. What they mean for the run, or that they cannot be written, is said to all:
 * the evaluation at the end then fails for everybody, with one message. */
static void take_rows(hdo_run *r) {
    hdo_error ignored;
    while (hdo__async_row(r->async, &r->row)) {
        hdo_row *row = &r->row;
        row->parallel_time = (double)row->step;
        for (int k = 0; k < r->n_classes; k++) row->lr[k] = hdo__schedule_lr(&r->classes[k].schedule, row->step - 1);
        row->present = r->mixer.n;
        row->wall_s -= r->start_s;
        row->step_s = r->step_s;
        row->eval_s = r->eval_s;
        unsigned say = put_row(r, &ignored) == HDO_OK ? 0 : HDO_SAY_STOP;
        hdo_stop why = judge_row(r);
        if (why != HDO_RUNNING) say |= why == HDO_TARGET ? HDO_SAY_TARGET : HDO_SAY_NOT_FINITE;
        if (say != 0) hdo__async_say(r->async, say);
    }
}

/* This rank's nodes, at its own step. The others may change them meanwhile: a copy is evaluated. */
static void evaluate_own(hdo_run *r) {
    double t0 = hdo__now_s();
    hdo_rows copy = r->rows;
    copy.X = r->seen;
    for (int i = 0; i < copy.count; i++)
        hdo__async_read(r->async, i, r->objective->d + r->objective->n_buf, r->seen + (size_t)i * copy.ld);
    hdo_async_part p = {.step = r->step,
                        .train_loss = r->train_loss,
                        .mg = r->mg,
                        .counts = {r->interactions, r->bytes, r->forward, r->backward, r->jvp}};
    hdo_status st = hdo__metrics_local(&r->metrics, &copy, &r->team, &p.nodes);
    if (st == HDO_OK) {
        hdo__async_report(r->async, &p);
    } else {
        hdo__run_log(r, HDO_LOG_WARN, "evaluation failed: %s", hdo_status_text(st));
        hdo__async_say(r->async, HDO_SAY_NOT_FINITE);
    }
    r->eval_s += hdo__now_s() - t0;
}

static void own_counts(hdo_run *r, double c[HDO_COUNTS], bool put) {
    int64_t *count[HDO_COUNTS] = {&r->interactions, &r->bytes, &r->forward, &r->backward, &r->jvp};
    for (int k = 0; k < HDO_COUNTS; k++) {
        if (put) {
            *count[k] = (int64_t)c[k];
        } else {
            c[k] = (double)*count[k];
        }
    }
}

/* The end of an asynchronous run: everybody waits for everybody, once; counts become those of all ranks. */
static hdo_status end_async(hdo_run *r, hdo_error *e) {
    unsigned say = 0;
    own_counts(r, r->drifted.counts, false);
    r->drifted.step_s_min = r->step_s / (double)(r->step > 0 ? r->step : 1);
    r->drifted.loss_sum = r->train_loss * (double)r->n_own;
    r->drifted.mg_sum = r->mg * (double)r->n_own;
    hdo_status st = hdo__async_finish(r->async, &say, &r->drifted, e);
    if (st != HDO_OK) return st;
    r->train_loss = r->drifted.loss_sum / (double)r->mixer.n;
    r->mg = r->drifted.mg_sum / (double)r->mixer.n;
    take_rows(r); /* those that were completed while this rank waited */
    own_counts(r, r->drifted.counts, true);
    r->interactions += (int64_t)r->drifted.exchanges;
    r->bytes += 2 * (int64_t)r->drifted.exchanges * (int64_t)(r->rows.len * sizeof(float));
    r->said = say;
    if ((say & HDO_SAY_NOT_FINITE) != 0) {
        r->stop = HDO_DIVERGED;
    } else if ((say & HDO_SAY_TARGET) != 0) {
        r->stop = HDO_TARGET;
    } else if ((say & HDO_SAY_STOP) != 0) {
        r->stop = HDO_STOPPED;
    } else if ((say & HDO_SAY_TIMEOUT) != 0) {
        r->stop = HDO_TIMEOUT;
    }
    hdo__async_destroy(r->async);
    r->async = NULL;
    return HDO_OK;
}

/* A step of this rank's nodes, in its own time (mpi.async). */
static hdo_status one_own_step(hdo_run *r, hdo_error *e) {
    hdo_plan plan;
    hdo_status st = HDO_OK;
    if (r->async == NULL) {
        const float *x0 = r->step == 0 ? r->start : NULL;
        if (x0 != NULL) memcpy(r->start, r->rows.X, r->rows.ld * sizeof(float));
        hdo_async_setup s = {.deadline_s = r->config.mpi.deadline_s,
                             .x0 = x0,
                             .d = r->objective->d,
                             .eval_every = r->config.eval.every,
                             .steps = r->config.warmup + r->config.steps};
        st = hdo__async_create(&r->async, r->transport, &r->rows, &s, e);
        if (st != HDO_OK) return st;
    }
    hdo__mixer_plan(&r->mixer, r->step, &plan);
    choose_active(r, &plan);
    for (int k = 0; k < r->n_classes; k++) r->lr[k] = hdo__schedule_lr(&r->classes[k].schedule, r->step);
    step_ctx c = {.r = r, .plan = &plan, .n = r->n_own};
    local_steps(r, &c);
    memcpy(r->active, r->own, (size_t)r->n_own * sizeof(int32_t)); /* figures are of this rank's nodes */
    r->n_active = r->n_own;
    bool finite = collect(r, &st);
    int pairs = hdo__async_mix(r->async, &plan, r->step);
    r->interactions += pairs;
    r->bytes += 2 * (int64_t)pairs * (int64_t)(r->rows.len * sizeof(float));
    r->step++;
    if (st != HDO_OK)
        hdo__run_log(r, HDO_LOG_WARN, "the objective failed in step %lld: %s", (long long)r->step, hdo_status_text(st));
    take_rows(r);
    unsigned say = opinion(r) & ~(unsigned)HDO_SAY_SAVE;
    say = hdo__async_say(r->async, say | (finite && st == HDO_OK ? 0 : HDO_SAY_NOT_FINITE));
    return say != 0 || r->step >= r->config.warmup + r->config.steps ? end_async(r, e) : HDO_OK;
}

/* trace.jsonl: what the theory speaks about, after every step. */
static hdo_status trace(hdo_run *r, hdo_error *e) {
    char line[256], gamma[32], mg[32], loss[32];
    double distance;
    hdo_status st = hdo__metrics_consensus(&r->metrics, &r->rows, &r->team, &distance, e);
    if (st != HDO_OK) return st;
    hdo__real_text(distance, gamma);
    hdo__real_text(isfinite(r->mg) ? r->mg : 0.0, mg);
    hdo__real_text(isfinite(r->train_loss) ? r->train_loss : 0.0, loss);
    int n = snprintf(line, sizeof line,
                     "{\"step\": %lld, \"consensus/gamma\": %s, \"consensus/mg\": %s, \"train/loss\": %s}\n",
                     (long long)r->step, gamma, mg, loss);
    if (r->trace_fd >= 0 && write(r->trace_fd, line, (size_t)n) != n) {
        st = hdo__fail(e, HDO_E_IO, "writing trace.jsonl in '%s' failed", r->dir);
    }
    return hdo__run_settle(r, st, e);
}

/* ---- evaluation and stopping ---- */

static hdo_status evaluate(hdo_run *r, hdo_error *e) {
    double t0 = hdo__now_s();
    hdo_row *row = &r->row;
    hdo_status st = hdo__metrics_evaluate(&r->metrics, &r->rows, &r->team, row, e);
    if (st != HDO_OK) return st;
    r->eval_s += hdo__now_s() - t0;
    row->step = r->step;
    row->interactions = r->interactions;
    row->parallel_time = r->mixer.ops->all_step ? (double)r->step : (double)r->interactions / (double)r->mixer.n;
    row->train_loss = r->step > 0 ? r->train_loss : (double)NAN;
    row->mg = r->step > 0 ? r->mg : (double)NAN;
    memcpy(row->lr, r->lr, sizeof row->lr);
    row->forward = r->forward;
    row->backward = r->backward;
    row->jvp = r->jvp;
    row->bytes = r->bytes;
    row->present = r->mixer.n;
    row->sim_s = 0.0;
    for (int i = 0; i < r->mixer.n; i++) {
        if (hdo__churn_away(&r->churn, r->step, i)) row->present--;
        if (r->clock_s != NULL) row->sim_s = fmax(row->sim_s, r->clock_s[i]);
    }
    row->y_loss = (double)NAN;
    if (r->y != NULL && r->step > 0 && r->transport->rank == 0) {
        st = hdo__metrics_one(&r->metrics, r->y, &r->team, &row->y_loss);
        if (st != HDO_OK) hdo__fail(e, st, "evaluation failed: %s", hdo_status_text(st));
    }
    row->wall_s = hdo__now_s() - r->start_s;
    row->step_s = r->step_s;
    row->eval_s = r->eval_s;
    if (st == HDO_OK) st = put_row(r, e);
    return hdo__run_settle(r, st, e);
}

static void judge(hdo_run *r) {
    if (r->stop == HDO_RUNNING) r->stop = judge_row(r);
    if (r->stop == HDO_RUNNING && r->step >= r->config.warmup + r->config.steps) r->stop = HDO_COMPLETED;
}

bool hdo__run_due(const hdo_run *r) {
    int64_t total = r->config.warmup + r->config.steps;
    bool last = r->step >= total || r->stop != HDO_RUNNING;
    return last || r->step == 0 || (r->config.eval.every > 0 && r->step % r->config.eval.every == 0);
}

/* A checkpoint by steps or by time. A diverged run keeps its last good one. */
static hdo_status save_if_due(hdo_run *r, hdo_error *e) {
    const hdo_checkpoint_config *c = &r->config.checkpoint;
    if (r->dir[0] == '\0' || r->stop == HDO_DIVERGED) return HDO_OK;
    bool by_step = c->every > 0 && r->step % c->every == 0;
    bool asked = (r->said & HDO_SAY_SAVE) != 0; /* by the clock or by the caller, on any rank */
    return by_step || asked ? hdo_run_save(r, e) : HDO_OK;
}

static void add_wire(void *ctx, void *v, size_t first, size_t count) {
    const hdo_transport *t = ((const hdo_run *)ctx)->transport;
    double *sum = v;
    (void)first;
    (void)count;
    sum[0] += (double)t->sent_bytes;
    sum[1] += (double)t->sent_messages;
    sum[2] += t->wait_s;
    sum[3] = fmax(sum[3], t->wait_s);
    sum[4] += (double)t->shared_bytes;
}

/* What only all ranks together can know about the end, so that afterwards any of them can be asked. */
static hdo_status conclude(hdo_run *r, hdo_error *e) {
    hdo_transport *t = r->transport;
    if (t->ranks == 1 || r->fingerprint[0] != '\0') return HDO_OK;
    hdo_sha256 c;
    unsigned char digest[32];
    hdo__sha256_init(&c);
    hdo_status st = t->ops->relay(t, &c, sizeof c, 1, hdo__run_hash_rows, r, e);
    if (st == HDO_OK) st = t->ops->relay(t, r->wire, sizeof r->wire, 1, add_wire, r, e);
    if (st != HDO_OK) return st;
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, r->fingerprint);
    return HDO_OK;
}

hdo_status hdo_run_advance(hdo_run *r, int64_t n_steps, hdo_stop *why, hdo_error *e) {
    hdo_status st = HDO_OK;
    if (r->stop == HDO_RUNNING && !r->has_row) {
        st = evaluate(r, e);
        if (st == HDO_OK) judge(r);
    }
    for (int64_t k = 0; k < n_steps && r->stop == HDO_RUNNING && st == HDO_OK; k++) {
        double t0 = hdo__now_s();
        bool own_time = r->config.mpi.async && r->transport->ranks > 1;
        st = own_time ? one_own_step(r, e) : one_step(r, e);
        double spent = hdo__now_s() - t0;
        r->step_s += spent;
        if (r->timed_steps++ == 0 || (r->timed_steps <= TIMED_STEPS && spent < r->timed_s)) r->timed_s = spent;
        if (r->timed_steps == TIMED_STEPS) r->quickest_s = r->timed_s;
        if (st == HDO_OK && r->config.eval.trace && r->dir[0] != '\0' && !own_time) st = trace(r, e);
        if (st == HDO_OK && hdo__run_due(r)) {
            if (r->async != NULL) {
                evaluate_own(r);
            } else {
                st = evaluate(r, e);
                if (st == HDO_OK) judge(r);
            }
        }
        if (st == HDO_OK && !own_time) st = save_if_due(r, e);
    }
    if (st == HDO_OK && r->stop != HDO_RUNNING) st = conclude(r, e);
    if (why != NULL) *why = r->stop;
    return st;
}

hdo_status hdo_run_stop(hdo_run *r, hdo_error *e) {
    if (r->stop != HDO_RUNNING) return HDO_OK;
    r->stop = HDO_STOPPED;
    hdo_status st = r->has_row && r->row.step == r->step ? HDO_OK : evaluate(r, e);
    return st == HDO_OK ? conclude(r, e) : st;
}
