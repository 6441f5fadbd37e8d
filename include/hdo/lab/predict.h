/* SPDX-License-Identifier: Apache-2.0
 *
 * What a population will reach, computed before it runs: docs/prediction.md. A local quadratic model, not a bound.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_PREDICT_H
#define HDO_PREDICT_H

#include "hdo/experimental/config.h"
#include "hdo/experimental/run.h"
#include "hdo/lab/check.h"
#include "hdo/lab/study.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hdo_predict_options {
    int64_t samples; /* training samples that curvature is measured on; 0: by size */
    int products;    /* products with H for one start vector; 0: by size */
    int64_t horizon; /* steps after the warm-up; 0: config.steps */
    int64_t batch;   /* of the descent without noise; 0: by the population */
} hdo_predict_options;

/* ---- the spectrum of a problem at its start ---- */

enum { HDO_HESSIAN_BINS = 48, HDO_HESSIAN_TIMES = 24 };

typedef struct hdo_hessian_report {
    size_t d, live;
    double loss, g2, c2;        /* training loss, |grad f|^2, variance of one sample's gradient */
    double trace, l_max, l_min; /* of the Hessian; l_max, l_min NaN without gradients */
    bool gradient;              /* false: measured with forward passes alone */
    double rate;                /* mean learning rate of the population */
    int n_bins;                 /* curvature in rising powers: how many directions have it, and their share of noise */
    double curvature[HDO_HESSIAN_BINS], count[HDO_HESSIAN_BINS], noise[HDO_HESSIAN_BINS];
    int n_times; /* effective dimension tr phi_T(H) at that rate */
    double steps[HDO_HESSIAN_TIMES], effective_dim[HDO_HESSIAN_TIMES], noise_ratio[HDO_HESSIAN_TIMES];
} hdo_hessian_report;

HDO_API hdo_status hdo_hessian_measure(const hdo_config *c, const hdo_predict_options *opt,
                                       const hdo_study_hooks *hooks, hdo_hessian_report *out, hdo_error *e);
HDO_API char *hdo_hessian_json(const hdo_hessian_report *s); /* free() it; NULL: out of memory */
/* base.svg: density of the spectrum; base-dimension.svg: effective dimension against horizon. */
HDO_API hdo_status hdo_hessian_figures(const hdo_hessian_report *s, const char *base, unsigned formats, hdo_error *e);

/* ---- prediction ---- */

enum { HDO_PREDICT_POINTS = 12 };

typedef struct hdo_predicted_class {
    char name[HDO_NAME_MAX];
    int count;
    double lr, weight;
    double noise_ratio;   /* noise of one node over that of a first-order node, at the horizon */
    double lr_max;        /* largest stable rate */
    double lr_best;       /* rate of least noise at the same pace, inverse to the class's noise; at most lr_max */
    double effective_dim; /* tr phi_T(H) */
    double share;         /* of the noise in the loss of the mean model */
    bool stable;
} hdo_predicted_class;

typedef struct hdo_prediction {
    char population[HDO_SPEC_MAX];
    int64_t horizon;      /* steps, warm-up included */
    double val_loss_mu;   /* of the mean model */
    double val_loss_mean; /* mean over the nodes */
    double val_loss_free; /* of descent without noise */
    double noise_mu;      /* val_loss_mu - val_loss_free */
    double noise_best;    /* the same with the classes' lr_best, if no class is held back by lr_max */
    double spread;        /* val_loss_mean - val_loss_mu */
    double pace;          /* at the horizon */
    bool stable;          /* every class is below its largest stable rate */
    int n_classes;
    hdo_predicted_class cls[HDO_CLASSES_MAX];
    int n_points; /* along the run */
    double step[HDO_PREDICT_POINTS], mu[HDO_PREDICT_POINTS], mean[HDO_PREDICT_POINTS], free_of[HDO_PREDICT_POINTS];
} hdo_prediction;

/* Measures a problem once, then predicts populations of it. Descents are shared by populations of one pace. */
typedef struct hdo_predictor hdo_predictor;
HDO_API hdo_status hdo_predictor_create(hdo_predictor **out, const hdo_config *c, const hdo_predict_options *opt,
                                        const hdo_study_hooks *hooks, hdo_error *e);
HDO_API void hdo_predictor_destroy(hdo_predictor *p); /* NULL is fine */
/* c: the same problem with a population of its own. */
HDO_API hdo_status hdo_predict(hdo_predictor *p, const hdo_config *c, hdo_prediction *out, hdo_error *e);
HDO_API char *hdo_predictions_json(const hdo_prediction *p, int n); /* free() it; NULL: out of memory */

/* ---- for a check ---- */

/* Adds to a check what the directions say that the run will learn: effective dimension, noise of the zeroth-order
 * classes there, and notes. Models without gradients: nothing is added. */
HDO_API hdo_status hdo_check_horizon(const hdo_config *c, hdo_check_result *r, hdo_error *e);

/* ---- rates and weights of `auto` ---- */

/* For hdo_hooks.tune: looks at the problem at the mean model, then sets the rates of `lr: auto` classes and the weights
 * of `mixing.average: auto` so that the noise of the mean model is least at the pace of the run. */
HDO_API hdo_status hdo_auto_tune(hdo_run *r, hdo_error *e);

/* ---- the planner, by prediction ---- */

typedef struct hdo_fleet_choice { /* one way to run a fleet */
    int n0, rv;
    double eta1, eta0;
    double T, round_s;             /* rounds that fit, seconds of one */
    double seconds, bytes, joules; /* of all rounds; bytes and joules of all nodes together */
    double loss, free_of, noise;   /* predicted, of the mean model */
    bool ok;                       /* a stable rate was found */
} hdo_fleet_choice;

typedef struct hdo_fleet_prediction {
    hdo_fleet_choice without, best;
    int n_rows;
    hdo_fleet_choice rows[HDO_PLAN_ROWS]; /* the best for each number of zeroth-order nodes */
    double scale;                         /* fraction of the time that was predicted */
    bool worth;
    hdo_plan_sim sim; /* at these rates */
} hdo_fleet_prediction;

/* p: the plan by bounds (hdo_plan_fleet), whose fleet and time count. Both sides at their own best stable rate. */
HDO_API hdo_status hdo_plan_predict(const hdo_config *c, const hdo_fleet_plan *p, const hdo_study_hooks *hooks,
                                    hdo_fleet_prediction *out, hdo_error *e);

typedef struct hdo_plan_answer { /* `hdo plan` */
    hdo_fleet_plan plan;         /* by bounds */
    hdo_fleet_prediction prediction;
    bool predicted, worth; /* is there a prediction? It decides then, otherwise the bounds do */
    hdo_error why;         /* there is none */
} hdo_plan_answer;

/* Bounds, then the prediction, then the trial at the rates of whichever decides. */
HDO_API hdo_status hdo_plan_answer_find(const hdo_config *c, const hdo_fleet *f, const hdo_study_hooks *hooks,
                                        hdo_plan_answer *out, hdo_error *e);
HDO_API char *hdo_plan_answer_json(const hdo_plan_answer *a); /* free() it; NULL: out of memory */

#ifdef __cplusplus
}
#endif

#endif
