/* SPDX-License-Identifier: Apache-2.0
 *
 * a b + c, rounded once: the one operation every sum of the kernels is made of. Where the processor has no such
 * instruction it is made of double arithmetic, slowly but to the last bit:
 *
 *   The product of two floats is exact in double. Their sum s with c is rounded to 53 bits, and rounding that to the 24
 *   bits of a float goes wrong only if the first rounding moved s onto, or off, the middle between two floats. If the
 *   error of the first rounding is not zero, the last bit of s is set after cutting towards zero (rounding to odd):
 *   such an s is never a middle and lies on the right side of it, for subnormal results too.
 */
#ifndef HDO_BASE_FMA_H
#define HDO_BASE_FMA_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static inline float hdo__fmaf(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    double p = (double)a * (double)b, d = (double)c, s = p + d;
    double back = s - p, err = (p - (s - back)) + (d - back); /* s + err is exact */
    int64_t bits;
    memcpy(&bits, &s, sizeof bits);
    if (err > 0 || err < 0) { /* not for infinities: their error is not a number */
        bits -= (err < 0) != (s < 0);
        bits |= 1;
        memcpy(&s, &bits, sizeof s);
    }
    return (float)s;
#endif
}

/* Four at once, for the portable kernels. */
typedef float hdo_f32x4 __attribute__((vector_size(16)));

#if defined(__SSE2__) && !defined(__FMA__)
static inline __m128d hdo__sum_to_odd(__m128d p, __m128d c) {
    __m128d s = _mm_add_pd(p, c), back = _mm_sub_pd(s, p);
    __m128d err = _mm_add_pd(_mm_sub_pd(p, _mm_sub_pd(s, back)), _mm_sub_pd(c, back));
    __m128d lost = _mm_or_pd(_mm_cmplt_pd(err, _mm_setzero_pd()), _mm_cmpgt_pd(err, _mm_setzero_pd()));
    __m128i one = _mm_srli_epi64(_mm_castpd_si128(lost), 63);
    __m128i down = _mm_and_si128(one, _mm_srli_epi64(_mm_castpd_si128(_mm_xor_pd(err, s)), 63));
    return _mm_castsi128_pd(_mm_or_si128(_mm_sub_epi64(_mm_castpd_si128(s), down), one));
}
#endif

/* Where it is made by hand it is a call: in line at every place it would make the kernels large and slow to compile. */
#if defined(__FMA__) || defined(__aarch64__)
#define HDO_FMA_INLINE static inline
#else
#define HDO_FMA_INLINE static __attribute__((noinline, unused))
#endif
HDO_FMA_INLINE hdo_f32x4 hdo__fma4(hdo_f32x4 a, hdo_f32x4 b, hdo_f32x4 c) {
#if defined(__FMA__)
    return (hdo_f32x4)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#elif defined(__aarch64__)
    return (hdo_f32x4)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif defined(__SSE2__)
    __m128 x = (__m128)a, y = (__m128)b, z = (__m128)c;
    __m128d p0 = _mm_mul_pd(_mm_cvtps_pd(x), _mm_cvtps_pd(y)), c0 = _mm_cvtps_pd(z);
    __m128d p1 = _mm_mul_pd(_mm_cvtps_pd(_mm_movehl_ps(x, x)), _mm_cvtps_pd(_mm_movehl_ps(y, y)));
    __m128d c1 = _mm_cvtps_pd(_mm_movehl_ps(z, z)), s0 = _mm_add_pd(p0, c0), s1 = _mm_add_pd(p1, c1);
    __m128 r = _mm_movelh_ps(_mm_cvtpd_ps(s0), _mm_cvtpd_ps(s1));
    /* Only a sum in the middle between two floats, or a subnormal result, may have gone wrong. */
    __m128i low = _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(s0), _mm_castpd_ps(s1), 0x88));
    __m128i middle = _mm_cmpeq_epi32(_mm_and_si128(low, _mm_set1_epi32(0x1fffffff)), _mm_set1_epi32(0x10000000));
    __m128 small = _mm_cmplt_ps(_mm_and_ps(r, _mm_castsi128_ps(_mm_set1_epi32(0x7fffffff))), _mm_set1_ps(0x1p-125f));
    if (__builtin_expect(_mm_movemask_ps(_mm_or_ps(small, _mm_castsi128_ps(middle))), 0))
        r = _mm_movelh_ps(_mm_cvtpd_ps(hdo__sum_to_odd(p0, c0)), _mm_cvtpd_ps(hdo__sum_to_odd(p1, c1)));
    return (hdo_f32x4)r;
#else
    hdo_f32x4 r = {0};
    for (int l = 0; l < 4; l++) r[l] = hdo__fmaf(a[l], b[l], c[l]);
    return r;
#endif
}

#endif
