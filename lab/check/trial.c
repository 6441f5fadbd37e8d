/* SPDX-License-Identifier: Apache-2.0
 *
 * The trial of `hdo check`: the population itself, for a few dozen steps. Ranges of single settings at the starting
 * point cannot know what label skew, averaging and growing curvature make of them; a short run can.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lab/check/lab.h"
#include "run/run_internal.h"

enum { WARMUP_MOST = 20, EVERY = 10, SAMPLES = 200 };

/* As configured, but: in this process, with a short warm-up (the full rate must be seen), few validation samples. */
static void prepare(hdo_config *c, double time_s) {
    static const char *const fixed[] = {"synthetic", "mnist", "cifar10", "brackets"};
    hdo_config_as_base(c);
    c->engine.id = HDO_ENGINE_SIM;
    c->mpi.async = false;
    if (c->warmup > WARMUP_MOST) c->warmup = WARMUP_MOST;
    c->eval.every = EVERY;
    c->eval.mean_model = c->eval.consensus = c->eval.trace = false;
    c->stop.loss = c->stop.accuracy = 0.0;
    c->stop.time_s = time_s;
    for (size_t k = 0; k < sizeof fixed / sizeof *fixed;
         k++) { /* elsewhere data.val says what is held out of training */
        bool same = strcmp(c->data.name, fixed[k]) == 0;
        if (same && (c->data.val == 0 || c->data.val > SAMPLES)) c->data.val = SAMPLES;
    }
}

static void judge(const hdo_run *r, hdo_check_result *out) {
    hdo_check_trial *t = &out->trial;
    const hdo_fate *f = &r->record.fate;
    double usual = r->problem.objective->usual_loss;
    if (t->diverged && f->what != HDO_FATE_NONE) {
        int k = hdo__population_class(&r->population, f->first);
        t->cls = k;
        t->node = f->first;
        t->step = f->step_of_first.steps > 0 ? (int64_t)f->step_of_first.steps - 1 : 0;
        hdo__check_note(
            out, HDO_CHECK_PROBLEM, k,
            "Tried for %lld steps: the population diverged. Node %d of class '%s' went first, in step %lld, "
            "with lr %.3g and |G| %.3g. Lower its lr%s.",
            (long long)t->steps, f->first, r->config.population[k].name, (long long)t->step,
            hdo__schedule_lr(&r->population.classes[k].schedule, t->step), f->step_of_first.g,
            r->population.classes[k].estimator.ops->zeroth ? " or raise its rv" : "");
    } else if (t->diverged) {
        hdo__check_note(out, HDO_CHECK_PROBLEM, -1, "Tried for %lld steps: the population diverged.",
                        (long long)t->steps);
    } else if (t->loss_end > t->loss_start + 0.5 * fmax(fabs(t->loss_start), usual)) {
        hdo__check_note(
            out, HDO_CHECK_ADVICE, -1,
            "Tried for %lld steps: the mean loss rose from %.4g to %.4g. A smaller lr, or a longer warm-up.",
            (long long)t->steps, t->loss_start, t->loss_end);
    }
}

hdo_status hdo_check_try(const hdo_config *config, const hdo_check_options *options, hdo_check_result *out,
                         hdo_error *e) {
    hdo_check_options o = options != NULL ? *options : hdo_check_default();
    hdo_check_trial *t = &out->trial;
    *t = (hdo_check_trial){.cls = -1, .node = -1, .loss_start = (double)NAN, .loss_end = (double)NAN};
    if (o.try_steps < 1) return HDO_OK;
    hdo_config *c = hdo__alloc(sizeof *c);
    if (c == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the trial");
    *c = *config;
    prepare(c, o.try_s);
    double start = hdo__now_s();
    hdo_run *r = NULL;
    hdo_stop why = HDO_RUNNING;
    hdo_status st = hdo_run_create(&r, c, NULL, e);
    hdo__free(c);
    if (st == HDO_OK) st = hdo_run_advance(r, o.try_steps, &why, e);
    if (st == HDO_OK && why == HDO_RUNNING) st = hdo_run_stop(r, e); /* evaluates once more */
    if (st == HDO_OK) {
        t->steps = hdo_run_step(r);
        t->diverged = why == HDO_DIVERGED || hdo__record_judge(&r->record) == HDO_DIVERGED;
        t->loss_start = r->progress.start_loss;
        t->loss_end = r->record.row.all.loss_mean;
        judge(r, out);
    }
    t->time_s = hdo__now_s() - start;
    hdo_run_destroy(r);
    return st;
}
