/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of this folder. The calculus is docs/prediction.md.
 *
 *   slq.c    v' f(A) v for every f from products with A      path.c     descent without noise, measured on the way
 *   lens.c   a problem at one point: curvature and noise     predict.c  what a population makes of it
 */
#ifndef HDO_PREDICT_PREDICT_INTERNAL_H
#define HDO_PREDICT_PREDICT_INTERNAL_H

#include "hdo/lab/predict.h"
#include "lab/predict/slq.h"
#include "lab/study/study_internal.h"

enum { HDO_PROBES = 4, HDO_NOISES = 8, HDO_BLOCKS = 2, HDO_LOCALS_MAX = 12 };

/* A problem at one point. Every number is about the loss on the training data. */
typedef struct hdo_local {
    int64_t step;               /* of the descent */
    double loss, val_loss;      /* on the measured samples; on the validation data */
    double g2;                  /* |g|^2 of f, not of the samples looked at: their scatter is taken off */
    double samples;             /* looked at, as if drawn with replacement; 0: all of them */
    double c2;                  /* tr C_1: variance of the gradient of one sample */
    double l_max, l_min, trace; /* of H */
    bool gradient;              /* false: losses only. Then trace, g2 and c2 are all there is */
    size_t live;                /* coordinates that count */
    int n_probe, n_noise;
    hdo_quadrature probe[HDO_PROBES]; /* E v v' = I */
    hdo_quadrature noise[HDO_NOISES]; /* E v v' = C_1 */
    hdo_quadrature grad;              /* v = g */
    double bulk; /* trace of H by second differences of the loss, less that of the quadratures: kinks, not learnt */
    double growth[HDO_CLASSES_MAX]; /* of E|g_b|^2 with isotropic moves as large as a step of the class, per s^2 */
    hdo_quadrature change;          /* E v v' = E H_1^2, H_1 the Hessian of one sample; empty without data */
    /* Directions tensor by tensor, one set for every class that has them: E v v' = sum_l E|g_b,l|^2 I_l. */
    hdo_quadrature block[HDO_CLASSES_MAX][HDO_BLOCKS];
} hdo_local;

/* How a problem is looked at: how many samples, vectors and products. */
typedef struct hdo_lens {
    hdo_run *run;
    hdo_study_hooks hooks;
    hdo_exact_oracle o;
    int64_t n, *idx, *part; /* samples, spread evenly over the training data; scratch */
    int steps, probes, noises;
    bool quick;             /* no validation loss */
    bool still;             /* no moves: neither growth nor bulk */
    double *y, *g, *ga, *v; /* (d) each */
    const double *x;        /* where */
    double h;               /* length of a difference */
    float *up, *down, *at;  /* (d + n_buf) each, for Gauss-Newton products; NULL where the Hessian serves */
    float *slope;           /* (3, chunk, classes) */
} hdo_lens;

hdo_status hdo__lens_init(hdo_lens *l, hdo_run *r, const hdo_predict_options *opt, const hdo_study_hooks *hooks,
                          hdo_error *e);
void hdo__lens_clear(hdo_lens *l);
hdo_status hdo__lens_look(hdo_lens *l, const double *x, hdo_local *out, hdo_error *e);
/* Trace of H as moves of s in every coordinate see it, from losses where hdo__lens_look was last: kinks and all. */
hdo_status hdo__lens_bend(hdo_lens *l, const hdo_local *p, double s, double *trace, hdo_error *e);
/* The top of the spectrum at x alone: a few products, from the gradient there. */
hdo_status hdo__lens_top(hdo_lens *l, const double *x, int products, hdo_quadrature *out, hdo_error *e);
/* Mean gradient (d) of samples idx[0 .. n) at x; objectives without data: of f. */
hdo_status hdo__lens_grad(hdo_lens *l, const int64_t *idx, int64_t n, const double *x, double *g, double *loss,
                          hdo_error *e);

/* tr f(H), tr(C_1 f(H)) and g' f(H) g; negative curvature counts as none. */
typedef double (*hdo_spectral_fn)(const void *ctx, double curvature);
double hdo__local_trace(const hdo_local *p, hdo_spectral_fn f, const void *ctx);
double hdo__local_noise(const hdo_local *p, hdo_spectral_fn f, const void *ctx);
double hdo__local_grad(const hdo_local *p, hdo_spectral_fn f, const void *ctx);
double hdo__local_change(const hdo_local *p, hdo_spectral_fn f, const void *ctx); /* tr(E H_1^2 f(H)) */
double hdo__local_block(const hdo_local *p, int k, hdo_spectral_fn f, const void *ctx);

/* 1 - (1 - rate l)^(2 T): how far a direction has been learnt. */
typedef struct hdo_horizon {
    double rate, steps;
} hdo_horizon;
double hdo__learnt(const void *horizon, double curvature);
double hdo__itself(const void *unused, double curvature);

/* ---- crowd.c: a population as the calculus sees it ---- */

typedef struct hdo_crowd_class {
    char name[HDO_NAME_MAX];
    int count;
    double batch, shard;   /* samples */
    bool zeroth, blocks;   /* blocks: directions tensor by tensor */
    bool shared;           /* directions in common */
    double rv, weight;     /* weight in an average */
    double momentum, gain; /* gain: 1 / (1 - m) of heavy-ball */
    hdo_choice lr;         /* as configured */
    hdo_schedule schedule;
} hdo_crowd_class;

typedef struct hdo_crowd {
    int n, n_classes;
    hdo_crowd_class cls[HDO_CLASSES_MAX];
    double part;   /* share of the nodes that step: 1, or 2 / n in pairwise time */
    double lambda; /* contraction of the spread by one exchange */
    int64_t period, warmup, total;
    double *enter[HDO_CLASSES_MAX][2]; /* (total) each: hdo__crowd_enter */
} hdo_crowd;

/* Squared size with which a unit of noise of each class enters the mean model (0) and the spread around it (1) in every
 * step; once rates and weights are settled. */
hdo_status hdo__crowd_enter(hdo_crowd *w, hdo_error *e);

hdo_status hdo__crowd_make(const hdo_config *c, int64_t horizon, int64_t samples, hdo_crowd *out, hdo_error *e);
void hdo__crowd_clear(hdo_crowd *w);
double hdo__crowd_rate(const hdo_crowd *w, int k, int64_t t);  /* of class k, momentum counted in */
double hdo__crowd_speed(const hdo_crowd *w, int k, int64_t t); /* what one node adds to the pace: w_k e_k / W */
double hdo__crowd_pace(const hdo_crowd *w, int64_t t);
bool hdo__crowd_meets(const hdo_crowd *w, int64_t t);
/* tr(C_k f(H)) of one node of class k. */
double hdo__crowd_noise(const hdo_crowd_class *c, int k, const hdo_local *p, hdo_spectral_fn f, const void *ctx);
/* How much noise a unit of a class's noise makes in the end, in step t; 1: diverges. measured: the class's number where
 * the problem was looked at. And the rate at which that is 1, or that of plain descent: docs/prediction.md 4. */
double hdo__crowd_gain(const hdo_crowd *w, int k, int measured, const hdo_local *p, int64_t t);
double hdo__crowd_limit(const hdo_crowd *w, int k, int measured, const hdo_local *p);

/* ---- path.c: gradient descent without noise, or nearly, at a given pace ---- */

typedef struct hdo_path {
    int64_t total;   /* steps, warm-up included */
    double *pace;    /* (total): how far the mean model moves along -grad f in a step */
    double momentum; /* of the descent */
    double batch;    /* samples of its gradients; 0: exact */
    double around;   /* what enters the spread of the nodes around it, in all: tells descents apart */
    int n;
    hdo_local *at; /* (n), steps rising; the first is 0, the last total */
    double *scale; /* (total + 1): trace of H, between the points by interpolation */
    int64_t lost;  /* the descent itself diverged in this step; -1: it did not */
} hdo_path;

typedef struct hdo_descent {
    const double *pace;     /* (total), copied */
    const hdo_crowd *crowd; /* its nodes are around the mean if what enters their spread is known (hdo__crowd_enter) */
    double momentum;
    int64_t batch; /* samples of its gradients */
} hdo_descent;
hdo_status hdo__path_make(hdo_lens *l, const hdo_descent *q, hdo_path *out, hdo_error *e);
void hdo__path_clear(hdo_path *p);
double hdo__path_hat(const hdo_path *p, int i, int64_t t); /* weight of point i in step t: straight lines, sum 1 */

/* ---- rates.c: rates and weights of the next piece of a run ---- */

typedef struct hdo_rates {
    double rate[HDO_CLASSES_MAX]; /* momentum counted in */
    double weight[HDO_CLASSES_MAX];
} hdo_rates;

typedef struct hdo_auto { /* what the choice is made from, besides the problem as it looks */
    const hdo_crowd *crowd;
    double noise[HDO_CLASSES_MAX];  /* a_k = tr(C_k phi(H)) of a node */
    double stable[HDO_CLASSES_MAX]; /* rate at which noise makes as much noise, momentum counted in */
    double limit[HDO_CLASSES_MAX];  /* most that is allowed, a part of it */
    double given[HDO_CLASSES_MAX];  /* rates that are not to be chosen; 0: choose */
    double top;                     /* most for any */
    double steps, so_far;           /* of full rate: to go, and done */
    double way, slope;              /* sum of the paces so far; what the loss loses when it grows e-fold */
    hdo_rates before;               /* as they are */
    bool weights;                   /* may be chosen; otherwise equal */
    bool early;                     /* in the run */
    int64_t ahead;                  /* steps until the next look */
} hdo_auto;

void hdo__rates_best(const hdo_auto *a, const hdo_local *p, hdo_rates *best);
double hdo__rates_pace(const hdo_crowd *w, const hdo_rates *r);

/* ---- meet.c: who meets whom ---- */

typedef struct hdo_meeting {
    int n_classes;
    double count[HDO_CLASSES_MAX];
    double weight[HDO_CLASSES_MAX]; /* in averages */
    double speed[HDO_CLASSES_MAX];  /* what one node adds to the pace */
    double noise[HDO_CLASSES_MAX];  /* what a step adds to the squared distance of a node, in any metric: e^2 tr(H C) */
    double drift[HDO_CLASSES_MAX];  /* and what the gradient does, beside the mean: -(e - pace) sqrt(g'Hg) */
} hdo_meeting;

/* Expected squared distance of a node of each class from the mean after a meeting, in the long run. own: share of the
 * meetings inside the classes. */
HDO_API void hdo__meet_spread(const hdo_meeting *w, double own, double *spread);
/* The share with which the nodes that carry the pace are nearest to the mean; gain: that distance beside share 0. */
double hdo__meet_share(const hdo_meeting *w, double *gain);

/* ---- predict.c ---- */

enum { HDO_PATHS_MAX = 8 };

struct hdo_predictor {
    hdo_config config;
    hdo_predict_options opt;
    hdo_study_hooks hooks;
    hdo_run *run; /* one node of every class, at its start */
    hdo_lens lens;
    int n_paths;
    hdo_path path[HDO_PATHS_MAX];
};

/* The descent that belongs to a population, made if there is none yet. */
hdo_status hdo__predict_path(hdo_predictor *q, const hdo_crowd *w, const hdo_path **out, hdo_error *e);
int hdo__predict_class(const hdo_predictor *q, const char *name); /* number of a class where the problem is looked at */
/* What class k adds to the loss at the horizon: of the mean model, or of the nodes around it. */
double hdo__predict_part(const hdo_path *p, const hdo_crowd *w, int k, int measured, int64_t horizon, bool spread);
double hdo__path_noise(const hdo_path *p, int64_t horizon); /* what the descent's own batches add */

/* ---- choose.c, confirm.c: a fleet, by prediction and tried ---- */

typedef struct hdo_plan_table {
    hdo_predictor *q;
    const hdo_fleet *f;
    hdo_config *c; /* two classes: fo, zo */
    int fo, zo;
    double share, model_bytes; /* share of the budgets that is predicted */
    int64_t steps;             /* of the longest descent */
} hdo_plan_table;

hdo_status hdo__plan_confirm(const hdo_plan_table *t, hdo_fleet_prediction *out, hdo_error *e);

#endif
