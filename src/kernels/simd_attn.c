/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention for tiny heads (head size 1, 2, 4 or 8); compiled once per instruction set.
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
 *
 * Backward recomputes the weights as 2^(q.k - lse). A float holds lse to 2^-24 relative, so for |lse| > 64 that would
 * cost digits: those rows are normalised anew from the scores (exact maximum, then sum).
 *
 * Tangents. With W_dj = P_j (keep_j v_dj - out_d) the tangent of the output is
 *   dout_d = sum_j W_dj (dq.k_j + q.dk_j) + P_j keep_j dv_dj.
 * W and the small matrix sum_j W_dj k_ej (which takes care of dq) depend on the point only. They are made once per pair
 * of rows; each tangent then costs 3 hs multiply-adds a weight and no exponential.
 */
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

static bool tiny(const hdo_attn *s) {
    return s->hs == 1 || s->hs == 2 || s->hs == 4 || s->hs == 8;
}

static size_t attn_work_(const hdo_attn *s, int k) {
    if (!tiny(s)) return hdo__ref_attn_work(s, k);
    size_t n = stride_of(s->T) * sizeof(float), hs = (size_t)s->hs, nk = (size_t)(k > 0 ? k : 0);
    size_t fwd = 4 * hdo__arena_round(hs * n) + 2 * hdo__arena_round(n) +
                 hdo__arena_round(mask_words(s->T) * sizeof(uint32_t) + VB);
    size_t bwd = 4 * hdo__arena_round(hs * n) + hdo__arena_round(n);
    size_t jvp = nk > 0 ? hdo__arena_round(NR * (hs + 2) * n) + 4 * hdo__arena_round(nk * hs * n) : 0;
    return fwd + (bwd > jvp ? bwd : jvp);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

TEMPLATE void fwd(int HS, bool DROP, const hdo_attn *s, const float *qkv, float *out, float *lse, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), T = (size_t)s->T;
    int D = s->heads * HS;
    head x = head_take(s, a, false, 0);
    masks c = mask_take(s, a);
    const i32v below = (i32v){0} + ((int32_t)hdo__attn_mask_limit(s->dropout) - 1);
    const float up = DROP ? 1.0f / (1.0f - s->dropout) : 1.0f;
    for (int b = 0; b < s->B; b++) {
        for (int h = 0; h < s->heads; h++) {
            load_head(HS, &x, qkv + (size_t)b * T * 3 * (size_t)D, D, h);
            bound_scores(HS, &x);
            if (DROP) mask_start(&c, s, b, h);
            for (int i = 0; i < s->T; i += NR)
                weigh_safely(HS, DROP, false, &x, i, DROP ? mask_rows(&c, s->T, i) : NULL, below);
            for (size_t i = 0; i < T; i += W) {
                f32v f = up / load(x.sum + i);
                UNROLL for (int d = 0; d < HS; d++) {
                    float *o = x.out + (size_t)d * x.stride + i;
                    store(o, load(o) * f);
                }
            }
            scatter(HS, s->T, x.stride, x.out, 1.0f, out + (size_t)b * T * (size_t)D + (size_t)h * (size_t)HS,
                    (size_t)D);
            if (lse != NULL) {
                for (size_t i = 0; i < T; i += W) store(x.m + i, (load(x.m + i) + log2_(load(x.sum + i))) * LN2);
                memcpy(lse + ((size_t)b * (size_t)s->heads + (size_t)h) * T, x.m, T * sizeof(float));
            }
        }
    }
    hdo__arena_rewind(a, mark);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

TEMPLATE void bwd_step(int HS, bool DROP, bool LAST, row_state *r, split e, int j) {
    f32v p = exp2_join(e), ds, pm;
    if (LAST) p = and_mask(p, lanes_to(r->i - j));
    if (DROP) {
        u32v keep = kept(r->number + j, r->below);
        ds = p * (and_mask(score(HS, r->g, r->v + j, r->st, (f32v){0}), keep) + r->minus_delta);
        pm = and_mask(p, keep);
    } else {
        ds = p * score(HS, r->g, r->v + j, r->st, r->minus_delta);
        pm = p;
    }
    const float *k = r->k + j;
    float *gk = r->gk + j, *gv = r->gv + j;
    EACH(d, HS, r->acc[d] = fma_(ds, load(k + d * r->st), r->acc[d]));
    EACH(d, HS, store(gk + d * r->st, fma_(ds, r->q[d], load(gk + d * r->st))));
    EACH(d, HS, store(gv + d * r->st, fma_(pm, r->g[d], load(gv + d * r->st))));
}

TEMPLATE void bwd_rows(int HS, bool DROP, const head *x, int i, const u16a *mask, i32v below) {
    f32v gq[NR][MAX_HS];
    for (int n = 0; n < NR; n++) {
        row_state r;
        row_init(HS, &r, x, i + n, mask, below);
        if (DROP) mask += i + n + 1;
        r.gk = x->gk, r.gv = x->gv;
        r.minus_delta = splat(-x->delta[i + n]);
        EACH(d, HS, r.g[d] = splat(x->g[(size_t)d * r.st + (size_t)(i + n)]));
        split next = exp2_split(score(HS, r.q, r.k, r.st, r.minus_m));
        int j = 0;
        for (; j + W <= i; j += W) {
            split now = next;
            next = exp2_split(score(HS, r.q, r.k + j + W, r.st, r.minus_m));
            bwd_step(HS, DROP, false, &r, now, j);
        }
        bwd_step(HS, DROP, true, &r, next, j);
        EACH(d, HS, gq[n][d] = r.acc[d]);
    }
    EACH(d, HS, sum_pair(gq[0][d], gq[1][d], x->gq + (size_t)d * x->stride + (size_t)i));
}

TEMPLATE void bwd(int HS, bool DROP, const hdo_attn *s, const float *qkv, const float *out, const float *lse,
                  const float *dout, float *dqkv, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), T = (size_t)s->T;
    int D = s->heads * HS;
    head x = head_take(s, a, true, 0);
    masks c = mask_take(s, a);
    const i32v below = (i32v){0} + ((int32_t)hdo__attn_mask_limit(s->dropout) - 1);
    const float up = DROP ? 1.0f / (1.0f - s->dropout) : 1.0f, scale = 1.0f / sqrtf((float)HS);
    for (int b = 0; b < s->B; b++) {
        for (int h = 0; h < s->heads; h++) {
            size_t row = (size_t)b * T * (size_t)D + (size_t)h * (size_t)HS, step = 3 * (size_t)D;
            const float *l = lse + ((size_t)b * (size_t)s->heads + (size_t)h) * T;
            load_head(HS, &x, qkv + (size_t)b * T * step, D, h);
            gather(HS, s->T, x.stride, dout + row, (size_t)D, up, 0.0f, x.g);
            gather(HS, s->T, x.stride, out + row, (size_t)D, 1.0f / up, 0.0f, x.out);
            memset(x.gk, 0, (size_t)HS * x.stride * sizeof(float));
            memset(x.gv, 0, (size_t)HS * x.stride * sizeof(float));
            for (size_t i = 0; i < T; i++) x.m[i] = l[i] * LOG2E;
            for (size_t i = T; i < x.stride; i++) x.m[i] = 0.0f;
            for (size_t i = 0; i < x.stride; i += W) {
                f32v t = {0};
                UNROLL for (int d = 0; d < HS; d++) t =
                    fma_(load(x.g + (size_t)d * x.stride + i), load(x.out + (size_t)d * x.stride + i), t);
                store(x.delta + i, t);
            }
            for (size_t i = 0; i < T; i++) {
                if (__builtin_expect(fabsf(l[i]) <= LSE_TRUST, 1)) continue;
                float sum; /* weights come out sum times too large; everything they meet is divided by sum instead */
                x.m[i] = exact_max(HS, &x, (int)i, &sum);
                for (int d = 0; d < HS; d++) x.g[(size_t)d * x.stride + i] /= sum;
                x.delta[i] /= sum;
            }
            if (DROP) mask_start(&c, s, b, h);
            for (int i = 0; i < s->T; i += NR) bwd_rows(HS, DROP, &x, i, DROP ? mask_rows(&c, s->T, i) : NULL, below);
            float *d0 = dqkv + (size_t)b * T * step + (size_t)h * (size_t)HS;
            scatter(HS, s->T, x.stride, x.gq, scale, d0, step);
            scatter(HS, s->T, x.stride, x.gk, LN2, d0 + D, step); /* q carries log2(e) / sqrt(hs) */
            scatter(HS, s->T, x.stride, x.gv, 1.0f, d0 + 2 * (size_t)D, step);
        }
    }
    hdo__arena_rewind(a, mark);
}

/* ---- tangents ---------------------------------------------------------------------------------------------------- */

/* After weigh_rows: W and its products with the keys. mat[r][d][e] = sum_j W_dj k_ej. W, and all that follows from it,
 * lacks the factor up / sum of the row. */
TEMPLATE void tangent_matrix(int HS, bool DROP, const head *x, int i, float centre[NR][MAX_HS],
                             float mat[NR][MAX_HS][MAX_HS]) {
    const size_t st = x->stride;
    const float *pm = x->row + (size_t)(NR * HS) * st, *pa = pm + NR * st;
    if (!DROP) pm = pa;
    for (int r = 0; r < NR; r++) {
        f32v acc[MAX_HS][MAX_HS], o[MAX_HS];
        UNROLL for (int d = 0; d < HS; d++) {
            o[d] = splat(centre[r][d]);
            UNROLL for (int e = 0; e < HS; e++) acc[d][e] = (f32v){0};
        }
        for (int j = 0; j <= i; j += W) {
            f32v p = load(pa + (size_t)r * st + (size_t)j), kp = load(pm + (size_t)r * st + (size_t)j);
            UNROLL for (int d = 0; d < HS; d++) {
                f32v v = load(x->v + (size_t)d * st + (size_t)j);
                f32v w = DROP ? fnma_(p, o[d], kp * v) : p * (v - o[d]);
                store(x->row + (size_t)(r * HS + d) * st + (size_t)j, w);
                UNROLL for (int e = 0; e < HS; e++) acc[d][e] =
                    fma_(w, load(x->k + (size_t)e * st + (size_t)j), acc[d][e]);
            }
        }
        UNROLL for (int d = 0; d < HS; d++) {
            UNROLL for (int e = 0; e < HS; e++) mat[r][d][e] = sum_lanes(acc[d][e]);
        }
    }
}

/* One tangent, rows i .. i + NR - 1. */
TEMPLATE void tangent_rows(int HS, bool DROP, const head *x, int t, int i) {
    const size_t st = x->stride;
    const float *w = x->row, *pm = w + (size_t)(NR * HS) * st;
    const float *tk = x->tk + (size_t)(t * HS) * st, *tv = x->tv + (size_t)(t * HS) * st;
    if (!DROP) pm += NR * st;
    f32v q0[MAX_HS], q1[MAX_HS], a0[MAX_HS], a1[MAX_HS]; /* of the two rows */
    EACH(d, HS, q0[d] = splat(x->q[d * st + (size_t)i]); a0[d] = (f32v){0});
    EACH(d, HS, q1[d] = splat(x->q[d * st + (size_t)i + 1]); a1[d] = (f32v){0});
    for (int j = 0; j <= i; j += W) {
        const float *w0 = w + j, *w1 = w0 + (size_t)HS * st, *v = tv + j;
        f32v u0 = score(HS, q0, tk + j, st, (f32v){0}), u1 = score(HS, q1, tk + j, st, (f32v){0});
        f32v p0 = load(pm + j), p1 = load(pm + st + j);
        EACH(d, HS, a0[d] = fma_(load(w0 + d * st), u0, a0[d]); a1[d] = fma_(load(w1 + d * st), u1, a1[d]));
        EACH(d, HS, a0[d] = fma_(p0, load(v + d * st), a0[d]); a1[d] = fma_(p1, load(v + d * st), a1[d]));
    }
    EACH(d, HS, sum_pair(a0[d], a1[d], x->tout + ((size_t)(t * HS) + d) * st + (size_t)i));
}

TEMPLATE void jvp(int HS, bool DROP, const hdo_attn *s, int k, const float *qkv, const float *dqkv, float *out,
                  float *dout, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), T = (size_t)s->T;
    int D = s->heads * HS;
    head x = head_take(s, a, false, k);
    masks c = mask_take(s, a);
    const i32v below = (i32v){0} + ((int32_t)hdo__attn_mask_limit(s->dropout) - 1);
    const float up = DROP ? 1.0f / (1.0f - s->dropout) : 1.0f, scale = 1.0f / sqrtf((float)HS);
    for (int b = 0; b < s->B; b++) {
        for (int h = 0; h < s->heads; h++) {
            size_t row = (size_t)b * T * (size_t)D + (size_t)h * (size_t)HS, step = 3 * (size_t)D;
            size_t comp = (size_t)HS * x.stride;
            load_head(HS, &x, qkv + (size_t)b * T * step, D, h);
            bound_scores(HS, &x);
            for (int t = 0; t < k; t++) {
                const float *d0 = dqkv + ((size_t)t * (size_t)s->B + (size_t)b) * T * step + (size_t)h * (size_t)HS;
                gather(HS, s->T, x.stride, d0, step, scale, 0.0f, x.tq + (size_t)t * comp);
                gather(HS, s->T, x.stride, d0 + D, step, LN2, 0.0f, x.tk + (size_t)t * comp);
                gather(HS, s->T, x.stride, d0 + 2 * (size_t)D, step, 1.0f, 0.0f, x.tv + (size_t)t * comp);
            }
            if (DROP) mask_start(&c, s, b, h);
            for (int i = 0; i < s->T; i += NR) {
                float centre[NR][MAX_HS], mat[NR][MAX_HS][MAX_HS], f[NR];
                weigh_safely(HS, DROP, true, &x, i, DROP ? mask_rows(&c, s->T, i) : NULL, below);
                for (int r = 0; r < NR; r++) {
                    f[r] = up / x.sum[i + r];
                    for (int d = 0; d < HS; d++) {
                        float *o = x.out + (size_t)d * x.stride + (size_t)(i + r);
                        centre[r][d] = *o / x.sum[i + r]; /* the output without the factor up */
                        *o = centre[r][d] * up;
                    }
                }
                tangent_matrix(HS, DROP, &x, i, centre, mat);
                for (int t = 0; t < k; t++) {
                    tangent_rows(HS, DROP, &x, t, i);
                    const float *tq = x.tq + (size_t)t * comp + (size_t)i;
                    float *o = x.tout + (size_t)t * comp + (size_t)i;
                    UNROLL for (int d = 0; d < HS; d++) {
                        UNROLL for (int r = 0; r < NR; r++) {
                            float y = o[(size_t)d * x.stride + (size_t)r];
                            UNROLL for (int e = 0; e < HS; e++) y +=
                                mat[r][d][e] * tq[(size_t)e * x.stride + (size_t)r];
                            o[(size_t)d * x.stride + (size_t)r] = y * f[r];
                        }
                    }
                }
            }
            scatter(HS, s->T, x.stride, x.out, 1.0f, out + row, (size_t)D);
            for (int t = 0; t < k; t++)
                scatter(HS, s->T, x.stride, x.tout + (size_t)t * comp, 1.0f,
                        dout + (size_t)t * (size_t)s->B * T * (size_t)D + row, (size_t)D);
        }
    }
    hdo__arena_rewind(a, mark);
}

/* ---- one instance per head size, with and without dropout -------------------------------------------------------- */

#define INSTANCE(HS, DROP)                                                                                             \
    static void fwd_##HS##_##DROP(const hdo_attn *s, const float *qkv, float *out, float *lse, hdo_arena *a) {         \
        fwd(HS, DROP, s, qkv, out, lse, a);                                                                            \
    }                                                                                                                  \
    static void bwd_##HS##_##DROP(const hdo_attn *s, const float *qkv, const float *out, const float *lse,             \
                                  const float *dout, float *dqkv, hdo_arena *a) {                                      \
        bwd(HS, DROP, s, qkv, out, lse, dout, dqkv, a);                                                                \
    }                                                                                                                  \
    static void jvp_##HS##_##DROP(const hdo_attn *s, int k, const float *qkv, const float *dqkv, float *out,           \
                                  float *dout, hdo_arena *a) {                                                         \
        jvp(HS, DROP, s, k, qkv, dqkv, out, dout, a);                                                                  \
    }
INSTANCE(1, 0)
INSTANCE(1, 1)
INSTANCE(2, 0)
INSTANCE(2, 1)
INSTANCE(4, 0)
INSTANCE(4, 1)
INSTANCE(8, 0)
INSTANCE(8, 1)

#define CHOOSE(pass, ...)                                                                                              \
    do {                                                                                                               \
        bool drop = s->dropout > 0.0f;                                                                                 \
        switch (s->hs) {                                                                                               \
        case 1: (drop ? pass##_1_1 : pass##_1_0)(__VA_ARGS__); return;                                                 \
        case 2: (drop ? pass##_2_1 : pass##_2_0)(__VA_ARGS__); return;                                                 \
        case 4: (drop ? pass##_4_1 : pass##_4_0)(__VA_ARGS__); return;                                                 \
        case 8: (drop ? pass##_8_1 : pass##_8_0)(__VA_ARGS__); return;                                                 \
        default: hdo__ref_attn_##pass(__VA_ARGS__); return;                                                            \
        }                                                                                                              \
    } while (0)

static void attn_fwd_(const hdo_attn *s, const float *qkv, float *out, float *lse, hdo_arena *a) {
    CHOOSE(fwd, s, qkv, out, lse, a);
}

static void attn_bwd_(const hdo_attn *s, const float *qkv, const float *out, const float *lse, const float *dout,
                      float *dqkv, hdo_arena *a) {
    CHOOSE(bwd, s, qkv, out, lse, dout, dqkv, a);
}

static void attn_jvp_(const hdo_attn *s, int k, const float *qkv, const float *dqkv, float *out, float *dout,
                      hdo_arena *a) {
    CHOOSE(jvp, s, k, qkv, dqkv, out, dout, a);
}

const hdo_attn_simd HDO_CAT(hdo__attn, HDO_ISA) = {
    .attn_fwd = attn_fwd_,
    .attn_bwd = attn_bwd_,
    .attn_jvp = attn_jvp_,
    .attn_work = attn_work_,
    .vexp = HDO_ISA_FN(hdo__vexp),
    .gelu = HDO_ISA_FN(hdo__gelu),
};
