/* SPDX-License-Identifier: Apache-2.0
 *
 * Direct convolution for few channels: stride 1, odd square kernel, padding that keeps the size ("same").
 *
 * The idea: copy an image into rows of Wp = W + pad floats with zeros between them (the zeros behind a row are the
 * zeros before the next one). Then output pixel i of the flat padded image is sum_t w[t] x[i + off[t]] with one table
 * of offsets: no edges, no column matrix, vectors run over row ends, and only pad / Wp of the work is thrown away (7 %
 * at 14 x 14; a row-by-row kernel of vectors of 8 would throw away 12 %). Padded images live in the first-level cache.
 *
 * - forward: DO channels times DV vectors of pixels in registers, one broadcast weight each.
 * - bwd_x: the same kernel, source dy, weights transposed and turned by 180 degrees.
 * - bwd_w: dot products along the flat image: DO channels of dy (zeros between rows) times DT shifted views of x.
 */
#include "kernels/simd_mm.h"

#define DO 4 /* output channels; 4 x 3 sums + 3 vectors + 1 broadcast = 16 registers */
#define DV 3 /* vectors of pixels */
#define DT 3 /* taps */
#define IMAGE_BYTES ((size_t)24 << 10)
#define GROUP_BYTES ((size_t)20 << 10) /* bwd_w: x and dy of as many samples as fit are summed in registers */

typedef struct flat {
    size_t H, W, pad, Wp;
    size_t taps;
    size_t image; /* floats of a padded channel, with a vector of slack */
    size_t len;   /* flat outputs of one channel, whole vectors */
} flat;

static flat flat_of(const hdo_conv *c) {
    flat f = {.H = (size_t)c->H, .W = (size_t)c->W, .pad = (size_t)c->pad};
    f.Wp = f.W + f.pad;
    f.taps = (size_t)c->kh * (size_t)c->kw;
    f.len = ((f.H - 1) * f.Wp + f.W + VL - 1) / VL * VL;
    size_t reach = 2 * f.pad * f.Wp + 2 * f.pad; /* offset of the last tap */
    f.image = (f.len + reach + 2 * VL - 1) / VL * VL;
    return f;
}

/* Measured against the implicit product (bench_kernels): the direct kernels win up to 32 channels, and up to 64 in the
 * forward kernel while a padded image of all source channels fits the first-level cache. */
static bool same_size(const hdo_conv *c) {
    return c->stride == 1 && c->kh == c->kw && c->kh % 2 == 1 && c->kh <= 7 && c->pad == c->kh / 2 && c->W >= 5 &&
           c->H >= 5 && whole_C(c) <= 64 && whole_O(c) <= 64;
}

bool HDO_ISA_FN(hdo__direct_fits)(const hdo_conv *c) {
    size_t most = (size_t)(whole_C(c) > whole_O(c) ? whole_C(c) : whole_O(c));
    return same_size(c) && (most <= 32 || most * flat_of(c).image * sizeof(float) <= IMAGE_BYTES);
}

bool HDO_ISA_FN(hdo__direct_fits_w)(const hdo_conv *c) {
    return same_size(c) && whole_C(c) <= 32 && whole_O(c) <= 32;
}

/* Rows of W floats into rows of Wp floats. Each row is written in whole vectors, zeros behind its end: these fall on
 * padding or on the next row, which is written next. */
MM_INLINE void spread_rows(const flat *f, const float *src, float *dst) {
    size_t full = f->W / VL * VL, rest = f->W - full;
    for (size_t y = 0; y < f->H; y++, src += f->W, dst += f->Wp) {
        for (size_t i = 0; i < full; i += VL) v_store(dst + i, v_load(src + i));
        if (rest > 0) v_store(dst + full, v_load_part(src + full, rest));
    }
}

/* The other way: rows of Wp floats into rows of W, nothing written behind the last. */
MM_INLINE void gather_rows(const flat *f, const float *src, float *dst) {
    size_t W = f->W, full = W / VL * VL, total = f->H * W;
    for (size_t y = 0; y < f->H; y++, src += f->Wp) {
        float *d = dst + y * W;
        for (size_t i = 0; i < full; i += VL) v_store(d + i, v_load(src + i));
        if (full == W) continue;
        if (W > VL)
            v_store(d + W - VL, v_load(src + W - VL)); /* overlaps what is there already */
        else if (y * W + VL <= total)
            v_store(d, v_load(src)); /* runs into the next row, written next */
        else
            for (size_t i = 0; i < W; i++) d[i] = src[i];
    }
}

/* All S channels of one image into padded form; `pads` must be zero outside the images already. */
static void pad_image(const flat *f, size_t S, const float *src, float *pads) {
    for (size_t s = 0; s < S; s++) spread_rows(f, src + s * f->H * f->W, pads + s * f->image + f->pad * f->Wp + f->pad);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* out (mo, nv vectors; rows f->len apart) = bias + sum_k w[k * DO + m] x[off[k] ...] */
MM_INLINE void fwd_tile(int mo, int nv, size_t K, const int32_t *off, const float *x, const float *w, const float *bias,
                        float *out, size_t ldo) {
    vec acc[DO][DV];
    MM_UNROLL for (int m = 0; m < mo; m++) {
        MM_UNROLL for (int v = 0; v < nv; v++) acc[m][v] = v_set1(bias[m]);
    }
    for (size_t k = 0; k < K; k++, w += DO) {
        const float *p = x + off[k];
        vec in[DV];
        MM_UNROLL for (int v = 0; v < nv; v++) in[v] = v_load(p + v * VL);
        MM_UNROLL for (int m = 0; m < mo; m++) {
            vec a = v_set1(w[m]);
            MM_UNROLL for (int v = 0; v < nv; v++) acc[m][v] = v_fma(a, in[v], acc[m][v]);
        }
    }
    MM_UNROLL for (int m = 0; m < mo; m++) {
        MM_UNROLL for (int v = 0; v < nv; v++) v_store(out + (size_t)m * ldo + (size_t)v * VL, acc[m][v]);
    }
}

typedef void fwd_fn(const flat *f, size_t K, const int32_t *off, const float *x, const float *w, const float *bias,
                    float *out);

/* One block of output channels over one image: threes of vectors, and twos at the end rather than a lonely one. */
#define FWD_BLOCK(mo)                                                                                                  \
    static void fwd_block##mo(const flat *f, size_t K, const int32_t *off, const float *x, const float *w,             \
                              const float *bias, float *out) {                                                         \
        size_t i = 0;                                                                                                  \
        for (; i + DV * VL <= f->len && f->len - i != 4 * VL; i += DV * VL)                                            \
            fwd_tile(mo, 3, K, off, x + i, w, bias, out + i, f->len);                                                  \
        for (; i + 2 * VL <= f->len; i += 2 * VL) fwd_tile(mo, 2, K, off, x + i, w, bias, out + i, f->len);            \
        if (i < f->len) fwd_tile(mo, 1, K, off, x + i, w, bias, out + i, f->len);                                      \
    }
FWD_BLOCK(1)
FWD_BLOCK(2)
FWD_BLOCK(3)
FWD_BLOCK(4)
static fwd_fn *const fwd_blocks[DO + 1] = {NULL, fwd_block1, fwd_block2, fwd_block3, fwd_block4};

static size_t blocks_of(size_t M) {
    return (M + DO - 1) / DO;
}

/* dst (B, M, H, W) = bias + conv of src (B, S, H, W) with packed weights wp (blocks of M, S * taps, DO). */
static void run_fwd(const flat *f, size_t B, size_t S, size_t M, const float *src, size_t src_step, const float *wp,
                    const float *bias, float *dst, size_t dst_step, hdo_arena *a) {
    size_t map = f->H * f->W, K = S * f->taps, side = 2 * f->pad + 1;
    float *pads = hdo__arena_floats(a, S * f->image), *out = hdo__arena_floats(a, DO * f->len);
    float *start = hdo__arena_floats(a, blocks_of(M) * DO); /* bias, padded with zeros */
    int32_t *off = hdo__arena_take(a, K * sizeof *off);
    memset(pads, 0, S * f->image * sizeof *pads);
    for (size_t m = 0; m < blocks_of(M) * DO; m++) start[m] = bias != NULL && m < M ? bias[m] : 0;
    for (size_t k = 0; k < K; k++) {
        size_t t = k % f->taps;
        off[k] = (int32_t)(k / f->taps * f->image + t / side * f->Wp + t % side);
    }
    for (size_t b = 0; b < B; b++) {
        pad_image(f, S, src + b * src_step, pads);
        for (size_t m = 0; m < M; m += DO) {
            size_t mo = M - m < DO ? M - m : DO;
            fwd_blocks[mo](f, K, off, pads, wp + m * K, start + m, out);
            for (size_t i = 0; i < mo; i++) gather_rows(f, out + i * f->len, dst + b * dst_step + (m + i) * map);
        }
    }
}

void HDO_ISA_FN(hdo__direct_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                                 hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), C = (size_t)c->C, O = (size_t)c->O;
    flat f = flat_of(c);
    size_t K = C * f.taps;
    float *wp = hdo__arena_floats(a, blocks_of(O) * DO * K);
    for (size_t o = 0; o < O; o++)
        for (size_t k = 0; k < K; k++) wp[o / DO * DO * K + k * DO + o % DO] = w[o * c->w_step + k];
    run_fwd(&f, (size_t)c->B, C, O, x, c->x_step, wp, bias, y, c->y_step, a);
    hdo__arena_rewind(a, mark);
}

void HDO_ISA_FN(hdo__direct_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), C = (size_t)c->C, O = (size_t)c->O;
    flat f = flat_of(c);
    size_t K = O * f.taps, T = f.taps;
    float *wp = hdo__arena_floats(a, blocks_of(C) * DO * K);
    for (size_t i = 0; i < C; i++)
        for (size_t o = 0; o < O; o++)
            for (size_t t = 0; t < T; t++)
                wp[i / DO * DO * K + (o * T + t) * DO + i % DO] = w[o * c->w_step + i * T + (T - 1 - t)];
    run_fwd(&f, (size_t)c->B, O, C, dy, c->y_step, wp, NULL, dx, c->x_step, a);
    hdo__arena_rewind(a, mark);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

typedef struct group {          /* padded samples side by side */
    size_t G;                   /* samples in this group */
    size_t x_step, g_step, len; /* floats between samples of x and of dy; flat length */
    size_t g_image;             /* floats between channels of dy */
} group;

/* sum (mo, nt, VL) += dot products of mo channels of dy with nt views of x, lane by lane; sums ldm vectors apart. */
MM_INLINE void dot_tile(int mo, int nt, const group *q, const float *x, const int32_t *off, const float *g, float *sum,
                        size_t ldm) {
    vec acc[DO][DT];
    MM_UNROLL for (int m = 0; m < mo; m++) {
        MM_UNROLL for (int t = 0; t < nt; t++) acc[m][t] = v_zero();
    }
    for (size_t b = 0; b < q->G; b++) {
        const float *x0 = x + b * q->x_step, *gb = g + b * q->g_step;
        for (size_t i = 0; i < q->len; i += VL) {
            vec in[DT];
            MM_UNROLL for (int t = 0; t < nt; t++) in[t] = v_load(x0 + i + off[t]);
            MM_UNROLL for (int m = 0; m < mo; m++) {
                vec d = v_load(gb + (size_t)m * q->g_image + i);
                MM_UNROLL for (int t = 0; t < nt; t++) acc[m][t] = v_fma(d, in[t], acc[m][t]);
            }
        }
    }
    MM_UNROLL for (int m = 0; m < mo; m++) {
        MM_UNROLL for (int t = 0; t < nt; t++) {
            float *s = sum + ((size_t)m * ldm + (size_t)t) * VL;
            v_store(s, v_add(v_load(s), acc[m][t]));
        }
    }
}

typedef void dot_fn(const group *q, size_t taps, const float *x, const int32_t *off, const float *g, float *sum,
                    size_t ldm);

#define DOT_BLOCK(mo)                                                                                                  \
    static void dot_block##mo(const group *q, size_t taps, const float *x, const int32_t *off, const float *g,         \
                              float *sum, size_t ldm) {                                                                \
        size_t t = 0;                                                                                                  \
        for (; t + DT <= taps && taps - t != 4; t += DT) dot_tile(mo, 3, q, x, off + t, g, sum + t * VL, ldm);         \
        for (; t + 2 <= taps; t += 2) dot_tile(mo, 2, q, x, off + t, g, sum + t * VL, ldm);                            \
        if (t < taps) dot_tile(mo, 1, q, x, off + t, g, sum + t * VL, ldm);                                            \
    }
DOT_BLOCK(1)
DOT_BLOCK(2)
DOT_BLOCK(3)
DOT_BLOCK(4)
static dot_fn *const dot_blocks[DO + 1] = {NULL, dot_block1, dot_block2, dot_block3, dot_block4};

static size_t group_size(const flat *f, size_t B, size_t C, size_t O) {
    size_t one = (C * f->image + O * (f->len + VL)) * sizeof(float), n = GROUP_BYTES / one;
    if (n < 1) n = 1;
    return n < B ? n : B;
}

void HDO_ISA_FN(hdo__direct_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), B = (size_t)c->B, C = (size_t)c->C, O = (size_t)c->O;
    flat f = flat_of(c);
    size_t map = f.H * f.W, side = 2 * f.pad + 1, most = group_size(&f, B, C, O);
    group q = {.x_step = C * f.image, .g_step = O * (f.len + VL), .len = f.len, .g_image = f.len + VL};
    float *xs = hdo__arena_floats(a, most * q.x_step), *gs = hdo__arena_floats(a, most * q.g_step);
    float *sum = hdo__arena_floats(a, O * C * f.taps * VL);
    int32_t *off = hdo__arena_take(a, f.taps * sizeof *off);
    memset(xs, 0, most * q.x_step * sizeof *xs);
    memset(gs, 0, most * q.g_step * sizeof *gs);
    memset(sum, 0, O * C * f.taps * VL * sizeof *sum);
    for (size_t t = 0; t < f.taps; t++) off[t] = (int32_t)(t / side * f.Wp + t % side);
    for (size_t b0 = 0; b0 < B; b0 += most) {
        q.G = B - b0 < most ? B - b0 : most;
        for (size_t b = 0; b < q.G; b++) {
            pad_image(&f, C, x + (b0 + b) * c->x_step, xs + b * q.x_step);
            for (size_t o = 0; o < O; o++)
                spread_rows(&f, dy + (b0 + b) * c->y_step + o * map, gs + b * q.g_step + o * q.g_image);
        }
        for (size_t o = 0; o < O; o += DO) {
            size_t mo = O - o < DO ? O - o : DO;
            for (size_t i = 0; i < C; i++)
                dot_blocks[mo](&q, f.taps, xs + i * f.image, off, gs + o * q.g_image, sum + (o * C + i) * f.taps * VL,
                               C * f.taps);
        }
    }
    size_t row = C * f.taps;
    for (size_t i = 0; i < O * row; i++) dw[i / row * c->w_step + i % row] = v_sum(v_load(sum + i * VL));
    hdo__arena_rewind(a, mark);
}

size_t HDO_ISA_FN(hdo__direct_work)(const hdo_conv *c) {
    flat f = flat_of(c);
    size_t C = (size_t)c->C, O = (size_t)c->O, most = C > O ? C : O, n = group_size(&f, (size_t)c->B, C, O);
    size_t fwd = hdo__arena_round(blocks_of(most) * DO * most * f.taps * sizeof(float)) +
                 hdo__arena_round(most * f.image * sizeof(float)) + hdo__arena_round(DO * f.len * sizeof(float)) +
                 hdo__arena_round(blocks_of(most) * DO * sizeof(float)) +
                 hdo__arena_round(most * f.taps * sizeof(int32_t));
    size_t bwd = hdo__arena_round(n * C * f.image * sizeof(float)) +
                 hdo__arena_round(n * O * (f.len + VL) * sizeof(float)) +
                 hdo__arena_round(O * C * f.taps * VL * sizeof(float)) + hdo__arena_round(f.taps * sizeof(int32_t));
    return fwd > bwd ? fwd : bwd;
}
