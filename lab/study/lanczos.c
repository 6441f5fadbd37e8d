/* SPDX-License-Identifier: Apache-2.0
 *
 * Extreme eigenvalues of a symmetric operator that is known only through products: Hessians by gradients, Gram matrices
 * by data. Lanczos without reorthogonalisation: three vectors, whatever the dimension. Lost orthogonality copies
 * eigenvalues that have converged, it does not move the extreme ones (Paige 1971).
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "lab/study/study_internal.h"

enum { STEPS_MAX = 400 };

static double dot(size_t n, const double *x, const double *y) {
    double s = 0.0;
    for (size_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

/* Eigenvalues of the tridiagonal matrix below x: sign changes of the Sturm sequence. */
static int below(int m, const double *alpha, const double *beta, double x) {
    int count = 0;
    double q = 1.0;
    for (int i = 0; i < m; i++) {
        double b = i > 0 ? beta[i - 1] : 0.0;
        q = alpha[i] - x - (i > 0 ? b * b / q : 0.0);
        if (q == 0.0) q = 1e-300;
        count += q < 0.0;
    }
    return count;
}

static double eigenvalue(int m, const double *alpha, const double *beta, int index) {
    double lo = HUGE_VAL, hi = -HUGE_VAL; /* Gershgorin */
    for (int i = 0; i < m; i++) {
        double r = (i > 0 ? fabs(beta[i - 1]) : 0.0) + (i + 1 < m ? fabs(beta[i]) : 0.0);
        lo = fmin(lo, alpha[i] - r);
        hi = fmax(hi, alpha[i] + r);
    }
    for (int k = 0; k < 200 && hi - lo > 1e-13 * fmax(fabs(lo), fabs(hi)); k++) {
        double mid = 0.5 * (lo + hi);
        if (below(m, alpha, beta, mid) > index) {
            hi = mid;
        } else {
            lo = mid;
        }
    }
    return 0.5 * (lo + hi);
}

hdo_status hdo__lanczos(hdo_matvec mul, void *ctx, size_t n, int steps, uint64_t seed, hdo_ritz *out, hdo_error *e) {
    if (steps > STEPS_MAX) steps = STEPS_MAX;
    double alpha[STEPS_MAX], beta[STEPS_MAX], *v = hdo__alloc(3 * n * sizeof(double));
    if (v == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for eigenvalues of dimension %zu", n);
    double *old = v + n, *w = v + 2 * n;
    hdo_stream s = hdo__stream(seed, HDO_RNG_PROBLEM, 0, 0, 77);
    for (size_t i = 0; i < n; i++) v[i] = hdo__rng_gauss(s, i);
    double norm = sqrt(dot(n, v, v));
    for (size_t i = 0; i < n; i++) v[i] /= norm;
    int m = 0;
    hdo_status st = HDO_OK;
    for (; m < steps && st == HDO_OK; m++) {
        st = mul(ctx, v, w, e);
        if (st != HDO_OK) break;
        alpha[m] = dot(n, v, w);
        for (size_t i = 0; i < n; i++) w[i] -= alpha[m] * v[i] + (m > 0 ? beta[m - 1] * old[i] : 0.0);
        beta[m] = sqrt(dot(n, w, w));
        if (!isfinite(alpha[m]) ||
            !(beta[m] > 1e-12 * fabs(alpha[0]))) { /* an invariant subspace: nothing more to find */
            m++;
            break;
        }
        for (size_t i = 0; i < n; i++) {
            old[i] = v[i];
            v[i] = w[i] / beta[m];
        }
    }
    if (st == HDO_OK) *out = (hdo_ritz){eigenvalue(m, alpha, beta, 0), eigenvalue(m, alpha, beta, m - 1)};
    hdo__free(v);
    return st;
}

double hdo__lanczos_error(size_t n, int steps, double fail) {
    if ((size_t)steps >= n) return 1e-9; /* exact up to rounding */
    double root = log(1.648 * sqrt((double)n) / fail) / (2.0 * (double)steps - 1.0);
    return root < 1.0 ? root * root : 1.0;
}
