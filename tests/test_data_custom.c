/* SPDX-License-Identifier: Apache-2.0
 *
 * The user's own files: CSV, LIBSVM, NumPy, IDX. Right numbers for good files, a sentence with the place for bad ones;
 * hold-out, scaling, and which label file belongs to which images.
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
#include "data/realtext.h"
#include "data_help.h"

static void put(const char *dir, const char *name, const void *p, size_t len, char path[256]) {
    snprintf(path, 256, "%s/%s", dir, name);
    assert_int_equal(hdo__file_write(path, p, len, NULL), HDO_OK);
}

/* ---- numbers ---- */

static void test_real_parse_matches_strtod(void **state) {
    (void)state;
    static const char *const good[] = {"0",      "-0",
                                       "1",      "+17",
                                       "3.25",   ".5",
                                       "5.",     "1e3",
                                       "1E-3",   "123456789012345678901234567890",
                                       "0.1",    "-2.5e-40",
                                       "1e30",   "6.02214076e23",
                                       "1e-45",  "9007199254740993",
                                       "0e9999", NULL};
    for (int i = 0; good[i] != NULL; i++) {
        const char *p = good[i], *end = p + strlen(p);
        double v;
        assert_true(hdo__real_scan(&p, end, &v));
        assert_ptr_equal(p, end);
        assert_float_equal((float)v, strtof(good[i], NULL), fabsf(strtof(good[i], NULL)) * 1e-7f);
    }
    static const char *const bad[] = {"", "-", ".", "e5", "+.", "nan", "inf", "x1", NULL};
    for (int i = 0; bad[i] != NULL; i++) {
        const char *p = bad[i];
        double v;
        assert_false(hdo__real_scan(&p, p + strlen(p), &v));
        assert_ptr_equal(p, bad[i]);
    }
}

/* ---- tables ---- */

static hdo_status csv(hdo_table *r, const char *text, const hdo_table *like, hdo_error *e) {
    return hdo__csv_parse(r, text, strlen(text), like, 1 << 20, "t.csv", e);
}

static void test_csv_headings_separators_labels(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_table r, v;
    assert_int_equal(csv(&r, "a,Label,b\r\n1,2,3\r\n\r\n-4,0,5e-1\r\n", NULL, &e), HDO_OK);
    assert_int_equal(r.count, 2);
    assert_int_equal(r.n_in, 2);
    assert_int_equal(r.classes, 3);
    assert_int_equal(r.label[0], 2);
    assert_true(r.reals[1] == 3.0f && r.reals[2] == -4.0f && r.reals[3] == 0.5f);
    hdo__table_clear(&r);

    assert_int_equal(csv(&r, "5.1;3.5;\"setosa\"\n4.9;3.0; virginica \n1;2;setosa", NULL, &e), HDO_OK);
    assert_int_equal(r.count, 3);
    assert_string_equal(r.names[0], "setosa");
    assert_int_equal(r.label[1], 1);
    assert_int_equal(csv(&v, "1;1;virginica\n", &r, &e), HDO_OK);
    assert_int_equal(v.label[0], 1);
    assert_int_equal(v.classes, 2);
    hdo__table_clear(&v);
    assert_int_equal(csv(&v, "1;1;versicolor\n", &r, &e), HDO_E_DATA);
    assert_says(e, "versicolor");
    assert_int_equal(csv(&v, "1;1;1;virginica\n", &r, &e), HDO_E_DATA);
    hdo__table_clear(&r);

    assert_int_equal(csv(&r, "1\t2\t-1\n3\t4\t+1\n", NULL, &e), HDO_OK); /* -1 and +1 */
    assert_int_equal(r.label[0], 0);
    assert_int_equal(r.label[1], 1);
    assert_int_equal(csv(&v, "1\t2\t2\n", &r, &e), HDO_E_DATA);
    hdo__table_clear(&r);
}

static hdo_status csv_label(hdo_table *r, const char *text, const char *label, hdo_error *e) {
    return hdo__csv_parse_label(r, text, strlen(text), NULL, label, "t.csv", e);
}

static void test_csv_label_column(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_table r;
    const char *text = "kind,a,y\nx,1,5\nz,2,6\n", *bare = "x,1,5\nz,2,6\n";
    assert_int_equal(csv_label(&r, text, "kind", &e), HDO_OK); /* before the usual name y */
    assert_int_equal(r.count, 2);
    assert_string_equal(r.names[1], "z");
    assert_true(r.label[0] == 0 && r.label[1] == 1 && r.reals[0] == 1.0f && r.reals[1] == 5.0f);
    hdo__table_clear(&r);
    assert_int_equal(csv_label(&r, bare, "1", &e), HDO_OK);
    assert_true(r.count == 2 && r.label[1] == 1 && r.reals[3] == 6.0f);
    hdo__table_clear(&r);
    assert_int_equal(csv_label(&r, "5,x\n6,z\n", "last", &e), HDO_OK);
    assert_true(r.count == 2 && r.reals[1] == 6.0f);
    hdo__table_clear(&r);
    assert_int_equal(csv_label(&r, "label,b\n1,0\n2,1\n", "last", &e), HDO_OK); /* said so, whatever it is called */
    assert_true(r.count == 2 && r.classes == 2 && r.reals[1] == 2.0f);
    hdo__table_clear(&r);
    assert_int_equal(csv_label(&r, "3,0,1\n0,0,1\n", "3", &e), HDO_OK); /* a number is a column, not a name */
    assert_true(r.count == 2 && r.classes == 2);
    hdo__table_clear(&r);
    assert_int_equal(csv_label(&r, text, "species", &e), HDO_E_CONFIG);
    assert_says(e, "data.label is 'species', but the columns of 't.csv' are kind, a, y");
    assert_int_equal(csv_label(&r, bare, "kind", &e), HDO_E_CONFIG);
    assert_says(e, "no heading");
    assert_int_equal(csv_label(&r, text, "4", &e), HDO_E_CONFIG);
    assert_says(e, "only 3 columns");
    assert_int_equal(csv_label(&r, text, "0", &e), HDO_E_CONFIG);
    assert_int_equal(csv_label(&r, text, "99999999999999999999", &e), HDO_E_CONFIG);
}

static void test_csv_refuses_with_line_and_column(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } bad[] = {{"", "empty"},
               {"a,b\n", "no samples"},
               {"1\n2\n", "columns"},
               {"1,2,0\n1,x,0\n", "line 2, column 2"},
               {"1,2,0\n1,,0\n", "column 2"},
               {"1,2,0\n1,2\n", "fewer"},
               {"1,2,0\n1,2,3,0\n", "more"},
               {"1,2,0.5\n", "whole numbers"},
               {"1,2,70000\n", "65535"},
               {"1,2,0\n1,2,cat\n", "not a number"},
               {"1,1e99,0\n", "finite"},
               {"1,nan,0\n", "finite"},
               {"1,2,-3\n", "-3"},
               {NULL, NULL}};
    for (int i = 0; bad[i].text != NULL; i++) {
        hdo_error e = {0};
        hdo_table r;
        assert_int_equal(csv(&r, bad[i].text, NULL, &e), HDO_E_DATA);
        assert_says(e, bad[i].word);
        assert_null(r.reals);
    }
    hdo_error e = {0};
    hdo_table r;
    assert_int_equal(hdo__csv_parse(&r, "1,2,0\n", 6, NULL, 10, "t.csv", &e), HDO_E_DATA);
    assert_says(e, "memory");
}

static void test_libsvm(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_table r, v;
    const char *text = "+1 1:0.5 3:-2 # a comment\n\n# only a comment\n-1 2:1e1\r\n";
    assert_int_equal(hdo__libsvm_parse(&r, text, strlen(text), NULL, 1 << 20, "t", &e), HDO_OK);
    assert_int_equal(r.count, 2);
    assert_int_equal(r.n_in, 3);
    assert_true(r.reals[0] == 0.5f && r.reals[1] == 0.0f && r.reals[2] == -2.0f && r.reals[4] == 10.0f);
    assert_int_equal(r.label[0], 1);
    assert_int_equal(r.label[1], 0);
    assert_int_equal(hdo__libsvm_parse(&v, "1 5:1", 5, &r, 1 << 20, "v", &e), HDO_OK); /* wider: custom.c widens both */
    assert_int_equal(v.n_in, 5);
    hdo__table_clear(&v);
    hdo__table_clear(&r);
    static const char *const bad[] = {
        "",      "1",     "x 1:1",           "1 0:1",   "1 2:1 1:1", "1 1:1 1:1",    "1 1", "1 1:",
        "1 1:x", "1 a:1", "1 99999999999:1", "0.5 1:1", "1 1:1e99",  "1 16777216:1", NULL};
    for (int i = 0; bad[i] != NULL; i++) {
        assert_int_equal(hdo__libsvm_parse(&r, bad[i], strlen(bad[i]), NULL, 1 << 20, "t", &e), HDO_E_DATA);
    }
}

/* ---- NumPy ---- */

static size_t npy(uint8_t *out, const char *descr, const char *shape, const void *data, size_t bytes) {
    char head[128];
    int n = snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    memset(head + n, ' ', sizeof head - (size_t)n);
    head[117] = '\n';
    memcpy(out, "\x93NUMPY\x01\x00\x76\x00", 10); /* 118 bytes of header */
    memcpy(out + 10, head, 118);
    memcpy(out + 128, data, bytes);
    return 128 + bytes;
}

static void test_npy_types_and_shapes(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_table r;
    uint8_t x[512], y[512];
    const uint8_t px[12] = {0, 10, 20, 1, 11, 21, 2, 12, 22, 3, 13, 23}; /* (1, 2, 2, 3): pixel, then channel */
    const int64_t labels[2] = {3, 0};
    size_t nx = npy(x, "|u1", "(1, 2, 2, 3)", px, 12), ny = npy(y, "<i8", "(1,)", labels, 8);
    assert_int_equal(hdo__npy_parse(&r, &(hdo_file_pair){x, nx, y, ny, "x", "y"}, &e), HDO_OK);
    assert_int_equal(r.shape[0], 3);
    for (int k = 0; k < 12; k++) assert_int_equal(r.bytes[k], k / 4 * 10 + k % 4);
    assert_int_equal(r.classes, 4);
    hdo__table_clear(&r);

    const double d[4] = {1.5, -2, 3, 4};
    nx = npy(x, "<f8", "(2, 2)", d, 32);
    ny = npy(y, "<i8", "(2, 1)", labels, 16);
    assert_int_equal(hdo__npy_parse(&r, &(hdo_file_pair){x, nx, y, ny, "x", "y"}, &e), HDO_OK);
    assert_true(r.reals[0] == 1.5f && r.reals[1] == -2.0f);
    hdo__table_clear(&r);
    for (size_t n = 0; n < nx; n++) {
        uint8_t *copy = malloc(n + 1);
        memcpy(copy, x, n);
        assert_int_equal(hdo__npy_parse(&r, &(hdo_file_pair){copy, n, y, ny, "x", "y"}, &e), HDO_E_DATA);
        free(copy);
    }
    for (size_t bit = 0; bit < 8 * nx; bit++) { /* flips: refused or consistent, never a crash */
        x[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (hdo__npy_parse(&r, &(hdo_file_pair){x, nx, y, ny, "x", "y"}, &e) == HDO_OK) hdo__table_clear(&r);
        x[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    const int64_t high = 70000, low = -1;
    nx = npy(x, "<f8", "(1, 2)", d, 16);
    assert_int_equal(hdo__npy_parse(&r, &(hdo_file_pair){x, nx, y, npy(y, "<i8", "(1,)", &high, 8), "x", "y"}, &e),
                     HDO_E_DATA);
    assert_says(e, "70000");
    assert_int_equal(hdo__npy_parse(&r, &(hdo_file_pair){x, nx, y, npy(y, "<i8", "(1,)", &low, 8), "x", "y"}, &e),
                     HDO_E_DATA);
    assert_int_equal(hdo__npy_parse(&r, &(hdo_file_pair){x, nx, y, npy(y, "<i8", "(2,)", labels, 16), "x", "y"}, &e),
                     HDO_E_DATA);
    assert_says(e, "2 labels for 1");
    assert_int_equal(hdo__npy_parse(&r, &(hdo_file_pair){x, npy(x, ">f8", "(1, 2)", d, 16), y, ny, "x", "y"}, &e),
                     HDO_E_DATA);
    assert_says(e, "big-endian");
    const double nan[2] = {(double)NAN, 0};
    assert_int_equal(hdo__npy_parse(&r,
                                    &(hdo_file_pair){x, npy(x, "<f8", "(1, 2)", nan, 16), y,
                                                     npy(y, "<i8", "(1,)", labels, 8), "x", "y"},
                                    &e),
                     HDO_E_DATA);
    assert_says(e, "finite");
}

/* ---- own files through the configuration ---- */

static hdo_data_config config(const char *name, const char *path) {
    hdo_data_config c = {.data_seed = 7, .scaling = {.id = HDO_SCALING_UNIT}};
    snprintf(c.name, sizeof c.name, "%s", name);
    snprintf(c.path, sizeof c.path, "%s", path);
    return c;
}

static void test_custom_hold_out_is_a_partition(void **state) {
    (void)state;
    char dir[64], path[256], text[4096];
    make_dir(dir);
    int at = 0;
    for (int i = 0; i < 100; i++) at += snprintf(text + at, sizeof text - (size_t)at, "%d,%d\n", i, i % 3);
    put(dir, "t.csv", text, (size_t)at, path);
    hdo_error e = {0};
    hdo_data_config c = config("csv", path);
    hdo_dataset *t, *v;
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_OK);
    assert_int_equal(t->count, 80);
    assert_int_equal(v->count, 20);
    bool seen[100] = {false};
    for (int k = 0; k < 100; k++) {
        const hdo_dataset *ds = k < 80 ? t : v;
        int64_t idx = k < 80 ? k : k - 80;
        float x;
        int32_t y;
        hdo__dataset_gather(ds, &idx, 1, NULL, &x, NULL, &y);
        assert_false(seen[(int)x]);
        seen[(int)x] = true;
        assert_int_equal(y, (int)x % 3);
    }
    hdo__dataset_destroy(t);
    hdo__dataset_destroy(v);
    c.scaling.id = HDO_SCALING_NORMALISED; /* training columns get mean 0, deviation 1 */
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_OK);
    double s1 = 0, s2 = 0;
    for (int64_t i = 0; i < 80; i++) {
        float x;
        int32_t y;
        hdo__dataset_gather(t, &i, 1, NULL, &x, NULL, &y);
        s1 += (double)x;
        s2 += (double)x * (double)x;
    }
    assert_true(fabs(s1 / 80) < 1e-6 && fabs(s2 / 80 - 1) < 1e-5);
    hdo__dataset_destroy(t);
    hdo__dataset_destroy(v);
    c.val = 100;
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_DATA);
    assert_null(t);
    unlink(path);
    snprintf(c.path, sizeof c.path, "%s/absent.csv", dir);
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_DATA);
    c.path[0] = '\0';
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_CONFIG);
    rmdir(dir);
}

static void test_custom_finds_label_files(void **state) {
    (void)state;
    char dir[64], a[256], b[256], c1[256], d[256];
    make_dir(dir);
    put(dir, "train-images-idx3-ubyte", idx_images, sizeof idx_images, a);
    put(dir, "train-labels-idx1-ubyte", idx_labels, sizeof idx_labels, b);
    put(dir, "t10k-images-idx3-ubyte", idx_images, sizeof idx_images, c1);
    put(dir, "t10k-labels-idx1-ubyte", idx_labels, sizeof idx_labels, d);
    hdo_error e = {0};
    hdo_dataset *t, *v;
    hdo_data_config c = config("idx", dir); /* a folder */
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_OK);
    assert_int_equal(t->count, 2);
    assert_int_equal(v->count, 2);
    hdo__dataset_destroy(t);
    hdo__dataset_destroy(v);
    c = config("idx", a); /* two files, one held out */
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_OK);
    assert_int_equal(t->count, 1);
    hdo__dataset_destroy(t);
    hdo__dataset_destroy(v);
    snprintf(c.path, sizeof c.path, "%s,%s", a, d); /* said in full */
    snprintf(c.path_val, sizeof c.path_val, "%s", c1);
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_OK);
    hdo__dataset_destroy(t);
    hdo__dataset_destroy(v);
    unlink(b);
    c = config("idx", a);
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_DATA);
    assert_says(e, "inputs,labels");
    unlink(a);
    unlink(c1);
    unlink(d);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_parse_matches_strtod),
        cmocka_unit_test(test_csv_headings_separators_labels),
        cmocka_unit_test(test_csv_label_column),
        cmocka_unit_test(test_csv_refuses_with_line_and_column),
        cmocka_unit_test(test_libsvm),
        cmocka_unit_test(test_npy_types_and_shapes),
        cmocka_unit_test(test_custom_hold_out_is_a_partition),
        cmocka_unit_test(test_custom_finds_label_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
