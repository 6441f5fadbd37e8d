/* SPDX-License-Identifier: Apache-2.0
 *
 * One definition of every sum: each instruction set this machine runs gives the bits of the portable kernels. And the
 * operation all of them are made of, where it is made by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/explog.h"
#include "base/fma.h"
#include "kernel_tables.h"
#include "kernels/attn.h"
#include "nn/nn_simd.h"

static void assert_same(const char *what, const char *who, size_t n, const float *got, const float *want) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(got + i, want + i, sizeof *got) != 0)
            fail_msg("%s, %s: number %zu of %zu is %a, not %a", what, who, i, n, (double)got[i], (double)want[i]);
}

/* ---- multiply-add, exp, log, cos ---- */

static void test_fma_is_exact(void **state) {
    (void)state;
    enum { N = 400000 };
    uint32_t *u = malloc(3 * N * sizeof *u);
    assert_non_null(u);
    hdo__rng_bits(hdo__stream(5, HDO_RNG_TEST, 0, 0, 1), 0, 3 * N, u);
    for (size_t i = 0; i < 3 * N; i++) { /* any number; near one; near one with few digits, where ties are frequent */
        size_t kind = i / 3 % 4;
        if (kind > 0) u[i] = (u[i] & 0x807fffffu) | (120 + (u[i] >> 24) % 16) << 23;
        if (kind > 1) u[i] &= 0xfffff000u;
        if (kind == 3 && i % 3 == 2) u[i] -= (u[i] >> 12 & 31) << 23; /* an addend far below the product */
    }
    for (size_t i = 0; i < 3 * N; i += 3) {
        float v[3];
        memcpy(v, u + i, sizeof v);
        hdo_f32x4 a = {v[0], -v[0], v[0], 1}, b = {v[1], v[1], 3, v[1]}, c = {v[2], v[2], v[2], v[2]};
        hdo_f32x4 r = hdo__fma4(a, b, c);
        float one = hdo__fmaf(v[0], v[1], v[2]), want = fmaf(v[0], v[1], v[2]);
        if (!isnan(want)) assert_same("fma", "one", 1, &one, &want);
        for (int l = 0; l < 4; l++) {
            float got = r[l];
            want = fmaf(a[l], b[l], c[l]);
            if (!isnan(want)) assert_same("fma", "four", 1, &got, &want);
        }
    }
    free(u);
    /* 2^24 + 1 + 2^-30: through double it is the middle between two floats, and would go to the even one. */
    assert_true(hdo__fmaf(0x1p-15f, 0x1p-15f, 0x1p24f) == 0x1p24f);
    assert_true(hdo__fmaf(4097.0f, 4095.0f, 0x1p-10f) == 16777215.0f);
    assert_true(hdo__fmaf(0x1.000002p0f, 0x1.000002p23f, 0x1.8p-40f) ==
                fmaf(0x1.000002p0f, 0x1.000002p23f, 0x1.8p-40f));
}

static void test_exp_log_cos(void **state) {
    (void)state;
    float u[3000];
    hdo__rng_uniform(hdo__stream(6, HDO_RNG_TEST, 0, 0, 1), 0, 3000, u);
    for (int i = 0; i < 3000; i++) {
        double x = ((double)u[i] - 0.5) * (i % 2 ? 1400 : 4), e = exp(x), y = i % 2 ? e : 1 + x / 8;
        assert_true(fabs(hdo__exp(x) - e) <= 4e-16 * e);
        assert_true(fabs(hdo__log(y) - log(y)) <= 4e-16 * fabs(log(y)));
        assert_true(fabs(hdo__cos(x) - cos(x)) <= 3e-16);
    }
    for (int i = 0; i < 3000; i++) { /* near 0, where exp(x) - 1 and log(1 + x) have no digits left */
        double x = ((double)u[i] - 0.5) * (i % 3 == 0 ? 3 : i % 3 == 1 ? 0.1 : 1e-9);
        assert_true(fabs(hdo__expm1(x) - expm1(x)) <= 1e-15 * fabs(expm1(x)));
        if (x > -1) assert_true(fabs(hdo__log1p(x) - log1p(x)) <= 1e-15 * fabs(log1p(x)));
    }
    assert_true(hdo__expm1(0.0) == 0.0);
    assert_true(hdo__expm1(-1e9) == -1.0);
    assert_true(isinf(hdo__expm1(1e9)));
    assert_true(isnan(hdo__expm1((double)NAN)));
    assert_true(hdo__log1p(0.0) == 0.0);
    assert_true(isinf(hdo__log1p(-1.0)));
    assert_true(isinf(hdo__log1p((double)INFINITY)));
    assert_true(isnan(hdo__log1p((double)NAN)));
    assert_true(isnan(hdo__log1p(-2.0)));
    assert_true(hdo__exp(0.0) == 1.0);
    assert_true(hdo__exp(-(double)INFINITY) == 0.0);
    assert_true(isinf(hdo__exp(1e9)));
    assert_true(isnan(hdo__exp((double)NAN)));
    assert_true(hdo__log(1.0) == 0.0);
    assert_true(isinf(hdo__log(0.0)));
    assert_true(isnan(hdo__log(-1.0)));
    assert_true(isnan(hdo__log((double)NAN)));
    assert_true(hdo__cos(0.0) == 1.0);
}

/* ---- products ---- */

static void same_gemm(bool ta, bool tb, int M, int N, int K, float alpha, float beta) {
    size_t nc = (size_t)M * (size_t)(N + 1);
    float *A = numbers((size_t)M * (size_t)K, 1), *B = numbers((size_t)N * (size_t)K, 2), *C = numbers(nc, 3);
    float *want = numbers(nc, 3), *got = numbers(nc, 3);
    hdo__mm_portable.gemm(ta, tb, M, N, K, alpha, A, ta ? M : K, B, tb ? K : N, beta, want, N + 1);
    for (size_t i = 1; i < table_count(); i++) {
        char what[96];
        snprintf(what, sizeof what, "gemm ta=%d tb=%d %dx%dx%d", ta, tb, M, N, K);
        memcpy(got, C, nc * sizeof *got);
        tables[i]->gemm(ta, tb, M, N, K, alpha, A, ta ? M : K, B, tb ? K : N, beta, got, N + 1);
        assert_same(what, tables[i]->name, nc, got, want);
    }
    hdo__free(A), hdo__free(B), hdo__free(C), hdo__free(want), hdo__free(got);
}

static void test_gemm_bits(void **state) {
    (void)state;
    static const int shape[][3] = {{1, 1, 1},     {2, 10, 784},  {10, 784, 2},  {37, 10, 300},
                                   {300, 12, 4},  {12, 4, 999},  {300, 4, 12},  {13, 33, 257},
                                   {1, 40, 33},   {3, 3, 5000},  {64, 10, 128}, {5, 7, 3},
                                   {49, 97, 520}, {25, 500, 31}, {8, 128, 784}, {100, 485, 260}};
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
        for (int t = 0; t < 4; t++) {
            const int *s = shape[i];
            same_gemm(t & 1, t & 2, s[0], s[1], s[2], 1, 0);
            same_gemm(t & 1, t & 2, s[0], s[1], s[2], -0.7F, 0.3F);
        }
}

/* ---- convolutions ---- */

static void same_conv(hdo_conv c) {
    hdo__conv_init(&c);
    if (c.Ho < 1 || c.Wo < 1) return;
    size_t nx = (size_t)c.B * c.x_step, ny = (size_t)c.B * c.y_step, nw = (size_t)c.O * c.w_step, O = (size_t)c.O;
    float *x = numbers(nx, 1), *w = numbers(nw, 2), *dy = numbers(ny, 3), *bias = numbers(O, 4);
    float *out[2][4];
    for (size_t i = 0; i < table_count(); i++) {
        float **o = out[i > 0];
        size_t len[4] = {ny, nx, nw, O};
        char what[96];
        hdo_arena a;
        assert_int_equal(hdo__arena_init(&a, tables[i]->conv_work(&c)), HDO_OK);
        for (int k = 0; k < 4 && i < 2; k++) o[k] = numbers(len[k], 9);
        tables[i]->conv_fwd(&c, x, w, bias, o[0], &a);
        tables[i]->conv_bwd_x(&c, dy, w, o[1], &a);
        tables[i]->conv_bwd_w(&c, x, dy, o[2], o[3], &a);
        hdo__arena_clear(&a);
        for (int k = 0; k < 4 && i > 0; k++) {
            snprintf(what, sizeof what, "conv B%d %dx%dx%d -> %d k%dx%d s%d p%d, result %d", c.B, c.C, c.H, c.W, c.O,
                     c.kh, c.kw, c.stride, c.pad, k);
            assert_same(what, tables[i]->name, len[k], o[k], out[0][k]);
        }
    }
    for (int k = 0; k < 4; k++) {
        hdo__free(out[0][k]);
        if (table_count() > 1) hdo__free(out[1][k]);
    }
    hdo__free(x), hdo__free(w), hdo__free(dy), hdo__free(bias);
}

static void test_conv_bits(void **state) {
    (void)state;
    static const int s[][7] = {/* B, C, side, O, kernel, stride, pad: small networks, ResNet-18, odd ones */
                               {5, 1, 28, 8, 3, 1, 1},   {4, 8, 14, 8, 3, 1, 1},    {9, 8, 7, 8, 3, 1, 1},
                               {2, 3, 32, 64, 7, 2, 3},  {3, 64, 8, 64, 3, 1, 1},   {3, 64, 8, 128, 3, 2, 1},
                               {5, 48, 4, 64, 3, 1, 1},  {3, 64, 8, 32, 1, 2, 0},   {7, 64, 2, 80, 3, 1, 1},
                               {11, 40, 2, 70, 3, 1, 1}, {4, 64, 1, 96, 3, 1, 1},   {2, 33, 20, 35, 3, 1, 1},
                               {3, 2, 17, 5, 5, 1, 2},   {2, 40, 9, 40, 3, 1, 1},   {6, 50, 5, 20, 3, 1, 1},
                               {70, 8, 7, 8, 3, 1, 1},   {13, 128, 4, 40, 3, 2, 1}, {2, 64, 5, 64, 3, 1, 1}};
    for (size_t i = 0; i < sizeof s / sizeof s[0]; i++) same_conv(conv_of(s[i]));
    uint32_t r[60 * 9];
    hdo__rng_bits(hdo__stream(3, HDO_RNG_TEST, 0, 0, 98), 0, sizeof r / sizeof r[0], r);
    static const int kernel[] = {1, 3, 5, 7};
    for (int i = 0; i < 60; i++) {
        const uint32_t *u = r + 9 * i;
        same_conv((hdo_conv){.B = 1 + (int)(u[0] % 11),
                             .C = 1 + (int)(u[1] % 17),
                             .H = 1 + (int)(u[2] % 15),
                             .W = 1 + (int)(u[3] % 15),
                             .O = 1 + (int)(u[4] % 17),
                             .kh = kernel[u[5] % 4],
                             .kw = kernel[u[8] % 3 ? u[5] % 4 : u[8] % 4],
                             .stride = 1 + (int)(u[6] % 3 == 0),
                             .pad = (int)(u[7] % 4)});
    }
}

/* ---- attention, exponentials, layer-norm: eight lanes, so AVX2 is the widest ---- */

#ifdef HDO_HAVE_AVX2_BUILD
static void same_attention(hdo_attn s) {
    size_t n = (size_t)s.B * (size_t)s.T * (size_t)(s.heads * s.hs), rows = (size_t)s.B * (size_t)s.T * (size_t)s.heads;
    float *qkv = numbers(3 * n, 1), *t = numbers(2 * 3 * n, 2), *dout = numbers(n, 3);
    const hdo_attn_simd *table[] = {&hdo__attn_portable, &hdo__attn_avx2};
    float *out[2];
    for (size_t i = 0; i < 3 * n; i++) qkv[i] *= 5;
    for (int i = 0; i < 2; i++) {
        hdo_arena a;
        float *o = out[i] = numbers(7 * n + rows, 4);
        assert_int_equal(hdo__arena_init(&a, table[i]->attn_work(&s, 2)), HDO_OK);
        table[i]->attn_fwd(&s, qkv, o, o + n, &a);
        table[i]->attn_bwd(&s, qkv, o, o + n, dout, o + n + rows, &a);
        table[i]->attn_jvp(&s, 2, qkv, t, o + 4 * n + rows, o + 5 * n + rows, &a);
        hdo__arena_clear(&a);
    }
    assert_same("attention", "avx2", 7 * n + rows, out[1], out[0]);
    hdo__free(qkv), hdo__free(t), hdo__free(dout), hdo__free(out[0]), hdo__free(out[1]);
}

static void same_norms(size_t rows, int D) {
    size_t n = rows * (size_t)D;
    float *x = numbers(n, 1), *t = numbers(n, 2), *w = numbers(3 * (size_t)D, 3);
    const hdo_nn_simd *table[] = {&hdo__nn_portable, &hdo__nn_avx2};
    float *out[2];
    double sums[2][64] = {{0}};
    for (int i = 0; i < 2; i++) {
        out[i] = numbers(3 * n, 4);
        table[i]->ln_fwd(rows, D, 1e-5F, x, w, w + D, out[i]);
        table[i]->ln_bwd(rows, D, 1e-5F, x, w, t, out[i] + n, sums[i], sums[i] + D);
        table[i]->ln_jvp(rows, D, 1e-5F, x, t, w, w + D, w + 2 * D, out[i] + 2 * n);
    }
    assert_same("layer-norm", "avx2", 3 * n, out[1], out[0]);
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    hdo__free(x), hdo__free(t), hdo__free(w), hdo__free(out[0]), hdo__free(out[1]);
}
#endif

static void test_layer_bits(void **state) {
    (void)state;
#ifdef HDO_HAVE_AVX2_BUILD
    if (table_count() < 2) skip();
    for (int hs = 1; hs <= 8; hs *= 2)
        for (int T = 1; T < 40; T += 12) {
            hdo_attn s = {.B = 2, .T = T, .heads = 2, .hs = hs, .mask = hdo__stream(1, HDO_RNG_TEST, 0, 0, 7)};
            same_attention(s);
            s.dropout = 0.2F;
            same_attention(s);
        }
    float *x = numbers(1003, 5), *y[2][3];
    for (int i = 0; i < 1003; i++) x[i] *= i % 3 ? 4 : 80;
    for (int i = 0; i < 2; i++) {
        const hdo_attn_simd *t = i == 0 ? &hdo__attn_portable : &hdo__attn_avx2;
        for (int k = 0; k < 3; k++) y[i][k] = numbers(1003, 6);
        t->vexp(1003, x, y[i][0]);
        t->gelu(1003, x, y[i][1], y[i][2]);
    }
    for (int k = 0; k < 3; k++) {
        assert_same("exp, GELU", "avx2", 1003, y[1][k], y[0][k]);
        hdo__free(y[0][k]), hdo__free(y[1][k]);
    }
    hdo__free(x);
    same_norms(37, 4);
    same_norms(5, 4);
    same_norms(9, 16);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fma_is_exact), cmocka_unit_test(test_exp_log_cos), cmocka_unit_test(test_gemm_bits),
        cmocka_unit_test(test_conv_bits),    cmocka_unit_test(test_layer_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
