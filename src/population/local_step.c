/* SPDX-License-Identifier: Apache-2.0
 *
 * The local step of one node: a batch, an estimate, a move; how the nodes of this rank are spread over threads; and
 * what their steps add up to. Nothing in here allocates.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "population/population.h"

enum { NODES_PER_TASK = 64, MANY_NODES = 8192 }; /* with very many nodes a task is a block of them */
enum { TIMED_STEPS = 3 };
#define SHORT_STEP_S 200e-6 /* a parallel region costs about 10 us on an idle machine, milliseconds on a busy one */

/* ---- one node ---- */

void hdo__node_estimate(hdo_population *p, int64_t step, int node, const float *x, hdo_work *w, float *g) {
    int i = node - p->models.first, k = hdo__population_class(p, node);
    const hdo_class *c = &p->classes[k];
    hdo_node_result *res = &p->result[node];
    size_t mark = hdo__arena_mark(w->arena);
    hdo_batch batch = hdo__problem_batch(p->problem, node, c->batch, p->batches[i]++, step, w->arena);
    hdo_request q = {.batch = &batch,
                     .x = x,
                     .seed = (uint64_t)p->problem->config->seed,
                     .node = (uint32_t)node,
                     .step = step,
                     .eta = p->lr[k],
                     .hurry = p->hurry,
                     .hurry_ctx = p->hurry_ctx,
                     .complaint = p->problem->complaint};
    hdo_estimate_info info = {0};
    hdo_status st = batch.status;
    if (st == HDO_OK && hdo__request_given_up(&q)) st = HDO_E_STOPPED;
    if (st == HDO_OK) st = hdo__objective_prepare(p->problem->objective, &batch, w);
    if (st == HDO_OK) st = c->estimator.ops->estimate(&c->estimator, p->problem->objective, &q, w, g, &info);
    *res = (hdo_node_result){.loss = info.loss,
                             .g2 = st == HDO_E_SKIPPED ? res->g2 : (double)NAN, /* until the move; the one before */
                             .forward = info.forward,
                             .backward = info.backward,
                             .jvp = info.jvp,
                             .cost = info.cost,
                             .status = st};
    hdo__arena_rewind(w->arena, mark);
}

void hdo__node_move(hdo_population *p, int node, float *g, hdo_work *w) {
    int i = node - p->models.first, k = hdo__population_class(p, node);
    const hdo_update *u = &p->classes[k].update;
    const hdo_objective *f = p->problem->objective;
    float *x = hdo__population_model(p, node);
    float *momentum = u->momentum > 0.0 ? p->momentum + (size_t)i * p->models.ld : NULL;
    if (p->result[node].status != HDO_OK) return;
    p->result[node].g2 = hdo__update_apply(u, p->lr[k], &(hdo_move){f->d, f->idle, x, g, momentum}, w);
    if (f->n_buf > 0) memcpy(x + f->d, g + f->d, f->n_buf * sizeof(float));
}

/* ---- all nodes of this rank ---- */

/* Waking threads costs more than a short step: unless the user asked for a number of threads, the first steps run on
 * one thread and are timed, and the team is used only if they are long enough. The bits do not depend on it. */
static bool worth_threads(const hdo_population *p) {
    return p->team->threads > 1 && (p->problem->config->threads > 0 || p->quickest_s > SHORT_STEP_S);
}

void hdo__population_timed(hdo_population *p, double step_s) {
    if (p->timed_steps++ == 0 || (p->timed_steps <= TIMED_STEPS && step_s < p->timed_s)) p->timed_s = step_s;
    if (p->timed_steps == TIMED_STEPS) p->quickest_s = p->timed_s;
}

typedef struct block_ctx { /* items [task * per_task, ...) of n are one task */
    hdo_node_fn fn;
    void *ctx;
    const int32_t *item; /* NULL: item k is k */
    int n, per_task;
} block_ctx;

static void block_task(void *ctx, int task, hdo_work *w) {
    const block_ctx *c = ctx;
    int first = task * c->per_task, last = first + c->per_task < c->n ? first + c->per_task : c->n;
    for (int k = first; k < last; k++) c->fn(c->ctx, c->item != NULL ? c->item[k] : k, w);
}

static void run_blocks(hdo_population *p, block_ctx c) {
    hdo_team alone = {1, p->team->arena, 0};
    c.per_task = c.n >= MANY_NODES ? NODES_PER_TASK : 1;
    hdo__team_run(worth_threads(p) ? p->team : &alone, (c.n + c.per_task - 1) / c.per_task, block_task, &c);
}

void hdo__population_tasks(hdo_population *p, int n, hdo_node_fn fn, void *ctx) {
    run_blocks(p, (block_ctx){.fn = fn, .ctx = ctx, .n = n});
}

void hdo__population_each(hdo_population *p, hdo_node_fn fn, void *ctx) {
    double start = hdo__now_s();
    if (p->n_own >= p->team->threads || !worth_threads(p)) {
        run_blocks(p, (block_ctx){.fn = fn, .ctx = ctx, .item = p->own, .n = p->n_own});
    } else {
        hdo_work w = {&p->team->arena[0], p->team, 0};
        for (int k = 0; k < p->n_own; k++) fn(ctx, p->own[k], &w);
    }
    if (p->slow > 1.0) { /* mpi.slow: a straggler for experiments */
        double s = (p->slow - 1.0) * (hdo__now_s() - start);
        nanosleep(&(struct timespec){.tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - floor(s)))}, NULL);
    }
}

/* ---- what they add up to ---- */

/* M^G = (1/n) sum |G_i|^2 over all nodes. Who did not step (pairwise time, churn) has no new estimate: the newest it
 * made counts, and who made none yet is left out. */
static double mean_g2(const hdo_population *p) {
    double sum = 0.0, n = 0.0;
    for (int i = 0; i < p->n; i++) {
        if (p->result[i].g2 == HDO_NO_ESTIMATE) continue;
        sum += p->result[i].g2;
        n += 1.0;
    }
    return sum / n;
}

bool hdo__population_collect(const hdo_population *p, hdo_progress *progress, hdo_status *st) {
    double loss = 0.0, g2 = 0.0;
    bool finite = true;
    int stepped = 0;
    for (int k = 0; k < p->n_active; k++) {
        const hdo_node_result *res = &p->result[p->active[k]];
        bool skipped = res->status == HDO_E_SKIPPED; /* it left out its step, as a callback of one's own said */
        if (res->status != HDO_OK && !skipped) *st = res->status;
        if (skipped) progress->counts.failed++;
        if (!skipped) {
            finite = finite && isfinite(res->loss) && isfinite(res->g2);
            loss += res->loss;
            g2 += res->g2;
            stepped++;
        }
        progress->counts.forward += res->forward;
        progress->counts.backward += res->backward;
        progress->counts.jvp += res->jvp;
        progress->counts.cost += res->cost;
    }
    progress->train_loss = loss / (double)stepped; /* NaN when nobody stepped */
    progress->mg_active = g2 / (double)stepped;
    progress->mg = mean_g2(p);
    return finite;
}
