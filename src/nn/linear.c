/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers: y = x W^T + b, ReLU fused when asked. A sample is `rows` rows of n_in numbers: one row for vectors,
 * one per position for sequences. With M = B * rows every pass is one or two matrix products:
 *
 *   fwd   y (M, O) = x (M, I) W (O, I)^T            perturbed weights come as tiles of rows of W
 *   bwd   dW = dy^T x,  db = column sums of dy,  dx = dy W
 *   jvp   ty_r = tx_r W^T + x tW_r^T + tb_r         the first term is one product for all tangents
 *   cplx  the same for the imaginary part (over nu), and y -= nu^2 tx tW^T
 *
 * Wide passes spread units of W's rows (fwd, dW) or columns (dx). Products choose their path by their size, so the cut
 * is the same whatever the number of threads.
 *
 * A convolution with one position whose kernel covers the picture is the same thing: its live taps are W
 * (base/split.h).
 */
#include <math.h>

#include "kernels/cplx.h"
#include "nn/nn.h"

static size_t linear_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)B;
    (void)G;
    return hdo__tile_bytes(net, l->n_out, (size_t)l->n_in) + hdo__tile_bytes(net, 1, (size_t)l->n_out);
}

enum { UNIT = 128 }; /* rows or columns of W in a piece */

typedef struct linear_args {
    const hdo_layer *l;
    const hdo_pass *p;
    const float *in, *dout, *w;
    float *out, *din, *dw;
    int M, n; /* rows of in; rows or columns of W to spread */
} linear_args;

static void spread(linear_args *v, int n, hdo_piece fn) {
    int units = v->p->wide ? (n + UNIT - 1) / UNIT : 1;
    v->n = n;
    hdo__pass_pieces(v->p, units, units, fn, v);
}

typedef struct part { /* of the rows or columns of W */
    int lo, n;
} part;

static part part_of(const linear_args *v, int lo, int hi) {
    if (!v->p->wide) return (part){0, v->n};
    int end = hi * UNIT < v->n ? hi * UNIT : v->n;
    return (part){lo * UNIT, end - lo * UNIT};
}

static void fwd_piece(void *ctx, int lo, int hi, hdo_work *work) {
    const linear_args *v = ctx;
    int I = v->l->n_in;
    part o = part_of(v, lo, hi);
    (void)work;
    v->p->net->k->gemm(false, true, v->M, o.n, I, 1.0f, v->in, I, v->w + (size_t)o.lo * (size_t)I, I, 0.0f,
                       v->out + o.lo, v->l->n_out);
}

static void dw_piece(void *ctx, int lo, int hi, hdo_work *work) {
    const linear_args *v = ctx;
    int I = v->l->n_in;
    part o = part_of(v, lo, hi);
    (void)work;
    v->p->net->k->gemm(true, false, o.n, I, v->M, 1.0f, v->dout + o.lo, v->l->n_out, v->in, I, v->p->add ? 1.0f : 0.0f,
                       v->dw + (size_t)o.lo * (size_t)I, I);
}

static void dx_piece(void *ctx, int lo, int hi, hdo_work *work) {
    const linear_args *v = ctx;
    int I = v->l->n_in, O = v->l->n_out;
    part i = part_of(v, lo, hi);
    (void)work;
    v->p->net->k->gemm(false, false, v->M, i.n, O, 1.0f, v->dout, O, v->w + i.lo, I, 0.0f, v->din + i.lo, I);
}

static void linear_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out,
                       float *aux) {
    (void)in2;
    (void)aux;
    int M = p->B * l->rows, I = l->n_in, O = l->n_out;
    hdo_arena *a = p->work->arena;
    size_t woff = hdo__param(p->net, l->weight)->off, mark = hdo__arena_mark(a);
    int tile = hdo__pass_tile(p, O, (size_t)I, false);
    linear_args v = {.l = l, .p = p, .in = in, .w = p->x + woff, .out = out, .M = M};
    if (p->u == NULL) spread(&v, O, fwd_piece);
    for (int o = 0; o < O && p->u != NULL; o += tile) {
        int n = O - o < tile ? O - o : tile;
        const float *W = hdo__pass_weights(p, woff + (size_t)o * (size_t)I, (size_t)n * (size_t)I);
        p->net->k->gemm(false, true, M, n, I, 1.0f, in, I, W, I, 0.0f, out + o, O);
        hdo__arena_rewind(a, mark);
    }
    const float *b = NULL;
    if (l->bias >= 0) b = hdo__pass_weights(p, hdo__param(p->net, l->bias)->off, (size_t)O);
    p->net->v->bias(M, O, b, l->relu, out, O);
    hdo__arena_rewind(a, mark);
}

static void linear_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                       float *dout, float *din) {
    (void)aux;
    int M = p->B * l->rows, O = l->n_out;
    size_t woff = hdo__param(p->net, l->weight)->off;
    linear_args v = {.l = l, .p = p, .in = in, .w = p->x + woff, .dout = dout, .din = din, .dw = p->g + woff, .M = M};
    if (l->relu) p->net->v->relu_mask((size_t)M * (size_t)O, out, dout);
    spread(&v, O, dw_piece);
    if (l->bias >= 0) {
        float *db = p->g + hdo__param(p->net, l->bias)->off; /* (O) */
        for (int j = 0; j < O && !p->add; j++) db[j] = 0;
        p->net->v->columns(M, O, dout, db);
    }
    if (din != NULL) spread(&v, l->n_in, dx_piece);
}

static void linear_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                       const float *tin2, float *out, float *tout) {
    (void)in2;
    (void)tin2;
    int M = p->B * l->rows, I = l->n_in, O = l->n_out;
    const hdo_kernels *k = p->net->k;
    hdo_arena *a = p->work->arena;
    size_t woff = hdo__param(p->net, l->weight)->off, n = (size_t)M * (size_t)O;
    size_t boff = l->bias >= 0 ? hdo__param(p->net, l->bias)->off : 0;
    float imim = hdo__cplx_imim(p->nu);
    k->gemm(false, true, M, O, I, 1.0f, in, I, p->x + woff, I, 0.0f, out, O);
    if (tin != NULL) k->gemm(false, true, p->G * M, O, I, 1.0f, tin, I, p->x + woff, I, 0.0f, tout, O);
    int tile = hdo__pass_tile(p, O, (size_t)I, true);
    for (int r = 0; r < p->G; r++) {
        float *t = tout + (size_t)r * n; /* (M, O) */
        size_t mark = hdo__arena_mark(a);
        for (int o = 0; o < O; o += tile) {
            int m = O - o < tile ? O - o : tile;
            const float *tW = hdo__pass_tangent(p, r, woff + (size_t)o * (size_t)I, (size_t)m * (size_t)I);
            k->gemm(false, true, M, m, I, 1.0f, in, I, tW, I, tin != NULL ? 1.0f : 0.0f, t + o, O);
            if (tin != NULL && imim < 0) k->gemm(false, true, M, m, I, imim, tin, I, tW, I, 1.0f, out + o, O);
            hdo__arena_rewind(a, mark);
        }
        if (l->bias >= 0) p->net->v->bias(M, O, hdo__pass_tangent(p, r, boff, (size_t)O), false, t, O);
        hdo__arena_rewind(a, mark);
    }
    p->net->v->bias(M, O, l->bias >= 0 ? p->x + boff : NULL, l->relu, out, O);
    for (int r = 0; r < p->G && l->relu; r++) p->net->v->relu_mask(n, out, tout + (size_t)r * n);
}

#define LINEAR_OPS(called)                                                                                             \
    {                                                                                                                  \
        .name = called, .needs_in = true, .work = linear_work, .fwd = linear_fwd, .bwd = linear_bwd,                   \
        .jvp = linear_jvp, .cplx = linear_jvp                                                                          \
    }
static const hdo_layer_ops linear_ops = LINEAR_OPS("linear");
const hdo_layer_ops hdo__cover_ops = LINEAR_OPS("conv");

/* PyTorch's default: weight and bias uniform in (-1/sqrt(fan_in), 1/sqrt(fan_in)). */
int hdo__linear_add(hdo_net *net, const char *name, int in, int n_out, bool bias) {
    const hdo_value *v = &net->value[in];
    int n_in = v->seq ? v->W : (int)v->n, rows = v->seq ? v->H : 1;
    hdo_value out = {
        .n = (size_t)rows * (size_t)n_out, .C = v->seq ? 1 : n_out, .H = rows, .W = v->seq ? n_out : 1, .seq = v->seq};
    int k = hdo__net_layer(net, &linear_ops, in, -1, out);
    if (k < 0) return -1;
    hdo_layer *l = &net->layer[k];
    l->rows = rows;
    l->n_in = n_in;
    l->n_out = n_out;
    double bound = 1.0 / sqrt((double)n_in);
    l->weight = hdo__layout_add(&net->params, name, "weight", HDO_ROLE_WEIGHT, 2, (int[4]){n_out, n_in});
    if (l->weight < 0) return -1;
    net->params.row[l->weight].fill = HDO_FILL_UNIFORM;
    net->params.row[l->weight].arg = bound;
    net->params.row[l->weight].fan_in = n_in;
    if (bias) {
        l->bias = hdo__layout_add(&net->params, name, "bias", HDO_ROLE_BIAS, 1, (int[4]){n_out});
        if (l->bias < 0) return -1;
        net->params.row[l->bias].fill = HDO_FILL_UNIFORM;
        net->params.row[l->bias].arg = bound;
        net->params.row[l->bias].fan_in = n_in;
    }
    return l->out;
}
