/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts what the library allocates, and lets an allocation fail. The linker leads its calls of malloc and its kin
 * through here (-Wl,--wrap in tests/meson.build); those of other libraries are not seen.
 */
#ifndef HDO_TESTS_ALLOC_HELP_H
#define HDO_TESTS_ALLOC_HELP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

static atomic_size_t fail_at; /* the allocation with this number gives NULL; 0: none */
static atomic_size_t allocations;
static atomic_llong held; /* blocks taken and not given back */

/* Counts a call; true: it is to fail. */
static inline bool denied(void) {
    return atomic_fetch_add(&allocations, 1) + 1 == atomic_load(&fail_at);
}

static inline void *taken(void *p) {
    if (p != NULL) atomic_fetch_add(&held, 1);
    return p;
}

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n) {
    return denied() ? NULL : taken(__real_malloc(n));
}
void *__real_calloc(size_t k, size_t n);
void *__wrap_calloc(size_t k, size_t n);
void *__wrap_calloc(size_t k, size_t n) {
    return denied() ? NULL : taken(__real_calloc(k, n));
}
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n) {
    if (denied()) return NULL;
    return p == NULL ? taken(__real_realloc(p, n)) : __real_realloc(p, n);
}
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n) {
    return denied() ? NULL : taken(__real_aligned_alloc(align, n));
}
/* Its buffer is given back with free. */
FILE *__real_open_memstream(char **text, size_t *len);
FILE *__wrap_open_memstream(char **text, size_t *len);
FILE *__wrap_open_memstream(char **text, size_t *len) {
    return denied() ? NULL : taken(__real_open_memstream(text, len));
}
void __real_free(void *p);
void __wrap_free(void *p);
void __wrap_free(void *p) {
    if (p != NULL) atomic_fetch_sub(&held, 1);
    __real_free(p);
}

#endif
