/* SPDX-License-Identifier: Apache-2.0 — samples of a data set become a minibatch. */
#include "data/batch.h"

void hdo__batch_gather(hdo_batch *b, const hdo_dataset *ds, const int64_t *idx, const hdo_stream *augment, void *in,
                       int32_t *label) {
    bool tokens = ds->vocab > 0;
    float *real = tokens ? NULL : in;
    int32_t *tok = tokens ? in : NULL;
    b->status = hdo__dataset_gather(ds, idx, b->size, augment, real, tok, label);
    b->index = idx;
    b->n_in = ds->n_in;
    b->in = real;
    b->tok = tok;
    b->front = ds->front ? real : NULL;
    b->label = label;
}

size_t hdo__batch_bytes(const hdo_dataset *ds, int batch) {
    if (ds == NULL) return 0;
    size_t B = (size_t)batch;
    return hdo__arena_round(B * (size_t)ds->n_in * sizeof(float)) + hdo__arena_round(B * sizeof(int64_t)) +
           hdo__arena_round(B * sizeof(int32_t));
}
