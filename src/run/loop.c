/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: a step of the engine, and when they are due a row of figures, a checkpoint, the end.
 */
#include <stdio.h>

#include "base/clock.h"
#include "run/run_internal.h"

static hdo_status judge(hdo_run *r, hdo_error *e) {
    if (r->progress.stop == HDO_RUNNING) r->progress.stop = hdo__record_judge(&r->record);
    if (r->progress.stop == HDO_RUNNING && r->progress.step >= r->config.warmup + r->config.steps)
        r->progress.stop = HDO_COMPLETED;
    return hdo__fate_row(&r->record, e);
}

/* A checkpoint by steps or by time. A diverged run keeps its last good one. */
static hdo_status save_if_due(hdo_run *r, hdo_error *e) {
    const hdo_checkpoint_config *c = &r->config.checkpoint;
    if (r->record.dir[0] == '\0' || r->progress.stop == HDO_DIVERGED) return HDO_OK;
    bool by_step = c->every > 0 && r->progress.step % c->every == 0 && r->progress.step != r->record.saved_step;
    bool asked = (r->progress.said & HDO_SAY_SAVE) != 0; /* by the clock or by the caller, on any rank */
    return by_step || asked ? hdo__record_save(&r->record, e) : HDO_OK;
}

/* All ranks together, or where they do not wait for each other each for itself. */
static hdo_status evaluate(hdo_run *r, hdo_error *e) {
    const hdo_engine_ops *ops = r->engine->ops;
    if (ops->evaluate != NULL && ops->evaluate(r->engine)) return HDO_OK;
    hdo_status st = hdo__record_evaluate(&r->record, e);
    return st == HDO_OK ? judge(r, e) : st;
}

/* A step, and what is due after it. */
static hdo_status advance(hdo_run *r, hdo_error *e) {
    hdo_record *k = &r->record;
    const hdo_engine_ops *ops = r->engine->ops;
    int64_t before = r->progress.step;
    double t0 = hdo__now_s();
    hdo_status st = HDO_OK;
    if (hdo__population_wants_tuning(&r->population, before)) st = r->hooks.tune(r, e);
    if (st == HDO_OK) st = ops->step(r->engine, e);
    double spent = hdo__now_s() - t0;
    r->progress.step_s += spent;
    hdo__population_timed(&r->population, spent);
    bool done = r->progress.step > before; /* not given up */
    if (st == HDO_OK && ops->together && done) st = hdo__record_trace(k, e);
    bool seen = !done && k->has_row && k->row.step == r->progress.step;
    if (st == HDO_OK && hdo__record_due(k) && !seen) st = evaluate(r, e);
    return st == HDO_OK && ops->together ? save_if_due(r, e) : st;
}

bool hdo__run_sound(const hdo_run *r, hdo_error *e) {
    if (r->failed.code != HDO_OK && e != NULL) *e = r->failed;
    return r->failed.code == HDO_OK;
}

/* A run that failed in the middle of a step is in no state to go on from. */
static hdo_status remember(hdo_run *r, hdo_status st, const hdo_error *e) {
    if (st == HDO_OK) return HDO_OK;
    r->failed.code = st;
    snprintf(r->failed.msg, sizeof r->failed.msg, "%s", e->msg[0] != '\0' ? e->msg : hdo_status_text(st));
    return st;
}

static hdo_status go_on(hdo_run *r, int64_t n_steps, hdo_error *e) {
    hdo_status st = HDO_OK;
    if (r->progress.stop == HDO_RUNNING && !r->record.has_row) st = evaluate(r, e);
    for (int64_t k = 0; k < n_steps && r->progress.stop == HDO_RUNNING && st == HDO_OK; k++) st = advance(r, e);
    if (st == HDO_OK && r->progress.stop != HDO_RUNNING) st = hdo__record_conclude(&r->record, e);
    if (st == HDO_E_IO) { /* a file that could not be written because its folder is gone: say that instead */
        hdo_error gone;
        if (hdo__record_dir_stands(&r->record, &gone) != HDO_OK && e != NULL) *e = gone;
    }
    return st;
}

hdo_status hdo__run_go_on(hdo_run *r, hdo_error *e) {
    hdo_error own = {0};
    hdo_status st;
    int64_t before;
    if (!hdo__run_sound(r, e)) return r->failed.code;
    do {
        before = r->progress.step;
        st = remember(r, go_on(r, 1, &own), &own);
    } while (st == HDO_OK && r->progress.stop == HDO_RUNNING && r->progress.step > before);
    if (st != HDO_OK && e != NULL) *e = own;
    return st;
}

hdo_status hdo_run_advance(hdo_run *r, int64_t n_steps, hdo_stop *why, hdo_error *e) {
    hdo_error own = {0};
    hdo_status st = hdo__run_enter(r, "hdo_run_advance", e);
    if (st != HDO_OK) return st;
    if (!hdo__run_sound(r, e)) return hdo__run_leave(r, r->failed.code);
    if (r->population.told)
        return hdo__run_leave(r, hdo__fail(e, HDO_E_MISUSE,
                                           "objective '%s' has no callbacks, so this run cannot go on by itself: use "
                                           "hdo_ask and hdo_tell",
                                           r->problem.objective->model));
    st = remember(r, go_on(r, n_steps, &own), &own);
    if (st != HDO_OK && e != NULL) *e = own;
    if (why != NULL) *why = r->progress.stop;
    return hdo__run_leave(r, st);
}

static hdo_status end_early(hdo_run *r, hdo_error *e) {
    if (r->progress.stop != HDO_RUNNING) return HDO_OK;
    r->progress.stop = HDO_STOPPED;
    const hdo_engine_ops *ops = r->engine->ops;
    bool seen = r->record.has_row && r->record.row.step == r->progress.step;
    bool own = !seen && ops->evaluate != NULL && ops->evaluate(r->engine); /* without the others */
    hdo_status st = seen || own ? HDO_OK : hdo__record_evaluate(&r->record, e);
    return st == HDO_OK ? hdo__record_conclude(&r->record, e) : st;
}

hdo_status hdo_run_stop(hdo_run *r, hdo_error *e) {
    hdo_error own = {0};
    hdo_status st = hdo__run_enter(r, "hdo_run_stop", e);
    if (st != HDO_OK) return st;
    if (!hdo__run_sound(r, e)) return hdo__run_leave(r, r->failed.code);
    st = remember(r, end_early(r, &own), &own);
    if (st != HDO_OK && e != NULL) *e = own;
    return hdo__run_leave(r, st);
}
