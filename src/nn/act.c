/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations: ReLU, GELU (exact, with erf) and sigmoid; and the residual sum, which is as element-wise. All work in
 * place. A ReLU right behind a linear layer, a convolution, a batch-norm, a sum or a max-pool is fused into it
 * (hdo__act_add), so that it costs no extra pass over memory.
 *
 *   fwd   y = f(x)
 *   bwd   dx = f'(x) dy     ReLU and sigmoid know f' from y, GELU needs x
 *   jvp   ty = f'(x) tx
 *   cplx  f at a complex point (kernels/cplx.h); a ReLU goes by the sign of the real part, which is its jvp
 */
#include <math.h>
#include <string.h>

#include "base/explog.h"
#include "kernels/cplx.h"
#include "nn/layer.h"

static size_t act_n(const hdo_layer *l, const hdo_pass *p) {
    return (size_t)p->B * l->n;
}

static void sigmoid(size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; i++) y[i] = (float)(1.0 / (1.0 + hdo__exp(-(double)x[i])));
}

/* ---- ReLU and sigmoid ---- */

static void act_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t n = act_n(l, p);
    const float *in = io->in;
    float *out = io->out;
    if (l->act == HDO_ACT_SIGMOID) {
        sigmoid(n, in, out);
    } else {
        for (size_t i = 0; i < n; i++) out[i] = in[i] < 0 ? 0 : in[i];
    }
}

static void act_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t n = act_n(l, p);
    const float *out = io->out, *dout = io->dout;
    float *din = io->din;
    if (din == NULL) return;
    if (l->act == HDO_ACT_SIGMOID) {
        for (size_t i = 0; i < n; i++) din[i] = dout[i] * out[i] * (1 - out[i]);
    } else {
        for (size_t i = 0; i < n; i++) din[i] = out[i] > 0 ? dout[i] : 0;
    }
}

static void act_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t n = act_n(l, p);
    const float *out = io->out;
    act_fwd(l, p, io);
    for (int r = 0; r < p->G; r++) {
        const float *t = io->tin + (size_t)r * n;
        float *y = io->tout + (size_t)r * n;
        if (l->act == HDO_ACT_SIGMOID) {
            for (size_t i = 0; i < n; i++) y[i] = t[i] * out[i] * (1 - out[i]);
        } else {
            for (size_t i = 0; i < n; i++) y[i] = out[i] > 0 ? t[i] : 0;
        }
    }
}

static void act_cplx(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    if (l->act == HDO_ACT_SIGMOID) {
        hdo__cplx_sigmoid(act_n(l, p), p->nu, io->in, io->tin, io->out, io->tout);
    } else {
        act_jvp(l, p, io);
    }
}

static const hdo_layer_ops act_ops = {.name = "activation",
                                      .inplace = true,
                                      .inplace_bwd = true,
                                      .needs_out = true,
                                      .fwd = act_fwd,
                                      .bwd = act_bwd,
                                      .jvp = act_jvp,
                                      .cplx = act_cplx};

/* ---- GELU ---- */

static void gelu_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    p->k->gelu(act_n(l, p), io->in, io->out, NULL);
}

/* The kernel gives value and derivative together; the value is not wanted again. */
static void gelu_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    if (io->din == NULL) return;
    size_t n = act_n(l, p), mark = hdo__arena_mark(p->work->arena);
    float *y = hdo__arena_floats(p->work->arena, n), *slope = hdo__arena_floats(p->work->arena, n);
    p->k->gelu(n, io->in, y, slope);
    p->v->mul(n, io->dout, slope, io->din);
    hdo__arena_rewind(p->work->arena, mark);
}

static void gelu_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t n = act_n(l, p), mark = hdo__arena_mark(p->work->arena);
    float *slope = hdo__arena_floats(p->work->arena, n);
    p->k->gelu(n, io->in, io->out, slope);
    for (int r = 0; r < p->G; r++) p->v->mul(n, io->tin + (size_t)r * n, slope, io->tout + (size_t)r * n);
    hdo__arena_rewind(p->work->arena, mark);
}

static void gelu_cplx(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    hdo__cplx_gelu(act_n(l, p), p->nu, io->in, io->tin, io->out, io->tout);
}

static size_t gelu_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)net, (void)G;
    return 2 * hdo__arena_round((size_t)B * l->n * sizeof(float));
}

static const hdo_layer_ops gelu_ops = {.name = "gelu",
                                       .inplace = true,
                                       .inplace_bwd = true,
                                       .needs_in = true,
                                       .work = gelu_work,
                                       .fwd = gelu_fwd,
                                       .bwd = gelu_bwd,
                                       .jvp = gelu_jvp,
                                       .cplx = gelu_cplx};

/* ---- residual sum: y = a + b, ReLU fused when asked ---- */

static void add_fwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    p->v->add(act_n(l, p), io->in, io->in2, l->relu, io->out);
}

/* Only the mask: the engine hands the masked dout to both inputs. */
static void add_bwd(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t n = act_n(l, p);
    if (l->relu) p->v->relu_mask(n, io->out, io->dout);
    if (io->din != NULL && io->din != io->dout) memcpy(io->din, io->dout, n * sizeof(float));
}

static void add_jvp(const hdo_layer *l, const hdo_pass *p, const hdo_io *io) {
    size_t n = act_n(l, p);
    const float *tin = io->tin, *tin2 = io->tin2;
    add_fwd(l, p, io);
    for (int r = 0; r < p->G; r++) {
        float *y = io->tout + (size_t)r * n;
        const float *a = tin != NULL ? tin + (size_t)r * n : NULL, *b = tin2 != NULL ? tin2 + (size_t)r * n : NULL;
        if (a != NULL && b != NULL) {
            p->v->add(n, a, b, false, y);
        } else if (y != (a != NULL ? a : b)) {
            memcpy(y, a != NULL ? a : b, n * sizeof(float));
        }
        if (l->relu) p->v->relu_mask(n, io->out, y);
    }
}

static const hdo_layer_ops add_ops = {.name = "add",
                                      .inplace = true,
                                      .inplace_bwd = true,
                                      .fuses_relu = true,
                                      .fwd = add_fwd,
                                      .bwd = add_bwd,
                                      .jvp = add_jvp,
                                      .cplx = add_jvp};

/* ---- constructors ---- */

int hdo__act_add(hdo_net *net, int in, int act) {
    if (act == HDO_ACT_RELU && hdo__net_fuse_relu(net, in)) return in;
    hdo_layer *l = hdo__net_layer(net, act == HDO_ACT_GELU ? &gelu_ops : &act_ops, in, -1, *hdo__net_value(net, in));
    if (l == NULL) return -1;
    l->act = act;
    return l->out;
}

int hdo__residual_add(hdo_net *net, int in, int in2) {
    const hdo_value *v = hdo__net_value(net, in);
    if (v->n != hdo__net_value(net, in2)->n) return -1;
    hdo_layer *l = hdo__net_layer(net, &add_ops, in, in2, *v);
    return l != NULL ? l->out : -1;
}
