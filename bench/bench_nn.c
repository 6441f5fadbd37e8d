/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes of the built-in networks on random numbers, CSV on stdout.
 *   bench_nn [FILTER [SECONDS]]     only rows whose "pass model" contains FILTER; about SECONDS each (default 2)
 * The timing window holds one call of the pass: no data gathering, no update, no allocation. gflops counts the
 * multiply- adds of linear and convolution layers (taps on padding included) and of nothing else, times 1 for loss, 3
 * for grad, K for loss_many, 1 + 2 K for jvp and 4 K for complex (nu 1e-4), so elementwise work and attention appear as
 * a lower rate. peak_mb is the most the arenas of the pass held, x and g not counted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "hdo/experimental/config.h"
#include "nn/nn.h"

enum { MAX_REPS = 2000 };

typedef struct row {
    const char *model;
    int pass, batch, k;
    int rank; /* of the directions; 0: plain */
} row;

static const char *const pass_name[] = {"loss", "grad", "jvp", "complex", "loss_many", "evaluate"};

static const row rows[] = {
    {"logistic", HDO_PASS_GRAD, 2, 0},      {"mlp", HDO_PASS_GRAD, 8, 0},
    {"cnn2", HDO_PASS_GRAD, 256, 0},        {"cnn3", HDO_PASS_GRAD, 256, 0},
    {"transformer", HDO_PASS_GRAD, 128, 0}, {"resnet18", HDO_PASS_GRAD, 10, 0},
    {"resnet18", HDO_PASS_GRAD, 50, 0},     {"mlp", HDO_PASS_LOSS, 8, 0},
    {"cnn3", HDO_PASS_LOSS, 256, 0},        {"transformer", HDO_PASS_LOSS, 128, 0},
    {"resnet18", HDO_PASS_LOSS, 50, 0},     {"mlp", HDO_PASS_MANY, 8, 64},
    {"cnn2", HDO_PASS_MANY, 256, 128},      {"cnn3", HDO_PASS_MANY, 256, 128},
    {"transformer", HDO_PASS_MANY, 256, 8}, {"resnet18", HDO_PASS_MANY, 50, 4},
    {"mlp", HDO_PASS_JVP, 8, 64},           {"cnn2", HDO_PASS_JVP, 256, 128},
    {"cnn3", HDO_PASS_JVP, 256, 128},       {"transformer", HDO_PASS_JVP, 256, 8},
    {"resnet18", HDO_PASS_JVP, 50, 4},      {"logistic", HDO_PASS_EVAL, 10000, 64},
    {"mlp", HDO_PASS_EVAL, 10000, 8},       {"cnn3", HDO_PASS_EVAL, 1000, 8},
    {"transformer", HDO_PASS_EVAL, 256, 4}, {"resnet18", HDO_PASS_EVAL, 256, 1},
    {"mlp", HDO_PASS_CPLX, 8, 64},          {"cnn3", HDO_PASS_CPLX, 256, 16},
    {"transformer", HDO_PASS_CPLX, 256, 8}, {"resnet18", HDO_PASS_CPLX, 50, 4},
    {"mlp", HDO_PASS_MANY, 8, 128, 1},      {"mlp", HDO_PASS_MANY, 64, 128, 1},
    {"cnn2", HDO_PASS_MANY, 256, 128, 1},   {"cnn3", HDO_PASS_MANY, 256, 128, 1},
    {"cnn3", HDO_PASS_MANY, 256, 128, 4},   {"transformer", HDO_PASS_MANY, 256, 8, 1},
    {"resnet18", HDO_PASS_MANY, 50, 4, 1},  {"mlp", HDO_PASS_LOSS, 64, 0},
    {"mlp", HDO_PASS_LOSS, 1024, 0},
};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double multiply_adds(const hdo_net *net) {
    double n = 0;
    for (int i = 0; i < net->n_layers; i++) {
        const hdo_layer *l = &net->layer[i];
        if (strcmp(l->ops->name, "linear") == 0) n += (double)l->rows * l->n_in * l->n_out;
        if (strcmp(l->ops->name, "conv") == 0)
            n += (double)l->geo.O * l->geo.C * l->geo.kh * l->geo.kw * l->geo.Ho * l->geo.Wo;
    }
    return n;
}

static void run(const row *r, int threads, double seconds) {
    bool tokens = strcmp(r->model, "transformer") == 0, colour = strcmp(r->model, "resnet18") == 0;
    int C = colour ? 3 : 1, S = colour ? 32 : 28, classes = tokens ? 2 : 10, B = r->batch;
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    hdo_net *net = tokens ? hdo__net_create(k, 1, 1, 258, 6, classes) : hdo__net_create(k, C, S, S, 0, classes);
    hdo_net_words words = {.classes = classes, .dropout = 0.1};
    hdo_error e;
    if (net == NULL || hdo__net_parse(net, hdo__model_text(r->model, false), &words, &e) != HDO_OK) exit(1);
    net->rank = r->rank;
    hdo__net_plan(net);
    size_t d = net->params.total, ld = d + net->buffers.total, n = (size_t)B * net->value[0].n;
    int K = r->k > 0 ? r->k : 1, models = r->pass == HDO_PASS_EVAL ? K : 1;
    float *X = hdo__alloc((size_t)models * ld * sizeof(float)), *g = hdo__alloc(d * sizeof(float));
    float *in = hdo__alloc(n * sizeof(float));
    int32_t *tok = hdo__alloc(n * sizeof(int32_t)), *label = hdo__alloc((size_t)B * sizeof(int32_t));
    double *out = hdo__alloc((size_t)K * 2 * sizeof(double)), sum;
    int64_t *correct = hdo__alloc((size_t)K * sizeof(int64_t));
    hdo_stream s = hdo__stream(1, HDO_RNG_TEST, 0, 0, 0);
    hdo__rng_normal(s, 0, n, in);
    for (size_t i = 0; i < n; i++) tok[i] = (int32_t)hdo__rng_below(s, i, 6);
    for (int i = 0; i < B; i++) label[i] = (int32_t)hdo__rng_below(s, (uint64_t)i, (uint64_t)classes);
    for (int i = 0; i < models; i++) hdo__net_init(net, HDO_INIT_PYTORCH, 0, (uint64_t)i, X + (size_t)i * ld);
    hdo_net_samples b = {.size = B, .in = in, .tok = tok, .label = label, .train = true};
    hdo_dirs u = {.s = hdo__stream(1, HDO_RNG_DIRECTION, 0, 0, 0), .dist = HDO_DIST_GAUSSIAN, .d = d};
    hdo_tensor shape[HDO_PARAMS_MAX];
    for (int i = 0; i < net->params.n; i++) {
        const hdo_param *p = &net->params.row[i];
        shape[i] = (hdo_tensor){.off = p->off, .len = p->len, .n_dim = p->n_dim, .split = p->split};
        memcpy(shape[i].dim, p->dim, sizeof p->dim);
    }
    u.rank = r->rank;
    u.tensors = shape;
    u.n_tensors = net->params.n;
    u.idle = hdo__net_idle(net);
    hdo_team team;
    hdo_arena own;
    size_t bytes = hdo__net_work_for(net, r->pass, B, K);
    if (hdo__team_init(&team, threads, bytes) != HDO_OK || hdo__arena_init(&own, bytes) != HDO_OK) exit(1);
    hdo_work w = {threads == 1 ? &team.arena[0] : &own, &team, 0};

    static double t[MAX_REPS];
    int reps = 0;
    double begin = hdo__now_s();
    for (int i = -1; i < MAX_REPS && (i < 3 || hdo__now_s() - begin < seconds); i++) {
        double t0 = hdo__now_s();
        switch (r->pass) {
        case HDO_PASS_LOSS: hdo__net_loss(net, &b, X, &w, &sum, NULL, NULL); break;
        case HDO_PASS_GRAD: hdo__net_grad(net, &b, X, &w, g, &sum, NULL); break;
        case HDO_PASS_JVP: hdo__net_jvp(net, &b, X, &u, 0, K, &w, &sum, out, NULL); break;
        case HDO_PASS_CPLX: hdo__net_complex(net, &b, X, &u, 0, K, 1e-4, &w, out); break;
        case HDO_PASS_MANY: hdo__net_loss_many(net, &b, X, &u, 0, K, 1e-4f, &w, out); break;
        default: hdo__net_evaluate(net, &b, X, ld, K, &w, out, correct);
        }
        if (i >= 0) t[reps++] = hdo__now_s() - t0; /* the first call warms the caches */
    }
    qsort(t, (size_t)reps, sizeof *t, by_value);
    double passes[] = {1, 3, 1 + 2.0 * K, 4.0 * K, K, K}, peak = (double)(threads == 1 ? 0 : own.high);
    for (int i = 0; i < threads; i++) peak += (double)team.arena[i].high;
    printf("%s,%s batch %d k %d rank %d,%s,%d,%d,%.6g,%.6g,%.6g,%.4g,%.4g\n", pass_name[r->pass], r->model, B, r->k,
           r->rank, k->name, threads, reps, t[reps / 2], t[reps / 10], t[reps * 9 / 10],
           2e-9 * multiply_adds(net) * B * passes[r->pass] / t[reps / 2], peak / 1e6);
    fflush(stdout);
    hdo__team_clear(&team);
    hdo__arena_clear(&own);
    for (void *p[] = {X, g, in, tok, label, out, correct, net}, **q = p; q < p + 8; q++) hdo__free(*q);
}

int main(int argc, char **argv) {
    const char *filter = argc > 1 ? argv[1] : "";
    double seconds = argc > 2 ? atof(argv[2]) : 2.0;
    printf("bench,shape,backend,threads,reps,median_s,p10_s,p90_s,gflops,peak_mb\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s %s%s", pass_name[rows[i].pass], rows[i].model, rows[i].rank > 0 ? " low" : "");
        if (strstr(name, filter) == NULL) continue;
        for (int threads = 1; threads <= 2; threads++) run(&rows[i], threads, seconds);
    }
    return 0;
}
