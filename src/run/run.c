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
#include "hdo/json.h"
#include "run/run_internal.h"

enum { TIMED_STEPS = 3 };

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
    double start = r->start_loss, usual = r->objective->usual_loss;
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
    hdo_status st = hdo__metrics_consensus(&r->metrics, &r->rows, &r->team, &distance, e);
    if (st != HDO_OK) return st;
    int n = snprintf(line, sizeof line,
                     "{\"step\": %lld, \"consensus/gamma\": %s, \"consensus/mg\": %s, \"train/loss\": %s}\n",
                     (long long)r->step, hdo_json_number(distance, gamma), hdo_json_number(r->mg, mg),
                     hdo_json_number(r->train_loss, loss));
    if (r->trace.fd >= 0) st = hdo__linelog_put(&r->trace, r->step, line, (size_t)n, e);
    return hdo__run_settle(r, st, e);
}

/* ---- evaluation and stopping ---- */

static hdo_status evaluate(hdo_run *r, hdo_error *e) {
    double t0 = hdo__now_s();
    hdo_row *row = &r->row;
    hdo_status st = hdo__metrics_evaluate(&r->metrics, &r->rows, &r->team, row, e);
    if (st != HDO_OK) return st;
    r->eval_s += hdo__now_s() - t0;
    if (r->step == 0) r->start_loss = row->all.loss_mean;
    row->step = r->step;
    row->interactions = r->interactions;
    row->parallel_time = r->mixer.ops->all_step ? (double)r->step : (double)r->interactions / (double)r->mixer.n;
    row->train_loss = r->step > 0 ? r->train_loss : (double)NAN;
    row->mg = r->step > 0 ? r->mg : (double)NAN;
    memcpy(row->lr, r->lr, sizeof row->lr);
    row->forward = r->forward;
    row->backward = r->backward;
    row->jvp = r->jvp;
    row->cost = r->cost;
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
    if (st == HDO_OK) st = hdo__run_put_row(r, e);
    return hdo__run_settle(r, st, e);
}

static hdo_status judge(hdo_run *r, hdo_error *e) {
    if (r->stop == HDO_RUNNING) r->stop = hdo__run_judge_row(r);
    if (r->stop == HDO_RUNNING && r->step >= r->config.warmup + r->config.steps) r->stop = HDO_COMPLETED;
    return hdo__fate_row(r, e);
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
        if (st == HDO_OK) st = judge(r, e);
    }
    for (int64_t k = 0; k < n_steps && r->stop == HDO_RUNNING && st == HDO_OK; k++) {
        double t0 = hdo__now_s();
        int64_t before = r->step;
        bool own_time = r->config.mpi.async && r->transport->ranks > 1;
        st = own_time ? hdo__run_own_step(r, e) : hdo__run_step(r, e);
        double spent = hdo__now_s() - t0;
        r->step_s += spent;
        if (r->timed_steps++ == 0 || (r->timed_steps <= TIMED_STEPS && spent < r->timed_s)) r->timed_s = spent;
        if (r->timed_steps == TIMED_STEPS) r->quickest_s = r->timed_s;
        bool done = r->step > before; /* not given up */
        if (st == HDO_OK && r->config.eval.trace && r->dir[0] != '\0' && !own_time && done) st = trace(r, e);
        if (st == HDO_OK && hdo__run_due(r) && (done || !r->has_row || r->row.step != r->step)) {
            if (r->async != NULL) {
                hdo__run_evaluate_own(r);
            } else {
                st = evaluate(r, e);
                if (st == HDO_OK) st = judge(r, e);
            }
        }
        if (st == HDO_OK && !own_time) st = save_if_due(r, e);
    }
    if (st == HDO_OK && r->stop != HDO_RUNNING) st = conclude(r, e);
    if (st == HDO_E_IO) { /* a file that could not be written because its folder is gone: say that instead */
        hdo_error gone;
        if (hdo__run_dir_stands(r, &gone) != HDO_OK && e != NULL) *e = gone;
    }
    if (why != NULL) *why = r->stop;
    return st;
}

hdo_status hdo_run_stop(hdo_run *r, hdo_error *e) {
    if (r->stop != HDO_RUNNING) return HDO_OK;
    r->stop = HDO_STOPPED;
    hdo_status st = r->has_row && r->row.step == r->step ? HDO_OK : evaluate(r, e);
    return st == HDO_OK ? conclude(r, e) : st;
}
