/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to be minimised, and who sees which part of it: data, shards, objective, batches, starting point. The one
 * wiring of a problem: runs, checks, evaluations, studies and benchmarks all open it here. It knows nothing of models
 * that move; those are the population's.
 */
#ifndef HDO_PROBLEM_PROBLEM_H
#define HDO_PROBLEM_PROBLEM_H

#include "base/arena.h"
#include "objective/objective.h"
#include "objective/weights.h"

typedef struct hdo_problem {
    const hdo_config *config; /* borrowed */
    int n, n_classes;
    int class_first[HDO_CLASSES_MAX + 1]; /* nodes are numbered class by class; the last entry in use is n */
    hdo_dataset *train, *val;             /* NULL for objectives without data */
    hdo_shards *shards;                   /* NULL without data, and after hdo__problem_open_whole */
    hdo_objective *objective;
    hdo_config *resolved; /* config with the tables of its plug-ins, if it was given without; otherwise NULL */
    struct hdo_complaint *complaint; /* of estimators of one's own (config/own_call.h); NULL: there are none */
    float *base;                /* model.train: the whole model at the start, which the objective reads; else NULL */
    hdo_weights_report weights; /* what it has of model.weights */
} hdo_problem;

/* config lives as long as the problem. After a failure, too, the problem is to be closed. */
HDO_LAB hdo_status hdo__problem_open(hdo_problem *p, const hdo_config *c, hdo_error *e);
/* The same without shards: for those who look at a model and at the data as a whole. No batches of nodes. */
HDO_LAB hdo_status hdo__problem_open_whole(hdo_problem *p, const hdo_config *c, hdo_error *e);
HDO_LAB void hdo__problem_close(hdo_problem *p); /* {0} is fine */

/* Has the model of this configuration samples? Valid for names that exist. */
HDO_LAB bool hdo__problem_has_data(const hdo_config *c);

/* A pass failed with st: the sentence of whoever said one (a callback of one's own), otherwise the given one. */
HDO_LAB hdo_status hdo__problem_fail(const hdo_problem *p, hdo_status st, hdo_error *e, const char *fmt, ...)
    HDO_PRINTF(4, 5);

HDO_LAB int hdo__problem_class(const hdo_problem *p, int node);

/* Batch number `number` of the node's endless shuffled passes over its shard, in memory of the arena. Crops and flips
 * belong to the batch, not to the step. noise_step addresses what else is random about it (dropout masks, noise of
 * objectives without data). */
HDO_LAB hdo_batch hdo__problem_batch(const hdo_problem *p, int node, int size, int64_t number, int64_t noise_step,
                                     hdo_arena *a);
/* The samples idx[0 .. size) as they are, without crops or flips, in memory of the arena. */
HDO_LAB hdo_batch hdo__problem_samples(const hdo_problem *p, int node, const int64_t *idx, int size, hdo_arena *a);
HDO_LAB size_t hdo__problem_batch_bytes(const hdo_problem *p, int size); /* of the arena, for either */

/* The common starting point (d + n_buf): drawn from the seed, then what model.weights has. report may be NULL. */
HDO_LAB hdo_status hdo__problem_start(const hdo_problem *p, float *x, hdo_weights_report *report, hdo_error *e);

#endif
