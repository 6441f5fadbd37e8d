/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products and convolutions: every fast path against the reference, the reference against identities.
 *
 * Tolerance. A float sum of K products, in any order, differs from the exact one by at most about K u S and, as the
 * roundings are not all of one sign, typically by less than sqrt(K) u S, with u = 2^-24 and S the sum of the absolute
 * products (the same kernel on absolute values). LAMBDA = 4 of those plus 4 roundings for the ends is far from what a
 * correct kernel does on random data (measured: below 1) and far below a wrong index, which changes S / sqrt(K). In
 * Winograd convolutions outputs share roundings with their neighbours: S is then the largest of all
 * (test_kernels_wino.c has a sharper bound).
 */
#include <math.h>
#include <pthread.h>
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

#define LAMBDA 4.0
#define UNIT (1.0 / 16777216.0)

/* ---- helpers ---------------------------------------------------------------------------------------------------- */

static float *randoms(size_t n, uint32_t sub) { /* uniform in (-1, 1) */
    float *x = malloc((n > 0 ? n : 1) * sizeof *x);
    assert_non_null(x);
    hdo__rng_uniform(hdo__stream(7, HDO_RNG_TEST, 0, 0, sub), 0, n, x);
    for (size_t i = 0; i < n; i++) x[i] = 2 * x[i] - 1;
    return x;
}

static float *absolutes(size_t n, const float *x) {
    float *y = malloc((n > 0 ? n : 1) * sizeof *y);
    assert_non_null(y);
    for (size_t i = 0; i < n; i++) y[i] = fabsf(x[i]);
    return y;
}

static float *filled(size_t n, float v) {
    float *y = malloc((n > 0 ? n : 1) * sizeof *y);
    assert_non_null(y);
    for (size_t i = 0; i < n; i++) y[i] = v;
    return y;
}

static void compare(const char *what, size_t n, const float *got, const float *want, const float *scale, double depth) {
    double tol = (LAMBDA * sqrt(depth) + 4) * UNIT;
    for (size_t i = 0; i < n; i++) {
        double err = fabs((double)got[i] - (double)want[i]);
        if (!(err <= tol * (double)scale[i] + 1e-30)) {
            fail_msg("%s: element %zu of %zu is %.9g, expected %.9g, off by %.1f of the tolerance", what, i, n,
                     (double)got[i], (double)want[i], err / (tol * (double)scale[i] + 1e-30));
        }
    }
}

static void level(size_t n, float *S) { /* all as the largest */
    float most = 0;
    for (size_t i = 0; i < n; i++) most = S[i] > most ? S[i] : most;
    for (size_t i = 0; i < n; i++) S[i] = most;
}

/* ---- products --------------------------------------------------------------------------------------------------- */

typedef void gemm_fn(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B,
                     int ldb, float beta, float *C, int ldc);

static void check_gemm(const char *who, gemm_fn *gemm, bool ta, bool tb, int M, int N, int K, float alpha, float beta,
                       int slack) {
    char what[160];
    snprintf(what, sizeof what, "%s gemm ta=%d tb=%d %dx%dx%d alpha=%g beta=%g", who, ta, tb, M, N, K, (double)alpha,
             (double)beta);
    int lda = (ta ? M : K) + slack, ldb = (tb ? K : N) + 2 * slack, ldc = N + slack;
    size_t na = (size_t)lda * (size_t)(ta ? K : M), nb = (size_t)ldb * (size_t)(tb ? N : K);
    size_t nc = (size_t)ldc * (size_t)M;
    float *A = randoms(na, 1), *B = randoms(nb, 2), *C = randoms(nc, 3);
    float *aA = absolutes(na, A), *aB = absolutes(nb, B), *S = absolutes(nc, C);
    if (beta == 0)
        for (size_t i = 0; i < nc; i++) C[i] = NAN; /* must not be read */
    float *want = malloc(nc * sizeof *want), *got = malloc(nc * sizeof *got);
    assert_true(want != NULL && got != NULL);
    memcpy(want, C, nc * sizeof *want);
    memcpy(got, C, nc * sizeof *got);
    hdo__ref_gemm(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, want, ldc);
    hdo__ref_gemm(ta, tb, M, N, K, fabsf(alpha), aA, lda, aB, ldb, fabsf(beta), S, ldc);
    gemm(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, got, ldc);
    for (int m = 0; m < M; m++) {
        size_t r = (size_t)m * (size_t)ldc;
        compare(what, (size_t)N, got + r, want + r, S + r, K);
        assert_memory_equal(got + r + N, C + r + N, (size_t)slack * sizeof *got); /* nothing behind the row */
    }
    free(A), free(B), free(C), free(aA), free(aB), free(S), free(want), free(got);
}

static void check_gemm_all(const char *who, gemm_fn *gemm) {
    static const int shape[][3] = {
        {1, 1, 1},    {2, 10, 784}, {8, 128, 784}, {37, 10, 784},   {10, 784, 2}, {128, 50, 8},  {300, 12, 4},
        {12, 4, 999}, {300, 4, 12}, {5, 7, 3},     {6, 16, 256},    {7, 17, 257}, {25, 33, 300}, {50, 200, 40},
        {1, 40, 33},  {3, 3, 5000}, {16, 16, 16},  {200, 150, 270}, {13, 31, 64}, {64, 10, 128}, {193, 140, 30},
    };
    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
        for (int t = 0; t < 4; t++) {
            const int *s = shape[i];
            check_gemm(who, gemm, t & 1, t & 2, s[0], s[1], s[2], 1, 0, 0);
            check_gemm(who, gemm, t & 1, t & 2, s[0], s[1], s[2], -0.7F, 0.3F, 3);
            check_gemm(who, gemm, t & 1, t & 2, s[0], s[1], s[2], 2, 1, 1);
        }
    check_gemm(who, gemm, false, true, 4, 4, 0, 1, 0, 0); /* empty sum: C = beta C */
    check_gemm(who, gemm, false, true, 4, 4, 9, 0, 0.5F, 1);
}

static void test_gemm_equals_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < table_count(); i++) check_gemm_all(tables[i]->name, tables[i]->gemm);
    check_gemm_all("auto", hdo__kernels(HDO_KERNELS_AUTO)->gemm);
}

static void test_gemm_reference_known(void **state) { /* (1 2; 3 4) (5 6; 7 8), by hand, all four layouts */
    (void)state;
    const float a[] = {1, 2, 3, 4}, at[] = {1, 3, 2, 4}, b[] = {5, 6, 7, 8}, bt[] = {5, 7, 6, 8};
    const float want[] = {19, 22, 43, 50};
    for (int t = 0; t < 4; t++) {
        float c[4] = {NAN, NAN, NAN, NAN};
        hdo__ref_gemm(t & 1, t & 2, 2, 2, 2, 1, t & 1 ? at : a, 2, t & 2 ? bt : b, 2, 0, c, 2);
        assert_memory_equal(c, want, sizeof c);
    }
}

/* ---- convolutions ----------------------------------------------------------------------------------------------- */

static hdo_conv conv(int B, int C, int H, int W, int O, int k, int stride, int pad) {
    hdo_conv c = {.B = B, .C = C, .H = H, .W = W, .O = O, .kh = k, .kw = k, .stride = stride, .pad = pad};
    hdo__conv_init(&c);
    return c;
}

typedef struct sizes {
    size_t x, w, y;
} sizes;

static sizes conv_sizes(const hdo_conv *c) {
    return (sizes){(size_t)c->B * (size_t)c->C * (size_t)c->H * (size_t)c->W,
                   (size_t)c->O * (size_t)c->C * (size_t)c->kh * (size_t)c->kw,
                   (size_t)c->B * (size_t)c->O * (size_t)c->Ho * (size_t)c->Wo};
}

typedef struct conv_fns {
    const char *name;
    size_t (*work)(const hdo_conv *c);
    void (*fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y, hdo_arena *a);
    void (*bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
    void (*bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, float *db, hdo_arena *a);
} conv_fns;

static void check_conv(const conv_fns *f, hdo_conv c) {
    char what[160];
    int len = snprintf(what, sizeof what, "%s B%d %dx%dx%d -> %d k%dx%d s%d p%d ", f->name, c.B, c.C, c.H, c.W, c.O,
                       c.kh, c.kw, c.stride, c.pad);
    sizes n = conv_sizes(&c);
    size_t O = (size_t)c.O;
    float *x = randoms(n.x, 11), *w = randoms(n.w, 12), *dy = randoms(n.y, 13), *bias = randoms(O, 14);
    float *ax = absolutes(n.x, x), *aw = absolutes(n.w, w), *ady = absolutes(n.y, dy), *ab = absolutes(O, bias);
    size_t most = n.x > n.y ? n.x : n.y;
    most = most > n.w ? most : n.w;
    float *got = filled(most, NAN), *want = filled(most, 0), *S = filled(most, 0);
    float *db = filled(O, NAN), *wdb = filled(O, 0), *Sdb = filled(O, 0);
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, f->work(&c)), HDO_OK);
    double taps = c.kh * c.kw;
    bool shared = c.kh == 3 && c.kw == 3 && c.stride == 1 && c.pad == 1 && c.C >= 48; /* Winograd */

    for (int with = 0; with < 2; with++) {
        f->fwd(&c, x, w, with ? bias : NULL, got, &a);
        assert_int_equal(a.used, 0);
        hdo__ref_conv_fwd(&c, x, w, with ? bias : NULL, want, NULL);
        hdo__ref_conv_fwd(&c, ax, aw, with ? ab : NULL, S, NULL);
        snprintf(what + len, sizeof what - (size_t)len, "fwd");
        if (shared) level(n.y, S);
        compare(what, n.y, got, want, S, c.C * taps + 1);
    }
    for (size_t i = 0; i < most; i++) got[i] = NAN;
    f->bwd_x(&c, dy, w, got, &a);
    assert_int_equal(a.used, 0);
    hdo__ref_conv_bwd_x(&c, dy, w, want, NULL);
    hdo__ref_conv_bwd_x(&c, ady, aw, S, NULL);
    snprintf(what + len, sizeof what - (size_t)len, "bwd_x");
    if (shared) level(n.x, S);
    compare(what, n.x, got, want, S, c.O * taps);

    for (int with = 0; with < 2; with++) {
        for (size_t i = 0; i < most; i++) got[i] = NAN;
        f->bwd_w(&c, x, dy, got, with ? db : NULL, &a);
        assert_int_equal(a.used, 0);
        hdo__ref_conv_bwd_w(&c, x, dy, want, wdb, NULL);
        hdo__ref_conv_bwd_w(&c, ax, ady, S, Sdb, NULL);
        snprintf(what + len, sizeof what - (size_t)len, "bwd_w");
        if (shared) level(n.w, S);
        compare(what, n.w, got, want, S, (double)c.B * c.Ho * c.Wo);
        if (with) compare("db", O, db, wdb, Sdb, (double)c.B * c.Ho * c.Wo);
    }
    hdo__arena_clear(&a);
    free(x), free(w), free(dy), free(bias), free(ax), free(aw), free(ady), free(ab);
    free(got), free(want), free(S), free(db), free(wdb), free(Sdb);
}

static void each_path(void (*run)(const conv_fns *f)) {
    for (size_t i = 0; i < table_count(); i++) {
        const hdo_mm_simd *t = tables[i];
        run(&(conv_fns){t->name, t->conv_work, t->conv_fwd, t->conv_bwd_x, t->conv_bwd_w});
    }
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    run(&(conv_fns){"auto", k->conv_work, k->conv_fwd, k->conv_bwd_x, k->conv_bwd_w});
}

static void run_random(const conv_fns *f) {
    uint32_t r[300 * 10];
    hdo__rng_bits(hdo__stream(3, HDO_RNG_TEST, 0, 0, 99), 0, sizeof r / sizeof r[0], r);
    static const int kernel[] = {1, 3, 5, 7};
    for (int i = 0; i < 300; i++) {
        const uint32_t *u = r + 10 * i;
        hdo_conv c = {.B = 1 + (int)(u[0] % 11),
                      .C = 1 + (int)(u[1] % 17),
                      .H = 1 + (int)(u[2] % 15),
                      .W = 1 + (int)(u[3] % 15),
                      .O = 1 + (int)(u[4] % 17),
                      .kh = kernel[u[5] % 4],
                      .stride = 1 + (int)(u[6] % 3 == 0),
                      .pad = (int)(u[7] % 4)};
        c.kw = u[8] % 4 == 0 ? kernel[u[9] % 4] : c.kh;
        if (u[8] % 3 == 0) c.pad = c.kh / 2; /* the direct kernels take this kind: make it frequent */
        hdo__conv_init(&c);
        if (c.Ho < 1 || c.Wo < 1) continue;
        check_conv(f, c);
    }
}

static void run_small_nets(const conv_fns *f) {
    static const int side[] = {28, 14, 7, 1, 2, 3, 4, 5, 6, 8, 9, 16, 31};
    static const int chan[] = {1, 3, 8, 16, 32};
    for (size_t s = 0; s < sizeof side / sizeof side[0]; s++)
        for (size_t i = 0; i < 5; i++)
            for (size_t o = 0; o < 5; o++)
                if (side[s] < 20 || chan[i] * chan[o] <= 64)
                    check_conv(f, conv(side[s] < 10 ? 5 : 2, chan[i], side[s], side[s], chan[o], 3, 1, 1));
    check_conv(f, conv(70, 8, 7, 7, 8, 3, 1, 1)); /* several groups of samples */
    check_conv(f, conv(33, 1, 28, 28, 8, 3, 1, 1));
    check_conv(f, conv(3, 2, 9, 17, 5, 5, 1, 2)); /* not square */
    check_conv(f, conv(2, 4, 40, 3, 6, 7, 1, 3));
}

static void run_resnet18(const conv_fns *f) { /* 32 x 32 input: the distinct shapes of its 20 convolutions */
    static const int l[][6] = {               /* C, O, side, kernel, stride, pad */
                               {3, 64, 32, 7, 2, 3},   {64, 64, 8, 3, 1, 1},   {64, 128, 8, 3, 2, 1},
                               {128, 128, 4, 3, 1, 1}, {64, 128, 8, 1, 2, 0},  {128, 256, 4, 3, 2, 1},
                               {256, 256, 2, 3, 1, 1}, {128, 256, 4, 1, 2, 0}, {256, 512, 2, 3, 2, 1},
                               {512, 512, 1, 3, 1, 1}, {256, 512, 2, 1, 2, 0}};
    for (size_t i = 0; i < sizeof l / sizeof l[0]; i++)
        check_conv(f, conv(2, l[i][0], l[i][2], l[i][2], l[i][1], l[i][3], l[i][4], l[i][5]));
    /* Small maps with more samples go by pixel: the same layers, fewer channels (neither a multiple of a tile). */
    for (size_t i = 2; i < sizeof l / sizeof l[0]; i++)
        check_conv(f, conv(9 + (int)i, l[i][0] / 8 + 1, l[i][2], l[i][2], l[i][1] / 8 + 3, l[i][3], l[i][4], l[i][5]));
    check_conv(f, conv(11, 256, 2, 2, 70, 3, 1, 1)); /* several blocks of depth */
    check_conv(f, conv(50, 70, 4, 4, 40, 3, 1, 1));  /* several blocks of columns */
}

static void run_edges(const conv_fns *f) {
    check_conv(f, conv(2, 3, 5, 5, 4, 3, 3, 0)); /* stride 3 */
    check_conv(f, conv(2, 3, 7, 7, 4, 1, 3, 0)); /* pixels nobody reads: their dx is zero, not garbage */
    check_conv(f, conv(3, 2, 4, 4, 3, 1, 1, 1)); /* outputs that see only padding */
    check_conv(f, conv(1, 2, 1, 1, 3, 1, 2, 3));
    check_conv(f, conv(2, 3, 17, 31, 8, 3, 2, 1)); /* first layers: one vector a row, channels left over */
    check_conv(f, conv(3, 1, 20, 48, 7, 5, 2, 2));
    check_conv(f, conv(1, 4, 9, 18, 12, 3, 2, 0));   /* a column nobody reads */
    check_conv(f, conv(2, 33, 20, 20, 35, 3, 1, 1)); /* several blocks of depth and of columns */
    check_conv(f, conv(9, 40, 2, 2, 70, 3, 1, 1));
}

static void test_conv_random_shapes(void **state) {
    (void)state;
    each_path(run_random);
}
static void test_conv_small_nets(void **state) {
    (void)state;
    each_path(run_small_nets);
}
static void test_conv_resnet18(void **state) {
    (void)state;
    each_path(run_resnet18);
}
static void test_conv_edges(void **state) {
    (void)state;
    each_path(run_edges);
}

static double inner(size_t n, const float *x, const float *y) {
    double s = 0;
    for (size_t i = 0; i < n; i++) s += (double)x[i] * (double)y[i];
    return s;
}

/* <dy, conv(x, w)> = <dx, x> = <dw, w>: both backward passes are adjoints of the forward one, in double up to the float
 * rounding of the three results (relative to the norms). */
static void run_adjoint(const conv_fns *f) {
    static const int s[][8] = {{3, 8, 14, 14, 8, 3, 1, 1}, {2, 1, 28, 28, 8, 3, 1, 1}, {4, 5, 9, 11, 7, 3, 2, 1},
                               {2, 3, 13, 13, 6, 7, 2, 3}, {5, 16, 4, 4, 24, 3, 1, 1}, {3, 20, 2, 2, 9, 3, 2, 1},
                               {2, 4, 6, 5, 3, 1, 1, 2},   {7, 12, 1, 1, 18, 3, 1, 1}, {2, 4, 10, 10, 4, 5, 3, 0}};
    for (size_t i = 0; i < sizeof s / sizeof s[0]; i++) {
        hdo_conv c = conv(s[i][0], s[i][1], s[i][2], s[i][3], s[i][4], s[i][5], s[i][6], s[i][7]);
        sizes n = conv_sizes(&c);
        float *x = randoms(n.x, 21), *w = randoms(n.w, 22), *dy = randoms(n.y, 23);
        float *y = filled(n.y, NAN), *dx = filled(n.x, NAN), *dw = filled(n.w, NAN);
        hdo_arena a;
        assert_int_equal(hdo__arena_init(&a, f->work(&c)), HDO_OK);
        f->fwd(&c, x, w, NULL, y, &a);
        f->bwd_x(&c, dy, w, dx, &a);
        f->bwd_w(&c, x, dy, dw, NULL, &a);
        double one = inner(n.y, dy, y), two = inner(n.x, dx, x), three = inner(n.w, dw, w);
        double size = sqrt(inner(n.y, dy, dy) * inner(n.y, y, y));
        if (fabs(one - two) > 1e-6 * size || fabs(one - three) > 1e-6 * size)
            fail_msg("%s, shape %zu: <dy, y> = %.9g, <dx, x> = %.9g, <dw, w> = %.9g", f->name, i, one, two, three);
        hdo__arena_clear(&a);
        free(x), free(w), free(dy), free(y), free(dx), free(dw);
    }
}

static void test_conv_adjoint(void **state) {
    (void)state;
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_REF);
    run_adjoint(&(conv_fns){"ref", k->conv_work, k->conv_fwd, k->conv_bwd_x, k->conv_bwd_w});
    each_path(run_adjoint);
}

/* ---- bits: alignment and threads -------------------------------------------------------------------------------- */

/* Everything of one pass over a few shapes into `out`, arguments shifted by `shift` floats from 64-byte alignment. */
#define JOB_OUT ((size_t)1 << 16)

static size_t job_conv(const hdo_kernels *k, hdo_conv c, size_t shift, float *out) {
    sizes n = conv_sizes(&c);
    size_t total = n.x + n.w + n.y;
    float *in = hdo__alloc((total + shift) * sizeof *in), *res = hdo__alloc((total + shift) * sizeof *res);
    float *rnd = randoms(total, 31), *x = in + shift, *w = x + n.x, *dy = w + n.w;
    memcpy(x, rnd, total * sizeof *rnd);
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, k->conv_work(&c)), HDO_OK);
    k->conv_fwd(&c, x, w, NULL, res + shift, &a);
    k->conv_bwd_x(&c, dy, w, res + shift + n.y, &a);
    k->conv_bwd_w(&c, x, dy, res + shift + n.y + n.x, NULL, &a);
    memcpy(out, res + shift, total * sizeof *out);
    hdo__arena_clear(&a);
    hdo__free(in), hdo__free(res), free(rnd);
    return total;
}

static size_t job_gemm(const hdo_kernels *k, bool ta, bool tb, int M, int N, int K, size_t shift, float *out) {
    size_t na = (size_t)M * (size_t)K, nb = (size_t)N * (size_t)K, nc = (size_t)M * (size_t)N;
    float *in = hdo__alloc((na + nb + nc + shift) * sizeof *in), *rnd = randoms(na + nb, 32);
    memcpy(in + shift, rnd, (na + nb) * sizeof *rnd);
    float *A = in + shift, *B = A + na, *C = B + nb;
    k->gemm(ta, tb, M, N, K, 1, A, ta ? M : K, B, tb ? K : N, 0, C, N);
    memcpy(out, C, nc * sizeof *out);
    hdo__free(in), free(rnd);
    return nc;
}

static size_t job(size_t shift, float *out) {
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    size_t n = 0;
    n += job_conv(k, conv(4, 8, 14, 14, 8, 3, 1, 1), shift, out + n);
    n += job_conv(k, conv(3, 1, 28, 28, 8, 3, 1, 1), shift, out + n);
    n += job_conv(k, conv(3, 24, 4, 4, 20, 3, 2, 1), shift, out + n);
    n += job_conv(k, conv(6, 30, 2, 2, 40, 3, 1, 1), shift, out + n);
    n += job_gemm(k, false, true, 8, 50, 300, shift, out + n);
    n += job_gemm(k, true, false, 50, 70, 8, shift, out + n);
    n += job_gemm(k, false, false, 40, 40, 40, shift, out + n);
    assert_true(n <= JOB_OUT);
    return n;
}

static void test_bits_independent_of_alignment(void **state) {
    (void)state;
    float *a = filled(JOB_OUT, 0), *b = filled(JOB_OUT, 0);
    size_t n = job(0, a);
    for (size_t shift = 1; shift < 16; shift += 3) {
        assert_int_equal(job(shift, b), n);
        assert_memory_equal(a, b, n * sizeof *a);
    }
    free(a), free(b);
}

typedef struct thread_job {
    const float *want;
    size_t mismatches;
} thread_job;

static void *run_thread(void *arg) {
    thread_job *t = arg;
    float *out = filled(JOB_OUT, 0);
    for (int r = 0; r < 50; r++) {
        size_t n = job(0, out);
        t->mismatches += memcmp(out, t->want, n * sizeof *out) != 0;
    }
    free(out);
    return NULL;
}

static void test_bits_independent_of_threads(void **state) {
    (void)state;
    float *want = filled(JOB_OUT, 0);
    job(0, want);
    pthread_t id[4];
    thread_job t[4];
    for (int i = 0; i < 4; i++) {
        t[i] = (thread_job){want, 0};
        assert_int_equal(pthread_create(&id[i], NULL, run_thread, &t[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(id[i], NULL);
        assert_int_equal(t[i].mismatches, 0);
    }
    free(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_reference_known),
        cmocka_unit_test(test_gemm_equals_reference),
        cmocka_unit_test(test_conv_random_shapes),
        cmocka_unit_test(test_conv_small_nets),
        cmocka_unit_test(test_conv_resnet18),
        cmocka_unit_test(test_conv_edges),
        cmocka_unit_test(test_conv_adjoint),
        cmocka_unit_test(test_bits_independent_of_alignment),
        cmocka_unit_test(test_bits_independent_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
