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

enum { D = 105, N1 = 8, N0 = 24 };

/* Loss of the mean model of one run; NaN when something went wrong. */
static double train_once(hdo_config *c, const char *seed, hdo_error *e) {
    hdo_run *run = NULL;
    hdo_stop why = HDO_RUNNING;
    hdo_status st = hdo_config_set(c, "seed", seed, e);
    if (st == HDO_OK) st = hdo_run_new(&run, c, e);
    while (st == HDO_OK && why == HDO_RUNNING) st = hdo_run_advance(run, 100, &why, e);
    double loss = hdo_row_value(hdo_run_last_row(run), "val/loss_mu"); /* NaN when there is no run */
    hdo_run_free(run);
    return loss;
}

/* The same after 400 steps, averaged over seeds. */
static double train(const char *population, const char *rv) {
    static const char *const seeds[] = {"0", "1", "2", "3", "4"};
    enum { SEEDS = sizeof seeds / sizeof seeds[0] };
    double sum = 0.0;
    hdo_error e = {.msg = ""};
    hdo_config *c = hdo_config_new("demo", &e);
    hdo_config_set(c, "population.zo.rv", rv, &e);
    hdo_config_set(c, "steps", "400", &e);
    hdo_config_set(c, "eval.every", "0", &e);
    hdo_config_population(c, population, &e);
    for (int s = 0; s < SEEDS; s++) sum += train_once(c, seeds[s], &e) / SEEDS;
    if (e.msg[0] != '\0') fprintf(stderr, "%s\n", e.msg);
    hdo_config_free(c);
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
