/* SPDX-License-Identifier: Apache-2.0 — what a core can do: one table per instruction set (simd_limits.c). */
#ifndef HDO_BENCH_LIMITS_H
#define HDO_BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>

typedef struct hdo_limits { /* one thread */
    /* rounds * HDO_FMA_FLOPS operations in registers, rounds even; sink holds factor, term and HDO_FMA_LANES results */
    void (*fma)(int64_t rounds, float *sink);
    /* a = b + 3 c, aligned to 64 bytes, n a multiple of 8; stores go past the cache if the set can do that */
    void (*triad)(size_t n, const float *b, const float *c, float *a);
} hdo_limits;
enum { HDO_FMA_VECTORS = 12, HDO_FMA_LANES = 8, HDO_FMA_FLOPS = 2 * HDO_FMA_VECTORS * HDO_FMA_LANES };

extern const hdo_limits hdo__limits_portable;
#ifdef HDO_HAVE_AVX2_BUILD
extern const hdo_limits hdo__limits_avx2;
#endif
#ifdef HDO_HAVE_AVX512_BUILD
extern const hdo_limits hdo__limits_avx512;
#endif

#endif
