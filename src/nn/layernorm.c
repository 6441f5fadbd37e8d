/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer-norm: every row of D numbers on its own; a sample is `rows` rows. With N = B rows,
 *
 *   x, y, dx, dy, tx_r, ty_r (N, D)    w, b, dw, db, tw_r, tb_r (D); b may be missing
 *
 *   fwd   xh = (x - mean) r,  r = 1/sqrt(var + eps),  y = w xh + b        mean and (biased) variance of the row
 *   bwd   dw = sum dy xh,  db = sum dy over rows;  with h = w dy:  dx = r (h - mean(h) - xh mean(h xh))
 *   jvp   ty = w r (tx - mean(tx) - xh mean(xh tx)) + tw xh + tb
 *   cplx  fwd with complex numbers (norm_cplx.h)
 *
 * The loops are ln_fwd, ln_bwd and ln_jvp of simd_nn.c; sums are in double. Statistics are computed again on the way
 * back: nothing is kept but x.
 */
#include "nn/layer.h"
#include "nn/norm_cplx.h"

static size_t rows_of(const hdo_layer *l, const hdo_pass *p) {
    return (size_t)p->B * (size_t)l->rows;
}

static void layernorm_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t mark = hdo__arena_mark(p->work->arena);
    const float *w = hdo__weights(p, l->weight), *b = hdo__weights(p, l->bias);
    p->v->ln_fwd(rows_of(l, p), l->n_out, l->eps, io->in, w, b, io->out);
    hdo__arena_rewind(p->work->arena, mark);
}

/* Sums over the rows in double, then the gradient in float. */
static void put_gradient(size_t D, const double *sum, bool add, float *g) {
    for (size_t i = 0; i < D && g != NULL; i++) g[i] = (float)sum[i] + (add ? g[i] : 0);
}

static void layernorm_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    hdo_arena *a = p->work->arena;
    size_t mark = hdo__arena_mark(a), D = (size_t)l->n_out;
    double *dw = hdo__arena_doubles(a, D), *db = hdo__arena_doubles(a, D);
    for (size_t i = 0; i < D; i++) dw[i] = db[i] = 0;
    const float *w = hdo__numbers(p, l->weight);
    p->v->ln_bwd(rows_of(l, p), l->n_out, l->eps, io->in, w, io->dout, io->din, dw, db);
    put_gradient(D, dw, p->add, hdo__gradient(p, l->weight));
    put_gradient(D, db, p->add, hdo__gradient(p, l->bias));
    hdo__arena_rewind(a, mark);
}

/* Tangents first, while in still holds x (out may be in). */
static void layernorm_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t n = rows_of(l, p) * (size_t)l->n_out;
    const float *w = hdo__numbers(p, l->weight);
    for (int r = 0; r < p->G; r++) {
        size_t mark = hdo__arena_mark(p->work->arena);
        const float *tw = hdo__tangent(p, r, l->weight), *tb = hdo__tangent(p, r, l->bias);
        const float *tx = io->tin != NULL ? io->tin + (size_t)r * n : NULL;
        p->v->ln_jvp(rows_of(l, p), l->n_out, l->eps, io->in, tx, w, tw, tb, io->tout + (size_t)r * n);
        hdo__arena_rewind(p->work->arena, mark);
    }
    layernorm_fwd(l, p, io);
}

static void layernorm_cplx(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t D = (size_t)l->n_out, mark = hdo__arena_mark(p->work->arena);
    hdo_norm_group g = {.runs = 1, .len = D, .step = 1};
    g.w = hdo__numbers(p, l->weight);
    g.tw = hdo__tangent(p, 0, l->weight);
    g.b = hdo__numbers(p, l->bias);
    g.tb = hdo__tangent(p, 0, l->bias);
    for (size_t end = rows_of(l, p) * D; g.first < end; g.first += D) hdo__norm_cplx(l, p->nu, &g, io);
    hdo__arena_rewind(p->work->arena, mark);
}

static size_t layernorm_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)B, (void)G;
    return 2 * hdo__tile_bytes(net, 1, (size_t)l->n_out) + 2 * hdo__arena_round((size_t)l->n_out * sizeof(double));
}

static const hdo_layer_ops layernorm_ops = {.name = "layernorm",
                                            .inplace = true,
                                            .inplace_bwd = true,
                                            .needs_in = true,
                                            .fwd = layernorm_fwd,
                                            .bwd = layernorm_bwd,
                                            .jvp = layernorm_jvp,
                                            .cplx = layernorm_cplx,
                                            .work = layernorm_work};

int hdo__layernorm_add(hdo_net *net, const char *name, int in, bool bias) {
    hdo_value v = *hdo__net_value(net, in);
    hdo_layer *l = hdo__net_layer(net, &layernorm_ops, in, -1, v);
    if (l == NULL) return -1;
    l->n_out = v.seq ? v.W : (int)v.n;
    l->rows = (int)(v.n / (size_t)l->n_out);
    l->eps = 1e-5f;
    hdo_param w = {.role = HDO_ROLE_NORM, .n_dim = 1, .dim = {l->n_out}, .arg = 1.0};
    l->weight = hdo__net_param(net, name, "weight", w);
    w.arg = 0.0;
    if (bias) l->bias = hdo__net_param(net, name, "bias", w);
    return l->weight >= 0 && (!bias || l->bias >= 0) ? l->out : -1;
}
