/* SPDX-License-Identifier: Apache-2.0
 *
 * Lesson 2: are zeroth-order nodes worth adding?
 *
 * Theory answers before anything runs: at equal rounds n0 zeroth-order nodes help n1 first-order ones when a0/a1, the
 * ratio of their noise, is below 2 + n0/n1. Then we run with few and with many random vectors and look.
 */
#include <stdio.h>

#include "hdo/hdo.h"
#include "hdo/lab/theory.h"

enum { D = 105, N1 = 8, N0 = 24, SEEDS = 5 };

/* Loss of the mean model after 400 steps, averaged over seeds; negative when something went wrong. */
static double train(const char *population, const char *rv) {
    double sum = 0.0;
    for (int s = 0; s < SEEDS; s++) {
        hdo_error e;
        hdo_config c;
        hdo_run *run;
        hdo_stop why = HDO_RUNNING;
        hdo_config_default(&c);
        const char *yaml = hdo_preset("demo");
        size_t len = 0;
        while (yaml[len] != '\0') len++;
        if (hdo_config_load_text(&c, "demo", yaml, len, &e) != HDO_OK ||
            hdo_config_set(&c, "population.zo.rv", rv, HDO_FROM_FLAG, &e) != HDO_OK ||
            hdo_config_population(&c, population, &e) != HDO_OK) {
            fprintf(stderr, "%s\n", e.msg);
            return -1.0;
        }
        c.seed = s;
        c.steps = 400;
        c.eval.every = 0;
        if (hdo_run_create(&run, &c, NULL, &e) != HDO_OK) return -1.0;
        while (why == HDO_RUNNING && hdo_run_advance(run, 100, &why, &e) == HDO_OK) continue;
        sum += hdo_run_last_row(run)->mu_loss / SEEDS;
        hdo_run_destroy(run);
    }
    return sum;
}

int main(void) {
    static const char *const rv_text[] = {"4", "64"};
    static const int rv[] = {4, 64};
    double alone = train("8fo", "1");
    printf("8 first-order nodes alone: loss %.4f\n", alone);
    printf("zeroth-order nodes help from rv = %.0f on, says the theory\n",
           hdo_theory_zo_rv(D, N0, N1, 1.0, 1.0, 0.0, 2.0));
    int right = alone > 0.0;
    for (int k = 0; k < 2; k++) {
        double a0 = 1.0 + (D + 1.0) / rv[k];
        hdo_zo_help h = hdo_theory_zo_help(N0, N1, a0, 1.0, 0.0, 0.0, false);
        double loss = train("8fo+24zo", rv_text[k]);
        printf("rv = %2d: noise %.2f times a first-order node's; predicted %s, measured loss %.4f (%s)\n", rv[k], a0,
               h.match < 1.0 ? "help" : "harm", loss, loss < alone ? "helped" : "harmed");
        right = right && (h.match < 1.0) == (loss < alone);
    }
    return right ? 0 : 1;
}
