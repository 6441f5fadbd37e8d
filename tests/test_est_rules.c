/* SPDX-License-Identifier: Apache-2.0
 *
 * What wiring refuses, in words; and what an estimate may use: memory that does not grow with rv, bits that do not
 * depend on the threads or on how many directions are taken at once.
 */
#include "test_est_util.h"

static void expect_refusal(const hdo_estimator *s, const hdo_objective *f, const char *words) {
    hdo_error e = {0};
    assert_int_equal(hdo__estimator_check(s, f, "weak", &e), HDO_E_UNSUPPORTED);
    if (strstr(e.msg, words) == NULL) fail_msg("'%s' does not say '%s'", e.msg, words);
    assert_non_null(strstr(e.msg, "class 'weak'"));
    assert_non_null(strstr(e.msg, s->ops->name));
}

static void test_est_refuses_missing_oracles(void **state) {
    (void)state;
    bench b;
    bench_poly(&b); /* loss and gradient only */
    static const struct {
        const char *name, *words;
    } cases[] = {{"forward", "forward-mode derivatives"},
                 {"complex-step", "an analytic model"},
                 {"fd-law", "through a few numbers"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdo_estimator s = bench_estimator(cases[i].name, 1, 1e-3);
        expect_refusal(&s, b.f, cases[i].words);
    }
    hdo_objective_ops blind = poly_ops; /* not even a gradient */
    blind.grad = NULL;
    b.f->ops = &blind;
    static const char *const reverse[] = {"fo", "forward-sim", "forward-law"};
    for (size_t i = 0; i < 3; i++) {
        hdo_estimator s = bench_estimator(reverse[i], 1, 1e-3);
        expect_refusal(&s, b.f, "back-propagation");
    }
    static const char *const fine[] = {"fd", "fd-central", "fd-coord", "debiased"};
    for (size_t i = 0; i < 4; i++) {
        hdo_estimator s = bench_estimator(fine[i], 1, 1e-3);
        assert_int_equal(hdo__estimator_check(&s, b.f, "weak", NULL), HDO_OK);
    }
    b.f->ops = &poly_ops;
    bench_clear(&b);
    bench_quadratic(&b, 5);
    hdo_estimator s = bench_estimator("fd-law", 1, 1e-3);
    expect_refusal(&s, b.f, "softmax regression");
    bench_clear(&b);
}

static void test_est_refuses_laws(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 5, 2, 2, 0.0, false);
    for (int dist = HDO_DIST_SPHERE; dist <= HDO_DIST_RADEMACHER; dist++) {
        hdo_estimator s = bench_estimator("forward-law", 4, 1e-3);
        s.distribution = dist;
        expect_refusal(&s, b.f, "gaussian directions only; use forward-sim");
        s = bench_estimator("fd-law", 4, 1e-3);
        s.distribution = dist;
        expect_refusal(&s, b.f, "gaussian directions only; use fd ");
        s = bench_estimator("fd-coord", 4, 1e-3);
        s.distribution = dist;
        expect_refusal(&s, b.f, "goes along the coordinates");
    }
    bench_clear(&b);
}

static void test_est_refuses_kinks(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 5, 2, 2, 0.0, false);
    hdo_estimator s = bench_estimator("complex-step", 4, 1e-3);
    assert_int_equal(hdo__estimator_check(&s, b.f, "weak", NULL), HDO_OK);
    b.f->kink = "ReLU behind fc1"; /* as a network would say */
    expect_refusal(&s, b.f, "'logistic' has a kink (ReLU behind fc1)");
    expect_refusal(&s, b.f, "--allow-piecewise (population.weak.allow_piecewise: true)");
    s.allow_piecewise = true;
    assert_int_equal(hdo__estimator_check(&s, b.f, "weak", NULL), HDO_OK);
    bench_clear(&b);
}

/* Vectors can be shared only where there are vectors: exact laws have none. One node alone may say so. */
static void test_est_refuses_shared_laws(void **state) {
    (void)state;
    static const struct {
        const char *estimator, *other, *other_streams;
        int count, other_count;
        const char *use; /* NULL: accepted */
    } cases[] = {{"forward-law", "fo", "independent", 2, 1, "forward-sim"},
                 {"fd-law", "fo", "independent", 2, 1, "use estimator fd,"},
                 {"forward-law", "forward-sim", "shared", 1, 1, "forward-sim"},
                 {"forward-law", "forward-sim", "independent", 1, 9, NULL},
                 {"forward-law", "fo", "shared", 1, 9, NULL}, /* fo draws nothing */
                 {"forward-law", "forward-sim", "shared", 0, 9, NULL},
                 {"forward-sim", "fo", "independent", 9, 1, NULL},
                 {"fd", "forward", "shared", 9, 9, NULL}};
    hdo_config *c = bench_get(sizeof *c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdo_error e = {0};
        hdo_config_default(c);
        strcpy(c->population[0].estimator, cases[i].other);
        strcpy(c->population[1].estimator, cases[i].estimator);
        c->population[0].count = cases[i].other_count;
        c->population[1].count = cases[i].count;
        bool share = strcmp(cases[i].other_streams, "shared") == 0; /* put, not typed: fo may not be told streams */
        c->population[0].streams = (hdo_choice){.id = share ? HDO_STREAMS_SHARED : HDO_STREAMS_INDEPENDENT};
        assert_int_equal(hdo_config_set_from(c, "population.zo.streams", "shared", HDO_FROM_FLAG, &e), HDO_OK);
        hdo_status st = hdo_config_check(c, &e);
        if (st != (cases[i].use == NULL ? HDO_OK : HDO_E_CONFIG)) fail_msg("case %zu: %s", i, e.msg);
        if (cases[i].use == NULL) continue;
        assert_non_null(strstr(e.msg, "population.zo.streams is 'shared'"));
        assert_non_null(strstr(e.msg, "population.zo.estimator is '"));
        assert_non_null(strstr(e.msg, cases[i].use));
    }
    free(c);
}

/* Options reach the estimator, and the table keeps the ratio where the variance is finite. */
static void test_est_options(void **state) {
    (void)state;
    hdo_config *c = bench_get(sizeof *c);
    hdo_error e = {0};
    hdo_config_default(c);
    static const char *const set[][2] = {
        {"population.zo.estimator", "debiased"},   {"population.zo.debias_levels", "6"},
        {"population.zo.debias_ratio", "0.4"},     {"population.zo.coords", "12"},
        {"population.zo.allow_piecewise", "true"}, {"population.zo.directions", "per-tensor"},
        {"population.zo.nu", "eta/sqrt(d)"},       {"population.zo.distribution", "sphere"}};
    for (size_t i = 0; i < sizeof set / sizeof set[0]; i++) {
        assert_int_equal(hdo_config_set_from(c, set[i][0], set[i][1], HDO_FROM_FLAG, &e), HDO_OK);
    }
    hdo_estimator s = hdo__estimator_make(hdo__estimator_find("debiased"), &c->population[1]);
    assert_int_equal(s.levels, 6);
    assert_true(s.ratio == 0.4 && s.coords == 12 && s.allow_piecewise);
    assert_int_equal(s.directions, HDO_DIRECTIONS_PER_TENSOR);
    assert_int_equal(s.nu.id, HDO_NU_ETA_SQRT_D);
    assert_int_equal(s.distribution, HDO_DIST_SPHERE);
    assert_int_equal(hdo_config_set_from(c, "population.zo.debias_ratio", "0.2", HDO_FROM_FLAG, &e), HDO_E_CONFIG);
    free(c);
}

/* ---- memory ---- */

static size_t high_water(bench *b, const hdo_estimator *s) {
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, hdo__estimator_work_bytes(s, b->f, b->batch.size)), HDO_OK);
    hdo_team team = {1, &a, 0};
    b->w = (hdo_work){&a, &team, 0};
    bench_estimate(b, s, 0, 0, b->g); /* aborts if work_bytes were too small */
    assert_int_equal(hdo__arena_mark(&a), 0);
    size_t high = a.high;
    b->w = (hdo_work){&b->team.arena[0], &b->team, 0};
    hdo__arena_clear(&a);
    return high;
}

/* From rv = 300 to 30000 nothing grows, and what is used is a few vectors of d and some constants. */
static void test_est_memory_independent_of_rv(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 100, 10, 2, 0.0, false);
    size_t vector = b.f->d * sizeof(float);
    for (int i = 0; hdo__estimators[i] != NULL; i++) {
        for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
            for (int dist = HDO_DIST_GAUSSIAN; dist <= HDO_DIST_SPHERE; dist++) {
                size_t high[3];
                static const int rvs[] = {1, 300, 30000};
                for (int k = 0; k < 3; k++) {
                    hdo_estimator s = bench_estimator(hdo__estimators[i]->name, rvs[k], 1e-3);
                    s.directions = dir;
                    s.distribution = dist;
                    if (hdo__estimator_check(&s, b.f, "zo", NULL) != HDO_OK) goto next;
                    if (k == 2 && !s.ops->gaussian) s.rv = 3000; /* literal directions: enough to see growth */
                    high[k] = high_water(&b, &s);
                }
                print_message("%-12s %s %s: %zu bytes at rv 1, %zu at 300, %zu at thousands (a vector is %zu)\n",
                              hdo__estimators[i]->name, dir == 1 ? "whole" : "per-tensor",
                              dist == 1 ? "gaussian" : "sphere", high[0], high[1], high[2], vector);
                assert_int_equal(high[1], high[2]);
                assert_true(high[2] < 10 * vector + (1 << 18));
            next:;
            }
        }
    }
    bench_clear(&b);
}

/* ---- bits ---- */

static void test_est_bits_independent_of_threads(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 700, 10, 2, 0.0, false); /* several tiles and pieces */
    size_t d = b.f->d;
    float *G = bench_get(d * sizeof *G);
    for (int i = 0; hdo__estimators[i] != NULL; i++) {
        for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
            hdo_estimator s = bench_estimator(hdo__estimators[i]->name, 9, 1e-3);
            s.directions = dir;
            s.coords = 40;
            if (!s.ops->gaussian && !s.ops->axes) s.distribution = HDO_DIST_SPHERE;
            b.w = (hdo_work){&b.team.arena[0], &b.team, 0};
            hdo_estimate_info info = bench_estimate(&b, &s, 2, 3, b.g);
            for (int threads = 2; threads <= 3; threads++) {
                hdo_team team;
                assert_int_equal(hdo__team_init(&team, threads, (size_t)16 << 20), HDO_OK);
                b.w = (hdo_work){&team.arena[0], &team, 0};
                hdo_estimate_info again = bench_estimate(&b, &s, 2, 3, G);
                assert_memory_equal(b.g, G, d * sizeof *G);
                assert_true(info.loss == again.loss && info.forward == again.forward);
                hdo__team_clear(&team);
            }
        }
    }
    b.w = (hdo_work){&b.team.arena[0], &b.team, 0};
    free(G);
    bench_clear(&b);
}

/* More directions than are taken at once: against a plain loop over written-out directions, in double. */
static void test_est_many_directions(void **state) {
    (void)state;
    enum { D = 40, RV = 2 * HDO_DIRS_AT_ONCE + 37 };
    bench b;
    bench_quadratic(&b, D);
    float g[D], u[D], scale[RV];
    double want[D] = {0};
    bench_gradient(&b, g);
    for (int dist = HDO_DIST_GAUSSIAN; dist <= HDO_DIST_RADEMACHER; dist++) {
        hdo_estimator s = bench_estimator("forward", RV, 0.0);
        s.distribution = dist;
        hdo_request q = {.seed = 11, .node = 6, .step = 9};
        hdo_dirs dirs = hdo__request_dirs(&s, b.f, &q);
        if (dist == HDO_DIST_SPHERE) {
            hdo__dirs_sphere_scale(&dirs, RV, scale);
            dirs.scale = scale;
        }
        memset(want, 0, sizeof want);
        for (int r = 0; r < RV; r++) {
            hdo__dirs_fill(&dirs, r, 0, D, u);
            if (dist != HDO_DIST_GAUSSIAN) assert_true(fabs(hdo__sumsq(D, u) - D) < 1e-4 * D); /* |u|^2 = d */
            double c = hdo__dot(D, u, g) / RV;
            for (int j = 0; j < D; j++) want[j] += c * (double)u[j];
        }
        static const char *const names[] = {"forward", "forward-sim", "fd-central", "complex-step"};
        for (int n = 0; n < 4; n++) {
            hdo_estimator t = bench_estimator(names[n], RV, 1e-2);
            t.distribution = dist;
            bench_estimate(&b, &t, 6, 9, b.g);
            for (int j = 0; j < D; j++) assert_true(fabs((double)b.g[j] - want[j]) < 1e-5);
        }
    }
    bench_clear(&b);
}

/* forward-sim with one direction at a time and many pieces: the same sum as forward, which keeps no direction. */
static void test_est_forward_sim_large(void **state) {
    (void)state;
    bench b;
    bench_quadratic(&b, (1 << 20) + 5);
    size_t d = b.f->d;
    float *G = bench_get(d * sizeof *G);
    hdo_estimator sim = bench_estimator("forward-sim", 3, 0.0), fwd = bench_estimator("forward", 3, 0.0);
    bench_estimate(&b, &sim, 6, 9, b.g);
    bench_estimate(&b, &fwd, 6, 9, G);
    assert_true(sqrt(hdo__distsq(d, b.g, G) / hdo__sumsq(d, G)) < 1e-5);
    free(G);
    bench_clear(&b);
}

/* A window of a direction is that part of the direction, and zero elsewhere. */
static void test_dirs_window(void **state) {
    (void)state;
    enum { D = 200 };
    float whole[D], part[D];
    hdo_dirs u = {.s = bench_stream(0), .dist = HDO_DIST_GAUSSIAN, .d = D};
    hdo__dirs_fill(&u, 3, 0, D, whole);
    u.lo = 37;
    u.hi = 151;
    for (size_t off = 0; off < D; off += 40) hdo__dirs_fill(&u, 3, off, 40, part + off);
    for (size_t j = 0; j < D; j++) assert_true(part[j] == (j >= 37 && j < 151 ? whole[j] : 0.0f));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_est_refuses_missing_oracles),
        cmocka_unit_test(test_est_refuses_laws),
        cmocka_unit_test(test_est_refuses_kinks),
        cmocka_unit_test(test_est_refuses_shared_laws),
        cmocka_unit_test(test_est_options),
        cmocka_unit_test(test_est_memory_independent_of_rv),
        cmocka_unit_test(test_est_bits_independent_of_threads),
        cmocka_unit_test(test_est_many_directions),
        cmocka_unit_test(test_est_forward_sim_large),
        cmocka_unit_test(test_dirs_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
