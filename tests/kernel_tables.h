/* SPDX-License-Identifier: Apache-2.0 — the kernel tables of this build that this machine can run, and their input. */
#ifndef HDO_TESTS_KERNEL_TABLES_H
#define HDO_TESTS_KERNEL_TABLES_H

#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base/simd.h"
#include "kernels/mm.h"

static const hdo_mm_simd *const tables[] = {
    &hdo__mm_portable,
#ifdef HDO_HAVE_AVX2_BUILD
    &hdo__mm_avx2,
#endif
#ifdef HDO_HAVE_AVX512_BUILD
    &hdo__mm_avx512,
#endif
};

static inline float *numbers(size_t n, uint32_t sub) { /* uniform in (-1, 1) */
    float *x = hdo__alloc(n * sizeof *x);
    assert_non_null(x);
    hdo__rng_uniform(hdo__stream(11, HDO_RNG_TEST, 0, 0, sub), 0, n, x);
    for (size_t i = 0; i < n; i++) x[i] = 2 * x[i] - 1;
    return x;
}

/* B, C, side, O, kernel, stride, pad */
static inline hdo_conv conv_of(const int s[7]) {
    return (hdo_conv){
        .B = s[0], .C = s[1], .H = s[2], .W = s[2], .O = s[3], .kh = s[4], .kw = s[4], .stride = s[5], .pad = s[6]};
}

/* Those the machine can run come first; HDO_SIMD does not matter here. */
static inline size_t table_count(void) {
    size_t n = 0;
    while (n < sizeof tables / sizeof tables[0] && hdo__simd_tables((int)n) != NULL) n++;
    return n;
}

#endif
