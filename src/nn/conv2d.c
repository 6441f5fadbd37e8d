/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions, ReLU fused when asked. Ho, Wo: what stride and padding leave of H, W.
 *
 *   x, dx, tx_r (B, C, H, W)    y, dy, ty_r (B, O, Ho, Wo)    w, dw, tw_r (O, C, kh, kw)    b, db, tb_r (O)
 *
 *   fwd   y[o,i,j] = b[o] + sum over c, p, q of w[o,c,p,q] x[c, i stride - pad + p, j stride - pad + q],
 *         short: y = w * x + b, where x is 0 outside the picture
 *   bwd   dw = dy correlated with x,  db = sums of dy,  dx = dy spread back through w
 *   jvp   ty_r = w * tx_r + tw_r * x + tb_r      the first term treats the G tangents as one batch of G B samples
 *   cplx  the same for the imaginary part (over nu), and y -= nu^2 tw * tx
 *
 * The loops are the kernels' (k_ref.c in plain C; mm.h says which vector kernels there are). A second chunk of a lane
 * adds to the gradient through a temporary.
 *
 * A kernel that covers the whole picture in its one position is a linear layer: linear.c serves it (base/split.h).
 */
#include <string.h>

#include "base/vec.h"
#include "kernels/cplx.h"
#include "nn/layer.h"

/* B samples, output channels 0 .. O - 1 of the layer's. */
static hdo_conv geometry(const hdo_layer *l, int B, int O) {
    hdo_conv c = l->geo;
    c.B = B;
    c.O = O;
    return c;
}

static size_t row_len(const hdo_layer *l) { /* weights of an output channel */
    return (size_t)l->geo.C * (size_t)l->geo.kh * (size_t)l->geo.kw;
}
static size_t map_len(const hdo_layer *l) { /* numbers of an output channel */
    return (size_t)l->geo.Ho * (size_t)l->geo.Wo;
}

/* ---- wide passes: pieces of samples or, when the weights are many, of channels ----
 * Forward and dx are separable over both, dw over output channels. Every number is the same sum whatever piece it is
 * in, so the cut may depend on the number of threads and one thread cuts nothing. */

enum { MANY_WEIGHTS = 1 << 16 }; /* floats: pieces are then of channels, each reading its part of the weights */

/* Pieces of channels are made of whole units. */
static int unit_of(int channels) {
    return channels % 16 == 0 ? 16 : channels;
}

typedef struct conv_args {
    const hdo_layer *l;
    const hdo_pass *p;
    const float *x, *w, *b, *dy;
    float *y, *dx, *dw, *db;
} conv_args;

/* Samples lo .. hi-1, all channels. */
static void y_samples(void *ctx, int lo, int hi, hdo_work *work) {
    const conv_args *v = ctx;
    hdo_conv c = geometry(v->l, hi - lo, v->l->geo.O);
    float *y = v->y + (size_t)lo * c.y_step;
    v->p->k->conv_fwd(&c, v->x + (size_t)lo * c.x_step, v->w, v->b, y, work->arena);
    if (v->l->relu) v->p->v->relu((size_t)(hi - lo) * c.y_step, y);
}

/* Units lo .. hi-1 of output channels, all samples. */
static void y_channels(void *ctx, int lo, int hi, hdo_work *work) {
    const conv_args *v = ctx;
    int unit = unit_of(v->l->geo.O);
    hdo_conv c = geometry(v->l, v->p->B, (hi - lo) * unit);
    size_t o = (size_t)lo * (size_t)unit, map = map_len(v->l);
    float *y = v->y + o * map;
    v->p->k->conv_fwd(&c, v->x, v->w + o * c.w_step, v->b != NULL ? v->b + o : NULL, y, work->arena);
    for (int s = 0; v->l->relu && s < c.B; s++) v->p->v->relu((size_t)c.O * map, y + (size_t)s * c.y_step);
}

static void dx_samples(void *ctx, int lo, int hi, hdo_work *work) {
    const conv_args *v = ctx;
    hdo_conv c = geometry(v->l, hi - lo, v->l->geo.O);
    v->p->k->conv_bwd_x(&c, v->dy + (size_t)lo * c.y_step, v->w, v->dx + (size_t)lo * c.x_step, work->arena);
}

/* Units lo .. hi-1 of input channels, all samples. */
static void dx_channels(void *ctx, int lo, int hi, hdo_work *work) {
    const conv_args *v = ctx;
    int unit = unit_of(v->l->geo.C);
    hdo_conv c = geometry(v->l, v->p->B, v->l->geo.O);
    size_t first = (size_t)lo * (size_t)unit, taps = (size_t)c.kh * (size_t)c.kw, plane = (size_t)c.H * (size_t)c.W;
    c.C = (hi - lo) * unit;
    v->p->k->conv_bwd_x(&c, v->dy, v->w + first * taps, v->dx + first * plane, work->arena);
}

/* Units lo .. hi-1 of output channels, all samples. */
static void dw_channels(void *ctx, int lo, int hi, hdo_work *work) {
    const conv_args *v = ctx;
    int unit = unit_of(v->l->geo.O);
    hdo_conv c = geometry(v->l, v->p->B, (hi - lo) * unit);
    size_t o = (size_t)lo * (size_t)unit;
    v->p->k->conv_bwd_w(&c, v->x, v->dy + o * map_len(v->l), v->dw + o * c.w_step, v->db != NULL ? v->db + o : NULL,
                        work->arena);
}

static int threads_of(const hdo_pass *p) {
    return p->wide ? p->work->team->threads : 1;
}

static void spread_channels(conv_args *v, int channels, hdo_piece fn) {
    int units = channels / unit_of(channels), threads = threads_of(v->p);
    hdo__pass_pieces(v->p, units, threads < units ? threads : units, fn, v);
}

static void spread(conv_args *v, int channels, hdo_piece by_samples, hdo_piece by_channels) {
    const hdo_pass *p = v->p;
    if (hdo__numbers_len(p->net, v->l->weight) >= MANY_WEIGHTS && channels / unit_of(channels) > 1)
        spread_channels(v, channels, by_channels);
    else
        hdo__pass_pieces(p, p->B, hdo__pieces(p, p->B), by_samples, v);
}

/* ---- the passes ---- */

/* Output channels t->lo .. of w * x + b, with a tile of w, into their place in y (B, O, map); or (scale != 0) added to
 * what is there, scale times. b (O) may be NULL. */
static void convolve(const hdo_layer *l, const hdo_pass *p, const hdo_tile *t, const float *x, const float *b,
                     float scale, float *y) {
    hdo_arena *a = p->work->arena;
    size_t map = map_len(l), mark = hdo__arena_mark(a), run = (size_t)t->n * map;
    hdo_conv c = geometry(l, p->B, t->n);
    float *to = y + (size_t)t->lo * map;
    if (b != NULL) b += t->lo;
    if (scale == 0) {
        p->k->conv_fwd(&c, x, t->w, b, to, a);
        return;
    }
    size_t step = c.y_step;
    float *tmp = hdo__arena_floats(a, (size_t)p->B * run); /* (B, n, map) */
    c.y_step = run;
    p->k->conv_fwd(&c, x, t->w, b, tmp, a);
    for (int s = 0; s < p->B; s++) hdo__axpy(run, scale, tmp + (size_t)s * run, to + (size_t)s * step);
    hdo__arena_rewind(a, mark);
}

static void conv2d_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    int O = l->geo.O;
    if (p->u == NULL) {
        conv_args v = {.l = l, .p = p, .x = io->in, .y = io->out};
        v.w = hdo__numbers(p, l->weight);
        v.b = hdo__numbers(p, l->bias);
        spread(&v, O, y_samples, y_channels);
        return;
    }
    size_t mark = hdo__arena_mark(p->work->arena);
    const float *b = hdo__weights(p, l->bias);
    for (hdo_tile t = hdo__weight_tiles(p, l->weight, O, row_len(l)); hdo__tile_next(&t);)
        convolve(l, p, &t, io->in, b, 0, io->out);
    hdo__arena_rewind(p->work->arena, mark);
    if (l->relu) p->v->relu((size_t)p->B * (size_t)O * map_len(l), io->out);
}

static void conv2d_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    hdo_arena *a = p->work->arena;
    size_t mark = hdo__arena_mark(a), O = (size_t)l->geo.O, n_w = hdo__numbers_len(p->net, l->weight);
    float *dw = hdo__gradient(p, l->weight), *db = hdo__gradient(p, l->bias);
    if (l->relu) p->v->relu_mask((size_t)p->B * O * map_len(l), io->out, io->dout);

    conv_args v = {.l = l, .p = p, .x = io->in, .dy = io->dout, .dx = io->din, .dw = dw, .db = db};
    v.w = hdo__numbers(p, l->weight);
    if (p->add || dw == NULL) { /* the kernel makes both at once */
        v.dw = hdo__arena_floats(a, n_w);
        if (db != NULL) v.db = hdo__arena_floats(a, O);
    }
    if (dw != NULL || db != NULL) spread_channels(&v, l->geo.O, dw_channels);
    if (p->add && dw != NULL) hdo__axpy(n_w, 1.0f, v.dw, dw);
    if (p->add && db != NULL) hdo__axpy(O, 1.0f, v.db, db);
    if (!p->add && db != NULL && v.db != db) memcpy(db, v.db, O * sizeof(float));
    hdo__arena_rewind(a, mark);
    if (io->din != NULL) spread(&v, l->geo.C, dx_samples, dx_channels);
}

/* y (B, O, map) += nu times the sum over q of a_q P_q, a (rank, O), P (B, rank, map), or nothing; then the bias (O). */
static void add_outer(const hdo_layer *l, const hdo_pass *p, const float *a, const float *P, const float *bias,
                      float *y) {
    size_t map = map_len(l), O = (size_t)l->geo.O, rank = a != NULL ? (size_t)p->u->rank : 0;
    for (size_t s = 0; s < (size_t)p->B; s++)
        for (size_t o = 0; o < O; o++, y += map) {
            for (size_t q = 0; q < rank; q++) hdo__axpy(map, (float)p->nu * a[q * O + o], P + (s * rank + q) * map, y);
            for (size_t i = 0; i < map && bias != NULL; i++) y[i] += bias[o];
        }
}

static void conv2d_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    hdo_arena *a = p->work->arena;
    int O = l->geo.O;
    size_t n = (size_t)p->B * (size_t)O * map_len(l);
    hdo_conv one = geometry(l, p->B, O), all = geometry(l, p->B * p->G, O);
    const float *x = io->in, *tx = io->tin, *w = hdo__numbers(p, l->weight);
    float *y = io->out, imim = hdo__cplx_imim(p->nu); /* -nu^2; 0 in forward mode */

    p->k->conv_fwd(&one, x, w, hdo__numbers(p, l->bias), y, a);
    if (tx != NULL) p->k->conv_fwd(&all, tx, w, NULL, io->tout, a);
    bool fixed = hdo__frozen(p->net, l->weight);
    if (fixed && tx == NULL) memset(io->tout, 0, (size_t)p->G * n * sizeof(float));
    for (int r = 0; r < p->G; r++) {
        float *ty = io->tout + (size_t)r * n;
        size_t mark = hdo__arena_mark(a);
        const float *tb = hdo__frozen(p->net, l->bias) ? NULL : hdo__tangent(p, r, l->bias);
        if (fixed && tb != NULL) add_outer(l, p, NULL, NULL, tb, ty);
        for (hdo_tile t = hdo__tangent_tiles(p, r, l->weight, O, row_len(l)); hdo__tile_next(&t);) {
            convolve(l, p, &t, x, tb, tx != NULL ? 1.0f : 0, ty);
            if (tx != NULL && imim < 0) convolve(l, p, &t, tx, NULL, imim, y);
        }
        hdo__arena_rewind(a, mark);
    }
    if (l->relu) p->v->relu(n, y);
    for (int r = 0; r < p->G && l->relu; r++) p->v->relu_mask(n, y, io->tout + (size_t)r * n);
}

/* One convolution for all copies, and for each of them one with the `rank` filters b. */
static void conv2d_many(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    int m, n, O = l->geo.O, rank = p->u->rank;
    hdo_arena *arena = p->work->arena;
    size_t mark = hdo__arena_mark(arena), B = (size_t)p->B, cells = B * l->n, wide = B * (size_t)l->n_in;
    const hdo_tensor *t = hdo__factors_at(p, l->weight, &m, &n);
    size_t held = t != NULL ? (size_t)rank : 0;
    float *a = hdo__arena_floats(arena, held * (size_t)O), *b = hdo__arena_floats(arena, held * row_len(l));
    float *P = hdo__arena_floats(arena, held * B * map_len(l)); /* (B, rank, map) */
    hdo_conv all = geometry(l, io->tin != NULL ? p->B * p->G : p->B, O), thin = geometry(l, p->B, rank);
    thin.y_step = (size_t)rank * map_len(l);
    p->k->conv_fwd(&all, io->tin != NULL ? io->tin : io->in, hdo__numbers(p, l->weight), NULL, io->tout, arena);
    for (int g = 1; g < p->G && io->tin == NULL; g++)
        memcpy(io->tout + (size_t)g * cells, io->tout, cells * sizeof(float));
    hdo_pass one = *p;
    one.G = 0;
    for (int g = 0; g < p->G; g++) {
        float *y = io->tout + (size_t)g * cells;
        size_t inner = hdo__arena_mark(arena);
        one.r = p->r + g;
        if (t != NULL) {
            hdo__dirs_factors(p->u, one.r, t, a, b);
            p->k->conv_fwd(&thin, io->tin != NULL ? io->tin + (size_t)g * wide : io->in, b, NULL, P, arena);
        }
        add_outer(l, p, t != NULL ? a : NULL, P, hdo__weights(&one, l->bias), y);
        if (l->relu) p->v->relu(cells, y);
        hdo__arena_rewind(arena, inner);
    }
    hdo__arena_rewind(arena, mark);
}

static size_t kernel_work(const hdo_layer *l, const hdo_net *net, int B) {
    size_t most = 0;
    for (int part = 0; part < 2; part++) { /* a part of the channels may need more than all of them */
        hdo_conv c = geometry(l, B, l->geo.O);
        int *n = part == 0 ? &c.O : &c.C, all = *n;
        for (*n = unit_of(all); *n <= all; *n += unit_of(all)) {
            size_t work = hdo__net_kernels(net)->conv_work(&c);
            most = work > most ? work : most;
        }
    }
    hdo_conv thin = geometry(l, B, 1); /* filters of directions of low rank */
    for (; thin.O <= hdo__net_rank(net); thin.O++) {
        size_t work = hdo__net_kernels(net)->conv_work(&thin);
        most = work > most ? work : most;
    }
    return most;
}

static size_t conv2d_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    size_t O = (size_t)l->geo.O, tile = hdo__tile_bytes(net, l->geo.O, row_len(l)), grad = 0, fwd = 0;
    if (G == 0)
        grad = hdo__arena_round(hdo__numbers_len(net, l->weight) * sizeof(float)) + hdo__arena_round(O * sizeof(float));
    if (G > 0 || tile > 0)
        fwd = tile + hdo__tile_bytes(net, 1, O) + hdo__arena_round((size_t)B * O * map_len(l) * sizeof(float));
    return kernel_work(l, net, B * (G > 1 ? G : 1)) + (grad > fwd ? grad : fwd);
}

/* One position, and every pixel under the kernel. */
static bool covers(const hdo_conv *c) {
    return c->Ho == 1 && c->Wo == 1 && c->H + c->pad <= c->kh && c->W + c->pad <= c->kw;
}

static const hdo_layer_ops conv2d_ops = {.name = "conv",
                                         .needs_in = true,
                                         .fuses_relu = true,
                                         .fwd = conv2d_fwd,
                                         .bwd = conv2d_bwd,
                                         .jvp = conv2d_jvp,
                                         .cplx = conv2d_jvp,
                                         .many = conv2d_many,
                                         .work = conv2d_work};

int hdo__conv_add(hdo_net *net, const char *name, int in, hdo_conv_words w) {
    const hdo_value *v = hdo__net_value(net, in);
    hdo_conv c = {.B = 1, .C = v->C, .H = v->H, .W = v->W, .O = w.channels, .kh = w.kernel, .kw = w.kernel};
    c.stride = w.stride;
    c.pad = w.pad;
    hdo__conv_init(&c);
    if (c.Ho < 1 || c.Wo < 1) return -1;
    hdo_param W = {.n_dim = 4, .dim = {c.O, c.C, c.kh, c.kw}, .fan_in = c.C * c.kh * c.kw};
    if (covers(&c) && (c.H < c.kh || c.W < c.kw)) W.split = (hdo_split){c.kh, c.kw, c.pad, c.pad, c.H, c.W};
    int n_in = (int)v->n;
    hdo_value out = {.n = (size_t)c.O * (size_t)c.Ho * (size_t)c.Wo, .C = c.O, .H = c.Ho, .W = c.Wo};
    hdo_layer *l = hdo__net_layer(net, covers(&c) ? &hdo__cover_ops : &conv2d_ops, in, -1, out);
    if (l == NULL) return -1;
    l->geo = c;
    l->rows = 1;
    l->n_in = n_in;
    l->n_out = c.O;
    return hdo__net_uniform(net, l, name, W, w.bias) ? l->out : -1;
}
