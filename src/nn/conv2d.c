/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions over (B, C, H, W), ReLU fused when asked.
 *
 *   fwd   y = w * x + b         perturbed weights come as tiles of output channels
 *   bwd   dw, db, dx            by the kernels; a second chunk of a lane adds to g through a temporary
 *   jvp   ty_r = w * tx_r + tw_r * x + tb_r
 *                               the first term treats the G tangents as one batch of G B samples
 *   cplx  the same for the imaginary part (over nu), and y -= nu^2 tw * tx
 *
 * Wide passes (batch-norm networks) spread pieces of samples or, when the weights are many, of channels: forward and dx
 * are separable over both, dw over output channels. Every number is the same sum whatever piece it is in, so the cut
 * may depend on the number of threads and one thread cuts nothing.
 *
 * A kernel that covers the whole picture in its one position is a linear layer: linear.c serves it (base/split.h).
 */
#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "kernels/cplx.h"
#include "nn/nn.h"

static hdo_conv geometry(const hdo_layer *l, int B, int O) {
    hdo_conv c = l->geo;
    c.B = B;
    c.O = O;
    return c;
}

static size_t row_len(const hdo_layer *l) {
    return (size_t)l->geo.C * (size_t)l->geo.kh * (size_t)l->geo.kw;
}
static size_t map_len(const hdo_layer *l) {
    return (size_t)l->geo.Ho * (size_t)l->geo.Wo;
}

enum { MANY_WEIGHTS = 1 << 16 }; /* floats: pieces are then of channels, each reading its part of the weights */

/* Pieces of channels are made of whole units. */
static int unit_of(int channels) {
    return channels % 16 == 0 ? 16 : channels;
}

static size_t kernel_work(const hdo_layer *l, const hdo_net *net, int B) {
    size_t most = 0;
    for (int part = 0; part < 2; part++) { /* a part of the channels may need more than all of them */
        hdo_conv c = geometry(l, B, l->geo.O);
        int *n = part == 0 ? &c.O : &c.C, all = *n;
        for (*n = unit_of(all); *n <= all; *n += unit_of(all)) {
            size_t work = net->k->conv_work(&c);
            most = work > most ? work : most;
        }
    }
    return most;
}

static size_t conv2d_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    size_t w = net->params.row[l->weight].len, out = (size_t)B * (size_t)l->geo.O * map_len(l);
    size_t kernel = kernel_work(l, net, B * (G > 1 ? G : 1));
    size_t grad = 0, fwd = 0;
    if (G == 0) grad = hdo__arena_round(w * sizeof(float)) + hdo__arena_round((size_t)l->geo.O * sizeof(float));
    if (G > 0 || !net->small)
        fwd = hdo__tile_bytes(net, l->geo.O, row_len(l)) + hdo__tile_bytes(net, 1, (size_t)l->geo.O) +
              hdo__arena_round(out * sizeof(float));
    return kernel + (grad > fwd ? grad : fwd);
}

typedef struct conv_args {
    const hdo_layer *l;
    const hdo_pass *p;
    const float *in, *w, *b, *dout;
    float *out, *din;
    float *dw, *db; /* (O, C, kh, kw), (O) */
} conv_args;

/* Samples lo .. hi-1, all channels. */
static void fwd_samples(void *ctx, int lo, int hi, hdo_work *work) {
    conv_args *v = ctx;
    hdo_conv c = geometry(v->l, hi - lo, v->l->geo.O);
    float *y = v->out + (size_t)lo * c.y_step;
    v->p->net->k->conv_fwd(&c, v->in + (size_t)lo * c.x_step, v->w, v->b, y, work->arena);
    if (v->l->relu) v->p->net->v->relu((size_t)(hi - lo) * c.y_step, y);
}

/* Units lo .. hi-1 of output channels, all samples. */
static void fwd_channels(void *ctx, int lo, int hi, hdo_work *work) {
    conv_args *v = ctx;
    int unit = unit_of(v->l->geo.O);
    hdo_conv c = geometry(v->l, v->p->B, (hi - lo) * unit);
    size_t o = (size_t)lo * (size_t)unit, map = map_len(v->l);
    float *y = v->out + o * map;
    v->p->net->k->conv_fwd(&c, v->in, v->w + o * c.w_step, v->b != NULL ? v->b + o : NULL, y, work->arena);
    for (int s = 0; v->l->relu && s < c.B; s++) v->p->net->v->relu((size_t)c.O * map, y + (size_t)s * c.y_step);
}

static void spread(const conv_args *v, int channels, hdo_piece by_samples, hdo_piece by_channels, void *ctx) {
    const hdo_pass *p = v->p;
    int units = channels / unit_of(channels), threads = p->wide ? p->work->team->threads : 1;
    if (hdo__param(p->net, v->l->weight)->len >= MANY_WEIGHTS && units > 1)
        hdo__pass_pieces(p, units, threads < units ? threads : units, by_channels, ctx);
    else
        hdo__pass_pieces(p, p->B, hdo__pieces(p, p->B), by_samples, ctx);
}

/* One tile of output channels, conv of x with w (n, row), into its place in out (B, O, map), or (add != 0) add times
 * it added to what is there. */
static void tile_into(const hdo_layer *l, const hdo_pass *p, int o, int n, const float *x, const float *w,
                      const float *b, float *out, float add) {
    hdo_arena *a = p->work->arena;
    size_t map = map_len(l), mark = hdo__arena_mark(a), run = (size_t)n * map;
    hdo_conv c = geometry(l, p->B, n);
    float *to = out + (size_t)o * map;
    if (add == 0) {
        p->net->k->conv_fwd(&c, x, w, b, to, a);
        return;
    }
    size_t step = c.y_step;
    float *tmp = hdo__arena_floats(a, (size_t)p->B * run); /* (B, n, map) */
    c.y_step = run;
    p->net->k->conv_fwd(&c, x, w, b, tmp, a);
    for (int s = 0; s < p->B; s++) hdo__axpy(run, add, tmp + (size_t)s * run, to + (size_t)s * step);
    hdo__arena_rewind(a, mark);
}

static void conv2d_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out,
                       float *aux) {
    (void)in2;
    (void)aux;
    size_t woff = hdo__param(p->net, l->weight)->off, row = row_len(l);
    size_t boff = l->bias >= 0 ? hdo__param(p->net, l->bias)->off : 0;
    if (p->u == NULL) {
        conv_args v = {.l = l, .p = p, .in = in, .w = p->x + woff, .b = l->bias >= 0 ? p->x + boff : NULL, .out = out};
        spread(&v, l->geo.O, fwd_samples, fwd_channels, &v);
        return;
    }
    hdo_arena *a = p->work->arena;
    size_t mark = hdo__arena_mark(a);
    int O = l->geo.O, tile = hdo__pass_tile(p, O, row, false);
    const float *b = l->bias >= 0 ? hdo__pass_weights(p, boff, (size_t)O) : NULL;
    for (int o = 0; o < O; o += tile) {
        int n = O - o < tile ? O - o : tile;
        size_t inner = hdo__arena_mark(a);
        const float *w = hdo__pass_weights(p, woff + (size_t)o * row, (size_t)n * row);
        tile_into(l, p, o, n, in, w, b != NULL ? b + o : NULL, out, 0);
        hdo__arena_rewind(a, inner);
    }
    hdo__arena_rewind(a, mark);
    if (l->relu) p->net->v->relu((size_t)p->B * (size_t)O * map_len(l), out);
}

static void dx_samples(void *ctx, int lo, int hi, hdo_work *work) {
    conv_args *v = ctx;
    hdo_conv c = geometry(v->l, hi - lo, v->l->geo.O);
    v->p->net->k->conv_bwd_x(&c, v->dout + (size_t)lo * c.y_step, v->w, v->din + (size_t)lo * c.x_step, work->arena);
}

/* Units lo .. hi-1 of input channels, all samples. */
static void dx_channels(void *ctx, int lo, int hi, hdo_work *work) {
    conv_args *v = ctx;
    int unit = unit_of(v->l->geo.C);
    hdo_conv c = geometry(v->l, v->p->B, v->l->geo.O);
    size_t first = (size_t)lo * (size_t)unit, taps = (size_t)c.kh * (size_t)c.kw, plane = (size_t)c.H * (size_t)c.W;
    c.C = (hi - lo) * unit;
    v->p->net->k->conv_bwd_x(&c, v->dout, v->w + first * taps, v->din + first * plane, work->arena);
}

/* Units lo .. hi-1 of output channels, all samples. */
static void dw_channels(void *ctx, int lo, int hi, hdo_work *work) {
    conv_args *v = ctx;
    int unit = unit_of(v->l->geo.O);
    hdo_conv c = geometry(v->l, v->p->B, (hi - lo) * unit);
    size_t o = (size_t)lo * (size_t)unit;
    v->p->net->k->conv_bwd_w(&c, v->in, v->dout + o * map_len(v->l), v->dw + o * c.w_step,
                             v->db != NULL ? v->db + o : NULL, work->arena);
}

static void conv2d_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                       float *dout, float *din) {
    (void)aux;
    hdo_arena *a = p->work->arena;
    const hdo_param *W = hdo__param(p->net, l->weight);
    size_t mark = hdo__arena_mark(a), O = (size_t)l->geo.O;
    float *g = p->g + W->off, *gb = l->bias >= 0 ? p->g + hdo__param(p->net, l->bias)->off : NULL;
    if (l->relu) p->net->v->relu_mask((size_t)p->B * O * map_len(l), out, dout);

    conv_args v = {.l = l, .p = p, .in = in, .w = p->x + W->off, .dout = dout, .din = din, .dw = g, .db = gb};
    if (p->add) {
        v.dw = hdo__arena_floats(a, W->len);
        if (gb != NULL) v.db = hdo__arena_floats(a, O);
    }
    int units = l->geo.O / unit_of(l->geo.O), threads = p->wide ? p->work->team->threads : 1;
    hdo__pass_pieces(p, units, threads < units ? threads : units, dw_channels, &v);
    if (p->add) {
        hdo__axpy(W->len, 1.0f, v.dw, g);
        if (gb != NULL) hdo__axpy(O, 1.0f, v.db, gb);
    }
    hdo__arena_rewind(a, mark);
    if (din != NULL) spread(&v, l->geo.C, dx_samples, dx_channels, &v);
}

static void conv2d_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                       const float *tin2, float *out, float *tout) {
    (void)in2;
    (void)tin2;
    hdo_arena *a = p->work->arena;
    const hdo_kernels *k = p->net->k;
    size_t woff = hdo__param(p->net, l->weight)->off, row = row_len(l);
    size_t boff = l->bias >= 0 ? hdo__param(p->net, l->bias)->off : 0;
    int O = l->geo.O, tile = hdo__pass_tile(p, O, row, true);
    size_t n = (size_t)p->B * (size_t)O * map_len(l);
    hdo_conv one = geometry(l, p->B, O), all = geometry(l, p->B * p->G, O);
    float imim = hdo__cplx_imim(p->nu);

    k->conv_fwd(&one, in, p->x + woff, l->bias >= 0 ? p->x + boff : NULL, out, a);
    if (tin != NULL) k->conv_fwd(&all, tin, p->x + woff, NULL, tout, a);
    for (int r = 0; r < p->G; r++) {
        float *t = tout + (size_t)r * n; /* (B, O, map) */
        size_t mark = hdo__arena_mark(a);
        const float *tb = l->bias >= 0 ? hdo__pass_tangent(p, r, boff, (size_t)O) : NULL;
        for (int o = 0; o < O; o += tile) {
            int m = O - o < tile ? O - o : tile;
            size_t inner = hdo__arena_mark(a);
            const float *tw = hdo__pass_tangent(p, r, woff + (size_t)o * row, (size_t)m * row);
            tile_into(l, p, o, m, in, tw, tb != NULL ? tb + o : NULL, t, tin != NULL ? 1.0f : 0);
            if (tin != NULL && imim < 0) tile_into(l, p, o, m, tin, tw, NULL, out, imim);
            hdo__arena_rewind(a, inner);
        }
        hdo__arena_rewind(a, mark);
    }
    if (l->relu) p->net->v->relu(n, out);
    for (int r = 0; r < p->G && l->relu; r++) p->net->v->relu_mask(n, out, tout + (size_t)r * n);
}

/* One position, and every pixel under the kernel. */
static bool covers(const hdo_conv *c) {
    return c->Ho == 1 && c->Wo == 1 && c->H + c->pad <= c->kh && c->W + c->pad <= c->kw;
}

static const hdo_layer_ops conv2d_ops = {.name = "conv",
                                         .needs_in = true,
                                         .work = conv2d_work,
                                         .fwd = conv2d_fwd,
                                         .bwd = conv2d_bwd,
                                         .jvp = conv2d_jvp,
                                         .cplx = conv2d_jvp};

/* PyTorch's default: weight and bias uniform in (-1/sqrt(fan_in), 1/sqrt(fan_in)), fan_in = C kh kw. */
int hdo__conv_add(hdo_net *net, const char *name, int in, int O, int kernel, int stride, int pad, bool bias) {
    const hdo_value *v = &net->value[in];
    hdo_conv c = {
        .B = 1, .C = v->C, .H = v->H, .W = v->W, .O = O, .kh = kernel, .kw = kernel, .stride = stride, .pad = pad};
    hdo__conv_init(&c);
    if (c.Ho < 1 || c.Wo < 1) return -1;
    hdo_value out = {.n = (size_t)O * (size_t)c.Ho * (size_t)c.Wo, .C = O, .H = c.Ho, .W = c.Wo};
    int k = hdo__net_layer(net, covers(&c) ? &hdo__cover_ops : &conv2d_ops, in, -1, out);
    if (k < 0) return -1;
    hdo_layer *l = &net->layer[k];
    l->geo = c;
    l->rows = 1;
    l->n_in = (int)v->n;
    l->n_out = O;
    int fan_in = c.C * kernel * kernel;
    double bound = 1.0 / sqrt((double)fan_in);
    l->weight = hdo__layout_add(&net->params, name, "weight", HDO_ROLE_WEIGHT, 4, (int[4]){O, c.C, kernel, kernel});
    if (l->weight < 0) return -1;
    net->params.row[l->weight].fill = HDO_FILL_UNIFORM;
    net->params.row[l->weight].arg = bound;
    net->params.row[l->weight].fan_in = fan_in;
    if (covers(&c) && (c.H < kernel || c.W < kernel))
        net->params.row[l->weight].split = (hdo_split){kernel, kernel, pad, pad, c.H, c.W};
    if (bias) {
        l->bias = hdo__layout_add(&net->params, name, "bias", HDO_ROLE_BIAS, 1, (int[4]){O});
        if (l->bias < 0) return -1;
        net->params.row[l->bias].fill = HDO_FILL_UNIFORM;
        net->params.row[l->bias].arg = bound;
        net->params.row[l->bias].fan_in = fan_in;
    }
    return l->out;
}
