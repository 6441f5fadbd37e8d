/* SPDX-License-Identifier: Apache-2.0
 *
 * A plug-in for tests: softmax regression on whatever data the configuration names, by losses alone. Node 2 cannot
 * evaluate in every seventh step.
 */
#include <hdo/plugin.h>
#include <math.h>
#include <stdio.h>

enum { FEATURES = 6, CLASSES = 3 };

static double row_loss(const float *in, int label, const float *x) {
    double a[CLASSES], top = -HUGE_VAL, z = 0.0;
    for (int k = 0; k < CLASSES; k++) {
        const float *w = x + k * (FEATURES + 1);
        a[k] = (double)w[FEATURES];
        for (int j = 0; j < FEATURES; j++) a[k] += (double)w[j] * (double)in[j];
        if (a[k] > top) top = a[k];
    }
    for (int k = 0; k < CLASSES; k++) z += exp(a[k] - top);
    return log(z) + top - a[label];
}

static int loss(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *out) {
    (void)user;
    double sum = 0.0;
    if (s->inputs == NULL || s->labels == NULL || s->n_in != FEATURES) {
        snprintf(call->message, call->message_cap, "no samples of %d numbers came", FEATURES);
        return -1;
    }
    if (call->node == 2 && call->step % 7 == 3) return 1;
    for (int i = 0; i < s->count; i++) sum += row_loss(s->inputs + (size_t)i * FEATURES, s->labels[i], x);
    *out = sum / s->count;
    return 0;
}

static const hdo_objective_def objective = {.struct_size = sizeof objective,
                                            .name = "softmax",
                                            .flags = HDO_ANY_THREAD | HDO_WANT_DATA,
                                            .dim = CLASSES * (FEATURES + 1),
                                            .loss = loss};
static const hdo_plugin plugin = {.struct_size = sizeof plugin,
                                  .abi = HDO_ABI,
                                  .name = "softmax",
                                  .version = "1",
                                  .parts = {.struct_size = sizeof(hdo_parts), .objective = &objective}};

HDO_PLUGIN_EXPORT const hdo_plugin *hdo_plugin_entry(void) {
    return &plugin;
}
