/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of this rank in its own time (mpi.async): its nodes step, average with whoever is there (async.c), and are
 * evaluated at their own step; rank 0 puts the rows of figures together as their parts come in. Nobody waits for
 * anybody before the end.
 */
#include <string.h>

#include "base/clock.h"
#include "run/run_internal.h"

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
        unsigned say = hdo__run_put_row(r, &ignored) == HDO_OK ? 0 : HDO_SAY_STOP;
        hdo_stop why = hdo__run_judge_row(r);
        if (why != HDO_RUNNING) say |= why == HDO_TARGET ? HDO_SAY_TARGET : HDO_SAY_NOT_FINITE;
        if (say != 0) hdo__async_say(r->async, say);
    }
}

/* This rank's nodes, at its own step. The others may change them meanwhile: a copy is evaluated. */
void hdo__run_evaluate_own(hdo_run *r) {
    double t0 = hdo__now_s();
    hdo_rows copy = r->rows;
    copy.X = r->seen;
    for (int i = 0; i < copy.count; i++)
        hdo__async_read(r->async, i, r->problem.objective->d + r->problem.objective->n_buf,
                        r->seen + (size_t)i * copy.ld);
    hdo_async_part p = {.step = r->step,
                        .train_loss = r->train_loss,
                        .mg = r->mg,
                        .counts = {r->interactions, r->bytes, r->forward, r->backward, r->jvp, r->cost}};
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
    int64_t *count[HDO_COUNTS] = {&r->interactions, &r->bytes, &r->forward, &r->backward, &r->jvp, &r->cost};
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
hdo_status hdo__run_own_step(hdo_run *r, hdo_error *e) {
    hdo_plan plan;
    hdo_status st = HDO_OK;
    if (r->async == NULL) {
        const float *x0 = r->step == 0 ? r->start : NULL;
        if (x0 != NULL) memcpy(r->start, r->rows.X, r->rows.ld * sizeof(float));
        hdo_async_setup s = {.deadline_s = r->config.mpi.deadline_s,
                             .x0 = x0,
                             .d = r->problem.objective->d,
                             .eval_every = r->config.eval.every,
                             .steps = r->config.warmup + r->config.steps};
        st = hdo__async_create(&r->async, r->transport, &r->rows, &s, e);
        if (st != HDO_OK) return st;
    }
    hdo__mixer_plan(&r->mixer, r->step, &plan);
    hdo__run_choose(r, &plan);
    for (int k = 0; k < r->n_classes; k++) r->lr[k] = hdo__schedule_lr(&r->classes[k].schedule, r->step);
    hdo__run_local_steps(r, &plan);
    memcpy(r->active, r->own, (size_t)r->n_own * sizeof(int32_t)); /* figures are of this rank's nodes */
    r->n_active = r->n_own;
    bool finite = hdo__run_collect(r, &st);
    int pairs = hdo__async_mix(r->async, &plan, r->step);
    r->interactions += pairs;
    r->bytes += 2 * (int64_t)pairs * (int64_t)(r->rows.len * sizeof(float));
    r->step++;
    if (st != HDO_OK)
        hdo__run_log(r, HDO_LOG_WARN, "the objective failed in step %lld: %s", (long long)r->step, hdo_status_text(st));
    take_rows(r);
    unsigned say = hdo__run_opinion(r) & ~(unsigned)HDO_SAY_SAVE;
    say = hdo__async_say(r->async, say | (finite && st == HDO_OK ? 0 : HDO_SAY_NOT_FINITE));
    return say != 0 || r->step >= r->config.warmup + r->config.steps ? end_async(r, e) : HDO_OK;
}
