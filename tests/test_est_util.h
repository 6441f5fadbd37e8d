/* SPDX-License-Identifier: Apache-2.0
 *
 * A bench for estimators: an objective, a point, a batch, and the statistics the tests share. Every seed is fixed: a
 * case that passes once passes always, until somebody changes bits. Limits are stated before looking:
 *
 *   Z_MAX   single scores (6e-5 two-sided)
 *   Z_MANY  the largest of many coordinates (7e-6 each)
 *   KS_MAX  sqrt(n m / (n + m)) D of a two-sample Kolmogorov-Smirnov test (1e-3)
 */
#ifndef HDO_TEST_EST_UTIL_H
#define HDO_TEST_EST_UTIL_H

/* clang-format off: cmocka wants these before itself */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"
#include "objective/network.h"
#include "objective/registry.h"

#define Z_MAX 4.0
#define Z_MANY 4.5
#define KS_MAX 1.95

enum { BENCH_BATCH_MAX = 64 };

typedef struct bench {
    hdo_config *config; /* on the heap: it is large */
    hdo_dataset shape;  /* only its sizes are used */
    hdo_objective *f;
    hdo_batch batch;
    float *x, *g, *in;
    int32_t label[BENCH_BATCH_MAX];
    hdo_team team;
    hdo_work w;
} bench;

static inline void *bench_get(size_t bytes) {
    void *p = calloc(1, bytes);
    assert_non_null(p);
    return p;
}

static inline hdo_stream bench_stream(uint32_t sub) {
    return hdo__stream(97, HDO_RNG_TEST, 1, 2, sub);
}

static inline void bench_finish(bench *b, float spread) {
    b->x = bench_get((b->f->d + b->f->n_buf) * sizeof(float));
    b->g = bench_get((b->f->d + b->f->n_buf) * sizeof(float));
    hdo__rng_normal(bench_stream(1), 0, b->f->d, b->x);
    hdo__scale(b->f->d, spread, b->x);
    assert_int_equal(hdo__team_init(&b->team, 1, (size_t)16 << 20), HDO_OK);
    b->w = (hdo_work){&b->team.arena[0], &b->team, 0};
}

static inline void bench_config(bench *b, const char *model) {
    *b = (bench){0};
    b->config = bench_get(sizeof *b->config);
    hdo_config_default(b->config);
    strcpy(b->config->model.name, model);
}

/* f = x'Hx/2, eigenvalues from L = 2 down to 0.2, no noise. */
static inline void bench_quadratic(bench *b, int d) {
    bench_config(b, "quadratic");
    b->config->model.dim = d;
    b->config->model.smoothness = 2.0;
    b->config->model.convexity = 0.2;
    b->config->model.noise = 0.0;
    hdo_objective_args p = {.config = b->config, .n = 4};
    assert_int_equal(hdo__quadratic_create(&p, &b->f, NULL), HDO_OK);
    b->batch = (hdo_batch){.size = 1, .node = 0, .seed = 1, .train = true};
    bench_finish(b, 0.5f);
}

/* Softmax regression on a random batch; two tensors. repeat: the second half of the batch repeats the first. */
static inline void bench_logistic(bench *b, int features, int classes, int size, double l2, bool repeat) {
    bench_config(b, l2 > 0.0 ? "logistic-l2" : "logistic");
    b->config->model.l2 = l2;
    b->shape = (hdo_dataset){.count = 1000, .n_in = features, .shape = {1, 1, features}, .classes = classes};
    hdo_objective_args p = {.config = b->config, .train = &b->shape, .val = &b->shape, .n = 4};
    assert_int_equal(hdo__logistic_create(&p, &b->f, NULL), HDO_OK);
    assert_true(size <= BENCH_BATCH_MAX);
    size_t row = (size_t)features;
    b->in = bench_get((size_t)size * row * sizeof(float));
    hdo__rng_normal(bench_stream(2), 0, (size_t)size * row, b->in);
    for (int i = 0; i < size; i++)
        b->label[i] = (int32_t)hdo__rng_below(bench_stream(3), (uint64_t)i, (uint64_t)classes);
    for (int i = size / 2; repeat && i < size; i++)
        memcpy(b->in + (size_t)i * row, b->in + (size_t)(i - size / 2) * row, row * 4);
    b->batch = (hdo_batch){.size = size, .in = b->in, .label = b->label, .node = 0, .seed = 1, .train = true};
    bench_finish(b, 0.2f);
}

/* A network of one's own on a random batch. */
static inline void bench_custom(bench *b, const char *layers, int features, int classes, int size) {
    bench_config(b, "custom");
    strcpy(b->config->model.layers, layers);
    b->shape = (hdo_dataset){.count = 1000, .n_in = features, .shape = {1, 1, features}, .classes = classes};
    hdo_objective_args p = {.config = b->config, .train = &b->shape, .val = &b->shape, .n = 4};
    hdo_error e = {0};
    if (hdo__network_create(&p, &b->f, &e) != HDO_OK) fail_msg("%s", e.msg);
    b->in = bench_get((size_t)size * (size_t)features * sizeof(float));
    hdo__rng_normal(bench_stream(2), 0, (size_t)size * (size_t)features, b->in);
    for (int i = 0; i < size; i++) b->label[i] = (int32_t)(i % classes);
    b->batch = (hdo_batch){.size = size, .in = b->in, .label = b->label, .node = 0, .seed = 1, .train = true};
    bench_finish(b, 0.5f);
}

/* ---- cubic plus quartic: F(x) = sum_j a_j x_j + b_j x_j^3 + c_j x_j^4, three tensors, only `loss` and `grad` ----
 * Finite differences are biased here, by exactly nu^2/2 F''' for Gaussian and nu^2/6 F''' for Rademacher directions. */
enum { POLY_D = 12 };
static const hdo_tensor poly_tensors[] = {
    {.name = "a", .off = 0, .len = 2}, {.name = "b", .off = 2, .len = 4}, {.name = "c", .off = 6, .len = 6}};

static inline double poly_coef(int power, size_t j) {
    return power == 1 ? 0.5 + 0.1 * (double)j : power == 3 ? 0.4 - 0.05 * (double)j : 0.1 + 0.02 * (double)j;
}
static inline double poly_third(size_t j, double x) {
    return 6.0 * poly_coef(3, j) + 24.0 * poly_coef(4, j) * x;
}

static inline hdo_status poly_loss(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w,
                                   double *loss, float *buf) {
    (void)b, (void)w, (void)buf;
    *loss = 0.0;
    for (size_t j = 0; j < f->d; j++) {
        double y = (double)x[j];
        *loss += poly_coef(1, j) * y + poly_coef(3, j) * y * y * y + poly_coef(4, j) * y * y * y * y;
    }
    return HDO_OK;
}
static inline hdo_status poly_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                                   double *loss, float *buf) {
    for (size_t j = 0; j < f->d; j++) {
        double y = (double)x[j];
        g[j] = (float)(poly_coef(1, j) + 3.0 * poly_coef(3, j) * y * y + 4.0 * poly_coef(4, j) * y * y * y);
    }
    return poly_loss(f, b, x, w, loss, buf);
}
static inline size_t poly_work_bytes(const hdo_objective *f, int batch, int k) {
    (void)f, (void)batch, (void)k;
    return 0;
}
static inline void poly_destroy(hdo_objective *f) {
    free(f);
}
static const hdo_objective_ops poly_ops = {
    .name = "poly", .destroy = poly_destroy, .work_bytes = poly_work_bytes, .loss = poly_loss, .grad = poly_grad};

static inline void bench_poly(bench *b) {
    bench_config(b, "quadratic");
    b->f = bench_get(sizeof *b->f);
    *b->f = (hdo_objective){.ops = &poly_ops, .d = POLY_D, .tensors = poly_tensors, .n_tensors = 3, .model = "poly"};
    b->batch = (hdo_batch){.size = 1, .seed = 1, .train = true};
    bench_finish(b, 0.3f);
}

static inline void bench_clear(bench *b) {
    hdo__objective_destroy(b->f);
    hdo__team_clear(&b->team);
    free(b->config);
    free(b->x);
    free(b->g);
    free(b->in);
}

/* ---- estimates ---- */

static inline hdo_estimator bench_estimator(const char *name, int rv, double nu) {
    const hdo_estimator_ops *ops = hdo__estimator_find(name);
    assert_non_null(ops);
    return (hdo_estimator){.ops = ops,
                           .rv = rv,
                           .nu = {HDO_NUMBER, nu},
                           .directions = HDO_DIRECTIONS_WHOLE,
                           .streams = HDO_STREAMS_INDEPENDENT,
                           .distribution = HDO_DIST_GAUSSIAN,
                           .levels = 4,
                           .ratio = 0.5};
}

static inline hdo_estimate_info bench_estimate(bench *b, const hdo_estimator *s, uint32_t node, int64_t step,
                                               float *g) {
    hdo_request q = {.batch = &b->batch, .x = b->x, .seed = 11, .node = node, .step = step, .eta = 0.1};
    hdo_estimate_info info = {0};
    assert_int_equal(hdo__estimate(s, b->f, &q, &b->w, g, &info), HDO_OK);
    return info;
}

static inline void bench_gradient(bench *b, float *g) {
    double loss;
    assert_int_equal(hdo__objective_grad(b->f, &b->batch, b->x, &b->w, g, &loss, NULL), HDO_OK);
}

/* ---- statistics ---- */

typedef struct tally { /* of one number */
    double n, mean, m2;
} tally;
static inline void tally_add(tally *t, double v) {
    double d = v - t->mean;
    t->n += 1.0;
    t->mean += d / t->n;
    t->m2 += d * (v - t->mean);
}
static inline double tally_se(const tally *t) {
    return sqrt(t->m2 / (t->n - 1.0) / t->n);
}
static inline double tally_z(const tally *t, double expected) {
    return (t->mean - expected) / tally_se(t);
}

typedef struct moments { /* of an estimator */
    double z_mean;       /* largest |z| of a coordinate of the mean */
    tally norm2;         /* |G|^2 */
    tally error2;        /* |G - expected|^2 */
} moments;

/* A node of its own for every estimator: their draws are then independent evidence. */
static inline uint32_t bench_node(const hdo_estimator *s) {
    unsigned h = 5;
    for (const char *c = s->ops->name; *c != '\0'; c++) h = h * 31u + (unsigned char)*c;
    return h & 0xffffu;
}

/* N estimates at steps 0 .. N-1, against an expected mean (d). */
static inline moments bench_moments(bench *b, const hdo_estimator *s, int N, const double *expected) {
    size_t d = b->f->d;
    tally *t = bench_get(d * sizeof *t);
    moments m = {0};
    for (int i = 0; i < N; i++) {
        bench_estimate(b, s, bench_node(s), i, b->g);
        double n2 = 0.0, e2 = 0.0;
        for (size_t j = 0; j < d; j++) {
            double v = (double)b->g[j];
            tally_add(&t[j], v);
            n2 += v * v;
            e2 += (v - expected[j]) * (v - expected[j]);
        }
        tally_add(&m.norm2, n2);
        tally_add(&m.error2, e2);
    }
    for (size_t j = 0; j < d; j++) m.z_mean = fmax(m.z_mean, fabs(tally_z(&t[j], expected[j])));
    free(t);
    return m;
}

static inline int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* sqrt(n m / (n + m)) sup |F - G|; sorts both. */
static inline double ks_two_sample(double *a, size_t n, double *b, size_t m) {
    qsort(a, n, sizeof *a, compare_doubles);
    qsort(b, m, sizeof *b, compare_doubles);
    double D = 0.0;
    for (size_t i = 0, j = 0; i < n && j < m;) {
        double v = a[i] < b[j] ? a[i] : b[j];
        while (i < n && a[i] <= v) i++;
        while (j < m && b[j] <= v) j++;
        D = fmax(D, fabs((double)i / (double)n - (double)j / (double)m));
    }
    return D * sqrt((double)n * (double)m / (double)(n + m));
}

#endif
