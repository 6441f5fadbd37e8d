/* SPDX-License-Identifier: Apache-2.0 — stochastic Lanczos quadrature: see slq.h. */
#include "lab/predict/slq.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/fail.h"

enum { SWEEPS_MAX = 60 };

/* One implicit QL step on rows lo .. hi: a rotation chases the bulge from the bottom up (Golub and Van Loan, "Matrix
 * computations", 8.3.5, mirrored). */
static void ql_step(int lo, int hi, double *a, double *b, double *z) {
    double g = (a[lo + 1] - a[lo]) / (2.0 * b[lo]);
    double r = hypot(g, 1.0);
    g = a[hi] - a[lo] + b[lo] / (g + copysign(r, g));
    double s = 1.0, c = 1.0, p = 0.0;
    for (int i = hi - 1; i >= lo; i--) {
        double f = s * b[i], h = c * b[i];
        r = hypot(f, g);
        b[i + 1] = r;
        if (!(r > 0.0)) { /* the bulge vanished: the matrix splits here */
            a[i + 1] -= p;
            b[hi] = 0.0;
            return;
        }
        s = f / r;
        c = g / r;
        g = a[i + 1] - p;
        r = (a[i] - g) * s + 2.0 * c * h;
        p = s * r;
        a[i + 1] = g + p;
        g = c * r - h;
        double first = z[i + 1];
        z[i + 1] = s * z[i] + c * first;
        z[i] = c * z[i] - s * first;
    }
    a[lo] -= p;
    b[lo] = g;
    b[hi] = 0.0;
}

static void sort_pairs(int m, double *a, double *z) {
    for (int i = 1; i < m; i++) { /* few and nearly sorted */
        double x = a[i], y = z[i];
        int k = i;
        for (; k > 0 && a[k - 1] > x; k--) {
            a[k] = a[k - 1];
            z[k] = z[k - 1];
        }
        a[k] = x;
        z[k] = y;
    }
}

hdo_status hdo__tridiagonal(int m, double *a, double *b, double *first, hdo_error *e) {
    memset(first, 0, (size_t)m * sizeof *first);
    first[0] = 1.0;
    for (int lo = 0; lo < m; lo++) {
        for (int sweep = 0;; sweep++) {
            int hi = lo; /* the block that starts at lo and does not split */
            while (hi + 1 < m && fabs(b[hi]) > DBL_EPSILON * (fabs(a[hi]) + fabs(a[hi + 1]))) hi++;
            if (hi == lo) break;
            if (sweep == SWEEPS_MAX)
                return hdo__fail(e, HDO_E_FAILED, "the eigenvalues of a spectrum did not converge");
            ql_step(lo, hi, a, b, first);
        }
    }
    sort_pairs(m, a, first);
    return HDO_OK;
}

/* ---- Lanczos ---- */

static double dot(size_t n, const double *x, const double *y) {
    double s = 0.0;
    for (size_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

/* w loses its parts along the first m basis vectors. */
static void orthogonalise(size_t n, int m, const float *basis, double *w) {
    for (int k = 0; k < m; k++) {
        const float *q = basis + (size_t)k * n;
        double s = 0.0;
        for (size_t i = 0; i < n; i++) s += w[i] * (double)q[i];
        for (size_t i = 0; i < n; i++) w[i] -= s * (double)q[i];
    }
}

hdo_status hdo__slq(hdo_product mul, void *ctx, size_t n, const double *v, int steps, hdo_quadrature *out,
                    hdo_error *e) {
    *out = (hdo_quadrature){.norm2 = dot(n, v, v)};
    if (steps > HDO_SLQ_MAX) steps = HDO_SLQ_MAX;
    if ((size_t)steps > n) steps = (int)n;
    if (!isfinite(out->norm2)) return hdo__fail(e, HDO_E_FAILED, "a start vector of a spectrum is not finite");
    if (!(out->norm2 > 0.0)) return HDO_OK;
    float *basis = malloc((size_t)steps * n * sizeof *basis);
    double *q = malloc(2 * n * sizeof *q), *w = q + n;
    double beta[HDO_SLQ_MAX + 1], first[HDO_SLQ_MAX];
    hdo_status st = basis != NULL && q != NULL
                        ? HDO_OK
                        : hdo__fail(e, HDO_E_MEMORY, "out of memory: a spectrum of dimension %zu needs %.1f MB", n,
                                    (double)n * (4.0 * steps + 16.0) / 1e6);
    double scale = 1.0 / sqrt(out->norm2), largest = 0.0;
    for (size_t i = 0; i < n && st == HDO_OK; i++) q[i] = v[i] * scale;
    int m = 0;
    while (m < steps && st == HDO_OK) {
        float *row = basis + (size_t)m * n;
        for (size_t i = 0; i < n; i++) row[i] = (float)q[i];
        st = mul(ctx, q, w, e);
        if (st != HDO_OK) break;
        out->node[m] = dot(n, q, w); /* the diagonal, for now */
        m++;
        orthogonalise(n, m, basis, w);
        orthogonalise(n, m, basis, w);
        beta[m - 1] = sqrt(dot(n, w, w));
        if (!isfinite(out->node[m - 1]) || !isfinite(beta[m - 1]))
            st = hdo__fail(e, HDO_E_FAILED, "a product with the Hessian is not finite");
        largest = fmax(largest, fabs(out->node[m - 1]) + beta[m - 1]);
        if (!(beta[m - 1] > 1e-7 * largest)) break; /* the rounding of the basis: nothing more to find */
        for (size_t i = 0; i < n; i++) q[i] = w[i] / beta[m - 1];
    }
    if (st == HDO_OK) st = hdo__tridiagonal(m, out->node, beta, first, e);
    out->n = st == HDO_OK ? m : 0;
    for (int i = 0; i < out->n; i++) out->weight[i] = first[i] * first[i];
    free(basis);
    free(q);
    return st;
}

double hdo__slq_sum(const hdo_quadrature *q, double (*f)(const void *ctx, double node), const void *ctx) {
    double s = 0.0;
    for (int i = 0; i < q->n; i++) s += q->weight[i] * f(ctx, q->node[i]);
    return q->norm2 * s;
}
