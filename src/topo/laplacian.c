/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanczos without reorthogonalisation: its ghosts copy eigenvalues but do not move the extreme one, and memory stays at
 * three vectors. Power iteration, which the bounds use for small matrices, needs n^2 rounds on a ring; this needs n.
 */
#include "topo/laplacian.h"

#include <math.h>
#include <string.h>

enum { VISITS = 10000000 }; /* of nodes and edges in one eigenvalue: some 25 ms */

/* y = S L S x */
static void multiply(const hdo_laplacian *l, const double *x, double *y) {
    memset(y, 0, l->n * sizeof(double));
    for (size_t k = 0; k < l->n_edges; k++) {
        size_t a = (size_t)l->edges[k].a, b = (size_t)l->edges[k].b;
        double flow = l->weight[k] * (l->scale[a] * x[a] - l->scale[b] * x[b]);
        y[a] += flow;
        y[b] -= flow;
    }
    for (size_t i = 0; i < l->n; i++) y[i] *= l->scale[i];
}

static double dot(size_t n, const double *x, const double *y) {
    double s = 0.0;
    for (size_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

static void subtract(size_t n, double a, const double *x, double *y) {
    for (size_t i = 0; i < n; i++) y[i] -= a * x[i];
}

/* Has the tridiagonal matrix an eigenvalue below x? A pivot of T - x that is not positive says so (Sturm). */
static bool has_below(size_t m, const double *alpha, const double *beta, double x) {
    double q = alpha[0] - x;
    for (size_t i = 1; i < m && q > 0.0; i++) q = alpha[i] - x - beta[i - 1] * beta[i - 1] / q;
    return !(q > 0.0);
}

double hdo__tridiagonal_smallest(size_t m, const double *alpha, const double *beta) {
    double lo = 0.0, hi = alpha[0];
    for (size_t i = 1; i < m; i++) hi = alpha[i] < hi ? alpha[i] : hi;
    for (int turn = 0; turn < 100 && hi - lo > 1e-14 * hi; turn++) {
        double mid = 0.5 * (lo + hi);
        if (has_below(m, alpha, beta, mid)) {
            hi = mid;
        } else {
            lo = mid;
        }
    }
    return 0.5 * (lo + hi);
}

size_t hdo__laplacian_steps(const hdo_laplacian *l) {
    size_t most = (size_t)VISITS / (l->n + l->n_edges) + 8;
    return most < 6 * l->n + 16 ? most : 6 * l->n + 16;
}

double hdo__laplacian_smallest(const hdo_laplacian *l, double tol, double *work, double *error) {
    size_t n = l->n, most = hdo__laplacian_steps(l), check = 8;
    double *v = work, *old = work + n, *w = work + 2 * n, *alpha = work + 3 * n, *beta = alpha + most;
    double value = 0.0, last = HUGE_VAL, b = 0.0, top = 0.0;
    hdo_stream s = hdo__stream(0, HDO_RNG_GRAPH, 0, 0, HDO_GRAPH_SUB_SPECTRUM); /* a fixed start: the answer is too */
    for (size_t i = 0; i < n; i++) {
        v[i] = hdo__rng_double(s, i) - 0.5;
        old[i] = 0.0;
    }
    subtract(n, dot(n, l->null, v), l->null, v);
    double norm = sqrt(dot(n, v, v));
    for (size_t i = 0; i < n; i++) v[i] /= norm;
    for (size_t m = 1;; m++) {
        multiply(l, v, w);
        double a = dot(n, v, w);
        for (size_t i = 0; i < n; i++) w[i] -= a * v[i] + b * old[i];
        subtract(n, dot(n, l->null, w), l->null, w);
        b = sqrt(dot(n, w, w));
        alpha[m - 1] = a;
        beta[m - 1] = b;
        if (a > top) top = a;
        bool end = m == most || b <= 1e-13 * top; /* b = 0: the space is closed, T is exact */
        if (end || m >= check) {
            value = hdo__tridiagonal_smallest(m, alpha, beta);
            *error = b <= 1e-13 * top ? 0.0 : fabs(value - last);
            if (*error <= tol * value || *error <= 1e-15 * top) return value;
            if (end) { /* not there yet: the eigenvalue is somewhere between 0 and this */
                *error = value;
                return value;
            }
            last = value;
            check = m + m / 4 + 1;
        }
        double *spare = old;
        old = v;
        v = w;
        w = spare;
        for (size_t i = 0; i < n; i++) v[i] /= b;
    }
}
