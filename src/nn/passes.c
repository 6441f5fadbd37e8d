/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes over a batch: cut it in chunks, run the chunks (or directions, or models) as numbered tasks, add the parts
 * in order. Here: loss, grad and the sizes; perturb.c has jvp, complex and loss_many, evaluate.c
 * evaluate.
 *
 *   pass         tasks                              shared memory            memory of a task
 *   loss         chunks                             -                        activations of a chunk
 *   grad         lanes of consecutive chunks        a gradient a lane        all activations of a chunk
 *   jvp          groups of G directions             -                        1 + G activations, G directions (small d)
 *   complex      directions                         -                        2 activations, a direction (small d)
 *   loss_many    directions                         -                        activations, x + nu u (small d)
 *   evaluate     models x chunks                    -                        activations of a chunk
 *
 * Networks that couple the samples in training take the whole batch as one chunk. Large networks never write a
 * direction out: their weights are perturbed tile by tile inside the layers, which means every direction runs the whole
 * batch.
 */
#include <assert.h>
#include <string.h>

#include "base/vec.h"
#include "nn/walk.h"

static size_t floats(size_t n) {
    return hdo__arena_round(n * sizeof(float));
}

/* ---- loss and logits: tasks are chunks ---- */

typedef struct loss_job {
    const hdo_net *net;
    const hdo_net_samples *s;
    const float *x;
    double *sum;      /* (chunks) */
    int64_t *correct; /* (chunks) */
    float *logits;    /* (size, classes) or NULL */
} loss_job;

static void loss_task(void *ctx, int task, hdo_work *w) {
    loss_job *j = ctx;
    int lo = task * j->net->chunk, n = j->s->size - lo < j->net->chunk ? j->s->size - lo : j->net->chunk;
    hdo_pass p = hdo__pass_init(j->net, j->s, j->x, w);
    if (j->logits != NULL) {
        hdo__chunk_logits(&p, lo, n, j->net->sub, j->logits + (size_t)lo * (size_t)j->net->classes);
        return;
    }
    j->correct[task] = 0;
    j->sum[task] = hdo__chunk_loss(&p, lo, n, j->net->sub, &j->correct[task]);
}

void hdo__net_loss(const hdo_net *net, const hdo_net_samples *s, const float *x, hdo_work *w, double *sum,
                   int64_t *correct, float *stats_out) {
    if (correct != NULL) *correct = 0;
    if (hdo__whole_batch(net, s)) {
        hdo_pass p = hdo__pass_init(net, s, x, w);
        p.wide = true;
        p.stats_out = stats_out;
        *sum = hdo__chunk_loss(&p, 0, s->size, s->size, correct);
        return;
    }
    int n = hdo__chunks(s->size, net->chunk);
    size_t mark = hdo__arena_mark(w->arena);
    loss_job j = {.net = net, .s = s, .x = x, .sum = hdo__arena_doubles(w->arena, (size_t)n)};
    j.correct = hdo__arena_take(w->arena, (size_t)n * sizeof(int64_t));
    hdo__team_run(w->team, n, loss_task, &j);
    *sum = 0;
    for (int i = 0; i < n; i++) {
        *sum += j.sum[i];
        if (correct != NULL) *correct += j.correct[i];
    }
    hdo__arena_rewind(w->arena, mark);
    if (stats_out != NULL && net->buffers.total > 0)
        memcpy(stats_out, x + net->params.total, net->buffers.total * sizeof(float));
}

void hdo__net_logits(const hdo_net *net, const hdo_net_samples *s, const float *x, hdo_work *w, float *logits) {
    if (hdo__whole_batch(net, s)) {
        hdo_pass p = hdo__pass_init(net, s, x, w);
        p.wide = true;
        hdo__chunk_logits(&p, 0, s->size, s->size, logits);
        return;
    }
    loss_job j = {.net = net, .s = s, .x = x, .logits = logits};
    hdo__team_run(w->team, hdo__chunks(s->size, net->chunk), loss_task, &j);
}

/* ---- grad: tasks are lanes of consecutive chunks ---- */

typedef struct grad_job {
    const hdo_net *net;
    const hdo_net_samples *s;
    const float *x;
    float *g;    /* lane 0 */
    float *lane; /* (lanes - 1, d) */
    double *sum; /* (lanes) */
    int chunk, n_chunks, lanes;
    float *stats_out;
    bool wide;
} grad_job;

static size_t grad_bytes(const hdo_net *net, int n) {
    const hdo_net_plan *plan = &net->grad;
    return floats(plan->total * (size_t)n) + floats(plan->fixed) + floats(plan->tmp * (size_t)n) +
           hdo__walk_scratch(net, plan, n, 0);
}

static double grad_chunk(hdo_pass *p, int lo, int n) {
    const hdo_net *net = p->net;
    hdo_arena *a = p->work->arena;
    size_t mark = hdo__arena_mark(a);
    hdo_walk w = {.plan = &net->grad, .pass = p};
    p->lo = lo;
    p->B = n;
    w.block = hdo__arena_floats(a, net->grad.total * (size_t)n);
    w.fixed = hdo__arena_floats(a, net->grad.fixed);
    w.tmp = hdo__arena_floats(a, net->grad.tmp * (size_t)n);
    w.input = p->s->in != NULL ? p->s->in + (size_t)lo * net->value[0].n : NULL;
    hdo__walk_forward(&w);
    int out = net->layer[net->n_layers - 1].out;
    const float *z = w.block + net->grad.off[net->grad.root[out]] * (size_t)n; /* (n, classes) */
    size_t classes = (size_t)net->classes;
    double sum = 0;
    if (p->s->pull != NULL) {
        memcpy(hdo__walk_dlogits(&w), p->s->pull + (size_t)lo * classes, (size_t)n * classes * sizeof(float));
    } else {
        sum = hdo__xent_grad(n, net->classes, z, p->s->label + lo, 1.0f / (float)p->s->size, hdo__walk_dlogits(&w));
    }
    hdo__walk_reverse(&w);
    hdo__arena_rewind(a, mark);
    return sum;
}

static void grad_task(void *ctx, int lane, hdo_work *w) {
    grad_job *j = ctx;
    hdo_pass p = hdo__pass_init(j->net, j->s, j->x, w);
    p.wide = j->wide;
    p.stats_out = j->stats_out;
    p.g = lane == 0 ? j->g : j->lane + (size_t)(lane - 1) * j->net->params.total;
    int first = (int)((int64_t)lane * j->n_chunks / j->lanes),
        end = (int)((int64_t)(lane + 1) * j->n_chunks / j->lanes);
    double sum = 0;
    for (int c = first; c < end; c++) {
        int lo = c * j->chunk, n = j->s->size - lo < j->chunk ? j->s->size - lo : j->chunk;
        sum += grad_chunk(&p, lo, n);
        p.add = true;
    }
    j->sum[lane] = sum;
}

enum { SLICE = 1 << 14 }; /* floats of a summing task */

static void add_lanes(void *ctx, int task, hdo_work *w) {
    (void)w;
    grad_job *j = ctx;
    size_t d = j->net->params.total, lo = (size_t)task * SLICE, n = d - lo < SLICE ? d - lo : SLICE;
    hdo_ranges idle = hdo__net_idle(j->net);
    for (size_t at = lo, m; (m = hdo__outside(idle, &at, lo + n, n)) > 0; at += m)
        for (int k = 1; k < j->lanes; k++) hdo__axpy(m, 1.0f, j->lane + (size_t)(k - 1) * d + at, j->g + at);
}

static int lane_count(const hdo_net *net, int n_chunks) {
    int most = net->small ? HDO_LANES : 2;
    return n_chunks < most ? n_chunks : most;
}

void hdo__net_grad(const hdo_net *net, const hdo_net_samples *s, const float *x, hdo_work *w, float *g, double *sum,
                   float *stats_out) {
    bool one = hdo__whole_batch(net, s);
    grad_job j = {.net = net, .s = s, .x = x, .g = g, .chunk = one ? s->size : net->gchunk, .wide = one};
    size_t mark = hdo__arena_mark(w->arena), d = net->params.total;
    j.n_chunks = hdo__chunks(s->size, j.chunk);
    j.lanes = lane_count(net, j.n_chunks);
    j.sum = hdo__arena_doubles(w->arena, (size_t)j.lanes);
    j.lane = hdo__arena_floats(w->arena, (size_t)(j.lanes - 1) * d);
    if (one) {
        j.stats_out = stats_out;
        grad_task(&j, 0, w); /* the team works inside the layers */
    } else {
        hdo__team_run(w->team, j.lanes, grad_task, &j);
        if (j.lanes > 1) hdo__team_run(w->team, (int)((d + SLICE - 1) / SLICE), add_lanes, &j);
        if (stats_out != NULL && net->buffers.total > 0) memcpy(stats_out, x + d, net->buffers.total * sizeof(float));
    }
    *sum = 0;
    for (int k = 0; k < j.lanes; k++) *sum += j.sum[k];
    hdo__arena_rewind(w->arena, mark);
}

/* ---- sizes ---- */

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

size_t hdo__net_work_for(const hdo_net *net, int pass, int batch, int k) {
    int chunk = batch < net->chunk ? batch : net->chunk;
    bool one = net->couples; /* evaluation cuts in chunks all the same: the larger of both serves either mode */
    size_t d = net->params.total, small = 0;
    switch (pass) {
    case HDO_PASS_LOSS:
        small = 2 * hdo__arena_round((size_t)hdo__chunks(batch, net->chunk) * sizeof(int64_t));
        return small +
               larger(hdo__chunk_loss_bytes(net, chunk, net->sub), one ? hdo__chunk_loss_bytes(net, batch, batch) : 0);
    case HDO_PASS_GRAD: {
        int n = one ? batch : batch < net->gchunk ? batch : net->gchunk;
        int lanes = one ? 1 : lane_count(net, hdo__chunks(batch, net->gchunk));
        small = hdo__arena_round((size_t)lanes * sizeof(double));
        return small + floats((size_t)(lanes - 1) * d) + grad_bytes(net, n);
    }
    case HDO_PASS_CPLX: return hdo__net_work_for(net, HDO_PASS_JVP, batch, 1); /* t in place of one tangent */
    case HDO_PASS_JVP: {
        int G = k < net->group ? k : net->group;
        size_t cut = net->small ? hdo__chunk_tangent_bytes(net, chunk, net->jsub, G) : 0;
        return larger(cut, one || !net->small ? hdo__chunk_tangent_bytes(net, batch, batch, G) : 0);
    }
    case HDO_PASS_MANY: {
        size_t copy = net->small ? floats(d) : 0, cut = net->small ? hdo__chunk_loss_bytes(net, chunk, net->sub) : 0;
        size_t plain = copy + larger(cut, one || !net->small ? hdo__chunk_loss_bytes(net, batch, batch) : 0);
        if (net->rank == 0) return plain;
        return larger(plain, hdo__net_work_for(net, HDO_PASS_JVP, batch, k) + hdo__walk_many_bytes(net, batch));
    }
    default: return hdo__evaluate_bytes(net, batch);
    }
}

size_t hdo__net_work(const hdo_net *net, int batch, int k) {
    size_t most = 0;
    for (int pass = HDO_PASS_LOSS; pass <= HDO_PASS_EVAL; pass++) {
        bool asked = k > 0 || (pass != HDO_PASS_JVP && pass != HDO_PASS_CPLX && pass != HDO_PASS_MANY);
        if (asked) most = larger(most, hdo__net_work_for(net, pass, batch, k > 0 ? k : 1));
    }
    return most;
}
