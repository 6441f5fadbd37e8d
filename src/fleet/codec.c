/* SPDX-License-Identifier: Apache-2.0 — messages of a fleet as bytes: the layout is in codec.h. */
#include "fleet/codec.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/sha256.h"

const char *const hdo__fleet_drop_names[HDO_DROPS] = {"none",  "length", "version", "run",        "configuration",
                                                      "class", "epoch",  "sender",  "not_finite", "room"};

/* ---- numbers ---- */

static void put_u16(unsigned char *p, unsigned v) {
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}
static void put_u32(unsigned char *p, uint32_t v) {
    for (int k = 0; k < 4; k++) p[k] = (unsigned char)(v >> (8 * k));
}
static void put_u64(unsigned char *p, uint64_t v) {
    for (int k = 0; k < 8; k++) p[k] = (unsigned char)(v >> (8 * k));
}
static unsigned get_u16(const unsigned char *p) {
    return (unsigned)p[0] | (unsigned)p[1] << 8;
}
static uint32_t get_u32(const unsigned char *p) {
    uint32_t v = 0;
    for (int k = 0; k < 4; k++) v |= (uint32_t)p[k] << (8 * k);
    return v;
}
static uint64_t get_u64(const unsigned char *p) {
    uint64_t v = 0;
    for (int k = 0; k < 8; k++) v |= (uint64_t)p[k] << (8 * k);
    return v;
}
static float as_float(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
static uint32_t float_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
static void put_real(unsigned char *p, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_u64(p, bits);
}
static double get_real(const unsigned char *p) {
    uint64_t bits = get_u64(p);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* ---- names ---- */

uint64_t hdo__fleet_id(const char *name) {
    unsigned char digest[32];
    hdo_sha256 h;
    hdo__sha256_init(&h);
    hdo__sha256_update(&h, name, strlen(name));
    hdo__sha256_final(&h, digest);
    uint64_t id = hdo__fleet_member(get_u64(digest));
    return id != 0 ? id : HDO_FLEET_NODES_MAX;
}

void hdo__fleet_run_id(const char *name, unsigned char id[HDO_FLEET_ID]) {
    unsigned char digest[32];
    hdo_sha256 h;
    hdo__sha256_init(&h);
    hdo__sha256_update(&h, "run ", 4);
    hdo__sha256_update(&h, name, strlen(name));
    hdo__sha256_final(&h, digest);
    memcpy(id, digest, HDO_FLEET_ID);
}

bool hdo__fleet_name_ok(const char *name) {
    size_t len = strlen(name);
    if (len == 0 || len >= HDO_FLEET_NAME) return false;
    for (size_t k = 0; k < len; k++) {
        if (!isalnum((unsigned char)name[k]) && name[k] != '-' && name[k] != '_') return false;
    }
    return true;
}

/* ---- the header ---- */

void hdo__fleet_put_head(const hdo_fleet_msg *m, unsigned char h[HDO_FLEET_HEAD]) {
    memset(h, 0, HDO_FLEET_HEAD);
    memcpy(h, "HDOF", 4);
    put_u16(h + 4, HDO_FLEET_PROTOCOL);
    h[6] = (unsigned char)m->type;
    h[7] = (unsigned char)m->kind;
    memcpy(h + 8, m->run, HDO_FLEET_ID);
    memcpy(h + 24, m->config, HDO_FLEET_ID);
    put_u64(h + 40, m->from);
    put_u64(h + 48, m->to);
    put_u32(h + 56, m->from_epoch);
    put_u32(h + 60, m->to_epoch);
    put_u64(h + 64, m->seq);
    put_u64(h + 72, m->step);
    put_u32(h + 80, m->class_id);
    put_u32(h + 84, float_bits(m->weight));
    put_u64(h + 88, m->total);
    put_u64(h + 96, m->offset);
    put_u32(h + 104, (uint32_t)m->len);
}

static bool has_model(const hdo_fleet_msg *m) {
    return m->type == HDO_FLEET_MODEL ||
           (m->type == HDO_FLEET_EXCHANGE && (m->kind == HDO_XMSG_OFFER || m->kind == HDO_XMSG_ANSWER));
}

/* A model comes in chunks of one size, the last of what is left. */
static bool is_chunk(const hdo_fleet_msg *m, const hdo_fleet_expect *x) {
    uint64_t rest = m->total - m->offset;
    return m->total == x->model_bytes && m->total > 0 && m->offset % HDO_FLEET_CHUNK == 0 &&
           m->len == (rest < HDO_FLEET_CHUNK ? rest : HDO_FLEET_CHUNK);
}

/* Lengths and kinds that go together. */
static bool fits(const hdo_fleet_msg *m, size_t rest, const hdo_fleet_expect *x) {
    if (m->len != rest || m->total > SIZE_MAX / 2 || m->offset > m->total || m->len > m->total - m->offset)
        return false;
    if (m->total > 0 && m->len == 0) return false;
    bool whole = m->offset == 0 && m->len == m->total;
    switch (m->type) {
    case HDO_FLEET_BEAT:
    case HDO_FLEET_HELLO: return whole && m->total == HDO_FLEET_BEAT_BYTES;
    case HDO_FLEET_REFUSE: return m->total == 0 && m->kind > HDO_DROP_NONE && m->kind < HDO_DROPS;
    case HDO_FLEET_CONFIG: return whole && m->total > 0 && m->total <= HDO_FLEET_TEXT_MAX;
    case HDO_FLEET_ASK_CONFIG:
    case HDO_FLEET_ASK_MODEL:
    case HDO_FLEET_STOP: return m->total == 0;
    case HDO_FLEET_MODEL: return is_chunk(m, x);
    case HDO_FLEET_EXCHANGE:
        if (m->kind < HDO_XMSG_OFFER || m->kind >= HDO_XMSG_KINDS || m->seq == 0) return false;
        return has_model(m) ? is_chunk(m, x) : m->total == 0;
    default: return false;
    }
}

/* Exponents that are all ones: infinities and what is no number. */
static bool finite(const hdo_fleet_msg *m) {
    if (!has_model(m)) return true;
    if (m->type == HDO_FLEET_EXCHANGE && !(isfinite(m->weight) && m->weight > 0.0f)) return false;
    uint32_t bad = 0;
    for (size_t k = 0; k < m->len; k += 4) bad |= (get_u32(m->data + k) & 0x7f800000u) == 0x7f800000u;
    return bad == 0;
}

static bool to_us(const hdo_fleet_msg *m, const hdo_fleet_expect *x) {
    return m->to == 0 || hdo__fleet_member(m->to) == x->self;
}

hdo_fleet_drop hdo__fleet_read(const void *bytes, size_t len, const hdo_fleet_expect *x, hdo_fleet_msg *m) {
    const unsigned char *h = bytes;
    *m = (hdo_fleet_msg){0};
    if (len < HDO_FLEET_HEAD || memcmp(h, "HDOF", 4) != 0) return HDO_DROP_LENGTH;
    m->type = (hdo_fleet_type)h[6];
    m->kind = h[7];
    memcpy(m->run, h + 8, HDO_FLEET_ID);
    memcpy(m->config, h + 24, HDO_FLEET_ID);
    m->from = get_u64(h + 40);
    m->from_epoch = get_u32(h + 56);
    if (get_u16(h + 4) != HDO_FLEET_PROTOCOL) return HDO_DROP_VERSION;
    m->to = get_u64(h + 48);
    m->to_epoch = get_u32(h + 60);
    m->seq = get_u64(h + 64);
    m->step = get_u64(h + 72);
    m->class_id = get_u32(h + 80);
    m->weight = as_float(get_u32(h + 84));
    m->total = get_u64(h + 88);
    m->offset = get_u64(h + 96);
    m->len = get_u32(h + 104);
    m->data = h + HDO_FLEET_HEAD;
    if (get_u32(h + 108) != 0 || m->from == 0 || !fits(m, len - HDO_FLEET_HEAD, x)) return HDO_DROP_LENGTH;
    if (x->sender != 0 && hdo__fleet_member(m->from) != x->sender) return HDO_DROP_SENDER;
    if (x->run != NULL && memcmp(x->run, m->run, HDO_FLEET_ID) != 0) return HDO_DROP_RUN;
    static const unsigned char none[HDO_FLEET_ID];
    bool newcomer = memcmp(none, m->config, HDO_FLEET_ID) == 0; /* may ask, and nothing else */
    if (newcomer && (has_model(m) || m->type == HDO_FLEET_BEAT || m->type == HDO_FLEET_EXCHANGE))
        return HDO_DROP_CONFIG;
    if (x->config != NULL && !newcomer && memcmp(x->config, m->config, HDO_FLEET_ID) != 0) return HDO_DROP_CONFIG;
    if (m->class_id != HDO_FLEET_NO_CLASS && x->classes > 0 && m->class_id >= (uint32_t)x->classes)
        return HDO_DROP_CLASS;
    if (m->class_id == HDO_FLEET_NO_CLASS && (m->type == HDO_FLEET_BEAT || m->type == HDO_FLEET_EXCHANGE))
        return HDO_DROP_CLASS;
    if (!to_us(m, x) || m->from_epoch == 0 || (x->epoch != 0 && m->to_epoch != 0 && m->to_epoch != x->epoch))
        return HDO_DROP_EPOCH;
    return finite(m) ? HDO_DROP_NONE : HDO_DROP_NOT_FINITE;
}

/* ---- a sign of life ---- */

void hdo__fleet_put_beat(const hdo_fleet_beat *b, unsigned char out[HDO_FLEET_BEAT_BYTES]) {
    unsigned char *p = out;
    const uint32_t word[6] = {b->nodes, b->place, b->beat_ms, b->leaving, b->evaluated, b->heard};
    const double real[3] = {b->loss, b->accuracy, b->steps_per_s};
    const uint64_t count[6] = {b->exchanges, b->expired, b->far, b->missed, b->bytes, b->rss};
    memcpy(p, b->name, HDO_FLEET_NAME);
    memcpy(p + HDO_FLEET_NAME, b->version, HDO_FLEET_NAME);
    memcpy(p + 2 * HDO_FLEET_NAME, b->role, HDO_FLEET_NAME);
    p += 3 * HDO_FLEET_NAME;
    for (int k = 0; k < 6; k++, p += 4) put_u32(p, word[k]);
    for (int k = 0; k < 3; k++, p += 8) put_real(p, real[k]);
    for (int k = 0; k < 6; k++, p += 8) put_u64(p, count[k]);
    for (int k = 0; k < HDO_DROPS; k++, p += 8) put_u64(p, b->drops[k]);
}

static bool get_text(const unsigned char *p, char out[HDO_FLEET_NAME]) {
    memcpy(out, p, HDO_FLEET_NAME);
    if (memchr(out, '\0', HDO_FLEET_NAME) == NULL) return false;
    bool plain = true; /* it will be printed */
    for (const char *c = out; *c != '\0'; c++) plain = plain && *c > ' ' && *c < 127;
    return plain;
}

bool hdo__fleet_read_beat(const unsigned char *data, size_t len, hdo_fleet_beat *b) {
    const unsigned char *p = data;
    uint32_t *word[6] = {&b->nodes, &b->place, &b->beat_ms, &b->leaving, &b->evaluated, &b->heard};
    double *real[3] = {&b->loss, &b->accuracy, &b->steps_per_s};
    uint64_t *count[6] = {&b->exchanges, &b->expired, &b->far, &b->missed, &b->bytes, &b->rss};
    *b = (hdo_fleet_beat){0};
    if (len != HDO_FLEET_BEAT_BYTES) return false;
    bool ok =
        get_text(p, b->name) && get_text(p + HDO_FLEET_NAME, b->version) && get_text(p + 2 * HDO_FLEET_NAME, b->role);
    p += 3 * HDO_FLEET_NAME;
    for (int k = 0; k < 6; k++, p += 4) *word[k] = get_u32(p);
    for (int k = 0; k < 3; k++, p += 8) *real[k] = get_real(p);
    for (int k = 0; k < 6; k++, p += 8) *count[k] = get_u64(p);
    for (int k = 0; k < HDO_DROPS; k++, p += 8) b->drops[k] = get_u64(p);
    return ok && hdo__fleet_name_ok(b->name) && b->nodes > 0 && b->nodes <= HDO_FLEET_NODES_MAX && b->beat_ms > 0 &&
           b->beat_ms <= 3600 * 1000 && b->place < (1u << 24);
}
