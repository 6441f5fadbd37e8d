/* SPDX-License-Identifier: Apache-2.0
 *
 * Cost of deciding who meets whom, against the number of nodes: it must grow linearly. One thread.
 *
 * Timing window: hdo__mixer_plan for successive steps, repeated inside a window until it is at least 2 ms long; times
 * are for one step. Building the graph and placing the nodes is timed apart (bench `build`, once). `backend` is
 * graph-mode. Lines of n = 10^6 touch 4 to 24 MB a step and leave the caches: expect a factor of 2 to 4 per node there.
 *
 * Usage: bench_topo [largest n]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "topo/mixer.h"

enum { REPS = 11 };

static const struct {
    const char *kind, *graph, *mode;
} bench[] = {
    {"matching", "complete", "matching"},
    {"pairwise", "complete", "edge"},
    {"graph", "ring", "matching"},
    {"graph", "ring", "colour"},
    {"graph", "ring", "edge"},
    {"graph", "torus(10)", "matching"},
    {"graph", "torus(10)", "colour"},
    {"graph", "star", "matching"},
    {"graph", "random-regular(4)", "matching"},
    {"graph", "small-world(0.1)", "matching"},
    {"graph", "exponential", "matching"},
};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *name, size_t i, int n, int reps, double median, double p10, double p90) {
    printf("%s,%d,%s-%s,1,%d,%.4g,%.4g,%.4g\n", name, n, bench[i].graph, bench[i].mode, reps, median, p10, p90);
    fflush(stdout);
}

static void measure(size_t i, hdo_mixer *m) {
    double t[REPS];
    int64_t step = 0, calls = 1;
    hdo_plan plan;
    for (;; calls *= 2) { /* also warms up */
        double start = hdo__now_s();
        for (int64_t c = 0; c < calls; c++) hdo__mixer_plan(m, step++, &plan);
        if (hdo__now_s() - start >= 2e-3) break;
    }
    for (int r = 0; r < REPS; r++) {
        double start = hdo__now_s();
        for (int64_t c = 0; c < calls; c++) hdo__mixer_plan(m, step++, &plan);
        t[r] = (hdo__now_s() - start) / (double)calls;
    }
    qsort(t, REPS, sizeof t[0], by_value);
    print_row("plan", i, m->n, REPS, t[REPS / 2], t[REPS / 10], t[REPS - 1 - REPS / 10]);
}

int main(int argc, char **argv) {
    static hdo_config c;
    hdo_error e;
    int largest = argc > 1 ? atoi(argv[1]) : 1000000;
    printf("bench,shape,backend,threads,reps,median_s,p10_s,p90_s\n");
    for (size_t i = 0; i < sizeof bench / sizeof bench[0]; i++) {
        hdo_config_default(&c);
        hdo_status st = hdo_config_set_from(&c, "mixing.kind", bench[i].kind, HDO_FROM_FLAG, &e);
        if (st == HDO_OK) st = hdo_config_set_from(&c, "mixing.graph", bench[i].graph, HDO_FROM_FLAG, &e);
        if (st == HDO_OK) st = hdo_config_set_from(&c, "mixing.graph_mode", bench[i].mode, HDO_FROM_FLAG, &e);
        if (st == HDO_OK) st = hdo_config_set_from(&c, "mixing.placement", "spread", HDO_FROM_FLAG, &e);
        for (int n = 100; n <= largest && st == HDO_OK; n *= 10) {
            hdo_mixer m;
            double start = hdo__now_s();
            st = hdo__mixer_init_placed(&m, &c.mixing, 1, n, n / 10, 0, &e);
            if (st != HDO_OK) break;
            double took = hdo__now_s() - start;
            print_row("build", i, n, 1, took, took, took);
            measure(i, &m);
            hdo__mixer_clear(&m);
        }
        if (st != HDO_OK) {
            fprintf(stderr, "bench_topo: %s\n", e.msg);
            return 1;
        }
    }
    return 0;
}
