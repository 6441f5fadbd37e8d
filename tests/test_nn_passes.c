/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes against each other (the complex one: test_nn_complex.c), on every model and on awkward networks: forward
 * mode = gradient times direction, many tangents = one by one, perturbed losses = looped losses, any number of threads
 * = the same bits, fast kernels = reference kernels, chunks = no chunks, and what a pass allocates (nothing).
 */
#include "nn_help.h"

#include "base/vec.h"

/* jvp against grad . u, relative to |g| |u| / sqrt(d), the size of a typical projection. */
static const double TOL_JVP = 1e-5;
/* Tangents in groups share matrix products with other shapes: float rounding of one projection. */
static const double TOL_MANY_TANGENTS = 2e-6;
/* The primal of forward mode runs through other kernels than the forward pass (attention): rounding of logits. */
static const double TOL_PRIMAL = 2e-6;
/* Tiled and untiled products round differently; where no tiles are used the bits are equal. */
static const double TOL_LOSS_MANY = 1e-6;
/* auto against ref: sums of up to 4608 products in float (auto) against double (ref), through the whole network. */
static const double TOL_KERNELS = 2e-5;

typedef struct model_row {
    const char *name;
    bool authors;
    int batch;
    double dropout;
} model_row;

static const model_row models[] = {
    {"logistic", false, 3, 0},      {"logistic", true, 5, 0},    {"mlp", false, 8, 0},      {"mlp", true, 8, 0},
    {"cnn2", false, 70, 0},         {"cnn2", true, 6, 0},        {"cnn3", false, 33, 0},    {"cnn3", true, 9, 0},
    {"transformer", false, 5, 0.1}, {"transformer", true, 2, 0}, {"resnet18", false, 6, 0},
};
enum { N_MODELS = sizeof models / sizeof models[0] };

static void open_row(nn_case *c, const model_row *m, int k, int threads) {
    nn_open_model(c, HDO_KERNELS_AUTO, m->name, m->authors, m->batch, m->dropout, k, threads);
}

static float *grad_of(nn_case *c, double *sum) {
    float *g = hdo__alloc(c->net->params.total * sizeof(float));
    hdo__net_grad(c->net, &c->s, c->x, &c->work, g, sum, NULL);
    return g;
}

/* <g, u_r> in double. */
static double along(const nn_case *c, const float *g, const hdo_dirs *u, int r) {
    size_t d = c->net->params.total;
    float *v = hdo__alloc(d * sizeof(float));
    hdo__dirs_fill(u, r, 0, d, v);
    double dot = hdo__dot(d, g, v);
    hdo__free(v);
    return dot;
}

static void check_jvp(nn_case *c, const char *name, int k) {
    hdo_dirs u = nn_dirs(c);
    double sum, sum_grad, slope[16], one;
    float *g = grad_of(c, &sum_grad);
    double size = sqrt(hdo__sumsq(c->net->params.total, g)); /* |g| |u| / sqrt(d) */
    hdo__net_jvp(c->net, &c->s, c->x, &u, 3, k, &c->work, &sum, slope, NULL);
    double off = fabs(sum - sum_grad) / (c->s.size + fabs(sum_grad));
    if (off > TOL_PRIMAL) print_error("%s: loss %.9g, grad says %.9g\n", name, sum, sum_grad);
    assert_true(off <= TOL_PRIMAL);
    for (int r = 0; r < k; r++) {
        double want = along(c, g, &u, 3 + r);
        if (!(fabs(slope[r] - want) <= TOL_JVP * size))
            print_error("%s: slope %d is %.9g, <g, u> %.9g, |g| %.3g\n", name, r, slope[r], want, size);
        assert_true(fabs(slope[r] - want) <= TOL_JVP * size);
        hdo__net_jvp(c->net, &c->s, c->x, &u, 3 + r, 1, &c->work, &sum, &one, NULL);
        assert_true(fabs(one - slope[r]) <= TOL_MANY_TANGENTS * size);
    }
    hdo__free(g);
}

static void test_nn_jvp_is_grad_times_u(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        nn_case c;
        open_row(&c, &models[i], 11, 1);
        check_jvp(&c, models[i].name, strcmp(models[i].name, "resnet18") == 0 ? 3 : 11);
        nn_close(&c);
    }
}

static void check_loss_many(nn_case *c, const char *name, int k) {
    hdo_dirs u = nn_dirs(c);
    size_t d = c->net->params.total, n_buf = c->net->buffers.total;
    float nu = 1e-3f, *y = hdo__alloc((d + n_buf) * sizeof(float));
    double sum[16], one;
    hdo__net_loss_many(c->net, &c->s, c->x, &u, 2, k, nu, &c->work, sum);
    memcpy(y + d, c->x + d, n_buf * sizeof(float));
    for (int r = 0; r < k; r++) {
        hdo__dirs_fill(&u, 2 + r, 0, d, y);
        hdo__axpby(d, 1.0f, c->x, nu, y);
        hdo__net_loss(c->net, &c->s, y, &c->work, &one, NULL, NULL);
        /* Written-out directions run the same chunks through the same kernels: equal bits. Networks that couple samples
         * may cut a single pass in pieces, large ones in tiles: rounding. */
        bool bits = c->net->small && !c->net->couples;
        if (bits ? one != sum[r] : relative(one, sum[r]) > TOL_LOSS_MANY)
            print_error("%s: loss %d is %.17g, looped %.17g\n", name, r, sum[r], one);
        assert_true(bits ? one == sum[r] : relative(one, sum[r]) <= TOL_LOSS_MANY);
        double alone;
        hdo__net_loss_many(c->net, &c->s, c->x, &u, 2 + r, 1, nu, &c->work, &alone);
        assert_true(relative(alone, sum[r]) <= TOL_LOSS_MANY);
    }
    hdo__free(y);
}

static void test_nn_loss_many_is_looped_loss(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        nn_case c;
        open_row(&c, &models[i], 7, 1);
        check_loss_many(&c, models[i].name, strcmp(models[i].name, "resnet18") == 0 ? 2 : 7);
        nn_close(&c);
    }
}

/* All passes with 1 and 2 threads, compared to the bit. */
typedef struct results {
    double loss, grad_loss, jvp_loss, slope[9], many[9], eval[3];
    int64_t correct[3];
    float *g, *stats, *jvp_stats;
} results;

static results all_passes(const model_row *m, int threads) {
    nn_case c;
    results r = {0};
    int k = strcmp(m->name, "resnet18") == 0 ? 3 : 9;
    open_row(&c, m, k, threads);
    hdo_dirs u = nn_dirs(&c);
    size_t d = c.net->params.total, n_buf = c.net->buffers.total, ld = d + n_buf;
    r.g = hdo__alloc(d * sizeof(float));
    r.stats = hdo__alloc((n_buf + 1) * sizeof(float));
    r.jvp_stats = hdo__alloc((n_buf + 1) * sizeof(float));
    float *X = hdo__alloc(3 * ld * sizeof(float));
    for (int i = 0; i < 3; i++) {
        memcpy(X + (size_t)i * ld, c.x, ld * sizeof(float));
        hdo__scale(d, 1.0f - 0.1f * (float)i, X + (size_t)i * ld);
    }
    size_t before = hdo__alloc_count();
    hdo__net_loss(c.net, &c.s, c.x, &c.work, &r.loss, NULL, NULL);
    hdo__net_grad(c.net, &c.s, c.x, &c.work, r.g, &r.grad_loss, r.stats);
    hdo__net_jvp(c.net, &c.s, c.x, &u, 0, k, &c.work, &r.jvp_loss, r.slope, r.jvp_stats);
    hdo__net_loss_many(c.net, &c.s, c.x, &u, 0, k, 1e-3f, &c.work, r.many);
    hdo__net_evaluate(c.net, &c.s, X, ld, 3, &c.work, r.eval, r.correct);
    assert_int_equal(hdo__alloc_count(), before); /* nothing in a pass allocates */
    hdo__free(X);
    nn_close(&c);
    return r;
}

static void test_nn_bits_do_not_depend_on_threads(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        results a = all_passes(&models[i], 1), b = all_passes(&models[i], 2);
        nn_case c;
        open_row(&c, &models[i], 1, 1);
        size_t d = c.net->params.total * sizeof(float), n_buf = c.net->buffers.total * sizeof(float);
        nn_close(&c);
        assert_memory_equal(a.g, b.g, d);
        assert_memory_equal(a.stats, b.stats, n_buf);
        assert_memory_equal(a.jvp_stats, b.jvp_stats, n_buf);
        assert_memory_equal(&a.loss, &b.loss, offsetof(results, g));
        assert_true(fabs(a.loss - a.grad_loss) <= TOL_PRIMAL * (models[i].batch + a.loss));
        for (float *p[] = {a.g, a.stats, a.jvp_stats, b.g, b.stats, b.jvp_stats}, **q = p; q < p + 6; q++)
            hdo__free(*q);
    }
}

/* Networks no model has: rectangular images, strides, odd sizes, residuals, average pool, custom token networks. */
static const nn_row odd[] = {
    {"linear 10", 1, 28, 28, 0, 10, 2},
    {"linear 1", 1, 1, 3, 0, 1, 4}, /* one class */
    {"linear 7, gelu, linear 5, sigmoid, linear 3", 1, 1, 13, 0, 3, 1},
    {"conv 5 3 stride 2 pad 1, relu, pool 3 stride 2 pad 1, conv 3 2, gelu, flatten, linear classes", 2, 17, 11, 0, 4,
     7},
    {"conv 4 1, save a, conv 4 3 pad 1, relu, conv 4 3 pad 1, add a, relu, avgpool, linear classes", 3, 9, 7, 0, 5, 5},
    {"conv 4 3 nobias, batchnorm, relu, conv 6 3 stride 2, batchnorm, avgpool, linear classes", 1, 12, 10, 0, 3, 4},
    {"conv 5 5 pad 2 stride 3, relu, conv 4 3 pad 1, gelu, linear classes", 3, 3, 2, 0, 4, 130},
    {"conv 300 3 stride 2 pad 1, batchnorm, relu, conv 6 3 pad 1, batchnorm, avgpool, linear classes", 2, 2, 2, 0, 3,
     6},
    {"linear 9, layernorm, gelu, dropout 0.3, linear classes", 1, 1, 6, 0, 4, 11},
    {"relu, linear 6, save s, linear 6, add s, relu, linear classes", 1, 1, 6, 0, 3, 3},
    {"linear 12, batchnorm, sigmoid, linear classes", 1, 1, 8, 0, 2, 1}, /* one sample through batch-norm */
    {"embed 6, position, save r, layernorm, linear 18, attention 3 dropout 0.2, linear 6, add r, gelu, flatten, "
     "linear classes",
     1, 1, 9, 5, 3, 4},
    {"embed 3, linear 4, relu, flatten, layernorm, linear classes", 1, 1, 5, 4, 2, 3},
    {"batchnorm, conv 2 3, relu, linear classes", 2, 5, 4, 0, 3, 4},
    {"layernorm, pool 2, linear classes", 1, 6, 4, 0, 3, 3},
    {"save i, linear 4, save m, load i, linear 4, add m, gelu, linear classes", 1, 1, 7, 0, 3, 5},
    {"sigmoid, dropout 0.5, linear classes", 1, 1, 9, 0, 3, 6},
    {"input: resize 9, conv 2 3 pad 1, relu, pool 2, linear classes", 1, 6, 6, 0, 3, 2},
};
enum { N_ODD = sizeof odd / sizeof odd[0] };

/* K models at once against one by one, sums of losses and counts. */
static void check_evaluate(nn_case *c, const char *name) {
    enum { K = 70 }; /* more than are taken at once */
    size_t d = c->net->params.total, ld = d + c->net->buffers.total;
    float *X = hdo__alloc(K * ld * sizeof(float));
    double sum[K] = {0}, one;
    int64_t correct[K] = {0}, n;
    hdo_net_samples s = c->s;
    s.train = false;
    for (int k = 0; k < K; k++) {
        memcpy(X + (size_t)k * ld, c->x, ld * sizeof(float));
        hdo__scale(d, 1.0f - 0.01f * (float)k, X + (size_t)k * ld);
    }
    hdo__net_evaluate(c->net, &c->s, X, ld, K, &c->work, sum, correct);
    for (int k = 0; k < K; k++) {
        hdo__net_loss(c->net, &s, X + (size_t)k * ld, &c->work, &one, &n, NULL);
        if (relative(sum[k], one) > TOL_LOSS_MANY)
            print_error("%s: model %d has %.9g, alone %.9g\n", name, k, sum[k], one);
        assert_true(relative(sum[k], one) <= TOL_LOSS_MANY);
        assert_int_equal(correct[k], n);
    }
    hdo__free(X);
}

static void test_nn_odd_networks(void **state) {
    (void)state;
    for (int i = 0; i < N_ODD; i++) {
        nn_case c;
        nn_open_row(&c, HDO_KERNELS_AUTO, &odd[i], 11, 2);
        check_jvp(&c, odd[i].text, 11);
        check_loss_many(&c, odd[i].text, 7);
        c.s.train = false; /* running statistics, no dropout */
        check_jvp(&c, odd[i].text, 11);
        check_loss_many(&c, odd[i].text, 7);
        check_evaluate(&c, odd[i].text);
        nn_close(&c);
    }
}

static void compare_kernels(nn_case *a, nn_case *b, const char *name) {
    double sa, sb;
    float *ga = grad_of(a, &sa), *gb = grad_of(b, &sb);
    size_t d = a->net->params.total;
    double size = sqrt(hdo__sumsq(d, gb)), off = sqrt(hdo__distsq(d, ga, gb));
    if (relative(sa, sb) > TOL_KERNELS || off > TOL_KERNELS * size)
        print_error("%s: loss %.9g and %.9g, gradients differ by %.2g of %.2g\n", name, sa, sb, off, size);
    assert_true(relative(sa, sb) <= TOL_KERNELS);
    assert_true(off <= TOL_KERNELS * size);
    hdo__free(ga);
    hdo__free(gb);
}

static void test_nn_auto_kernels_are_reference_kernels(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        nn_case a, b;
        model_row m = models[i];
        if (strcmp(m.name, "resnet18") == 0) continue; /* minutes on the reference; compared with torchvision instead */
        if (m.batch > 9) m.batch = 9;
        open_row(&a, &m, 1, 1);
        nn_open_model(&b, HDO_KERNELS_REF, m.name, m.authors, m.batch, m.dropout, 1, 1);
        compare_kernels(&a, &b, m.name);
        nn_close(&a);
        nn_close(&b);
    }
    for (int i = 0; i < N_ODD; i++) {
        nn_case a, b;
        nn_open_row(&a, HDO_KERNELS_AUTO, &odd[i], 11, 1);
        nn_open_row(&b, HDO_KERNELS_REF, &odd[i], 11, 1);
        compare_kernels(&a, &b, odd[i].text);
        nn_close(&a);
        nn_close(&b);
    }
}

/* Arenas of exactly the bytes that are asked for: too few would abort. Tile-wise perturbation too, which small networks
 * do not use by themselves. */
static void one_pass(const nn_row *o, int batch, int k, int threads, bool tiles) {
    for (int pass = HDO_PASS_LOSS; pass <= HDO_PASS_EVAL; pass++) {
        nn_row row = *o;
        nn_case c;
        row.batch = batch;
        nn_open_row(&c, HDO_KERNELS_AUTO, &row, 11, threads);
        if (tiles) {
            c.net->small = false;
            c.net->group = 2;
        }
        hdo_dirs u = nn_dirs(&c);
        size_t bytes = hdo__net_work_for(c.net, pass, batch, k);
        float *g = hdo__alloc(c.net->params.total * sizeof(float));
        double sum, out[16] = {0};
        int64_t correct[16] = {0};
        hdo__team_clear(&c.team);
        hdo__arena_clear(&c.arena);
        assert_int_equal(hdo__team_init(&c.team, threads, bytes), HDO_OK);
        assert_int_equal(hdo__arena_init(&c.arena, bytes), HDO_OK);
        c.work = (hdo_work){threads == 1 ? &c.team.arena[0] : &c.arena, &c.team, 0};
        for (int train = 0; train < 2; train++) {
            c.s.train = train;
            if (pass == HDO_PASS_LOSS) hdo__net_loss(c.net, &c.s, c.x, &c.work, &sum, NULL, NULL);
            if (pass == HDO_PASS_GRAD) hdo__net_grad(c.net, &c.s, c.x, &c.work, g, &sum, NULL);
            if (pass == HDO_PASS_JVP) hdo__net_jvp(c.net, &c.s, c.x, &u, 0, k, &c.work, &sum, out, NULL);
            if (pass == HDO_PASS_MANY) hdo__net_loss_many(c.net, &c.s, c.x, &u, 0, k, 1e-3f, &c.work, out);
            if (pass == HDO_PASS_EVAL)
                hdo__net_evaluate(c.net, &c.s, c.x, 0, k, &c.work, out, correct); /* the same model k times */
        }
        hdo__free(g);
        nn_close(&c);
    }
}

static void test_nn_work_bytes_suffice(void **state) {
    (void)state;
    static const int batches[] = {1, 2, 15, 16, 17, 65, 130};
    for (int i = 0; i < N_ODD; i++)
        for (int b = 0; b < 7; b++) {
            one_pass(&odd[i], batches[b], 1 + 2 * b, 1 + b % 2, false);
            one_pass(&odd[i], batches[b], 1 + 2 * b, 1 + b % 2, true);
        }
}

/* Tile by tile and written out are the same numbers. */
static void test_nn_tiles_are_written_out_directions(void **state) {
    (void)state;
    for (int i = 0; i < N_ODD; i++) {
        nn_case c;
        double a[5], b[5], ja[5], jb[5], sum;
        nn_open_row(&c, HDO_KERNELS_AUTO, &odd[i], 11, 1);
        hdo_dirs u = nn_dirs(&c);
        hdo__net_loss_many(c.net, &c.s, c.x, &u, 1, 5, 1e-2f, &c.work, a);
        hdo__net_jvp(c.net, &c.s, c.x, &u, 1, 5, &c.work, &sum, ja, NULL);
        c.net->small = false;
        c.net->group = 2;
        size_t bytes = hdo__net_work(c.net, odd[i].batch, 5);
        hdo__team_clear(&c.team);
        assert_int_equal(hdo__team_init(&c.team, 1, bytes), HDO_OK);
        c.work.arena = &c.team.arena[0];
        hdo__net_loss_many(c.net, &c.s, c.x, &u, 1, 5, 1e-2f, &c.work, b);
        hdo__net_jvp(c.net, &c.s, c.x, &u, 1, 5, &c.work, &sum, jb, NULL);
        for (int r = 0; r < 5; r++) {
            assert_true(relative(a[r], b[r]) <= TOL_LOSS_MANY);
            assert_true(fabs(ja[r] - jb[r]) <= 1e-5 * (1.0 + fabs(ja[r])));
        }
        nn_close(&c);
    }
}

/* A batch of one, every model. */
static void test_nn_batch_of_one(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        model_row m = models[i];
        nn_case c;
        m.batch = 1;
        if (strcmp(m.name, "resnet18") == 0)
            continue; /* one value a channel in the last block: xh is 0, nothing flows */
        open_row(&c, &m, 3, 1);
        check_jvp(&c, m.name, 3);
        check_loss_many(&c, m.name, 3);
        nn_close(&c);
    }
}

/* The mean over a batch does not depend on how it is cut: two halves against the whole (no batch-norm). */
static void test_nn_halves_add_up(void **state) {
    (void)state;
    nn_case c;
    nn_open_model(&c, HDO_KERNELS_AUTO, "cnn3", false, 90, 0, 1, 2);
    double all, a, b;
    hdo_net_samples lo = c.s, hi = c.s;
    lo.size = 41;
    hi.size = 49;
    hi.in += 41 * c.net->value[0].n;
    hi.label += 41;
    hdo__net_loss(c.net, &c.s, c.x, &c.work, &all, NULL, NULL);
    hdo__net_loss(c.net, &lo, c.x, &c.work, &a, NULL, NULL);
    hdo__net_loss(c.net, &hi, c.x, &c.work, &b, NULL, NULL);
    assert_true(relative(a + b, all) < 1e-6);
    nn_close(&c);
}

/* Dropout: the same batch gives the same masks, another step other masks; fresh masks differ between directions. */
static void test_nn_dropout_masks_are_addressed(void **state) {
    (void)state;
    nn_case c;
    nn_open_model(&c, HDO_KERNELS_AUTO, "transformer", false, 4, 0.1, 4, 1);
    hdo_dirs u = nn_dirs(&c);
    double a, b, many[4];
    hdo__net_loss(c.net, &c.s, c.x, &c.work, &a, NULL, NULL);
    hdo__net_loss(c.net, &c.s, c.x, &c.work, &b, NULL, NULL);
    assert_true(a == b);
    c.s.step++;
    hdo__net_loss(c.net, &c.s, c.x, &c.work, &b, NULL, NULL);
    assert_true(fabs(a - b) > 1e-6);
    c.s.step--;
    hdo__net_loss_many(c.net, &c.s, c.x, &u, 0, 4, 0.0f, &c.work, many); /* nu = 0: only masks can differ */
    for (int r = 0; r < 4; r++) assert_true(many[r] == a);
    c.net->fresh = true;
    hdo__net_loss_many(c.net, &c.s, c.x, &u, 0, 4, 0.0f, &c.work, many);
    assert_true(many[0] != many[1] && many[1] != many[2] && many[2] != many[3]);
    c.s.train = false;
    hdo__net_loss_many(c.net, &c.s, c.x, &u, 0, 2, 0.0f, &c.work, many);
    assert_true(many[0] == many[1]);
    nn_close(&c);
}

/* A NaN weight shows in the loss: divergence must not hide behind a ReLU or a max-pool. */
static void test_nn_nan_shows(void **state) {
    (void)state;
    const char *names[] = {"mlp", "cnn3", "transformer"};
    for (int i = 0; i < 3; i++) {
        nn_case c;
        double sum;
        nn_open_model(&c, HDO_KERNELS_AUTO, names[i], false, 4, 0, 1, 1);
        for (size_t j = 0; j < c.net->params.row[0].len; j++) c.x[j] = NAN;
        hdo__net_loss(c.net, &c.s, c.x, &c.work, &sum, NULL, NULL);
        assert_true(isnan(sum));
        nn_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nn_jvp_is_grad_times_u),
        cmocka_unit_test(test_nn_loss_many_is_looped_loss),
        cmocka_unit_test(test_nn_bits_do_not_depend_on_threads),
        cmocka_unit_test(test_nn_odd_networks),
        cmocka_unit_test(test_nn_auto_kernels_are_reference_kernels),
        cmocka_unit_test(test_nn_work_bytes_suffice),
        cmocka_unit_test(test_nn_tiles_are_written_out_directions),
        cmocka_unit_test(test_nn_batch_of_one),
        cmocka_unit_test(test_nn_halves_add_up),
        cmocka_unit_test(test_nn_dropout_masks_are_addressed),
        cmocka_unit_test(test_nn_nan_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
