/* SPDX-License-Identifier: Apache-2.0 — samples kept as rows of floats: generated data, tables, float arrays. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_impl.h"

typedef struct floatset {
    hdo_dataset ds;
    float *x;       /* (count, n_in) */
    int32_t *label; /* (count) */
} floatset;

static void destroy(hdo_dataset *ds) {
    floatset *f = (floatset *)ds;
    free(f->x);
    free(f->label);
    free(f);
}

static void gather(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in, int32_t *tok,
                   int32_t *label) {
    const floatset *f = (const floatset *)ds;
    (void)augment;
    (void)tok;
    const size_t w = (size_t)ds->n_in;
    for (int k = 0; k < n; k++) {
        assert(idx[k] >= 0 && idx[k] < ds->count);
        memcpy(in + (size_t)k * w, f->x + (size_t)idx[k] * w, w * sizeof(float));
        label[k] = f->label[idx[k]];
    }
}

static int32_t label_of(const hdo_dataset *ds, int64_t i) {
    return ((const floatset *)ds)->label[i];
}

static const hdo_dataset_ops ops = {.name = "floats", .destroy = destroy, .gather = gather, .label = label_of};

hdo_status hdo__floatset_create(hdo_dataset **out, int64_t count, const int shape[3], int classes, float *x,
                                int32_t *label, hdo_error *e) {
    floatset *f = calloc(1, sizeof *f);
    if (f == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a data set");
    f->ds.ops = &ops;
    f->ds.count = count;
    f->ds.n_in = shape[0] * shape[1] * shape[2];
    memcpy(f->ds.shape, shape, sizeof f->ds.shape);
    f->ds.classes = classes;
    f->x = x;
    f->label = label;
    *out = &f->ds;
    return HDO_OK;
}
