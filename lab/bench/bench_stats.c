/* SPDX-License-Identifier: Apache-2.0
 *
 * Order statistics of timings. Medians, because a busy machine only ever adds time and adds it to some windows; p10 and
 * p90 tell how many. Means are not reported: one descheduled window would own them.
 */
#include <stdlib.h>

#include "hdo/lab/bench.h"

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *t, int n, double q) { /* t sorted */
    double at = q * (double)(n - 1);
    int i = (int)at;
    return i + 1 < n ? t[i] + (at - (double)i) * (t[i + 1] - t[i]) : t[n - 1];
}

hdo_bench_stats hdo_bench_summarise(double *t, int n) {
    qsort(t, (size_t)n, sizeof *t, by_value);
    return (hdo_bench_stats){
        .n = n, .median = quantile(t, n, 0.5), .p10 = quantile(t, n, 0.1), .p90 = quantile(t, n, 0.9), .min = t[0]};
}
