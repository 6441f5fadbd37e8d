/* @NAME@: an objective for hdo, as a plug-in.
 *
 * Replace `value` and `slope` by your function. Without a gradient take `gradient` out of the table: nodes can then be
 * of zeroth order only. <hdo/objective.h> says what a callback gets and what it may do.
 */
#include <hdo/plugin.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIM = 8 };

typedef struct settings { /* one use of the plug-in */
    double curvature;
} settings;

/* An example: a bowl around (1, 1, ...), steeper in later coordinates. */
static double value(const settings *s, const float *x, float *g) {
    double sum = 0.0;
    for (int j = 0; j < DIM; j++) {
        double off = (double)x[j] - 1.0, h = s->curvature * (j + 1) / DIM;
        sum += 0.5 * h * off * off;
        if (g != NULL) g[j] = (float)(h * off);
    }
    return sum;
}

static int loss(void *user, hdo_call *call, const hdo_samples *samples, const float *x, double *out) {
    (void)call, (void)samples;
    *out = value(user, x, NULL);
    return 0; /* above 0: this evaluation failed, go on; below 0: stop, with a sentence in call->message */
}

static int gradient(void *user, hdo_call *call, const hdo_samples *samples, const float *x, double *out, float *g) {
    (void)call, (void)samples;
    *out = value(user, x, g);
    return 0;
}

static const hdo_objective_def objective = {.struct_size = sizeof(hdo_objective_def),
                                            .name = "@NAME@",
                                            .identity = "@NAME@ 1", /* change it when the function changes */
                                            .flags = HDO_ANY_THREAD,
                                            .dim = DIM,
                                            .loss = loss,
                                            .gradient = gradient};

/* options: what stands under `options` in the configuration, as JSON. */
static int create(const char *options, hdo_parts *parts, char *message, size_t cap) {
    settings *s = calloc(1, sizeof *s);
    int used = 0;
    if (s == NULL) return 1;
    s->curvature = 1.0;
    sscanf(options, " { %n", &used);
    if (options[used] != '}' && (sscanf(options, " { \"curvature\" : %lf }%n", &s->curvature, &used) != 1 ||
                                 options[used] != '\0' || !(s->curvature > 0.0))) {
        snprintf(message, cap, "options are %s, but only a positive 'curvature' is known", options);
        free(s);
        return 1;
    }
    parts->user = s;
    return 0;
}

static const hdo_plugin plugin = {.struct_size = sizeof(hdo_plugin),
                                  .abi = HDO_ABI,
                                  .name = "@NAME@",
                                  .version = "1",
                                  .parts = {.struct_size = sizeof(hdo_parts), .objective = &objective},
                                  .create = create,
                                  .destroy = free};

HDO_PLUGIN_EXPORT const hdo_plugin *hdo_plugin_entry(void) {
    return &plugin;
}
