/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of the machine and the kernels, one thread. A window holds calls with arguments and scratch ready and
 * always the same, so they are in cache when they fit; only the average and the gather walk over more memory than that.
 * Operations of a convolution count every tap, also those on the padding, as libraries do.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/simd.h"
#include "base/vec.h"
#include "lab/bench/bench_internal.h"
#include "kernels/kernels.h"

enum { TRIAD_FLOATS = 1 << 23, L1_NORMALS = 4096 }; /* three arrays of 32 MiB; 16 KiB of numbers */

/* Everything a kernel case needs; what is not used stays NULL. */
typedef struct job {
    const hdo_kernels *k;
    const hdo_limits *limits;
    hdo_team team;
    hdo_conv conv;
    hdo_attn attn;
    const hdo_dataset *data;
    size_t n, ld;
    uint64_t turn;
    bool ta, tb;
    int M, N, K, rows;
    float *a, *b, *c, *d, *e;
    hdo_arena arena;
} job;

static float *numbers(job *j, size_t n) {
    float *x = hdo__alloc(n * sizeof *x);
    if (x != NULL) hdo__rng_normal(hdo__stream(1, HDO_RNG_TEST, 0, j->turn++, 0), 0, n, x);
    return x;
}

/* True if all the memory is there; otherwise the case is skipped. */
static bool ready(hdo_bench *b, const hdo_bench_case *c, job *j, int n_pointers, size_t arena) {
    float *const p[] = {j->a, j->b, j->c, j->d, j->e};
    bool ok = hdo__arena_init(&j->arena, arena) == HDO_OK;
    for (int k = 0; k < n_pointers; k++) ok = ok && p[k] != NULL;
    if (!ok) hdo__bench_skip(b, c, HDO_E_MEMORY, &(hdo_error){.msg = "out of memory"});
    return ok;
}

static void clear(job *j) {
    hdo__arena_clear(&j->arena);
    hdo__free(j->a), hdo__free(j->b), hdo__free(j->c), hdo__free(j->d), hdo__free(j->e);
}

/* ---- limits ---- */

static void do_fma(void *p) {
    float sink[2 + HDO_FMA_LANES] = {0.5f, 1.0f};
    ((job *)p)->limits->fma(4096, sink);
}
static void do_normals(void *p) {
    job *j = p;
    hdo__rng_normal(hdo__stream(1, HDO_RNG_TEST, 0, j->turn++, 0), 0, j->n, j->a);
}
static void triad_task(void *p, int task, hdo_work *w) {
    job *j = p;
    (void)w;
    size_t part = j->n / (size_t)j->team.threads / 16 * 16, at = part * (size_t)task;
    j->limits->triad(part, j->b + at, j->c + at, j->a + at);
}
static void do_triad(void *p) {
    job *j = p;
    hdo__team_run(&j->team, j->team.threads, triad_task, j);
}

typedef struct limit {
    const char *name;
    hdo_bench_fn fn;
    const char *unit;
    double amount; /* units a call */
} limit;

static double limit_row(hdo_bench *b, const limit *l, int threads, job *j) {
    hdo_bench_case c = {.name = l->name};
    hdo_bench_row row = hdo__bench_row(&c, threads);
    hdo__bench_time(b, l->fn, j, 3, &row);
    hdo__bench_emit(b, &row, l->unit, l->amount, "", 0.0);
    return l->amount / row.s.min; /* a limit is what the machine can do, not what it did on average */
}

void hdo__bench_limits(hdo_bench *b) {
    job j = {.limits = &hdo__limits_portable, .n = L1_NORMALS};
#ifdef HDO_HAVE_AVX2_BUILD
    if (hdo__simd()->avx2) j.limits = &hdo__limits_avx2;
#endif
#ifdef HDO_HAVE_AVX512_BUILD
    if (hdo__simd()->avx512) j.limits = &hdo__limits_avx512;
#endif
    hdo_bench_case c = {.name = "limit"};
    j.a = numbers(&j, TRIAD_FLOATS), j.b = numbers(&j, TRIAD_FLOATS), j.c = numbers(&j, TRIAD_FLOATS);
    if (ready(b, &c, &j, 3, HDO_ALIGN)) {
        b->fma = limit_row(b, &(limit){"limit/fma", do_fma, "GFLOP/s", 4096e-9 * HDO_FMA_FLOPS}, 1, &j);
        b->normals = limit_row(b, &(limit){"limit/normals", do_normals, "G/s", 1e-9 * L1_NORMALS}, 1, &j);
        j.n = TRIAD_FLOATS;
        for (int threads = 1; threads <= b->threads; threads += b->threads > 1 ? b->threads - 1 : 1) {
            if (hdo__team_init(&j.team, threads, HDO_ALIGN) != HDO_OK) break;
            double bytes = 12e-9 * (double)(j.n / (size_t)threads / 16 * 16) * threads;
            double best = limit_row(b, &(limit){"limit/triad", do_triad, "GB/s", bytes}, threads, &j);
            *(threads == 1 ? &b->triad : &b->triad_all) = best;
            hdo__team_clear(&j.team);
        }
        if (b->threads == 1) b->triad_all = b->triad;
    }
    clear(&j);
}

/* ---- random numbers, exp ---- */

void hdo__bench_normals(hdo_bench *b, const hdo_bench_case *c) {
    job j = {.n = (size_t)c->p[0]};
    j.a = numbers(&j, j.n);
    if (ready(b, c, &j, 1, HDO_ALIGN)) {
        hdo_bench_row row = hdo__bench_row(c, 1);
        snprintf(row.shape, sizeof row.shape, "%d", c->p[0]);
        hdo__bench_time(b, do_normals, &j, 3, &row);
        hdo__bench_emit(b, &row, "G/s", 1e-9 * (double)j.n, "normals", b->normals);
    }
    clear(&j);
}

static void do_exp(void *p) {
    job *j = p;
    j->k->vexp(j->n, j->a, j->b);
}

void hdo__bench_exp(hdo_bench *b, const hdo_bench_case *c) {
    job j = {.k = hdo__kernels(HDO_KERNELS_AUTO), .n = (size_t)c->p[0]};
    j.a = numbers(&j, j.n), j.b = numbers(&j, j.n);
    if (ready(b, c, &j, 2, HDO_ALIGN)) {
        hdo_bench_row row = hdo__bench_row(c, 1);
        snprintf(row.shape, sizeof row.shape, "%d", c->p[0]);
        hdo__bench_time(b, do_exp, &j, 3, &row);
        hdo__bench_emit(b, &row, "G/s", 1e-9 * (double)j.n, "", 0.0);
    }
    clear(&j);
}

/* ---- products, convolutions, attention ---- */

static void do_gemm(void *p) {
    job *j = p;
    j->k->gemm(j->ta, j->tb, j->M, j->N, j->K, 1.0f, j->a, j->ta ? j->M : j->K, j->b, j->tb ? j->K : j->N, 0.0f, j->c,
               j->N);
}

void hdo__bench_gemm(hdo_bench *b, const hdo_bench_case *c) {
    job j = {.k = hdo__kernels(HDO_KERNELS_AUTO),
             .ta = c->p[0] != 0,
             .tb = c->p[1] != 0,
             .M = c->p[2],
             .N = c->p[3],
             .K = c->p[4]};
    size_t M = (size_t)j.M, N = (size_t)j.N, K = (size_t)j.K;
    j.a = numbers(&j, M * K), j.b = numbers(&j, K * N), j.c = numbers(&j, M * N);
    if (ready(b, c, &j, 3, HDO_ALIGN)) {
        hdo_bench_row row = hdo__bench_row(c, 1);
        snprintf(row.shape, sizeof row.shape, "%c%c %d x %d x %d", j.ta ? 'T' : 'N', j.tb ? 'T' : 'N', j.M, j.N, j.K);
        hdo__bench_time(b, do_gemm, &j, 3, &row);
        hdo__bench_emit(b, &row, "GFLOP/s", 2e-9 * j.M * j.N * j.K, "fma", b->fma);
    }
    clear(&j);
}

static void do_conv_fwd(void *p) {
    job *j = p;
    j->k->conv_fwd(&j->conv, j->a, j->b, NULL, j->c, &j->arena);
}
static void do_conv_bwd_x(void *p) {
    job *j = p;
    j->k->conv_bwd_x(&j->conv, j->c, j->b, j->a, &j->arena);
}
static void do_conv_bwd_w(void *p) {
    job *j = p;
    j->k->conv_bwd_w(&j->conv, j->a, j->c, j->b, NULL, &j->arena);
}

void hdo__bench_conv(hdo_bench *b, const hdo_bench_case *c) {
    static const struct {
        const char *name;
        hdo_bench_fn fn;
    } passes[] = {{"fwd", do_conv_fwd}, {"bwd_x", do_conv_bwd_x}, {"bwd_w", do_conv_bwd_w}};
    job j = {.k = hdo__kernels(HDO_KERNELS_AUTO)};
    j.conv = (hdo_conv){.B = c->p[0],
                        .C = c->p[1],
                        .H = c->p[2],
                        .W = c->p[2],
                        .O = c->p[3],
                        .kh = c->p[4],
                        .kw = c->p[4],
                        .stride = c->p[5],
                        .pad = c->p[6]};
    hdo__conv_init(&j.conv);
    const hdo_conv *g = &j.conv;
    size_t nx = (size_t)g->B * (size_t)g->C * (size_t)(g->H * g->W),
           ny = (size_t)g->B * (size_t)g->O * (size_t)(g->Ho * g->Wo);
    size_t nw = (size_t)g->O * (size_t)g->C * (size_t)(g->kh * g->kw);
    j.a = numbers(&j, nx), j.b = numbers(&j, nw), j.c = numbers(&j, ny);
    if (ready(b, c, &j, 3, j.k->conv_work(g) + HDO_ALIGN)) {
        for (int k = 0; k < 3; k++) {
            hdo_bench_row row = hdo__bench_row(c, 1);
            snprintf(row.name, sizeof row.name, "%s/%s", c->name, passes[k].name);
            snprintf(row.shape, sizeof row.shape, "B %d, %d x %d x %d -> %d, k %d", g->B, g->C, g->H, g->W, g->O,
                     g->kh);
            hdo__bench_time(b, passes[k].fn, &j, 3, &row);
            hdo__bench_emit(b, &row, "GFLOP/s", 2e-9 * (double)ny * (double)nw / g->O, "fma", b->fma);
        }
    }
    clear(&j);
}

static void do_attn_fwd(void *p) {
    job *j = p;
    j->k->attn_fwd(&j->attn, j->a, j->b, j->c, &j->arena);
}
static void do_attn_bwd(void *p) {
    job *j = p;
    j->k->attn_bwd(&j->attn, j->a, j->b, j->c, j->d, j->e, &j->arena);
}

void hdo__bench_attn(hdo_bench *b, const hdo_bench_case *c) {
    job j = {.k = hdo__kernels(HDO_KERNELS_AUTO)};
    j.attn = (hdo_attn){.B = c->p[0],
                        .T = c->p[1],
                        .heads = c->p[2],
                        .hs = c->p[3],
                        .dropout = 0.1f,
                        .mask = hdo__stream(1, HDO_RNG_TEST, 0, 0, 0)};
    size_t n = (size_t)c->p[0] * (size_t)c->p[1] * (size_t)(c->p[2] * c->p[3]);
    double weights = 0.5e-9 * c->p[0] * c->p[1] * (c->p[1] + 1) * c->p[2];
    j.a = numbers(&j, 3 * n), j.b = numbers(&j, n), j.c = numbers(&j, n), j.d = numbers(&j, n),
    j.e = numbers(&j, 3 * n);
    if (ready(b, c, &j, 5, j.k->attn_work(&j.attn, 1) + HDO_ALIGN)) {
        for (int k = 0; k < 2; k++) {
            hdo_bench_row row = hdo__bench_row(c, 1);
            snprintf(row.name, sizeof row.name, "%s/%s", c->name, k == 0 ? "fwd" : "bwd");
            snprintf(row.shape, sizeof row.shape, "B %d, T %d, %d heads of %d", c->p[0], c->p[1], c->p[2], c->p[3]);
            hdo__bench_time(b, k == 0 ? do_attn_fwd : do_attn_bwd, &j, 3, &row);
            hdo__bench_emit(b, &row, "G/s", weights, "", 0.0); /* weights: one exponential each */
        }
    }
    clear(&j);
}

/* ---- memory: the mixing step and batches ---- */

static void do_average(void *p) { /* all rows, in pairs: more memory than the caches hold when rows are many */
    job *j = p;
    for (int k = 0; k + 1 < j->rows; k += 2)
        hdo__average(j->n, j->a + (size_t)k * j->ld, j->a + (size_t)(k + 1) * j->ld);
}

void hdo__bench_average(hdo_bench *b, const hdo_bench_case *c) {
    job j = {.rows = c->p[0], .n = (size_t)c->p[1]};
    j.ld = (j.n + 15) / 16 * 16;
    j.a = numbers(&j, (size_t)j.rows * j.ld);
    if (ready(b, c, &j, 1, HDO_ALIGN)) {
        hdo_bench_row row = hdo__bench_row(c, 1);
        snprintf(row.shape, sizeof row.shape, "%d rows of %d", c->p[0], c->p[1]);
        hdo__bench_time(b, do_average, &j, 3, &row);
        hdo__bench_emit(b, &row, "GB/s", 8e-9 * (double)j.n * j.rows, "triad",
                        b->triad); /* every number read and written */
    }
    clear(&j);
}

static void do_gather(void *p) {
    job *j = p;
    size_t mark = hdo__arena_mark(&j->arena);
    int64_t *idx = hdo__arena_take(&j->arena, (size_t)j->M * sizeof *idx);
    int32_t *label = hdo__arena_take(&j->arena, (size_t)j->M * sizeof *label);
    hdo_perm perm = hdo__perm(hdo__stream(1, HDO_RNG_TEST, 0, 0, 0), (uint64_t)j->data->count);
    for (int k = 0; k < j->M; k++) idx[k] = (int64_t)hdo__perm_at(&perm, j->turn++ % perm.n);
    hdo_batch batch = {.size = j->M};
    hdo__batch_gather(&batch, j->data, idx, NULL, j->a, label); /* images or tokens */
    hdo__arena_rewind(&j->arena, mark);
}

void hdo__bench_gather(hdo_bench *b, const hdo_bench_case *c) {
    hdo_dataset *train = NULL, *val = NULL;
    hdo_data_config *d = NULL;
    hdo_config *all = hdo__alloc(sizeof *all);
    hdo_error e = {0};
    hdo_status st = all != NULL ? HDO_OK : HDO_E_MEMORY;
    if (st == HDO_OK) {
        hdo_config_default(all);
        d = &all->data;
        snprintf(d->name, sizeof d->name, "%s", c->text[0]);
        st = hdo__data_open(d, &train, &val, &e);
    }
    if (st != HDO_OK) {
        hdo__bench_skip(b, c, st, &e);
    } else {
        job j = {.data = train, .M = c->p[0]};
        size_t n = (size_t)j.M * (size_t)train->n_in, stored = train->vocab > 0 ? 4 : 1; /* images are bytes */
        j.a = hdo__alloc(n * sizeof(float));
        if (ready(b, c, &j, 1, (size_t)j.M * 16 + 4 * HDO_ALIGN)) {
            hdo_bench_row row = hdo__bench_row(c, 1);
            snprintf(row.shape, sizeof row.shape, "%d x %d", j.M, train->n_in);
            hdo__bench_time(b, do_gather, &j, 3, &row);
            hdo__bench_emit(b, &row, "GB/s", 1e-9 * (double)n * (double)(4 + stored), "triad", b->triad);
        }
        clear(&j);
    }
    hdo__dataset_destroy(train);
    hdo__dataset_destroy(val);
    hdo__free(all);
}
