/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of figures: a row is completed with counts and times, goes to sinks and hooks, and is judged. Also the trace: a
 * line after every step with what the theory speaks about.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "hdo/experimental/number.h"
#include "record/record.h"

hdo_status hdo__record_put_row(hdo_record *r, hdo_error *e) {
    hdo_status st = HDO_OK;
    r->has_row = true;
    r->row.class_name = (const char(*)[HDO_NAME_MAX])r->class_name;
    if (r->lock_fd >= 0) st = hdo__record_dir_stands(r, e);
    for (int k = 0; k < r->n_sinks && st == HDO_OK; k++) st = r->sinks[k]->ops->row(r->sinks[k], &r->row, e);
    if (r->hooks->row != NULL && r->transport->rank == 0) r->hooks->row(r->hooks->ctx, &r->row);
    return st;
}

/* The mean loss above which a run has diverged. Relative to the start F_0: F_0 + k max(|F_0|, usual), where `usual` is
 * a loss nobody would wonder at on this problem. It counts when a run starts near or at the optimum, where F_0 is small
 * or 0 and noise alone lifts the loss by many times that. */
double hdo__record_loss_limit(const hdo_record *r) {
    const hdo_choice *c = &r->config->stop.diverged;
    if (c->id == HDO_NUMBER) return c->arg;
    double start = r->progress->start_loss, usual = r->problem->objective->usual_loss;
    return isfinite(start) ? start + c->arg * fmax(fabs(start), usual) : (double)INFINITY;
}

hdo_stop hdo__record_judge(const hdo_record *r) {
    const hdo_stop_config *s = &r->config->stop;
    const hdo_group *all = &r->row.all;
    if (r->metrics->unknown == r->population->n) return HDO_RUNNING; /* nothing is known */
    if (!isfinite(all->loss_mean) || all->loss_mean > hdo__record_loss_limit(r)) return HDO_DIVERGED;
    bool reached = (s->loss > 0.0 && all->loss_mean <= s->loss) || (s->accuracy > 0.0 && all->acc_mean >= s->accuracy);
    return reached ? HDO_TARGET : HDO_RUNNING;
}

/* trace.jsonl: what the theory speaks about, after every step. */
hdo_status hdo__record_trace(hdo_record *r, hdo_error *e) {
    char line[256], gamma[HDO_NUMBER_MAX], mg[HDO_NUMBER_MAX], loss[HDO_NUMBER_MAX];
    double distance;
    if (!r->config->eval.trace || r->dir[0] == '\0') return HDO_OK;
    hdo_status st = hdo__population_mean(r->population, &distance, e);
    if (st != HDO_OK) return st;
    int n = snprintf(line, sizeof line,
                     "{\"step\": %lld, \"consensus/gamma\": %s, \"consensus/mg\": %s, \"train/loss\": %s}\n",
                     (long long)r->progress->step, hdo_json_number(distance, gamma),
                     hdo_json_number(r->progress->mg, mg), hdo_json_number(r->progress->train_loss, loss));
    if (r->trace.fd >= 0) st = hdo__linelog_put(&r->trace, r->progress->step, line, (size_t)n, e);
    return hdo__transport_settle(r->transport, st, e);
}

/* ---- evaluation ---- */

hdo_status hdo__record_evaluate(hdo_record *r, hdo_error *e) {
    double t0 = hdo__now_s();
    hdo_row *row = &r->row;
    hdo_status st = hdo__metrics_evaluate(r->metrics, row, e);
    if (st != HDO_OK) return st;
    r->progress->eval_s += hdo__now_s() - t0;
    if (r->progress->step == 0 || (r->population->told && isnan(r->progress->start_loss)))
        r->progress->start_loss = row->all.loss_mean;
    row->step = r->progress->step;
    row->interactions = r->progress->counts.interactions;
    row->parallel_time = r->population->mixer.ops->all_step
                             ? (double)r->progress->step
                             : (double)r->progress->counts.interactions / (double)r->population->n;
    row->train_loss = r->progress->step > 0 ? r->progress->train_loss : (double)NAN;
    row->mg = r->progress->step > 0 ? r->progress->mg : (double)NAN;
    memcpy(row->lr, r->population->lr, sizeof row->lr);
    row->forward = r->progress->counts.forward;
    row->backward = r->progress->counts.backward;
    row->jvp = r->progress->counts.jvp;
    row->cost = r->progress->counts.cost;
    row->failed = r->progress->counts.failed;
    row->bytes = r->progress->counts.bytes;
    row->present = r->population->n;
    row->sim_s = 0.0;
    for (int i = 0; i < r->population->n; i++) {
        if (hdo__churn_away(&r->population->churn, r->progress->step, i)) row->present--;
        if (r->population->clock_s != NULL) row->sim_s = fmax(row->sim_s, r->population->clock_s[i]);
    }
    row->y_loss = (double)NAN;
    if (r->population->y != NULL && r->progress->step > 0 && r->transport->rank == 0) {
        st = hdo__metrics_one(r->metrics, r->population->y, &row->y_loss);
        if (st != HDO_OK) hdo__problem_fail(r->problem, st, e, "evaluation failed: %s", hdo_status_text(st));
    }
    row->wall_s = hdo__now_s() - r->progress->start_s;
    row->step_s = r->progress->step_s;
    row->eval_s = r->progress->eval_s;
    if (st == HDO_OK) st = hdo__record_put_row(r, e);
    return hdo__transport_settle(r->transport, st, e);
}

bool hdo__record_due(const hdo_record *r) {
    int64_t total = r->config->warmup + r->config->steps;
    bool last = r->progress->step >= total || r->progress->stop != HDO_RUNNING;
    return last || r->progress->step == 0 ||
           (r->config->eval.every > 0 && r->progress->step % r->config->eval.every == 0);
}

/* ---- rows in memory ---- */

hdo_status hdo__record_keep_rows(hdo_record *r, hdo_error *e) {
    size_t count;
    if (hdo__record_rows(r, &count) != NULL) return HDO_OK;
    if (r->n_sinks == HDO_SINKS_MAX)
        return hdo__fail(e, HDO_E_FAILED, "a run writes to at most %d places", HDO_SINKS_MAX);
    hdo_status st = hdo__sink_memory_create(&r->sinks[r->n_sinks], e);
    if (st == HDO_OK) r->n_sinks++;
    return st;
}

const hdo_row *hdo__record_rows(const hdo_record *r, size_t *count) {
    *count = 0;
    for (int k = 0; k < r->n_sinks; k++) {
        const hdo_row *rows = hdo__sink_memory_rows(r->sinks[k], count);
        if (rows != NULL) return rows;
    }
    return NULL;
}
