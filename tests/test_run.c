/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: same seed, same bits; outcomes; and agreement with exact expectations on quadratics.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "estimator/estimator.h"
#include "hdo/experimental/all.h"
#include "folder_help.h"
#include "run_help.h"
#include "update/update.h"

static void fingerprint(const hdo_config *c, char hex[65]) {
    hdo_run *r = make(c);
    finish(r);
    hdo_run_fingerprint(r, hex);
    hdo_run_destroy(r);
}

static void test_run_same_seed_same_bits_any_threads(void **state) {
    (void)state;
    static const char *const estimators[] = {"fd", "forward-sim", "forward-law"};
    static const char *const mixings[] = {"matching", "pairwise", "none", "allreduce"};
    for (size_t i = 0; i < 3; i++) {
        for (size_t m = 0; m < 4; m++) {
            hdo_config c;
            char one[65], two[65], three[65], other[65];
            base_config(&c, "logistic", "2fo+3zo");
            set(&c, "population.zo.estimator", estimators[i]);
            set(&c, "population.zo.rv", "5");
            set(&c, "population.zo.momentum", "0.5");
            set(&c, "mixing", mixings[m]);
            set(&c, "threads", "1");
            fingerprint(&c, one);
            set(&c, "threads", "2");
            fingerprint(&c, two);
            set(&c, "threads", "3");
            fingerprint(&c, three);
            set(&c, "seed", "12345");
            fingerprint(&c, other);
            assert_string_equal(one, two);
            assert_string_equal(one, three);
            assert_string_not_equal(one, other);
        }
    }
}

static void test_run_all_nodes_start_equal_and_gamma_is_zero(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    hdo_stop why;
    base_config(&c, "logistic", "3fo+4zo");
    hdo_run *r = make(&c);
    assert_int_equal(hdo_run_advance(r, 0, &why, &e), HDO_OK);
    size_t d;
    const float *x0 = hdo_run_params(r, 0, &d);
    for (int i = 1; i < 7; i++) assert_memory_equal(hdo_run_params(r, i, NULL), x0, d * sizeof(float));
    assert_null(hdo_run_params(r, 7, NULL));
    assert_true(hdo_run_last_row(r)->gamma == 0.0);
    hdo_run_destroy(r);
}

static void test_run_odd_and_tiny_populations(void **state) {
    (void)state;
    static const char *const populations[] = {"1fo", "1zo", "1fo+1zo", "1fo+2zo", "5fo"};
    static const char *const mixings[] = {"matching", "pairwise", "none", "allreduce"};
    for (size_t p = 0; p < 5; p++) {
        for (size_t m = 0; m < 4; m++) {
            hdo_config c;
            base_config(&c, "quadratic", populations[p]);
            set(&c, "mixing", mixings[m]);
            hdo_run *r = make(&c);
            assert_int_equal(finish(r), HDO_COMPLETED);
            assert_int_equal(hdo_run_step(r), 20);
            hdo_run_destroy(r);
        }
    }
}

static void test_run_divergence_is_an_outcome(void **state) {
    (void)state;
    hdo_config c;
    base_config(&c, "quadratic", "4fo");
    set(&c, "model.smoothness", "1");
    set(&c, "population.fo.lr", "1000");
    set(&c, "steps", "500");
    hdo_run *r = make(&c);
    assert_int_equal(finish(r), HDO_DIVERGED);
    assert_true(hdo_run_step(r) < 500);
    char *s = hdo_run_summary(r);
    assert_non_null(strstr(s, "\"outcome\": \"diverged\""));
    free(s);
    hdo_run_destroy(r);
}

static void test_run_stops_at_target_and_by_request(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    base_config(&c, "quadratic", "4fo");
    set(&c, "model.noise", "0");
    set(&c, "population.fo.lr", "0.5");
    set(&c, "steps", "1000");
    set(&c, "stop.loss", "0.001");
    hdo_run *r = make(&c);
    assert_int_equal(finish(r), HDO_TARGET);
    assert_true(hdo_run_last_row(r)->all.loss_mean <= 0.001);
    hdo_run_destroy(r);

    set(&c, "stop.loss", "0");
    r = make(&c);
    hdo_stop why;
    assert_int_equal(hdo_run_advance(r, 3, &why, &e), HDO_OK);
    assert_int_equal(why, HDO_RUNNING);
    assert_int_equal(hdo_run_stop(r, &e), HDO_OK);
    assert_int_equal(hdo_run_last_row(r)->step, 3);
    assert_int_equal(hdo_run_advance(r, 3, &why, &e), HDO_OK);
    assert_int_equal(why, HDO_STOPPED);
    assert_int_equal(hdo_run_step(r), 3);
    hdo_run_destroy(r);
}

static void test_run_refuses_impossible_configurations(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } bad[] = {
        {"model", "logistc", "logistic"},
        {"population.zo.estimator", "forward-lw", "forward-law"},
        {"mixing", "matchin", "matching"},
        {"data", "syntetic", "synthetic"},
        {"population.zo.distribution", "sphere", "gaussian"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hdo_config c;
        hdo_error e = {0};
        hdo_run *r = NULL;
        base_config(&c, "logistic", "1fo+1zo");
        set(&c, bad[i].key, bad[i].value);
        hdo_status st = hdo_run_create(&r, &c, NULL, &e);
        assert_true(st == HDO_E_CONFIG || st == HDO_E_UNSUPPORTED);
        assert_null(r);
        if (strstr(e.msg, bad[i].says) == NULL) fail_msg("'%s' does not mention '%s'", e.msg, bad[i].says);
    }
}

/* Exact expectations of theory section 6.5: n = 8, nodes 0-3 zeroth order, d = 20, f^i = |x - c_i|^2 / 2, start 5 e1,
 * noise E|xi|^2 = 1. Means over seeds must lie within Z standard errors. */
typedef struct exact_case {
    const char *mixing, *estimator, *rv, *nu, *lr;
    int steps;
    double a, gamma;
} exact_case;

static void measure(const exact_case *k, int seed, double *a, double *gamma) {
    hdo_config c;
    base_config(&c, "quadratic", "4fo+4zo");
    char text[16];
    snprintf(text, sizeof text, "%d", seed);
    set(&c, "seed", text);
    snprintf(text, sizeof text, "%d", k->steps);
    set(&c, "steps", text);
    set(&c, "eval.every", "0");
    set(&c, "model.dim", "20");
    set(&c, "model.smoothness", "1");
    set(&c, "model.convexity", "1");
    set(&c, "model.noise", "1");
    set(&c, "model.spread", "1");
    set(&c, "model.start", "5");
    set(&c, "mixing", k->mixing);
    set(&c, "threads", "1");
    set(&c, "population.fo.lr", k->lr);
    set(&c, "population.fo.batch", "1");
    set(&c, "population.zo.lr", k->lr);
    set(&c, "population.zo.batch", "1");
    set(&c, "population.zo.estimator", k->estimator);
    set(&c, "population.zo.rv", k->rv);
    if (strncmp(k->estimator, "fd", 2) == 0) set(&c, "population.zo.nu", k->nu);
    hdo_run *r = make(&c);
    finish(r);
    *a = 2.0 * hdo_run_last_row(r)->mu_loss; /* f(mu) = |mu|^2 / 2 */
    *gamma = hdo_run_last_row(r)->gamma;
    hdo_run_destroy(r);
}

static void test_run_matches_exact_expectations(void **state) {
    (void)state;
    enum { SEEDS = 400 };
    const double Z = 4.0; /* 14 comparisons: chance of a false alarm below 1e-3; seeds are fixed anyway */
    static const exact_case cases[] = {
        {"pairwise", "forward-law", "1", "1e-4", "0.02", 1, 24.75419, 0.01257589},
        {"pairwise", "forward-law", "1", "1e-4", "0.02", 100, 9.315001, 0.03812588},
        {"matching", "forward-law", "1", "1e-4", "0.02", 1, 24.02422, 0.04284643},
        {"matching", "forward-law", "1", "1e-4", "0.02", 100, 0.4918591, 0.007677075},
        {"matching", "forward-sim", "1", "1e-4", "0.02", 10, 16.79116, 0.05459591},
        {"pairwise", "fd", "1", "0.2", "0.02", 100, 9.357287, 0.05176812},
        {"matching", "fd", "2", "0.2", "0.05", 100, 0.1249264, 0.06324635},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double sa = 0.0, sa2 = 0.0, sg = 0.0, sg2 = 0.0;
        for (int s = 0; s < SEEDS; s++) {
            double a, g;
            measure(&cases[i], 1000 + s, &a, &g);
            sa += a;
            sa2 += a * a;
            sg += g;
            sg2 += g * g;
        }
        double ma = sa / SEEDS, mg = sg / SEEDS;
        double za = (ma - cases[i].a) / sqrt((sa2 / SEEDS - ma * ma) / SEEDS);
        double zg = (mg - cases[i].gamma) / sqrt((sg2 / SEEDS - mg * mg) / SEEDS);
        print_message("  %s %s t=%d: a %.5g (exact %.5g, z %+.2f)  gamma %.5g (exact %.5g, z %+.2f)\n", cases[i].mixing,
                      cases[i].estimator, cases[i].steps, ma, cases[i].a, za, mg, cases[i].gamma, zg);
        assert_true(fabs(za) < Z);
        assert_true(fabs(zg) < Z);
    }
}

/* Skipping what is zero changes no bit of x and of the momentum; weight decay is not skipped. */
static void test_run_update_skips_zeros(void **state) {
    (void)state;
    enum { D = 70000 };
    static const hdo_range some[] = {{100, 3000}, {20000, 65541}};
    hdo_ranges zero = {some, 2}, none = {0};
    hdo_team team;
    assert_int_equal(hdo__team_init(&team, 2, hdo__update_work_bytes(D)), HDO_OK);
    hdo_work w = {&team.arena[0], &team, 0};
    float *x[2], *m[2], *g = hdo__alloc(D * sizeof(float));
    for (int k = 0; k < 2; k++) {
        x[k] = hdo__alloc(D * sizeof(float));
        m[k] = hdo__alloc(D * sizeof(float));
    }
    for (int decay = 0; decay < 2; decay++) {
        hdo_update u = {.momentum = 0.9, .momentum_kind = HDO_MOMENTUM_EMA, .weight_decay = decay ? 0.1 : 0.0};
        for (int k = 0; k < 2; k++) {
            hdo__rng_normal(hdo__stream(1, HDO_RNG_INIT, 0, 0, 0), 0, D, x[k]);
            memset(m[k], 0, D * sizeof(float));
        }
        for (uint64_t step = 0; step < 3; step++) {
            double norm2[2];
            for (int k = 0; k < 2; k++) {
                hdo__rng_normal(hdo__stream(2, HDO_RNG_INIT, 0, step, 0), 0, D, g);
                if (k == 0) hdo__ranges_clear(zero, 0, D, g);
                norm2[k] = hdo__update_apply(&u, 0.1, &(hdo_move){D, k == 0 ? none : zero, x[k], g, m[k]}, &w);
            }
            assert_memory_equal(x[0], x[1], D * sizeof(float));
            assert_memory_equal(m[0], m[1], D * sizeof(float));
            assert_true(fabs(norm2[0] - norm2[1]) < 1e-6 * norm2[0]);
        }
    }
    for (int k = 0; k < 2; k++) {
        hdo__free(x[k]);
        hdo__free(m[k]);
    }
    hdo__free(g);
    hdo__team_clear(&team);
}

/* Within the first pass over a shard the order is the same; from the second on it is not. */
static void test_run_reshuffle(void **state) {
    (void)state;
    for (int steps = 5; steps <= 10; steps += 5) { /* 20 samples, batch 4: one pass, two passes */
        hdo_config c;
        char hex[2][65], text[8];
        for (int fixed = 0; fixed < 2; fixed++) {
            base_config(&c, "logistic", "1fo");
            set(&c, "data.train", "20");
            set(&c, "population.fo.batch", "4");
            set(&c, "data.reshuffle", fixed ? "false" : "true");
            snprintf(text, sizeof text, "%d", steps);
            set(&c, "steps", text);
            fingerprint(&c, hex[fixed]);
        }
        assert_int_equal(strcmp(hex[0], hex[1]) == 0, steps == 5);
    }
}

/* Warm-up rises linearly to the rate, cosine falls to zero at the end, a file is linear between its points. */
static void test_run_schedules(void **state) {
    (void)state;
    hdo_schedule s = {.kind = HDO_SCHEDULE_COSINE, .lr = 2.0, .warmup = 4, .steps = 100};
    assert_true(hdo__schedule_lr(&s, 0) == 0.5);
    assert_true(hdo__schedule_lr(&s, 3) == 2.0);
    assert_true(hdo__schedule_lr(&s, 4) == 2.0);
    assert_true(fabs(hdo__schedule_lr(&s, 54) - 1.0) < 1e-12);
    assert_true(hdo__schedule_lr(&s, 103) < 0.001);
    hdo_schedule a = s; /* the authors': step W + k has cos(pi (k + 1) / T), so the last one is 0 */
    a.kind = HDO_SCHEDULE_COSINE_AUTHORS;
    for (int t = 0; t < 4; t++) assert_true(hdo__schedule_lr(&a, t) == hdo__schedule_lr(&s, t));
    for (int k = 0; k < 100; k++)
        assert_true(fabs(hdo__schedule_lr(&a, 4 + k) - (1.0 + cos(acos(-1.0) * (k + 1) / 100.0))) < 1e-12);
    assert_true(hdo__schedule_lr(&a, 4) < hdo__schedule_lr(&s, 4));
    assert_true(hdo__schedule_lr(&a, 103) == 0.0);
    double points[] = {0.0, 1.0, 10.0, 3.0, 20.0, 0.5};
    s = (hdo_schedule){.kind = HDO_SCHEDULE_FILE, .lr = 1.0, .warmup = 2, .n_points = 3, .point = points};
    assert_true(hdo__schedule_lr(&s, 0) == 0.5);
    assert_true(hdo__schedule_lr(&s, 2) == 1.0);
    assert_true(fabs(hdo__schedule_lr(&s, 7) - 2.0) < 1e-12);
    assert_true(hdo__schedule_lr(&s, 22) == 0.5);
    assert_true(hdo__schedule_lr(&s, 500) == 0.5);
}

/* Without noise and with one first-order node everything is known: mu_t = (1 - eta h)^t x_0. */
static void test_run_weighted_average(void **state) {
    (void)state;
    enum { T = 30 };
    hdo_config c;
    base_config(&c, "quadratic", "1fo");
    set(&c, "model.dim", "1");
    set(&c, "model.smoothness", "1");
    set(&c, "model.convexity", "1");
    set(&c, "model.noise", "0");
    set(&c, "model.start", "2");
    set(&c, "population.fo.lr", "0.1");
    set(&c, "steps", "30");
    set(&c, "eval.weighted", "0.05");
    hdo_run *r = make(&c);
    finish(r);
    double top = 0.0, bottom = 0.0;
    for (int t = 1; t <= T; t++) {
        double w = pow(0.95, -t);
        top += w * 2.0 * pow(0.9, t - 1);
        bottom += w;
    }
    double y = top / bottom;
    assert_true(fabs(hdo_run_last_row(r)->y_loss / (0.5 * y * y) - 1.0) < 1e-5);
    hdo_run_destroy(r);
}

/* Rates in the ratio of the noises: a forward-law node with rv vectors is (1 + (d+1)/rv) times as noisy where the
 * gradient is all noise. */
static void test_run_balanced_rate(void **state) {
    (void)state;
    hdo_config c;
    base_config(&c, "quadratic", "4fo+4zo");
    set(&c, "model.dim", "50");
    set(&c, "model.start", "0");
    set(&c, "model.spread", "0");
    set(&c, "model.noise", "1");
    set(&c, "population.fo.lr", "0.1");
    set(&c, "population.zo.lr", "balanced");
    set(&c, "population.zo.rv", "17");
    set(&c, "population.zo.batch", "1");
    set(&c, "population.fo.batch", "1");
    hdo_run *r = make(&c);
    finish(r);
    double ratio = hdo_run_last_row(r)->lr[0] / hdo_run_last_row(r)->lr[1];
    assert_true(fabs(ratio / (1.0 + 51.0 / 17.0) - 1.0) < 0.2); /* 32 differences in 50 dimensions: about 5% */
    hdo_run_destroy(r);
}

/* The noise is measured by pairs of estimates: every estimator must find room for a second one. Models that are
 * evaluated in less memory than a step takes leave none by chance. */
static void test_run_noise_with_every_estimator(void **state) {
    (void)state;
    static const char *const models[] = {"quadratic", "logistic", "mlp"};
    static const char *const keys[][2] = {{"population.zo.lr", "balanced"}, {"mixing.average", "noise"}};
    int ran = 0;
    for (int m = 0; m < 3; m++) {
        for (int k = 0; hdo__estimators[k] != NULL; k++) {
            for (int i = 0; i < 2; i++) {
                hdo_config c;
                hdo_error e = {0};
                hdo_run *r = NULL;
                base_config(&c, models[m], "2fo+2zo");
                const hdo_estimator_ops *ops = hdo__estimators[k];
                set(&c, m == 0 ? "model.dim" : "data.val", m == 0 ? "3000" : "1");
                set(&c, "threads", "1");
                set(&c, "steps", "2");
                set(&c, "population.zo.estimator", ops->name);
                if (ops->zeroth && !ops->axes) set(&c, "population.zo.rv", "2");
                if (ops->axes) set(&c, "population.zo.coords", "8");
                if (strcmp(ops->name, "complex-step") == 0) set(&c, "population.zo.allow_piecewise", "true");
                set(&c, keys[i][0], keys[i][1]);
                hdo_status st = hdo_run_create(&r, &c, NULL, &e);
                if (strcmp(ops->name, "fd-law") == 0 && st == HDO_E_UNSUPPORTED) continue; /* softmax regression only */
                assert_int_equal(st, HDO_OK);
                finish(r);
                assert_true(hdo_run_last_row(r)->lr[1] > 0.0);
                hdo_run_destroy(r);
                ran++;
            }
        }
    }
    assert_int_equal(ran, 2 * 28); /* 10 estimators on 3 models, fd-law on one */
}

/* Churn: an outage takes a class away, nothing hangs. */
static void test_run_churn(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    hdo_stop why;
    base_config(&c, "quadratic", "4fo+6zo");
    set(&c, "churn.outage", "fo");
    set(&c, "churn.outage_from", "5");
    set(&c, "churn.outage_to", "10");
    set(&c, "churn.loss", "0.3");
    set(&c, "eval.every", "1");
    hdo_run *r = make(&c);
    float before[100];
    size_t d;
    for (int t = 0; t < 20; t++) {
        memcpy(before, hdo_run_params(r, 1, &d), 100 * sizeof(float));
        assert_int_equal(hdo_run_advance(r, 1, &why, &e), HDO_OK);
        bool moved = memcmp(before, hdo_run_params(r, 1, &d), 100 * sizeof(float)) != 0;
        assert_int_equal(moved, t < 5 || t >= 10); /* node 1 is first order: it rests while its class is away */
        int64_t present = hdo_run_last_row(r)->present;
        assert_int_equal(present, t + 1 >= 5 && t + 1 < 10 ? 6 : 10);
    }
    hdo_run_destroy(r);

    set(&c, "churn.leave", "1"); /* everybody leaves and nobody comes back: steps pass, nothing moves, nothing hangs */
    set(&c, "churn.back", "0");
    r = make(&c);
    assert_int_equal(finish(r), HDO_COMPLETED);
    assert_int_equal(hdo_run_last_row(r)->backward, 0);
    hdo_run_destroy(r);
}

/* The time model: with equal costs and no waiting a run of T steps takes T times the cost of one. */
static void test_run_time_model(void **state) {
    (void)state;
    hdo_config c;
    base_config(&c, "quadratic", "2fo+2zo");
    set(&c, "population.fo.backward_s", "0.5");
    set(&c, "population.zo.backward_s", "0.25");
    set(&c, "population.zo.latency_s", "0.125");
    set(&c, "mixing", "allreduce");
    hdo_run *r = make(&c);
    finish(r);
    assert_true(fabs(hdo_run_last_row(r)->sim_s - 20 * (0.5 + 0.125)) < 1e-9); /* everybody waits for the slowest */
    hdo_run_destroy(r);
}

/* A long step is given up when somebody is in a hurry: the run stops before it, saved, and resumes to the same bits. */
typedef struct impatience {
    int calls, at; /* in a hurry from this call on */
} impatience;
static bool in_a_hurry(void *ctx) {
    impatience *i = ctx;
    return ++i->calls >= i->at;
}

static void long_steps(hdo_config *c, const char *estimator, const char *rate) {
    base_config(c, "quadratic", "2fo+2zo");
    set(c, "model.dim", "2000");
    set(c, "steps", "3");
    set(c, "eval.every", "1");
    set(c, "threads", "1");
    set(c, "churn.leave", "0.2");
    set(c, "population.zo.estimator", estimator);
    set(c, "population.zo.rv", "2560"); /* 2 nodes x rv x d: just long enough to be worth it */
    set(c, "population.zo.momentum", "0.9");
    set(c, "population.zo.lr", rate);
}

static void check_given_up(const char *estimator, const char *rate, int at) {
    hdo_config c;
    hdo_error e = {0};
    hdo_run *r = NULL;
    hdo_stop why = HDO_RUNNING;
    char want[65], got[65], sub[64];
    long_steps(&c, estimator, rate);
    fingerprint(&c, want);
    snprintf(sub, sizeof sub, "%s/%s-%d", folder, estimator, at);
    impatience i = {.at = at};
    hdo_hooks hooks = {.ctx = &i, .hurry = in_a_hurry};
    assert_int_equal(hdo_run_create(&r, &c, &hooks, &e), HDO_OK);
    assert_int_equal(hdo_run_attach_dir(r, sub, false, NULL, &e), HDO_OK);
    while (why == HDO_RUNNING) assert_int_equal(hdo_run_advance(r, 1, &why, &e), HDO_OK);
    assert_int_equal(why, HDO_STOPPED);
    assert_true(hdo_run_step(r) < 3);
    assert_int_equal(hdo_run_last_row(r)->step, hdo_run_step(r));
    assert_int_equal(hdo_run_write_summary(r, &e), HDO_OK);
    hdo_run_destroy(r);
    r = NULL;
    if (hdo_run_resume_how(&r, sub, 0, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(finish(r), HDO_COMPLETED);
    hdo_run_fingerprint(r, got);
    hdo_run_destroy(r);
    assert_string_equal(got, want);
}

static void test_run_gives_up_a_long_step(void **state) {
    (void)state;
    check_given_up("fd", "0.01", 18);           /* the first zeroth-order node is done, the second is not */
    check_given_up("forward-sim", "0.01", 900); /* in the second step */
    check_given_up("fd", "balanced", 15);       /* while the noise is measured */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_same_seed_same_bits_any_threads),
        cmocka_unit_test(test_run_all_nodes_start_equal_and_gamma_is_zero),
        cmocka_unit_test(test_run_odd_and_tiny_populations),
        cmocka_unit_test(test_run_divergence_is_an_outcome),
        cmocka_unit_test(test_run_stops_at_target_and_by_request),
        cmocka_unit_test(test_run_refuses_impossible_configurations),
        cmocka_unit_test(test_run_matches_exact_expectations),
        cmocka_unit_test(test_run_reshuffle),
        cmocka_unit_test(test_run_schedules),
        cmocka_unit_test(test_run_update_skips_zeros),
        cmocka_unit_test(test_run_weighted_average),
        cmocka_unit_test(test_run_balanced_rate),
        cmocka_unit_test(test_run_noise_with_every_estimator),
        cmocka_unit_test(test_run_churn),
        cmocka_unit_test(test_run_time_model),
        cmocka_unit_test(test_run_gives_up_a_long_step),
    };
    return cmocka_run_group_tests_name("run", tests, make_folder, remove_folder);
}
