/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions to a run from outside: a newcomer before it is a member, or somebody who only looks. Whoever is there may
 * answer; everything has an end of patience.
 */
#ifndef HDO_FLEET_JOIN_H
#define HDO_FLEET_JOIN_H

#include "fleet/bus.h"
#include "fleet/post.h"
#include "fleet/roster.h"

typedef struct hdo_join {
    hdo_bus *bus; /* borrowed */
    char run[HDO_FLEET_NAME], name[HDO_FLEET_NAME];
    unsigned char run_id[HDO_FLEET_ID], config_hash[HDO_FLEET_ID];
    bool has_config; /* config_hash is that of our own configuration */
    uint64_t self;
    uint32_t epoch;
    uint32_t class_id;
    int classes;
    hdo_roster roster;
    uint64_t drops[HDO_DROPS];
    hdo_fleet_drop refused; /* a member says we cannot join, and why */
    char refuser[HDO_FLEET_NAME];
    hdo_fleet_beat wish; /* what a hello says: role, place, nodes */
    uint32_t epoch_seen; /* highest of our own name */
    uint64_t seq;

    char *text; /* the answer to a question for the configuration; free() */
    hdo_post *post;
    const float *model; /* the answer to a question for a model */
    uint64_t model_from, model_step;
    char other_run[HDO_FLEET_NAME]; /* a second run on this bus, when looking for one */
    int64_t now_us, news_us;        /* news_us: when a member was last heard of for the first time; 0: never */
} hdo_join;

/* name and run are checked before. */
hdo_status hdo__join_open(hdo_join *j, hdo_bus *bus, const char *run, const char *name, hdo_error *e);
void hdo__join_close(hdo_join *j); /* the bus forgets our subscriptions */

/* Which run is there? For who was not told: the only one on the bus. HDO_E_ENGINE: none, or more than one. */
hdo_status hdo__join_find_run(hdo_bus *bus, double patience_s, char run[HDO_FLEET_NAME], hdo_error *e);

/* Listens for wait_s, or until `quiet_s` after the last member that was new. hello: asks them to show themselves. */
void hdo__join_listen(hdo_join *j, double wait_s, double quiet_s, bool hello);
/* The sentence if somebody has refused us, or nobody we heard speaks our language. */
hdo_status hdo__join_verdict(const hdo_join *j, hdo_error *e);

/* The configuration, from anybody: j->text. */
hdo_status hdo__join_ask_config(hdo_join *j, double patience_s, hdo_error *e);
/* A model of the member (0: of anybody) into x. *step: where its owner was. */
hdo_status hdo__join_ask_model(hdo_join *j, uint64_t member, size_t len, double patience_s, float *x, uint64_t *step,
                               hdo_error *e);
bool hdo__join_say(hdo_join *j, const char *tail, hdo_fleet_type type, uint64_t to, const void *body, size_t len);

#endif
