/* SPDX-License-Identifier: Apache-2.0
 *
 * What exchanges have moved. For every partner (a node and its epoch) the sum of s(after) - s(before) over all
 * exchanges with it, s(x) = sum_c r_c x_c with fixed signs r_c. What one of two partners gained the other has lost:
 * over any set of members the flows between them add up to rounding, whoever else has died. That is the promise of the
 * exchange, measured.
 */
#ifndef HDO_FLEET_FLOW_H
#define HDO_FLEET_FLOW_H

#include <stddef.h>
#include <stdint.h>

enum { HDO_FLOWS_MAX = 4096 };

typedef struct hdo_flow {
    uint64_t from, to; /* own node, partner */
    uint32_t epoch;    /* of the partner */
    int64_t count;
    double sum;
} hdo_flow;

typedef struct hdo_flows {
    hdo_flow *flow; /* (HDO_FLOWS_MAX) */
    int n;
    int64_t beyond; /* exchanges with partners there was no room for */
} hdo_flows;

double hdo__flow_measure(const float *x, size_t len); /* s(x) */
void hdo__flow_add(hdo_flows *f, uint64_t from, uint64_t to, uint32_t epoch, double moved);

#endif
