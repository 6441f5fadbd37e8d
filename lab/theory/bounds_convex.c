/* SPDX-License-Identifier: Apache-2.0
 *
 * Strongly convex objectives: one-step coefficients, the curve of the bound, its limit, and the weighted average.
 *
 * The bound is a linear recursion in (a, Gamma) with non-negative coefficients. It may be iterated for every step size;
 * what a large step loses is boundedness, never validity. The minimum with the Lyapunov function Phi = a + q Gamma is
 * taken at every round because Phi is better for ill-conditioned problems and the recursion for well-conditioned ones.
 *
 * The bias of differences enters in two ways and the better one wins: through the lift b_f of the smoothed objective
 * (convexity, no loss of rate) or through the size B of the bias vector (Young's inequality, half the rate).
 */
#include "hdo/experimental/formulas.h"
#include "hdo/lab/theory.h"

#include <assert.h>
#include <math.h>

#include "hdo/experimental/fail.h"

/* c x, where a zero factor wins over an infinite one: an absent term stays absent. */
static double times(double c, double x) {
    return c == 0.0 || x == 0.0 ? 0.0 : c * x;
}

hdo_status hdo_theory_problem_check(const hdo_theory_problem *p, bool convex, hdo_error *e) {
    if (p->pop.n != p->mix.n)
        return hdo__fail(e, HDO_E_CONFIG, "The population has %d nodes, the communication scheme %d.", p->pop.n,
                         p->mix.n);
    if (!(p->L > 0.0) || !isfinite(p->L))
        return hdo__fail(e, HDO_E_CONFIG, "The smoothness constant L = %g must be positive and finite.", p->L);
    if (!convex) {
        if (p->mode != HDO_THEORY_MODE_U)
            return hdo__fail(e, HDO_E_CONFIG,
                             "The non-convex bound needs heterogeneity bounded everywhere (mode U), not only at x*.");
        return HDO_OK;
    }
    if (!(p->ell >= 0.0 && p->ell <= p->L))
        return hdo__fail(e, HDO_E_CONFIG, "The strong convexity ell = %g must lie between 0 and L = %g.", p->ell, p->L);
    if (!(p->ell_loc >= 0.0 && p->ell_loc <= p->ell))
        return hdo__fail(e, HDO_E_CONFIG,
                         "The strong convexity of every node, ell_loc = %g, must lie between 0 and ell = %g.",
                         p->ell_loc, p->ell);
    return HDO_OK;
}

/* Multipliers of Gamma, e and constants in the bounds on v (k), V (A) and |h|^2 (H): docs/theory.md 3.4. */
struct split {
    double k[3], A[4], H[3], omega_hat;
};

static struct split split_of(const hdo_theory_problem *p) {
    bool biased = p->pop.B > 0.0, U = p->mode == HDO_THEORY_MODE_U;
    struct split s;
    double kk = U && p->balanced ? 2.0 : 3.0; /* balanced: the cross terms inside a class vanish */
    double aa = (U ? 2.0 : 3.0) + (biased ? 1.0 : 0.0);
    double hh = biased ? 3.0 : 2.0;
    s.k[0] = kk;
    s.k[1] = 2.0 * kk;
    s.k[2] = kk;
    s.A[0] = aa;
    s.A[1] = U ? 0.0 : 2.0 * aa;
    s.A[2] = aa;
    s.A[3] = biased ? aa : 0.0;
    s.H[0] = hh;
    s.H[1] = 2.0 * hh;
    s.H[2] = biased ? hh : 0.0;
    s.omega_hat = U || p->balanced ? p->pop.omega_bar : p->pop.omega_max;
    return s;
}

/* N_ and P_ coefficients, docs/theory.md 3.4. */
hdo_sys_coef hdo_theory_sys_coef(const hdo_theory_problem *p, double eta) {
    assert(eta > 0.0 && p->L > 0.0 && p->pop.n == p->mix.n);
    const hdo_pop_const *P = &p->pop;
    const hdo_mix_const *m = &p->mix;
    struct split w = split_of(p);
    double L = p->L, th = m->tf * eta, th2 = th * th;
    double het_v = times(w.k[2], P->Z), het_V = times(w.A[2], P->z2);
    double bias_V = times(w.A[3], P->B2), bias_h = times(w.H[2], P->B * P->B);

    hdo_sys_coef s = {.theta = th, .B = P->B, .b_f = P->b_f, .L = L, .ell = p->ell, .ell_loc = p->ell_loc};
    s.N_G = L * L * (m->p_v * w.k[0] * P->omega_max + m->p_V * w.A[0] + w.H[0]);
    s.N_e = L * (m->p_v * w.k[1] * w.omega_hat + m->p_V * w.A[1] + w.H[1]);
    s.N_het = times(m->p_v, het_v) + times(m->p_V, het_V);
    s.N_noise = times(m->p_v, P->V0);
    s.N_kappa = times(m->p_v, P->V0_kappa);
    s.N_bias = times(m->p_V, bias_V) + bias_h;
    s.N_0 = s.N_het + s.N_noise + s.N_bias;
    s.P_G = th2 * L * L * (m->u_v * w.k[0] * P->omega_max + m->u_V * w.A[0] + m->u_h * w.H[0]);
    s.P_e = th2 * L * (m->u_v * w.k[1] * w.omega_hat + times(m->u_V, w.A[1]) + m->u_h * w.H[1]);
    s.P_het = th2 * (times(m->u_v, het_v) + times(m->u_V, het_V));
    s.P_noise = th2 * times(m->u_v, P->V0);
    s.P_kappa = th2 * times(m->u_v, P->V0_kappa);
    s.P_bias = th2 * (times(m->u_V, bias_V) + times(m->u_h, bias_h));
    s.P_0 = s.P_het + s.P_noise + s.P_bias;
    s.delta = m->delta0 - s.P_G;
    return s;
}

/* Strongly convex one-step, docs/theory.md 3.5. e is squeezed between ell a/2 and L a/2. */
hdo_sc_step hdo_theory_sc_step(const hdo_sys_coef *s) {
    double th = s->theta, c = 2.0 - th * s->N_e;
    double r0 = s->ell_loc + (c >= 0.0 ? c * s->ell : c * s->L) / 2.0;
    double noise = th * th * s->N_0;
    hdo_sc_step m;
    m.m11[0] = fmax(0.0, 1.0 - th * r0);
    m.r1[0] = noise + (s->B > 0.0 ? 2.0 * th * s->b_f : 0.0);
    /* Young: 2 B sqrt(a) <= gamma a + B^2/gamma for any gamma > 0; half the rate is a good choice when there is one. */
    double gamma = r0 > 0.0 ? r0 / 2.0 : s->L;
    m.m11[1] = fmax(0.0, 1.0 - th * (r0 - gamma));
    m.r1[1] = s->B > 0.0 ? noise + th * s->B * s->B / gamma : HUGE_VAL;
    m.m12 = th * (s->L - s->ell_loc + th * s->N_G);
    m.m21 = s->P_e * s->L / 2.0;
    m.m22 = fmax(0.0, 1.0 - s->delta);
    m.P_0 = s->P_0;
    return m;
}

/* Lyapunov function Phi = a + q Gamma, docs/theory.md 3.6. */
hdo_sc_lyap hdo_theory_sc_lyap(const hdo_sys_coef *s, double phi) {
    assert(phi > 0.0 && phi <= 1.0);
    hdo_sc_lyap y = {.ok = false, .q = HUGE_VAL, .eps = -HUGE_VAL, .R = {HUGE_VAL, HUGE_VAL}};
    double th = s->theta;
    if (!(s->delta > 0.0)) return y;
    y.q = 2.0 * th * (s->L - s->ell_loc + th * s->N_G) / s->delta;
    y.eps = 2.0 - th * s->N_e - times(y.q, s->P_e) / th;
    if (!(y.eps > 0.0)) return y;
    y.ok = true;
    double r0 = s->ell_loc + phi * y.eps * s->ell / 2.0;
    double noise = th * th * s->N_0 + times(y.q, s->P_0);
    y.rate[0] = fmin(th * r0, s->delta / 2.0);
    y.R[0] = noise + (s->B > 0.0 ? 2.0 * th * s->b_f : 0.0);
    if (s->B > 0.0 && r0 > 0.0) {
        y.rate[1] = fmin(th * r0 / 2.0, s->delta / 2.0);
        y.R[1] = noise + 2.0 * th * s->B * s->B / r0;
    }
    return y;
}

void hdo_theory_sc_iter_init(hdo_sc_iter *it, const hdo_sys_coef *s, double a_0, double Gamma_0) {
    assert(a_0 >= 0.0 && Gamma_0 >= 0.0);
    it->step = hdo_theory_sc_step(s);
    it->lyap = hdo_theory_sc_lyap(s, 1.0);
    it->t = 0;
    it->a = a_0;
    it->Gamma = Gamma_0;
    it->Phi[0] = it->Phi[1] = it->lyap.ok ? a_0 + times(it->lyap.q, Gamma_0) : HUGE_VAL;
}

void hdo_theory_sc_iter_next(hdo_sc_iter *it) {
    const hdo_sc_step *m = &it->step;
    double a = it->a, G = it->Gamma;
    double a2 = fmin(times(m->m11[0], a) + m->r1[0], times(m->m11[1], a) + m->r1[1]) + times(m->m12, G);
    double G2 = times(m->m21, a) + times(m->m22, G) + m->P_0;
    if (it->lyap.ok) {
        for (int k = 0; k < 2; k++) it->Phi[k] = (1.0 - it->lyap.rate[k]) * it->Phi[k] + it->lyap.R[k];
        double Phi = fmin(it->Phi[0], it->Phi[1]);
        a2 = fmin(a2, Phi);
        G2 = fmin(G2, Phi / it->lyap.q);
    }
    it->a = a2;
    it->Gamma = G2;
    it->t++;
}

void hdo_theory_sc_curve(const hdo_sys_coef *s, double a_0, double Gamma_0, int64_t T, double *a, double *Gamma) {
    assert(T >= 0);
    hdo_sc_iter it;
    hdo_theory_sc_iter_init(&it, s, a_0, Gamma_0);
    for (int64_t t = 0;; t++) {
        if (a != NULL) a[t] = it.a;
        if (Gamma != NULL) Gamma[t] = it.Gamma;
        if (t == T) return;
        hdo_theory_sc_iter_next(&it);
    }
}

/* Spectral radius and fixed point of the recursion, docs/theory.md 3.5. The b_f route, or the B route if b_f is
 * unknown. The matrix has non-negative entries, so its largest eigenvalue is real and is the radius. On ill-conditioned
 * problems the radius may exceed one while the Lyapunov bound, which trades e against Gamma, still exists. */
hdo_sc_limit hdo_theory_sc_radius(const hdo_sys_coef *s) {
    hdo_sc_step m = hdo_theory_sc_step(s);
    int k = isfinite(m.r1[0]) ? 0 : 1;
    double tr = m.m11[k] + m.m22, df = m.m11[k] - m.m22, off = times(m.m12, m.m21);
    hdo_sc_limit r = {.radius = (tr + sqrt(df * df + 4.0 * off)) / 2.0, .a = HUGE_VAL, .Gamma = HUGE_VAL};
    double p = 1.0 - m.m11[k], g = 1.0 - m.m22, det = p * g - off;
    if (p > 0.0 && g > 0.0 && det > 0.0) { /* the same as radius < 1, without cancellation */
        r.a = (times(g, m.r1[k]) + times(m.m12, m.P_0)) / det;
        r.Gamma = (times(p, m.P_0) + times(m.m21, m.r1[k])) / det;
    }
    hdo_sc_lyap y = hdo_theory_sc_lyap(s, 1.0);
    r.Phi = HUGE_VAL;
    for (int j = 0; j < 2; j++)
        if (y.ok && y.rate[j] > 0.0) r.Phi = fmin(r.Phi, y.R[j] / y.rate[j]);
    r.bounded = isfinite(r.a) || isfinite(r.Phi);
    return r;
}

/* Weighted average of the mean models, docs/theory.md 3.6, with its error split into start, heterogeneity, gradient
 * noise and bias. Weights (1-rate)^-t; for rate 0 (not strongly convex) they are equal. */
hdo_sc_weighted hdo_theory_sc_weighted(const hdo_sys_coef *s, double a_0, double Gamma_0, int64_t T, double phi) {
    assert(T >= 1 && phi < 1.0);
    hdo_sc_lyap y = hdo_theory_sc_lyap(s, phi);
    hdo_sc_weighted w = {.ok = y.ok, .f_y = HUGE_VAL, .q = y.q, .eps = y.eps, .R = HUGE_VAL, .coefa = 0.0};
    w.init = w.het = w.noise = w.bias = w.noise_kappa = HUGE_VAL;
    if (!y.ok) return w;
    double th = s->theta, th2 = th * th, den = th * y.eps * (1.0 - phi), Phi = a_0 + times(y.q, Gamma_0);
    double r0 = s->ell_loc + phi * y.eps * s->ell / 2.0;
    for (int k = 0; k < 2; k++) {
        if (k == 1 && !(s->B > 0.0 && r0 > 0.0)) continue;
        double v = y.rate[k];
        double inv_S = v > 0.0 ? v / expm1(-(double)T * log1p(-v)) : 1.0 / (double)T;
        double init = Phi * inv_S / den, f_y = init + y.R[k] / den;
        if (k == 1 && !(f_y < w.f_y)) continue;
        double lift = s->B > 0.0 ? (k == 0 ? 2.0 * th * s->b_f : 2.0 * th * s->B * s->B / r0) : 0.0;
        w.variant = k;
        w.f_y = f_y;
        w.rate = v;
        w.R = y.R[k];
        w.coefa = v / den;
        w.init = init;
        w.het = (th2 * s->N_het + y.q * s->P_het) / den;
        w.noise = (th2 * s->N_noise + y.q * s->P_noise) / den;
        w.noise_kappa = (th2 * s->N_kappa + y.q * s->P_kappa) / den;
        w.bias = (th2 * s->N_bias + y.q * s->P_bias + lift) / den;
    }
    return w;
}

/* Second moment of the estimators, docs/theory.md 3.4, with e <= (L/2) a. */
double hdo_theory_mg_bound(const hdo_theory_problem *p, double a, double Gamma) {
    const hdo_pop_const *P = &p->pop;
    struct split w = split_of(p);
    double L2 = p->L * p->L;
    return times((w.k[0] * P->omega_max + w.A[0] + w.H[0]) * L2, Gamma) +
           times((w.k[1] * w.omega_hat + w.A[1] + w.H[1]) * L2 / 2.0, a) + times(w.k[2], P->Z) + P->V0 +
           times(w.A[2], P->z2) + times(w.A[3], P->B2) + times(w.H[2], P->B * P->B);
}

/* Step-size condition behind "smallest T", docs/theory.md 3.6. */
bool hdo_theory_sc_ok(const hdo_theory_problem *p, double eta) {
    hdo_sys_coef s = hdo_theory_sys_coef(p, eta);
    if (!(s.delta >= p->mix.delta0 / 2.0)) return false;
    return hdo_theory_sc_lyap(&s, 1.0).eps >= 1.0;
}

double hdo_theory_sc_eta(const hdo_theory_problem *p, int64_t T) {
    return hdo_theorem_rate(p->mix.tf != 1.0, (double)p->mix.n, (double)T, p->ell);
}

/* Closed forms with simple constants, docs/theory.md 3.6: looser than sc_weighted, but one line each. */
hdo_corollary hdo_theory_cor_sc(const hdo_theory_problem *p, double eta, double a_0, int64_t T) {
    assert(p->mix.kind == HDO_THEORY_PAIR || p->mix.kind == HDO_THEORY_MATCH);
    const hdo_pop_const *P = &p->pop;
    double n = (double)P->n, L = p->L, W = P->omega_max, th = p->mix.tf * eta, rate, eta_max, noise;
    double vz = P->V0 + 2.0 * P->Z;
    if (p->mix.kind == HDO_THEORY_PAIR) {
        eta_max = fmin(1.0 / (8.0 * sqrt(2.0) * sqrt(W + 5.0)), n / (8.0 * (W + 3.0))) / L;
        rate = fmin(th * (p->ell_loc + p->ell / 4.0), 1.0 / (8.0 * (n - 1.0)));
        noise = th * (vz + 2.0 * P->z2) + 16.0 * n * eta * L * th * (vz + 6.0 * P->z2);
    } else {
        eta_max = fmin(1.0 / (8.0 * sqrt(2.0) * sqrt(W + 3.0)), 1.0 / (8.0 * (1.0 + W / n))) / L;
        rate = fmin(th * (p->ell_loc + p->ell / 4.0), 1.0 / 16.0);
        noise = 2.0 * eta * vz / n + 32.0 * eta * eta * L * (vz + 6.0 * P->z2);
    }
    hdo_corollary c = {.ok = eta <= eta_max && P->B == 0.0 && p->mode == HDO_THEORY_MODE_U && p->balanced};
    c.bound = 2.0 / th * a_0 * rate / expm1(-(double)T * log1p(-rate)) + noise;
    return c;
}
