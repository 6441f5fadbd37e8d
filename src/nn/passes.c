/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes over a batch: cut it in chunks, run the chunks (or directions, or models) as numbered tasks, add the parts
 * in order. Beside every function that takes memory stands the one that says how much.
 *
 *   pass         tasks                              shared memory            memory of a task
 *   loss         chunks                             -                        activations of a chunk
 *   grad         lanes of consecutive chunks        a gradient a lane        all activations of a chunk
 *   jvp          groups of G directions             -                        1 + G activations, G directions (small d)
 *   loss_many    directions                         -                        activations, x + nu u (small d)
 *   evaluate     models x chunks                    -                        activations of a chunk
 *
 * Networks that couple the samples in training take the whole batch as one chunk. Large networks never write a direction
 * out: their weights are perturbed tile by tile inside the layers, which means every direction runs the whole batch.
 */
#include <assert.h>
#include <string.h>

#include "base/vec.h"
#include "nn/walk.h"

static bool whole(const hdo_net *net, const hdo_samples *s) { return net->couples && s->train; }

static int chunks(int size, int chunk) { return (size + chunk - 1) / chunk; }

static size_t floats(size_t n) { return hdo__arena_round(n * sizeof(float)); }

static size_t in_n(const hdo_net *net) { return net->value[0].n; }

static const float *samples_at(const hdo_pass *p, int lo) {
    return p->s->in != NULL ? p->s->in + (size_t)lo * in_n(p->net) : NULL;
}

static hdo_pass pass_init(const hdo_net *net, const hdo_samples *s, const float *x, hdo_work *w) {
    return (hdo_pass){.net = net, .s = s, .x = x, .stats = x + net->params.total, .mask_seed = s->seed, .work = w};
}

/* ---- forward over samples lo .. lo + n - 1 into logits (n, classes) ---- */

static size_t forward_bytes(const hdo_net *net, int n, int sub) {
    if (net->cut == 0 || sub >= n) return floats(net->all.total * (size_t)n) + hdo__walk_scratch(net, &net->all, n, 0);
    size_t front = floats(net->front.total * (size_t)sub) + hdo__walk_scratch(net, &net->front, sub, 0);
    size_t tail = floats(net->tail.total * (size_t)n) + hdo__walk_scratch(net, &net->tail, n, 0);
    return floats(net->value[net->layer[net->cut].in].n * (size_t)n) + (front > tail ? front : tail);
}

static void forward(hdo_pass *p, int lo, int n, int sub, float *logits) {
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
static size_t loss_bytes(const hdo_net *net, int chunk, int sub) {
    return floats((size_t)chunk * (size_t)net->classes) + forward_bytes(net, chunk, sub);
}

static double loss_of(hdo_pass *p, int lo, int n, int sub, int64_t *correct) {
    size_t mark = hdo__arena_mark(p->work->arena);
    float *z = hdo__arena_floats(p->work->arena, (size_t)n * (size_t)p->net->classes);
    forward(p, lo, n, sub, z);
    double sum = hdo__xent_loss(n, p->net->classes, z, p->s->label + lo, correct);
    hdo__arena_rewind(p->work->arena, mark);
    return sum;
}

/* ---- loss and logits: tasks are chunks ---- */

typedef struct loss_job {
    const hdo_net *net;
    const hdo_samples *s;
    const float *x;
    double *sum;      /* (chunks) */
    int64_t *correct; /* (chunks) */
    float *logits;    /* (size, classes) or NULL */
} loss_job;

static void loss_task(void *ctx, int task, hdo_work *w) {
    loss_job *j = ctx;
    int lo = task * j->net->chunk, n = j->s->size - lo < j->net->chunk ? j->s->size - lo : j->net->chunk;
    hdo_pass p = pass_init(j->net, j->s, j->x, w);
    if (j->logits != NULL) {
        forward(&p, lo, n, j->net->sub, j->logits + (size_t)lo * (size_t)j->net->classes);
        return;
    }
    j->correct[task] = 0;
    j->sum[task] = loss_of(&p, lo, n, j->net->sub, &j->correct[task]);
}

void hdo__net_loss(const hdo_net *net, const hdo_samples *s, const float *x, hdo_work *w, double *sum, int64_t *correct,
                   float *stats_out) {
    if (correct != NULL) *correct = 0;
    if (whole(net, s)) {
        hdo_pass p = pass_init(net, s, x, w);
        p.wide = true;
        p.stats_out = stats_out;
        *sum = loss_of(&p, 0, s->size, s->size, correct);
        return;
    }
    int n = chunks(s->size, net->chunk);
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

void hdo__net_logits(const hdo_net *net, const hdo_samples *s, const float *x, hdo_work *w, float *logits) {
    if (whole(net, s)) {
        hdo_pass p = pass_init(net, s, x, w);
        p.wide = true;
        forward(&p, 0, s->size, s->size, logits);
        return;
    }
    loss_job j = {.net = net, .s = s, .x = x, .logits = logits};
    hdo__team_run(w->team, chunks(s->size, net->chunk), loss_task, &j);
}

/* ---- grad: tasks are lanes of consecutive chunks ---- */

typedef struct grad_job {
    const hdo_net *net;
    const hdo_samples *s;
    const float *x;
    float *g;    /* lane 0 */
    float *lane; /* (lanes - 1, d) */
    double *sum; /* (lanes) */
    int chunk, n_chunks, lanes;
    float *stats_out;
    bool wide;
} grad_job;

static size_t grad_bytes(const hdo_net *net, int n) {
    const hdo_plan *plan = &net->grad;
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
    w.input = samples_at(p, lo);
    hdo__walk_forward(&w);
    int out = net->layer[net->n_layers - 1].out;
    const float *z = w.block + net->grad.off[net->grad.root[out]] * (size_t)n; /* (n, classes) */
    double sum = hdo__xent_grad(n, net->classes, z, p->s->label + lo, 1.0f / (float)p->s->size, hdo__walk_dlogits(&w));
    hdo__walk_reverse(&w);
    hdo__arena_rewind(a, mark);
    return sum;
}

static void grad_task(void *ctx, int lane, hdo_work *w) {
    grad_job *j = ctx;
    hdo_pass p = pass_init(j->net, j->s, j->x, w);
    p.wide = j->wide;
    p.stats_out = j->stats_out;
    p.g = lane == 0 ? j->g : j->lane + (size_t)(lane - 1) * j->net->params.total;
    int first = (int)((int64_t)lane * j->n_chunks / j->lanes), end = (int)((int64_t)(lane + 1) * j->n_chunks / j->lanes);
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
    for (int k = 1; k < j->lanes; k++) hdo__axpy(n, 1.0f, j->lane + (size_t)(k - 1) * d + lo, j->g + lo);
}

static int lane_count(const hdo_net *net, int n_chunks) {
    int most = net->small ? HDO_LANES : 2;
    return n_chunks < most ? n_chunks : most;
}

void hdo__net_grad(const hdo_net *net, const hdo_samples *s, const float *x, hdo_work *w, float *g, double *sum,
                   float *stats_out) {
    bool one = whole(net, s);
    grad_job j = {.net = net, .s = s, .x = x, .g = g, .chunk = one ? s->size : net->gchunk, .wide = one};
    size_t mark = hdo__arena_mark(w->arena), d = net->params.total;
    j.n_chunks = chunks(s->size, j.chunk);
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

/* ---- jvp: tasks are groups of directions ---- */

typedef struct dir_job {
    const hdo_net *net;
    const hdo_samples *s;
    const float *x;
    const hdo_dirs *u;
    int first, k;
    float nu;
    double *sum;   /* loss_many: (k); jvp: (1) */
    double *slope; /* (k) */
    float *stats_out;
    bool wide;
} dir_job;

/* A value of n floats and its G tangents. */
static size_t both(size_t n, size_t G) { return floats(n) + floats(n * G); }

static size_t tangent_bytes(const hdo_net *net, int n, int sub, int G) {
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
static void tangent(hdo_pass *p, int lo, int n, int sub, float *z, float *tz) {
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
    float *edge = hdo__arena_floats(a, width * (size_t)n);         /* (n, width) */
    float *t_edge = hdo__arena_floats(a, width * (size_t)n * G);   /* (G, n, width) */
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

static void jvp_task(void *ctx, int task, hdo_work *w) {
    dir_job *j = ctx;
    const hdo_net *net = j->net;
    int r0 = task * net->group, G = j->k - r0 < net->group ? j->k - r0 : net->group, size = j->s->size;
    bool one = whole(net, j->s) || !net->small;
    int chunk = one ? size : net->chunk, sub = one ? size : net->jsub;
    if (chunk > size) chunk = size;
    hdo_pass p = pass_init(net, j->s, j->x, w);
    p.u = j->u;
    p.r = j->first + r0;
    p.G = G;
    p.stats_out = task == 0 ? j->stats_out : NULL;
    if (net->small) {
        size_t d = net->params.total;
        float *du = hdo__arena_floats(w->arena, (size_t)G * d);
        for (int r = 0; r < G; r++) hdo__dirs_fill(j->u, p.r + r, 0, d, du + (size_t)r * d);
        p.du = du;
    }
    float *z = hdo__arena_floats(w->arena, (size_t)chunk * (size_t)net->classes);
    float *tz = hdo__arena_floats(w->arena, (size_t)chunk * (size_t)net->classes * (size_t)G);
    double slope[HDO_GROUP_MAX] = {0}, sum = 0;
    for (int lo = 0; lo < size; lo += chunk) {
        int n = size - lo < chunk ? size - lo : chunk;
        tangent(&p, lo, n, sub, z, tz);
        sum += hdo__xent_jvp(n, net->classes, z, j->s->label + lo, G, tz, slope);
    }
    for (int r = 0; r < G; r++) j->slope[r0 + r] = slope[r] / (double)size;
    if (task == 0) *j->sum = sum;
}

void hdo__net_jvp(const hdo_net *net, const hdo_samples *s, const float *x, const hdo_dirs *u, int first, int k,
                  hdo_work *w, double *sum, double *slope, float *stats_out) {
    assert(k >= 1);
    dir_job j = {.net = net, .s = s, .x = x, .u = u, .first = first, .k = k, .sum = sum, .slope = slope};
    bool updates = stats_out != NULL && whole(net, s);
    j.stats_out = updates ? stats_out : NULL;
    hdo__team_run(w->team, chunks(k, net->group), jvp_task, &j);
    if (stats_out != NULL && !updates && net->buffers.total > 0)
        memcpy(stats_out, x + net->params.total, net->buffers.total * sizeof(float));
}

/* ---- loss_many: tasks are directions ---- */

/* Masks of perturbed evaluation r: those of the batch, or (fresh) others for every evaluation. */
static uint64_t mask_seed(const hdo_net *net, const hdo_samples *s, int r) {
    return net->fresh ? s->seed + 0x9e3779b97f4a7c15u * ((uint64_t)r + 1) : s->seed;
}

static double perturbed_loss(const dir_job *j, int r, hdo_work *w) {
    const hdo_net *net = j->net;
    hdo_pass p = pass_init(net, j->s, j->x, w);
    size_t mark = hdo__arena_mark(w->arena), d = net->params.total;
    int size = j->s->size;
    bool one = whole(net, j->s) || !net->small;
    p.mask_seed = mask_seed(net, j->s, j->first + r);
    p.wide = j->wide;
    if (net->small) {
        float *xp = hdo__arena_floats(w->arena, d);
        hdo__dirs_fill(j->u, j->first + r, 0, d, xp);
        hdo__axpby(d, 1.0f, j->x, j->nu, xp); /* x + nu u */
        p.x = xp;
    } else {
        p.u = j->u;
        p.r = j->first + r;
        p.nu = j->nu;
    }
    double sum = 0;
    if (one) {
        sum = loss_of(&p, 0, size, size, NULL);
    } else {
        for (int lo = 0; lo < size; lo += net->chunk)
            sum += loss_of(&p, lo, size - lo < net->chunk ? size - lo : net->chunk, net->sub, NULL);
    }
    hdo__arena_rewind(w->arena, mark);
    return sum;
}

static void many_task(void *ctx, int r, hdo_work *w) {
    dir_job *j = ctx;
    j->sum[r] = perturbed_loss(j, r, w);
}

void hdo__net_loss_many(const hdo_net *net, const hdo_samples *s, const float *x, const hdo_dirs *u, int first, int k,
                        float nu, hdo_work *w, double *sum) {
    assert(k >= 1);
    dir_job j = {.net = net, .s = s, .x = x, .u = u, .first = first, .k = k, .nu = nu, .sum = sum};
    if (k == 1 && whole(net, s)) {
        j.wide = true;
        sum[0] = perturbed_loss(&j, 0, w); /* the team works inside the layers */
        return;
    }
    hdo__team_run(w->team, k, many_task, &j);
}

/* ---- evaluate: tasks are models x chunks ---- */

enum { EVAL_MODELS = 64 };

typedef struct eval_job {
    const hdo_net *net;
    const hdo_samples *s;
    const float *X;
    size_t ld;
    int n_chunks;
    double *sum;
    int64_t *correct;
} eval_job;

static void eval_task(void *ctx, int task, hdo_work *w) {
    eval_job *j = ctx;
    int lo = task % j->n_chunks * j->net->chunk, n = j->s->size - lo < j->net->chunk ? j->s->size - lo : j->net->chunk;
    hdo_pass p = pass_init(j->net, j->s, j->X + (size_t)(task / j->n_chunks) * j->ld, w);
    j->correct[task] = 0;
    j->sum[task] = loss_of(&p, lo, n, j->net->sub, &j->correct[task]);
}

void hdo__net_evaluate(const hdo_net *net, const hdo_samples *s, const float *X, size_t ld, int K, hdo_work *w,
                       double *sum, int64_t *correct) {
    hdo_samples eval = *s;
    eval.train = false;
    while (K > EVAL_MODELS) { /* bounds the memory of the sums */
        hdo__net_evaluate(net, s, X, ld, EVAL_MODELS, w, sum, correct);
        X += (size_t)EVAL_MODELS * ld;
        sum += EVAL_MODELS;
        correct += EVAL_MODELS;
        K -= EVAL_MODELS;
    }
    int n = chunks(s->size, net->chunk);
    size_t mark = hdo__arena_mark(w->arena), tasks = (size_t)n * (size_t)K;
    eval_job j = {.net = net, .s = &eval, .X = X, .ld = ld, .n_chunks = n, .sum = hdo__arena_doubles(w->arena, tasks)};
    j.correct = hdo__arena_take(w->arena, tasks * sizeof(int64_t));
    hdo__team_run(w->team, (int)tasks, eval_task, &j);
    for (size_t t = 0; t < tasks; t++) {
        sum[t / (size_t)n] += j.sum[t];
        correct[t / (size_t)n] += j.correct[t];
    }
    hdo__arena_rewind(w->arena, mark);
}

/* ---- sizes ---- */

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

size_t hdo__net_work_for(const hdo_net *net, int pass, int batch, int k) {
    int chunk = batch < net->chunk ? batch : net->chunk;
    bool one = net->couples; /* evaluation cuts in chunks all the same: the larger of both serves either mode */
    size_t d = net->params.total, small = 0;
    switch (pass) {
    case HDO_PASS_LOSS:
        small = 2 * hdo__arena_round((size_t)chunks(batch, net->chunk) * sizeof(int64_t));
        return small + larger(loss_bytes(net, chunk, net->sub), one ? loss_bytes(net, batch, batch) : 0);
    case HDO_PASS_GRAD: {
        int n = one ? batch : batch < net->gchunk ? batch : net->gchunk;
        int lanes = one ? 1 : lane_count(net, chunks(batch, net->gchunk));
        small = hdo__arena_round((size_t)lanes * sizeof(double));
        return small + floats((size_t)(lanes - 1) * d) + grad_bytes(net, n);
    }
    case HDO_PASS_JVP: {
        int G = k < net->group ? k : net->group;
        size_t cut = net->small ? tangent_bytes(net, chunk, net->jsub, G) : 0;
        return larger(cut, one || !net->small ? tangent_bytes(net, batch, batch, G) : 0);
    }
    case HDO_PASS_MANY: {
        size_t copy = net->small ? floats(d) : 0, cut = net->small ? loss_bytes(net, chunk, net->sub) : 0;
        return copy + larger(cut, one || !net->small ? loss_bytes(net, batch, batch) : 0);
    }
    default: { /* evaluate */
        small = 2 * hdo__arena_round((size_t)chunks(batch, net->chunk) * EVAL_MODELS * sizeof(int64_t));
        return small + loss_bytes(net, chunk, net->sub);
    }
    }
}

size_t hdo__net_work(const hdo_net *net, int batch, int k) {
    size_t most = 0;
    for (int pass = HDO_PASS_LOSS; pass <= HDO_PASS_EVAL; pass++) {
        bool asked = k > 0 || (pass != HDO_PASS_JVP && pass != HDO_PASS_MANY);
        if (asked) most = larger(most, hdo__net_work_for(net, pass, batch, k > 0 ? k : 1));
    }
    return most;
}
