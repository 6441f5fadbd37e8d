/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward convolution with stride 2 of few channels: the first layer of image networks. An image is split into four,
 * by even and odd rows and columns, with zeros around; there a tap is a shift, so that VL neighbouring outputs of a row
 * are one plain load and nothing is packed: MR output channels times NV vectors of a row in registers. An image and the
 * weights of MR channels live in the first-level cache.
 */
#include "kernels/simd_mm.h"

#define STEP 2
#define IMAGE_BYTES ((size_t)24 << 10)

typedef struct split {
    size_t H, W;  /* of one of the STEP x STEP images */
    size_t image; /* floats of one of them */
    size_t K;     /* channels times taps */
} split;

static split split_of(const hdo_conv *c) {
    split s = {.H = (size_t)(c->Ho + (c->kh - 1) / STEP), .W = (size_t)(c->Wo + (c->kw - 1) / STEP)};
    s.image = s.H * s.W;
    s.K = (size_t)c->C * (size_t)c->kh * (size_t)c->kw;
    return s;
}

bool HDO_ISA_FN(hdo__stem_fits)(const hdo_conv *c) {
    size_t images = (size_t)c->C * STEP * STEP;
    return c->stride == STEP && c->kh > 1 && c->kw > 1 && c->C <= 4 && c->Ho > 0 && c->Wo > 0 && c->Wo % 8 == 0 &&
           images * split_of(c).image * sizeof(float) <= IMAGE_BYTES;
}

static size_t panels_of(const hdo_conv *c) {
    return ((size_t)c->O + MR - 1) / MR;
}

size_t HDO_ISA_FN(hdo__stem_work)(const hdo_conv *c) {
    split s = split_of(c);
    return hdo__arena_round((size_t)c->C * STEP * STEP * s.image * sizeof(float)) +
           hdo__arena_round(panels_of(c) * MR * s.K * sizeof(float)) +
           hdo__arena_round(panels_of(c) * MR * sizeof(float)) + hdo__arena_round(s.K * sizeof(int32_t));
}

/* out (MR, nv vectors) = bias + sum over k of w[k * MR + r] x[off[k] ...] */
MM_INLINE void row_tile(int nv, size_t K, const float *w, const int32_t *off, const float *x, const float *bias,
                        float *out, size_t ldo) {
    vec acc[MR][NV];
    MM_UNROLL for (int r = 0; r < MR; r++) {
        MM_UNROLL for (int v = 0; v < nv; v++) acc[r][v] = v_set1(bias[r]);
    }
    for (size_t k = 0; k < K; k++, w += MR) {
        vec in[NV];
        MM_UNROLL for (int v = 0; v < nv; v++) in[v] = v_load(x + off[k] + v * VL);
        MM_UNROLL for (int r = 0; r < MR; r++) {
            vec a = v_set1(w[r]);
            MM_UNROLL for (int v = 0; v < nv; v++) acc[r][v] = v_fma(a, in[v], acc[r][v]);
        }
    }
    MM_UNROLL for (int r = 0; r < MR; r++) {
        MM_UNROLL for (int v = 0; v < nv; v++) v_store(out + (size_t)r * ldo + v * VL, acc[r][v]);
    }
}

static void row_tiles(size_t n, size_t K, const float *w, const int32_t *off, const float *x, const float *bias,
                      float *out, size_t ldo) {
    size_t i = 0;
    for (; i + NR <= n; i += NR) row_tile(NV, K, w, off, x + i, bias, out + i, ldo);
    for (; i < n; i += VL) row_tile(1, K, w, off, x + i, bias, out + i, ldo);
}

/* The channel's four images (even and odd row, even and odd column), borders untouched. */
static void split_channel(const hdo_conv *c, const split *s, const float *x, float *to) {
    for (int y = 0; y < c->H; y++, x += c->W) {
        size_t Y = (size_t)(y + c->pad);
        if (Y / STEP >= s->H) continue; /* rows and columns no output looks at */
        for (int odd = 0; odd < STEP; odd++) {
            float *row = to + ((Y % STEP) * STEP + (size_t)odd) * s->image + Y / STEP * s->W;
            int first = (odd + c->pad) % STEP;
            size_t at = (size_t)(first + c->pad) / STEP;
            for (int i = first; i < c->W && at < s->W; i += STEP) row[at++] = x[i];
        }
    }
}

void HDO_ISA_FN(hdo__stem_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                               hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), O = (size_t)c->O, C = (size_t)c->C, kw = (size_t)c->kw, Wo = (size_t)c->Wo;
    size_t map = (size_t)c->Ho * Wo, taps = (size_t)c->kh * kw, rows = panels_of(c) * MR;
    split s = split_of(c);
    float *images = hdo__arena_floats(a, C * STEP * STEP * s.image);
    float *wp = hdo__arena_floats(a, rows * s.K); /* (panels, K, MR) */
    float *start = hdo__arena_floats(a, rows);
    int32_t *off = hdo__arena_take(a, s.K * sizeof *off);
    memset(images, 0, C * STEP * STEP * s.image * sizeof *images);
    for (size_t o = 0; o < rows; o++) {
        start[o] = o < O && bias != NULL ? bias[o] : 0;
        for (size_t k = 0; k < s.K; k++) wp[o / MR * MR * s.K + k * MR + o % MR] = o < O ? w[o * c->w_step + k] : 0;
    }
    for (size_t k = 0; k < s.K; k++) {
        size_t ky = k % taps / kw, kx = k % kw;
        off[k] =
            (int32_t)((k / taps * STEP * STEP + ky % STEP * STEP + kx % STEP) * s.image + ky / STEP * s.W + kx / STEP);
    }
    for (size_t b = 0; b < (size_t)c->B; b++) {
        for (size_t i = 0; i < C; i++)
            split_channel(c, &s, x + b * c->x_step + i * (size_t)(c->H * c->W), images + i * STEP * STEP * s.image);
        for (size_t o = 0; o < O; o += MR)
            for (size_t oy = 0; oy < (size_t)c->Ho; oy++) {
                float *to = y + b * c->y_step + o * map + oy * Wo, part[MR * NR];
                if (O - o >= MR) {
                    row_tiles(Wo, s.K, wp + o * s.K, off, images + oy * s.W, start + o, to, map);
                    continue;
                }
                for (size_t i = 0; i < Wo; i += NR) { /* fewer than MR channels are left */
                    size_t n = Wo - i < NR ? Wo - i : NR;
                    row_tiles(n, s.K, wp + o * s.K, off, images + oy * s.W + i, start + o, part, NR);
                    for (size_t r = 0; r < O - o; r++) memcpy(to + r * map + i, part + r * NR, n * sizeof *part);
                }
            }
    }
    hdo__arena_rewind(a, mark);
}
