/* SPDX-License-Identifier: Apache-2.0 — Gaussian mixtures: geometry of the means, the Bayes error against a count. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_impl.h"

#define Z_MAX 4.0 /* fixed seeds; 6e-5 two-sided */

static hdo_data_config config(int64_t classes, int64_t features, double separation) {
    hdo_data_config c = {.name = "synthetic",
                         .classes = classes,
                         .features = features,
                         .separation = separation,
                         .data_seed = 11,
                         .train = 1000,
                         .val = 40000};
    return c;
}

static double distance(const double *a, const double *b, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(s);
}

static void test_synth_means_are_as_far_apart_as_said(void **state) {
    (void)state;
    static const struct {
        int64_t classes, features;
    } cases[] = {{2, 1}, {2, 50}, {10, 9}, {10, 784}, {3, 3}, {6, 2}, {7, 2}, {5, 1}, {12, 3}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        hdo_error e = {0};
        const int64_t C = cases[k].classes, F = cases[k].features;
        hdo_data_config c = config(C, F, 2.5);
        double *m = malloc((size_t)(C * F) * sizeof *m);
        assert_int_equal(hdo__synth_means(&c, m, &e), HDO_OK);
        for (int64_t f = 0; f < F; f++) { /* centred */
            double s = 0;
            for (int64_t i = 0; i < C; i++) s += m[i * F + f];
            assert_true(fabs(s) < 1e-9);
        }
        for (int64_t a = 0; a < C; a++) {
            double nearest = 1e9;
            for (int64_t b = 0; b < C; b++) {
                if (a == b) continue;
                double d = distance(m + a * F, m + b * F, F);
                nearest = d < nearest ? d : nearest;
                if (F >= C - 1) assert_true(fabs(d - 2.5) < 1e-9); /* simplex: all pairs */
            }
            assert_true(fabs(nearest - 2.5) < 1e-9); /* grid: neighbours */
        }
        free(m);
    }
}

static void test_synth_bayes_error_known_values(void **state) {
    (void)state;
    for (double s = 0; s < 8; s += 0.5) {
        double phi = 0.5 * erfc(0.5 * s * 0.70710678118654752440);
        assert_true(fabs(hdo__synth_bayes_error(2, 1, s) - phi) < 1e-12);
        assert_true(fabs(hdo__synth_bayes_error(2, 100, s) - phi) < 1e-12);
    }
    assert_true(fabs(hdo__synth_bayes_error(10, 20, 0) - 0.9) < 1e-12); /* guessing */
    assert_true(fabs(hdo__synth_bayes_error(12, 2, 0) - (1 - 1.0 / 12)) < 1e-12);
    assert_true(hdo__synth_bayes_error(10, 20, 40) < 1e-30);
}

/* The best classifier (nearest mean) on 40,000 samples errs as often as promised. */
static void test_synth_bayes_error_is_reached(void **state) {
    (void)state;
    static const struct {
        int64_t classes, features;
        double separation;
    } cases[] = {{2, 3, 1.0}, {10, 16, 2.5}, {4, 3, 2.0}, {6, 2, 2.0}, {5, 1, 1.5}, {7, 3, 3.0}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        hdo_error e = {0};
        const int64_t C = cases[k].classes, F = cases[k].features;
        hdo_data_config c = config(C, F, cases[k].separation);
        double *m = malloc((size_t)(C * F) * sizeof *m);
        hdo_dataset *t, *v;
        assert_int_equal(hdo__synth_means(&c, m, &e), HDO_OK);
        assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_OK);
        int64_t wrong = 0;
        for (int64_t i = 0; i < v->count; i++) {
            float x[16];
            int32_t y;
            hdo__dataset_gather(v, &i, 1, NULL, x, NULL, &y);
            int64_t best = 0;
            double least = 1e300;
            for (int64_t a = 0; a < C; a++) {
                double d = 0;
                for (int64_t f = 0; f < F; f++) d += ((double)x[f] - m[a * F + f]) * ((double)x[f] - m[a * F + f]);
                if (d < least) {
                    least = d;
                    best = a;
                }
            }
            wrong += best != y;
        }
        const double p = hdo__synth_bayes_error(C, F, cases[k].separation), n = (double)v->count;
        assert_true(fabs((double)wrong / n - p) < Z_MAX * sqrt(p * (1 - p) / n));
        hdo__dataset_destroy(t);
        hdo__dataset_destroy(v);
        free(m);
    }
}

static void test_synth_refuses_nonsense(void **state) {
    (void)state;
    hdo_dataset *t, *v;
    hdo_error e = {0};
    hdo_data_config c = config(1, 4, 1);
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_CONFIG);
    c = config(2, 0, 1);
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_CONFIG);
    c = config(2, 4, -1);
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_CONFIG);
    c = config(2, 1 << 20, 1);
    c.train = 1 << 30;
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synth_means_are_as_far_apart_as_said),
        cmocka_unit_test(test_synth_bayes_error_known_values),
        cmocka_unit_test(test_synth_bayes_error_is_reached),
        cmocka_unit_test(test_synth_refuses_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
