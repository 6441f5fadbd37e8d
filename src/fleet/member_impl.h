/* SPDX-License-Identifier: Apache-2.0 — the inside of a member: member.c, member_life.c. */
#ifndef HDO_FLEET_MEMBER_IMPL_H
#define HDO_FLEET_MEMBER_IMPL_H

#include "fleet/member.h"

typedef struct hdo_member_node {
    pthread_mutex_t lock; /* the model and its machine */
    hdo_exchange *machine;
    void *memory;
    float *x;
    uint64_t id;
    int64_t offered_us, rest_us; /* when the last offer was made; no new one before */
    atomic_bool can_offer;
    atomic_uint_fast64_t wish; /* step + 1 of a wish; 0: none */
} hdo_member_node;

struct hdo_member {
    hdo_member_setup s;
    hdo_bus *bus;
    hdo_post *post;
    hdo_roster roster;
    hdo_member_node *node; /* (nodes) */
    hdo_flows flows;
    uint64_t asker; /* who the exchange message under way is from */
    char asker_name[HDO_FLEET_NAME];
    int64_t wait_max_us; /* the longest patience for an answer */
    int64_t now_us, beat_due_us, refuse_due_us, serve_due_us;

    pthread_t thread;
    bool started;
    atomic_uint leaving; /* HDO_LEAVING...; 0: no */
    atomic_bool done, beat_now;
    atomic_uint_fast64_t step;

    pthread_mutex_t shared; /* what both threads see */
    hdo_member_figures figures;
    hdo_roster_view view;
    hdo_member_stats stats;
    hdo_member_end end;
    char why[256];
};

bool hdo__member_settled(hdo_member *m); /* nothing is open with anybody, nothing waits to leave */

#endif
