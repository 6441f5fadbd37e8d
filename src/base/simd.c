/* SPDX-License-Identifier: Apache-2.0 — chooses the kernel table once. */
#include "base/simd.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const hdo_simd *choose(void) {
#ifdef HDO_HAVE_AVX2_BUILD
    const char *want = getenv("HDO_SIMD");
    if (want != NULL && strcmp(want, "portable") == 0) return &hdo__simd_portable;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &hdo__simd_avx2;
#endif
    return &hdo__simd_portable;
}

const hdo_simd *hdo__simd(void) {
    static _Atomic(const hdo_simd *) table; /* every thread would choose the same: a benign race */
    const hdo_simd *t = atomic_load_explicit(&table, memory_order_relaxed);
    if (t == NULL) {
        t = choose();
        atomic_store_explicit(&table, t, memory_order_relaxed);
    }
    return t;
}
