/* SPDX-License-Identifier: Apache-2.0
 *
 * Plug-ins (<hdo/plugin.h>): shared objects named in a configuration, whose tables join it as if a program had brought
 * them. plugin.c loads and checks; plugin_trial.c lets a process of its own try first, with a deadline.
 */
#ifndef HDO_PLUGIN_PLUGIN_INTERNAL_H
#define HDO_PLUGIN_PLUGIN_INTERNAL_H

#include <stdatomic.h>

#include "base/status.h"
#include "config/own.h"
#include "hdo/plugin.h"

typedef struct hdo_plugin_use { /* one use of a plug-in, shared by the tables that came with it */
    atomic_int refs;
    void *so;
    const hdo_plugin *plugin;
    hdo_parts parts;
} hdo_plugin_use;

/* What a configuration asks of one plug-in. */
typedef struct hdo_plugin_ask {
    const char *path, *options; /* options: JSON text, empty: none */
    int part;                   /* hdo_own_kind it must have; -1: any */
    double trial_s;             /* 0: no trial */
} hdo_plugin_ask;

/* Loads, checks, creates. stage (may be NULL) is told before foreign code runs. */
typedef void (*hdo_plugin_stage)(void *ctx, const char *stage);
hdo_status hdo__plugin_open(hdo_plugin_use **out, const hdo_plugin_ask *a, hdo_plugin_stage stage, void *ctx,
                            hdo_error *e);
void hdo__plugin_drop(void *use);

/* Opens it in a process of its own and asks its objective or data a few questions. One sentence if it fails, hangs,
 * crashes, exits or does not keep its promises. */
hdo_status hdo__plugin_trial(const hdo_plugin_ask *a, hdo_error *e);

/* Are plug-ins named whose tables c does not carry yet? */
bool hdo__plugins_wanted(const hdo_config *c);
/* Brings them; paths become absolute. c holds a set of its own afterwards. On failure c is to be dropped. */
hdo_status hdo__plugins_resolve(hdo_config *c, hdo_error *e);

#endif
