/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of a fleet on a bus within this process. Most tests take turns in virtual time: no thread, no clock, one
 * order of events. What a newcomer asks is asked over threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fleet/join.h"
#include "fleet/member_impl.h"

enum { MAX = 8, MS = 1000 };

typedef struct world {
    hdo_hub *hub;
    hdo_bus *bus[MAX];
    hdo_member *m[MAX];
    float *X[MAX];
    int n, nodes;
    size_t len;
    int64_t now;
    double clip;
    double local; /* sum of s(x) put in by local steps and starts */
    int count;
} world;

static const char *const names[MAX] = {"a", "b", "c", "d", "e", "f", "g", "h"};

static void be_born(world *w, int i, uint32_t epoch) {
    hdo_member_setup s = {.id = {.member = hdo__fleet_id(names[i]),
                                 .epoch = epoch,
                                 .classes = 2,
                                 .place = i * w->nodes,
                                 .nodes = w->nodes,
                                 .seed = 1},
                          .config_text = "steps: 3\n",
                          .X = w->X[i],
                          .ld = w->len,
                          .len = w->len,
                          .beat_s = 0.1,
                          .forget_s = 20.0,
                          .clip = w->clip};
    memcpy(s.id.run, "run", 4);
    memcpy(s.id.role, "zo", 3);
    memcpy(s.id.name, names[i], 2);
    hdo__fleet_run_id("run", s.id.run_id);
    memset(s.id.config_hash, 5, sizeof s.id.config_hash);
    assert_int_equal(hdo__hub_join(w->hub, &w->bus[i], NULL), HDO_OK);
    s.bus = w->bus[i];
    assert_int_equal(hdo__member_create(&w->m[i], &s, NULL), HDO_OK);
    for (int k = 0; k < w->nodes; k++) w->local += hdo__flow_measure(w->X[i] + (size_t)k * w->len, w->len);
}

static void die(world *w, int i) {
    hdo__member_destroy(w->m[i]);
    w->bus[i]->ops->destroy(w->bus[i]);
    w->m[i] = NULL;
    w->bus[i] = NULL;
}

static void open_world(world *w, int n, int nodes, size_t len, double clip) {
    *w = (world){.n = n, .nodes = nodes, .len = len, .clip = clip, .now = MS};
    assert_int_equal(hdo__hub_create(&w->hub, NULL), HDO_OK);
    for (int i = 0; i < n; i++) {
        w->X[i] = calloc((size_t)nodes * len, sizeof(float));
        for (size_t k = 0; k < (size_t)nodes * len; k++) w->X[i][k] = (float)i + 0.01f * (float)(k % 17);
        be_born(w, i, 1);
    }
}

static void close_world(world *w) {
    for (int i = 0; i < w->n; i++) {
        if (w->m[i] != NULL) die(w, i);
        free(w->X[i]);
    }
    hdo__hub_destroy(w->hub);
}

/* One millisecond: everybody has a turn; every tenth of them a local step and a wish. */
static void tick(world *w, bool steps) {
    w->now += MS;
    w->count++;
    for (int i = 0; i < w->n; i++) {
        if (w->m[i] == NULL) continue;
        for (int k = 0; k < w->nodes && steps && w->count % 10 == 0; k++) {
            float *x = hdo__member_lock(w->m[i], k);
            double before = hdo__flow_measure(x, w->len);
            x[(size_t)w->count % w->len] += 0.125f;
            w->local += hdo__flow_measure(x, w->len) - before;
            hdo__member_unlock(w->m[i], k);
            hdo__member_wish(w->m[i], k, (uint64_t)w->count);
        }
        hdo__member_turn(w->m[i], w->now, 0.0);
    }
}

static void run_for(world *w, int ms, bool steps) {
    for (int k = 0; k < ms; k++) tick(w, steps);
}

static bool all_settled(world *w) {
    for (int i = 0; i < w->n; i++) {
        if (w->m[i] != NULL && (!hdo__member_settled(w->m[i]) || hdo__post_busy(w->m[i]->post))) return false;
    }
    return true;
}

static void settle(world *w) {
    for (int k = 0; k < 20000 && !all_settled(w); k++) tick(w, false);
    assert_true(all_settled(w));
}

static double sum_of(const world *w) {
    double sum = 0.0;
    for (int i = 0; i < w->n; i++) {
        for (int k = 0; k < w->nodes && w->m[i] != NULL; k++)
            sum += hdo__flow_measure(w->X[i] + (size_t)k * w->len, w->len);
    }
    return sum;
}

static uint64_t met(world *w) {
    uint64_t sum = 0;
    for (int i = 0; i < w->n; i++) {
        hdo_member_stats s;
        if (w->m[i] == NULL) continue;
        hdo__member_stats(w->m[i], &s);
        sum += s.met;
    }
    return sum;
}

static double spread_of(const world *w) {
    float lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < w->n; i++) {
        lo = fminf(lo, w->X[i][1]);
        hi = fmaxf(hi, w->X[i][1]);
    }
    return (double)(hi - lo);
}

/* ---- exchanges ---- */

static void test_members_come_together_and_keep_their_sum(void **state) {
    (void)state;
    world w;
    open_world(&w, 5, 1, 50, 0.0);
    double before = spread_of(&w);
    run_for(&w, 2000, true);
    settle(&w);
    assert_true(met(&w) > 200);
    assert_true(spread_of(&w) < 0.25 * before);
    assert_true(fabs(sum_of(&w) - w.local) < 1e-3);
    close_world(&w);
}

static int lossy(void *ctx, const char *subject, size_t len) {
    (void)subject;
    (void)len;
    double u = hdo__rng_double(hdo__stream(7, HDO_RNG_TEST, 0, (uint64_t)++ * (int *)ctx, 0), 0);
    return u < 0.25 ? 0 : u < 0.4 ? 2 : 1;
}

static void test_loss_and_repetition_change_no_sum(void **state) {
    (void)state;
    world w;
    int count = 0;
    open_world(&w, 4, 1, 50, 0.0);
    hdo__hub_fate(w.hub, lossy, &count);
    run_for(&w, 20000, true);
    settle(&w);
    assert_true(met(&w) > 50);
    assert_true(fabs(sum_of(&w) - w.local) < 1e-3);
    close_world(&w);
}

static void test_long_models_go_in_chunks(void **state) {
    (void)state;
    world w;
    int count = 0;
    open_world(&w, 3, 1, 2 * HDO_FLEET_CHUNK / sizeof(float) + 5, 0.0);
    run_for(&w, 300, true);
    hdo__hub_fate(w.hub, lossy, &count);
    run_for(&w, 300, true);
    hdo__hub_fate(w.hub, NULL, NULL);
    settle(&w);
    assert_true(met(&w) > 10);
    assert_true(fabs(sum_of(&w) - w.local) < 1e-7 * 131077 * 3);
    close_world(&w);
}

static void test_nodes_of_one_member_meet_without_the_bus(void **state) {
    (void)state;
    world w;
    hdo_member_stats s;
    open_world(&w, 1, 4, 20, 0.0);
    for (int k = 0; k < 4; k++) w.X[0][20 * k + 1] = (float)k;
    w.local = sum_of(&w);
    run_for(&w, 500, true);
    settle(&w);
    hdo__member_stats(w.m[0], &s);
    assert_true(s.local > 50);
    assert_int_equal(s.local, s.met);
    assert_true(fabs(sum_of(&w) - w.local) < 1e-3);
    assert_true(fabs((double)(w.X[0][1] - w.X[0][61])) < 0.5);
    close_world(&w);
}

/* What moved between those who live adds up to nothing, whatever died. */
static double drift_of_living(world *w) {
    double sum = 0.0;
    for (int i = 0; i < w->n; i++) {
        for (int k = 0; w->m[i] != NULL && k < w->m[i]->flows.n; k++) {
            const hdo_flow *f = &w->m[i]->flows.flow[k];
            for (int j = 0; j < w->n; j++) {
                if (w->m[j] != NULL && w->m[j]->s.id.member == hdo__fleet_member(f->to) &&
                    w->m[j]->s.id.epoch == f->epoch)
                    sum += f->sum;
            }
        }
    }
    return sum;
}

static void test_the_dead_take_only_their_own(void **state) {
    (void)state;
    world w;
    open_world(&w, 4, 1, 50, 0.0);
    for (uint32_t life = 2; life < 8; life++) {
        run_for(&w, 203, true); /* not at a quiet moment */
        die(&w, 1);
        run_for(&w, 97, true);
        be_born(&w, 1, life);
    }
    run_for(&w, 200, true);
    die(&w, 2); /* for good */
    run_for(&w, 700, true);
    hdo_roster_view v;
    hdo__roster_look(&w.m[0]->roster, w.now, &v);
    assert_int_equal(v.members, 2); /* it is gone */
    for (int k = 0; k < 30000 && !all_settled(&w); k++) tick(&w, false);
    assert_true(all_settled(&w));
    assert_true(fabs(drift_of_living(&w)) < 1e-3);
    close_world(&w);
}

/* ---- garbage ---- */

/* The last member says something mad in every turn. Returns how far the others are from where they should be. */
static double with_garbage(double clip, int64_t *far) {
    world w;
    open_world(&w, 4, 1, 50, clip);
    int mad = w.n - 1;
    for (int k = 0; k < 3000; k++) {
        if (k > 500) {
            for (size_t c = 0; c < w.len; c++) w.X[mad][c] = 1e6f * (float)((k + (int)c) % 3 - 1);
        }
        tick(&w, true);
    }
    double worst = 0.0;
    *far = 0;
    for (int i = 0; i < mad; i++) {
        hdo_member_stats s;
        hdo__member_stats(w.m[i], &s);
        *far += s.exchange.far;
        for (size_t c = 0; c < w.len; c++) worst = fmax(worst, fabs((double)w.X[i][c]));
    }
    close_world(&w);
    return worst;
}

static void test_clip_keeps_garbage_out(void **state) {
    (void)state;
    int64_t far;
    assert_true(with_garbage(0.0, &far) > 1e4);
    assert_int_equal(far, 0);
    assert_true(with_garbage(5.0, &far) < 20.0); /* 300 steps of 1/8 over 50 coordinates, and a start up to 3 */
    assert_true(far > 10);
}

/* ---- names, the end ---- */

static void test_a_name_that_is_taken(void **state) {
    (void)state;
    world w;
    char why[128];
    hdo_bus *bus;
    hdo_member *twin;
    open_world(&w, 2, 1, 10, 0.0);
    run_for(&w, 300, true);
    hdo_member_setup s = w.m[0]->s;
    assert_int_equal(hdo__hub_join(w.hub, &bus, NULL), HDO_OK);
    s.bus = bus;
    s.id.epoch = 2;
    assert_int_equal(hdo__member_create(&twin, &s, NULL), HDO_OK);
    hdo__member_turn(twin, w.now, 0.0);
    run_for(&w, 300, true);
    hdo__member_turn(twin, w.now, 0.0);
    assert_int_equal(hdo__member_ended(w.m[0], why, sizeof why), HDO_MEMBER_REPLACED);
    assert_int_equal(hdo__member_ended(twin, why, sizeof why), HDO_MEMBER_ON);
    hdo__member_destroy(twin);
    bus->ops->destroy(bus);
    close_world(&w);
}

static void test_one_who_leaves_is_left_in_peace(void **state) {
    (void)state;
    world w;
    open_world(&w, 3, 1, 10, 0.0);
    run_for(&w, 500, true);
    atomic_store(&w.m[0]->leaving, HDO_LEAVING);
    atomic_store(&w.m[0]->beat_now, true);
    run_for(&w, 200, true);
    assert_true(hdo__member_settled(w.m[0]));
    hdo_member_stats before, after;
    hdo__member_stats(w.m[0], &before);
    run_for(&w, 500, true);
    hdo__member_stats(w.m[0], &after);
    assert_int_equal(before.met, after.met);
    close_world(&w);
}

/* ---- newcomers ---- */

typedef struct guests {
    world w;
    hdo_bus *bus;
    hdo_join j;
} guests;

static void open_guests(guests *g) {
    open_world(&g->w, 2, 1, 40, 0.0);
    for (int i = 0; i < 2; i++) {
        hdo__member_tell(g->w.m[i], &(hdo_member_figures){.step = 77});
        assert_int_equal(hdo__member_start(g->w.m[i], NULL), HDO_OK);
    }
    assert_int_equal(hdo__hub_join(g->w.hub, &g->bus, NULL), HDO_OK);
}

static void close_guests(guests *g) {
    hdo__join_close(&g->j);
    g->bus->ops->destroy(g->bus);
    close_world(&g->w);
}

static void test_a_newcomer_gets_configuration_and_model(void **state) {
    (void)state;
    guests g;
    char run[HDO_FLEET_NAME];
    float x[40];
    uint64_t step = 0;
    hdo_error e;
    open_guests(&g);
    assert_int_equal(hdo__join_find_run(g.bus, 2.0, run, &e), HDO_OK);
    assert_string_equal(run, "run");
    assert_int_equal(hdo__join_open(&g.j, g.bus, run, "new", &e), HDO_OK);
    hdo__join_listen(&g.j, 2.0, 0.2, true);
    assert_int_equal(hdo__join_verdict(&g.j, &e), HDO_OK);
    assert_int_equal(g.j.roster.used, 2);
    assert_int_equal(hdo__join_ask_config(&g.j, 2.0, &e), HDO_OK);
    assert_string_equal(g.j.text, "steps: 3\n");
    memset(g.j.config_hash, 5, sizeof g.j.config_hash);
    g.j.has_config = true;
    assert_int_equal(hdo__join_ask_model(&g.j, hdo__fleet_id("b"), 40, 2.0, x, &step, &e), HDO_OK);
    assert_int_equal(step, 77);
    assert_memory_equal(x, g.w.X[1], sizeof x);
    assert_int_equal(hdo__join_ask_model(&g.j, 0, 41, 0.2, x, &step, &e), HDO_E_ENGINE); /* another size */
    close_guests(&g);
}

static void test_a_newcomer_with_another_configuration_is_turned_away(void **state) {
    (void)state;
    guests g;
    hdo_error e = {0};
    hdo_member_stats s, t;
    open_guests(&g);
    assert_int_equal(hdo__join_open(&g.j, g.bus, "run", "new", &e), HDO_OK);
    memset(g.j.config_hash, 6, sizeof g.j.config_hash);
    g.j.has_config = true;
    hdo__join_listen(&g.j, 2.0, 0.2, true);
    assert_int_equal(hdo__join_verdict(&g.j, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "another configuration"));
    hdo__member_stats(g.w.m[0], &s);
    hdo__member_stats(g.w.m[1], &t);
    assert_true(s.drops[HDO_DROP_CONFIG] + t.drops[HDO_DROP_CONFIG] > 0);
    assert_true(s.refused + t.refused > 0);
    close_guests(&g);
}

static void test_a_class_that_is_not_there(void **state) {
    (void)state;
    guests g;
    hdo_error e = {0};
    open_guests(&g);
    assert_int_equal(hdo__join_open(&g.j, g.bus, "run", "new", &e), HDO_OK);
    g.j.class_id = 2;
    hdo__join_listen(&g.j, 2.0, 0.2, true);
    assert_int_equal(hdo__join_verdict(&g.j, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "no such class"));
    close_guests(&g);
}

static void test_the_end_comes_by_message(void **state) {
    (void)state;
    guests g;
    char why[64];
    hdo_error e = {0};
    open_guests(&g);
    assert_int_equal(hdo__join_open(&g.j, g.bus, "run", "operator", &e), HDO_OK);
    hdo__join_listen(&g.j, 1.0, 0.1, true);
    assert_true(hdo__join_say(&g.j, "stop", HDO_FLEET_STOP, 0, NULL, 0));
    hdo__join_listen(&g.j, 0.3, 1.0, false);
    for (int i = 0; i < 2; i++) assert_int_equal(hdo__member_ended(g.w.m[i], why, sizeof why), HDO_MEMBER_STOP);
    assert_string_equal(why, "operator");
    for (int i = 0; i < 2; i++) hdo__member_leave(g.w.m[i], HDO_LEAVING, 1.0);
    close_guests(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_come_together_and_keep_their_sum),
        cmocka_unit_test(test_loss_and_repetition_change_no_sum),
        cmocka_unit_test(test_long_models_go_in_chunks),
        cmocka_unit_test(test_nodes_of_one_member_meet_without_the_bus),
        cmocka_unit_test(test_the_dead_take_only_their_own),
        cmocka_unit_test(test_clip_keeps_garbage_out),
        cmocka_unit_test(test_a_name_that_is_taken),
        cmocka_unit_test(test_one_who_leaves_is_left_in_peace),
        cmocka_unit_test(test_a_newcomer_gets_configuration_and_model),
        cmocka_unit_test(test_a_newcomer_with_another_configuration_is_turned_away),
        cmocka_unit_test(test_a_class_that_is_not_there),
        cmocka_unit_test(test_the_end_comes_by_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
