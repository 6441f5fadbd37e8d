/* SPDX-License-Identifier: Apache-2.0
 *
 * K models on one batch, in evaluation mode. Tasks are models x chunks. Networks that begin with a narrow linear layer
 * share it: the first layers of many models stand under each other as one matrix, and a task is one product of a chunk
 * with all of them (280 logistic models: 64 x 784 x 640 instead of 64 times 64 x 784 x 10, twice as fast).
 */
#include <string.h>

#include "nn/walk.h"

enum {
    MODELS = 64,      /* at a time: bounds the memory of the sums */
    STACK_ROWS = 1024 /* rows of the stacked matrix: 3 MB at 784 inputs */
};

typedef struct eval_job {
    const hdo_net *net;
    const hdo_net_samples *s;
    const float *X; /* (K, ld) */
    size_t ld;
    int K, n_chunks;
    double *sum;      /* (K, chunks) */
    int64_t *correct; /* (K, chunks) */
    float *stack;     /* (K n_out, n_in), or NULL */
} eval_job;

static int chunk_at(const eval_job *j, int c, int *lo) {
    *lo = c * j->net->chunk;
    return j->s->size - *lo < j->net->chunk ? j->s->size - *lo : j->net->chunk;
}

static void eval_task(void *ctx, int task, hdo_work *w) {
    eval_job *j = ctx;
    int lo, n = chunk_at(j, task % j->n_chunks, &lo);
    hdo_pass p = hdo__pass_init(j->net, j->s, j->X + (size_t)(task / j->n_chunks) * j->ld, w);
    j->correct[task] = 0;
    j->sum[task] = hdo__chunk_loss(&p, lo, n, j->net->sub, &j->correct[task]);
}

/* ---- the shared first layer ---- */

static bool stacks(const hdo_net *net) {
    const hdo_layer *l = &net->layer[0];
    for (int i = 1; i < net->n_layers; i++) /* nobody else may read the input, and the second layer reads the first */
        if (net->layer[i].in == 0 || (i == 1 && net->layer[i].in != l->out)) return false;
    if (hdo__frozen(net, l->weight)) return false;
    return strcmp(l->ops->name, "linear") == 0 && l->rows == 1 && l->n_out <= 64;
}

static int models_at_once(const hdo_net *net) {
    int most = stacks(net) ? STACK_ROWS / net->layer[0].n_out : MODELS;
    return most < MODELS ? most : MODELS;
}

/* One chunk, all models. */
static void stack_task(void *ctx, int task, hdo_work *w) {
    eval_job *j = ctx;
    const hdo_net *net = j->net;
    const hdo_layer *l = &net->layer[0];
    int lo, n = chunk_at(j, task, &lo), O = l->n_out, rows = j->K * O;
    const float *in = j->s->in + (size_t)lo * (size_t)l->n_in;
    float *all = hdo__arena_floats(w->arena, (size_t)n * (size_t)rows); /* (n, K, O) */
    float *one = hdo__arena_floats(w->arena, (size_t)n * (size_t)O);    /* (n, O) */
    float *z = hdo__arena_floats(w->arena, (size_t)n * (size_t)net->classes);
    float *block = hdo__arena_floats(w->arena, net->rest.total * (size_t)n);
    net->k->gemm(false, true, n, rows, l->n_in, 1.0f, in, l->n_in, j->stack, l->n_in, 0.0f, all, rows);
    for (int k = 0; k < j->K; k++) {
        hdo_pass p = hdo__pass_init(net, j->s, j->X + (size_t)k * j->ld, w);
        p.lo = lo;
        p.B = n;
        for (int i = 0; i < n; i++)
            memcpy(one + (size_t)i * (size_t)O, all + ((size_t)i * (size_t)j->K + (size_t)k) * (size_t)O,
                   (size_t)O * sizeof(float));
        net->v->bias(n, O, hdo__numbers(&p, l->bias), l->relu, one, O);
        if (net->n_layers > 1) {
            hdo_walk walk = {.plan = &net->rest, .pass = &p, .input = one, .result = z, .block = block};
            hdo__walk_forward(&walk);
        }
        size_t at = (size_t)k * (size_t)j->n_chunks + (size_t)task;
        j->correct[at] = 0;
        j->sum[at] = hdo__xent_loss(n, net->classes, net->n_layers > 1 ? z : one, j->s->label + lo, &j->correct[at]);
    }
}

static size_t floats(size_t n) {
    return hdo__arena_round(n * sizeof(float));
}

size_t hdo__evaluate_bytes(const hdo_net *net, int batch) {
    int chunk = batch < net->chunk ? batch : net->chunk, K = models_at_once(net);
    size_t n = (size_t)chunk,
           sums = 2 * hdo__arena_round((size_t)hdo__chunks(batch, net->chunk) * (size_t)K * sizeof(int64_t));
    size_t plain = hdo__chunk_loss_bytes(net, chunk, net->sub);
    if (!stacks(net)) return sums + plain;
    size_t O = (size_t)net->layer[0].n_out, rows = (size_t)K * O;
    size_t task = floats(n * rows) + floats(n * O) + floats(n * (size_t)net->classes) + floats(net->rest.total * n) +
                  hdo__walk_scratch(net, &net->rest, chunk, 0);
    return sums + floats(rows * (size_t)net->layer[0].n_in) + (task > plain ? task : plain);
}

/* ---- the pass ---- */

static void eval_block(eval_job *j, hdo_work *w, double *sum, int64_t *correct) {
    size_t mark = hdo__arena_mark(w->arena), n = (size_t)j->n_chunks * (size_t)j->K;
    j->sum = hdo__arena_doubles(w->arena, n);
    j->correct = hdo__arena_take(w->arena, n * sizeof(int64_t));
    if (stacks(j->net) && j->K > 1) {
        const hdo_param *W = hdo__param(j->net, j->net->layer[0].weight);
        j->stack = hdo__arena_floats(w->arena, (size_t)j->K * W->len);
        for (int k = 0; k < j->K; k++)
            memcpy(j->stack + (size_t)k * W->len, j->X + (size_t)k * j->ld + W->off, W->len * sizeof(float));
        hdo__team_run(w->team, j->n_chunks, stack_task, j);
    } else {
        hdo__team_run(w->team, (int)n, eval_task, j);
    }
    for (size_t t = 0; t < n; t++) {
        sum[t / (size_t)j->n_chunks] += j->sum[t];
        correct[t / (size_t)j->n_chunks] += j->correct[t];
    }
    hdo__arena_rewind(w->arena, mark);
}

void hdo__net_evaluate(const hdo_net *net, const hdo_net_samples *s, const float *X, size_t ld, int K, hdo_work *w,
                       double *sum, int64_t *correct) {
    hdo_net_samples eval = *s;
    eval.train = false;
    int most = models_at_once(net);
    for (int k = 0; k < K; k += most) {
        eval_job j = {.net = net,
                      .s = &eval,
                      .X = X + (size_t)k * ld,
                      .ld = ld,
                      .K = K - k < most ? K - k : most,
                      .n_chunks = hdo__chunks(s->size, net->chunk)};
        eval_block(&j, w, sum + k, correct + k);
    }
}
