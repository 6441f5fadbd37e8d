/* SPDX-License-Identifier: Apache-2.0 — the parts of a fleet: messages as bytes, the bus in this process, who is there,
 * models in chunks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fleet/bus.h"
#include "fleet/codec.h"
#include "fleet/flow.h"
#include "fleet/post.h"
#include "fleet/roster.h"

enum { LEN = 10 };
static const float numbers[LEN] = {1, -2, 3, 0.5f, 0, 7, 8, 9, 10, 11};

static hdo_fleet_msg offer_message(void) {
    hdo_fleet_msg m = {.type = HDO_FLEET_EXCHANGE,
                       .kind = HDO_XMSG_OFFER,
                       .from = hdo__fleet_id("a"),
                       .to = hdo__fleet_id("b"),
                       .from_epoch = 3,
                       .to_epoch = 7,
                       .seq = 5,
                       .step = 12,
                       .class_id = 1,
                       .weight = 1.0f,
                       .total = sizeof numbers,
                       .len = sizeof numbers,
                       .data = (const unsigned char *)numbers};
    hdo__fleet_run_id("run", m.run);
    memset(m.config, 9, sizeof m.config);
    return m;
}

typedef struct wire { /* a message as bytes, and what its addressee expects */
    unsigned char bytes[HDO_FLEET_HEAD + HDO_FLEET_BEAT_BYTES], run[HDO_FLEET_ID], config[HDO_FLEET_ID];
    size_t len;
    hdo_fleet_expect want;
} wire;

static void put(wire *w, const hdo_fleet_msg *m) {
    hdo__fleet_put_head(m, w->bytes);
    memcpy(w->bytes + HDO_FLEET_HEAD, m->data, m->len);
    w->len = HDO_FLEET_HEAD + m->len;
    hdo__fleet_run_id("run", w->run);
    memset(w->config, 9, sizeof w->config);
    w->want = (hdo_fleet_expect){.run = w->run,
                                 .config = w->config,
                                 .self = hdo__fleet_id("b"),
                                 .epoch = 7,
                                 .sender = hdo__fleet_id("a"),
                                 .classes = 2,
                                 .model_bytes = sizeof numbers};
}

static hdo_fleet_drop read_back(const wire *w, hdo_fleet_msg *m) {
    return hdo__fleet_read(w->bytes, w->len, &w->want, m);
}

static void test_message_comes_back(void **state) {
    (void)state;
    wire w;
    hdo_fleet_msg m = offer_message(), back;
    put(&w, &m);
    assert_int_equal(read_back(&w, &back), HDO_DROP_NONE);
    assert_int_equal(back.type, m.type);
    assert_int_equal(back.kind, m.kind);
    assert_int_equal(back.from, m.from);
    assert_int_equal(back.to, m.to);
    assert_int_equal(back.from_epoch, 3);
    assert_int_equal(back.to_epoch, 7);
    assert_int_equal(back.seq, 5);
    assert_int_equal(back.step, 12);
    assert_int_equal(back.class_id, 1);
    assert_int_equal(back.len, sizeof numbers);
    assert_memory_equal(back.data, numbers, sizeof numbers);
}

/* One thing wrong at a time, and the reason that belongs to it. */
static void test_every_wrong_message_is_dropped_for_its_reason(void **state) {
    (void)state;
    static const struct {
        size_t at;
        unsigned char value;
        hdo_fleet_drop why;
    } wrong[] = {
        {0, 'X', HDO_DROP_LENGTH},      /* not one of ours */
        {4, 2, HDO_DROP_VERSION},       /* of another version */
        {6, 0, HDO_DROP_LENGTH},        /* no such type */
        {6, 99, HDO_DROP_LENGTH},       /* nor this */
        {7, 0, HDO_DROP_LENGTH},        /* no such kind */
        {7, 77, HDO_DROP_LENGTH},       /* nor this */
        {7, 3, HDO_DROP_LENGTH},        /* an ack with a body */
        {8, 1, HDO_DROP_RUN},           /* of another run */
        {24, 1, HDO_DROP_CONFIG},       /* with another configuration */
        {47, 1, HDO_DROP_SENDER},       /* of somebody else than it says */
        {56, 0, HDO_DROP_EPOCH},        /* of an epoch that is none */
        {60, 8, HDO_DROP_EPOCH},        /* for another life of us */
        {55, 1, HDO_DROP_EPOCH},        /* for somebody else */
        {64, 0, HDO_DROP_LENGTH},       /* number 0 */
        {80, 2, HDO_DROP_CLASS},        /* a class that is not there */
        {88, 36, HDO_DROP_LENGTH},      /* a model of another length */
        {95, 255, HDO_DROP_LENGTH},     /* longer than memory */
        {96, 4, HDO_DROP_LENGTH},       /* a chunk beyond the end */
        {104, 39, HDO_DROP_LENGTH},     /* a length that is not that of the message */
        {108, 1, HDO_DROP_LENGTH},      /* something where there is nothing */
        {87, 0x7e, HDO_DROP_NONE},      /* a large weight is one */
        {87, 0xff, HDO_DROP_NOT_FINITE} /* a negative one is none */
    };
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        wire w;
        hdo_fleet_msg m = offer_message(), back;
        put(&w, &m);
        assert_int_equal(read_back(&w, &back), HDO_DROP_NONE);
        w.bytes[wrong[k].at] = wrong[k].value;
        hdo_fleet_drop why = read_back(&w, &back);
        if (why != wrong[k].why) print_error("byte %zu: %s\n", wrong[k].at, hdo__fleet_drop_names[why]);
        assert_int_equal(why, wrong[k].why);
    }
}

static void test_any_cut_is_a_wrong_length(void **state) {
    (void)state;
    wire w;
    hdo_fleet_msg m = offer_message(), back;
    put(&w, &m);
    size_t whole = w.len;
    for (w.len = 0; w.len < whole; w.len++) assert_int_equal(read_back(&w, &back), HDO_DROP_LENGTH);
    w.len = whole + 1;
    assert_int_equal(read_back(&w, &back), HDO_DROP_LENGTH);
}

static void test_not_finite(void **state) {
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        wire w;
        hdo_fleet_msg m = offer_message(), back;
        float x[LEN];
        memcpy(x, numbers, sizeof x);
        x[LEN - 1] = bad[k];
        m.data = (const unsigned char *)x;
        put(&w, &m);
        assert_int_equal(read_back(&w, &back), HDO_DROP_NOT_FINITE);
    }
}

static void test_a_newcomer_may_ask_and_nothing_else(void **state) {
    (void)state;
    wire w;
    hdo_fleet_msg m = offer_message(), back;
    memset(m.config, 0, sizeof m.config);
    put(&w, &m);
    assert_int_equal(read_back(&w, &back), HDO_DROP_CONFIG);
    m.type = HDO_FLEET_ASK_CONFIG;
    m.kind = 0;
    m.len = m.total = 0;
    m.class_id = HDO_FLEET_NO_CLASS;
    put(&w, &m);
    assert_int_equal(read_back(&w, &back), HDO_DROP_NONE);
}

static hdo_fleet_beat beat_of(const char *name, unsigned place, unsigned nodes) {
    hdo_fleet_beat b = {.nodes = nodes, .place = place, .beat_ms = 100, .evaluated = 1, .loss = 0.5, .accuracy = 0.25};
    memcpy(b.name, name, strlen(name) + 1);
    memcpy(b.version, "1", 2);
    memcpy(b.role, "zo", 3);
    return b;
}

static void test_beat_comes_back(void **state) {
    (void)state;
    unsigned char body[HDO_FLEET_BEAT_BYTES];
    hdo_fleet_beat b = beat_of("zo-1", 3, 2), back;
    b.drops[HDO_DROPS - 1] = 77;
    b.rss = 123;
    hdo__fleet_put_beat(&b, body);
    assert_true(hdo__fleet_read_beat(body, sizeof body, &back));
    assert_memory_equal(&b, &back, sizeof b);
    assert_false(hdo__fleet_read_beat(body, sizeof body - 1, &back));
    body[0] = '.'; /* part of a subject */
    assert_false(hdo__fleet_read_beat(body, sizeof body, &back));
    memset(body, 'a', HDO_FLEET_NAME); /* without an end */
    assert_false(hdo__fleet_read_beat(body, sizeof body, &back));
    b.nodes = 0;
    hdo__fleet_put_beat(&b, body);
    assert_false(hdo__fleet_read_beat(body, sizeof body, &back));
}

static void test_names(void **state) {
    (void)state;
    assert_true(hdo__fleet_name_ok("zo-1_A"));
    assert_false(hdo__fleet_name_ok(""));
    assert_false(hdo__fleet_name_ok("a.b"));
    assert_false(hdo__fleet_name_ok("a*"));
    assert_false(hdo__fleet_name_ok("a name"));
    assert_false(hdo__fleet_name_ok("a-name-that-is-longer-than-allowed"));
    assert_int_not_equal(hdo__fleet_id("a"), hdo__fleet_id("b"));
    assert_int_equal(hdo__fleet_id("a") % HDO_FLEET_NODES_MAX, 0);
}

/* ---- the bus ---- */

static void test_subjects(void **state) {
    (void)state;
    char word[8];
    assert_true(hdo__subject_fits("hdo.*.a.beat", "hdo.run.a.beat"));
    assert_true(hdo__subject_fits("hdo.run.*.to.b", "hdo.run.a.to.b"));
    assert_false(hdo__subject_fits("hdo.run.*.to.b", "hdo.run.a.to.c"));
    assert_false(hdo__subject_fits("hdo.*", "hdo.run.a"));
    assert_false(hdo__subject_fits("hdo.run.a", "hdo.run"));
    assert_false(hdo__subject_fits("hdo.*.a", "hdo..a"));
    assert_true(hdo__subject_word("hdo.run.abc.beat", 2, word, sizeof word));
    assert_string_equal(word, "abc");
    assert_false(hdo__subject_word("hdo.run", 2, word, sizeof word));
    assert_false(hdo__subject_word("hdo.run.a-long-word", 2, word, sizeof word));
}

static int lose_some(void *ctx, const char *subject, size_t len) {
    (void)subject;
    (void)len;
    return ++*(int *)ctx % 3; /* once, twice, never */
}

static void test_local_bus(void **state) {
    (void)state;
    hdo_hub *h;
    hdo_bus *a, *b;
    hdo_bus_message m;
    int count = 0, seen = 0;
    assert_int_equal(hdo__hub_create(&h, NULL), HDO_OK);
    assert_int_equal(hdo__hub_join(h, &a, NULL), HDO_OK);
    assert_int_equal(hdo__hub_join(h, &b, NULL), HDO_OK);
    assert_int_equal(b->ops->subscribe(b, "x.*", NULL), HDO_OK);
    assert_int_equal(a->ops->subscribe(a, "x.*", NULL), HDO_OK);
    assert_true(a->ops->publish(a, "x.y", "abc", 3));
    assert_true(b->ops->poll(b, 0.0, &m));
    assert_int_equal(m.len, 3);
    assert_memory_equal(m.data, "abc", 3);
    assert_string_equal(m.subject, "x.y");
    assert_false(b->ops->poll(b, 0.001, &m));
    assert_false(a->ops->poll(a, 0.0, &m)); /* no echo */
    hdo__hub_fate(h, lose_some, &count);
    for (int k = 0; k < 6; k++) a->ops->publish(a, "x.y", "abc", 3);
    while (b->ops->poll(b, 0.0, &m)) seen++;
    assert_int_equal(seen, 6); /* 1 + 2 + 0, twice */
    a->ops->publish(a, "x.y", "abc", 3);
    b->ops->forget(b);
    assert_false(b->ops->poll(b, 0.0, &m));
    a->ops->destroy(a);
    b->ops->destroy(b);
    hdo__hub_destroy(h);
}

/* ---- who is there ---- */

static hdo_roster_entry *note(hdo_roster *r, const char *name, uint32_t epoch, unsigned place, unsigned nodes,
                              int64_t now) {
    hdo_fleet_msg m = {.from = hdo__fleet_id(name), .from_epoch = epoch, .step = 5};
    hdo_fleet_beat b = beat_of(name, place, nodes);
    return hdo__roster_note(r, &m, &b, now);
}

static void test_silence_means_gone(void **state) {
    (void)state;
    hdo_roster r;
    hdo_roster_view v;
    assert_int_equal(hdo__roster_init(&r, NULL), HDO_OK);
    assert_non_null(note(&r, "a", 2, 0, 1, 1000));
    assert_non_null(note(&r, "b", 2, 1, 3, 1000));
    assert_null(note(&r, "a", 1, 0, 1, 2000)); /* of an earlier life */
    hdo__roster_look(&r, 400000, &v);
    assert_int_equal(v.members, 2);
    assert_int_equal(v.nodes, 4);
    assert_true(v.loss == 0.5);
    note(&r, "b", 3, 1, 3, 400000);
    hdo__roster_look(&r, 600000, &v); /* five intervals of 100 ms after a's last */
    assert_int_equal(v.members, 1);
    assert_int_equal(hdo__roster_find(&r, hdo__fleet_id("b"))->epoch, 3);
    hdo__roster_clear(&r);
}

static void test_partners_are_uniform_over_living_nodes(void **state) {
    (void)state;
    enum { DRAWS = 40000 };
    hdo_roster r;
    int hits[5] = {0}; /* a sibling, a, and the three nodes of b */
    assert_int_equal(hdo__roster_init(&r, NULL), HDO_OK);
    note(&r, "a", 2, 2, 1, 0);
    note(&r, "b", 4, 3, 3, 0);
    note(&r, "gone", 4, 6, 3, -10000000);
    note(&r, "leaving", 4, 9, 1, 0)->beat.leaving = HDO_LEAVING;
    uint64_t self = hdo__fleet_id("self") + 1, b = hdo__fleet_id("b");
    for (uint64_t k = 0; k < DRAWS; k++) {
        uint32_t epoch;
        uint64_t to = hdo__roster_draw(&r, self, 2, 1000, hdo__stream(1, HDO_RNG_FLEET, 0, k, 0), &epoch);
        if (to == self - 1) {
            hits[0]++;
        } else if (to == hdo__fleet_id("a")) {
            hits[1]++;
            assert_int_equal(epoch, 2);
        } else {
            assert_int_equal(hdo__fleet_member(to), b);
            assert_int_equal(epoch, 4);
            hits[2 + (to - b)]++;
        }
    }
    for (int k = 0; k < 5; k++) assert_true(fabs(hits[k] - DRAWS / 5.0) < 5 * sqrt(DRAWS * 0.16));
    uint32_t epoch;
    assert_int_equal(hdo__roster_draw(&r, self, 1, 10000000, hdo__stream(1, HDO_RNG_FLEET, 0, 0, 0), &epoch), 0);
    hdo__roster_clear(&r);
}

static void test_places(void **state) {
    (void)state;
    hdo_roster r;
    assert_int_equal(hdo__roster_init(&r, NULL), HDO_OK);
    note(&r, "a", 2, 2, 1, 0);
    note(&r, "b", 2, 4, 2, 0);
    assert_int_equal(hdo__roster_free_place(&r, 2, 5, 1, 0, 0), 3); /* of places 2 to 6 */
    assert_int_equal(hdo__roster_free_place(&r, 2, 5, 1, 4, 0), 6);
    assert_int_equal(hdo__roster_free_place(&r, 2, 5, 2, 0, 0), -1);
    assert_int_equal(hdo__roster_free_place(&r, 2, 5, 2, 0, 10000000), 2); /* all gone */
    hdo__roster_clear(&r);
}

static void test_the_roster_is_bounded(void **state) {
    (void)state;
    hdo_roster r;
    char name[16];
    assert_int_equal(hdo__roster_init(&r, NULL), HDO_OK);
    for (int k = 0; k < HDO_ROSTER_MAX; k++) {
        snprintf(name, sizeof name, "m%d", k);
        assert_non_null(note(&r, name, 1, (unsigned)k, 1, 0));
    }
    assert_null(note(&r, "one-more", 1, 0, 1, 1));
    assert_int_equal(r.crowded, 1);
    assert_non_null(note(&r, "one-more", 1, 0, 1, 10000000)); /* in the place of somebody who is gone */
    hdo__roster_clear(&r);
}

/* ---- models in chunks ---- */

enum { BIG = 2 * HDO_FLEET_CHUNK / 4 + 7 }; /* numbers: two chunks and a piece */

typedef struct line { /* from one post to another */
    hdo_hub *hub;
    hdo_bus *a, *b;
    hdo_post *from, *to;
    float *x;
} line;

static void open_line(line *l) {
    hdo__hub_create(&l->hub, NULL);
    hdo__hub_join(l->hub, &l->a, NULL);
    hdo__hub_join(l->hub, &l->b, NULL);
    l->b->ops->subscribe(l->b, "x", NULL);
    assert_int_equal(hdo__post_create(&l->from, l->a, BIG * sizeof(float), 2, NULL), HDO_OK);
    assert_int_equal(hdo__post_create(&l->to, l->b, BIG * sizeof(float), 2, NULL), HDO_OK);
    l->x = calloc(BIG, sizeof(float));
    for (int k = 0; k < BIG; k++) l->x[k] = (float)k;
}

static void close_line(line *l) {
    hdo__post_destroy(l->from);
    hdo__post_destroy(l->to);
    l->a->ops->destroy(l->a);
    l->b->ops->destroy(l->b);
    hdo__hub_destroy(l->hub);
    free(l->x);
}

static bool send_model(line *l, uint64_t seq) {
    hdo_fleet_msg m = offer_message();
    m.seq = seq;
    m.data = (const unsigned char *)l->x;
    m.len = m.total = BIG * sizeof(float);
    return hdo__post_send(l->from, "x", &m);
}

/* Takes what has come; returns how many models were completed. */
static int take_all(line *l, int64_t now, int *no_room) {
    wire w;
    hdo_bus_message raw;
    hdo_fleet_msg m = offer_message();
    int whole = 0;
    put(&w, &m);
    w.want.model_bytes = BIG * sizeof(float);
    while (l->b->ops->poll(l->b, 0.0, &raw)) {
        hdo_fleet_drop drop;
        assert_int_equal(hdo__fleet_read(raw.data, raw.len, &w.want, &m), HDO_DROP_NONE);
        const float *x = hdo__post_take(l->to, &m, now, &drop);
        *no_room += drop == HDO_DROP_ROOM;
        if (x == NULL) continue;
        whole++;
        assert_memory_equal(x, l->x, BIG * sizeof(float));
    }
    return whole;
}

static void test_models_travel_in_chunks(void **state) {
    (void)state;
    line l;
    int no_room = 0;
    open_line(&l);
    assert_true(send_model(&l, 1));
    assert_true(send_model(&l, 2));
    assert_false(send_model(&l, 3)); /* no room until something has left */
    while (hdo__post_work(l.from, 1)) assert_true(hdo__post_busy(l.from));
    assert_int_equal(take_all(&l, 0, &no_room), 2);
    assert_true(send_model(&l, 3));
    while (hdo__post_work(l.from, 8)) continue;
    assert_int_equal(take_all(&l, 0, &no_room), 1);
    assert_int_equal(no_room, 0);
    close_line(&l);
}

static int lose_second(void *ctx, const char *subject, size_t len) {
    (void)subject;
    (void)len;
    return ++*(int *)ctx == 2 ? 0 : 2; /* the others come twice */
}

static void test_a_lost_chunk_costs_a_model_and_its_room_for_a_while(void **state) {
    (void)state;
    line l;
    int no_room = 0, count = 0;
    open_line(&l);
    hdo__hub_fate(l.hub, lose_second, &count);
    send_model(&l, 1);
    while (hdo__post_work(l.from, 8)) continue;
    count = 0;
    send_model(&l, 2);
    while (hdo__post_work(l.from, 8)) continue;
    assert_int_equal(take_all(&l, 0, &no_room), 0);
    hdo__hub_fate(l.hub, NULL, NULL);
    send_model(&l, 3);
    while (hdo__post_work(l.from, 8)) continue;
    assert_int_equal(take_all(&l, 1000, &no_room), 0); /* both rooms wait for what will not come */
    assert_int_equal(no_room, 3);
    send_model(&l, 4);
    while (hdo__post_work(l.from, 8)) continue;
    assert_int_equal(take_all(&l, 10 * 1000 * 1000, &no_room), 1);
    close_line(&l);
}

static void test_flows(void **state) {
    (void)state;
    hdo_flow room[HDO_FLOWS_MAX];
    hdo_flows f = {.flow = room};
    float x[19], y[19];
    for (int k = 0; k < 19; k++) x[k] = y[k] = (float)(k * k);
    y[3] += 1.0f;
    assert_true(fabs(fabs(hdo__flow_measure(y, 19) - hdo__flow_measure(x, 19)) - 1.0) < 1e-12);
    hdo__flow_add(&f, 1, 2, 1, 0.5);
    hdo__flow_add(&f, 1, 2, 1, 0.25);
    hdo__flow_add(&f, 1, 2, 2, 1.0);
    assert_int_equal(f.n, 2);
    assert_true(f.flow[0].sum == 0.75);
    assert_int_equal(f.flow[0].count, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_comes_back),
        cmocka_unit_test(test_every_wrong_message_is_dropped_for_its_reason),
        cmocka_unit_test(test_any_cut_is_a_wrong_length),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_a_newcomer_may_ask_and_nothing_else),
        cmocka_unit_test(test_beat_comes_back),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_subjects),
        cmocka_unit_test(test_local_bus),
        cmocka_unit_test(test_silence_means_gone),
        cmocka_unit_test(test_partners_are_uniform_over_living_nodes),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_the_roster_is_bounded),
        cmocka_unit_test(test_models_travel_in_chunks),
        cmocka_unit_test(test_a_lost_chunk_costs_a_model_and_its_room_for_a_while),
        cmocka_unit_test(test_flows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
