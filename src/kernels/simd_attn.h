/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to simd_attn.c: one head of one sample, its arrays, masks, scores and weights.
 *
 * Why by hand. With head size 2 a score costs two multiply-adds but its weight costs an exponential: a matrix product
 * followed by a softmax spends its time moving score matrices and calling exp. Here nothing of size T x T exists. One
 * head of one sample is transposed into arrays by component (a few kilobytes, so all in L1), then
 *   - a row is one query against a vector of keys at a time; only its last vector needs the causal mask, which also
 *     covers keys that do not exist;
 *   - rows go in pairs, to sum two accumulators across lanes for the price of one and to share the tangents between
 *     them; a pair ends in the same vector of keys. With odd T the last partner is a row of zeros, dropped at the end.
 *
 * Exponent. Queries are scaled by log2(e) / sqrt(hs), so a weight is 2^(q.k - m) and the shift m rides along in the
 * first multiply-add. Softmax does not depend on m; it only must keep 2^x in range. A pass over the scores to find the
 * maximum would cost as many multiply-adds as the rest of the score, so m is a bound instead: with lo <= k_j <= hi by
 * component over the head, q.k_j <= sum_d max(q_d lo_d, q_d hi_d). If the bound is so far above the row's maximum that
 * the sum of weights falls below 2^-40, the row is done again with its exact maximum. Exponents below -100 are raised
 * to -100: such a weight is less than 2^-60 of the row's sum and vanishes in its rounding.
 */
#ifndef HDO_KERNELS_SIMD_ATTN_H
#define HDO_KERNELS_SIMD_ATTN_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/simd_lanes.h"

#define NR 2 /* queries at a time; divides W, so that the rows of a group end in the same vector of keys */
#define MAX_HS 8

/* A function that becomes one piece of code per head size: HS, DROP, ... are constants where it ends up. Sanitizers get
 * one copy with run-time parameters instead: instrumented, all the copies take minutes to compile. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATTN_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(ATTN_SANITIZED)
#define TEMPLATE static __attribute__((noinline))
#define UNROLL
#elif defined(__clang__)
#define TEMPLATE HDO_INLINE
#define UNROLL _Pragma("unroll")
#else
#define TEMPLATE HDO_INLINE
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* `statement` for d = 0 .. HS - 1, HS one of 1, 2, 4, 8 and known after inlining. Written out instead of a loop: arrays
 * indexed by d must become registers, and clang does not always unroll a small loop inside another before it decides
 * that they live in memory. */
#define EACH(d, HS, statement)                                                                                         \
    do {                                                                                                               \
        EACH_1(d, 0, statement)                                                                                        \
        if ((HS) > 1) {                                                                                                \
            EACH_1(d, 1, statement)                                                                                    \
        }                                                                                                              \
        if ((HS) > 2) {                                                                                                \
            EACH_1(d, 2, statement)                                                                                    \
            EACH_1(d, 3, statement)                                                                                    \
        }                                                                                                              \
        if ((HS) > 4) {                                                                                                \
            EACH_1(d, 4, statement)                                                                                    \
            EACH_1(d, 5, statement)                                                                                    \
            EACH_1(d, 6, statement)                                                                                    \
            EACH_1(d, 7, statement)                                                                                    \
        }                                                                                                              \
    } while (0)
#define EACH_1(d, value, statement)                                                                                    \
    {                                                                                                                  \
        enum { d = (value) };                                                                                          \
        statement;                                                                                                     \
    }

typedef uint16_t u16a __attribute__((may_alias)); /* the numbers of the mask inside their words */

/* dst[0], dst[1] = sums of the lanes of a and b: the results of two neighbouring rows. */
HDO_INLINE void sum_pair(f32v a, f32v b, float *dst) {
#if defined(__AVX2__)
    __m256 t = _mm256_add_ps(_mm256_unpacklo_ps((__m256)a, (__m256)b), _mm256_unpackhi_ps((__m256)a, (__m256)b));
    __m128 u = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    _mm_storel_pi((__m64 *)(void *)dst, _mm_add_ps(u, _mm_movehl_ps(u, u)));
#else
    dst[0] = ((a[0] + a[2]) + (a[4] + a[6])) + ((a[1] + a[3]) + (a[5] + a[7]));
    dst[1] = ((b[0] + b[2]) + (b[4] + b[6])) + ((b[1] + b[3]) + (b[5] + b[7]));
#endif
}

/* All ones where the 16-bit number is above `below`. */
HDO_INLINE u32v kept(const u16a *p, i32v below) {
#if defined(__AVX2__)
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return (u32v)_mm256_cmpgt_epi32(x, (__m256i)below);
#else
    i32v x;
    for (int l = 0; l < W; l++) x[l] = (int32_t)p[l];
    return (u32v)(x > below);
#endif
}

/* ---- one head of one sample -------------------------------------------------------------------------------------- */

#define MASK_CHUNK 4096    /* words of mask made at a time: stays in L1 */
#define SUM_FLOOR 0x1p-40f /* a smaller sum of weights: the bound was too far off */
#define LSE_TRUST 64.0f

typedef struct head { /* arrays by component, each `stride` long; entries from T on are padding */
    int T;
    size_t stride;    /* T rounded up, with room for a padded row and a whole vector */
    float *q, *k, *v; /* q times log2(e) / sqrt(hs) */
    float *m;         /* shift of the exponent */
    float *sum, *out; /* sums of weights; sums of weights times values, later the output */
    float *g;         /* dout, times 1 / (1 - p) */
    float *delta;     /* dout.out */
    float *gq, *gk, *gv;
    float *row;          /* tangent pass: W (NR, hs), kept weights (NR), all weights (NR) */
    float *tq, *tk, *tv; /* tangents, k of them: dq / sqrt(hs), dk ln 2, dv */
    float *tout;
} head;

typedef struct masks { /* numbers lo .. hi - 1 of this head's mask are in buf */
    hdo_stream stream;
    uint64_t first; /* number of weight (0, 0) in the stream */
    uint64_t lo, hi;
    uint32_t *buf;
    size_t words;
} masks;

static size_t stride_of(int T) {
    return ((size_t)T + W + 15) & ~(size_t)15;
}

static size_t mask_words(int T) {
    size_t need = (NR * stride_of(T) + 128) / 2;
    need = (need + 31) & ~(size_t)31;
    return need > MASK_CHUNK ? need : MASK_CHUNK;
}

/* Numbers of rows i .. i + NR - 1, as 16-bit units in stream order. */
static const u16a *mask_rows(masks *c, int T, int i) {
    uint64_t a = hdo__attn_mask_row(i), b = hdo__attn_mask_row(i + NR);
    if (b > c->hi) {
        uint64_t end = hdo__attn_mask_row(T);
        if (end < b) end = b; /* the padded row */
        c->lo = a & ~(uint64_t)63;
        size_t len = (size_t)((end - c->lo + 63) / 64) * 32;
        if (len > c->words) len = c->words;
        c->hi = c->lo + 2 * len;
        hdo__rng_bits(c->stream, (c->first + c->lo) / 2, len, c->buf);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        for (size_t w = 0; w < len; w++) c->buf[w] = (c->buf[w] << 16) | (c->buf[w] >> 16);
#endif
    }
    return (const u16a *)(const void *)c->buf + (a - c->lo);
}

HDO_INLINE void mask_start(masks *c, const hdo_attn *s, int b, int h) {
    c->stream = s->mask;
    c->first = hdo__attn_mask_head(s, b, h);
    c->lo = c->hi = 0;
}

static masks mask_take(const hdo_attn *s, hdo_arena *a) {
    masks c = {.words = mask_words(s->T)};
    if (s->dropout > 0.0f) { /* a vector may be read past the last number; what it finds is masked */
        c.buf = (uint32_t *)hdo__arena_take(a, c.words * sizeof(uint32_t) + VB);
        memset(c.buf + c.words, 0, VB);
    }
    return c;
}

/* dst[d][i] = src[i * step + d] * f for i < T, then padding. */
TEMPLATE void gather(int HS, int T, size_t stride, const float *restrict src, size_t step, float f, float pad,
                     float *restrict dst) {
    for (int i = 0; i < T; i++) {
        UNROLL for (int d = 0; d < HS; d++) dst[(size_t)d * stride + (size_t)i] = src[(size_t)i * step + (size_t)d] * f;
    }
    for (int d = 0; d < HS; d++)
        for (size_t i = (size_t)T; i < stride; i++) dst[(size_t)d * stride + i] = pad;
}

/* dst[i * step + d] = src[d][i] * f. */
TEMPLATE void scatter(int HS, int T, size_t stride, const float *restrict src, float f, float *restrict dst,
                      size_t step) {
    for (int i = 0; i < T; i++) {
        UNROLL for (int d = 0; d < HS; d++) dst[(size_t)i * step + (size_t)d] = src[(size_t)d * stride + (size_t)i] * f;
    }
}

TEMPLATE void load_head(int HS, head *x, const float *sample, int D, int h) {
    size_t step = 3 * (size_t)D, off = (size_t)h * (size_t)HS;
    gather(HS, x->T, x->stride, sample + off, step, LOG2E / sqrtf((float)HS), 0.0f, x->q);
    gather(HS, x->T, x->stride, sample + (size_t)D + off, step, 1.0f, 0.0f, x->k);
    gather(HS, x->T, x->stride, sample + 2 * (size_t)D + off, step, 1.0f, 0.0f, x->v);
}

/* m[i] = a bound on the scores of row i. */
TEMPLATE void bound_scores(int HS, head *x) {
    float lo[MAX_HS], hi[MAX_HS];
    size_t last = (size_t)x->T - 1;
    for (int d = 0; d < HS; d++) {
        const float *k = x->k + (size_t)d * x->stride;
        f32v a = splat(k[last]), b = a;
        for (size_t j = 0; j + W <= (size_t)x->T; j += W) {
            a = min_(a, load(k + j));
            b = max_(b, load(k + j));
        }
        for (size_t j = (size_t)x->T / W * W; j < last; j++) {
            a = min_(a, splat(k[j]));
            b = max_(b, splat(k[j]));
        }
        lo[d] = -max_lanes(-a);
        hi[d] = max_lanes(b);
    }
    for (size_t i = 0; i < (size_t)x->T + NR - 1; i += W) {
        f32v m = {0};
        UNROLL for (int d = 0; d < HS; d++) {
            f32v q = load(x->q + (size_t)d * x->stride + i);
            m += max_(q * lo[d], q * hi[d]);
        }
        store(x->m + i, m);
    }
}

/* a.x - m for a row vector a and the W columns at x. */
TEMPLATE f32v score(int HS, const f32v *a, const float *x, size_t stride, f32v minus_m) {
    f32v s = minus_m;
    EACH(d, HS, s = fma_(a[d], load(x + (size_t)d * stride), s));
    return s;
}

/* The exact maximum of row i's scores and the sum of 2^(score - maximum): the slow, safe way. */
TEMPLATE float exact_max(int HS, const head *x, int i, float *sum) {
    f32v q[MAX_HS], top = splat(-HUGE_VALF), total = {0};
    int last = i / W * W;
    for (int d = 0; d < HS; d++) q[d] = splat(x->q[(size_t)d * x->stride + (size_t)i]);
    for (int j = 0; j <= last; j += W) {
        f32v s = score(HS, q, x->k + j, x->stride, (f32v){0});
        if (j == last) {
            u32v in = lanes_to(i - last);
            s = (f32v)(((u32v)s & in) | ((u32v)top & ~in));
        }
        top = max_(top, s);
    }
    float m = max_lanes(top);
    for (int j = 0; j <= last; j += W) {
        f32v p = exp2_join(exp2_split(score(HS, q, x->k + j, x->stride, splat(-m))));
        total += j == last ? and_mask(p, lanes_to(i - last)) : p;
    }
    *sum = sum_lanes(total);
    return m;
}

/* One row of weights on its way through the passes. One row at a time: with two at once, keys are loaded half as often
 * but the constants no longer fit in 16 registers, and it is slower. */
typedef struct row_state {
    int i;
    size_t st;
    const float *k, *v;
    f32v q[MAX_HS], minus_m;
    const u16a *number; /* of weight (i, 0) */
    i32v below;
    f32v sum, acc[MAX_HS];       /* of weights; of what is weighted */
    f32v g[MAX_HS], minus_delta; /* backward */
    float *gk, *gv;              /* backward */
    float *pm, *pa;              /* tangents: where kept weights and all weights go */
} row_state;

/* Field by field: a compound initialiser would zero the arrays in memory and keep them there. */
TEMPLATE void row_init(int HS, row_state *r, const head *x, int i, const u16a *number, i32v below) {
    r->i = i;
    r->st = x->stride;
    r->k = x->k;
    r->v = x->v;
    r->number = number;
    r->below = below;
    r->minus_m = splat(-x->m[i]);
    r->sum = (f32v){0};
    EACH(d, HS, r->q[d] = splat(x->q[(size_t)d * r->st + (size_t)i]); r->acc[d] = (f32v){0});
}

TEMPLATE void weigh_step(int HS, bool DROP, bool KEEP, bool LAST, row_state *r, split e, int j) {
    f32v p = exp2_join(e);
    if (LAST) p = and_mask(p, lanes_to(r->i - j));
    r->sum += p;
    if (KEEP) store(r->pa + j, p);
    if (DROP) p = and_mask(p, kept(r->number + j, r->below));
    if (KEEP && DROP) store(r->pm + j, p);
    EACH(d, HS, r->acc[d] = fma_(p, load(r->v + (size_t)d * r->st + (size_t)j), r->acc[d]));
}

/* Rows i .. i + NR - 1: sums of weights and of weights times values; KEEP: the weights themselves go to x->row too.
 * mask: the numbers of the rows, one after the other. */
TEMPLATE void weigh_rows(int HS, bool DROP, bool KEEP, const head *x, int i, const u16a *mask, i32v below) {
    f32v sum[NR], acc[NR][MAX_HS];
    for (int n = 0; n < NR; n++) {
        row_state r;
        row_init(HS, &r, x, i + n, mask, below);
        if (DROP) mask += i + n + 1;
        if (KEEP) r.pm = x->row + (size_t)(NR * HS + n) * r.st, r.pa = r.pm + NR * r.st;
        split next = exp2_split(score(HS, r.q, r.k, r.st, r.minus_m));
        int j = 0;
        for (; j + W <= i; j += W) {
            split now = next;
            next = exp2_split(score(HS, r.q, r.k + j + W, r.st, r.minus_m));
            weigh_step(HS, DROP, KEEP, false, &r, now, j);
        }
        weigh_step(HS, DROP, KEEP, true, &r, next, j);
        sum[n] = r.sum;
        EACH(d, HS, acc[n][d] = r.acc[d]);
    }
    sum_pair(sum[0], sum[1], x->sum + i);
    EACH(d, HS, sum_pair(acc[0][d], acc[1][d], x->out + (size_t)d * x->stride + (size_t)i));
}

/* The same, with the shift put right, once, when the bound was useless. */
TEMPLATE void weigh_safely(int HS, bool DROP, bool KEEP, const head *x, int i, const u16a *mask, i32v below) {
    for (bool again = false;; again = true) { /* a loop: one copy of the inlined body */
        weigh_rows(HS, DROP, KEEP, x, i, mask, below);
        if (__builtin_expect((x->sum[i] >= SUM_FLOOR && x->sum[i + 1] >= SUM_FLOOR) || again, 1)) return;
        float unused;
        for (int r = 0; r < NR; r++) x->m[i + r] = exact_max(HS, x, i + r, &unused);
    }
}

static head head_take(const hdo_attn *s, hdo_arena *a, bool bwd, int k) {
    head x = {.T = s->T, .stride = stride_of(s->T)};
    size_t n = x.stride, hs = (size_t)s->hs, nk = (size_t)k;
    x.q = hdo__arena_floats(a, hs * n);
    x.k = hdo__arena_floats(a, hs * n);
    x.v = hdo__arena_floats(a, hs * n);
    x.m = hdo__arena_floats(a, n);
    x.sum = hdo__arena_floats(a, n);
    x.out = hdo__arena_floats(a, hs * n);
    if (bwd) {
        x.g = hdo__arena_floats(a, hs * n);
        x.delta = hdo__arena_floats(a, n);
        x.gq = hdo__arena_floats(a, hs * n);
        x.gk = hdo__arena_floats(a, hs * n);
        x.gv = hdo__arena_floats(a, hs * n);
    }
    if (k > 0) {
        x.row = hdo__arena_floats(a, NR * (hs + 2) * n);
        x.tq = hdo__arena_floats(a, nk * hs * n);
        x.tk = hdo__arena_floats(a, nk * hs * n);
        x.tv = hdo__arena_floats(a, nk * hs * n);
        x.tout = hdo__arena_floats(a, nk * hs * n);
    }
    return x;
}

#endif
