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
    printf("%6lld %12.5g %12.5g %12.5g\n", (long long)row->step, row->all.loss_mean, row->mu_loss, row->gamma);
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
    hdo_config c;
    hdo_config_default(&c);
    if (hdo_config_load_text(&c, "lesson 1", yaml, sizeof yaml - 1, &e) != HDO_OK) return complain(&e);

    hdo_hooks hooks = {.row = print_row};
    hdo_run *run;
    if (hdo_run_create(&run, &c, &hooks, &e) != HDO_OK) return complain(&e);
    printf("%6s %12s %12s %12s\n", "step", "mean loss", "loss of mean", "Gamma");
    hdo_stop why = HDO_RUNNING;
    while (why == HDO_RUNNING) {
        if (hdo_run_advance(run, 100, &why, &e) != HDO_OK) return complain(&e);
    }
    int ok = why == HDO_COMPLETED && hdo_run_last_row(run)->mu_loss < 0.05;
    hdo_run_destroy(run);
    return ok ? 0 : 1;
}
