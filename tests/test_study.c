/* SPDX-License-Identifier: Apache-2.0
 *
 * Constants of problems, bounds on them, and runs against the bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "lab/study/study_internal.h"
#include "study_help.h"

static const quad_case pair = {"pair", "pairwise", "forward-law", 4, 4, 4, 0.02, 0, 0.5, 1.0, 0.5, 2.0, 400, NULL};
static const quad_case match = {"match", "matching", "fd", 4, 4, 4, 0.02, 0, 0.5, 1.0, 0.5, 2.0, 200, NULL};

static void close_to(double got, double want, double rel) {
    if (!(fabs(got - want) <= rel * fabs(want) + 1e-300)) fail_msg("%.12g, expected %.12g", got, want);
}

static hdo_study *make(const hdo_config *c) {
    hdo_error e = {0};
    hdo_study *s = NULL;
    if (hdo_study_create(&s, c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    return s;
}

static hdo_assessment *assess(hdo_study *s) {
    hdo_error e = {0};
    hdo_assessment *a = malloc(sizeof *a);
    if (hdo_study_assess(s, a, &e) != HDO_OK) fail_msg("%s", e.msg);
    return a;
}

/* ---- constants ---- */

static void test_study_quadratic_constants(void **state) {
    (void)state;
    hdo_config c;
    quad_config(&c, &pair);
    hdo_study *s = make(&c);
    const hdo_constants *k = hdo_study_constants(s);
    assert_true(k->quad && k->convex && k->balanced);
    close_to(k->L.value, 1.0, 0);
    close_to(k->ell.value, 0.5, 0);
    close_to(k->a_0.value, 4.0, 1e-12);
    close_to(k->F.value, 2.0, 1e-12);
    close_to(k->sigma[0].value, 1.0, 1e-12);
    /* c = +-0.5 e1, +-0.5 e2: |H c|^2 is h1^2/4 twice and h2^2/4 twice */
    double h2 = pow(0.5, 1.0 / 19.0);
    close_to(k->varsigma_U[0].value, sqrt((0.25 + 0.25 * h2 * h2) / 2.0), 1e-6);
    assert_int_equal(k->L.how, HDO_CERTIFIED);
    hdo_study_destroy(s);
}

static hdo_status diagonal(void *ctx, const double *x, double *y, hdo_error *e) {
    size_t n = *(size_t *)ctx;
    (void)e;
    for (size_t i = 0; i < n; i++) y[i] = ((double)i - 10.0) * x[i];
    return HDO_OK;
}

static void test_study_lanczos(void **state) {
    (void)state;
    size_t n = 60;
    hdo_ritz z;
    hdo_error e = {0};
    assert_int_equal(hdo__lanczos(diagonal, &n, n, 60, 3, &z, &e), HDO_OK);
    close_to(z.lowest, -10.0, 1e-6);
    close_to(z.highest, 49.0, 1e-6);
    assert_true(hdo__lanczos_error(785, 60, 1e-12) < 0.12);
    assert_true(hdo__lanczos_error(20, 20, 1e-12) < 1e-6);
}

static void logistic_config(hdo_config *c, const char *train) {
    hdo_error e = {0};
    hdo_config_default(c);
    set(c, "model", "logistic-l2");
    set(c, "model.l2", "0.1");
    set(c, "data.train", train);
    set(c, "data.val", "60");
    set(c, "data.features", "6");
    set(c, "data.classes", "3");
    set(c, "steps", "40");
    assert_int_equal(hdo_config_population(c, "4fo+8zo", &e), HDO_OK);
}

/* Certified constants against second differences of the loss along random lines: nowhere may the curvature exceed L or
 * fall below ell. And x* is a minimum. */
static void test_study_logistic_constants(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    logistic_config(&c, "480");
    set(&c, "population.zo.estimator", "fd");
    hdo_study *s = make(&c);
    if (hdo_study_measure(s, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    const hdo_constants *k = hdo_study_constants(s);
    assert_true(k->balanced && k->convex);
    assert_int_equal(k->L.how, HDO_CERTIFIED);
    close_to(k->ell.value, 0.1, 1e-12);
    assert_true(k->L.value > k->ell.value && k->L_F.value >= k->L.value);
    assert_true(k->grad_star < 1e-5);
    assert_true(k->sigma[0].how == HDO_MEASURED && k->sigma[0].value > 0.0);
    assert_true(k->df.how == HDO_MEASURED && k->df.value < 1e-5);
    hdo_exact_oracle o;
    assert_int_equal(hdo__oracle_init(&o, s->run, 0, &e), HDO_OK);
    double x[64], y[64], gx[64], gy[64], fx, best;
    assert_true(k->d <= 64);
    assert_int_equal(hdo__oracle_grad(&o, -1, s->x_star, NULL, &best, &e), HDO_OK);
    for (int trial = 0; trial < 40; trial++) {
        hdo_stream r = hdo__stream(9, HDO_RNG_TEST, 0, (uint64_t)trial, 0);
        double dist = 0.0, dot = 0.0, diff = 0.0;
        for (size_t j = 0; j < k->d; j++) {
            x[j] = s->x_star[j] + hdo__rng_gauss(r, j);
            y[j] = x[j] + 0.3 * hdo__rng_gauss(r, 100 + j);
        }
        int node = trial % 12;
        assert_int_equal(hdo__oracle_grad(&o, node, x, gx, NULL, &e), HDO_OK);
        assert_int_equal(hdo__oracle_grad(&o, node, y, gy, NULL, &e), HDO_OK);
        assert_int_equal(hdo__oracle_grad(&o, -1, x, NULL, &fx, &e), HDO_OK);
        assert_true(fx > best);
        for (size_t j = 0; j < k->d; j++) {
            dist += (x[j] - y[j]) * (x[j] - y[j]);
            dot += (x[j] - y[j]) * (gx[j] - gy[j]);
            diff += (gx[j] - gy[j]) * (gx[j] - gy[j]);
        }
        assert_true(diff <= 1.0001 * k->L.value * k->L.value * dist);
        assert_true(dot >= 0.9999 * k->ell_loc.value * dist);
    }
    hdo__oracle_clear(&o);
    hdo_study_destroy(s);
}

/* s^2 from the formula for batches without replacement against the batches the run draws. */
static void test_study_noise_matches_batches(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    logistic_config(&c, "120");
    set(&c, "steps", "0"); /* one point: the start */
    hdo_study *s = make(&c);
    if (hdo_study_measure(s, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_exact_oracle o;
    assert_int_equal(hdo__oracle_init(&o, s->run, 0, &e), HDO_OK);
    double x[64], mean[64], g[64], sum = 0.0, sum2 = 0.0;
    size_t d = s->k.d;
    int n = 0, batch = s->run->population.classes[0].batch;
    int64_t idx[16];
    for (size_t j = 0; j < d; j++) x[j] = (double)s->run->population.models.X[j];
    for (int node = 0; node < 4; node++) {
        assert_int_equal(hdo__oracle_grad(&o, node, x, mean, NULL, &e), HDO_OK);
        for (int t = 0; t < 700; t++, n++) { /* many passes over 30 samples */
            double v = 0.0;
            hdo__sampler_batch(s->run->problem.shards, 5, node, t, batch, idx);
            assert_int_equal(hdo__oracle_batch(&o, &(hdo_draw){node, idx, batch, t}, x, g, NULL, &e), HDO_OK);
            for (size_t j = 0; j < d; j++) v += (g[j] - mean[j]) * (g[j] - mean[j]);
            sum += v;
            sum2 += v * v;
        }
    }
    double m = sum / n, se = sqrt((sum2 / n - m * m) / n), s2 = s->k.sigma[0].value * s->k.sigma[0].value;
    /* the largest of start and x*: at least the start; a batch across two passes has a little more than the formula */
    if (s2 < m - 5.0 * se - 0.05 * m) fail_msg("s^2 %g, batches %g +- %g", s2, m, se);
    hdo__oracle_clear(&o);
    hdo_study_destroy(s);
}

/* ---- bounds ---- */

static void test_study_assess_equals_theory(void **state) {
    (void)state;
    hdo_config c;
    quad_config(&c, &pair);
    hdo_study *s = make(&c);
    hdo_assessment *a = assess(s);
    const hdo_constants *k = hdo_study_constants(s);
    hdo_est_params fm = hdo_theory_est_default(HDO_THEORY_FM, 20);
    fm.rv = 4;
    hdo_pop_class cls[2] = {{.count = 4, .est = {.rho = 1.0}, .sigma = 1.0, .varsigma = k->varsigma_U[0].value},
                            {.count = 4,
                             .is_zo = true,
                             .est = hdo_theory_est_const(&fm),
                             .sigma = 1.0,
                             .varsigma = k->varsigma_U[1].value}};
    hdo_theory_problem p = {.pop = hdo_theory_pop_const(cls, 2),
                            .mix = hdo_theory_mix_const(HDO_THEORY_PAIR, 8, 0.0),
                            .L = 1.0,
                            .ell = 0.5,
                            .ell_loc = 0.5,
                            .mode = HDO_THEORY_MODE_U,
                            .balanced = true};
    hdo_sys_coef y = hdo_theory_sys_coef(&p, 0.02);
    double A[401], G[401];
    hdo_theory_sc_curve(&y, 4.0, 0.0, 400, A, G);
    assert_true(a->sc_known && a->sc_holds && a->nc_known && a->nc_holds && !a->weighted);
    close_to(a->theta, 0.005, 1e-12);
    close_to(a->a_T, A[400], 1e-12);
    close_to(a->Gamma_T, G[400], 1e-12);
    close_to(a->fy.f_y, hdo_theory_sc_weighted(&y, 4.0, 0.0, 400, 0.5).f_y, 1e-12);
    close_to(a->grad.total, hdo_theory_nc_bound(&p, 0.02, 2.0, 0.0, 400.0).total, 1e-12);
    assert_true(a->sc_T_min == hdo_theory_sc_t_min(&p));
    close_to(a->lambda, hdo_theory_lambda_complete_edge(8), 1e-12);
    char *text = hdo_assessment_json(a);
    json_error_t je;
    json_t *j = json_loads(text, 0, &je);
    assert_non_null(j);
    close_to(json_number_value(json_object_get(json_object_get(j, "strongly_convex"), "distance")), a->a_T, 1e-12);
    json_decref(j);
    free(text);
    free(a);
    hdo_study_destroy(s);
}

static int count(const hdo_assessment *a, int number, hdo_warning_level level) {
    int n = 0;
    for (int k = 0; k < a->n_warnings; k++) n += a->warnings[k].number == number && a->warnings[k].level == level;
    return n;
}

static void test_study_warnings(void **state) {
    (void)state;
    static const struct {
        const char *key, *value;
        int number;
        hdo_warning_level level;
    } cases[] = {{"population.fo.momentum", "0.9", 10, HDO_WARN_BROKEN},
                 {"population.zo.weight_decay", "0.1", 10, HDO_WARN_BROKEN},
                 {"population.zo.schedule", "cosine", 10, HDO_WARN_BROKEN},
                 {"warmup", "5", 10, HDO_WARN_BROKEN},
                 {"mixing", "none", 6, HDO_WARN_BROKEN},
                 {"population.zo.streams", "shared", 8, HDO_WARN_BROKEN},
                 {"population.zo.lr", "0.01", 13, HDO_WARN_NOTE},
                 {"population.zo.rv", "1", 11, HDO_WARN_NOTE},
                 {"population.zo.estimator", "debiased", 12, HDO_WARN_BROKEN},
                 {"steps", "10", 5, HDO_WARN_NOTE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdo_config c;
        quad_config(&c, &pair);
        set(&c, cases[i].key, cases[i].value);
        if (cases[i].number == 8) set(&c, "population.zo.estimator", "forward-sim"); /* what can share vectors */
        hdo_study *s = make(&c);
        hdo_assessment *a = assess(s);
        if (count(a, cases[i].number, cases[i].level) == 0) fail_msg("no warning for %s", cases[i].key);
        assert_true(a->sc_holds == (a->sc_known && cases[i].level != HDO_WARN_BROKEN));
        free(a);
        hdo_study_destroy(s);
    }
    hdo_config c;
    quad_config(&c, &match);
    c.population[0].lr.arg = c.population[1].lr.arg = 0.9;
    hdo_study *s = make(&c);
    hdo_assessment *a = assess(s);
    assert_true(count(a, 4, HDO_WARN_STEP) > 0 && a->sc_eta_consensus < 0.9 && !a->fy.ok);
    free(a);
    hdo_study_destroy(s);
}

/* Equal weights must give back the plain problem; unequal ones a valid, weaker one. */
static void test_study_unequal_steps(void **state) {
    (void)state;
    hdo_config c;
    quad_config(&c, &match);
    hdo_study *s = make(&c);
    hdo_assessment *a = assess(s), *b;
    s->run->population.classes[1].schedule.lr = 0.005;
    b = assess(s);
    assert_true(!a->weighted && b->weighted && b->sc.mode == HDO_THEORY_MODE_O && !b->sc.balanced);
    close_to(b->eta, 0.0125, 1e-12);
    /* weights 1.6 and 0.4, variance 0.36, share 1/4: docs/theory.md 3.10 */
    close_to(b->sc.ell_loc, 0.75 * 0.5, 1e-12);
    close_to(b->sc.L, 1.6 + 0.5 * (0.36 / 0.25 + 0.75 - 0.4), 1e-12);
    double omega = 21.0 / 4.0;
    close_to(b->sc.pop.omega_max, omega * 0.4 / 1.6, 1e-12);
    assert_true(b->sc_holds && !b->nc_known && isfinite(b->a_T));
    free(a);
    free(b);
    hdo_study_destroy(s);
}

/* ---- runs ---- */

static void check_below(const quad_case *q, int seeds) {
    hdo_config c;
    hdo_error e = {0};
    hdo_comparison cmp;
    quad_config(&c, q);
    hdo_study *s = make(&c);
    if (hdo_study_compare(s, seeds, &cmp, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_false(cmp.violated);
    for (int k = 0; k < HDO_QUANTITIES; k++) {
        if (!cmp.verdict[k].measured || !cmp.verdict[k].bounded || cmp.verdict[k].violated) {
            fail_msg("%s, %s: measured %d bounded %d violated %d", q->name, hdo_quantity_name((hdo_quantity)k),
                     cmp.verdict[k].measured, cmp.verdict[k].bounded, cmp.verdict[k].violated);
        }
    }
    hdo_comparison_clear(&cmp);
    hdo_study_destroy(s);
}

static void test_study_measured_below_bounds(void **state) {
    (void)state;
    check_below(&pair, 24);
    check_below(&match, 24);
}

/* A claim that is too good must be caught. */
static void test_study_violation_is_seen(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    hdo_comparison cmp;
    quad_config(&c, &match);
    hdo_study *s = make(&c);
    for (int k = 0; k < 2; k++) {
        hdo_study_constants(s)->sigma[k] = (hdo_constant){0.1, HDO_GIVEN};
        hdo_study_constants(s)->varsigma_U[k] = (hdo_constant){0.0, HDO_GIVEN};
    }
    if (hdo_study_compare(s, 24, &cmp, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_true(cmp.violated && cmp.verdict[HDO_Q_GAMMA].violated);
    hdo_comparison_clear(&cmp);
    hdo_study_destroy(s);
}

static void test_study_compare_any_threads(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    hdo_comparison one, two;
    quad_config(&c, &pair);
    c.threads = 1;
    hdo_study *s = make(&c);
    assert_int_equal(hdo_study_compare(s, 5, &one, &e), HDO_OK);
    hdo_study_destroy(s);
    c.threads = 2;
    s = make(&c);
    assert_int_equal(hdo_study_compare(s, 5, &two, &e), HDO_OK);
    for (int q = 0; q < HDO_QUANTITIES; q++) {
        assert_memory_equal(&one.verdict[q].mean, &two.verdict[q].mean, sizeof(double));
    }
    hdo_comparison_clear(&one);
    hdo_comparison_clear(&two);
    hdo_study_destroy(s);
}

/* Isotropic: the mean over seeds against the exact expectation of the Gram recursion, docs/theory.md 5.1. */
static void test_study_runs_match_exact(void **state) {
    (void)state;
    enum { N = 4, D = 20, T = 60, SEEDS = 300 };
    static const quad_case q = {"exact", "pairwise", "forward-law", 2, 2, 2, 0.1, 0, 1.0, 1.0, 1.0, 2.0, T, NULL};
    hdo_config c;
    hdo_error e = {0};
    hdo_comparison cmp;
    quad_config(&c, &q);
    hdo_study *s = make(&c);
    if (hdo_study_compare(s, SEEDS, &cmp, &e) != HDO_OK) fail_msg("%s", e.msg);
    double X[N * D] = {0}, C[N * D] = {0}, K[4 * N * N], eta[N], omega[N], add[N], a[T + 1], G[T + 1], M[T + 1];
    for (int i = 0; i < N; i++) {
        X[i * D] = 2.0;
        C[i * D] = i % 2 == 0 ? 1.0 : -1.0;
        eta[i] = 0.1;
        omega[i] = i < 2 ? 0.0 : 21.0 / 2.0;
        add[i] = 1.0 + omega[i];
    }
    hdo_gram g = {N, 1.0, eta, omega, add, hdo_theory_gram_pair, NULL, hdo_theory_gram_pair_count(N)};
    double *work = malloc(hdo_theory_gram_work(N) * sizeof *work);
    hdo_theory_gram_init(N, D, X, C, K);
    hdo_theory_gram_run(&g, K, T, work, a, G, M);
    free(work);
    for (int i = 0; i < cmp.n_points; i++) {
        int64_t t = cmp.t[i];
        double za = (cmp.mean[HDO_Q_DISTANCE][i] - a[t]) / (cmp.se[HDO_Q_DISTANCE][i] + 1e-9);
        double zg = (cmp.mean[HDO_Q_GAMMA][i] - G[t]) / (cmp.se[HDO_Q_GAMMA][i] + 1e-9);
        if (fabs(za) > 4.5 || fabs(zg) > 4.5) fail_msg("t = %lld: z = %g, %g", (long long)t, za, zg);
    }
    hdo_comparison_clear(&cmp);
    hdo_study_destroy(s);
}

/* ---- the planner ---- */

static void plan(hdo_fleet_plan *p, hdo_fleet f, const char *estimator) {
    hdo_config c;
    hdo_error e = {0};
    quad_case q = match;
    q.estimator = estimator;
    q.spread = 0.1;
    q.noise = 3.0;
    q.steps = 20000;
    quad_config(&c, &q);
    if (hdo_plan_fleet(&c, &f, NULL, p, &e) != HDO_OK) fail_msg("%s", e.msg);
}

static void test_study_plan(void **state) {
    (void)state;
    hdo_fleet_plan p;
    hdo_fleet f = {
        .fo = 4, .zo = 28, .rv_max = 64, .fo_speed = 1.0, .zo_speed = 1000.0, .sim_seeds = 6, .sim_steps = 800};
    plan(&p, f, "forward-law"); /* directions for free: yes, and with many of them */
    assert_true(p.worth && p.gain > 1.5 && p.best.n0 == 28 && p.best.rv >= 16);
    assert_true(p.sim.done && p.sim.agrees && p.sim.with < p.sim.without);
    char *text = hdo_fleet_plan_json(&p);
    json_error_t je;
    json_t *j = json_loads(text, 0, &je);
    assert_true(json_is_true(json_object_get(j, "worth_adding")));
    json_decref(j);
    free(text);
    f.zo_speed = 0.01; /* one direction takes minutes: no */
    f.sim_seeds = 0;
    plan(&p, f, "forward-law");
    assert_true(!p.worth && p.gain < 1.0 && !p.sim.done);
    f.zo_speed = 1000.0;
    f.zo = 1; /* a lone noisy helper */
    f.rv_max = 1;
    plan(&p, f, "forward-law");
    assert_false(p.worth);
    f.zo = 28;
    f.rv_max = 64;
    plan(&p, f, "fd");
    assert_true(p.best.nu > 0.0);
    f.memory = 100.0;
    plan(&p, f, "forward-law");
    assert_true(!p.worth && !p.memory_ok && strstr(p.reason, "MB") != NULL);
    hdo_error e = {0};
    hdo_config c;
    quad_config(&c, &match);
    f.zo = 0;
    assert_int_equal(hdo_plan_fleet(&c, &f, NULL, &p, &e), HDO_E_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_study_quadratic_constants),  cmocka_unit_test(test_study_lanczos),
        cmocka_unit_test(test_study_logistic_constants),   cmocka_unit_test(test_study_noise_matches_batches),
        cmocka_unit_test(test_study_assess_equals_theory), cmocka_unit_test(test_study_warnings),
        cmocka_unit_test(test_study_unequal_steps),        cmocka_unit_test(test_study_measured_below_bounds),
        cmocka_unit_test(test_study_violation_is_seen),    cmocka_unit_test(test_study_compare_any_threads),
        cmocka_unit_test(test_study_runs_match_exact),     cmocka_unit_test(test_study_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
