/* SPDX-License-Identifier: Apache-2.0
 *
 * The walks: forward, reverse, forward mode over the layers of a plan; and what the families need on the way (weights
 * or perturbed tiles of them, slices of directions, pieces of a wide pass). The passes over a batch are in passes.c.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/vec.h"
#include "nn/walk.h"

hdo_net *hdo__net_create(const hdo_kernels *k, int C, int H, int W, int vocab, int classes) {
    hdo_net *net = hdo__alloc(sizeof *net);
    if (net == NULL) return NULL;
    net->k = k;
    net->v = &hdo__nn_portable;
#ifdef HDO_HAVE_AVX2_BUILD
    if (strcmp(k->name, "ref") != 0 && hdo__simd()->avx2) net->v = &hdo__nn_avx2;
#endif
    net->vocab = vocab;
    net->classes = classes;
    net->value[0] = (hdo_value){.n = (size_t)C * (size_t)H * (size_t)W, .C = C, .H = H, .W = W};
    net->n_values = 1;
    return net;
}

int hdo__net_layer(hdo_net *net, const hdo_layer_ops *ops, int in, int in2, hdo_value out) {
    if (net->n_layers == HDO_LAYERS_MAX) return -1;
    int k = net->n_layers++;
    net->layer[k] = (hdo_layer){
        .ops = ops, .in = in, .in2 = in2, .out = net->n_values, .weight = -1, .bias = -1, .buffer = -1, .number = k};
    net->value[net->n_values++] = out;
    return k;
}

void hdo__net_kink(const hdo_net *net, char text[HDO_KINK_MAX]) {
    const char *behind = NULL; /* the last layer with parameters on the way */
    text[0] = '\0';
    for (int i = 0; i < net->n_layers; i++) {
        const hdo_layer *l = &net->layer[i];
        if (l->weight >= 0) behind = hdo__param(net, l->weight)->name;
        bool relu = l->relu || l->act == HDO_ACT_RELU;
        if (!relu && strcmp(l->ops->name, "maxpool") != 0) continue;
        const char *what = relu ? "ReLU" : "max-pool", *dot = behind != NULL ? strrchr(behind, '.') : NULL;
        if (dot != NULL) {
            snprintf(text, HDO_KINK_MAX, "%s behind %.*s", what, (int)(dot - behind), behind);
        } else {
            snprintf(text, HDO_KINK_MAX, "%s at the input", what);
        }
        return;
    }
}

/* ---- weights, tangents, pieces ---- */

enum { TILE = 1 << 16 }; /* floats: 256 KB, half of a second-level cache */

const float *hdo__pass_weights(const hdo_pass *p, size_t off, size_t len) {
    if (p->u == NULL || p->G > 0) return p->x + off; /* in forward mode u holds the tangents */
    float *tile = hdo__arena_floats(p->work->arena, len);
    hdo__dirs_fill(p->u, p->r, off, len, tile);
    hdo__axpby(len, 1.0f, p->x + off, (float)p->nu, tile); /* x + nu u */
    return tile;
}

const float *hdo__pass_tangent(const hdo_pass *p, int r, size_t off, size_t len) {
    if (p->du != NULL) return p->du + (size_t)r * p->net->params.total + off;
    float *tile = hdo__arena_floats(p->work->arena, len);
    hdo__dirs_fill(p->u, p->r + r, off, len, tile);
    return tile;
}

static int tile_rows(int rows, size_t row_len) {
    size_t n = TILE / row_len / 8 * 8;
    if (n < 8) n = 8;
    return n < (size_t)rows ? (int)n : rows;
}

int hdo__pass_tile(const hdo_pass *p, int rows, size_t row_len, bool tangent) {
    bool written_out = tangent ? p->du != NULL : p->u == NULL || p->G > 0;
    return written_out ? rows : tile_rows(rows, row_len);
}

size_t hdo__tile_bytes(const hdo_net *net, int rows, size_t row_len) {
    if (net->small) return 0;
    return hdo__arena_round((size_t)tile_rows(rows, row_len) * row_len * sizeof(float));
}

int hdo__pieces(const hdo_pass *p, int n) {
    enum { LEAST = 4 }; /* samples of a piece: kernels go another way below */
    int threads = p->wide ? p->work->team->threads : 1;
    return n / LEAST < threads ? (n / LEAST > 1 ? n / LEAST : 1) : threads;
}

typedef struct piece_args {
    int n, pieces;
    hdo_piece fn;
    void *ctx;
} piece_args;

static void run_piece(void *ctx, int task, hdo_work *w) {
    piece_args *v = ctx;
    v->fn(v->ctx, (int)((int64_t)task * v->n / v->pieces), (int)((int64_t)(task + 1) * v->n / v->pieces), w);
}

void hdo__pass_pieces(const hdo_pass *p, int n, int pieces, hdo_piece fn, void *ctx) {
    if (pieces == 1) {
        fn(ctx, 0, n, p->work);
        return;
    }
    piece_args v = {n, pieces, fn, ctx};
    hdo__team_run(p->work->team, pieces, run_piece, &v);
}

/* ---- walks ---- */

size_t hdo__walk_scratch(const hdo_net *net, const hdo_net_plan *plan, int B, int G) {
    size_t most = 0;
    for (int i = plan->first; i < plan->last; i++) {
        const hdo_layer *l = &net->layer[i];
        size_t n = l->ops->work(l, net, B, G);
        if (n > most) most = n;
    }
    return most;
}

static bool is_result(const hdo_walk *w, int v) {
    int last = w->pass->net->layer[w->plan->last - 1].out;
    return w->result != NULL && w->plan->root[v] == w->plan->root[last];
}

/* Where value v (B, n) is: given, or in the block of the plan. */
static float *value_at(const hdo_walk *w, int v) {
    return is_result(w, v) ? w->result : w->block + w->plan->off[w->plan->root[v]] * (size_t)w->pass->B;
}

/* The same for its tangents (G, B, n). */
static float *tangent_at(const hdo_walk *w, int v) {
    size_t copies = (size_t)w->pass->B * (size_t)w->pass->G;
    return is_result(w, v) ? w->t_result : w->t_block + w->plan->off[w->plan->root[v]] * copies;
}

static const float *value_in(const hdo_walk *w, int v) {
    if (v < 0) return NULL;
    return v == w->pass->net->layer[w->plan->first].in ? w->input : value_at(w, v);
}

static const float *tangent_in(const hdo_walk *w, int v) {
    if (v < 0 || !w->pass->net->live[v]) return NULL;
    return v == w->pass->net->layer[w->plan->first].in ? w->t_input : tangent_at(w, v);
}

void hdo__walk_forward(const hdo_walk *w) {
    const hdo_net *net = w->pass->net;
    for (int i = w->plan->first; i < w->plan->last; i++) {
        const hdo_layer *l = &net->layer[i];
        float *aux = NULL;
        if (w->fixed != NULL && l->aux_fixed > 0) aux = w->fixed + w->plan->aoff[i];
        if (w->fixed != NULL && l->aux > 0) aux = w->block + w->plan->aoff[i] * (size_t)w->pass->B;
        l->ops->fwd(l, w->pass, value_in(w, l->in), value_in(w, l->in2), value_at(w, l->out), aux);
    }
}

void hdo__walk_tangent(const hdo_walk *w) {
    const hdo_net *net = w->pass->net;
    for (int i = w->plan->first; i < w->plan->last; i++) {
        const hdo_layer *l = &net->layer[i];
        if (!net->live[l->out]) { /* no parameters up to here: no tangent */
            l->ops->fwd(l, w->pass, value_in(w, l->in), value_in(w, l->in2), value_at(w, l->out), NULL);
            continue;
        }
        hdo_tangent_fn fn = w->pass->nu > 0.0 ? l->ops->cplx : l->ops->jvp;
        fn(l, w->pass, value_in(w, l->in), tangent_in(w, l->in), value_in(w, l->in2), tangent_in(w, l->in2),
           value_at(w, l->out), tangent_at(w, l->out));
    }
}

/* The gradient of value v; the loss has written that of the last one. */
static float *gradient_of(const hdo_walk *w, int v) {
    return w->block + w->plan->goff[w->plan->groot[v]] * (size_t)w->pass->B;
}

float *hdo__walk_dlogits(const hdo_walk *w) {
    return gradient_of(w, w->pass->net->layer[w->plan->last - 1].out);
}

void hdo__walk_reverse(const hdo_walk *w) {
    const hdo_pass *p = w->pass;
    const hdo_net *net = p->net;
    for (int i = w->plan->last - 1; i >= w->plan->first; i--) {
        const hdo_layer *l = &net->layer[i];
        if (!net->live[l->out] || w->plan->groot[l->out] < 0) continue;
        float *dout = gradient_of(w, l->out), *din = net->live[l->in] ? gradient_of(w, l->in) : NULL;
        const float *aux = l->aux_fixed > 0 ? w->fixed + w->plan->aoff[i] : w->block + w->plan->aoff[i] * (size_t)p->B;
        size_t n = (size_t)p->B * net->value[l->in].n;
        float *to = din != NULL && w->plan->second[i] ? w->tmp : din;
        l->ops->bwd(l, p, value_in(w, l->in), value_at(w, l->out), aux, dout, to);
        if (to != din) hdo__axpy(n, 1.0f, to, din);
        if (l->in2 >= 0 && net->live[l->in2]) { /* a sum: its second input gets the same gradient */
            float *din2 = gradient_of(w, l->in2);
            if (w->plan->second2[i]) {
                hdo__axpy(n, 1.0f, dout, din2);
            } else {
                memcpy(din2, dout, n * sizeof(float));
            }
        }
    }
}
