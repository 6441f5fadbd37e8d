/* SPDX-License-Identifier: Apache-2.0 — lists of the inputs that are not background. */
#include "kernels/sparse.h"

#include <stdlib.h>
#include <string.h>

size_t hdo__sparse_bytes(int B, int p) {
    size_t n = (size_t)B * (size_t)p, blocks = hdo__sparse_blocks(p);
    return hdo__arena_round(n * sizeof(hdo_sparse_entry)) +
           hdo__arena_round(blocks * (size_t)B * sizeof(hdo_sparse_row)) + hdo__arena_round(blocks * sizeof(uint32_t)) +
           2 * hdo__arena_round((size_t)B * sizeof(uint32_t));
}

/* count (B) of block q; order (B): samples with entries, by their number of entries, longest first. */
static size_t sort_block(int B, int p, const float *in, float b, size_t q, uint32_t *count, uint32_t *order) {
    size_t first[HDO_SPARSE_BLOCK + 2] = {0}, from = q * HDO_SPARSE_BLOCK;
    size_t len = (size_t)p - from < HDO_SPARSE_BLOCK ? (size_t)p - from : HDO_SPARSE_BLOCK;
    for (size_t i = 0; i < (size_t)B; i++) {
        const float *x = in + i * (size_t)p + from;
        uint32_t n = 0;
        for (size_t j = 0; j < len; j++) n += x[j] != b;
        count[i] = n;
        first[HDO_SPARSE_BLOCK - n + 1]++;
    }
    for (size_t n = 1; n < HDO_SPARSE_BLOCK + 2; n++) first[n] += first[n - 1];
    size_t some = first[HDO_SPARSE_BLOCK];
    for (size_t i = 0; i < (size_t)B; i++) order[first[HDO_SPARSE_BLOCK - count[i]]++] = (uint32_t)i;
    return some;
}

hdo_sparse hdo__sparse_make(int B, int p, const float *in, float b, hdo_arena *a) {
    size_t blocks = hdo__sparse_blocks(p), n = 0, r = 0, nb = (size_t)B;
    hdo_sparse_entry *entry = hdo__arena_take(a, nb * (size_t)p * sizeof *entry);
    hdo_sparse_row *row = hdo__arena_take(a, blocks * nb * sizeof *row);
    uint32_t *rows = hdo__arena_take(a, blocks * sizeof *rows);
    size_t mark = hdo__arena_mark(a);
    uint32_t *count = hdo__arena_take(a, nb * sizeof *count), *order = hdo__arena_take(a, nb * sizeof *order);
    for (size_t q = 0; q < blocks; q++) {
        size_t from = q * HDO_SPARSE_BLOCK;
        size_t to = from + HDO_SPARSE_BLOCK < (size_t)p ? from + HDO_SPARSE_BLOCK : (size_t)p;
        rows[q] = (uint32_t)sort_block(B, p, in, b, q, count, order);
        for (uint32_t k = 0; k < rows[q]; k++) {
            const float *x = in + (size_t)order[k] * (size_t)p;
            row[r++] = (hdo_sparse_row){order[k], count[order[k]]};
            uint32_t left = count[order[k]];
            for (size_t j = from; left > 0 && j < to;
                 j++) { /* written always, kept if it differs; never past the last */
                entry[n] = (hdo_sparse_entry){x[j] - b, (uint32_t)((j - from) * HDO_SPARSE_PANEL)};
                n += x[j] != b;
                left -= x[j] != b;
            }
        }
    }
    hdo__arena_rewind(a, mark);
    return (hdo_sparse){.B = B, .p = p, .b = b, .entry = entry, .row = row, .rows = rows};
}

static int by_value(const void *x, const void *y) {
    const float *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

bool hdo__sparse_background(int B, int p, const float *in, float *b) {
    size_t n = (size_t)p, total = (size_t)B * n, most = 0, equal = 0;
    float *v = malloc((n > 0 ? n : 1) * sizeof *v);
    if (v == NULL || total == 0) {
        free(v);
        return false;
    }
    memcpy(v, in, n * sizeof *v);
    qsort(v, n, sizeof *v, by_value);
    for (size_t i = 0, run = 0; i < n; i++) {
        run = i > 0 && v[i] == v[i - 1] ? run + 1 : 1;
        if (run > most) most = run, *b = v[i];
    }
    free(v);
    if (most == 0) return false;
    for (size_t i = 0; i < total; i++) equal += in[i] == *b;
    return 2 * equal >= total;
}
