/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange, rule by rule. What no single rule shows, the fault simulator looks for (fault_exchange.c).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exchange/exchange.h"

enum { LEN = 4, A = 1, B = 2, C = 3 };
#define NOW_FORGET INT64_C(1000000)

typedef struct node {
    hdo_exchange *m;
    float x[LEN];
    int64_t now;
    hdo_xout out;
} node;

static hdo_exchange_setup setup_of(uint64_t self) {
    return (hdo_exchange_setup){.self = self,
                                .epoch = 1,
                                .len = LEN,
                                .weight = 1.0f,
                                .slots = 2,
                                .doubts = 1,
                                .peers = 3,
                                .wait_min_us = 100,
                                .wait_max_us = 1000,
                                .forget_us = NOW_FORGET};
}

static node born(const hdo_exchange_setup *s, float value) {
    node n = {.now = 10};
    void *memory = malloc(hdo__exchange_bytes(s));
    assert_non_null(memory);
    n.m = hdo__exchange_start(memory, s);
    for (int i = 0; i < LEN; i++) n.x[i] = value * (float)(i + 1);
    return n;
}

static node simple(uint64_t self, float value) {
    hdo_exchange_setup s = setup_of(self);
    return born(&s, value);
}

static void event(node *n, hdo_xevent e) {
    e.now_us = n->now;
    e.x = n->x;
    hdo__exchange_step(n->m, &e, &n->out);
}

static void offer_to(node *n, uint64_t whom) {
    event(n, (hdo_xevent){.kind = HDO_XEVENT_OFFER, .member = whom, .epoch = 1});
}

static void hand(node *to, const hdo_xmsg *msg) {
    float copy[LEN];
    hdo_xmsg m = *msg;
    if (m.data != NULL) {
        memcpy(copy, m.data, sizeof copy);
        m.data = copy;
    }
    event(to, (hdo_xevent){.kind = HDO_XEVENT_MESSAGE, .msg = &m});
}

static void tick(node *n) {
    n->now = hdo__exchange_due_us(n->m);
    event(n, (hdo_xevent){.kind = HDO_XEVENT_TICK});
}

static void said(const node *n, hdo_xmsg_kind kind) {
    assert_int_equal(n->out.n, 1);
    assert_int_equal(n->out.msg[0].kind, kind);
}

static void at(const node *n, float value) {
    for (int i = 0; i < LEN; i++) assert_float_equal(n->x[i], value * (float)(i + 1), 1e-6);
}

static void two_meet_in_the_middle(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    offer_to(&a, B);
    said(&a, HDO_XMSG_OFFER);
    assert_false(hdo__exchange_can_offer(a.m));
    hand(&b, &a.out.msg[0]);
    said(&b, HDO_XMSG_ANSWER);
    assert_true(b.out.moved);
    at(&b, 2.0f);
    at(&a, 1.0f);
    a.now += 50;
    hand(&a, &b.out.msg[0]);
    said(&a, HDO_XMSG_ACK);
    at(&a, 2.0f);
    assert_true(hdo__exchange_can_offer(a.m));
    hand(&b, &a.out.msg[0]);
    assert_int_equal(b.out.n, 0);
    assert_int_equal(hdo__exchange_due_us(b.m), INT64_MAX);
    assert_int_equal(hdo__exchange_stats(a.m)->applied, 1);
    assert_int_equal(hdo__exchange_stats(b.m)->applied, 1);
    free(a.m);
    free(b.m);
}

static void weights_keep_the_weighted_sum(void **state) {
    (void)state;
    hdo_exchange_setup sa = setup_of(A), sb = setup_of(B);
    sa.weight = 3.0f;
    node a = born(&sa, 1.0f), b = born(&sb, 5.0f);
    offer_to(&a, B);
    hand(&b, &a.out.msg[0]);
    hand(&a, &b.out.msg[0]);
    at(&a, 2.0f); /* (3 * 1 + 5) / 4 */
    at(&b, 2.0f);
    free(a.m);
    free(b.m);
}

static void a_node_steps_on_while_its_offer_is_out(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    offer_to(&a, B);
    hdo_xmsg offer = a.out.msg[0];
    hand(&b, &offer);
    hdo_xmsg answer = b.out.msg[0];
    for (int i = 0; i < LEN; i++) a.x[i] += (float)(i + 1); /* a local step */
    hand(&a, &answer);
    at(&a, 3.0f); /* 1 + 1 + (3 - 1) / 2: the sum has changed by the step alone */
    at(&b, 2.0f);
    free(a.m);
    free(b.m);
}

static void lost_answer_is_repeated_and_applied_once(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    offer_to(&a, B);
    hdo_xmsg offer = a.out.msg[0];
    float copy[LEN];
    memcpy(copy, offer.data, sizeof copy);
    offer.data = copy;
    hand(&b, &offer);
    tick(&a);
    said(&a, HDO_XMSG_ASK);
    hand(&b, &a.out.msg[0]);
    said(&b, HDO_XMSG_ANSWER);
    assert_false(b.out.moved);
    at(&b, 2.0f);
    hdo_xmsg answer = b.out.msg[0];
    hand(&a, &answer);
    at(&a, 2.0f);
    hand(&a, &answer); /* and once more */
    said(&a, HDO_XMSG_ACK);
    at(&a, 2.0f);
    hand(&b, &offer); /* the offer again, while the answer is remembered */
    said(&b, HDO_XMSG_ANSWER);
    at(&b, 2.0f);
    hand(&b, &a.out.msg[0]); /* ack */
    hand(&b, &offer);        /* and after it: too old */
    assert_int_equal(b.out.n, 0);
    assert_int_equal(hdo__exchange_stats(b.m)->stale, 1);
    at(&b, 2.0f);
    offer_to(&a, B); /* the next one is out: the old answer has nothing to do with it */
    float zero[LEN] = {0};
    answer.data = zero;
    hand(&a, &answer);
    assert_false(hdo__exchange_can_offer(a.m));
    assert_true(hdo__exchange_wait_us(a.m) > 999.0); /* a repeated question teaches nothing about round trips */
    free(a.m);
    free(b.m);
}

static void lost_offer_never_counts(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    offer_to(&a, B);
    hdo_xmsg late = a.out.msg[0];
    float copy[LEN];
    memcpy(copy, late.data, sizeof copy);
    late.data = copy;
    tick(&a);
    hand(&b, &a.out.msg[0]);
    said(&b, HDO_XMSG_UNKNOWN);
    hand(&a, &b.out.msg[0]);
    assert_true(hdo__exchange_can_offer(a.m));
    hand(&b, &late);
    assert_int_equal(b.out.n, 0);
    at(&b, 3.0f);
    assert_int_equal(hdo__exchange_stats(a.m)->unknown, 1);
    hand(&a, &b.out.msg[0]);
    free(a.m);
    free(b.m);
}

static void busy_nodes_refuse(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    offer_to(&a, B);
    hdo_xmsg mine = a.out.msg[0];
    float copy[LEN];
    memcpy(copy, mine.data, sizeof copy);
    mine.data = copy;
    offer_to(&b, A);
    hand(&a, &b.out.msg[0]);
    said(&a, HDO_XMSG_REFUSE);
    hdo_xmsg no = a.out.msg[0];
    hand(&b, &mine);
    said(&b, HDO_XMSG_REFUSE);
    hand(&a, &b.out.msg[0]);
    hand(&b, &no);
    hand(&b, &no); /* twice is once */
    assert_int_equal(hdo__exchange_stats(b.m)->refused, 1);
    assert_int_equal(hdo__exchange_stats(b.m)->declined, 1);
    at(&a, 1.0f);
    at(&b, 3.0f);
    free(a.m);
    free(b.m);
}

static void no_room_for_an_answer(void **state) {
    (void)state;
    node j = simple(9, 0.0f);
    for (uint64_t k = A; k <= C; k++) {
        node i = simple(k, 1.0f);
        offer_to(&i, 9);
        hand(&j, &i.out.msg[0]);
        said(&j, k <= 2 ? HDO_XMSG_ANSWER : HDO_XMSG_REFUSE);
        free(i.m);
    }
    node fourth = simple(4, 1.0f); /* and no place to remember it at all */
    offer_to(&fourth, 9);
    hand(&j, &fourth.out.msg[0]);
    assert_int_equal(j.out.n, 0);
    assert_int_equal(hdo__exchange_stats(j.m)->stale, 1);
    free(fourth.m);
    free(j.m);
}

static void an_offer_without_answer_becomes_a_doubt(void **state) {
    (void)state;
    node a = simple(A, 1.0f);
    offer_to(&a, B);
    for (int k = 0; k < 3; k++) {
        tick(&a);
        said(&a, HDO_XMSG_ASK);
        assert_false(hdo__exchange_can_offer(a.m));
    }
    tick(&a);
    assert_true(hdo__exchange_can_offer(a.m)); /* one doubt: room for one more */
    offer_to(&a, C);
    said(&a, HDO_XMSG_OFFER);
    for (int k = 0; k < 12; k++) tick(&a);
    assert_false(hdo__exchange_can_offer(a.m)); /* two doubts: none */
    offer_to(&a, B);
    assert_int_equal(a.out.n, 0);
    while (hdo__exchange_due_us(a.m) != INT64_MAX) tick(&a);
    assert_int_equal(hdo__exchange_stats(a.m)->expired, 2); /* silence of forget_us */
    assert_true(hdo__exchange_can_offer(a.m));
    free(a.m);
}

/* Rests grow while nobody answers; a sign of life ends them, on both sides. */
static void who_is_heard_again_is_asked_at_once(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    offer_to(&a, B);
    hand(&b, &a.out.msg[0]); /* applied; the answer is lost */
    for (int k = 0; k < 6; k++) tick(&a);
    for (int k = 0; k < 6; k++) tick(&b);
    a.now = b.now = (a.now > b.now ? a.now : b.now) + 1;
    assert_true(hdo__exchange_due_us(a.m) > a.now && hdo__exchange_due_us(b.m) > b.now);
    event(&a, (hdo_xevent){.kind = HDO_XEVENT_PEER, .member = B, .epoch = 1});
    event(&b, (hdo_xevent){.kind = HDO_XEVENT_PEER, .member = A, .epoch = 1});
    assert_int_equal(hdo__exchange_due_us(a.m), a.now);
    assert_int_equal(hdo__exchange_due_us(b.m), b.now);
    tick(&a);
    said(&a, HDO_XMSG_ASK);
    hand(&b, &a.out.msg[0]);
    said(&b, HDO_XMSG_ANSWER);
    hand(&a, &b.out.msg[0]);
    assert_true(a.x[0] == b.x[0]);
    free(a.m);
    free(b.m);
}

static void a_partner_forgets_after_a_long_silence_and_says_so(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    offer_to(&a, B);
    hand(&b, &a.out.msg[0]);
    tick(&b);
    said(&b, HDO_XMSG_PROBE);
    hand(&a, &b.out.msg[0]);
    said(&a, HDO_XMSG_ASK); /* still open */
    hdo_xmsg ask = a.out.msg[0];
    while (hdo__exchange_due_us(b.m) != INT64_MAX) tick(&b);
    assert_int_equal(hdo__exchange_stats(b.m)->expired, 1);
    hand(&b, &ask);
    said(&b, HDO_XMSG_EXPIRED);
    hand(&a, &b.out.msg[0]);
    assert_int_equal(hdo__exchange_stats(a.m)->expired, 1);
    hdo_xmsg probe = {.kind = HDO_XMSG_PROBE, .from = B, .to = A, .from_epoch = 1, .to_epoch = 1, .seq = 1};
    hand(&a, &probe);
    said(&a, HDO_XMSG_ACK); /* nothing is open */
    free(a.m);
    free(b.m);
}

static void new_epochs_end_what_was_open(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    offer_to(&a, B);
    hand(&b, &a.out.msg[0]);
    hdo_xmsg answer = b.out.msg[0];
    event(&a, (hdo_xevent){.kind = HDO_XEVENT_PEER, .member = B, .epoch = 2});
    assert_true(hdo__exchange_can_offer(a.m));
    assert_int_equal(hdo__exchange_stats(a.m)->died, 1);
    hand(&a, &answer); /* of the old epoch */
    assert_int_equal(a.out.n, 0);
    at(&a, 1.0f);
    event(&b, (hdo_xevent){.kind = HDO_XEVENT_PEER, .member = A, .epoch = 1});
    event(&b, (hdo_xevent){.kind = HDO_XEVENT_PEER, .member = A, .epoch = 2});
    assert_int_equal(hdo__exchange_due_us(b.m), INT64_MAX); /* forgotten, and kept */
    assert_int_equal(hdo__exchange_stats(b.m)->died, 1);
    at(&b, 2.0f);
    free(a.m);
    free(b.m);
}

static void silent_members_make_room(void **state) {
    (void)state;
    node j = simple(9, 0.0f);
    for (uint64_t k = 1; k <= 3; k++) event(&j, (hdo_xevent){.kind = HDO_XEVENT_PEER, .member = k, .epoch = 1});
    j.now += NOW_FORGET + 1;
    node i = simple(7, 1.0f);
    offer_to(&i, 9);
    hand(&j, &i.out.msg[0]);
    said(&j, HDO_XMSG_ANSWER);
    free(i.m);
    free(j.m);
}

/* A member that was given an answer keeps its place in the table until the answer is forgotten, and after that the
 * newest number that was forgotten is what counts. */
static void whom_we_owe_an_answer_is_remembered(void **state) {
    (void)state;
    hdo_exchange_setup s = setup_of(B);
    s.peers = 1;
    node b = born(&s, 3.0f), a = simple(A, 1.0f);
    for (int k = 0; k < 3; k++) { /* answers to one member: the offer before is a doubt by then */
        offer_to(&a, B);
        hand(&b, &a.out.msg[0]);
        for (int q = 0; q < 5 && !hdo__exchange_can_offer(a.m); q++) tick(&a);
        if (k != 1) continue;
        hdo_xmsg ask = {.kind = HDO_XMSG_ASK, .from = A, .to = B, .from_epoch = 1, .to_epoch = 1, .seq = 1};
        hand(&b, &ask);
        hand(&a, &b.out.msg[0]); /* the first one arrives after all */
        said(&a, HDO_XMSG_ACK);
        hand(&b, &a.out.msg[0]);
    }
    for (int k = 0; k < 400 && hdo__exchange_due_us(b.m) != INT64_MAX; k++) {
        b.now = hdo__exchange_due_us(b.m);
        event(&b, (hdo_xevent){.kind = HDO_XEVENT_PEER, .member = C, .epoch = 1});
        event(&b, (hdo_xevent){.kind = HDO_XEVENT_TICK});
    }
    assert_int_equal(hdo__exchange_stats(b.m)->expired, 2);
    for (uint64_t seq = 2; seq <= 3; seq++) {
        hdo_xmsg ask = {.kind = HDO_XMSG_ASK, .from = A, .to = B, .from_epoch = 1, .to_epoch = 1, .seq = seq};
        hand(&b, &ask);
        said(&b, HDO_XMSG_EXPIRED);
    }
    b.now += 2 * NOW_FORGET; /* now its place is vacant */
    event(&b, (hdo_xevent){.kind = HDO_XEVENT_PEER, .member = C, .epoch = 1});
    hdo_xmsg ask = {.kind = HDO_XMSG_ASK, .from = A, .to = B, .from_epoch = 1, .to_epoch = 1, .seq = 1};
    hand(&b, &ask);
    assert_int_equal(b.out.n, 0);
    free(a.m);
    free(b.m);
}

static void sleepers_bury_nobody(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    offer_to(&a, B);
    hand(&b, &a.out.msg[0]);
    hdo_xmsg answer = b.out.msg[0];
    a.now += 50 * NOW_FORGET; /* stopped, and continued much later: the timer is looked at first */
    event(&a, (hdo_xevent){.kind = HDO_XEVENT_TICK});
    said(&a, HDO_XMSG_ASK);
    hand(&a, &answer);
    at(&a, 2.0f);
    free(a.m);
    free(b.m);
}

static void garbage_is_counted_and_dropped(void **state) {
    (void)state;
    node a = simple(A, 1.0f);
    float data[LEN] = {0};
    hdo_xmsg good = {
        .kind = HDO_XMSG_OFFER, .from = B, .to = A, .from_epoch = 1, .to_epoch = 1, .seq = 1, .weight = 1.0f};
    good.data = data;
    good.len = LEN;
    hdo_xmsg bad[12];
    for (int k = 0; k < 12; k++) bad[k] = good;
    bad[0].to = C;
    bad[1].to_epoch = 2;
    bad[2].seq = 0;
    bad[3].from = 0;
    bad[4].from = A;
    bad[5].from_epoch = 0;
    bad[6].data = NULL;
    bad[7].len = LEN + 1;
    bad[8].weight = 0.0f;
    bad[9].weight = HUGE_VALF;
    bad[10].kind = HDO_XMSG_KINDS;
    bad[11].kind = HDO_XMSG_ANSWER;
    bad[11].weight = -1.0f;
    for (int k = 0; k < 12; k++) {
        hand(&a, &bad[k]);
        assert_int_equal(a.out.n, 0);
    }
    assert_int_equal(hdo__exchange_stats(a.m)->stale, 12);
    at(&a, 1.0f);
    offer_to(&a, A); /* nobody meets itself, or nobody */
    assert_int_equal(a.out.n, 0);
    offer_to(&a, 0);
    assert_int_equal(a.out.n, 0);
    hdo_xmsg ack = {.kind = HDO_XMSG_ACK, .from = B, .to = A, .from_epoch = 1, .to_epoch = 1, .seq = 5};
    hand(&a, &ack); /* of nothing */
    assert_int_equal(a.out.n, 0);
    free(a.m);
}

static void models_that_are_not_finite_are_not_averaged_in(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    a.x[2] = NAN;
    offer_to(&a, B);
    hand(&b, &a.out.msg[0]);
    said(&b, HDO_XMSG_REFUSE);
    at(&b, 3.0f);
    a.x[2] = 3.0f;
    hand(&a, &b.out.msg[0]);
    offer_to(&a, B);
    hand(&b, &a.out.msg[0]);
    float wild[LEN] = {HUGE_VALF, 0, 0, 0};
    hdo_xmsg answer = b.out.msg[0];
    answer.data = wild;
    hand(&a, &answer);
    at(&a, 1.0f);
    assert_int_equal(hdo__exchange_stats(a.m)->far, 1);
    assert_int_equal(hdo__exchange_stats(b.m)->far, 1);
    free(a.m);
    free(b.m);
}

static void far_models_are_clipped(void **state) {
    (void)state;
    hdo_exchange_setup s = setup_of(B);
    s.clip = 5.0;
    node b = born(&s, 1.0f);
    node a = simple(A, 1.0f);
    for (int k = 0; k < 30; k++) {
        for (int i = 0; i < LEN; i++) a.x[i] = b.x[i] + 0.01f;
        if (k == 29) a.x[0] += 1000.0f;
        offer_to(&a, B);
        hand(&b, &a.out.msg[0]);
        said(&b, k < 29 ? HDO_XMSG_ANSWER : HDO_XMSG_REFUSE);
        hand(&a, &b.out.msg[0]);
        if (k < 29) hand(&b, &a.out.msg[0]);
    }
    assert_int_equal(hdo__exchange_stats(b.m)->far, 1);
    free(a.m);
    free(b.m);
}

static void patience_follows_round_trips(void **state) {
    (void)state;
    node a = simple(A, 1.0f), b = simple(B, 3.0f);
    assert_float_equal(hdo__exchange_wait_us(a.m), 1000.0, 0.0);
    for (int k = 0; k < 40; k++) {
        offer_to(&a, B);
        hand(&b, &a.out.msg[0]);
        a.now += 200;
        b.now += 200;
        hand(&a, &b.out.msg[0]);
        hand(&b, &a.out.msg[0]);
    }
    assert_in_range((int)hdo__exchange_wait_us(a.m), 200, 210);
    offer_to(&a, B); /* an answer in no time at all counts as one microsecond */
    hand(&b, &a.out.msg[0]);
    hand(&a, &b.out.msg[0]);
    assert_true(hdo__exchange_wait_us(a.m) >= 100.0);
    free(a.m);
    free(b.m);
}

static void many_timers_at_once_come_in_portions(void **state) {
    (void)state;
    hdo_exchange_setup s = setup_of(9);
    s.slots = 12;
    s.peers = 20;
    node j = born(&s, 0.0f);
    for (uint64_t k = 1; k <= 12; k++) {
        node i = simple(20 + k, 1.0f);
        offer_to(&i, 9);
        hand(&j, &i.out.msg[0]);
        free(i.m);
    }
    tick(&j);
    assert_int_equal(j.out.n, HDO_XOUT_MAX);
    tick(&j);
    assert_int_equal(j.out.n, 12 - HDO_XOUT_MAX);
    s = setup_of(9);
    s.doubts = 12;
    s.peers = 20;
    free(j.m);
    j = born(&s, 0.0f);
    for (uint64_t k = 1; k <= 12; k++) {
        offer_to(&j, 20 + k);
        for (int q = 0; q < 3000 && !hdo__exchange_can_offer(j.m); q++) tick(&j);
    }
    j.now += 20000;
    event(&j, (hdo_xevent){.kind = HDO_XEVENT_TICK});
    assert_int_equal(j.out.n, HDO_XOUT_MAX);
    free(j.m);
}

static void senseless_setups_are_refused(void **state) {
    (void)state;
    hdo_exchange_setup s[14];
    for (int k = 0; k < 14; k++) s[k] = setup_of(A);
    assert_true(hdo__exchange_bytes(&s[0]) > 0);
    s[0].self = 0;
    s[1].epoch = 0;
    s[2].len = 0;
    s[3].weight = 0.0f;
    s[4].weight = HUGE_VALF;
    s[5].slots = 0;
    s[6].doubts = 0;
    s[7].peers = 0;
    s[8].wait_min_us = 0;
    s[9].wait_max_us = 1;
    s[10].forget_us = s[10].wait_max_us;
    s[11].clip = -1.0;
    s[12].weight = NAN;
    s[13].slots = -1;
    for (int k = 0; k < 14; k++) assert_int_equal(hdo__exchange_bytes(&s[k]), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_meet_in_the_middle),
        cmocka_unit_test(weights_keep_the_weighted_sum),
        cmocka_unit_test(a_node_steps_on_while_its_offer_is_out),
        cmocka_unit_test(lost_answer_is_repeated_and_applied_once),
        cmocka_unit_test(lost_offer_never_counts),
        cmocka_unit_test(busy_nodes_refuse),
        cmocka_unit_test(no_room_for_an_answer),
        cmocka_unit_test(an_offer_without_answer_becomes_a_doubt),
        cmocka_unit_test(who_is_heard_again_is_asked_at_once),
        cmocka_unit_test(a_partner_forgets_after_a_long_silence_and_says_so),
        cmocka_unit_test(new_epochs_end_what_was_open),
        cmocka_unit_test(silent_members_make_room),
        cmocka_unit_test(whom_we_owe_an_answer_is_remembered),
        cmocka_unit_test(sleepers_bury_nobody),
        cmocka_unit_test(garbage_is_counted_and_dropped),
        cmocka_unit_test(models_that_are_not_finite_are_not_averaged_in),
        cmocka_unit_test(far_models_are_clipped),
        cmocka_unit_test(patience_follows_round_trips),
        cmocka_unit_test(many_timers_at_once_come_in_portions),
        cmocka_unit_test(senseless_setups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
