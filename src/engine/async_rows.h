/* SPDX-License-Identifier: Apache-2.0
 *
 * Curves of an asynchronous run. Every rank evaluates its own nodes when it is at a multiple of eval.every, by its own
 * count of steps, and says what it found; rank 0 puts together what all ranks said about the same step. Nobody waits:
 * a row is complete when the slowest rank has come by.
 *
 * A row of step s holds every node's figures at the s-th step of its own rank. Those models never existed at one time,
 * so there is no mean model and no Gamma in it.
 */
#ifndef HDO_RUN_ASYNC_ROWS_H
#define HDO_RUN_ASYNC_ROWS_H

#include "metrics/metrics.h"

typedef struct hdo_async_part { /* what one rank has to say about its nodes at one of its steps */
    int64_t step;
    hdo_metrics_part nodes;
    double train_loss, mg; /* means over its nodes */
    hdo_counts counts;
} hdo_async_part;

typedef struct hdo_async_entry { /* a row that is being put together */
    int64_t step;                /* -1: free */
    double nodes[HDO_CLASSES_MAX], weight;
    int parts; /* ranks heard */
    hdo_row row;
} hdo_async_entry;

typedef struct hdo_async_rows {
    int64_t every;
    int cap, ranks, complete;
    hdo_async_entry *entry; /* (cap): that of step s at s / every modulo cap */
} hdo_async_rows;

/* Room for the rows of `steps` steps, or as many as a fast rank may be ahead of a slow one; what comes beyond is left
 * out. every = 0: none. */
hdo_status hdo__async_rows_init(hdo_async_rows *a, int64_t every, int64_t steps, int ranks);
void hdo__async_rows_clear(hdo_async_rows *a);

/* One rank's nodes of class k; and, after all its classes, the rest. weight: how many nodes it has. */
void hdo__async_rows_class(hdo_async_rows *a, int64_t step, int k, int nodes, const hdo_group *g);
void hdo__async_rows_part(hdo_async_rows *a, const hdo_async_part *p, int weight, double now_s);

/* The next complete row, wall_s the time of its last part; false: none. */
bool hdo__async_rows_take(hdo_async_rows *a, hdo_row *row);

#endif
