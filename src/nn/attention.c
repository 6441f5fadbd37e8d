/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal multi-head self-attention: in (T, 3 D) holds query, key and value side by side, out (T, D). The passes are the
 * kernels'; no score matrix is ever stored. Kept for the backward walk: out and the log-sum-exp of every row of scores.
 * Dropout acts on the attention weights; a weight's mask depends on the sample's place in the batch, not on chunks.
 */
#include "kernels/cplx.h"
#include "nn/nn.h"

static hdo_attn shape(const hdo_layer *l, const hdo_pass *p) {
    hdo_attn s = {.B = p->B, .T = l->rows, .heads = l->heads, .hs = l->n_out / l->heads, .b0 = p->lo};
    s.dropout = p->s->train ? l->p : 0.0f;
    s.mask = hdo__mask_stream(p, l);
    return s;
}

static size_t attention_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    hdo_attn s = {.B = B, .T = l->rows, .heads = l->heads, .hs = l->n_out / l->heads, .dropout = l->p};
    size_t real = net->k->attn_work(&s, G > 1 ? G : 1), cplx = G > 0 ? hdo__cplx_attn_work(&s) : 0;
    return real > cplx ? real : cplx;
}

static void attention_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out,
                          float *aux) {
    (void)in2;
    hdo_attn s = shape(l, p);
    p->net->k->attn_fwd(&s, in, out, aux, p->work->arena);
}

static void attention_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                          float *dout, float *din) {
    hdo_attn s = shape(l, p);
    if (din != NULL) p->net->k->attn_bwd(&s, in, out, aux, dout, din, p->work->arena);
}

static void attention_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                          const float *tin2, float *out, float *tout) {
    (void)in2, (void)tin2;
    hdo_attn s = shape(l, p);
    p->net->k->attn_jvp(&s, p->G, in, tin, out, tout, p->work->arena);
}

static void attention_cplx(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                           const float *tin2, float *out, float *tout) {
    (void)in2, (void)tin2;
    hdo_attn s = shape(l, p);
    hdo__cplx_attn(&s, p->nu, p->net->k, in, tin, out, tout, p->work->arena);
}

static const hdo_layer_ops attention_ops = {.name = "attention",
                                            .needs_in = true,
                                            .needs_out = true,
                                            .work = attention_work,
                                            .fwd = attention_fwd,
                                            .bwd = attention_bwd,
                                            .jvp = attention_jvp,
                                            .cplx = attention_cplx};

int hdo__attention_add(hdo_net *net, int in, int heads, double dropout) {
    const hdo_value *v = &net->value[in];
    if (!v->seq || v->W % 3 != 0 || heads < 1 || (v->W / 3) % heads != 0) return -1;
    int T = v->H, D = v->W / 3;
    hdo_value out = {.n = (size_t)T * (size_t)D, .C = 1, .H = T, .W = D, .seq = true};
    int k = hdo__net_layer(net, &attention_ops, in, -1, out);
    if (k < 0) return -1;
    hdo_layer *l = &net->layer[k];
    l->rows = T;
    l->n_out = D;
    l->heads = heads;
    l->p = (float)dropout;
    l->aux = (size_t)heads * (size_t)T;
    return l->out;
}
