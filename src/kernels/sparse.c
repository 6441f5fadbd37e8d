/* SPDX-License-Identifier: Apache-2.0 — lists of the inputs that are not background. */
#include "kernels/sparse.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

size_t hdo__sparse_bytes(int B, int p) {
    size_t n = (size_t)B * (size_t)p, blocks = hdo__sparse_blocks(p);
    return hdo__arena_round(n * sizeof(hdo_sparse_entry)) +
           hdo__arena_round(blocks * (size_t)B * sizeof(hdo_sparse_row)) + hdo__arena_round(blocks * sizeof(uint32_t)) +
           hdo__arena_round((size_t)B * sizeof(uint32_t)) + hdo__arena_round((size_t)B * sizeof(uint64_t));
}

/* Bit j: x[j] != b, for len <= BLOCK numbers. */
static uint64_t differ(const float *x, size_t len, float b) {
    uint64_t m = 0;
    size_t j = 0;
#ifdef __SSE2__
    for (__m128 v = _mm_set1_ps(b); j + 4 <= len; j += 4)
        m |= (uint64_t)(unsigned)_mm_movemask_ps(_mm_cmpneq_ps(_mm_loadu_ps(x + j), v)) << j;
#endif
    for (; j < len; j++) m |= (uint64_t)(x[j] != b) << j;
    return m;
}

/* Which inputs of a block differ, bits (B); order (B): samples with any, by their number, longest first. */
static size_t sort_block(int B, size_t p, const float *in, size_t len, float b, uint64_t *bits, uint32_t *order) {
    size_t first[HDO_SPARSE_BLOCK + 2] = {0};
    for (size_t i = 0; i < (size_t)B; i++) {
        bits[i] = differ(in + i * p, len, b);
        first[HDO_SPARSE_BLOCK - __builtin_popcountll(bits[i]) + 1]++;
    }
    for (size_t n = 1; n < HDO_SPARSE_BLOCK + 2; n++) first[n] += first[n - 1];
    size_t some = first[HDO_SPARSE_BLOCK];
    for (size_t i = 0; i < (size_t)B; i++)
        order[first[HDO_SPARSE_BLOCK - __builtin_popcountll(bits[i])]++] = (uint32_t)i;
    return some;
}

hdo_sparse hdo__sparse_make(int B, int p_, const float *in, float b, hdo_arena *a) {
    size_t p = (size_t)p_, blocks = hdo__sparse_blocks(p_), n = 0, r = 0, nb = (size_t)B;
    hdo_sparse_entry *entry = hdo__arena_take(a, nb * p * sizeof *entry);
    hdo_sparse_row *row = hdo__arena_take(a, blocks * nb * sizeof *row);
    uint32_t *rows = hdo__arena_take(a, blocks * sizeof *rows);
    size_t mark = hdo__arena_mark(a);
    uint64_t *bits = hdo__arena_take(a, nb * sizeof *bits);
    uint32_t *order = hdo__arena_take(a, nb * sizeof *order);
    for (size_t q = 0; q < blocks; q++) {
        const float *block = in + q * HDO_SPARSE_BLOCK;
        size_t left = p - q * HDO_SPARSE_BLOCK, len = left < HDO_SPARSE_BLOCK ? left : HDO_SPARSE_BLOCK;
        rows[q] = (uint32_t)sort_block(B, p, block, len, b, bits, order);
        for (uint32_t k = 0; k < rows[q]; k++) {
            const float *x = block + order[k] * p;
            size_t before = n;
            for (uint64_t m = bits[order[k]]; m != 0; m &= m - 1) {
                uint32_t j = (uint32_t)__builtin_ctzll(m);
                entry[n++] = (hdo_sparse_entry){x[j] - b, j * HDO_SPARSE_PANEL};
            }
            row[r++] = (hdo_sparse_row){order[k], (uint32_t)(n - before)};
        }
    }
    hdo__arena_rewind(a, mark);
    return (hdo_sparse){.B = B, .p = p_, .b = b, .entry = entry, .row = row, .rows = rows};
}

hdo_status hdo__sparse_copy(const hdo_sparse *s, hdo_sparse *out) {
    size_t blocks = hdo__sparse_blocks(s->p), n_row = 0, n_entry = 0;
    for (size_t q = 0; q < blocks; q++) n_row += s->rows[q];
    for (size_t r = 0; r < n_row; r++) n_entry += s->row[r].count;
    hdo_sparse_entry *entry = hdo__alloc(n_entry * sizeof *entry + n_row * sizeof *s->row + blocks * sizeof *s->rows);
    if (entry == NULL) return HDO_E_MEMORY;
    hdo_sparse_row *row = (hdo_sparse_row *)(void *)(entry + n_entry);
    uint32_t *rows = (uint32_t *)(void *)(row + n_row);
    memcpy(entry, s->entry, n_entry * sizeof *entry);
    memcpy(row, s->row, n_row * sizeof *row);
    memcpy(rows, s->rows, blocks * sizeof *rows);
    *out = (hdo_sparse){.B = s->B, .p = s->p, .b = s->b, .entry = entry, .row = row, .rows = rows};
    return HDO_OK;
}

void hdo__sparse_free(hdo_sparse *s) {
    hdo__free((void *)(uintptr_t)s->entry);
    *s = (hdo_sparse){0};
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
