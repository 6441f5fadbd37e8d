/* SPDX-License-Identifier: Apache-2.0
 *
 * Giving up a step. A step of very many directions may take minutes, and a signal must not wait for it. So where steps
 * are long the state before the step is kept; estimators ask between chunks of directions whether to go on
 * (hdo_hooks.hurry), and when one gave up, all ranks go back to that state, which is then saved. Resumed, the step is
 * done again: the same bits.
 */
#include "engine/undo.h"

#include <string.h>

#include "base/arena.h"

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
bool hdo__steps_are_long(const hdo_population *p) {
    double numbers = 0.0, d = (double)p->problem->objective->d;
    for (int k = 0; k < p->n_classes; k++) {
        double directions = directions_of(&p->classes[k], p->problem->objective->d);
        if (directions >= MANY_DIRECTIONS) numbers += (double)p->classes[k].count * directions * d;
    }
    return numbers >= LONG_STEP;
}

hdo_status hdo__undo_init(hdo_undo *u, const hdo_population *p) {
    size_t models = hdo__population_cells(p) * sizeof(float);
    u->X = hdo__alloc(models);
    u->batches = hdo__alloc((size_t)p->models.count * sizeof(int64_t));
    u->away = hdo__alloc((size_t)p->n);
    if (p->momentum != NULL) u->momentum = hdo__alloc(models);
    if (p->y != NULL) u->y = hdo__alloc(p->models.ld * sizeof(float));
    bool bad = u->X == NULL || u->batches == NULL || u->away == NULL || (p->momentum != NULL && u->momentum == NULL) ||
               (p->y != NULL && u->y == NULL);
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

static void copy_all(hdo_undo *u, hdo_population *p, hdo_progress *now, way w) {
    size_t models = hdo__population_cells(p) * sizeof(float);
    copy(w, u->X, p->models.X, models);
    copy(w, u->momentum, p->momentum, models);
    copy(w, u->y, p->y, p->models.ld * sizeof(float));
    copy(w, u->batches, p->batches, (size_t)p->models.count * sizeof(int64_t));
    copy(w, u->away, p->churn.away, (size_t)p->n);
    copy(w, u->lr, p->lr, sizeof p->lr);
    copy(w, &u->counts, &now->counts, sizeof u->counts);
    for (int k = 0; k < p->n_classes; k++) {
        copy(w, &u->rate[k], &p->classes[k].schedule.lr, sizeof(double));
        copy(w, &u->noise[k], &p->classes[k].noise, sizeof(double));
    }
}

void hdo__undo_keep(hdo_undo *u, hdo_population *p, hdo_progress *now) {
    if (u->X != NULL) copy_all(u, p, now, KEEP);
}

void hdo__undo_back(hdo_undo *u, hdo_population *p, hdo_progress *now) {
    copy_all(u, p, now, BACK);
}
