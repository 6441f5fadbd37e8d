/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight files and the objective over a network: strict reading, round trips, loading by name with a report, heads for
 * other class counts, refusal of bad batches and configurations, numbers of parameters, initialisation.
 */
#include "nn_help.h"

#include <unistd.h>

#include "base/file.h"
#include "base/vec.h"
#include "objective/network.h"
#include "objective/weights.h"

/* ---- reading ---- */

static hdo_status parse(const char *header, const char *data, size_t n, hdo_tensors **t) {
    static unsigned char file[4096]; /* borrowed by *t until the next call */
    size_t h = strlen(header);
    for (unsigned i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)h >> (8 * i));
    memcpy(file + 8, header, h);
    memcpy(file + 8 + h, data, n);
    hdo_error e;
    return hdo_tensors_parse(t, file, 8 + h + n, &e);
}

static void test_nn_weights_good_files(void **state) {
    (void)state;
    hdo_tensors *t;
    float x[3];
    assert_int_equal(parse("{}", "", 0, &t), HDO_OK);
    assert_int_equal(hdo_tensors_count(t), 0);
    hdo_tensors_close(t);
    /* 0-dimensional, empty, several types, metadata, padding, any order in the header */
    assert_int_equal(parse("{\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[4,10]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                           "\"e\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                           "\"c\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[10,12]},"
                           "\"d\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[12,13]},"
                           "\"__metadata__\":{\"format\":\"pt\"}}   ",
                           "\0\0\x80\x3f\0\x3c\0\xc0\x01\0\x80\x3f\xfe", 13, &t),
                     HDO_OK);
    assert_int_equal(hdo_tensors_count(t), 5);
    assert_string_equal(hdo_tensors_at(t, 0)->name, "a");
    assert_string_equal(hdo_tensors_at(t, 1)->name, "e");
    assert_int_equal(hdo_tensors_read(t, 0, x), HDO_OK);
    assert_true(x[0] == 1.0f);
    assert_int_equal(hdo_tensors_read(t, hdo_tensors_find(t, "b"), x), HDO_OK);
    assert_true(x[0] == 1.0f && x[1] == -2.0f && x[2] == 0x1p-24f);
    assert_int_equal(hdo_tensors_read(t, hdo_tensors_find(t, "c"), x), HDO_OK);
    assert_true(x[0] == 1.0f);
    assert_int_equal(hdo_tensors_read(t, hdo_tensors_find(t, "d"), x), HDO_OK);
    assert_true(x[0] == -2.0f);
    assert_string_equal(hdo_tensors_note(t, "format"), "pt");
    assert_int_equal(hdo_tensors_find(t, "z"), -1);
    hdo_tensors_close(t);
}

static void test_nn_weights_bad_files(void **state) {
    (void)state;
    static const char *const bad[] = {
        " {}",
        "[]",
        "{",
        "{\"a\":1}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}",                                            /* no offsets */
        "{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}",                     /* dtype */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}",                     /* bounds */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",                     /* reversed */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",                     /* shape */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",                    /* negative */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}",                   /* no integer */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", /* overflow */
        "{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]}}",                     /* bytes at the end */
        "{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[2,4]}}",                     /* hole */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[2,4]}}", /* overlap */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",                  /* duplicate */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", /* nine dimensions */
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} x",               /* junk */
    };
    hdo_tensors *t;
    hdo_error e;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (parse(bad[i], "\0\0\0\0", 4, &t) == HDO_OK) print_error("accepted: %s\n", bad[i]);
        assert_int_equal(parse(bad[i], "\0\0\0\0", 4, &t), HDO_E_DATA);
        assert_null(t);
    }
    assert_int_equal(hdo_tensors_parse(&t, "\4\0\0", 3, &e), HDO_E_DATA);
    assert_int_equal(hdo_tensors_parse(&t, "\x10\0\0\0\0\0\0\0{}", 10, &e), HDO_E_DATA); /* cut off */
    assert_int_equal(hdo_tensors_parse(&t, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, &e),
                     HDO_E_DATA); /* absurd length */
    assert_int_equal(hdo_tensors_open(&t, "/nonexistent/file", &e), HDO_E_DATA);
}

/* ---- objectives ---- */

typedef struct fixture {
    hdo_config config;
    hdo_dataset data;
    hdo_objective_args problem;
} fixture;

static void set_up(fixture *f, const char *model, int reading, int C, int H, int W, int vocab, int classes) {
    memset(f, 0, sizeof *f);
    snprintf(f->config.model.name, sizeof f->config.model.name, "%s", model);
    f->config.model.reading.id = reading;
    f->config.model.init.id = HDO_INIT_PYTORCH;
    f->config.model.dropout_mask.id = HDO_MASK_SHARED;
    f->config.model.dropout = 0.1;
    f->config.model.input_size = 32;
    f->config.kernels.id = HDO_KERNELS_AUTO;
    f->data = (hdo_dataset){.n_in = C * H * W, .shape = {C, H, W}, .classes = classes, .vocab = vocab};
    f->problem = (hdo_objective_args){.config = &f->config, .train = &f->data, .val = &f->data, .n = 1};
}

static hdo_objective *make(fixture *f) {
    hdo_objective *o = NULL;
    hdo_error e = {0};
    hdo_status st = hdo__network_create(&f->problem, &o, &e);
    if (st != HDO_OK) print_error("%s\n", e.msg);
    assert_int_equal(st, HDO_OK);
    return o;
}

static void test_nn_network_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int reading, C, S;
        size_t d, n_buf;
    } want[] = {
        {"logistic", HDO_READING_TEXT, 1, 28, 7850, 0},        {"logistic", HDO_READING_AUTHORS, 1, 28, 7870, 20},
        {"mlp", HDO_READING_TEXT, 1, 28, 118282, 0},           {"mlp", HDO_READING_AUTHORS, 1, 28, 118814, 532},
        {"cnn2", HDO_READING_TEXT, 1, 28, 52258, 0},           {"cnn2", HDO_READING_AUTHORS, 1, 28, 404398, 324},
        {"cnn3", HDO_READING_TEXT, 1, 28, 69354, 0},           {"cnn3", HDO_READING_AUTHORS, 1, 28, 225166, 644},
        {"resnet18", HDO_READING_TEXT, 3, 32, 11181642, 9600},
    };
    fixture f;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        set_up(&f, want[i].name, want[i].reading, want[i].C, want[i].S, want[i].S, 0, 10);
        hdo_objective *o = make(&f);
        assert_int_equal(o->d, want[i].d);
        assert_int_equal(o->n_buf, want[i].n_buf);
        size_t at = 0;
        for (int t = 0; t < o->n_tensors; t++) { /* in order, no gaps */
            assert_int_equal(o->tensors[t].off, at);
            at += o->tensors[t].len;
        }
        assert_int_equal(at, o->d);
        hdo__free(NULL);
        o->ops->destroy(o);
    }
    set_up(&f, "transformer", HDO_READING_TEXT, 1, 1, 258, 6, 2);
    hdo_objective *o = make(&f);
    assert_int_equal(o->d, 3526);
    o->ops->destroy(o);
    set_up(&f, "custom", HDO_READING_TEXT, 1, 28, 28, 0, 10);
    strcpy(f.config.model.layers, "linear 10");
    o = make(&f);
    assert_int_equal(o->d, 7850);
    assert_string_equal(o->tensors[1].name, "0.bias");
    o->ops->destroy(o);
}

static void test_nn_network_refuses(void **state) {
    (void)state;
    static const struct {
        const char *model, *layers;
        int vocab;
    } bad[] = {
        {"custom", "", 0},
        {"custom", "linear 11", 0},
        {"custom", "linear", 0},
        {"custom", "linear 0", 0},
        {"custom", "conv 3 9 , linear classes", 0},
        {"custom", "relu", 0},
        {"custom", "linear 10, add x", 0},
        {"custom", "a: linear 5, a: linear classes", 0},
        {"custom", "linear 5, save q, linear classes, load q", 0},
        {"custom", "dropout 1.0, linear classes", 0},
        {"custom", "banana 3", 0},
        {"custom", ": linear classes", 0},
        {"custom", "embed 4, linear classes", 0},
        {"custom", "linear classes", 6},
        {"transformer", "", 0},
        {"mlp", "", 6},
        {"custom", "linear 5, save q, linear 6, linear classes, add q", 0},
        {"nonsense", "", 0},
        {"custom", "embed 4, attention 2, flatten, linear classes", 6},
        {"custom", "conv 4 3 pad 1 stride 0, linear classes", 0},
        {"custom", "pool 2 pad 2, linear classes", 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fixture f;
        hdo_objective *o;
        hdo_error e = {0};
        set_up(&f, bad[i].model, HDO_READING_TEXT, 1, 6, 6, bad[i].vocab, 10);
        snprintf(f.config.model.layers, sizeof f.config.model.layers, "%s", bad[i].layers);
        hdo_status st = hdo__network_create(&f.problem, &o, &e);
        if (st != HDO_E_CONFIG) print_error("accepted: %s %s\n", bad[i].model, bad[i].layers);
        assert_int_equal(st, HDO_E_CONFIG);
        assert_null(o);
        assert_true(strlen(e.msg) > 10);
    }
    /* batches */
    fixture f;
    set_up(&f, "mlp", HDO_READING_TEXT, 1, 2, 2, 0, 3);
    hdo_objective *o = make(&f);
    float *x = hdo__alloc(o->d * sizeof(float)), in[8] = {0};
    int32_t label[2] = {0, 2};
    double loss;
    hdo_team team;
    assert_int_equal(hdo__team_init(&team, 1, o->ops->work_bytes(o, 2, 1)), HDO_OK);
    hdo_work w = {&team.arena[0], &team, 0};
    hdo_batch b = {.size = 2, .in = in, .label = label, .train = true};
    assert_int_equal(o->ops->init(o, 1, x), HDO_OK);
    assert_int_equal(o->ops->loss(o, &b, x, &w, &loss, NULL), HDO_OK);
    b.size = 0; /* empty */
    assert_int_equal(o->ops->loss(o, &b, x, &w, &loss, NULL), HDO_E_DATA);
    assert_int_equal(o->ops->grad(o, &b, x, &w, x, &loss, NULL), HDO_E_DATA);
    b.size = 2;
    label[1] = 3; /* a class that does not exist */
    assert_int_equal(o->ops->loss(o, &b, x, &w, &loss, NULL), HDO_E_DATA);
    hdo__team_clear(&team);
    hdo__free(x);
    o->ops->destroy(o);
}

static void test_nn_network_init(void **state) {
    (void)state;
    fixture f;
    set_up(&f, "mlp", HDO_READING_TEXT, 1, 28, 28, 0, 10);
    hdo_objective *o = make(&f);
    float *x = hdo__alloc(o->d * sizeof(float)), *y = hdo__alloc(o->d * sizeof(float));
    o->ops->init(o, 1, x);
    o->ops->init(o, 1, y);
    assert_memory_equal(x, y, o->d * sizeof(float));
    o->ops->init(o, 2, y);
    assert_memory_not_equal(x, y, o->d * sizeof(float));
    /* fc1.weight: uniform in (-1/28, 1/28), variance bound^2 / 3 */
    size_t n = o->tensors[0].len;
    double top = 0, var = hdo__sumsq(n, x) / (double)n;
    for (size_t i = 0; i < n; i++) top = fabs((double)x[i]) > top ? fabs((double)x[i]) : top;
    assert_true(top < 1.0 / 28.0 && top > 0.999 / 28.0);
    assert_true(fabs(var * 3.0 * 784.0 - 1.0) < 0.02);
    o->ops->destroy(o);

    f.config.model.init.id = HDO_INIT_HE;
    o = make(&f);
    o->ops->init(o, 1, x);
    var = hdo__sumsq(n, x) / (double)n;
    assert_true(fabs(var * 784.0 / 2.0 - 1.0) < 0.02);
    for (size_t i = 0; i < o->tensors[1].len; i++) assert_true(x[o->tensors[1].off + i] == 0.0f);
    o->ops->destroy(o);
    hdo__free(x);
    hdo__free(y);
}

/* ---- files of models ---- */

#define TEMPORARY "/tmp/hdo_test_weights_XXXXXX"
static void make_temporary(char path[]) {
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

/* Live taps lie together in memory; the file has PyTorch's order. */
static void test_nn_weights_of_small_pictures(void **state) {
    (void)state;
    char path[] = TEMPORARY;
    make_temporary(path);
    fixture f;
    hdo_error e = {0};
    hdo_weights_report r;
    hdo_tensors *t;
    set_up(&f, "resnet18", HDO_READING_TEXT, 3, 32, 32, 0, 10);
    hdo_objective *o = make(&f);
    size_t ld = o->d + o->n_buf, idle = 0;
    for (int k = 0; k < o->idle.n; k++) idle += o->idle.at[k].hi - o->idle.at[k].lo;
    print_message("resnet18 at 32 x 32: %zu of %zu parameters meet padding only\n", idle, o->d);
    assert_int_equal(o->idle.n, 4);
    assert_int_equal(idle, 512 * 256 * 5 + 3 * 512 * 512 * 8);
    float *x = hdo__alloc(ld * sizeof(float)), *y = hdo__alloc(ld * sizeof(float));
    o->ops->init(o, 1, x);
    assert_int_equal(hdo__weights_save(o, x, NULL, path, &e), HDO_OK);
    assert_int_equal(hdo_tensors_open(&t, path, &e), HDO_OK);
    assert_int_equal(hdo__weights_load(o, t, 10, y, &r, &e), HDO_OK);
    assert_memory_equal(x, y, ld * sizeof(float));
    float *w = hdo__alloc(512 * 512 * 9 * sizeof(float));
    int k = hdo_tensors_find(t, "layer4.1.conv2.weight");
    assert_int_equal(hdo_tensors_read(t, k, w), HDO_OK);
    for (int i = 0; i < o->n_tensors; i++) {
        if (strcmp(o->tensors[i].name, "layer4.1.conv2.weight") != 0) continue;
        const float *s = x + o->tensors[i].off;
        for (size_t q = 0; q < 512 * 512; q++) assert_true(w[9 * q + 4] == s[q] && w[9 * q] == s[512 * 512 + 8 * q]);
    }
    hdo_tensors_close(t);
    unlink(path);
    hdo__free(w);
    hdo__free(x);
    hdo__free(y);
    hdo__objective_destroy(o);
}

static void test_nn_weights_round_trip_and_head(void **state) {
    (void)state;
    char path[] = TEMPORARY;
    make_temporary(path);
    fixture f;
    hdo_error e = {0};
    hdo_weights_report r;
    set_up(&f, "cnn2", HDO_READING_AUTHORS, 1, 28, 28, 0, 10);
    hdo_objective *o = make(&f);
    size_t ld = o->d + o->n_buf;
    float *x = hdo__alloc(ld * sizeof(float)), *y = hdo__alloc(ld * sizeof(float));
    const char *const notes[] = {"model", "cnn2", "seed", "1", NULL};
    o->ops->init(o, 1, x);
    for (size_t i = 0; i < o->n_buf; i++) x[o->d + i] = (float)i;
    assert_int_equal(hdo__weights_save(o, x, notes, path, &e), HDO_OK);
    o->ops->init(o, 2, y);
    hdo_tensors *t;
    assert_int_equal(hdo_tensors_open(&t, path, &e), HDO_OK);
    assert_string_equal(hdo_tensors_note(t, "model"), "cnn2");
    assert_int_equal(hdo_tensors_at(t, 0)->dim[0], 8);
    assert_int_equal(hdo__weights_load(o, t, 10, y, &r, &e), HDO_OK);
    assert_memory_equal(x, y, ld * sizeof(float));
    assert_int_equal(r.loaded, o->n_tensors + o->n_buffers);
    assert_int_equal(r.initialised + r.skipped, 0);
    assert_int_equal(r.numbers, ld);

    /* three classes: head and its batch-norm keep their values, the rest is loaded */
    fixture g;
    set_up(&g, "cnn2", HDO_READING_AUTHORS, 1, 28, 28, 0, 3);
    hdo_objective *o3 = make(&g);
    float *z = hdo__alloc((o3->d + o3->n_buf) * sizeof(float)), *z0 = hdo__alloc((o3->d + o3->n_buf) * sizeof(float));
    o3->ops->init(o3, 5, z);
    memcpy(z0, z, (o3->d + o3->n_buf) * sizeof(float));
    assert_int_equal(hdo__weights_load(o3, t, 3, z, &r, &e), HDO_OK);
    assert_int_equal(r.initialised, 6); /* fc2 weight, bias; bn4 weight, bias, mean, variance */
    assert_non_null(strstr(r.text, "fc2.weight (the file has 10 classes, the data 3)"));
    for (int i = 0; i < o3->n_tensors; i++) {
        const hdo_tensor *m = &o3->tensors[i];
        bool head = strncmp(m->name, "fc2", 3) == 0 || strncmp(m->name, "bn4", 3) == 0;
        assert_memory_equal(z + m->off, (head ? z0 : x) + m->off, (head ? m->len : m->len) * sizeof(float));
        if (head) break; /* offsets agree up to the head */
    }
    /* another model: shapes that do not fit are refused, and x stays as it is */
    fixture h;
    set_up(&h, "cnn2", HDO_READING_TEXT, 1, 28, 28, 0, 10);
    hdo_objective *ot = make(&h);
    memcpy(y, x, ot->d * sizeof(float));
    assert_int_equal(hdo__weights_load(ot, t, 10, y, &r, &e), HDO_E_DATA);
    assert_non_null(strstr(e.msg, "conv2.weight"));
    assert_memory_equal(x, y, ot->d * sizeof(float));
    ot->ops->destroy(ot);
    set_up(&h, "custom", HDO_READING_TEXT, 1, 28, 28, 0, 10);
    strcpy(h.config.model.layers, "linear 10");
    ot = make(&h);
    assert_int_equal(hdo__weights_load(ot, t, 10, y, &r, &e), HDO_E_DATA); /* not a single name */
    ot->ops->destroy(ot);
    hdo_tensors_close(t);
    unlink(path);
    o->ops->destroy(o);
    o3->ops->destroy(o3);
    hdo__free(x);
    hdo__free(y);
    hdo__free(z);
    hdo__free(z0);
}

/* ---- memory: a forward-only node needs a fraction of what back-propagation needs ---- */

static void test_nn_memory_of_passes(void **state) {
    (void)state;
    int B = 50;
    nn_case c;
    nn_open_model(&c, HDO_KERNELS_AUTO, "resnet18", false, B, 0, 2, 1);
    hdo_dirs u = nn_dirs(&c);
    hdo_arena *a = c.work.arena;
    float *g = hdo__alloc(c.net->params.total * sizeof(float));
    double sum, slope[2];
    hdo__net_grad(c.net, &c.s, c.x, &c.work, g, &sum, NULL);
    size_t grad = a->high;
    a->high = 0;
    hdo__net_loss(c.net, &c.s, c.x, &c.work, &sum, NULL, NULL);
    size_t loss = a->high;
    a->high = 0;
    hdo__net_loss_many(c.net, &c.s, c.x, &u, 0, 2, 1e-4f, &c.work, slope);
    size_t many = a->high;
    a->high = 0;
    hdo__net_jvp(c.net, &c.s, c.x, &u, 0, 2, &c.work, &sum, slope, NULL);
    size_t jvp = a->high;
    print_message("resnet18, batch %d, MB beyond x: grad %.1f (+ %.1f for g), loss %.1f, loss_many %.1f, jvp %.1f\n", B,
                  (double)grad / 1e6, (double)(c.net->params.total * sizeof(float)) / 1e6, (double)loss / 1e6,
                  (double)many / 1e6, (double)jvp / 1e6);
    /* Forward passes need less than a third of what the backward walk keeps; forward mode, which carries two tangents
     * along, less than a third of what grad touches in all: scratch and the d numbers it writes. */
    assert_true(3 * loss < grad);
    assert_true(3 * many < grad);
    assert_true(3 * jvp < grad + c.net->params.total * sizeof(float));
    hdo__free(g);
    nn_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nn_weights_good_files),
        cmocka_unit_test(test_nn_weights_bad_files),
        cmocka_unit_test(test_nn_network_sizes),
        cmocka_unit_test(test_nn_network_refuses),
        cmocka_unit_test(test_nn_network_init),
        cmocka_unit_test(test_nn_weights_round_trip_and_head),
        cmocka_unit_test(test_nn_weights_of_small_pictures),
        cmocka_unit_test(test_nn_memory_of_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
