/* SPDX-License-Identifier: Apache-2.0
 *
 * Readers of image files (IDX, CIFAR-10): what they accept gives the right numbers, what they refuse is refused with a
 * sentence that names the fault. Truncation never crashes (run under a sanitizer to mean it).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef HDO_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef HDO_HAVE_PNG
#include <png.h>
#endif

#include "data/data_impl.h"
#include "data_help.h"

/* ---- IDX ---- */

static void test_idx_reads_a_pair(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_table r;
    assert_int_equal(
        hdo__idx_parse_pair(
            &r, &(hdo_file_pair){idx_images, sizeof idx_images, idx_labels, sizeof idx_labels, "x", "y"}, &e),
        HDO_OK);
    assert_int_equal(r.count, 2);
    assert_int_equal(r.shape[1], 2);
    assert_int_equal(r.shape[2], 3);
    assert_int_equal(r.bytes[11], 255);
    assert_int_equal(r.label[0], 4);
    assert_int_equal(r.classes, 5);
    hdo__table_clear(&r);
}

static void test_idx_refuses_wrong_sizes(void **state) {
    (void)state;
    hdo_idx x;
    for (size_t n = 0; n < sizeof idx_images; n++) {
        hdo_error e = {0};
        uint8_t *copy = malloc(n + 1); /* exact size: a sanitizer sees any read beyond */
        memcpy(copy, idx_images, n);
        assert_int_equal(hdo__idx_parse(&x, copy, n, "x", &e), HDO_E_DATA);
        assert_true(e.msg[0] != '\0');
        free(copy);
    }
    hdo_error e = {0};
    uint8_t longer[sizeof idx_images + 1] = {0};
    memcpy(longer, idx_images, sizeof idx_images);
    assert_int_equal(hdo__idx_parse(&x, longer, sizeof longer, "x", &e), HDO_E_DATA);
    assert_says(e, "too long");
    longer[4] = 0x7f; /* a count that would overflow */
    assert_int_equal(hdo__idx_parse(&x, longer, sizeof longer, "x", &e), HDO_E_DATA);
    longer[2] = 0x0d;
    assert_int_equal(hdo__idx_parse(&x, longer, sizeof longer, "x", &e), HDO_E_DATA);
    assert_says(e, "0x0d");
    hdo_table r;
    assert_int_equal(
        hdo__idx_parse_pair(
            &r, &(hdo_file_pair){idx_labels, sizeof idx_labels, idx_images, sizeof idx_images, "x", "y"}, &e),
        HDO_E_DATA);
    uint8_t three[] = {0, 0, 8, 1, 0, 0, 0, 3, 4, 1, 1};
    assert_int_equal(
        hdo__idx_parse_pair(&r, &(hdo_file_pair){idx_images, sizeof idx_images, three, sizeof three, "x", "y"}, &e),
        HDO_E_DATA);
    assert_says(e, "2 images");
    assert_says(e, "3 labels");
}

static void test_idx_gzip(void **state) {
    (void)state;
#ifndef HDO_HAVE_ZLIB
    skip();
#else
    char dir[64], path[256];
    make_dir(dir);
    snprintf(path, sizeof path, "%s/x.gz", dir);
    gzFile f = gzopen(path, "wb");
    assert_int_equal(gzwrite(f, idx_images, sizeof idx_images), sizeof idx_images);
    gzclose(f);
    hdo_error e = {0};
    hdo_blob b, whole;
    assert_int_equal(hdo__blob_read(&whole, path, &e), HDO_OK);
    for (size_t n = 0; n <= whole.len; n++) { /* every truncation */
        uint8_t *copy = malloc(n + 1);
        memcpy(copy, whole.p, n);
        b = (hdo_blob){.p = copy, .len = n};
        hdo_status st = hdo__blob_gunzip(&b, 1000, "x.gz", &e);
        assert_int_equal(st, n < 2 || n == whole.len ? HDO_OK : HDO_E_DATA);
        if (n == whole.len) assert_memory_equal(b.p, idx_images, sizeof idx_images);
        hdo__blob_close(&b);
    }
    assert_int_equal(hdo__blob_gunzip(&whole, 5, "x.gz", &e), HDO_E_DATA); /* a bomb */
    assert_says(e, "more than 5");
    hdo__blob_close(&whole);
    unlink(path);
    rmdir(dir);
#endif
}

/* ---- CIFAR-10 ---- */

static void test_cifar_rows_and_labels(void **state) {
    (void)state;
    hdo_error e = {0};
    uint8_t *buf = calloc(2, HDO_CIFAR_ROW);
    int32_t label[2];
    buf[HDO_CIFAR_ROW] = 9;
    assert_int_equal(hdo__cifar_check(buf, 2 * HDO_CIFAR_ROW, label, "b", &e), HDO_OK);
    assert_int_equal(label[1], 9);
    assert_int_equal(hdo__cifar_check(buf, 2 * HDO_CIFAR_ROW - 1, label, "b", &e), HDO_E_DATA);
    assert_says(e, "3073");
    buf[HDO_CIFAR_ROW] = 10;
    assert_int_equal(hdo__cifar_check(buf, 2 * HDO_CIFAR_ROW, label, "b", &e), HDO_E_DATA);
    assert_says(e, "label 10");
    free(buf);

    uint8_t y[3];
    assert_int_equal(hdo__cifar_labels_parse(" [6, 9 ,0]\n", 11, y, 3, "j", &e), HDO_OK);
    assert_int_equal(y[1], 9);
    static const char *const bad[] = {"",         "[",         "[6,9]",   "[6,9,0", "[6,9,0,1]",
                                      "[6,9,10]", "[6,9,0] x", "{6,9,0}", "[6,,0]", NULL};
    for (int i = 0; bad[i] != NULL; i++) {
        assert_int_equal(hdo__cifar_labels_parse(bad[i], strlen(bad[i]), y, 3, "j", &e), HDO_E_DATA);
    }
}

#ifdef HDO_HAVE_PNG
static uint8_t *make_png(uint32_t w, uint32_t h, uint32_t format, size_t *len) {
    png_image im;
    memset(&im, 0, sizeof im);
    im.version = PNG_IMAGE_VERSION;
    im.width = w;
    im.height = h;
    im.format = format;
    uint8_t *px = malloc(PNG_IMAGE_SIZE(im));
    for (size_t i = 0; i < PNG_IMAGE_SIZE(im); i++) px[i] = (uint8_t)(i * 7 + i / 1000);
    png_alloc_size_t n = 0;
    assert_true(png_image_write_to_memory(&im, NULL, &n, 0, px, 0, NULL));
    uint8_t *out = malloc(n);
    assert_true(png_image_write_to_memory(&im, out, &n, 0, px, 0, NULL));
    free(px);
    *len = n;
    return out;
}
#endif

static void test_cifar_sheet_becomes_rows(void **state) {
    (void)state;
#ifndef HDO_HAVE_PNG
    skip();
#else
    hdo_error e = {0};
    size_t len;
    uint8_t *png = make_png(1024, 3, PNG_FORMAT_RGB, &len), *out = malloc(3 * HDO_CIFAR_ROW);
    const uint8_t label[3] = {7, 8, 9};
    assert_int_equal(hdo__cifar_sheet_decode(png, len, label, 3, out, "s", &e), HDO_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(out[i * HDO_CIFAR_ROW], label[i]);
        for (int c = 0; c < 3; c++) {
            for (int p = 0; p < 1024; p++) {
                size_t k = ((size_t)i * 1024 + (size_t)p) * 3 + (size_t)c;
                assert_int_equal(out[i * HDO_CIFAR_ROW + 1 + c * 1024 + p], (uint8_t)(k * 7 + k / 1000));
            }
        }
    }
    assert_int_equal(hdo__cifar_sheet_decode(png, len, label, 2, out, "s", &e), HDO_E_DATA);
    assert_says(e, "1024x3");
    for (size_t n = 0; n < len - 16; n += 13) { /* libpng forgives a missing end mark, not missing pixels */
        assert_int_equal(hdo__cifar_sheet_decode(png, n, label, 3, out, "s", &e), HDO_E_DATA);
    }
    free(png);
    png = make_png(1024, 3, PNG_FORMAT_RGBA, &len);
    assert_int_equal(hdo__cifar_sheet_decode(png, len, label, 3, out, "s", &e), HDO_E_DATA);
    assert_says(e, "RGB");
    free(png);
    free(out);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx_reads_a_pair),
        cmocka_unit_test(test_idx_refuses_wrong_sizes),
        cmocka_unit_test(test_idx_gzip),
        cmocka_unit_test(test_cifar_rows_and_labels),
        cmocka_unit_test(test_cifar_sheet_becomes_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
