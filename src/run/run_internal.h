/* SPDX-License-Identifier: Apache-2.0
 *
 * A run is its parts; this folder makes them, lets them go on and ends them. A part never receives an hdo_run.
 *
 *   wire.c   configuration -> parts    loop.c   step, and when due evaluate, save, judge
 *   life.c   create, destroy, views    node.c   a member of a fleet
 */
#ifndef HDO_RUN_RUN_INTERNAL_H
#define HDO_RUN_RUN_INTERNAL_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "hdo/experimental/run.h"
#include "record/record.h"

struct hdo_run {
    hdo_config config;
    hdo_hooks hooks;
    hdo_log log;
    hdo_transport *transport;
    hdo_team team;
    hdo_problem problem;       /* what is minimised */
    hdo_population population; /* the nodes */
    hdo_metrics metrics;
    hdo_progress progress; /* how far it is */
    hdo_record record;     /* what is kept */
    hdo_engine *engine;    /* how it advances */
    hdo_fleet_seat *fleet; /* engine fleet: who this process is; otherwise NULL. Owned */
    char **columns;        /* names of the figures of its rows, one block of memory */

    struct hdo_listener *listener; /* of a run made through <hdo/hdo.h> (api.c); NULL for those with hooks */
    atomic_flag busy;              /* a call is under way */
    atomic_bool doomed;            /* to be destroyed when it ends */
    hdo_error failed;              /* code not 0: it failed, and stays so */
};

/* Every call that changes a run is between the two: HDO_E_MISUSE inside another one. leave returns st. */
hdo_status hdo__run_enter(hdo_run *r, const char *function, hdo_error *e);
hdo_status hdo__run_leave(hdo_run *r, hdo_status st);
/* Step by step as long as the run's step moves: for engines that wait for answers. Between enter and leave. */
hdo_status hdo__run_go_on(hdo_run *r, hdo_error *e);
bool hdo__run_sound(const hdo_run *r, hdo_error *e); /* false: it failed before; e is told how */

/* Takes the fleet if it succeeds. */
hdo_status hdo__run_create(hdo_run **out, const hdo_config *c, hdo_fleet_seat *fleet, const hdo_hooks *hooks,
                           hdo_error *e);
void hdo__fleet_close(hdo_fleet_seat *f); /* NULL is fine */
hdo_status hdo__run_wire(hdo_run *r, hdo_error *e);

#endif
