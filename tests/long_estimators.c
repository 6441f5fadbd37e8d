/* SPDX-License-Identifier: Apache-2.0
 *
 * The statistical statements about estimators once more with 20 to 50 times the draws of the unit tests: a minute or
 * two. A bias or a wrong law that hides in the unit tests' noise has five times less room here.
 */
#include "test_est_util.h"

#include <stdio.h>

enum { MANY = 200000, N_STATS = 4 };

static void expect_gradient(bench *b, double *expected) {
    bench_gradient(b, b->g);
    for (size_t j = 0; j < b->f->d; j++) expected[j] = (double)b->g[j];
}

static double second_moment(const bench *b, const hdo_estimator *s, const double *g) {
    double extra = s->distribution == HDO_DIST_GAUSSIAN ? 1.0 : -1.0, sum = 0.0;
    for (int l = 0; l < b->f->n_tensors; l++) {
        const hdo_tensor *t = &b->f->tensors[l];
        double len = s->directions == HDO_DIRECTIONS_WHOLE ? (double)b->f->d : (double)t->len;
        for (size_t j = t->off; j < t->off + t->len; j++) sum += (1.0 + (len + extra) / s->rv) * g[j] * g[j];
    }
    return sum;
}

static void moments_of(bench *b, const char *what, double nu) {
    double *g = bench_get(b->f->d * sizeof *g);
    expect_gradient(b, g);
    for (int i = 0; hdo__estimators[i] != NULL; i++) {
        for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
            for (int dist = HDO_DIST_GAUSSIAN; dist <= HDO_DIST_RADEMACHER; dist++) {
                hdo_estimator s = bench_estimator(hdo__estimators[i]->name, 2, nu);
                s.directions = dir;
                s.distribution = dist;
                if (!s.ops->zeroth || s.ops->axes || hdo__estimator_check(&s, b->f, "zo", NULL) != HDO_OK) continue;
                moments m = bench_moments(b, &s, MANY, g);
                double z2 = tally_z(&m.norm2, second_moment(b, &s, g));
                print_message("%-9s %-12s dir %d dist %d: mean max|z| %.2f, second moment z %+.2f\n", what, s.ops->name,
                              dir, dist, m.z_mean, z2);
                assert_true(m.z_mean < Z_MANY && fabs(z2) < Z_MAX);
            }
        }
    }
    free(g);
}

static void test_long_moments(void **state) {
    (void)state;
    bench b;
    bench_quadratic(&b, 20);
    moments_of(&b, "quadratic", 1e-6);
    bench_clear(&b);
    bench_logistic(&b, 5, 3, 3, 0.0, false);
    moments_of(&b, "logistic", 1e-6);
    bench_clear(&b);
}

static void collect(bench *b, const hdo_estimator *s, uint32_t node, const float *g, double *out) {
    size_t d = b->f->d;
    for (int i = 0; i < MANY; i++) {
        bench_estimate(b, s, node, i, b->g);
        out[i] = hdo__dot(d, b->g, g);
        out[MANY + i] = (double)b->g[0];
        out[2 * MANY + i] = (double)b->g[d - 1];
        out[3 * MANY + i] = hdo__sumsq(d, b->g);
    }
}

static void test_long_laws(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        int rv;
        double nu;
    } cases[] = {{"forward", "forward-law", 1, 0},
                 {"forward-sim", "forward-law", 3, 0},
                 {"forward", "forward-law", 20, 0},
                 {"fd", "fd-law", 1, 0.5},
                 {"fd", "fd-law", 4, 0.5}};
    bench b;
    bench_logistic(&b, 5, 3, 3, 0.0, false);
    float *g = bench_get(b.f->d * sizeof *g);
    double *u = bench_get(MANY * N_STATS * sizeof *u), *v = bench_get(MANY * N_STATS * sizeof *v);
    bench_gradient(&b, g);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
            hdo_estimator s = bench_estimator(cases[i].a, cases[i].rv, cases[i].nu),
                          t = bench_estimator(cases[i].b, cases[i].rv, cases[i].nu);
            s.directions = t.directions = dir;
            collect(&b, &s, 100, g, u);
            collect(&b, &t, 200, g, v);
            double worst = 0.0;
            for (int k = 0; k < N_STATS; k++)
                worst = fmax(worst, ks_two_sample(u + k * MANY, MANY, v + k * MANY, MANY));
            print_message("%s = %s, rv %d, dir %d: largest KS %.2f of %d\n", cases[i].a, cases[i].b, cases[i].rv, dir,
                          worst, N_STATS);
            assert_true(worst < KS_MAX);
        }
    }
    free(g);
    free(u);
    free(v);
    bench_clear(&b);
}

static void test_long_debiased(void **state) {
    (void)state;
    bench b;
    bench_poly(&b);
    double g[POLY_D];
    expect_gradient(&b, g);
    for (int ratio = 0; ratio < 3; ratio++) {
        hdo_estimator s = bench_estimator("debiased", 4, 0.5);
        s.levels = 8;
        s.ratio = 0.35 + 0.15 * ratio;
        moments m = bench_moments(&b, &s, 5 * MANY, g);
        print_message("debiased ratio %.2f: against grad F max|z| %.2f over %d draws\n", s.ratio, m.z_mean, 5 * MANY);
        assert_true(m.z_mean < Z_MANY);
    }
    bench_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_moments), cmocka_unit_test(test_long_laws),
                                       cmocka_unit_test(test_long_debiased)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
