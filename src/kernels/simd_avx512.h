/* SPDX-License-Identifier: Apache-2.0 — private to simd_mm.h: vectors of sixteen floats, AVX-512. */
#include <immintrin.h>

#define VL 16
typedef __m512 vec;
#define X86(op) _mm512_##op
#include "kernels/simd_x86.h"

/* The first n < VL floats at p, zeros behind them. */
MM_INLINE vec v_load_part(const float *p, size_t n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
MM_INLINE void v_store_part(float *p, vec v, size_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
/* Lanes p[i] where mask[i] is all ones, 0 elsewhere; what is masked is not read. */
MM_INLINE __mmask16 v_mask(const int32_t *mask) {
    return _mm512_movepi32_mask(_mm512_loadu_si512(mask));
}
MM_INLINE vec v_load_masked(const float *p, const int32_t *mask) {
    return _mm512_maskz_loadu_ps(v_mask(mask), p);
}
MM_INLINE vec v_gather_masked(const float *p, const int32_t *i, const int32_t *mask) {
    return _mm512_mask_i32gather_ps(v_zero(), v_mask(mask), _mm512_loadu_si512(i), p, 4);
}
/* Lanes i and i + 8 of the sixteen, then the tree of eight (simd_avx2.h). */
MM_INLINE float v_sum16(vec v) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
MM_INLINE void v_transpose(vec r[16]) {
    vec p[16], q[16];
    MM_UNROLL for (int i = 0; i < 16; i += 2) {
        p[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        p[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    MM_UNROLL for (int i = 0; i < 16; i += 4) { /* columns c, c + 4, c + 8, c + 12 of four rows in q[i + c] */
        q[i] = _mm512_shuffle_ps(p[i], p[i + 2], 0x44);
        q[i + 1] = _mm512_shuffle_ps(p[i], p[i + 2], 0xee);
        q[i + 2] = _mm512_shuffle_ps(p[i + 1], p[i + 3], 0x44);
        q[i + 3] = _mm512_shuffle_ps(p[i + 1], p[i + 3], 0xee);
    }
    MM_UNROLL for (int c = 0; c < 4; c++) {
        vec a = _mm512_shuffle_f32x4(q[c], q[c + 4], 0x88), b = _mm512_shuffle_f32x4(q[c + 8], q[c + 12], 0x88);
        vec d = _mm512_shuffle_f32x4(q[c], q[c + 4], 0xdd), e = _mm512_shuffle_f32x4(q[c + 8], q[c + 12], 0xdd);
        r[c] = _mm512_shuffle_f32x4(a, b, 0x88);
        r[c + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
        r[c + 4] = _mm512_shuffle_f32x4(d, e, 0x88);
        r[c + 12] = _mm512_shuffle_f32x4(d, e, 0xdd);
    }
}
