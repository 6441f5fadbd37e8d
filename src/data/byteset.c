/* SPDX-License-Identifier: Apache-2.0
 *
 * Images kept as bytes. A pixel becomes a float when a batch is gathered, so the bytes may stay in a mapped file shared
 * by all nodes (and by all processes of the machine).
 *
 * Byte v of channel c becomes (v / 255 - mean[c]) / sd[c] in float, in this order: the bits of torchvision's ToTensor
 * and Normalize. Rows are computed (base/simd_vec.c); moved and mirrored images go through a table of the same numbers.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/simd.h"
#include "data/data_impl.h"

enum { PAD = 4 };           /* crop of the padded image: torchvision's RandomCrop(size, padding=4) */
enum { NOBODY = 0xffffff }; /* the node of crops that belong to samples; a population has fewer nodes */
enum { AHEAD = 4 };         /* rows asked for in advance: 256 MNIST rows took 200 us with 0, 90 to 125 us with 4 */

typedef struct byteset {
    hdo_dataset ds;
    int64_t per_chunk;
    const uint8_t *chunk[HDO_CHUNKS_MAX];
    size_t stride;
    const int32_t *label;
    bool augment, always;
    uint64_t seed; /* of what is always done */
    hdo_blob blob[HDO_CHUNKS_MAX];
    int n_blobs;
    const float *mean, *sd; /* (channels), behind the tables */
    float table[][256];     /* (channels) */
} byteset;

static void destroy(hdo_dataset *ds) {
    byteset *b = (byteset *)ds;
    for (int i = 0; i < b->n_blobs; i++) hdo__blob_close(&b->blob[i]);
    free((void *)(uintptr_t)b->label);
    free(b);
}

static const uint8_t *row_of(const byteset *b, int64_t i) {
    if (i < b->per_chunk) return b->chunk[0] + (size_t)i * b->stride;
    return b->chunk[i / b->per_chunk] + (size_t)(i % b->per_chunk) * b->stride;
}

/* One plane shifted by (dy, dx), black outside, mirrored if flip. Output pixel (y, x) shows source
 * (y + dy, x' + dx) with x' = x, or w - 1 - x when flipped. */
static void move(const byteset *b, int c, const uint8_t *src, int dy, int dx, bool flip, float *dst) {
    const int h = b->ds.shape[1], w = b->ds.shape[2];
    const float *t = b->table[c];
    const int from = dx < 0 ? -dx : 0, to = dx > 0 ? (dx < w ? w - dx : 0) : w; /* x' in [from, to) lies inside */
    for (int y = 0; y < h; y++, dst += w) {
        const int sy = y + dy;
        if (sy < 0 || sy >= h || from >= to) {
            for (int x = 0; x < w; x++) dst[x] = t[0];
            continue;
        }
        const uint8_t *line = src + (size_t)sy * (size_t)w;
        if (flip) {
            for (int x = 0; x < from; x++) dst[w - 1 - x] = t[0];
            for (int x = from; x < to; x++) dst[w - 1 - x] = t[line[x + dx]];
            for (int x = to; x < w; x++) dst[w - 1 - x] = t[0];
        } else {
            for (int x = 0; x < from; x++) dst[x] = t[0];
            hdo__simd()->pixels((size_t)(to - from), line + from + dx, b->mean[c], b->sd[c], dst + from);
            for (int x = to; x < w; x++) dst[x] = t[0];
        }
    }
}

/* Rows stand anywhere in the set: asking for them some samples ahead saves the waiting. (bench_gather) */
static void ask_for(const uint8_t *p, size_t n) {
#ifdef __GNUC__
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch(p + i);
#else
    (void)p, (void)n;
#endif
}

static void gather(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in, int32_t *tok,
                   int32_t *label) {
    const byteset *b = (const byteset *)ds;
    (void)tok;
    const int channels = ds->shape[0];
    const size_t plane = (size_t)ds->shape[1] * (size_t)ds->shape[2];
    for (int k = 0; k < n; k++) {
        assert(idx[k] >= 0 && idx[k] < ds->count);
        const uint8_t *src = row_of(b, idx[k]);
        if (k + AHEAD < n) {
            ask_for(row_of(b, idx[k + AHEAD]), (size_t)ds->n_in);
            ask_for((const uint8_t *)&b->label[idx[k + AHEAD]], 1);
        }
        float *dst = in + (size_t)k * (size_t)ds->n_in;
        label[k] = b->label[idx[k]];
        if (!b->always && (!b->augment || augment == NULL)) {
            for (int c = 0; c < channels; c++)
                hdo__simd()->pixels(plane, src + (size_t)c * plane, b->mean[c], b->sd[c], dst + (size_t)c * plane);
            continue;
        }
        hdo_stream s = b->always ? hdo__stream(b->seed, HDO_RNG_AUGMENT, NOBODY, 0, (uint32_t)idx[k]) : *augment;
        if (!b->always) s.sub += (uint32_t)k;
        uint32_t r[3];
        hdo__rng_bits(s, 0, 3, r);
        int dy = (int)(((uint64_t)r[0] * (2 * PAD + 1)) >> 32) - PAD;
        int dx = (int)(((uint64_t)r[1] * (2 * PAD + 1)) >> 32) - PAD;
        bool flip = (r[2] >> 31) != 0;
        for (int c = 0; c < channels; c++) {
            move(b, c, src + (size_t)c * plane, dy, dx, flip, dst + (size_t)c * plane);
        }
    }
}

static int32_t label_of(const hdo_dataset *ds, int64_t i) {
    return ((const byteset *)ds)->label[i];
}

static const hdo_dataset_ops ops = {.name = "bytes", .destroy = destroy, .gather = gather, .label = label_of};

hdo_status hdo__byteset_create(hdo_dataset **out, const hdo_byteset_spec *s, hdo_error *e) {
    const int channels = s->shape[0];
    byteset *b = calloc(1, sizeof *b + (size_t)channels * (sizeof b->table[0] + 2 * sizeof(float)));
    if (b == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a data set");
    b->ds.ops = &ops;
    b->ds.count = s->count;
    b->ds.n_in = s->shape[0] * s->shape[1] * s->shape[2];
    memcpy(b->ds.shape, s->shape, sizeof b->ds.shape);
    b->ds.classes = s->classes;
    b->per_chunk = s->per_chunk;
    memcpy(b->chunk, s->chunk, sizeof b->chunk);
    b->stride = s->stride;
    b->label = s->label;
    b->augment = s->augment;
    b->always = s->always;
    b->seed = s->seed;
    memcpy(b->blob, s->blob, sizeof b->blob);
    b->n_blobs = s->n_blobs;
    float *mean = b->table[channels], *sd = mean + channels;
    b->mean = mean;
    b->sd = sd;
    for (int c = 0; c < channels; c++) {
        mean[c] = s->mean == NULL ? 0.0f : s->mean[c]; /* (x - 0) / 1 is x, to the bit */
        sd[c] = s->mean == NULL ? 1.0f : s->sd[c];
        for (int v = 0; v < 256; v++) b->table[c][v] = ((float)v / 255.0f - mean[c]) / sd[c];
    }
    *out = &b->ds;
    return HDO_OK;
}
