/* SPDX-License-Identifier: Apache-2.0
 *
 * Lesson 6: ask and tell. The oracle is not a function but a laboratory: points go out, results come back when they are
 * ready, in any order; some never do.
 *
 * Three machines work at once. One node gets gradients, three get values. A point that breaks a machine is told as
 * failed: its node leaves out that step, and the run goes on.
 */
#include <stdio.h>

#include "hdo/hdo.h"

enum { D = 4, MACHINES = 3 };

/* What a machine measures: how far the mixture is from the best one, (0.1, 0.2, 0.3, 0.4). */
static double measure(const float *x, float *g) {
    double sum = 0.0;
    for (int j = 0; j < D; j++) {
        double off = (double)x[j] - 0.1 * (j + 1);
        sum += off * off;
        g[j] = (float)(2.0 * off);
    }
    return sum;
}

int main(void) {
    /* No callbacks: whoever runs this asks and tells. */
    const hdo_objective_def mixture = {.struct_size = sizeof mixture, .name = "mixture", .dim = D};
    static const char settings[] = "steps: 60\n"
                                   "population:\n"
                                   "  fo: {count: 1, estimator: fo, lr: 0.1}\n"
                                   "  zo: {count: 3, estimator: fd-central, rv: 2, nu: 0.01, lr: 0.05}\n";
    hdo_error e;
    hdo_run *run = NULL;
    hdo_stop why = HDO_RUNNING;
    hdo_question out[MACHINES];
    int n = 0, measured = 0;
    hdo_config *c = hdo_config_new(NULL, &e);
    hdo_status st = c == NULL ? e.code : hdo_config_use_objective(c, &mixture, NULL, &e);
    if (st == HDO_OK) st = hdo_config_load_text(c, settings, &e);
    if (st == HDO_OK) st = hdo_run_new(&run, c, &e);
    while (st == HDO_OK && why == HDO_RUNNING) {
        st = hdo_ask(run, MACHINES, out, &n, &why, &e);    /* one point for each machine, or fewer */
        for (int k = n - 1; k >= 0 && st == HDO_OK; k--) { /* the last machine is the first to be done */
            float g[D];
            double value = measure(out[k].x, g);
            if (++measured % 50 == 0) { /* the glass broke */
                st = hdo_tell_failed(run, out[k].id, &e);
            } else {
                st = hdo_tell(run, out[k].id, value, out[k].kind == HDO_QUESTION_GRADIENT ? g : NULL, &e);
            }
        }
    }
    if (st != HDO_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    float mean[D], g[D];
    st = hdo_run_mean(run, mean, &e);
    printf("%d measurements; the best mixture:", measured);
    for (int j = 0; j < D; j++) printf(" %.3f", (double)mean[j]);
    printf("\n");
    hdo_run_free(run);
    hdo_config_free(c);
    return st == HDO_OK && measure(mean, g) < 1e-4 ? 0 : 1;
}
