/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight gradient of a convolution as an implicit matrix product (see simd_igemm.h): dw (O, C taps) = dy (O, n) times
 * the transposed columns, contracted over all samples and output pixels n.
 *
 * - Small maps: with samples last, a tap is a plain product over the pixels it reaches, on dense rows of samples; only
 *   taps inside the image are multiplied (2 x 2 maps: 16 of 36 pairs; 1 x 1: one of nine).
 * - Large maps: panels of NR columns of the transposed column matrix, packed block by block of NB positions.
 */
#include "kernels/simd_igemm.h"

#define NB 256 /* contraction length of one packed panel: NB * NR floats = 16 kB of the first-level cache */

/* ---- small maps: tap by tap -------------------------------------------------------------------------------------- */

/* One tap's sum over samples and over the output pixels it reaches: pixels `count`, their places in dy and in x. */
typedef struct reach {
    size_t count;
    const int32_t *dy, *x;
} reach;

/* sum (mr, NR) of A[r * am + dy + b] X[(x + b) * NR ...] over the reach and over b < B. */
typedef void reach_fn(const reach *q, size_t B, const float *A, size_t am, const float *X, float *sum);

#define REACH(mr)                                                                                                      \
    static void reach##mr(const reach *q, size_t B, const float *A, size_t am, const float *X, float *sum) {           \
        vec acc[MR][NV];                                                                                               \
        MM_UNROLL for (int r = 0; r < mr; r++) {                                                                       \
            MM_UNROLL for (int v = 0; v < NV; v++) acc[r][v] = v_zero();                                               \
        }                                                                                                              \
        for (size_t i = 0; i < q->count; i++) {                                                                        \
            const float *p = A + q->dy[i], *x = X + (size_t)q->x[i] * NR;                                              \
            for (size_t b = 0; b < B; b++, p++, x += NR) {                                                             \
                vec in[NV];                                                                                            \
                MM_UNROLL for (int v = 0; v < NV; v++) in[v] = v_load(x + v * VL);                                     \
                MM_UNROLL for (int r = 0; r < mr; r++) {                                                               \
                    vec g = v_set1(p[(size_t)r * am]);                                                                 \
                    MM_UNROLL for (int v = 0; v < NV; v++) acc[r][v] = v_fma(g, in[v], acc[r][v]);                     \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        MM_UNROLL for (int r = 0; r < mr; r++) {                                                                       \
            MM_UNROLL for (int v = 0; v < NV; v++) v_store(sum + r * NR + v * VL, acc[r][v]);                          \
        }                                                                                                              \
    }
MM_EACH_ROW(REACH)
#define REACH_ROW(mr) reach##mr,
static reach_fn *const reaches[MR + 1] = {NULL, MM_EACH_ROW(REACH_ROW)};

/* dw (channels, taps) of one output channel from sums (taps, MR, NR): a transpose, whole vectors where possible. */
static void spread_taps(size_t channels, size_t taps, const float *sums, float *dw) {
    size_t ld = MR * NR, t = 0, whole = channels / VL * VL;
    for (; t + VL <= taps; t += VL)
        for (size_t c = 0; c < whole; c += VL) {
            vec r[VL];
            MM_UNROLL for (size_t k = 0; k < VL; k++) r[k] = v_load(sums + (t + k) * ld + c);
            v_transpose(r);
            MM_UNROLL for (size_t k = 0; k < VL; k++) v_store(dw + (c + k) * taps + t, r[k]);
        }
    for (size_t k = t; k < taps; k++)
        for (size_t c = 0; c < whole; c++) dw[c * taps + k] = sums[k * ld + c];
    for (size_t c = whole; c < channels; c++)
        for (size_t k = 0; k < taps; k++) dw[c * taps + k] = sums[k * ld + c];
}

static size_t by_pixel_work(const hdo_conv *c) {
    size_t B = (size_t)c->B, px = (size_t)c->H * (size_t)c->W, py = (size_t)c->Ho * (size_t)c->Wo;
    size_t taps = (size_t)c->kh * (size_t)c->kw, panels = ((size_t)c->C + NR - 1) / NR;
    return hdo__arena_round(B * (size_t)c->O * py * sizeof(float)) +
           hdo__arena_round(panels * px * B * NR * sizeof(float)) + hdo__arena_round(taps * MR * NR * sizeof(float)) +
           hdo__arena_round(taps * sizeof(reach)) + 2 * hdo__arena_round(taps * py * sizeof(int32_t));
}

static void by_pixel(const hdo_conv *c, const source *s, const float *dy, float *dw, hdo_arena *a) {
    size_t B = (size_t)c->B, C = (size_t)c->C, O = (size_t)c->O, px = (size_t)c->H * (size_t)c->W;
    size_t py = (size_t)c->Ho * (size_t)c->Wo, taps = (size_t)c->kh * (size_t)c->kw, panels = (C + NR - 1) / NR;
    const float *g = turn(B, O * py, dy, c->y_step, a);     /* (O, pixel, B) */
    float *xs = hdo__arena_floats(a, panels * px * B * NR); /* (panel, pixel, B, NR channels) */
    float *sums = hdo__arena_floats(a, taps * MR * NR);     /* (tap, MR, NR); dead taps stay zero */
    reach *q = hdo__arena_take(a, taps * sizeof *q);
    int32_t *at_dy = hdo__arena_take(a, taps * py * sizeof *at_dy);
    int32_t *at_x = hdo__arena_take(a, taps * py * sizeof *at_x);
    memset(sums, 0, taps * MR * NR * sizeof *sums);
    if (C % NR != 0) memset(xs + (panels - 1) * px * B * NR, 0, px * B * NR * sizeof *xs);
    for (size_t b = 0; b < B; b++)
        for (size_t p = 0; p < panels; p++)
            transpose(C - p * NR < NR ? C - p * NR : NR, px, s->src + b * s->image + p * NR * px, px,
                      xs + (p * px * B + b) * NR, B * NR);
    for (int t = 0; t < s->nt; t++) {
        size_t n = 0;
        int32_t *yd = at_dy + (size_t)t * py, *xd = at_x + (size_t)t * py;
        for (int i = 0; i < c->Ho * c->Wo; i++) {
            int y = i / c->Wo * c->stride + s->ty[t], x = i % c->Wo * c->stride + s->tx[t];
            if (y < 0 || y >= c->H || x < 0 || x >= c->W) continue;
            yd[n] = i * c->B;
            xd[n++] = (y * c->W + x) * c->B;
        }
        q[t] = (reach){n, yd, xd};
    }
    for (size_t o = 0; o < O; o += MR) /* rows of dw outside: each is written once, in order */
        for (size_t p = 0; p < panels; p++) {
            size_t rows = O - o < MR ? O - o : MR, channels = C - p * NR < NR ? C - p * NR : NR;
            for (int t = 0; t < s->nt; t++)
                reaches[rows](q + t, B, g + o * py * B, py * B, xs + p * px * B * NR,
                              sums + (size_t)s->tap[t] * MR * NR);
            for (size_t r = 0; r < rows; r++)
                spread_taps(channels, taps, sums + r * NR, dw + (o + r) * c->w_step + p * NR * taps);
        }
}

/* ---- large maps: panels of the transposed column matrix ---------------------------------------------------------- */

/* panel (groups * VL, NR) = the columns k0 .. k0 + NR of the transposed column matrix, zeros behind K. */
static void pack_transposed(const source *s, size_t k0, size_t groups, const float *src, const lanes *ln,
                            const bool *runs, float *panel) {
    size_t nt = (size_t)s->nt, K = (size_t)s->S * nt, plane = (size_t)s->H * (size_t)s->W;
    for (size_t h = 0; h < NR; h += VL) {
        size_t c[VL] = {0}, t[VL] = {0}, have = 0; /* channel and tap of VL columns */
        for (; have < VL && k0 + h + have < K; have++) {
            c[have] = (k0 + h + have) / nt * plane;
            t[have] = (k0 + h + have) % nt;
        }
        for (size_t g = 0; g < groups; g++) {
            const lanes *l0 = ln + g * nt;
            float *d = panel + g * VL * NR + h;
            vec r[VL];
            MM_UNROLL for (size_t i = 0; i < VL; i++) r[i] =
                i < have ? load_lanes(src + c[i], l0 + t[i], runs[g]) : v_zero();
            v_transpose(r);
            MM_UNROLL for (int i = 0; i < VL; i++) v_store(d + i * NR, r[i]);
        }
    }
}

/* A tile (rows, NR) of sums into dw (O, C, taps), `cols` columns from depth k0 on, spread over the live taps. */
static void add_weights(const source *s, size_t taps, size_t rows, size_t k0, size_t cols, const float *sum, float *dw,
                        size_t ldw) {
    size_t nt = (size_t)s->nt, to[NR] = {0};
    for (size_t j = 0; j < cols; j++) to[j] = (k0 + j) / nt * taps + (size_t)s->tap[(k0 + j) % nt];
    for (size_t r = 0; r < rows; r++, sum += NR, dw += ldw)
        for (size_t j = 0; j < cols; j++) dw[to[j]] += sum[j];
}

typedef void add_fn(size_t K, const float *A, size_t am, const float *panel, float *out, size_t ldo);

#define ADD(mr)                                                                                                        \
    static void add##mr(size_t K, const float *A, size_t am, const float *panel, float *out, size_t ldo) {             \
        vec acc[MR][NV];                                                                                               \
        tile_sum(mr, NV, K, A, am, 1, panel, NR, acc);                                                                 \
        MM_UNROLL for (int r = 0; r < mr; r++) {                                                                       \
            MM_UNROLL for (int v = 0; v < NV; v++) {                                                                   \
                float *o = out + (size_t)r * ldo + v * VL;                                                             \
                v_store(o, v_add(v_load(o), acc[r][v]));                                                               \
            }                                                                                                          \
        }                                                                                                              \
    }
MM_EACH_ROW(ADD)
#define ADD_ROW(mr) add##mr,
static add_fn *const adds[MR + 1] = {NULL, MM_EACH_ROW(ADD_ROW)};

size_t HDO_ISA_FN(hdo__igemm_w_work)(const hdo_conv *c) {
    size_t taps = (size_t)c->kh * (size_t)c->kw;
    if (goes_by_pixel(c->B, c->Ho, c->Wo)) return tap_work(c) + by_pixel_work(c);
    return tap_work(c) + hdo__arena_round((size_t)c->O * NB * sizeof(float)) +
           hdo__arena_round(NB * NR * sizeof(float)) + hdo__arena_round(NB / VL * taps * sizeof(lanes)) +
           hdo__arena_round(MR * NR * sizeof(float));
}

void HDO_ISA_FN(hdo__igemm_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a);
    source s = source_x(c, x);
    make_taps(c, false, 0, 0, &s, a);
    size_t taps = (size_t)c->kh * (size_t)c->kw, nt = (size_t)s.nt, O = (size_t)c->O, K = (size_t)c->C * nt;
    size_t grid = (size_t)c->Ho * (size_t)c->Wo, N = (size_t)c->B * grid;
    size_t full = (size_t)c->C * taps;
    if (nt > 0 && goes_by_pixel(c->B, c->Ho, c->Wo)) {
        by_pixel(c, &s, dy, dw, a);
        hdo__arena_rewind(a, mark);
        return;
    }
    for (size_t o = 0; o < O; o++) memset(dw + o * c->w_step, 0, full * sizeof *dw);
    float *rows = hdo__arena_floats(a, O * NB); /* dy (O, nb) */
    float *panel = hdo__arena_floats(a, NB * NR);
    float *sum = hdo__arena_floats(a, MR * NR);
    lanes *ln = hdo__arena_take(a, NB / VL * nt * sizeof *ln);
    bool runs[NB / VL];
    for (size_t n0 = 0, nb; n0 < N; n0 += nb) {
        /* Whole samples while they fit, otherwise pieces of one sample, whose dy can be used in place. */
        size_t b = n0 / grid, left = grid - n0 % grid;
        nb = grid > NB / 2 ? (left < NB ? left : NB) : NB / grid * grid;
        if (N - n0 < nb) nb = N - n0;
        size_t groups = (nb + VL - 1) / VL, lda = nb;
        make_lanes(&s, n0, nb, groups, ln, runs);
        const float *A = rows, *src = x + b * c->x_step;
        if (nb <= left) {
            A = dy + b * c->y_step + n0 % grid;
            lda = grid;
        } else {
            for (size_t i = 0; i < nb / grid; i++)
                for (size_t o = 0; o < O; o++)
                    for (size_t p = 0; p < grid; p++)
                        rows[o * nb + i * grid + p] = dy[(b + i) * c->y_step + o * grid + p];
        }
        for (size_t k0 = 0; k0 < K; k0 += NR) { /* none when every tap is in the padding */
            size_t cols = K - k0 < NR ? K - k0 : NR;
            pack_transposed(&s, k0, groups, src, ln, runs, panel);
            for (size_t i = 0; i < O; i += MR) {
                size_t m = O - i < MR ? O - i : MR;
                const float *ai = A + i * lda;
                if (cols == NR && nt == taps) {
                    adds[m](nb, ai, lda, panel, dw + i * c->w_step + k0, c->w_step);
                } else {
                    memset(sum, 0, MR * NR * sizeof *sum);
                    adds[m](nb, ai, lda, panel, sum, NR);
                    add_weights(&s, taps, m, k0, cols, sum, dw + i * c->w_step, c->w_step);
                }
            }
        }
    }
    hdo__arena_rewind(a, mark);
}
