/* SPDX-License-Identifier: Apache-2.0 — max-pool of one map (nn_simd.h), compiled once per instruction set. */
#include <math.h>

#include "base/simd.h"
#include "nn/nn_simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* ---- 2x2 max-pool ---- */

/* One output; the first of equal numbers wins. */
static inline void pool_one(const float *p, const float *q, int ox, float floor_at, float *y, uint8_t *place) {
    float a0 = p[2 * ox], a1 = p[2 * ox + 1], b0 = q[2 * ox], b1 = q[2 * ox + 1];
    int ra = a1 > a0, rb = b1 > b0;
    float a = ra ? a1 : a0, b = rb ? b1 : b0;
    int low = b > a;
    float v = low ? b : a;
    y[ox] = v < floor_at ? floor_at : v;
    if (place != NULL) place[ox] = (uint8_t)(low ? 2 + rb : ra);
}

#if defined(__AVX2__)
/* Even and odd columns of 16 numbers, lanes in the order 0 1 4 5 2 3 6 7: put right by one permutation at the end. */
#define EVEN(lo, hi) _mm256_shuffle_ps(lo, hi, 0x88)
#define ODD(lo, hi) _mm256_shuffle_ps(lo, hi, 0xdd)
#define IN_ORDER(v) _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8))

static inline __m256i places8(const uint8_t *place) { /* 8 places as integers, lanes in the order above */
    __m256i at = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)place));
    return _mm256_permute4x64_epi64(at, 0xd8);
}

static inline void pool_eight(const float *p, const float *q, int ox, __m256 floor_at, float *y, uint8_t *place) {
    __m256 p0 = _mm256_loadu_ps(p + 2 * ox), p1 = _mm256_loadu_ps(p + 2 * ox + 8);
    __m256 q0 = _mm256_loadu_ps(q + 2 * ox), q1 = _mm256_loadu_ps(q + 2 * ox + 8);
    __m256 a0 = EVEN(p0, p1), a1 = ODD(p0, p1), b0 = EVEN(q0, q1), b1 = ODD(q0, q1);
    __m256 a = _mm256_max_ps(a1, a0), b = _mm256_max_ps(b1, b0), v = _mm256_max_ps(b, a);
    _mm256_storeu_ps(y + ox, IN_ORDER(_mm256_max_ps(floor_at, v))); /* a NaN in the second operand survives */
    if (place == NULL) return;
    __m256i ra = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cmp_ps(a1, a0, _CMP_GT_OQ)), 31);
    __m256i rb = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cmp_ps(b1, b0, _CMP_GT_OQ)), 31);
    __m256 low = _mm256_cmp_ps(b, a, _CMP_GT_OQ);
    __m256 at =
        _mm256_blendv_ps(_mm256_castsi256_ps(ra), _mm256_castsi256_ps(_mm256_add_epi32(rb, _mm256_set1_epi32(2))), low);
    __m256i i32 = _mm256_castps_si256(IN_ORDER(at));
    __m128i i16 = _mm_packs_epi32(_mm256_castsi256_si128(i32), _mm256_extracti128_si256(i32, 1));
    _mm_storel_epi64((__m128i *)(void *)(place + ox), _mm_packus_epi16(i16, i16));
}

static inline void back_eight(const uint8_t *place, const float *dy, float *p, float *q, int ox) {
    __m256i at = places8(place + ox);
    __m256 d = IN_ORDER(_mm256_loadu_ps(dy + ox)); /* its own inverse: the same order as `at` */
    __m256 part[4];
    for (int k = 0; k < 4; k++)
        part[k] = _mm256_and_ps(d, _mm256_castsi256_ps(_mm256_cmpeq_epi32(at, _mm256_set1_epi32(k))));
    for (int k = 0; k < 2; k++) {
        float *to = (k == 0 ? p : q) + 2 * ox;
        _mm256_storeu_ps(to, _mm256_unpacklo_ps(part[2 * k], part[2 * k + 1]));
        _mm256_storeu_ps(to + 8, _mm256_unpackhi_ps(part[2 * k], part[2 * k + 1]));
    }
}

static inline void pick_eight(const uint8_t *place, const float *p, const float *q, float *y, int ox) {
    __m256i at = places8(place + ox);
    __m256 odd = _mm256_castsi256_ps(_mm256_slli_epi32(at, 31)), low = _mm256_castsi256_ps(_mm256_slli_epi32(at, 30));
    __m256 p0 = _mm256_loadu_ps(p + 2 * ox), p1 = _mm256_loadu_ps(p + 2 * ox + 8);
    __m256 q0 = _mm256_loadu_ps(q + 2 * ox), q1 = _mm256_loadu_ps(q + 2 * ox + 8);
    __m256 a = _mm256_blendv_ps(EVEN(p0, p1), ODD(p0, p1), odd), b = _mm256_blendv_ps(EVEN(q0, q1), ODD(q0, q1), odd);
    _mm256_storeu_ps(y + ox, IN_ORDER(_mm256_blendv_ps(a, b, low)));
}
#endif

void HDO_ISA_FN(hdo__pool2)(int Ho, int Wo, int W, bool with_relu, const float *x, float *y, uint8_t *place) {
    float floor_at = with_relu ? 0 : -INFINITY;
    for (int oy = 0; oy < Ho; oy++) {
        const float *p = x + (size_t)(2 * oy) * (size_t)W, *q = p + W;
        float *to = y + (size_t)oy * (size_t)Wo;
        uint8_t *at = place != NULL ? place + (size_t)oy * (size_t)Wo : NULL;
        int ox = 0;
#if defined(__AVX2__)
        __m256 f = _mm256_set1_ps(floor_at);
        for (; ox + 8 <= Wo; ox += 8) pool_eight(p, q, ox, f, to, at);
        if (ox < Wo && Wo >= 8) { /* the last eight again: cheaper than one by one */
            pool_eight(p, q, Wo - 8, f, to, at);
            ox = Wo;
        }
#endif
        for (; ox < Wo; ox++) pool_one(p, q, ox, floor_at, to, at);
    }
}

void HDO_ISA_FN(hdo__pool2_back)(int Ho, int Wo, int W, const uint8_t *place, const float *dy, float *dx) {
    for (int oy = 0; oy < Ho; oy++) {
        float *p = dx + (size_t)(2 * oy) * (size_t)W, *q = p + W;
        const uint8_t *at = place + (size_t)oy * (size_t)Wo;
        const float *d = dy + (size_t)oy * (size_t)Wo;
        int ox = 0;
#if defined(__AVX2__)
        for (; ox + 8 <= Wo; ox += 8) back_eight(at, d, p, q, ox);
        if (ox < Wo && Wo >= 8) {
            back_eight(at, d, p, q, Wo - 8);
            ox = Wo;
        }
#endif
        for (; ox < Wo; ox++) {
            p[2 * ox] = at[ox] == 0 ? d[ox] : 0;
            p[2 * ox + 1] = at[ox] == 1 ? d[ox] : 0;
            q[2 * ox] = at[ox] == 2 ? d[ox] : 0;
            q[2 * ox + 1] = at[ox] == 3 ? d[ox] : 0;
        }
    }
}

void HDO_ISA_FN(hdo__pool2_pick)(int Ho, int Wo, int W, const uint8_t *place, const float *tx, float *ty) {
    for (int oy = 0; oy < Ho; oy++) {
        const float *p = tx + (size_t)(2 * oy) * (size_t)W, *q = p + W;
        const uint8_t *at = place + (size_t)oy * (size_t)Wo;
        float *to = ty + (size_t)oy * (size_t)Wo;
        int ox = 0;
#if defined(__AVX2__)
        for (; ox + 8 <= Wo; ox += 8) pick_eight(at, p, q, to, ox);
        if (ox < Wo && Wo >= 8) {
            pick_eight(at, p, q, to, Wo - 8);
            ox = Wo;
        }
#endif
        for (; ox < Wo; ox++) to[ox] = (at[ox] & 2 ? q : p)[2 * ox + (at[ox] & 1)];
    }
}

/* ---- 3x3, stride 2, padding 1, without places ---- */

/* The first of equals, and a NaN wherever it is. */
static inline float larger(float a, float b) {
    return ((b > a) | (b != b)) ? b : a;
}

#if defined(__AVX2__)
static inline __m256 larger8(__m256 a, __m256 b) {
    return _mm256_blendv_ps(_mm256_max_ps(b, a), b, _mm256_cmp_ps(b, b, _CMP_UNORD_Q)); /* max passes on a NaN in a */
}
#endif

/* Columns ox .. Wo - 1 of one row of outputs from rows p, q, r of the input (q == r where the last is outside). */
static void pool3_row(int ox, int Wo, int W, float floor_at, const float *p, const float *q, const float *r, float *y) {
    for (; ox < Wo; ox++) {
        float best = -INFINITY;
        for (int x = 2 * ox - 1; x <= 2 * ox + 1; x++) {
            if (x < 0 || x >= W) continue;
            best = larger(best, larger(larger(p[x], q[x]), r[x]));
        }
        y[ox] = best < floor_at ? floor_at : best;
    }
}

void HDO_ISA_FN(hdo__pool3)(int H, int W, bool with_relu, const float *x, float *y) {
    int Ho = (H - 1) / 2 + 1, Wo = (W - 1) / 2 + 1;
    float floor_at = with_relu ? 0 : -INFINITY;
    for (int oy = 0; oy < Ho; oy++, y += Wo) {
        const float *q = x + (size_t)(2 * oy) * (size_t)W, *p = oy > 0 ? q - W : q, *r = 2 * oy + 1 < H ? q + W : q;
        int ox = 0;
#if defined(__AVX2__)
        __m256 before = _mm256_set1_ps(-INFINITY); /* lane 7: the odd column left of this group */
        for (; ox + 8 <= Wo && 2 * ox + 16 <= W; ox += 8) {
            __m256 m[2];
            for (int h = 0; h < 2; h++) {
                const int at = 2 * ox + 8 * h;
                m[h] = larger8(larger8(_mm256_loadu_ps(p + at), _mm256_loadu_ps(q + at)), _mm256_loadu_ps(r + at));
            }
            __m256 even = IN_ORDER(EVEN(m[0], m[1])), odd = IN_ORDER(ODD(m[0], m[1]));
            __m256 turned = _mm256_permutevar8x32_ps(odd, _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6));
            __m256 left = _mm256_blend_ps(turned, _mm256_permutevar8x32_ps(before, _mm256_set1_epi32(7)), 1);
            __m256 best = larger8(larger8(left, even), odd);
            _mm256_storeu_ps(y + ox, _mm256_max_ps(_mm256_set1_ps(floor_at), best));
            before = odd;
        }
#endif
        pool3_row(ox, Wo, W, floor_at, p, q, r, y);
    }
}
