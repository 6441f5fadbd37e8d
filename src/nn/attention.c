/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal multi-head self-attention. A sample is T positions; in holds query, key and value side by side, D numbers
 * each; head h owns D/heads of them. For every head and position i,
 *
 *   fwd   s_ij = <q_i, k_j> / sqrt(D/heads) for j <= i,  a_i = softmax(s_i),  out_i = sum_j a_ij v_j
 *   bwd   dv_j = sum_i a_ij dout_i,  da_ij = <dout_i, v_j>,  ds_ij = a_ij (da_ij - sum_k a_ik da_ik),
 *         dq_i = sum_j ds_ij k_j / sqrt(D/heads),  dk_j = sum_i ds_ij q_i / sqrt(D/heads)
 *   jvp   ts_ij from tq, tk,  ta_ij = a_ij (ts_ij - sum_k a_ik ts_ik),  tout_i = sum_j ta_ij v_j + a_ij tv_j
 *   cplx  fwd with complex numbers
 *
 *   in, din (B, T, 3 D)    out, dout (B, T, D)    tin_r (B, T, 3 D)    tout_r (B, T, D)
 *
 * The loops are the kernels' (kernels/k_ref_attn.c in plain C, simd_attn.c); no score matrix is ever stored. Kept for
 * the backward walk: out and, in aux (B, heads, T), log sum_j exp(s_ij). Dropout acts on a_ij; its mask depends on the
 * sample's place in the batch, not on chunks. There are no parameters.
 */
#include "kernels/cplx.h"
#include "nn/layer.h"

static hdo_attn shape(const hdo_layer *l, const hdo_pass *p) {
    hdo_attn s = {.B = p->B, .T = l->rows, .heads = l->heads, .hs = l->n_out / l->heads, .b0 = p->lo};
    s.dropout = p->s->train ? l->p : 0.0f;
    s.mask = hdo__mask_stream(p, l);
    return s;
}

static void attention_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    hdo_attn s = shape(l, p);
    p->k->attn_fwd(&s, io->in, io->out, io->aux, p->work->arena);
}

static void attention_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    hdo_attn s = shape(l, p);
    if (io->din != NULL) p->k->attn_bwd(&s, io->in, io->out, io->aux, io->dout, io->din, p->work->arena);
}

static void attention_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    hdo_attn s = shape(l, p);
    p->k->attn_jvp(&s, p->G, io->in, io->tin, io->out, io->tout, p->work->arena);
}

static void attention_cplx(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    hdo_attn s = shape(l, p);
    hdo__cplx_attn(&s, p->nu, p->k, io->in, io->tin, io->out, io->tout, p->work->arena);
}

static size_t attention_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    hdo_attn s = {.B = B, .T = l->rows, .heads = l->heads, .hs = l->n_out / l->heads, .dropout = l->p};
    size_t real = hdo__net_kernels(net)->attn_work(&s, G > 1 ? G : 1), cplx = G > 0 ? hdo__cplx_attn_work(&s) : 0;
    return real > cplx ? real : cplx;
}

static const hdo_layer_ops attention_ops = {.name = "attention",
                                            .needs_in = true,
                                            .needs_out = true,
                                            .fwd = attention_fwd,
                                            .bwd = attention_bwd,
                                            .jvp = attention_jvp,
                                            .cplx = attention_cplx,
                                            .work = attention_work};

int hdo__attention_add(hdo_net *net, int in, int heads, double dropout) {
    const hdo_value *v = hdo__net_value(net, in);
    if (!v->seq || v->W % 3 != 0 || heads < 1 || (v->W / 3) % heads != 0) return -1;
    int T = v->H, D = v->W / 3;
    hdo_value out = {.n = (size_t)T * (size_t)D, .C = 1, .H = T, .W = D, .seq = true};
    hdo_layer *l = hdo__net_layer(net, &attention_ops, in, -1, out);
    if (l == NULL) return -1;
    l->rows = T;
    l->n_out = D;
    l->heads = heads;
    l->p = (float)dropout;
    l->aux = (size_t)heads * (size_t)T;
    return l->out;
}
