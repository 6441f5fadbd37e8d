/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run is made of. Only the files of this folder see it; a part never receives an hdo_run.
 *
 *   wire.c     configuration -> objects       run.c       the loop          life.c   create, destroy, views
 *   check.c    cross-field sense, names       step.c      a step            rundir.c folder, manifest, summary
 *   checkpoint.c, ckfile.c, ckstate.c  saved  own_time.c  the same, where ranks do not wait for each other
 *   resume.c, stored.c, lock.c        folder   undo.c      giving up a long step
 */
#ifndef HDO_RUN_RUN_INTERNAL_H
#define HDO_RUN_RUN_INTERNAL_H

#include "hdo/run.h"
#include "record/record.h"
#include "run/async.h"

typedef struct hdo_undo { /* the state before a long step, see undo.c; X is NULL where steps are short */
    float *X, *momentum, *y;
    int64_t *batches;
    hdo_counts counts;
    uint8_t *away;
    double lr[HDO_CLASSES_MAX], rate[HDO_CLASSES_MAX], noise[HDO_CLASSES_MAX];
} hdo_undo;

struct hdo_run {
    hdo_config config;
    hdo_hooks hooks;
    hdo_log log;
    hdo_transport *transport;
    hdo_team team;
    hdo_problem problem;
    hdo_population population;
    hdo_progress progress;
    hdo_metrics metrics;
    hdo_undo undo;
    bool in_exchange; /* models may leave as soon as their step is done */
    hdo_record record;

    hdo_async *async;        /* NULL unless mpi.async, and before the first step */
    hdo_async_stats drifted; /* its statistics, at the end */
    float *start;            /* (ld): the common start, kept for its check of the mean; NULL otherwise */
    float *seen;             /* (count, ld): models as they are evaluated while others change them; NULL unless async */
};

hdo_status hdo__run_wire(hdo_run *r, hdo_error *e);

/* A step of all nodes (step.c), and its parts, which a step in the rank's own time (own_time.c) is made of too. */
hdo_status hdo__run_step(hdo_run *r, hdo_error *e);
unsigned hdo__run_opinion(const hdo_run *r); /* HDO_SAY_*: the clock, and what the caller wants */
hdo_status hdo__run_own_step(hdo_run *r, hdo_error *e);
void hdo__run_evaluate_own(hdo_run *r);
void hdo__run_put_async(void *stats, hdo_json *j); /* its part of the summary */

/* Which rank holds which nodes: blocks of equal cost, as mpi.roles allows (roles.c). */
hdo_status hdo__run_spread(const hdo_config *c, hdo_transport *t, hdo_error *e);
/* Refuses a run whose part on this rank does not fit into the memory it may use. */
hdo_status hdo__run_check_memory(const hdo_run *r, size_t state_bytes, size_t scratch_bytes, hdo_error *e);
hdo_status hdo__run_check_mpi(hdo_run *r, hdo_error *e); /* mpi.async and mpi.slow make sense here */

/* Giving up a long step (undo.c). */
bool hdo__run_steps_are_long(const hdo_run *r);
hdo_status hdo__undo_init(hdo_run *r);
void hdo__undo_clear(hdo_undo *u);
void hdo__undo_keep(hdo_run *r); /* before a step */
void hdo__undo_step(hdo_run *r); /* back to it; the run is stopped */

#endif
