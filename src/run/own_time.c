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
    while (hdo__async_row(r->async, &r->record.row)) {
        hdo_row *row = &r->record.row;
        row->parallel_time = (double)row->step;
        for (int k = 0; k < r->population.n_classes; k++)
            row->lr[k] = hdo__schedule_lr(&r->population.classes[k].schedule, row->step - 1);
        row->present = r->population.n;
        row->wall_s -= r->progress.start_s;
        row->step_s = r->progress.step_s;
        row->eval_s = r->progress.eval_s;
        unsigned say = hdo__record_put_row(&r->record, &ignored) == HDO_OK ? 0 : HDO_SAY_STOP;
        hdo_stop why = hdo__record_judge(&r->record);
        if (why != HDO_RUNNING) say |= why == HDO_TARGET ? HDO_SAY_TARGET : HDO_SAY_NOT_FINITE;
        if (say != 0) hdo__async_say(r->async, say);
    }
}

/* This rank's nodes, at its own step. The others may change them meanwhile: a copy is evaluated. */
void hdo__run_evaluate_own(hdo_run *r) {
    double t0 = hdo__now_s();
    hdo_models copy = r->population.models;
    copy.X = r->seen;
    for (int i = 0; i < copy.count; i++)
        hdo__async_read(r->async, i, r->problem.objective->d + r->problem.objective->n_buf,
                        r->seen + (size_t)i * copy.ld);
    hdo_async_part p = {.step = r->progress.step,
                        .train_loss = r->progress.train_loss,
                        .mg = r->progress.mg,
                        .counts = r->progress.counts};
    hdo_status st = hdo__metrics_local(&r->metrics, &copy, &p.nodes);
    if (st == HDO_OK) {
        hdo__async_report(r->async, &p);
    } else {
        hdo__log(&r->log, HDO_LOG_WARN, "evaluation failed: %s", hdo_status_text(st));
        hdo__async_say(r->async, HDO_SAY_NOT_FINITE);
    }
    r->progress.eval_s += hdo__now_s() - t0;
}

_Static_assert(sizeof(hdo_counts) == HDO_COUNTS * sizeof(int64_t), "counts travel as numbers");

static void own_counts(hdo_run *r, double c[HDO_COUNTS], bool put) {
    int64_t count[HDO_COUNTS];
    memcpy(count, &r->progress.counts, sizeof count);
    for (int k = 0; k < HDO_COUNTS; k++) {
        if (put) count[k] = (int64_t)c[k];
        if (!put) c[k] = (double)count[k];
    }
    memcpy(&r->progress.counts, count, sizeof count);
}

/* The end of an asynchronous run: everybody waits for everybody, once; counts become those of all ranks. */
static hdo_status end_async(hdo_run *r, hdo_error *e) {
    unsigned say = 0;
    own_counts(r, r->drifted.counts, false);
    r->drifted.step_s_min = r->progress.step_s / (double)(r->progress.step > 0 ? r->progress.step : 1);
    r->drifted.loss_sum = r->progress.train_loss * (double)r->population.n_own;
    r->drifted.mg_sum = r->progress.mg * (double)r->population.n_own;
    hdo_status st = hdo__async_finish(r->async, &say, &r->drifted, e);
    if (st != HDO_OK) return st;
    r->progress.train_loss = r->drifted.loss_sum / (double)r->population.n;
    r->progress.mg = r->drifted.mg_sum / (double)r->population.n;
    take_rows(r); /* those that were completed while this rank waited */
    own_counts(r, r->drifted.counts, true);
    r->progress.counts.interactions += (int64_t)r->drifted.exchanges;
    r->progress.counts.bytes += 2 * (int64_t)r->drifted.exchanges * (int64_t)(r->population.models.len * sizeof(float));
    r->progress.said = say;
    if ((say & HDO_SAY_NOT_FINITE) != 0) {
        r->progress.stop = HDO_DIVERGED;
    } else if ((say & HDO_SAY_TARGET) != 0) {
        r->progress.stop = HDO_TARGET;
    } else if ((say & HDO_SAY_STOP) != 0) {
        r->progress.stop = HDO_STOPPED;
    } else if ((say & HDO_SAY_TIMEOUT) != 0) {
        r->progress.stop = HDO_TIMEOUT;
    }
    hdo__async_destroy(r->async);
    r->async = NULL;
    return HDO_OK;
}

/* An estimate at a copy of the model, because others may change it meanwhile; the move while nobody else does. */
static void local_step(void *ctx, int node, hdo_work *w) {
    hdo_run *r = ctx;
    hdo_population *p = &r->population;
    size_t mark = hdo__arena_mark(w->arena), d = r->problem.objective->d, len = d + r->problem.objective->n_buf;
    float *g = hdo__arena_floats(w->arena, len), *copy = hdo__arena_floats(w->arena, len);
    bool checked = hdo__async_checked(r->async);
    int i = node - p->models.first;
    hdo__async_read(r->async, i, len, copy);
    hdo__node_estimate(p, r->progress.step, node, copy, w, g);
    const float *x = hdo__async_lock(r->async, i);
    if (checked) memcpy(copy, x, d * sizeof(float));
    hdo__node_move(p, node, g, w);
    hdo__async_unlock(r->async, i, checked ? copy : NULL);
    hdo__arena_rewind(w->arena, mark);
}

/* A step of this rank's nodes, in its own time (mpi.async). */
hdo_status hdo__run_own_step(hdo_run *r, hdo_error *e) {
    hdo_plan plan;
    hdo_status st = HDO_OK;
    if (r->async == NULL) {
        const float *x0 = r->progress.step == 0 ? r->start : NULL;
        if (x0 != NULL) memcpy(r->start, r->population.models.X, r->population.models.ld * sizeof(float));
        hdo_async_setup s = {.deadline_s = r->config.mpi.deadline_s,
                             .x0 = x0,
                             .d = r->problem.objective->d,
                             .eval_every = r->config.eval.every,
                             .steps = r->config.warmup + r->config.steps};
        st = hdo__async_create(&r->async, r->transport, &r->population.models, &s, e);
        if (st != HDO_OK) return st;
    }
    hdo__population_meet(&r->population, r->progress.step, &plan);
    hdo__population_set_rates(&r->population, r->progress.step);
    hdo__population_each(&r->population, local_step, r);
    memcpy(r->population.active, r->population.own,
           (size_t)r->population.n_own * sizeof(int32_t)); /* figures are of this rank's nodes */
    r->population.n_active = r->population.n_own;
    bool finite = hdo__population_collect(&r->population, &r->progress, &st);
    int pairs = hdo__async_mix(r->async, &plan, r->progress.step);
    r->progress.counts.interactions += pairs;
    r->progress.counts.bytes += 2 * (int64_t)pairs * (int64_t)(r->population.models.len * sizeof(float));
    r->progress.step++;
    if (st != HDO_OK)
        hdo__log(&r->log, HDO_LOG_WARN, "the objective failed in step %lld: %s", (long long)r->progress.step,
                 hdo_status_text(st));
    take_rows(r);
    unsigned say = hdo__run_opinion(r) & ~(unsigned)HDO_SAY_SAVE;
    say = hdo__async_say(r->async, say | (finite && st == HDO_OK ? 0 : HDO_SAY_NOT_FINITE));
    return say != 0 || r->progress.step >= r->config.warmup + r->config.steps ? end_async(r, e) : HDO_OK;
}

void hdo__run_put_async(void *stats, hdo_json *j) {
    const hdo_async_stats *s = stats;
    double n = s->exchanges > 0.0 ? s->exchanges : 1.0;
    hdo__json_object(j, "async");
    hdo__json_int(j, "exchanges", (int64_t)s->exchanges);
    hdo__json_int(j, "missed", (int64_t)s->missed);
    hdo__json_real(j, "stale_steps_mean", s->stale_sum / n);
    hdo__json_real(j, "stale_steps_max", s->stale_max);
    hdo__json_real(j, "gap_steps_mean", s->gap_sum / n);
    hdo__json_real(j, "gap_steps_max", s->gap_max);
    hdo__json_real(j, "step_s_fastest", s->step_s_min);
    hdo__json_real(j, "step_s_slowest", s->step_s_max);
    hdo__json_real(j, "mean_residual", s->residual); /* how far the mean is from start + updates; eval.trace */
    hdo__json_end(j, '}');
}
