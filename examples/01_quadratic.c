/* SPDX-License-Identifier: Apache-2.0
 *
 * Lesson 1: a hybrid population on a problem with a known answer.
 *
 * Eight nodes minimise a quadratic with noisy gradients; four of them only see differences of function values. The
 * distance to the minimiser falls, and the nodes agree: Gamma, their spread around the mean, stays small.
 */
#include <stdio.h>

#include "hdo/hdo.h"

static int complain(const hdo_error *e) {
    fprintf(stderr, "%s\n", e->msg);
    return 1;
}

static void print_row(void *ctx, const hdo_row *row) {
    (void)ctx;
    printf("%6.0f %12.5g %12.5g %12.5g\n", hdo_row_value(row, "step"), hdo_row_value(row, "val/loss_mean"),
           hdo_row_value(row, "val/loss_mu"), hdo_row_value(row, "consensus/gamma"));
}

int main(void) {
    static const char yaml[] =
        "model: {name: quadratic, dim: 20, smoothness: 1, convexity: 0.2, noise: 0.5, start: 3}\n"
        "steps: 400\n"
        "population:\n"
        "  fo: {count: 4, estimator: fo, lr: 0.05}\n"
        "  zo: {count: 4, estimator: fd, rv: 16, nu: 1.0e-3, lr: 0.05}\n"
        "eval: {every: 50}\n";
    hdo_error e;
    hdo_config *c = hdo_config_new(NULL, &e);
    if (c == NULL || hdo_config_load_text(c, yaml, &e) != HDO_OK) return complain(&e);

    hdo_run *run;
    if (hdo_run_new(&run, c, &e) != HDO_OK || hdo_run_on_row(run, print_row, NULL, &e) != HDO_OK) return complain(&e);
    printf("%6s %12s %12s %12s\n", "step", "mean loss", "loss of mean", "Gamma");
    hdo_stop why = HDO_RUNNING;
    while (why == HDO_RUNNING) {
        if (hdo_run_advance(run, 100, &why, &e) != HDO_OK) return complain(&e);
    }
    int ok = why == HDO_COMPLETED && hdo_row_value(hdo_run_last_row(run), "val/loss_mu") < 0.05;
    hdo_run_free(run);
    hdo_config_free(c);
    return ok ? 0 : 1;
}
