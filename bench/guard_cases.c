/* SPDX-License-Identifier: Apache-2.0
 *
 * Fixed small pieces of work for bench/guard, which counts their instructions: `guard_cases NAME` does one, once warmed
 * up, inside the function `counted` (callgrind's --toggle-collect), so that loading, wiring and data do not count.
 * `guard_cases --list` prints the names. One thread, own data, no clock: the count is the same whatever the machine
 * does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "hdo/experimental/all.h"
#include "kernels/kernels.h"
#include "nn/nn.h"

static void die(const char *what) {
    fprintf(stderr, "guard_cases: %s\n", what);
    exit(1);
}

static void *get(size_t bytes) {
    void *p = hdo__alloc(bytes);
    if (p == NULL) die("no memory");
    return p;
}

static void (*work)(void *);
static void *work_arg;

void counted(void); /* external and never inlined: callgrind finds it by name */
__attribute__((noinline)) void counted(void) {
    work(work_arg);
}

static void count(void (*fn)(void *), void *arg) {
    fn(arg); /* tables, page faults, lazy binding */
    work = fn;
    work_arg = arg;
    counted();
}

/* ---- random numbers and vectors ---- */

typedef struct block {
    size_t n;
    float *x, *y;
} block;

static void do_normals(void *p) {
    block *b = p;
    hdo__rng_normal(hdo__stream(1, HDO_RNG_TEST, 0, 0, 0), 0, b->n, b->x);
}
static void do_vectors(void *p) {
    block *b = p;
    hdo__average(b->n, b->x, b->y);
    hdo__axpby(b->n, 0.5f, b->x, 0.5f, b->y);
    b->x[0] = (float)hdo__dot(b->n, b->x, b->y);
}
static void vectors(const char *name) {
    block b = {100000, get(400000), get(400000)};
    count(strcmp(name, "normals") == 0 ? do_normals : do_vectors, &b);
}

/* ---- runs without data files: steps of nodes, evaluation ---- */

static void do_steps(void *p) {
    if (hdo_run_advance(p, 5, NULL, NULL) != HDO_OK) die("a step failed");
}

static void population(const char *const *set) {
    static hdo_config c;
    hdo_error e = {0};
    hdo_run *r = NULL;
    static const char base[] = "model: logistic\n"
                               "data: {name: synthetic, features: 784, classes: 10, train: 2000, val: 500}\n"
                               "steps: 100000\nthreads: 1\neval: {every: 0}\n"
                               "population:\n  zo: {count: 8, estimator: fo, rv: 16, lr: 1.0e-6, batch: 2}\n";
    hdo_config_default(&c);
    if (hdo_config_load_bytes(&c, "guard", base, sizeof base - 1, &e) != HDO_OK) die(e.msg);
    hdo_config_as_base(&c);
    for (; set[0] != NULL; set += 2) {
        if (hdo_config_set_from(&c, set[0], set[1], HDO_FROM_FLAG, &e) != HDO_OK) die(e.msg);
    }
    if (hdo_run_create(&r, &c, NULL, &e) != HDO_OK) die(e.msg);
    count(do_steps, r);
}

static void steps(const char *name) {
    static const char *const fo[] = {NULL}, *const law[] = {"population.zo.estimator", "forward-law", NULL},
                             *const sim[] = {"population.zo.estimator", "forward-sim", NULL},
                             *const fd[] = {"population.zo.estimator", "fd", NULL},
                             *const evaluate[] = {"eval.every", "1", NULL},
                             *const many[] = {"model", "quadratic",           "model.dim", "10", "data",
                                              "none",  "population.zo.count", "2000",      NULL};
    static const struct {
        const char *name;
        const char *const *set;
    } all[] = {{"step-fo", fo}, {"step-forward-law", law}, {"step-forward-sim", sim},
               {"step-fd", fd}, {"evaluate", evaluate},    {"many-nodes", many}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i].name, name) == 0) population(all[i].set);
    }
}

/* ---- gradients and directions of the networks ---- */

typedef struct pass {
    hdo_net *net;
    hdo_net_samples b;
    hdo_dirs u;
    hdo_team team;
    float *x, *g;
    double *loss;
    int K;
} pass;

static void do_grad(void *p) {
    pass *q = p;
    hdo_work w = {&q->team.arena[0], &q->team, 0};
    hdo__net_grad(q->net, &q->b, q->x, &w, q->g, q->loss, NULL);
}
static void do_many(void *p) {
    pass *q = p;
    hdo_work w = {&q->team.arena[0], &q->team, 0};
    hdo__net_loss_many(q->net, &q->b, q->x, &q->u, 0, q->K, 1e-4f, &w, q->loss);
}

static void network(const char *name) {
    static const struct {
        const char *name, *model;
        int kind, B, K; /* kind: HDO_PASS_... */
    } all[] = {{"grad-mlp", "mlp", HDO_PASS_GRAD, 8, 1},
               {"grad-cnn3", "cnn3", HDO_PASS_GRAD, 32, 1},
               {"grad-transformer", "transformer", HDO_PASS_GRAD, 4, 1},
               {"grad-resnet18", "resnet18", HDO_PASS_GRAD, 2, 1},
               {"many-cnn3", "cnn3", HDO_PASS_MANY, 32, 4}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i].name, name) != 0) continue;
        bool tokens = strcmp(all[i].model, "transformer") == 0, colour = strcmp(all[i].model, "resnet18") == 0;
        int side = colour ? 32 : 28, classes = tokens ? 2 : 10, B = all[i].B;
        const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
        pass q = {.K = all[i].K};
        q.net = tokens ? hdo__net_create(k, 1, 1, 258, 6, classes)
                       : hdo__net_create(k, colour ? 3 : 1, side, side, 0, classes);
        hdo_net_words words = {.classes = classes, .dropout = 0.1};
        hdo_error e;
        if (q.net == NULL || hdo__net_parse(q.net, hdo__model_text(all[i].model, false), &words, &e) != HDO_OK)
            die("no net");
        hdo__net_plan(q.net);
        size_t d = q.net->params.total, n = (size_t)B * q.net->value[0].n;
        float *in = get(n * sizeof(float));
        int32_t *tok = get(n * sizeof(int32_t)), *label = get((size_t)B * sizeof(int32_t));
        hdo_stream s = hdo__stream(1, HDO_RNG_TEST, 0, 0, 0);
        hdo__rng_normal(s, 0, n, in);
        for (size_t j = 0; j < n; j++) tok[j] = (int32_t)(j % 6);
        for (int j = 0; j < B; j++) label[j] = j % classes;
        q.x = get((d + q.net->buffers.total) * sizeof(float));
        q.g = get(d * sizeof(float));
        q.loss = get((size_t)q.K * sizeof(double));
        q.b = (hdo_net_samples){.size = B, .in = in, .tok = tok, .label = label, .train = true};
        q.u = (hdo_dirs){.s = hdo__stream(1, HDO_RNG_DIRECTION, 0, 0, 0), .dist = HDO_DIST_GAUSSIAN, .d = d};
        hdo__net_init(q.net, HDO_INIT_PYTORCH, 0, 1, q.x);
        if (hdo__team_init(&q.team, 1, hdo__net_work_for(q.net, all[i].kind, B, q.K)) != HDO_OK) die("no memory");
        count(all[i].kind == HDO_PASS_GRAD ? do_grad : do_many, &q);
    }
}

static const struct {
    const char *name;
    void (*run)(const char *name);
} cases[] = {{"normals", vectors},        {"vectors", vectors},          {"step-fo", steps},
             {"step-forward-law", steps}, {"step-forward-sim", steps},   {"step-fd", steps},
             {"evaluate", steps},         {"many-nodes", steps},         {"grad-mlp", network},
             {"grad-cnn3", network},      {"grad-transformer", network}, {"grad-resnet18", network},
             {"many-cnn3", network}};

int main(int argc, char **argv) {
    if (argc != 2) die("usage: guard_cases NAME | --list");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strcmp(argv[1], "--list") == 0) {
            printf("%s\n", cases[i].name);
        } else if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run(argv[1]);
            return 0;
        }
    }
    if (strcmp(argv[1], "--list") != 0) die("no such case; --list shows them");
    return 0;
}
