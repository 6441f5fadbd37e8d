/* SPDX-License-Identifier: Apache-2.0
 *
 * Who meets whom. A mixer is a pure function of (seed, step): every thread and every rank computes the same plan for
 * itself, so no coordinator exists.
 */
#ifndef HDO_TOPO_MIXER_H
#define HDO_TOPO_MIXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "hdo/config.h"

typedef struct hdo_pair {
    int32_t a, b;
} hdo_pair;

typedef struct hdo_plan { /* what happens in one step */
    const hdo_pair *pairs; /* disjoint */
    int n_pairs;
    bool all_step;  /* every node takes a local step; otherwise only the nodes in pairs */
    bool allreduce; /* all nodes take the exact mean instead of pairs */
} hdo_plan;

typedef struct hdo_mixer hdo_mixer;

typedef struct hdo_mixer_ops {
    const char *name;
    const char *help;
    bool all_step;
    /* Pairs of step t into pairs (room for n / 2), returns how many. scratch: n numbers. NULL: never any pairs. */
    int (*match)(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *scratch);
    bool allreduce;
} hdo_mixer_ops;

struct hdo_mixer {
    const hdo_mixer_ops *ops;
    uint64_t seed;
    int n;
    int64_t period; /* nodes meet in steps t with (t + 1) % period == 0 */
    int64_t warmup; /* and not before */
    hdo_pair *pairs;   /* (n / 2) */
    uint32_t *scratch; /* (n) */
};

extern const hdo_mixer_ops *const hdo__mixers[]; /* ends with NULL */
const hdo_mixer_ops *hdo__mixer_find(const char *name);

hdo_status hdo__mixer_init(hdo_mixer *m, const hdo_mixing_config *c, uint64_t seed, int n, int64_t warmup, hdo_error *e);
void hdo__mixer_clear(hdo_mixer *m);
void hdo__mixer_plan(hdo_mixer *m, int64_t t, hdo_plan *plan); /* valid until the next call */

#endif
