/* SPDX-License-Identifier: Apache-2.0 — questions to a run from outside: see join.h. */
#include "fleet/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "hdo/experimental/all.h"

enum { HELLO_US = 250 * 1000, TRIES = 3 };

static int64_t clock_us(void) {
    return (int64_t)(1e6 * hdo__now_s());
}

/* ---- life ---- */

hdo_status hdo__join_open(hdo_join *j, hdo_bus *bus, const char *run, const char *name, hdo_error *e) {
    static const char *const tails[] = {"beat", "hello"};
    char subject[HDO_SUBJECT_MAX];
    *j = (hdo_join){.bus = bus, .self = hdo__fleet_id(name), .epoch = 1, .class_id = HDO_FLEET_NO_CLASS};
    snprintf(j->run, sizeof j->run, "%s", run);
    snprintf(j->name, sizeof j->name, "%s", name);
    hdo__fleet_run_id(run, j->run_id);
    j->wish = (hdo_fleet_beat){.nodes = 1, .beat_ms = 1000, .leaving = 1};
    snprintf(j->wish.name, sizeof j->wish.name, "%s", name);
    snprintf(j->wish.version, sizeof j->wish.version, "%s", hdo_version());
    snprintf(j->wish.role, sizeof j->wish.role, "-");
    hdo_status st = hdo__roster_init(&j->roster, e);
    for (int k = 0; k < 2 && st == HDO_OK; k++) {
        snprintf(subject, sizeof subject, "hdo.%s.*.%s", run, tails[k]);
        st = bus->ops->subscribe(bus, subject, e);
    }
    snprintf(subject, sizeof subject, "hdo.%s.*.to.%s", run, name);
    if (st == HDO_OK) st = bus->ops->subscribe(bus, subject, e);
    return st;
}

void hdo__join_close(hdo_join *j) {
    if (j->bus != NULL) j->bus->ops->forget(j->bus);
    hdo__roster_clear(&j->roster);
    hdo__post_destroy(j->post);
    free(j->text);
    *j = (hdo_join){0};
}

bool hdo__join_say(hdo_join *j, const char *tail, hdo_fleet_type type, uint64_t to, const void *body, size_t len) {
    unsigned char packet[HDO_FLEET_HEAD + HDO_FLEET_BEAT_BYTES];
    char subject[HDO_SUBJECT_MAX];
    hdo_fleet_msg m = {.type = type,
                       .from = j->self,
                       .from_epoch = j->epoch,
                       .to = to,
                       .seq = ++j->seq,
                       .class_id = j->class_id,
                       .weight = 1.0f,
                       .total = len,
                       .len = len};
    memcpy(m.run, j->run_id, HDO_FLEET_ID);
    if (j->has_config) memcpy(m.config, j->config_hash, HDO_FLEET_ID);
    hdo__fleet_put_head(&m, packet);
    if (len > 0) memcpy(packet + HDO_FLEET_HEAD, body, len);
    snprintf(subject, sizeof subject, "hdo.%s.%s.%s", j->run, j->name, tail);
    return j->bus->ops->publish(j->bus, subject, packet, HDO_FLEET_HEAD + len);
}

/* ---- hearing ---- */

static void note(hdo_join *j, const hdo_fleet_msg *m, const char *name) {
    hdo_fleet_beat b;
    if (!hdo__fleet_read_beat(m->data, m->len, &b) || strcmp(b.name, name) != 0) {
        j->drops[HDO_DROP_LENGTH]++;
        return;
    }
    if (m->from == j->self) {
        if (m->from_epoch > j->epoch_seen) j->epoch_seen = m->from_epoch;
        return;
    }
    const hdo_roster_entry *known = hdo__roster_find(&j->roster, m->from);
    if (known == NULL || !hdo__roster_lives(known, j->now_us)) j->news_us = j->now_us;
    hdo__roster_note(&j->roster, m, &b, j->now_us);
}

/* Another newcomer wants the same place: who comes first by name keeps it. It counts as taken for us. */
static void note_rival(hdo_join *j, const hdo_fleet_msg *m, const char *name) {
    hdo_fleet_beat b;
    if (m->from == j->self || !hdo__fleet_read_beat(m->data, m->len, &b) || strcmp(b.name, name) != 0) return;
    if (strcmp(b.role, "-") != 0 && m->from < j->self) hdo__roster_note(&j->roster, m, &b, j->now_us);
}

static void take_text(hdo_join *j, const hdo_fleet_msg *m) {
    if (j->text != NULL || memchr(m->data, '\0', m->len) != NULL) return;
    j->text = malloc(m->len + 1);
    if (j->text == NULL) return;
    memcpy(j->text, m->data, m->len);
    j->text[m->len] = '\0';
}

static void hear(hdo_join *j, const hdo_bus_message *raw, size_t model_bytes) {
    char name[HDO_FLEET_NAME];
    hdo_fleet_msg m;
    if (!hdo__subject_word(raw->subject, 2, name, sizeof name)) return;
    hdo_fleet_expect want = {.run = j->run_id,
                             .config = j->has_config ? j->config_hash : NULL,
                             .self = j->self,
                             .sender = hdo__fleet_id(name),
                             .classes = j->classes,
                             .model_bytes = model_bytes};
    hdo_fleet_drop drop = hdo__fleet_read(raw->data, raw->len, &want, &m);
    if (drop != HDO_DROP_NONE) {
        j->drops[drop]++;
        if (m.type == HDO_FLEET_BEAT && j->refuser[0] == '\0') snprintf(j->refuser, sizeof j->refuser, "%s", name);
        return;
    }
    switch (m.type) {
    case HDO_FLEET_BEAT: note(j, &m, name); break;
    case HDO_FLEET_HELLO: note_rival(j, &m, name); break;
    case HDO_FLEET_REFUSE:
        j->refused = (hdo_fleet_drop)m.kind;
        snprintf(j->refuser, sizeof j->refuser, "%s", name);
        break;
    case HDO_FLEET_CONFIG: take_text(j, &m); break;
    case HDO_FLEET_MODEL:
        if (j->post == NULL || m.seq != j->seq) break;
        j->news_us = j->now_us;
        j->model = hdo__post_take(j->post, &m, j->now_us, &drop);
        j->model_from = m.from;
        j->model_step = m.step;
        break;
    default: break;
    }
}

/* Hears until the time is over or something is there that the caller waits for. */
static void pump(hdo_join *j, int64_t until_us, size_t model_bytes) {
    hdo_bus_message raw;
    j->now_us = clock_us();
    while (j->now_us < until_us && j->model == NULL && j->refused == HDO_DROP_NONE) {
        if (j->bus->ops->poll(j->bus, 1e-6 * (double)(until_us - j->now_us), &raw)) {
            j->now_us = clock_us();
            hear(j, &raw, model_bytes);
        }
        j->now_us = clock_us();
    }
}

void hdo__join_listen(hdo_join *j, double wait_s, double quiet_s, bool hello) {
    unsigned char body[HDO_FLEET_BEAT_BYTES];
    int64_t start = clock_us(), until = start + (int64_t)(1e6 * wait_s), quiet = (int64_t)(1e6 * quiet_s);
    j->news_us = 0;
    for (int64_t at = start; at < until && j->refused == HDO_DROP_NONE; at = clock_us()) {
        hdo__fleet_put_beat(&j->wish, body);
        if (hello) hdo__join_say(j, "hello", HDO_FLEET_HELLO, 0, body, sizeof body);
        pump(j, at + HELLO_US < until ? at + HELLO_US : until, 0);
        if (j->news_us != 0 && clock_us() - j->news_us > quiet) return;
    }
}

hdo_status hdo__join_verdict(const hdo_join *j, hdo_error *e) {
    hdo_fleet_drop why = j->refused;
    hdo_bus_state bus;
    j->bus->ops->state(j->bus, &bus);
    if (bus.refused)
        return hdo__fail(e, HDO_E_ENGINE, "the server does not let member '%s' of run '%s' in: %s", j->name, j->run,
                         bus.why);
    if (why == HDO_DROP_NONE && j->roster.used == 0) {
        why = j->drops[HDO_DROP_VERSION] > 0  ? HDO_DROP_VERSION
              : j->drops[HDO_DROP_CONFIG] > 0 ? HDO_DROP_CONFIG
              : j->drops[HDO_DROP_CLASS] > 0  ? HDO_DROP_CLASS
                                              : HDO_DROP_NONE;
    }
    switch (why) {
    case HDO_DROP_NONE: return HDO_OK;
    case HDO_DROP_VERSION:
        return hdo__fail(e, HDO_E_ENGINE,
                         "run '%s' speaks another version of the protocol than this program (%d; member '%s'): install "
                         "the same hdo everywhere (this is %s)",
                         j->run, HDO_FLEET_PROTOCOL, j->refuser, hdo_version());
    case HDO_DROP_CONFIG:
        return hdo__fail(
            e, HDO_E_CONFIG,
            "run '%s' has another configuration than this member (says '%s'): leave --config out to take the "
            "run's, or give the new one a name of its own (--run)",
            j->run, j->refuser);
    case HDO_DROP_CLASS:
        return hdo__fail(e, HDO_E_CONFIG, "run '%s' has no such class of nodes (says '%s')", j->run, j->refuser);
    default:
        return hdo__fail(e, HDO_E_ENGINE, "run '%s' does not take this member: wrong %s (says '%s')", j->run,
                         hdo__fleet_drop_names[why], j->refuser);
    }
}

/* ---- looking for a run ---- */

hdo_status hdo__join_find_run(hdo_bus *bus, double patience_s, char run[HDO_FLEET_NAME], hdo_error *e) {
    hdo_bus_message raw;
    char found[HDO_FLEET_NAME];
    hdo_status st = bus->ops->subscribe(bus, "hdo.*.*.beat", e);
    if (st != HDO_OK) return st;
    run[0] = '\0';
    int64_t until = clock_us() + (int64_t)(1e6 * patience_s);
    for (int64_t now = clock_us(); now < until && st == HDO_OK; now = clock_us()) {
        if (!bus->ops->poll(bus, 1e-6 * (double)(until - now), &raw)) continue;
        if (!hdo__subject_word(raw.subject, 1, found, sizeof found) || !hdo__fleet_name_ok(found)) continue;
        if (run[0] == '\0') {
            memcpy(run, found, sizeof found);
            if (until > now + 500000) until = now + 500000; /* half a second more, to see whether it is the only one */
        } else if (strcmp(run, found) != 0) {
            st = hdo__fail(e, HDO_E_CONFIG,
                           "there are several runs on this bus, '%s' and '%s' among them: say which (--run)", run,
                           found);
        }
    }
    bus->ops->forget(bus);
    if (st == HDO_OK && run[0] == '\0')
        st = hdo__fail(e, HDO_E_ENGINE,
                       "nobody is on this bus, and there is no configuration here to start a run with "
                       "(--config FILE)");
    return st;
}

/* ---- questions ---- */

hdo_status hdo__join_ask_config(hdo_join *j, double patience_s, hdo_error *e) {
    int64_t until = clock_us() + (int64_t)(1e6 * patience_s);
    for (int k = 0; j->text == NULL && clock_us() < until; k++) {
        const hdo_roster_entry *p = j->roster.used > 0 ? &j->roster.entry[k % j->roster.used] : NULL;
        char tail[HDO_FLEET_NAME + 8];
        if (p != NULL) {
            snprintf(tail, sizeof tail, "to.%s", p->beat.name);
            hdo__join_say(j, tail, HDO_FLEET_ASK_CONFIG, p->member, NULL, 0);
        }
        for (int64_t at = clock_us(), next = at + HELLO_US; at < next && j->text == NULL; at = clock_us())
            pump(j, at + 20000, 0);
    }
    if (j->text != NULL) return HDO_OK;
    return hdo__fail(e, HDO_E_ENGINE, "nobody of run '%s' answered the question for its configuration", j->run);
}

static hdo_status ask_one(hdo_join *j, const hdo_roster_entry *p, size_t bytes, double patience_s, float *x,
                          uint64_t *step) {
    char tail[HDO_FLEET_NAME + 8];
    snprintf(tail, sizeof tail, "to.%s", p->beat.name);
    j->model = NULL;
    hdo__join_say(j, tail, HDO_FLEET_ASK_MODEL, p->member, NULL, 0);
    int64_t limit = (int64_t)(1e6 * patience_s);
    j->news_us = clock_us();
    while (j->model == NULL && clock_us() - j->news_us < limit) pump(j, clock_us() + limit / 4 + 1, bytes);
    if (j->model == NULL || j->model_from != p->member) return HDO_E_ENGINE;
    memcpy(x, j->model, bytes);
    *step = j->model_step;
    j->model = NULL;
    return HDO_OK;
}

hdo_status hdo__join_ask_model(hdo_join *j, uint64_t member, size_t len, double patience_s, float *x, uint64_t *step,
                               hdo_error *e) {
    size_t bytes = len * sizeof(float);
    hdo_status st = j->post == NULL ? hdo__post_create(&j->post, j->bus, bytes, 1, e) : HDO_OK;
    if (st != HDO_OK) return st;
    int n = j->roster.used;
    for (int k = 0; k < TRIES * n; k++) {
        const hdo_roster_entry *p = &j->roster.entry[(k + (int)(j->self >> 8 & 0xffff)) % n];
        if (member != 0 && p->member != member) continue;
        if (!hdo__roster_lives(p, j->now_us) || p->beat.leaving != 0) continue;
        if (ask_one(j, p, bytes, patience_s, x, step) == HDO_OK) return HDO_OK;
    }
    return hdo__fail(e, HDO_E_ENGINE, "nobody of run '%s' answered the question for a model", j->run);
}
