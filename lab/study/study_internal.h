/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of this folder. A study is a wired run at step 0 plus what is known about its problem.
 *
 *   constants.c      what follows from formulas       assess.c     bounds on the problem
 *   oracle.c         exact gradients of f and f^i     warnings.c   which assumption fails
 *   lanczos.c        extreme eigenvalues              compare.c    runs against bounds
 *   softmax_const.c  softmax regression, certified    scaling.c    laws in n and d n0
 *   measure.c        everything else, estimated       planner.c    fleets; price.c: what a round costs
 */
#ifndef HDO_STUDY_STUDY_INTERNAL_H
#define HDO_STUDY_STUDY_INTERNAL_H

#include "base/arena.h"
#include "hdo/experimental/all.h"
#include "hdo/lab/study.h"
#include "lab/check/theory_row.h"
#include "run/run_internal.h"

struct hdo_study {
    hdo_config config;
    hdo_study_hooks hooks;
    hdo_run *run; /* at step 0 */
    hdo_constants k;
    double *x_star; /* (d), or NULL while unknown */
};

/* HDO_E_FAILED with "interrupted" if the hook asks for it. */
hdo_status hdo__study_tick(const hdo_study_hooks *h, const char *what, int64_t done, int64_t total, hdo_error *e);

/* ---- oracle.c: gradients without batch noise ---- */

typedef struct hdo_exact_oracle {
    hdo_run *run;
    hdo_team team;   /* one arena, large enough for a chunk; the objective spreads inside */
    int chunk;       /* samples at once */
    int64_t samples; /* most samples of a shard; 0: all */
    float *row, *g;  /* (d + n_buf) model with buffers; gradient of a chunk */
    double *sum;     /* (d) */
} hdo_exact_oracle;

hdo_status hdo__oracle_init(hdo_exact_oracle *o, hdo_run *r, int64_t samples, hdo_error *e);
void hdo__oracle_clear(hdo_exact_oracle *o);
int64_t hdo__oracle_count(const hdo_exact_oracle *o, int node); /* samples of node that count */
/* Gradient (d) of f^node, or of f for node = -1, at x (d) in double; loss may be NULL, g may be NULL. */
hdo_status hdo__oracle_grad(hdo_exact_oracle *o, int node, const double *x, double *g, double *loss, hdo_error *e);
/* Samples idx[0 .. n) of node's data, or a fresh noise number for objectives without data. */
typedef struct hdo_draw {
    int node; /* -1: all data */
    const int64_t *idx;
    int n;
    int64_t number;
} hdo_draw;
hdo_status hdo__oracle_batch(hdo_exact_oracle *o, const hdo_draw *q, const double *x, double *g, double *loss,
                             hdo_error *e);
/* f^i by f^i: sum over class k of |grad f^i - ref|^2 / nodes; ref NULL: zero. */
hdo_status hdo__oracle_spread(hdo_exact_oracle *o, int k, int nodes_max, const double *x, const double *ref,
                              double *out, hdo_error *e);
/* x* of a strongly convex f by L-BFGS from x (overwritten), to |grad f| <= tol. */
hdo_status hdo__oracle_minimise(hdo_exact_oracle *o, const hdo_study_hooks *h, double tol, double *x, double *f,
                                double *grad, hdo_error *e);

/* ---- lanczos.c ---- */

typedef hdo_status (*hdo_matvec)(void *ctx, const double *x, double *y, hdo_error *e);
/* Extreme Ritz values of a symmetric operator after at most `steps` products from a random start. */
typedef struct hdo_ritz {
    double lowest, highest;
} hdo_ritz;
hdo_status hdo__lanczos(hdo_matvec mul, void *ctx, size_t n, int steps, uint64_t seed, hdo_ritz *out, hdo_error *e);
/* Relative error of the largest Ritz value of a positive semidefinite operator that is exceeded with probability at
 * most `fail`. Kuczynski and Wozniakowski, "Estimating the largest eigenvalue by the power and Lanczos algorithms with
 * a random start" (1992), theorem 3.2: P <= 1.648 sqrt(n) exp(-sqrt(err) (2 steps - 1)). */
double hdo__lanczos_error(size_t n, int steps, double fail);

/* ---- softmax_const.c: softmax regression ---- */

bool hdo__is_softmax_regression(const hdo_config *c);
hdo_status hdo__linear_constants(hdo_study *s, hdo_error *e); /* L, L_F, L2, ell, ell_loc: certified */

/* ---- assess.c, warnings.c ---- */

hdo_theory_est hdo__class_kind(const hdo_estimator *s, bool *covered);
/* price.c: what one round of a fleet costs. Rounds that fit into a share of its time, traffic and energy, not rounded.
 */
typedef struct hdo_price {
    double seconds, bytes, joules; /* bytes and joules: of all nodes together */
} hdo_price;
double hdo__fleet_passes(const hdo_estimator_ops *ops, int rv);
hdo_price hdo__fleet_price(const hdo_fleet *f, const hdo_estimator_ops *ops, int n0, int rv, double model_bytes);
double hdo__fleet_rounds(const hdo_fleet *f, const hdo_price *p, double share);

hdo_est_const hdo__class_est(const hdo_estimator *s, const hdo_constants *k, double eta, double *nu);
/* Bounds of a population whose classes may step differently: docs/theory.md 3.10. Fills sc or nc of a problem. */
typedef struct hdo_pop_spec {
    int n_classes;
    const int *count;
    const bool *zo;
    const hdo_est_const *est;
    const double *eta, *sigma, *varsigma;
} hdo_pop_spec;
hdo_theory_problem hdo__study_problem(const hdo_pop_spec *p, const hdo_constants *k, const hdo_mix_const *mix,
                                      hdo_theory_mode mode, double *eta_mean);
hdo_status hdo__study_mix(const hdo_run *r, hdo_mix_const *mix, double *lambda, double *error, hdo_error *e);
hdo_theory_mode hdo__study_mode(const hdo_constants *k);
void hdo__assess_warn(const hdo_study *s, hdo_assessment *a);

#endif
