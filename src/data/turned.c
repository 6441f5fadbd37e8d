/* SPDX-License-Identifier: Apache-2.0
 *
 * data.pretext: rotation. Every image of another set four times, turned by 0, 90, 180 and 270 degrees against the
 * clock; the label is the number of quarter turns. The labels of the set itself are never read: features can be learnt
 * from pictures alone. Sample i is image i / 4 with i % 4 turns.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "data/data_impl.h"

enum { TURNS = 4 };

typedef struct turned {
    hdo_dataset ds;
    hdo_dataset *inner; /* owned */
} turned;

static void destroy(hdo_dataset *ds) {
    turned *t = (turned *)ds;
    hdo__dataset_destroy(t->inner);
    free(t);
}

/* One quarter turn of an n x n plane in place: four pixels at a time change places. */
static void turn(float *p, int n) {
    for (int y = 0; y < n / 2; y++) {
        for (int x = y; x < n - 1 - y; x++) {
            float *a = &p[y * n + x], *b = &p[x * n + n - 1 - y], *c = &p[(n - 1 - y) * n + n - 1 - x],
                  *d = &p[(n - 1 - x) * n + y];
            float keep = *a;
            *a = *b;
            *b = *c;
            *c = *d;
            *d = keep;
        }
    }
}

static hdo_status gather(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in,
                         int32_t *tok, int32_t *label) {
    const hdo_dataset *inner = ((const turned *)ds)->inner;
    const int side = ds->shape[1];
    hdo_status st = HDO_OK;
    for (int k = 0; k < n; k++) {
        int64_t image = idx[k] / TURNS;
        float *dst = in + (size_t)k * (size_t)ds->n_in;
        hdo_stream s = augment != NULL ? *augment : (hdo_stream){0};
        s.sub += (uint32_t)k;
        hdo_status one = hdo__dataset_gather(inner, &image, 1, augment != NULL ? &s : NULL, dst, tok, &label[k]);
        if (one != HDO_OK) st = one;
        label[k] = (int32_t)(idx[k] % TURNS);
        for (int c = 0; c < ds->shape[0]; c++) {
            for (int q = 0; q < label[k]; q++) turn(dst + (size_t)c * (size_t)side * (size_t)side, side);
        }
    }
    return st;
}

static int32_t label_of(const hdo_dataset *ds, int64_t i) {
    (void)ds;
    return (int32_t)(i % TURNS);
}

static const hdo_dataset_ops ops = {.name = "turned", .destroy = destroy, .try_gather = gather, .label = label_of};

hdo_status hdo__turned_wrap(hdo_dataset **ds, const char *name, hdo_error *e) {
    hdo_dataset *inner = *ds;
    if (inner->vocab > 0 || inner->shape[1] < 2 || inner->shape[1] != inner->shape[2]) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "data.pretext: rotation needs square images; a sample of '%s' is %d x %d x %d%s", name,
                         inner->shape[0], inner->shape[1], inner->shape[2], inner->vocab > 0 ? " tokens" : "");
    }
    turned *t = calloc(1, sizeof *t);
    if (t == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a data set");
    t->ds = *inner;
    t->ds.ops = &ops;
    t->ds.count = inner->count * TURNS;
    t->ds.classes = TURNS;
    char text[96];
    snprintf(text, sizeof text, "turned %s", inner->sha256);
    hdo__sha256_bytes(text, strlen(text), t->ds.sha256);
    t->inner = inner;
    *ds = &t->ds;
    return HDO_OK;
}
