/* SPDX-License-Identifier: Apache-2.0
 *
 * Coordinates no loss depends on, and how they come to lie together. A convolution whose picture is smaller than its
 * kernel reads the picture with some of the kernel's taps only (3 x 3 taps with padding 1 on one pixel: the centre);
 * the others meet nothing but padding. They are parameters all the same: they count in d, averages mix them, files hold
 * them. But their gradient is 0, random directions have no part there, and nothing has to be read, drawn or added up
 * for them; in ResNet-18 at 32 x 32 pixels they are 62% of all. So such a tensor (F, kh, kw), F filters, is stored in
 * two parts: (F, h, w), the box of live taps, then (F, kh kw - h w), the idle ones, each in the order of the plain
 * tensor. Files hold plain tensors.
 */
#ifndef HDO_BASE_SPLIT_H
#define HDO_BASE_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "hdo/status.h"

typedef struct hdo_range {
    size_t lo, hi; /* [lo, hi) */
} hdo_range;

/* Sorted ranges without overlap. n == 0: none. */
typedef struct hdo_ranges {
    const hdo_range *at;
    int n;
} hdo_ranges;

/* The first stretch of [*off, end) outside of the ranges, at most `most` long: its start goes to *off. 0: none left. */
size_t hdo__outside_some(hdo_ranges r, size_t *off, size_t end, size_t most);
static inline size_t hdo__outside(hdo_ranges r, size_t *off, size_t end, size_t most) {
    if (r.n > 0) return hdo__outside_some(r, off, end, most);
    if (*off >= end) return 0;
    return end - *off < most ? end - *off : most;
}
bool hdo__all_inside(hdo_ranges r, size_t off, size_t len);            /* [off, off + len) in one range */
HDO_LAB size_t hdo__count_outside(hdo_ranges r, size_t lo, size_t hi); /* numbers of [lo, hi) in no range */
/* x = 0 where [lo, hi) meets the ranges. */
HDO_LAB void hdo__ranges_clear(hdo_ranges r, size_t lo, size_t hi, float *x);

typedef struct hdo_split { /* rows y .. y + h - 1 and columns x .. x + w - 1 of kh x kw taps are live */
    int kh, kw, y, x, h, w;
} hdo_split; /* kh == 0: the tensor is stored plain */

void hdo__split_store(const hdo_split *s, size_t len, const float *plain, float *stored); /* len: numbers */
void hdo__split_plain(const hdo_split *s, size_t len, const float *stored, float *plain);

#endif
