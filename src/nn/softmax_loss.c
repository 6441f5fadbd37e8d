/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy, -log softmax(z)[label], summed over samples. Zeroth-order estimators live on differences of
 * two such sums, F(x + nu u) - F(x), which cancel: exponentials, logarithms and sums are in double, and only the logits
 * themselves carry float rounding.
 */
#include <math.h>

#include "base/explog.h"
#include "nn/nn.h"

/* log sum exp of one row (C). */
static double log_sum(int C, const float *z) {
    double m = (double)z[0], s = 0;
    for (int c = 1; c < C; c++)
        if (!((double)z[c] <= m)) m = (double)z[c]; /* a NaN wins and shows in the loss */
    for (int c = 0; c < C; c++) s += hdo__exp((double)z[c] - m);
    return m + hdo__log(s);
}

static int best(int C, const float *z) {
    int k = 0;
    for (int c = 1; c < C; c++)
        if (z[c] > z[k]) k = c;
    return k;
}

double hdo__xent_loss(int B, int C, const float *z, const int32_t *label, int64_t *correct) {
    double sum = 0;
    for (int b = 0; b < B; b++) {
        const float *row = z + (size_t)b * (size_t)C;
        sum += log_sum(C, row) - (double)row[label[b]];
        if (correct != NULL && best(C, row) == label[b]) (*correct)++;
    }
    return sum;
}

double hdo__xent_grad(int B, int C, const float *z, const int32_t *label, float scale, float *dz) {
    double sum = 0;
    for (int b = 0; b < B; b++) {
        const float *row = z + (size_t)b * (size_t)C;
        float *d = dz + (size_t)b * (size_t)C;
        double lse = log_sum(C, row);
        sum += lse - (double)row[label[b]];
        for (int c = 0; c < C; c++) {
            double prob = hdo__exp((double)row[c] - lse) - (c == label[b] ? 1.0 : 0.0);
            d[c] = (float)(prob * (double)scale);
        }
    }
    return sum;
}

double hdo__xent_jvp(int B, int C, const float *z, const int32_t *label, int G, const float *tz, double *slope) {
    double sum = 0;
    for (int b = 0; b < B; b++) {
        const float *row = z + (size_t)b * (size_t)C;
        double lse = log_sum(C, row);
        sum += lse - (double)row[label[b]];
        for (int c = 0; c < C; c++) {
            double prob = hdo__exp((double)row[c] - lse) - (c == label[b] ? 1.0 : 0.0);
            for (int r = 0; r < G; r++)
                slope[r] += prob * (double)tz[((size_t)r * (size_t)B + (size_t)b) * (size_t)C + (size_t)c];
        }
    }
    return sum;
}
