/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution as an implicit matrix product: the general case, and the fast one for many channels on small maps.
 *
 * Columns n are (sample, grid y, grid x), flat over the whole batch, so that maps of 2 x 2 or 1 x 1 still fill vectors.
 * Depth k is (source channel, tap). No column matrix is ever stored: panels of NR columns are packed straight from the
 * image into the first-level cache, right before the tiles that use them.
 *
 * - forward: source x, grid = output map.
 * - bwd_x: source dy. Input pixels fall into stride x stride classes by their remainder; within a class the transposed
 *   convolution is a plain one with step 1 over the taps that reach it. No scatter-add, no multiplications by zero.
 * - bwd_w: the contraction runs over n; the packed panel is the transpose of the forward one.
 *
 * Taps that fall outside the image for every grid position are dropped (3 x 3 on 1 x 1 maps: eight of nine). What is
 * left outside is a zero in a packed panel.
 */
#include "kernels/simd_mm.h"

#define KC 320                      /* depth of a packed panel: 320 * NR floats = 20 kB of the first-level cache */
#define NB 256                      /* contraction length of one bwd_w panel */
#define OUT_BLOCK ((size_t)1 << 16) /* floats of unfinished output: 256 kB of the second-level cache */
#define PANEL_BLOCK ((size_t)1 << 16) /* floats of packed panels */

/* One product: where the columns come from. */
typedef struct source {
    const float *src; /* (B, S, H, W), or (S, H, W, B) when by_pixel */
    int B, S, H, W;
    int Hg, Wg, step;   /* grid; source coordinate = grid coordinate * step + tap offset */
    int nt;             /* live taps */
    const int *ty, *tx; /* (nt) offsets */
    const int *tap;     /* (nt) index in the (kh, kw) kernel */
    bool by_pixel;      /* columns are (grid y, grid x, sample) instead of (sample, grid y, grid x) */
} source;

/* Small maps go by pixel: neighbouring columns are then samples of one pixel, a panel needs only the taps that are inside
 * the image there (2 x 2 maps: four of nine), and a tap's columns are one run in the transposed source. */
static bool goes_by_pixel(int B, int Hg, int Wg) { return B >= 4 && Hg * Wg <= 16; }

typedef struct place {
    size_t b, y, x;
} place;

static place place_of(const source *s, size_t n) { /* sample and grid point of column n */
    size_t B = (size_t)s->B, W = (size_t)s->Wg, grid = (size_t)s->Hg * W;
    size_t b = s->by_pixel ? n % B : n / grid, p = s->by_pixel ? n / B : n - b * grid;
    return (place){b, p / W, p % W};
}

/* VL neighbouring columns under one tap: lanes inside the image, and where they are relative to channel 0 (of the sample
 * of column n0, unless by pixel). Lanes outside have mask 0 and index 0. */
typedef struct lanes {
    int32_t mask[VL], idx[VL];
    int32_t first; /* index of lane 0, inside or not, for a run of VL consecutive numbers; see `runs` */
    int32_t any;   /* a lane is inside */
} lanes;

/* Fills (groups, nt) lanes for columns [n0, n0 + cols); runs[g]: the columns of group g are consecutive in the source,
 * so that one masked load fetches them. */
static void make_lanes(const source *s, size_t n0, size_t cols, size_t groups, lanes *out, bool *runs) {
    size_t image = (size_t)s->S * (size_t)s->H * (size_t)s->W;
    size_t per_sample = s->by_pixel ? 1 : image, b0 = s->by_pixel ? 0 : place_of(s, n0).b;
    int32_t per_pixel = s->by_pixel ? s->B : 1;
    for (size_t g = 0; g < groups; g++) {
        int32_t base[VL], y[VL], x[VL];
        bool run = true;
        for (int l = 0; l < VL; l++) {
            size_t n = n0 + g * VL + (size_t)l;
            if (n >= n0 + cols) { /* behind the end: far outside under every tap */
                base[l] = 0, y[l] = INT32_MIN / 2, x[l] = INT32_MIN / 2;
                continue;
            }
            place at = place_of(s, n);
            y[l] = (int32_t)at.y * s->step;
            x[l] = (int32_t)at.x * s->step;
            base[l] = (int32_t)((at.b - b0) * per_sample) + (y[l] * s->W + x[l]) * per_pixel;
            run = run && base[l] == base[0] + l;
        }
        runs[g] = run;
        for (int t = 0; t < s->nt; t++) {
            lanes *o = out + g * (size_t)s->nt + (size_t)t;
            int32_t ty = s->ty[t], tx = s->tx[t], shift = (ty * s->W + tx) * per_pixel, any = 0;
            o->first = base[0] + shift;
            for (int l = 0; l < VL; l++) {
                int32_t in = -(int32_t)((uint32_t)(y[l] + ty) < (uint32_t)s->H && (uint32_t)(x[l] + tx) < (uint32_t)s->W);
                o->mask[l] = in;
                o->idx[l] = (base[l] + shift) & in;
                any |= in;
            }
            o->any = any;
        }
    }
}

/* The VL values; src is the channel's plane (in the sample of the first column). */
MM_INLINE vec load_lanes(const float *src, const lanes *o, bool run) {
#ifdef __AVX2__
    __m256i mask = _mm256_loadu_si256((const __m256i *)(const void *)o->mask);
    if (run) return _mm256_maskload_ps(src + o->first, mask);
    const int32_t *i = o->idx;
    vec v = _mm256_set_ps(src[i[7]], src[i[6]], src[i[5]], src[i[4]], src[i[3]], src[i[2]], src[i[1]], src[i[0]]);
    return _mm256_and_ps(v, _mm256_castsi256_ps(mask));
#else
    (void)run;
    vec v = {0};
    for (int l = 0; l < VL; l++) v[l] = o->mask[l] ? src[o->idx[l]] : 0;
    return v;
#endif
}

/* dst (cols, rows) = src (rows, cols) transposed; row i of src begins at src + i / inner * ldo + i % inner * ldi. */
static void transpose(size_t rows, size_t cols, const float *src, size_t inner, size_t ldo, size_t ldi, float *dst,
                      size_t ldd) {
    for (size_t i = 0; i < rows; i += VL) {
        size_t m = rows - i < VL ? rows - i : VL;
        const float *row[VL];
        for (size_t k = 0; k < VL; k++) {
            size_t at = k < m ? i + k : i;
            row[k] = src + at / inner * ldo + at % inner * ldi;
        }
        for (size_t j = 0; j < cols; j += VL) {
            size_t n = cols - j < VL ? cols - j : VL;
            float *d = dst + j * ldd + i;
            vec r[VL];
            if (n == VL) {
                MM_UNROLL for (size_t k = 0; k < VL; k++) r[k] = v_load(row[k] + j);
            } else {
                MM_UNROLL for (size_t k = 0; k < VL; k++) r[k] = v_load_part(row[k] + j, n);
            }
            v_transpose(r);
            if (m == VL && n == VL) {
                MM_UNROLL for (size_t k = 0; k < VL; k++) v_store(d + k * ldd, r[k]);
            } else {
                MM_UNROLL for (size_t k = 0; k < VL; k++) {
                    if (k < n && m == VL) v_store(d + k * ldd, r[k]);
                    if (k < n && m < VL) v_store_part(d + k * ldd, r[k], m);
                }
            }
        }
    }
}

/* ---- tiles: out (rows, nv vectors) = start + A panel, or out += A panel -------------------------------------------- */

/* A is never copied: row r of depth k is A[r * am + off[k]], for the weights where they are, transposed or not, with any
 * choice of taps. The panel has a row of NR floats per k. */
typedef void tile_fn(size_t K, const float *A, size_t am, const int32_t *off, const float *panel, const float *start,
                     float *out, size_t ldo);

#define TILE(mr, nv) \
    static void tile##mr##nv(size_t K, const float *A, size_t am, const int32_t *off, const float *panel, \
                             const float *start, float *out, size_t ldo) { \
        vec acc[MR][NV]; \
        MM_UNROLL for (int r = 0; r < mr; r++) { \
            MM_UNROLL for (int v = 0; v < nv; v++) \
                acc[r][v] = start != NULL ? v_set1(start[r]) : v_load(out + (size_t)r * ldo + v * VL); \
        } \
        for (size_t k = 0; k < K; k++, panel += NR) { \
            const float *p = A + off[k]; \
            vec b[NV]; \
            MM_UNROLL for (int v = 0; v < nv; v++) b[v] = v_load(panel + v * VL); \
            MM_UNROLL for (int r = 0; r < mr; r++) { \
                vec x = v_set1(p[(size_t)r * am]); \
                MM_UNROLL for (int v = 0; v < nv; v++) acc[r][v] = v_fma(x, b[v], acc[r][v]); \
            } \
        } \
        MM_UNROLL for (int r = 0; r < mr; r++) { \
            MM_UNROLL for (int v = 0; v < nv; v++) v_store(out + (size_t)r * ldo + v * VL, acc[r][v]); \
        } \
    }
TILE(1, 1)
TILE(2, 1)
TILE(3, 1)
TILE(4, 1)
TILE(5, 1)
TILE(6, 1)
TILE(1, 2)
TILE(2, 2)
TILE(3, 2)
TILE(4, 2)
TILE(5, 2)
TILE(6, 2)
static tile_fn *const tiles[MR + 1][NV + 1] = {
    {NULL, NULL, NULL},     {NULL, tile11, tile12}, {NULL, tile21, tile22}, {NULL, tile31, tile32},
    {NULL, tile41, tile42}, {NULL, tile51, tile52}, {NULL, tile61, tile62},
};

/* ---- forward-like product: dst (m, n) = bias + A columns(n) --------------------------------------------------------- */

typedef struct target {
    float *dst; /* (B, M, H, W) */
    int M, H, W, step, y0, x0; /* grid point (gy, gx) is pixel (gy * step + y0, gx * step + x0) */
    const float *bias;         /* (M) or NULL */
} target;

typedef struct weights { /* of row m, source channel s and tap t: w[m * am + s * as + t] */
    const float *w;
    size_t am, as;
} weights;

/* Finished columns [n0, n0 + cols), out (M, ldo), into the target. */
static void write_columns(const source *s, const target *t, size_t n0, size_t cols, const float *out, size_t ldo) {
    size_t plane = (size_t)t->H * (size_t)t->W, M = (size_t)t->M, B = (size_t)s->B;
    if (s->by_pixel && t->step == 1) { /* all columns at once: (M plane, B) to (B, M plane) */
        transpose(M * plane, B, out, plane, ldo, B, t->dst, M * plane);
        return;
    }
    for (size_t j0 = 0; j0 < cols; j0 += NR) {
        size_t off[NR] = {0}, nb = cols - j0 < NR ? cols - j0 : NR;
        bool run = nb == NR;
        for (size_t j = 0; j < nb; j++) {
            place at = place_of(s, n0 + j0 + j);
            off[j] = at.b * M * plane + (at.y * (size_t)t->step + (size_t)t->y0) * (size_t)t->W +
                     at.x * (size_t)t->step + (size_t)t->x0;
            run = run && off[j] == off[0] + j;
        }
        for (size_t m = 0; m < M; m++) {
            const float *from = out + m * ldo + j0;
            float *to = t->dst + m * plane;
            if (run) {
                MM_UNROLL for (int v = 0; v < NV; v++) v_store(to + off[0] + v * VL, v_load(from + v * VL));
            } else {
                for (size_t j = 0; j < nb; j++) to[off[j]] = from[j];
            }
        }
    }
}

/* Packs `cb` channels of nv groups of columns, only the taps with a lane inside; off: their places in the weights.
 * Returns the depth. */
static size_t pack_columns(const source *s, const weights *w, size_t cb, size_t nv, const float *src, size_t channel,
                           const lanes *ln, const bool *runs, int32_t *live, float *panel, int32_t *off) {
    size_t nt = (size_t)s->nt, n = 0;
    for (size_t k = 0; k < nt; k++)
        if (ln[k].any != 0 || (nv > 1 && ln[nt + k].any != 0)) live[n++] = (int32_t)k;
    for (size_t c = 0, i = 0; c < cb; c++)
        for (size_t k = 0; k < n; k++) off[i++] = (int32_t)(c * w->as) + s->tap[live[k]];
    for (size_t v = 0; v < nv; v++) {
        float *d = panel + v * VL;
        const lanes *mine = ln + v * nt;
        if (runs[v]) {
            for (size_t c = 0; c < cb; c++)
                for (size_t k = 0; k < n; k++, d += NR) v_store(d, load_lanes(src + c * channel, mine + live[k], true));
        } else {
            for (size_t c = 0; c < cb; c++)
                for (size_t k = 0; k < n; k++, d += NR) v_store(d, load_lanes(src + c * channel, mine + live[k], false));
        }
    }
    return cb * n;
}

typedef struct blocking {
    size_t columns, channels; /* of one block */
} blocking;

/* Channels: panels of about KC depth, all equal. Columns: packed panels and unfinished output both within their share
 * of the second-level cache. */
static blocking choose_blocks(const source *s, int M, int nt) {
    size_t S = (size_t)s->S, N = (size_t)s->B * (size_t)s->Hg * (size_t)s->Wg;
    size_t per = KC / nt > 0 ? (size_t)(KC / nt) : 1, blocks = (S + per - 1) / per;
    per = (S + blocks - 1) / blocks;
    size_t cols = (N + NR - 1) / NR * NR, by_panel = PANEL_BLOCK / (per * (size_t)nt) / NR * NR;
    size_t by_out = OUT_BLOCK / (size_t)M / NR * NR;
    if (by_panel < 4 * NR) by_panel = 4 * NR;
    if (by_out < 4 * NR) by_out = 4 * NR;
    cols = cols < by_panel ? cols : by_panel;
    return (blocking){cols < by_out ? cols : by_out, per};
}

/* Columns are packed for a block, then rows of A, once from memory each, run over all panels: the weights of late layers
 * are larger than any cache, the columns are not. */
static void product(const source *s, const target *t, const weights *w, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a);
    size_t N = (size_t)s->B * (size_t)s->Hg * (size_t)s->Wg, M = (size_t)t->M, nt = (size_t)s->nt;
    size_t plane = (size_t)s->H * (size_t)s->W, S = (size_t)s->S, image = S * plane;
    size_t channel = s->by_pixel ? plane * (size_t)s->B : plane;
    blocking bl = choose_blocks(s, t->M, s->nt);
    size_t nc = bl.columns, per = bl.channels, deep = per * nt, panels = nc / NR;
    size_t width = s->by_pixel ? (N + NR - 1) / NR * NR : nc; /* by pixel, output is kept whole and turned at the end */
    float *out = hdo__arena_floats(a, width * M);
    float *panel = hdo__arena_floats(a, nc * deep);
    int32_t *off = hdo__arena_take(a, panels * deep * sizeof *off), *live = hdo__arena_take(a, nt * sizeof *live);
    size_t *depth = hdo__arena_take(a, panels * sizeof *depth);
    lanes *ln = hdo__arena_take(a, NV * nt * sizeof *ln);
    for (size_t n0 = 0; n0 < N; n0 += nc) {
        size_t nb = N - n0 < nc ? N - n0 : nc;
        float *block = s->by_pixel ? out + n0 : out;
        for (size_t c0 = 0; c0 < S; c0 += per) {
            size_t cb = S - c0 < per ? S - c0 : per;
            for (size_t j = 0; j < nb; j += NR) {
                size_t cols = nb - j < NR ? nb - j : NR, nv = (cols + VL - 1) / VL;
                bool runs[NV] = {false};
                make_lanes(s, n0 + j, cols, nv, ln, runs);
                const float *src = s->src + (s->by_pixel ? 0 : place_of(s, n0 + j).b * image) + c0 * channel;
                depth[j / NR] = pack_columns(s, w, cb, nv, src, channel, ln, runs, live, panel + j * deep,
                                             off + j / NR * deep);
            }
            for (size_t i = 0; i < M; i += MR) {
                size_t rows = M - i < MR ? M - i : MR;
                float start[MR] = {0};
                if (t->bias != NULL) memcpy(start, t->bias + i, rows * sizeof *start);
                for (size_t j = 0; j < nb; j += NR)
                    tiles[rows][nb - j <= VL ? 1 : 2](depth[j / NR], w->w + i * w->am + c0 * w->as, w->am,
                                                      off + j / NR * deep, panel + j * deep, c0 > 0 ? NULL : start,
                                                      block + i * width + j, width);
            }
        }
        if (!s->by_pixel) write_columns(s, t, n0, nb, out, width);
    }
    if (s->by_pixel) write_columns(s, t, 0, N, out, width);
    hdo__arena_rewind(a, mark);
}

/* Scratch of `product` and of a turned source, at most, for M rows, a grid, S source channels and nt taps. */
static size_t product_work(int B, int M, int Hg, int Wg, int S, size_t source_plane, int nt) {
    source s = {.B = B, .S = S, .Hg = Hg, .Wg = Wg, .by_pixel = goes_by_pixel(B, Hg, Wg)};
    size_t most = 0, N = (size_t)B * (size_t)Hg * (size_t)Wg, whole = (N + NR - 1) / NR * NR;
    for (int live = 1; live <= nt; live++) { /* fewer live taps may mean larger blocks */
        blocking bl = choose_blocks(&s, M, live);
        size_t deep = bl.channels * (size_t)live, panels = bl.columns / NR;
        size_t v = hdo__arena_round((s.by_pixel ? whole : bl.columns) * (size_t)M * sizeof(float)) +
                   hdo__arena_round(bl.columns * deep * sizeof(float)) +
                   hdo__arena_round(panels * deep * sizeof(int32_t)) + hdo__arena_round((size_t)live * sizeof(int32_t)) +
                   hdo__arena_round(panels * sizeof(size_t)) + hdo__arena_round(NV * (size_t)live * sizeof(lanes));
        most = v > most ? v : most;
    }
    return most + (s.by_pixel ? hdo__arena_round((size_t)B * (size_t)S * source_plane * sizeof(float)) : 0);
}

/* Turns the source to (S, H, W, B) when the grid goes by pixel. */
static void turn_source(source *s, hdo_arena *a) {
    s->by_pixel = goes_by_pixel(s->B, s->Hg, s->Wg);
    if (!s->by_pixel) return;
    size_t image = (size_t)s->S * (size_t)s->H * (size_t)s->W, B = (size_t)s->B;
    float *turned = hdo__arena_floats(a, B * image);
    transpose(B, image, s->src, B, 0, image, turned, B);
    s->src = turned;
}

/* ---- taps --------------------------------------------------------------------------------------------------------- */

/* One axis of a class of grid points: live taps k and their offsets. Forward: all taps, source = o * stride - pad + k.
 * Backward, remainder r: taps with k = r + pad modulo stride, source = g + (r + pad - k) / stride. Returns how many. */
static int axis_taps(const hdo_conv *c, bool back, int r, int kernel, int grid, int n, int *k_out, int *off_out) {
    int live = 0;
    for (int k = 0; k < kernel; k++) {
        int off = k - c->pad, step = c->stride;
        if (back) {
            if ((r + c->pad - k) % c->stride != 0) continue;
            off = (r + c->pad - k) / c->stride;
            step = 1;
        }
        bool inside = false; /* for some grid point? */
        for (int g = 0; g < grid && !inside; g++) inside = g * step + off >= 0 && g * step + off < n;
        if (!inside) continue;
        k_out[live] = k;
        off_out[live++] = off;
    }
    return live;
}

/* Fills s->nt, ty, tx, tap from the arena (six arrays of at most kh * kw, see tap_work). */
static void make_taps(const hdo_conv *c, bool back, int ry, int rx, source *s, hdo_arena *a) {
    size_t most = (size_t)c->kh * (size_t)c->kw;
    int *ky = hdo__arena_take(a, 2 * (size_t)c->kh * sizeof(int)), *kx = hdo__arena_take(a, 2 * (size_t)c->kw * sizeof(int));
    int *ty = hdo__arena_take(a, most * sizeof(int)), *tx = hdo__arena_take(a, most * sizeof(int));
    int *tap = hdo__arena_take(a, most * sizeof(int));
    int ny = axis_taps(c, back, ry, c->kh, s->Hg, s->H, ky, ky + c->kh);
    int nx = axis_taps(c, back, rx, c->kw, s->Wg, s->W, kx, kx + c->kw);
    s->nt = 0;
    for (int i = 0; i < ny; i++)
        for (int j = 0; j < nx; j++) {
            ty[s->nt] = ky[c->kh + i];
            tx[s->nt] = kx[c->kw + j];
            tap[s->nt++] = ky[i] * c->kw + kx[j];
        }
    s->ty = ty;
    s->tx = tx;
    s->tap = tap;
}

static size_t tap_work(const hdo_conv *c) {
    size_t most = (size_t)c->kh * (size_t)c->kw;
    return hdo__arena_round(2 * (size_t)c->kh * sizeof(int)) + hdo__arena_round(2 * (size_t)c->kw * sizeof(int)) +
           3 * hdo__arena_round(most * sizeof(int));
}

/* ---- passes --------------------------------------------------------------------------------------------------------- */

static source source_x(const hdo_conv *c, const float *x) {
    return (source){.src = x, .B = c->B, .S = c->C, .H = c->H, .W = c->W, .Hg = c->Ho, .Wg = c->Wo, .step = c->stride};
}

size_t HDO_ISA_FN(hdo__igemm_work)(const hdo_conv *c) {
    int nt = c->kh * c->kw, Hg = (c->H + c->stride - 1) / c->stride, Wg = (c->W + c->stride - 1) / c->stride;
    size_t x_plane = (size_t)c->H * (size_t)c->W, y_plane = (size_t)c->Ho * (size_t)c->Wo;
    size_t f = product_work(c->B, c->O, c->Ho, c->Wo, c->C, x_plane, nt);
    size_t x = 0; /* the classes of bwd_x have one of two sizes on each axis */
    for (int i = 0; i < 4; i++) {
        size_t v = product_work(c->B, c->C, Hg - (i & 1 && Hg > 1), Wg - (i & 2 && Wg > 1), c->O, y_plane, nt);
        x = v > x ? v : x;
    }
    size_t w = hdo__arena_round((size_t)c->O * NB * sizeof(float)) + hdo__arena_round(NB * NR * sizeof(float)) +
               hdo__arena_round((size_t)(NB / VL) * (size_t)nt * sizeof(lanes)) +
               hdo__arena_round(MR * NR * sizeof(float)) + hdo__arena_round(NB * sizeof(int32_t));
    size_t most = f > x ? f : x;
    return tap_work(c) + (most > w ? most : w);
}

void HDO_ISA_FN(hdo__igemm_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                                hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), taps = (size_t)c->kh * (size_t)c->kw;
    source s = source_x(c, x);
    target t = {.dst = y, .M = c->O, .H = c->Ho, .W = c->Wo, .step = 1, .bias = bias};
    weights ws = {w, (size_t)c->C * taps, taps};
    make_taps(c, false, 0, 0, &s, a);
    if (s.nt > 0) {
        turn_source(&s, a);
        product(&s, &t, &ws, a);
    } else { /* every tap in the padding */
        size_t map = (size_t)c->Ho * (size_t)c->Wo;
        for (size_t i = 0; i < (size_t)c->B * (size_t)c->O * map; i++)
            y[i] = bias != NULL ? bias[i / map % (size_t)c->O] : 0;
    }
    hdo__arena_rewind(a, mark);
}

/* Input pixels no output looks at: a stride larger than the kernel. */
static void clear_class(const hdo_conv *c, int ry, int rx, float *dx) {
    size_t planes = (size_t)c->B * (size_t)c->C, plane = (size_t)c->H * (size_t)c->W;
    for (size_t p = 0; p < planes; p++, dx += plane)
        for (int y = ry; y < c->H; y += c->stride)
            for (int x = rx; x < c->W; x += c->stride) dx[y * c->W + x] = 0;
}

void HDO_ISA_FN(hdo__igemm_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a) {
    size_t taps = (size_t)c->kh * (size_t)c->kw;
    weights ws = {w, taps, (size_t)c->C * taps}; /* the transpose, in place */
    for (int ry = 0; ry < c->stride && ry < c->H; ry++)
        for (int rx = 0; rx < c->stride && rx < c->W; rx++) {
            size_t mark = hdo__arena_mark(a);
            source s = {.src = dy, .B = c->B, .S = c->O, .H = c->Ho, .W = c->Wo, .step = 1};
            s.Hg = (c->H - ry + c->stride - 1) / c->stride;
            s.Wg = (c->W - rx + c->stride - 1) / c->stride;
            target t = {.dst = dx, .M = c->C, .H = c->H, .W = c->W, .step = c->stride, .y0 = ry, .x0 = rx};
            make_taps(c, true, ry, rx, &s, a);
            if (s.nt > 0) {
                turn_source(&s, a);
                product(&s, &t, &ws, a);
            } else {
                clear_class(c, ry, rx, dx);
            }
            hdo__arena_rewind(a, mark);
        }
}

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
            MM_UNROLL for (size_t i = 0; i < VL; i++)
                r[i] = i < have ? load_lanes(src + c[i], l0 + t[i], runs[g]) : v_zero();
            v_transpose(r);
            MM_UNROLL for (int i = 0; i < VL; i++) v_store(d + i * NR, r[i]);
        }
    }
}

/* A tile (rows, NR) of sums into dw: contiguous when every tap lives, otherwise spread over the live taps. `cols`
 * columns from depth k0 on; the first contribution also writes the zeros of the dead taps in its span. */
static void write_weights(const hdo_conv *c, const source *s, size_t rows, size_t k0, size_t cols, bool add,
                          const float *sum, float *dw) {
    size_t taps = (size_t)c->kh * (size_t)c->kw, nt = (size_t)s->nt, K = (size_t)c->C * taps;
    size_t first = k0 / nt * taps + (k0 % nt == 0 ? 0 : (size_t)s->tap[k0 % nt]), k1 = k0 + cols;
    size_t end = k1 / nt * taps + (k1 % nt == 0 ? 0 : (size_t)s->tap[k1 % nt]);
    for (size_t r = 0; r < rows; r++, sum += NR, dw += K) {
        if (nt == taps) {
            for (size_t j = 0; j < cols; j++) dw[k0 + j] = add ? dw[k0 + j] + sum[j] : sum[j];
            continue;
        }
        if (!add) memset(dw + first, 0, (end - first) * sizeof *dw);
        for (size_t j = 0; j < cols; j++) {
            float *out = dw + (k0 + j) / nt * taps + (size_t)s->tap[(k0 + j) % nt];
            *out = add ? *out + sum[j] : sum[j];
        }
    }
}

void HDO_ISA_FN(hdo__igemm_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a);
    source s = source_x(c, x);
    make_taps(c, false, 0, 0, &s, a);
    size_t taps = (size_t)c->kh * (size_t)c->kw, nt = (size_t)s.nt, O = (size_t)c->O, K = (size_t)c->C * nt;
    size_t grid = (size_t)c->Ho * (size_t)c->Wo, N = (size_t)c->B * grid;
    size_t image = (size_t)c->C * (size_t)c->H * (size_t)c->W, full = (size_t)c->C * taps;
    if (nt == 0) {
        memset(dw, 0, O * full * sizeof *dw);
        hdo__arena_rewind(a, mark);
        return;
    }
    float *rows = hdo__arena_floats(a, O * NB); /* dy (O, nb) */
    float *panel = hdo__arena_floats(a, NB * NR);
    float *sum = hdo__arena_floats(a, MR * NR);
    lanes *ln = hdo__arena_take(a, NB / VL * nt * sizeof *ln);
    int32_t *off = hdo__arena_take(a, NB * sizeof *off);
    for (int32_t k = 0; k < NB; k++) off[k] = k;
    static const float zero[MR];
    bool runs[NB / VL];
    for (size_t n0 = 0, nb; n0 < N; n0 += nb) {
        /* Whole samples while they fit, otherwise pieces of one sample, whose dy can be used in place. */
        size_t b = n0 / grid, left = grid - n0 % grid;
        nb = grid > NB / 2 ? (left < NB ? left : NB) : NB / grid * grid;
        if (N - n0 < nb) nb = N - n0;
        size_t groups = (nb + VL - 1) / VL, lda = nb;
        make_lanes(&s, n0, nb, groups, ln, runs);
        const float *A = rows, *src = x + b * image;
        if (nb <= left) {
            A = dy + b * O * grid + n0 % grid;
            lda = grid;
        } else {
            for (size_t i = 0; i < nb / grid; i++)
                for (size_t o = 0; o < O; o++)
                    for (size_t p = 0; p < grid; p++) rows[o * nb + i * grid + p] = dy[((b + i) * O + o) * grid + p];
        }
        for (size_t k0 = 0; k0 < K; k0 += NR) {
            size_t cols = K - k0 < NR ? K - k0 : NR;
            pack_transposed(&s, k0, groups, src, ln, runs, panel);
            for (size_t i = 0; i < O; i += MR) {
                size_t m = O - i < MR ? O - i : MR;
                const float *ai = A + i * lda;
                if (cols == NR && nt == taps) {
                    tiles[m][NV](nb, ai, lda, off, panel, n0 > 0 ? NULL : zero, dw + i * full + k0, full);
                } else {
                    tiles[m][NV](nb, ai, lda, off, panel, zero, sum, NR);
                    write_weights(c, &s, m, k0, cols, n0 > 0, sum, dw + i * full);
                }
            }
        }
    }
    hdo__arena_rewind(a, mark);
}
