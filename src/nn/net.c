/* SPDX-License-Identifier: Apache-2.0
 *
 * The walks: forward, reverse, forward mode over the layers of a plan; and what layers need on the way (weights or
 * perturbed tiles of them, slices of directions, pieces of a wide pass). The passes over a batch are in passes.c.
 */
#include <string.h>

#include "base/vec.h"
#include "nn/walk.h"

/* ---- tensors of a pass ---- */

enum { TILE = 1 << 16 }; /* floats: 256 KB, half of a second-level cache */

static size_t offset(const hdo_pass *p, int tensor) {
    return p->net->params.row[tensor].off;
}

bool hdo__frozen(const hdo_net *net, int tensor) {
    return tensor < 0 || net->params.row[tensor].frozen;
}

const float *hdo__numbers(const hdo_pass *p, int tensor) {
    if (tensor < 0) return NULL;
    return (p->net->params.row[tensor].frozen ? p->net->base : p->x) + offset(p, tensor);
}

size_t hdo__numbers_len(const hdo_net *net, int tensor) {
    return tensor >= 0 ? net->params.row[tensor].len : 0;
}

float *hdo__gradient(const hdo_pass *p, int tensor) {
    return hdo__frozen(p->net, tensor) ? NULL : p->g + offset(p, tensor);
}

/* In forward mode u holds the tangents. */
static bool perturbed(const hdo_pass *p, int tensor) {
    return p->u != NULL && p->G == 0 && !hdo__frozen(p->net, tensor);
}

/* Numbers [at, at + len) of the tensor. */
static const float *weights_at(const hdo_pass *p, int tensor, size_t at, size_t len) {
    if (!perturbed(p, tensor)) return hdo__numbers(p, tensor) + at;
    float *tile = hdo__arena_floats(p->work->arena, len);
    size_t off = offset(p, tensor) + at;
    hdo__dirs_fill(p->u, p->r, off, len, tile);
    hdo__axpby(len, 1.0f, p->x + off, (float)p->nu, tile); /* x + nu u */
    return tile;
}

static const float *tangent_of(const hdo_pass *p, int r, int tensor, size_t at, size_t len) {
    if (hdo__frozen(p->net, tensor)) return p->net->zero;
    size_t off = offset(p, tensor) + at;
    if (p->du != NULL) return p->du + (size_t)r * p->net->params.total + off;
    float *tile = hdo__arena_floats(p->work->arena, len);
    hdo__dirs_fill(p->u, p->r + r, off, len, tile);
    return tile;
}

const float *hdo__weights(const hdo_pass *p, int tensor) {
    return tensor >= 0 ? weights_at(p, tensor, 0, hdo__numbers_len(p->net, tensor)) : NULL;
}

const float *hdo__tangent(const hdo_pass *p, int r, int tensor) {
    return tensor >= 0 ? tangent_of(p, r, tensor, 0, hdo__numbers_len(p->net, tensor)) : NULL;
}

const hdo_tensor *hdo__factors_at(const hdo_pass *p, int tensor, int *m, int *n) {
    return hdo__frozen(p->net, tensor) ? NULL : hdo__dirs_matrix(p->u, offset(p, tensor), m, n);
}

static int tile_rows(int rows, size_t len) {
    size_t n = TILE / len / 8 * 8;
    if (n < 8) n = 8;
    return n < (size_t)rows ? (int)n : rows;
}

size_t hdo__tile_bytes(const hdo_net *net, int rows, size_t len) {
    if (net->small) return 0;
    return hdo__arena_round((size_t)tile_rows(rows, len) * len * sizeof(float));
}

hdo_tile hdo__weight_tiles(const hdo_pass *p, int tensor, int rows, size_t len) {
    return (hdo_tile){.pass = p,
                      .tensor = tensor,
                      .r = -1,
                      .rows = rows,
                      .most = perturbed(p, tensor) ? tile_rows(rows, len) : rows,
                      .len = len,
                      .mark = hdo__arena_mark(p->work->arena)};
}

hdo_tile hdo__tangent_tiles(const hdo_pass *p, int r, int tensor, int rows, size_t len) {
    hdo_tile t = hdo__weight_tiles(p, tensor, rows, len);
    t.r = r;
    if (hdo__frozen(p->net, tensor)) t.rows = 0; /* no tangent, no turn */
    t.most = p->du != NULL ? rows : tile_rows(rows, len);
    return t;
}

bool hdo__tile_next(hdo_tile *t) {
    const hdo_pass *p = t->pass;
    hdo__arena_rewind(p->work->arena, t->mark);
    t->lo += t->n;
    if (t->lo >= t->rows) return false;
    t->n = t->rows - t->lo < t->most ? t->rows - t->lo : t->most;
    size_t at = (size_t)t->lo * t->len, len = (size_t)t->n * t->len;
    t->w = t->r < 0 ? weights_at(p, t->tensor, at, len) : tangent_of(p, t->r, t->tensor, at, len);
    return true;
}

bool hdo__by_batch(const hdo_layer *l, const hdo_pass *p) {
    return p->s->train && !p->net->buffers.row[l->mean].frozen;
}

const float *hdo__stats(const hdo_pass *p, int buffer) {
    const hdo_param *b = &p->net->buffers.row[buffer];
    return (b->frozen ? p->net->base : p->stats) + b->off;
}

float *hdo__stats_out(const hdo_pass *p, int buffer) {
    return p->stats_out != NULL && !p->net->buffers.row[buffer].frozen ? p->stats_out + p->net->buffers.row[buffer].off
                                                                       : NULL;
}

/* ---- pieces of a wide pass ---- */

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
        size_t n = l->ops->work != NULL ? l->ops->work(l, net, B, G) : 0;
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

/* What layer i keeps for the way back; NULL where nobody will ask. */
static float *kept(const hdo_walk *w, int i) {
    const hdo_layer *l = &w->pass->net->layer[i];
    if (w->fixed == NULL) return NULL;
    if (l->aux_fixed > 0) return w->fixed + w->plan->aoff[i];
    return l->aux > 0 ? w->block + w->plan->aoff[i] * (size_t)w->pass->B : NULL;
}

static hdo_io values_of(const hdo_walk *w, int i) {
    const hdo_layer *l = &w->pass->net->layer[i];
    return (hdo_io){
        .in = value_in(w, l->in), .in2 = value_in(w, l->in2), .out = value_at(w, l->out), .aux = kept(w, i)};
}

void hdo__walk_forward(const hdo_walk *w) {
    for (int i = w->plan->first; i < w->plan->last; i++) {
        const hdo_layer *l = &w->pass->net->layer[i];
        hdo_io io = values_of(w, i);
        l->ops->fwd(l, w->pass, &io);
    }
}

/* Is the layer a product with x itself for all copies, corrected for each? That costs a walk over its results; copy by
 * copy costs perturbed weights instead, which are few in a convolution of small filters over large pictures. */
static bool shares_product(const hdo_layer *l, const hdo_pass *p) {
    int m, n;
    if (l->ops->many == NULL || l->weight < 0) return false;
    if (hdo__frozen(p->net, l->weight)) return true;
    return hdo__numbers_len(p->net, l->weight) >= (size_t)p->B * l->n && hdo__factors_at(p, l->weight, &m, &n) != NULL;
}

/* One layer for all copies: as a product, or copy by copy. */
static void many_layer(const hdo_walk *w, int i) {
    const hdo_pass *p = w->pass;
    const hdo_layer *l = &p->net->layer[i];
    hdo_io io = values_of(w, i);
    io.tin = tangent_in(w, l->in);
    io.tin2 = tangent_in(w, l->in2);
    io.tout = tangent_at(w, l->out);
    if (shares_product(l, p)) {
        l->ops->many(l, p, &io);
        return;
    }
    size_t n_in = (size_t)p->B * p->net->value[l->in].n, n_out = (size_t)p->B * l->n;
    hdo_pass one = *p;
    one.G = 0;
    for (size_t g = 0; g < (size_t)p->G; g++) {
        hdo_io copy = {.in = io.tin != NULL ? io.tin + g * n_in : io.in, .out = io.tout + g * n_out};
        copy.in2 = io.tin2 != NULL ? io.tin2 + g * n_in : io.in2;
        one.r = p->r + (int)g;
        l->ops->fwd(l, &one, &copy);
    }
}

static void walk_many(const hdo_walk *w) {
    const hdo_net *net = w->pass->net;
    hdo_pass still = *w->pass; /* for what no trained number is below of */
    still.G = 0;
    still.u = NULL;
    for (int i = w->plan->first; i < w->plan->last; i++) {
        const hdo_layer *l = &net->layer[i];
        if (net->live[l->out]) {
            many_layer(w, i);
        } else {
            hdo_io io = values_of(w, i);
            l->ops->fwd(l, &still, &io);
        }
    }
}

/* Factors, what they make of the samples, and tiles of what has none. */
size_t hdo__walk_many_bytes(const hdo_net *net, int B) {
    size_t most = 0;
    for (int i = 0; i < net->n_layers; i++) {
        const hdo_layer *l = &net->layer[i];
        if (l->weight < 0) continue;
        size_t own = hdo__numbers_len(net, l->weight) + hdo__numbers_len(net, l->bias);
        if (2 * own + (size_t)B * l->n > most) most = 2 * own + (size_t)B * l->n;
    }
    return hdo__arena_round(most * sizeof(float)) + 8 * HDO_ALIGN;
}

void hdo__walk_tangent(const hdo_walk *w) {
    const hdo_net *net = w->pass->net;
    if (w->pass->many) {
        walk_many(w);
        return;
    }
    for (int i = w->plan->first; i < w->plan->last; i++) {
        const hdo_layer *l = &net->layer[i];
        hdo_io io = values_of(w, i);
        hdo_layer_fn *fn = l->ops->fwd; /* no parameters up to here: no tangent */
        if (net->live[l->out]) {
            fn = w->pass->nu > 0.0 ? l->ops->cplx : l->ops->jvp;
            io.tin = tangent_in(w, l->in);
            io.tin2 = tangent_in(w, l->in2);
            io.tout = tangent_at(w, l->out);
        }
        fn(l, w->pass, &io);
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
        size_t n = (size_t)p->B * net->value[l->in].n;
        float *to = din != NULL && w->plan->second[i] ? w->tmp : din;
        hdo_io io = values_of(w, i);
        io.dout = dout;
        io.din = to;
        l->ops->bwd(l, p, &io);
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
