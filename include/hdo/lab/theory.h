/* SPDX-License-Identifier: Apache-2.0
 *
 * Convergence theory: constants in, bounds out.
 *
 * Everything here is a pure function on doubles: no allocation, no globals, no printing. The path is always the same:
 *
 *   estimator  -> hdo_est_const   what one gradient estimate costs (omega, rho, kappa, b and b_f)
 *   classes    -> hdo_pop_const   averages over the population
 *   scheme     -> hdo_mix_const   what one round of communication does (seven numbers)
 *   all three  -> hdo_theory_problem, and from there
 *                 hdo_theory_sc_*  strongly convex: curves, limits, weighted average
 *                 hdo_theory_nc_*  non-convex: mean squared gradient
 *
 * The statements, their assumptions and the letters are explained in docs/theory.md; section numbers in comments refer
 * to it. Notation: mu is the mean model, a = E|mu - x*|^2, Gamma = E (1/n) sum |X_i - mu|^2, MG = E (1/n) sum |g_i|^2.
 *
 * An unknown or useless constant is HUGE_VAL: infinity is a valid upper bound, and the functions below never turn it
 * into a NaN. Bounds that do not exist (step too large) are HUGE_VAL with ok = false: that is a result, not an error.
 * Values a user types in are checked by the three *_check functions, which answer with a sentence; the others assert.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_THEORY_H
#define HDO_LAB_THEORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- estimators: docs/theory.md 3.2 ----------------------------------------------------------------------------- */

typedef enum hdo_theory_est {
    HDO_THEORY_FO,   /* stochastic gradient */
    HDO_THEORY_FM,   /* forward mode: (u.g) u with the exact directional derivative */
    HDO_THEORY_FD1,  /* one-sided difference */
    HDO_THEORY_FD2,  /* central difference */
    HDO_THEORY_CSTEP /* complex step */
} hdo_theory_est;

typedef struct hdo_est_params {
    hdo_theory_est kind;
    size_t d;         /* trainable parameters */
    size_t d_max;     /* forward mode, own scalar per tensor: size of the largest tensor; 0: one scalar for all */
    int rv;           /* directions averaged in one estimate */
    double nu;        /* difference step, > 0 for differences and complex step */
    double L;         /* smoothness of every f^i (bias); 0: not known apart from L_F */
    double L_F;       /* smoothness of every batch loss (remainder); raised to L if smaller */
    double L2;        /* Lipschitz constant of the Hessian, HUGE_VAL if unknown */
    double tau;       /* > 0, splits variance between gradient and remainder */
    double df;        /* largest error of one loss value; 0: exact arithmetic */
    bool quad;        /* every batch loss is quadratic */
    bool fresh_batch; /* a new batch for each direction instead of one batch for all */
} hdo_est_params;

/* Variance <= omega |grad f^i|^2 + rho s^2 + kappa,  |bias| <= b,  smoothing lifts f^i by at most b_f. */
typedef struct hdo_est_const {
    double omega, rho, kappa, b;
    double b_f; /* HUGE_VAL: the estimator's mean is not the gradient of a smoothed convex function */
} hdo_est_const;

HDO_API hdo_est_params hdo_theory_est_default(hdo_theory_est kind, size_t d); /* rv 1, tau 1, L2 unknown, rest 0 */
HDO_API hdo_status hdo_theory_est_check(const hdo_est_params *p, hdo_error *e);
HDO_API hdo_est_const hdo_theory_est_const(const hdo_est_params *p);
HDO_API double hdo_theory_est_bf(const hdo_est_params *p);
HDO_API double hdo_theory_nu_best(size_t d, double L, double df); /* difference step that balances round-off */

/* Noise of one node, rho sigma^2 + kappa + k3 omega varsigma^2 (docs/theory.md 3.8). */
HDO_API double hdo_theory_node_noise(const hdo_est_const *c, double sigma, double varsigma, double k3);

/* One draw with the law of (1/rv) sum_r (u_r.g) u_r, given chi ~ chi^2_rv and z ~ N(0,I_d) (docs/theory.md 4).
 * G may be g or z. */
HDO_API void hdo_theory_fwd_draw(size_t d, const double *g, int rv, double chi, const double *z, double *G);

/* ---- population: docs/theory.md 3.4 ----------------------------------------------------------------------------- */

typedef struct hdo_pop_class {
    int count;  /* nodes of this class; 0 is allowed, the class is then ignored */
    bool is_zo; /* counted in n0 (zeroth-order), otherwise in n1 */
    hdo_est_const est;
    double sigma;    /* root mean of s_i^2 over the class */
    double varsigma; /* heterogeneity of the class, in the sense of the mode used below */
} hdo_pop_class;

typedef struct hdo_pop_const {
    int n, n0, n1;
    double omega_max, omega_bar;
    double V0;       /* mean of rho s^2 + kappa */
    double V0_kappa; /* its kappa part */
    double Z;        /* mean of omega varsigma^2 */
    double z2;       /* mean of varsigma^2 */
    double B, B2;    /* mean of b and of b^2 */
    double b_f;      /* mean of b_f */
} hdo_pop_const;

HDO_API hdo_pop_const hdo_theory_pop_const(const hdo_pop_class *classes, size_t n_classes);

/* ---- communication: docs/theory.md 3.3 -------------------------------------------------------------------------- */

typedef enum hdo_theory_mix {
    HDO_THEORY_PAIR,      /* one uniformly random pair steps and averages */
    HDO_THEORY_MATCH,     /* all step, then a uniformly random matching averages */
    HDO_THEORY_GOSSIP,    /* all step, then W with contraction lambda */
    HDO_THEORY_PAIR_GRAPH /* one random edge of a graph; every node equally often; lambda = 1 - dg */
} hdo_theory_mix;

/* E|mu'-mu|^2 <= theta^2 (p_v v + p_V V + |h|^2),
 * E Gamma'    <= (1-delta0) Gamma + theta^2 (u_v v + u_V V + u_h |h|^2). */
typedef struct hdo_mix_const {
    hdo_theory_mix kind;
    int n;
    double tf; /* theta / eta */
    double p_v, p_V, delta0, u_v, u_V, u_h;
} hdo_mix_const;

HDO_API hdo_status hdo_theory_mix_check(hdo_theory_mix kind, int n, double lambda, hdo_error *e);
HDO_API hdo_mix_const hdo_theory_mix_const(hdo_theory_mix kind, int n, double lambda); /* lambda: last two kinds only */

/* Contractions in closed form. */
HDO_API double hdo_theory_lambda_match(int n);         /* random (near-)perfect matching of all nodes */
HDO_API double hdo_theory_lambda_gap(double gap);      /* fixed symmetric W with this spectral gap */
HDO_API double hdo_theory_lambda_complete_edge(int n); /* one uniform edge of the complete graph */
HDO_API double hdo_theory_lambda_ring_edge(int n);     /* one uniform edge of a ring, n >= 3 */
HDO_API double hdo_theory_lambda_ring_third(int n);    /* W = (I + left + right)/3, n >= 3 */
HDO_API double hdo_theory_lambda_ring_match(int n);    /* one of the two matchings of an even ring, n >= 4 */

/* Power iteration for the eigenvalue of largest modulus of a symmetric n x n operator, y = A x. With deflate, on the
 * space orthogonal to the all-ones vector. Stops when |A x - value x| <= tol |value|. work: 2 n doubles (3 n for the
 * contraction below). Fails with HDO_E_FAILED if max_iter is not enough; out then holds the last iterate. The value
 * approaches the eigenvalue from below when A is positive semidefinite; value + residual is the cautious choice. */
typedef void (*hdo_theory_matvec)(const void *ctx, size_t n, const double *x, double *y);

typedef struct hdo_theory_eig {
    double value;
    double residual; /* some eigenvalue lies within this distance of value */
    int64_t iterations;
} hdo_theory_eig;

typedef struct hdo_theory_search {
    bool deflate; /* orthogonal to the ones */
    double tol;   /* relative residual to stop at */
    int64_t max_iter;
    double *work;
} hdo_theory_search;
HDO_API hdo_status hdo_theory_power(hdo_theory_matvec mul, const void *ctx, size_t n, const hdo_theory_search *s,
                                    hdo_theory_eig *out, hdo_error *e);
HDO_API hdo_status hdo_theory_power_dense(const double *A /* (n,n) */, size_t n, const hdo_theory_search *s,
                                          hdo_theory_eig *out, hdo_error *e);
/* Contraction of a fixed doubly stochastic W, symmetric or not: second eigenvalue of W'W. */
HDO_API hdo_status hdo_theory_lambda_dense(const double *W /* (n,n) */, size_t n, double tol, int64_t max_iter,
                                           double *work, hdo_theory_eig *out, hdo_error *e);

/* ---- the problem ------------------------------------------------------------------------------------------------ */

typedef enum hdo_theory_mode {
    HDO_THEORY_MODE_U, /* varsigma bounds grad f^i - grad f everywhere */
    HDO_THEORY_MODE_O  /* varsigma measures grad f^i at x* only; convex results only */
} hdo_theory_mode;

typedef struct hdo_theory_problem {
    hdo_pop_const pop;
    hdo_mix_const mix;
    double L;             /* smoothness of every f^i */
    double ell, ell_loc;  /* strong convexity of f, of every f^i (0 allowed); not read by the non-convex functions */
    hdo_theory_mode mode; /* not read by the non-convex functions, which need mode U */
    bool balanced;        /* every class minimises the same mean objective */
} hdo_theory_problem;

HDO_API hdo_status hdo_theory_problem_check(const hdo_theory_problem *p, bool convex, hdo_error *e);

/* ---- strongly convex: docs/theory.md 3.5, 3.6 ------------------------------------------------------------------- */

/* One-step coefficients. The N_ and P_ parts (het, noise, kappa, bias) add up: N_0 = N_het + N_noise + N_bias, where
 * N_kappa is contained in N_noise; the P_ coefficients already hold theta^2. */
typedef struct hdo_sys_coef {
    double theta, N_G, N_e, N_0, P_G, P_e, P_0, delta;
    double N_het, N_noise, N_kappa, N_bias;
    double P_het, P_noise, P_kappa, P_bias;
    double B, b_f, L, ell, ell_loc; /* copied from the problem */
} hdo_sys_coef;

/* a' = min_k (m11[k] a + r1[k]) + m12 Gamma, Gamma' = m21 a + m22 Gamma + P_0. k = 0 uses b_f, k = 1 uses B; a route
 * that is not available has r1 = HUGE_VAL. */
typedef struct hdo_sc_step {
    double m11[2], r1[2], m12, m21, m22, P_0;
} hdo_sc_step;

/* Phi = a + q Gamma obeys Phi' <= (1 - rate[k]) Phi - theta eps (1-phi) e + R[k] if ok. */
typedef struct hdo_sc_lyap {
    bool ok;
    double q, eps, rate[2], R[2];
} hdo_sc_lyap;

typedef struct hdo_sc_iter {
    hdo_sc_step step;
    hdo_sc_lyap lyap;
    int64_t t;
    double a, Gamma; /* bounds at round t */
    double Phi[2];
} hdo_sc_iter;

typedef struct hdo_sc_limit {
    double radius;   /* spectral radius of the 2 x 2 matrix; the recursion stays bounded iff it is below 1 */
    double a, Gamma; /* limits of the recursion, HUGE_VAL if radius >= 1 */
    double Phi;      /* limit of the Lyapunov bound, also a bound on a; HUGE_VAL if there is none */
    bool bounded;    /* the curve, minimum of both, stays bounded */
} hdo_sc_limit;

/* E f(y_T) - f* + coefa E a_T <= f_y = init + het + noise + bias. */
typedef struct hdo_sc_weighted {
    bool ok;
    int variant; /* 0: b_f, 1: B */
    double f_y, rate, R, q, eps, coefa;
    double init, het, noise, bias;
    double noise_kappa; /* part of noise that is due to the difference step */
} hdo_sc_weighted;

typedef struct hdo_corollary {
    bool ok; /* step-size condition holds */
    double bound;
} hdo_corollary;

HDO_API hdo_sys_coef hdo_theory_sys_coef(const hdo_theory_problem *p, double eta);
HDO_API hdo_sc_step hdo_theory_sc_step(const hdo_sys_coef *s);
HDO_API hdo_sc_lyap hdo_theory_sc_lyap(const hdo_sys_coef *s, double phi);
/* The curve round by round: init gives t = 0, next moves to t + 1. Valid for every eta, without step condition. */
HDO_API void hdo_theory_sc_iter_init(hdo_sc_iter *it, const hdo_sys_coef *s, double a_0, double Gamma_0);
HDO_API void hdo_theory_sc_iter_next(hdo_sc_iter *it);
/* The whole curve into a[0..T] and Gamma[0..T]; either may be NULL. */
HDO_API void hdo_theory_sc_curve(const hdo_sys_coef *s, double a_0, double Gamma_0, int64_t T, double *a,
                                 double *Gamma);
HDO_API hdo_sc_limit hdo_theory_sc_radius(const hdo_sys_coef *s);
HDO_API hdo_sc_weighted hdo_theory_sc_weighted(const hdo_sys_coef *s, double a_0, double Gamma_0, int64_t T,
                                               double phi);
/* Bound on MG given bounds on a and Gamma. */
HDO_API double hdo_theory_mg_bound(const hdo_theory_problem *p, double a, double Gamma);
HDO_API bool hdo_theory_sc_ok(const hdo_theory_problem *p, double eta);   /* delta >= delta0/2 and eps >= 1 */
HDO_API double hdo_theory_sc_eta(const hdo_theory_problem *p, int64_t T); /* theta = 8 ln T / (T ell) */
/* Closed forms for unbiased estimators, mode U, balanced; pair and matching only. */
HDO_API hdo_corollary hdo_theory_cor_sc(const hdo_theory_problem *p, double eta, double a_0, int64_t T);

/* ---- non-convex: docs/theory.md 3.7 ----------------------------------------------------------------------------- */

/* (1/T) sum E|grad f(mu_t)|^2 <= total and (1/T) sum E Gamma_t <= Gav. */
typedef struct hdo_nc_bound {
    bool ok; /* delta > 0, hc <= 1, eps > 0; otherwise the bounds are HUGE_VAL */
    double delta, q, hc, eps;
    double init, het, noise, bias, total, Gav;
    double noise_kappa;
} hdo_nc_bound;

typedef struct hdo_nc_leading {
    double Sigma2, theta, bound; /* noise level, best theta, bound there, to leading order in 1/sqrt(T) */
} hdo_nc_leading;

HDO_API hdo_nc_bound hdo_theory_nc_bound(const hdo_theory_problem *p, double eta, double F, double Gamma_0, double T);
HDO_API bool hdo_theory_nc_ok(const hdo_theory_problem *p, double eta); /* delta >= delta0/2, hc <= 1, eps >= 1/2 */
HDO_API double hdo_theory_nc_eta(const hdo_theory_problem *p, size_t d, int64_t T); /* theta = 2 / sqrt(d T) */
HDO_API hdo_nc_leading hdo_theory_nc_leading(const hdo_theory_problem *p, double F, double T);
HDO_API hdo_corollary hdo_theory_cor_nc(const hdo_theory_problem *p, double eta, double F, double T); /* pairs */

/* ---- choosing: docs/theory.md 3.8, 3.9 -------------------------------------------------------------------------- */

/* Smallest T >= 4 with pred(ctx, T), for a predicate that stays true once it is; -1 if there is none up to 2^52. */
typedef bool (*hdo_theory_pred)(const void *ctx, int64_t T);
HDO_API int64_t hdo_theory_t_min(hdo_theory_pred pred, const void *ctx);
HDO_API int64_t hdo_theory_sc_t_min(const hdo_theory_problem *p);           /* sc_ok at sc_eta(T) */
HDO_API int64_t hdo_theory_nc_t_min(const hdo_theory_problem *p, size_t d); /* nc_ok at nc_eta(T) */

typedef enum hdo_theory_cond {
    HDO_THEORY_COND_CONSENSUS, /* strongly convex: delta > 0 */
    HDO_THEORY_COND_DESCENT,   /* strongly convex: delta > 0 and eps > 0, so sc_weighted exists */
    HDO_THEORY_COND_STABLE,    /* strongly convex: spectral radius below 1 */
    HDO_THEORY_COND_BOUNDED,   /* strongly convex: the curve stays bounded (radius or Lyapunov function) */
    HDO_THEORY_COND_SC_OK,     /* hdo_theory_sc_ok */
    HDO_THEORY_COND_NC_BOUND,  /* nc_bound exists */
    HDO_THEORY_COND_NC_OK      /* hdo_theory_nc_ok */
} hdo_theory_cond;

/* Largest eta (to a relative 1e-12) that meets the condition: 0 if none does, HUGE_VAL if all do. */
HDO_API double hdo_theory_eta_max(const hdo_theory_problem *p, hdo_theory_cond cond);

/* Minimum of bound(ctx, eta) over the points 10^(k/per_decade) in [eta_lo, eta_hi]; HUGE_VAL marks a forbidden step.
 * Returns false, outputs untouched, if no point is allowed. */
typedef double (*hdo_theory_eta_fn)(const void *ctx, double eta);
HDO_API bool hdo_theory_eta_best(hdo_theory_eta_fn bound, const void *ctx, double eta_lo, double eta_hi, int per_decade,
                                 double *eta, double *best);
HDO_API bool hdo_theory_sc_eta_best(const hdo_theory_problem *p, double a_0, double Gamma_0, int64_t T, double *eta,
                                    double *best);
HDO_API bool hdo_theory_nc_eta_best(const hdo_theory_problem *p, double F, double Gamma_0, double T, double *eta,
                                    double *best);

/* Do n0 zeroth-order nodes help n1 first-order nodes? Ratios below 1: yes. The pair ratios are NAN for n1 < 2 (one node
 * has no partner to compare with). */
typedef struct hdo_zo_help {
    double noise_ratio; /* a0/a1 */
    double threshold;   /* helps at equal parallel time iff noise_ratio is below, without heterogeneity */
    double match;       /* noise with / without, matchings, equal rounds */
    double pair;        /* pairs, equal number of interactions */
    double parallel;    /* pairs, equal parallel time */
    double weighted;    /* matchings, each group with its best step */
    double eta_ratio;   /* that best eta0/eta1 */
} hdo_zo_help;

HDO_API hdo_zo_help hdo_theory_zo_help(int n0, int n1, double a0, double a1, double varsigma0, double varsigma1,
                                       bool biased);
/* Forward mode helps at equal parallel time iff rv exceeds this; (d+1) n1/n for equal noise. HUGE_VAL: never. */
HDO_API double hdo_theory_zo_rv(size_t d, int n0, int n1, double sigma0, double sigma1, double varsigma0, double k3);
/* Early phase: factor by which the admissible theta shrinks because of omega_bar (1: harmless). */
HDO_API double hdo_theory_zo_early(const hdo_theory_problem *p);

/* ---- the published constants, for comparison: docs/theory.md 2.3 ------------------------------------------------ */

typedef struct hdo_paper_params {
    int n0, n1;
    size_t d;
    double L, ell, sigma0, sigma1, varsigma0, varsigma1, a_0;
    double c; /* nu = eta/c */
} hdo_paper_params;

typedef struct hdo_paper_sc {
    double B, C1, C2, C3, D1, D2;
    double rhs, a_bound; /* right side of the printed convex theorem; its bound on E a_T */
    bool cond_consensus, cond_ell, cond_bias, cond_D1;
    bool ok; /* all four */
} hdo_paper_sc;

typedef struct hdo_paper_noise {
    double het, noise, bias;
} hdo_paper_noise;

HDO_API hdo_paper_sc hdo_theory_paper_sc(const hdo_paper_params *p, double eta, double T);
HDO_API int64_t hdo_theory_paper_t_min(const hdo_paper_params *p); /* conditions with eta = 4 n ln T/(T ell) */
HDO_API hdo_paper_noise hdo_theory_paper_noise(const hdo_paper_params *p, double eta, int k); /* k: 1 convex, 2 not */

/* ---- exact expectations on isotropic quadratics: docs/theory.md 5.1 --------------------------------------------- */

/* f^i(x) = (h/2)|x - c_i|^2: the expected Gram matrix K of (X_1..X_n, c_1..c_n) follows a closed linear recursion, so
 * a, Gamma and MG are known without sampling error. An event is one outcome of the round's random choice. */
typedef void (*hdo_gram_event)(const void *ctx, int n, int64_t k, double *prob, double *W /* (n,n) */,
                               double *step /* (n), 1 if the node steps, else 0 */);

HDO_API int64_t hdo_theory_gram_pair_count(int n);
HDO_API void hdo_theory_gram_pair(const void *ctx, int n, int64_t k, double *prob, double *W, double *step);
HDO_API int64_t hdo_theory_gram_match_count(int n); /* grows as (n-1)(n-3)...: keep n <= 12 */
HDO_API void hdo_theory_gram_match(const void *ctx, int n, int64_t k, double *prob, double *W, double *step);
/* The single event of a fixed W0, (n,n): all nodes step, then W0. */
HDO_API void hdo_theory_gram_fixed(const void *W0, int n, int64_t k, double *prob, double *W, double *step);

typedef struct hdo_gram {
    int n;
    double h;            /* curvature */
    const double *eta;   /* (n) step of each node */
    const double *omega; /* (n) */
    const double *add;   /* (n) rho s^2 + kappa */
    hdo_gram_event event;
    const void *ctx;
    int64_t n_events;
} hdo_gram;

HDO_API size_t hdo_theory_gram_work(int n); /* doubles of work for gram_run */
HDO_API void hdo_theory_gram_init(int n, size_t d, const double *X /* (n,d) */, const double *c /* (n,d) */,
                                  double *K /* (2n,2n) */);
/* Runs T rounds, K in place; a, Gamma, MG (T+1 values each, or NULL). */
HDO_API void hdo_theory_gram_run(const hdo_gram *g, double *K, int64_t T, double *work, double *a, double *Gamma,
                                 double *MG);

#ifdef __cplusplus
}
#endif

#endif
