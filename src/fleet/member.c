/* SPDX-License-Identifier: Apache-2.0 — a member, turn by turn: what has come, what is wished for, what is due. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/member_impl.h"
#include "hdo/experimental/all.h"

enum { MESSAGES_A_TURN = 256, CHUNKS_A_TURN = 4, REFUSE_US = 100 * 1000 };

/* ---- saying ---- */

static hdo_fleet_msg message(const hdo_member *m, hdo_fleet_type type) {
    hdo_fleet_msg x = {.type = type,
                       .from = m->s.id.member,
                       .from_epoch = m->s.id.epoch,
                       .class_id = m->s.id.class_id,
                       .step = atomic_load(&m->step),
                       .weight = 1.0f};
    memcpy(x.run, m->s.id.run_id, HDO_FLEET_ID);
    memcpy(x.config, m->s.id.config_hash, HDO_FLEET_ID);
    return x;
}

static bool say(hdo_member *m, const char *tail, const hdo_fleet_msg *x) {
    char subject[HDO_SUBJECT_MAX];
    snprintf(subject, sizeof subject, "hdo.%s.%s.%s", m->s.id.run, m->s.id.name, tail);
    return hdo__post_send(m->post, subject, x);
}

static bool say_to(hdo_member *m, const char *name, const hdo_fleet_msg *x) {
    char tail[HDO_FLEET_NAME + 8];
    snprintf(tail, sizeof tail, "to.%s", name);
    return say(m, tail, x);
}

static uint64_t resident_bytes(void) {
    unsigned long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL) return 0;
    if (fscanf(f, "%lu %lu", &all, &pages) != 2) pages = 0;
    fclose(f);
    return (uint64_t)pages * 4096;
}

static void count(hdo_member *m, hdo_fleet_drop why) {
    pthread_mutex_lock(&m->shared);
    m->stats.drops[why]++;
    pthread_mutex_unlock(&m->shared);
}

static void beat(hdo_member *m) {
    unsigned char body[HDO_FLEET_BEAT_BYTES];
    hdo_member_stats st;
    hdo__member_stats(m, &st);
    hdo_roster_view v;
    hdo__roster_look(&m->roster, m->now_us, &v);
    hdo_fleet_beat b = {.nodes = (uint32_t)m->s.id.nodes,
                        .place = (uint32_t)m->s.id.place,
                        .beat_ms = (uint32_t)(1e3 * m->s.beat_s),
                        .leaving = atomic_load(&m->leaving),
                        .heard = (uint32_t)v.members,
                        .exchanges = st.met,
                        .expired = (uint64_t)st.exchange.expired,
                        .far = (uint64_t)st.exchange.far,
                        .missed = st.missed,
                        .bytes = st.bytes,
                        .rss = resident_bytes()};
    memcpy(b.drops, st.drops, sizeof b.drops);
    snprintf(b.name, sizeof b.name, "%s", m->s.id.name);
    snprintf(b.role, sizeof b.role, "%s", m->s.id.role);
    snprintf(b.version, sizeof b.version, "%s", hdo_version());
    pthread_mutex_lock(&m->shared);
    hdo_member_figures f = m->figures;
    m->view = v;
    pthread_mutex_unlock(&m->shared);
    b.evaluated = f.evaluated;
    b.loss = f.loss;
    b.accuracy = f.accuracy;
    b.steps_per_s = f.steps_per_s;
    hdo__fleet_put_beat(&b, body);
    hdo_fleet_msg x = message(m, HDO_FLEET_BEAT);
    x.step = f.step;
    x.data = body;
    x.len = x.total = sizeof body;
    say(m, "beat", &x);
    m->beat_due_us = m->now_us + (int64_t)(1e6 * m->s.beat_s);
}

/* ---- exchanges ---- */

static void deliver(hdo_member *m, int i, const hdo_xevent *e);

/* To a node of this member at once, to others over the bus. The lock of the node that speaks is held: what it has to
 * say points into it. */
static void pass_on(hdo_member *m, const hdo_xmsg *x) {
    uint64_t to = hdo__fleet_member(x->to);
    if (to == m->s.id.member) {
        hdo_xevent e = {.kind = HDO_XEVENT_MESSAGE, .now_us = m->now_us, .msg = x};
        deliver(m, (int)(x->to - to), &e);
        return;
    }
    const hdo_roster_entry *p = hdo__roster_find(&m->roster, to);
    const char *name = p != NULL ? p->beat.name : to == m->asker ? m->asker_name : NULL;
    if (name == NULL) return;
    if (hdo__post_leaving(m->post, x->from, x->to, x->seq)) return; /* what it asks for, or repeats, has not left yet */
    hdo_fleet_msg msg = message(m, HDO_FLEET_EXCHANGE);
    msg.kind = (unsigned)x->kind;
    msg.from = x->from;
    msg.to = x->to;
    msg.to_epoch = x->to_epoch;
    msg.seq = x->seq;
    if (x->data != NULL) {
        msg.weight = x->weight;
        msg.data = (const unsigned char *)x->data;
        msg.len = msg.total = x->len * sizeof(float);
    }
    say_to(m, name, &msg);
}

/* An offer is over. Who has one out refuses those of others, so nobody should always have one out: a rest of up to
 * twice the time it took, by chance. Where answers come at once that is nothing. */
static void rest(hdo_member *m, int i) {
    hdo_member_node *n = &m->node[i];
    hdo_stream s = hdo__stream(m->s.id.seed, HDO_RNG_FLEET, (uint32_t)(m->s.id.place + i), (uint64_t)n->offered_us, 1);
    double most = fmin((double)(m->now_us - n->offered_us), 0.125 * (double)m->wait_max_us);
    n->rest_us = m->now_us + (int64_t)(2.0 * hdo__rng_double(s, 2) * most);
}

/* An event of node i. Talking to a sibling takes its lock too, in the order of the conversation: only this thread ever
 * holds two. */
static void deliver(hdo_member *m, int i, const hdo_xevent *event) {
    hdo_member_node *n = &m->node[i];
    hdo_xevent e = *event;
    hdo_xout out;
    e.x = n->x;
    bool was_out = !hdo__exchange_can_offer(n->machine);
    bool may_move = e.kind == HDO_XEVENT_MESSAGE && e.msg->data != NULL;
    double before = may_move ? hdo__flow_measure(n->x, m->s.len) : 0.0;
    if (e.kind == HDO_XEVENT_OFFER) n->offered_us = m->now_us;
    hdo__exchange_step(n->machine, &e, &out);
    if (was_out && hdo__exchange_can_offer(n->machine)) rest(m, i);
    if (out.moved) {
        bool local = hdo__fleet_member(e.msg->from) == m->s.id.member;
        double moved = hdo__flow_measure(n->x, m->s.len) - before;
        hdo__flow_add(&m->flows, n->id, e.msg->from, local ? m->s.id.epoch : e.msg->from_epoch, moved);
        pthread_mutex_lock(&m->shared);
        m->stats.met++;
        m->stats.local += local;
        pthread_mutex_unlock(&m->shared);
    }
    for (int k = 0; k < out.n; k++) pass_on(m, &out.msg[k]);
    atomic_store(&n->can_offer, hdo__exchange_can_offer(n->machine));
}

static void lock_all(hdo_member *m) {
    for (int i = 0; i < m->s.id.nodes; i++) pthread_mutex_lock(&m->node[i].lock);
}
static void unlock_all(hdo_member *m) {
    for (int i = m->s.id.nodes - 1; i >= 0; i--) pthread_mutex_unlock(&m->node[i].lock);
}

/* With siblings every event may reach any of them: all are locked. One node alone locks itself. */
static void event_of(hdo_member *m, int i, const hdo_xevent *e) {
    lock_all(m);
    deliver(m, i, e);
    unlock_all(m);
}

static void on_exchange(hdo_member *m, const hdo_fleet_msg *x, const char *name) {
    int i = (int)(x->to - m->s.id.member);
    if (x->to == 0 || i >= m->s.id.nodes) {
        count(m, HDO_DROP_LENGTH);
        return;
    }
    hdo_xmsg msg = {.kind = (hdo_xmsg_kind)x->kind,
                    .from = x->from,
                    .to = x->to,
                    .from_epoch = x->from_epoch,
                    .to_epoch = x->to_epoch,
                    .seq = x->seq,
                    .weight = x->weight};
    if (x->total > 0) {
        hdo_fleet_drop drop;
        msg.data = hdo__post_take(m->post, x, m->now_us, &drop);
        msg.len = m->s.len;
        if (drop != HDO_DROP_NONE) count(m, drop);
        if (msg.data == NULL) return;
    }
    if (x->kind == HDO_XMSG_OFFER && atomic_load(&m->leaving))
        return; /* its question will be answered: never applied */
    if (x->kind == HDO_XMSG_ASK && hdo__post_coming(m->post, x->from, x->seq, m->now_us)) return; /* too early to ask */
    m->asker = hdo__fleet_member(x->from); /* it may have heard of us before we of it */
    memcpy(m->asker_name, name, strlen(name) + 1);
    event_of(m, i, &(hdo_xevent){.kind = HDO_XEVENT_MESSAGE, .now_us = m->now_us, .msg = &msg});
}

/* A wish of node i: an offer to a node drawn from the living. */
static void offer(hdo_member *m, int i) {
    hdo_member_node *n = &m->node[i];
    if (m->now_us < n->rest_us) return; /* the wish stays */
    uint64_t wish = atomic_exchange(&n->wish, 0);
    uint32_t epoch = 0;
    if (wish == 0) return;
    hdo_stream s = hdo__stream(m->s.id.seed, HDO_RNG_FLEET, (uint32_t)(m->s.id.place + i), wish, m->s.id.epoch);
    uint64_t to = hdo__roster_draw(&m->roster, n->id, m->s.id.nodes, m->now_us, s, &epoch);
    if (epoch == 0) epoch = m->s.id.epoch;
    lock_all(m);
    bool able = to != 0 && hdo__exchange_can_offer(n->machine);
    if (able) deliver(m, i, &(hdo_xevent){.kind = HDO_XEVENT_OFFER, .now_us = m->now_us, .member = to, .epoch = epoch});
    unlock_all(m);
    if (!able) {
        pthread_mutex_lock(&m->shared);
        m->stats.missed++;
        pthread_mutex_unlock(&m->shared);
    }
}

/* ---- hearing ---- */

static void end(hdo_member *m, hdo_member_end how, const char *why) {
    pthread_mutex_lock(&m->shared);
    if (m->end == HDO_MEMBER_ON) {
        m->end = how;
        snprintf(m->why, sizeof m->why, "%s", why);
    }
    pthread_mutex_unlock(&m->shared);
}

static void on_beat(hdo_member *m, const hdo_fleet_msg *x, const char *name) {
    hdo_fleet_beat b;
    if (!hdo__fleet_read_beat(x->data, x->len, &b) || strcmp(b.name, name) != 0) {
        count(m, HDO_DROP_LENGTH);
        return;
    }
    if (x->from == m->s.id.member) { /* our own name */
        if (x->from_epoch > m->s.id.epoch) end(m, HDO_MEMBER_REPLACED, "another process has taken the name");
        return;
    }
    if (hdo__roster_note(&m->roster, x, &b, m->now_us) == NULL) {
        count(m, HDO_DROP_EPOCH);
        return;
    }
    if (b.leaving == HDO_LEAVING_TARGET) end(m, HDO_MEMBER_TARGET, name);
    hdo_xevent e = {.kind = HDO_XEVENT_PEER, .now_us = m->now_us, .epoch = x->from_epoch};
    for (uint32_t k = 0; k < b.nodes; k++) {
        for (int i = 0; i < m->s.id.nodes; i++) {
            e.member = x->from + k;
            event_of(m, i, &e);
        }
    }
}

static void refuse(hdo_member *m, const char *name, hdo_fleet_drop why) {
    if (m->now_us < m->refuse_due_us) return; /* a flood of newcomers makes nobody work */
    m->refuse_due_us = m->now_us + REFUSE_US;
    hdo_fleet_msg x = message(m, HDO_FLEET_REFUSE);
    x.kind = (unsigned)why;
    pthread_mutex_lock(&m->shared);
    m->stats.refused++;
    pthread_mutex_unlock(&m->shared);
    say_to(m, name, &x);
}

static void hand_config(hdo_member *m, const char *name, const hdo_fleet_msg *q) {
    hdo_fleet_msg x = message(m, HDO_FLEET_CONFIG);
    x.seq = q->seq;
    x.to = q->from;
    x.data = (const unsigned char *)m->s.config_text;
    x.len = x.total = strlen(m->s.config_text);
    say_to(m, name, &x);
}

/* Somebody asks for a model: that of the first node, at most one answer a tenth of a second. */
static void hand_model(hdo_member *m, const char *name, const hdo_fleet_msg *q) {
    if (m->now_us < m->serve_due_us) return;
    m->serve_due_us = m->now_us + REFUSE_US / 10;
    hdo_fleet_msg x = message(m, HDO_FLEET_MODEL);
    x.seq = q->seq;
    x.to = q->from;
    x.data = (const unsigned char *)m->node[0].x;
    x.len = x.total = m->s.len * sizeof(float);
    pthread_mutex_lock(&m->node[0].lock);
    bool sent = say_to(m, name, &x);
    pthread_mutex_unlock(&m->node[0].lock);
    pthread_mutex_lock(&m->shared);
    m->stats.served += sent;
    pthread_mutex_unlock(&m->shared);
}

static void hear(hdo_member *m, const hdo_bus_message *raw) {
    char name[HDO_FLEET_NAME];
    hdo_fleet_msg x;
    if (!hdo__subject_word(raw->subject, 2, name, sizeof name)) {
        count(m, HDO_DROP_LENGTH);
        return;
    }
    hdo_fleet_expect want = {.run = m->s.id.run_id,
                             .config = m->s.id.config_hash,
                             .self = m->s.id.member,
                             .epoch = m->s.id.epoch,
                             .sender = hdo__fleet_id(name),
                             .classes = m->s.id.classes,
                             .model_bytes = m->s.len * sizeof(float)};
    hdo_fleet_drop drop = hdo__fleet_read(raw->data, raw->len, &want, &x);
    if (drop != HDO_DROP_NONE) {
        count(m, drop);
        if (x.type == HDO_FLEET_HELLO) refuse(m, name, drop);
        return;
    }
    switch (x.type) {
    case HDO_FLEET_BEAT: on_beat(m, &x, name); break;
    case HDO_FLEET_EXCHANGE: on_exchange(m, &x, name); break;
    case HDO_FLEET_ASK_CONFIG: hand_config(m, name, &x); break;
    case HDO_FLEET_ASK_MODEL: hand_model(m, name, &x); break;
    case HDO_FLEET_STOP: end(m, HDO_MEMBER_STOP, name); break;
    case HDO_FLEET_HELLO: m->beat_due_us = m->now_us; break; /* so that it hears of us at once */
    default: break;                                          /* answers to questions of an earlier life */
    }
}

/* ---- a turn ---- */

static double patience(hdo_member *m, double wait_s) {
    int64_t due = m->beat_due_us;
    if (hdo__post_busy(m->post)) return 0.0;
    for (int i = 0; i < m->s.id.nodes; i++) {
        hdo_member_node *n = &m->node[i];
        bool wishes = atomic_load(&n->wish) != 0;
        if (wishes && n->rest_us <= m->now_us) return 0.0;
        pthread_mutex_lock(&n->lock);
        int64_t t = hdo__exchange_due_us(n->machine);
        if (wishes && n->rest_us < t) t = n->rest_us;
        pthread_mutex_unlock(&n->lock);
        if (t < due) due = t;
    }
    return fmin(wait_s, fmax(0.0, 1e-6 * (double)(due - m->now_us)));
}

void hdo__member_turn(hdo_member *m, int64_t now_us, double wait_s) {
    hdo_bus_message raw;
    m->now_us = now_us;
    double wait = patience(m, wait_s);
    for (int k = 0; k < MESSAGES_A_TURN && m->bus->ops->poll(m->bus, wait, &raw); k++) {
        if (wait > 0.0) m->now_us = (int64_t)(1e6 * hdo__now_s()); /* a real clock, then */
        wait = 0.0;
        hear(m, &raw);
    }
    if (wait > 0.0) m->now_us = (int64_t)(1e6 * hdo__now_s());
    for (int i = 0; i < m->s.id.nodes; i++) {
        pthread_mutex_lock(&m->node[i].lock);
        bool due = hdo__exchange_due_us(m->node[i].machine) <= m->now_us;
        pthread_mutex_unlock(&m->node[i].lock);
        if (due) event_of(m, i, &(hdo_xevent){.kind = HDO_XEVENT_TICK, .now_us = m->now_us});
        if (!atomic_load(&m->leaving)) offer(m, i);
    }
    if (atomic_exchange(&m->beat_now, false) || m->now_us >= m->beat_due_us) beat(m);
    hdo__post_work(m->post, CHUNKS_A_TURN);
}
