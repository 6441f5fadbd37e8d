/* SPDX-License-Identifier: Apache-2.0
 *
 * A plug-in for the tests: a noisy bowl, sum_j h (x_j - 1)^2 / 2 + <xi, x>, with options {"dim": d, "noise": s}; and,
 * with -DWRONG=..., every way to be wrong.
 */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdo/plugin.h"

enum {
    RIGHT,
    OLD_ABI,
    NEW_ABI,
    NULL_PLUGIN,
    NULL_TABLE,
    SMALL_TABLE,
    NO_LOSS,
    NO_DIM,
    LOSS_NAN,
    WRITES_X,
    HANGS,
    CRASHES,
    LONGJMPS,
    EXITS,
    RANDOM,
    STOPS,
    SKIPS,
    REFUSES,
    STOPS_LATER
};
#ifndef WRONG
#define WRONG RIGHT
#endif
#ifndef IDENTITY
#define IDENTITY "bowl 1"
#endif

typedef struct bowl {
    size_t dim;
    double noise;
} bowl;

static jmp_buf back;
static int jumps;

/* One number of the noise: a hash of its address. */
static double draw(const hdo_call *c, size_t j) {
    uint64_t z = c->seed * 0x9e3779b97f4a7c15u + (uint64_t)(c->node + 2) * 0xbf58476d1ce4e5b9u +
                 (uint64_t)(c->step + 2) * 0x94d049bb133111ebu + j;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)(z >> 11) / 9007199254740992.0 - 0.5;
}

static int wrong(hdo_call *call, const float *x, double *loss) {
    if (WRONG == LOSS_NAN) *loss = (double)NAN;
    if (WRONG == WRITES_X) ((float *)(size_t)x)[0] += 1.0f;
    if (WRONG == HANGS) sleep(1000);
    if (WRONG == CRASHES) *(volatile int *)8 = 1;
    if (WRONG == LONGJMPS && jumps++ == 0) longjmp(back, 1);
    if (WRONG == EXITS) exit(0);
    if (WRONG == RANDOM) *loss += 1e-3 * (double)jumps++;
    if (WRONG == STOPS || (WRONG == STOPS_LATER && call->step == 3 && call->node == 2)) {
        snprintf(call->message, call->message_cap, "the bowl is broken (node %d, step %d)", (int)call->node,
                 (int)call->step);
        return -1;
    }
    if (WRONG == SKIPS && call->node == 1 && call->step % 4 == 2) return 1;
    return 0;
}

static int loss(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *out) {
    const bowl *b = user;
    double sum = 0.0;
    for (size_t j = 0; j < b->dim; j++) {
        double y = (double)x[j] - 1.0;
        sum += 0.5 * y * y;
        if (s->train || call->node >= 0) sum += b->noise * draw(call, j) * (double)x[j];
    }
    *out = sum;
    return wrong(call, x, out);
}

static int losses(void *user, hdo_call *call, const hdo_samples *s, const float *points, size_t stride, int count,
                  double *out) {
    int st = 0;
    for (int k = 0; k < count && st == 0; k++) st = loss(user, call, s, points + (size_t)k * stride, &out[k]);
    return st;
}

static int gradient(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *out, float *g) {
    const bowl *b = user;
    for (size_t j = 0; j < b->dim; j++) {
        double noise = s->train || call->node >= 0 ? b->noise * draw(call, j) : 0.0;
        g[j] = (float)((double)x[j] - 1.0 + noise);
    }
    return loss(user, call, s, x, out);
}

static int start(void *user, hdo_call *call, float *x) {
    (void)user, (void)call;
    memset(x, 0, sizeof *x);
    if (WRONG == LONGJMPS) (void)setjmp(back);
    return 0;
}

static hdo_objective_def table = {.struct_size = sizeof table,
                                  .name = "bowl",
                                  .identity = IDENTITY,
                                  .flags = HDO_ANY_THREAD,
                                  .dim = WRONG == NO_DIM ? 0 : 8,
                                  .start = start,
                                  .loss = WRONG == NO_LOSS ? NULL : loss,
                                  .losses = WRONG == NO_LOSS ? NULL : losses,
#ifndef NO_GRADIENT
                                  .gradient = gradient
#endif
};

static int create(const char *options, hdo_parts *parts, char *message, size_t cap) {
    bowl *b = malloc(sizeof *b);
    const char *dim = strstr(options, "\"dim\": "), *noise = strstr(options, "\"noise\": ");
    if (b == NULL) return 1;
    if (WRONG == REFUSES || strstr(options, "\"colour\"") != NULL) {
        snprintf(message, cap, "a bowl has no colour; its options are dim and noise");
        free(b);
        return 1;
    }
    b->dim = dim != NULL ? (size_t)atoi(dim + 7) : table.dim;
    b->noise = noise != NULL ? atof(noise + 9) : 0.1;
    if (WRONG != NO_DIM) table.dim = b->dim;
    parts->user = b;
    parts->objective = WRONG == NULL_TABLE ? NULL : &table;
    return 0;
}

static const hdo_plugin plugin = {.struct_size = WRONG == SMALL_TABLE ? 4 : sizeof plugin,
                                  .abi = WRONG == OLD_ABI   ? HDO_ABI - 1
                                         : WRONG == NEW_ABI ? HDO_ABI + 1
                                                            : HDO_ABI,
                                  .name = "bowls",
                                  .version = "1",
                                  .parts = {.struct_size = sizeof(hdo_parts)},
                                  .create = create,
                                  .destroy = free};

#ifdef MISSING_SYMBOL
const hdo_plugin *other_entry(void);
HDO_PLUGIN_EXPORT const hdo_plugin *other_entry(void) {
#else
const hdo_plugin *hdo_plugin_entry(void);
HDO_PLUGIN_EXPORT const hdo_plugin *hdo_plugin_entry(void) {
#endif
    return WRONG == NULL_PLUGIN ? NULL : &plugin;
}
