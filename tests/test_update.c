/* SPDX-License-Identifier: Apache-2.0 — schedules and their files, momentum, weight decay: against plain loops. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/rng.h"
#include "folder_help.h"
#include "update/update.h"

static char path[64];

static hdo_status load(hdo_schedule *s, const char *text, hdo_error *e) {
    snprintf(path, sizeof path, "%s/rates", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    *s = (hdo_schedule){.kind = HDO_SCHEDULE_FILE, .lr = 99.0};
    *e = (hdo_error){0};
    return hdo__schedule_load(s, path, e);
}

/* ---- schedules ---- */

static void test_schedule_formulas(void **state) {
    (void)state;
    hdo_schedule s = {.kind = HDO_SCHEDULE_CONSTANT, .lr = 2.0, .warmup = 4, .steps = 10};
    for (int t = 0; t < 4; t++) assert_true(hdo__schedule_lr(&s, t) == 2.0 * (t + 1) / 4.0);
    for (int t = 4; t < 20; t++) assert_true(hdo__schedule_lr(&s, t) == 2.0);
    s.kind = HDO_SCHEDULE_COSINE;
    for (int t = 4; t <= 14; t++) {
        double want = 2.0 * 0.5 * (1.0 + cos(acos(-1.0) * (t - 4) / 10.0));
        assert_true(fabs(hdo__schedule_lr(&s, t) - want) < 1e-12);
    }
    s.steps = 1;
    s.warmup = 0;
    assert_true(hdo__schedule_lr(&s, 0) == 2.0);
    assert_true(fabs(hdo__schedule_lr(&s, 1)) < 1e-12);
    s.steps = 0; /* nothing after the warm-up: no division */
    assert_true(hdo__schedule_lr(&s, 0) == 2.0);
}

static void test_schedule_from_points(void **state) {
    (void)state;
    hdo_schedule s;
    hdo_error e;
    assert_int_equal(load(&s, "# a comment\n2 1.0\n\n  4\t3.0 # more\n10 0\n \t\r\n12 5e-1\n", &e), HDO_OK);
    assert_int_equal(s.n_points, 4);
    assert_true(s.lr == 1.0); /* what the warm-up rises to */
    static const double want[] = {1, 1, 1, 2, 3, 2.5, 2, 1.5, 1, 0.5, 0, 0.25, 0.5, 0.5, 0.5};
    s.warmup = 3;
    for (int t = 0; t < 15; t++) assert_true(fabs(hdo__schedule_lr(&s, t + 3) - want[t]) < 1e-12);
    assert_true(hdo__schedule_lr(&s, 1) == 1.0 * 2.0 / 3.0);
    hdo__schedule_clear(&s);
    assert_null(s.point);
    assert_int_equal(s.n_points, 0);
    assert_int_equal(load(&s, "0 7\n", &e), HDO_OK); /* one point: a constant */
    assert_true(hdo__schedule_lr(&s, 0) == 7.0 && hdo__schedule_lr(&s, 1) == 7.0 && hdo__schedule_lr(&s, 99) == 7.0);
    hdo__schedule_clear(&s);
}

static void test_schedule_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "has no points"},
        {"# nothing\n\n", "has no points"},
        {"1\n", "rates:1: expected \"step rate\", got '1'"},
        {"0 1\n1 2 3\n", "rates:2: expected"},
        {"0 1\nx 2\n", "rates:2: expected"},
        {"0 nan\n", "rates:1: expected"},
        {"inf 1\n", "rates:1: expected"},
        {"-1 1\n", "rates:1: steps must rise"},
        {"0 -0.1\n", "rates:1: steps must rise"},
        {"0 1\n\n0 2\n", "rates:3: steps must rise"},
        {"5 1\n4 2\n", "rates:2: steps must rise"},
    };
    hdo_schedule s;
    hdo_error e;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(load(&s, bad[i].text, &e), HDO_E_CONFIG);
        assert_int_equal(e.code, HDO_E_CONFIG);
        if (strstr(e.msg, bad[i].says) == NULL) fail_msg("'%s' does not say '%s'", e.msg, bad[i].says);
        hdo__schedule_clear(&s);
    }
    assert_int_equal(load(&s, "0 0\n0.5 0\n", &e), HDO_OK); /* a rate of 0 and half steps are fine */
    hdo__schedule_clear(&s);
    assert_int_equal(hdo__schedule_load(&s, "/nosuch/rates", &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "cannot read the schedule file '/nosuch/rates'"));
}

static void test_schedule_length_is_bounded(void **state) {
    (void)state;
    enum { MOST = 100000 };
    hdo_schedule s;
    hdo_error e;
    for (int over = 0; over < 2; over++) {
        char *text = malloc(MOST * 16), *p = text;
        assert_non_null(text);
        for (int i = 0; i < MOST + over; i++) p += sprintf(p, "%d 1\n", i);
        assert_int_equal(load(&s, text, &e), over ? HDO_E_CONFIG : HDO_OK);
        if (over) assert_non_null(strstr(e.msg, "more than 100000 lines"));
        assert_int_equal(s.n_points, MOST);
        hdo__schedule_clear(&s);
        free(text);
    }
}

/* ---- the move ---- */

typedef struct move {
    size_t d;
    int threads, kind;
    double momentum, decay;
    hdo_ranges zero;
} move;

/* Ten steps beside a plain loop in float, operation for operation. */
static void check_move(const move *m) {
    hdo_team team;
    assert_int_equal(hdo__team_init(&team, m->threads, hdo__update_work_bytes(m->d)), HDO_OK);
    hdo_work w = {&team.arena[0], &team, 0};
    hdo_update u = {.momentum = m->momentum, .momentum_kind = m->kind, .weight_decay = m->decay};
    bool heavy = m->momentum > 0.0;
    float *x = hdo__alloc(m->d * 4), *g = hdo__alloc(m->d * 4), *v = hdo__alloc(m->d * 4), *y = hdo__alloc(m->d * 4),
          *z = hdo__alloc(m->d * 4);
    hdo__rng_normal(hdo__stream(1, HDO_RNG_INIT, 0, 0, 0), 0, m->d, x);
    memcpy(y, x, m->d * 4);
    float gain = (float)(m->kind == HDO_MOMENTUM_EMA ? 1.0 - m->momentum : 1.0);
    for (uint64_t t = 0; t < 10; t++) {
        double want = 0.0, lr = 0.05 + 0.01 * (double)t;
        size_t used = hdo__arena_mark(w.arena);
        hdo__rng_normal(hdo__stream(2, HDO_RNG_INIT, 0, t, 0), 0, m->d, g);
        hdo__ranges_clear(m->zero, 0, m->d, g);
        for (size_t j = 0; j < m->d; j++) {
            float G = g[j];
            want += (double)G * (double)G;
            if (m->decay > 0.0) G = (float)m->decay * y[j] + G;
            if (heavy) G = z[j] = gain * G + (float)m->momentum * z[j];
            y[j] = -(float)lr * G + y[j];
        }
        for (int k = 0; k < m->zero.n; k++) /* not looked at */
            for (size_t j = m->zero.at[k].lo; j < m->zero.at[k].hi; j++) g[j] = 1e9f;
        double norm2 = hdo__update_apply(&u, lr, &(hdo_move){m->d, m->zero, x, g, heavy ? v : NULL}, &w);
        assert_true(fabs(norm2 / want - 1.0) < 1e-9);
        for (size_t j = 0; j < m->d; j++) assert_true(fabsf(x[j] - y[j]) <= 4e-6f * (1.0f + fabsf(y[j])));
        assert_int_equal(hdo__arena_mark(w.arena), used);
    }
    hdo__free(x);
    hdo__free(g);
    hdo__free(v);
    hdo__free(y);
    hdo__free(z);
    hdo__team_clear(&team);
}

static void test_update_moves(void **state) {
    (void)state;
    static const hdo_range some[] = {{3, 40}, {41, 90}};
    static const hdo_range wide[] = {{100, 3000}, {20000, 65541}};
    static const hdo_ranges none = {0}, few = {some, 2}, many = {wide, 2};
    const move moves[] = {
        {1, 1, HDO_MOMENTUM_EMA, 0.0, 0.0, none},
        {101, 1, HDO_MOMENTUM_EMA, 0.5, 0.0, few},
        {101, 2, HDO_MOMENTUM_HEAVY_BALL, 0.9, 0.01, few},
        {32768, 2, HDO_MOMENTUM_EMA, 0.0, 0.1, none},
        {32769, 2, HDO_MOMENTUM_HEAVY_BALL, 0.5, 0.0, none},
        {70000, 1, HDO_MOMENTUM_EMA, 0.9, 0.0, many},
        {70000, 2, HDO_MOMENTUM_EMA, 0.9, 0.1, many},
        {65536, 2, HDO_MOMENTUM_HEAVY_BALL, 0.0, 0.0, none},
    };
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) check_move(&moves[i]);
}

/* w_t / S_t with w_k = (1 - rate)^-k, summed as it stands. */
static void test_newest_weight(void **state) {
    (void)state;
    static const double rates[] = {1e-9, 1e-4, 0.01, 0.3, 0.9};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        double back = 1.0, sum = 0.0; /* S_t / w_t = sum of (1 - rate)^k, k = 0 .. t-1 */
        for (int t = 1; t <= 400; t++, back *= 1.0 - rates[i]) {
            sum += back;
            assert_true(fabs(hdo__newest_weight(rates[i], t) * sum - 1.0) < 1e-12);
        }
    }
    assert_true(hdo__newest_weight(1.0, 7) == 1.0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_weight),
        cmocka_unit_test(test_schedule_formulas),
        cmocka_unit_test(test_schedule_from_points),
        cmocka_unit_test(test_schedule_files_are_refused),
        cmocka_unit_test(test_schedule_length_is_bounded),
        cmocka_unit_test(test_update_moves),
    };
    return cmocka_run_group_tests_name("update", tests, make_folder, remove_folder);
}
