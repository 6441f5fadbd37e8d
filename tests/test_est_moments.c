/* SPDX-License-Identifier: Apache-2.0
 *
 * Means and second moments of every estimator against theory (docs/theory.md 3.2, 4):
 *
 *   mean            grad F for exact slopes and for differences on quadratics; the exact bias on cubic plus quartic
 *   second moment   whole       gaussian  (1 + (d+1)/rv) |g|^2      sphere, rademacher  (1 + (d-1)/rv) |g|^2
 *                   per-tensor  the same, tensor by tensor, added
 *                   fd on a quadratic: + (nu^2/4)(d+4)((tr H)^2 + 2 tr H^2) / rv, exactly
 */
#include "test_est_util.h"

static void expect_gradient(bench *b, double *expected) {
    bench_gradient(b, b->g);
    for (size_t j = 0; j < b->f->d; j++) expected[j] = (double)b->g[j];
}

static double norm2_of(size_t n, const double *v) {
    double s = 0.0;
    for (size_t j = 0; j < n; j++) s += v[j] * v[j];
    return s;
}

/* E|G|^2 for exact slopes. */
static double second_moment(const bench *b, const hdo_estimator *s, const double *g) {
    double extra = s->distribution == HDO_DIST_GAUSSIAN ? 1.0 : -1.0, sum = 0.0;
    if (s->directions == HDO_DIRECTIONS_WHOLE) {
        return (1.0 + ((double)b->f->d + extra) / (double)s->rv) * norm2_of(b->f->d, g);
    }
    for (int l = 0; l < b->f->n_tensors; l++) {
        const hdo_tensor *t = &b->f->tensors[l];
        sum += (1.0 + ((double)t->len + extra) / (double)s->rv) * norm2_of(t->len, g + t->off);
    }
    return sum;
}

/* One estimator over directions x distributions: z of the mean and of E|G|^2. extra: added to E|G|^2. */
static void check_all(bench *b, const char *what, const char *name, int rv, double nu, int N) {
    static const char *const dir_name[] = {"", "whole", "per-tensor"}, *const dist_name[] = {"", "gaussian", "sphere",
                                                                                             "rademacher"};
    double *g = bench_get(b->f->d * sizeof *g);
    expect_gradient(b, g);
    for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
        for (int dist = HDO_DIST_GAUSSIAN; dist <= HDO_DIST_RADEMACHER; dist++) {
            hdo_estimator s = bench_estimator(name, rv, nu);
            s.directions = dir;
            s.distribution = dist;
            if (hdo__estimator_check(&s, b->f, "zo", NULL) != HDO_OK) continue;
            moments m = bench_moments(b, &s, N, g);
            double z2 = tally_z(&m.norm2, second_moment(b, &s, g));
            print_message("%-10s %-12s %-10s %-10s rv %d: mean max|z| %.2f, second moment z %+.2f\n", what, name,
                          dir_name[dir], dist_name[dist], rv, m.z_mean, z2);
            assert_true(m.z_mean < Z_MANY);
            assert_true(fabs(z2) < Z_MAX);
        }
    }
    free(g);
}

/* nu small: differences are exact slopes to 1e-5 of their size, far below the sampling error. */
static void test_est_moments_quadratic(void **state) {
    (void)state;
    bench b;
    bench_quadratic(&b, 20);
    static const char *const names[] = {"fd-central", "forward", "complex-step", "forward-sim", "forward-law",
                                        "debiased",   "fd"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        check_all(&b, "quadratic", names[i], i % 2 == 0 ? 1 : 4, i < 5 ? 1e-2 : 1e-5, 8000);
    }
    bench_clear(&b);
}

static void test_est_moments_logistic(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 8, 3, 4, 0.0, false);
    static const char *const names[] = {"fd",           "fd-central",  "debiased",    "forward",
                                        "complex-step", "forward-sim", "forward-law", "fd-law"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_all(&b, "logistic", names[i], i % 2 == 0 ? 1 : 4, 1e-5, 4000);
    bench_clear(&b);
}

static void test_est_moments_logistic_l2(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 8, 3, 4, 0.3, false);
    static const char *const names[] = {"fd", "forward", "complex-step"};
    for (size_t i = 0; i < 3; i++) check_all(&b, "logistic-l2", names[i], 2, 1e-5, 4000);
    /* fd-law differentiates the regulariser exactly: the same mean, E|G|^2 = |g|^2 + ((d+1)/rv) |data gradient|^2. */
    size_t d = b.f->d;
    double *g = bench_get(d * sizeof *g), data2 = 0.0;
    expect_gradient(&b, g);
    for (size_t j = 0; j < d; j++) data2 += pow(g[j] - 0.3 * (double)b.x[j], 2.0);
    hdo_estimator s = bench_estimator("fd-law", 2, 1e-5);
    moments m = bench_moments(&b, &s, 4000, g);
    double z2 = tally_z(&m.norm2, norm2_of(d, g) + (double)(d + 1) / 2.0 * data2);
    print_message("logistic-l2 fd-law: mean max|z| %.2f, second moment z %+.2f\n", m.z_mean, z2);
    assert_true(m.z_mean < Z_MANY && fabs(z2) < Z_MAX);
    free(g);
    bench_clear(&b);
}

/* Poly has three tensors of different sizes and no fast path: forward-sim, forward-law, differences by the default
 * loop. */
static void test_est_moments_tensors(void **state) {
    (void)state;
    bench b;
    bench_poly(&b);
    check_all(&b, "poly", "forward-sim", 3, 0.0, 8000);
    check_all(&b, "poly", "forward-law", 3, 0.0, 8000);
    check_all(&b, "poly", "fd-central", 3, 1e-3, 8000);
    bench_clear(&b);
}

/* Variance = (d+1)|g|^2 / rv for rv = 1, 4, 16, 64: the score of rv E|G - g|^2. */
static void test_est_variance_falls_as_rv(void **state) {
    (void)state;
    bench b;
    bench_quadratic(&b, 20);
    double g[20];
    expect_gradient(&b, g);
    static const char *const names[] = {"forward", "forward-sim", "forward-law", "fd-central"};
    for (size_t i = 0; i < 4; i++) {
        for (int rv = 1; rv <= 64; rv *= 4) {
            hdo_estimator s = bench_estimator(names[i], rv, 1e-2);
            moments m = bench_moments(&b, &s, 3000, g);
            double z = tally_z(&m.error2, 21.0 / rv * norm2_of(20, g));
            print_message("variance %-12s rv %-3d: z %+.2f\n", names[i], rv, z);
            assert_true(fabs(z) < Z_MAX);
        }
    }
    bench_clear(&b);
}

/* A large step on a quadratic: no bias, but the remainder shows in the second moment, exactly. */
static void test_est_fd_large_nu_quadratic(void **state) {
    (void)state;
    bench b;
    bench_quadratic(&b, 20);
    double g[20], tr = 0.0, tr2 = 0.0;
    expect_gradient(&b, g);
    for (int j = 0; j < 20; j++) {
        double h = g[j] / (double)b.x[j];
        tr += h;
        tr2 += h * h;
    }
    for (int rv = 1; rv <= 4; rv *= 4) {
        double nu = 0.3, n2 = norm2_of(20, g);
        hdo_estimator s = bench_estimator("fd", rv, nu);
        moments m = bench_moments(&b, &s, 30000, g);
        double one = 22.0 * n2 + nu * nu / 4.0 * 24.0 * (tr * tr + 2.0 * tr2), plain = (1.0 + 21.0 / rv) * n2;
        double want = n2 + (one - n2) / rv, z2 = tally_z(&m.norm2, want);
        print_message(
            "fd nu 0.3 rv %d: mean max|z| %.2f, second moment z %+.2f (without the remainder z would be %+.0f)\n", rv,
            m.z_mean, z2, tally_z(&m.norm2, plain));
        assert_true(m.z_mean < Z_MANY && fabs(z2) < Z_MAX);
        assert_true(tally_z(&m.norm2, plain) > 10.0); /* the test can see it */
    }
    bench_clear(&b);
}

/* The exact bias of differences on cubic plus quartic: nu^2/2 F''' (gaussian), nu^2/6 F''' (rademacher); and none for
 * debiased: what is left is that of nu / 2^levels. */
static void test_est_bias_cubic_quartic(void **state) {
    (void)state;
    bench b;
    bench_poly(&b);
    double g[POLY_D], want[POLY_D];
    const double nu = 0.5;
    expect_gradient(&b, g);
    static const struct {
        const char *name;
        int dist;
        double factor; /* bias = factor nu^2 F''' */
        int N;
    } cases[] = {{"fd", HDO_DIST_GAUSSIAN, 0.5, 60000},
                 {"fd-central", HDO_DIST_GAUSSIAN, 0.5, 60000},
                 {"fd-central", HDO_DIST_RADEMACHER, 1.0 / 6.0, 60000},
                 {"debiased", HDO_DIST_GAUSSIAN, 0.5 / 65536.0, 60000},
                 {"debiased", HDO_DIST_RADEMACHER, 1.0 / 6.0 / 65536.0, 60000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdo_estimator s = bench_estimator(cases[i].name, 4, nu);
        s.distribution = cases[i].dist;
        s.levels = 8; /* 4^8 = 65536 */
        for (size_t j = 0; j < POLY_D; j++) want[j] = g[j] + cases[i].factor * nu * nu * poly_third(j, (double)b.x[j]);
        moments m = bench_moments(&b, &s, cases[i].N, want), raw = bench_moments(&b, &s, cases[i].N / 4, g);
        print_message("poly nu 0.5 %-10s %-10s: against the exact mean max|z| %.2f, against grad F %.2f (a quarter of "
                      "the draws)\n",
                      cases[i].name, cases[i].dist == HDO_DIST_GAUSSIAN ? "gaussian" : "rademacher", m.z_mean,
                      raw.z_mean);
        assert_true(m.z_mean < Z_MANY);
        if (strcmp(cases[i].name, "debiased") == 0) {
            assert_true(raw.z_mean < Z_MANY);
        } else {
            assert_true(raw.z_mean > 8.0); /* visibly biased */
        }
    }
    bench_clear(&b);
}

/* coords: a random block of coordinates, weighted. Mean g, E|G|^2 = (d/m)|g|^2 (up to nu). */
static void test_est_coord_block(void **state) {
    (void)state;
    bench b;
    bench_quadratic(&b, 20);
    double g[20];
    expect_gradient(&b, g);
    hdo_estimator s = bench_estimator("fd-coord", 1, 1e-5);
    s.coords = 5;
    moments m = bench_moments(&b, &s, 8000, g);
    double z2 = tally_z(&m.norm2, 4.0 * norm2_of(20, g));
    print_message("fd-coord 5 of 20: mean max|z| %.2f, second moment z %+.2f\n", m.z_mean, z2);
    assert_true(m.z_mean < Z_MANY && fabs(z2) < Z_MAX);
    bench_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_est_moments_quadratic),    cmocka_unit_test(test_est_moments_logistic),
        cmocka_unit_test(test_est_moments_logistic_l2),  cmocka_unit_test(test_est_moments_tensors),
        cmocka_unit_test(test_est_variance_falls_as_rv), cmocka_unit_test(test_est_fd_large_nu_quadratic),
        cmocka_unit_test(test_est_bias_cubic_quartic),   cmocka_unit_test(test_est_coord_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
