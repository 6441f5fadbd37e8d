/* SPDX-License-Identifier: Apache-2.0 — the exchange state machine: rules and promises are in exchange.h. */
#include "exchange/exchange.h"

#include <math.h>
#include <string.h>

#include "base/vec.h"

enum {
    ASKS_OUT = 3,     /* questions about the offer that is out before it becomes a doubt */
    SLOWEST = 16,     /* questions come at most this many times more slowly than wait_max_us */
    USUAL_AFTER = 8,  /* distances seen before `clip` means anything */
    USUAL_MEMORY = 16 /* and over how many of them the usual one is a mean */
};

typedef struct timer { /* of an offer or an answer whose other half is open */
    int64_t due_us, wait_us;
    int64_t heard_us; /* last sign of life of the other one */
} timer;

typedef struct offer { /* ours: out, or a doubt */
    uint64_t to, seq;  /* to 0: free */
    uint32_t epoch;    /* of the partner */
    int asks;
    int64_t sent_us;
    timer t;
} offer;

typedef struct slot {   /* an answer we gave */
    uint64_t from, seq; /* from 0: free */
    uint32_t epoch;     /* of the offerer */
    int64_t since_us;
    timer t;
    float *diff; /* (len) its model less ours */
} slot;

typedef struct peer {
    uint64_t member; /* 0: free */
    uint32_t epoch;
    uint64_t seen;    /* highest number of an offer that was applied, refused or asked about */
    uint64_t expired; /* highest one that was applied and forgotten without an ack */
    int64_t heard_us;
} peer;

struct hdo_exchange {
    hdo_exchange_setup s;
    int64_t now_us;
    uint64_t next_seq;
    int out;                    /* index of the offer that is out; -1: none */
    double round_us, spread_us; /* of round trips: mean and mean deviation; 0: none seen */
    double usual;               /* distance between partners */
    int64_t distances;
    hdo_exchange_stats stats;
    offer *offers; /* (doubts + 1) */
    slot *slots;   /* (slots) */
    peer *peers;   /* (peers) */
};

/* ---- memory ---- */

static size_t round_up(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

static bool sensible(const hdo_exchange_setup *s) {
    return s->self != 0 && s->epoch != 0 && s->len > 0 && s->weight > 0.0f && isfinite(s->weight) && s->slots > 0 &&
           s->doubts > 0 && s->peers > 0 && s->wait_min_us > 0 && s->wait_max_us >= s->wait_min_us &&
           s->forget_us > s->wait_max_us && !(s->clip < 0.0);
}

size_t hdo__exchange_bytes(const hdo_exchange_setup *s) {
    if (!sensible(s)) return 0;
    return round_up(sizeof(hdo_exchange)) + round_up((size_t)(s->doubts + 1) * sizeof(offer)) +
           round_up((size_t)s->slots * sizeof(slot)) + round_up((size_t)s->peers * sizeof(peer)) +
           (size_t)s->slots * round_up(s->len * sizeof(float));
}

hdo_exchange *hdo__exchange_start(void *memory, const hdo_exchange_setup *s) {
    unsigned char *p = memory;
    memset(memory, 0, hdo__exchange_bytes(s));
    hdo_exchange *m = memory;
    *m = (hdo_exchange){.s = *s, .next_seq = 1, .out = -1};
    p += round_up(sizeof *m);
    m->offers = (offer *)(void *)p;
    p += round_up((size_t)(s->doubts + 1) * sizeof(offer));
    m->slots = (slot *)(void *)p;
    p += round_up((size_t)s->slots * sizeof(slot));
    m->peers = (peer *)(void *)p;
    p += round_up((size_t)s->peers * sizeof(peer));
    for (int k = 0; k < s->slots; k++) {
        m->slots[k].diff = (float *)(void *)p;
        p += round_up(s->len * sizeof(float));
    }
    return m;
}

/* ---- looking things up ---- */

/* Offers and answers of an earlier epoch are closed as soon as a later one is heard of: names and numbers suffice. */
static offer *find_offer(hdo_exchange *m, uint64_t to, uint64_t seq) {
    for (int k = 0; k <= m->s.doubts; k++) {
        offer *o = &m->offers[k];
        if (o->to == to && o->seq == seq) return o;
    }
    return NULL;
}

static slot *find_slot(hdo_exchange *m, uint64_t from, uint64_t seq) {
    for (int k = 0; k < m->s.slots; k++) {
        slot *a = &m->slots[k];
        if (a->from == from && a->seq == seq) return a;
    }
    return NULL;
}

static slot *free_slot(hdo_exchange *m) {
    for (int k = 0; k < m->s.slots; k++) {
        if (m->slots[k].from == 0) return &m->slots[k];
    }
    return NULL;
}

static int free_offer(const hdo_exchange *m) {
    for (int k = 0; k <= m->s.doubts; k++) {
        if (m->offers[k].to == 0) return k;
    }
    return -1;
}

/* Nothing is known of this place's member, or it was silent for forget_us and we owe it no answer. */
static bool is_vacant(const hdo_exchange *m, const peer *p) {
    if (p->member == 0) return true;
    if (m->now_us - p->heard_us <= m->s.forget_us) return false;
    for (int k = 0; k < m->s.slots; k++) {
        if (m->slots[k].from == p->member) return false;
    }
    return true;
}

/* The entry of a member, in a vacant place if it is new. NULL: no room. */
static peer *know(hdo_exchange *m, uint64_t member) {
    peer *place = NULL;
    for (int k = 0; k < m->s.peers; k++) {
        peer *p = &m->peers[k];
        if (p->member == member) return p;
        if (place == NULL && is_vacant(m, p)) place = p;
    }
    if (place != NULL) *place = (peer){.member = member};
    return place;
}

static void close_offer(hdo_exchange *m, offer *o) {
    if (o - m->offers == m->out) m->out = -1;
    o->to = 0;
}

/* ---- messages ---- */

static void say(hdo_exchange *m, hdo_xout *out, hdo_xmsg_kind kind, uint64_t to, uint32_t epoch, uint64_t seq) {
    out->msg[out->n++] =
        (hdo_xmsg){.kind = kind, .from = m->s.self, .to = to, .from_epoch = m->s.epoch, .to_epoch = epoch, .seq = seq};
}

static void say_numbers(hdo_exchange *m, hdo_xout *out, const float *data) {
    hdo_xmsg *msg = &out->msg[out->n - 1];
    msg->weight = m->s.weight;
    msg->data = data;
    msg->len = m->s.len;
}

static void answer(hdo_exchange *m, const slot *a, hdo_xout *out) {
    say(m, out, HDO_XMSG_ANSWER, a->from, a->epoch, a->seq);
    say_numbers(m, out, a->diff);
}

/* ---- time ---- */

double hdo__exchange_wait_us(const hdo_exchange *m) {
    double w = m->round_us > 0.0 ? m->round_us + 4.0 * m->spread_us : (double)m->s.wait_max_us;
    return fmin(fmax(w, (double)m->s.wait_min_us), (double)m->s.wait_max_us);
}

/* Round trips as TCP estimates them (Jacobson and Karels): gains 1/8 and 1/4. */
static void learn_round(hdo_exchange *m, const offer *o) {
    if (o->asks > 0) return; /* which of the messages was answered? */
    double r = fmax((double)(m->now_us - o->sent_us), 1.0);
    if (m->round_us > 0.0) {
        m->spread_us += 0.25 * (fabs(r - m->round_us) - m->spread_us);
        m->round_us += 0.125 * (r - m->round_us);
    } else {
        m->round_us = r;
        m->spread_us = 0.5 * r;
    }
}

static timer start_timer(const hdo_exchange *m) {
    int64_t w = (int64_t)hdo__exchange_wait_us(m);
    return (timer){.due_us = m->now_us + w, .wait_us = w, .heard_us = m->now_us};
}

static void rest(const hdo_exchange *m, timer *t) {
    if (t->wait_us < SLOWEST * m->s.wait_max_us) t->wait_us *= 2;
    t->due_us = m->now_us + t->wait_us;
}

int64_t hdo__exchange_due_us(const hdo_exchange *m) {
    int64_t due = INT64_MAX;
    for (int k = 0; k <= m->s.doubts; k++) {
        const offer *o = &m->offers[k];
        if (o->to != 0 && o->t.due_us < due) due = o->t.due_us;
    }
    for (int k = 0; k < m->s.slots; k++) {
        const slot *a = &m->slots[k];
        if (a->from != 0 && a->t.due_us < due) due = a->t.due_us;
    }
    return due;
}

/* A process that was asleep when a tick was due has heard nobody, and nobody is dead for that. */
static void wake(hdo_exchange *m, int64_t now_us) {
    int64_t due = hdo__exchange_due_us(m), late = due < now_us ? now_us - due : 0;
    m->now_us = now_us;
    if (late <= m->s.forget_us / 4) return;
    for (int k = 0; k <= m->s.doubts; k++) m->offers[k].t.heard_us = now_us;
    for (int k = 0; k < m->s.slots; k++) m->slots[k].t.heard_us = now_us;
    for (int k = 0; k < m->s.peers; k++) m->peers[k].heard_us = now_us;
}

/* A sign of life. After a long silence what is open is asked about at once: after a partition nobody waits for the end
 * of a rest that grew meanwhile. */
static void hear_of(const hdo_exchange *m, timer *t) {
    if (m->now_us - t->heard_us > m->s.wait_max_us) *t = (timer){.due_us = m->now_us, .wait_us = m->s.wait_min_us};
    t->heard_us = m->now_us;
}

/* ---- events ---- */

/* What was open with an earlier epoch of this member ended with it; the rest has a sign of life. */
static void refresh(hdo_exchange *m, uint64_t member, uint32_t epoch) {
    for (int k = 0; k <= m->s.doubts; k++) {
        offer *o = &m->offers[k];
        if (o->to != member) continue;
        hear_of(m, &o->t);
        if (o->epoch >= epoch) continue;
        m->stats.died++;
        close_offer(m, o);
    }
    for (int k = 0; k < m->s.slots; k++) {
        slot *a = &m->slots[k];
        if (a->from != member) continue;
        hear_of(m, &a->t);
        if (a->epoch >= epoch) continue;
        m->stats.died++;
        a->from = 0;
    }
}

/* A sign of life. NULL: it is older than what is known, or there is no room for one more member. */
static peer *hear(hdo_exchange *m, uint64_t member, uint32_t epoch) {
    peer *p = know(m, member);
    if (p == NULL || epoch < p->epoch) return NULL;
    if (epoch > p->epoch) *p = (peer){.member = member, .epoch = epoch};
    p->heard_us = m->now_us;
    refresh(m, member, epoch);
    return p;
}

bool hdo__exchange_can_offer(const hdo_exchange *m) {
    return m->out < 0 && free_offer(m) >= 0;
}

static void begin_offer(hdo_exchange *m, const hdo_xevent *e, hdo_xout *out) {
    if (!hdo__exchange_can_offer(m) || e->member == m->s.self || e->member == 0) return;
    m->out = free_offer(m);
    offer *o = &m->offers[m->out];
    *o = (offer){.to = e->member, .epoch = e->epoch, .seq = m->next_seq++, .sent_us = m->now_us, .t = start_timer(m)};
    say(m, out, HDO_XMSG_OFFER, o->to, o->epoch, o->seq);
    say_numbers(m, out, e->x);
    m->stats.offers++;
}

/* Is a model at this squared distance to be averaged in? Learns what is usual from those that are. */
static bool near_enough(hdo_exchange *m, double distance2) {
    double distance = sqrt(distance2);
    bool far = m->s.clip > 0.0 && m->distances >= USUAL_AFTER && distance > m->s.clip * m->usual;
    if (!isfinite(distance) || far) {
        m->stats.far++;
        return false;
    }
    m->distances++;
    m->usual += (distance - m->usual) / (double)(m->distances < USUAL_MEMORY ? m->distances : USUAL_MEMORY);
    return true;
}

static void take_offer(hdo_exchange *m, const hdo_xmsg *msg, peer *p, float *x, hdo_xout *out) {
    slot *a = find_slot(m, msg->from, msg->seq);
    if (a != NULL) { /* heard before */
        answer(m, a, out);
        return;
    }
    if (msg->seq <= p->seen) {
        m->stats.stale++;
        return;
    }
    p->seen = msg->seq;
    a = free_slot(m);
    if (m->out >= 0 || a == NULL) {
        m->stats.declined++;
        say(m, out, HDO_XMSG_REFUSE, msg->from, msg->from_epoch, msg->seq);
        return;
    }
    for (size_t i = 0; i < m->s.len; i++) a->diff[i] = msg->data[i] - x[i];
    if (!near_enough(m, hdo__sumsq(m->s.len, a->diff))) {
        say(m, out, HDO_XMSG_REFUSE, msg->from, msg->from_epoch, msg->seq);
        return;
    }
    a->from = msg->from;
    a->epoch = msg->from_epoch;
    a->seq = msg->seq;
    a->since_us = m->now_us;
    a->t = start_timer(m);
    hdo__axpy(m->s.len, msg->weight / (msg->weight + m->s.weight), a->diff, x);
    out->moved = true;
    m->stats.answers++;
    m->stats.applied++;
    answer(m, a, out);
}

static void take_ask(hdo_exchange *m, const hdo_xmsg *msg, peer *p, hdo_xout *out) {
    const slot *a = find_slot(m, msg->from, msg->seq);
    if (a != NULL) {
        answer(m, a, out);
        return;
    }
    if (msg->seq > p->seen) p->seen = msg->seq; /* it may still come: too late */
    hdo_xmsg_kind kind = msg->seq <= p->expired ? HDO_XMSG_EXPIRED : HDO_XMSG_UNKNOWN;
    say(m, out, kind, msg->from, msg->from_epoch, msg->seq);
}

static void take_ack(hdo_exchange *m, const hdo_xmsg *msg) {
    slot *a = find_slot(m, msg->from, msg->seq);
    if (a != NULL) a->from = 0;
}

static void take_answer(hdo_exchange *m, const hdo_xmsg *msg, float *x, hdo_xout *out) {
    offer *o = find_offer(m, msg->from, msg->seq);
    say(m, out, HDO_XMSG_ACK, msg->from, msg->from_epoch, msg->seq);
    if (o == NULL) return; /* heard before */
    learn_round(m, o);
    close_offer(m, o);
    if (!near_enough(m, hdo__sumsq(m->s.len, msg->data))) return;
    hdo__axpy(m->s.len, -msg->weight / (msg->weight + m->s.weight), msg->data, x);
    out->moved = true;
    m->stats.applied++;
}

/* The partner says that nothing more will come of it. */
static void take_end(hdo_exchange *m, const hdo_xmsg *msg, int64_t *count) {
    offer *o = find_offer(m, msg->from, msg->seq);
    if (o == NULL) return;
    learn_round(m, o);
    close_offer(m, o);
    ++*count;
}

static void take_probe(hdo_exchange *m, const hdo_xmsg *msg, hdo_xout *out) {
    bool open = find_offer(m, msg->from, msg->seq) != NULL;
    say(m, out, open ? HDO_XMSG_ASK : HDO_XMSG_ACK, msg->from, msg->from_epoch, msg->seq);
}

static bool well_formed(const hdo_exchange *m, const hdo_xmsg *msg) {
    if (msg->to != m->s.self || msg->to_epoch != m->s.epoch || msg->seq == 0) return false;
    if (msg->from == 0 || msg->from == m->s.self || msg->from_epoch == 0) return false;
    if (msg->kind != HDO_XMSG_OFFER && msg->kind != HDO_XMSG_ANSWER) return true;
    return msg->data != NULL && msg->len == m->s.len && msg->weight > 0.0f && isfinite(msg->weight);
}

static void take(hdo_exchange *m, const hdo_xmsg *msg, float *x, hdo_xout *out) {
    peer *p = well_formed(m, msg) ? hear(m, msg->from, msg->from_epoch) : NULL;
    if (p == NULL) {
        m->stats.stale++;
        return;
    }
    switch (msg->kind) {
    case HDO_XMSG_OFFER: take_offer(m, msg, p, x, out); break;
    case HDO_XMSG_ASK: take_ask(m, msg, p, out); break;
    case HDO_XMSG_ACK: take_ack(m, msg); break;
    case HDO_XMSG_ANSWER: take_answer(m, msg, x, out); break;
    case HDO_XMSG_REFUSE: take_end(m, msg, &m->stats.refused); break;
    case HDO_XMSG_UNKNOWN: take_end(m, msg, &m->stats.unknown); break;
    case HDO_XMSG_EXPIRED: take_end(m, msg, &m->stats.expired); break;
    case HDO_XMSG_PROBE: take_probe(m, msg, out); break;
    default: m->stats.stale++; break;
    }
}

static bool silent(const hdo_exchange *m, const timer *t) {
    return m->now_us - t->heard_us > m->s.forget_us;
}

static void tick_offer(hdo_exchange *m, offer *o, hdo_xout *out) {
    if (silent(m, &o->t)) {
        m->stats.expired++;
        close_offer(m, o);
        return;
    }
    if (o->asks >= ASKS_OUT && o - m->offers == m->out) m->out = -1; /* a doubt from now on */
    o->asks++;
    m->stats.asked++;
    rest(m, &o->t);
    say(m, out, HDO_XMSG_ASK, o->to, o->epoch, o->seq);
}

static void tick_slot(hdo_exchange *m, slot *a, hdo_xout *out) {
    if (silent(m, &a->t)) {
        peer *p = know(m, a->from); /* kept as long as the slot */
        if (a->seq > p->expired) p->expired = a->seq;
        m->stats.expired++;
        a->from = 0;
        return;
    }
    m->stats.probed++;
    rest(m, &a->t);
    say(m, out, HDO_XMSG_PROBE, a->from, a->epoch, a->seq);
}

static void tick(hdo_exchange *m, hdo_xout *out) {
    for (int k = 0; k <= m->s.doubts && out->n < HDO_XOUT_MAX; k++) {
        offer *o = &m->offers[k];
        if (o->to != 0 && o->t.due_us <= m->now_us) tick_offer(m, o, out);
    }
    for (int k = 0; k < m->s.slots && out->n < HDO_XOUT_MAX; k++) {
        slot *a = &m->slots[k];
        if (a->from != 0 && a->t.due_us <= m->now_us) tick_slot(m, a, out);
    }
}

void hdo__exchange_step(hdo_exchange *m, const hdo_xevent *e, hdo_xout *out) {
    out->n = 0;
    out->moved = false;
    wake(m, e->now_us);
    switch (e->kind) {
    case HDO_XEVENT_OFFER: begin_offer(m, e, out); break;
    case HDO_XEVENT_MESSAGE: take(m, e->msg, e->x, out); break;
    case HDO_XEVENT_PEER: hear(m, e->member, e->epoch); break;
    case HDO_XEVENT_TICK:
    default: tick(m, out); break;
    }
}

const hdo_exchange_stats *hdo__exchange_stats(const hdo_exchange *m) {
    return &m->stats;
}
