/* SPDX-License-Identifier: Apache-2.0 — who meets whom: the mixer's law, and the calculus of spreads against nodes that
 * really wander and meet. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "lab/predict/predict_internal.h"
#include "topo/mixer.h"

enum { D = 64, STEPS = 3000, SETTLE = 200, NODES = 40 };

static void make_mixer(hdo_mixer *m, int n_classes, const double *count, double own) {
    hdo_config *c = malloc(sizeof *c);
    int first[HDO_CLASSES_MAX], n = 0;
    hdo_error e = {0};
    hdo_config_default(c);
    for (int k = 0; k < n_classes; k++) {
        first[k] = n;
        n += (int)count[k];
    }
    assert_int_equal(hdo__mixer_init_placed(m, &c->mixing, 7, n, first[0], 0, &e), HDO_OK);
    hdo__mixer_classes(m, n_classes, first, own);
    free(c);
}

static int class_of(const hdo_meeting *w, int node) {
    int k = 0;
    for (double end = w->count[0]; node >= end; end += w->count[++k])
        ;
    return k;
}

/* Nodes in D dimensions: noise[k] is spread over all of them, the drift is along the first. */
static void wander(const hdo_meeting *w, double own, double *spread) {
    static double x[NODES][D];
    hdo_mixer m;
    make_mixer(&m, w->n_classes, w->count, own);
    memset(x, 0, sizeof x);
    memset(spread, 0, HDO_CLASSES_MAX * sizeof *spread);
    for (int t = 0; t < STEPS; t++) {
        hdo_plan plan;
        double mean[D] = {0}, total = 0.0;
        for (int i = 0; i < m.n; i++) {
            float z[D];
            int k = class_of(w, i);
            hdo__rng_normal(hdo__stream(3, HDO_RNG_PROBLEM, (uint32_t)i, (uint64_t)t, 0), 0, D, z);
            for (int j = 0; j < D; j++) x[i][j] += sqrt(w->noise[k] / D) * (double)z[j];
            x[i][0] += w->drift[k];
        }
        hdo__mixer_plan(&m, t, &plan);
        for (int q = 0; q < plan.n_pairs; q++) {
            int a = plan.pairs[q].a, b = plan.pairs[q].b;
            double wa = w->weight[class_of(w, a)], wb = w->weight[class_of(w, b)];
            for (int j = 0; j < D; j++) x[a][j] = x[b][j] = (wa * x[a][j] + wb * x[b][j]) / (wa + wb);
        }
        for (int i = 0; i < m.n; i++) {
            total += w->weight[class_of(w, i)];
            for (int j = 0; j < D; j++) mean[j] += w->weight[class_of(w, i)] * x[i][j];
        }
        for (int i = 0; i < m.n && t >= SETTLE; i++) {
            for (int j = 0; j < D; j++)
                spread[class_of(w, i)] +=
                    pow(x[i][j] - mean[j] / total, 2) / (STEPS - SETTLE) / w->count[class_of(w, i)];
        }
    }
    hdo__mixer_clear(&m);
}

static void test_spread_of_classes(void **state) {
    (void)state;
    static const hdo_meeting cases[] = {
        {2, {4, 16}, {1, 1}, {1, 1}, {1, 5}, {0, 0}},
        {2, {4, 16}, {1, 0.1}, {1, 0.1}, {1, 20}, {0, 0}},
        {2, {5, 7}, {1, 0.3}, {1, 1}, {2, 1}, {0.5, -0.4}},
        {3, {2, 6, 9}, {1, 0.5, 0.2}, {1, 1, 1}, {1, 2, 3}, {0, 0, 0}},
        {2, {1, 5}, {1, 0.2}, {1, 1}, {1, 4}, {0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int s = 0; s < 3; s++) {
            double own = (cases[i].drift[0] != 0.0 ? 0.2 : 0.45) * s, said[HDO_CLASSES_MAX], seen[HDO_CLASSES_MAX];
            hdo__meet_spread(&cases[i], own, said);
            wander(&cases[i], own, seen);
            for (int k = 0; k < cases[i].n_classes; k++) {
                print_message("case %zu, own %.2f, class %d: %.4g said, %.4g seen\n", i, own, k, said[k], seen[k]);
                assert_true(fabs(said[k] - seen[k]) < 0.05 * seen[k]); /* 3000 steps of 64 numbers */
            }
        }
    }
}

/* The share of steps inside the classes, every pair then of one class, and uniform: class 0 of 4 nodes has 3 matchings.
 */
static void test_own_meetings(void **state) {
    (void)state;
    hdo_mixer m;
    double count[] = {4, 7};
    int inside = 0, first_with[4] = {0}, steps = 20000;
    make_mixer(&m, 2, count, 0.75);
    for (int t = 0; t < steps; t++) {
        hdo_plan p;
        bool all = true;
        hdo__mixer_plan(&m, t, &p);
        for (int k = 0; k < p.n_pairs; k++) all = all && (p.pairs[k].a < 4) == (p.pairs[k].b < 4);
        inside += all && p.n_pairs == 5;
        for (int k = 0; k < p.n_pairs && all; k++) {
            if (p.pairs[k].a == 0 || p.pairs[k].b == 0) first_with[(p.pairs[k].a + p.pairs[k].b) % 4]++;
        }
    }
    /* any: 4 and 7 nodes fall apart into pairs of one class now and then: at most 0.25 * P(all inside) */
    print_message("inside %d of %d, partners of node 0: %d %d %d\n", inside, steps, first_with[1], first_with[2],
                  first_with[3]);
    assert_true(inside > 0.74 * steps && inside < 0.80 * steps);
    for (int k = 1; k < 4; k++) assert_true(fabs(first_with[k] - inside / 3.0) < 4.0 * sqrt(inside * 2.0 / 9.0));
    hdo_spectrum s;
    assert_int_equal(hdo__mixer_spectrum(&m, &s), HDO_OK);
    assert_true(fabs(s.lambda - (0.75 + 0.25 * 0.5)) < 1e-12);
    hdo__mixer_clear(&m);
}

/* Useless zeroth-order nodes of little weight: first-order nodes keep to themselves, and come near to being alone. */
static void test_share_keeps_useless_nodes_away(void **state) {
    (void)state;
    hdo_meeting alone = {1, {4}, {1}, {1}, {1}, {0}}, both = {2, {4, 16}, {1, 0.01}, {0.25, 0.0025}, {1, 1}, {0, 0}};
    hdo_meeting alike = {2, {4, 16}, {1, 1}, {0.05, 0.05}, {1, 1}, {0, 0}};
    double gain, lone[HDO_CLASSES_MAX], beside[HDO_CLASSES_MAX], any[HDO_CLASSES_MAX];
    double own = hdo__meet_share(&both, &gain);
    hdo__meet_spread(&alone, 0.0, lone);
    hdo__meet_spread(&both, own, beside);
    hdo__meet_spread(&both, 0.0, any);
    print_message("alone %.3f, beside 16 others: own %.3f %.3f, any %.3f\n", lone[0], own, beside[0], any[0]);
    assert_true(own >= 0.875 && gain < 0.5);
    assert_true(beside[0] < 1.5 * lone[0] && any[0] > 3.0 * lone[0]);
    assert_true(hdo__meet_share(&alike, &gain) == 0.0); /* nothing to gain among equals */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spread_of_classes), cmocka_unit_test(test_own_meetings),
                                       cmocka_unit_test(test_share_keeps_useless_nodes_away)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
