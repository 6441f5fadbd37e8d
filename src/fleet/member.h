/* SPDX-License-Identifier: Apache-2.0
 *
 * A member of a run: a few nodes of one class, and a thread that talks to the others for them. The thread answers
 * offers, makes those the nodes wish for, gives signs of life, hands configuration and model to newcomers. The nodes
 * step meanwhile; nobody waits for anybody.
 *
 *   member.c   what is heard and said, a turn at a time    member_life.c  creation, the thread, the end
 *   roster.c   who is there                                post.c         models in chunks
 *   flow.c     what exchanges have moved, partner by partner
 */
#ifndef HDO_FLEET_MEMBER_H
#define HDO_FLEET_MEMBER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "exchange/exchange.h"
#include "fleet/bus.h"
#include "fleet/flow.h"
#include "fleet/post.h"
#include "fleet/roster.h"

typedef struct hdo_member_id { /* who, in which run */
    char run[HDO_FLEET_NAME], name[HDO_FLEET_NAME], role[HDO_FLEET_NAME];
    unsigned char run_id[HDO_FLEET_ID], config_hash[HDO_FLEET_ID];
    uint64_t member;
    uint32_t epoch, class_id;
    int classes, place, nodes;
    uint64_t seed;
} hdo_member_id;

typedef struct hdo_member_setup {
    hdo_member_id id;
    hdo_bus *bus;            /* borrowed */
    const char *config_text; /* for newcomers; borrowed */
    const hdo_log *log;      /* borrowed; may be NULL */
    float *X;                /* (nodes, ld): the models; borrowed */
    size_t ld, len;
    double beat_s, forget_s, clip;
} hdo_member_setup;

typedef struct hdo_member_figures { /* what the nodes have to say about themselves */
    uint64_t step;
    bool evaluated;
    double loss, accuracy, steps_per_s;
} hdo_member_figures;

typedef struct hdo_member_stats {
    hdo_exchange_stats exchange; /* over the nodes */
    uint64_t met;                /* exchanges of which this member has applied its half */
    uint64_t local;              /* of them between two of its own nodes */
    uint64_t unsettled;          /* nodes that left with something open: one half of it may be lost */
    uint64_t missed;             /* wishes that came while an offer was out, or found nobody */
    uint64_t bytes;              /* sent */
    uint64_t drops[HDO_DROPS];
    uint64_t refused;         /* newcomers */
    uint64_t served;          /* models handed to newcomers and to whoever asked */
    int64_t reconnects, lost; /* of the bus */
    double round_s;           /* present patience for an answer */
} hdo_member_stats;

typedef enum hdo_member_end {
    HDO_MEMBER_ON,
    HDO_MEMBER_STOP,   /* somebody ended the run */
    HDO_MEMBER_TARGET, /* a member has seen the run at its target */
    HDO_MEMBER_REPLACED,
    HDO_MEMBER_REFUSED
} hdo_member_end;

typedef struct hdo_member hdo_member;

hdo_status hdo__member_create(hdo_member **out, const hdo_member_setup *s, hdo_error *e);
void hdo__member_destroy(hdo_member *m);                   /* NULL is fine */
hdo_status hdo__member_start(hdo_member *m, hdo_error *e); /* the thread; tests take turns instead */
/* Says so (how: HDO_LEAVING...), waits until the nodes of this member owe nobody anything, for limit_s at most, and
 * ends the thread. */
void hdo__member_leave(hdo_member *m, unsigned how, double limit_s);

/* One turn: what has come (waiting up to wait_s for the first), what is wished for, what is due. */
void hdo__member_turn(hdo_member *m, int64_t now_us, double wait_s);

/* ---- of the thread that steps ---- */
float *hdo__member_lock(hdo_member *m, int i); /* the model of node i, while nobody else changes it */
void hdo__member_unlock(hdo_member *m, int i);
void hdo__member_wish(hdo_member *m, int i, uint64_t step); /* node i would like to meet somebody */
void hdo__member_tell(hdo_member *m, const hdo_member_figures *f);
void hdo__member_look(hdo_member *m, hdo_roster_view *v); /* the living, this member included */
hdo_member_end hdo__member_ended(hdo_member *m, char *why, size_t cap);
void hdo__member_stats(hdo_member *m, hdo_member_stats *s);
const hdo_flows *hdo__member_flows(const hdo_member *m); /* after hdo__member_leave */

#endif
