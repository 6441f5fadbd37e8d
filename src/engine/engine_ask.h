/* SPDX-License-Identifier: Apache-2.0 — runs whose oracle is asked: see engine_ask.c. */
#ifndef HDO_ENGINE_ENGINE_ASK_H
#define HDO_ENGINE_ENGINE_ASK_H

#include "engine/engine.h"
#include "objective/asked.h"

/* Another kind of engine: NULL. */
typedef struct hdo_asking hdo_asking;
hdo_asking *hdo__asking_of(hdo_engine *g);

/* The next question nobody has been given yet, if there is one; it counts as handed out. */
const hdo_asked_question *hdo__asking_next(hdo_asking *g, uint64_t *id, int *node);
/* Is there a question out whose answer is due? */
bool hdo__asking_waits(const hdo_asking *g);
/* Nodes that wait for a partner do so no longer: they average with it as it is. False: nobody waited. */
bool hdo__asking_hurry(hdo_asking *g);

/* An answer; gradient (d) for questions of that kind. Late ones are counted and forgotten. */
hdo_status hdo__asking_tell(hdo_asking *g, uint64_t id, double value, const float *gradient, hdo_error *e);
/* There will be no answer: the node leaves out its step. */
hdo_status hdo__asking_fail(hdo_asking *g, uint64_t id, hdo_error *e);

#endif
