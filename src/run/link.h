/* SPDX-License-Identifier: Apache-2.0 — from what a user says about the bus to a bus. */
#ifndef HDO_RUN_LINK_H
#define HDO_RUN_LINK_H

#include "fleet/bus.h"
#include "hdo/experimental/fleet.h"

typedef struct hdo_link {
    const hdo_fleet_link *given;
    char user[64], password[256]; /* of the credentials file; empty: none */
    bool is_creds;                /* the file is one of NATS */
} hdo_link;

hdo_status hdo__link_read(hdo_link *l, const hdo_fleet_link *given, hdo_error *e);
hdo_status hdo__link_open(hdo_bus **out, const hdo_link *l, const char *name, hdo_error *e);

#endif
