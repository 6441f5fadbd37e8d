/* SPDX-License-Identifier: Apache-2.0
 *
 * Directions of low rank: slices and factors are one and the same direction; E uu' = I; the mean and the second moment
 * of an estimate (docs/estimators.md); perturbed losses that share the products with x; sums over directions as
 * products.
 */
#include "test_est_util.h"

enum { DRAWS = 40000 };

static const hdo_tensor shapes[] = {
    {.name = "w", .off = 0, .len = 30, .n_dim = 2, .dim = {5, 6}},
    {.name = "b", .off = 30, .len = 5, .n_dim = 1, .dim = {5}},
    {.name = "c", .off = 35, .len = 4 * 2 * 9, .n_dim = 4, .dim = {4, 2, 3, 3}},
    {.name = "k", .off = 107, .len = 4 * 3 * 9, .n_dim = 4, .dim = {4, 3, 3, 3}, .split = {3, 3, 1, 1, 2, 2}},
    {.name = "s", .off = 215, .len = 4, .n_dim = 2, .dim = {2, 2}}}; /* too small for factors */
static const hdo_range idle[] = {{107 + 48, 215}};
enum { D = 219 };

static hdo_dirs low(int rank, uint64_t step) {
    return (hdo_dirs){.s = hdo__stream(3, HDO_RNG_DIRECTION, 1, step, 0),
                      .dist = HDO_DIST_GAUSSIAN,
                      .d = D,
                      .idle = {idle, 1},
                      .rank = rank,
                      .tensors = shapes,
                      .n_tensors = 5};
}

static void test_slices_and_factors(void **state) {
    (void)state;
    for (int rank = 1; rank <= 3; rank++) {
        hdo_dirs u = low(rank, 7);
        float all[D], part[D], a[64], b[64];
        hdo__dirs_fill(&u, 2, 0, D, all);
        for (size_t off = 0; off < D; off += 3)
            for (size_t len = 1; off + len <= D; len += 17) {
                hdo__dirs_fill(&u, 2, off, len, part);
                assert_memory_equal(part, all + off, len * sizeof(float)); /* the same bits, whatever the cut */
            }
        for (size_t j = idle[0].lo; j < idle[0].hi; j++) assert_true(all[j] == 0.0f);
        for (int t = 0; t < 5; t++) {
            int m, n;
            const hdo_tensor *w = hdo__dirs_matrix(&u, shapes[t].off, &m, &n);
            assert_int_equal(w != NULL, t == 0 ? rank <= 2 : t == 2 ? rank <= 3 : t == 3 ? rank <= 2 : false);
            if (w == NULL) continue;
            hdo__dirs_factors(&u, 2, w, a, b);
            for (int i = 0; i < m; i++)
                for (int j = 0; j < n; j++) {
                    double sum = 0.0;
                    for (int q = 0; q < rank; q++) sum += (double)a[q * m + i] * (double)b[q * n + j];
                    assert_true(fabs(sum - (double)all[w->off + (size_t)(i * n + j)]) < 1e-5);
                }
        }
    }
}

/* E u = 0, E u_i u_j = 1 or 0, over many draws; the largest of all scores. */
static void test_covariance(void **state) {
    (void)state;
    static const size_t some[] = {0, 1, 6, 7, 29, 30, 34, 35, 36, 53, 106, 107, 154, 215, 218};
    enum { N = sizeof some / sizeof *some };
    static double sum[N][N], sq[N][N];
    float u[D];
    for (int i = 0; i < DRAWS; i++) {
        hdo_dirs d = low(2, (uint64_t)i);
        hdo__dirs_fill(&d, 0, 0, D, u);
        for (size_t a = 0; a < N; a++)
            for (size_t b = 0; b < N; b++) {
                double v = (double)u[some[a]] * (double)u[some[b]];
                sum[a][b] += v;
                sq[a][b] += v * v;
            }
    }
    double most = 0.0;
    for (size_t a = 0; a < N; a++)
        for (size_t b = 0; b < N; b++) {
            double mean = sum[a][b] / DRAWS, var = sq[a][b] / DRAWS - mean * mean;
            double z = fabs(mean - (a == b ? 1.0 : 0.0)) / sqrt(var / DRAWS);
            most = z > most ? z : most;
        }
    print_message("covariance: largest score %.2f\n", most);
    assert_true(most < Z_MANY);
}

/* E|G|^2 = sum_l (1 + (d + 1 + k_l) / rv) |g_l|^2, k_l = 2 (m + n + 1) / rank for a matrix with factors. */
static void check_moments(bench *b, const char *name, int rank, int rv, int n) {
    hdo_estimator s = bench_estimator(name, rv, 1e-4);
    s.directions = HDO_DIRECTIONS_LOW_RANK;
    s.rank = rank;
    size_t d = b->f->d;
    float *g = bench_get(d * sizeof *g), *w = bench_get(d * sizeof *w);
    tally along = {0}, side = {0}, norm2 = {0};
    bench_gradient(b, g);
    hdo__rng_normal(bench_stream(9), 0, d, w);
    hdo_dirs u = {.rank = rank, .tensors = b->f->tensors, .n_tensors = b->f->n_tensors};
    double want = 0.0, plain = 0.0;
    for (int l = 0; l < b->f->n_tensors; l++) {
        const hdo_tensor *t = &b->f->tensors[l];
        int rows, cols;
        double k = hdo__dirs_matrix(&u, t->off, &rows, &cols) != NULL ? 2.0 * (rows + cols + 1) / rank : 0.0;
        want += (1.0 + ((double)d + 1.0 + k) / rv) * hdo__sumsq(t->len, g + t->off);
        plain += (1.0 + ((double)d + 1.0) / rv) * hdo__sumsq(t->len, g + t->off);
    }
    for (int i = 0; i < n; i++) {
        bench_estimate(b, &s, 40, i, b->g);
        tally_add(&along, hdo__dot(d, b->g, g));
        tally_add(&side, hdo__dot(d, b->g, w));
        tally_add(&norm2, hdo__sumsq(d, b->g));
    }
    double z[3] = {tally_z(&along, hdo__sumsq(d, g)), tally_z(&side, hdo__dot(d, g, w)), tally_z(&norm2, want)};
    print_message(
        "%-11s rank %d rv %d: z along g %+.2f, on a fixed vector %+.2f, second moment %+.2f (of plain %+.2f)\n", name,
        rank, rv, z[0], z[1], z[2], tally_z(&norm2, plain));
    for (int i = 0; i < 3; i++) assert_true(fabs(z[i]) < Z_MAX);
    if (rank == 1 && rv == 1) assert_true(fabs(tally_z(&norm2, plain)) > Z_MAX); /* the test sees the difference */
    free(g);
    free(w);
}

static void test_moments(void **state) {
    (void)state;
    bench b;
    bench_logistic(&b, 20, 6, 8, 0.0, false);
    check_moments(&b, "forward-sim", 1, 1, 60000);
    check_moments(&b, "forward-sim", 3, 1, 30000);
    check_moments(&b, "fd", 1, 4, 20000);
    check_moments(&b, "fd-central", 2, 2, 20000);
    bench_clear(&b);
    bench_custom(&b, "linear 9, gelu, linear classes", 12, 5, 6);
    check_moments(&b, "forward", 1, 2, 20000);
    bench_clear(&b);
}

/* Losses along factors, by either way through the network, are those at x + nu u written out. */
static void check_losses(const char *layers, const char *train, int C, int H, int W, int vocab, int rank, bool large) {
    enum { SIZE = 6, K = 11 };
    bench b;
    bench_config(&b, "custom");
    strcpy(b.config->model.layers, layers);
    strcpy(b.config->model.train, train);
    b.config->population[0].directions = (hdo_choice){HDO_DIRECTIONS_LOW_RANK, rank};
    b.shape = (hdo_dataset){.count = 9, .n_in = C * H * W, .shape = {C, H, W}, .classes = 4, .vocab = vocab};
    hdo_objective_args p = {.config = b.config, .train = &b.shape, .val = &b.shape, .n = 4};
    hdo_error e = {0};
    if (hdo__network_create(&p, &b.f, &e) != HDO_OK) fail_msg("%s", e.msg);
    if (large) ((hdo_net *)hdo__network_net(b.f))->small = false; /* as if it had more numbers */
    hdo_whole whole = hdo__objective_whole(b.f);
    size_t n_in = SIZE * (size_t)(C * H * W), n = whole.d + whole.n_buf, d = b.f->d;
    float *model = bench_get(n * sizeof(float)), *y = bench_get((d + b.f->n_buf) * sizeof(float));
    int32_t *tok = bench_get(n_in * sizeof *tok);
    b.in = bench_get(n_in * sizeof(float));
    hdo__rng_normal(bench_stream(2), 0, n_in, b.in);
    for (size_t i = 0; i < n_in && vocab > 0; i++) tok[i] = (int32_t)(i * 5 % (size_t)vocab);
    for (int i = 0; i < SIZE; i++) b.label[i] = i % 4;
    b.batch = (hdo_batch){.size = SIZE, .in = b.in, .label = b.label, .seed = 1, .train = true};
    if (vocab > 0) b.batch.tok = tok;
    bench_finish(&b, 0.0f);
    b.f->ops->init(b.f, 1, model);
    if (b.f->whole != NULL) {
        b.f->ops->adopt(b.f, model);
        b.f->ops->part(b.f, 1, model, b.x);
    } else {
        memcpy(b.x, model, n * sizeof(float));
    }
    hdo__team_clear(&b.team);
    for (int threads = 1; threads <= 2; threads++) {
        double loss[K], want;
        assert_int_equal(hdo__team_init(&b.team, threads, hdo__objective_work_bytes(b.f, SIZE, K)), HDO_OK);
        b.w = (hdo_work){.arena = &b.team.arena[0], .team = &b.team};
        hdo_dirs u = {.s = bench_stream(5), .dist = HDO_DIST_GAUSSIAN, .d = d, .idle = b.f->idle, .rank = rank};
        u.tensors = b.f->tensors;
        u.n_tensors = b.f->n_tensors;
        assert_int_equal(hdo__objective_loss_many(b.f, &b.batch, b.x, &u, 3, K, 0.05f, &b.w, loss), HDO_OK);
        for (int r = 0; r < K; r++) {
            hdo__dirs_fill(&u, 3 + r, 0, d, y);
            hdo__axpby(d, 1.0f, b.x, 0.05f, y);
            memcpy(y + d, b.x + d, b.f->n_buf * sizeof(float));
            assert_int_equal(b.f->ops->loss(b.f, &b.batch, y, &b.w, &want, NULL), HDO_OK);
            if (fabs(loss[r] - want) > 2e-6 * (1.0 + want))
                fail_msg("%s, %s: %.9g, %.9g", layers, train, loss[r], want);
        }
        if (threads == 1) hdo__team_clear(&b.team);
    }
    free(model);
    free(y);
    free(tok);
    bench_clear(&b);
}

static void test_losses_share_products(void **state) {
    (void)state;
    static const char conv[] =
        "a: conv 6 3 pad 1, relu, pool 2, b: conv 8 3 pad 1, gelu, flatten, c: linear 12, relu, h: linear classes";
    static const char norm[] = "a: conv 6 3 pad 1, n: batchnorm, relu, save r, b: conv 6 3 pad 1, m: batchnorm, add r, "
                               "relu, avgpool, h: linear classes";
    static const char text[] =
        "a: embed 4, p: position, save r, n: layernorm, b: linear 12, attention 2 dropout 0.2, c: "
        "linear 4, dropout 0.2, add r, flatten, h: linear classes";
    static const char cover[] = "a: conv 5 4 stride 2, relu, b: conv 9 5 pad 2, gelu, h: linear classes";
    for (int k = 0; k < 4; k++) {
        int rank = 1 + k / 2;
        bool large = k % 2 == 1;
        check_losses("linear 16, relu, linear 12, gelu, linear classes", "all", 1, 1, 20, 0, rank, large);
        check_losses(conv, "all", 2, 6, 6, 0, rank, large);
        check_losses(conv, "b.weight, h.*", 2, 6, 6, 0, rank, large);
        check_losses(conv, "a.*, c.bias", 2, 6, 6, 0, rank, large);
        check_losses(norm, "all", 2, 6, 6, 0, rank, large);
        check_losses(norm, "b.*", 2, 6, 6, 0, rank, large);
        check_losses(text, "all", 1, 1, 16, 6, rank, large);
        check_losses(cover, "all", 2, 6, 6, 0, rank, large);
    }
}

static void test_refused(void **state) {
    (void)state;
    bench b;
    bench_quadratic(&b, 10);
    static const char *const names[] = {"forward-law", "fd-coord"};
    for (int i = 0; i < 3; i++) {
        hdo_estimator s = bench_estimator(i < 2 ? names[i] : "fd", 4, 1e-3);
        hdo_error e = {0};
        s.directions = HDO_DIRECTIONS_LOW_RANK;
        s.rank = 1;
        if (i == 2) s.distribution = HDO_DIST_RADEMACHER;
        assert_int_equal(hdo__estimator_check(&s, b.f, "zo", &e), HDO_E_UNSUPPORTED);
        assert_non_null(strstr(e.msg, "directions are low-rank"));
    }
    bench_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_and_factors),    cmocka_unit_test(test_covariance), cmocka_unit_test(test_moments),
        cmocka_unit_test(test_losses_share_products), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
