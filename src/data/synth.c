/* SPDX-License-Identifier: Apache-2.0
 *
 * Gaussian mixtures whose Bayes error is known: C classes with equal weights, sample = mean of its class + N(0, I_F).
 *
 * F >= C - 1: the means are the corners of a regular simplex with edge `separation` (s), centred, turned at random. A
 * sample is classified best by the nearest mean; with C orthogonal directions instead of the simplex (same distances)
 * the scores are independent normals, so
 *
 *     P(correct) = Int phi(z) Phi(z + s / sqrt 2)^(C-1) dz,        C = 2: Bayes error Phi(-s / 2).
 *
 * F < C - 1: no simplex fits. The means are a full grid with spacing s: C is written as a product of F side lengths as
 * equal as its prime factors allow (7 classes in 2 dimensions: 7 x 1). Best is rounding each coordinate to the grid,
 * so P(correct) is a product over the axes: with q = Phi(-s / 2), a side of n cells gives 1 - 2 q (n - 1) / n.
 *
 * Label of sample i is i % C: every prefix is balanced. Inputs are used as they are (data.scaling does not apply).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "data/data_impl.h"

enum { GEN = 0, FIELD_TRAIN = 0, FIELD_VAL = 1, FIELD_FRAME = 2 }; /* GEN: node number in HDO_RNG_DATA */
enum { CLASSES_MAX = 1024, DEFAULT_TRAIN = 10000, DEFAULT_VAL = 2000 };

static double normal_cdf(double z) {
    return 0.5 * erfc(-z * 0.70710678118654752440);
}

/* Side lengths of the grid: the prime factors of C, largest first, each to the currently shortest side. */
static void grid_sides(int64_t classes, int64_t features, int *side) {
    int64_t prime[64];
    int n = 0;
    int64_t rest = classes;
    for (int64_t p = 2; p * p <= rest; p++) {
        for (; rest % p == 0; rest /= p) prime[n++] = p;
    }
    if (rest > 1) prime[n++] = rest;
    for (int64_t f = 0; f < features; f++) side[f] = 1;
    while (n-- > 0) {
        int64_t least = 0;
        for (int64_t f = 1; f < features; f++) {
            if (side[f] < side[least]) least = f;
        }
        side[least] *= (int)prime[n];
    }
}

double hdo__synth_bayes_error(int64_t classes, int64_t features, double separation) {
    if (classes < 2) return 0;
    if (features >= classes - 1) { /* trapezium rule: converges geometrically for this integrand */
        const double h = 1.0 / 64, shift = separation * 0.70710678118654752440;
        double sum = 0;
        for (int i = -10 * 64; i <= 10 * 64; i++) {
            double z = i * h;
            /* 1 - Phi^(C-1) without cancellation */
            sum += exp(-0.5 * z * z) * -expm1((double)(classes - 1) * log1p(-normal_cdf(-(z + shift))));
        }
        return sum * h * 0.39894228040143267794;
    }
    int side[CLASSES_MAX];
    grid_sides(classes, features, side);
    double right = 1;
    const double q = normal_cdf(-0.5 * separation);
    for (int64_t f = 0; f < features; f++) right *= 1 - 2 * q * (side[f] - 1) / side[f];
    return 1 - right;
}

/* k orthonormal vectors in R^F (k, F): Gram-Schmidt, twice, on Gaussian vectors. */
static void frame(uint64_t seed, int64_t k, int64_t features, double *q) {
    for (int64_t a = 0; a < k; a++) {
        double *v = q + a * features;
        hdo_stream s = hdo__stream(seed, HDO_RNG_DATA, GEN, (uint64_t)a, FIELD_FRAME);
        for (int64_t f = 0; f < features; f++) v[f] = hdo__rng_gauss(s, (uint64_t)f);
        for (int twice = 0; twice < 2; twice++) {
            for (int64_t b = 0; b < a; b++) {
                const double *u = q + b * features;
                double dot = 0;
                for (int64_t f = 0; f < features; f++) dot += u[f] * v[f];
                for (int64_t f = 0; f < features; f++) v[f] -= dot * u[f];
            }
        }
        double norm = 0;
        for (int64_t f = 0; f < features; f++) norm += v[f] * v[f];
        norm = sqrt(norm);
        for (int64_t f = 0; f < features; f++) v[f] /= norm;
    }
}

static hdo_status check(const hdo_data_config *c, hdo_error *e) {
    if (c->classes < 2 || c->classes > CLASSES_MAX) {
        return hdo__fail(e, HDO_E_CONFIG, "data.classes is %lld; 2 .. %d are possible", (long long)c->classes,
                         CLASSES_MAX);
    }
    if (c->features < 1 || c->features > 1 << 20) {
        return hdo__fail(e, HDO_E_CONFIG, "data.features is %lld; 1 .. 1048576 are possible", (long long)c->features);
    }
    if (!(c->separation >= 0) || c->separation > 1e6) {
        return hdo__fail(e, HDO_E_CONFIG, "data.separation is %g; 0 .. 1e6 are possible", c->separation);
    }
    return HDO_OK;
}

hdo_status hdo__synth_means(const hdo_data_config *c, double *mean, hdo_error *e) {
    hdo_status st = check(c, e);
    if (st != HDO_OK) return st;
    const int64_t C = c->classes, F = c->features, K = F >= C - 1 ? C - 1 : F;
    double *q = malloc((size_t)K * (size_t)F * sizeof *q);
    double *coord = calloc((size_t)C * (size_t)K, sizeof *coord); /* (C, K): means before turning */
    if (q == NULL || coord == NULL) {
        free(q);
        free(coord);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the means of %lld classes", (long long)C);
    }
    if (K == C - 1) { /* columns of Helmert's matrix are a centred simplex with edge sqrt 2 */
        for (int64_t k = 1; k < C; k++) {
            double r = c->separation / sqrt(2.0 * (double)k * (double)(k + 1));
            for (int64_t i = 0; i < k; i++) coord[i * K + k - 1] = r;
            coord[k * K + k - 1] = -r * (double)k;
        }
    } else {
        int side[CLASSES_MAX];
        grid_sides(C, F, side);
        for (int64_t i = 0; i < C; i++) {
            int64_t rest = i;
            for (int64_t f = 0; f < F; f++) {
                coord[i * K + f] = c->separation * ((double)(rest % side[f]) - 0.5 * (side[f] - 1));
                rest /= side[f];
            }
        }
    }
    frame((uint64_t)c->data_seed, K, F, q);
    for (int64_t i = 0; i < C; i++) {
        double *m = mean + i * F;
        for (int64_t f = 0; f < F; f++) m[f] = 0;
        for (int64_t k = 0; k < K; k++) {
            double a = coord[i * K + k];
            for (int64_t f = 0; f < F; f++) m[f] += a * q[k * F + f];
        }
    }
    free(q);
    free(coord);
    return HDO_OK;
}

static hdo_status make(const hdo_data_config *c, const double *mean, bool val, hdo_dataset **out, hdo_error *e) {
    int64_t n = val ? c->val : c->train;
    if (n == 0) n = val ? DEFAULT_VAL : DEFAULT_TRAIN;
    const size_t F = (size_t)c->features;
    if (n < 0 || n > UINT32_MAX || (uint64_t)n > HDO_READ_MAX / (F * sizeof(float))) {
        return hdo__fail(e, HDO_E_CONFIG, "data.%s is %lld samples of %zu features, more than 8 GiB",
                         val ? "val" : "train", (long long)n, F);
    }
    float *x = malloc((size_t)n * F * sizeof *x);
    int32_t *label = malloc((size_t)n * sizeof *label);
    hdo_status st = HDO_OK;
    if (x == NULL || label == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for %lld samples of %zu features", (long long)n, F);
        goto out;
    }
    for (int64_t i = 0; i < n; i++) {
        float *row = x + (size_t)i * F;
        const double *m = mean + (size_t)(i % c->classes) * F;
        hdo__rng_normal(
            hdo__stream((uint64_t)c->data_seed, HDO_RNG_DATA, GEN, (uint64_t)i, val ? FIELD_VAL : FIELD_TRAIN), 0, F,
            row);
        for (size_t f = 0; f < F; f++) row[f] = (float)(m[f] + (double)row[f]);
        label[i] = (int32_t)(i % c->classes);
    }
    const int shape[3] = {1, 1, (int)F};
    st = hdo__floatset_create(out, n, shape, (int)c->classes, x, label, e);
    if (st == HDO_OK) {
        char text[200];
        snprintf(text, sizeof text, "synthetic 1 %s n=%lld classes=%lld features=%lld separation=%.17g seed=%lld",
                 val ? "val" : "train", (long long)n, (long long)c->classes, (long long)c->features, c->separation,
                 (long long)c->data_seed);
        hdo__sha256_bytes(text, strlen(text), (*out)->sha256);
        return HDO_OK;
    }
out:
    free(x);
    free(label);
    return st;
}

hdo_status hdo__synth_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e) {
    hdo_status st = check(c, e);
    if (st != HDO_OK) return st;
    double *mean = malloc((size_t)c->classes * (size_t)c->features * sizeof *mean);
    if (mean == NULL)
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the means of %lld classes", (long long)c->classes);
    st = hdo__synth_means(c, mean, e);
    if (st == HDO_OK) st = make(c, mean, false, train, e);
    if (st == HDO_OK) st = make(c, mean, true, val, e);
    free(mean);
    return st;
}
