/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch-norm over (B, C, S) with S positions a channel (1 for vectors), and layer-norm over rows of a sequence.
 *
 *   fwd   xh = (x - mean) / sqrt(var + eps),  y = w xh + b
 *   bwd   with n numbers a statistic: db = sum dy, dw = sum dy xh, dx = w r (dy - db/n - xh dw/n),  r = 1/sqrt(var+eps)
 *   jvp   txh = r (tx - mean(tx) - xh mean(xh tx)),  ty = w txh + tw xh + tb
 *   cplx  fwd with complex numbers: the variance is the mean of (x - mean)^2 without conjugates, the root the principal
 *         one
 *
 * Training statistics are those of the batch (biased variance); running statistics move by 0.1 with the unbiased
 * variance, as in PyTorch. PyTorch refuses to train on one value a channel; here xh is then 0 and the running variance
 * takes the biased value. Evaluation uses the running statistics as constants: dx = w r dy, ty = w r tx + tw xh + tb.
 *
 * All sums are in double. Wide passes spread blocks of channels over the team. Channels of small maps are too short for
 * loops of their own: they lie side by side in every sample and are treated as one row of numbers, samples added up.
 */
#include <math.h>
#include <string.h>

#include "kernels/cplx.h"
#include "nn/nn.h"

enum { CHANNELS = 16, SHORT_CHANNELS = 64 }; /* channels of a piece */
enum { SHORT = 16 };                         /* positions a channel: fewer go side by side */
static const double momentum = 0.1;

typedef struct bn_args {
    const hdo_layer *l;
    const hdo_pass *p;
    const float *x, *out, *aux_in;
    float *y, *aux, *dy, *dx;
    const float *w, *b; /* (C) */
    float *dw, *db;
} bn_args;

static size_t at(const hdo_layer *l, int s, int c) {
    return ((size_t)s * (size_t)l->n_out + (size_t)c) * (size_t)l->rows;
}

/* 1/sqrt(var + eps) of channel c from its mean and the sum of squares around it, and the running statistics. */
static double batch_rstd(const bn_args *v, int c, double mu, double sq) {
    const hdo_layer *l = v->l;
    const hdo_pass *p = v->p;
    const hdo_param *m = &p->net->buffers.row[l->buffer], *var = m + 1;
    double n = (double)p->B * (double)l->rows;
    if (p->stats_out != NULL) {
        double unbiased = sq / (n > 1 ? n - 1 : 1), old_m = (double)p->stats[m->off + (size_t)c];
        double old_v = (double)p->stats[var->off + (size_t)c];
        p->stats_out[m->off + (size_t)c] = (float)((1 - momentum) * old_m + momentum * mu);
        p->stats_out[var->off + (size_t)c] = (float)((1 - momentum) * old_v + momentum * unbiased);
    }
    return 1.0 / sqrt(sq / n + (double)l->eps);
}

/* The running ones. */
static void stored_stats(const bn_args *v, int c, double *mean, double *rstd) {
    const hdo_param *m = &v->p->net->buffers.row[v->l->buffer], *var = m + 1;
    *mean = (double)v->p->stats[m->off + (size_t)c];
    *rstd = 1.0 / sqrt((double)v->p->stats[var->off + (size_t)c] + (double)v->l->eps);
}

/* Mean and 1/sqrt(var + eps) of channel c: two passes over the numbers. */
static void channel_stats(const bn_args *v, int c, double *mean, double *rstd) {
    const hdo_layer *l = v->l;
    const hdo_pass *p = v->p;
    size_t S = (size_t)l->rows;
    if (!p->s->train) {
        stored_stats(v, c, mean, rstd);
        return;
    }
    double n = (double)p->B * (double)S, sum = 0, sq = 0;
    for (int s = 0; s < p->B; s++) sum += p->net->v->sum(S, v->x + at(l, s, c));
    *mean = sum / n;
    for (int s = 0; s < p->B; s++) sq += p->net->v->sum_sq(S, v->x + at(l, s, c), *mean);
    *rstd = batch_rstd(v, c, *mean, sq);
}

static size_t batchnorm_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)B;
    size_t n = (size_t)l->n_out * (size_t)l->rows;
    size_t rows =
        l->rows > SHORT ? 0 : 5 * hdo__arena_round(n * sizeof(float)) + 2 * hdo__arena_round(n * sizeof(double));
    return rows + 2 * (size_t)(G > 1 ? G : 1) * hdo__tile_bytes(net, 1, (size_t)l->n_out);
}

/* ---- short channels lo .. hi-1, side by side ---- */

static double run_sum(size_t S, const double *x) {
    double sum = 0;
    for (size_t i = 0; i < S; i++) sum += x[i];
    return sum;
}
static void run_fill(size_t S, float *x, float value) {
    for (size_t i = 0; i < S; i++) x[i] = value;
}

static void short_fwd(const bn_args *v, int lo, int hi, hdo_arena *a) {
    const hdo_layer *l = v->l;
    const hdo_pass *p = v->p;
    size_t S = (size_t)l->rows, n = (size_t)(hi - lo) * S;
    double total = (double)p->B * (double)S, *sum = hdo__arena_doubles(a, n), *centre = hdo__arena_doubles(a, n);
    float *mean = hdo__arena_floats(a, n), *scale = hdo__arena_floats(a, n), *shift = hdo__arena_floats(a, n);
    if (p->s->train) {
        memset(sum, 0, n * sizeof *sum);
        for (int s = 0; s < p->B; s++) p->net->v->sums(n, v->x + at(l, s, lo), sum);
        for (size_t c = 0; c < n; c += S) {
            double mu = run_sum(S, sum + c) / total;
            for (size_t i = 0; i < S; i++) centre[c + i] = mu;
        }
        memset(sum, 0, n * sizeof *sum);
        for (int s = 0; s < p->B; s++) p->net->v->squares(n, v->x + at(l, s, lo), centre, sum);
    }
    for (int c = lo; c < hi; c++) {
        size_t i = (size_t)(c - lo) * S;
        double mu, rstd;
        if (p->s->train) {
            mu = centre[i];
            rstd = batch_rstd(v, c, mu, run_sum(S, sum + i));
        } else {
            stored_stats(v, c, &mu, &rstd);
        }
        if (v->aux != NULL) {
            v->aux[2 * c] = (float)mu;
            v->aux[2 * c + 1] = (float)rstd;
        }
        run_fill(S, mean + i, (float)mu);
        run_fill(S, scale + i, (float)((double)v->w[c] * rstd));
        run_fill(S, shift + i, v->b[c]);
    }
    for (int s = 0; s < p->B; s++)
        p->net->v->affines(n, v->x + at(l, s, lo), mean, scale, shift, l->relu, v->y + at(l, s, lo));
}

static void short_bwd(const bn_args *v, int lo, int hi, hdo_arena *arena) {
    const hdo_layer *l = v->l;
    const hdo_pass *p = v->p;
    size_t S = (size_t)l->rows, n = (size_t)(hi - lo) * S;
    double total = (double)p->B * (double)S, *sum = hdo__arena_doubles(arena, n), *dot = hdo__arena_doubles(arena, n);
    float *mean = hdo__arena_floats(arena, n), *rstd = hdo__arena_floats(arena, n),
          *scale = hdo__arena_floats(arena, n);
    float *a = hdo__arena_floats(arena, n), *b = hdo__arena_floats(arena, n);
    for (int c = lo; c < hi; c++) {
        run_fill(S, mean + (size_t)(c - lo) * S, v->aux_in[2 * c]);
        run_fill(S, rstd + (size_t)(c - lo) * S, v->aux_in[2 * c + 1]);
    }
    memset(sum, 0, n * sizeof *sum);
    memset(dot, 0, n * sizeof *dot);
    for (int s = 0; s < p->B; s++) {
        size_t i = at(l, s, lo);
        if (l->relu) p->net->v->relu_mask(n, v->out + i, v->dy + i);
        p->net->v->all_dots(n, v->x + i, v->dy + i, mean, rstd, sum, dot);
    }
    for (int c = lo; c < hi; c++) {
        size_t i = (size_t)(c - lo) * S;
        double db = run_sum(S, sum + i), dw = run_sum(S, dot + i);
        v->db[c] = (float)db + (p->add ? v->db[c] : 0);
        v->dw[c] = (float)dw + (p->add ? v->dw[c] : 0);
        run_fill(S, scale + i, v->w[c] * rstd[i]);
        run_fill(S, a + i, p->s->train ? (float)(db / total) : 0);
        run_fill(S, b + i, p->s->train ? (float)(dw / total) : 0);
    }
    for (int s = 0; s < p->B && v->dx != NULL; s++) {
        size_t i = at(l, s, lo);
        p->net->v->all_dx(n, v->x + i, v->dy + i, mean, rstd, scale, a, b, v->dx + i);
    }
}

/* ---- batch-norm, forward ---- */

static void bn_fwd_piece(void *ctx, int lo, int hi, hdo_work *w) {
    bn_args *v = ctx;
    const hdo_layer *l = v->l;
    size_t S = (size_t)l->rows;
    if (S <= SHORT) {
        short_fwd(v, lo, hi, w->arena);
        return;
    }
    for (int c = lo; c < hi; c++) {
        double mean, rstd;
        channel_stats(v, c, &mean, &rstd);
        if (v->aux != NULL) {
            v->aux[2 * c] = (float)mean;
            v->aux[2 * c + 1] = (float)rstd;
        }
        float scale = (float)((double)v->w[c] * rstd), m = (float)mean, shift = v->b[c];
        for (int s = 0; s < v->p->B; s++)
            v->p->net->v->affine(S, v->x + at(l, s, c), m, scale, shift, l->relu, v->y + at(l, s, c));
    }
}

static int channel_pieces(const hdo_pass *p, const hdo_layer *l) {
    int channels = l->rows <= SHORT ? SHORT_CHANNELS : CHANNELS;
    return p->wide ? (l->n_out + channels - 1) / channels : 1;
}

static void batchnorm_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out,
                          float *aux) {
    (void)in2;
    size_t mark = hdo__arena_mark(p->work->arena), C = (size_t)l->n_out;
    bn_args v = {.l = l, .p = p, .x = in, .y = out, .aux = aux};
    v.w = hdo__pass_weights(p, hdo__param(p->net, l->weight)->off, C);
    v.b = hdo__pass_weights(p, hdo__param(p->net, l->bias)->off, C);
    hdo__pass_pieces(p, l->n_out, channel_pieces(p, l), bn_fwd_piece, &v);
    hdo__arena_rewind(p->work->arena, mark);
}

/* ---- batch-norm, reverse ---- */

static void bn_bwd_piece(void *ctx, int lo, int hi, hdo_work *w) {
    bn_args *v = ctx;
    const hdo_layer *l = v->l;
    const hdo_pass *p = v->p;
    size_t S = (size_t)l->rows;
    if (S <= SHORT) {
        short_bwd(v, lo, hi, w->arena);
        return;
    }
    double n = (double)p->B * (double)S;
    for (int c = lo; c < hi; c++) {
        float mean = v->aux_in[2 * c], rstd = v->aux_in[2 * c + 1];
        double sum = 0, dot = 0;
        for (int s = 0; s < p->B; s++) {
            const float *x = v->x + at(l, s, c);
            float *dy = v->dy + at(l, s, c);
            if (l->relu) p->net->v->relu_mask(S, v->out + at(l, s, c), dy);
            p->net->v->dots(S, x, dy, mean, rstd, &sum, &dot);
        }
        v->db[c] = (float)sum + (p->add ? v->db[c] : 0);
        v->dw[c] = (float)dot + (p->add ? v->dw[c] : 0);
        if (v->dx == NULL) continue;
        float scale = v->w[c] * rstd, a = p->s->train ? (float)(sum / n) : 0, b = p->s->train ? (float)(dot / n) : 0;
        for (int s = 0; s < p->B; s++) {
            size_t i = at(l, s, c);
            p->net->v->dx(S, v->x + i, v->dy + i, mean, rstd, scale, a, b, v->dx + i);
        }
    }
}

static void batchnorm_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                          float *dout, float *din) {
    size_t woff = hdo__param(p->net, l->weight)->off, boff = hdo__param(p->net, l->bias)->off;
    size_t mark = hdo__arena_mark(p->work->arena);
    bn_args v = {.l = l, .p = p, .x = in, .out = out, .aux_in = aux, .dy = dout, .dx = din, .w = p->x + woff};
    v.dw = p->g + woff;
    v.db = p->g + boff;
    hdo__pass_pieces(p, l->n_out, channel_pieces(p, l), bn_bwd_piece, &v);
    hdo__arena_rewind(p->work->arena, mark);
}

/* ---- batch-norm, forward mode: tangents first, while in still holds x (out may be in) ---- */

static void batchnorm_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                          const float *tin2, float *out, float *tout) {
    (void)in2;
    (void)tin2;
    size_t S = (size_t)l->rows, C = (size_t)l->n_out, all = (size_t)p->B * C * S,
           mark = hdo__arena_mark(p->work->arena);
    size_t woff = hdo__param(p->net, l->weight)->off, boff = hdo__param(p->net, l->bias)->off;
    double n = (double)p->B * (double)S;
    const float *tw[HDO_GROUP_MAX], *tb[HDO_GROUP_MAX]; /* (C) each */
    bn_args v = {.l = l, .p = p, .x = in};
    for (int r = 0; r < p->G; r++) {
        tw[r] = hdo__pass_tangent(p, r, woff, C);
        tb[r] = hdo__pass_tangent(p, r, boff, C);
    }
    for (int c = 0; c < l->n_out; c++) {
        double mean, rstd;
        channel_stats(&v, c, &mean, &rstd);
        float m = (float)mean, rs = (float)rstd, wc = p->x[woff + (size_t)c], bc = p->x[boff + (size_t)c];
        for (int r = 0; r < p->G; r++) {
            double sum = 0, dot = 0;
            for (int s = 0; p->s->train && tin != NULL && s < p->B; s++) {
                size_t i = at(l, s, c);
                p->net->v->dots(S, in + i, tin + (size_t)r * all + i, m, rs, &sum, &dot);
            }
            float ms = (float)(sum / n), md = (float)(dot / n), twc = tw[r][c], tbc = tb[r][c];
            for (int s = 0; s < p->B; s++) {
                size_t k = at(l, s, c);
                const float *x = in + k, *tx = tin != NULL ? tin + (size_t)r * all + k : NULL;
                float *ty = tout + (size_t)r * all + k;
                for (size_t i = 0; i < S; i++) {
                    float xh = (x[i] - m) * rs, t = twc * xh + tbc;
                    if (tx != NULL) t += wc * rs * (tx[i] - ms - xh * md);
                    ty[i] = l->relu && !(wc * xh + bc > 0) ? 0 : t;
                }
            }
        }
    }
    hdo__arena_rewind(p->work->arena, mark);
    batchnorm_fwd(l, p, in, NULL, out, NULL);
}

/* ---- complex points: both norms are one function over groups of numbers that share a statistic ---- */

typedef struct cplx_group {
    size_t first, runs, stride, len; /* runs of len numbers, stride apart */
    const float *w, *tw, *b, *tb;    /* real parts and imaginary parts over nu; b may be NULL */
    size_t step;                     /* from the weight of a number to that of the next */
    const double *fixed;             /* running mean and 1/sqrt(var + eps), or NULL: those of the group */
} cplx_group;

/* Number i of a + i nu t; t may be NULL (zero). */
static hdo_z number(const float *a, const float *t, size_t i, double nu) {
    return (hdo_z){(double)a[i], t != NULL ? nu * (double)t[i] : 0.0};
}

static void group_stats(const hdo_layer *l, double nu, const cplx_group *g, const float *in, const float *tin,
                        hdo_z *mean, hdo_z *rstd) {
    double n = (double)g->runs * (double)g->len;
    hdo_z sum = {0.0, 0.0}, sq = {0.0, 0.0};
    if (g->fixed != NULL) {
        *mean = (hdo_z){g->fixed[0], 0.0};
        *rstd = (hdo_z){g->fixed[1], 0.0};
        return;
    }
    for (size_t r = 0, k = g->first; r < g->runs; r++, k += g->stride)
        for (size_t i = k; i < k + g->len; i++) sum = hdo__z_add(sum, number(in, tin, i, nu));
    *mean = (hdo_z){sum.re / n, sum.im / n};
    for (size_t r = 0, k = g->first; r < g->runs; r++, k += g->stride)
        for (size_t i = k; i < k + g->len; i++) {
            hdo_z off = hdo__z_sub(number(in, tin, i, nu), *mean);
            sq = hdo__z_add(sq, hdo__z_mul(off, off));
        }
    *rstd = hdo__z_inverse(hdo__z_sqrt((hdo_z){sq.re / n + (double)l->eps, sq.im / n}));
}

static void norm_cplx(const hdo_layer *l, double nu, const cplx_group *g, const float *in, const float *tin, float *out,
                      float *tout) {
    hdo_z mean, rstd;
    group_stats(l, nu, g, in, tin, &mean, &rstd);
    for (size_t r = 0, k = g->first; r < g->runs; r++, k += g->stride)
        for (size_t i = 0; i < g->len; i++) {
            hdo_z xh = hdo__z_mul(hdo__z_sub(number(in, tin, k + i, nu), mean), rstd);
            hdo_z y = hdo__z_mul(number(g->w, g->tw, i * g->step, nu), xh);
            if (g->b != NULL) y = hdo__z_add(y, number(g->b, g->tb, i * g->step, nu));
            bool off = l->relu && y.re < 0.0;
            out[k + i] = off ? 0 : (float)y.re;
            tout[k + i] = off ? 0 : (float)(y.im / nu);
        }
}

static void batchnorm_cplx(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                           const float *tin2, float *out, float *tout) {
    (void)in2, (void)tin2;
    size_t S = (size_t)l->rows, C = (size_t)l->n_out, mark = hdo__arena_mark(p->work->arena);
    size_t woff = hdo__param(p->net, l->weight)->off, boff = hdo__param(p->net, l->bias)->off;
    const float *tw = hdo__pass_tangent(p, 0, woff, C), *tb = hdo__pass_tangent(p, 0, boff, C);
    bn_args v = {.l = l, .p = p};
    double fixed[2];
    for (size_t c = 0; c < C; c++) {
        cplx_group g = {.first = c * S, .runs = (size_t)p->B, .stride = C * S, .len = S};
        g.w = p->x + woff + c;
        g.tw = tw + c;
        g.b = p->x + boff + c;
        g.tb = tb + c;
        if (!p->s->train) {
            channel_stats(&v, (int)c, &fixed[0], &fixed[1]);
            g.fixed = fixed;
        }
        norm_cplx(l, p->nu, &g, in, tin, out, tout);
    }
    hdo__arena_rewind(p->work->arena, mark);
}

static const hdo_layer_ops batchnorm_ops = {.name = "batchnorm",
                                            .inplace = true,
                                            .inplace_bwd = true,
                                            .needs_in = true,
                                            .work = batchnorm_work,
                                            .fwd = batchnorm_fwd,
                                            .bwd = batchnorm_bwd,
                                            .jvp = batchnorm_jvp,
                                            .cplx = batchnorm_cplx};

/* ---- layer-norm: every row of n_out numbers on its own ---- */

static size_t layernorm_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)B;
    (void)G;
    return 2 * hdo__tile_bytes(net, 1, (size_t)l->n_out) + 2 * hdo__arena_round((size_t)l->n_out * sizeof(double));
}

static void layernorm_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out,
                          float *aux) {
    (void)in2;
    (void)aux;
    size_t mark = hdo__arena_mark(p->work->arena), D = (size_t)l->n_out;
    const float *w = hdo__pass_weights(p, hdo__param(p->net, l->weight)->off, D);
    const float *b = l->bias >= 0 ? hdo__pass_weights(p, hdo__param(p->net, l->bias)->off, D) : NULL;
    p->net->v->ln_fwd((size_t)p->B * (size_t)l->rows, l->n_out, l->eps, in, w, b, out);
    hdo__arena_rewind(p->work->arena, mark);
}

static void layernorm_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                          float *dout, float *din) {
    (void)out;
    (void)aux;
    hdo_arena *a = p->work->arena;
    size_t mark = hdo__arena_mark(a), D = (size_t)l->n_out, woff = hdo__param(p->net, l->weight)->off;
    double *dw = hdo__arena_doubles(a, D), *db = hdo__arena_doubles(a, D);
    for (size_t i = 0; i < D; i++) dw[i] = db[i] = 0;
    p->net->v->ln_bwd((size_t)p->B * (size_t)l->rows, l->n_out, l->eps, in, p->x + woff, dout, din, dw, db);
    for (size_t i = 0; i < D; i++) {
        p->g[woff + i] = (float)dw[i] + (p->add ? p->g[woff + i] : 0);
        if (l->bias < 0) continue;
        float *g = p->g + hdo__param(p->net, l->bias)->off + i;
        *g = (float)db[i] + (p->add ? *g : 0);
    }
    hdo__arena_rewind(a, mark);
}

static void layernorm_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                          const float *tin2, float *out, float *tout) {
    (void)in2;
    (void)tin2;
    hdo_arena *a = p->work->arena;
    size_t D = (size_t)l->n_out, rows = (size_t)p->B * (size_t)l->rows, woff = hdo__param(p->net, l->weight)->off;
    for (int r = 0; r < p->G; r++) {
        size_t mark = hdo__arena_mark(a);
        const float *tw = hdo__pass_tangent(p, r, woff, D);
        const float *tb = l->bias >= 0 ? hdo__pass_tangent(p, r, hdo__param(p->net, l->bias)->off, D) : NULL;
        const float *tx = tin != NULL ? tin + (size_t)r * rows * D : NULL;
        p->net->v->ln_jvp(rows, l->n_out, l->eps, in, tx, p->x + woff, tw, tb, tout + (size_t)r * rows * D);
        hdo__arena_rewind(a, mark);
    }
    layernorm_fwd(l, p, in, NULL, out, NULL);
}

static void layernorm_cplx(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                           const float *tin2, float *out, float *tout) {
    (void)in2, (void)tin2;
    size_t D = (size_t)l->n_out, woff = hdo__param(p->net, l->weight)->off, mark = hdo__arena_mark(p->work->arena);
    size_t boff = l->bias >= 0 ? hdo__param(p->net, l->bias)->off : 0;
    cplx_group g = {.runs = 1, .len = D, .w = p->x + woff, .tw = hdo__pass_tangent(p, 0, woff, D), .step = 1};
    if (l->bias >= 0) {
        g.b = p->x + boff;
        g.tb = hdo__pass_tangent(p, 0, boff, D);
    }
    for (size_t end = (size_t)p->B * (size_t)l->rows * D; g.first < end; g.first += D)
        norm_cplx(l, p->nu, &g, in, tin, out, tout);
    hdo__arena_rewind(p->work->arena, mark);
}

static const hdo_layer_ops layernorm_ops = {.name = "layernorm",
                                            .inplace = true,
                                            .inplace_bwd = true,
                                            .needs_in = true,
                                            .work = layernorm_work,
                                            .fwd = layernorm_fwd,
                                            .bwd = layernorm_bwd,
                                            .jvp = layernorm_jvp,
                                            .cplx = layernorm_cplx};

/* ---- constructors ---- */

static bool add_norm_params(hdo_net *net, hdo_layer *l, const char *name, int n, bool bias) {
    l->eps = 1e-5f;
    l->n_out = n;
    l->weight = hdo__layout_add(&net->params, name, "weight", HDO_ROLE_NORM, 1, (int[4]){n});
    if (l->weight < 0) return false;
    net->params.row[l->weight].arg = 1.0;
    if (bias) l->bias = hdo__layout_add(&net->params, name, "bias", HDO_ROLE_NORM, 1, (int[4]){n});
    return !bias || l->bias >= 0;
}

int hdo__batchnorm_add(hdo_net *net, const char *name, int in) {
    const hdo_value *v = &net->value[in];
    int C = v->C, k = hdo__net_layer(net, &batchnorm_ops, in, -1, *v);
    if (k < 0) return -1;
    hdo_layer *l = &net->layer[k];
    l->rows = (int)(v->n / (size_t)C);
    if (!add_norm_params(net, l, name, C, true)) return -1;
    l->buffer = hdo__layout_add(&net->buffers, name, "running_mean", HDO_ROLE_BUFFER, 1, (int[4]){C});
    int var = hdo__layout_add(&net->buffers, name, "running_var", HDO_ROLE_BUFFER, 1, (int[4]){C});
    if (l->buffer < 0 || var < 0) return -1;
    net->buffers.row[var].arg = 1.0;
    l->aux_fixed = 2 * (size_t)C;
    net->couples = true;
    return l->out;
}

int hdo__layernorm_add(hdo_net *net, const char *name, int in, bool bias) {
    const hdo_value *v = &net->value[in];
    int D = v->seq ? v->W : (int)v->n, k = hdo__net_layer(net, &layernorm_ops, in, -1, *v);
    if (k < 0) return -1;
    net->layer[k].rows = (int)(v->n / (size_t)D);
    return add_norm_params(net, &net->layer[k], name, D, bias) ? net->layer[k].out : -1;
}
