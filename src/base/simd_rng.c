/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices of random streams (see rng.h), many numbers at a time.
 *
 * Layout. Number i of a stream lives in group g = i / 32; inside the group q = (i % 32) / 8 and j = i % 8. It is made
 * from word q of the Philox block with counter (8 g + j, sub, step, who). So eight blocks side by side fill four rows
 * of eight consecutive numbers and nothing is ever transposed. A whole group is the unit of work; the ragged ends of a
 * slice go through a group on the stack.
 *
 * Numbers, from a word w:
 *   bits        w
 *   uniform     (2 (w >> 9) + 1) / 2^24: the middle of one of 2^23 cells, so exact, symmetric, never 0 or 1
 *   rademacher  +1 or -1 from the top bit
 *   normal      Box-Muller on two words of a block: words 0, 1 give rows q = 0, 1; words 2, 3 give rows q = 2, 3
 *
 * Same bits everywhere: integers are exact; floats see only + - * sqrt and exact conversions, in one order, no FMA
 * (each is correctly rounded by IEEE 754 on every path). Width is the only thing the instruction set changes.
 *
 * Philox in 64-bit lanes. A round needs the high and low half of two 32 x 32 products. Blocks of even and of odd j are
 * kept in separate vectors of 64-bit lanes: the multiply reads only the low half of a lane, so the product itself is
 * the next "low" word, the product >> 32 the next "high" word, and whatever stands in the upper halves is ignored.
 * That is 16 instructions a round for 8 blocks, no blends; even and odd meet once, at the end. In the first three
 * rounds parts of the state do not depend on the block number: they are computed once a slice (struct sched).
 *
 * Tried and dropped (Zen 4, normals into L1): making the words of 1 to 16 groups first and turning them into numbers in
 * a second loop gives the same rate, 1.15 G/s; the processor overlaps neighbouring groups by itself.
 */
#include "base/simd_fns.h"

#include <math.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define VB HDO_VEC_BYTES
#define LANES (VB / 4) /* 32-bit lanes of a vector */
#define ROWS 4         /* words of a block */
#define ROW 8          /* blocks of a group */
#define GROUP (ROWS * ROW)

typedef uint64_t u64v __attribute__((vector_size(VB)));
typedef uint32_t u32v __attribute__((vector_size(VB)));
typedef int32_t i32v __attribute__((vector_size(VB)));
typedef float f32v __attribute__((vector_size(VB)));
/* For loads and stores at any address. */
typedef uint32_t u32u __attribute__((vector_size(VB), aligned(4), may_alias));
typedef float f32u __attribute__((vector_size(VB), aligned(4), may_alias));

/* ---- the few operations vector extensions cannot say well -------------------------------------------------------- */

/* The product of the low halves of each 64-bit lane. */
HDO_INLINE u64v mul_low(u64v a, u64v b) {
#if defined(__AVX2__)
    return (u64v)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (u64v)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/* Low halves of even and of odd, interleaved: lane 2k from even, lane 2k + 1 from odd. */
HDO_INLINE u32v zip_low(u64v even, u64v odd) {
#if defined(__AVX2__)
    return (u32v)_mm256_blend_epi32((__m256i)even, _mm256_slli_epi64((__m256i)odd, 32), 0xaa);
#elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (u32v)((even << 32) | (odd & 0xffffffffu));
#else
    return (u32v)((even & 0xffffffffu) | (odd << 32));
#endif
}

/* The same with the high halves. */
HDO_INLINE u32v zip_high(u64v even, u64v odd) {
#if defined(__AVX2__)
    return (u32v)_mm256_blend_epi32(_mm256_srli_epi64((__m256i)even, 32), (__m256i)odd, 0xaa);
#else
    return zip_low(even >> 32, odd >> 32);
#endif
}

/* Rounds to nearest even. */
HDO_INLINE f32v to_float(i32v a) {
#if defined(__AVX2__)
    return (f32v)_mm256_cvtepi32_ps((__m256i)a);
#elif defined(__SSE2__)
    return (f32v)_mm_cvtepi32_ps((__m128i)a);
#else
    return __builtin_convertvector(a, f32v);
#endif
}

HDO_INLINE f32v root(f32v a) {
#if defined(__AVX2__)
    return (f32v)_mm256_sqrt_ps((__m256)a);
#elif defined(__SSE2__)
    return (f32v)_mm_sqrt_ps((__m128)a);
#else
    for (int j = 0; j < LANES; j++) a[j] = sqrtf(a[j]);
    return a;
#endif
}

/* ---- Philox4x32-10 ----------------------------------------------------------------------------------------------- */

#define PHILOX_M0 0xd2511f53u
#define PHILOX_M1 0xcd9e8d57u
#define PHILOX_W0 0x9e3779b9u
#define PHILOX_W1 0xbb67ae85u
#define PHILOX_ROUNDS 10

/* What does not depend on the block number, ready to xor: k0[r] and k1[r] are the keys of round r in every 32-bit lane.
 * Where part of the state is still the same for all blocks it is folded in: into what makes c2 in round 0, c0 and c2 in
 * round 1, c2 in round 2. k0[0] is not used. */
typedef struct sched {
    u64v k0[PHILOX_ROUNDS], k1[PHILOX_ROUNDS];
} sched;

HDO_INLINE u64v splat(uint32_t a) {
    return (u64v)((u32v){0} + a);
}

HDO_INLINE void sched_init(sched *t, hdo_stream s) {
    uint32_t k0 = (uint32_t)s.seed, k1 = (uint32_t)(s.seed >> 32);
    for (uint32_t r = 0; r < PHILOX_ROUNDS; r++) {
        t->k0[r] = splat(k0 + r * PHILOX_W0);
        t->k1[r] = splat(k1 + r * PHILOX_W1);
    }
    uint64_t p1 = (uint64_t)s.step * PHILOX_M1;                              /* round 0: c2 = step */
    uint64_t p0 = (uint64_t)((uint32_t)(p1 >> 32) ^ s.sub ^ k0) * PHILOX_M0; /* round 1: c0 = high ^ sub ^ key */
    t->k1[0] ^= splat(s.who);
    t->k0[1] ^= splat((uint32_t)p1);
    t->k1[1] ^= splat((uint32_t)(p0 >> 32));
    t->k1[2] ^= splat((uint32_t)p0);
}

/* Blocks base .. base + LANES - 1: w[q] gets word q of each, in order. */
HDO_INLINE void philox(const sched *t, uint32_t base, u32v w[ROWS]) {
    const u64v m0 = splat(PHILOX_M0), m1 = splat(PHILOX_M1);
    u64v c0[2], c1[2], c2[2], c3[2]; /* blocks of even j, of odd j */

    for (int h = 0; h < 2; h++) {
#if VB == 32
        const u64v iota = {0, 2, 4, 6};
#else
        const u64v iota = {0, 2};
#endif
        u64v p0, p1, block = iota + (uint64_t)(base + (uint32_t)h); /* the multiply drops the carry out of 32 bits */
        p0 = mul_low(block, m0);                                    /* round 0 */
        c2[h] = (p0 >> 32) ^ t->k1[0];
        p1 = mul_low(c2[h], m1); /* round 1 */
        c0[h] = (p1 >> 32) ^ t->k0[1];
        c1[h] = p1;
        c2[h] = p0 ^ t->k1[1];
        p0 = mul_low(c0[h], m0); /* round 2 */
        p1 = mul_low(c2[h], m1);
        c0[h] = (p1 >> 32) ^ (c1[h] ^ t->k0[2]);
        c1[h] = p1;
        c2[h] = (p0 >> 32) ^ t->k1[2];
        c3[h] = p0;
    }
#pragma GCC unroll 8
    for (int r = 3; r < PHILOX_ROUNDS - 1; r++) {
        for (int h = 0; h < 2; h++) {
            u64v p0 = mul_low(c0[h], m0), p1 = mul_low(c2[h], m1);
            c0[h] = (p1 >> 32) ^ (c1[h] ^ t->k0[r]);
            c1[h] = p1;
            c2[h] = (p0 >> 32) ^ (c3[h] ^ t->k1[r]);
            c3[h] = p0;
        }
    }
    /* Last round: even and odd meet before the xors, which then are half as many. */
    u64v p0e = mul_low(c0[0], m0), p0o = mul_low(c0[1], m0), p1e = mul_low(c2[0], m1), p1o = mul_low(c2[1], m1);
    w[0] = zip_high(p1e, p1o) ^ (zip_low(c1[0], c1[1]) ^ (u32v)t->k0[PHILOX_ROUNDS - 1]);
    w[1] = zip_low(p1e, p1o);
    w[2] = zip_high(p0e, p0o) ^ (zip_low(c3[0], c3[1]) ^ (u32v)t->k1[PHILOX_ROUNDS - 1]);
    w[3] = zip_low(p0e, p0o);
}

/* ---- words to numbers -------------------------------------------------------------------------------------------- */

HDO_INLINE f32v uniform(u32v w) {
    return to_float((i32v)((w >> 8) | 1u)) * 0x1p-24f;
}

HDO_INLINE f32v rademacher(u32v w) {
    return (f32v)((w & 0x80000000u) | 0x3f800000u);
}

/* sqrt(-2 ln u) for u = 1 - odd / 2^31, where the odd number is bits 30 .. 1 of w followed by a one. u lies in
 * [2^-31, 1 - 2^-31], the result in [0, 6.56]. Bits 31 and 0 of w do not enter: they are the signs (see box_muller).
 *
 * Setting bit 31 makes the integer odd - 2^31, so that the signed conversion, the only one there is, serves; sign and
 * factor 2^-31 go with one integer subtraction. u rounds to 24 bits; should it round to 1 the result is 0.
 *
 * -2 ln u = e (-2 ln 2) + f Q(f), mantissa 1 + f in [2/3, 4/3), so that no digits cancel as u goes to 1. Q is a
 * minimax fit of degree 7 of -2 ln(1 + f) / f with Q(0) = -2: relative error of the sum 1.1e-7, of the root half of
 * it; with all roundings the root is within 2.1e-7 for every u (measured over all of them). Never negative: e = 0
 * leaves f <= 0 and Q < 0, and e <= -1 leaves at least 2 ln 2 - 2 ln(4/3). */
HDO_INLINE f32v radius(u32v w) {
    const uint32_t two_thirds = 0x3f2aaaabu;         /* the bits of 2/3 */
    const uint32_t bias = 0x80000000u + (31u << 23); /* the sign and 2^31 */
    u32v i = (u32v)to_float((i32v)(w | 0x80000001u)) - bias;
    i32v e = (i32v)(i - two_thirds) & (i32v)((u32v){0} + 0xff800000u); /* exponent, still in place */
    f32v f = (f32v)(i - (u32v)e) - 1.0f;
    f32v n = to_float(e) * (-0x1.62e430p+0f * 0x1p-23f); /* -2 ln 2, and the exponent moved down */

    f32v f2 = f * f, f4 = f2 * f2;
    f32v q01 = f * 0x1.fffebap-1f + -2.0f;
    f32v q23 = f * 0x1.0048c2p-1f + -0x1.55613ep-1f;
    f32v q45 = f * 0x1.4a72b0p-2f + -0x1.9544e0p-2f;
    f32v q67 = f * 0x1.54431ep-2f + -0x1.5fa1bcp-2f;
    f32v q = (q01 + f2 * q23) + f4 * (q45 + f2 * q67);
    return root(n + f * q);
}

/* Two normals from two words. The angle is pi/4 + x with x = pi/4 * (b as a signed fraction), in the first quadrant;
 * the two bits of a that radius() leaves out choose the quadrant. With E = cos(x) / sqrt 2 and O = sin(x) / sqrt 2 the
 * coordinates are E - O and E + O: no swap, no reduction. E is even in x and O odd, both cubic in x^2 (minimax fits,
 * absolute errors 2.0e-8 and 2.5e-9; with all roundings a coordinate is within 2.1e-7 of the radius). */
HDO_INLINE void box_muller(u32v a, u32v b, f32v *z0, f32v *z1) {
    f32v r = radius(a);
    f32v x = to_float((i32v)b) * 0x1p-31f; /* in units of pi/4 */
    f32v y = x * x, y2 = y * y;
    f32v even = (y * -0x1.bea56ap-3f + 0x1.6a09e6p-1f) + y2 * (y * -0x1.d9011cp-13f + 0x1.6f40fap-7f);
    f32v odd = (y * -0x1.d3ba66p-5f + 0x1.1c5832p-1f) + y2 * (y * -0x1.abab2ep-16f + 0x1.cd9748p-10f);
    odd = odd * x;
    f32v r0 = (f32v)((u32v)r ^ (a & 0x80000000u)), r1 = (f32v)((u32v)r ^ (a << 31));
    *z0 = r0 * (even - odd);
    *z1 = r1 * (even + odd);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

typedef enum kind { BITS, UNIFORM, NORMAL, RADEMACHER } kind;

/* One whole group to out (32 numbers of 4 bytes, any alignment). k is a constant at every call, so the switch goes. */
HDO_INLINE void group(kind k, const sched *t, uint64_t g, void *out) {
    for (uint32_t j = 0; j < ROW; j += LANES) {
        u32v w[ROWS];
        philox(t, (uint32_t)(g * ROW) + j, w);
        f32v z[ROWS];
        if (k == NORMAL) {
            box_muller(w[0], w[1], &z[0], &z[1]);
            box_muller(w[2], w[3], &z[2], &z[3]);
        }
        for (int q = 0; q < ROWS; q++) {
            if (k == BITS) *(u32u *)((uint32_t *)out + ROW * q + j) = w[q];
            if (k == UNIFORM) *(f32u *)((float *)out + ROW * q + j) = uniform(w[q]);
            if (k == RADEMACHER) *(f32u *)((float *)out + ROW * q + j) = rademacher(w[q]);
            if (k == NORMAL) *(f32u *)((float *)out + ROW * q + j) = z[q];
        }
    }
}

/* Numbers off .. off + len - 1 to out. */
HDO_INLINE void slice(kind k, hdo_stream s, uint64_t off, size_t len, void *out) {
    char *o = out;
    uint32_t edge[GROUP];
    sched t;
    if (len == 0) return;
    sched_init(&t, s);
    uint64_t g = off / GROUP;
    size_t skip = (size_t)(off % GROUP);
    while (len > 0) {
        if (skip == 0 && len >= GROUP) {
            size_t groups = len / GROUP;
            for (size_t i = 0; i < groups; i++, o += 4 * GROUP) group(k, &t, g + i, o);
            g += groups;
            len %= GROUP;
            continue;
        }
        /* A ragged end, at most one on each side. */
        size_t n = GROUP - skip < len ? GROUP - skip : len;
        group(k, &t, g++, edge);
        memcpy(o, edge + skip, 4 * n);
        o += 4 * n;
        len -= n;
        skip = 0;
    }
}

void HDO_ISA_FN(rng_bits)(hdo_stream s, uint64_t off, size_t len, uint32_t *out) {
    slice(BITS, s, off, len, out);
}

void HDO_ISA_FN(rng_uniform)(hdo_stream s, uint64_t off, size_t len, float *out) {
    slice(UNIFORM, s, off, len, out);
}

void HDO_ISA_FN(rng_normal)(hdo_stream s, uint64_t off, size_t len, float *out) {
    slice(NORMAL, s, off, len, out);
}

void HDO_ISA_FN(rng_rademacher)(hdo_stream s, uint64_t off, size_t len, float *out) {
    slice(RADEMACHER, s, off, len, out);
}
