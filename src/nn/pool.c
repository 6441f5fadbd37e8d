/* SPDX-License-Identifier: Apache-2.0
 *
 * Max-pool (ReLU fused when asked: max and ReLU commute, and after the pool it touches a quarter of the numbers),
 * global average pool, and bilinear resizing of the input images.
 *
 *   max-pool   fwd  y = max over the window; positions outside the image do not count
 *              bwd  dx = dy at the first maximum, whose place in the window is kept as one byte an output
 *              jvp  ty = tx at the first maximum; cplx is jvp: the largest real part picks the piece
 */
#include <math.h>
#include <string.h>

#include "nn/layer.h"

/* ---- max-pool ---- */

static size_t maxpool_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)net;
    return G > 0 ? hdo__arena_round((size_t)B * l->n) : 0; /* places, one byte an output */
}

/* best (n) and place (n; may be NULL) meet tap `at` of their windows: the first of equals stays, a NaN is passed on.
 * Without branches: which of nine numbers is the largest cannot be foreseen. */
static void pool_tap(int n, int stride, const float *restrict x, uint8_t at, float *restrict best,
                     uint8_t *restrict place) {
    if (place == NULL) {
        for (int o = 0; o < n; o++) {
            float v = x[(ptrdiff_t)o * stride], b = best[o];
            best[o] = ((v > b) | (v != v)) ? v : b; /* -INFINITY over -INFINITY changes nothing */
        }
        return;
    }
    for (int o = 0; o < n; o++) {
        float v = x[(ptrdiff_t)o * stride], b = best[o];
        bool take = (v > b) | (b == -INFINITY) | (v != v);
        best[o] = take ? v : b;
        place[o] = take ? at : place[o];
    }
}

/* One map (H, W) -> (Ho, Wo); place may be NULL. */
static void pool_map(const hdo_conv *c, bool relu, const float *x, float *y, uint8_t *place) {
    for (int oy = 0; oy < c->Ho; oy++, y += c->Wo) {
        for (int ox = 0; ox < c->Wo; ox++) y[ox] = -INFINITY;
        if (place != NULL) memset(place, 0, (size_t)c->Wo);
        for (int ky = 0; ky < c->kh; ky++) {
            int iy = oy * c->stride - c->pad + ky;
            if (iy < 0 || iy >= c->H) continue;
            const float *row = x + (size_t)iy * (size_t)c->W;
            for (int kx = 0; kx < c->kw; kx++) { /* outputs lo .. hi-1 have column ox stride - pad + kx in the image */
                int before = c->pad - kx, last = c->W - 1 + before;
                int lo = before > 0 ? (before + c->stride - 1) / c->stride : 0;
                int hi = last < 0 ? 0 : last / c->stride + 1 < c->Wo ? last / c->stride + 1 : c->Wo;
                if (lo >= hi) continue;
                pool_tap(hi - lo, c->stride, row + (ptrdiff_t)lo * c->stride - before, (uint8_t)(ky * c->kw + kx),
                         y + lo, place != NULL ? place + lo : NULL);
            }
        }
        if (relu) {
            for (int ox = 0; ox < c->Wo; ox++) y[ox] = y[ox] < 0 ? 0 : y[ox];
        }
        if (place != NULL) place += c->Wo;
    }
}

static bool is_2x2(const hdo_conv *c) {
    return c->kh == 2 && c->kw == 2 && c->stride == 2 && c->pad == 0;
}

static bool is_3x3(const hdo_conv *c) {
    return c->kh == 3 && c->kw == 3 && c->stride == 2 && c->pad == 1;
}

typedef struct pool_args {
    const hdo_layer *l;
    const hdo_nn_simd *simd;
    const float *x;
    float *y;
    uint8_t *place;
} pool_args;

/* Samples lo .. hi-1. */
static void maxpool_piece(void *ctx, int lo, int hi, hdo_work *w) {
    (void)w;
    pool_args *v = ctx;
    const hdo_conv *c = &v->l->geo;
    size_t xi = (size_t)c->H * (size_t)c->W, yi = (size_t)c->Ho * (size_t)c->Wo;
    for (size_t m = (size_t)lo * (size_t)c->C; m < (size_t)hi * (size_t)c->C; m++) {
        uint8_t *place = v->place != NULL ? v->place + m * yi : NULL;
        if (is_2x2(c)) {
            v->simd->pool2(c->Ho, c->Wo, c->W, v->l->relu, v->x + m * xi, v->y + m * yi, place);
        } else if (is_3x3(c) && place == NULL) {
            v->simd->pool3(c->H, c->W, v->l->relu, v->x + m * xi, v->y + m * yi);
        } else {
            pool_map(c, v->l->relu, v->x + m * xi, v->y + m * yi, place);
        }
    }
}

static void maxpool_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    pool_args v = {.l = l, .simd = p->v, .x = io->in, .y = io->out, .place = (uint8_t *)io->aux};
    hdo__pass_pieces(p, p->B, hdo__pieces(p, p->B), maxpool_piece, &v);
}

static void maxpool_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    const hdo_conv *c = &l->geo;
    const uint8_t *place = (const uint8_t *)io->aux;
    float *dout = io->dout, *din = io->din;
    if (din == NULL) return;
    size_t xi = (size_t)c->H * (size_t)c->W, yi = (size_t)c->Ho * (size_t)c->Wo, maps = (size_t)p->B * (size_t)c->C;
    if (l->relu) p->v->relu_mask(maps * yi, io->out, dout);
    bool two = is_2x2(c);
    if (!two || c->H != 2 * c->Ho || c->W != 2 * c->Wo) memset(din, 0, maps * xi * sizeof(float));
    for (size_t m = 0; m < maps; m++) {
        float *dx = din + m * xi;
        if (two) { /* windows do not overlap: all places are written at once */
            p->v->pool2_back(c->Ho, c->Wo, c->W, place + m * yi, dout + m * yi, dx);
            continue;
        }
        for (int oy = 0; oy < c->Ho; oy++)
            for (int ox = 0; ox < c->Wo; ox++) {
                size_t o = m * yi + (size_t)oy * (size_t)c->Wo + (size_t)ox;
                int iy = oy * c->stride - c->pad + place[o] / c->kw, ix = ox * c->stride - c->pad + place[o] % c->kw;
                dx[(size_t)iy * (size_t)c->W + (size_t)ix] += dout[o]; /* windows may overlap */
            }
    }
}

static void maxpool_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    const hdo_conv *c = &l->geo;
    hdo_arena *a = p->work->arena;
    size_t xi = (size_t)c->H * (size_t)c->W, yi = (size_t)c->Ho * (size_t)c->Wo, maps = (size_t)p->B * (size_t)c->C;
    size_t mark = hdo__arena_mark(a);
    uint8_t *place = hdo__arena_take(a, maps * yi);
    pool_args v = {.l = l, .simd = p->v, .x = io->in, .y = io->out, .place = place};
    maxpool_piece(&v, 0, p->B, p->work);
    for (int r = 0; r < p->G; r++) {
        const float *tx = io->tin + (size_t)r * maps * xi;
        float *ty = io->tout + (size_t)r * maps * yi;
        for (size_t m = 0; m < maps; m++) {
            if (is_2x2(c)) {
                p->v->pool2_pick(c->Ho, c->Wo, c->W, place + m * yi, tx + m * xi, ty + m * yi);
                continue;
            }
            for (size_t o = 0; o < yi; o++) {
                int oy = (int)o / c->Wo, ox = (int)o % c->Wo, at = place[m * yi + o];
                int iy = oy * c->stride - c->pad + at / c->kw, ix = ox * c->stride - c->pad + at % c->kw;
                ty[m * yi + o] = tx[m * xi + (size_t)iy * (size_t)c->W + (size_t)ix];
            }
        }
        if (l->relu) p->v->relu_mask(maps * yi, io->out, ty);
    }
    hdo__arena_rewind(a, mark);
}

static const hdo_layer_ops maxpool_ops = {.name = "maxpool",
                                          .fuses_relu = true,
                                          .work = maxpool_work,
                                          .fwd = maxpool_fwd,
                                          .bwd = maxpool_bwd,
                                          .jvp = maxpool_jvp,
                                          .cplx = maxpool_jvp};

/* ---- global average: (C, H, W) -> (C) ---- */

static void average(const hdo_layer *l, size_t maps, const float *x, float *y) {
    size_t n = (size_t)l->geo.H * (size_t)l->geo.W;
    for (size_t m = 0; m < maps; m++) {
        double s = 0;
        for (size_t i = 0; i < n; i++) s += (double)x[m * n + i];
        y[m] = (float)(s / (double)n);
    }
}

static void avgpool_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    average(l, (size_t)p->B * (size_t)l->geo.C, io->in, io->out);
}

static void avgpool_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    if (io->din == NULL) return;
    size_t n = (size_t)l->geo.H * (size_t)l->geo.W, maps = (size_t)p->B * (size_t)l->geo.C;
    float share = 1.0f / (float)n;
    for (size_t m = 0; m < maps; m++)
        for (size_t i = 0; i < n; i++) io->din[m * n + i] = io->dout[m] * share;
}

static void avgpool_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t maps = (size_t)p->B * (size_t)l->geo.C;
    average(l, maps, io->in, io->out);
    average(l, (size_t)p->G * maps, io->tin, io->tout);
}

static const hdo_layer_ops avgpool_ops = {
    .name = "avgpool", .fwd = avgpool_fwd, .bwd = avgpool_bwd, .jvp = avgpool_jvp, .cplx = avgpool_jvp};

/* ---- bilinear resizing of the input to kh x kw, of which the centre Ho x Wo is made; half-pixel centres, as PyTorch's
 * align_corners=False. No parameters before it, so it has neither gradient nor tangent. ---- */

static void resize_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    const hdo_conv *c = &l->geo;
    size_t xi = (size_t)c->H * (size_t)c->W, yi = (size_t)c->Ho * (size_t)c->Wo;
    float sy = (float)c->H / (float)c->kh, sx = (float)c->W / (float)c->kw;
    for (size_t m = 0; m < (size_t)p->B * (size_t)c->C; m++)
        for (int oy = 0; oy < c->Ho; oy++) {
            float fy = ((float)(oy + c->pad) + 0.5f) * sy - 0.5f;
            if (fy < 0) fy = 0;
            int y0 = (int)fy, y1 = y0 + (y0 < c->H - 1);
            float wy = fy - (float)y0;
            const float *r0 = io->in + m * xi + (size_t)y0 * (size_t)c->W,
                        *r1 = io->in + m * xi + (size_t)y1 * (size_t)c->W;
            float *to = io->out + m * yi + (size_t)oy * (size_t)c->Wo;
            for (int ox = 0; ox < c->Wo; ox++) {
                float fx = ((float)(ox + c->pad) + 0.5f) * sx - 0.5f;
                if (fx < 0) fx = 0;
                int x0 = (int)fx, x1 = x0 + (x0 < c->W - 1);
                float wx = fx - (float)x0;
                to[ox] = (1 - wy) * ((1 - wx) * r0[x0] + wx * r0[x1]) + wy * ((1 - wx) * r1[x0] + wx * r1[x1]);
            }
        }
}

static const hdo_layer_ops resize_ops = {.name = "resize", .fwd = resize_fwd};

/* ---- constructors ---- */

int hdo__maxpool_add(hdo_net *net, int in, int kernel, int stride, int pad) {
    const hdo_value *v = hdo__net_value(net, in);
    hdo_conv c = {
        .B = 1, .C = v->C, .H = v->H, .W = v->W, .O = v->C, .kh = kernel, .kw = kernel, .stride = stride, .pad = pad};
    hdo__conv_init(&c);
    if (c.Ho < 1 || c.Wo < 1 || pad >= kernel || kernel > 15) return -1;
    bool relu = hdo__net_take_relu(net, in);
    hdo_value out = {.n = (size_t)c.C * (size_t)c.Ho * (size_t)c.Wo, .C = c.C, .H = c.Ho, .W = c.Wo};
    hdo_layer *l = hdo__net_layer(net, &maxpool_ops, in, -1, out);
    if (l == NULL) return -1;
    l->geo = c;
    l->relu = relu;
    l->aux = (out.n + 3) / 4;
    return l->out;
}

int hdo__avgpool_add(hdo_net *net, int in) {
    const hdo_value *v = hdo__net_value(net, in);
    hdo_value out = {.n = (size_t)v->C, .C = v->C, .H = 1, .W = 1};
    hdo_layer *l = hdo__net_layer(net, &avgpool_ops, in, -1, out);
    if (l == NULL) return -1;
    l->geo = (hdo_conv){.B = 1, .C = v->C, .H = v->H, .W = v->W};
    return l->out;
}

int hdo__resize_add(hdo_net *net, int in, int size, int crop) {
    const hdo_value *v = hdo__net_value(net, in);
    int first = (int)nearbyint((size - crop) / 2.0); /* an odd rest: to the even side, as torchvision's CenterCrop */
    hdo_value out = {.n = (size_t)v->C * (size_t)crop * (size_t)crop, .C = v->C, .H = crop, .W = crop};
    hdo_layer *l = hdo__net_layer(net, &resize_ops, in, -1, out);
    if (l == NULL) return -1;
    l->geo = (hdo_conv){
        .B = 1, .C = v->C, .H = v->H, .W = v->W, .kh = size, .kw = size, .pad = first, .Ho = crop, .Wo = crop};
    return l->out;
}
