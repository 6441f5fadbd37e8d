/* SPDX-License-Identifier: Apache-2.0 — measured spectra and noise against known ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lab/predict/predict_internal.h"
#include "study_help.h"

static const double TOL = 1e-3; /* float gradients, differences of 0.3% */

static double itself(const void *ctx, double l) {
    (void)ctx;
    return l;
}

static void look(hdo_config *c, hdo_run **r, hdo_local *p, double **x) {
    static const hdo_predict_options opt = {.samples = 400, .products = 40};
    hdo_error e = {0};
    hdo_lens lens;
    if (hdo_run_create(r, c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(hdo__lens_init(&lens, *r, &opt, NULL, &e), HDO_OK);
    *x = malloc((*r)->problem.objective->d * sizeof **x);
    for (size_t j = 0; j < (*r)->problem.objective->d; j++) (*x)[j] = (double)(*r)->population.models.X[j];
    if (hdo__lens_look(&lens, *x, p, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo__lens_clear(&lens);
}

static void quadratic_is_known(void **state) {
    (void)state;
    hdo_config c;
    hdo_run *r;
    double *x;
    hdo_local *p = malloc(sizeof *p);
    quad_config(&c, &(quad_case){.mixing = "matching",
                                 .estimator = "forward",
                                 .fo = 2,
                                 .zo = 2,
                                 .rv = 4,
                                 .lr = 0.05,
                                 .ell = 1e-3,
                                 .noise = 3.0,
                                 .spread = 1.0,
                                 .start = 2.0,
                                 .steps = 10});
    c.model.dim = 200;
    look(&c, &r, p, &x);
    double trace = 0.0, learnt = 0.0, isotropic = 0.0;
    hdo_horizon h = {0.05, 500.0};
    for (int j = 0; j < 200; j++) {
        double l = pow(1e-3, j / 199.0);
        trace += l;
        learnt += hdo__learnt(&h, l);
        isotropic += hdo__learnt(&h, l) * 9.0 / 200.0;
    }
    assert_true(fabs(p->trace - trace) < TOL * trace);
    assert_true(fabs(p->l_max - 1.0) < TOL);
    assert_true(fabs(hdo__local_trace(p, hdo__learnt, &h) - learnt) < TOL * learnt);
    assert_true(fabs(p->g2 - 4.0) < TOL * 4.0);                            /* g = 1 * 2 e_1 */
    assert_true(fabs(hdo__local_grad(p, itself, NULL) - 4.0) < TOL * 4.0); /* along the first axis, curvature 1 */
    /* Gaussian noise of 200 equal variances: the mean of three squared lengths has deviation sqrt(2/600) = 6%; z = 4 */
    assert_true(fabs(p->c2 - 9.0) < 4.0 * 0.06 * 9.0);
    assert_true(fabs(hdo__local_noise(p, hdo__learnt, &h) - isotropic) < 4.0 * 0.08 * isotropic);
    assert_true(fabs(p->val_loss - 2.0) < TOL * 2.0);
    free(x);
    free(p);
    hdo_run_destroy(r);
}

/* ---- softmax regression: 6 features, 3 classes, d = 21 ---- */

enum { F = 6, K = 3, D = K * (F + 1), N = 400 };

/* Eigenvalues of a (n, n) into w, vectors into columns of V: cyclic Jacobi. */
static void jacobi(int n, double *a, double *V, double *w) {
    for (int i = 0; i < n * n; i++) V[i] = i % (n + 1) == 0 ? 1.0 : 0.0;
    for (int sweep = 0; sweep < 60; sweep++) {
        for (int p = 0; p < n; p++) {
            for (int q = p + 1; q < n; q++) {
                if (fabs(a[p * n + q]) < 1e-300) continue;
                double t = (a[q * n + q] - a[p * n + p]) / (2.0 * a[p * n + q]);
                t = copysign(1.0, t) / (fabs(t) + sqrt(1.0 + t * t));
                double co = 1.0 / sqrt(1.0 + t * t), si = t * co;
                for (int k = 0; k < n; k++) {
                    double x = a[k * n + p], y = a[k * n + q];
                    a[k * n + p] = co * x - si * y;
                    a[k * n + q] = si * x + co * y;
                }
                for (int k = 0; k < n; k++) {
                    double x = a[p * n + k], y = a[q * n + k];
                    a[p * n + k] = co * x - si * y;
                    a[q * n + k] = si * x + co * y;
                    x = V[k * n + p], y = V[k * n + q];
                    V[k * n + p] = co * x - si * y;
                    V[k * n + q] = si * x + co * y;
                }
            }
        }
    }
    for (int i = 0; i < n; i++) w[i] = a[i * n + i];
}

/* Hessian (D, D), gradient (D) and second moment of sample gradients (D, D) by their formulas. */
static void dense(const hdo_run *r, const double *x, double *H, double *g, double *C) {
    memset(H, 0, D * D * sizeof *H);
    memset(C, 0, D * D * sizeof *C);
    memset(g, 0, D * sizeof *g);
    for (int64_t i = 0; i < N; i++) {
        float in[F];
        int32_t label;
        hdo__dataset_gather(r->problem.train, &i, 1, NULL, in, NULL, &label);
        double z[K], a[F + 1], s[D], sum = 0.0;
        for (int f = 0; f < F; f++) a[f] = (double)in[f];
        a[F] = 1.0;
        for (int k = 0; k < K; k++) { /* weight (K, F), then bias (K) */
            z[k] = x[K * F + k];
            for (int f = 0; f < F; f++) z[k] += x[k * F + f] * a[f];
            z[k] = exp(z[k]);
            sum += z[k];
        }
        for (int k = 0; k < K; k++) z[k] /= sum;
#define AT(k, f) ((f) < F ? (k)*F + (f) : K * F + (k))
        for (int k = 0; k < K; k++) {
            for (int f = 0; f <= F; f++) {
                s[AT(k, f)] = (z[k] - (k == label)) * a[f];
                for (int q = 0; q < K; q++) {
                    for (int h = 0; h <= F; h++)
                        H[AT(k, f) * D + AT(q, h)] += ((k == q) * z[k] - z[k] * z[q]) * a[f] * a[h] / N;
                }
            }
        }
        for (int p = 0; p < D; p++) {
            g[p] += s[p] / N;
            for (int q = 0; q < D; q++) C[p * D + q] += s[p] * s[q] / N;
        }
    }
    for (int p = 0; p < D; p++) {
        for (int q = 0; q < D; q++) C[p * D + q] -= g[p] * g[q];
    }
}

static void softmax_against_dense(void **state) {
    (void)state;
    enum { SEEDS = 24 };
    hdo_config c;
    hdo_local *p = malloc(sizeof *p);
    hdo_horizon h = {0.1, 40.0};
    double H[D * D], C[D * D], V[D * D], w[D], g[D], trace[SEEDS], noise[SEEDS], want[3] = {0};
    for (int s = 0; s < SEEDS; s++) {
        hdo_run *r;
        double *x;
        hdo_config_default(&c);
        set(&c, "model", "logistic");
        set(&c, "data.name", "synthetic");
        set(&c, "data.features", "6");
        set(&c, "data.classes", "3");
        set(&c, "data.train", "400");
        set(&c, "data.data_seed", "5");
        set(&c, "model.init", "zero");
        c.seed = s;
        look(&c, &r, p, &x);
        assert_int_equal(r->problem.objective->d, D);
        if (s == 0) {
            dense(r, x, H, g, C);
            double copy[D * D], top = 0.0, slope = 0.0, g2 = 0.0;
            memcpy(copy, H, sizeof H);
            jacobi(D, copy, V, w);
            for (int i = 0; i < D; i++) {
                double gv = 0.0, cv = 0.0, phi = hdo__learnt(&h, w[i] > 0.0 ? w[i] : 0.0);
                for (int j = 0; j < D; j++) {
                    gv += g[j] * V[j * D + i];
                    for (int k = 0; k < D; k++) cv += V[j * D + i] * C[j * D + k] * V[k * D + i];
                }
                top = fmax(top, w[i]);
                want[0] += phi;
                want[1] += phi * cv;
                slope += phi * gv * gv;
                g2 += g[i] * g[i];
            }
            assert_true(fabs(p->l_max - top) < TOL * top);
            assert_true(fabs(p->g2 - g2) < TOL * g2);
            assert_true(fabs(hdo__local_grad(p, hdo__learnt, &h) - slope) < TOL * slope);
        }
        trace[s] = hdo__local_trace(p, hdo__learnt, &h);
        noise[s] = hdo__local_noise(p, hdo__learnt, &h);
        free(x);
        hdo_run_destroy(r);
    }
    const double *series[2] = {trace, noise};
    for (int q = 0; q < 2; q++) { /* random vectors: the mean over seeds within 4 standard errors, and those small */
        double mean = 0.0, var = 0.0;
        for (int s = 0; s < SEEDS; s++) mean += series[q][s] / SEEDS;
        for (int s = 0; s < SEEDS; s++) var += (series[q][s] - mean) * (series[q][s] - mean) / (SEEDS - 1.0) / SEEDS;
        assert_true(fabs(mean - want[q]) < 4.0 * sqrt(var));
        assert_true(sqrt(var) < 0.1 * want[q]);
    }
    free(p);
}

/* Without gradients the trace, |g|^2 and the noise are found from losses. */
static void losses_alone(void **state) {
    (void)state;
    hdo_config c;
    hdo_run *r;
    double *x;
    hdo_error e = {0};
    hdo_lens lens;
    hdo_local *p = malloc(sizeof *p);
    quad_config(&c, &(quad_case){.mixing = "matching",
                                 .estimator = "fd",
                                 .fo = 0,
                                 .zo = 2,
                                 .rv = 4,
                                 .lr = 0.05,
                                 .ell = 1e-2,
                                 .start = 0.5,
                                 .steps = 10});
    if (hdo_run_create(&r, &c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_objective_ops ops = *r->problem.objective->ops;
    const hdo_objective_ops *kept = r->problem.objective->ops;
    assert_int_equal(hdo__lens_init(&lens, r, &(hdo_predict_options){0}, NULL, &e), HDO_OK);
    x = calloc(r->problem.objective->d, sizeof *x);
    x[0] = 0.5;
    ops.grad = NULL;
    r->problem.objective->ops = &ops;
    assert_int_equal(hdo__lens_look(&lens, x, p, &e), HDO_OK);
    r->problem.objective->ops = kept;
    double trace = 0.0;
    for (int j = 0; j < 20; j++) trace += pow(1e-2, j / 19.0);
    assert_false(p->gradient);
    assert_true(fabs(p->trace - trace) < TOL * trace); /* a diagonal H and signs: no scatter */
    assert_true(fabs(p->g2 - 0.25) < TOL);
    free(x);
    free(p);
    hdo__lens_clear(&lens);
    hdo_run_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(quadratic_is_known), cmocka_unit_test(softmax_against_dense),
                                       cmocka_unit_test(losses_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
