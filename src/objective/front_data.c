/* SPDX-License-Identifier: Apache-2.0
 *
 * Features: what frozen layers make of a sample, kept. A run looks at a sample many times, from many nodes, along many
 * directions and at every evaluation; the frozen layers say the same each time. So they are run once for a sample: for
 * a head that turns the network into softmax regression.
 *
 * Samples are computed in blocks of neighbours (0 .. 15, 16 .. 31, ...) when the first of them is asked for. A block is
 * always computed whole, alone, on one thread: the bits of a feature depend on the data set, not on who asks when.
 */
#include "objective/front_data.h"

#include <pthread.h>
#include <string.h>

enum { BLOCK = 16, SLOTS = 8 };
#define BYTES_MAX ((size_t)2 << 30) /* more than that is computed batch by batch, every time */

typedef struct slot { /* block b is computed in slot b % SLOTS, one at a time */
    pthread_mutex_t lock;
    hdo_arena arena;
} slot;

typedef struct features {
    hdo_dataset base;
    hdo_dataset *raw;
    const hdo_net *front;
    const float *model;
    float *value;        /* (count, width) */
    unsigned char *done; /* (blocks), each under the lock of its slot */
    slot *slots;         /* (SLOTS) */
} features;

static void features_destroy(hdo_dataset *ds) {
    features *f = (features *)ds;
    for (int k = 0; k < SLOTS && f->slots != NULL; k++) {
        pthread_mutex_destroy(&f->slots[k].lock);
        hdo__arena_clear(&f->slots[k].arena);
    }
    hdo__dataset_destroy(f->raw);
    hdo__free(f->value);
    hdo__free(f->done);
    hdo__free(f->slots);
    hdo__free(f);
}

/* Bytes of a slot: samples as they come, and a pass over them. */
static size_t slot_bytes(const hdo_net *front, const hdo_dataset *raw) {
    return hdo__arena_round(BLOCK * (size_t)raw->n_in * sizeof(float)) + hdo__arena_round(BLOCK * sizeof(int32_t)) +
           hdo__net_work_for(front, HDO_PASS_LOSS, BLOCK, 1);
}

static void compute(const features *f, int64_t block, hdo_arena *a) {
    int64_t first = block * BLOCK, idx[BLOCK];
    int n = (int)(f->raw->count - first < BLOCK ? f->raw->count - first : BLOCK);
    bool tokens = f->raw->vocab > 0;
    size_t mark = hdo__arena_mark(a);
    int32_t *label = hdo__arena_take(a, (size_t)n * sizeof *label);
    void *in = hdo__arena_take(a, (size_t)n * (size_t)f->raw->n_in * sizeof(float));
    for (int k = 0; k < n; k++) idx[k] = first + k;
    f->raw->ops->gather(f->raw, idx, n, NULL, tokens ? NULL : in, tokens ? in : NULL, label);
    hdo_net_samples s = {.size = n, .in = tokens ? NULL : in, .tok = tokens ? in : NULL, .label = label};
    hdo_team alone = {.threads = 1, .arena = a};
    hdo_work w = {.arena = a, .team = &alone};
    hdo__net_logits(f->front, &s, f->model, &w, f->value + (size_t)first * (size_t)f->base.n_in);
    hdo__arena_rewind(a, mark);
}

static void features_gather(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in,
                            int32_t *tok, int32_t *label) {
    const features *f = (const features *)ds;
    size_t width = (size_t)ds->n_in;
    (void)augment; /* features are of samples as they are */
    (void)tok;
    for (int k = 0; k < n; k++) {
        int64_t block = idx[k] / BLOCK;
        slot *s = &f->slots[block % SLOTS];
        pthread_mutex_lock(&s->lock);
        if (!f->done[block]) {
            compute(f, block, &s->arena);
            f->done[block] = 1;
        }
        pthread_mutex_unlock(&s->lock);
        memcpy(in + (size_t)k * width, f->value + (size_t)idx[k] * width, width * sizeof(float));
        label[k] = f->raw->ops->label(f->raw, idx[k]);
    }
}

static int32_t features_label(const hdo_dataset *ds, int64_t i) {
    const features *f = (const features *)ds;
    return f->raw->ops->label(f->raw, i);
}

static const hdo_dataset_ops features_ops = {
    .name = "features", .destroy = features_destroy, .gather = features_gather, .label = features_label};

static bool draws(const hdo_net *net) {
    for (int i = 0; i < net->n_layers; i++)
        if (net->layer[i].p > 0) return true;
    return false;
}

static hdo_status slots_init(features *f) {
    f->slots = hdo__alloc(SLOTS * sizeof *f->slots);
    if (f->slots == NULL) return HDO_E_MEMORY;
    hdo_status st = HDO_OK;
    for (int k = 0; k < SLOTS; k++) {
        pthread_mutex_init(&f->slots[k].lock, NULL);
        hdo_status one = hdo__arena_init(&f->slots[k].arena, slot_bytes(f->front, f->raw));
        if (one != HDO_OK) st = one;
    }
    return st;
}

hdo_status hdo__features_wrap(const hdo_net *front, const float *model, hdo_dataset **ds) {
    hdo_dataset *raw = *ds;
    size_t count = (size_t)raw->count, width = (size_t)front->classes;
    if (raw->ops->gather == NULL || draws(front) || count * width * sizeof(float) > BYTES_MAX) return HDO_E_UNSUPPORTED;
    features *f = hdo__alloc(sizeof *f);
    if (f == NULL) return HDO_E_MEMORY;
    *f = (features){.base = *raw, .raw = raw, .front = front, .model = model};
    f->base.ops = &features_ops;
    f->base.n_in = (int)width;
    f->base.shape[0] = f->base.shape[1] = 1;
    f->base.shape[2] = (int)width;
    f->base.vocab = 0;
    f->base.front = true;
    f->value = hdo__alloc(count * width * sizeof(float));
    f->done = hdo__alloc((count + BLOCK - 1) / BLOCK);
    hdo_status st = f->value != NULL && f->done != NULL ? slots_init(f) : HDO_E_MEMORY;
    if (st == HDO_OK) {
        *ds = &f->base;
    } else {
        f->raw = NULL; /* still the caller's */
        features_destroy(&f->base);
    }
    return st;
}
