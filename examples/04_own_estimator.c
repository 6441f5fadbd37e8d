/* SPDX-License-Identifier: Apache-2.0
 *
 * Lesson 4: an estimator of your own.
 *
 * One that looks both ways along every direction and lets the *steepest* quarter of the directions speak. It is biased
 * in length, not in direction, and is held against the library's fd-central at the same number of passes. The oracle
 * counts passes, and its directions are addressed by seed, node and step: the run is the same every time.
 */
#include <math.h>
#include <stdio.h>

#include "hdo/hdo.h"

/* scratch: u (d), two points (2 d) and the sum (d): four numbers for each dimension. */
static int steepest(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g) {
    size_t d = hdo_oracle_dim(o);
    int rv = hdo_oracle_rv(o), taken = 0;
    float *u = hdo_oracle_scratch(o), *pair = u + d, nu = (float)hdo_oracle_nu(o);
    double limit = 0.0;
    (void)user, (void)call;
    for (size_t j = 0; j < d; j++) g[j] = 0.0f;
    for (int r = 0; r < rv; r++) {
        double loss[2];
        hdo_oracle_direction(o, r, u);
        for (size_t j = 0; j < d; j++) {
            pair[j] = x[j] + nu * u[j];
            pair[d + j] = x[j] - nu * u[j];
        }
        int failed = hdo_oracle_losses(o, pair, d, 2, loss);
        if (failed != 0) return failed; /* always pass on what the oracle returned */
        double slope = (loss[0] - loss[1]) / (2.0 * (double)nu);
        if (r < rv / 2) { /* the first half sets the bar */
            limit = fmax(limit, 0.7 * fabs(slope));
        } else if (fabs(slope) >= limit || (r == rv - 1 && taken == 0)) {
            for (size_t j = 0; j < d; j++) g[j] += (float)slope * u[j];
            taken++;
        }
    }
    for (size_t j = 0; j < d; j++) g[j] /= (float)taken;
    return 0;
}

static double train(const char *estimator, const hdo_estimator_def *def, double *passes) {
    char settings[400];
    hdo_error e;
    hdo_stop why = HDO_RUNNING;
    hdo_run *run = NULL;
    snprintf(settings, sizeof settings,
             "model: {name: quadratic, dim: 20, noise: 0.1, start: 3}\nsteps: 300\n"
             "population: {zo: {count: 8, estimator: %s, rv: 16, nu: 1.0e-3, lr: 0.02}}\n",
             estimator);
    hdo_config *c = hdo_config_new(NULL, &e);
    hdo_status st = c == NULL ? e.code : hdo_config_use_estimator(c, def, NULL, &e);
    if (st == HDO_OK) st = hdo_config_load_text(c, settings, &e);
    if (st == HDO_OK) st = hdo_run_new(&run, c, &e);
    while (st == HDO_OK && why == HDO_RUNNING) st = hdo_run_advance(run, 100, &why, &e);
    if (st != HDO_OK) fprintf(stderr, "%s\n", e.msg);
    double loss = hdo_row_value(hdo_run_last_row(run), "val/loss_mu");
    *passes = hdo_row_value(hdo_run_last_row(run), "oracle/forward");
    hdo_run_free(run);
    hdo_config_free(c);
    return loss;
}

int main(void) {
    const hdo_estimator_def def = {.struct_size = sizeof def,
                                   .name = "steepest",
                                   .help = "central differences, the steepest directions only",
                                   .flags = HDO_ANY_THREAD,
                                   .needs = HDO_NEED_LOSSES,
                                   .uses_directions = 1,
                                   .scratch_per_dim = 3 * sizeof(float),
                                   .estimate = steepest};
    double passes[2], mine = train("steepest", &def, &passes[0]), ours = train("fd-central", &def, &passes[1]);
    printf("steepest:   loss %.5f after %.0f forward passes\n", mine, passes[0]);
    printf("fd-central: loss %.5f after %.0f forward passes\n", ours, passes[1]);
    return mine < 0.1 && passes[0] == passes[1] ? 0 : 1;
}
