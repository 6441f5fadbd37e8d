/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels give, as fingerprints: a machine with other vectors, another compiler or no multiply-add has to come
 * to the same ones (tools/check-aarch64 runs this program under an emulator). Those of the best instruction set of this
 * machine are taken; tests/test_kernels_bits.c shows that the others agree. A fingerprint changes when the definition
 * of a sum does, and then src/record/revisions.c has a line more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <string.h>

#include "base/explog.h"
#include "base/sha256.h"
#include "base/vec.h"
#include "hdo/experimental/config.h"
#include "kernel_tables.h"
#include "nn/nn_simd.h"

static void assert_digest(hdo_sha256 *h, const char *want) {
    unsigned char digest[32];
    char hex[65];
    hdo__sha256_final(h, digest);
    hdo__sha256_hex(digest, hex);
    hex[16] = '\0';
    assert_string_equal(hex, want);
}

static hdo_sha256 begin(void) {
    hdo_sha256 h;
    hdo__sha256_init(&h);
    return h;
}

static void test_gemm(void **state) {
    (void)state;
    static const int shape[][3] = {{1, 1, 1},   {2, 10, 784},  {10, 784, 2}, {37, 10, 300}, {300, 12, 4},
                                   {12, 4, 99}, {13, 33, 257}, {3, 3, 5000}, {64, 10, 128}, {49, 97, 520},
                                   {1, 40, 33}, {25, 500, 31}, {8, 128, 784}};
    hdo_sha256 h = begin();
    for (size_t i = 0; i < 4 * (sizeof shape / sizeof shape[0]); i++) {
        const int *s = shape[i / 4], M = s[0], N = s[1], K = s[2];
        bool ta = i & 1, tb = i & 2;
        size_t nc = (size_t)M * (size_t)N;
        float *A = numbers((size_t)M * (size_t)K, 1), *B = numbers((size_t)N * (size_t)K, 2), *C = numbers(nc, 3);
        hdo__kernels(HDO_KERNELS_AUTO)->gemm(ta, tb, M, N, K, -0.7F, A, ta ? M : K, B, tb ? K : N, 0.3F, C, N);
        hdo__sha256_update(&h, C, nc * sizeof *C);
        hdo__free(A), hdo__free(B), hdo__free(C);
    }
    assert_digest(&h, "1f8f32115aab0ee7");
}

static void add_conv(hdo_sha256 *h, hdo_conv c) {
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    hdo__conv_init(&c);
    size_t nx = (size_t)c.B * c.x_step, ny = (size_t)c.B * c.y_step, nw = (size_t)c.O * c.w_step, O = (size_t)c.O;
    float *x = numbers(nx, 1), *w = numbers(nw, 2), *dy = numbers(ny, 3), *bias = numbers(O, 4);
    float *y = numbers(ny, 9), *dx = numbers(nx, 9), *dw = numbers(nw, 9);
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, k->conv_work(&c)), HDO_OK);
    k->conv_fwd(&c, x, w, bias, y, &a);
    k->conv_bwd_x(&c, dy, w, dx, &a);
    k->conv_bwd_w(&c, x, dy, dw, bias, &a);
    hdo__arena_clear(&a);
    hdo__sha256_update(h, y, ny * sizeof *y);
    hdo__sha256_update(h, dx, nx * sizeof *dx);
    hdo__sha256_update(h, dw, nw * sizeof *dw);
    hdo__sha256_update(h, bias, O * sizeof *bias);
    hdo__free(x), hdo__free(w), hdo__free(dy), hdo__free(bias), hdo__free(y), hdo__free(dx), hdo__free(dw);
}

static void test_conv(void **state) {
    (void)state;
    static const int s[][7] = {/* B, C, side, O, kernel, stride, pad: small networks, ResNet-18, odd ones */
                               {5, 1, 28, 8, 3, 1, 1},   {4, 8, 14, 8, 3, 1, 1},  {70, 8, 7, 8, 3, 1, 1},
                               {2, 3, 32, 64, 7, 2, 3},  {3, 64, 8, 64, 3, 1, 1}, {3, 64, 8, 128, 3, 2, 1},
                               {3, 64, 8, 32, 1, 2, 0},  {7, 64, 2, 80, 3, 1, 1}, {4, 64, 1, 96, 3, 1, 1},
                               {3, 2, 17, 5, 5, 1, 2},   {2, 40, 9, 40, 3, 1, 1}, {6, 50, 5, 20, 3, 1, 1},
                               {13, 128, 4, 40, 3, 2, 1}};
    hdo_sha256 h = begin();
    for (size_t i = 0; i < sizeof s / sizeof s[0]; i++) add_conv(&h, conv_of(s[i]));
    assert_digest(&h, "35ad2ca2e3d1891b");
}

static void test_attention(void **state) {
    (void)state;
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    hdo_sha256 h = begin();
    for (int hs = 1; hs <= 8; hs *= 2) {
        hdo_attn s = {.B = 2, .T = 29, .heads = 2, .hs = hs, .dropout = 0.2F};
        s.mask = hdo__stream(1, HDO_RNG_TEST, 0, 0, 7);
        size_t n = (size_t)s.B * (size_t)s.T * (size_t)(s.heads * hs), rows = (size_t)s.B * (size_t)s.T * 2;
        float *qkv = numbers(3 * n, 1), *t = numbers(6 * n, 2), *dout = numbers(n, 3), *o = numbers(7 * n + rows, 4);
        hdo_arena a;
        assert_int_equal(hdo__arena_init(&a, k->attn_work(&s, 2)), HDO_OK);
        k->attn_fwd(&s, qkv, o, o + n, &a);
        k->attn_bwd(&s, qkv, o, o + n, dout, o + n + rows, &a);
        k->attn_jvp(&s, 2, qkv, t, o + 4 * n + rows, o + 5 * n + rows, &a);
        hdo__arena_clear(&a);
        hdo__sha256_update(&h, o, (7 * n + rows) * sizeof *o);
        hdo__free(qkv), hdo__free(t), hdo__free(dout), hdo__free(o);
    }
    assert_digest(&h, "4c478dc4836c5340");
}

static void test_functions(void **state) {
    (void)state;
    enum { N = 1003 };
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    hdo_sha256 h = begin();
    float *x = numbers(N, 5), y[3][N];
    double own[3];
    for (int i = 0; i < N; i++) x[i] *= i % 3 ? 4 : 80;
    k->vexp(N, x, y[0]);
    k->gelu(N, x, y[1], y[2]);
    hdo__sha256_update(&h, y, sizeof y);
    for (int i = 0; i < N; i++) {
        own[0] = hdo__exp((double)x[i]);
        own[1] = hdo__log(own[0]);
        own[2] = hdo__cos((double)x[i]);
        hdo__sha256_update(&h, own, sizeof own);
    }
    hdo__free(x);
    assert_digest(&h, "dc420ff433a4e605");
}

static void test_lists(void **state) {
    (void)state;
    enum { B = 40, P = 100, K = 11, C = 10 };
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    float *in = numbers((size_t)B * P, 1), *X = numbers((size_t)K * (P + 1) * C, 2), z[B * K * C], e[K * C];
    double loss[K] = {0};
    int64_t hits[K] = {0};
    for (size_t i = 0; i < (size_t)B * P; i++) in[i] = in[i] < 0.5F ? -0.4F : in[i];
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, hdo__sparse_bytes(B, P) + k->sparse_work(B, P)), HDO_OK);
    hdo_sparse s = hdo__sparse_make(B, P, in, -0.4F, &a);
    k->sparse_logits(&s, K, C, X, (P + 1) * C, z, &a);
    hdo__arena_clear(&a);
    hdo_sha256 h = begin();
    hdo__sha256_update(&h, z, sizeof z);
    for (int i = 0; i < B; i++) {
        float *zi = z + i * K * C;
        k->score_top(K, C, zi, i % C, hits);
        k->vexp(K * C, zi, e);
        k->score_loss(K, C, e, zi + i % C * K, loss);
    }
    hdo__sha256_update(&h, loss, sizeof loss);
    hdo__sha256_update(&h, hits, sizeof hits);
    hdo__free(in), hdo__free(X);
    assert_digest(&h, "33fad2b9eef80033");
}

static void test_vectors(void **state) {
    (void)state;
    enum { N = 5003 };
    float *x = numbers(N, 1), *y = numbers(N, 2), u[N];
    hdo_sha256 h = begin();
    double sums[3] = {hdo__dot(N, x, y), hdo__sumsq(N, x), hdo__distsq(N, x, y)};
    hdo__sha256_update(&h, sums, sizeof sums);
    hdo__axpy(N, 0.3F, x, y);
    hdo__axpby(N, 0.3F, x, -1.1F, y);
    hdo__average(N, x, y);
    hdo__sha256_update(&h, y, N * sizeof *y);
    hdo__rng_normal(hdo__stream(3, HDO_RNG_TEST, 0, 0, 1), 5, N, u);
    hdo__sha256_update(&h, u, sizeof u);
    hdo__free(x), hdo__free(y);
    assert_digest(&h, "0e8edec3c66739c6");
}

static void test_layers(void **state) {
    (void)state;
    enum { ROWS = 37, D = 4, N = ROWS * D };
    const hdo_nn_simd *k = &hdo__nn_portable;
    float *x = numbers(N, 1), *t = numbers(N, 2), *w = numbers(3 * D, 3), out[6][N] = {{0}};
    double sums[2 * D + 4] = {0};
    uint8_t place[8 * 4];
    k->ln_fwd(ROWS, D, 1e-5F, x, w, w + D, out[0]);
    k->ln_bwd(ROWS, D, 1e-5F, x, w, t, out[1], sums, sums + D);
    k->ln_jvp(ROWS, D, 1e-5F, x, t, w, w + D, w + 2 * D, out[2]);
    sums[2 * D] = k->sum(N, x);
    sums[2 * D + 1] = k->sum_sq(N, x, 0.01);
    k->dots(N, x, t, 0.01F, 1.1F, sums + 2 * D + 2, sums + 2 * D + 3);
    k->affine(N, x, 0.01F, 1.1F, 0.2F, true, out[3]);
    k->dx(N, x, t, 0.01F, 1.1F, 0.9F, 0.05F, 0.3F, out[4]);
    k->pool2(8, 4, 9, true, x, out[5], place);
    hdo_sha256 h = begin();
    hdo__sha256_update(&h, out, sizeof out);
    hdo__sha256_update(&h, sums, sizeof sums);
    hdo__sha256_update(&h, place, sizeof place);
    hdo__free(x), hdo__free(t), hdo__free(w);
    assert_digest(&h, "c47bc79a35633813");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),      cmocka_unit_test(test_conv),  cmocka_unit_test(test_attention),
        cmocka_unit_test(test_functions), cmocka_unit_test(test_lists), cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
