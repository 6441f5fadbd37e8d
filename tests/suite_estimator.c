/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite: every registered estimator on every objective that can serve it. A new estimator is covered by
 * being in the registry.
 *
 *   the estimate is finite, x is untouched, the arena is back where it was and work_bytes was enough;
 *   same address, same bits; another node, step or seed, other bits (random estimators);
 *   passes are counted as the estimator's description says; the reported loss is that of the batch;
 *   averaged over many directions it points along the gradient.
 */
#include "test_est_util.h"

static void make_quadratic(bench *b) {
    bench_quadratic(b, 24);
}
static void make_logistic(bench *b) {
    bench_logistic(b, 10, 3, 5, 0.0, false);
}
static void make_logistic_l2(bench *b) {
    bench_logistic(b, 10, 3, 5, 0.1, false);
}
static void make_network(bench *b) {
    bench_custom(b, "linear 4, gelu, linear classes", 6, 3, 5);
}
static void make_idle(bench *b) { /* 46 of 75 weights of the convolution only ever meet padding */
    bench_custom(b, "conv 3 5 pad 2 stride 2, gelu, linear classes", 2, 3, 5);
    assert_int_equal(b->f->idle.n, 1);
}
static void make_poly(bench *b) {
    bench_poly(b);
}

static const struct {
    const char *name;
    void (*make)(bench *b);
} objectives[] = {{"quadratic", make_quadratic}, {"logistic", make_logistic}, {"logistic-l2", make_logistic_l2},
                  {"network", make_network},     {"idle", make_idle},         {"poly", make_poly}};

static int64_t expected_passes(const hdo_estimator *s, const hdo_objective *f) {
    int64_t blocks = s->directions == HDO_DIRECTIONS_PER_TENSOR ? f->n_tensors : 1, rv = s->rv * blocks;
    const char *n = s->ops->name;
    if (strcmp(n, "fd") == 0 || strcmp(n, "fd-law") == 0 || strcmp(n, "complex-step") == 0) return rv + 1;
    if (strcmp(n, "fd-central") == 0) return 2 * rv;
    if (strcmp(n, "fd-coord") == 0) return (int64_t)f->d + 1;
    if (strcmp(n, "debiased") == 0) return -1; /* random */
    return 0;
}

/* What a device makes of it, in forward passes: the weights of docs/metrics.md, stated here once more. */
static int64_t expected_cost(const hdo_estimator *s, const hdo_objective *f, const hdo_estimate_info *info) {
    int64_t blocks = s->directions == HDO_DIRECTIONS_PER_TENSOR ? f->n_tensors : 1, rv = s->rv * blocks;
    const char *n = s->ops->name;
    if (strcmp(n, "fo") == 0) return 3;
    if (strncmp(n, "forward", 7) == 0) return 2 * rv; /* also where a gradient simulates it */
    return strcmp(n, "complex-step") == 0 ? 4 * rv + 1 : info->forward;
}

static void check_one(bench *b, const hdo_estimator *s) {
    size_t d = b->f->d, bytes = d * sizeof(float);
    float *x = bench_get(bytes), *G = bench_get(bytes), *g = bench_get(bytes);
    hdo_arena a;
    hdo_estimator many = *s;
    many.rv = 1500;
    assert_int_equal(hdo__arena_init(&a, hdo__estimator_work_bytes(&many, b->f, b->batch.size)), HDO_OK);
    hdo_team team = {1, &a, 0};
    b->w = (hdo_work){&a, &team, 0};
    memcpy(x, b->x, bytes);
    hdo_request raw = {.batch = &b->batch, .x = b->x, .seed = 11, .node = 1, .step = 2, .eta = 0.1};
    hdo_estimate_info info = {0};
    for (size_t j = 0; j < d; j++) b->g[j] = NAN;
    assert_int_equal(s->ops->estimate(s, b->f, &raw, &b->w, b->g, &info), HDO_OK);
    for (size_t j = 0; j < d; j++) /* written wherever a loss depends on it */
        assert_true(isfinite(b->g[j]) || hdo__all_inside(b->f->idle, j, 1));
    info = bench_estimate(b, s, 1, 2, b->g);
    assert_true(a.high <= hdo__estimator_work_bytes(s, b->f, b->batch.size));
    assert_memory_equal(x, b->x, bytes);
    assert_int_equal(hdo__arena_mark(&a), 0);
    for (size_t j = 0; j < d; j++) assert_true(hdo__all_inside(b->f->idle, j, 1) ? b->g[j] == 0.0f : isfinite(b->g[j]));

    hdo_estimate_info again = bench_estimate(b, s, 1, 2, G);
    assert_memory_equal(G, b->g, bytes);
    assert_true(again.loss == info.loss);
    if (s->ops->zeroth && !s->ops->axes) {
        bench_estimate(b, s, 2, 2, G);
        assert_memory_not_equal(G, b->g, bytes);
        bench_estimate(b, s, 1, 3, G);
        assert_memory_not_equal(G, b->g, bytes);
        hdo_request q = {.batch = &b->batch, .x = b->x, .seed = 12, .node = 1, .step = 2, .eta = 0.1};
        assert_int_equal(hdo__estimate(s, b->f, &q, &b->w, G, &again), HDO_OK);
        assert_memory_not_equal(G, b->g, bytes);
    }

    double loss;
    assert_int_equal(b->f->ops->loss(b->f, &b->batch, b->x, &b->w, &loss, NULL), HDO_OK);
    assert_true(fabs(info.loss - loss) < 1e-4 * (1.0 + fabs(loss))); /* fd-central: to second order in nu */
    assert_int_equal(info.cost, expected_cost(s, b->f, &info));
    int64_t passes = expected_passes(s, b->f);
    if (passes >= 0) assert_int_equal(info.forward, passes);
    if (passes < 0) assert_in_range(info.forward, 2 * s->rv + 1, 3 * s->rv * b->f->n_tensors + 1);
    assert_int_equal(info.backward, (s->ops->needs & HDO_CAN_GRAD) != 0 ? 1 : 0);
    if (strcmp(s->ops->name, "forward") == 0)
        assert_int_equal(info.jvp, s->rv * (s->directions == HDO_DIRECTIONS_PER_TENSOR ? b->f->n_tensors : 1));

    bench_gradient(b, g);
    bench_estimate(b, &many, 1, 2, G);
    double cosine = hdo__dot(d, G, g) / sqrt(hdo__sumsq(d, G) * hdo__sumsq(d, g));
    assert_true(cosine > 0.95);
    b->w = (hdo_work){&b->team.arena[0], &b->team, 0};
    hdo__arena_clear(&a);
    free(x);
    free(G);
    free(g);
}

static void test_suite(void **state) {
    (void)state;
    int served = 0;
    for (size_t o = 0; o < sizeof objectives / sizeof objectives[0]; o++) {
        bench b;
        objectives[o].make(&b);
        for (int i = 0; hdo__estimators[i] != NULL; i++) {
            for (int dir = HDO_DIRECTIONS_WHOLE; dir <= HDO_DIRECTIONS_PER_TENSOR; dir++) {
                for (int dist = HDO_DIST_GAUSSIAN; dist <= HDO_DIST_RADEMACHER; dist++) {
                    hdo_estimator s = bench_estimator(hdo__estimators[i]->name, 3, 1e-3);
                    s.directions = dir;
                    s.distribution = dist;
                    hdo_error e = {0};
                    if (hdo__estimator_check(&s, b.f, "zo", &e) != HDO_OK) {
                        assert_true(strlen(e.msg) > 40); /* a sentence, not a code */
                        continue;
                    }
                    check_one(&b, &s);
                    served++;
                }
            }
        }
        bench_clear(&b);
    }
    print_message("%d combinations of estimator, objective, directions and distribution\n", served);
    assert_true(served > 120);
}

/* Every entry describes itself, names are unique, and a quadratic's estimators survive a zero gradient. */
static void test_registry(void **state) {
    (void)state;
    for (int i = 0; hdo__estimators[i] != NULL; i++) {
        const hdo_estimator_ops *ops = hdo__estimators[i];
        assert_true(ops->name != NULL && strlen(ops->help) > 20 && ops->needs != 0);
        assert_ptr_equal(hdo__estimator_find(ops->name), ops);
        const hdo_estimator_name *listed = hdo__estimator_named(ops->name);
        assert_non_null(listed);
        assert_true(listed->zeroth == ops->zeroth && (listed->vectors != NULL) == ops->gaussian);
        assert_string_equal(hdo_names("estimator")[i], ops->name);
        for (int k = 0; k < i; k++) assert_string_not_equal(ops->name, hdo__estimators[k]->name);
    }
    assert_null(hdo__estimator_find("fdd"));
    bench b;
    bench_quadratic(&b, 10);
    memset(b.x, 0, 10 * sizeof(float)); /* the minimiser */
    for (int i = 0; hdo__estimators[i] != NULL; i++) {
        hdo_estimator s = bench_estimator(hdo__estimators[i]->name, 2, 1e-4);
        if (hdo__estimator_check(&s, b.f, "zo", NULL) != HDO_OK) continue;
        bench_estimate(&b, &s, 0, 0, b.g);
        for (int j = 0; j < 10; j++) assert_true(fabs((double)b.g[j]) < 1e-2);
    }
    bench_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suite), cmocka_unit_test(test_registry)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
