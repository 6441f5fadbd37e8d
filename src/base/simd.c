/* SPDX-License-Identifier: Apache-2.0 — chooses the kernel table once. */
#include "base/simd.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef HDO_HAVE_AVX2_BUILD
#include <cpuid.h>
#endif

const hdo_simd *hdo__simd_tables(int i) {
#ifdef HDO_HAVE_AVX2_BUILD
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (i == 1 && avx2) return &hdo__simd_avx2;
#ifdef HDO_HAVE_AVX512_BUILD
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (i == 2 && avx2 && avx512) return &hdo__simd_avx512;
#endif
#endif
    return i == 0 ? &hdo__simd_portable : NULL;
}

static const hdo_simd *choose(void) {
    const char *want = getenv("HDO_SIMD");
    const hdo_simd *best = NULL;
    for (int i = 0; hdo__simd_tables(i) != NULL; i++) {
        best = hdo__simd_tables(i);
        if (want != NULL && strcmp(want, best->name) == 0) break;
    }
    return best;
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

static bool look_for_sha(void) {
#ifdef HDO_HAVE_AVX2_BUILD
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!hdo__simd()->avx2 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return (b & bit_SHA) != 0;
#else
    return false;
#endif
}

bool hdo__simd_sha(void) {
    static _Atomic int sha; /* 0: nobody has looked; 1: no; 2: yes */
    int v = atomic_load_explicit(&sha, memory_order_relaxed);
    if (v == 0) {
        v = look_for_sha() ? 2 : 1;
        atomic_store_explicit(&sha, v, memory_order_relaxed);
    }
    return v == 2;
}
