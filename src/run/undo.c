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
    for (int k = 0; k < r->n_classes; k++) {
        double directions = directions_of(&r->classes[k], r->problem.objective->d);
        if (directions < MANY_DIRECTIONS) continue;
        numbers += (double)r->classes[k].count * directions * (double)r->problem.objective->d;
    }
    return r->hooks.hurry != NULL && !r->config.mpi.async && numbers >= LONG_STEP;
}

static size_t cells(const hdo_run *r) {
    return (size_t)r->rows.count * r->rows.ld;
}

hdo_status hdo__undo_init(hdo_run *r) {
    hdo_undo *u = &r->undo;
    if (!hdo__run_steps_are_long(r)) return HDO_OK;
    u->X = hdo__alloc(cells(r) * sizeof(float));
    u->batches = hdo__alloc((size_t)r->rows.count * sizeof(int64_t));
    u->away = hdo__alloc((size_t)r->mixer.n);
    if (r->momentum != NULL) u->momentum = hdo__alloc(cells(r) * sizeof(float));
    if (r->y != NULL) u->y = hdo__alloc(r->rows.ld * sizeof(float));
    bool bad = u->X == NULL || u->batches == NULL || u->away == NULL || (r->momentum != NULL && u->momentum == NULL) ||
               (r->y != NULL && u->y == NULL);
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
    int64_t *count[HDO_UNDO_COUNTS] = {&r->interactions, &r->bytes, &r->forward, &r->backward, &r->jvp, &r->cost};
    copy(w, u->X, r->rows.X, cells(r) * sizeof(float));
    copy(w, u->momentum, r->momentum, cells(r) * sizeof(float));
    copy(w, u->y, r->y, r->rows.ld * sizeof(float));
    copy(w, u->batches, r->batches, (size_t)r->rows.count * sizeof(int64_t));
    copy(w, u->away, r->churn.away, (size_t)r->mixer.n);
    copy(w, u->lr, r->lr, sizeof r->lr);
    for (int k = 0; k < HDO_UNDO_COUNTS; k++) copy(w, &u->count[k], count[k], sizeof(int64_t));
    for (int k = 0; k < r->n_classes; k++) {
        copy(w, &u->rate[k], &r->classes[k].schedule.lr, sizeof(double));
        copy(w, &u->noise[k], &r->classes[k].noise, sizeof(double));
    }
}

void hdo__undo_keep(hdo_run *r) {
    if (r->undo.X != NULL) copy_all(r, KEEP);
}

void hdo__undo_step(hdo_run *r) {
    copy_all(r, BACK);
    r->stop = HDO_STOPPED;
    hdo__run_log(r, HDO_LOG_INFO, "step %lld was given up: the state before it is kept", (long long)r->step);
}
