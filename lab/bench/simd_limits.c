/* SPDX-License-Identifier: Apache-2.0
 *
 * What a core can do, for comparison: multiply-adds that never leave the registers, and the triad a = b + 3 c of three
 * arrays that are larger than any cache (McCalpin's STREAM). Twelve independent sums hide the latency of four to five
 * cycles at two operations a cycle and fit the sixteen registers. Compiled once per instruction set, see base/simd.h;
 * the portable triad stores through the cache, which costs a third more traffic than is counted.
 */
#include "base/simd.h"
#include "lab/bench/limits.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
static void fma_loop(int64_t rounds, float *sink) { /* twice as wide: half as many rounds */
    __m512 s[HDO_FMA_VECTORS], a = _mm512_set1_ps(sink[0]), c = _mm512_set1_ps(sink[1]);
    for (int k = 0; k < HDO_FMA_VECTORS; k++) s[k] = _mm512_set1_ps((float)k);
    for (int64_t r = 0; r < rounds; r += 2) {
#pragma GCC unroll 12
        for (int k = 0; k < HDO_FMA_VECTORS; k++) s[k] = _mm512_fmadd_ps(s[k], a, c);
    }
    for (int k = 1; k < HDO_FMA_VECTORS; k++) s[0] = _mm512_add_ps(s[0], s[k]);
    _mm256_storeu_ps(sink + 2, _mm512_castps512_ps256(s[0]));
}
#elif defined(__AVX2__)
static void fma_loop(int64_t rounds, float *sink) {
    __m256 s[HDO_FMA_VECTORS], a = _mm256_set1_ps(sink[0]), c = _mm256_set1_ps(sink[1]);
    for (int k = 0; k < HDO_FMA_VECTORS; k++) s[k] = _mm256_set1_ps((float)k);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int k = 0; k < HDO_FMA_VECTORS; k++) s[k] = _mm256_fmadd_ps(s[k], a, c);
    }
    for (int k = 1; k < HDO_FMA_VECTORS; k++) s[0] = _mm256_add_ps(s[0], s[k]);
    _mm256_storeu_ps(sink + 2, s[0]);
}

#endif

#ifdef __AVX2__
static void triad(size_t n, const float *b, const float *c, float *a) {
    const __m256 three = _mm256_set1_ps(3.0f);
    for (size_t i = 0; i + 8 <= n; i += 8) {
        _mm256_stream_ps(a + i, _mm256_fmadd_ps(_mm256_load_ps(c + i), three, _mm256_load_ps(b + i)));
    }
    _mm_sfence();
}
#else
static void fma_loop(int64_t rounds, float *sink) {
    float s[HDO_FMA_VECTORS * HDO_FMA_LANES], a = sink[0], c = sink[1];
    for (int k = 0; k < HDO_FMA_VECTORS * HDO_FMA_LANES; k++) s[k] = (float)k;
    for (int64_t r = 0; r < rounds; r++) {
        for (int k = 0; k < HDO_FMA_VECTORS * HDO_FMA_LANES; k++) s[k] = s[k] * a + c;
    }
    for (int k = 0; k < HDO_FMA_VECTORS * HDO_FMA_LANES; k++) sink[2 + k % HDO_FMA_LANES] += s[k];
}

static void triad(size_t n, const float *b, const float *c, float *a) {
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 3.0f * c[i];
}
#endif

const hdo_limits HDO_ISA_FN(hdo__limits) = {fma_loop, triad};
