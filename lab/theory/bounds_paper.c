/* SPDX-License-Identifier: Apache-2.0
 *
 * The convex bound with the constants printed in the HDO paper, for comparison only.
 *
 * Nothing in the library relies on these numbers. The printed proof has gaps (docs/theory.md 2); its end result is
 * nevertheless true for the recommended c = sqrt(d), and three to four orders of magnitude above the bound of
 * bounds_convex.c. Letters are the paper's: C_1..C_3 belong to its one-step lemma, D_1 and D_2 to the weighted sum.
 */
#include "hdo/lab/theory.h"

#include <assert.h>
#include <math.h>

static double square(double x) {
    return x * x;
}

static double cube(double x) {
    return x * x * x;
}

/* Printed one-step and summed constants, docs/theory.md 2.3. Difference step nu = eta/c, one direction. */
hdo_paper_sc hdo_theory_paper_sc(const hdo_paper_params *p, double eta, double T) {
    assert(eta > 0.0 && p->c > 0.0 && p->ell > 0.0 && p->n0 >= 0 && p->n1 >= 0 && p->n0 + p->n1 > 0);
    double n0 = (double)p->n0, n1 = (double)p->n1, n = n0 + n1, d = (double)p->d, L = p->L, ell = p->ell, c = p->c;
    double n3 = n * n * n, e2 = eta * eta, e4 = e2 * e2;
    double s0 = n0 * square(p->sigma0), s1 = n1 * square(p->sigma1);
    double z0 = n0 * square(p->varsigma0), z1 = n1 * square(p->varsigma1);
    double step3 = n0 * L * L * cube(d + 6.0) / (c * c); /* n0 L^2 (d+6)^3/c^2 */

    hdo_paper_sc r;
    r.B = eta * n0 / (2.0 * c * n) * L * pow(d + 3.0, 1.5);
    r.C1 = 4.0 * eta / n - e2 * 16.0 * L * (12.0 * d + 52.0) / (n * n) - e4 * 64.0 * r.B * L / n3;
    r.C2 = 2.0 * (L + ell) / n * eta + e2 * L * L * (96.0 * d + 456.0) / (n * n) + e4 * 32.0 * r.B * L * L / n3;
    r.C3 = e2 * ((96.0 * d + 448.0) * z0 + 88.0 * z1) / n3 + 8.0 * e2 * ((d + 4.0) * s0 + s1) / n3 +
           12.0 * e4 * step3 / n3 + e2 * 2.0 * r.B / n;
    r.D1 = r.C1 - 120.0 * r.C2 * e2 * (2.0 * d + 9.0) * L;
    r.D2 = r.C2 * (60.0 * e2 * (2.0 * (d + 4.0) * z0 + z1) / n + 20.0 * e2 * (2.0 * (d + 4.0) * s0 + s1) / n +
                   10.0 * e4 * step3 / n) +
           r.C3;
    r.cond_consensus = eta <= 1.0 / (14.0 * L * sqrt(d + 4.0));
    r.cond_ell = eta <= 1.0 / (10.0 * ell);
    r.cond_bias = p->n0 == 0 || eta <= sqrt(ell * c * n) / (2.0 * sqrt(L * n0) * pow(d + 3.0, 0.75));
    r.cond_D1 = r.D1 > 0.0;
    r.ok = r.cond_consensus && r.cond_ell && r.cond_bias && r.cond_D1;
    r.rhs = r.a_bound = HUGE_VAL;
    double x = eta * ell / (2.0 * n); /* weights w_t = (1 - x)^-t, S_T = sum_{t=1}^T w_t = (w_T - 1)/x */
    if (r.cond_D1 && x < 1.0) {
        double inv_S = x / expm1(-T * log1p(-x));
        r.rhs = (p->a_0 * inv_S + r.D2) / r.D1;
        r.a_bound = r.rhs * 8.0 / ell;
    }
    return r;
}

static bool paper_ok(const void *ctx, int64_t T) {
    const hdo_paper_params *p = ctx;
    double n = (double)p->n0 + (double)p->n1, t = (double)T;
    return hdo_theory_paper_sc(p, 4.0 * n * log(t) / (t * p->ell), t).ok;
}

int64_t hdo_theory_paper_t_min(const hdo_paper_params *p) {
    return hdo_theory_t_min(paper_ok, p);
}

/* The three noise terms of the paper's introduction, without their hidden constants. */
hdo_paper_noise hdo_theory_paper_noise(const hdo_paper_params *p, double eta, int k) {
    assert(k == 1 || k == 2);
    double n0 = (double)p->n0, n1 = (double)p->n1, n = n0 + n1, d = (double)p->d, b = p->L * d * n0 / n;
    hdo_paper_noise r;
    r.het = eta * (d * n0 * square(p->varsigma0) + n1 * square(p->varsigma1)) / (n * n);
    r.noise = eta * (d * n0 * square(p->sigma0) + n1 * square(p->sigma1)) / (n * n);
    r.bias = eta * eta * (k == 1 ? b : b * b);
    return r;
}
