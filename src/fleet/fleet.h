/* SPDX-License-Identifier: Apache-2.0 — what a run of engine fleet knows besides its configuration: who it is, and
 * where. */
#ifndef HDO_FLEET_FLEET_H
#define HDO_FLEET_FLEET_H

#include "fleet/member.h"

typedef struct hdo_fleet_seat {
    hdo_bus *bus;
    hdo_member_id id;
    char *config_text; /* of the run, as newcomers get it; free() */
    double pace_s;     /* a step takes at least this long */
    double slow;       /* and this many times as long as it would; 1: as it is */
    bool started;      /* nobody was there before */
    bool was_stopped;  /* somebody ended the run */
    int heard;         /* members, while joining */
} hdo_fleet_seat;

#endif
