/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the network engine share: networks by model name, and weights, inputs and labels by the hash
 * formula that tools/make_golden.py uses too.
 */
#ifndef HDO_TESTS_NN_HELP_H
#define HDO_TESTS_NN_HELP_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> /* wants the headers above first */

#include "hdo/experimental/config.h"
#include "nn/nn.h"

/* Number i of salt: in [-1, 1), a multiple of 2^-23. */
static inline double hashed(uint32_t i, uint32_t salt) {
    uint32_t x = i + salt * 0x9E3779B9u;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    return (double)(x >> 8) * 0x1p-23 - 1.0;
}

static inline bool ends_with(const char *name, const char *tail) {
    size_t n = strlen(name), m = strlen(tail);
    return n >= m && strcmp(name + n - m, tail) == 0;
}

static inline void hash_layout(const hdo_layout *t, uint32_t salt0, float *x) {
    for (int r = 0; r < t->n; r++) {
        const hdo_param *row = &t->row[r];
        float *plain = hdo__alloc(row->len * sizeof(float));
        double scale = sqrt((row->n_dim == 2 ? 6.0 : 3.0) / (double)(row->len / (size_t)row->dim[0]));
        for (size_t i = 0; i < row->len; i++) {
            double v = hashed((uint32_t)i, salt0 + (uint32_t)r + 1), w;
            if (ends_with(row->name, "running_mean")) {
                w = 0.1 * v;
            } else if (ends_with(row->name, "running_var")) {
                w = 1.0 + 0.5 * v;
            } else if (row->n_dim == 1 && ends_with(row->name, "weight")) {
                w = 1.0 + 0.25 * v;
            } else if (row->n_dim == 1) {
                w = 0.1 * v;
            } else {
                w = v * scale;
            }
            plain[i] = (float)w;
        }
        hdo__split_store(&row->split, row->len, plain, x + row->off);
        hdo__free(plain);
    }
}

/* Parameters and buffers of net into x (d + n_buf). */
static inline void hash_weights(const hdo_net *net, float *x) {
    hash_layout(&net->params, 0, x);
    hash_layout(&net->buffers, 1000, x + net->params.total);
}

/* A problem: network, parameters, samples and memory. */
typedef struct nn_case {
    hdo_net *net;
    float *x; /* (d + n_buf) */
    float *in;
    int32_t *tok, *label;
    hdo_net_samples s;
    hdo_team team;
    hdo_work work;
    hdo_arena arena;
} nn_case;

/* text: a description in the layer language. vocab > 0: token data of W positions. */
static inline void nn_open(nn_case *c, int kernels, const char *text, int C, int H, int W, int vocab, int classes,
                           int B, double dropout, int k, int threads) {
    memset(c, 0, sizeof *c);
    hdo_error e = {0};
    hdo_net_words words = {.classes = classes, .dropout = dropout};
    c->net = hdo__net_create(hdo__kernels(kernels), C, H, W, vocab, classes);
    assert_non_null(c->net);
    hdo_status st = hdo__net_parse(c->net, text, &words, &e);
    if (st != HDO_OK) print_error("%s\n", e.msg);
    assert_int_equal(st, HDO_OK);
    hdo__net_plan(c->net);
    size_t d = c->net->params.total, n = (size_t)B * c->net->value[0].n;
    c->x = hdo__alloc((d + c->net->buffers.total) * sizeof(float));
    hash_weights(c->net, c->x);
    c->label = hdo__alloc((size_t)B * sizeof(int32_t));
    for (int i = 0; i < B; i++) c->label[i] = (int32_t)((hashed((uint32_t)i, 8888) + 1.0) * 0.5 * (double)classes);
    if (vocab > 0) {
        c->tok = hdo__alloc(n * sizeof(int32_t));
        for (size_t i = 0; i < n; i++) c->tok[i] = (int32_t)((hashed((uint32_t)i, 7777) + 1.0) * 0.5 * (double)vocab);
    } else {
        c->in = hdo__alloc(n * sizeof(float));
        for (size_t i = 0; i < n; i++) c->in[i] = (float)(2.0 * hashed((uint32_t)i, 7777));
    }
    c->s = (hdo_net_samples){
        .size = B, .in = c->in, .tok = c->tok, .label = c->label, .seed = 7, .node = 3, .step = 11, .train = true};
    size_t bytes = hdo__net_work(c->net, B, k);
    assert_int_equal(hdo__team_init(&c->team, threads, bytes), HDO_OK);
    assert_int_equal(hdo__arena_init(&c->arena, bytes), HDO_OK);
    /* One thread: the arena is the team's, as inside a task of a wider team. */
    c->work = (hdo_work){threads == 1 ? &c->team.arena[0] : &c->arena, &c->team, 0};
}

static inline void nn_close(nn_case *c) {
    hdo__arena_clear(&c->arena);
    hdo__team_clear(&c->team);
    hdo__free(c->x);
    hdo__free(c->in);
    hdo__free(c->tok);
    hdo__free(c->label);
    hdo__free(c->net);
}

/* A network by its text, for tables of small ones. */
typedef struct nn_row {
    const char *text;
    int C, H, W, vocab, classes, batch;
} nn_row;

static inline void nn_open_row(nn_case *c, int kernels, const nn_row *r, int most_dirs, int threads) {
    nn_open(c, kernels, r->text, r->C, r->H, r->W, r->vocab, r->classes, r->batch, 0.1, most_dirs, threads);
}

/* A built-in model on its usual input: MNIST-like, CIFAR-like or brackets-like. */
static inline void nn_open_model(nn_case *c, int kernels, const char *name, bool authors, int B, double dropout, int k,
                                 int threads) {
    const char *text = hdo__model_text(name, authors);
    assert_non_null(text);
    if (strcmp(name, "transformer") == 0) {
        nn_open(c, kernels, text, 1, 1, authors ? 514 : 258, 6, 2, B, dropout, k, threads);
    } else if (strcmp(name, "resnet18") == 0) {
        nn_open(c, kernels, text, 3, 32, 32, 0, 10, B, dropout, k, threads);
    } else {
        nn_open(c, kernels, text, 1, 28, 28, 0, 10, B, dropout, k, threads);
    }
}

static inline hdo_dirs nn_dirs(const nn_case *c) {
    return (hdo_dirs){
        .s = hdo__stream(5, HDO_RNG_DIRECTION, 1, 2, 0), .dist = HDO_DIST_GAUSSIAN, .d = c->net->params.total};
}

static inline double relative(double a, double b) {
    double m = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
    return m > 0 ? fabs(a - b) / m : 0;
}

#endif
