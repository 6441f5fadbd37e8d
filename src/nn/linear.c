/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers: y = x W^T + b, ReLU fused when asked. A sample is `rows` rows of I numbers: one row for vectors, one
 * per position for sequences. With M = B rows,
 *
 *   x, dx, tx_r (M, I)    y, dy, ty_r (M, O)    W, dW, tW_r (O, I)    b, db, tb_r (O)
 *
 *   fwd   y = x W^T + b
 *   bwd   dW = dy^T x,  db = column sums of dy,  dx = dy W
 *   jvp   ty_r = tx_r W^T + x tW_r^T + tb_r         the first term is one product for all tangents
 *   cplx  the same for the imaginary part (over nu), and y -= nu^2 tx tW^T
 *
 * gemm(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc) is C = alpha op(A) op(B) + beta C, as in any BLAS.
 *
 * A convolution with one position whose kernel covers the picture is the same thing: its live taps are W
 * (base/split.h).
 */
#include <string.h>

#include "kernels/cplx.h"
#include "nn/layer.h"

/* ---- wide passes: W's rows (fwd, dW) or columns (dx) are spread over the team in units ----
 * Products choose their path by their size, so the cut is the same whatever the number of threads. */

enum { UNIT = 128 }; /* rows or columns of W in a piece */

typedef struct linear_args {
    const hdo_layer *l;
    const hdo_pass *p;
    const float *x, *dy, *W;
    float *y, *dx, *dW;
    int M, n; /* rows of x; rows or columns of W to spread */
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

static void y_piece(void *ctx, int lo, int hi, hdo_work *work) { /* y = x W^T */
    const linear_args *v = ctx;
    int I = v->l->n_in, O = v->l->n_out;
    part o = part_of(v, lo, hi);
    (void)work;
    v->p->k->gemm(false, true, v->M, o.n, I, 1.0f, v->x, I, v->W + (size_t)o.lo * (size_t)I, I, 0.0f, v->y + o.lo, O);
}

static void dW_piece(void *ctx, int lo, int hi, hdo_work *work) { /* dW = dy^T x, or += */
    const linear_args *v = ctx;
    int I = v->l->n_in, O = v->l->n_out;
    float keep = v->p->add ? 1.0f : 0.0f;
    part o = part_of(v, lo, hi);
    (void)work;
    v->p->k->gemm(true, false, o.n, I, v->M, 1.0f, v->dy + o.lo, O, v->x, I, keep, v->dW + (size_t)o.lo * (size_t)I, I);
}

static void dx_piece(void *ctx, int lo, int hi, hdo_work *work) { /* dx = dy W */
    const linear_args *v = ctx;
    int I = v->l->n_in, O = v->l->n_out;
    part i = part_of(v, lo, hi);
    (void)work;
    v->p->k->gemm(false, false, v->M, i.n, O, 1.0f, v->dy, O, v->W + i.lo, I, 0.0f, v->dx + i.lo, I);
}

/* ---- the passes ---- */

static void linear_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    int M = p->B * l->rows, I = l->n_in, O = l->n_out;
    const float *x = io->in;
    float *y = io->out;
    size_t mark = hdo__arena_mark(p->work->arena);
    if (p->wide && p->u == NULL) {
        linear_args v = {.l = l, .p = p, .x = x, .W = hdo__numbers(p, l->weight), .y = y, .M = M};
        spread(&v, O, y_piece);
    } else {
        for (hdo_tile t = hdo__weight_tiles(p, l->weight, O, (size_t)I); hdo__tile_next(&t);)
            p->k->gemm(false, true, M, t.n, I, 1.0f, x, I, t.w, I, 0.0f, y + t.lo, O);
    }
    p->v->bias(M, O, hdo__weights(p, l->bias), l->relu, y, O);
    hdo__arena_rewind(p->work->arena, mark);
}

static void linear_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    int M = p->B * l->rows, O = l->n_out;
    float *dy = io->dout, *db = hdo__gradient(p, l->bias);
    if (l->relu) p->v->relu_mask((size_t)M * (size_t)O, io->out, dy);
    linear_args v = {.l = l, .p = p, .x = io->in, .dy = dy, .dx = io->din, .M = M};
    v.W = hdo__numbers(p, l->weight);
    v.dW = hdo__gradient(p, l->weight);
    if (v.dW != NULL) spread(&v, O, dW_piece);
    if (db != NULL) {
        for (int j = 0; j < O && !p->add; j++) db[j] = 0;
        p->v->columns(M, O, dy, db);
    }
    if (io->din != NULL) spread(&v, l->n_in, dx_piece);
}

static void linear_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    int M = p->B * l->rows, I = l->n_in, O = l->n_out;
    size_t n = (size_t)M * (size_t)O;
    const float *x = io->in, *tx = io->tin, *W = hdo__numbers(p, l->weight);
    float *y = io->out, imim = hdo__cplx_imim(p->nu); /* -nu^2; 0 in forward mode */
    p->k->gemm(false, true, M, O, I, 1.0f, x, I, W, I, 0.0f, y, O);
    if (tx != NULL) p->k->gemm(false, true, p->G * M, O, I, 1.0f, tx, I, W, I, 0.0f, io->tout, O);
    bool fixed = hdo__frozen(p->net, l->weight);
    if (fixed && tx == NULL) memset(io->tout, 0, (size_t)p->G * n * sizeof(float));
    for (int r = 0; r < p->G; r++) {
        float *ty = io->tout + (size_t)r * n, keep = tx != NULL ? 1.0f : 0.0f;
        for (hdo_tile t = hdo__tangent_tiles(p, r, l->weight, O, (size_t)I); hdo__tile_next(&t);) {
            p->k->gemm(false, true, M, t.n, I, 1.0f, x, I, t.w, I, keep, ty + t.lo, O);
            if (tx != NULL && imim < 0) p->k->gemm(false, true, M, t.n, I, imim, tx, I, t.w, I, 1.0f, y + t.lo, O);
        }
        size_t mark = hdo__arena_mark(p->work->arena);
        if (!hdo__frozen(p->net, l->bias)) p->v->bias(M, O, hdo__tangent(p, r, l->bias), false, ty, O);
        hdo__arena_rewind(p->work->arena, mark);
    }
    p->v->bias(M, O, hdo__numbers(p, l->bias), l->relu, y, O);
    for (int r = 0; r < p->G && l->relu; r++) p->v->relu_mask(n, y, io->tout + (size_t)r * n);
}

/* What all copies have in common, and what is a copy's own: y_g = x_g W' + nu (x_g b_g') a_g + bias_g. */
static void linear_many(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    int M = p->B * l->rows, I = l->n_in, O = l->n_out, m, n, rank = p->u->rank, all = io->tin != NULL ? p->G * M : M;
    hdo_arena *arena = p->work->arena;
    size_t mark = hdo__arena_mark(arena), cells = (size_t)M * (size_t)O, wide = (size_t)M * (size_t)I;
    const hdo_tensor *t = hdo__factors_at(p, l->weight, &m, &n);
    size_t held = t != NULL ? (size_t)rank : 0;
    float *a = hdo__arena_floats(arena, held * (size_t)O), *b = hdo__arena_floats(arena, held * (size_t)I);
    float *P = hdo__arena_floats(arena, held * (size_t)M); /* (M, rank) */
    p->k->gemm(false, true, all, O, I, 1.0f, io->tin != NULL ? io->tin : io->in, I, hdo__numbers(p, l->weight), I, 0.0f,
               io->tout, O);
    for (int g = 1; g < p->G && io->tin == NULL; g++)
        memcpy(io->tout + (size_t)g * cells, io->tout, cells * sizeof(float));
    hdo_pass one = *p;
    one.G = 0;
    for (int g = 0; g < p->G; g++) {
        const float *x = io->tin != NULL ? io->tin + (size_t)g * wide : io->in;
        float *y = io->tout + (size_t)g * cells;
        size_t inner = hdo__arena_mark(arena);
        one.r = p->r + g;
        if (t != NULL) {
            hdo__dirs_factors(p->u, one.r, t, a, b);
            p->k->gemm(false, true, M, rank, I, (float)p->nu, x, I, b, I, 0.0f, P, rank);
            p->k->gemm(false, false, M, O, rank, 1.0f, P, rank, a, O, 1.0f, y, O);
        }
        p->v->bias(M, O, hdo__weights(&one, l->bias), l->relu, y, O);
        hdo__arena_rewind(arena, inner);
    }
    hdo__arena_rewind(arena, mark);
}

static size_t linear_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)B, (void)G;
    return hdo__tile_bytes(net, l->n_out, (size_t)l->n_in) + hdo__tile_bytes(net, 1, (size_t)l->n_out);
}

#define LINEAR_OPS(called)                                                                                             \
    {                                                                                                                  \
        .name = called, .needs_in = true, .fuses_relu = true, .fwd = linear_fwd, .bwd = linear_bwd, .jvp = linear_jvp, \
        .cplx = linear_jvp, .many = linear_many, .work = linear_work                                                   \
    }
static const hdo_layer_ops linear_ops = LINEAR_OPS("linear");
const hdo_layer_ops hdo__cover_ops = LINEAR_OPS("conv");

int hdo__linear_add(hdo_net *net, const char *name, int in, int n_out, bool bias) {
    const hdo_value *v = hdo__net_value(net, in);
    int n_in = v->seq ? v->W : (int)v->n, rows = v->seq ? v->H : 1;
    hdo_value out = {.n = (size_t)rows * (size_t)n_out, .C = n_out, .H = 1, .W = 1};
    if (v->seq) out = (hdo_value){.n = out.n, .C = 1, .H = rows, .W = n_out, .seq = true};
    hdo_layer *l = hdo__net_layer(net, &linear_ops, in, -1, out);
    if (l == NULL) return -1;
    l->rows = rows;
    l->n_in = n_in;
    l->n_out = n_out;
    hdo_param W = {.n_dim = 2, .dim = {n_out, n_in}, .fan_in = n_in};
    return hdo__net_uniform(net, l, name, W, bias) ? l->out : -1;
}
