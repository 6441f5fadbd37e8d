/* SPDX-License-Identifier: Apache-2.0
 *
 * Independence. Estimates of different nodes and of different steps are independent (correlations of projections and of
 * squared norms; score sqrt(n) rho); with per-tensor directions those of different tensors too, while one direction
 * over the whole vector ties them together. Shared streams: every node draws the same directions.
 */
#include "hdo/experimental/all.h"
#include "test_est_util.h"

enum { N = 20000 };

typedef struct pair_tally { /* for the correlation of two numbers */
    double n, ma, mb, aa, bb, ab;
} pair_tally;

static void pair_add(pair_tally *t, double a, double b) {
    t->n += 1.0;
    double da = a - t->ma, db = b - t->mb;
    t->ma += da / t->n;
    t->mb += db / t->n;
    t->aa += da * (a - t->ma);
    t->bb += db * (b - t->mb);
    t->ab += da * (b - t->mb);
}

/* Score of zero correlation. */
static double pair_z(const pair_tally *t) {
    return sqrt(t->n) * t->ab / sqrt(t->aa * t->bb);
}

/* Projections on w and squared norms of two streams of estimates. */
static void correlate(bench *b, const hdo_estimator *s, uint32_t next, int64_t lag, const float *w, double z[2]) {
    size_t d = b->f->d;
    float *G = bench_get(d * sizeof *G);
    pair_tally p = {0}, q = {0};
    for (int i = 0; i < N; i++) {
        bench_estimate(b, s, bench_node(s), i, b->g);
        bench_estimate(b, s, bench_node(s) + next, i + lag, G);
        pair_add(&p, hdo__dot(d, b->g, w), hdo__dot(d, G, w));
        pair_add(&q, hdo__sumsq(d, b->g), hdo__sumsq(d, G));
    }
    z[0] = pair_z(&p);
    z[1] = pair_z(&q);
    free(G);
}

static const char *const names[] = {"fd",          "fd-central",  "debiased", "forward",
                                    "forward-sim", "forward-law", "fd-law",   "complex-step"};
enum { N_NAMES = sizeof names / sizeof names[0] };

static void test_est_streams_independent(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 5, 2, 2, 0.0, false);
    float w[12];
    hdo__rng_normal(bench_stream(8), 0, b.f->d, w);
    for (int i = 0; i < N_NAMES; i++) {
        hdo_estimator s = bench_estimator(names[i], 2, 1e-3);
        double nodes[2], steps[2];
        correlate(&b, &s, 1, 0, w, nodes);
        correlate(&b, &s, 0, 1, w, steps);
        print_message("%-12s between nodes z %+.2f (projection) %+.2f (norm); between steps %+.2f %+.2f\n", names[i],
                      nodes[0], nodes[1], steps[0], steps[1]);
        for (int k = 0; k < 2; k++) assert_true(fabs(nodes[k]) < Z_MAX && fabs(steps[k]) < Z_MAX);
    }
    bench_clear(&b);
}

/* Between tensors: per-tensor directions give independent tensors; with one direction for all they are correlated. */
static void test_est_streams_tensors(void **state) {
    (void)state;
    static const char *const tensor_names[] = {"fd-central", "forward-sim", "forward-law", "debiased"};
    bench b;
    bench_poly(&b);
    for (int i = 0; i < 4; i++) {
        double z[3];
        for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
            hdo_estimator s = bench_estimator(tensor_names[i], 2, 1e-3);
            s.directions = dir;
            pair_tally p = {0};
            for (int k = 0; k < N; k++) {
                bench_estimate(&b, &s, bench_node(&s), k, b.g);
                pair_add(&p, hdo__sumsq(4, b.g + 2), hdo__sumsq(6, b.g + 6));
            }
            z[dir] = pair_z(&p);
        }
        print_message("%-12s squared norms of two tensors: whole z %+.1f, per-tensor z %+.2f\n", tensor_names[i], z[1],
                      z[2]);
        assert_true(z[HDO_DIRECTIONS_WHOLE] > 20.0);
        assert_true(fabs(z[HDO_DIRECTIONS_PER_TENSOR]) < Z_MAX);
    }
    bench_clear(&b);
}

static void test_est_streams_shared(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 5, 2, 2, 0.0, false);
    size_t d = b.f->d, bytes = d * sizeof(float);
    float G[12];
    for (int i = 0; i < N_NAMES; i++) {
        hdo_estimator s = bench_estimator(names[i], 3, 1e-3);
        s.streams = HDO_STREAMS_SHARED;
        bench_estimate(&b, &s, 3, 7, b.g);
        bench_estimate(&b, &s, 4, 7, G);
        assert_memory_equal(b.g, G, bytes); /* same point, same batch, same directions */
        bench_estimate(&b, &s, 3, 8, G);
        assert_memory_not_equal(b.g, G, bytes); /* but other ones in the next step */
        s.streams = HDO_STREAMS_INDEPENDENT;
        bench_estimate(&b, &s, 3, 7, b.g);
        bench_estimate(&b, &s, 4, 7, G);
        assert_memory_not_equal(b.g, G, bytes);
    }
    bench_clear(&b);
}

/* In a run: nodes at one point with one gradient stay together to the bit with shared streams, otherwise no two do. */
static void test_est_streams_run(void **state) {
    (void)state;
    static const char *const estimators[] = {"fd", "fd-central", "debiased", "forward", "forward-sim", "forward-law"};
    hdo_config *c = bench_get(sizeof *c);
    for (int how = 0; how < 11; how++) { /* forward-law has no vectors to share */
        bool shared = how % 2 == 1;
        const char *const set[][2] = {{"model.name", "quadratic"},
                                      {"model.noise", "0"},
                                      {"mixing.kind", "none"},
                                      {"steps", "2"},
                                      {"population.zo.rv", "3"},
                                      {"population.zo.estimator", estimators[how / 2]},
                                      {"population.zo.streams", shared ? "shared" : "independent"}};
        hdo_error e = {0};
        hdo_config_default(c);
        for (size_t i = 0; i < sizeof set / sizeof set[0]; i++)
            assert_int_equal(hdo_config_set_from(c, set[i][0], set[i][1], HDO_FROM_FLAG, &e), HDO_OK);
        assert_int_equal(hdo_config_population(c, "4zo", &e), HDO_OK);
        hdo_run *r = NULL;
        hdo_stop why = HDO_RUNNING;
        if (hdo_run_create(&r, c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
        while (why == HDO_RUNNING) assert_int_equal(hdo_run_advance(r, 2, &why, &e), HDO_OK);
        for (int i = 1; i < 4; i++) {
            for (int j = 0; j < i; j++) {
                size_t d, alike = 0;
                const float *a = hdo_run_params(r, i, &d), *b = hdo_run_params(r, j, &d);
                for (size_t k = 0; k < d; k++) alike += a[k] == b[k];
                assert_true(shared ? alike == d : alike < d / 10);
            }
        }
        hdo_run_destroy(r);
    }
    free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_est_streams_independent),
        cmocka_unit_test(test_est_streams_tensors),
        cmocka_unit_test(test_est_streams_shared),
        cmocka_unit_test(test_est_streams_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
