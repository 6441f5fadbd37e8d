/* SPDX-License-Identifier: Apache-2.0
 *
 * What one gradient estimate costs: variance and bias constants of every estimator, and their population averages.
 *
 * All moments are those of a standard Gaussian direction: E|u|^6 = d(d+2)(d+4), E|u|^8 = d(d+2)(d+4)(d+6). They are
 * exact, not the rounded (d+k)^(k/2) of the literature; docs/theory.md 3.2 has the table and the short proofs.
 */
#include "hdo/lab/theory.h"

#include <assert.h>
#include <math.h>

#include "hdo/experimental/fail.h"

static const double pi = 3.14159265358979323846;

/* c x, where a zero factor wins over an infinite one: an absent term stays absent. */
static double times(double c, double x) {
    return c == 0.0 || x == 0.0 ? 0.0 : c * x;
}

static bool is_difference(hdo_theory_est kind) {
    return kind == HDO_THEORY_FD1 || kind == HDO_THEORY_FD2;
}

/* L of the objective and L_F of the batch loss. One of them missing: use the other. L_F < L cannot be. */
static double smooth_f(const hdo_est_params *p) {
    return p->L > 0.0 ? p->L : p->L_F;
}

static double smooth_batch(const hdo_est_params *p) {
    return fmax(p->L, p->L_F);
}

hdo_est_params hdo_theory_est_default(hdo_theory_est kind, size_t d) {
    hdo_est_params p = {.kind = kind, .d = d, .rv = 1, .L2 = HUGE_VAL, .tau = 1.0};
    return p;
}

/* Written so that a NaN fails every test. */
hdo_status hdo_theory_est_check(const hdo_est_params *p, hdo_error *e) {
    if ((int)p->kind < (int)HDO_THEORY_FO || (int)p->kind > (int)HDO_THEORY_CSTEP)
        return hdo__fail(e, HDO_E_CONFIG, "The estimator kind %d is unknown.", (int)p->kind);
    if (p->d < 1) return hdo__fail(e, HDO_E_CONFIG, "The dimension d is 0; it must be at least 1.");
    if (p->d_max > p->d)
        return hdo__fail(e, HDO_E_CONFIG, "The largest tensor has d_max = %zu entries, more than d = %zu in all.",
                         p->d_max, p->d);
    if (p->rv < 1) return hdo__fail(e, HDO_E_CONFIG, "rv = %d directions; at least 1 is needed.", p->rv);
    if (p->kind == HDO_THEORY_FO || p->kind == HDO_THEORY_FM) return HDO_OK;
    if (!(p->nu > 0.0) || !isfinite(p->nu))
        return hdo__fail(e, HDO_E_CONFIG, "The difference step nu = %g must be positive and finite.", p->nu);
    if (!(p->L >= 0.0) || !(p->L_F >= 0.0) || !(p->L2 >= 0.0))
        return hdo__fail(e, HDO_E_CONFIG, "Smoothness constants must not be negative: L = %g, L_F = %g, L2 = %g.", p->L,
                         p->L_F, p->L2);
    if (!(p->tau > 0.0) || !isfinite(p->tau))
        return hdo__fail(e, HDO_E_CONFIG, "The split tau = %g must be positive and finite.", p->tau);
    if (!(p->df >= 0.0)) return hdo__fail(e, HDO_E_CONFIG, "The error of a loss value df = %g is negative.", p->df);
    return HDO_OK;
}

static hdo_est_const from_omega(const hdo_est_params *p, double omega, double kappa, double b) {
    double rv = (double)p->rv;
    /* With a fresh batch per direction the data noise itself is averaged too: 1/rv instead of 1. */
    double rho = (p->fresh_batch ? 1.0 / rv : 1.0) + omega;
    hdo_est_const c = {.omega = omega, .rho = rho, .kappa = kappa, .b = b, .b_f = hdo_theory_est_bf(p)};
    return c;
}

/* Estimator table, docs/theory.md 3.2. */
hdo_est_const hdo_theory_est_const(const hdo_est_params *p) {
    assert(hdo_theory_est_check(p, NULL) == HDO_OK);
    double d = (double)p->d, rv = (double)p->rv;
    if (p->kind == HDO_THEORY_FO) return (hdo_est_const){.rho = 1.0};
    if (p->kind == HDO_THEORY_FM) {
        double m = p->d_max > 0 ? (double)p->d_max : d;
        return from_omega(p, (m + 1.0) / rv, 0.0, 0.0);
    }
    double nu = p->nu, L = smooth_f(p), LF = smooth_batch(p), L2 = p->L2;
    double m6 = d * (d + 2.0) * (d + 4.0);
    /* Second moment of remainder times direction: first-order Taylor R1, second-order R2. */
    double R1 = times(nu * nu * m6 / 4.0, LF * LF);
    double R2 = times(nu * nu * nu * nu * m6 * (d + 6.0) / 36.0, L2 * L2);
    /* Distance between the gradient of the smoothed function and the gradient. */
    double bs = fmin(times(nu * sqrt(d), L), times(nu * nu * d / 2.0, L2));
    double R = R1, b = bs, ed = 2.0 * p->df / nu;
    if (p->kind == HDO_THEORY_FD2) {
        R = fmin(R1, R2);
        ed = p->df / nu;
    } else if (p->kind == HDO_THEORY_CSTEP) {
        R = R2;
        b = times(nu * nu * sqrt(m6) / 6.0, L2);
        ed = 0.0; /* nothing is subtracted, nothing cancels */
    }
    if (p->quad) { /* the remainder is even in u: no bias, and it vanishes for central and complex steps */
        b = 0.0;
        R = p->kind == HDO_THEORY_FD1 ? R1 : 0.0;
    }
    /* Remainder uncorrelated with the main part, or none: the variances add, tau is not needed. */
    if (ed == 0.0 && (p->quad || R == 0.0)) return from_omega(p, (d + 1.0) / rv, R / rv, b);
    double sd = sqrt(R) + ed * sqrt(d);
    return from_omega(p, (1.0 + p->tau) * (d + 1.0) / rv, (1.0 + 1.0 / p->tau) * sd * sd / rv, b + ed * sqrt(2.0 / pi));
}

/* How far Gaussian smoothing lifts one convex L-smooth objective, docs/theory.md 3.5. Round-off and the complex step
 * spoil the argument (the mean is no longer a gradient of the smoothed function): HUGE_VAL. */
double hdo_theory_est_bf(const hdo_est_params *p) {
    if (p->kind == HDO_THEORY_FO || p->kind == HDO_THEORY_FM) return 0.0;
    if (is_difference(p->kind) && p->df > 0.0) return HUGE_VAL;
    if (p->quad) return 0.0;
    if (p->kind == HDO_THEORY_CSTEP) return HUGE_VAL;
    return times(p->nu * p->nu * (double)p->d / 2.0, smooth_f(p));
}

/* One-sided difference: the step where round-off and Taylor remainder contribute equally, docs/theory.md 3.2. */
double hdo_theory_nu_best(size_t d, double L, double df) {
    double dd = (double)d;
    return 2.0 * sqrt(df / (L * sqrt((dd + 2.0) * (dd + 4.0))));
}

double hdo_theory_node_noise(const hdo_est_const *c, double sigma, double varsigma, double k3) {
    return times(c->rho, sigma * sigma) + c->kappa + times(k3 * c->omega, varsigma * varsigma);
}

/* Decompose z along and across g; one pass for the two inner products, one to write. docs/theory.md 4. */
void hdo_theory_fwd_draw(size_t d, const double *g, int rv, double chi, const double *z, double *G) {
    assert(rv >= 1 && chi >= 0.0);
    double gg = 0.0, zg = 0.0;
    for (size_t k = 0; k < d; k++) {
        gg += g[k] * g[k];
        zg += z[k] * g[k];
    }
    double norm = sqrt(gg), root = sqrt(chi), r = (double)rv;
    double along = norm > 0.0 ? (chi - root * zg / norm) / r : 0.0;
    double across = norm * root / r;
    for (size_t k = 0; k < d; k++) G[k] = norm > 0.0 ? along * g[k] + across * z[k] : 0.0;
}

/* Averages over the population, docs/theory.md 3.4. Any number of classes; two give the hybrid of the paper. */
hdo_pop_const hdo_theory_pop_const(const hdo_pop_class *classes, size_t n_classes) {
    hdo_pop_const P = {0};
    for (size_t k = 0; k < n_classes; k++) {
        const hdo_pop_class *c = &classes[k];
        assert(c->count >= 0);
        if (c->count == 0) continue;
        double w = (double)c->count, s2 = c->sigma * c->sigma, vs2 = c->varsigma * c->varsigma;
        P.n += c->count;
        if (c->is_zo)
            P.n0 += c->count;
        else
            P.n1 += c->count;
        P.omega_max = fmax(P.omega_max, c->est.omega);
        P.omega_bar += w * c->est.omega;
        P.V0 += w * (times(c->est.rho, s2) + c->est.kappa);
        P.V0_kappa += w * c->est.kappa;
        P.Z += w * times(c->est.omega, vs2);
        P.z2 += w * vs2;
        P.B += w * c->est.b;
        P.B2 += w * c->est.b * c->est.b;
        P.b_f += w * c->est.b_f;
    }
    assert(P.n > 0);
    double n = (double)P.n;
    P.omega_bar /= n;
    P.V0 /= n;
    P.V0_kappa /= n;
    P.Z /= n;
    P.z2 /= n;
    P.B /= n;
    P.B2 /= n;
    P.b_f /= n;
    return P;
}
