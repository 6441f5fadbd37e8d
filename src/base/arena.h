/* SPDX-License-Identifier: Apache-2.0
 *
 * Scratch memory: one block, sized once, carved from the front. A function marks on entry and rewinds on exit; nothing
 * inside the step loop calls malloc. Sizes are asked beforehand through `work_bytes`; running out is a programming
 * mistake and aborts with an assertion (in release builds too: silent overrun would be worse).
 */
#ifndef HDO_BASE_ARENA_H
#define HDO_BASE_ARENA_H

#include <stddef.h>

#include "base/status.h"

#define HDO_ALIGN 64

typedef struct hdo_arena {
    unsigned char *base;
    size_t size, used, high; /* high: the most ever used */
} hdo_arena;

/* Rounds up to the alignment every allocation gets: sum these to size an arena. */
static inline size_t hdo__arena_round(size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
    bytes += HDO_ALIGN; /* red zone after every block */
#endif
    return (bytes + (HDO_ALIGN - 1)) & ~(size_t)(HDO_ALIGN - 1);
}

HDO_LAB hdo_status hdo__arena_init(hdo_arena *a, size_t size);
HDO_LAB void hdo__arena_clear(hdo_arena *a);
HDO_LAB void *hdo__arena_take(hdo_arena *a, size_t bytes); /* 64-byte aligned, not zeroed */
static inline size_t hdo__arena_mark(const hdo_arena *a) {
    return a->used;
}
HDO_LAB void hdo__arena_rewind(hdo_arena *a, size_t mark);

static inline float *hdo__arena_floats(hdo_arena *a, size_t n) {
    return (float *)hdo__arena_take(a, n * sizeof(float));
}
static inline double *hdo__arena_doubles(hdo_arena *a, size_t n) {
    return (double *)hdo__arena_take(a, n * sizeof(double));
}

/* 64-byte aligned heap memory for rows and arenas; counted, so that a test can show the loop allocates nothing. */
HDO_LAB void *hdo__alloc(size_t bytes); /* zeroed; NULL when out of memory */
HDO_LAB void hdo__free(void *p);
HDO_LAB size_t hdo__alloc_count(void);

double hdo__free_memory(void); /* bytes this machine could still give; 0: unknown */

#endif
