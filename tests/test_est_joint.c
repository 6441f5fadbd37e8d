/* SPDX-License-Identifier: Apache-2.0
 *
 * The joint law over nodes, and extreme gradients, for every estimator.
 *
 * The objective is linear, F(x) = g.x: every slope is exact, so an estimate is (1/rv) sum_r (u_r.g) u_r with vectors
 * that can be drawn here by themselves, and every node may have the gradient one likes.
 *
 * Over nodes. Estimators with literal vectors: G_i is compared with that sum, u_r addressed by the node (independent)
 * or by nobody (shared); so with shared streams mean_i G_i = S mean_i g_i with one S = (1/rv) sum_r u_r u_r'. All
 * estimators: the covariance of G_i and G_j is zero, entry by entry, |z| < Z_MANY.
 *
 * Extreme gradients. With e = G/|g|, ghat = g/|g| and h a unit vector inside one tile, m = h.ghat:
 *
 *     E e.ghat = 1,  E e.h = m,  E|e|^2 = 1 + (d + 1)/rv,  Cov(e.ghat, e.h) = 2m/rv,  Var e.h = (1 + m^2)/rv,
 *
 * whatever the size of g and of its tiles; |z| < Z_MAX each. And forward-law has the distribution of forward-sim,
 * fd-law that of fd (Kolmogorov-Smirnov).
 */

#include "test_est_util.h"

/* ---- F(x) = g.x ---- */

typedef struct line {
    hdo_objective f;
    const float *g;
} line;

static double line_slope(const hdo_objective *f, const hdo_dirs *u, int r) {
    float *v = bench_get(f->d * sizeof *v);
    hdo__dirs_fill(u, r, 0, f->d, v);
    double s = hdo__dot(f->d, v, ((const line *)f)->g);
    free(v);
    return s;
}
static hdo_status line_loss(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, double *loss,
                            float *buf) {
    (void)b, (void)w, (void)buf;
    *loss = hdo__dot(f->d, x, ((const line *)f)->g);
    return HDO_OK;
}
static hdo_status line_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                            double *loss, float *buf) {
    memcpy(g, ((const line *)f)->g, f->d * sizeof *g);
    return line_loss(f, b, x, w, loss, buf);
}
static hdo_status line_jvp(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                           int k, hdo_work *w, double *loss, double *dloss, float *buf) {
    for (int r = 0; r < k; r++) dloss[r] = line_slope(f, u, first + r);
    return line_loss(f, b, x, w, loss, buf);
}
static hdo_status line_complex(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                               int k, double nu, hdo_work *w, double *slope) {
    (void)b, (void)x, (void)w, (void)nu;
    for (int r = 0; r < k; r++) slope[r] = line_slope(f, u, first + r);
    return HDO_OK;
}
static size_t line_work_bytes(const hdo_objective *f, int batch, int k) {
    (void)batch, (void)k;
    return 4 * hdo__arena_round(f->d * sizeof(float));
}
static const hdo_objective_ops line_ops = {.name = "line",
                                           .destroy = poly_destroy,
                                           .work_bytes = line_work_bytes,
                                           .loss = line_loss,
                                           .grad = line_grad,
                                           .jvp = line_jvp,
                                           .complex_step = line_complex};

static void bench_line(bench *b, size_t d, const hdo_tensor *tensors, int n_tensors) {
    bench_config(b, "quadratic");
    line *l = bench_get(sizeof *l);
    l->f = (hdo_objective){.ops = &line_ops, .d = d, .tensors = tensors, .n_tensors = n_tensors, .model = "line"};
    b->f = &l->f;
    b->batch = (hdo_batch){.size = 1, .seed = 1, .train = true};
    bench_finish(b, 0.0f);
}

static void set_gradient(bench *b, const float *g) {
    ((line *)b->f)->g = g;
}

/* All that draw vectors; fd-law has its own problem below. */
static const char *const names[] = {"forward",      "forward-sim", "fd",         "fd-central",
                                    "complex-step", "debiased",    "forward-law"};
enum { N_NAMES = sizeof names / sizeof names[0], N_LITERAL = N_NAMES - 1 };

/* ---- over nodes ---- */

enum { D = 12, NODES = 5, RV = 3 };

/* (1/rv) sum_r (u_r.g) u_r, in double, from vectors at the address (seed, node, step, r). */
static void literal(const hdo_estimator *s, const hdo_objective *f, uint32_t node, int64_t step, const float *g,
                    double *out) {
    for (size_t j = 0; j < f->d; j++) out[j] = 0.0;
    bool whole = s->directions == HDO_DIRECTIONS_WHOLE;
    for (int r = 0; r < s->rv; r++) {
        float u[D];
        hdo_stream at = hdo__stream(11, HDO_RNG_DIRECTION, node, (uint64_t)step, (uint32_t)r);
        if (s->distribution == HDO_DIST_RADEMACHER) hdo__rng_rademacher(at, 0, D, u);
        if (s->distribution != HDO_DIST_RADEMACHER) hdo__rng_normal(at, 0, D, u);
        for (int t = 0; t < (whole ? 1 : f->n_tensors); t++) {
            size_t lo = whole ? 0 : f->tensors[t].off, len = whole ? f->d : f->tensors[t].len;
            double n2 = s->distribution == HDO_DIST_SPHERE ? (double)len / hdo__sumsq(len, u + lo) : 1.0;
            double slope = n2 * hdo__dot(len, u + lo, g + lo) / (double)s->rv;
            for (size_t j = lo; j < lo + len; j++) out[j] += slope * (double)u[j];
        }
    }
}

/* G_i - (1/rv) sum_r (u_r.g_i) u_r over |g|: float32 estimates of slopes that are exact but for nu u in float32. */
#define LITERAL_TOL 2e-5

static double literal_error(bench *b, const hdo_estimator *s, const float (*g)[D], bool shared) {
    double worst = 0.0, mean[D] = {0}, S_mean[D];
    float mean_g[D] = {0};
    for (uint32_t i = 0; i < NODES; i++) {
        double want[D];
        set_gradient(b, g[i]);
        bench_estimate(b, s, i, 7, b->g);
        literal(s, b->f, shared ? 0 : i, 7, g[i], want);
        for (size_t j = 0; j < D; j++) {
            worst = fmax(worst, fabs((double)b->g[j] - want[j]));
            mean[j] += (double)b->g[j] / NODES;
            mean_g[j] += g[i][j] / NODES;
        }
    }
    literal(s, b->f, 0, 7, mean_g, S_mean); /* mean_i G_i = S mean_i g_i: true for shared streams only */
    double off = 0.0;
    for (size_t j = 0; j < D; j++) off = fmax(off, fabs(mean[j] - S_mean[j]));
    if (shared) worst = fmax(worst, off);
    if (!shared) assert_true(off > 0.05);
    return worst;
}

static void test_est_joint_literal(void **state) {
    (void)state;
    bench b;
    bench_line(&b, D, poly_tensors, 3);
    float g[NODES][D];
    for (uint32_t i = 0; i < NODES; i++) hdo__rng_normal(bench_stream(20 + i), 0, D, g[i]);
    for (int n = 0; n < N_LITERAL; n++) {
        double worst = 0.0;
        for (int how = 0; how < 12; how++) {
            hdo_estimator s = bench_estimator(names[n], RV, 1e-3);
            s.streams = how % 2 == 0 ? HDO_STREAMS_SHARED : HDO_STREAMS_INDEPENDENT;
            s.directions = how / 2 % 2 == 0 ? HDO_DIRECTIONS_WHOLE : HDO_DIRECTIONS_PER_TENSOR;
            s.distribution = HDO_DIST_GAUSSIAN + how / 4;
            double off = literal_error(&b, &s, (const float(*)[D])g, s.streams == HDO_STREAMS_SHARED);
            if (!(off < LITERAL_TOL)) fail_msg("%s, case %d: off by %g", names[n], how, off);
            worst = fmax(worst, off);
        }
        print_message("%-12s equals its vectors, shared and independent, to %.1g\n", names[n], worst);
    }
    static const char *const fixed[] = {"fo", "fd-coord"}; /* no vectors: the gradient, whoever asks */
    for (int n = 0; n < 2; n++) {
        hdo_estimator s = bench_estimator(fixed[n], RV, 1e-3);
        for (uint32_t i = 0; i < NODES; i++) {
            set_gradient(&b, g[i]);
            bench_estimate(&b, &s, i, 7, b.g);
            for (size_t j = 0; j < D; j++) assert_true(fabsf(b.g[j] - g[i][j]) < (float)LITERAL_TOL);
        }
    }
    bench_clear(&b);
}

/* Largest score of Cov(G_i, G_j) = 0, 25 entries, of two nodes whose gradients (and means) are gi and gj. */
static double cross_covariance(bench *b, const hdo_estimator *s, const float *gi, const float *gj) {
    enum { E = 5, PAIRS = 6000 };
    bool linear = b->f->ops == &line_ops;
    tally t[E][E] = {0};
    float *G = bench_get(b->f->d * sizeof *G);
    for (int k = 0; k < PAIRS; k++) {
        if (linear) set_gradient(b, gi);
        bench_estimate(b, s, 1, k, b->g);
        if (linear) set_gradient(b, gj);
        bench_estimate(b, s, 2, k, G);
        for (int p = 0; p < E; p++)
            for (int q = 0; q < E; q++) tally_add(&t[p][q], (double)(b->g[p] - gi[p]) * (double)(G[q] - gj[q]));
    }
    double worst = 0.0;
    for (int p = 0; p < E; p++)
        for (int q = 0; q < E; q++) worst = fmax(worst, fabs(tally_z(&t[p][q], 0.0)));
    free(G);
    return worst;
}

static void test_est_joint_independent(void **state) {
    (void)state;
    bench b;
    bench_line(&b, D, poly_tensors, 3);
    float g[2][D];
    for (uint32_t i = 0; i < 2; i++) hdo__rng_normal(bench_stream(20 + i), 0, D, g[i]);
    for (int n = 0; n < N_NAMES; n++) {
        hdo_estimator s = bench_estimator(names[n], RV, 1e-3);
        double apart = cross_covariance(&b, &s, g[0], g[1]);
        s.streams = HDO_STREAMS_SHARED;
        double alike = cross_covariance(&b, &s, g[0], g[1]);
        print_message("%-12s covariance between two nodes, 25 entries: max|z| %.2f; shared streams %.1f\n", names[n],
                      apart, alike);
        assert_true(apart < Z_MANY);
        assert_true(alike > 10.0); /* the test has teeth */
    }
    bench_clear(&b);
    bench_logistic(&b, 5, 2, 2, 0.0, false); /* fd-law; its mean is the gradient, up to nu */
    float mean[D];
    bench_gradient(&b, mean);
    hdo_estimator s = bench_estimator("fd-law", RV, 1e-4);
    double worst = cross_covariance(&b, &s, mean, mean);
    print_message("%-12s covariance between two nodes, 25 entries: max|z| %.2f\n", "fd-law", worst);
    assert_true(worst < Z_MANY);
    bench_clear(&b);
}

/* ---- extreme gradients ---- */

enum { TILE = 2048, FAR_D = 2 * TILE + 64, DRAWS = 600 };
static const hdo_tensor far_tensors[] = {{.name = "a", .off = 0, .len = TILE},
                                         {.name = "b", .off = TILE, .len = TILE},
                                         {.name = "c", .off = (size_t)2 * TILE, .len = 64}};

typedef struct extreme {
    const char *what;
    float first, second, third; /* standard deviations of the three tiles */
    int hot;                    /* coordinate set to `value`; -1: none */
    float value;
} extreme;
static const extreme extremes[] = {
    {"order 1", 1.0f, 1.0f, 1.0f, -1, 0.0f},
    {"a tile of a fifth", 1.0f, 0.5f, 1.0f, -1, 0.0f},
    {"denormal tile beside 1", 1.0f, 1e-42f, 1.0f, -1, 0.0f},
    {"least tile beside 1e30", 1e30f, 0.0f, 1e30f, TILE + 5, 1.4e-45f},
    {"tile of 1e-30 beside 1", 1.0f, 1e-30f, 1.0f, -1, 0.0f},
    {"tile of 1e-14 beside 1", 1.0f, 1e-14f, 1.0f, -1, 0.0f},
    {"all denormal", 1e-40f, 1e-40f, 1e-40f, -1, 0.0f},
    {"all 1e-38", 1e-38f, 1e-38f, 1e-38f, -1, 0.0f},
    {"all 1e30", 1e30f, 1e30f, 1e30f, -1, 0.0f},
    {"zero tile", 1.0f, 0.0f, 1.0f, -1, 0.0f},
    {"one huge coordinate", 1.0f, 1.0f, 1.0f, 7, 1e30f},
    {"one-hot", 0.0f, 0.0f, 0.0f, TILE + 3, 1.0f},
};
enum { N_EXTREMES = sizeof extremes / sizeof extremes[0] };

static void make_extreme(const extreme *x, float *g) {
    const float sd[3] = {x->first, x->second, x->third};
    hdo__rng_normal(bench_stream(40), 0, FAR_D, g);
    for (int t = 0; t < 3; t++) hdo__scale(far_tensors[t].len, sd[t], g + far_tensors[t].off);
    if (x->hot >= 0) g[x->hot] = x->value;
}

/* v (len) -> unit vector in double, and |v|; a zero vector becomes its first axis, of length 1. */
static double unit(size_t len, const float *v, double *out) {
    double n = sqrt(hdo__sumsq(len, v));
    for (size_t j = 0; j < len; j++) out[j] = n > 0.0 ? (double)v[j] / n : j == 0 ? 1.0 : 0.0;
    return n > 0.0 ? n : 1.0;
}

static double project(size_t len, const float *G, const double *v, double scale) {
    double s = 0.0;
    for (size_t j = 0; j < len; j++) s += (double)G[j] / scale * v[j];
    return s;
}

/* Scores of the five moments. */
static void extreme_moments(bench *b, const hdo_estimator *s, const float *g, double z[5]) {
    double ghat[FAR_D], h[TILE], norm = unit(FAR_D, g, ghat), m = 0.0, rv = s->rv;
    unit(TILE, g + TILE, h);
    for (size_t j = 0; j < TILE; j++) m += h[j] * ghat[TILE + j];
    tally t[5] = {0};
    for (int k = 0; k < DRAWS; k++) {
        bench_estimate(b, s, bench_node(s), k, b->g);
        double n2 = 0.0;
        for (size_t j = 0; j < FAR_D; j++) {
            if (!isfinite(b->g[j])) fail_msg("%s: coordinate %zu is %g", s->ops->name, j, (double)b->g[j]);
            n2 += (double)b->g[j] / norm * ((double)b->g[j] / norm);
        }
        double along = project(FAR_D, b->g, ghat, norm), in = project(TILE, b->g + TILE, h, norm);
        tally_add(&t[0], along);
        tally_add(&t[1], in);
        tally_add(&t[2], n2);
        tally_add(&t[3], (along - 1.0) * (in - m));
        tally_add(&t[4], (in - m) * (in - m));
    }
    const double want[5] = {1.0, m, 1.0 + (FAR_D + 1.0) / rv, 2.0 * m / rv, (1.0 + m * m) / rv};
    for (int i = 0; i < 5; i++) z[i] = tally_z(&t[i], want[i]);
}

/* A function of FAR_D coordinates whose gradient is what the test writes into g. */
static float *far_open(bench *b) {
    bench_line(b, FAR_D, far_tensors, 3);
    float *g = bench_get(FAR_D * sizeof *g);
    set_gradient(b, g);
    return g;
}

static void test_est_extreme_moments(void **state) {
    (void)state;
    bench b;
    float *g = far_open(&b);
    for (int x = 0; x < N_EXTREMES; x++) {
        make_extreme(&extremes[x], g);
        for (int n = 0; n < N_NAMES; n++) {
            hdo_estimator s = bench_estimator(names[n], 3, 1e-3);
            double z[5], worst = 0.0;
            extreme_moments(&b, &s, g, z);
            for (int i = 0; i < 5; i++) worst = fmax(worst, fabs(z[i]));
            print_message("%-24s %-12s max|z| of 5 moments %.2f\n", extremes[x].what, names[n], worst);
            assert_true(worst < Z_MAX);
        }
    }
    free(g);
    bench_clear(&b);
}

/* g = 0: the estimate is zero, every number of it, for every estimator. */
static void test_est_extreme_zero(void **state) {
    (void)state;
    bench b;
    float *g = far_open(&b);
    for (int how = 0; how < 2 * N_NAMES; how++) {
        hdo_estimator s = bench_estimator(names[how / 2], 3, 1e-3);
        s.directions = how % 2 == 0 ? HDO_DIRECTIONS_WHOLE : HDO_DIRECTIONS_PER_TENSOR;
        for (size_t j = 0; j < FAR_D; j++) b.g[j] = NAN;
        bench_estimate(&b, &s, 1, 1, b.g);
        for (size_t j = 0; j < FAR_D; j++) assert_true(b.g[j] == 0.0f);
    }
    free(g);
    bench_clear(&b);
}

/* A gradient that is not finite stays visible: the run must see that it diverged. */
static void test_est_extreme_nan(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY};
    bench b;
    float *g = far_open(&b);
    for (int how = 0; how < 2; how++) {
        make_extreme(&extremes[0], g);
        g[TILE + 9] = bad[how];
        for (int n = 0; n < N_NAMES; n++) {
            hdo_estimator s = bench_estimator(names[n], 3, 1e-3);
            bench_estimate(&b, &s, 1, 1, b.g);
            assert_true(!isfinite(hdo__sumsq(FAR_D, b.g)));
        }
    }
    free(g);
    bench_clear(&b);
}

/* ---- the two laws against the literal estimators ---- */

enum { KS_DRAWS = 3000, KS_STATS = 6 };

static void ks_collect(bench *b, const hdo_estimator *s, uint32_t node, const float *g, double *out) {
    size_t d = b->f->d, half = d / 2;
    double *ghat = bench_get(d * sizeof *ghat), *h = bench_get(half * sizeof *h), norm = unit(d, g, ghat);
    unit(half, g + half, h);
    for (int k = 0; k < KS_DRAWS; k++) {
        bench_estimate(b, s, node, k, b->g);
        double n2 = 0.0;
        for (size_t j = 0; j < d; j++) n2 += (double)b->g[j] / norm * ((double)b->g[j] / norm);
        const double v[KS_STATS] = {project(d, b->g, ghat, norm),
                                    project(half, b->g + half, h, norm),
                                    n2,
                                    (double)b->g[0],
                                    (double)b->g[half + 3],
                                    (double)b->g[d - 1]};
        for (int i = 0; i < KS_STATS; i++) out[i * KS_DRAWS + k] = v[i];
    }
    free(ghat);
    free(h);
}

static void compare_laws(bench *b, const char *what, const hdo_estimator *s, const hdo_estimator *t, const float *g) {
    double *a = bench_get(KS_STATS * KS_DRAWS * sizeof *a), *c = bench_get(KS_STATS * KS_DRAWS * sizeof *c),
           worst = 0.0;
    ks_collect(b, s, bench_node(s), g, a);
    ks_collect(b, t, 0x10000 + bench_node(s), g, c);
    for (int i = 0; i < KS_STATS * KS_DRAWS; i++) assert_true(isfinite(a[i]) && isfinite(c[i]));
    for (int i = 0; i < KS_STATS; i++)
        worst = fmax(worst, ks_two_sample(a + i * KS_DRAWS, KS_DRAWS, c + i * KS_DRAWS, KS_DRAWS));
    print_message("%-24s %s = %s: largest KS %.2f of %d\n", what, s->ops->name, t->ops->name, worst, KS_STATS);
    assert_true(worst < KS_MAX);
    free(a);
    free(c);
}

static void test_est_extreme_forward_law(void **state) {
    (void)state;
    bench b;
    float *g = far_open(&b);
    for (int x = 0; x < N_EXTREMES; x++) {
        make_extreme(&extremes[x], g);
        hdo_estimator law = bench_estimator("forward-law", 2, 0.0), sim = bench_estimator("forward-sim", 2, 0.0);
        compare_laws(&b, extremes[x].what, &sim, &law, g);
    }
    free(g);
    bench_clear(&b);
}

/* The class a sample is farthest from: a saturated softmax then has a slope. Or the nearest one: then it has none. x is
 * (3 classes, 6 features), 3 biases. */
static int32_t pick_class(const bench *b, int k, bool nearest) {
    int32_t least = 0;
    double z[3];
    for (size_t c = 0; c < 3; c++) {
        z[c] = (hdo__dot(6, b->in + 6 * k, b->x + 6 * c) + (double)b->x[18 + c]) * (nearest ? -1.0 : 1.0);
        least = z[c] < z[least] ? (int32_t)c : least;
    }
    return least;
}

/* Softmax regression with samples of very different size, and with logits so far apart that classes have probability 0
 * in double; changes of a logit up to e^10000. */
static void test_est_extreme_fd_law(void **state) {
    (void)state;
    static const struct {
        const char *what;
        float first, second, x;
        double nu;
        bool sure; /* the first sample is beyond doubt, so the slope is that of the second */
    } cases[] = {{"samples of 1 and 1", 1.0f, 1.0f, 1.0f, 1e-3, false},
                 {"samples of 1 and 1e8", 1.0f, 1e8f, 1e-8f, 1e-3, false},
                 {"a sure one of 1e8 and 1", 1e8f, 1.0f, 1.0f, 1e-3, true},
                 {"samples of 1e-15 and 1", 1e-15f, 1.0f, 1.0f, 1e-3, false},
                 {"samples of 1e8", 1e8f, 2e8f, 1.0f, 1e-3, false},
                 {"saturated classes", 1.0f, 1.0f, 4000.0f, 1e-1, false},
                 {"changes of 1e4", 1.0f, 1.0f, 1.0f, 1e4, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bench b;
        bench_logistic(&b, 6, 3, 2, 0.0, false);
        hdo__scale(6, cases[i].first, b.in);
        hdo__scale(6, cases[i].second, b.in + 6);
        hdo__scale(b.f->d, cases[i].x, b.x);
        for (int k = 0; k < 2; k++) b.label[k] = pick_class(&b, k, k == 0 && cases[i].sure);
        float g[64];
        assert_true(b.f->d <= 64);
        bench_gradient(&b, g);
        hdo_estimator fd = bench_estimator("fd", 2, cases[i].nu), law = bench_estimator("fd-law", 2, cases[i].nu);
        compare_laws(&b, cases[i].what, &fd, &law, g);
        bench_clear(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_est_joint_literal),   cmocka_unit_test(test_est_joint_independent),
        cmocka_unit_test(test_est_extreme_moments), cmocka_unit_test(test_est_extreme_zero),
        cmocka_unit_test(test_est_extreme_nan),     cmocka_unit_test(test_est_extreme_forward_law),
        cmocka_unit_test(test_est_extreme_fd_law),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
