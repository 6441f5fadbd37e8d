/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels alone: matrix products and convolutions, our kernels beside the reference (and a BLAS library), in one run,
 * one thread. The timing window is one call with arguments and scratch ready; the arguments of a case stay the same, so
 * they are in cache when they fit. Repetitions of the backends alternate, so that a busy machine slows all of them.
 *
 * usage: bench_kernels [filter [seconds]]: cases whose "bench,shape" contains the filter; seconds per case (0.3).
 * gflops counts every tap of a convolution, also those in the padding ("dense"), as libraries do.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "base/simd.h"
#include "lab/bench/limits.h"
#include "hdo/experimental/config.h"
#include "kernels/mm.h"

#define MAX_REPS 2000
#define MAX_BACKENDS 3

static const char *filter = "";
static double budget = 0.3;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* one thread: others on the machine do not count */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float *randoms(size_t n) {
    float *x = hdo__alloc(n * sizeof *x);
    if (x == NULL) abort();
    hdo__rng_uniform(hdo__stream(1, HDO_RNG_TEST, 0, 0, 0), 0, n, x);
    for (size_t i = 0; i < n; i++) x[i] -= 0.5F;
    return x;
}

typedef struct backend {
    const char *name;
    void (*call)(void *arg);
    double slow; /* > 0: at most this many repetitions */
} backend;

static bool wanted(const char *bench, const char *shape) {
    char key[160];
    snprintf(key, sizeof key, "%s,%s", bench, shape);
    return strstr(key, filter) != NULL;
}

static void measure(const char *bench, const char *shape, const backend *b, int count, void *arg, double flops) {
    static double t[MAX_BACKENDS][MAX_REPS];
    int reps[MAX_BACKENDS] = {0}, inner[MAX_BACKENDS];
    if (!wanted(bench, shape)) return;
    for (int i = 0; i < count; i++) { /* warm up; short calls are timed several at a time (20 us) */
        double t0 = now();
        b[i].call(arg);
        double once = now() - t0;
        for (int r = 0; r < 3 && once < 1e-2; r++) {
            t0 = now();
            b[i].call(arg);
            double again = now() - t0;
            once = again < once ? again : once;
        }
        inner[i] = once < 2e-5 ? (int)(2e-5 / (once + 1e-9)) + 1 : 1;
    }
    double end = now() + budget * count;
    do {
        for (int i = 0; i < count; i++) {
            if (reps[i] == MAX_REPS || (b[i].slow > 0 && reps[i] >= (int)b[i].slow)) continue;
            double t0 = now();
            for (int k = 0; k < inner[i]; k++) b[i].call(arg);
            t[i][reps[i]++] = (now() - t0) / inner[i];
        }
    } while (now() < end && reps[0] < MAX_REPS);
    for (int i = 0; i < count; i++) {
        qsort(t[i], (size_t)reps[i], sizeof t[i][0], by_value);
        double med = t[i][reps[i] / 2];
        printf("%s,%s,%s,1,%d,%.3e,%.3e,%.3e,%.2f\n", bench, shape, b[i].name, reps[i], med, t[i][reps[i] / 10],
               t[i][reps[i] * 9 / 10], flops / med * 1e-9);
    }
    fflush(stdout);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct gemm_case {
    bool ta, tb;
    int M, N, K;
    float *A, *B, *C;
} gemm_case;

#define GEMM_CALL(fn, name)                                                                                            \
    static void fn(void *arg) {                                                                                        \
        const gemm_case *g = arg;                                                                                      \
        name(g->ta, g->tb, g->M, g->N, g->K, 1, g->A, g->ta ? g->M : g->K, g->B, g->tb ? g->K : g->N, 0, g->C, g->N);  \
    }
GEMM_CALL(gemm_own, hdo__kernels(HDO_KERNELS_AUTO)->gemm)

/* A CBLAS library beside us, if HDO_BENCH_BLAS names one (libopenblas.so.0). */
static void (*sgemm)(int order, int ta, int tb, int M, int N, int K, float alpha, const float *A, int lda,
                     const float *B, int ldb, float beta, float *C, int ldc);

static void open_blas(void) {
    const char *file = getenv("HDO_BENCH_BLAS");
    void *so = file != NULL ? dlopen(file, RTLD_NOW) : NULL;
    if (so == NULL) return;
    void *symbol = dlsym(so, "cblas_sgemm"), *threads = dlsym(so, "openblas_set_num_threads");
    void (*set)(int n);
    memcpy(&sgemm, &symbol, sizeof sgemm);
    memcpy(&set, &threads, sizeof set);
    if (set != NULL) set(1);
}
static void gemm_blas(void *arg) {
    const gemm_case *g = arg;
    sgemm(101, g->ta ? 112 : 111, g->tb ? 112 : 111, g->M, g->N, g->K, 1, g->A, g->ta ? g->M : g->K, g->B,
          g->tb ? g->K : g->N, 0, g->C, g->N);
}

/* As many multiply-adds as the product has, in registers: what the core can do at most, in the same minute. */
static void gemm_limit(void *arg) {
    const gemm_case *g = arg;
    float sink[2 + HDO_FMA_LANES] = {0.5F, 0.25F};
    const hdo_limits *limits = &hdo__limits_portable;
#ifdef HDO_HAVE_AVX2_BUILD
    if (hdo__simd()->avx2) limits = &hdo__limits_avx2;
#endif
#ifdef HDO_HAVE_AVX512_BUILD
    if (hdo__simd()->avx512) limits = &hdo__limits_avx512;
#endif
    limits->fma((int64_t)(2.0 * g->M * g->N * g->K / HDO_FMA_FLOPS), sink);
}

static void bench_gemm(bool ta, bool tb, int M, int N, int K) {
    char shape[64];
    snprintf(shape, sizeof shape, "%c%c_%dx%dx%d", ta ? 't' : 'n', tb ? 't' : 'n', M, N, K);
    if (!wanted("gemm", shape)) return;
    gemm_case g = {ta, tb, M, N, K, NULL, NULL, NULL};
    g.A = randoms((size_t)M * (size_t)K);
    g.B = randoms((size_t)N * (size_t)K);
    g.C = randoms((size_t)M * (size_t)N);
    const backend b[] = {
        {"own", gemm_own, 0},
        {"limit", gemm_limit, 0},
        {"blas", gemm_blas, 0},
    };
    measure("gemm", shape, b, sgemm != NULL ? 3 : 2, &g, 2.0 * M * N * K);
    hdo__free(g.A), hdo__free(g.B), hdo__free(g.C);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

typedef struct conv_case {
    hdo_conv c;
    const hdo_kernels *ref, *fast;
    float *x, *w, *y; /* y also plays dy, and the gradients have their own arrays: nothing decays to zero */
    float *dx, *dw, *out;
    hdo_arena a;
} conv_case;

#define CONV_CALLS(who)                                                                                                \
    static void who##_fwd(void *p) {                                                                                   \
        conv_case *k = p;                                                                                              \
        k->who->conv_fwd(&k->c, k->x, k->w, NULL, k->out, &k->a);                                                      \
    }                                                                                                                  \
    static void who##_bwd_x(void *p) {                                                                                 \
        conv_case *k = p;                                                                                              \
        k->who->conv_bwd_x(&k->c, k->y, k->w, k->dx, &k->a);                                                           \
    }                                                                                                                  \
    static void who##_bwd_w(void *p) {                                                                                 \
        conv_case *k = p;                                                                                              \
        k->who->conv_bwd_w(&k->c, k->x, k->y, k->dw, NULL, &k->a);                                                     \
    }
CONV_CALLS(ref)
CONV_CALLS(fast)

static void bench_conv(const char *net, int B, int C, int side, int O, int k, int stride, int pad) {
    conv_case q = {.c = {.B = B, .C = C, .H = side, .W = side, .O = O, .kh = k, .kw = k, .stride = stride, .pad = pad}};
    hdo_conv *c = &q.c;
    hdo__conv_init(c);
    char shape[96];
    snprintf(shape, sizeof shape, "%s_B%d_%dx%dx%d_O%d_k%ds%dp%d", net, B, C, side, side, O, k, stride, pad);
    if (!wanted("conv_fwd", shape) && !wanted("conv_bwd_x", shape) && !wanted("conv_bwd_w", shape)) return;
    size_t nx = (size_t)B * (size_t)C * (size_t)side * (size_t)side, nw = (size_t)O * (size_t)C * (size_t)(k * k);
    size_t ny = (size_t)B * (size_t)O * (size_t)c->Ho * (size_t)c->Wo;
    q.ref = hdo__kernels(HDO_KERNELS_REF);
    q.fast = hdo__kernels(HDO_KERNELS_AUTO);
    q.x = randoms(nx), q.w = randoms(nw), q.y = randoms(ny);
    q.dx = randoms(nx), q.dw = randoms(nw), q.out = randoms(ny);
    if (hdo__arena_init(&q.a, q.fast->conv_work(c)) != HDO_OK) abort();
    double flops = 2.0 * B * O * c->Ho * c->Wo * C * k * k;
    const backend fwd[] = {{"own", fast_fwd, 0}, {"ref", ref_fwd, 1}};
    const backend bx[] = {{"own", fast_bwd_x, 0}, {"ref", ref_bwd_x, 1}};
    const backend bw[] = {{"own", fast_bwd_w, 0}, {"ref", ref_bwd_w, 1}};
    int count = (int)(sizeof fwd / sizeof fwd[0]) - (getenv("HDO_BENCH_NO_REF") != NULL);
    measure("conv_fwd", shape, fwd, count, &q, flops);
    measure("conv_bwd_x", shape, bx, count, &q, flops);
    measure("conv_bwd_w", shape, bw, count, &q, flops);
    hdo__arena_clear(&q.a);
    hdo__free(q.x), hdo__free(q.w), hdo__free(q.y);
    hdo__free(q.dx), hdo__free(q.dw), hdo__free(q.out);
}

static void bench_resnet18(int B) { /* layer names as in shared/anchor/RESULTS.md */
    bench_conv("conv1", B, 3, 32, 64, 7, 2, 3);
    bench_conv("l1", B, 64, 8, 64, 3, 1, 1);
    bench_conv("l2a", B, 64, 8, 128, 3, 2, 1);
    bench_conv("l2", B, 128, 4, 128, 3, 1, 1);
    bench_conv("l2d", B, 64, 8, 128, 1, 2, 0);
    bench_conv("l3a", B, 128, 4, 256, 3, 2, 1);
    bench_conv("l3", B, 256, 2, 256, 3, 1, 1);
    bench_conv("l3d", B, 128, 4, 256, 1, 2, 0);
    bench_conv("l4a", B, 256, 2, 512, 3, 2, 1);
    bench_conv("l4", B, 512, 1, 512, 3, 1, 1);
    bench_conv("l4d", B, 256, 2, 512, 1, 2, 0);
}

int main(int argc, char **argv) {
    if (argc > 1) filter = argv[1];
    if (argc > 2) budget = atof(argv[2]);
    open_blas();
    fprintf(stderr, "kernels: %s\n", hdo__kernels(HDO_KERNELS_AUTO)->title);
    printf("bench,shape,backend,threads,reps,median_s,p10_s,p90_s,gflops\n");
    static const int nt[][3] = {
        {1024, 1024, 1024}, {1000, 960, 784}, {10000, 10, 784}, {10000, 80, 784},  {10000, 400, 784},
        {10000, 2800, 784}, {256, 128, 784},  {256, 128, 128},  {10000, 128, 784}, {8, 128, 784},
        {2, 10, 784},       {256, 128, 392},  {32, 128, 784},   {32, 128, 392},    {32, 10, 128},
        {8, 128, 128},      {8, 10, 128},     {16, 128, 784},   {24, 128, 784},    {64, 128, 784},
        {33024, 12, 4},     {33024, 16, 4},   {33024, 4, 16},   {4096, 16, 64},    {10, 10, 512},
        {50, 10, 512},      {256, 10, 128},   {128, 784, 128},  {2, 10, 3072}};
    for (size_t i = 0; i < sizeof nt / sizeof nt[0]; i++) bench_gemm(false, true, nt[i][0], nt[i][1], nt[i][2]);
    static const int nn[][3] = {{8, 128, 128},   {8, 128, 10},   {32, 128, 10},  {32, 392, 128},
                                {256, 392, 128}, {256, 128, 10}, {33024, 4, 12}, {33024, 4, 16},
                                {33024, 16, 4},  {64, 128, 128}, {50, 512, 10},  {16, 512, 512}};
    for (size_t i = 0; i < sizeof nn / sizeof nn[0]; i++) bench_gemm(false, false, nn[i][0], nn[i][1], nn[i][2]);
    static const int tn[][3] = {{10, 784, 2},   {128, 784, 8},   {128, 128, 8},  {10, 128, 8},   {128, 392, 32},
                                {10, 128, 32},  {128, 392, 256}, {10, 128, 256}, {12, 4, 33024}, {16, 4, 33024},
                                {4, 16, 33024}, {10, 512, 50},   {10, 784, 256}, {128, 784, 32}, {128, 784, 64}};
    for (size_t i = 0; i < sizeof tn / sizeof tn[0]; i++) bench_gemm(true, false, tn[i][0], tn[i][1], tn[i][2]);
    static const int batch[] = {32, 64, 256};
    for (int i = 0; i < 3; i++) {
        bench_conv("cnn1", batch[i], 1, 28, 8, 3, 1, 1);
        bench_conv("cnn2", batch[i], 8, 14, 8, 3, 1, 1);
        bench_conv("cnn3", batch[i], 8, 7, 8, 3, 1, 1);
    }
    bench_conv("c16", 32, 16, 14, 16, 3, 1, 1);
    bench_conv("c32", 32, 32, 14, 32, 3, 1, 1);
    bench_conv("c3", 32, 3, 32, 16, 3, 1, 1);
    bench_resnet18(10);
    bench_resnet18(50);
    bench_resnet18(256);
    return 0;
}
