/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices of random streams (see rng.h), many numbers at a time.
 *
 * Layout. Number i of a stream lives in group g = i / 32; inside the group q = (i % 32) / 8 and j = i % 8. It is made
 * from word q of the Philox block with counter (8 g + j, sub, step, who). So eight blocks side by side fill four rows
 * of eight consecutive numbers and nothing is ever transposed. Whole groups are the unit of work; the ragged ends of a
 * slice go through a buffer on the stack.
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
 * That is 16 instructions a round for as many blocks as a vector has 32-bit lanes (12 where one instruction xors three
 * words), no blends; even and odd meet once, at the end. In the first three rounds parts of the state do not depend on
 * the block number: they are computed once a slice (struct sched). The first product of a block is that of the block
 * before plus a constant.
 *
 * Width. A batch is one vector of blocks: half a group at 16 bytes, a group at 32, two groups at 64. A whole number of
 * batches and of groups, whichever is more, is the unit of work (SPAN numbers).
 *
 * Limits (Zen 4, cycles a normal into L1). AVX2: 2.95, that is 94 for a group; about 280 instructions would fit into 70
 * cycles of the four vector pipes, so much of it is waiting for results, and sixteen registers do not hold two groups.
 * AVX-512: 2.0. An instruction fills a pipe for two cycles; 216 of them for 64 numbers are 108 cycles, 126 are taken.
 * Loads and integer instructions added to the loop are free, vector instructions cost 0.3 to 0.5 cycles each: the pipes
 * are the limit.
 *
 * Tried and dropped (Zen 4): making the words of 1 to 16 groups first and turning them into numbers in a second loop
 * gives the same rate with AVX2 (the processor overlaps neighbouring groups by itself) and 2.25 cycles with AVX-512.
 * With AVX-512: the first two rounds on the integer units, two batches ahead (1.92 to 2.2, at the mercy of the
 * compiler); two batches of words at a time before their numbers (2.06), also one iteration ahead (1.97); orders of the
 * loop from a list scheduler (1.94 to 2.2).
 * Not tried, as the count of instructions comes out no better: IFMA for the high halves (a shift goes, a multiply
 * comes), even and odd packed into one vector between rounds (as many shuffles come as xors go). The exponent's part of
 * the logarithm from a table: two-source permutes take 1.25 cycles.
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
#define SPAN (LANES > ROW ? ROWS * LANES : GROUP) /* numbers of a unit of work */

typedef uint64_t u64v __attribute__((vector_size(VB)));
typedef uint32_t u32v __attribute__((vector_size(VB)));
typedef int32_t i32v __attribute__((vector_size(VB)));
typedef float f32v __attribute__((vector_size(VB)));
/* For loads and stores at any address. */
typedef uint32_t u32u __attribute__((vector_size(VB), aligned(4), may_alias));

/* ---- the few operations vector extensions cannot say well -------------------------------------------------------- */

/* The product of the low halves of each 64-bit lane. */
HDO_INLINE u64v mul_low(u64v a, u64v b) {
#if VB == 64
    return (u64v)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (u64v)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (u64v)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

HDO_INLINE u64v xor3(u64v a, u64v b, u64v c) {
#if VB == 64
    return (u64v)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
#else
    return a ^ (b ^ c);
#endif
}

/* The high half of each lane, moved down; the upper half is anything. */
HDO_INLINE u64v high(u64v a) {
#if VB == 64
    return (u64v)_mm512_shuffle_epi32((__m512i)a, _MM_PERM_DDBB); /* goes to three pipes, a shift to two */
#else
    return a >> 32;
#endif
}

/* Low halves of even and of odd, interleaved: lane 2k from even, lane 2k + 1 from odd. */
HDO_INLINE u32v zip_low(u64v even, u64v odd) {
#if VB == 64
    return (u32v)_mm512_mask_moveldup_ps((__m512)even, 0xaaaa, (__m512)odd);
#elif defined(__AVX2__)
    return (u32v)_mm256_blend_epi32((__m256i)even, _mm256_slli_epi64((__m256i)odd, 32), 0xaa);
#elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (u32v)((even << 32) | (odd & 0xffffffffu));
#else
    return (u32v)((even & 0xffffffffu) | (odd << 32));
#endif
}

/* The same with the high halves. */
HDO_INLINE u32v zip_high(u64v even, u64v odd) {
#if VB == 64
    return (u32v)_mm512_mask_movehdup_ps((__m512)odd, 0x5555, (__m512)even);
#elif defined(__AVX2__)
    return (u32v)_mm256_blend_epi32(_mm256_srli_epi64((__m256i)even, 32), (__m256i)odd, 0xaa);
#else
    return zip_low(even >> 32, odd >> 32);
#endif
}

/* Rounds to nearest even. */
HDO_INLINE f32v to_float(i32v a) {
#if VB == 64
    return (f32v)_mm512_cvtepi32_ps((__m512i)a);
#elif defined(__AVX2__)
    return (f32v)_mm256_cvtepi32_ps((__m256i)a);
#elif defined(__SSE2__)
    return (f32v)_mm_cvtepi32_ps((__m128i)a);
#else
    return __builtin_convertvector(a, f32v);
#endif
}

/* With the sign of a changed where that of b is set. */
HDO_INLINE f32v flip(f32v a, u32v b) {
#if VB == 64
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    return (f32v)_mm512_ternarylogic_epi32((__m512i)a, (__m512i)b, sign, 0x78); /* a ^ (b & sign) */
#else
    return (f32v)((u32v)a ^ (b & 0x80000000u));
#endif
}

HDO_INLINE f32v root(f32v a) {
#if VB == 64
    return (f32v)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__)
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

/* A round key: in every 32-bit lane, except where an instruction can spread its operand from memory by itself. */
#if VB == 64
typedef uint32_t keyv;
#else
typedef u64v keyv;
#endif

HDO_INLINE u64v splat(uint32_t a) {
    return (u64v)((u32v){0} + a);
}

#if VB == 64
HDO_INLINE keyv pack_key(uint32_t a) {
    return a;
}
HDO_INLINE u64v key(const keyv *k) {
    return splat(*k);
}
#else
HDO_INLINE keyv pack_key(uint32_t a) {
    return splat(a);
}
HDO_INLINE u64v key(const keyv *k) {
    return *k;
}
#endif

/* What does not depend on the block number, ready to xor: the keys of round r. Where part of the state is still the
 * same for all blocks it is folded in: into what makes c2 in round 0, c0 and c2 in round 1, c2 in round 2. k0[0] is not
 * used. */
typedef struct sched {
    keyv k0[PHILOX_ROUNDS], k1[PHILOX_ROUNDS];
} sched;

HDO_INLINE void sched_init(sched *t, hdo_stream s) {
    const uint32_t k0 = (uint32_t)s.seed, k1 = (uint32_t)(s.seed >> 32);
    for (uint32_t r = 0; r < PHILOX_ROUNDS; r++) {
        t->k0[r] = pack_key(k0 + r * PHILOX_W0);
        t->k1[r] = pack_key(k1 + r * PHILOX_W1);
    }
    uint64_t p1 = (uint64_t)s.step * PHILOX_M1;                              /* round 0: c2 = step */
    uint64_t p0 = (uint64_t)((uint32_t)(p1 >> 32) ^ s.sub ^ k0) * PHILOX_M0; /* round 1: c0 = high ^ sub ^ key */
    t->k1[0] ^= pack_key(s.who);
    t->k0[1] ^= pack_key((uint32_t)p1);
    t->k1[1] ^= pack_key((uint32_t)(p0 >> 32));
    t->k1[2] ^= pack_key((uint32_t)p0);
}

/* The first products of a batch, blocks of even and of odd j. */
typedef struct first {
    u64v p0[2];
} first;

/* Blocks base .. base + LANES - 1, modulo 2^32: the multiply drops the carry. */
HDO_INLINE first first_at(uint32_t base) {
#if VB == 64
    const u64v iota = {0, 2, 4, 6, 8, 10, 12, 14};
#elif VB == 32
    const u64v iota = {0, 2, 4, 6};
#else
    const u64v iota = {0, 2};
#endif
    const u64v m0 = splat(PHILOX_M0);
    return (first){{mul_low(iota + base, m0), mul_low(iota + base + 1, m0)}};
}

/* To the next batch. Not across block 2^32: only a multiply wraps. */
HDO_INLINE void advance(first *f) {
    f->p0[0] += (uint64_t)LANES * PHILOX_M0;
    f->p0[1] += (uint64_t)LANES * PHILOX_M0;
}

/* One batch: w[q] gets word q of each block, in order. */
HDO_INLINE void philox(const sched *t, const first *f, u32v w[ROWS]) {
    const u64v m0 = splat(PHILOX_M0), m1 = splat(PHILOX_M1);
    u64v c0[2], c1[2], c2[2], c3[2]; /* blocks of even j, of odd j */

    for (int h = 0; h < 2; h++) {
        u64v p0 = f->p0[h], p1; /* round 0 */
        c2[h] = high(p0) ^ key(&t->k1[0]);
        p1 = mul_low(c2[h], m1); /* round 1 */
        c0[h] = high(p1) ^ key(&t->k0[1]);
        c1[h] = p1;
        c2[h] = p0 ^ key(&t->k1[1]);
        p0 = mul_low(c0[h], m0); /* round 2 */
        p1 = mul_low(c2[h], m1);
        c0[h] = xor3(high(p1), c1[h], key(&t->k0[2]));
        c1[h] = p1;
        c2[h] = high(p0) ^ key(&t->k1[2]);
        c3[h] = p0;
    }
#pragma GCC unroll 8
    for (int r = 3; r < PHILOX_ROUNDS - 1; r++) {
        for (int h = 0; h < 2; h++) {
            u64v p0 = mul_low(c0[h], m0), p1 = mul_low(c2[h], m1);
            c0[h] = xor3(high(p1), c1[h], key(&t->k0[r]));
            c1[h] = p1;
            c2[h] = xor3(high(p0), c3[h], key(&t->k1[r]));
            c3[h] = p0;
        }
    }
    /* Last round: even and odd meet before the xors, which then are half as many. */
    u64v p0e = mul_low(c0[0], m0), p0o = mul_low(c0[1], m0), p1e = mul_low(c2[0], m1), p1o = mul_low(c2[1], m1);
    w[0] = (u32v)xor3((u64v)zip_high(p1e, p1o), (u64v)zip_low(c1[0], c1[1]), key(&t->k0[PHILOX_ROUNDS - 1]));
    w[1] = zip_low(p1e, p1o);
    w[2] = (u32v)xor3((u64v)zip_high(p0e, p0o), (u64v)zip_low(c3[0], c3[1]), key(&t->k1[PHILOX_ROUNDS - 1]));
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
#if VB == 64
    /* The bits of u less those of 2/3 with the bits of 1 added: e is the exponent, the mantissa counts from 2/3. */
    u32v i = (u32v)to_float((i32v)(w | 0x80000001u)) - (bias + two_thirds - 0x3f800000u);
    f32v n = (f32v)_mm512_getexp_ps((__m512)i) * -0x1.62e430p+0f; /* -2 ln 2 */
    f32v f = (f32v)((i & 0x7fffffu) + two_thirds) - 1.0f;
#else
    u32v i = (u32v)to_float((i32v)(w | 0x80000001u)) - bias;
    i32v e = (i32v)(i - two_thirds) & (i32v)((u32v){0} + 0xff800000u); /* exponent, still in place */
    f32v f = (f32v)(i - (u32v)e) - 1.0f;
    f32v n = to_float(e) * (-0x1.62e430p+0f * 0x1p-23f); /* -2 ln 2, and the exponent moved down */
#endif

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
    *z0 = flip(r, a) * (even - odd);
    *z1 = (f32v)((u32v)r ^ (a << 31)) * (even + odd);
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

typedef enum kind { BITS, UNIFORM, NORMAL, RADEMACHER } kind;

/* Row q of a batch. out is the place of row 0 and has any alignment. */
HDO_INLINE void put(uint32_t *out, int q, u32v v) {
#if VB == 64
    typedef uint32_t half __attribute__((vector_size(32), aligned(4), may_alias)); /* of one group */
    *(half *)(out + ROW * q) = (half)_mm512_castsi512_si256((__m512i)v);
    *(half *)(out + GROUP + ROW * q) = (half)_mm512_extracti64x4_epi64((__m512i)v, 1);
#else
    *(u32u *)(out + ROW * q) = v;
#endif
}

/* The words of a batch as numbers. k is a constant at every call, so the switch goes. */
HDO_INLINE void finish(kind k, const u32v w[ROWS], uint32_t *out) {
    f32v z[ROWS];
    if (k == NORMAL) {
        box_muller(w[0], w[1], &z[0], &z[1]);
        box_muller(w[2], w[3], &z[2], &z[3]);
    }
    for (int q = 0; q < ROWS; q++) {
        if (k == BITS) put(out, q, w[q]);
        if (k == UNIFORM) put(out, q, (u32v)uniform(w[q]));
        if (k == RADEMACHER) put(out, q, (u32v)rademacher(w[q]));
        if (k == NORMAL) put(out, q, (u32v)z[q]);
    }
}

/* n batches starting with block base; at least one. */
HDO_INLINE void run(kind k, const sched *t, uint32_t base, size_t n, uint32_t *out) {
    first f = first_at(base);
    u32v w[ROWS];
#if VB == 64
    /* Two chains of results to wait for, in one piece of code, which the compiler is told to mix (meson.build): the
     * words of a batch beside the numbers of the one before, or, where numbers are cheap, two batches. */
    for (; k != NORMAL && n > 2; n -= 2, out += 2 * SPAN) {
        u32v next[ROWS];
        philox(t, &f, w);
        advance(&f);
        philox(t, &f, next);
        advance(&f);
        finish(k, w, out);
        finish(k, next, out + SPAN);
    }
    philox(t, &f, w);
    for (size_t i = 1; i < n; i++, out += SPAN) {
        u32v next[ROWS];
        advance(&f);
        philox(t, &f, next);
        finish(k, w, out);
        for (int q = 0; q < ROWS; q++) w[q] = next[q];
    }
    finish(k, w, out);
#else
    for (size_t i = 0; i < n; i++, advance(&f)) {
        philox(t, &f, w);
        finish(k, w, out + i * LANES / ROW * GROUP + i * LANES % ROW);
    }
#endif
}

/* Numbers off .. off + len - 1 to out. */
HDO_INLINE void slice(kind k, hdo_stream s, uint64_t off, size_t len, uint32_t *out) {
    const uint32_t blocks = SPAN / ROWS; /* of a span */
    uint32_t edge[SPAN];
    sched t;
    if (len == 0) return;
    sched_init(&t, s);
    uint32_t base = (uint32_t)(off / GROUP * ROW);
    size_t skip = (size_t)(off % GROUP);
    while (len > 0) {
        if (skip == 0 && len >= SPAN) {
            /* A run must not step over block 2^32; its first span may lie across. */
            uint64_t most = (((uint64_t)1 << 32) - base) / blocks, spans = len / SPAN;
            if (spans > most) spans = most > 0 ? most : 1;
            run(k, &t, base, (size_t)spans * blocks / LANES, out);
            base += (uint32_t)spans * blocks;
            out += spans * SPAN;
            len -= spans * SPAN;
            continue;
        }
        /* A ragged end, at most one on each side. */
        size_t n = SPAN - skip < len ? SPAN - skip : len;
        run(k, &t, base, blocks / LANES, edge);
        memcpy(out, edge + skip, 4 * n);
        base += blocks;
        out += n;
        len -= n;
        skip = 0;
    }
}

/* A slice inside one group would leave half of a wide batch unused: the narrower table makes it in three quarters of
 * the time. Elsewhere the name is never called. */
#if VB == 64
#define NARROW(name) HDO_CAT(name, avx2)
#else
#define NARROW(name) HDO_ISA_FN(name)
#endif

HDO_INLINE bool narrow(uint64_t off, size_t len) {
    return LANES > ROW && len <= GROUP && off % GROUP + len <= GROUP;
}

void HDO_ISA_FN(rng_bits)(hdo_stream s, uint64_t off, size_t len, uint32_t *out) {
    if (narrow(off, len)) {
        NARROW(rng_bits)(s, off, len, out);
        return;
    }
    slice(BITS, s, off, len, out);
}

void HDO_ISA_FN(rng_uniform)(hdo_stream s, uint64_t off, size_t len, float *out) {
    if (narrow(off, len)) {
        NARROW(rng_uniform)(s, off, len, out);
        return;
    }
    slice(UNIFORM, s, off, len, (uint32_t *)(void *)out);
}

void HDO_ISA_FN(rng_normal)(hdo_stream s, uint64_t off, size_t len, float *out) {
    if (narrow(off, len)) {
        NARROW(rng_normal)(s, off, len, out);
        return;
    }
    slice(NORMAL, s, off, len, (uint32_t *)(void *)out);
}

void HDO_ISA_FN(rng_rademacher)(hdo_stream s, uint64_t off, size_t len, float *out) {
    if (narrow(off, len)) {
        NARROW(rng_rademacher)(s, off, len, out);
        return;
    }
    slice(RADEMACHER, s, off, len, (uint32_t *)(void *)out);
}
