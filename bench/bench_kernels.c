/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels alone: matrix products and convolutions, our kernels beside the reference and the libraries, in one run, one
 * thread. The timing window is one call with arguments and scratch ready; the arguments of a case stay the same, so
 * they are in cache when they fit. Repetitions of the backends alternate, so that a busy machine slows all of them.
 *
 * usage: bench_kernels [filter [seconds]]: cases whose "bench,shape" contains the filter; seconds per case (0.3).
 * gflops counts every tap of a convolution, also those in the padding ("dense"), as libraries do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "base/simd.h"
#include "hdo/config.h"
#include "kernels/mm.h"
#ifdef HDO_BENCH_ONEDNN
#include <dnnl.h>
#endif

#define MAX_REPS 2000
#define MAX_BACKENDS 5

static const char *filter = "";
static double budget = 0.3;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
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

static const hdo_mm_simd *own;

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
GEMM_CALL(gemm_own, own->gemm)
GEMM_CALL(gemm_auto, hdo__kernels(HDO_KERNELS_AUTO)->gemm)
GEMM_CALL(gemm_blas, hdo__blas_gemm)

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
        {"auto", gemm_auto, 0},
        {"blas", gemm_blas, 0},
    };
    measure("gemm", shape, b, hdo__kernels(HDO_KERNELS_AUTO)->blas ? 3 : 2, &g, 2.0 * M * N * K);
    hdo__free(g.A), hdo__free(g.B), hdo__free(g.C);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

typedef struct conv_case {
    hdo_conv c;
    const hdo_kernels *ref, *fast;
    const hdo_mm_simd *ours;
    float *x, *w, *y; /* y also plays dy, and the gradients have their own arrays: nothing decays to zero */
    float *dx, *dw, *out;
    hdo_arena a;
#ifdef HDO_BENCH_ONEDNN
    dnnl_primitive_t prim[3];
    dnnl_exec_arg_t args[3][3];
    dnnl_primitive_t reorder[3][3]; /* from or to the plain layout; NULL: oneDNN uses it as it is */
    dnnl_exec_arg_t turn[3][3][2];
    dnnl_stream_t stream;
#endif
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
CONV_CALLS(ours)

#if defined HDO_BENCH_ONEDNN && DNNL_VERSION_MAJOR == 2
/* oneDNN twice: onednn_blocked in the layouts it likes best, reorders not counted (the strongest opponent, not a
 * drop-in one), and onednn_plain with the reorders from and to our NCHW and OIHW arrays: what it would cost here. */
static dnnl_engine_t engine;

static void need(dnnl_status_t s, const char *what) {
    if (s == dnnl_success) return;
    fprintf(stderr, "bench_kernels: oneDNN: %s failed (%d)\n", what, (int)s);
    exit(1);
}

static dnnl_memory_t dnn_memory(const_dnnl_primitive_desc_t pd, dnnl_query_t q) {
    dnnl_memory_t m;
    need(dnnl_memory_create(&m, dnnl_primitive_desc_query_md(pd, q, 0), engine, DNNL_MEMORY_ALLOCATE), "memory");
    void *h;
    need(dnnl_memory_get_data_handle(m, &h), "handle");
    size_t n = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, q, 0)) / sizeof(float);
    for (size_t i = 0; i < n; i++) ((float *)h)[i] = (float)(i % 7) * 0.01F;
    return m;
}

/* The reorder between argument i of pass p and a plain array of the same shape: into it if the pass reads it. */
static void dnn_reorder(conv_case *k, int p, int i, const_dnnl_primitive_desc_t pd, dnnl_query_t q, bool reads) {
    const dnnl_memory_desc_t *own_md = dnnl_primitive_desc_query_md(pd, q, 0);
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t rd;
    dnnl_memory_t m;
    need(dnnl_memory_desc_init_by_tag(&plain, 4, own_md->dims, dnnl_f32, dnnl_abcd), "plain");
    k->reorder[p][i] = NULL;
    if (dnnl_memory_desc_equal(&plain, own_md)) return;
    need(dnnl_memory_create(&m, &plain, engine, DNNL_MEMORY_ALLOCATE), "plain memory");
    void *h;
    need(dnnl_memory_get_data_handle(m, &h), "handle");
    memset(h, 0, dnnl_memory_desc_get_size(&plain));
    const dnnl_memory_desc_t *from = reads ? &plain : own_md, *to = reads ? own_md : &plain;
    need(dnnl_reorder_primitive_desc_create(&rd, from, engine, to, engine, NULL), "reorder");
    need(dnnl_primitive_create(&k->reorder[p][i], rd), "reorder");
    dnnl_primitive_desc_destroy(rd);
    k->turn[p][i][0] = (dnnl_exec_arg_t){reads ? DNNL_ARG_FROM : DNNL_ARG_TO, m};
    k->turn[p][i][1] = (dnnl_exec_arg_t){reads ? DNNL_ARG_TO : DNNL_ARG_FROM, k->args[p][i].memory};
}

static void dnn_make(conv_case *k) {
    const hdo_conv *c = &k->c;
    dnnl_dims_t xd = {c->B, c->C, c->H, c->W}, wd = {c->O, c->C, c->kh, c->kw}, yd = {c->B, c->O, c->Ho, c->Wo};
    dnnl_dims_t st = {c->stride, c->stride}, pad = {c->pad, c->pad};
    dnnl_memory_desc_t x, w, y;
    need(dnnl_memory_desc_init_by_tag(&x, 4, xd, dnnl_f32, dnnl_format_tag_any), "x");
    need(dnnl_memory_desc_init_by_tag(&w, 4, wd, dnnl_f32, dnnl_format_tag_any), "w");
    need(dnnl_memory_desc_init_by_tag(&y, 4, yd, dnnl_f32, dnnl_format_tag_any), "y");
    need(dnnl_stream_create(&k->stream, engine, dnnl_stream_default_flags), "stream");
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t fwd, pd;
    dnnl_alg_kind_t alg = dnnl_convolution_direct;
    need(dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, alg, &x, &w, NULL, &y, st, pad, pad), "fwd");
    need(dnnl_primitive_desc_create(&fwd, &d, NULL, engine, NULL), "fwd");
    need(dnnl_primitive_create(&k->prim[0], fwd), "fwd");
    k->args[0][0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, dnn_memory(fwd, dnnl_query_src_md)};
    k->args[0][1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, dnn_memory(fwd, dnnl_query_weights_md)};
    k->args[0][2] = (dnnl_exec_arg_t){DNNL_ARG_DST, dnn_memory(fwd, dnnl_query_dst_md)};
    dnn_reorder(k, 0, 0, fwd, dnnl_query_src_md, true);
    dnn_reorder(k, 0, 1, fwd, dnnl_query_weights_md, true);
    dnn_reorder(k, 0, 2, fwd, dnnl_query_dst_md, false);
    need(dnnl_convolution_backward_data_desc_init(&d, alg, &x, &w, &y, st, pad, pad), "bwd_x");
    need(dnnl_primitive_desc_create(&pd, &d, NULL, engine, fwd), "bwd_x");
    need(dnnl_primitive_create(&k->prim[1], pd), "bwd_x");
    k->args[1][0] = (dnnl_exec_arg_t){DNNL_ARG_DIFF_SRC, dnn_memory(pd, dnnl_query_diff_src_md)};
    k->args[1][1] = (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, dnn_memory(pd, dnnl_query_weights_md)};
    k->args[1][2] = (dnnl_exec_arg_t){DNNL_ARG_DIFF_DST, dnn_memory(pd, dnnl_query_diff_dst_md)};
    dnn_reorder(k, 1, 0, pd, dnnl_query_diff_src_md, false);
    dnn_reorder(k, 1, 1, pd, dnnl_query_weights_md, true);
    dnn_reorder(k, 1, 2, pd, dnnl_query_diff_dst_md, true);
    dnnl_primitive_desc_destroy(pd);
    need(dnnl_convolution_backward_weights_desc_init(&d, alg, &x, &w, NULL, &y, st, pad, pad), "bwd_w");
    need(dnnl_primitive_desc_create(&pd, &d, NULL, engine, fwd), "bwd_w");
    need(dnnl_primitive_create(&k->prim[2], pd), "bwd_w");
    k->args[2][0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, dnn_memory(pd, dnnl_query_src_md)};
    k->args[2][1] = (dnnl_exec_arg_t){DNNL_ARG_DIFF_WEIGHTS, dnn_memory(pd, dnnl_query_diff_weights_md)};
    k->args[2][2] = (dnnl_exec_arg_t){DNNL_ARG_DIFF_DST, dnn_memory(pd, dnnl_query_diff_dst_md)};
    dnn_reorder(k, 2, 0, pd, dnnl_query_src_md, true);
    dnn_reorder(k, 2, 1, pd, dnnl_query_diff_weights_md, false);
    dnn_reorder(k, 2, 2, pd, dnnl_query_diff_dst_md, true);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_desc_destroy(fwd);
}

static void dnn_free(conv_case *k) {
    for (int p = 0; p < 3; p++) {
        for (int i = 0; i < 3; i++) {
            dnnl_memory_destroy(k->args[p][i].memory);
            if (k->reorder[p][i] == NULL) continue;
            dnnl_memory_destroy(k->turn[p][i][0].memory);
            dnnl_primitive_destroy(k->reorder[p][i]);
        }
        dnnl_primitive_destroy(k->prim[p]);
    }
    dnnl_stream_destroy(k->stream);
}

static void dnn_run(conv_case *k, int p) {
    dnnl_primitive_execute(k->prim[p], k->stream, 3, k->args[p]);
    dnnl_stream_wait(k->stream);
}
static void dnn_run_plain(conv_case *k, int p, int result) {
    for (int i = 0; i < 3; i++)
        if (i != result && k->reorder[p][i] != NULL)
            dnnl_primitive_execute(k->reorder[p][i], k->stream, 2, k->turn[p][i]);
    dnnl_primitive_execute(k->prim[p], k->stream, 3, k->args[p]);
    if (k->reorder[p][result] != NULL) dnnl_primitive_execute(k->reorder[p][result], k->stream, 2, k->turn[p][result]);
    dnnl_stream_wait(k->stream);
}
static void dnn_fwd(void *p) {
    dnn_run(p, 0);
}
static void dnn_bwd_x(void *p) {
    dnn_run(p, 1);
}
static void dnn_bwd_w(void *p) {
    dnn_run(p, 2);
}
static void plain_fwd(void *p) {
    dnn_run_plain(p, 0, 2);
}
static void plain_bwd_x(void *p) {
    dnn_run_plain(p, 1, 0);
}
static void plain_bwd_w(void *p) {
    dnn_run_plain(p, 2, 1);
}
#define HAVE_DNN 1
#endif

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
    q.ours = own;
    q.x = randoms(nx), q.w = randoms(nw), q.y = randoms(ny);
    q.dx = randoms(nx), q.dw = randoms(nw), q.out = randoms(ny);
    if (hdo__arena_init(&q.a, q.fast->conv_work(c)) != HDO_OK) abort();
    double flops = 2.0 * B * O * c->Ho * c->Wo * C * k * k;
#ifdef HAVE_DNN
    dnn_make(&q);
#define DNN(pass)                                                                                                      \
    , {"onednn_blocked", dnn_##pass, 0}, {                                                                             \
        "onednn_plain", plain_##pass, 0                                                                                \
    }
#else
#define DNN(pass)
#endif
    const backend fwd[] = {{"own", ours_fwd, 0}, {"auto", fast_fwd, 0} DNN(fwd), {"ref", ref_fwd, 1}};
    const backend bx[] = {{"own", ours_bwd_x, 0}, {"auto", fast_bwd_x, 0} DNN(bwd_x), {"ref", ref_bwd_x, 1}};
    const backend bw[] = {{"own", ours_bwd_w, 0}, {"auto", fast_bwd_w, 0} DNN(bwd_w), {"ref", ref_bwd_w, 1}};
    int count = (int)(sizeof fwd / sizeof fwd[0]) - (getenv("HDO_BENCH_NO_REF") != NULL);
    measure("conv_fwd", shape, fwd, count, &q, flops);
    measure("conv_bwd_x", shape, bx, count, &q, flops);
    measure("conv_bwd_w", shape, bw, count, &q, flops);
#ifdef HAVE_DNN
    dnn_free(&q);
#endif
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
    own = &hdo__mm_portable;
#ifdef HDO_HAVE_AVX2_BUILD
    if (hdo__simd()->avx2) own = &hdo__mm_avx2;
#endif
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    char conv[160];
    hdo__conv_name(k, true, conv, sizeof conv);
    fprintf(stderr, "gemm: %s; conv: %s\n", k->gemm_name, conv);
#ifdef HAVE_DNN
    need(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine (set OMP_NUM_THREADS=1)");
#endif
    printf("bench,shape,backend,threads,reps,median_s,p10_s,p90_s,gflops\n");
    static const int nt[][3] = {
        {1024, 1024, 1024}, {10000, 10, 784},  {10000, 80, 784}, {10000, 400, 784}, {10000, 2800, 784}, {256, 128, 784},
        {256, 128, 128},    {10000, 128, 784}, {8, 128, 784},    {2, 10, 784},      {256, 128, 392},    {32, 128, 784},
        {32, 128, 392},     {32, 10, 128},     {8, 128, 128},    {8, 10, 128},      {16, 128, 784},     {24, 128, 784},
        {64, 128, 784},     {33024, 12, 4},    {33024, 16, 4},   {33024, 4, 16},    {4096, 16, 64},     {10, 10, 512},
        {50, 10, 512},      {256, 10, 128},    {128, 784, 128},  {2, 10, 3072}};
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
