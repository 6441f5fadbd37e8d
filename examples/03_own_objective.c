/* SPDX-License-Identifier: Apache-2.0
 *
 * Lesson 3: a function of your own, as a callback.
 *
 * Rosenbrock's valley in ten dimensions. Two nodes have its gradient, six only its values; they take their own steps
 * and average with random partners. `losses` takes many points in one call: for a zeroth-order node that is the speed.
 */
#include <stdio.h>

#include "hdo/hdo.h"

enum { D = 10 };

static double rosenbrock(const float *x) {
    double sum = 0.0;
    for (int j = 0; j + 1 < D; j++) {
        double a = 1.0 - (double)x[j], b = (double)x[j + 1] - (double)x[j] * (double)x[j];
        sum += a * a + 10.0 * b * b;
    }
    return sum;
}

/* Point k stands at points + k * stride. Return 0: fine; above 0: this evaluation failed; below 0: stop. */
static int losses(void *user, hdo_call *call, const hdo_samples *s, const float *points, size_t stride, int count,
                  double *loss) {
    (void)user, (void)call, (void)s;
    for (int k = 0; k < count; k++) loss[k] = rosenbrock(points + (size_t)k * stride);
    return 0;
}

static int gradient(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss, float *g) {
    (void)user, (void)call, (void)s;
    *loss = rosenbrock(x);
    for (int j = 0; j < D; j++) {
        double y = (double)x[j], sum = 0.0;
        if (j + 1 < D) sum += -2.0 * (1.0 - y) - 40.0 * y * ((double)x[j + 1] - y * y);
        if (j > 0) sum += 20.0 * (y - (double)x[j - 1] * (double)x[j - 1]);
        g[j] = (float)sum;
    }
    return 0;
}

int main(void) {
    const hdo_objective_def def = {.struct_size = sizeof def,
                                   .name = "rosenbrock",
                                   .flags = HDO_ANY_THREAD, /* nothing is written but the results */
                                   .dim = D,
                                   .losses = losses,
                                   .gradient = gradient};
    static const char settings[] = "steps: 3000\n"
                                   "eval: {every: 500}\n"
                                   "population:\n"
                                   "  fo: {count: 2, estimator: fo, lr: 0.003}\n"
                                   "  zo: {count: 6, estimator: fd, rv: 8, nu: 1.0e-4, lr: 0.002}\n";
    hdo_error e;
    hdo_stop why = HDO_RUNNING;
    hdo_run *run = NULL;
    hdo_config *c = hdo_config_new(NULL, &e);
    hdo_status st = c == NULL ? e.code : hdo_config_use_objective(c, &def, NULL, &e);
    if (st == HDO_OK) st = hdo_config_load_text(c, settings, &e);
    if (st == HDO_OK) st = hdo_run_new(&run, c, &e);
    while (st == HDO_OK && why == HDO_RUNNING) {
        st = hdo_run_advance(run, 500, &why, &e);
        if (st == HDO_OK)
            printf("step %4lld: loss of the mean model %.6f\n", (long long)hdo_run_step(run),
                   hdo_row_value(hdo_run_last_row(run), "val/loss_mu"));
    }
    double last = hdo_row_value(hdo_run_last_row(run), "val/loss_mu");
    if (st != HDO_OK) fprintf(stderr, "%s\n", e.msg);
    hdo_run_free(run);
    hdo_config_free(c);
    return st == HDO_OK && last < 0.01 ? 0 : 1;
}
