/* SPDX-License-Identifier: Apache-2.0 — private to simd_mm.h: vectors of eight floats, AVX2. */
#include <immintrin.h>

#define VL 8 /* floats in a vector */
typedef __m256 vec;
#define X86(op) _mm256_##op
#include "kernels/simd_x86.h"

/* The first n < VL floats at p, zeros behind them. */
MM_INLINE vec v_load_part(const float *p, size_t n) {
    static const int ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(const void *)(ones + 8 - n)));
}
MM_INLINE __m128 v_fold(vec v) {
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
MM_INLINE float v_sum(vec v) { /* a fixed tree: lanes i and i + 4, then i and i + 2, then the last two */
    __m128 s = v_fold(v);
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
/* The first n < VL floats to p. A masked store is microcode on AMD: halves, quarters and singles instead. */
MM_INLINE void v_store_part(float *p, vec v, size_t n) {
    __m128 s = _mm256_castps256_ps128(v);
    if (n & 4) {
        _mm_storeu_ps(p, s);
        s = _mm256_extractf128_ps(v, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)(void *)p, s);
        s = _mm_movehl_ps(s, s);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, s);
}
MM_INLINE void v_transpose(vec r[8]) {
    vec p[8], q[8];
    MM_UNROLL for (int i = 0; i < 8; i += 2) {
        p[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        p[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    MM_UNROLL for (int i = 0; i < 8; i += 4) {
        q[i] = _mm256_shuffle_ps(p[i], p[i + 2], 0x44);
        q[i + 1] = _mm256_shuffle_ps(p[i], p[i + 2], 0xee);
        q[i + 2] = _mm256_shuffle_ps(p[i + 1], p[i + 3], 0x44);
        q[i + 3] = _mm256_shuffle_ps(p[i + 1], p[i + 3], 0xee);
    }
    MM_UNROLL for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(q[i], q[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(q[i], q[i + 4], 0x31);
    }
}
/* Lanes p[i] where mask[i] is all ones, 0 elsewhere; what is masked is not read. */
MM_INLINE vec v_load_masked(const float *p, const int32_t *mask) {
    return _mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(const void *)mask));
}
MM_INLINE vec v_gather_masked(const float *p, const int32_t *i, const int32_t *mask) {
    vec v = _mm256_set_ps(p[i[7]], p[i[6]], p[i[5]], p[i[4]], p[i[3]], p[i[2]], p[i[1]], p[i[0]]);
    return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(const void *)mask)));
}
