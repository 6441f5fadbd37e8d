/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention for tiny heads (head size 1, 2, 4 or 8); compiled once per instruction set. How one head is laid out
 * and weighed, and why by hand: simd_attn.h. Here are the passes over all heads.
 *
 * Backward recomputes the weights as 2^(q.k - lse). A float holds lse to 2^-24 relative, so for |lse| > 64 that would
 * cost digits: those rows are normalised anew from the scores (exact maximum, then sum).
 *
 * Tangents. With W_dj = P_j (keep_j v_dj - out_d) the tangent of the output is
 *   dout_d = sum_j W_dj (dq.k_j + q.dk_j) + P_j keep_j dv_dj.
 * W and the small matrix sum_j W_dj k_ej (which takes care of dq) depend on the point only. They are made once per pair
 * of rows; each tangent then costs 3 hs multiply-adds a weight and no exponential.
 */
#include "kernels/simd_attn.h"

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
