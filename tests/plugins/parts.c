/* SPDX-License-Identifier: Apache-2.0 — an estimator, a mixing and a sink in one plug-in, for tests/cli/api.bats. */
#include <stdio.h>
#include <string.h>

#include "hdo/hdo.h"
#include "hdo/plugin.h"

static int estimate(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g) {
    double loss;
    (void)user, (void)call;
    return hdo_oracle_gradient(o, x, &loss, g);
}

static int pairs(void *user, hdo_call *call, int n, int32_t *partner) {
    (void)user;
    for (int i = (int)(call->step % 2); i + 1 < n; i += 2) {
        partner[i] = i + 1;
        partner[i + 1] = i;
    }
    return 0;
}

/* Rows go to rows.txt in the run's folder. */
static FILE *file;
static int open_rows(void *user, hdo_call *call, const char *dir, const char *const *columns, int64_t from_step) {
    char path[600];
    (void)user, (void)columns;
    snprintf(path, sizeof path, "%s/rows.txt", dir != NULL ? dir : ".");
    file = fopen(path, from_step > 0 ? "a" : "w");
    if (file != NULL) return 0;
    snprintf(call->message, call->message_cap, "cannot write %s", path);
    return -1;
}
static int row(void *user, hdo_call *call, const struct hdo_row *r) {
    (void)user, (void)call;
    return fprintf(file, "%.0f %g\n", hdo_row_value(r, "step"), hdo_row_value(r, "val/loss_mu")) > 0 ? 0 : -1;
}
static int close_rows(void *user, hdo_call *call) {
    (void)user, (void)call;
    return fclose(file);
}

static const hdo_estimator_def estimator = {.struct_size = sizeof(hdo_estimator_def),
                                            .name = "plain",
                                            .identity = IDENTITY,
                                            .flags = HDO_ANY_THREAD,
                                            .needs = HDO_NEED_GRADIENT,
                                            .estimate = estimate};
static const hdo_mixing_def mixing = {
    .struct_size = sizeof(hdo_mixing_def), .name = "neighbours", .all_step = 1, .pairs = pairs};
static const hdo_sink_def sink = {
    .struct_size = sizeof(hdo_sink_def), .name = "rows", .open = open_rows, .row = row, .close = close_rows};

HDO_PLUGIN_EXPORT const hdo_plugin *hdo_plugin_entry(void) {
    static const hdo_plugin plugin = {
        .struct_size = sizeof plugin,
        .abi = HDO_ABI,
        .name = "parts",
        .parts = {.struct_size = sizeof(hdo_parts), .estimator = &estimator, .mixing = &mixing, .sink = &sink}};
    return &plugin;
}
