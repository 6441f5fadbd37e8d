/* SPDX-License-Identifier: Apache-2.0
 *
 * Theory meets a problem: measure its constants, evaluate the bounds of <hdo/lab/theory.h> on it, compare them with
 * runs, and decide about fleets.
 *
 *     hdo_study *s;
 *     hdo_study_create(&s, &config, NULL, &e);       quadratics: every constant is known from the start
 *     hdo_study_measure(s, NULL, &e);                other models: estimates, labelled as such
 *     hdo_assessment *a = malloc(sizeof *a);
 *     hdo_study_assess(s, a);                        bounds, conditions, warnings
 *     hdo_study_destroy(s);
 *
 * The letters are those of docs/theory.md. An unknown constant is HUGE_VAL and labelled so; whatever needs it is then
 * infinite too, which is true.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_STUDY_H
#define HDO_LAB_STUDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/experimental/config.h"
#include "hdo/status.h"
#include "hdo/lab/theory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- constants of a problem: docs/theory.md 7 ---------------------------------------------------------------------
 */

typedef enum hdo_known {
    HDO_UNKNOWN,
    HDO_MEASURED, /* largest value seen at finitely many points: may be too small */
    HDO_GIVEN,    /* the user says so */
    HDO_CERTIFIED /* a formula, or a computation with a guarantee */
} hdo_known;
HDO_API const char *hdo_known_name(hdo_known k); /* "unknown", "measured", "given", "certified" */

typedef struct hdo_constant {
    double value;
    hdo_known how;
} hdo_constant;

typedef struct hdo_constants {
    size_t d;                            /* parameters */
    size_t live, live_max;               /* those a loss depends on: of all, of the largest tensor */
    bool quad;                           /* every batch loss is quadratic */
    bool convex;                         /* every f^i is convex */
    bool same_hessian;                   /* all f^i have the same Hessian: varsigma is the same everywhere */
    bool balanced;                       /* every class minimises f by itself */
    hdo_constant L, L_F, L2;             /* smoothness of f^i, of a batch loss; Lipschitz constant of the Hessian */
    hdo_constant ell, ell_loc;           /* strong convexity of f, of every f^i */
    hdo_constant df;                     /* error of one loss value */
    hdo_constant f_star, F;              /* minimum, f(mu_0) - minimum */
    hdo_constant a_0, Gamma_0;           /* |mu_0 - x*|^2, disagreement at the start */
    hdo_constant sigma[HDO_CLASSES_MAX]; /* gradient noise of the class's batches */
    hdo_constant varsigma_U[HDO_CLASSES_MAX]; /* heterogeneity of the class, everywhere */
    hdo_constant varsigma_O[HDO_CLASSES_MAX]; /* at x* */
    double grow;         /* largest varsigma_U over the points seen, over that at the start; 1: constant */
    double grad_star;    /* |grad f| at the minimiser found */
    int points;          /* where measured: start, probe run, minimiser */
    bool probe_diverged; /* the probe run left the finite numbers: only the start was seen */
} hdo_constants;

typedef struct hdo_study_hooks {
    void *ctx;
    /* Now and then, from the calling thread. Returning false ends the work early with HDO_E_FAILED. May be NULL. */
    bool (*tick)(void *ctx, const char *what, int64_t done, int64_t total);
} hdo_study_hooks;

typedef struct hdo_study hdo_study;

HDO_API hdo_status hdo_study_create(hdo_study **out, const hdo_config *c, const hdo_study_hooks *hooks, hdo_error *e);
HDO_API void hdo_study_destroy(hdo_study *s);
/* Borrowed. Values may be overwritten (mark them HDO_GIVEN) before assessing. */
HDO_API hdo_constants *hdo_study_constants(hdo_study *s);

typedef struct hdo_measure_options {
    int64_t probe;   /* steps of the probe run that visits points; 0: 200, or the run's own steps if fewer */
    int64_t samples; /* most samples of a node's shard to look at; 0: all for linear models, 512 for networks */
    int nodes;       /* most nodes of a class to look at; 0: all for linear models, 8 for networks */
} hdo_measure_options;

HDO_API hdo_status hdo_study_measure(hdo_study *s, const hdo_measure_options *o, hdo_error *e); /* o may be NULL */

/* ---- the bounds on this problem -----------------------------------------------------------------------------------
 */

typedef enum hdo_warning_level {
    HDO_WARN_NOTE,  /* good to know */
    HDO_WARN_STEP,  /* the bound does not exist, or is useless, at this step size or length */
    HDO_WARN_BROKEN /* an assumption fails: the bound says nothing about this run */
} hdo_warning_level;

typedef struct hdo_warning {
    int number; /* in the list of docs/theory.md 8 */
    hdo_warning_level level;
    char text[320];
} hdo_warning;

typedef struct hdo_assess_class {
    char name[HDO_NAME_MAX], estimator[HDO_NAME_MAX];
    int count, rv;
    bool zo, covered;   /* covered: the estimator has constants */
    double eta, weight; /* step, and step over the mean step */
    double nu, nu_best; /* difference step (0: none), and the best one given df (0: any) */
    hdo_est_const est;
    double sigma, varsigma; /* as used: mode U or O */
    double noise;           /* a_k = rho sigma^2 + kappa + k3 omega varsigma^2 */
} hdo_assess_class;

enum { HDO_WARNINGS_MAX = 24 };

typedef struct hdo_assessment {
    hdo_constants constants;
    hdo_known quality; /* the weakest label among the constants used */
    int n, n0, n1, n_classes;
    hdo_assess_class cls[HDO_CLASSES_MAX];
    hdo_mix_const mix;
    double lambda, lambda_error;
    int64_t T;
    double eta, theta;
    bool weighted; /* steps differ between classes: bounds of the rescaled problem (docs/theory.md 3.10) */

    /* strongly convex */
    bool sc_known;   /* ell > 0 and all constants are there */
    bool sc_holds;   /* and every assumption */
    bool sc_applies; /* and the step is one for which the curve is bounded; otherwise there are no bounds */
    hdo_theory_problem sc;
    hdo_sys_coef sys;
    hdo_sc_lyap lyap;
    hdo_sc_limit limit;
    hdo_sc_weighted fy;
    double a_T, Gamma_T, MG_T,
        MG_scale; /* bounds after T rounds; MG bounds are to be multiplied by MG_scale (1 if not weighted) */
    double sc_eta_consensus, sc_eta_descent, sc_eta_bounded, sc_eta_ok; /* largest steps */
    int64_t sc_T_min;
    double sc_eta_best, sc_best; /* best step for this T and the bound there; 0 and HUGE_VAL: none */

    /* non-convex */
    bool nc_known, nc_holds;
    hdo_theory_problem nc;
    hdo_nc_bound grad;
    double nc_eta_bound, nc_eta_ok;
    int64_t nc_T_min;
    double nc_eta_best, nc_best;

    /* the published constants */
    hdo_paper_noise paper_noise[2]; /* k = 1 convex, k = 2 not; NaN: unknown */
    hdo_paper_sc paper;
    int64_t paper_T_min; /* -1: never; 0: not applicable */

    /* do the zeroth-order nodes help? NaN unless n0 and n1 are positive and their noise is known */
    double a0, a1;
    hdo_zo_help help;
    double rv_needed, early;

    int n_warnings;
    hdo_warning warnings[HDO_WARNINGS_MAX];
} hdo_assessment;

HDO_API hdo_status hdo_study_assess(hdo_study *s, hdo_assessment *out, hdo_error *e);
/* One JSON object; free() it. NULL when out of memory. */
HDO_API char *hdo_assessment_json(const hdo_assessment *a);

/* ---- measured against the bounds ----------------------------------------------------------------------------------
 */

typedef enum hdo_quantity {
    HDO_Q_DISTANCE,  /* |mu_t - x*|^2 */
    HDO_Q_GAMMA,     /* Gamma_t */
    HDO_Q_MG,        /* M_t^G */
    HDO_Q_VALUE,     /* f(y_t) - f* */
    HDO_Q_GRAD,      /* (1/t) sum |grad f(mu)|^2 */
    HDO_Q_GAMMA_AVG, /* (1/t) sum Gamma */
    HDO_QUANTITIES
} hdo_quantity;
HDO_API const char *hdo_quantity_name(hdo_quantity q);  /* "gamma": in files and JSON */
HDO_API const char *hdo_quantity_title(hdo_quantity q); /* in words */

typedef struct hdo_bound_check {
    bool measured, bounded, holds; /* holds: the assumptions do, so that a violation is an error somewhere */
    bool violated;                 /* mean - 4 standard errors above the bound at some point */
    double mean, se, bound;        /* at the last point */
    double slack;                  /* bound / mean there */
    double tightest;               /* least bound / mean over all points */
    int64_t tightest_t;
    double worst_z; /* largest (mean - bound) / se */
    int64_t worst_t;
} hdo_bound_check;

typedef struct hdo_comparison {
    hdo_assessment assessment;
    int seeds, diverged;
    int n_points;
    int64_t *t;                   /* (n_points) */
    double *mean[HDO_QUANTITIES]; /* (n_points) over seeds; NULL if not measured */
    double *se[HDO_QUANTITIES];
    double *bound[HDO_QUANTITIES];
    hdo_bound_check verdict[HDO_QUANTITIES];
    bool violated;
} hdo_comparison;

/* Runs the problem with seeds config.seed .. config.seed + seeds - 1. */
HDO_API hdo_status hdo_study_compare(hdo_study *s, int seeds, hdo_comparison *out, hdo_error *e);
HDO_API void hdo_comparison_clear(hdo_comparison *c);
/* base-gamma.svg and so on, one figure per quantity. */
HDO_API hdo_status hdo_comparison_figures(const hdo_comparison *c, const char *base, unsigned formats, hdo_error *e);
HDO_API char *hdo_comparison_json(const hdo_comparison *c);

/* ---- scaling laws ---------------------------------------------------------------------------------------------------
 */

/* The rule, stated wherever a verdict is: off by at most 3 standard errors; by at most those and the allowance; more.
 */
typedef enum hdo_law_verdict { HDO_LAW_AGREES, HDO_LAW_ALLOWED, HDO_LAW_DISAGREES } hdo_law_verdict;

typedef struct hdo_law {
    const char *name, *statement, *x_label, *y_label;
    int n_points, seeds;
    double x[16], mean[16], se[16];
    double predicted[16];         /* by the law, through the data's level */
    double expected;              /* exponent the theory promises */
    double exponent, exponent_se; /* fitted to the last fit_points points */
    int fit_points;
    double chi2;      /* of the fit, per degree of freedom */
    double floor;     /* relative errors of points count as at least this in the fit */
    double allowance; /* how far finite steps may move the exponent, from the sizes alone */
    const char *allowance_why;
    double off, off_se; /* |exponent - expected|, and that in standard errors */
    hdo_law_verdict verdict;
} hdo_law;
HDO_API const char *hdo_law_verdict_text(hdo_law_verdict v);

enum { HDO_LAWS = 4 };
HDO_API hdo_status hdo_scaling_run(bool quick, int threads, const hdo_study_hooks *hooks, hdo_law law[HDO_LAWS],
                                   hdo_error *e);
HDO_API char *hdo_scaling_json(const hdo_law *law, int n); /* free() it; NULL: out of memory */
HDO_API hdo_status hdo_scaling_figures(const hdo_law *law, int n, const char *base, unsigned formats, hdo_error *e);

/* ---- the planner ----------------------------------------------------------------------------------------------------
 */

typedef struct hdo_fleet {
    int fo, zo;        /* first-order nodes; zeroth-order candidates */
    int rv_max;        /* most directions of one estimate */
    double fo_speed;   /* gradients a second of a first-order node */
    double zo_speed;   /* forward passes a second of a zeroth-order node */
    double memory;     /* bytes of a zeroth-order node; 0: enough */
    double bandwidth;  /* bytes a second of a link; 0: infinite */
    double latency;    /* seconds of an exchange */
    double time;       /* seconds to spend; 0: what the first-order nodes need for config.steps rounds */
    double fo_joules;  /* of one gradient; 0: not counted */
    double zo_joules;  /* of one forward pass; 0: not counted */
    double traffic;    /* bytes all nodes together may send; 0: no limit */
    double energy;     /* joules all nodes together may spend; 0: no limit */
    int sim_seeds;     /* seeds of the confirming simulation; 0: none */
    int64_t sim_steps; /* most steps of one simulated run; 0: 2000 */
} hdo_fleet;

typedef struct hdo_plan_option { /* one way to run the fleet */
    int n0, rv;
    double eta1, eta0, nu;
    double round_s;      /* seconds of a round */
    double T;            /* rounds that fit */
    double bound;        /* HUGE_VAL: none */
    double start, noise; /* its parts: forgetting the start; everything else */
    double a0;           /* noise of one zeroth-order node */
} hdo_plan_option;

enum { HDO_PLAN_ROWS = 12 };

typedef struct hdo_plan_sim {
    bool done;
    int seeds;
    double scale;                              /* fraction of the planned time that was simulated */
    double without, without_se, with, with_se; /* excess loss f(mu_T) - f*, or validation loss of mu_T */
    double steps_without, steps_with;
    double tuned_without,
        tuned_with; /* factor on the planned rates that was best in trials of their own; 0: not tried */
    bool agrees;    /* same sign as the answer, or no significant difference */
} hdo_plan_sim;

typedef struct hdo_fleet_plan {
    hdo_fleet fleet;
    hdo_constants constants;
    hdo_known quality;
    bool convex; /* which bound: f(y_T) - f*, or mean |grad f|^2 */
    char estimator[HDO_NAME_MAX], mixing[HDO_NAME_MAX];
    double memory_needed; /* bytes of a zeroth-order node */
    bool memory_ok;
    hdo_plan_option without; /* first-order nodes alone */
    hdo_plan_option best;    /* with zeroth-order nodes, equal steps or unequal, whichever is better */
    hdo_plan_option equal;   /* the best one with equal steps */
    int n_rows;
    hdo_plan_option rows[HDO_PLAN_ROWS]; /* best choice for each number of zeroth-order nodes */
    bool worth;
    double gain;          /* bound without / bound with */
    double a1, threshold; /* noise of a first-order node; docs/theory.md 3.8: helps below a0/a1 = threshold */
    double rv_needed;     /* forward mode, equal round times */
    hdo_plan_sim sim;
    char reason[512];
} hdo_fleet_plan;

/* Measures what is not known, searches, simulates. c is the problem; its population gives the two classes. */
HDO_API hdo_status hdo_plan_fleet(const hdo_config *c, const hdo_fleet *f, const hdo_study_hooks *hooks,
                                  hdo_fleet_plan *out, hdo_error *e);
HDO_API char *hdo_fleet_plan_json(const hdo_fleet_plan *p);

#ifdef __cplusplus
}
#endif

#endif
