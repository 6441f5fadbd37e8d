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

/* ---- forward over samples lo .. lo + n - 1 into logits (n, classes) ---- */

size_t hdo__chunk_logits_bytes(const hdo_net *net, int n, int sub) {
    if (net->cut == 0 || sub >= n) return floats(net->all.total * (size_t)n) + hdo__walk_scratch(net, &net->all, n, 0);
    size_t front = floats(net->front.total * (size_t)sub) + hdo__walk_scratch(net, &net->front, sub, 0);
    size_t tail = floats(net->tail.total * (size_t)n) + hdo__walk_scratch(net, &net->tail, n, 0);
    return floats(net->value[net->layer[net->cut].in].n * (size_t)n) + (front > tail ? front : tail);
}

void hdo__chunk_logits(hdo_pass *p, int lo, int n, int sub, float *logits) {
    const hdo_net *net = p->net;
    hdo_arena *a = p->work->arena;
    size_t mark = hdo__arena_mark(a);
    hdo_walk w = {.pass = p, .result = logits};
    if (net->cut == 0 || sub >= n) {
        p->lo = lo;
        p->B = n;
        w.plan = &net->all;
        w.block = hdo__arena_floats(a, net->all.total * (size_t)n);
        w.input = samples_at(p, lo);
        hdo__walk_forward(&w);
        hdo__arena_rewind(a, mark);
        return;
    }
    size_t width = net->value[net->layer[net->cut].in].n;
    float *edge = hdo__arena_floats(a, width * (size_t)n); /* (n, width): what the front hands to the tail */
    size_t inner = hdo__arena_mark(a);
    w.plan = &net->front;
    w.block = hdo__arena_floats(a, net->front.total * (size_t)sub);
    for (int i = 0; i < n; i += sub) {
        p->lo = lo + i;
        p->B = n - i < sub ? n - i : sub;
        w.input = samples_at(p, p->lo);
        w.result = edge + (size_t)i * width;
        hdo__walk_forward(&w);
    }
    hdo__arena_rewind(a, inner);
    p->lo = lo;
    p->B = n;
    w = (hdo_walk){.pass = p, .plan = &net->tail, .input = edge, .result = logits};
    w.block = hdo__arena_floats(a, net->tail.total * (size_t)n);
    hdo__walk_forward(&w);
    hdo__arena_rewind(a, mark);
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

/* A value of n floats and its G tangents. */
static size_t both(size_t n, size_t G) {
    return floats(n) + floats(n * G);
}

size_t hdo__chunk_tangent_bytes(const hdo_net *net, int n, int sub, int G) {
    size_t g = (size_t)G, z = (size_t)n * (size_t)net->classes;
    size_t written = net->small ? floats((size_t)G * net->params.total) : 0;
    if (net->cut == 0 || sub >= n)
        return both(z, g) + written + both(net->all.total * (size_t)n, g) + hdo__walk_scratch(net, &net->all, n, G);
    size_t width = net->value[net->layer[net->cut].in].n;
    size_t front = floats(width * (size_t)sub * g) + both(net->front.total * (size_t)sub, g) +
                   hdo__walk_scratch(net, &net->front, sub, G);
    size_t tail = both(net->tail.total * (size_t)n, g) + hdo__walk_scratch(net, &net->tail, n, G);
    return both(z, g) + written + both(width * (size_t)n, g) + (front > tail ? front : tail);
}

/* Logits z (n, classes) and their tangents tz (G, n, classes). */
void hdo__chunk_tangent(hdo_pass *p, int lo, int n, int sub, float *z, float *tz) {
    const hdo_net *net = p->net;
    hdo_arena *a = p->work->arena;
    size_t mark = hdo__arena_mark(a), G = (size_t)p->G;
    hdo_walk w = {.pass = p, .result = z, .t_result = tz};
    if (net->cut == 0 || sub >= n) {
        p->lo = lo;
        p->B = n;
        w.plan = &net->all;
        w.block = hdo__arena_floats(a, net->all.total * (size_t)n);
        w.t_block = hdo__arena_floats(a, net->all.total * (size_t)n * G);
        w.input = samples_at(p, lo);
        hdo__walk_tangent(&w);
        hdo__arena_rewind(a, mark);
        return;
    }
    size_t width = net->value[net->layer[net->cut].in].n;
    float *edge = hdo__arena_floats(a, width * (size_t)n);       /* (n, width) */
    float *t_edge = hdo__arena_floats(a, width * (size_t)n * G); /* (G, n, width) */
    size_t inner = hdo__arena_mark(a);
    w.plan = &net->front;
    w.block = hdo__arena_floats(a, net->front.total * (size_t)sub);
    w.t_block = hdo__arena_floats(a, net->front.total * (size_t)sub * G);
    w.t_result = hdo__arena_floats(a, width * (size_t)sub * G);
    for (int i = 0; i < n; i += sub) {
        p->lo = lo + i;
        p->B = n - i < sub ? n - i : sub;
        w.input = samples_at(p, p->lo);
        w.result = edge + (size_t)i * width;
        hdo__walk_tangent(&w);
        size_t run = (size_t)p->B * width;
        for (size_t r = 0; r < G; r++)
            memcpy(t_edge + (r * (size_t)n + (size_t)i) * width, w.t_result + r * run, run * sizeof(float));
    }
    hdo__arena_rewind(a, inner);
    p->lo = lo;
    p->B = n;
    w = (hdo_walk){.pass = p, .plan = &net->tail, .input = edge, .t_input = t_edge, .result = z, .t_result = tz};
    w.block = hdo__arena_floats(a, net->tail.total * (size_t)n);
    w.t_block = hdo__arena_floats(a, net->tail.total * (size_t)n * G);
    hdo__walk_tangent(&w);
    hdo__arena_rewind(a, mark);
}
