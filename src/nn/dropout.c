/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout with an addressed mask: number j of sample b of the batch is kept, and scaled by 1 / (1 - p), iff the 16-bit
 * number b n + j of the layer's stream (two to a 32-bit word, low half first) is at least floor(p 65536). Nothing is
 * stored: every pass over the same batch makes the same mask again. The layer is linear, so all passes are one
 * function.
 */
#include <string.h>

#include "nn/layer.h"

enum { RUN = 1024 }; /* numbers of a run: their words stay in the first-level cache */

/* Streams are addressed by (seed, node, step) of the batch and the layer's number. */
hdo_stream hdo__mask_stream(const hdo_pass *p, const hdo_layer *l) {
    return hdo__stream(p->mask_seed, HDO_RNG_DROPOUT, p->s->node, p->s->step, (uint32_t)l->number);
}

/* copies: in and out hold that many arrays (B, n) under one mask. */
static void apply(const hdo_layer *l, const hdo_pass *p, int copies, const float *in, float *out) {
    size_t n = l->n, total = (size_t)p->B * n, first = (size_t)p->lo * n;
    if (!p->s->train || !(l->p > 0.0f)) {
        if (in != out) memcpy(out, in, (size_t)copies * total * sizeof(float));
        return;
    }
    hdo_stream s = hdo__mask_stream(p, l);
    uint32_t limit = (uint32_t)((double)l->p * 65536.0), word[RUN / 2 + 1];
    float up = 1.0f / (1.0f - l->p), both[RUN + 2];
    for (size_t i = 0; i < total; i += RUN) {
        size_t m = total - i < RUN ? total - i : RUN;
        uint64_t at = (uint64_t)(first + i), w0 = at / 2;
        size_t words = (size_t)((at + m - 1) / 2 - w0 + 1);
        hdo__rng_bits(s, w0, words, word);
        p->v->keep(words, word, limit, up, both);
        const float *keep = both + (at & 1);
        for (int c = 0; c < copies; c++) {
            size_t k = (size_t)c * total + i;
            p->v->mul(m, in + k, keep, out + k);
        }
    }
}

static void dropout_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    apply(l, p, 1, io->in, io->out);
}

static void dropout_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    if (io->din != NULL) apply(l, p, 1, io->dout, io->din);
}

static void dropout_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    apply(l, p, 1, io->in, io->out);
    apply(l, p, p->G, io->tin, io->tout);
}

static const hdo_layer_ops dropout_ops = {.name = "dropout",
                                          .inplace = true,
                                          .inplace_bwd = true,
                                          .fwd = dropout_fwd,
                                          .bwd = dropout_bwd,
                                          .jvp = dropout_jvp,
                                          .cplx = dropout_jvp};

int hdo__dropout_add(hdo_net *net, int in, double p) {
    if (!(p > 0.0)) return in;
    if (p >= 1.0) return -1;
    hdo_layer *l = hdo__net_layer(net, &dropout_ops, in, -1, *hdo__net_value(net, in));
    if (l == NULL) return -1;
    l->p = (float)p;
    return l->out;
}
