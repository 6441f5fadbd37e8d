/* SPDX-License-Identifier: Apache-2.0 — giving up a long step: see undo.c. */
#ifndef HDO_ENGINE_UNDO_H
#define HDO_ENGINE_UNDO_H

#include "population/population.h"

typedef struct hdo_undo { /* the state before a step; X is NULL where steps are short: nothing is kept */
    float *X, *momentum, *y;
    int64_t *batches;
    hdo_counts counts;
    uint8_t *away;
    double lr[HDO_CLASSES_MAX], rate[HDO_CLASSES_MAX], noise[HDO_CLASSES_MAX];
} hdo_undo;

bool hdo__steps_are_long(const hdo_population *p); /* so that a signal should not wait for the end of one */
hdo_status hdo__undo_init(hdo_undo *u, const hdo_population *p);
void hdo__undo_clear(hdo_undo *u);
void hdo__undo_keep(hdo_undo *u, hdo_population *p, hdo_progress *now); /* before a step */
void hdo__undo_back(hdo_undo *u, hdo_population *p, hdo_progress *now); /* to the state that was kept */

#endif
