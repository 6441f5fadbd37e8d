/* SPDX-License-Identifier: Apache-2.0
 *
 * Lesson 5: data of your own.
 *
 * Two moons, each sample computed from its number when it is asked for: nothing is stored, and sample i is the same on
 * every thread and in every run. The library's own network trains on it, split over the nodes like any other data set.
 */
#include <math.h>
#include <stdio.h>

#include "hdo/hdo.h"

/* A number in (0, 1) from a sample's number: any good mixing of bits will do (splitmix64). */
static double random_of(uint64_t seed) {
    uint64_t z = seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)(z >> 11) + 0.5) / 9007199254740992.0;
}

/* Validation samples have numbers of their own. */
static int gather(void *user, hdo_call *call, int train, int count, const int64_t *index, float *inputs,
                  int32_t *tokens, int32_t *labels) {
    (void)user, (void)call, (void)tokens;
    for (int k = 0; k < count; k++) {
        uint64_t id = 8 * (uint64_t)index[k] + (train ? 0u : 4u);
        double angle = 3.14159265358979 * random_of(id), r = 1.0 + 0.2 * (random_of(id + 1) - 0.5);
        int upper = random_of(id + 2) < 0.5;
        inputs[2 * k] = (float)(upper ? r * cos(angle) : 1.0 - r * cos(angle));
        inputs[2 * k + 1] = (float)(upper ? r * sin(angle) : 0.4 - r * sin(angle));
        labels[k] = upper;
    }
    return 0;
}

int main(void) {
    const hdo_dataset_def moons = {.struct_size = sizeof moons,
                                   .name = "moons",
                                   .identity = "two moons, width 0.2, version 1",
                                   .flags = HDO_ANY_THREAD,
                                   .train_count = 4000,
                                   .val_count = 1000,
                                   .n_in = 2,
                                   .classes = 2,
                                   .gather = gather};
    static const char settings[] = "model: {name: custom, layers: 'linear 16, relu, linear 2'}\n"
                                   "steps: 600\n"
                                   "eval: {every: 200}\n"
                                   "population:\n"
                                   "  fo: {count: 2, estimator: fo, lr: 0.3, batch: 32}\n"
                                   "  zo: {count: 4, estimator: forward, rv: 8, lr: 0.05, batch: 32}\n";
    hdo_error e;
    hdo_stop why = HDO_RUNNING;
    hdo_run *run = NULL;
    hdo_config *c = hdo_config_new(NULL, &e);
    hdo_status st = c == NULL ? e.code : hdo_config_use_dataset(c, &moons, NULL, &e);
    if (st == HDO_OK) st = hdo_config_load_text(c, settings, &e);
    if (st == HDO_OK) st = hdo_run_new(&run, c, &e);
    while (st == HDO_OK && why == HDO_RUNNING) st = hdo_run_advance(run, 200, &why, &e);
    if (st != HDO_OK) fprintf(stderr, "%s\n", e.msg);
    for (size_t i = 0; i < hdo_run_row_count(run); i++)
        printf("step %4.0f: accuracy of the mean model %.3f\n", hdo_row_value(hdo_run_row(run, i), "step"),
               hdo_row_value(hdo_run_row(run, i), "val/acc_mu"));
    double accuracy = hdo_row_value(hdo_run_last_row(run), "val/acc_mu");
    hdo_run_free(run);
    hdo_config_free(c);
    return st == HDO_OK && accuracy > 0.95 ? 0 : 1;
}
