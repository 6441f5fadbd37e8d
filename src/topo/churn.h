/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes that come and go. Who is away is a small Markov chain per node, drawn from addressed numbers: every rank
 * computes it for all nodes, and a checkpoint holds the n flags.
 */
#ifndef HDO_TOPO_CHURN_H
#define HDO_TOPO_CHURN_H

#include "topo/mixer.h"

typedef struct hdo_churn {
    bool active; /* anything configured at all */
    double leave, back, loss, straggle;
    bool fresh;
    int outage_first, outage_last; /* nodes first <= i < last are away in steps from <= t < to */
    int64_t outage_from, outage_to;
    uint64_t seed;
    int n;
    uint8_t *away; /* (n) state */
    float *draw;   /* (n) scratch */
} hdo_churn;

hdo_status hdo__churn_init(hdo_churn *c, const hdo_config *config, int n, hdo_error *e);
void hdo__churn_clear(hdo_churn *c);

/* Moves every node to step t. Writes the nodes that return in this step to back (room for n), returns how many. */
int hdo__churn_step(hdo_churn *c, int64_t t, int32_t *back);
bool hdo__churn_away(const hdo_churn *c, int64_t t, int node);

/* Of the nodes in list, keeps those that are present and not too slow in step t. Returns how many. */
int hdo__churn_filter_nodes(const hdo_churn *c, int64_t t, int32_t *list, int n);

/* Of the pairs, keeps those that meet: both present, exchange not lost. Returns how many. */
int hdo__churn_filter_pairs(const hdo_churn *c, int64_t t, hdo_pair *pairs, int n);

#endif
