/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention, exp and GELU. An independent double implementation written here checks the reference; the reference
 * checks the vector kernels of every instruction set this machine runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "kernels/attn.h"

static const hdo_attn_simd ref_table = {hdo__ref_attn_fwd,  hdo__ref_attn_bwd, hdo__ref_attn_jvp,
                                        hdo__ref_attn_work, hdo__ref_vexp,     hdo__ref_gelu};

/* The tables that can run here; the first is the reference. */
static struct {
    const char *name;
    const hdo_attn_simd *t;
} backend[3];
static int backends;

static void add_backend(const char *name, const hdo_attn_simd *t) {
    backend[backends].name = name;
    backend[backends++].t = t;
}

static int find_backends(void **state) {
    (void)state;
    add_backend("ref", &ref_table);
    add_backend("portable", &hdo__attn_portable);
#ifdef HDO_HAVE_AVX2_BUILD
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) add_backend("avx2", &hdo__attn_avx2);
#endif
    return 0;
}

static hdo_attn shape(int B, int T, int heads, int hs, float dropout) {
    hdo_attn s = {.B = B, .T = T, .heads = heads, .hs = hs, .dropout = dropout};
    s.mask = hdo__stream(12345, HDO_RNG_TEST, 3, 7, 1);
    return s;
}

static size_t n_out(const hdo_attn *s) {
    return (size_t)s->B * (size_t)s->T * (size_t)(s->heads * s->hs);
}
static size_t n_lse(const hdo_attn *s) {
    return (size_t)s->B * (size_t)s->T * (size_t)s->heads;
}

static float *normals(uint32_t sub, size_t n, float scale) {
    float *x = hdo__alloc(n * sizeof(float));
    assert_non_null(x);
    hdo__rng_normal(hdo__stream(99, HDO_RNG_TEST, 0, 0, sub), 0, n, x);
    for (size_t i = 0; i < n; i++) x[i] *= scale;
    return x;
}

static float *numbers(size_t n) {
    float *x = hdo__alloc(n * sizeof(float));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = NAN; /* a forgotten element shows */
    return x;
}

/* Arenas of exactly the size attn_work asks for: too small an answer aborts. */
static void run_fwd(const hdo_attn_simd *t, const hdo_attn *s, const float *qkv, float *out, float *lse) {
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, t->attn_work(s, 0)), HDO_OK);
    t->attn_fwd(s, qkv, out, lse, &a);
    assert_int_equal(a.used, 0);
    hdo__arena_clear(&a);
}
static void run_bwd(const hdo_attn_simd *t, const hdo_attn *s, const float *qkv, const float *out, const float *lse,
                    const float *dout, float *dqkv) {
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, t->attn_work(s, 0)), HDO_OK);
    t->attn_bwd(s, qkv, out, lse, dout, dqkv, &a);
    assert_int_equal(a.used, 0);
    hdo__arena_clear(&a);
}
static void run_jvp(const hdo_attn_simd *t, const hdo_attn *s, int k, const float *qkv, const float *dqkv, float *out,
                    float *dout) {
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, t->attn_work(s, k)), HDO_OK);
    t->attn_jvp(s, k, qkv, dqkv, out, dout, &a);
    assert_int_equal(a.used, 0);
    hdo__arena_clear(&a);
}

/* max |x - y| / max |y|; infinite when x has something that is not finite. */
static double distance(size_t n, const float *x, const float *y) {
    double worst = 0.0, top = 0.0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)x[i] - (double)y[i]);
        if (!(d <= 1e300)) return (double)INFINITY;
        if (d > worst) worst = d;
        if (fabs((double)y[i]) > top) top = fabs((double)y[i]);
    }
    return worst / (top > 0.0 ? top : 1.0);
}

static void assert_close(const char *what, const char *name, const hdo_attn *s, double d, double limit) {
    if (d <= limit) return;
    fail_msg("%s (%s): B %d T %d heads %d hs %d p %g: distance %.3g above %.3g", what, name, s->B, s->T, s->heads,
             s->hs, (double)s->dropout, d, limit);
}

/* ---- an independent implementation in double --------------------------------------------------------------------- */

/* Straight from the comment in kernels.h, one number at a time. */
static double keep_factor(const hdo_attn *s, int b, int h, int i, int j) {
    if (!(s->dropout > 0.0f)) return 1.0;
    uint64_t T = (uint64_t)s->T, R = (T * (T + 1) / 2 + 63) / 64 * 64;
    uint64_t n = ((uint64_t)(s->b0 + b) * (uint64_t)s->heads + (uint64_t)h) * R + (uint64_t)(i * (i + 1) / 2 + j);
    uint32_t word;
    hdo__rng_bits(s->mask, n / 2, 1, &word);
    uint32_t number = n % 2 == 0 ? word & 0xffffu : word >> 16;
    return (double)number >= floor((double)s->dropout * 65536.0) ? 1.0 / (1.0 - (double)s->dropout) : 0.0;
}

static void double_fwd(const hdo_attn *s, const double *qkv, double *out, double *lse) {
    int T = s->T, hs = s->hs, D = s->heads * hs;
    for (int b = 0; b < s->B; b++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < T; i++) {
                const double *x = qkv + (size_t)(b * T * 3 * D + h * hs);
                double score[512], top = -1e300, sum = 0.0;
                for (int j = 0; j <= i; j++) {
                    score[j] = 0.0;
                    for (int d = 0; d < hs; d++) score[j] += x[i * 3 * D + d] * x[j * 3 * D + D + d];
                    score[j] /= sqrt((double)hs);
                    if (score[j] > top) top = score[j];
                }
                for (int j = 0; j <= i; j++) sum += exp(score[j] - top);
                if (lse != NULL) lse[(b * s->heads + h) * T + i] = top + log(sum);
                for (int d = 0; d < hs; d++) {
                    double y = 0.0;
                    for (int j = 0; j <= i; j++)
                        y += exp(score[j] - top) / sum * keep_factor(s, b, h, i, j) * x[j * 3 * D + 2 * D + d];
                    out[(b * T + i) * D + h * hs + d] = y;
                }
            }
}

static void test_reference_forward(void **state) {
    (void)state;
    static const int shapes[][4] = {{2, 7, 2, 3}, {1, 1, 1, 2}, {2, 33, 2, 2}, {1, 12, 3, 5}};
    for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++) {
        for (int drop = 0; drop < 2; drop++) {
            hdo_attn s = shape(shapes[c][0], shapes[c][1], shapes[c][2], shapes[c][3], drop ? 0.3f : 0.0f);
            size_t n = n_out(&s);
            s.b0 = 5;
            float *qkv = normals(1, 3 * n, 1.0f), *out = numbers(n), *lse = numbers(n_lse(&s));
            double *x = hdo__alloc(3 * n * sizeof(double)), *y = hdo__alloc(2 * n * sizeof(double)), *l = y + n;
            for (size_t i = 0; i < 3 * n; i++) x[i] = (double)qkv[i];
            run_fwd(&ref_table, &s, qkv, out, lse);
            double_fwd(&s, x, y, l);
            for (size_t i = 0; i < n; i++) assert_true(fabs((double)out[i] - y[i]) < 1e-6);
            for (size_t i = 0; i < n_lse(&s); i++) assert_true(fabs((double)lse[i] - l[i]) < 1e-6);
            hdo__free(qkv), hdo__free(out), hdo__free(lse), hdo__free(x), hdo__free(y);
        }
    }
}

static void test_reference_backward_central(void **state) {
    (void)state;
    static const int shapes[][4] = {{2, 7, 2, 3}, {1, 9, 2, 2}, {1, 1, 1, 1}, {1, 6, 1, 8}};
    for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++) {
        for (int drop = 0; drop < 2; drop++) {
            hdo_attn s = shape(shapes[c][0], shapes[c][1], shapes[c][2], shapes[c][3], drop ? 0.3f : 0.0f);
            size_t n = n_out(&s);
            float *qkv = normals(2, 3 * n, 0.8f), *g = normals(3, n, 1.0f), *dqkv = numbers(3 * n);
            double *x = hdo__alloc(3 * n * sizeof(double)), *y = hdo__alloc(2 * n * sizeof(double));
            for (size_t i = 0; i < 3 * n; i++) x[i] = (double)qkv[i];
            run_bwd(&ref_table, &s, qkv, NULL, NULL, g, dqkv);
            for (size_t i = 0; i < 3 * n; i++) {
                double x0 = x[i], h = 1e-5, diff = 0.0;
                x[i] = x0 + h;
                double_fwd(&s, x, y, NULL);
                x[i] = x0 - h;
                double_fwd(&s, x, y + n, NULL);
                x[i] = x0;
                for (size_t o = 0; o < n; o++) diff += (double)g[o] * (y[o] - y[n + o]);
                diff /= 2.0 * h;
                assert_true(fabs(diff - (double)dqkv[i]) < 2e-6 * (1.0 + fabs(diff)));
            }
            hdo__free(qkv), hdo__free(g), hdo__free(dqkv), hdo__free(x), hdo__free(y);
        }
    }
}

/* ---- vector kernels against the reference ------------------------------------------------------------------------ */

static const int grid_T[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 77, 258};
static const int grid_hs[] = {1, 2, 3, 4, 5, 8};
static const float grid_p[] = {0.0f, 0.1f, 0.5f};

static void test_fast_is_reference(void **state) {
    (void)state;
    for (size_t ti = 0; ti < sizeof grid_T / sizeof *grid_T; ti++)
        for (size_t hi = 0; hi < sizeof grid_hs / sizeof *grid_hs; hi++)
            for (size_t pi = 0; pi < sizeof grid_p / sizeof *grid_p; pi++)
                for (int size = 0; size < 2; size++) { /* scores of training, and scores with a peak */
                    hdo_attn s = shape(2, grid_T[ti], 2, grid_hs[hi], grid_p[pi]);
                    size_t n = n_out(&s), m = n_lse(&s);
                    enum { K = 3 };
                    s.b0 = 1;
                    float *qkv = normals(4, 3 * n, size ? 2.0f : 0.1f), *g = normals(5, n, 1.0f);
                    float *tan = normals(6, K * 3 * n, 1.0f);
                    float *out = numbers(n), *lse = numbers(m), *dqkv = numbers(3 * n), *dout = numbers(K * n);
                    run_fwd(&ref_table, &s, qkv, out, lse);
                    run_bwd(&ref_table, &s, qkv, out, lse, g, dqkv);
                    run_jvp(&ref_table, &s, K, qkv, tan, out, dout);
                    for (int be = 1; be < backends; be++) {
                        const hdo_attn_simd *t = backend[be].t;
                        const char *name = backend[be].name;
                        float *o = numbers(n), *l = numbers(m), *dq = numbers(3 * n), *d = numbers(K * n);
                        run_fwd(t, &s, qkv, o, l);
                        assert_close("fwd", name, &s, distance(n, o, out), size ? 5e-6 : 1e-6);
                        for (size_t i = 0; i < m; i++) /* absolute: an error of lse is a relative error of weights */
                            assert_true(fabsf(l[i] - lse[i]) <= (size ? 1e-5f : 5e-7f) * (1.0f + fabsf(lse[i])));
                        run_bwd(t, &s, qkv, o, l, g, dq);
                        assert_close("bwd", name, &s, distance(3 * n, dq, dqkv), size ? 1e-5 : 3e-6);
                        for (size_t i = 0; i < n; i++) o[i] = NAN;
                        run_jvp(t, &s, K, qkv, tan, o, d);
                        assert_close("jvp out", name, &s, distance(n, o, out), size ? 5e-6 : 1e-6);
                        assert_close("jvp", name, &s, distance(K * n, d, dout), size ? 1e-5 : 3e-6);
                        for (size_t i = 0; i < n; i++) o[i] = NAN;
                        run_fwd(t, &s, qkv, o, NULL); /* lse is optional */
                        assert_close("fwd", name, &s, distance(n, o, out), size ? 5e-6 : 1e-6);
                        hdo__free(o), hdo__free(l), hdo__free(dq), hdo__free(d);
                    }
                    hdo__free(qkv), hdo__free(g), hdo__free(tan), hdo__free(out), hdo__free(lse);
                    hdo__free(dqkv), hdo__free(dout);
                }
}

/* <dout, J u> = <J' dout, u>. */
static void test_adjoint(void **state) {
    (void)state;
    for (size_t hi = 0; hi < sizeof grid_hs / sizeof *grid_hs; hi++)
        for (size_t pi = 0; pi < sizeof grid_p / sizeof *grid_p; pi++)
            for (int be = 0; be < backends; be++) {
                const hdo_attn_simd *t = backend[be].t;
                const char *name = backend[be].name;
                hdo_attn s = shape(2, 61, 2, grid_hs[hi], grid_p[pi]);
                size_t n = n_out(&s);
                float *qkv = normals(7, 3 * n, 1.0f), *g = normals(8, n, 1.0f), *u = normals(9, 3 * n, 1.0f);
                float *out = numbers(n), *lse = numbers(n_lse(&s)), *dqkv = numbers(3 * n), *dout = numbers(n);
                double left = 0.0, right = 0.0, size = 0.0;
                run_fwd(t, &s, qkv, out, lse);
                run_bwd(t, &s, qkv, out, lse, g, dqkv);
                run_jvp(t, &s, 1, qkv, u, out, dout);
                for (size_t i = 0; i < n; i++) left += (double)g[i] * (double)dout[i];
                for (size_t i = 0; i < 3 * n; i++) right += (double)dqkv[i] * (double)u[i];
                for (size_t i = 0; i < 3 * n; i++) size += (double)dqkv[i] * (double)dqkv[i];
                assert_close("adjoint", name, &s, fabs(left - right) / sqrt(size), 2e-6);
                hdo__free(qkv), hdo__free(g), hdo__free(u), hdo__free(out), hdo__free(lse);
                hdo__free(dqkv), hdo__free(dout);
            }
}

static void test_many_tangents(void **state) {
    (void)state;
    for (int be = 0; be < backends; be++) {
        const hdo_attn_simd *t = backend[be].t;
        hdo_attn s = shape(3, 37, 2, 2, 0.1f);
        size_t n = n_out(&s);
        enum { K = 8 };
        float *qkv = normals(10, 3 * n, 1.0f), *u = normals(11, K * 3 * n, 1.0f);
        float *out = numbers(n), *dout = numbers(K * n), *o1 = numbers(n), *d1 = numbers(n);
        run_jvp(t, &s, K, qkv, u, out, dout);
        for (size_t c = 0; c < K; c++) {
            run_jvp(t, &s, 1, qkv, u + c * 3 * n, o1, d1);
            assert_memory_equal(o1, out, n * sizeof(float));
            assert_memory_equal(d1, dout + c * n, n * sizeof(float));
        }
        hdo__free(qkv), hdo__free(u), hdo__free(out), hdo__free(dout), hdo__free(o1), hdo__free(d1);
    }
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

/* With q = 0 weights are 1 / (i + 1): the mask can be read off the forward pass (values = unit vectors), the backward
 * pass (one row of dout) and the tangent pass (tangents of the values = unit vectors). */
static void test_same_mask_everywhere(void **state) {
    (void)state;
    static const int sizes[] = {2, 3}; /* a vector kernel and the fallback */
    for (size_t c = 0; c < 2; c++) {
        for (int be = 0; be < backends; be++) {
            const hdo_attn_simd *t = backend[be].t;
            int hs = sizes[c], T = 21, heads = 2, D = heads * hs;
            hdo_attn s = shape(1, T, heads, hs, 0.4f);
            size_t n = n_out(&s);
            s.b0 = 2;
            float *qkv = numbers(3 * n), *u = numbers(3 * n), *g = numbers(n);
            float *out = numbers(n), *lse = numbers(n_lse(&s)), *d = numbers(3 * n), *o1 = numbers(n);
            for (int h = 0; h < heads; h++) {
                for (int x = 0; x < T; x++) {
                    memset(qkv, 0, 3 * n * sizeof(float));
                    memset(u, 0, 3 * n * sizeof(float));
                    memset(g, 0, n * sizeof(float));
                    u[x * 3 * D + 2 * D + h * hs] = 1.0f;
                    run_jvp(t, &s, 1, qkv, u, o1, out);
                    for (int i = x; i < T; i++) {
                        double want = keep_factor(&s, 0, h, i, x) / (i + 1);
                        assert_true(fabs((double)out[i * D + h * hs] - want) < 1e-6);
                    }
                    qkv[x * 3 * D + 2 * D + h * hs] = 1.0f;
                    run_fwd(t, &s, qkv, out, lse);
                    for (int i = 0; i < T; i++) {
                        double want = i < x ? 0.0 : keep_factor(&s, 0, h, i, x) / (i + 1);
                        assert_true(fabs((double)out[i * D + h * hs] - want) < 1e-6);
                    }
                    g[x * D + h * hs] = 1.0f;
                    run_bwd(t, &s, qkv, out, lse, g, d);
                    for (int j = 0; j < T; j++) {
                        double want = j > x ? 0.0 : keep_factor(&s, 0, h, x, j) / (x + 1);
                        assert_true(fabs((double)d[j * 3 * D + 2 * D + h * hs] - want) < 1e-6);
                    }
                }
            }
            hdo__free(qkv), hdo__free(u), hdo__free(g), hdo__free(out), hdo__free(lse), hdo__free(d), hdo__free(o1);
        }
    }
}

/* Kept fraction over the whole batch, and rows of different samples differ. */
static void test_mask_statistics(void **state) {
    (void)state;
    for (int be = 1; be < backends; be++) {
        const hdo_attn_simd *t = backend[be].t;
        const char *name = backend[be].name;
        hdo_attn s = shape(32, 258, 2, 1, 0.1f);
        size_t n = n_out(&s);
        float *qkv = hdo__alloc(3 * n * sizeof(float)), *out = numbers(n);
        double kept = 0.0, total = 0.0, p = floor(0.1 * 65536.0) / 65536.0;
        int same = 0;
        for (size_t r = 0; r < n / 2; r++) qkv[r * 6 + 4] = qkv[r * 6 + 5] = 1.0f;
        run_fwd(t, &s, qkv, out, NULL);
        for (size_t r = 0; r < n / 2; r++)
            for (size_t h = 0; h < 2; h++) {
                double len = (double)(r % 258 + 1), count = (double)out[r * 2 + h] * len * (1.0 - (double)s.dropout);
                assert_true(fabs(count - nearbyint(count)) < 1e-3);
                kept += nearbyint(count);
                total += len;
            }
        double z = (kept - (1.0 - p) * total) / sqrt(total * p * (1.0 - p));
        if (fabs(z) > 4.0) fail_msg("%s: kept fraction %.6f, z = %.2f", name, kept / total, z);
        for (size_t i = 128; i < 258; i++) same += out[i * 2] == out[(258 + i) * 2];
        assert_true(same < 40); /* binomial counts with deviation 3.4 .. 4.8 coincide about once in ten */
        hdo__free(qkv), hdo__free(out);
    }
}

static void test_chunks(void **state) {
    (void)state;
    for (int be = 0; be < backends; be++) {
        const hdo_attn_simd *t = backend[be].t;
        hdo_attn s = shape(8, 45, 2, 2, 0.1f);
        size_t n = n_out(&s), m = n_lse(&s);
        float *qkv = normals(12, 3 * n, 1.0f), *g = normals(13, n, 1.0f), *u = normals(14, 3 * n, 1.0f);
        float *out[2] = {numbers(n), numbers(n)}, *lse[2] = {numbers(m), numbers(m)};
        float *d[2] = {numbers(3 * n), numbers(3 * n)}, *j[2] = {numbers(n), numbers(n)};
        run_jvp(t, &s, 1, qkv, u, out[0], j[0]);
        run_fwd(t, &s, qkv, out[0], lse[0]);
        run_bwd(t, &s, qkv, out[0], lse[0], g, d[0]);
        for (int c = 0; c < 2; c++) {
            hdo_attn half = s;
            half.B = 4;
            half.b0 = 4 * c;
            size_t o = (size_t)c * n / 2, ol = (size_t)c * m / 2;
            run_jvp(t, &half, 1, qkv + 3 * o, u + 3 * o, out[1] + o, j[1] + o);
            run_fwd(t, &half, qkv + 3 * o, out[1] + o, lse[1] + ol);
            run_bwd(t, &half, qkv + 3 * o, out[1] + o, lse[1] + ol, g + o, d[1] + 3 * o);
        }
        assert_memory_equal(out[0], out[1], n * sizeof(float));
        assert_memory_equal(lse[0], lse[1], m * sizeof(float));
        assert_memory_equal(d[0], d[1], 3 * n * sizeof(float));
        assert_memory_equal(j[0], j[1], n * sizeof(float));
        for (int c = 0; c < 2; c++) hdo__free(out[c]), hdo__free(lse[c]), hdo__free(d[c]), hdo__free(j[c]);
        hdo__free(qkv), hdo__free(g), hdo__free(u);
    }
}

/* ---- extreme scores ---------------------------------------------------------------------------------------------- */

enum { EX_LARGE, EX_SHIFT, EX_FUTURE, EX_NEGATIVE, EX_MIXED, EX_COUNT };

static void extreme(int kind, const hdo_attn *s, float *qkv) {
    int hs = s->hs, D = s->heads * hs;
    for (int b = 0; b < s->B; b++)
        for (int i = 0; i < s->T; i++)
            for (int d = 0; d < D; d++) {
                float *q = qkv + (size_t)((b * s->T + i) * 3 * D + d), *k = q + D;
                switch (kind) {
                case EX_LARGE: *q *= 40.0f, *k *= 30.0f; break; /* scores to about +-1e4, one key takes all */
                case EX_SHIFT: *k += 500.0f; break;             /* all scores of a row far from zero, close together */
                case EX_FUTURE: *k *= i == s->T - 1 ? 1e4f : 1.0f; break; /* the bound sees a key the rows do not */
                case EX_NEGATIVE: *q = -fabsf(*q) * 60.0f, *k = fabsf(*k) * 60.0f + (i == 0 ? 0.0f : 1.0f); break;
                case EX_MIXED: *q *= (i % 7 == 3) ? 300.0f : 0.01f; break; /* slow and fast rows side by side */
                default: break;
                }
            }
}

static void test_extreme_scores(void **state) {
    (void)state;
    for (int kind = 0; kind < EX_COUNT; kind++)
        for (int drop = 0; drop < 2; drop++)
            for (int be = 1; be < backends; be++) {
                const hdo_attn_simd *t = backend[be].t;
                const char *name = backend[be].name;
                hdo_attn s = shape(2, 83, 2, 2, drop ? 0.2f : 0.0f);
                size_t n = n_out(&s), m = n_lse(&s);
                float *qkv = normals(15, 3 * n, 1.0f), *g = normals(16, n, 1.0f), *u = normals(17, 3 * n, 1.0f);
                float *out[2] = {numbers(n), numbers(n)}, *lse[2] = {numbers(m), numbers(m)};
                float *d[2] = {numbers(3 * n), numbers(3 * n)}, *j[2] = {numbers(n), numbers(n)};
                extreme(kind, &s, qkv);
                run_jvp(&ref_table, &s, 1, qkv, u, out[0], j[0]);
                run_fwd(&ref_table, &s, qkv, out[0], lse[0]);
                run_bwd(&ref_table, &s, qkv, out[0], lse[0], g, d[0]);
                run_jvp(t, &s, 1, qkv, u, out[1], j[1]);
                /* Scores of 1e4 are rounded to 1e-3, so close ones weigh 1e-3 wrong; a gradient of q is a difference of
                 * keys with such weights, which costs most when all keys are large and close together. */
                double tol = kind == EX_SHIFT ? 2e-2 : 1e-3;
                assert_close("extreme jvp out", name, &s, distance(n, out[1], out[0]), tol);
                assert_close("extreme jvp", name, &s, distance(n, j[1], j[0]), tol);
                run_fwd(t, &s, qkv, out[1], lse[1]);
                run_bwd(t, &s, qkv, out[1], lse[1], g, d[1]);
                assert_close("extreme fwd", name, &s, distance(n, out[1], out[0]), tol);
                assert_close("extreme lse", name, &s, distance(m, lse[1], lse[0]), 1e-6);
                assert_close("extreme bwd", name, &s, distance(3 * n, d[1], d[0]), tol);
                for (int c = 0; c < 2; c++) hdo__free(out[c]), hdo__free(lse[c]), hdo__free(d[c]), hdo__free(j[c]);
                hdo__free(qkv), hdo__free(g), hdo__free(u);
            }
}

/* Equal keys far from zero: exactly uniform weights, however far the bound or lse is from zero. */
static void test_uniform_far_away(void **state) {
    (void)state;
    for (int be = 0; be < backends; be++) {
        const hdo_attn_simd *t = backend[be].t;
        hdo_attn s = shape(1, 50, 1, 2, 0.0f);
        size_t n = n_out(&s);
        float *qkv = normals(18, 3 * n, 1.0f), *g = numbers(n);
        float *out = numbers(n), *lse = numbers(n), *d = numbers(3 * n);
        for (int i = 0; i < 50; i++) {
            qkv[i * 6] = qkv[i * 6 + 1] = i % 2 ? 64.0f : -64.0f;
            qkv[i * 6 + 2] = qkv[i * 6 + 3] = 100.0f;
            g[2 * i] = g[2 * i + 1] = 1.0f;
        }
        run_fwd(t, &s, qkv, out, lse);
        run_bwd(t, &s, qkv, out, lse, g, d);
        double sum = 0.0, harmonic = 0.0;
        for (int i = 0; i < 50; i++) {
            sum += (double)qkv[i * 6 + 4];
            assert_true(fabs((double)out[2 * i] - sum / (i + 1)) < 1e-6);
        }
        for (int i = 49; i >= 0; i--) {
            harmonic += 1.0 / (i + 1);
            assert_true(fabs((double)d[i * 6 + 4] - harmonic) < 4e-6);
        }
        hdo__free(qkv), hdo__free(out), hdo__free(lse), hdo__free(g), hdo__free(d);
    }
}

/* ---- exp and GELU ------------------------------------------------------------------------------------------------ */

enum { SWEEP = 1 << 15 };

static void check_exp(const hdo_attn_simd *t, const char *name, const float *x, size_t n, double *worst) {
    float *y = hdo__alloc(n * sizeof(float));
    t->vexp(n, x, y);
    for (size_t i = 0; i < n; i++) {
        double want = exp((double)x[i]), err = fabs((double)y[i] - want);
        if (want > 3.40282356e38) {
            assert_true(y[i] > 0.0f && isinf(y[i]));
        } else if (want < 1.1754944e-38) {
            if (!(err <= 2.0e-45)) fail_msg("%s: exp(%.9g) = %.9g not %.17g", name, (double)x[i], (double)y[i], want);
        } else {
            if (!(err <= 2e-7 * want))
                fail_msg("%s: exp(%.9g) = %.9g not %.17g", name, (double)x[i], (double)y[i], want);
            if (err / want > *worst) *worst = err / want;
        }
    }
    hdo__free(y);
}

static void test_exp(void **state) {
    (void)state;
    for (int be = 0; be < backends; be++) {
        const hdo_attn_simd *t = backend[be].t;
        const char *name = backend[be].name;
        double worst = 0.0;
        float *x = numbers(SWEEP);
        for (int part = 0; part < 64; part++) {
            for (int i = 0; i < SWEEP; i++)
                x[i] = (float)(-110.0 + 205.0 * ((double)part * SWEEP + i) / (64.0 * SWEEP)); /* 2 million points */
            check_exp(t, name, x, SWEEP, &worst);
        }
        static const float edges[] = {88.72284f, -87.33655f, -103.27893f, -103.97208f, 0.0f, 0.34657359f, -0.34657359f};
        for (size_t e = 0; e < sizeof edges / sizeof *edges; e++) { /* every float around the places where it changes */
            float v = edges[e];
            for (int i = 0; i < SWEEP / 2; i++) v = nextafterf(v, -1e9f);
            for (int i = 0; i < SWEEP; i++) x[i] = v = nextafterf(v, 1e9f);
            check_exp(t, name, x, SWEEP, &worst);
        }
        print_message("exp %s: largest relative error %.3g\n", name, worst);
        float special[5] = {INFINITY, -INFINITY, NAN, 1e30f, -1e30f};
        t->vexp(5, special, special); /* in place */
        assert_true(isinf(special[0]) && special[1] == 0.0f && isnan(special[2]) && isinf(special[3]));
        assert_true(special[4] == 0.0f);
        for (size_t n = 0; n < 40; n++) { /* any length; nothing is written beyond the end */
            float y[41];
            for (size_t i = 0; i < 41; i++) x[i] = (float)i * 0.1f, y[i] = -1.0f;
            t->vexp(n, x, y);
            for (size_t i = 0; i < 41; i++)
                assert_true(i < n ? fabs((double)y[i] - exp((double)x[i])) < 1e-4 : y[i] == -1.0f);
        }
        hdo__free(x);
    }
}

static void test_gelu(void **state) {
    (void)state;
    for (int be = 0; be < backends; be++) {
        const hdo_attn_simd *t = backend[be].t;
        const char *name = backend[be].name;
        double worst = 0.0, worst_cdf = 0.0, worst_d = 0.0;
        float *x = numbers(SWEEP), *y = numbers(SWEEP), *dy = numbers(SWEEP), *z = numbers(SWEEP);
        for (int part = 0; part < 48; part++) {
            for (int i = 0; i < SWEEP; i++) x[i] = (float)(-18.0 + 36.0 * ((double)part * SWEEP + i) / (48.0 * SWEEP));
            t->gelu(SWEEP, x, y, dy);
            t->gelu(SWEEP, x, z, NULL);
            assert_memory_equal(y, z, SWEEP * sizeof(float));
            for (int i = 0; i < SWEEP; i++) {
                double v = (double)x[i], cdf = 0.5 * erfc(-v * sqrt(0.5));
                double want = v * cdf, slope = cdf + v * exp(-0.5 * v * v) / sqrt(2.0 * acos(-1.0));
                double err = fabs((double)y[i] - want), err_d = fabs((double)dy[i] - slope);
                if (fabs(want) > 1e-36 && err / fabs(want) > worst) worst = err / fabs(want);
                if (fabs(want) <= 1e-36) assert_true(err < 1e-42);
                if (v != 0.0 && err / fabs(v) > worst_cdf) worst_cdf = err / fabs(v);
                if (err_d > worst_d) worst_d = err_d;
            }
        }
        print_message("gelu %s: relative error %.3g, absolute error of Phi %.3g, of the derivative %.3g\n", name, worst,
                      worst_cdf, worst_d);
        assert_true(worst < 6e-7); /* the tail included: more than erf form promises */
        assert_true(worst_cdf < 2e-7);
        assert_true(worst_d < 3e-7);
        float special[4] = {1e30f, -1e30f, NAN, 0.0f}, ds[4];
        t->gelu(4, special, special, ds);
        assert_true(special[0] == 1e30f && special[1] == 0.0f && isnan(special[2]) && special[3] == 0.0f);
        assert_true(ds[0] == 1.0f && ds[1] == 0.0f && isnan(ds[2]) && ds[3] == 0.5f);
        for (size_t n = 0; n < 20; n++) {
            float a[21], b[21];
            for (size_t i = 0; i < 21; i++) x[i] = 1.0f, a[i] = b[i] = -7.0f;
            t->gelu(n, x, a, b);
            for (size_t i = 0; i < 21; i++)
                assert_true(i < n ? a[i] > 0.841f && a[i] < 0.842f && b[i] > 1.08f : a[i] == -7.0f && b[i] == -7.0f);
        }
        hdo__free(x), hdo__free(y), hdo__free(dy), hdo__free(z);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_forward),
        cmocka_unit_test(test_reference_backward_central),
        cmocka_unit_test(test_fast_is_reference),
        cmocka_unit_test(test_adjoint),
        cmocka_unit_test(test_many_tangents),
        cmocka_unit_test(test_same_mask_everywhere),
        cmocka_unit_test(test_mask_statistics),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_extreme_scores),
        cmocka_unit_test(test_uniform_far_away),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_gelu),
    };
    return cmocka_run_group_tests(tests, find_backends, NULL);
}
