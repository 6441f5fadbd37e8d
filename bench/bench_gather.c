/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathering a batch: bytes through a table to floats, against a memcpy of the same floats. The timing window holds one
 * gather of 256 samples chosen at random from the whole set, into the same buffer each time; `memcpy` copies the same
 * rows out of a float array of the whole set, which is what a set stored as floats would do. `memcpy-hot` copies one
 * batch of floats that is in the cache already: the cheapest thing imaginable. Data are random bytes in the shapes of
 * MNIST and CIFAR-10; nothing needs to be downloaded. gbytes counts bytes written.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "data/data_impl.h"

enum { BATCH = 256, REPS = 400 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *bench, const char *shape, double *s, size_t bytes) {
    qsort(s, REPS, sizeof *s, by_value);
    printf("%s,%s,cpu,1,%d,%.9f,%.9f,%.9f,%.3f\n", bench, shape, REPS, s[REPS / 2], s[REPS / 10], s[REPS * 9 / 10],
           1e-9 * (double)bytes / s[REPS / 2]);
}

static int measure(const char *shape, int64_t count, int channels, int side, bool augment) {
    const size_t n_in = (size_t)channels * (size_t)side * (size_t)side, bytes = BATCH * n_in * sizeof(float);
    uint8_t *px = malloc((size_t)count * n_in);
    float *whole = malloc((size_t)count * n_in * sizeof *whole), *out = malloc(bytes), *hot = malloc(bytes);
    int32_t *label = calloc((size_t)count, sizeof *label), y[BATCH];
    double *t[4];
    for (int k = 0; k < 4; k++) t[k] = malloc(REPS * sizeof *t[k]);
    if (px == NULL || whole == NULL || out == NULL || hot == NULL || label == NULL || t[3] == NULL) return 1;
    for (size_t i = 0; i < (size_t)count * n_in; i++) {
        px[i] = (uint8_t)(i * 2654435761u >> 24);
        whole[i] = (float)px[i];
    }
    memcpy(hot, whole, bytes);
    const float mean[3] = {0.5f, 0.5f, 0.5f}, sd[3] = {0.25f, 0.25f, 0.25f};
    hdo_byteset_spec s = {.count = count,
                          .per_chunk = count,
                          .chunk = {px},
                          .stride = n_in,
                          .shape = {channels, side, side},
                          .classes = 2,
                          .label = label,
                          .mean = mean,
                          .sd = sd,
                          .augment = true};
    hdo_dataset *ds;
    if (hdo__byteset_create(&ds, &s, NULL) != HDO_OK) return 1;
    for (int r = 0; r < REPS; r++) {
        int64_t idx[2][BATCH];
        for (int k = 0; k < 2 * BATCH; k++) { /* two batches: neither way warms the other's rows */
            idx[k / BATCH][k % BATCH] =
                (int64_t)hdo__rng_below(hdo__stream(1, HDO_RNG_TEST, 0, (uint64_t)r, 0), (uint64_t)k, (uint64_t)count);
        }
        double t0 = hdo__now_s();
        ds->ops->gather(ds, idx[0], BATCH, NULL, out, NULL, y);
        double t1 = hdo__now_s();
        for (int k = 0; k < BATCH; k++)
            memcpy(out + (size_t)k * n_in, whole + (size_t)idx[1][k] * n_in, n_in * sizeof(float));
        double t2 = hdo__now_s();
        memcpy(out, hot, bytes);
        double t3 = hdo__now_s();
        const hdo_stream at = hdo__stream(1, HDO_RNG_AUGMENT, 0, (uint64_t)r, 0);
        if (augment) ds->ops->gather(ds, idx[0], BATCH, &at, out, NULL, y);
        double t4 = hdo__now_s();
        t[0][r] = t1 - t0;
        t[1][r] = t2 - t1;
        t[2][r] = t3 - t2;
        t[3][r] = t4 - t3;
    }
    report("gather", shape, t[0], bytes);
    report("memcpy", shape, t[1], bytes);
    report("memcpy-hot", shape, t[2], bytes);
    if (augment) report("gather-augment", shape, t[3], bytes);
    hdo__dataset_destroy(ds); /* frees label */
    for (int k = 0; k < 4; k++) free(t[k]);
    free(px);
    free(whole);
    free(out);
    free(hot);
    return 0;
}

int main(void) {
    printf("bench,shape,backend,threads,reps,median_s,p10_s,p90_s,gbytes\n");
    if (measure("256x1x28x28", 60000, 1, 28, false) != 0) return 1;
    return measure("256x3x32x32", 20000, 3, 32, true);
}
