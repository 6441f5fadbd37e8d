/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds which nodes, and how the rows of a pair come together. The simulator and a cluster differ in nothing else.
 * A transport only moves bytes; averaging stays in vec.h, once.
 */
#ifndef HDO_TRANSPORT_TRANSPORT_H
#define HDO_TRANSPORT_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "topo/mixer.h"

typedef struct hdo_transport hdo_transport;

typedef struct hdo_rows { /* the local part of the population: row of node i is X + (i - first) * ld */
    float *X;
    size_t ld, len; /* len numbers of a row take part in an exchange */
    int first, count;
} hdo_rows;

typedef struct hdo_transport_ops {
    const char *name;
    void (*destroy)(hdo_transport *t);
    /* Starts moving the rows of all pairs that are not both local. */
    hdo_status (*exchange_begin)(hdo_transport *t, const hdo_plan *plan, const hdo_rows *rows, hdo_error *e);
    /* For pair k with at least one local node: *mine the local row, *peer the other's (a local row, or a buffer holding
     * what arrived). *mine = NULL when neither is local. Waits for that pair's bytes. */
    hdo_status (*exchange_wait)(hdo_transport *t, const hdo_plan *plan, const hdo_rows *rows, int k, float **mine,
                                float **peer, hdo_error *e);
    hdo_status (*reduce_sum)(hdo_transport *t, double *v, int n, hdo_error *e); /* over ranks, result everywhere */
} hdo_transport_ops;

struct hdo_transport { /* first member of every implementation */
    const hdo_transport_ops *ops;
    int rank, ranks;
    int first, count; /* local nodes */
};

hdo_status hdo__inproc_create(hdo_transport **out, int n, hdo_error *e);

#endif
