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
#include "nn/layer.h"

static size_t table_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)B;
    (void)G;
    return hdo__tile_bytes(net, 1, hdo__numbers_len(net, l->weight));
}

/* ---- tokens ---- */

static void look_up(const hdo_layer *l, const hdo_pass *p, const float *table, float *out) {
    size_t T = (size_t)l->rows, D = (size_t)l->n_out;
    const int32_t *tok = p->s->tok + (size_t)p->lo * T; /* (B, T) */
    for (size_t i = 0; i < (size_t)p->B * T; i++) memcpy(out + i * D, table + (size_t)tok[i] * D, D * sizeof(float));
}

static void embed_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t mark = hdo__arena_mark(p->work->arena);
    look_up(l, p, hdo__weights(p, l->weight), io->out);
    hdo__arena_rewind(p->work->arena, mark);
}

static void embed_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t T = (size_t)l->rows, D = (size_t)l->n_out;
    const int32_t *tok = p->s->tok + (size_t)p->lo * T;
    float *g = hdo__gradient(p, l->weight); /* (vocab, D) */
    if (g == NULL) return;
    if (!p->add) memset(g, 0, hdo__numbers_len(p->net, l->weight) * sizeof(float));
    for (size_t i = 0; i < (size_t)p->B * T; i++)
        for (size_t j = 0; j < D; j++) g[(size_t)tok[i] * D + j] += io->dout[i * D + j];
}

static void embed_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t n = (size_t)p->B * l->n;
    look_up(l, p, hdo__numbers(p, l->weight), io->out);
    for (int r = 0; r < p->G; r++) {
        size_t mark = hdo__arena_mark(p->work->arena);
        look_up(l, p, hdo__tangent(p, r, l->weight), io->tout + (size_t)r * n);
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

static void position_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t mark = hdo__arena_mark(p->work->arena);
    add_table(p->B, l->n, hdo__weights(p, l->weight), io->in, io->out);
    hdo__arena_rewind(p->work->arena, mark);
}

static void position_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    float *g = hdo__gradient(p, l->weight); /* (T, D) */
    if (!p->add && g != NULL) memset(g, 0, l->n * sizeof(float));
    for (int b = 0; b < p->B && g != NULL; b++) hdo__axpy(l->n, 1.0f, io->dout + (size_t)b * l->n, g);
    if (io->din != NULL && io->din != io->dout) memcpy(io->din, io->dout, (size_t)p->B * l->n * sizeof(float));
}

static void position_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t n = (size_t)p->B * l->n;
    add_table(p->B, l->n, hdo__numbers(p, l->weight), io->in, io->out);
    for (int r = 0; r < p->G; r++) {
        size_t mark = hdo__arena_mark(p->work->arena);
        const float *table = hdo__tangent(p, r, l->weight);
        float *to = io->tout + (size_t)r * n;
        if (io->tin != NULL) add_table(p->B, l->n, table, io->tin + (size_t)r * n, to);
        for (int b = 0; b < p->B && io->tin == NULL; b++) memcpy(to + (size_t)b * l->n, table, l->n * sizeof(float));
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
    hdo_layer *l = hdo__net_layer(net, ops, in, -1, out);
    if (l == NULL) return -1;
    l->rows = T;
    l->n_out = D;
    hdo_param table = {.role = HDO_ROLE_WEIGHT, .n_dim = 2, .dim = {rows, D}, .fill = HDO_FILL_NORMAL, .arg = 1.0};
    table.fan_in = D;
    l->weight = hdo__net_param(net, name, "weight", table);
    return l->weight >= 0 ? l->out : -1;
}

int hdo__embed_add(hdo_net *net, const char *name, int in, int width) {
    int vocab = hdo__net_vocab(net), T = (int)hdo__net_value(net, 0)->n;
    return in == 0 && vocab > 0 ? table_add(net, &embed_ops, name, in, vocab, T, width) : -1;
}

int hdo__position_add(hdo_net *net, const char *name, int in) {
    const hdo_value *v = hdo__net_value(net, in);
    return v->seq ? table_add(net, &position_ops, name, in, v->H, v->H, v->W) : -1;
}
