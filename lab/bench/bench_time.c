/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing. A window repeats the call until it lasts WINDOW_S, long enough for the clock and short enough that most
 * windows are not interrupted on a busy machine; windows are repeated for the seconds a case may take. Beside wall time
 * every window has its processor time, which waiting for a core does not change.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "lab/bench/bench_internal.h"

#define WINDOW_S 100e-6
enum { MAX_WINDOWS = 4000 };

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds all processors together have worked since the machine started; NaN where there is no /proc/stat. */
static double machine_s(void) {
    FILE *f = fopen("/proc/stat", "r");
    double v[8] = {0}, sum = 0.0;
    int got = f == NULL ? 0
                        : fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5],
                                 &v[6], &v[7]);
    if (f != NULL) fclose(f);
    for (int k = 0; k < got; k++) sum += k == 3 || k == 4 ? 0.0 : v[k]; /* idle and waiting for a disk are not work */
    return got == 8 ? sum / (double)sysconf(_SC_CLK_TCK) : (double)NAN;
}

/* Linux keeps the most memory a process ever had resident, and forgets it when asked. */
static void forget_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f == NULL) return;
    fputs("5", f);
    fclose(f);
}

static size_t peak_bytes(void) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    size_t kib = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) kib = strtoull(line + 6, NULL, 10);
    }
    if (f != NULL) fclose(f);
    return kib * 1024;
}

static int64_t calibrate(hdo_bench_fn fn, void *arg) {
    fn(arg);
    for (int64_t calls = 1;; calls *= 2) {
        double t0 = hdo__now_s();
        for (int64_t k = 0; k < calls; k++) fn(arg);
        if (hdo__now_s() - t0 >= WINDOW_S || calls >= 1 << 20) return calls;
    }
}

void hdo__bench_time(hdo_bench *b, hdo_bench_fn fn, void *arg, int least, hdo_bench_row *row) {
    forget_peak();
    row->calls = least > 1 ? calibrate(fn, arg) : 1; /* a case that is timed once brings its own warm-up */
    size_t before = hdo__alloc_count();
    double begin = hdo__now_s(), own = cpu_s(), all = machine_s();
    int n = 0;
    while (n < least || (n < MAX_WINDOWS && hdo__now_s() - begin < b->seconds)) {
        double t0 = hdo__now_s(), c0 = cpu_s();
        for (int64_t k = 0; k < row->calls; k++) fn(arg);
        double c1 = cpu_s(), t1 = hdo__now_s();
        b->wall[n] = (t1 - t0) / (double)row->calls;
        b->cpu[n++] = (c1 - c0) / (double)row->calls;
        if (n >= least && b->o->stop != NULL && b->o->stop(b->o->ctx)) break;
    }
    double spent = hdo__now_s() - begin;
    row->busy = fmax(0.0, (machine_s() - all - (cpu_s() - own)) / spent);
    row->allocations = (double)(hdo__alloc_count() - before) / ((double)n * (double)row->calls);
    hdo_bench_stats wall = hdo_bench_summarise(b->wall, n), cpu = hdo_bench_summarise(b->cpu, n);
    row->s = b->o->cpu ? cpu : wall;
    row->cpu_s = cpu.median;
    row->peak_bytes = peak_bytes();
}

hdo_bench_row hdo__bench_row(const hdo_bench_case *c, int threads) {
    hdo_bench_row row = {.threads = threads, .ranks = 1, .unit = "", .limit = "", .fraction = (double)NAN};
    snprintf(row.name, sizeof row.name, "%s", c->name);
    return row;
}

void hdo__bench_emit(hdo_bench *b, hdo_bench_row *row, const char *unit, double amount, const char *limit,
                     double at_most) {
    row->unit = unit;
    row->rate = amount / row->s.median;
    row->limit = limit;
    row->fraction = at_most > 0.0 ? row->rate / at_most : (double)NAN;
    if (b->o->row != NULL) b->o->row(b->o->ctx, row);
}

void hdo__bench_skip(hdo_bench *b, const hdo_bench_case *c, hdo_status st, const hdo_error *e) {
    char text[HDO_MSG_MAX + 96];
    if (st == HDO_E_DATA || st == HDO_E_MEMORY) {
        snprintf(text, sizeof text, "%s skipped: %s", c->name, e->msg);
        if (b->o->note != NULL) b->o->note(b->o->ctx, text);
    } else if (b->status == HDO_OK) {
        b->status = hdo__fail(b->e, st, "bench %s: %s", c->name, e->msg);
    }
}
