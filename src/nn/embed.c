/* SPDX-License-Identifier: Apache-2.0
 *
 * Token embedding: out (T, D) = the rows of a (vocab, D) table; and learned positions: out = in + a (T, D) table.
 *
 *   fwd   copy rows; add the table
 *   bwd   add dy to the rows used; sum dy over the samples
 *   jvp   the same as fwd with the tangent of the table; cplx is jvp, for both are sums
 */
#include <string.h>

#include "base/vec.h"
#include "nn/nn.h"

static size_t table_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)B;
    (void)G;
    return hdo__tile_bytes(net, 1, net->params.row[l->weight].len);
}

/* ---- tokens ---- */

static void look_up(const hdo_layer *l, const hdo_pass *p, const float *table, float *out) {
    size_t T = (size_t)l->rows, D = (size_t)l->n_out;
    const int32_t *tok = p->s->tok + (size_t)p->lo * T; /* (B, T) */
    for (size_t i = 0; i < (size_t)p->B * T; i++) memcpy(out + i * D, table + (size_t)tok[i] * D, D * sizeof(float));
}

static void embed_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out,
                      float *aux) {
    (void)in, (void)in2, (void)aux;
    const hdo_param *t = hdo__param(p->net, l->weight);
    size_t mark = hdo__arena_mark(p->work->arena);
    look_up(l, p, hdo__pass_weights(p, t->off, t->len), out);
    hdo__arena_rewind(p->work->arena, mark);
}

static void embed_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                      float *dout, float *din) {
    (void)in, (void)out, (void)aux, (void)din;
    const hdo_param *t = hdo__param(p->net, l->weight);
    size_t T = (size_t)l->rows, D = (size_t)l->n_out;
    const int32_t *tok = p->s->tok + (size_t)p->lo * T;
    float *g = p->g + t->off; /* (vocab, D) */
    if (!p->add) memset(g, 0, t->len * sizeof(float));
    for (size_t i = 0; i < (size_t)p->B * T; i++)
        for (size_t j = 0; j < D; j++) g[(size_t)tok[i] * D + j] += dout[i * D + j];
}

static void embed_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                      const float *tin2, float *out, float *tout) {
    (void)in, (void)tin, (void)in2, (void)tin2;
    const hdo_param *t = hdo__param(p->net, l->weight);
    size_t n = (size_t)p->B * (size_t)l->rows * (size_t)l->n_out;
    look_up(l, p, p->x + t->off, out);
    for (int r = 0; r < p->G; r++) {
        size_t mark = hdo__arena_mark(p->work->arena);
        look_up(l, p, hdo__pass_tangent(p, r, t->off, t->len), tout + (size_t)r * n);
        hdo__arena_rewind(p->work->arena, mark);
    }
}

static const hdo_layer_ops embed_ops = {
    .name = "embed", .work = table_work, .fwd = embed_fwd, .bwd = embed_bwd, .jvp = embed_jvp, .cplx = embed_jvp};

/* ---- positions ---- */

static void add_table(int B, size_t n, const float *table, const float *in, float *out) {
    for (int b = 0; b < B; b++)
        for (size_t i = 0; i < n; i++) out[(size_t)b * n + i] = in[(size_t)b * n + i] + table[i];
}

static void position_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out,
                         float *aux) {
    (void)in2, (void)aux;
    const hdo_param *t = hdo__param(p->net, l->weight);
    size_t mark = hdo__arena_mark(p->work->arena);
    add_table(p->B, t->len, hdo__pass_weights(p, t->off, t->len), in, out);
    hdo__arena_rewind(p->work->arena, mark);
}

static void position_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                         float *dout, float *din) {
    (void)in, (void)out, (void)aux;
    const hdo_param *t = hdo__param(p->net, l->weight);
    float *g = p->g + t->off; /* (T, D) */
    if (!p->add) memset(g, 0, t->len * sizeof(float));
    for (int b = 0; b < p->B; b++) hdo__axpy(t->len, 1.0f, dout + (size_t)b * t->len, g);
    if (din != NULL && din != dout) memcpy(din, dout, (size_t)p->B * t->len * sizeof(float));
}

static void position_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                         const float *tin2, float *out, float *tout) {
    (void)in2, (void)tin2;
    const hdo_param *t = hdo__param(p->net, l->weight);
    size_t n = (size_t)p->B * t->len;
    add_table(p->B, t->len, p->x + t->off, in, out);
    for (int r = 0; r < p->G; r++) {
        size_t mark = hdo__arena_mark(p->work->arena);
        add_table(p->B, t->len, hdo__pass_tangent(p, r, t->off, t->len), tin + (size_t)r * n, tout + (size_t)r * n);
        hdo__arena_rewind(p->work->arena, mark);
    }
}

static const hdo_layer_ops position_ops = {.name = "position",
                                           .inplace = true,
                                           .inplace_bwd = true,
                                           .work = table_work,
                                           .fwd = position_fwd,
                                           .bwd = position_bwd,
                                           .jvp = position_jvp,
                                           .cplx = position_jvp};

/* ---- constructors; PyTorch's nn.Embedding starts from N(0, 1) ---- */

static int table_add(hdo_net *net, const hdo_layer_ops *ops, const char *name, int in, int rows, int T, int D) {
    hdo_value out = {.n = (size_t)T * (size_t)D, .C = 1, .H = T, .W = D, .seq = true};
    int k = hdo__net_layer(net, ops, in, -1, out);
    if (k < 0) return -1;
    hdo_layer *l = &net->layer[k];
    l->rows = T;
    l->n_out = D;
    l->weight = hdo__layout_add(&net->params, name, "weight", HDO_ROLE_WEIGHT, 2, (int[4]){rows, D});
    if (l->weight < 0) return -1;
    net->params.row[l->weight].fill = HDO_FILL_NORMAL;
    net->params.row[l->weight].arg = 1.0;
    net->params.row[l->weight].fan_in = D;
    return l->out;
}

int hdo__embed_add(hdo_net *net, const char *name, int in, int width) {
    if (in != 0 || net->vocab < 1) return -1;
    return table_add(net, &embed_ops, name, in, net->vocab, (int)net->value[0].n, width);
}

int hdo__position_add(hdo_net *net, const char *name, int in) {
    const hdo_value *v = &net->value[in];
    return v->seq ? table_add(net, &position_ops, name, in, v->H, v->H, v->W) : -1;
}
