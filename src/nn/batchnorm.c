/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch-norm, ReLU fused when asked: every channel on its own, S positions a channel (1 for vectors).
 *
 *   x, y, dx, dy, tx_r, ty_r (B, C, S)    w, b, dw, db, tw_r, tb_r (C)    N = B S numbers a channel
 *
 *   fwd   xh = (x - mean) r,  r = 1/sqrt(var + eps),  y = w xh + b
 *   bwd   db = sum dy,  dw = sum dy xh,  dx = w r (dy - db/N - xh dw/N)
 *   jvp   ty = w r (tx - mean(tx) - xh mean(xh tx)) + tw xh + tb
 *   cplx  fwd with complex numbers (norm_cplx.h)
 *
 * Training statistics are those of the batch (biased variance); running statistics move by 0.1 with the unbiased
 * variance, as in PyTorch. PyTorch refuses to train on one value a channel; here xh is then 0 and the running variance
 * takes the biased value. Evaluation uses the running statistics as constants: dx = w r dy, ty = w r tx + tw xh + tb.
 * Kept for the backward walk: aux (C, 2), mean and r.
 *
 * All sums are in double. Wide passes spread blocks of channels over the team. Channels of small maps are too short for
 * loops of their own: they lie side by side in every sample and are treated as one row of numbers, samples added up.
 */
#include <math.h>
#include <string.h>

#include "nn/layer.h"
#include "nn/norm_cplx.h"

enum { CHANNELS = 16, SHORT_CHANNELS = 64 }; /* channels of a piece */
enum { SHORT = 16 };                         /* positions a channel: fewer go side by side */
static const double momentum = 0.1;

typedef struct bn_args {
    const hdo_layer *l;
    const hdo_pass *p;
    const float *x; /* (B, C, S), as y, dy, dx */
    float *y, *dy, *dx;
    float *aux;         /* (C, 2) */
    const float *w, *b; /* (C) */
    float *dw, *db;     /* (C) */
} bn_args;

static size_t at(const hdo_layer *l, int s, int c) {
    return ((size_t)s * (size_t)l->n_out + (size_t)c) * (size_t)l->rows;
}

/* 1/sqrt(var + eps) of channel c from its mean and the sum of squares around it, and the running statistics. */
static double batch_rstd(const bn_args *v, int c, double mu, double sq) {
    const hdo_layer *l = v->l;
    const hdo_pass *p = v->p;
    double n = (double)p->B * (double)l->rows, unbiased = sq / (n > 1 ? n - 1 : 1);
    float *new_mean = hdo__stats_out(p, l->mean), *new_var = hdo__stats_out(p, l->var);
    if (new_mean != NULL) {
        new_mean[c] = (float)((1 - momentum) * (double)hdo__stats(p, l->mean)[c] + momentum * mu);
        new_var[c] = (float)((1 - momentum) * (double)hdo__stats(p, l->var)[c] + momentum * unbiased);
    }
    return 1.0 / sqrt(sq / n + (double)l->eps);
}

/* The running ones. */
static void stored_stats(const bn_args *v, int c, double *mean, double *rstd) {
    *mean = (double)hdo__stats(v->p, v->l->mean)[c];
    *rstd = 1.0 / sqrt((double)hdo__stats(v->p, v->l->var)[c] + (double)v->l->eps);
}

/* Mean and 1/sqrt(var + eps) of channel c: two passes over the numbers. */
static void channel_stats(const bn_args *v, int c, double *mean, double *rstd) {
    const hdo_layer *l = v->l;
    const hdo_pass *p = v->p;
    size_t S = (size_t)l->rows;
    if (!hdo__by_batch(l, p)) {
        stored_stats(v, c, mean, rstd);
        return;
    }
    double n = (double)p->B * (double)S, sum = 0, sq = 0;
    for (int s = 0; s < p->B; s++) sum += p->v->sum(S, v->x + at(l, s, c));
    *mean = sum / n;
    for (int s = 0; s < p->B; s++) sq += p->v->sum_sq(S, v->x + at(l, s, c), *mean);
    *rstd = batch_rstd(v, c, *mean, sq);
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
    if (hdo__by_batch(l, p)) {
        memset(sum, 0, n * sizeof *sum);
        for (int s = 0; s < p->B; s++) p->v->sums(n, v->x + at(l, s, lo), sum);
        for (size_t c = 0; c < n; c += S) {
            double mu = run_sum(S, sum + c) / total;
            for (size_t i = 0; i < S; i++) centre[c + i] = mu;
        }
        memset(sum, 0, n * sizeof *sum);
        for (int s = 0; s < p->B; s++) p->v->squares(n, v->x + at(l, s, lo), centre, sum);
    }
    for (int c = lo; c < hi; c++) {
        size_t i = (size_t)(c - lo) * S;
        double mu, rstd;
        if (hdo__by_batch(l, p)) {
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
        p->v->affines(n, v->x + at(l, s, lo), mean, scale, shift, l->relu, v->y + at(l, s, lo));
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
        run_fill(S, mean + (size_t)(c - lo) * S, v->aux[2 * c]);
        run_fill(S, rstd + (size_t)(c - lo) * S, v->aux[2 * c + 1]);
    }
    memset(sum, 0, n * sizeof *sum);
    memset(dot, 0, n * sizeof *dot);
    for (int s = 0; s < p->B; s++) {
        size_t i = at(l, s, lo);
        if (l->relu) p->v->relu_mask(n, v->y + i, v->dy + i);
        p->v->all_dots(n, v->x + i, v->dy + i, mean, rstd, sum, dot);
    }
    for (int c = lo; c < hi; c++) {
        size_t i = (size_t)(c - lo) * S;
        double db = run_sum(S, sum + i), dw = run_sum(S, dot + i);
        v->db[c] = (float)db + (p->add ? v->db[c] : 0);
        v->dw[c] = (float)dw + (p->add ? v->dw[c] : 0);
        run_fill(S, scale + i, v->w[c] * rstd[i]);
        run_fill(S, a + i, hdo__by_batch(l, p) ? (float)(db / total) : 0);
        run_fill(S, b + i, hdo__by_batch(l, p) ? (float)(dw / total) : 0);
    }
    for (int s = 0; s < p->B && v->dx != NULL; s++) {
        size_t i = at(l, s, lo);
        p->v->all_dx(n, v->x + i, v->dy + i, mean, rstd, scale, a, b, v->dx + i);
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
            v->p->v->affine(S, v->x + at(l, s, c), m, scale, shift, l->relu, v->y + at(l, s, c));
    }
}

static int channel_pieces(const hdo_pass *p, const hdo_layer *l) {
    int channels = l->rows <= SHORT ? SHORT_CHANNELS : CHANNELS;
    return p->wide ? (l->n_out + channels - 1) / channels : 1;
}

static void batchnorm_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t mark = hdo__arena_mark(p->work->arena);
    bn_args v = {.l = l, .p = p, .x = io->in, .y = io->out, .aux = io->aux};
    v.w = hdo__weights(p, l->weight);
    v.b = hdo__weights(p, l->bias);
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
        float mean = v->aux[2 * c], rstd = v->aux[2 * c + 1];
        double sum = 0, dot = 0;
        for (int s = 0; s < p->B; s++) {
            const float *x = v->x + at(l, s, c);
            float *dy = v->dy + at(l, s, c);
            if (l->relu) p->v->relu_mask(S, v->y + at(l, s, c), dy);
            p->v->dots(S, x, dy, mean, rstd, &sum, &dot);
        }
        v->db[c] = (float)sum + (p->add ? v->db[c] : 0);
        v->dw[c] = (float)dot + (p->add ? v->dw[c] : 0);
        if (v->dx == NULL) continue;
        bool batch = hdo__by_batch(l, p);
        float scale = v->w[c] * rstd, a = batch ? (float)(sum / n) : 0, b = batch ? (float)(dot / n) : 0;
        for (int s = 0; s < p->B; s++) {
            size_t i = at(l, s, c);
            p->v->dx(S, v->x + i, v->dy + i, mean, rstd, scale, a, b, v->dx + i);
        }
    }
}

static void batchnorm_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t mark = hdo__arena_mark(p->work->arena);
    bn_args v = {.l = l, .p = p, .x = io->in, .y = io->out, .aux = io->aux, .dy = io->dout, .dx = io->din};
    v.w = hdo__numbers(p, l->weight);
    v.dw = hdo__gradient(p, l->weight);
    v.db = hdo__gradient(p, l->bias);
    if (v.dw == NULL) v.dw = hdo__arena_floats(p->work->arena, (size_t)l->n_out); /* sums dx needs all the same */
    if (v.db == NULL) v.db = hdo__arena_floats(p->work->arena, (size_t)l->n_out);
    hdo__pass_pieces(p, l->n_out, channel_pieces(p, l), bn_bwd_piece, &v);
    hdo__arena_rewind(p->work->arena, mark);
}

/* ---- batch-norm, forward mode: tangents first, while in still holds x (out may be in) ---- */

static void batchnorm_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t S = (size_t)l->rows, C = (size_t)l->n_out, all = (size_t)p->B * C * S,
           mark = hdo__arena_mark(p->work->arena);
    double n = (double)p->B * (double)S;
    const float *in = io->in, *tin = io->tin, *w = hdo__numbers(p, l->weight), *b = hdo__numbers(p, l->bias);
    const float *tw[HDO_GROUP_MAX], *tb[HDO_GROUP_MAX]; /* (C) each */
    bn_args v = {.l = l, .p = p, .x = in};
    for (int r = 0; r < p->G; r++) {
        tw[r] = hdo__tangent(p, r, l->weight);
        tb[r] = hdo__tangent(p, r, l->bias);
    }
    for (int c = 0; c < l->n_out; c++) {
        double mean, rstd;
        channel_stats(&v, c, &mean, &rstd);
        float m = (float)mean, rs = (float)rstd, wc = w[c], bc = b[c];
        for (int r = 0; r < p->G; r++) {
            double sum = 0, dot = 0;
            for (int s = 0; hdo__by_batch(l, p) && tin != NULL && s < p->B; s++) {
                size_t i = at(l, s, c);
                p->v->dots(S, in + i, tin + (size_t)r * all + i, m, rs, &sum, &dot);
            }
            float ms = (float)(sum / n), md = (float)(dot / n), twc = tw[r][c], tbc = tb[r][c];
            for (int s = 0; s < p->B; s++) {
                size_t k = at(l, s, c);
                const float *x = in + k, *tx = tin != NULL ? tin + (size_t)r * all + k : NULL;
                float *ty = io->tout + (size_t)r * all + k;
                for (size_t i = 0; i < S; i++) {
                    float xh = (x[i] - m) * rs, t = twc * xh + tbc;
                    if (tx != NULL) t += wc * rs * (tx[i] - ms - xh * md);
                    ty[i] = l->relu && !(wc * xh + bc > 0) ? 0 : t;
                }
            }
        }
    }
    hdo__arena_rewind(p->work->arena, mark);
    batchnorm_fwd(l, p, io);
}

static void batchnorm_cplx(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t S = (size_t)l->rows, C = (size_t)l->n_out, mark = hdo__arena_mark(p->work->arena);
    const float *w = hdo__numbers(p, l->weight), *b = hdo__numbers(p, l->bias);
    const float *tw = hdo__tangent(p, 0, l->weight), *tb = hdo__tangent(p, 0, l->bias);
    bn_args v = {.l = l, .p = p};
    double fixed[2];
    for (size_t c = 0; c < C; c++) {
        hdo_norm_group g = {.first = c * S, .runs = (size_t)p->B, .stride = C * S, .len = S};
        g.w = w + c;
        g.tw = tw + c;
        g.b = b + c;
        g.tb = tb + c;
        if (!hdo__by_batch(l, p)) {
            stored_stats(&v, (int)c, &fixed[0], &fixed[1]);
            g.fixed = fixed;
        }
        hdo__norm_cplx(l, p->nu, &g, io);
    }
    hdo__arena_rewind(p->work->arena, mark);
}

static size_t batchnorm_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)B;
    size_t n = (size_t)l->n_out * (size_t)l->rows;
    size_t rows =
        l->rows > SHORT ? 0 : 5 * hdo__arena_round(n * sizeof(float)) + 2 * hdo__arena_round(n * sizeof(double));
    size_t spare = 2 * hdo__arena_round((size_t)l->n_out * sizeof(float)); /* sums nobody asks for, if it is frozen */
    return rows + (hdo__frozen(net, l->weight) || hdo__frozen(net, l->bias) ? spare : 0) +
           2 * (size_t)(G > 1 ? G : 1) * hdo__tile_bytes(net, 1, (size_t)l->n_out);
}

static const hdo_layer_ops batchnorm_ops = {.name = "batchnorm",
                                            .inplace = true,
                                            .inplace_bwd = true,
                                            .needs_in = true,
                                            .fuses_relu = true,
                                            .couples = true,
                                            .fwd = batchnorm_fwd,
                                            .bwd = batchnorm_bwd,
                                            .jvp = batchnorm_jvp,
                                            .cplx = batchnorm_cplx,
                                            .work = batchnorm_work};

int hdo__batchnorm_add(hdo_net *net, const char *name, int in) {
    hdo_value v = *hdo__net_value(net, in);
    hdo_layer *l = hdo__net_layer(net, &batchnorm_ops, in, -1, v);
    if (l == NULL) return -1;
    l->n_out = v.C;
    l->rows = (int)(v.n / (size_t)v.C);
    l->eps = 1e-5f;
    l->aux_fixed = 2 * (size_t)v.C;
    hdo_param one = {.role = HDO_ROLE_NORM, .n_dim = 1, .dim = {v.C}, .arg = 1.0}, zero = one;
    zero.arg = 0.0;
    l->weight = hdo__net_param(net, name, "weight", one);
    l->bias = hdo__net_param(net, name, "bias", zero);
    one.role = zero.role = HDO_ROLE_BUFFER;
    l->mean = hdo__net_buffer(net, name, "running_mean", zero);
    l->var = hdo__net_buffer(net, name, "running_var", one);
    return l->weight >= 0 && l->bias >= 0 && l->mean >= 0 && l->var >= 0 ? l->out : -1;
}
