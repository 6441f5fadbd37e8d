/* SPDX-License-Identifier: Apache-2.0 — a member: creation, the thread that talks, what the nodes see of it, the end.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "fleet/member_impl.h"

enum { SMALL = 1 << 20, WAIT_MIN_US = 20 * 1000, WAIT_MAX_US = 4 * 1000 * 1000, TURN_MS = 50, BYTES_A_US = 4 };

static int64_t now_us(void) {
    return (int64_t)(1e6 * hdo__now_s());
}

/* ---- creation ---- */

static hdo_status subscribe(hdo_member *m, hdo_error *e) {
    static const char *const tails[] = {"beat", "hello", "stop"};
    char subject[HDO_SUBJECT_MAX];
    hdo_status st = HDO_OK;
    for (int k = 0; k < 3 && st == HDO_OK; k++) {
        snprintf(subject, sizeof subject, "hdo.%s.*.%s", m->s.id.run, tails[k]);
        st = m->bus->ops->subscribe(m->bus, subject, e);
    }
    snprintf(subject, sizeof subject, "hdo.%s.*.to.%s", m->s.id.run, m->s.id.name);
    return st == HDO_OK ? m->bus->ops->subscribe(m->bus, subject, e) : st;
}

static hdo_status start_machines(hdo_member *m, hdo_error *e) {
    size_t bytes = m->s.len * sizeof(float);
    int64_t wait_max = WAIT_MAX_US + (int64_t)(bytes / BYTES_A_US); /* a long model over a thin line, there and back */
    int64_t forget = (int64_t)(1e6 * m->s.forget_s);
    m->wait_max_us = wait_max;
    hdo_exchange_setup s = {.epoch = m->s.id.epoch,
                            .len = m->s.len,
                            .weight = 1.0f,
                            .clip = m->s.clip,
                            .slots = bytes <= SMALL ? 8 : 2,
                            .doubts = 8,
                            .peers = HDO_ROSTER_MAX,
                            .wait_min_us = WAIT_MIN_US,
                            .wait_max_us = wait_max,
                            .forget_us = forget > 4 * wait_max ? forget : 4 * wait_max};
    for (int i = 0; i < m->s.id.nodes; i++) {
        hdo_member_node *n = &m->node[i];
        s.self = n->id = m->s.id.member + (uint64_t)i;
        n->x = m->s.X + (size_t)i * m->s.ld;
        n->memory = hdo__alloc(hdo__exchange_bytes(&s));
        if (n->memory == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for exchanges");
        n->machine = hdo__exchange_start(n->memory, &s);
        atomic_store(&n->can_offer, true);
    }
    return HDO_OK;
}

hdo_status hdo__member_create(hdo_member **out, const hdo_member_setup *s, hdo_error *e) {
    hdo_member *m = *out = hdo__alloc(sizeof *m);
    if (m == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the member");
    m->s = *s;
    m->bus = s->bus;
    pthread_mutex_init(&m->shared, NULL);
    m->node = hdo__alloc((size_t)s->id.nodes * sizeof *m->node);
    m->flows.flow = hdo__alloc(HDO_FLOWS_MAX * sizeof *m->flows.flow);
    hdo_status st = m->node != NULL && m->flows.flow != NULL
                        ? hdo__roster_init(&m->roster, e)
                        : hdo__fail(e, HDO_E_MEMORY, "out of memory for the member");
    for (int i = 0; i < s->id.nodes && m->node != NULL; i++) pthread_mutex_init(&m->node[i].lock, NULL);
    if (st == HDO_OK) st = hdo__post_create(&m->post, m->bus, s->len * sizeof(float), 2, e);
    if (st == HDO_OK) st = start_machines(m, e);
    if (st == HDO_OK) st = subscribe(m, e);
    if (st != HDO_OK) {
        hdo__member_destroy(m);
        *out = NULL;
    }
    return st;
}

void hdo__member_destroy(hdo_member *m) {
    if (m == NULL) return;
    atomic_store(&m->done, true);
    if (m->started) pthread_join(m->thread, NULL);
    for (int i = 0; i < m->s.id.nodes && m->node != NULL; i++) {
        pthread_mutex_destroy(&m->node[i].lock);
        hdo__free(m->node[i].memory);
    }
    hdo__free(m->node);
    hdo__free(m->flows.flow);
    hdo__post_destroy(m->post);
    hdo__roster_clear(&m->roster);
    pthread_mutex_destroy(&m->shared);
    hdo__free(m);
}

/* ---- the thread ---- */

static void look_at_bus(hdo_member *m) {
    hdo_bus_state b;
    m->bus->ops->state(m->bus, &b);
    pthread_mutex_lock(&m->shared);
    m->stats.reconnects = b.reconnects;
    m->stats.lost = b.lost;
    if (b.refused && m->end == HDO_MEMBER_ON) {
        m->end = HDO_MEMBER_REFUSED;
        snprintf(m->why, sizeof m->why, "%s", b.why);
    }
    pthread_mutex_unlock(&m->shared);
}

static void *talk(void *ctx) {
    hdo_member *m = ctx;
    while (!atomic_load(&m->done)) {
        hdo__member_turn(m, now_us(), 1e-3 * TURN_MS);
        look_at_bus(m);
    }
    return NULL;
}

hdo_status hdo__member_start(hdo_member *m, hdo_error *e) {
    if (pthread_create(&m->thread, NULL, talk, m) != 0)
        return hdo__fail(e, HDO_E_FAILED, "the thread that talks to the fleet could not be started");
    m->started = true;
    return HDO_OK;
}

bool hdo__member_settled(hdo_member *m) {
    bool open = false;
    for (int i = 0; i < m->s.id.nodes; i++) {
        pthread_mutex_lock(&m->node[i].lock);
        open = open || hdo__exchange_due_us(m->node[i].machine) != INT64_MAX;
        pthread_mutex_unlock(&m->node[i].lock);
    }
    return !open;
}

void hdo__member_leave(hdo_member *m, unsigned how, double limit_s) {
    double until = hdo__now_s() + limit_s;
    atomic_store(&m->leaving, how);
    atomic_store(&m->beat_now, true);
    for (int i = 0; i < m->s.id.nodes; i++) atomic_store(&m->node[i].wish, 0);
    m->bus->ops->wake(m->bus);
    struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    while (m->started && hdo__now_s() < until && (atomic_load(&m->beat_now) || !hdo__member_settled(m)))
        nanosleep(&pause, NULL);
    atomic_store(&m->done, true);
    m->bus->ops->wake(m->bus);
    if (m->started) pthread_join(m->thread, NULL);
    m->started = false;
    for (int i = 0; i < m->s.id.nodes; i++) {
        if (hdo__exchange_due_us(m->node[i].machine) != INT64_MAX) m->stats.unsettled++;
    }
}

/* ---- of the thread that steps ---- */

float *hdo__member_lock(hdo_member *m, int i) {
    pthread_mutex_lock(&m->node[i].lock);
    return m->node[i].x;
}

void hdo__member_unlock(hdo_member *m, int i) {
    pthread_mutex_unlock(&m->node[i].lock);
}

void hdo__member_wish(hdo_member *m, int i, uint64_t step) {
    hdo_member_node *n = &m->node[i];
    if (!atomic_load(&n->can_offer) || atomic_exchange(&n->wish, step + 1) != 0) {
        pthread_mutex_lock(&m->shared);
        m->stats.missed++;
        pthread_mutex_unlock(&m->shared);
        return;
    }
    m->bus->ops->wake(m->bus);
}

void hdo__member_tell(hdo_member *m, const hdo_member_figures *f) {
    atomic_store(&m->step, f->step);
    pthread_mutex_lock(&m->shared);
    m->figures = *f;
    pthread_mutex_unlock(&m->shared);
}

void hdo__member_look(hdo_member *m, hdo_roster_view *v) {
    pthread_mutex_lock(&m->shared);
    *v = m->view;
    hdo_member_figures f = m->figures;
    pthread_mutex_unlock(&m->shared);
    double nodes = (double)m->s.id.nodes;
    v->members++;
    v->nodes += m->s.id.nodes;
    if (!f.evaluated || !isfinite(f.loss)) return;
    double all = (double)v->evaluated + nodes;
    v->loss = (v->loss * (double)v->evaluated + f.loss * nodes) / all;
    v->accuracy = (v->accuracy * (double)v->evaluated + f.accuracy * nodes) / all;
    v->evaluated += m->s.id.nodes;
}

hdo_member_end hdo__member_ended(hdo_member *m, char *why, size_t cap) {
    pthread_mutex_lock(&m->shared);
    hdo_member_end end = m->end;
    snprintf(why, cap, "%s", m->why);
    pthread_mutex_unlock(&m->shared);
    return end;
}

void hdo__member_stats(hdo_member *m, hdo_member_stats *s) {
    pthread_mutex_lock(&m->shared);
    *s = m->stats;
    pthread_mutex_unlock(&m->shared);
    s->bytes = hdo__post_bytes(m->post);
    s->exchange = (hdo_exchange_stats){0};
    int64_t *sum = (int64_t *)&s->exchange;
    for (int i = 0; i < m->s.id.nodes; i++) {
        pthread_mutex_lock(&m->node[i].lock);
        const int64_t *own = (const int64_t *)hdo__exchange_stats(m->node[i].machine);
        for (size_t k = 0; k < sizeof s->exchange / sizeof *sum; k++) sum[k] += own[k];
        s->round_s = 1e-6 * hdo__exchange_wait_us(m->node[i].machine);
        pthread_mutex_unlock(&m->node[i].lock);
    }
}

const hdo_flows *hdo__member_flows(const hdo_member *m) {
    return &m->flows;
}
