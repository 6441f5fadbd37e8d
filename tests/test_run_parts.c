/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a step, one at a time: mixing keeps the mean, measured noise has its law, nodes return as they should,
 * clocks wait for each other, and nothing is allocated. The linker leads the library's calls of malloc and its kin
 * through the counters below (tests/meson.build).
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

#include "alloc_help.h"
#include "base/arena.h"
#include "base/rng.h"
#include "base/vec.h"
#include "run/run_internal.h"
#include "run_help.h"

static void advance(hdo_run *r, int64_t steps) {
    hdo_error e = {0};
    hdo_stop why;
    if (hdo_run_advance(r, steps, &why, &e) != HDO_OK) fail_msg("%s", e.msg);
}

typedef struct setting {
    const char *key, *value;
} setting;

/* Nor is anything left behind when a run is over. */
static void test_loop_allocates_nothing(void **state) {
    (void)state;
    static const struct {
        const char *model;
        setting with[6];
    } cases[] = {
        {"logistic", {{NULL, NULL}}},
        {"quadratic", {{"mixing", "pairwise"}, {"population.zo.estimator", "forward"}}},
        {"logistic",
         {{"population.zo.estimator", "fd-law"}, {"population.zo.momentum", "0.5"}, {"mixing", "allreduce"}}},
        {"mlp",
         {{"population.zo.estimator", "fd"},
          {"mixing.kind", "graph"},
          {"mixing.graph", "ring"},
          {"eval.weighted", "0.1"}}},
        {"mlp",
         {{"population.zo.estimator", "forward-sim"},
          {"churn.leave", "0.2"},
          {"churn.model", "fresh"},
          {"churn.loss", "0.2"}}},
        {"mlp",
         {{"population.zo.estimator", "debiased"},
          {"population.zo.forward_s", "1"},
          {"population.fo.schedule", "cosine"}}},
        {"logistic",
         {{"population.zo.estimator", "fd-coord"}, {"population.zo.coords", "3"}, {"data.split", "dirichlet(0.5)"}}},
        {"logistic", {{"population.zo.estimator", "complex-step"}, {"population.zo.directions", "per-tensor"}}},
        {"logistic", {{"population.zo.lr", "balanced"}, {"mixing.average", "noise"}, {"warmup", "8"}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int threads = 1; threads <= 2; threads++) {
            hdo_config c;
            base_config(&c, cases[i].model, "4fo+6zo");
            set(&c, "eval.every", "0");
            set(&c, "threads", threads == 1 ? "1" : "2");
            for (int k = 0; k < 6 && cases[i].with[k].key != NULL; k++)
                set(&c, cases[i].with[k].key, cases[i].with[k].value);
            if (strcmp(c.population[1].estimator, "fd-coord") != 0) set(&c, "population.zo.rv", "3");
            size_t none = atomic_load(&allocations);
            long long before_all = atomic_load(&held);
            hdo_run *r = make(&c);
            assert_true(atomic_load(&allocations) > none + 5); /* the counter counts */
            advance(r, 3);
            size_t before = atomic_load(&allocations);
            advance(r, 10);
            if (atomic_load(&allocations) != before) {
                fail_msg("case %zu on %d threads: %zu allocations in 10 steps", i, threads,
                         atomic_load(&allocations) - before);
            }
            hdo_run_destroy(r);
            long long left = atomic_load(&held) - before_all;
            /* The first run brings the kernels, which stay; later ones leave nothing. */
            if (left > (i == 0 && threads == 1 ? 4 : 0)) fail_msg("case %zu: %lld blocks are not given back", i, left);
        }
    }
}

/* ---- mixing alone: the models are anything ---- */

enum { D = 100 };     /* of quadratic */
#define STILL "1e-30" /* a learning rate that moves no float */

static float *row_of(const hdo_run *r, int i) {
    return r->population.models.X + (size_t)i * r->population.models.ld;
}

static void scatter(hdo_run *r) {
    for (int i = 0; i < r->population.models.count; i++)
        hdo__rng_normal(hdo__stream(7, HDO_RNG_INIT, (uint32_t)i, 0, 0), 0, r->problem.objective->d, row_of(r, i));
}

/* sum over nodes of w_i x_i, divided by the sum of the weights; w_i = 1 / noise of its class, or 1 */
static void weighted_mean(const hdo_run *r, bool by_noise, double mean[D]) {
    double total = 0.0;
    memset(mean, 0, D * sizeof(double));
    for (int i = 0; i < r->population.models.count; i++) {
        double w = by_noise ? 1.0 / r->population.classes[hdo__problem_class(&r->problem, i)].noise : 1.0;
        total += w;
        for (int j = 0; j < D; j++) mean[j] += w * (double)row_of(r, i)[j];
    }
    for (int j = 0; j < D; j++) mean[j] /= total;
}

static double distance(const hdo_run *r, const double mean[D]) {
    double s = 0.0;
    for (int i = 0; i < r->population.models.count; i++)
        for (int j = 0; j < D; j++) s += pow((double)row_of(r, i)[j] - mean[j], 2);
    return s / r->population.models.count;
}

typedef struct mix_case {
    const char *population;
    setting with[4];
    bool contracts, by_noise;
} mix_case;

static void check_mix(const mix_case *m) {
    hdo_config c;
    double before[D], after[D];
    base_config(&c, "quadratic", m->population);
    set(&c, "population.fo.lr", STILL);
    set(&c, "population.zo.lr", STILL);
    set(&c, "population.zo.rv", "2");
    set(&c, "steps", "200");
    set(&c, "eval.every", "0");
    for (int k = 0; k < 4 && m->with[k].key != NULL; k++) set(&c, m->with[k].key, m->with[k].value);
    hdo_run *r = make(&c);
    scatter(r);
    advance(r, 1); /* the noise is measured before the first exchange */
    scatter(r);
    weighted_mean(r, m->by_noise, before);
    hdo_error e = {0};
    assert_int_equal(hdo__population_mean(&r->population, NULL, &e), HDO_OK);
    for (int j = 0; j < D; j++) assert_true(fabs(r->population.mean.mu[j] - before[j]) < 1e-12); /* the one it keeps */
    double start = distance(r, before);
    assert_true(start > 10.0 || r->population.n == 1);
    advance(r, 199);
    weighted_mean(r, m->by_noise, after);
    /* An average of floats is rounded: 200 times half an ulp of 1, at random signs, is below 2e-6. */
    double drift = 0.0;
    for (int j = 0; j < D; j++) drift = fmax(drift, fabs(after[j] - before[j]));
    print_message("%s %s %s: the mean drifts by %.1e\n", m->population, m->with[0].key, m->with[0].value, drift);
    assert_true(drift < 2e-6);
    if (m->contracts) assert_true(distance(r, before) < 1e-3 * start);
    assert_int_equal(r->progress.counts.bytes, 2 * r->progress.counts.interactions * D * (int64_t)sizeof(float));
    hdo_run_destroy(r);
}

static void test_mixing_keeps_the_mean(void **state) {
    (void)state;
    static const mix_case cases[] = {
        {"1fo+1zo", {{"mixing", "matching"}}, true, false},
        {"2fo+3zo", {{"mixing", "matching"}}, true, false},
        {"3fo+5zo", {{"mixing", "pairwise"}}, true, false},
        {"3fo+5zo", {{"mixing.kind", "graph"}, {"mixing.graph", "ring"}}, true, false},
        {"3fo+5zo", {{"mixing.kind", "graph"}, {"mixing.graph", "star"}, {"mixing.graph_mode", "edge"}}, true, false},
        {"4fo+6zo", {{"churn.loss", "0.3"}}, true, false},
        {"4fo+6zo", {{"churn.leave", "0.1"}, {"churn.straggle", "0.2"}}, true, false},
        {"2fo+4zo", {{"mixing.average", "noise"}}, true, true},
        {"2fo+4zo", {{"mixing.average", "noise"}, {"mixing", "pairwise"}}, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_mix(&cases[i]);
}

static void test_mixing_exact_and_none(void **state) {
    (void)state;
    static const char *const kinds[] = {"allreduce", "none"};
    for (int k = 0; k < 2; k++) {
        hdo_config c;
        double before[D];
        float first[D];
        base_config(&c, "quadratic", "3fo+4zo");
        set(&c, "population.fo.lr", STILL);
        set(&c, "population.zo.lr", STILL);
        set(&c, "mixing", kinds[k]);
        hdo_run *r = make(&c);
        scatter(r);
        weighted_mean(r, false, before);
        memcpy(first, row_of(r, 3), sizeof first);
        advance(r, 1);
        if (k == 0) {
            for (int i = 0; i < 7; i++)
                for (int j = 0; j < D; j++) assert_true(row_of(r, i)[j] == (float)before[j]);
            assert_int_equal(r->progress.counts.interactions, 3);
            assert_int_equal(r->progress.counts.bytes, 2 * 6 * D * (int64_t)sizeof(float)); /* up and down a tree */
        } else {
            assert_memory_equal(row_of(r, 3), first, sizeof first);
            assert_int_equal(r->progress.counts.interactions, 0);
            assert_int_equal(r->progress.counts.bytes, 0);
        }
        hdo_run_destroy(r);
    }
}

/* ---- measured noise ---- */

/* Where the gradient is all noise, an estimate from rv Gaussian directions is 1 + (d+1)/rv times as noisy as the
 * gradient; differences along every coordinate are exactly as noisy. */
static void test_noise_of_every_estimator(void **state) {
    (void)state;
    static const char *const names[] = {"fd",           "fd-central",  "fd-coord",    "debiased", "forward",
                                        "complex-step", "forward-sim", "forward-law", "fo"};
    const double directions = 1.0 + 51.0 / 17.0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        hdo_config c;
        base_config(&c, "quadratic", "4fo+4zo");
        set(&c, "model.dim", "50");
        set(&c, "model.start", "0");
        set(&c, "population.fo.lr", "0.1");
        set(&c, "population.fo.batch", "1");
        set(&c, "population.zo.batch", "1");
        set(&c, "population.zo.lr", "balanced");
        set(&c, "population.zo.estimator", names[i]);
        bool directed = strcmp(names[i], "fd-coord") != 0 && strcmp(names[i], "fo") != 0;
        if (directed) set(&c, "population.zo.rv", "17");
        set(&c, "warmup", "4");
        hdo_run *r = make(&c);
        advance(r, 1);
        double ratio = r->population.classes[1].noise / r->population.classes[0].noise,
               first = r->population.classes[0].noise;
        double want = directed ? directions : 1.0;
        print_message("%-12s noise %.3f of the gradient's, exact %.3f\n", names[i], ratio, want);
        assert_true(fabs(ratio / want - 1.0) < 0.2); /* 32 differences in 50 dimensions: about 5% */
        assert_true(fabs(first - 1.0) < 0.2);        /* model.noise 1 */
        assert_true(r->population.classes[1].schedule.lr ==
                        0.1 / r->population.classes[1].noise * r->population.classes[0].noise ||
                    fabs(r->population.classes[1].schedule.lr * ratio - 0.1) < 1e-12);
        advance(r, 3);
        assert_true(r->population.classes[0].noise == first); /* once before the warm-up ... */
        scatter(r);
        advance(r, 2);
        assert_true(r->population.classes[0].noise != first || strcmp(names[i], "fo") == 0); /* ... and once after it */
        hdo_run_destroy(r);
    }
}

/* fd-law and forward-law on softmax regression: the same law for small nu, so the same noise. */
static void test_noise_of_laws(void **state) {
    (void)state;
    double noise[3];
    static const char *const names[] = {"fd", "fd-law", "forward-law"};
    for (int i = 0; i < 3; i++) {
        hdo_config c;
        base_config(&c, "logistic", "2fo+4zo");
        set(&c, "mixing.average", "noise");
        set(&c, "population.zo.estimator", names[i]);
        set(&c, "population.zo.rv", "20");
        hdo_run *r = make(&c);
        advance(r, 1);
        noise[i] = r->population.classes[1].noise;
        hdo_run_destroy(r);
    }
    print_message("noise by fd %.3f, fd-law %.3f, forward-law %.3f\n", noise[0], noise[1], noise[2]);
    for (int i = 1; i < 3; i++) assert_true(fabs(noise[i] / noise[0] - 1.0) < 0.25);
}

/* Measuring draws from addresses of its own: with one class the weights are equal, and so are the bits. */
static void test_noise_leaves_no_trace(void **state) {
    (void)state;
    char hex[2][65];
    for (int k = 0; k < 2; k++) {
        hdo_config c;
        base_config(&c, "logistic", "6zo");
        set(&c, "population.zo.estimator", "fd");
        set(&c, "population.zo.rv", "3");
        set(&c, "mixing.average", k == 0 ? "equal" : "noise");
        hdo_run *r = make(&c);
        finish(r);
        assert_true(k == 0 ? r->population.classes[0].noise == 1.0 : r->population.classes[0].noise != 1.0);
        hdo_run_fingerprint(r, hex[k]);
        hdo_run_destroy(r);
    }
    assert_string_equal(hex[0], hex[1]);
}

static void refused_for_noise(const hdo_config *c) {
    hdo_error e = {0};
    hdo_stop why;
    hdo_run *r = make(c);
    assert_int_equal(hdo_run_advance(r, 1, &why, &e), HDO_E_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "class 'fo' has no measurable noise"));
    hdo_run_destroy(r);
}

static void test_noise_that_is_none_is_refused(void **state) {
    (void)state;
    hdo_config c;
    base_config(&c, "quadratic", "2fo+2zo");
    set(&c, "model.noise", "0");
    set(&c, "mixing.average", "noise");
    refused_for_noise(&c);
}

/* All the data in every batch, only in another order: what is left is rounding, and would give a rate of 10^16. */
static void test_rounding_is_no_noise(void **state) {
    (void)state;
    hdo_config c;
    base_config(&c, "logistic", "2fo+2zo");
    set(&c, "data.train", "64");
    set(&c, "population.fo.batch", "64");
    set(&c, "population.fo.lr", "balanced");
    refused_for_noise(&c);
}

/* lr: theorem is 8 log T / (T ell) with matchings, 4 n log T / (T ell) with pairs. */
static void test_theorem_rate(void **state) {
    (void)state;
    static const char *const steps[] = {"2", "100"};
    for (int k = 0; k < 4; k++) {
        hdo_config c;
        base_config(&c, "quadratic", "2fo+3zo");
        set(&c, "model.convexity", "0.25");
        set(&c, "steps", steps[k % 2]);
        set(&c, "mixing", k < 2 ? "matching" : "pairwise");
        set(&c, "population.fo.lr", "theorem");
        hdo_run *r = make(&c);
        double T = k % 2 == 0 ? 2.0 : 100.0, want = (k < 2 ? 8.0 : 4.0 * 5.0) * log(T) / (T * 0.25);
        assert_true(fabs(r->population.classes[0].schedule.lr / want - 1.0) < 1e-12);
        hdo_run_destroy(r);
    }
    static const char *const bad[][3] = {
        {"quadratic", "steps", "1"}, {"quadratic", "model.convexity", "0"}, {"logistic", "steps", "9"}};
    for (int k = 0; k < 3; k++) {
        hdo_config c;
        hdo_error e = {0};
        hdo_run *r = NULL;
        base_config(&c, bad[k][0], "2fo");
        set(&c, bad[k][1], bad[k][2]);
        set(&c, "population.fo.lr", "theorem");
        assert_int_equal(hdo_run_create(&r, &c, NULL, &e), HDO_E_CONFIG);
        assert_non_null(strstr(e.msg, "population.fo.lr is 'theorem', which needs"));
    }
}

/* ---- nodes that return ---- */

static void test_churn_returns_fresh_or_stale(void **state) {
    (void)state;
    for (int fresh = 0; fresh < 2; fresh++) {
        hdo_config c;
        float start[D], garbage[D];
        base_config(&c, "quadratic", "2fo+2zo");
        set(&c, "population.fo.lr", STILL);
        set(&c, "population.fo.momentum", "0.5");
        set(&c, "mixing", "none");
        set(&c, "churn.outage", "fo");
        set(&c, "churn.outage_from", "2");
        set(&c, "churn.outage_to", "4");
        set(&c, "churn.model", fresh ? "fresh" : "stale");
        hdo_run *r = make(&c);
        memcpy(start, row_of(r, 1), sizeof start);
        advance(r, 4);
        scatter(r);
        memcpy(garbage, row_of(r, 1), sizeof garbage);
        float was = r->population.momentum[r->population.models.ld + 5];
        r->population.momentum[r->population.models.ld + 5] = 1e6f; /* of node 1: forgotten with the model */
        advance(r, 1);
        for (int j = 0; j < D; j++) assert_true(fabsf(row_of(r, 1)[j] - (fresh ? start : garbage)[j]) < 1e-20f);
        assert_true(fresh ? fabsf(r->population.momentum[r->population.models.ld + 5]) < 1e3f
                          : r->population.momentum[r->population.models.ld + 5] > 4e5f);
        assert_true(was != 0.0f);
        hdo_run_destroy(r);
    }
}

/* ---- clocks ---- */

static double clock_after(int steps, const setting *with, int n) {
    hdo_config c;
    base_config(&c, "quadratic", "1fo+1zo");
    set(&c, "population.fo.backward_s", "0.5");
    set(&c, "population.zo.estimator", "fd");
    set(&c, "population.zo.rv", "4");
    for (int k = 0; k < n; k++) set(&c, with[k].key, with[k].value);
    bool fd = strcmp(c.population[1].estimator, "fd") == 0;
    if (fd) set(&c, "population.zo.forward_s", "0.125"); /* 5 evaluations: 0.625 s */
    if (strcmp(c.mixing.kind, "none") != 0) {
        set(&c, "population.fo.bandwidth", "1000"); /* 400 bytes: 0.4 s */
        set(&c, "population.zo.latency_s", "0.125");
    }
    hdo_run *r = make(&c);
    finish(r);
    double s = hdo_run_last_row(r)->sim_s;
    assert_int_equal(hdo_run_step(r), steps);
    if (r->progress.counts.interactions > 0)
        assert_true(r->population.clock_s[0] == s && r->population.clock_s[1] == s); /* they left together */
    hdo_run_destroy(r);
    return s;
}

static void test_clocks_wait_for_the_slower_partner(void **state) {
    (void)state;
    static const setting none = {"mixing", "none"}, pairs = {"mixing", "pairwise"}, all = {"mixing", "allreduce"};
    static const setting jvp[] = {{"population.zo.estimator", "forward"}, {"population.zo.jvp_s", "0.25"}};
    assert_true(fabs(clock_after(20, NULL, 0) - 20 * (0.625 + 0.4)) < 1e-9);
    assert_true(fabs(clock_after(20, &pairs, 1) - 20 * (0.625 + 0.4)) < 1e-9);
    assert_true(fabs(clock_after(20, &all, 1) - 20 * (0.625 + 0.4)) < 1e-9);
    assert_true(fabs(clock_after(20, &none, 1) - 20 * 0.625) < 1e-9);
    assert_true(fabs(clock_after(20, jvp, 2) - 20 * (1.0 + 0.4)) < 1e-9); /* 4 products of 0.25 s */
}

/* Vector units give a NaN one sign or the other. */
static void test_fingerprint_knows_one_nan(void **state) {
    (void)state;
    static hdo_config c;
    static const uint32_t bits[] = {0x7fc00000u, 0xffc00000u, 0x7fc00001u, 0x7f800000u, 0xff800000u};
    char hex[5][65];
    base_config(&c, "quadratic", "2fo");
    hdo_run *r = make(&c);
    for (int k = 0; k < 5; k++) {
        const hdo_models *m = &r->population.models;
        memcpy(m->X + m->ld + r->problem.objective->d - 1, &bits[k], sizeof bits[k]);
        hdo_run_fingerprint(r, hex[k]);
    }
    assert_string_equal(hex[1], hex[0]);
    assert_string_equal(hex[2], hex[0]);
    assert_string_not_equal(hex[3], hex[0]);
    assert_string_not_equal(hex[4], hex[3]);
    hdo_run_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop_allocates_nothing),
        cmocka_unit_test(test_mixing_keeps_the_mean),
        cmocka_unit_test(test_mixing_exact_and_none),
        cmocka_unit_test(test_noise_of_every_estimator),
        cmocka_unit_test(test_noise_of_laws),
        cmocka_unit_test(test_noise_leaves_no_trace),
        cmocka_unit_test(test_noise_that_is_none_is_refused),
        cmocka_unit_test(test_rounding_is_no_noise),
        cmocka_unit_test(test_theorem_rate),
        cmocka_unit_test(test_churn_returns_fresh_or_stale),
        cmocka_unit_test(test_clocks_wait_for_the_slower_partner),
        cmocka_unit_test(test_fingerprint_knows_one_nan),
    };
    return cmocka_run_group_tests_name("run_parts", tests, NULL, NULL);
}
