/* SPDX-License-Identifier: Apache-2.0 — bump allocator with mark and rewind; red zones under AddressSanitizer. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/arena.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { HUGE_PAGE = 2 << 20 };

static atomic_size_t g_alloc_count; /* statistics only: no behaviour depends on it */

void *hdo__alloc(size_t bytes) {
    size_t n = (bytes + (HDO_ALIGN - 1)) & ~(size_t)(HDO_ALIGN - 1);
    if (n < bytes) return NULL;
    if (n == 0) n = HDO_ALIGN;
    atomic_fetch_add_explicit(&g_alloc_count, 1, memory_order_relaxed);
    const bool large = n >= 4 * HUGE_PAGE;
    if (large) n = (n + (HUGE_PAGE - 1)) & ~(size_t)(HUGE_PAGE - 1);
    void *p = aligned_alloc(large ? HUGE_PAGE : HDO_ALIGN, n);
#ifdef MADV_HUGEPAGE
    if (p != NULL && large) (void)madvise(p, n, MADV_HUGEPAGE); /* models of millions of numbers outgrow the TLB */
#endif
    if (p != NULL) memset(p, 0, n);
    return p;
}

void hdo__free(void *p) {
    free(p);
}

size_t hdo__alloc_count(void) {
    return atomic_load_explicit(&g_alloc_count, memory_order_relaxed);
}

hdo_status hdo__arena_init(hdo_arena *a, size_t size) {
    *a = (hdo_arena){0};
    a->base = hdo__alloc(size);
    if (a->base == NULL) return HDO_E_MEMORY;
    a->size = size;
    ASAN_POISON_MEMORY_REGION(a->base, size);
    return HDO_OK;
}

void hdo__arena_clear(hdo_arena *a) {
    if (a->base != NULL) ASAN_UNPOISON_MEMORY_REGION(a->base, a->size);
    hdo__free(a->base);
    *a = (hdo_arena){0};
}

void *hdo__arena_take(hdo_arena *a, size_t bytes) {
    size_t n = hdo__arena_round(bytes);
    if (n > a->size - a->used) {
        fprintf(stderr,
                "hdo: internal error: arena of %zu bytes cannot give %zu more (%zu used); work_bytes is wrong\n",
                a->size, n, a->used);
        abort();
    }
    unsigned char *p = a->base + a->used;
    a->used += n;
    if (a->used > a->high) a->high = a->used;
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
    return p;
}

void hdo__arena_rewind(hdo_arena *a, size_t mark) {
    ASAN_POISON_MEMORY_REGION(a->base + mark, a->used - mark);
    a->used = mark;
}

double hdo__free_memory(void) {
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    double kb = 0.0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "MemAvailable: %lf kB", &kb) == 1) break;
    }
    if (f != NULL) fclose(f);
    return 1024.0 * kb;
}
