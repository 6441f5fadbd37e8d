/* SPDX-License-Identifier: Apache-2.0
 *
 * Winograd convolutions, and parts of convolutions.
 *
 * Rounding of Winograd. An output is a combination of P products that are larger than itself, so its error is relative
 * to the whole tile, not to its own sum as in test_kernels_conv.c. What counts is the error against that of a plain
 * float sum of the same terms: on uniform numbers, root mean square over root mean square of the result, it is within
 * u (RATIO sqrt(K) + ENDS), u = 2^-24, K the number of terms; ENDS are the roundings of the transforms.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/simd.h"
#include "hdo/experimental/config.h"
#include "kernel_tables.h"
#include "kernels/mm.h"

static const double RATIO = 0.5, ENDS = 10, UNIT = 1.0 / 16777216.0;

typedef struct conv_case {
    hdo_conv c;
    size_t nx, nw, ny;
    float *x, *w, *dy, *bias; /* given */
    float *y, *dx, *dw, *db;  /* results */
    hdo_arena a;
} conv_case;

static conv_case open_case(const hdo_mm_simd *t, const int s[8]) { /* B, C, H, W, O, kernel, stride, pad */
    conv_case k = {.c = {.B = s[0], .C = s[1], .H = s[2], .W = s[3], .O = s[4], .kh = s[5], .kw = s[5]}};
    k.c.stride = s[6];
    k.c.pad = s[7];
    hdo__conv_init(&k.c);
    k.nx = (size_t)s[0] * k.c.x_step, k.ny = (size_t)s[0] * k.c.y_step, k.nw = (size_t)s[4] * k.c.w_step;
    k.x = numbers(k.nx, 1), k.w = numbers(k.nw, 2), k.dy = numbers(k.ny, 3), k.bias = numbers((size_t)s[4], 4);
    k.y = numbers(k.ny, 5), k.dx = numbers(k.nx, 5), k.dw = numbers(k.nw, 5), k.db = numbers((size_t)s[4], 5);
    size_t most = 0;
    for (int part = 0; part < 3; part++) { /* whole, half of the outputs, half of the inputs */
        hdo_conv c = k.c;
        c.O = part == 1 ? c.O / 2 : c.O;
        c.C = part == 2 ? c.C / 2 : c.C;
        most = t->conv_work(&c) > most ? t->conv_work(&c) : most;
    }
    assert_int_equal(hdo__arena_init(&k.a, most), HDO_OK);
    return k;
}

static void close_case(conv_case *k) {
    hdo__free(k->x), hdo__free(k->w), hdo__free(k->dy), hdo__free(k->bias);
    hdo__free(k->y), hdo__free(k->dx), hdo__free(k->dw), hdo__free(k->db);
    hdo__arena_clear(&k->a);
}

static void run_all(const hdo_mm_simd *t, conv_case *k) {
    t->conv_fwd(&k->c, k->x, k->w, k->bias, k->y, &k->a);
    t->conv_bwd_x(&k->c, k->dy, k->w, k->dx, &k->a);
    t->conv_bwd_w(&k->c, k->x, k->dy, k->dw, k->db, &k->a);
    assert_int_equal(k->a.used, 0);
}

/* ---- rounding ---- */

static void check_error(const char *what, size_t n, const float *got, const float *want, double terms) {
    double err = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        err += pow((double)got[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    double units = sqrt(err / size) / UNIT, most = RATIO * sqrt(terms) + ENDS;
    if (!(units <= most)) fail_msg("%s: %.0f terms, error %.2f u, bound %.2f u", what, terms, units, most);
}

static void test_conv_winograd_error(void **state) {
    (void)state;
    static const int shape[][8] = {
        {3, 64, 8, 8, 64, 3, 1, 1},   {5, 128, 4, 4, 128, 3, 1, 1}, {5, 256, 2, 2, 256, 3, 1, 1},
        {1, 48, 4, 4, 8, 3, 1, 1},    {2, 48, 7, 7, 24, 3, 1, 1},  /* half a panel, tiles over the edge */
        {2, 64, 14, 11, 56, 3, 1, 1}, {40, 64, 4, 8, 40, 3, 1, 1}, /* not square; several blocks of samples */
        {90, 64, 2, 2, 24, 3, 1, 1},
    };
    for (size_t i = 0; i < table_count(); i++)
        for (size_t s = 0; s < sizeof shape / sizeof shape[0]; s++) {
            conv_case k = open_case(tables[i], shape[s]), ref = open_case(&hdo__mm_portable, shape[s]);
            char what[96];
            run_all(tables[i], &k);
            hdo__ref_conv_fwd(&ref.c, ref.x, ref.w, ref.bias, ref.y, NULL);
            hdo__ref_conv_bwd_x(&ref.c, ref.dy, ref.w, ref.dx, NULL);
            hdo__ref_conv_bwd_w(&ref.c, ref.x, ref.dy, ref.dw, ref.db, NULL);
            snprintf(what, sizeof what, "%s, shape %zu, fwd", tables[i]->name, s);
            check_error(what, k.ny, k.y, ref.y, 9.0 * k.c.C);
            snprintf(what, sizeof what, "%s, shape %zu, bwd_x", tables[i]->name, s);
            check_error(what, k.nx, k.dx, ref.dx, 9.0 * k.c.O);
            snprintf(what, sizeof what, "%s, shape %zu, bwd_w", tables[i]->name, s);
            check_error(what, k.nw, k.dw, ref.dw, (double)k.c.B * k.c.Ho * k.c.Wo);
            close_case(&k), close_case(&ref);
        }
}

/* ---- parts: channels of a wider convolution, to the bit ---- */

static void test_conv_parts_equal_the_whole(void **state) {
    (void)state;
    static const int shape[][8] = {
        {3, 64, 8, 8, 64, 3, 1, 1}, {5, 64, 2, 2, 64, 3, 1, 1},  {9, 64, 1, 1, 64, 3, 1, 1},
        {2, 64, 8, 8, 96, 3, 2, 1}, {7, 64, 4, 4, 32, 1, 2, 0},  {2, 32, 9, 9, 64, 3, 1, 1},
        {3, 16, 9, 9, 16, 3, 1, 1}, {2, 32, 6, 6, 160, 3, 1, 1}, {2, 3, 16, 16, 64, 7, 2, 3},
        {2, 4, 7, 7, 32, 1, 3, 0},
    };
    for (size_t i = 0; i < table_count(); i++)
        for (size_t s = 0; s < sizeof shape / sizeof shape[0]; s++) {
            const hdo_mm_simd *t = tables[i];
            conv_case k = open_case(t, shape[s]), parts = open_case(t, shape[s]);
            size_t map = (size_t)k.c.Ho * (size_t)k.c.Wo, plane = (size_t)k.c.H * (size_t)k.c.W;
            size_t taps = (size_t)k.c.kh * (size_t)k.c.kw;
            run_all(t, &k);
            for (size_t half = 0; half < 2; half++) {
                hdo_conv c = k.c;
                c.O = k.c.O / 2;
                size_t o = half * (size_t)c.O;
                t->conv_fwd(&c, k.x, k.w + o * c.w_step, k.bias + o, parts.y + o * map, &parts.a);
                t->conv_bwd_w(&c, k.x, k.dy + o * map, parts.dw + o * c.w_step, parts.db + o, &parts.a);
                c.O = k.c.O;
                c.C = half == 0 ? k.c.C / 2 / 16 * 16 : k.c.C - k.c.C / 2 / 16 * 16; /* unequal when odd */
                size_t first = half * (size_t)(k.c.C - c.C);
                if (c.C > 0) t->conv_bwd_x(&c, k.dy, k.w + first * taps, parts.dx + first * plane, &parts.a);
            }
            assert_memory_equal(k.y, parts.y, k.ny * sizeof(float));
            assert_memory_equal(k.dx, parts.dx, k.nx * sizeof(float));
            assert_memory_equal(k.dw, parts.dw, k.nw * sizeof(float));
            assert_memory_equal(k.db, parts.db, (size_t)k.c.O * sizeof(float));
            close_case(&k), close_case(&parts);
        }
}

/* A sample's result does not depend on the samples around it. */
static void test_conv_samples_stand_alone(void **state) {
    (void)state;
    static const int shape[][8] = {
        {13, 64, 8, 8, 64, 3, 1, 1}, {21, 64, 4, 4, 64, 3, 1, 1}, {9, 64, 2, 2, 64, 3, 1, 1}};
    for (size_t i = 0; i < table_count(); i++)
        for (size_t s = 0; s < sizeof shape / sizeof shape[0]; s++) {
            const hdo_mm_simd *t = tables[i];
            conv_case k = open_case(t, shape[s]), one = open_case(t, shape[s]);
            run_all(t, &k);
            hdo_conv c = k.c;
            c.B = 1;
            for (size_t b = 0; b < (size_t)k.c.B; b++) {
                t->conv_fwd(&c, k.x + b * c.x_step, k.w, k.bias, one.y + b * c.y_step, &one.a);
                t->conv_bwd_x(&c, k.dy + b * c.y_step, k.w, one.dx + b * c.x_step, &one.a);
            }
            assert_memory_equal(k.y, one.y, k.ny * sizeof(float));
            assert_memory_equal(k.dx, one.dx, k.nx * sizeof(float));
            close_case(&k), close_case(&one);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv_winograd_error),
        cmocka_unit_test(test_conv_parts_equal_the_whole),
        cmocka_unit_test(test_conv_samples_stand_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
