/* SPDX-License-Identifier: Apache-2.0
 *
 * Measurements of this build on this machine: kernels, one node-step and one evaluation of every experiment, whole
 * runs, cost against the number of nodes and coordinates. Every row carries its distribution, the rate it amounts to
 * and the fraction of a limit of the machine that was measured in the same process.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_BENCH_H
#define HDO_LAB_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Order statistics of repeated timings: linear interpolation between the sorted values, as NumPy's percentile. */
typedef struct hdo_bench_stats {
    int n;
    double median, p10, p90, min;
} hdo_bench_stats;
HDO_API hdo_bench_stats hdo_bench_summarise(double *t, int n); /* sorts t; n >= 1 */

typedef struct hdo_bench_row {
    char name[64];  /* "step/e2/forward-law" */
    char shape[64]; /* "d 7850, batch 2, rv 128" */
    int threads, ranks;
    int64_t calls;      /* of one timed window; times are for one call */
    hdo_bench_stats s;  /* seconds of one call */
    double cpu_s;       /* median processor seconds of one call, all threads: what a busy machine does not change */
    double rate;        /* work per second at the median; 0: none */
    const char *unit;   /* "GFLOP/s", "GB/s", "G/s", "M/s", "x"; "" with rate 0 */
    const char *limit;  /* what bounds it: "fma", "triad", "normals", "threads"; "" if nothing measured does */
    double fraction;    /* rate / that limit; NaN without */
    double allocations; /* of the library, per call, inside the window */
    size_t peak_bytes;  /* most resident memory of the process while the case ran, its data included; 0: not known */
    double busy;        /* processors' worth of other processes meanwhile; NaN: not known */
} hdo_bench_row;

typedef struct hdo_bench_options {
    const char *name; /* a case, a group ("step", "step/e2"), "all", or NULL: the cases that are quick */
    int threads;      /* of steps, evaluations and runs; 0: as a run chooses by itself. Kernels use one */
    double seconds;   /* for one case, about; 0: 0.3 */
    bool cpu;         /* statistics and rates from processor time instead: for one thread on a busy machine */
    void *ctx;
    void (*row)(void *ctx, const hdo_bench_row *row);
    void (*note)(void *ctx, const char *message); /* a case that cannot run here, and why; may be NULL */
    bool (*stop)(void *ctx);                      /* asked between cases; may be NULL */
} hdo_bench_options;

/* Measures the limits, then every case the name selects, in the order of the table. HDO_E_CONFIG if it selects none. A
 * case that needs data that is not here is skipped with a note. */
HDO_API hdo_status hdo_bench_run(const hdo_bench_options *o, hdo_error *e);

/* Does `name` select the case? A whole name, or its first words up to a slash. */
HDO_API bool hdo_bench_selects(const char *name, const char *case_name);

/* The cases in order, for lists: the name of case i, or NULL; quick says if it runs without being asked for. */
HDO_API const char *hdo_bench_case_name(int i, bool *quick);

#ifdef __cplusplus
}
#endif

#endif
