/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of this rank in its own time (mpi.async): its nodes step, average with whoever is there (async.c), and are
 * evaluated at their own step; rank 0 puts the rows of figures together as their parts come in. Nobody waits for
 * anybody before the end.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "engine/async.h"
#include "engine/engine.h"

typedef struct async_engine {
    hdo_engine base;
    hdo_async *talk;       /* NULL before the first step and after the last */
    hdo_async_stats stats; /* at the end */
    float *start;          /* (ld): the common start, kept for the check of the mean; NULL unless checked */
    hdo_error failed;      /* code not 0: the objective failed here */
    float *seen;           /* (count, ld): models as they are evaluated while others change them; NULL without curves */
} async_engine;

/* Rank 0: rows that have become complete. What they mean for the run, or that they cannot be written, is said to all:
 * the evaluation at the end then fails for everybody, with one message. */
static void take_rows(async_engine *g) {
    hdo_record *record = g->base.record;
    const hdo_population *p = g->base.population;
    hdo_error ignored;
    while (hdo__async_row(g->talk, &record->row)) {
        hdo_row *row = &record->row;
        row->parallel_time = (double)row->step;
        for (int k = 0; k < p->n_classes; k++) row->lr[k] = hdo__schedule_lr(&p->classes[k].schedule, row->step - 1);
        row->present = p->n;
        row->wall_s -= g->base.progress->start_s;
        row->step_s = g->base.progress->step_s;
        row->eval_s = g->base.progress->eval_s;
        unsigned say = hdo__record_put_row(record, &ignored) == HDO_OK ? 0 : HDO_SAY_STOP;
        hdo_stop why = hdo__record_judge(record);
        if (why != HDO_RUNNING) say |= why == HDO_TARGET ? HDO_SAY_TARGET : HDO_SAY_NOT_FINITE;
        if (say != 0) hdo__async_say(g->talk, say);
    }
}

/* This rank's nodes, at its own step. The others may change them meanwhile: a copy is evaluated. */
static bool async_evaluate(hdo_engine *base) {
    async_engine *g = (async_engine *)base;
    if (g->talk == NULL) return false; /* nobody steps: all together */
    double t0 = hdo__now_s();
    hdo_models copy = g->base.population->models;
    copy.X = g->seen;
    for (int i = 0; i < copy.count; i++)
        hdo__async_read(g->talk, i, g->base.problem->objective->d + g->base.problem->objective->n_buf,
                        g->seen + (size_t)i * copy.ld);
    hdo_async_part p = {.step = g->base.progress->step,
                        .train_loss = g->base.progress->train_loss,
                        .mg = g->base.progress->mg,
                        .counts = g->base.progress->counts};
    hdo_status st = hdo__metrics_local(g->base.metrics, &copy, &p.nodes);
    if (st == HDO_OK) {
        hdo__async_report(g->talk, &p);
    } else {
        hdo__problem_fail(g->base.problem, st, &g->failed, "evaluation failed: %s", hdo_status_text(st));
        hdo__async_say(g->talk, HDO_SAY_NOT_FINITE);
    }
    g->base.progress->eval_s += hdo__now_s() - t0;
    return true;
}

_Static_assert(sizeof(hdo_counts) == HDO_COUNTS * sizeof(int64_t), "counts travel as numbers");

static void counts_to_reals(const hdo_counts *counts, double real[HDO_COUNTS]) {
    int64_t whole[HDO_COUNTS];
    memcpy(whole, counts, sizeof whole);
    for (int k = 0; k < HDO_COUNTS; k++) real[k] = (double)whole[k];
}

static void counts_from_reals(hdo_counts *counts, const double real[HDO_COUNTS]) {
    int64_t whole[HDO_COUNTS] = {0};
    for (int k = 0; k < HDO_COUNTS; k++) whole[k] = (int64_t)real[k];
    memcpy(counts, whole, sizeof whole);
}

static void farthest(void *ctx, void *v, size_t first, size_t count) {
    const int64_t *own = ctx;
    int64_t *step = v;
    (void)first;
    (void)count;
    if (*own > *step) *step = *own;
}

/* The end of an asynchronous run: everybody waits for everybody, once; counts become those of all ranks, and the run is
 * as far as its farthest rank: all of them write one checkpoint. */
static hdo_status end_async(async_engine *g, hdo_error *e) {
    hdo_progress *now = g->base.progress;
    const hdo_population *p = g->base.population;
    unsigned say = 0;
    counts_to_reals(&now->counts, g->stats.counts);
    g->stats.step_s_min = now->step_s / (double)(now->step > 0 ? now->step : 1);
    g->stats.loss_sum = now->train_loss * (double)p->n_own;
    g->stats.mg_sum = now->mg * (double)p->n_own;
    int64_t own = now->step;
    hdo_status st = hdo__async_finish(g->talk, &say, &g->stats, e);
    if (st == HDO_OK) { /* whose objective failed says why, and all ranks hear it */
        if (g->failed.code != HDO_OK && e != NULL) *e = g->failed;
        st = hdo__transport_settle(g->base.transport, g->failed.code, e);
    }
    if (st == HDO_OK) {
        now->step = 0;
        st = g->base.transport->ops->relay(g->base.transport, &now->step, sizeof now->step, 1, farthest, &own, e);
    }
    if (st == HDO_OK) st = hdo__fate_join(g->base.record, e);
    if (st != HDO_OK) return st;
    now->train_loss = g->stats.loss_sum / (double)p->n;
    now->mg = g->stats.mg_sum / (double)p->n;
    take_rows(g); /* those that were completed while this rank waited */
    counts_from_reals(&now->counts, g->stats.counts);
    now->counts.interactions += (int64_t)g->stats.exchanges;
    now->counts.bytes += 2 * (int64_t)g->stats.exchanges * (int64_t)(p->models.len * sizeof(float));
    now->said = say;
    if ((say & HDO_SAY_NOT_FINITE) != 0) {
        now->stop = HDO_DIVERGED;
    } else if ((say & HDO_SAY_TARGET) != 0) {
        now->stop = HDO_TARGET;
    } else if ((say & HDO_SAY_STOP) != 0) {
        now->stop = HDO_STOPPED;
    } else if ((say & HDO_SAY_TIMEOUT) != 0) {
        now->stop = HDO_TIMEOUT;
    }
    hdo__async_destroy(g->talk);
    g->talk = NULL;
    return HDO_OK;
}

/* An estimate at a copy of the model, because others may change it meanwhile; the move while nobody else does. */
static void local_step(void *ctx, int node, hdo_work *w) {
    async_engine *g = ctx;
    hdo_population *p = g->base.population;
    const hdo_objective *f = g->base.problem->objective;
    size_t mark = hdo__arena_mark(w->arena), len = f->d + f->n_buf;
    float *estimate = hdo__arena_floats(w->arena, len), *copy = hdo__arena_floats(w->arena, len);
    bool checked = hdo__async_checked(g->talk);
    int i = node - p->models.first;
    hdo__async_read(g->talk, i, len, copy);
    hdo__node_estimate(p, g->base.progress->step, node, copy, w, estimate);
    const float *x = hdo__async_lock(g->talk, i);
    if (checked) memcpy(copy, x, f->d * sizeof(float));
    hdo__node_move(p, node, estimate, w);
    hdo__async_unlock(g->talk, i, checked ? copy : NULL);
    hdo__arena_rewind(w->arena, mark);
}

/* Before the first step of this process: the thread that talks to the others starts. */
static hdo_status begin_talk(async_engine *g, hdo_error *e) {
    const hdo_config *c = g->base.config;
    hdo_models *models = &g->base.population->models;
    bool checked = g->start != NULL && g->base.progress->step == 0;
    if (checked) memcpy(g->start, models->X, models->ld * sizeof(float));
    hdo_async_setup s = {.deadline_s = c->mpi.deadline_s,
                         .x0 = checked ? g->start : NULL,
                         .d = g->base.problem->objective->d,
                         .eval_every = c->eval.every,
                         .steps = c->warmup + c->steps};
    return hdo__async_create(&g->talk, g->base.transport, models, &s, e);
}

/* Which of this rank's nodes was lost first, for `hdo explain`. */
static void look_for_lost(async_engine *g, const hdo_plan *plan) {
    hdo_record *r = g->base.record;
    if (!hdo__fate_own(r, plan)) return;
    int i = r->fate.first - g->base.population->models.first;
    const float *x = hdo__async_lock(g->talk, i);
    r->fate.x_norm = sqrt(hdo__sumsq(g->base.problem->objective->d, x));
    hdo__async_unlock(g->talk, i, NULL);
}

/* A step of this rank's nodes, in its own time. */
static hdo_status async_step(hdo_engine *base, hdo_error *e) {
    async_engine *g = (async_engine *)base;
    hdo_population *p = base->population;
    hdo_progress *now = base->progress;
    hdo_plan plan;
    hdo_status st = g->talk == NULL ? begin_talk(g, e) : HDO_OK;
    if (st != HDO_OK) return st;

    hdo__population_meet(p, now->step, &plan); /* who meets: the synchronous plan of this rank's step */
    st = hdo__mixer_sound(&p->mixer, e);
    if (st != HDO_OK) return st;
    hdo__population_set_rates(p, now->step);
    hdo__population_each(p, local_step, g);                /* the own nodes step */
    int pairs = hdo__async_mix(g->talk, &plan, now->step); /* and average: here at once, elsewhere by an offer */
    now->counts.interactions += pairs;
    now->counts.bytes += 2 * (int64_t)pairs * (int64_t)(p->models.len * sizeof(float));

    memcpy(p->active, p->own, (size_t)p->n_own * sizeof(int32_t)); /* figures are of this rank's nodes */
    p->n_active = p->n_own;
    int64_t before = now->counts.failed;
    bool finite = hdo__population_collect(p, now, &st);
    if (st == HDO_OK) look_for_lost(g, &plan);
    if (st == HDO_OK) hdo__engine_say_skips(base, before);
    now->step++;
    if (st != HDO_OK)
        hdo__problem_fail(base->problem, st, &g->failed, "the objective failed in step %lld: %s", (long long)now->step,
                          hdo_status_text(st));
    take_rows(g);
    unsigned say = hdo__engine_opinion(base) & ~(unsigned)HDO_SAY_SAVE;
    say = hdo__async_say(g->talk, say | (finite && st == HDO_OK ? 0 : HDO_SAY_NOT_FINITE));
    bool over = say != 0 || now->step >= base->config->warmup + base->config->steps;
    return over ? end_async(g, e) : HDO_OK;
}

static void async_put(void *engine, hdo_json *j) {
    const hdo_async_stats *s = &((const async_engine *)engine)->stats;
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

/* ---- the table ---- */

static bool async_fits(const hdo_engine *parts) {
    return parts->config->mpi.async && parts->transport->ranks > 1;
}

static bool has_curve(const hdo_engine *g) {
    return g->config->eval.every > 0;
}

static size_t async_state_bytes(const hdo_engine *parts) {
    return has_curve(parts) ? hdo__population_cells(parts->population) * sizeof(float) : 0;
}

static void async_destroy(hdo_engine *base) {
    async_engine *g = (async_engine *)base;
    hdo__async_destroy(g->talk);
    hdo__free(g->start);
    hdo__free(g->seen);
    hdo__free(g);
}

static hdo_status async_create(hdo_engine **out, const hdo_engine *parts, hdo_error *e) {
    async_engine *g = hdo__alloc(sizeof *g);
    *out = NULL;
    if (g == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the engine");
    g->base = *parts;
    bool checked = parts->config->eval.trace;
    if (checked) g->start = hdo__alloc(parts->population->models.ld * sizeof(float));
    if (has_curve(parts)) g->seen = hdo__alloc(async_state_bytes(parts));
    if ((checked && g->start == NULL) || (has_curve(parts) && g->seen == NULL)) {
        async_destroy(&g->base);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for copies of the models");
    }
    *out = &g->base;
    return HDO_OK;
}

const hdo_engine_ops hdo__engine_async = {.name = "async",
                                          .together = false,
                                          .fits = async_fits,
                                          .state_bytes = async_state_bytes,
                                          .create = async_create,
                                          .destroy = async_destroy,
                                          .step = async_step,
                                          .evaluate = async_evaluate,
                                          .put = async_put};
