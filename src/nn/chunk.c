/* SPDX-License-Identifier: Apache-2.0
 *
 * One chunk of samples through the network: logits, their tangents, their loss. The front of the network runs a few
 * samples at a time into an edge array, the tail takes the whole chunk (plan.c). Beside every function that takes
 * memory stands the one that says how much.
 */
#include <string.h>

#include "nn/walk.h"

static size_t floats(size_t n) {
    return hdo__arena_round(n * sizeof(float));
}

static const float *samples_at(const hdo_pass *p, int lo) {
    return p->s->in != NULL ? p->s->in + (size_t)lo * p->net->value[0].n : NULL;
}

/* A value of n floats and its G tangents. */
static size_t both(size_t n, size_t G) {
    return floats(n) + floats(n * G);
}

/* ---- one walk over samples lo .. lo + n - 1, with tangents if the pass has any ---- */

static size_t chunk_bytes(const hdo_net *net, int n, int sub, int G) {
    size_t g = (size_t)G;
    if (net->cut == 0 || sub >= n) return both(net->all.total * (size_t)n, g) + hdo__walk_scratch(net, &net->all, n, G);
    size_t width = net->value[net->layer[net->cut].in].n;
    size_t front = floats(width * (size_t)sub * g) + both(net->front.total * (size_t)sub, g) +
                   hdo__walk_scratch(net, &net->front, sub, G);
    size_t tail = both(net->tail.total * (size_t)n, g) + hdo__walk_scratch(net, &net->tail, n, G);
    return both(width * (size_t)n, g) + (front > tail ? front : tail);
}

static void give_blocks(hdo_walk *w, const hdo_net_plan *plan, int n) {
    hdo_arena *a = w->pass->work->arena;
    size_t len = plan->total * (size_t)n;
    w->plan = plan;
    w->block = hdo__arena_floats(a, len);
    if (w->pass->G > 0) w->t_block = hdo__arena_floats(a, len * (size_t)w->pass->G);
}

static void walk(hdo_walk *w, hdo_pass *p, int lo, int n) {
    p->lo = lo;
    p->B = n;
    if (p->G > 0) {
        hdo__walk_tangent(w);
    } else {
        hdo__walk_forward(w);
    }
}

/* z (n, classes), and tz (G, n, classes) if G > 0. */
static void chunk_walk(hdo_pass *p, int lo, int n, int sub, float *z, float *tz) {
    const hdo_net *net = p->net;
    hdo_arena *a = p->work->arena;
    size_t mark = hdo__arena_mark(a), G = (size_t)p->G;
    hdo_walk w = {.pass = p, .input = samples_at(p, lo), .result = z, .t_result = tz};
    if (net->cut == 0 || sub >= n) {
        give_blocks(&w, &net->all, n);
        walk(&w, p, lo, n);
        hdo__arena_rewind(a, mark);
        return;
    }
    size_t width = net->value[net->layer[net->cut].in].n;
    float *edge = hdo__arena_floats(a, width * (size_t)n); /* (n, width): what the front hands to the tail */
    float *t_edge = G > 0 ? hdo__arena_floats(a, width * (size_t)n * G) : NULL; /* (G, n, width) */
    size_t inner = hdo__arena_mark(a);
    give_blocks(&w, &net->front, sub);
    if (G > 0) w.t_result = hdo__arena_floats(a, width * (size_t)sub * G);
    for (int i = 0; i < n; i += sub) {
        w.input = samples_at(p, lo + i);
        w.result = edge + (size_t)i * width;
        walk(&w, p, lo + i, n - i < sub ? n - i : sub);
        size_t run = (size_t)p->B * width;
        for (size_t r = 0; r < G; r++)
            memcpy(t_edge + (r * (size_t)n + (size_t)i) * width, w.t_result + r * run, run * sizeof(float));
    }
    hdo__arena_rewind(a, inner);
    w = (hdo_walk){.pass = p, .input = edge, .t_input = t_edge, .result = z, .t_result = tz};
    give_blocks(&w, &net->tail, n);
    walk(&w, p, lo, n);
    hdo__arena_rewind(a, mark);
}

size_t hdo__chunk_logits_bytes(const hdo_net *net, int n, int sub) {
    return chunk_bytes(net, n, sub, 0);
}

void hdo__chunk_logits(hdo_pass *p, int lo, int n, int sub, float *logits) {
    chunk_walk(p, lo, n, sub, logits, NULL);
}

size_t hdo__chunk_tangent_bytes(const hdo_net *net, int n, int sub, int G) {
    size_t z = (size_t)n * (size_t)net->classes, written = net->small ? floats((size_t)G * net->params.total) : 0;
    return both(z, (size_t)G) + written + chunk_bytes(net, n, sub, G);
}

void hdo__chunk_tangent(hdo_pass *p, int lo, int n, int sub, float *z, float *tz) {
    chunk_walk(p, lo, n, sub, z, tz);
}

/* Sum of the losses over chunks lo .. size, in order; (chunk) logits at a time. */
size_t hdo__chunk_loss_bytes(const hdo_net *net, int chunk, int sub) {
    return floats((size_t)chunk * (size_t)net->classes) + hdo__chunk_logits_bytes(net, chunk, sub);
}

double hdo__chunk_loss(hdo_pass *p, int lo, int n, int sub, int64_t *correct) {
    size_t mark = hdo__arena_mark(p->work->arena);
    float *z = hdo__arena_floats(p->work->arena, (size_t)n * (size_t)p->net->classes);
    hdo__chunk_logits(p, lo, n, sub, z);
    double sum = hdo__xent_loss(n, p->net->classes, z, p->s->label + lo, correct);
    hdo__arena_rewind(p->work->arena, mark);
    return sum;
}
