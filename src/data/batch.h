/* SPDX-License-Identifier: Apache-2.0 — a minibatch: samples as an objective sees them. */
#ifndef HDO_DATA_BATCH_H
#define HDO_DATA_BATCH_H

#include "base/arena.h"
#include "data/dataset.h"

typedef struct hdo_batch {
    int size;             /* samples; 0 for objectives without data */
    const float *in;      /* (size, n_in), or NULL */
    const int32_t *tok;   /* (size, n_in) for token data, or NULL */
    const int32_t *label; /* (size) */
    const int64_t *index; /* (size) their numbers in the data set, or NULL */
    int n_in;             /* numbers or tokens of a sample; 0: only `index` counts */
    hdo_status status;    /* not HDO_OK: the samples could not be gathered */
    int node;             /* whose loss f^i; -1: the population's f, without noise */
    uint64_t seed;        /* address of noise and dropout masks together with node and step */
    int64_t step;
    /* Not NULL: samples first .. of this set, in order, and the objective may know them: see hdo_objective.known. */
    const hdo_dataset *whole;
    int64_t first;
    const float *front; /* what frozen layers made of the samples (hdo__objective_prepare), or NULL: not asked yet */
    bool train;         /* false: evaluation (no dropout, running batch-norm statistics, no noise) */
} hdo_batch;

/* Samples idx[0 .. b->size) of ds into in (size, n_in: floats or tokens) and label (size); points b at them. */
HDO_LAB void hdo__batch_gather(hdo_batch *b, const hdo_dataset *ds, const int64_t *idx, const hdo_stream *augment,
                               void *in, int32_t *label);
/* Arena bytes of a batch: its indices, labels and inputs. 0 without data. */
size_t hdo__batch_bytes(const hdo_dataset *ds, int batch);

#endif
