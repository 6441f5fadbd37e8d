/* SPDX-License-Identifier: Apache-2.0
 *
 * Non-convex objectives: a bound on the mean squared gradient norm along the mean model, docs/theory.md 3.7.
 *
 * The descent inequality leaves a term -|h|^2/2 that is usually thrown away. Here it pays for the growth of Gamma under
 * pairwise averaging, so no factor n is lost; the price is the condition hc <= 1. Heterogeneity must be bounded
 * everywhere (mode U).
 */
#include "hdo/lab/theory.h"

#include <assert.h>
#include <math.h>

/* c x, where a zero factor wins over an infinite one: an absent term stays absent. */
static double times(double c, double x) {
    return c == 0.0 || x == 0.0 ? 0.0 : c * x;
}

static hdo_nc_bound no_bound(void) {
    hdo_nc_bound r = {.ok = false, .q = HUGE_VAL, .hc = HUGE_VAL, .eps = -HUGE_VAL};
    r.init = r.het = r.noise = r.bias = r.total = r.Gav = r.noise_kappa = HUGE_VAL;
    return r;
}

/* T is a double so that a plan may be evaluated for any horizon. */
hdo_nc_bound hdo_theory_nc_bound(const hdo_theory_problem *p, double eta, double F, double Gamma_0, double T) {
    assert(eta > 0.0 && T > 0.0 && p->L > 0.0 && p->pop.n == p->mix.n);
    const hdo_pop_const *P = &p->pop;
    const hdo_mix_const *m = &p->mix;
    bool biased = P->B > 0.0;
    double L = p->L, th = m->tf * eta, th2 = th * th;
    double A = biased ? 3.0 : 2.0, A4 = biased ? 3.0 : 0.0; /* spread of the mean estimates */
    double k = p->balanced ? 2.0 : 3.0;                     /* variance: Gamma, |grad f|^2 and Z alike */
    double c1 = biased ? 2.0 : 1.0, c2 = biased ? 2.0 : 0.0;
    double B = P->B * P->B;

    hdo_nc_bound r = no_bound();
    r.delta = m->delta0 - th2 * L * L * (m->u_v * k * P->omega_max + m->u_V * A);
    if (!(r.delta > 0.0)) return r;
    /* q makes the coefficient of Gamma vanish, hc <= 1 that of |h|^2 non-positive. */
    r.q = (th * c1 * L * L / 2.0 + th2 * L * L * L / 2.0 * (m->p_v * k * P->omega_max + m->p_V * A)) / r.delta;
    r.hc = th * (L + 2.0 * r.q * m->u_h);
    double D = th2 * (L * m->p_v / 2.0 + r.q * m->u_v), E = th2 * (L * m->p_V / 2.0 + r.q * m->u_V);
    r.eps = 1.0 - 2.0 * D * k * P->omega_bar / th;
    r.ok = r.hc <= 1.0 && r.eps > 0.0;
    if (!r.ok) return r;

    /* Mean squared gradient, docs/theory.md 3.7: start, heterogeneity, gradient noise, bias. */
    double den = 2.0 / (th * r.eps);
    r.init = den * (F + times(r.q, Gamma_0)) / T;
    r.het = den * (times(D * k, P->Z) + times(E * A, P->z2));
    r.noise = den * times(D, P->V0);
    r.noise_kappa = den * times(D, P->V0_kappa);
    r.bias = den * (times(th / 2.0 * c2, B) + times(E * A4, P->B2));
    r.total = r.init + r.het + r.noise + r.bias;

    /* Mean disagreement, docs/theory.md 3.7. */
    double H = biased ? 3.0 : 2.0, Hb = biased ? 3.0 : 0.0, dg = r.delta - th2 * L * L * m->u_h * H;
    if (dg > 0.0) {
        double v = times(k, P->Z) + P->V0 + times(k * P->omega_bar, r.total);
        double V = times(A, P->z2) + times(A4, P->B2), h = H * r.total + times(Hb, B);
        r.Gav = (Gamma_0 / T + th2 * (times(m->u_v, v) + times(m->u_V, V) + times(m->u_h, h))) / dg;
    }
    return r;
}

/* Step-size condition behind "smallest T", docs/theory.md 3.7. */
bool hdo_theory_nc_ok(const hdo_theory_problem *p, double eta) {
    hdo_nc_bound r = hdo_theory_nc_bound(p, eta, 1.0, 0.0, 1.0);
    return r.ok && r.delta >= p->mix.delta0 / 2.0 && r.eps >= 0.5;
}

/* theta = 2/sqrt(d T): the published eta = n/sqrt(d T) for pairs, and the same movement of the mean elsewhere. */
double hdo_theory_nc_eta(const hdo_theory_problem *p, size_t d, int64_t T) {
    return 2.0 / (p->mix.tf * sqrt((double)d * (double)T));
}

/* Large T: 2F/(theta T) + L theta Sigma2 and its minimum over theta, docs/theory.md 3.7. */
hdo_nc_leading hdo_theory_nc_leading(const hdo_theory_problem *p, double F, double T) {
    assert(F >= 0.0 && T > 0.0);
    const hdo_pop_const *P = &p->pop;
    double k = p->balanced ? 2.0 : 3.0, A = P->B > 0.0 ? 3.0 : 2.0;
    hdo_nc_leading r;
    r.Sigma2 = times(p->mix.p_v, P->V0 + times(k, P->Z)) + times(p->mix.p_V * A, P->z2);
    r.theta = r.Sigma2 > 0.0 ? sqrt(2.0 * F / (p->L * r.Sigma2 * T)) : HUGE_VAL;
    r.bound = 2.0 * sqrt(2.0 * F * p->L * r.Sigma2 / T);
    return r;
}

/* Closed form for pairs, unbiased, balanced, docs/theory.md 3.7. */
hdo_corollary hdo_theory_cor_nc(const hdo_theory_problem *p, double eta, double F, double T) {
    assert(p->mix.kind == HDO_THEORY_PAIR);
    const hdo_pop_const *P = &p->pop;
    double n = (double)P->n, L = p->L, W = P->omega_max, x = n * eta * L;
    double eta_max = fmin(1.0 / (8.0 * sqrt(W + 3.0)), n / (8.0 * (W + 1.0))) / L;
    hdo_corollary c = {.ok = eta <= eta_max && P->B == 0.0 && p->balanced};
    c.bound = 2.0 * n * F / (eta * T) +
              2.0 * eta * L / n * ((1.0 + 8.0 * x) * (P->V0 + 2.0 * P->Z) + 2.0 * (1.0 + 24.0 * x) * P->z2);
    return c;
}
