/* SPDX-License-Identifier: Apache-2.0 — the asynchronous engine: see async.c. */
#ifndef HDO_RUN_ASYNC_H
#define HDO_RUN_ASYNC_H

#include "engine/async_rows.h"
#include "transport/transport.h"

typedef struct hdo_async hdo_async;

typedef struct hdo_async_stats { /* over all ranks once the run has ended */
    double exchanges;            /* averages with a node of another rank */
    double missed;               /* meetings left out because too many answers were outstanding */
    double stale_sum, stale_max; /* steps a node took between its offer and the answer */
    double gap_sum, gap_max;     /* partner's step minus own step at the answer, absolute */
    double counts[HDO_COUNTS];
    double loss_sum, mg_sum;       /* over nodes, of the last step of each rank */
    double step_s_min, step_s_max; /* seconds a step of the fastest and of the slowest rank */
    double residual;               /* largest deviation of the mean model from start + updates; NaN unless checked */
} hdo_async_stats;

typedef struct hdo_async_setup {
    double deadline_s;
    const float *x0; /* (d): the common start, for the check of conservation, or NULL */
    size_t d;
    int64_t eval_every, steps;
} hdo_async_setup;

/* Starts the thread that talks. */
hdo_status hdo__async_create(hdo_async **out, hdo_transport *t, hdo_models *rows, const hdo_async_setup *s,
                             hdo_error *e);
void hdo__async_destroy(hdo_async *a);

/* A local step: read a consistent copy, then change the row while nobody else does. i counts local nodes. */
void hdo__async_read(hdo_async *a, int i, size_t len, float *copy);
float *hdo__async_lock(hdo_async *a, int i);
/* before: (d) the row as it was when locked, for the check of conservation; NULL: not checked */
void hdo__async_unlock(hdo_async *a, int i, const float *before);
bool hdo__async_checked(const hdo_async *a);

/* The pairs of this rank's step: averages local ones, offers the others. Returns how many were averaged here. */
int hdo__async_mix(hdo_async *a, const hdo_plan *plan, int64_t step);

/* This rank's figures, on their way to rank 0; the exchanges so far are added to the counts. */
void hdo__async_report(hdo_async *a, const hdo_async_part *p);
/* Rank 0: the next row to which all ranks have contributed; false: none. */
bool hdo__async_row(hdo_async *a, hdo_row *row);

/* Tells everybody what this rank has to say (HDO_SAY_...); returns what anybody said so far. */
unsigned hdo__async_say(hdo_async *a, unsigned say);

/* This rank is done. Serves the others until all are, then stops the thread (rows can still be taken). *say: what
 * anybody said. s: counts, sums and step_s_min of this rank, then the statistics of all. */
hdo_status hdo__async_finish(hdo_async *a, unsigned *say, hdo_async_stats *s, hdo_error *e);

#endif
