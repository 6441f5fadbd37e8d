/* SPDX-License-Identifier: Apache-2.0
 *
 * What every registered data set must keep: opens twice to the same bits, labels in range and equal to those gathered,
 * batches equal to single samples, only finite numbers (or tokens below vocab), limits respected, a fingerprint. Sets
 * whose files are absent must say so with HDO_E_DATA and the command; then the rest is skipped. Own files (csv, ...)
 * are written here.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/data_impl.h"

enum { BATCH = 33 };

static char dir[64];

static void put(const char *name, const void *p, size_t len) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(hdo__file_write(path, p, len, NULL), HDO_OK);
}

/* Small own files of every format: 50 samples, 3 classes, 4 inputs. */
static int setup(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hdo-test-XXXXXX");
    if (mkdtemp(dir) == NULL) return -1;
    char csv[4096], svm[4096];
    uint8_t x[16 + 200] = {0, 0, 8, 3, 0, 0, 0, 50, 0, 0, 0, 2, 0, 0, 0, 2}, y[8 + 50] = {0, 0, 8, 1, 0, 0, 0, 50};
    int a = 0, b = 0;
    for (int i = 0; i < 50; i++) {
        a += snprintf(csv + a, sizeof csv - (size_t)a, "%d,%g,%d,%d,%d\n", i, 0.5 * i, i * i, 7, i % 3);
        b += snprintf(svm + b, sizeof svm - (size_t)b, "%d 1:%d 4:%g\n", i % 3, i, 0.25 * i);
        for (int k = 0; k < 4; k++) x[16 + 4 * i + k] = (uint8_t)(i * 5 + k);
        y[8 + i] = (uint8_t)(i % 3);
    }
    put("own.csv", csv, (size_t)a);
    put("own.libsvm", svm, (size_t)b);
    put("own-images-idx3-ubyte", x, sizeof x);
    put("own-labels-idx1-ubyte", y, sizeof y);
    char head[2][128];
    static const char *const shape[2] = {"(50, 2, 2)", "(50,)"};
    for (int k = 0; k < 2; k++) {
        memset(head[k], ' ', sizeof head[k]);
        memcpy(head[k], "\x93NUMPY\x01\x00\x76\x00", 10);
        int n = snprintf(head[k] + 10, 118, "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }", shape[k]);
        head[k][10 + n] = ' ';
    }
    uint8_t nx[128 + 200], ny[128 + 50];
    memcpy(nx, head[0], 128);
    memcpy(nx + 128, x + 16, 200);
    memcpy(ny, head[1], 128);
    memcpy(ny + 128, y + 8, 50);
    put("own_x.npy", nx, sizeof nx);
    put("own_y.npy", ny, sizeof ny);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    static const char *const names[] = {
        "own.csv", "own.libsvm", "own-images-idx3-ubyte", "own-labels-idx1-ubyte", "own_x.npy", "own_y.npy", NULL};
    for (int i = 0; names[i] != NULL; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    return rmdir(dir);
}

static hdo_data_config config_of(const char *name) {
    hdo_data_config c = {.classes = 5, .features = 12, .separation = 2, .data_seed = 3, .augment = true};
    snprintf(c.name, sizeof c.name, "%s", name);
    static const char *const own[][2] = {
        {"csv", "own.csv"}, {"libsvm", "own.libsvm"}, {"npy", "own_x.npy"}, {"idx", "own-images-idx3-ubyte"}};
    for (int k = 0; k < 4; k++) {
        if (strcmp(name, own[k][0]) == 0) snprintf(c.path, sizeof c.path, "%s/%s", dir, own[k][1]);
    }
    if (strcmp(name, "synthetic") == 0) c.train = 500, c.val = 200;
    return c;
}

static void check_one(const hdo_dataset *a, const hdo_dataset *b) {
    assert_true(a->count > 0 && a->classes >= 2);
    assert_int_equal(a->n_in, a->shape[0] * a->shape[1] * a->shape[2]);
    assert_int_equal(strlen(a->sha256), 64);
    assert_string_equal(a->sha256, b->sha256);
    const size_t w = (size_t)a->n_in;
    float *x = malloc(BATCH * w * sizeof *x), *x2 = malloc(w * sizeof *x2);
    int32_t *tok = malloc(BATCH * w * sizeof *tok), *tok2 = malloc(w * sizeof *tok2), y[BATCH], y2;
    for (int round = 0; round < 4; round++) {
        int64_t idx[BATCH];
        for (int k = 0; k < BATCH; k++) {
            idx[k] = (int64_t)hdo__rng_below(hdo__stream(1, HDO_RNG_TEST, 0, (uint64_t)round, 0), (uint64_t)k,
                                             (uint64_t)a->count);
        }
        idx[0] = 0;
        idx[1] = a->count - 1;
        hdo__dataset_gather(a, idx, BATCH, NULL, x, tok, y);
        for (int k = 0; k < BATCH; k++) {
            assert_true(y[k] >= 0 && y[k] < a->classes);
            assert_int_equal(y[k], a->ops->label(a, idx[k]));
            hdo__dataset_gather(b, &idx[k], 1, NULL, x2, tok2, &y2); /* the other copy, one by one: same bits */
            assert_int_equal(y[k], y2);
            if (a->vocab > 0) {
                assert_memory_equal(tok + (size_t)k * w, tok2, w * sizeof *tok);
                for (size_t i = 0; i < w; i++) assert_true(tok2[i] >= 0 && tok2[i] < a->vocab);
            } else {
                assert_memory_equal(x + (size_t)k * w, x2, w * sizeof *x);
                for (size_t i = 0; i < w; i++) assert_true(isfinite(x2[i]));
            }
        }
    }
    free(x);
    free(x2);
    free(tok);
    free(tok2);
}

static void test_dataset_contract(void **state) {
    (void)state;
    const char *const *names = hdo_names("data");
    for (int i = 0; names[i] != NULL; i++) {
        const char *name = names[i];
        hdo_data_config c = config_of(name);
        hdo_dataset *t, *v, *t2, *v2;
        hdo_error e = {0};
        hdo_status st = hdo__data_open(&c, &t, &v, &e);
        if (strcmp(name, "none") == 0) {
            assert_int_equal(st, HDO_OK);
            assert_null(t);
            assert_null(v);
            continue;
        }
        if (st == HDO_E_DATA) {
            char command[64];
            snprintf(command, sizeof command, "'hdo data get %s'", name);
            if (strstr(e.msg, command) == NULL) fail_msg("%s: %s", name, e.msg);
            assert_null(t);
            print_message("%s is not here: only the message was checked\n", name);
            continue;
        }
        if (st != HDO_OK) fail_msg("%s: %s", name, e.msg);
        assert_int_equal(hdo__data_open(&c, &t2, &v2, &e), HDO_OK);
        check_one(t, t2);
        check_one(v, v2);
        assert_int_equal(t->n_in, v->n_in);
        assert_int_equal(t->classes, v->classes);
        hdo__dataset_destroy(t2);
        hdo__dataset_destroy(v2);
        const int64_t all = t->count, all_val = v->count;
        hdo__dataset_destroy(t);
        hdo__dataset_destroy(v);
        c.train = 5; /* limits */
        c.val = 3;
        assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_OK);
        assert_true(t->count == 5 && v->count == 3 && all >= 5 && all_val >= 3);
        hdo__dataset_destroy(t);
        hdo__dataset_destroy(v);
    }
}

/* Scaling and augmentation of images, on bytes we know. */
static void test_dataset_scaling_and_augmentation(void **state) {
    (void)state;
    enum { N = 2, H = 8, W = 8, IN = 3 * H * W };
    static uint8_t px[N * IN];
    for (int i = 0; i < N * IN; i++) px[i] = (uint8_t)(i * 37 + 1);
    const float mean[3] = {0.4f, 0.5f, 0.6f}, sd[3] = {0.2f, 0.3f, 0.4f};
    int32_t *label = calloc(N, sizeof *label);
    hdo_byteset_spec s = {.count = N,
                          .per_chunk = 1,
                          .chunk = {px, px + IN},
                          .stride = IN,
                          .shape = {3, H, W},
                          .classes = 2,
                          .label = label,
                          .mean = mean,
                          .sd = sd,
                          .augment = true};
    hdo_dataset *ds;
    assert_int_equal(hdo__byteset_create(&ds, &s, NULL), HDO_OK);
    static float x[64 * IN];
    int64_t idx[64];
    int32_t y[64];
    for (int k = 0; k < 64; k++) idx[k] = k % N;
    hdo__dataset_gather(ds, idx, N, NULL, x, NULL, y);
    for (int i = 0; i < N * IN; i++) { /* torchvision's arithmetic, float by float */
        int c = i % IN / (H * W);
        float want = ((float)px[i] / 255.0f - mean[c]) / sd[c];
        assert_memory_equal(&x[i], &want, sizeof want);
    }
    const hdo_stream at = hdo__stream(1, HDO_RNG_AUGMENT, 4, 77, 0);
    hdo__dataset_gather(ds, idx, 64, &at, x, NULL, y);
    int flips = 0, shifts[9][9] = {{0}};
    for (int k = 0; k < 64; k++) { /* each result is one of the 81 * 2 allowed, the same for all channels */
        int found = 0, fy = 0, fx = 0, ff = 0;
        for (int dy = -4; dy <= 4; dy++) {
            for (int dx = -4; dx <= 4; dx++) {
                for (int f = 0; f < 2; f++) {
                    bool same = true;
                    for (int i = 0; i < IN && same; i++) {
                        int c = i / (H * W), r = i / W % H + dy, col = (f ? W - 1 - i % W : i % W) + dx;
                        uint8_t v =
                            r < 0 || r >= H || col < 0 || col >= W ? 0 : px[idx[k] * IN + c * H * W + r * W + col];
                        same = x[k * IN + i] == ((float)v / 255.0f - mean[c]) / sd[c];
                    }
                    if (same) found++, fy = dy, fx = dx, ff = f;
                }
            }
        }
        assert_int_equal(found, 1);
        flips += ff;
        shifts[fy + 4][fx + 4]++;
    }
    int places = 0;
    for (int k = 0; k < 81; k++) places += shifts[k / 9][k % 9] > 0;
    assert_true(flips > 12 && flips < 52 && places > 25);
    static float again[64 * IN];
    hdo__dataset_gather(ds, idx, 64, &at, again, NULL, y); /* addressed: the same again */
    assert_memory_equal(x, again, sizeof x);
    hdo__dataset_destroy(ds);
}

/* Normalised twice: one map from a byte to a float has to equal the two in a row, in double. */
static void test_dataset_scaling_twice(void **state) {
    (void)state;
    static const double m[2][3] = {{0.4914, 0.4822, 0.4465}, {0.485, 0.456, 0.406}};
    static const double s[2][3] = {{0.2023, 0.1994, 0.2010}, {0.229, 0.224, 0.225}};
    float mean[3], sd[3];
    assert_true(hdo__cifar_scaling(HDO_SCALING_TWICE, mean, sd));
    for (int c = 0; c < 3; c++) {
        for (int v = 0; v < 256; v++) {
            double want = ((v / 255.0 - m[0][c]) / s[0][c] - m[1][c]) / s[1][c];
            double got = (double)(((float)v / 255.0f - mean[c]) / sd[c]);
            assert_true(fabs(got - want) < 1e-5); /* float32, values up to 13 */
        }
    }
    assert_true(hdo__cifar_scaling(HDO_SCALING_NORMALISED, mean, sd));
    assert_true(mean[0] == 0.4914f && sd[0] == 0.2470f); /* the text's reading has the set's own deviations */
    assert_false(hdo__cifar_scaling(HDO_SCALING_UNIT, mean, sd));
    static const char *const elsewhere[] = {"synthetic", "mnist", "brackets"};
    for (int i = 0; i < 6; i++) {
        hdo_data_config c = {.classes = 2, .features = 2, .augment_val = i % 2 == 1};
        hdo_dataset *t, *val;
        hdo_error e = {0};
        strcpy(c.name, elsewhere[i / 2]);
        c.scaling.id = i % 2 == 0 ? HDO_SCALING_TWICE : HDO_SCALING_NORMALISED;
        assert_int_equal(hdo__data_open(&c, &t, &val, &e), HDO_E_CONFIG);
        assert_non_null(strstr(e.msg, i % 2 == 0 ? "data.scaling is 'twice'" : "data.augment_val"));
        assert_non_null(strstr(e.msg, c.name));
    }
}

/* Crops that belong to samples: always the same for a sample, in any batch, asked for or not; others for another seed.
 */
static void test_dataset_fixed_crops(void **state) {
    (void)state;
    enum { N = 40, H = 9, IN = H * H };
    static uint8_t px[N * IN];
    for (int i = 0; i < N * IN; i++) px[i] = (uint8_t)(i * 37 + i / IN + 1);
    static float x[3][N * IN], back[N * IN];
    int64_t idx[N], reverse[N];
    int32_t y[N];
    const hdo_stream at = hdo__stream(1, HDO_RNG_AUGMENT, 4, 77, 0);
    for (int k = 0; k < N; k++) idx[k] = k, reverse[k] = N - 1 - k;
    for (uint64_t how = 0; how < 3; how++) { /* seed 0, seed 1, none */
        hdo_byteset_spec s = {.count = N,
                              .per_chunk = N,
                              .chunk = {px},
                              .stride = IN,
                              .shape = {1, H, H},
                              .classes = 2,
                              .label = calloc(N, sizeof(int32_t)),
                              .always = how < 2,
                              .seed = how};
        hdo_dataset *ds;
        assert_int_equal(hdo__byteset_create(&ds, &s, NULL), HDO_OK);
        hdo__dataset_gather(ds, idx, N, NULL, x[how], NULL, y);
        hdo__dataset_gather(ds, reverse, N, &at, back, NULL, y);
        for (int k = 0; k < N; k++) assert_memory_equal(back + (N - 1 - k) * IN, x[how] + k * IN, IN * sizeof(float));
        hdo__dataset_destroy(ds);
    }
    int same[2] = {0};
    for (int k = 0; k < N; k++) {
        same[0] += memcmp(x[0] + k * IN, x[1] + k * IN, IN * sizeof(float)) == 0;
        same[1] += memcmp(x[0] + k * IN, x[2] + k * IN, IN * sizeof(float)) == 0;
    }
    assert_true(same[0] < 5 && same[1] < 5); /* 1 in 162 by chance */
}

/* Quarter turns: four versions of every image, addressed augmentation passed on, own labels forgotten. */
static void test_dataset_turned(void **state) {
    (void)state;
    enum { H = 5, IN = 2 * H * H };
    uint8_t px[3 * IN];
    for (int i = 0; i < 3 * IN; i++) px[i] = (uint8_t)(i * 31 + 7);
    hdo_byteset_spec s = {.count = 3,
                          .per_chunk = 3,
                          .chunk = {px},
                          .stride = IN,
                          .shape = {2, H, H},
                          .classes = 7,
                          .label = calloc(3, sizeof(int32_t)),
                          .augment = true};
    hdo_dataset *inner, *ds;
    hdo_error e = {0};
    assert_int_equal(hdo__byteset_create(&inner, &s, NULL), HDO_OK);
    s.label = calloc(3, sizeof(int32_t));
    assert_int_equal(hdo__byteset_create(&ds, &s, NULL), HDO_OK);
    assert_int_equal(hdo__turned_wrap(&ds, "own", &e), HDO_OK);
    assert_int_equal(ds->count, 12);
    assert_int_equal(ds->classes, 4);
    const hdo_stream at = hdo__stream(1, HDO_RNG_AUGMENT, 4, 77, 0);
    const int64_t image[12] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}, idx[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    float plain[12 * IN], x[12 * IN];
    int32_t y[12];
    for (int augmented = 0; augmented < 2; augmented++) {
        hdo__dataset_gather(inner, image, 12, augmented ? &at : NULL, plain, NULL, y);
        hdo__dataset_gather(ds, idx, 12, augmented ? &at : NULL, x, NULL, y);
        for (int k = 0; k < 12; k++) {
            assert_int_equal(y[k], k % 4);
            assert_int_equal(ds->ops->label(ds, k), k % 4);
            for (int i = 0; i < IN; i++) {
                int r = i / H % H, c = i % H, n = H - 1;
                const int from[4] = {r * H + c, c * H + n - r, (n - r) * H + n - c, (n - c) * H + r};
                float want = plain[k * IN + i / (H * H) * H * H + from[k % 4]];
                assert_memory_equal(&x[k * IN + i], &want, sizeof want);
            }
        }
    }
    hdo__dataset_destroy(inner);
    hdo__dataset_destroy(ds);

    hdo_data_config c = config_of("csv");
    hdo_dataset *t, *v;
    c.pretext.id = HDO_PRETEXT_ROTATION;
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "square images; a sample of 'csv' is 1 x 1 x 4"));
    assert_true(t == NULL && v == NULL);
    c = config_of("idx");
    c.pretext.id = HDO_PRETEXT_ROTATION;
    hdo_dataset *t2, *v2;
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_OK);
    assert_int_equal(hdo__data_open(&c, &t2, &v2, &e), HDO_OK);
    check_one(t, t2);
    hdo__dataset_destroy(t);
    hdo__dataset_destroy(v);
    hdo__dataset_destroy(t2);
    hdo__dataset_destroy(v2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dataset_contract),      cmocka_unit_test(test_dataset_scaling_and_augmentation),
        cmocka_unit_test(test_dataset_scaling_twice), cmocka_unit_test(test_dataset_fixed_crops),
        cmocka_unit_test(test_dataset_turned),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
