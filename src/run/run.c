/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: a step (step.c, or own_time.c where ranks do not wait for each other), and when they are due a row of
 * figures, a checkpoint, the end.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "hdo/report.h"
#include "run/run_internal.h"

hdo_status hdo__run_settle(hdo_run *r, hdo_status st, hdo_error *e) {
    return r->transport->ops->agree(r->transport, st, &(unsigned){0}, NULL, 0, e);
}

/* ---- rows ---- */

hdo_status hdo__run_put_row(hdo_run *r, hdo_error *e) {
    hdo_status st = HDO_OK;
    r->has_row = true;
    if (r->lock_fd >= 0) st = hdo__run_dir_stands(r, e);
    for (int k = 0; k < r->n_sinks && st == HDO_OK; k++) st = r->sinks[k]->ops->row(r->sinks[k], &r->row, e);
    if (r->hooks.row != NULL && r->transport->rank == 0) r->hooks.row(r->hooks.ctx, &r->row);
    return st;
}

/* The mean loss above which a run has diverged. Relative to the start F_0: F_0 + k max(|F_0|, usual), where `usual` is
 * a loss nobody would wonder at on this problem. It counts when a run starts near or at the optimum, where F_0 is small
 * or 0 and noise alone lifts the loss by many times that. */
double hdo__run_loss_limit(const hdo_run *r) {
    const hdo_choice *c = &r->config.stop.diverged;
    if (c->id == HDO_NUMBER) return c->arg;
    double start = r->progress.start_loss, usual = r->problem.objective->usual_loss;
    return isfinite(start) ? start + c->arg * fmax(fabs(start), usual) : (double)INFINITY;
}

hdo_stop hdo__run_judge_row(const hdo_run *r) {
    const hdo_stop_config *s = &r->config.stop;
    const hdo_group *all = &r->row.all;
    if (!isfinite(all->loss_mean) || all->loss_mean > hdo__run_loss_limit(r)) return HDO_DIVERGED;
    bool reached = (s->loss > 0.0 && all->loss_mean <= s->loss) || (s->accuracy > 0.0 && all->acc_mean >= s->accuracy);
    return reached ? HDO_TARGET : HDO_RUNNING;
}

/* trace.jsonl: what the theory speaks about, after every step. */
static hdo_status trace(hdo_run *r, hdo_error *e) {
    char line[256], gamma[HDO_NUMBER_MAX], mg[HDO_NUMBER_MAX], loss[HDO_NUMBER_MAX];
    double distance;
    hdo_status st = hdo__population_mean(&r->population, &distance, e);
    if (st != HDO_OK) return st;
    int n = snprintf(line, sizeof line,
                     "{\"step\": %lld, \"consensus/gamma\": %s, \"consensus/mg\": %s, \"train/loss\": %s}\n",
                     (long long)r->progress.step, hdo_json_number(distance, gamma), hdo_json_number(r->progress.mg, mg),
                     hdo_json_number(r->progress.train_loss, loss));
    if (r->trace.fd >= 0) st = hdo__linelog_put(&r->trace, r->progress.step, line, (size_t)n, e);
    return hdo__run_settle(r, st, e);
}

/* ---- evaluation and stopping ---- */

static hdo_status evaluate(hdo_run *r, hdo_error *e) {
    double t0 = hdo__now_s();
    hdo_row *row = &r->row;
    hdo_status st = hdo__metrics_evaluate(&r->metrics, row, e);
    if (st != HDO_OK) return st;
    r->progress.eval_s += hdo__now_s() - t0;
    if (r->progress.step == 0) r->progress.start_loss = row->all.loss_mean;
    row->step = r->progress.step;
    row->interactions = r->progress.counts.interactions;
    row->parallel_time = r->population.mixer.ops->all_step
                             ? (double)r->progress.step
                             : (double)r->progress.counts.interactions / (double)r->population.n;
    row->train_loss = r->progress.step > 0 ? r->progress.train_loss : (double)NAN;
    row->mg = r->progress.step > 0 ? r->progress.mg : (double)NAN;
    memcpy(row->lr, r->population.lr, sizeof row->lr);
    row->forward = r->progress.counts.forward;
    row->backward = r->progress.counts.backward;
    row->jvp = r->progress.counts.jvp;
    row->cost = r->progress.counts.cost;
    row->bytes = r->progress.counts.bytes;
    row->present = r->population.n;
    row->sim_s = 0.0;
    for (int i = 0; i < r->population.n; i++) {
        if (hdo__churn_away(&r->population.churn, r->progress.step, i)) row->present--;
        if (r->population.clock_s != NULL) row->sim_s = fmax(row->sim_s, r->population.clock_s[i]);
    }
    row->y_loss = (double)NAN;
    if (r->population.y != NULL && r->progress.step > 0 && r->transport->rank == 0) {
        st = hdo__metrics_one(&r->metrics, r->population.y, &row->y_loss);
        if (st != HDO_OK) hdo__fail(e, st, "evaluation failed: %s", hdo_status_text(st));
    }
    row->wall_s = hdo__now_s() - r->progress.start_s;
    row->step_s = r->progress.step_s;
    row->eval_s = r->progress.eval_s;
    if (st == HDO_OK) st = hdo__run_put_row(r, e);
    return hdo__run_settle(r, st, e);
}

static hdo_status judge(hdo_run *r, hdo_error *e) {
    if (r->progress.stop == HDO_RUNNING) r->progress.stop = hdo__run_judge_row(r);
    if (r->progress.stop == HDO_RUNNING && r->progress.step >= r->config.warmup + r->config.steps)
        r->progress.stop = HDO_COMPLETED;
    return hdo__fate_row(r, e);
}

bool hdo__run_due(const hdo_run *r) {
    int64_t total = r->config.warmup + r->config.steps;
    bool last = r->progress.step >= total || r->progress.stop != HDO_RUNNING;
    return last || r->progress.step == 0 || (r->config.eval.every > 0 && r->progress.step % r->config.eval.every == 0);
}

/* A checkpoint by steps or by time. A diverged run keeps its last good one. */
static hdo_status save_if_due(hdo_run *r, hdo_error *e) {
    const hdo_checkpoint_config *c = &r->config.checkpoint;
    if (r->dir[0] == '\0' || r->progress.stop == HDO_DIVERGED) return HDO_OK;
    bool by_step = c->every > 0 && r->progress.step % c->every == 0;
    bool asked = (r->progress.said & HDO_SAY_SAVE) != 0; /* by the clock or by the caller, on any rank */
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
    hdo_status st = t->ops->relay(t, &c, sizeof c, 1, hdo__population_hash, &r->population, e);
    if (st == HDO_OK) st = t->ops->relay(t, r->wire, sizeof r->wire, 1, add_wire, r, e);
    if (st != HDO_OK) return st;
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, r->fingerprint);
    return HDO_OK;
}

hdo_status hdo_run_advance(hdo_run *r, int64_t n_steps, hdo_stop *why, hdo_error *e) {
    hdo_status st = HDO_OK;
    if (r->progress.stop == HDO_RUNNING && !r->has_row) {
        st = evaluate(r, e);
        if (st == HDO_OK) st = judge(r, e);
    }
    for (int64_t k = 0; k < n_steps && r->progress.stop == HDO_RUNNING && st == HDO_OK; k++) {
        double t0 = hdo__now_s();
        int64_t before = r->progress.step;
        bool own_time = r->config.mpi.async && r->transport->ranks > 1;
        st = own_time ? hdo__run_own_step(r, e) : hdo__run_step(r, e);
        double spent = hdo__now_s() - t0;
        r->progress.step_s += spent;
        hdo__population_timed(&r->population, spent);
        bool done = r->progress.step > before; /* not given up */
        if (st == HDO_OK && r->config.eval.trace && r->dir[0] != '\0' && !own_time && done) st = trace(r, e);
        if (st == HDO_OK && hdo__run_due(r) && (done || !r->has_row || r->row.step != r->progress.step)) {
            if (r->async != NULL) {
                hdo__run_evaluate_own(r);
            } else {
                st = evaluate(r, e);
                if (st == HDO_OK) st = judge(r, e);
            }
        }
        if (st == HDO_OK && !own_time) st = save_if_due(r, e);
    }
    if (st == HDO_OK && r->progress.stop != HDO_RUNNING) st = conclude(r, e);
    if (st == HDO_E_IO) { /* a file that could not be written because its folder is gone: say that instead */
        hdo_error gone;
        if (hdo__run_dir_stands(r, &gone) != HDO_OK && e != NULL) *e = gone;
    }
    if (why != NULL) *why = r->progress.stop;
    return st;
}

hdo_status hdo_run_stop(hdo_run *r, hdo_error *e) {
    if (r->progress.stop != HDO_RUNNING) return HDO_OK;
    r->progress.stop = HDO_STOPPED;
    hdo_status st = r->has_row && r->row.step == r->progress.step ? HDO_OK : evaluate(r, e);
    return st == HDO_OK ? conclude(r, e) : st;
}
