/* SPDX-License-Identifier: Apache-2.0 — who is in the run: see roster.h. */
#include "fleet/roster.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"

hdo_status hdo__roster_init(hdo_roster *r, hdo_error *e) {
    *r = (hdo_roster){.entry = hdo__alloc(HDO_ROSTER_MAX * sizeof *r->entry)};
    return r->entry != NULL ? HDO_OK : hdo__fail(e, HDO_E_MEMORY, "out of memory for the list of members");
}

void hdo__roster_clear(hdo_roster *r) {
    hdo__free(r->entry);
    *r = (hdo_roster){0};
}

bool hdo__roster_lives(const hdo_roster_entry *p, int64_t now_us) {
    int64_t silence = (int64_t)p->beat.beat_ms * 1000 * HDO_ROSTER_SILENCE;
    return p->member != 0 && now_us - p->heard_us <= silence;
}

const hdo_roster_entry *hdo__roster_find(const hdo_roster *r, uint64_t member) {
    for (int k = 0; k < r->used; k++) {
        if (r->entry[k].member == member) return &r->entry[k];
    }
    return NULL;
}

hdo_roster_entry *hdo__roster_note(hdo_roster *r, const hdo_fleet_msg *m, const hdo_fleet_beat *b, int64_t now_us) {
    hdo_roster_entry *place = NULL;
    for (int k = 0; k < r->used; k++) {
        hdo_roster_entry *p = &r->entry[k];
        if (p->member == m->from) {
            place = p;
            break;
        }
        if (place == NULL && !hdo__roster_lives(p, now_us)) place = p;
    }
    bool known = place != NULL && place->member == m->from;
    if (known && m->from_epoch < place->epoch) return NULL;
    if (!known && r->used < HDO_ROSTER_MAX) place = &r->entry[r->used++]; /* those who are gone stay to be seen */
    if (place == NULL) {
        r->crowded++;
        return NULL;
    }
    *place = (hdo_roster_entry){.member = m->from,
                                .epoch = m->from_epoch,
                                .class_id = m->class_id,
                                .step = m->step,
                                .heard_us = now_us,
                                .beat = *b};
    return place;
}

void hdo__roster_look(const hdo_roster *r, int64_t now_us, hdo_roster_view *v) {
    *v = (hdo_roster_view){0};
    for (int k = 0; k < r->used; k++) {
        const hdo_roster_entry *p = &r->entry[k];
        if (!hdo__roster_lives(p, now_us)) continue;
        v->members++;
        v->nodes += (int)p->beat.nodes;
        if (p->step > v->step_max) v->step_max = p->step;
        if (p->beat.evaluated == 0 || !isfinite(p->beat.loss)) continue;
        v->evaluated += (int)p->beat.nodes;
        v->loss += p->beat.loss * (double)p->beat.nodes;
        v->accuracy += p->beat.accuracy * (double)p->beat.nodes;
    }
    v->loss /= v->evaluated > 0 ? (double)v->evaluated : 1.0;
    v->accuracy /= v->evaluated > 0 ? (double)v->evaluated : 1.0;
}

static int takers(const hdo_roster_entry *p, int64_t now_us) {
    return hdo__roster_lives(p, now_us) && p->beat.leaving == 0 ? (int)p->beat.nodes : 0;
}

uint64_t hdo__roster_draw(const hdo_roster *r, uint64_t self, int own, int64_t now_us, hdo_stream s, uint32_t *epoch) {
    uint64_t all = (uint64_t)(own - 1);
    for (int k = 0; k < r->used; k++) all += (uint64_t)takers(&r->entry[k], now_us);
    if (all == 0) return 0;
    uint64_t at = hdo__rng_below(s, 0, all);
    if (at < (uint64_t)(own - 1)) { /* a sibling */
        uint64_t me = self - hdo__fleet_member(self);
        *epoch = 0;
        return hdo__fleet_member(self) + (at < me ? at : at + 1);
    }
    at -= (uint64_t)(own - 1);
    for (int k = 0; k < r->used; k++) {
        const hdo_roster_entry *p = &r->entry[k];
        uint64_t n = (uint64_t)takers(p, now_us);
        if (at < n) {
            *epoch = p->epoch;
            return p->member + at;
        }
        at -= n;
    }
    return 0;
}

static bool place_taken(const hdo_roster *r, int place, int64_t now_us) {
    for (int k = 0; k < r->used; k++) {
        const hdo_roster_entry *p = &r->entry[k];
        int first = (int)p->beat.place;
        if (hdo__roster_lives(p, now_us) && place >= first && place < first + (int)p->beat.nodes) return true;
    }
    return false;
}

int hdo__roster_free_place(const hdo_roster *r, int first, int count, int nodes, int start, int64_t now_us) {
    int last = count - nodes; /* the last place from which that many fit */
    for (int k = 0; k <= last; k++) {
        int place = first + (start + k) % (last + 1);
        bool is_free = true;
        for (int i = 0; i < nodes && is_free; i++) is_free = !place_taken(r, place + i, now_us);
        if (is_free) return place;
    }
    return -1;
}
