/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing: do zeroth-order nodes help, which step size, how many rounds.
 *
 * The help criterion compares noise at the best step of either side, where both bounds behave as sqrt(noise/T); it is
 * exact in the noise-dominated regime (docs/theory.md 3.8). The searches rely on conditions that hold for all smaller
 * steps once they hold for one, so doubling and bisection find the edge (docs/theory.md 3.9).
 */
#include "hdo/lab/theory.h"

#include <assert.h>
#include <math.h>

/* Weight of heterogeneity in the movement of the mean when one pair steps, docs/theory.md 3.3. */
static double pair_spread(int n) {
    return n <= 2 ? 0.0 : ((double)n - 2.0) / (2.0 * ((double)n - 1.0));
}

/* Noise with zeroth-order nodes over noise without, docs/theory.md 3.8. */
hdo_zo_help hdo_theory_zo_help(int n0, int n1, double a0, double a1, double varsigma0, double varsigma1, bool biased) {
    assert(n0 >= 0 && n1 >= 1 && a0 >= 0.0 && a1 >= 0.0);
    double m0 = (double)n0, m1 = (double)n1, n = m0 + m1, A3 = biased ? 3.0 : 2.0;
    double sum = m0 * a0 + m1 * a1;
    double vs1 = varsigma1 * varsigma1, z2 = (m0 * varsigma0 * varsigma0 + m1 * vs1) / n;
    hdo_zo_help r;
    r.noise_ratio = a0 / a1;
    r.threshold = 2.0 + m0 / m1;
    r.match = sum * m1 / (n * n * a1);
    r.pair = (double)NAN;
    r.parallel = (double)NAN;
    if (n1 >= 2) {
        double with = sum / (2.0 * n) + pair_spread(n0 + n1) * A3 * z2;
        double without = a1 / 2.0 + pair_spread(n1) * A3 * vs1;
        r.pair = with / without;
        r.parallel = r.pair * m1 / n; /* n/2 interactions per unit of time: twice the nodes, twice the rounds */
    }
    /* Steps scaled as 1/a_k: the harmonic combination is always below a1/n1. */
    r.weighted = a0 > 0.0 ? m1 / (m0 * a1 / a0 + m1) : 0.0;
    r.eta_ratio = a1 / a0;
    return r;
}

/* a0 = sigma0^2 + omega (sigma0^2 + k3 varsigma0^2) with omega = (d+1)/rv, solved for a0/a1 = threshold. */
double hdo_theory_zo_rv(size_t d, int n0, int n1, double sigma0, double sigma1, double varsigma0, double k3) {
    assert(n0 >= 0 && n1 >= 1);
    double s0 = sigma0 * sigma0, room = (2.0 + (double)n0 / (double)n1) * sigma1 * sigma1 - s0;
    if (!(room > 0.0)) return HUGE_VAL;
    return ((double)d + 1.0) * (s0 + k3 * varsigma0 * varsigma0) / room;
}

/* Step-size limited phase, docs/theory.md 3.8: theta N_e of a first-order population over that of this one. */
double hdo_theory_zo_early(const hdo_theory_problem *p) {
    double H2 = p->pop.B > 0.0 ? 6.0 : 4.0, k2 = p->mode == HDO_THEORY_MODE_U && p->balanced ? 4.0 : 6.0;
    return H2 / (H2 + k2 * p->pop.omega_bar * p->mix.p_v);
}

/* ---- smallest T: docs/theory.md 3.9 ----------------------------------------------------------------------------- */

int64_t hdo_theory_t_min(hdo_theory_pred pred, const void *ctx) {
    const int64_t limit = INT64_C(1) << 52;
    int64_t hi = 4;
    while (!pred(ctx, hi)) {
        hi *= 2;
        if (hi > limit) return -1;
    }
    if (hi == 4) return 4;
    int64_t lo = hi / 2; /* false at lo, true at hi */
    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (pred(ctx, mid))
            hi = mid;
        else
            lo = mid;
    }
    return hi;
}

static bool sc_reached(const void *ctx, int64_t T) {
    const hdo_theory_problem *p = ctx;
    return hdo_theory_sc_ok(p, hdo_theory_sc_eta(p, T));
}

int64_t hdo_theory_sc_t_min(const hdo_theory_problem *p) {
    assert(p->ell > 0.0);
    return hdo_theory_t_min(sc_reached, p);
}

struct nc_plan {
    const hdo_theory_problem *p;
    size_t d;
};

static bool nc_reached(const void *ctx, int64_t T) {
    const struct nc_plan *c = ctx;
    return hdo_theory_nc_ok(c->p, hdo_theory_nc_eta(c->p, c->d, T));
}

int64_t hdo_theory_nc_t_min(const hdo_theory_problem *p, size_t d) {
    assert(d >= 1);
    struct nc_plan c = {p, d};
    return hdo_theory_t_min(nc_reached, &c);
}

/* ---- largest admissible step: docs/theory.md 3.9 ---------------------------------------------------------------- */

static bool admissible(const hdo_theory_problem *p, hdo_theory_cond cond, double eta) {
    if (cond == HDO_THEORY_COND_NC_BOUND) return hdo_theory_nc_bound(p, eta, 1.0, 0.0, 1.0).ok;
    if (cond == HDO_THEORY_COND_NC_OK) return hdo_theory_nc_ok(p, eta);
    if (cond == HDO_THEORY_COND_SC_OK) return hdo_theory_sc_ok(p, eta);
    hdo_sys_coef s = hdo_theory_sys_coef(p, eta);
    if (cond == HDO_THEORY_COND_CONSENSUS) return s.delta > 0.0;
    if (cond == HDO_THEORY_COND_DESCENT) return hdo_theory_sc_lyap(&s, 1.0).ok;
    hdo_sc_limit r = hdo_theory_sc_radius(&s);
    return cond == HDO_THEORY_COND_BOUNDED ? r.bounded : isfinite(r.a); /* finite exactly when the radius is below 1 */
}

double hdo_theory_eta_max(const hdo_theory_problem *p, hdo_theory_cond cond) {
    double lo = 1.0 / p->L, hi = lo;
    if (admissible(p, cond, lo)) {
        do {
            lo = hi;
            hi *= 2.0;
            if (hi > 1e100 / p->L) return HUGE_VAL;
        } while (admissible(p, cond, hi));
    } else {
        do {
            hi = lo;
            lo /= 2.0;
            if (lo < 1e-100 / p->L) return 0.0;
        } while (!admissible(p, cond, lo));
    }
    while (hi - lo > 1e-12 * lo) {
        double mid = lo + (hi - lo) / 2.0;
        if (admissible(p, cond, mid))
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* ---- best step -------------------------------------------------------------------------------------------------- */

bool hdo_theory_eta_best(hdo_theory_eta_fn bound, const void *ctx, double eta_lo, double eta_hi, int per_decade,
                         double *eta, double *best) {
    assert(eta_lo > 0.0 && eta_hi >= eta_lo && isfinite(eta_hi) && per_decade >= 1);
    double per = (double)per_decade, at = 0.0, least = HUGE_VAL;
    int64_t k_hi = (int64_t)floor(per * log10(eta_hi));
    for (int64_t k = (int64_t)ceil(per * log10(eta_lo)); k <= k_hi; k++) {
        double x = pow(10.0, (double)k / per), v = bound(ctx, x);
        if (v < least) {
            least = v;
            at = x;
        }
    }
    if (!(least < HUGE_VAL)) return false;
    *eta = at;
    *best = least;
    return true;
}

struct best_plan {
    const hdo_theory_problem *p;
    double start, Gamma_0;
    double T;
};

static double sc_value(const void *ctx, double eta) {
    const struct best_plan *c = ctx;
    hdo_sys_coef s = hdo_theory_sys_coef(c->p, eta);
    return hdo_theory_sc_weighted(&s, c->start, c->Gamma_0, (int64_t)c->T, 0.5).f_y;
}

static double nc_value(const void *ctx, double eta) {
    const struct best_plan *c = ctx;
    return hdo_theory_nc_bound(c->p, eta, c->start, c->Gamma_0, c->T).total;
}

/* Grid of 400 points per decade (steps of 0.6%) over the ten decades below the largest admissible step. */
static bool best_below(hdo_theory_eta_fn value, const struct best_plan *c, hdo_theory_cond cond, double *eta,
                       double *best) {
    double hi = hdo_theory_eta_max(c->p, cond);
    if (!(hi > 0.0) || !isfinite(hi)) return false;
    return hdo_theory_eta_best(value, c, hi * 1e-10, hi, 400, eta, best);
}

bool hdo_theory_sc_eta_best(const hdo_theory_problem *p, double a_0, double Gamma_0, int64_t T, double *eta,
                            double *best) {
    struct best_plan c = {p, a_0, Gamma_0, (double)T};
    return best_below(sc_value, &c, HDO_THEORY_COND_DESCENT, eta, best);
}

bool hdo_theory_nc_eta_best(const hdo_theory_problem *p, double F, double Gamma_0, double T, double *eta,
                            double *best) {
    struct best_plan c = {p, F, Gamma_0, T};
    return best_below(nc_value, &c, HDO_THEORY_COND_NC_BOUND, eta, best);
}
