/* SPDX-License-Identifier: Apache-2.0
 *
 * A data set: numbered samples, each `n_in` numbers (or tokens) and a label. Samples stay as they are stored (bytes for
 * images); they become floats when a batch is gathered. One copy serves all nodes; nothing here is written after open.
 */
#ifndef HDO_DATA_DATASET_H
#define HDO_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"
#include "hdo/experimental/config.h"

typedef struct hdo_dataset hdo_dataset;

typedef struct hdo_dataset_ops {
    const char *name;
    void (*destroy)(hdo_dataset *ds);
    /* Samples idx[0 .. n) to in (n, n_in) row-major and label (n). tokens: `in` receives token numbers as floats'
     * sibling `tok` instead (exactly one of in, tok is written: tok when ds->vocab > 0). augment: address of the
     * randomness of this batch (sample k of the batch uses its sub + k), or NULL for none. */
    void (*gather)(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in, int32_t *tok,
                   int32_t *label);
    /* The same for sets that may fail; gather is NULL then. hdo__dataset_gather calls whichever there is. */
    hdo_status (*try_gather)(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in,
                             int32_t *tok, int32_t *label);
    int32_t (*label)(const hdo_dataset *ds, int64_t i);
} hdo_dataset_ops;

struct hdo_dataset { /* first member of every implementation */
    const hdo_dataset_ops *ops;
    int64_t count;
    int n_in;     /* channels * height * width, or positions of a token sequence */
    int shape[3]; /* channels, height, width; {1, 1, n_in} when flat */
    int classes;
    int vocab;                       /* 0: real inputs; otherwise samples are tokens 0 .. vocab-1 */
    bool front;                      /* samples are what frozen layers made of others (objective/front_data.h) */
    char sha256[65];                 /* of the source files, or of the generator's parameters; goes to the manifest */
    struct hdo_complaint *complaint; /* what a set that may fail has to say (config/own_call.h); NULL: never fails */
};

/* Opens training and validation set by config. data.name "none" gives two NULLs (objectives without data). Both are
 * owned by the caller. A missing data set is HDO_E_DATA with the command that obtains it. */
HDO_LAB hdo_status hdo__data_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e);
HDO_LAB void hdo__dataset_destroy(hdo_dataset *ds); /* NULL is fine */
HDO_LAB hdo_status hdo__dataset_gather(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment,
                                       float *in, int32_t *tok, int32_t *label);

/* ---- who holds which samples ---- */
typedef struct hdo_shards hdo_shards;

/* class_count[k] nodes belong to class k; nodes are numbered class by class. */
hdo_status hdo__shards_create(hdo_shards **out, const hdo_choice *split, uint64_t seed, int n_classes,
                              const int64_t *class_count, const hdo_dataset *train, hdo_error *e);
void hdo__shards_destroy(hdo_shards *s);
/* data.reshuffle: false. Every pass over a shard is then in the order of the first one. */
void hdo__shards_fix_order(hdo_shards *s);
bool hdo__shards_order_fixed(const hdo_shards *s);
HDO_LAB int64_t hdo__shard_count(const hdo_shards *s, int node);
HDO_LAB int64_t hdo__shard_at(const hdo_shards *s, int node,
                              int64_t j); /* global number of the j-th sample of node's shard */

/* ---- which of them now ----
 * Batch number t of `node`: positions t*batch .. t*batch+batch-1 of an endless sequence of shuffled passes over the
 * shard, each pass (epoch) shuffled anew (unless the order is fixed) by a keyed bijection: O(batch), any t addressable,
 * no arrays. */
HDO_LAB void hdo__sampler_batch(const hdo_shards *s, uint64_t seed, int node, int64_t t, int batch, int64_t *idx);

#endif
