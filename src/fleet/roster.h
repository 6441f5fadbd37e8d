/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is in the run, as far as one member has heard: a table of signs of life. Silence of some intervals means gone.
 * Pure: no clock, no I/O, no allocation after the start.
 */
#ifndef HDO_FLEET_ROSTER_H
#define HDO_FLEET_ROSTER_H

#include "base/rng.h"
#include "base/status.h"
#include "fleet/codec.h"

enum { HDO_ROSTER_MAX = 1024, HDO_ROSTER_SILENCE = 5 }; /* members; intervals of silence that mean gone */

typedef struct hdo_roster_entry {
    uint64_t member; /* 0: free */
    uint32_t epoch, class_id;
    uint64_t step;
    int64_t heard_us;
    hdo_fleet_beat beat;
} hdo_roster_entry;

typedef struct hdo_roster {
    hdo_roster_entry *entry; /* (HDO_ROSTER_MAX) */
    int used;                /* entries that were ever used are the first ones */
    int64_t crowded;         /* members there was no room for */
} hdo_roster;

typedef struct hdo_roster_view { /* of the living */
    int members, nodes, evaluated;
    double loss, accuracy; /* mean over nodes of those that have evaluated */
    uint64_t step_max;
} hdo_roster_view;

hdo_status hdo__roster_init(hdo_roster *r, hdo_error *e);
void hdo__roster_clear(hdo_roster *r);
/* A sign of life. NULL: of an earlier epoch than the one known, or no room. */
hdo_roster_entry *hdo__roster_note(hdo_roster *r, const hdo_fleet_msg *m, const hdo_fleet_beat *b, int64_t now_us);
const hdo_roster_entry *hdo__roster_find(const hdo_roster *r, uint64_t member);
bool hdo__roster_lives(const hdo_roster_entry *p, int64_t now_us);
void hdo__roster_look(const hdo_roster *r, int64_t now_us, hdo_roster_view *v);

/* A node among the living that take offers, each with the same chance: `own` nodes of this process besides `self` count
 * too. 0: nobody. Siblings are named like self, but for the last byte. */
uint64_t hdo__roster_draw(const hdo_roster *r, uint64_t self, int own, int64_t now_us, hdo_stream s, uint32_t *epoch);

/* The lowest places (from `first`, `count` of them, `nodes` in a row) that nobody living has; -1: none. start: where to
 * begin looking, so that two newcomers do not take the same. */
int hdo__roster_free_place(const hdo_roster *r, int first, int count, int nodes, int start, int64_t now_us);

#endif
