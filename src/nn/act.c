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
#include "nn/nn.h"

static size_t act_n(const hdo_layer *l, const hdo_pass *p) {
    return (size_t)p->B * p->net->value[l->out].n;
}

static void sigmoid(size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; i++) y[i] = (float)(1.0 / (1.0 + hdo__exp(-(double)x[i])));
}

static size_t act_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)G;
    if (l->act != HDO_ACT_GELU) return 0;
    return 2 * hdo__arena_round((size_t)B * net->value[l->out].n * sizeof(float));
}

/* ---- ReLU and sigmoid ---- */

static void act_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out, float *aux) {
    (void)in2;
    (void)aux;
    size_t n = act_n(l, p);
    if (l->act == HDO_ACT_SIGMOID) {
        sigmoid(n, in, out);
    } else {
        for (size_t i = 0; i < n; i++) out[i] = in[i] < 0 ? 0 : in[i];
    }
}

static void act_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                    float *dout, float *din) {
    (void)in;
    (void)aux;
    size_t n = act_n(l, p);
    if (din == NULL) return;
    if (l->act == HDO_ACT_SIGMOID) {
        for (size_t i = 0; i < n; i++) din[i] = dout[i] * out[i] * (1 - out[i]);
    } else {
        for (size_t i = 0; i < n; i++) din[i] = out[i] > 0 ? dout[i] : 0;
    }
}

static void act_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                    const float *tin2, float *out, float *tout) {
    (void)in2;
    (void)tin2;
    size_t n = act_n(l, p);
    act_fwd(l, p, in, NULL, out, NULL);
    for (int r = 0; r < p->G; r++) {
        const float *t = tin + (size_t)r * n;
        float *y = tout + (size_t)r * n;
        if (l->act == HDO_ACT_SIGMOID) {
            for (size_t i = 0; i < n; i++) y[i] = t[i] * out[i] * (1 - out[i]);
        } else {
            for (size_t i = 0; i < n; i++) y[i] = out[i] > 0 ? t[i] : 0;
        }
    }
}

static void act_cplx(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                     const float *tin2, float *out, float *tout) {
    if (l->act == HDO_ACT_SIGMOID) {
        hdo__cplx_sigmoid(act_n(l, p), p->nu, in, tin, out, tout);
    } else {
        act_jvp(l, p, in, tin, in2, tin2, out, tout);
    }
}

static const hdo_layer_ops act_ops = {.name = "activation",
                                      .inplace = true,
                                      .inplace_bwd = true,
                                      .needs_out = true,
                                      .work = act_work,
                                      .fwd = act_fwd,
                                      .bwd = act_bwd,
                                      .jvp = act_jvp,
                                      .cplx = act_cplx};

/* ---- GELU ---- */

static void gelu_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out, float *aux) {
    (void)in2;
    (void)aux;
    p->net->k->gelu(act_n(l, p), in, out, NULL);
}

/* The kernel gives value and derivative together; the value is not wanted again. */
static void gelu_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                     float *dout, float *din) {
    (void)out;
    (void)aux;
    if (din == NULL) return;
    size_t n = act_n(l, p), mark = hdo__arena_mark(p->work->arena);
    float *y = hdo__arena_floats(p->work->arena, n), *slope = hdo__arena_floats(p->work->arena, n);
    p->net->k->gelu(n, in, y, slope);
    p->net->v->mul(n, dout, slope, din);
    hdo__arena_rewind(p->work->arena, mark);
}

static void gelu_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                     const float *tin2, float *out, float *tout) {
    (void)in2;
    (void)tin2;
    size_t n = act_n(l, p), mark = hdo__arena_mark(p->work->arena);
    float *slope = hdo__arena_floats(p->work->arena, n);
    p->net->k->gelu(n, in, out, slope);
    for (int r = 0; r < p->G; r++) p->net->v->mul(n, tin + (size_t)r * n, slope, tout + (size_t)r * n);
    hdo__arena_rewind(p->work->arena, mark);
}

static void gelu_cplx(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                      const float *tin2, float *out, float *tout) {
    (void)in2, (void)tin2;
    hdo__cplx_gelu(act_n(l, p), p->nu, in, tin, out, tout);
}

static const hdo_layer_ops gelu_ops = {.name = "gelu",
                                       .inplace = true,
                                       .inplace_bwd = true,
                                       .needs_in = true,
                                       .work = act_work,
                                       .fwd = gelu_fwd,
                                       .bwd = gelu_bwd,
                                       .jvp = gelu_jvp,
                                       .cplx = gelu_cplx};

/* ---- residual sum: y = a + b, ReLU fused when asked ---- */

static size_t add_work(const hdo_layer *l, const hdo_net *net, int B, int G) {
    (void)l;
    (void)net;
    (void)B;
    (void)G;
    return 0;
}

static void add_fwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out, float *aux) {
    (void)aux;
    p->net->v->add(act_n(l, p), in, in2, l->relu, out);
}

/* Only the mask: the engine hands the masked dout to both inputs. */
static void add_bwd(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux,
                    float *dout, float *din) {
    (void)in;
    (void)aux;
    size_t n = act_n(l, p);
    if (l->relu) p->net->v->relu_mask(n, out, dout);
    if (din != NULL && din != dout) memcpy(din, dout, n * sizeof(float));
}

static void add_jvp(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin, const float *in2,
                    const float *tin2, float *out, float *tout) {
    size_t n = act_n(l, p);
    add_fwd(l, p, in, in2, out, NULL);
    for (int r = 0; r < p->G; r++) {
        float *y = tout + (size_t)r * n;
        const float *a = tin != NULL ? tin + (size_t)r * n : NULL, *b = tin2 != NULL ? tin2 + (size_t)r * n : NULL;
        if (a != NULL && b != NULL) {
            p->net->v->add(n, a, b, false, y);
        } else if (y != (a != NULL ? a : b)) {
            memcpy(y, a != NULL ? a : b, n * sizeof(float));
        }
        if (l->relu) p->net->v->relu_mask(n, out, y);
    }
}

static const hdo_layer_ops add_ops = {.name = "add",
                                      .inplace = true,
                                      .inplace_bwd = true,
                                      .work = add_work,
                                      .fwd = add_fwd,
                                      .bwd = add_bwd,
                                      .jvp = add_jvp,
                                      .cplx = add_jvp};

/* ---- constructors ---- */

/* Who reads value v so far: a ReLU may only be fused into the producer of a value nobody else has seen. */
static bool seen(const hdo_net *net, int v) {
    for (int i = 0; i < net->n_layers; i++)
        if (net->layer[i].in == v || net->layer[i].in2 == v) return true;
    return false;
}

int hdo__act_add(hdo_net *net, int in, int act) {
    if (act == HDO_ACT_RELU && net->n_layers > 0) {
        hdo_layer *l = &net->layer[net->n_layers - 1];
        const char *name = l->ops->name;
        bool fuses = strcmp(name, "linear") == 0 || strcmp(name, "conv") == 0 || strcmp(name, "batchnorm") == 0 ||
                     strcmp(name, "add") == 0 || strcmp(name, "maxpool") == 0;
        if (fuses && l->out == in && !l->relu && !net->pinned[in] && !seen(net, in)) {
            l->relu = true;
            return in;
        }
    }
    int k = hdo__net_layer(net, act == HDO_ACT_GELU ? &gelu_ops : &act_ops, in, -1, net->value[in]);
    if (k < 0) return -1;
    net->layer[k].act = act;
    return net->layer[k].out;
}

int hdo__residual_add(hdo_net *net, int in, int in2) {
    if (net->value[in].n != net->value[in2].n) return -1;
    int k = hdo__net_layer(net, &add_ops, in, in2, net->value[in]);
    return k < 0 ? -1 : net->layer[k].out;
}
