/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to simd_igemm.c and simd_convw.c (simd_wino.c takes only the transposes): the columns of a convolution seen
 * as a matrix product, without the matrix.
 *
 * Columns n are (sample, grid y, grid x), flat over the whole batch, so that maps of 2 x 2 or 1 x 1 still fill vectors.
 * Depth k is (source channel, tap). Taps that fall outside the image for every grid position are dropped (3 x 3 on
 * 1 x 1 maps: eight of nine). What is left outside is a masked lane.
 */
#ifndef HDO_KERNELS_SIMD_IGEMM_H
#define HDO_KERNELS_SIMD_IGEMM_H

#include "kernels/simd_mm.h"

/* One product: where the columns come from. */
typedef struct source {
    const float *src; /* (B, S, H, W), or (S, H, W, B) when by_pixel */
    int B, S, H, W;
    size_t image;       /* floats between samples, unless by_pixel */
    int Hg, Wg, step;   /* grid; source coordinate = grid coordinate * step + tap offset */
    int nt;             /* live taps */
    const int *ty, *tx; /* (nt) offsets */
    const int *tap;     /* (nt) index in the (kh, kw) kernel */
    bool by_pixel;      /* columns are (grid y, grid x, sample) instead of (sample, grid y, grid x) */
} source;

/* Small maps go by pixel: neighbouring columns are then samples of one pixel, a panel needs only the taps that are
 * inside the image there (2 x 2 maps: four of nine), and a tap's columns are one run in the transposed source. */
static inline bool goes_by_pixel(int B, int Hg, int Wg) {
    return B >= 4 && Hg * Wg <= 16;
}

typedef struct place {
    size_t b, y, x;
} place;

static inline place place_of(const source *s, size_t n) { /* sample and grid point of column n */
    size_t B = (size_t)s->B, W = (size_t)s->Wg, grid = (size_t)s->Hg * W;
    size_t b = s->by_pixel ? n % B : n / grid, p = s->by_pixel ? n / B : n - b * grid;
    return (place){b, p / W, p % W};
}

/* VL neighbouring columns under one tap: lanes inside the image, and where they are relative to channel 0 (of the
 * sample of column n0, unless by pixel). Lanes outside have mask 0 and index 0. */
typedef struct lanes {
    int32_t mask[VL], idx[VL];
    int32_t first; /* index of lane 0, inside or not, for a run of VL consecutive numbers; see `runs` */
    int32_t any;   /* a lane is inside */
} lanes;

/* Fills (groups, nt) lanes for columns [n0, n0 + cols); runs[g]: the columns of group g are consecutive in the source,
 * so that one masked load fetches them. */
static inline void make_lanes(const source *s, size_t n0, size_t cols, size_t groups, lanes *out, bool *runs) {
    size_t per_sample = s->by_pixel ? 1 : s->image, b0 = s->by_pixel ? 0 : place_of(s, n0).b;
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
                bool inside = (uint32_t)(y[l] + ty) < (uint32_t)s->H && (uint32_t)(x[l] + tx) < (uint32_t)s->W;
                int32_t in = -(int32_t)inside;
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
    return run ? v_load_masked(src + o->first, o->mask) : v_gather_masked(src, o->idx, o->mask);
}

/* dst (cols, rows) = src (rows, cols) transposed. */
static inline void transpose(size_t rows, size_t cols, const float *src, size_t lds, float *dst, size_t ldd) {
    for (size_t i = 0; i < rows; i += VL) {
        size_t m = rows - i < VL ? rows - i : VL;
        const float *row[VL];
        for (size_t k = 0; k < VL; k++) row[k] = src + (k < m ? i + k : i) * lds;
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

/* Samples last: (B, n) to (n, B), and back; samples are `step` apart. */
static inline const float *turn(size_t B, size_t n, const float *src, size_t step, hdo_arena *a) {
    float *turned = hdo__arena_floats(a, B * n);
    transpose(B, n, src, step, turned, B);
    return turned;
}
static inline void turn_back(size_t B, size_t n, const float *turned, float *dst, size_t step) {
    transpose(n, B, turned, B, dst, step);
}

/* ---- taps -------------------------------------------------------------------------------------------------------- */

/* One axis of a class of grid points: live taps k and their offsets. Forward: all taps, source = o * stride - pad + k.
 * Backward, remainder r: taps with k = r + pad modulo stride, source = g + (r + pad - k) / stride. Returns how many. */
static inline int axis_taps(const hdo_conv *c, bool back, int r, int kernel, int grid, int n, int *k_out,
                            int *off_out) {
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

/* Fills s->nt, ty, tx, tap; the arrays come from the arena (see tap_work). */
static inline void make_taps(const hdo_conv *c, bool back, int ry, int rx, source *s, hdo_arena *a) {
    size_t most = (size_t)c->kh * (size_t)c->kw;
    int *ky = hdo__arena_take(a, 2 * (size_t)c->kh * sizeof(int));
    int *kx = hdo__arena_take(a, 2 * (size_t)c->kw * sizeof(int));
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

static inline size_t tap_work(const hdo_conv *c) {
    size_t most = (size_t)c->kh * (size_t)c->kw;
    return hdo__arena_round(2 * (size_t)c->kh * sizeof(int)) + hdo__arena_round(2 * (size_t)c->kw * sizeof(int)) +
           3 * hdo__arena_round(most * sizeof(int));
}

static inline source source_x(const hdo_conv *c, const float *x) {
    return (source){.src = x,
                    .B = c->B,
                    .S = c->C,
                    .H = c->H,
                    .W = c->W,
                    .image = c->x_step,
                    .Hg = c->Ho,
                    .Wg = c->Wo,
                    .step = c->stride};
}

#endif
