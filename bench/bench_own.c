/* SPDX-License-Identifier: Apache-2.0
 *
 * What the public interface costs: node-steps a second of a null objective of one's own against the built-in quadratic,
 * d = 10, one thread, in turns. Prints CSV: estimator, objective, node-steps per second, ratio to the quadratic.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hdo/hdo.h"

enum { D = 10, NODES = 64, STEPS = 2000, ROUNDS = 7 };

static int null_loss(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss) {
    (void)user, (void)call, (void)s, (void)x;
    *loss = 0.0;
    return 0;
}

static int null_losses(void *user, hdo_call *call, const hdo_samples *s, const float *points, size_t stride, int count,
                       double *loss) {
    (void)user, (void)call, (void)s, (void)points, (void)stride;
    for (int k = 0; k < count; k++) loss[k] = 0.0;
    return 0;
}

static int null_gradient(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss, float *g) {
    (void)user, (void)call, (void)s, (void)x;
    *loss = 0.0;
    memset(g, 0, D * sizeof *g);
    return 0;
}

static void die(const hdo_error *e) {
    fprintf(stderr, "%s\n", e->msg);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* own: 0 quadratic, 1 null objective, 2 the same on any thread */
static double rate(const char *estimator, int own) {
    hdo_error e;
    hdo_run *r;
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "%ssteps: 1000000\nthreads: 1\neval: {every: 0}\n"
             "population:\n  a: {count: %d, estimator: %s, %slr: 0.0001}\n",
             own == 0 ? "model: {name: quadratic, dim: 10, noise: 0}\n" : "", NODES, estimator,
             strcmp(estimator, "fo") == 0 ? "" : "rv: 8, ");
    hdo_objective_def def = {.struct_size = sizeof def,
                             .name = "null",
                             .flags = own == 2 ? HDO_ANY_THREAD : 0,
                             .dim = D,
                             .loss = null_loss,
                             .losses = null_losses,
                             .gradient = null_gradient};
    hdo_config *c = hdo_config_new(NULL, &e);
    if (c == NULL || hdo_config_load_text(c, yaml, &e) != HDO_OK) die(&e);
    if (own > 0 && hdo_config_use_objective(c, &def, NULL, &e) != HDO_OK) die(&e);
    if (hdo_run_new(&r, c, &e) != HDO_OK || hdo_run_advance(r, 50, NULL, &e) != HDO_OK) die(&e);
    double t0 = now();
    if (hdo_run_advance(r, STEPS, NULL, &e) != HDO_OK) die(&e);
    double s = now() - t0;
    hdo_run_free(r);
    hdo_config_free(c);
    return (double)NODES * STEPS / s;
}

int main(void) {
    static const char *const estimators[] = {"fo", "fd"};
    static const char *const names[] = {"quadratic", "null", "null any thread"};
    printf("estimator,objective,node_steps_per_s,ratio\n");
    for (int i = 0; i < 2; i++) {
        double best[3] = {0.0, 0.0, 0.0};
        for (int k = 0; k < ROUNDS; k++)
            for (int own = 0; own < 3; own++) {
                double v = rate(estimators[i], own);
                if (v > best[own]) best[own] = v;
            }
        for (int own = 0; own < 3; own++)
            printf("%s,%s,%.0f,%.3f\n", estimators[i], names[own], best[own], best[own] / best[0]);
    }
    return 0;
}
