/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers and flat vectors, one thread, every table of simd.h this machine can run.
 *
 * Timing window: calls of one kernel on buffers already touched, repeated inside a window until it is at least 2 ms
 * long; times are for one call. Short shapes stay in L1 (random numbers: 4096, 16 KB), long ones (16 M) come from
 * memory. rate_M_per_s counts numbers made, or elements of one vector.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/simd.h"

enum { REPS = 31, SHORT_RNG = 4096, SHORT_VEC = 7850, LONG = 1 << 24 };

typedef struct work {
    const hdo_simd *t;
    size_t n;
    float *x, *y;
    volatile double sink;
} work;

static hdo_stream stream(void) {
    return hdo__stream(42, HDO_RNG_TEST, 0, 0, 0);
}

static void run_normal(work *w) {
    w->t->rng_normal(stream(), 0, w->n, w->x);
}
static void run_uniform(work *w) {
    w->t->rng_uniform(stream(), 0, w->n, w->x);
}
static void run_rademacher(work *w) {
    w->t->rng_rademacher(stream(), 0, w->n, w->x);
}
static void run_bits(work *w) {
    w->t->rng_bits(stream(), 0, w->n, (uint32_t *)(void *)w->x);
}
static void run_dot(work *w) {
    w->sink = w->t->dot(w->n, w->x, w->y);
}
static void run_axpy(work *w) {
    w->t->axpy(w->n, 1e-6f, w->x, w->y);
}
static void run_average(work *w) {
    w->t->average(w->n, w->x, w->y);
}

static const struct {
    const char *name;
    void (*run)(work *w);
    size_t small;
} bench[] = {
    {"normal", run_normal, SHORT_RNG},   {"uniform", run_uniform, SHORT_RNG}, {"rademacher", run_rademacher, SHORT_RNG},
    {"bits", run_bits, SHORT_RNG},       {"dot", run_dot, SHORT_VEC},         {"axpy", run_axpy, SHORT_VEC},
    {"average", run_average, SHORT_VEC},
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, void (*run)(work *w), work *w) {
    double t[REPS];
    size_t calls = 1;
    for (;; calls *= 2) { /* also warms up */
        double start = now_s();
        for (size_t c = 0; c < calls; c++) run(w);
        if (now_s() - start >= 2e-3) break;
    }
    for (int r = 0; r < REPS; r++) {
        double start = now_s();
        for (size_t c = 0; c < calls; c++) run(w);
        t[r] = (now_s() - start) / (double)calls;
    }
    qsort(t, REPS, sizeof t[0], by_value);
    double median = t[REPS / 2];
    printf("%s,%zu,%s,1,%d,%.4g,%.4g,%.4g,%.1f\n", name, w->n, w->t->name, REPS, median, t[REPS / 10],
           t[REPS - 1 - REPS / 10], (double)w->n / median * 1e-6);
    fflush(stdout);
}

int main(void) {
    float *x = malloc(sizeof(float) * LONG), *y = malloc(sizeof(float) * LONG);
    if (x == NULL || y == NULL) {
        fprintf(stderr, "bench_rng: no memory for two vectors of %d floats\n", (int)LONG);
        return 1;
    }
    printf("bench,shape,backend,threads,reps,median_s,p10_s,p90_s,rate_M_per_s\n");
    for (int k = 0; hdo__simd_tables(k) != NULL; k++) {
        for (size_t b = 0; b < sizeof bench / sizeof bench[0]; b++) {
            const size_t shape[2] = {bench[b].small, LONG};
            for (int s = 0; s < 2; s++) {
                work w = {hdo__simd_tables(k), shape[s], x, y, 0};
                /* Ordinary values: bits left over from a run before would make some NaN or subnormal. */
                w.t->rng_normal(stream(), 0, w.n, x);
                w.t->rng_normal(stream(), w.n, w.n, y);
                measure(bench[b].name, bench[b].run, &w);
            }
        }
    }
    free(x);
    free(y);
    return 0;
}
