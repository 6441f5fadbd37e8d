/* SPDX-License-Identifier: Apache-2.0
 *
 * model.train: networks of which a part is trained, held against the same network trained whole. Every pass over the
 * part must say what the whole model says at the joined point; its gradient is the trained part of the whole gradient.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h> /* wants the headers above first */

#include "base/vec.h"
#include "objective/network.h"
#include "objective/weights.h"

enum { B = 6, K = 5 };

typedef struct pair { /* one model, trained whole and in part */
    hdo_config config;
    hdo_dataset shape;
    hdo_objective *all, *part;
    float *model, *x, *joined, *g, *big; /* whole start, row, joined row, gradient of the part, of the whole */
    float *in;
    int32_t tok[B * 16], label[B];
    hdo_batch batch;
    hdo_team team;
    hdo_work w;
} pair;

static float *get(size_t n) {
    float *p = hdo__alloc((n + 1) * sizeof *p);
    assert_non_null(p);
    return p;
}

static hdo_objective *make(pair *p, const char *train) {
    hdo_objective *f = NULL;
    hdo_error e = {0};
    snprintf(p->config.model.train, sizeof p->config.model.train, "%s", train);
    hdo_objective_args a = {.config = &p->config, .train = &p->shape, .val = &p->shape, .n = 2};
    if (hdo__network_create(&a, &f, &e) != HDO_OK) fail_msg("%s: %s", train, e.msg);
    return f;
}

/* layers: of a custom network over (2, 6, 6) pictures, or 16 tokens of 6 kinds. */
static void open_pair(pair *p, const char *layers, const char *train, bool tokens, int threads) {
    memset(p, 0, sizeof *p);
    hdo_config_default(&p->config);
    strcpy(p->config.model.name, "custom");
    snprintf(p->config.model.layers, sizeof p->config.model.layers, "%s", layers);
    p->shape = (hdo_dataset){.count = 100, .n_in = 72, .shape = {2, 6, 6}, .classes = 4};
    if (tokens) p->shape = (hdo_dataset){.count = 100, .n_in = 16, .shape = {1, 1, 16}, .classes = 4, .vocab = 6};
    p->all = make(p, "all");
    p->part = make(p, train);
    assert_null(p->all->whole);
    assert_non_null(p->part->whole);
    assert_int_equal(p->part->whole->d, p->all->d);
    assert_true(p->part->d < p->all->d);
    size_t whole = p->all->d + p->all->n_buf, row = p->part->d + p->part->n_buf;
    p->model = get(whole);
    p->joined = get(whole);
    p->big = get(whole);
    p->x = get(row);
    p->g = get(row);
    p->in = get(B * 72);
    assert_int_equal(p->all->ops->init(p->all, 3, p->joined), HDO_OK);
    assert_int_equal(p->part->ops->init(p->part, 3, p->model), HDO_OK);
    assert_memory_equal(p->joined, p->model, whole * sizeof(float)); /* the same start */
    hdo__rng_normal(hdo__stream(1, HDO_RNG_DATA, 0, 0, 0), 0, whole, p->big);
    for (size_t i = 0; i < whole; i++) p->model[i] += 0.1f * fabsf(p->big[i]); /* running statistics are not 0 and 1 */
    p->part->ops->adopt(p->part, p->model);
    p->part->ops->part(p->part, 3, p->model, p->x);
    hdo__rng_normal(hdo__stream(2, HDO_RNG_DATA, 0, 0, 0), 0, row, p->g);
    for (size_t i = 0; i < p->part->d; i++) p->x[i] += 0.05f * p->g[i]; /* a node that has moved */
    p->part->ops->join(p->part, p->x, p->joined);
    hdo__rng_normal(hdo__stream(3, HDO_RNG_DATA, 0, 0, 0), 0, B * 72, p->in);
    for (int i = 0; i < B * 16; i++) p->tok[i] = (i * 7 + i / 5) % 6;
    for (int i = 0; i < B; i++) p->label[i] = i % 4;
    p->batch = (hdo_batch){.size = B, .label = p->label, .node = 1, .seed = 9, .step = 4, .train = true};
    p->batch.in = tokens ? NULL : p->in;
    p->batch.tok = tokens ? p->tok : NULL;
    size_t bytes = hdo__objective_work_bytes(p->part, B, K), more = hdo__objective_work_bytes(p->all, B, K);
    assert_int_equal(hdo__team_init(&p->team, threads, (bytes > more ? bytes : more) + (1 << 20)), HDO_OK);
    p->w = (hdo_work){.arena = &p->team.arena[0], .team = &p->team};
}

static void close_pair(pair *p) {
    hdo__objective_destroy(p->all);
    hdo__objective_destroy(p->part);
    float *all[] = {p->model, p->x, p->joined, p->g, p->big, p->in};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) hdo__free(all[i]);
    hdo__team_clear(&p->team);
}

static void near(double a, double b, double tolerance, const char *what) {
    if (!(fabs(a - b) <= tolerance * (1.0 + fabs(b)))) fail_msg("%s: %.9g instead of %.9g", what, a, b);
}

/* The whole-model coordinate of number j of a row, found by its tensor's name. */
static size_t whole_at(const pair *p, size_t j) {
    for (int t = 0; t < p->part->n_tensors; t++) {
        const hdo_tensor *m = &p->part->tensors[t];
        if (j < m->off || j >= m->off + m->len) continue;
        for (int k = 0; k < p->all->n_tensors; k++)
            if (strcmp(p->all->tensors[k].name, m->name) == 0) return p->all->tensors[k].off + j - m->off;
    }
    fail_msg("number %zu belongs to no tensor", j);
    return 0;
}

static hdo_dirs directions(const pair *p) {
    return (hdo_dirs){.s = hdo__stream(5, HDO_RNG_DIRECTION, 1, 2, 0),
                      .dist = HDO_DIST_GAUSSIAN,
                      .d = p->part->d,
                      .idle = p->part->idle};
}

/* Loss, gradient, forward mode, perturbed losses, evaluation. Not for frozen batch-norms in training. */
static void check_passes(pair *p) {
    const hdo_objective *f = p->part, *o = p->all;
    double loss, want, slope[K], many[K];
    assert_int_equal(o->ops->loss(o, &p->batch, p->joined, &p->w, &want, NULL), HDO_OK);
    assert_int_equal(f->ops->loss(f, &p->batch, p->x, &p->w, &loss, NULL), HDO_OK);
    near(loss, want, 1e-6, "loss");
    hdo__objective_grad(o, &p->batch, p->joined, &p->w, p->big, &want, NULL);
    hdo__objective_grad(f, &p->batch, p->x, &p->w, p->g, &loss, NULL);
    near(loss, want, 1e-6, "loss of the gradient");
    for (size_t j = 0; j < f->d; j++) near((double)p->g[j], (double)p->big[whole_at(p, j)], 2e-6, "gradient");
    hdo_dirs u = directions(p);
    float *dir = get(f->d + f->n_buf), *moved = get(o->d + o->n_buf);
    assert_int_equal(f->ops->jvp(f, &p->batch, p->x, &u, 0, K, &p->w, &loss, slope, NULL), HDO_OK);
    assert_int_equal(hdo__objective_loss_many(f, &p->batch, p->x, &u, 0, K, 0.01f, &p->w, many), HDO_OK);
    for (int r = 0; r < K; r++) {
        hdo__dirs_fill(&u, r, 0, f->d, dir);
        near(slope[r], hdo__dot(f->d, dir, p->g), 1e-5, "forward mode");
        for (size_t j = 0; j < f->d; j++) dir[j] = p->x[j] + 0.01f * dir[j];
        memcpy(dir + f->d, p->x + f->d, f->n_buf * sizeof(float));
        f->ops->join(f, dir, moved);
        assert_int_equal(o->ops->loss(o, &p->batch, moved, &p->w, &want, NULL), HDO_OK);
        near(many[r], want, 1e-6, "perturbed loss");
    }
    double sums[2] = {0.0, 0.0};
    int64_t right[2] = {0, 0};
    o->ops->evaluate(o, &p->batch, p->joined, o->d, 1, &p->w, &sums[0], &right[0]);
    f->ops->evaluate(f, &p->batch, p->x, f->d, 1, &p->w, &sums[1], &right[1]);
    near(sums[1], sums[0], 1e-6, "evaluation");
    assert_int_equal(right[0], right[1]);
    hdo__free(dir);
    hdo__free(moved);
}

static const struct {
    const char *layers, *train;
    bool tokens;
} cases[] = {
    {"a: linear 9, relu, b: linear 7, gelu, c: linear classes", "head", false},
    {"a: linear 9, relu, b: linear 7, gelu, c: linear classes", "b.*", false},
    {"a: linear 9, relu, b: linear 7, gelu, c: linear classes", "*.bias", false},
    {"a: linear 9, relu, b: linear 7, gelu, c: linear classes", "a.weight, c.bias", false},
    {"a: conv 3 3 pad 1, relu, b: conv 4 3, gelu, pool 2, h: linear classes", "b.bias, h.*", false},
    {"a: conv 3 3 pad 1, relu, b: conv 4 3, gelu, pool 2, h: linear classes", "a.bias", false},
    {"a: conv 3 3 pad 1, relu, b: conv 4 3, gelu, pool 2, h: linear classes", "b.weight", false},
    {"a: conv 3 3 pad 1, save r, b: conv 3 3 pad 1, add r, relu, c: conv 4 3, h: linear classes", "c.*", false},
    {"a: conv 3 3 pad 1, save r, b: conv 3 3 pad 1, add r, relu, h: linear classes", "b.*", false},
    {"a: conv 3 3 pad 1, n: batchnorm, relu, b: conv 4 3, m: batchnorm, avgpool, h: linear classes", "n.*, m.weight",
     false},
    {"a: embed 4, p: position, save r, n: layernorm, b: linear 12, attention 2, c: linear 4, add r, flatten, h: linear "
     "classes",
     "p.*, c.*", true},
    {"a: embed 4, p: position, save r, n: layernorm, b: linear 12, attention 2, c: linear 4, add r, flatten, h: linear "
     "classes",
     "n.bias, h.*", true},
    {"a: embed 4, p: position, n: layernorm, dropout 0.3, flatten, h: linear classes", "h.*", true},
};

static void test_part_is_part_of_the_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            pair p;
            open_pair(&p, cases[i].layers, cases[i].train, cases[i].tokens, threads);
            check_passes(&p);
            assert_int_equal(hdo__objective_prepare(p.part, &p.batch, &p.w), HDO_OK); /* the front, run once */
            check_passes(&p);
            close_pair(&p);
        }
}

/* A batch-norm frozen whole is a fixed map: the loss in training is that of evaluation, samples do not meet, and the
 * gradient is the slope of that loss. */
static void test_frozen_batchnorm_is_fixed(void **state) {
    (void)state;
    pair p;
    open_pair(&p, "a: conv 3 3 pad 1, n: batchnorm, relu, b: conv 4 3, m: batchnorm, avgpool, h: linear classes",
              "b.*, h.*", false, 1);
    const hdo_objective *f = p.part, *o = p.all;
    double loss, want, sum = 0.0, slope[K];
    int64_t right = 0;
    assert_int_equal(f->n_buf, 0);
    o->ops->evaluate(o, &p.batch, p.joined, o->d, 1, &p.w, &sum, &right);
    f->ops->loss(f, &p.batch, p.x, &p.w, &loss, NULL);
    near(loss, sum / B, 1e-6, "loss with running statistics");
    o->ops->loss(o, &p.batch, p.joined, &p.w, &want, NULL);
    assert_true(fabs(want - loss) > 1e-3); /* with those of the batch it is another */
    hdo__objective_grad(f, &p.batch, p.x, &p.w, p.g, &loss, NULL);
    float *dir = get(f->d), *up = get(f->d), *down = get(f->d);
    hdo_dirs u = directions(&p);
    f->ops->jvp(f, &p.batch, p.x, &u, 0, K, &p.w, &loss, slope, NULL);
    for (int r = 0; r < K; r++) {
        double a, b;
        hdo__dirs_fill(&u, r, 0, f->d, dir);
        for (size_t j = 0; j < f->d; j++) {
            up[j] = p.x[j] + 2e-3f * dir[j];
            down[j] = p.x[j] - 2e-3f * dir[j];
        }
        f->ops->loss(f, &p.batch, up, &p.w, &a, NULL);
        f->ops->loss(f, &p.batch, down, &p.w, &b, NULL);
        near(hdo__dot(f->d, dir, p.g), (a - b) / 4e-3, 2e-3, "gradient against differences");
        near(slope[r], hdo__dot(f->d, dir, p.g), 1e-5, "forward mode");
    }
    hdo__free(dir);
    hdo__free(up);
    hdo__free(down);
    close_pair(&p);
}

/* lora and scales: at the start the model is what it was; afterwards every pass says what the joined model says, and
 * the gradient is the slope of the loss in A, B and c. */
static void check_adapter(const char *layers, const char *train, bool tokens, size_t d) {
    pair p;
    open_pair(&p, layers, train, tokens, 2);
    const hdo_objective *f = p.part, *o = p.all;
    double loss, want, slope[K], many[K], a, b;
    assert_int_equal(f->d, d);
    float *start = get(f->d + f->n_buf), *dir = get(f->d + f->n_buf), *moved = get(o->d + o->n_buf);
    f->ops->part(f, 3, p.model, start);
    f->ops->join(f, start, moved);
    assert_memory_equal(moved, p.model, (o->d + o->n_buf) * sizeof(float)); /* B = 0, c = 1 */
    hdo__objective_grad(f, &p.batch, p.x, &p.w, p.g, &loss, NULL);
    o->ops->loss(o, &p.batch, p.joined, &p.w, &want, NULL);
    near(loss, want, 1e-6, "loss");
    hdo_dirs u = directions(&p);
    assert_int_equal(f->ops->jvp(f, &p.batch, p.x, &u, 0, K, &p.w, &loss, slope, NULL), HDO_OK);
    assert_int_equal(hdo__objective_loss_many(f, &p.batch, p.x, &u, 0, K, 0.01f, &p.w, many), HDO_OK);
    for (int r = 0; r < K; r++) {
        hdo__dirs_fill(&u, r, 0, f->d, dir);
        near(slope[r], hdo__dot(f->d, dir, p.g), 1e-5, "forward mode");
        for (int side = 0; side < 2; side++) {
            hdo__dirs_fill(&u, r, 0, f->d, start);
            for (size_t j = 0; j < f->d; j++) start[j] = p.x[j] + (side == 0 ? 2e-3f : -2e-3f) * start[j];
            f->ops->loss(f, &p.batch, start, &p.w, side == 0 ? &a : &b, NULL);
        }
        near(slope[r], (a - b) / 4e-3, 3e-3, "forward mode against differences");
        for (size_t j = 0; j < f->d; j++) dir[j] = p.x[j] + 0.01f * dir[j];
        f->ops->join(f, dir, moved);
        o->ops->loss(o, &p.batch, moved, &p.w, &want, NULL);
        near(many[r], want, 1e-6, "perturbed loss");
    }
    double sums[2] = {0.0, 0.0};
    int64_t right[2] = {0, 0};
    o->ops->evaluate(o, &p.batch, p.joined, o->d, 1, &p.w, &sums[0], &right[0]);
    f->ops->evaluate(f, &p.batch, p.x, f->d, 1, &p.w, &sums[1], &right[1]);
    near(sums[1], sums[0], 1e-6, "evaluation");
    hdo__free(start);
    hdo__free(dir);
    hdo__free(moved);
    close_pair(&p);
}

static void test_adapters(void **state) {
    (void)state;
    static const char mlp[] = "a: linear 9, gelu, b: linear 7, gelu, c: linear classes";
    static const char conv[] = "a: conv 3 3 pad 1, gelu, b: conv 4 3 stride 2, gelu, h: linear classes";
    static const char small[] =
        "a: conv 5 4 stride 2, gelu, b: conv 4 5 pad 2, gelu, h: linear classes"; /* 2 x 2, 5 x 5 taps */
    static const char text[] =
        "a: embed 4, p: position, save r, n: layernorm, b: linear 12, attention 2, c: linear 4, add r, flatten, h: "
        "linear classes";
    check_adapter(mlp, "lora(2)", false, 2 * (72 + 9) + 2 * (9 + 7) + 2 * (7 + 4));
    check_adapter(mlp, "lora(3) b.weight, head", false, 3 * (9 + 7) + 32);
    check_adapter(mlp, "scales", false, 9 + 7 + 4);
    check_adapter(mlp, "scales b.weight, b.bias, lora(1) c.*", false, 7 + 7 + 7 + 4);
    check_adapter(conv, "lora(2) b.*, h.*", false, 2 * (27 + 4) + 4 * 16 + 4);
    check_adapter(conv, "scales *.weight", false, 3 + 4 + 4);
    check_adapter(small, "lora(2) b.*", false, 2 * (125 + 4));
    check_adapter(small, "scales b.*, h.bias", false, 8);
    check_adapter(text, "lora(1) b.*, lora(2) c.weight", true, 4 + 12 + 2 * (4 + 4));
}

/* Names as the common adapters have them, shapes as convolutions need them. */
static void test_adapter_names(void **state) {
    (void)state;
    pair p = {0};
    hdo_config_default(&p.config);
    strcpy(p.config.model.name, "resnet18");
    p.shape = (hdo_dataset){.count = 10, .n_in = 3072, .shape = {3, 32, 32}, .classes = 10};
    hdo_objective *f = make(&p, "lora(4) layer4.1.conv2.weight, fc.*");
    assert_int_equal(f->n_tensors, 4);
    assert_string_equal(f->tensors[0].name, "layer4.1.conv2.lora_A.weight");
    assert_string_equal(f->tensors[1].name, "layer4.1.conv2.lora_B.weight");
    assert_string_equal(f->tensors[2].name, "fc.weight");
    assert_int_equal(f->tensors[0].dim[0], 4);
    assert_int_equal(f->tensors[0].dim[1], 512);
    assert_int_equal(f->tensors[0].dim[3], 3);
    assert_int_equal(f->tensors[1].dim[0], 512);
    assert_int_equal(f->tensors[1].dim[1], 4);
    assert_int_equal(f->tensors[1].dim[2], 1);
    assert_int_equal(f->d, 4 * 4608 + 4 * 512 + 5130);
    assert_int_equal(hdo__objective_live(f), 4 * 512 + 4 * 512 + 5130); /* one of nine taps sees the picture */
    hdo__objective_destroy(f);
}

/* ResNet-18 with its head: 5130 numbers, no buffers, no idle taps. */
static void test_head_of_resnet(void **state) {
    (void)state;
    pair p = {0};
    hdo_config_default(&p.config);
    strcpy(p.config.model.name, "resnet18");
    p.shape = (hdo_dataset){.count = 10, .n_in = 3072, .shape = {3, 32, 32}, .classes = 10};
    static const struct {
        const char *train;
        size_t d, n_buf;
    } want[] = {{"head", 5130, 0}, {"fc.*", 5130, 0}, {"*bn*", 7808, 7808}, {"layer4.1.conv2.weight", 2359296, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        hdo_objective *f = make(&p, want[i].train);
        assert_int_equal(f->d, want[i].d);
        assert_int_equal(f->n_buf, want[i].n_buf);
        assert_int_equal(f->whole->d, 11181642);
        assert_int_equal(f->idle.n, i == 3 ? 1 : 0);
        hdo__objective_destroy(f);
    }
}

static void test_train_is_checked(void **state) {
    (void)state;
    pair p = {0};
    hdo_config_default(&p.config);
    strcpy(p.config.model.name, "mlp");
    p.shape = (hdo_dataset){.count = 10, .n_in = 4, .shape = {1, 2, 2}, .classes = 3};
    static const struct {
        const char *train, *says;
    } bad[] = {{"fd.*", "no tensor of the model matches 'fd.*'; its tensors are fc1.weight"},
               {"head,", "'' is not understood"},
               {"fc1.* fc2.*", "'fc1.* fc2.*' is not understood"},
               {"lora(0)", "'lora(0)' is not understood"},
               {"lora(2) *.bias", "no weight of a linear layer or convolution of the model matches '*.bias'"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hdo_objective *f = NULL;
        hdo_error e = {0};
        snprintf(p.config.model.train, sizeof p.config.model.train, "%s", bad[i].train);
        hdo_objective_args a = {.config = &p.config, .train = &p.shape, .val = &p.shape, .n = 2};
        assert_int_equal(hdo__network_create(&a, &f, &e), HDO_E_CONFIG);
        assert_null(f);
        if (strstr(e.msg, bad[i].says) == NULL) fail_msg("%s: %s", bad[i].train, e.msg);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_part_is_part_of_the_whole),
        cmocka_unit_test(test_frozen_batchnorm_is_fixed),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_adapter_names),
        cmocka_unit_test(test_head_of_resnet),
        cmocka_unit_test(test_train_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
