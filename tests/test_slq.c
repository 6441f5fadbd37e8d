/* SPDX-License-Identifier: Apache-2.0 — quadrature of spectra against known spectra. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lab/predict/slq.h"

enum { D = 200 };

static hdo_status diagonal(void *ctx, const double *x, double *y, hdo_error *e) {
    (void)e;
    const double *h = ctx;
    for (int i = 0; i < D; i++) y[i] = h[i] * x[i];
    return HDO_OK;
}

static double learnt(const void *ctx, double l) { /* 1 - (1 - p l)^(2 T), p = 0.05 */
    return 1.0 - pow(1.0 - 0.05 * l, 2.0 * *(const double *)ctx);
}
static double one(const void *ctx, double l) {
    (void)ctx;
    (void)l;
    return 1.0;
}
static double itself(const void *ctx, double l) {
    (void)ctx;
    return l;
}

/* Signs as a start vector make v' f(A) v of a diagonal A the sum of f over its spectrum, whatever the signs. */
static void power_law_spectrum(void **state) {
    (void)state;
    double h[D], v[D];
    for (int i = 0; i < D; i++) {
        h[i] = pow(i + 1.0, -1.5);
        v[i] = i % 3 == 0 ? -1.0 : 1.0;
    }
    hdo_quadrature q;
    hdo_error e = {0};
    assert_int_equal(hdo__slq(diagonal, h, D, v, 40, &q, &e), HDO_OK);
    assert_int_equal(q.n, 40);
    double trace = 0.0;
    for (int i = 0; i < D; i++) trace += h[i];
    assert_true(fabs(hdo__slq_sum(&q, one, NULL) - D) < 1e-6 * D);
    assert_true(fabs(hdo__slq_sum(&q, itself, NULL) - trace) < 1e-6 * trace);
    assert_true(fabs(q.node[q.n - 1] - 1.0) < 1e-6);
    for (double T = 1.0; T < 1e6; T *= 10.0) {
        double want = 0.0;
        for (int i = 0; i < D; i++) want += learnt(&T, h[i]);
        assert_true(fabs(hdo__slq_sum(&q, learnt, &T) - want) < 1e-3 * want);
    }
    for (int i = 1; i < q.n; i++) assert_true(q.node[i] >= q.node[i - 1]);
}

static void few_different_eigenvalues_end_early(void **state) {
    (void)state;
    double h[D], v[D];
    for (int i = 0; i < D; i++) {
        h[i] = (double)(i % 4);
        v[i] = 2.0;
    }
    hdo_quadrature q;
    assert_int_equal(hdo__slq(diagonal, h, D, v, 30, &q, NULL), HDO_OK);
    assert_int_equal(q.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_true(fabs(q.node[i] - i) < 1e-6);
        assert_true(fabs(q.weight[i] - 0.25) < 1e-6);
    }
    assert_true(fabs(q.norm2 - 4.0 * D) < 1e-9);
}

static void nothing_has_no_spectrum(void **state) {
    (void)state;
    double h[D] = {0}, v[D] = {0};
    hdo_quadrature q;
    assert_int_equal(hdo__slq(diagonal, h, D, v, 30, &q, NULL), HDO_OK);
    assert_int_equal(q.n, 0);
    assert_true(hdo__slq_sum(&q, one, NULL) == 0.0);
    v[3] = 1.0; /* and an operator that is zero has one eigenvalue */
    assert_int_equal(hdo__slq(diagonal, h, D, v, 30, &q, NULL), HDO_OK);
    assert_int_equal(q.n, 1);
    v[3] = (double)NAN;
    assert_int_equal(hdo__slq(diagonal, h, D, v, 30, &q, NULL), HDO_E_FAILED);
    v[3] = 1.0;
    h[3] = (double)NAN;
    assert_int_equal(hdo__slq(diagonal, h, D, v, 30, &q, NULL), HDO_E_FAILED);
}

/* Eigenvalues of the path graph's Laplacian: 2 - 2 cos(k pi / m), first components sqrt(2/m) cos(k pi / (2 m)). */
static void tridiagonal_known_answer(void **state) {
    (void)state;
    enum { M = 12 };
    double a[M], b[M], z[M], pi = acos(-1.0);
    for (int i = 0; i < M; i++) {
        a[i] = i == 0 || i == M - 1 ? 1.0 : 2.0;
        b[i] = -1.0;
    }
    assert_int_equal(hdo__tridiagonal(M, a, b, z, NULL), HDO_OK);
    for (int k = 0; k < M; k++) {
        assert_true(fabs(a[k] - (2.0 - 2.0 * cos(k * pi / M))) < 1e-13);
        double first = (k == 0 ? sqrt(1.0 / M) : sqrt(2.0 / M)) * cos(k * pi / (2.0 * M));
        assert_true(fabs(fabs(z[k]) - fabs(first)) < 1e-13);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_law_spectrum),
        cmocka_unit_test(few_different_eigenvalues_end_early),
        cmocka_unit_test(nothing_has_no_spectrum),
        cmocka_unit_test(tridiagonal_known_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
