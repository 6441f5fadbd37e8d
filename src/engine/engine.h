/* SPDX-License-Identifier: Apache-2.0
 *
 * How a run advances. An engine takes the parts of a run and does one step with them; the loop (run/loop.c) does the
 * rest. A new engine is a file with its table and a line in engine.c.
 *
 *   engine_sync.c   all ranks do the same step together: the paper's algorithm
 *   engine_fleet.c  a member of a fleet, with fleet/
 *   engine_async.c  every rank at its own pace, with async.c (messages) and async_rows.c (rows put together)
 *   engine_ask.c    every node at its own pace, with an oracle outside: hdo_ask, hdo_tell
 *   undo.c          giving up a long step
 */
#ifndef HDO_ENGINE_ENGINE_H
#define HDO_ENGINE_ENGINE_H

#include "fleet/fleet.h"
#include "metrics/metrics.h"
#include "population/population.h"
#include "record/record.h"

typedef struct hdo_engine hdo_engine;

typedef struct hdo_engine_ops {
    const char *name;
    /* All ranks are at the same step between two calls of step: the state there can be traced and saved. */
    bool together;
    bool (*fits)(const hdo_engine *parts);          /* is it the engine of such a run? The first one is taken */
    size_t (*state_bytes)(const hdo_engine *parts); /* what create will allocate, about; may be NULL */
    /* parts: everything of struct hdo_engine, to be copied. The population is reserved, the models are not. */
    hdo_status (*create)(hdo_engine **out, const hdo_engine *parts, hdo_error *e);
    void (*destroy)(hdo_engine *g);
    /* One step; progress->step moves on unless the step was given up. Sets progress->stop when the run is over. */
    hdo_status (*step)(hdo_engine *g, hdo_error *e);
    /* An evaluation of the own nodes, without the others. False, or NULL: all ranks evaluate together. */
    bool (*evaluate)(hdo_engine *g);
    void (*put)(void *g, hdo_json *j); /* its part of the summary; may be NULL */
} hdo_engine_ops;

struct hdo_engine { /* first member of every implementation; all borrowed */
    const hdo_engine_ops *ops;
    const hdo_config *config;
    const hdo_hooks *hooks;
    const hdo_log *log;
    hdo_transport *transport;
    const hdo_problem *problem;
    hdo_population *population;
    hdo_progress *progress;
    hdo_metrics *metrics;
    hdo_record *record;
    hdo_fleet_seat *fleet; /* engine fleet; otherwise NULL */
};

extern const hdo_engine_ops *const hdo__engines[]; /* the registry, ends with NULL */
extern const hdo_engine_ops hdo__engine_sync, hdo__engine_async, hdo__engine_ask, hdo__engine_fleet;
const hdo_engine_ops *hdo__engine_for(const hdo_engine *parts);

/* Do mpi.async and mpi.slow make sense for this population? Also sets its `slow`. */
hdo_status hdo__engine_check(hdo_population *p, hdo_error *e);

/* Says it once when nodes begin to leave out steps: their callbacks fail. before: how many had so far. */
void hdo__engine_say_skips(const hdo_engine *g, int64_t before);

/* What this rank has to say after a step (HDO_SAY_...): the clock, and what the caller wants. */
unsigned hdo__engine_opinion(const hdo_engine *g);

#endif
