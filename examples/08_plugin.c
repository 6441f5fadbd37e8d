/* SPDX-License-Identifier: Apache-2.0
 *
 * Lesson 8: a plug-in. The same table in a shared object, for configurations and the command `hdo`:
 *
 *     cc -shared -fPIC $(pkg-config --cflags hdo) 08_plugin.c -o libspring.so -lm
 *     hdo run 08_plugin.yaml -o springs
 *
 * A chain of springs between two walls, pulled at by gravity; its energy is minimised. How many knots it has is an
 * option of the configuration, so `dim` is set when the plug-in is made. It links nothing of the library.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hdo/plugin.h"

typedef struct chain {
    int n;
    double stiffness;
} chain;

/* Heights x of the n knots; the walls hold both ends at 0. */
static int energy(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss, float *g) {
    const chain *c = user;
    double sum = 0.0;
    (void)call, (void)s;
    for (int i = 0; i <= c->n; i++) {
        double left = i > 0 ? (double)x[i - 1] : 0.0, right = i < c->n ? (double)x[i] : 0.0, stretch = right - left;
        sum += 0.5 * c->stiffness * stretch * stretch + (i < c->n ? right : 0.0);
        if (i > 0) g[i - 1] -= (float)(c->stiffness * stretch);
        if (i < c->n) g[i] = (float)(c->stiffness * stretch + 1.0);
    }
    *loss = sum;
    if (isfinite(sum)) return 0;
    snprintf(call->message, call->message_cap, "the chain broke: take a smaller lr");
    return -1; /* ends the run with this sentence */
}

static int loss_only(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss) {
    float *g = malloc((size_t)((const chain *)user)->n * sizeof *g);
    int result = g != NULL ? energy(user, call, s, x, loss, g) : 1; /* above 0: the node leaves out this step */
    free(g);
    return result;
}

/* options: model.options as JSON. A real plug-in would use a JSON reader. */
static int create(const char *options, hdo_parts *parts, char *message, size_t cap) {
    static const hdo_objective_def spring = {.struct_size = sizeof spring,
                                             .name = "spring",
                                             .identity = "spring 1",
                                             .flags = HDO_ANY_THREAD,
                                             .loss = loss_only,
                                             .gradient = energy};
    static _Thread_local hdo_objective_def def; /* copied when create returns */
    chain *c = calloc(1, sizeof *c);
    if (c == NULL) return 1;
    if (sscanf(options, " { \"knots\" : %d , \"stiffness\" : %lf }", &c->n, &c->stiffness) != 2 || c->n < 1 ||
        !(c->stiffness > 0.0)) {
        snprintf(message, cap, "options are %s, but must be {knots: 1 or more, stiffness: above 0}", options);
        free(c);
        return 1;
    }
    def = spring;
    def.dim = (size_t)c->n;
    parts->objective = &def;
    parts->user = c;
    return 0;
}

HDO_PLUGIN_EXPORT const hdo_plugin *hdo_plugin_entry(void) {
    static const hdo_plugin plugin = {.struct_size = sizeof plugin,
                                      .abi = HDO_ABI,
                                      .name = "spring",
                                      .version = "1",
                                      .parts = {.struct_size = sizeof(hdo_parts)},
                                      .create = create,
                                      .destroy = free};
    return &plugin;
}
