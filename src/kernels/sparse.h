/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs most of which are one number b, the background of an image: 81% of MNIST's pixels. A logit of such a sample is
 *
 *     ( bias + b sum_j w_j ) + chain of multiply-adds, j rising over x_j != b, of (x_j - b) w_j ,
 *
 * the bracket in double, rounded once; x_j - b rounded. This is a definition of its own: it costs what the picture has,
 * and every instruction set, number of threads and block of models gives its bits. Whether a data set is treated so is
 * a property of the data set (hdo__sparse_background), never of the machine or the batch.
 *
 * The list of a batch serves all models. It is cut into blocks of inputs whose weights, for a panel of outputs, fit
 * into the first-level cache; in a block the samples stand in the order of how many entries they have, so that the
 * length of the inner loop hardly ever changes (a wrongly predicted end costs as much as three entries).
 */
#ifndef HDO_KERNELS_SPARSE_H
#define HDO_KERNELS_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum {
    HDO_SPARSE_BLOCK = 64, /* inputs of a block */
    HDO_SPARSE_PANEL = 96  /* outputs at a time: 64 x 96 floats are 24 kB */
};

typedef struct hdo_sparse_entry {
    float v;     /* x_j - b */
    uint32_t at; /* of the weights of j in the packed block: (j % BLOCK) * PANEL */
} hdo_sparse_entry;

typedef struct hdo_sparse_row { /* a sample in a block */
    uint32_t sample, count;     /* count > 0 entries */
} hdo_sparse_row;

typedef struct hdo_sparse {
    int B, p; /* samples, inputs of a sample */
    float b;
    const hdo_sparse_entry *entry; /* block by block, row by row, j rising */
    const hdo_sparse_row *row;     /* block by block */
    const uint32_t *rows;          /* (blocks): how many */
} hdo_sparse;

static inline size_t hdo__sparse_blocks(int p) {
    return ((size_t)p + HDO_SPARSE_BLOCK - 1) / HDO_SPARSE_BLOCK;
}

/* Arena bytes of the lists of B samples, at most. */
size_t hdo__sparse_bytes(int B, int p);
/* The lists of in (B, p). */
hdo_sparse hdo__sparse_make(int B, int p, const float *in, float b, hdo_arena *a);
/* A copy in memory of its own, no longer than it has to be; *out is to be freed by hdo__sparse_free. */
hdo_status hdo__sparse_copy(const hdo_sparse *s, hdo_sparse *out);
void hdo__sparse_free(hdo_sparse *s);
/* Is one number at least half of in (B, p)? Then it is *b: the most frequent one of the first sample. */
bool hdo__sparse_background(int B, int p, const float *in, float *b);

#endif
