/* SPDX-License-Identifier: Apache-2.0
 *
 * A check-up of a configuration before it is run: are the derivatives right, what do its estimators do at the starting
 * point, and do nu, rv and lr fit the problem? The answer to "my zeroth-order run does not learn and I don't know why".
 *
 * Everything is measured on the user's own model and data, at the starting point, on a batch of each class. Quantities
 * that are measured at one point say nothing certain about others: they are for choosing settings, not for proofs.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_CHECK_H
#define HDO_LAB_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/experimental/config.h"
#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HDO_CHECK_NU_MAX = 40, HDO_CHECK_NOTES_MAX = 48 };

typedef struct hdo_check_options {
    double time_s;  /* for the estimates of one class, about; default 2 */
    int directions; /* random directions for slopes, default 16, at most 256 */
    int samples;    /* estimates per class at most, default 400 */
    int try_steps;  /* of the population as a whole, by hdo_check_try; default 60, 0: none */
    double try_s;   /* seconds for them at most; default 20 */
} hdo_check_options;

/* Slopes along random directions, three ways. Errors are root mean squares relative to that of the slopes; NaN where
 * the objective has no such oracle. */
typedef struct hdo_check_agreement {
    int directions, batch;
    double loss, grad_norm;
    const char *reference; /* what the others are compared with: "grad", "jvp" or "extrapolated differences" */
    double jvp_error;      /* forward mode */
    double central_error;  /* central difference at its best step */
    double complex_error;  /* complex step */
    bool ok;
} hdo_check_agreement;

/* Error of difference slopes by step: falls with nu (truncation), then rises as 1/nu (round-off). */
typedef struct hdo_check_sweep {
    int n;
    double nu[HDO_CHECK_NU_MAX], one_sided[HDO_CHECK_NU_MAX], central[HDO_CHECK_NU_MAX];
    double df;                 /* round-off of a loss value, from the rise; at most this if there is none */
    double nu_one, nu_central; /* steps of least error */
    double lo_one, hi_one;     /* where the one-sided error is at most 3 times the least */
    double lo_central, hi_central;
    double nu_theory; /* from df and the curvature: hdo_theory_nu_best */
} hdo_check_sweep;

typedef struct hdo_check_curvature {
    double L;     /* largest Hessian eigenvalue on the batch, by power iteration: a lower estimate; NaN without grad */
    double trace; /* of the Hessian, from second differences along random directions */
    double trace_se;
    double dimension;              /* trace / L: how many directions count */
    double horizon, effective_dim; /* steps of the run, and how many directions it will learn: hdo_check_horizon; NaN */
} hdo_check_curvature;

/* One class of nodes. Relative to |g|^2 or |g| of the batch gradient g; NaN where the objective has no gradient. */
typedef struct hdo_check_class {
    char name[HDO_NAME_MAX], estimator[HDO_NAME_MAX];
    int64_t count, rv, batch, coords;
    bool zeroth, per_tensor;
    double nu, lr;
    int samples;
    double loss, grad_norm;
    double cosine, cosine_theory; /* mean cosine between estimate and gradient */
    double variance, variance_se, variance_theory;
    double bias, bias_se, bias_bound; /* |E G - g|, or along g; bias_se: what could be seen at all */
    double slope_error;               /* of a difference slope at this nu, from the sweep; 0: exact slopes */
    double data_noise;                /* E|g_batch - g|^2 / |g|^2 over batches */
    double lr_best, lr_max;           /* of a lone node: largest expected decrease, none above */
    double rv_useful;                 /* more directions do not allow a larger step */
    double rv_data;                   /* estimator noise = data noise, by their traces */
    double noise_ratio;  /* beside a first-order node, where the run will have learnt: hdo_check_horizon; NaN before */
    double rv_even;      /* at equal rates the class lowers the noise of the mean model from here on; likewise */
    int64_t least_shard; /* samples of the node of the class that holds fewest; 0: no data */
    double time_s;       /* one estimate */
    size_t memory_bytes; /* scratch of one estimate, model and momentum of one node */
    int64_t forward, backward, jvp; /* passes of one estimate */
} hdo_check_class;

typedef enum hdo_check_level { HDO_CHECK_INFO, HDO_CHECK_ADVICE, HDO_CHECK_PROBLEM } hdo_check_level;

typedef struct hdo_check_note {
    hdo_check_level level;
    int cls;        /* class it is about; -1: all */
    char text[400]; /* one sentence or two */
} hdo_check_note;

/* The population itself, for a few steps. */
typedef struct hdo_check_trial {
    int64_t steps; /* done; 0: not tried */
    bool diverged;
    int cls; /* class, node and step that went first; -1: unknown */
    int64_t node, step;
    double loss_start, loss_end; /* mean over nodes, on a few hundred validation samples */
    double time_s;
} hdo_check_trial;

typedef struct hdo_check_result {
    char model[HDO_NAME_MAX], data[HDO_NAME_MAX];
    int64_t d, n_buf, n;
    int64_t live; /* parameters a loss depends on */
    int n_tensors;
    hdo_check_agreement agreement;
    hdo_check_sweep sweep;
    hdo_check_curvature curvature;
    int n_classes;
    hdo_check_class cls[HDO_CLASSES_MAX];
    hdo_check_trial trial;
    int n_notes;
    hdo_check_note note[HDO_CHECK_NOTES_MAX];
    double time_s; /* of the whole check */
} hdo_check_result;

HDO_API hdo_check_options hdo_check_default(void);

/* A configuration that cannot be wired (estimator and model do not fit, data missing) is an error with a sentence; what
 * is merely unwise is a note in the result. options may be NULL. */
HDO_API hdo_status hdo_check(const hdo_config *c, const hdo_check_options *options, hdo_check_result *out,
                             hdo_error *e);

/* Runs the population for options->try_steps steps, as configured but with a short warm-up, and adds what happened to
 * the result of hdo_check: trial, and a note if it diverged or its loss rose. */
HDO_API hdo_status hdo_check_try(const hdo_config *c, const hdo_check_options *options, hdo_check_result *out,
                                 hdo_error *e);

/* The result as one JSON document; free() it. NULL when out of memory. */
HDO_API char *hdo_check_json(const hdo_check_result *r);

/* The sweep over nu as a figure: base.csv, base.gp and the formats asked for (see report.h). */
HDO_API hdo_status hdo_check_figure(const hdo_check_result *r, const char *base, unsigned formats, hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
