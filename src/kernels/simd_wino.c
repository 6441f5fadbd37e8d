/* SPDX-License-Identifier: Apache-2.0
 *
 * Winograd convolution: 3 x 3, stride 1, padding 1, many channels on small maps. Maps are cut into tiles; a tile, a
 * kernel and a result are turned into P numbers each (one axis at a time), in which the convolution is a product number
 * by number, so that all channels and tiles together are P matrix products.
 *
 *   m = 4   tiles of 4 x 4 outputs, 6 x 6 inputs: P = 36 multiplications instead of 144 (100 on a 4 x 4 map, whose
 *           border taps are outside). Toom-Cook with the points 0, +-a, +-b and infinity.
 *   m = 2   the whole 2 x 2 map: on one axis two outputs from two inputs and three taps, a 2 x 2 Toeplitz matrix, take
 * 3 multiplications instead of 4: P = 9 instead of 16.
 *
 * - forward: result = out(sum over channels of in(x) weights(w)); bwd_x the same from dy with turned kernels;
 * - bwd_w: the transposed transforms: dw = weights'(sum over tiles of out'(dy) in(x)).
 *
 * Lanes are channels in all transforms. A sample's result does not depend on the batch around it.
 *
 * Rounding. With the points 5/8 and 3/2 (oneDNN's) the error is 1.8 times that of a plain sum of 576 terms, with 1 and
 * 2 four times (test_conv_winograd_error bounds it). On resnet18 the noise of the loss grows from 1.2e-6 to 1.5e-6 at
 * batch 50, a hundredth of what differences at nu = 1e-4 see. Larger tiles would save more and lose digits fast.
 */
#include "kernels/simd_igemm.h"

/* Transformed samples of a block. Another block means kernels again (forward) or samples again (bwd_w). */
#define FORWARD_BYTES ((size_t)1 << 20)
#define WEIGHT_BYTES ((size_t)4 << 20)
#define BLOCK 32 /* results at a time: their kernels and products stay in the second-level cache */
#define CHANNELS 48
#define POINTS_MAX 6
#define MARGIN 16 /* floats between planes: without it all P planes would fall on one set of the first-level cache */

/* ---- one axis ---------------------------------------------------------------------------------------------------- */

#define PA 0.625f
#define PB 1.5f
#define A2 (PA * PA)
#define B2 (PB * PB)
#define A3 (A2 * PA)
#define B3 (B2 * PB)
#define N0 (1 / (A2 * B2)) /* 1 / product of the differences to the other points */
#define NA (1 / (2 * A2 * (A2 - B2)))
#define NB (1 / (2 * B2 * (B2 - A2)))

typedef enum side { WEIGHTS, INPUT, OUTPUT, WEIGHTS_T, OUTPUT_T } side; /* _T: the transpose */

/* Numbers a side has on one axis, before and after; m is 2 or 4, a constant at every call. */
MM_INLINE int points(int m) {
    return m == 2 ? 3 : 6;
}
MM_INLINE int length(side k, int m, bool after) {
    int plain = k == WEIGHTS || k == WEIGHTS_T ? 3 : k == INPUT && m == 4 ? 6 : m;
    bool turned = k == WEIGHTS || k == INPUT || k == OUTPUT_T;
    return turned == after ? points(m) : plain;
}

MM_INLINE vec times(float a, vec x) {
    return v_mul(v_set1(a), x);
}
MM_INLINE vec plus(vec y, float a, vec x) { /* y + a x */
    return v_fma(v_set1(a), x, y);
}

MM_INLINE void axis_two(side k, const vec *d, int s, vec *r, int t) {
    vec d0 = d[0], d1 = d[s], d2 = k == INPUT || k == OUTPUT_T ? v_zero() : d[2 * s];
    if (k == WEIGHTS) {
        r[0] = d1;
        r[t] = plus(d2, -1, d1);
        r[2 * t] = plus(d0, -1, d1);
    } else if (k == INPUT) {
        r[0] = v_add(d0, d1);
        r[t] = d1;
        r[2 * t] = d0;
    } else if (k == OUTPUT) {
        r[0] = v_add(d0, d1);
        r[t] = v_add(d0, d2);
    } else if (k == OUTPUT_T) {
        r[0] = v_add(d0, d1);
        r[t] = d0;
        r[2 * t] = d1;
    } else {
        r[0] = d2;
        r[t] = plus(plus(d0, -1, d1), -1, d2);
        r[2 * t] = d1;
    }
}

MM_INLINE void axis_four(side k, const vec *d, int s, vec *r, int t) {
    vec d0 = d[0], d1 = d[s], d2 = d[2 * s];
    if (k == WEIGHTS) {
        vec ea = times(NA, plus(d0, A2, d2)), eb = times(NB, plus(d0, B2, d2));
        r[0] = times(N0, d0);
        r[t] = plus(ea, NA * PA, d1);
        r[2 * t] = plus(ea, -NA * PA, d1);
        r[3 * t] = plus(eb, NB * PB, d1);
        r[4 * t] = plus(eb, -NB * PB, d1);
        r[5 * t] = d2;
        return;
    }
    vec d3 = d[3 * s];
    if (k == OUTPUT_T) {
        vec ea = plus(d0, A2, d2), eb = plus(d0, B2, d2), oa = plus(d1, A2, d3), ob = plus(d1, B2, d3);
        r[0] = d0;
        r[t] = plus(ea, PA, oa);
        r[2 * t] = plus(ea, -PA, oa);
        r[3 * t] = plus(eb, PB, ob);
        r[4 * t] = plus(eb, -PB, ob);
        r[5 * t] = d3;
        return;
    }
    vec d4 = d[4 * s], d5 = d[5 * s];
    if (k == INPUT) {
        vec ea = plus(d4, -B2, d2), eb = plus(d4, -A2, d2), oa = plus(d3, -B2, d1), ob = plus(d3, -A2, d1);
        r[0] = plus(plus(d4, -(A2 + B2), d2), A2 * B2, d0);
        r[t] = plus(ea, PA, oa);
        r[2 * t] = plus(ea, -PA, oa);
        r[3 * t] = plus(eb, PB, ob);
        r[4 * t] = plus(eb, -PB, ob);
        r[5 * t] = plus(plus(d5, -(A2 + B2), d3), A2 * B2, d1);
        return;
    }
    vec sa = v_add(d1, d2), sb = v_add(d3, d4), da = plus(d1, -1, d2), db = plus(d3, -1, d4);
    if (k == OUTPUT) {
        r[0] = v_add(d0, v_add(sa, sb));
        r[t] = plus(times(PA, da), PB, db);
        r[2 * t] = plus(times(A2, sa), B2, sb);
        r[3 * t] = plus(plus(d5, A3, da), B3, db);
    } else {
        r[0] = plus(plus(times(N0, d0), NA, sa), NB, sb);
        r[t] = plus(times(NA * PA, da), NB * PB, db);
        r[2 * t] = plus(plus(d5, NA * A2, sa), NB * B2, sb);
    }
}

/* Both axes of a square: r (after, after) from d (before, before). */
MM_INLINE void square(side k, int m, const vec *d, vec *r) {
    vec mid[POINTS_MAX * POINTS_MAX];
    const int n = length(k, m, false), to = length(k, m, true);
    MM_UNROLL for (int i = 0; i < n; i++) {
        if (m == 2) axis_two(k, d + i * n, 1, mid + i * to, 1);
        if (m == 4) axis_four(k, d + i * n, 1, mid + i * to, 1);
    }
    MM_UNROLL for (int j = 0; j < to; j++) {
        if (m == 2) axis_two(k, mid + j, to, r + j, to);
        if (m == 4) axis_four(k, mid + j, to, r + j, to);
    }
}

/* ---- planes: one matrix for each of the P points ----------------------------------------------------------------- */

typedef struct maps {                  /* images (samples, channels, H, W) */
    size_t H, W, step, tiles_x, tiles; /* step: floats between samples */
} maps;

static int tile_side(const hdo_conv *c) {
    return c->H == 2 && c->W == 2 ? 2 : 4;
}
static size_t plane_count(int m) {
    return m == 2 ? 9 : 36;
}

static maps maps_of(const hdo_conv *c, int m, size_t step) {
    maps g = {.H = (size_t)c->H, .W = (size_t)c->W, .tiles_x = ((size_t)c->W + (size_t)m - 1) / (size_t)m};
    g.step = step;
    g.tiles = g.tiles_x * (((size_t)c->H + (size_t)m - 1) / (size_t)m);
    return g;
}

/* U (P, panels of NR rows, S, NR): kernels of `rows` results and S sources, w[row * am + s * as + tap]. */
MM_INLINE void put_weights(int m, size_t rows, size_t S, const float *w, size_t am, size_t as, bool turned, float *U,
                           size_t plane) {
    const int P = points(m) * points(m);
    for (size_t o = 0; o < rows; o += VL)
        for (size_t s = 0; s < S; s++) {
            float tap[9 * VL];
            vec d[9], r[POINTS_MAX * POINTS_MAX];
            transpose(VL, 9, w + o * am + s * as, am, tap, VL);
            MM_UNROLL for (int i = 0; i < 9; i++) d[i] = v_load(tap + (turned ? 8 - i : i) * VL);
            square(WEIGHTS, m, d, r);
            float *to = U + (o / NR * S + s) * NR + o % NR;
            MM_UNROLL for (int p = 0; p < P; p++) v_store(to + (size_t)p * plane, r[p]);
        }
}

/* V (P, samples * tiles, channels): tiles of n samples, by their inputs (with the border around them) or their outputs;
 * what lies outside the map is zero. */
MM_INLINE void put_tiles(side k, int m, const maps *g, size_t n, size_t channels, const float *x, float *pixels,
                         float *V, size_t plane) {
    const int in = length(k, m, false), lead = k == INPUT && m == 4 ? 1 : 0, P = points(m) * points(m);
    size_t map = g->H * g->W;
    for (size_t b = 0; b < n; b++)
        for (size_t c = 0; c < channels; c += VL) {
            transpose(VL, map, x + b * g->step + c * map, map, pixels, VL);
            for (size_t t = 0; t < g->tiles; t++) {
                vec d[POINTS_MAX * POINTS_MAX], r[POINTS_MAX * POINTS_MAX];
                ptrdiff_t y0 = (ptrdiff_t)(t / g->tiles_x) * m - lead, x0 = (ptrdiff_t)(t % g->tiles_x) * m - lead;
                MM_UNROLL for (int i = 0; i < in; i++) {
                    MM_UNROLL for (int j = 0; j < in; j++) {
                        bool inside = (size_t)(y0 + i) < g->H && (size_t)(x0 + j) < g->W;
                        d[i * in + j] = inside ? v_load(pixels + ((y0 + i) * (ptrdiff_t)g->W + x0 + j) * VL) : v_zero();
                    }
                }
                square(k, m, d, r);
                float *to = V + (b * g->tiles + t) * channels + c;
                MM_UNROLL for (int p = 0; p < P; p++) v_store(to + (size_t)p * plane, r[p]);
            }
        }
}

/* y (n, rows, H, W) from M (P, samples * tiles, ld). */
MM_INLINE void take_tiles(int m, const maps *g, size_t n, size_t rows, const float *M, size_t ld, size_t plane,
                          const float *bias, float *pixels, float *y) {
    const int P = points(m) * points(m);
    size_t map = g->H * g->W;
    for (size_t b = 0; b < n; b++)
        for (size_t o = 0; o < rows; o += VL) {
            vec start = bias != NULL ? v_load(bias + o) : v_zero();
            for (size_t t = 0; t < g->tiles; t++) {
                vec d[POINTS_MAX * POINTS_MAX], r[16];
                const float *from = M + (b * g->tiles + t) * ld + o;
                size_t y0 = t / g->tiles_x * (size_t)m, x0 = t % g->tiles_x * (size_t)m;
                MM_UNROLL for (int p = 0; p < P; p++) d[p] = v_load(from + (size_t)p * plane);
                square(OUTPUT, m, d, r);
                for (size_t i = 0; i < (size_t)m && y0 + i < g->H; i++)
                    for (size_t j = 0; j < (size_t)m && x0 + j < g->W; j++)
                        v_store(pixels + ((y0 + i) * g->W + x0 + j) * VL, v_add(start, r[i * (size_t)m + j]));
            }
            transpose(map, VL, pixels, VL, y + b * g->step + o * map, map);
        }
}

/* dw (O, C, 3, 3) from D (P, O, C). */
MM_INLINE void take_weights(int m, size_t O, size_t C, const float *D, size_t plane, float *dw, size_t ldw) {
    const int P = points(m) * points(m);
    for (size_t i = 0; i < O * C; i += VL) {
        vec d[POINTS_MAX * POINTS_MAX], r[9];
        float tap[9 * VL];
        MM_UNROLL for (int p = 0; p < P; p++) d[p] = v_load(D + (size_t)p * plane + i);
        square(WEIGHTS_T, m, d, r);
        MM_UNROLL for (int t = 0; t < 9; t++) v_store(tap + t * VL, r[t]);
        transpose(9, VL, tap, VL, dw + i / C * ldw + i % C * 9, 9);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef void tile_fn(size_t K, const float *A, size_t am, size_t ak, const float *B, size_t ldb, float *out, size_t ldo,
                     bool add);

#define TILE(mr)                                                                                                       \
    static void tile##mr(size_t K, const float *A, size_t am, size_t ak, const float *B, size_t ldb, float *out,       \
                         size_t ldo, bool add) {                                                                       \
        vec acc[MR][NV];                                                                                               \
        tile_sum(mr, NV, K, A, am, ak, B, ldb, acc);                                                                   \
        MM_UNROLL for (int r = 0; r < mr; r++) {                                                                       \
            MM_UNROLL for (int v = 0; v < NV; v++) {                                                                   \
                float *o = out + (size_t)r * ldo + v * VL;                                                             \
                v_store(o, add ? v_add(v_load(o), acc[r][v]) : acc[r][v]);                                             \
            }                                                                                                          \
        }                                                                                                              \
    }
MM_EACH_ROW(TILE)
#define TILE_ROW(mr) tile##mr,
static tile_fn *const tiles[MR + 1] = {NULL, MM_EACH_ROW(TILE_ROW)};

typedef struct sizes {
    size_t P, n;    /* points; samples of a block */
    size_t U, V, M; /* floats of a plane: of the kernels of BLOCK results, of sources, of BLOCK results */
    size_t pixels;  /* floats of one map, VL channels */
} sizes;

/* A block of samples from S sources, about `bytes` transformed. */
static sizes sizes_of(const hdo_conv *c, size_t S, size_t bytes) {
    int m = tile_side(c);
    size_t T = maps_of(c, m, 0).tiles, P = plane_count(m), B = (size_t)c->B;
    size_t n = bytes / sizeof(float) / (P * T * S);
    if (n < 1) n = 1;
    size_t blocks = (B + n - 1) / n;
    n = (B + blocks - 1) / blocks;
    return (sizes){
        P, n, BLOCK * S + MARGIN, n * T * S + MARGIN, n * T * BLOCK + MARGIN, (size_t)c->H * (size_t)c->W * VL};
}

static size_t work_of(const hdo_conv *c, size_t S, size_t bytes) {
    sizes z = sizes_of(c, S, bytes);
    return hdo__arena_round(z.P * z.U * sizeof(float)) + hdo__arena_round(z.P * z.V * sizeof(float)) +
           hdo__arena_round(z.P * z.M * sizeof(float)) + hdo__arena_round(z.pixels * sizeof(float));
}

/* bwd_x when `back`: sources are dy, results dx, kernels turned. */
MM_INLINE void forward(int m, const hdo_conv *c, bool back, const float *x, const float *w, const float *bias, float *y,
                       hdo_arena *a) {
    size_t rows = (size_t)(back ? c->C : c->O), S = (size_t)(back ? c->O : c->C);
    size_t mark = hdo__arena_mark(a), B = (size_t)c->B, am = back ? 9 : c->w_step, as = back ? c->w_step : 9;
    sizes z = sizes_of(c, S, FORWARD_BYTES);
    maps in = maps_of(c, m, back ? c->y_step : c->x_step), out = maps_of(c, m, back ? c->x_step : c->y_step);
    float *U = hdo__arena_floats(a, z.P * z.U), *V = hdo__arena_floats(a, z.P * z.V);
    float *M = hdo__arena_floats(a, z.P * z.M), *pixels = hdo__arena_floats(a, z.pixels);
    for (size_t b = 0; b < B; b += z.n) {
        size_t n = B - b < z.n ? B - b : z.n, N = n * in.tiles;
        put_tiles(INPUT, m, &in, n, S, x + b * in.step, pixels, V, z.V);
        for (size_t o = 0; o < rows; o += BLOCK) {
            size_t here = rows - o < BLOCK ? rows - o : BLOCK;
            if (here % NR != 0) memset(U, 0, z.P * z.U * sizeof *U); /* the last panel is half empty */
            put_weights(m, here, S, w + o * am, am, as, back, U, z.U);
            for (size_t p = 0; p < z.P; p++)
                for (size_t j = 0; j < here; j += NR)
                    for (size_t i = 0; i < N; i += MR)
                        tiles[N - i < MR ? N - i : MR](S, V + p * z.V + i * S, S, 1, U + p * z.U + j * S, NR,
                                                       M + p * z.M + i * BLOCK + j, BLOCK, false);
            take_tiles(m, &out, n, here, M, BLOCK, z.M, bias != NULL ? bias + o : NULL, pixels,
                       y + b * out.step + o * out.H * out.W);
        }
    }
    hdo__arena_rewind(a, mark);
}

MM_INLINE void weights(int m, const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), B = (size_t)c->B, C = (size_t)c->C, O = (size_t)c->O;
    sizes z = sizes_of(c, C, WEIGHT_BYTES);
    maps in = maps_of(c, m, c->x_step), out = maps_of(c, m, c->y_step);
    float *D = hdo__arena_floats(a, z.P * z.U), *V = hdo__arena_floats(a, z.P * z.V); /* D (P, BLOCK, C) */
    float *M = hdo__arena_floats(a, z.P * z.M), *pixels = hdo__arena_floats(a, z.pixels);
    for (size_t o = 0; o < O; o += BLOCK) {
        size_t here = O - o < BLOCK ? O - o : BLOCK;
        for (size_t b = 0; b < B; b += z.n) {
            size_t n = B - b < z.n ? B - b : z.n, N = n * in.tiles;
            if (o == 0 || z.n < B) put_tiles(INPUT, m, &in, n, C, x + b * in.step, pixels, V, z.V);
            put_tiles(OUTPUT_T, m, &out, n, here, dy + b * out.step + o * out.H * out.W, pixels, M, z.M);
            for (size_t p = 0; p < z.P; p++)
                for (size_t i = 0; i < C; i += NR)
                    for (size_t j = 0; j < here; j += MR)
                        tiles[here - j < MR ? here - j : MR](N, M + p * z.M + j, 1, here, V + p * z.V + i, C,
                                                             D + p * z.U + j * C + i, C, b > 0);
        }
        take_weights(m, here, C, D, z.U, dw + o * c->w_step, c->w_step);
    }
    hdo__arena_rewind(a, mark);
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Where it wins (bench_kernels): enough channels to pay for the transforms, and a map its tiles cover well. */
bool HDO_ISA_FN(hdo__wino_fits)(const hdo_conv *c) {
    if (c->kh != 3 || c->kw != 3 || c->stride != 1 || c->pad != 1) return false;
    if (c->C % 16 != 0 || c->O % 8 != 0 || whole_C(c) < CHANNELS) return false;
    if (c->H == 2 && c->W == 2) return true;
    int tiles_in = ((c->H + 3) / 4) * ((c->W + 3) / 4), taps = (3 * c->H - 2) * (3 * c->W - 2);
    return c->H >= 4 && c->W >= 4 && taps >= 2 * 36 * tiles_in;
}

size_t HDO_ISA_FN(hdo__wino_work)(const hdo_conv *c) {
    size_t f = work_of(c, (size_t)c->C, FORWARD_BYTES), x = work_of(c, (size_t)c->O, FORWARD_BYTES);
    size_t w = work_of(c, (size_t)c->C, WEIGHT_BYTES);
    if (x > f) f = x;
    return w > f ? w : f;
}

void HDO_ISA_FN(hdo__wino_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                               hdo_arena *a) {
    if (tile_side(c) == 2)
        forward(2, c, false, x, w, bias, y, a);
    else
        forward(4, c, false, x, w, bias, y, a);
}

void HDO_ISA_FN(hdo__wino_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a) {
    if (tile_side(c) == 2)
        forward(2, c, true, dy, w, NULL, dx, a);
    else
        forward(4, c, true, dy, w, NULL, dx, a);
}

void HDO_ISA_FN(hdo__wino_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a) {
    if (tile_side(c) == 2)
        weights(2, c, x, dy, dw, a);
    else
        weights(4, c, x, dy, dw, a);
}
