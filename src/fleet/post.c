/* SPDX-License-Identifier: Apache-2.0 — models in chunks: see post.h. */
#include "fleet/post.h"

#include <string.h>

#include "base/arena.h"

enum { STALE_US = 5 * 1000 * 1000 }; /* a model whose chunks stopped coming gives its room away */

typedef struct arrival {
    uint64_t from, seq; /* from 0: free */
    uint32_t epoch;
    unsigned type, kind;
    size_t missing; /* chunks */
    int64_t heard_us;
    unsigned char *body, *seen; /* seen: one byte a chunk */
} arrival;

typedef struct departure {
    bool waits;
    char subject[HDO_SUBJECT_MAX];
    hdo_fleet_msg head;
    unsigned char *body;
} departure;

struct hdo_post {
    hdo_bus *bus;
    size_t bytes, chunks; /* of a model */
    int rooms, turn;
    arrival *in;           /* (rooms) */
    departure *out;        /* (rooms) */
    float *whole;          /* a model that came in one piece */
    unsigned char *packet; /* header and chunk */
    uint64_t sent;
};

hdo_status hdo__post_create(hdo_post **out, hdo_bus *bus, size_t model_bytes, int rooms, hdo_error *e) {
    hdo_post *p = *out = hdo__alloc(sizeof *p);
    if (p == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for messages");
    p->bus = bus;
    p->bytes = model_bytes;
    p->chunks = (model_bytes + HDO_FLEET_CHUNK - 1) / HDO_FLEET_CHUNK;
    p->rooms = rooms;
    size_t packet = p->chunks > 1 ? HDO_FLEET_CHUNK : model_bytes; /* and every text */
    if (packet < HDO_FLEET_TEXT_MAX) packet = HDO_FLEET_TEXT_MAX;
    p->packet = hdo__alloc(HDO_FLEET_HEAD + packet);
    p->in = hdo__alloc((size_t)rooms * sizeof *p->in);
    p->out = hdo__alloc((size_t)rooms * sizeof *p->out);
    bool ok = p->packet != NULL && p->in != NULL && p->out != NULL;
    if (ok && p->chunks <= 1) ok = (p->whole = hdo__alloc(model_bytes + 1)) != NULL;
    for (int k = 0; k < rooms && ok && p->chunks > 1; k++) {
        p->in[k].body = hdo__alloc(model_bytes);
        p->in[k].seen = hdo__alloc(p->chunks);
        p->out[k].body = hdo__alloc(model_bytes);
        ok = p->in[k].body != NULL && p->in[k].seen != NULL && p->out[k].body != NULL;
    }
    if (ok) return HDO_OK;
    hdo__post_destroy(p);
    *out = NULL;
    return hdo__fail(e, HDO_E_MEMORY, "out of memory for %d models under way (%.1f MB each)", 2 * rooms,
                     (double)model_bytes / 1e6);
}

void hdo__post_destroy(hdo_post *p) {
    if (p == NULL) return;
    for (int k = 0; k < p->rooms; k++) {
        if (p->in != NULL) hdo__free(p->in[k].body);
        if (p->in != NULL) hdo__free(p->in[k].seen);
        if (p->out != NULL) hdo__free(p->out[k].body);
    }
    hdo__free(p->in);
    hdo__free(p->out);
    hdo__free(p->whole);
    hdo__free(p->packet);
    hdo__free(p);
}

/* ---- arriving ---- */

static bool is_of(const arrival *a, const hdo_fleet_msg *m) {
    return a->from == m->from && a->epoch == m->from_epoch && a->seq == m->seq && a->type == (unsigned)m->type &&
           a->kind == m->kind;
}

/* Its room, or a free one, or that of somebody who has fallen silent. */
static arrival *room_for(hdo_post *p, const hdo_fleet_msg *m, int64_t now_us) {
    arrival *best = NULL;
    for (int k = 0; k < p->rooms; k++) {
        arrival *a = &p->in[k];
        if (is_of(a, m)) return a;
        bool usable = a->from == 0 || now_us - a->heard_us > STALE_US;
        if (usable && (best == NULL || (best->from != 0 && a->from == 0))) best = a;
    }
    if (best == NULL) return NULL;
    best->from = m->from;
    best->epoch = m->from_epoch;
    best->seq = m->seq;
    best->type = (unsigned)m->type;
    best->kind = m->kind;
    best->missing = p->chunks;
    memset(best->seen, 0, p->chunks);
    return best;
}

const float *hdo__post_take(hdo_post *p, const hdo_fleet_msg *m, int64_t now_us, hdo_fleet_drop *drop) {
    *drop = HDO_DROP_NONE;
    if (p->chunks <= 1) {
        memcpy(p->whole, m->data, m->len);
        return p->whole;
    }
    arrival *a = room_for(p, m, now_us);
    if (a == NULL) {
        *drop = HDO_DROP_ROOM;
        return NULL;
    }
    size_t k = (size_t)(m->offset / HDO_FLEET_CHUNK);
    a->heard_us = now_us;
    memcpy(a->body + m->offset, m->data, m->len);
    if (a->seen[k] == 0) a->missing--;
    a->seen[k] = 1;
    if (a->missing > 0) return NULL;
    a->from = 0;
    return (const float *)(const void *)a->body; /* of hdo__alloc: aligned */
}

bool hdo__post_coming(const hdo_post *p, uint64_t from, uint64_t seq, int64_t now_us) {
    for (int k = 0; k < p->rooms; k++) {
        const arrival *a = &p->in[k];
        if (a->from == from && a->seq == seq && now_us - a->heard_us <= STALE_US) return true;
    }
    return false;
}

/* ---- leaving ---- */

bool hdo__post_leaving(const hdo_post *p, uint64_t from, uint64_t to, uint64_t seq) {
    for (int k = 0; k < p->rooms; k++) {
        const departure *d = &p->out[k];
        if (d->waits && d->head.from == from && d->head.to == to && d->head.seq == seq) return true;
    }
    return false;
}

static bool send_chunk(hdo_post *p, const char *subject, hdo_fleet_msg *m, const unsigned char *body) {
    uint64_t rest = m->total - m->offset;
    m->len = (size_t)(rest < HDO_FLEET_CHUNK ? rest : HDO_FLEET_CHUNK);
    hdo__fleet_put_head(m, p->packet);
    if (m->len > 0) memcpy(p->packet + HDO_FLEET_HEAD, body + m->offset, m->len);
    p->sent += HDO_FLEET_HEAD + m->len;
    return p->bus->ops->publish(p->bus, subject, p->packet, HDO_FLEET_HEAD + m->len);
}

bool hdo__post_send(hdo_post *p, const char *subject, const hdo_fleet_msg *m) {
    hdo_fleet_msg head = *m;
    head.offset = 0;
    if (m->total <= HDO_FLEET_CHUNK) return send_chunk(p, subject, &head, m->data);
    for (int k = 0; k < p->rooms; k++) {
        departure *d = &p->out[k];
        if (d->waits) continue;
        d->waits = true;
        d->head = head;
        memcpy(d->subject, subject, strlen(subject) + 1);
        memcpy(d->body, m->data, m->total);
        return true;
    }
    return false;
}

bool hdo__post_busy(const hdo_post *p) {
    for (int k = 0; k < p->rooms; k++) {
        if (p->out[k].waits) return true;
    }
    return false;
}

bool hdo__post_work(hdo_post *p, int chunks) {
    for (int idle = 0; chunks > 0 && idle < p->rooms; p->turn = (p->turn + 1) % p->rooms) {
        departure *d = &p->out[p->turn];
        idle = d->waits ? 0 : idle + 1;
        if (!d->waits) continue;
        chunks--;
        bool taken = send_chunk(p, d->subject, &d->head, d->body);
        d->head.offset += d->head.len;
        d->waits = taken && d->head.offset < d->head.total; /* a chunk lost: the rest is of no use */
    }
    return hdo__post_busy(p);
}

uint64_t hdo__post_bytes(const hdo_post *p) {
    return p->sent;
}
