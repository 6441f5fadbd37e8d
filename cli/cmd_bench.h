/* SPDX-License-Identifier: Apache-2.0 — hdo bench: what its two files share. */
#ifndef HDO_CMD_BENCH_H
#define HDO_CMD_BENCH_H

#include "cli.h"
#include "hdo/lab/bench.h"

typedef struct bench_out { /* where rows go */
    hdo_json *json;        /* NULL: a table */
    bool cpu;              /* statistics of processor time */
    FILE *csv;             /* may be NULL */
    int *rows;             /* so far */
    const char *date;
} bench_out;
void bench_put(const bench_out *out, const hdo_bench_row *row);

/* Cases that start processes (bench_process.c): names in order, or NULL; whether the name selects one; run them. */
const char *bench_process_name(int i, bool *quick);
bool bench_process_has(const char *name);
void bench_process_run(const bench_out *out, const char *name);

#endif
