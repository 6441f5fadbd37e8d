/* SPDX-License-Identifier: Apache-2.0
 *
 * The step nu. Estimators that share their directions with `forward` are compared draw by draw, without sampling error:
 * fd -> forward with first order in nu, fd-central with second order, both down to a round-off floor that grows as
 * 1/nu; complex-step has no floor; debiased keeps the mean of its finest step.
 */
#include "test_est_util.h"

/* |G - G_forward| / |G_forward| for the same directions; forward mode by forward-sim, which every objective here has.
 */
static double distance(bench *b, const char *name, double nu) {
    hdo_estimator s = bench_estimator(name, 8, nu), fwd = bench_estimator("forward-sim", 8, 0.0);
    float *G = bench_get(b->f->d * sizeof *G);
    bench_estimate(b, &s, 1, 2, b->g);
    bench_estimate(b, &fwd, 1, 2, G);
    double r = sqrt(hdo__distsq(b->f->d, b->g, G) / hdo__sumsq(b->f->d, G));
    free(G);
    return r;
}

/* Observed order between two steps a factor 4 apart. */
static double order(bench *b, const char *name, double nu) {
    return log(distance(b, name, nu) / distance(b, name, nu / 4.0)) / log(4.0);
}

static void test_est_steps_order(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 8, 3, 4, 0.1, false);
    double one = order(&b, "fd", 1e-2), two = order(&b, "fd-central", 1e-1), im = order(&b, "complex-step", 1e-1);
    print_message("logistic-l2: order of fd %.3f, of fd-central %.3f, of complex-step %.3f\n", one, two, im);
    assert_true(fabs(one - 1.0) < 0.1 && fabs(two - 2.0) < 0.1 && fabs(im - 2.0) < 0.1);
    bench_clear(&b);
    bench_poly(&b);
    one = order(&b, "fd", 1e-1);
    two = order(&b, "fd-central", 2e-1);
    print_message("cubic plus quartic: order of fd %.3f, of fd-central %.3f\n", one, two);
    assert_true(fabs(one - 1.0) < 0.2 && fabs(two - 2.0) < 0.2);
    bench_clear(&b);
}

/* Quadratics: a central slope is exact for every step, a one-sided one off by nu u'Hu/2. */
static void test_est_steps_quadratic(void **state) {
    (void)state;
    bench b;
    bench_quadratic(&b, 30);
    assert_true(distance(&b, "fd-central", 1.0) < 1e-6);
    assert_true(distance(&b, "fd", 1.0) > 0.1);
    assert_true(fabs(order(&b, "fd", 1e-2) - 1.0) < 0.05);
    bench_clear(&b);
}

/* Down, then up again: truncation first, then round-off. Logistic computes its differences in double (floor 1e-16 /
 * nu); cubic plus quartic takes the default loop, which rounds x + nu u to float (floor 1e-7 / nu). */
static void test_est_steps_floor(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 8, 3, 4, 0.0, false);
    double coarse = distance(&b, "fd", 1e-3), best = distance(&b, "fd", 1e-7), fine = distance(&b, "fd", 1e-13);
    print_message("logistic fd: distance %.1e at nu 1e-3, %.1e at 1e-7, %.1e at 1e-13\n", coarse, best, fine);
    assert_true(best < 1e-3 * coarse && best < 1e-6 && fine > 100.0 * best);
    bench_clear(&b);
    bench_poly(&b);
    coarse = distance(&b, "fd", 1e-1);
    best = distance(&b, "fd", 3e-4);
    fine = distance(&b, "fd", 1e-7);
    print_message("default loop fd: distance %.1e at nu 1e-1, %.1e at 3e-4, %.1e at 1e-7\n", coarse, best, fine);
    assert_true(best < 0.05 * coarse && fine > 10.0 * best);
    bench_clear(&b);
}

/* Nothing is subtracted: exact to float accuracy for steps where differences drown. */
static void test_est_steps_complex(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 8, 3, 4, 0.2, false);
    for (double nu = 1e-6; nu > 1e-31; nu *= 1e-6) {
        double r = distance(&b, "complex-step", nu);
        print_message("complex-step nu %.0e: distance %.1e\n", nu, r);
        assert_true(r < 1e-6);
    }
    bench_clear(&b);
    bench_quadratic(&b, 30);
    assert_true(distance(&b, "complex-step", 1e-20) < 1e-6);
    bench_clear(&b);
}

static void test_est_steps_forward(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 8, 3, 4, 0.2, false);
    assert_true(distance(&b, "forward", 0.0) < 1e-6);
    bench_clear(&b);
    bench_quadratic(&b, 30);
    assert_true(distance(&b, "forward", 0.0) < 1e-6);
    bench_clear(&b);
}

/* fd-coord: error nu H_jj / 2 coordinate by coordinate, on quadratics exactly. */
static void test_est_steps_coord(void **state) {
    (void)state;
    enum { D = 300 }; /* more coordinates than are taken at once */
    bench b;
    bench_quadratic(&b, D);
    float g[D];
    bench_gradient(&b, g);
    hdo_estimator s = bench_estimator("fd-coord", 1, 1e-2);
    hdo_estimate_info info = bench_estimate(&b, &s, 0, 0, b.g);
    assert_int_equal(info.forward, D + 1);
    for (int j = 0; j < D; j++) {
        double h = 2.0 * pow(0.1, (double)j / (D - 1)), want = (double)g[j] + 0.5 * (double)1e-2f * h;
        assert_true(fabs((double)b.g[j] - want) < 1e-6);
    }
    bench_clear(&b);
    bench_logistic(&b, 8, 3, 4, 0.1, false);
    float *gl = bench_get(b.f->d * sizeof *gl);
    bench_gradient(&b, gl);
    s.nu.arg = 1e-5;
    bench_estimate(&b, &s, 0, 0, b.g);
    assert_true(sqrt(hdo__distsq(b.f->d, b.g, gl) / hdo__sumsq(b.f->d, gl)) < 1e-4);
    free(gl);
    bench_clear(&b);
}

/* nu = eta / sqrt(d): the same bits as with the number itself. */
static void test_est_steps_theorem_nu(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 8, 3, 4, 0.0, false);
    static const char *const names[] = {"fd", "fd-central", "fd-coord", "debiased", "complex-step", "fd-law"};
    float *G = bench_get(b.f->d * sizeof *G);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        hdo_estimator s = bench_estimator(names[i], 4, 0.1 / sqrt((double)b.f->d)), t = s; /* eta of the bench is 0.1 */
        t.nu = (hdo_choice){HDO_NU_ETA_SQRT_D, 0.0};
        bench_estimate(&b, &s, 0, 0, b.g);
        bench_estimate(&b, &t, 0, 0, G);
        assert_memory_equal(b.g, G, b.f->d * sizeof *G);
    }
    free(G);
    bench_clear(&b);
}

/* E[Z | u] = D_M: debiased minus fd at the finest step, on the same directions. The noise of u cancels, what remains is
 * that of the levels; against fd at the coarse step the same test sees the bias. */
static void test_est_steps_debiased_paired(void **state) {
    (void)state;
    enum { N = 40000, M = 3 };
    bench b;
    bench_poly(&b);
    float g[POLY_D], G[POLY_D];
    bench_gradient(&b, g);
    hdo_estimator s = bench_estimator("debiased", 1, 0.4), fine = bench_estimator("fd", 1, 0.4 / 8.0),
                  coarse = bench_estimator("fd", 1, 0.4);
    s.levels = M;
    tally to_fine = {0}, to_coarse = {0};
    int64_t forward = 0;
    for (int i = 0; i < N; i++) {
        forward += bench_estimate(&b, &s, 3, i, b.g).forward;
        double z = hdo__dot(POLY_D, b.g, g);
        bench_estimate(&b, &fine, 3, i, G);
        tally_add(&to_fine, z - hdo__dot(POLY_D, G, g));
        bench_estimate(&b, &coarse, 3, i, G);
        tally_add(&to_coarse, z - hdo__dot(POLY_D, G, g));
    }
    double passes = (double)forward / N;
    print_message(
        "debiased against fd on the same directions: at nu/8 z %+.2f, at nu z %+.2f; %.2f passes an estimate\n",
        tally_z(&to_fine, 0.0), tally_z(&to_coarse, 0.0), passes);
    assert_true(fabs(tally_z(&to_fine, 0.0)) < Z_MAX);
    assert_true(fabs(tally_z(&to_coarse, 0.0)) > 8.0);
    /* F(x), D_0, the finer of the pair, and the coarser unless it is D_0: p_0 = 4/7 */
    assert_true(fabs(passes - (3.0 + 3.0 / 7.0)) < 0.02);
    bench_clear(&b);
}

/* The second moment of the correction is finite for ratio > 1/4: it stops growing with the levels. */
static void test_est_steps_debiased_variance(void **state) {
    (void)state;
    bench b;
    bench_poly(&b);
    double g[POLY_D];
    bench_gradient(&b, b.g);
    for (int j = 0; j < POLY_D; j++) g[j] = (double)b.g[j];
    double var[2];
    for (int i = 0; i < 2; i++) {
        hdo_estimator s = bench_estimator("debiased", 1, 0.2);
        s.levels = i == 0 ? 4 : 8;
        moments m = bench_moments(&b, &s, 20000, g);
        var[i] = m.error2.mean;
    }
    print_message("debiased: variance %.3f with 4 levels, %.3f with 8\n", var[0], var[1]);
    assert_true(fabs(var[1] / var[0] - 1.0) < 0.1);
    bench_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_est_steps_order),
        cmocka_unit_test(test_est_steps_quadratic),
        cmocka_unit_test(test_est_steps_floor),
        cmocka_unit_test(test_est_steps_complex),
        cmocka_unit_test(test_est_steps_forward),
        cmocka_unit_test(test_est_steps_coord),
        cmocka_unit_test(test_est_steps_theorem_nu),
        cmocka_unit_test(test_est_steps_debiased_paired),
        cmocka_unit_test(test_est_steps_debiased_variance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
