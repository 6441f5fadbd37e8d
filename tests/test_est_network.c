/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimators on a network: cnn2 (d = 52258), batch of 4 random images. Means and second moments through projections
 * (d is too large for coordinates), agreement of forward mode, its simulations and differences on the same directions,
 * memory, threads; complex-step with and without kinks.
 */
#include "test_est_util.h"

enum { N = 400 };

static void bench_network(bench *b, const char *model) {
    bench_config(b, model);
    b->shape = (hdo_dataset){.count = 1000, .n_in = 784, .shape = {1, 28, 28}, .classes = 10};
    hdo_objective_args p = {.config = b->config, .train = &b->shape, .val = &b->shape, .n = 4};
    hdo_error e = {0};
    if (hdo__network_create(&p, &b->f, &e) != HDO_OK) fail_msg("%s", e.msg);
    b->in = bench_get(4 * 784 * sizeof(float));
    hdo__rng_normal(bench_stream(2), 0, 4 * 784, b->in);
    for (int i = 0; i < 4; i++) b->label[i] = i;
    b->batch = (hdo_batch){.size = 4, .in = b->in, .label = b->label, .node = 0, .seed = 1, .train = true};
    bench_finish(b, 1.0f);
    assert_int_equal(b->f->ops->init(b->f, 1, b->x), HDO_OK);
    hdo__team_clear(&b->team);
    size_t most = 0;
    for (int i = 0; hdo__estimators[i] != NULL; i++) {
        hdo_estimator s = bench_estimator(hdo__estimators[i]->name, 64, 1e-3);
        if (hdo__estimator_check(&s, b->f, "zo", NULL) != HDO_OK) continue;
        size_t need = hdo__estimator_work_bytes(&s, b->f, 4);
        most = need > most ? need : most;
    }
    assert_int_equal(hdo__team_init(&b->team, 1, most), HDO_OK);
    b->w = (hdo_work){&b->team.arena[0], &b->team, 0};
}

/* G.g / |g|^2 has mean 1; |G|^2 its theoretical mean; the projection on a fixed vector is that of g. */
static void check_moments(bench *b, const char *name, int rv, int directions, int n) {
    size_t d = b->f->d;
    hdo_estimator s = bench_estimator(name, rv, 1e-4);
    s.directions = directions;
    float *g = bench_get(d * sizeof *g), *w = bench_get(d * sizeof *w);
    tally along = {0}, side = {0}, norm2 = {0};
    bench_gradient(b, g);
    hdo__rng_normal(bench_stream(9), 0, d, w);
    double g2 = hdo__sumsq(d, g), want = 0.0, gw = hdo__dot(d, g, w);
    for (int l = 0; l < b->f->n_tensors; l++) {
        const hdo_tensor *t = &b->f->tensors[l];
        double len = directions == HDO_DIRECTIONS_WHOLE
                         ? (double)hdo__objective_live(b->f)
                         : (double)hdo__count_outside(b->f->idle, t->off, t->off + t->len);
        want += (1.0 + (len + 1.0) / rv) * hdo__sumsq(t->len, g + t->off);
    }
    for (int i = 0; i < n; i++) {
        bench_estimate(b, &s, bench_node(&s), i, b->g);
        tally_add(&along, hdo__dot(d, b->g, g) / g2);
        tally_add(&side, hdo__dot(d, b->g, w));
        tally_add(&norm2, hdo__sumsq(d, b->g));
    }
    double z[3] = {tally_z(&along, 1.0), tally_z(&side, gw), tally_z(&norm2, want)};
    print_message("%s %-12s rv %-3d %-10s: z along g %+.2f, on a fixed vector %+.2f, second moment %+.2f\n",
                  b->f->model, name, rv, directions == HDO_DIRECTIONS_WHOLE ? "whole" : "per-tensor", z[0], z[1], z[2]);
    for (int k = 0; k < 3; k++) assert_true(fabs(z[k]) < Z_MAX);
    free(g);
    free(w);
}

static void test_network_moments(void **state) {
    (void)state;
    bench b;
    bench_network(&b, "cnn2");
    for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
        check_moments(&b, "forward-law", 16, dir, N);
        check_moments(&b, "forward-sim", 4, dir, N);
    }
    check_moments(&b, "forward", 4, HDO_DIRECTIONS_WHOLE, N / 4);
    check_moments(&b, "fd-central", 2, HDO_DIRECTIONS_WHOLE, N / 4);
    check_moments(&b, "fd", 2, HDO_DIRECTIONS_WHOLE, N / 4);
    bench_clear(&b);
}

/* forward, forward-sim and differences on the same directions. */
static void test_network_agreement(void **state) {
    (void)state;
    bench b;
    bench_network(&b, "cnn2");
    size_t d = b.f->d;
    float *G = bench_get(d * sizeof *G);
    for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
        hdo_estimator sim = bench_estimator("forward-sim", 3, 0.0);
        sim.directions = dir;
        bench_estimate(&b, &sim, 1, 2, G);
        static const struct {
            const char *name;
            double nu, tol;
        } cases[] = {{"forward", 0.0, 1e-5},
                     {"fd-central", 1e-4, 2e-2},
                     {"fd", 1e-4, 5e-2},
                     {"fd", 1e-5, 5e-2},
                     {"debiased", 1e-3, 0.3}};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            hdo_estimator s = bench_estimator(cases[i].name, 3, cases[i].nu);
            s.directions = dir;
            bench_estimate(&b, &s, 1, 2, b.g);
            double r = sqrt(hdo__distsq(d, b.g, G) / hdo__sumsq(d, G));
            print_message("cnn2 %-10s nu %.0e %s: distance to forward-sim %.1e\n", cases[i].name, cases[i].nu,
                          dir == HDO_DIRECTIONS_WHOLE ? "whole" : "per-tensor", r);
            assert_true(r < cases[i].tol);
        }
    }
    free(G);
    bench_clear(&b);
}

/* Weights that only meet padding have no estimate and no part in a direction; the others have the moments of an
 * estimate in so many dimensions, and they are what they are without the idle ones: moving those changes nothing. */
static void test_network_idle(void **state) {
    (void)state;
    bench b;
    bench_custom(&b, "conv 40 5 pad 2 stride 2, gelu, conv 30 3 pad 1, linear classes", 2, 3, 5);
    assert_int_equal(b.f->idle.n, 2);
    size_t d = b.f->d, live = hdo__objective_live(b.f), idle = 0;
    for (int k = 0; k < 2; k++) idle += b.f->idle.at[k].hi - b.f->idle.at[k].lo;
    assert_true(idle > 0 && live == d - idle);
    float *G = bench_get(d * sizeof *G);
    for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++)
        for (int dist = HDO_DIST_GAUSSIAN; dist <= HDO_DIST_RADEMACHER; dist++) {
            hdo_estimator sim = bench_estimator("forward-sim", 300, 0.0), fwd = bench_estimator("forward", 300, 0.0);
            sim.directions = fwd.directions = dir;
            sim.distribution = fwd.distribution = dist;
            bench_estimate(&b, &sim, 1, 2, G);
            bench_estimate(&b, &fwd, 1, 2, b.g);
            assert_true(hdo__distsq(d, b.g, G) < 1e-10 * hdo__sumsq(d, G));
            for (size_t j = 0; j < d; j++) assert_true(!hdo__all_inside(b.f->idle, j, 1) || G[j] == 0.0f);
        }
    for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
        check_moments(&b, "forward-law", 16, dir, N);
        check_moments(&b, "forward-sim", 4, dir, N);
        check_moments(&b, "fd-central", 4, dir, N);
    }
    for (int i = 0; hdo__estimators[i] != NULL; i++) {
        hdo_estimator s = bench_estimator(hdo__estimators[i]->name, 3, 1e-3);
        if (s.ops->axes || hdo__estimator_check(&s, b.f, "zo", NULL) != HDO_OK) continue;
        bench_estimate(&b, &s, 1, 2, G);
        for (size_t j = 0; j < d; j++) b.x[j] += hdo__all_inside(b.f->idle, j, 1) ? 1.0f : 0.0f;
        bench_estimate(&b, &s, 1, 2, b.g);
        assert_memory_equal(G, b.g, d * sizeof *G);
    }
    free(G);
    bench_clear(&b);
}

/* Large rv costs no memory; any number of threads gives the same bits. */
static void test_network_memory_and_threads(void **state) {
    (void)state;
    bench b;
    bench_network(&b, "cnn2");
    static const char *const names[] = {"fd", "forward", "forward-sim", "forward-law", "complex-step"};
    size_t d = b.f->d;
    float *G = bench_get(d * sizeof *G);
    for (int i = 0; i < 5; i++) {
        size_t high[2];
        for (int k = 0; k < 2; k++) {
            hdo_estimator s = bench_estimator(names[i], k == 0 ? 16 : 300, 1e-4);
            hdo_team team;
            assert_int_equal(hdo__team_init(&team, 1, hdo__estimator_work_bytes(&s, b.f, 4)), HDO_OK);
            b.w = (hdo_work){&team.arena[0], &team, 0};
            bench_estimate(&b, &s, 1, 2, b.g);
            high[k] = team.arena[0].high;
            hdo__team_clear(&team);
        }
        print_message("cnn2 %-12s scratch %zu bytes at rv 16, %zu at rv 300\n", names[i], high[0], high[1]);
        assert_int_equal(high[0], high[1]);
        hdo_estimator s = bench_estimator(names[i], 20, 1e-4);
        for (int threads = 1; threads <= 3; threads++) {
            hdo_team team;
            assert_int_equal(hdo__team_init(&team, threads, hdo__estimator_work_bytes(&s, b.f, 4)), HDO_OK);
            b.w = (hdo_work){&team.arena[0], &team, 0};
            bench_estimate(&b, &s, 1, 2, threads == 1 ? b.g : G);
            if (threads > 1) assert_memory_equal(b.g, G, d * sizeof *G);
            hdo__team_clear(&team);
        }
    }
    b.w = (hdo_work){&b.team.arena[0], &b.team, 0};
    free(G);
    bench_clear(&b);
}

/* ReLU and max-pool: complex-step must not slip through; allowed, it is the slope of the active piece, which is what
 * forward mode takes. */
static void test_network_complex_on_kinks(void **state) {
    (void)state;
    bench b;
    bench_network(&b, "cnn2");
    size_t d = b.f->d;
    float *G = bench_get(d * sizeof *G);
    hdo_estimator s = bench_estimator("complex-step", 2, 1e-8), forward = bench_estimator("forward", 2, 0.0);
    hdo_error e = {0};
    assert_int_equal(hdo__estimator_check(&s, b.f, "zo", &e), HDO_E_UNSUPPORTED);
    assert_string_equal(e.msg, "class 'zo': estimator 'complex-step' needs an analytic model, but 'cnn2' has a kink "
                               "(ReLU behind conv1); use forward, or take the slope of the active piece with "
                               "--allow-piecewise (population.zo.allow_piecewise: true)");
    s.allow_piecewise = true;
    assert_int_equal(hdo__estimator_check(&s, b.f, "zo", &e), HDO_OK);
    bench_estimate(&b, &s, 1, 2, b.g);
    bench_estimate(&b, &forward, 1, 2, G);
    assert_true(sqrt(hdo__distsq(d, b.g, G) / hdo__sumsq(d, G)) < 1e-5);
    free(G);
    bench_clear(&b);
}

/* An analytic network: unbiased with the variance of forward mode, equal to it on the same directions for any small
 * nu, off by nu^2 for a large one; with batch-norm its buffers move as in the other estimators. */
static void test_network_complex_on_analytic(void **state) {
    (void)state;
    bench b;
    bench_custom(&b, "linear 6, gelu, linear 5, batchnorm, sigmoid, linear classes", 8, 3, 12);
    size_t d = b.f->d, row = d + b.f->n_buf;
    for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++)
        check_moments(&b, "complex-step", 4, dir, 20 * N);
    float *G = bench_get(row * sizeof *G);
    hdo_estimator forward = bench_estimator("forward", 5, 0.0);
    bench_estimate(&b, &forward, 1, 2, G);
    static const double steps[] = {1e-300, 1e-20, 1e-8, 1e-4, 0.02, 0.04};
    double off[6];
    for (int i = 0; i < 6; i++) {
        hdo_estimator s = bench_estimator("complex-step", 5, steps[i]);
        bench_estimate(&b, &s, 1, 2, b.g);
        off[i] = sqrt(hdo__distsq(d, b.g, G) / hdo__sumsq(d, G));
        print_message("custom complex-step nu %.0e: distance to forward %.1e\n", steps[i], off[i]);
        assert_true(i > 3 || off[i] < 1e-5);
        for (size_t k = d; k < row; k++) assert_true(fabs((double)b.g[k] - (double)G[k]) < 1e-6);
    }
    assert_true(off[5] / off[4] > 3.6 && off[5] / off[4] < 4.4);
    free(G);
    bench_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_network_moments),
        cmocka_unit_test(test_network_agreement),
        cmocka_unit_test(test_network_idle),
        cmocka_unit_test(test_network_memory_and_threads),
        cmocka_unit_test(test_network_complex_on_kinks),
        cmocka_unit_test(test_network_complex_on_analytic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
