/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution as an implicit matrix product (see simd_igemm.h), forward and towards the input: the general case, and
 * the fast one for many channels on small maps. No column matrix is ever stored: panels of NR columns are packed
 * straight from the image, right before the tiles that use them; weights are used where they are.
 *
 * - forward: source x, grid = output map.
 * - bwd_x: source dy. Input pixels fall into stride x stride classes by their remainder; within a class the transposed
 *   convolution is a plain one with step 1 over the taps that reach it. No scatter-add, no multiplications by zero.
 *
 * An output is one chain of multiply-adds over (channel, tap), from the bias on; taps outside the image for all columns
 * of a panel are left out, others there are zeros: both leave the sum as it is.
 *
 * Tried and dropped: copies of the weights, transposed or with dead taps removed (at batch 10 the copy cost as much as
 * the product).
 */
#include "kernels/simd_igemm.h"

#define KC 320                        /* depth of a packed panel: 320 * NR floats = 20 kB of the first-level cache */
#define OUT_BLOCK ((size_t)1 << 16)   /* floats of unfinished output: 256 kB of the second-level cache */
#define PANEL_BLOCK ((size_t)1 << 16) /* floats of packed panels */

/* ---- tiles: out (rows, nv vectors) = start + A panel, or out += A panel ------------------------------------------ */

/* A is never copied: row r of depth k is A[r * am + off[k]], for the weights where they are, transposed or not, with
 * any choice of taps. The panel has a row of NR floats per k. */
typedef void tile_fn(size_t K, const float *A, size_t am, const int32_t *off, const float *panel, const float *start,
                     float *out, size_t ldo);

#define TILE(mr, nv)                                                                                                   \
    static void tile##mr##nv(size_t K, const float *A, size_t am, const int32_t *off, const float *panel,              \
                             const float *start, float *out, size_t ldo) {                                             \
        vec acc[MR][NV];                                                                                               \
        size_t am3 = 3 * am;                                                                                           \
        __asm__("" : "+r"(am3)); /* or the compiler chains additions through the rows */                               \
        MM_UNROLL for (int r = 0; r < mr; r++) {                                                                       \
            MM_UNROLL for (int v = 0; v < nv; v++) acc[r][v] =                                                         \
                start != NULL ? v_set1(start[r]) : v_load(out + (size_t)r * ldo + v * VL);                             \
        }                                                                                                              \
        for (size_t k = 0; k < K; k++, panel += NR) {                                                                  \
            const float *p = A + off[k], *q = p + am3; /* two bases: x86 addresses p, p + am, p + 2 am directly */     \
            vec b[NV];                                                                                                 \
            MM_UNROLL for (int v = 0; v < nv; v++) b[v] = v_load(panel + v * VL);                                      \
            MM_UNROLL for (int r = 0; r < mr; r++) {                                                                   \
                vec x = v_set1(r < 3 ? p[(size_t)r * am] : q[(size_t)(r - 3) * am]);                                   \
                MM_UNROLL for (int v = 0; v < nv; v++) acc[r][v] = v_fma(x, b[v], acc[r][v]);                          \
            }                                                                                                          \
        }                                                                                                              \
        MM_UNROLL for (int r = 0; r < mr; r++) {                                                                       \
            MM_UNROLL for (int v = 0; v < nv; v++) v_store(out + (size_t)r * ldo + v * VL, acc[r][v]);                 \
        }                                                                                                              \
    }
#define TILES(mr) TILE(mr, 1) TILE(mr, 2)
MM_EACH_ROW(TILES)
#define TILE_ROW(mr) {NULL, tile##mr##1, tile##mr##2},
static tile_fn *const tiles[MR + 1][NV + 1] = {{NULL, NULL, NULL}, MM_EACH_ROW(TILE_ROW)};

/* ---- forward-like product: dst (m, n) = bias + A columns(n) ------------------------------------------------------ */

typedef struct target {
    float *dst;                /* (B, M, H, W), or (M, H, W, B) when by pixel */
    size_t image;              /* floats between samples, unless by pixel */
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
    size_t per_sample = s->by_pixel ? 1 : t->image, per_pixel = s->by_pixel ? B : 1, per_row = plane * per_pixel;
    for (size_t j = 0, run; j < cols; j += run) { /* runs of columns that are neighbours in the target too */
        place at = place_of(s, n0 + j);
        run = s->by_pixel ? B - at.b : t->step == 1 ? (size_t)s->Hg * (size_t)s->Wg - at.y * (size_t)s->Wg - at.x : 1;
        run = run < cols - j ? run : cols - j;
        float *to = t->dst + at.b * per_sample +
                    per_pixel * ((at.y * (size_t)t->step + (size_t)t->y0) * (size_t)t->W + at.x * (size_t)t->step +
                                 (size_t)t->x0);
        const float *from = out + j;
        for (size_t m = 0; m < M; m++, to += per_row, from += ldo) {
            size_t i = 0;
            for (; i + VL <= run; i += VL) v_store(to + i, v_load(from + i));
            if (i < run) v_store_part(to + i, v_load_part(from + i, run - i), run - i);
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
    for (size_t v = 0; v < nv; v++)
        for (size_t k = 0; k < n; k++) { /* channels inside: the masks stay in registers */
            const lanes *l = ln + v * nt + (size_t)live[k];
            float *d = panel + k * NR + v * VL;
            if (runs[v])
                for (size_t c = 0; c < cb; c++) v_store(d + c * n * NR, load_lanes(src + c * channel, l, true));
            else
                for (size_t c = 0; c < cb; c++) v_store(d + c * n * NR, load_lanes(src + c * channel, l, false));
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

/* Small maps: columns are packed for a block, then the rows of A, once from memory each, run over all panels: the
 * weights of late layers are larger than any cache, the columns are not. Large maps: the other way round, one packed
 * panel in the first-level cache runs over all rows. */
static void product(const source *s, const target *t, const weights *w, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a);
    size_t N = (size_t)s->B * (size_t)s->Hg * (size_t)s->Wg, M = (size_t)t->M, nt = (size_t)s->nt;
    size_t plane = (size_t)s->H * (size_t)s->W, S = (size_t)s->S;
    size_t channel = s->by_pixel ? plane * (size_t)s->B : plane;
    blocking bl = choose_blocks(s, t->M, s->nt);
    size_t nc = bl.columns, per = bl.channels, deep = per * nt, panels = nc / NR;
    size_t group = s->by_pixel ? panels : 1;
    float *out = hdo__arena_floats(a, nc * M);
    float *panel = hdo__arena_floats(a, group * NR * deep);
    int32_t *off = hdo__arena_take(a, group * deep * sizeof *off), *live = hdo__arena_take(a, nt * sizeof *live);
    size_t *depth = hdo__arena_take(a, group * sizeof *depth);
    lanes *ln = hdo__arena_take(a, NV * nt * sizeof *ln);
    for (size_t n0 = 0; n0 < N; n0 += nc) {
        size_t nb = N - n0 < nc ? N - n0 : nc;
        for (size_t c0 = 0; c0 < S; c0 += per) {
            size_t cb = S - c0 < per ? S - c0 : per;
            for (size_t g = 0; g < nb; g += group * NR) {
                size_t end = nb - g < group * NR ? nb : g + group * NR;
                for (size_t j = g, i = 0; j < end; j += NR, i++) {
                    size_t cols = end - j < NR ? end - j : NR, nv = (cols + VL - 1) / VL;
                    bool runs[NV] = {false};
                    make_lanes(s, n0 + j, cols, nv, ln, runs);
                    const float *src = s->src + (s->by_pixel ? 0 : place_of(s, n0 + j).b * s->image) + c0 * channel;
                    depth[i] =
                        pack_columns(s, w, cb, nv, src, channel, ln, runs, live, panel + i * NR * deep, off + i * deep);
                }
                for (size_t m = 0; m < M; m += MR) {
                    size_t rows = M - m < MR ? M - m : MR;
                    const float *A = w->w + m * w->am + c0 * w->as;
                    float start[MR] = {0};
                    if (t->bias != NULL) memcpy(start, t->bias + m, rows * sizeof *start);
                    for (size_t j = g, i = 0; j < end; j += NR, i++)
                        tiles[rows][end - j <= VL ? 1 : 2](depth[i], A, w->am, off + i * deep, panel + i * NR * deep,
                                                           c0 > 0 ? NULL : start, out + m * nc + j, nc);
                }
            }
        }
        write_columns(s, t, n0, nb, out, nc);
    }
    hdo__arena_rewind(a, mark);
}

/* Scratch of `product` and of turned source and target, at most, for M rows, a grid, S source channels and nt taps. */
static size_t product_work(int B, int M, int Hg, int Wg, int S, size_t source_plane, size_t target_plane, int nt,
                           bool by_pixel) {
    source s = {.B = B, .S = S, .Hg = Hg, .Wg = Wg};
    size_t most = 0, turned = 0;
    for (int live = 1; live <= nt; live++) { /* fewer live taps may mean larger blocks */
        blocking bl = choose_blocks(&s, M, live);
        size_t deep = bl.channels * (size_t)live, group = by_pixel ? bl.columns / NR : 1;
        size_t v = hdo__arena_round(bl.columns * (size_t)M * sizeof(float)) +
                   hdo__arena_round(group * NR * deep * sizeof(float)) +
                   hdo__arena_round(group * deep * sizeof(int32_t)) + hdo__arena_round((size_t)live * sizeof(int32_t)) +
                   hdo__arena_round(group * sizeof(size_t)) + hdo__arena_round(NV * (size_t)live * sizeof(lanes));
        most = v > most ? v : most;
    }
    if (by_pixel)
        turned = hdo__arena_round((size_t)B * (size_t)S * source_plane * sizeof(float)) +
                 hdo__arena_round((size_t)B * (size_t)M * target_plane * sizeof(float));
    return most + turned;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

size_t HDO_ISA_FN(hdo__igemm_work)(const hdo_conv *c) {
    int nt = c->kh * c->kw, Hg = (c->H + c->stride - 1) / c->stride, Wg = (c->W + c->stride - 1) / c->stride;
    size_t x_plane = (size_t)c->H * (size_t)c->W, y_plane = (size_t)c->Ho * (size_t)c->Wo;
    size_t f = product_work(c->B, c->O, c->Ho, c->Wo, c->C, x_plane, y_plane, nt, goes_by_pixel(c->B, c->Ho, c->Wo));
    size_t x = 0; /* the classes of bwd_x have one of two sizes on each axis */
    for (int i = 0; i < 4; i++) {
        int h = Hg - (i & 1 && Hg > 1), v = Wg - (i & 2 && Wg > 1);
        size_t work = product_work(c->B, c->C, h, v, c->O, y_plane, x_plane, nt, goes_by_pixel(c->B, Hg, Wg));
        x = work > x ? work : x;
    }
    return tap_work(c) + (f > x ? f : x);
}

void HDO_ISA_FN(hdo__igemm_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                                hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), taps = (size_t)c->kh * (size_t)c->kw, B = (size_t)c->B;
    size_t image_x = (size_t)c->C * (size_t)c->H * (size_t)c->W, image_y = (size_t)c->O * (size_t)c->Ho * (size_t)c->Wo;
    source s = source_x(c, x);
    target t = {.dst = y, .image = c->y_step, .M = c->O, .H = c->Ho, .W = c->Wo, .step = 1, .bias = bias};
    weights ws = {w, c->w_step, taps};
    make_taps(c, false, 0, 0, &s, a);
    s.by_pixel = goes_by_pixel(c->B, c->Ho, c->Wo);
    if (s.nt == 0) { /* every tap in the padding */
        size_t map = (size_t)c->Ho * (size_t)c->Wo;
        for (size_t i = 0; i < B * image_y; i++)
            y[i / image_y * c->y_step + i % image_y] = bias != NULL ? bias[i / map % (size_t)c->O] : 0;
    } else if (s.by_pixel) {
        s.src = turn(B, image_x, x, c->x_step, a);
        t.dst = hdo__arena_floats(a, B * image_y);
        product(&s, &t, &ws, a);
        turn_back(B, image_y, t.dst, y, c->y_step);
    } else {
        product(&s, &t, &ws, a);
    }
    hdo__arena_rewind(a, mark);
}

/* Input pixels no output looks at: a stride larger than the kernel. dx (planes, H, W, inner). */
static void clear_class(const hdo_conv *c, int ry, int rx, size_t planes, size_t inner, float *dx) {
    size_t W = (size_t)c->W, step = (size_t)c->stride;
    for (size_t p = 0; p < planes; p++, dx += (size_t)c->H * W * inner)
        for (size_t y = (size_t)ry; y < (size_t)c->H; y += step)
            for (size_t x = (size_t)rx; x < W; x += step) memset(dx + (y * W + x) * inner, 0, inner * sizeof *dx);
}

void HDO_ISA_FN(hdo__igemm_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), taps = (size_t)c->kh * (size_t)c->kw, B = (size_t)c->B;
    size_t image_x = (size_t)c->C * (size_t)c->H * (size_t)c->W, image_y = (size_t)c->O * (size_t)c->Ho * (size_t)c->Wo;
    weights ws = {w, taps, c->w_step}; /* the transpose, in place */
    /* All classes go the way of the largest: they write one array. */
    bool by_pixel = goes_by_pixel(c->B, (c->H + c->stride - 1) / c->stride, (c->W + c->stride - 1) / c->stride);
    const float *src = by_pixel ? turn(B, image_y, dy, c->y_step, a) : dy;
    float *dst = by_pixel ? hdo__arena_floats(a, B * image_x) : dx;
    for (int ry = 0; ry < c->stride && ry < c->H; ry++)
        for (int rx = 0; rx < c->stride && rx < c->W; rx++) {
            size_t here = hdo__arena_mark(a);
            source s = {.src = src, .B = c->B, .S = c->O, .H = c->Ho, .W = c->Wo, .step = 1, .by_pixel = by_pixel};
            s.image = c->y_step;
            s.Hg = (c->H - ry + c->stride - 1) / c->stride;
            s.Wg = (c->W - rx + c->stride - 1) / c->stride;
            target t = {.dst = dst, .M = c->C, .H = c->H, .W = c->W, .step = c->stride, .y0 = ry, .x0 = rx};
            t.image = c->x_step;
            make_taps(c, true, ry, rx, &s, a);
            if (s.nt > 0)
                product(&s, &t, &ws, a);
            else
                for (size_t b = 0; b < (by_pixel ? 1 : B); b++)
                    clear_class(c, ry, rx, (size_t)c->C, by_pixel ? B : 1, dst + b * c->x_step);
            hdo__arena_rewind(a, here);
        }
    if (by_pixel) turn_back(B, image_x, dst, dx, c->x_step);
    hdo__arena_rewind(a, mark);
}
