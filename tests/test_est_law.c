/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact in law: forward = forward-sim = forward-law and fd-law = fd as random variables. Two-sample Kolmogorov-Smirnov
 * tests on projections (on g, on coordinates, on a fixed random vector) and on |G|^2, and the covariance
 * (|g|^2 I + g g') / rv entry by entry on a small problem. The samples of the two sides come from different nodes, so
 * they are independent.
 */
#include "hdo/lab/theory.h"
#include "test_est_util.h"

enum { N = 6000, N_STATS = 5 };

/* Statistics of one draw: G.g, G.w, two coordinates, |G|^2. */
static void stats(size_t d, const float *G, const float *g, const float *w, double *out) {
    out[0] = hdo__dot(d, G, g);
    out[1] = hdo__dot(d, G, w);
    out[2] = (double)G[0];
    out[3] = (double)G[d - 1];
    out[4] = hdo__sumsq(d, G);
}

static void collect(bench *b, const hdo_estimator *s, uint32_t node, const float *g, const float *w, double *out) {
    for (int i = 0; i < N; i++) {
        double v[N_STATS];
        bench_estimate(b, s, node, i, b->g);
        stats(b->f->d, b->g, g, w, v);
        for (int k = 0; k < N_STATS; k++) out[k * N + i] = v[k];
    }
}

static void compare(bench *b, const char *what, const hdo_estimator *s, const hdo_estimator *t) {
    size_t d = b->f->d;
    float *g = bench_get(d * sizeof *g), *w = bench_get(d * sizeof *w);
    double *a = bench_get(N * N_STATS * sizeof *a), *c = bench_get(N * N_STATS * sizeof *c), worst = 0.0;
    bench_gradient(b, g);
    hdo__rng_normal(bench_stream(9), 0, d, w);
    collect(b, s, bench_node(s), g, w, a);
    collect(b, t, 0x10000 + bench_node(s), g, w, c);
    for (int k = 0; k < N_STATS; k++) worst = fmax(worst, ks_two_sample(a + k * N, N, c + k * N, N));
    print_message("%s: %s = %s, rv %d, %s: largest KS %.2f of %d\n", what, s->ops->name, t->ops->name, s->rv,
                  s->directions == HDO_DIRECTIONS_WHOLE ? "whole" : "per-tensor", worst, N_STATS);
    assert_true(worst < KS_MAX);
    free(g);
    free(w);
    free(a);
    free(c);
}

static void test_est_law_forward(void **state) {
    (void)state;
    static const int rvs[] = {1, 2, 7, 64};
    bench b;
    bench_logistic(&b, 6, 3, 3, 0.0, false);
    for (size_t i = 0; i < sizeof rvs / sizeof rvs[0]; i++) {
        for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
            hdo_estimator fwd = bench_estimator("forward", rvs[i], 0.0),
                          sim = bench_estimator("forward-sim", rvs[i], 0.0),
                          law = bench_estimator("forward-law", rvs[i], 0.0);
            fwd.directions = sim.directions = law.directions = dir;
            compare(&b, "logistic", &fwd, &law);
            compare(&b, "logistic", &sim, &law);
        }
    }
    bench_clear(&b);
}

static void test_est_law_forward_quadratic(void **state) {
    (void)state;
    bench b;
    bench_quadratic(&b, 5);
    for (int rv = 1; rv <= 9; rv += 4) {
        hdo_estimator fwd = bench_estimator("forward", rv, 0.0), law = bench_estimator("forward-law", rv, 0.0);
        compare(&b, "quadratic", &fwd, &law);
    }
    bench_clear(&b);
}

/* The test has teeth: another rv, another distribution or another grouping is told apart. */
static void test_est_law_power(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 6, 3, 3, 0.0, false);
    size_t d = b.f->d;
    float *g = bench_get(d * sizeof *g), *w = bench_get(d * sizeof *w);
    double *a = bench_get(N * N_STATS * sizeof *a), *c = bench_get(N * N_STATS * sizeof *c);
    bench_gradient(&b, g);
    hdo__rng_normal(bench_stream(9), 0, d, w);
    hdo_estimator s = bench_estimator("forward-sim", 2, 0.0), other[3];
    for (int i = 0; i < 3; i++) other[i] = s;
    other[0].rv = 3;
    other[1].distribution = HDO_DIST_SPHERE;
    other[2].directions = HDO_DIRECTIONS_PER_TENSOR;
    for (int i = 0; i < 3; i++) {
        double worst = 0.0;
        collect(&b, &s, 100, g, w, a);
        collect(&b, &other[i], 200, g, w, c);
        for (int k = 0; k < N_STATS; k++) worst = fmax(worst, ks_two_sample(a + k * N, N, c + k * N, N));
        print_message("another law, case %d: largest KS %.2f\n", i, worst);
        assert_true(worst > 2.5);
    }
    free(g);
    free(w);
    free(a);
    free(c);
    bench_clear(&b);
}

/* Cov G = (|g|^2 I + g g') / rv, all entries on d = 5: scores of the products of centred coordinates. */
static void test_est_law_covariance(void **state) {
    (void)state;
    enum { D = 5, M = 40000 };
    static const char *const names[] = {"forward", "forward-sim", "forward-law"};
    bench b;
    bench_quadratic(&b, D);
    float g[D];
    bench_gradient(&b, g);
    for (int n = 0; n < 3; n++) {
        hdo_estimator s = bench_estimator(names[n], 3, 0.0);
        tally t[D][D] = {0};
        for (int i = 0; i < M; i++) {
            bench_estimate(&b, &s, bench_node(&s), i, b.g);
            for (int j = 0; j < D; j++) {
                for (int k = 0; k <= j; k++) tally_add(&t[j][k], (double)(b.g[j] - g[j]) * (double)(b.g[k] - g[k]));
            }
        }
        double worst = 0.0, n2 = hdo__sumsq(D, g);
        for (int j = 0; j < D; j++) {
            for (int k = 0; k <= j; k++) {
                double want = ((j == k ? n2 : 0.0) + (double)g[j] * (double)g[k]) / 3.0;
                worst = fmax(worst, fabs(tally_z(&t[j][k], want)));
            }
        }
        print_message("covariance of %s, 15 entries: max|z| %.2f\n", names[n], worst);
        assert_true(worst < Z_MAX);
    }
    bench_clear(&b);
}

/* fd-law against fd with a step so large that the loss is visibly curved: c_r is not a linear function of u. Batches
 * with independent rows, with repeated rows (singular Gram matrix), and with more rows than features. */
static void test_est_law_fd(void **state) {
    (void)state;
    static const struct {
        const char *what;
        int p, C, B;
        bool repeat;
        double nu;
    } cases[] = {{"B < p", 9, 3, 3, false, 0.5},
                 {"repeated rows", 9, 3, 4, true, 0.5},
                 {"B > p", 3, 3, 8, false, 0.5},
                 {"small nu", 9, 3, 3, false, 1e-4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b;
        bench_logistic(&b, cases[i].p, cases[i].C, cases[i].B, 0.0, cases[i].repeat);
        for (int rv = 1; rv <= 6; rv += 5) {
            for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
                hdo_estimator fd = bench_estimator("fd", rv, cases[i].nu),
                              law = bench_estimator("fd-law", rv, cases[i].nu);
                fd.directions = law.directions = dir;
                compare(&b, cases[i].what, &fd, &law);
            }
        }
        bench_clear(&b);
    }
}

/* Known answer of docs/theory.md 6.6: g = (3, 0, 4), rv = 3, chi = 2.5, z = (0.5, -1, 2), against the public formula.
 */
static void test_est_law_known_answer(void **state) {
    (void)state;
    const double g[3] = {3, 0, 4}, z[3] = {0.5, -1, 2}, want[3] = {0.8134519, -2.635231, 4.598244};
    double G[3];
    hdo_theory_fwd_draw(3, g, 3, 2.5, z, G);
    for (int j = 0; j < 3; j++) assert_true(fabs(G[j] - want[j]) < 1e-6);
    /* The estimator computes the same from its own chi and z. */
    bench b;
    bench_quadratic(&b, 7);
    hdo_estimator s = bench_estimator("forward-law", 9, 0.0);
    hdo_request q = {.seed = 11, .node = 3, .step = 4};
    hdo_dirs u = hdo__request_dirs(&s, b.f, &q);
    float gf[7], zf[7];
    double gd[7], zd[7], Gd[7];
    bench_gradient(&b, gf);
    hdo__dirs_fill(&u, 0, 0, 7, zf);
    for (int j = 0; j < 7; j++) gd[j] = (double)gf[j], zd[j] = (double)zf[j];
    hdo_theory_fwd_draw(7, gd, 9, hdo__rng_chi2(hdo__sibling_stream(&u, HDO_RNG_CHI), 0, 9), zd, Gd);
    bench_estimate(&b, &s, 3, 4, b.g);
    for (int j = 0; j < 7; j++) assert_true(fabs(Gd[j] - (double)b.g[j]) < 1e-6 * (1.0 + fabs(Gd[j])));
    bench_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_est_law_forward), cmocka_unit_test(test_est_law_forward_quadratic),
        cmocka_unit_test(test_est_law_power),   cmocka_unit_test(test_est_law_covariance),
        cmocka_unit_test(test_est_law_fd),      cmocka_unit_test(test_est_law_known_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
