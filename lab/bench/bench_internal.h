/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of this folder.
 *
 *   bench.c         the table of cases        bench_time.c    windows, processor time, memory
 *   bench_micro.c   kernels                   bench_stats.c   order statistics
 *   bench_macro.c   steps, evaluations, runs  simd_limits.c   what the machine can do
 *   bench_scale.c   against n, d, threads     bench_flops.c   arithmetic of a model
 */
#ifndef HDO_BENCH_BENCH_INTERNAL_H
#define HDO_BENCH_BENCH_INTERNAL_H

#include "lab/bench/bench_flops.h"
#include "lab/bench/limits.h"
#include "hdo/lab/bench.h"
#include "run/run_internal.h"

typedef struct hdo_bench hdo_bench;
typedef struct hdo_bench_case hdo_bench_case;

struct hdo_bench_case {
    const char *name;
    bool quick;
    void (*run)(hdo_bench *b, const hdo_bench_case *c);
    const char *text[3]; /* preset, class, estimator; or what the kernel wants */
    int p[7];
};

struct hdo_bench {
    const hdo_bench_options *o;
    int threads; /* as asked, or all processors */
    int asked;   /* for configurations: 0 leaves it to the run */
    double seconds;
    double fma, triad, normals; /* measured limits of one thread: GFLOP/s, GB/s, G/s */
    double triad_all;           /* of all threads together */
    double *wall, *cpu;         /* room for the timings of a case */
    hdo_status status;          /* the first failure that is not a missing data set */
    hdo_error *e;
};

typedef void (*hdo_bench_fn)(void *arg);

/* Times fn(arg) and fills everything in row that time, memory and counters say. The first call is not timed. least: at
 * least that many windows. */
void hdo__bench_time(hdo_bench *b, hdo_bench_fn fn, void *arg, int least, hdo_bench_row *row);
/* A row for the case with its work: `amount` (operations, bytes, numbers: in units of 1e9, or 1e6 for "M/s") a call. */
hdo_bench_row hdo__bench_row(const hdo_bench_case *c, int threads);
/* unit, rate, limit and fraction from the amount of one call and a limit; then hands the row to the caller. */
void hdo__bench_emit(hdo_bench *b, hdo_bench_row *row, const char *unit, double amount, const char *limit,
                     double at_most);
void hdo__bench_skip(hdo_bench *b, const hdo_bench_case *c, hdo_status st, const hdo_error *e);

void hdo__bench_limits(hdo_bench *b); /* measures fma, triad, normals and reports them as rows */

/* Cases. */
void hdo__bench_normals(hdo_bench *b, const hdo_bench_case *c); /* p: how many */
void hdo__bench_gemm(hdo_bench *b, const hdo_bench_case *c);    /* p: ta, tb, M, N, K */
void hdo__bench_conv(hdo_bench *b, const hdo_bench_case *c);    /* text: pass; p: B, C, side, O, kernel, stride, pad */
void hdo__bench_attn(hdo_bench *b, const hdo_bench_case *c);    /* text: pass; p: B, T, heads, head size */
void hdo__bench_exp(hdo_bench *b, const hdo_bench_case *c);     /* p: how many */
void hdo__bench_average(hdo_bench *b, const hdo_bench_case *c); /* p: rows, d */
void hdo__bench_gather(hdo_bench *b, const hdo_bench_case *c);  /* text: data set; p: batch */
void hdo__bench_step(hdo_bench *b, const hdo_bench_case *c);    /* text: preset, class, estimator; p: rv */
void hdo__bench_eval(hdo_bench *b, const hdo_bench_case *c);    /* text: preset, class */
void hdo__bench_whole(hdo_bench *b, const hdo_bench_case *c);   /* text: preset, class, estimator */
void hdo__bench_create(hdo_bench *b, const hdo_bench_case *c);  /* text: preset */
void hdo__bench_nodes(hdo_bench *b, const hdo_bench_case *c);   /* p: n, d */
void hdo__bench_beyond(hdo_bench *b, const hdo_bench_case *c);  /* p: n, d */
void hdo__bench_dim(hdo_bench *b, const hdo_bench_case *c);     /* text: estimator; p: d */
void hdo__bench_threads(hdo_bench *b, const hdo_bench_case *c); /* text: preset, "step" or "eval" */

/* ---- macro helpers (bench_macro.c) ---- */

/* The preset as one runs it for timing: no evaluation, tiny constant rates so that it never stops, `threads` threads.
 */
hdo_status hdo__bench_config(hdo_config *c, const char *preset, int threads, hdo_error *e);
hdo_status hdo__bench_set(hdo_config *c, const char *class_name, const char *key, const char *value, hdo_error *e);
void hdo__bench_one_step(void *run);       /* hdo_run_advance(run, 1) */
void hdo__bench_one_evaluation(void *run); /* all nodes on the whole validation set */

#endif
