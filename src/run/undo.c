/* SPDX-License-Identifier: Apache-2.0
 *
 * Giving up a step. A step of very many directions may take minutes, and a signal must not wait for it. So where steps
 * are long the state before the step is kept; estimators ask between chunks of directions whether to go on
 * (hdo_hooks.hurry), and when one gave up, all ranks go back to that state, which is then saved. Resumed, the step is
 * done again: the same bits.
 */
#include <string.h>

#include "base/arena.h"
#include "run/run_internal.h"

/* Numbers of all directions of a step: 10 ms to draw them, and more to use them. With fewer directions a node than that
 * a step is a few passes over the model, and keeping the state would be felt. */
#define LONG_STEP 1e7
#define MANY_DIRECTIONS 64.0

static double directions_of(const hdo_class *c, size_t d) {
    const hdo_estimator *s = &c->estimator;
    if (!s->ops->zeroth || s->ops == &hdo__est_forward_law) return 1.0; /* one pass, whatever rv */
    if (s->ops->axes) return s->coords > 0 ? (double)s->coords : (double)d;
    return (double)s->rv;
}

/* The same answer on all ranks: they go back together. */
bool hdo__run_steps_are_long(const hdo_run *r) {
    double numbers = 0.0;
    for (int k = 0; k < r->population.n_classes; k++) {
        double directions = directions_of(&r->population.classes[k], r->problem.objective->d);
        if (directions < MANY_DIRECTIONS) continue;
        numbers += (double)r->population.classes[k].count * directions * (double)r->problem.objective->d;
    }
    return r->hooks.hurry != NULL && !r->config.mpi.async && numbers >= LONG_STEP;
}

static size_t cells(const hdo_run *r) {
    return (size_t)r->population.models.count * r->population.models.ld;
}

hdo_status hdo__undo_init(hdo_run *r) {
    hdo_undo *u = &r->undo;
    if (!hdo__run_steps_are_long(r)) return HDO_OK;
    u->X = hdo__alloc(cells(r) * sizeof(float));
    u->batches = hdo__alloc((size_t)r->population.models.count * sizeof(int64_t));
    u->away = hdo__alloc((size_t)r->population.n);
    if (r->population.momentum != NULL) u->momentum = hdo__alloc(cells(r) * sizeof(float));
    if (r->population.y != NULL) u->y = hdo__alloc(r->population.models.ld * sizeof(float));
    bool bad = u->X == NULL || u->batches == NULL || u->away == NULL ||
               (r->population.momentum != NULL && u->momentum == NULL) || (r->population.y != NULL && u->y == NULL);
    r->population.hurry = r->hooks.hurry;
    r->population.hurry_ctx = r->hooks.ctx;
    return bad ? HDO_E_MEMORY : HDO_OK;
}

void hdo__undo_clear(hdo_undo *u) {
    hdo__free(u->X);
    hdo__free(u->momentum);
    hdo__free(u->y);
    hdo__free(u->batches);
    hdo__free(u->away);
    *u = (hdo_undo){0};
}

typedef enum way { KEEP, BACK } way;

static void copy(way w, void *kept, void *state, size_t bytes) {
    if (state == NULL || kept == NULL) return;
    memcpy(w == KEEP ? kept : state, w == KEEP ? state : kept, bytes);
}

static void copy_all(hdo_run *r, way w) {
    hdo_undo *u = &r->undo;
    copy(w, u->X, r->population.models.X, cells(r) * sizeof(float));
    copy(w, u->momentum, r->population.momentum, cells(r) * sizeof(float));
    copy(w, u->y, r->population.y, r->population.models.ld * sizeof(float));
    copy(w, u->batches, r->population.batches, (size_t)r->population.models.count * sizeof(int64_t));
    copy(w, u->away, r->population.churn.away, (size_t)r->population.n);
    copy(w, u->lr, r->population.lr, sizeof r->population.lr);
    copy(w, &u->counts, &r->progress.counts, sizeof u->counts);
    for (int k = 0; k < r->population.n_classes; k++) {
        copy(w, &u->rate[k], &r->population.classes[k].schedule.lr, sizeof(double));
        copy(w, &u->noise[k], &r->population.classes[k].noise, sizeof(double));
    }
}

void hdo__undo_keep(hdo_run *r) {
    if (r->undo.X != NULL) copy_all(r, KEEP);
}

void hdo__undo_step(hdo_run *r) {
    copy_all(r, BACK);
    r->progress.stop = HDO_STOPPED;
    hdo__log(&r->log, HDO_LOG_INFO, "step %lld was given up: the state before it is kept", (long long)r->progress.step);
}
