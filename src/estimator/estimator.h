/* SPDX-License-Identifier: Apache-2.0
 *
 * An estimator turns oracle calls at x into an estimate G of the gradient. First order: the gradient itself. Zeroth
 * order: averages of (slope along u) u over rv random directions. One estimator object per class of nodes, immutable
 * and shared by its nodes; what differs between nodes is in the request.
 */
#ifndef HDO_ESTIMATOR_ESTIMATOR_H
#define HDO_ESTIMATOR_ESTIMATOR_H

#include "objective/objective.h"

typedef struct hdo_estimator hdo_estimator;

typedef struct hdo_request { /* one estimate */
    const hdo_batch *batch;
    const float *x;  /* (d + n_buf), never written */
    uint64_t seed;   /* address of the directions: seed, node, step */
    uint32_t node;
    int64_t step;
    double eta;      /* learning rate of this step, for nu = eta / sqrt(d) */
} hdo_request;

typedef struct hdo_estimate_info {
    double loss;                    /* minibatch loss at x */
    int64_t forward, backward, jvp; /* passes over the model */
} hdo_estimate_info;

typedef struct hdo_estimator_ops {
    const char *name;
    const char *help;
    unsigned needs; /* HDO_CAN_* of the objective */
    bool zeroth;    /* uses random directions: rv and nu matter */
    bool gaussian;  /* only meaningful for Gaussian directions */
    /* Arena bytes beyond the objective's own. */
    size_t (*work_bytes)(const hdo_estimator *s, const hdo_objective *f);
    /* g (d + n_buf): the estimate, then the updated buffers. */
    hdo_status (*estimate)(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w, float *g,
                           hdo_estimate_info *info);
} hdo_estimator_ops;

struct hdo_estimator {
    const hdo_estimator_ops *ops;
    int rv;
    hdo_choice nu;
    int directions, streams, distribution;
};

extern const hdo_estimator_ops *const hdo__estimators[]; /* the registry, ends with NULL */
const hdo_estimator_ops *hdo__estimator_find(const char *name);
hdo_estimator hdo__estimator_make(const hdo_estimator_ops *ops, const hdo_class_config *k);

/* Refuses an estimator the objective cannot serve, with a sentence. */
hdo_status hdo__estimator_check(const hdo_estimator *s, const hdo_objective *f, const char *class_name, hdo_error *e);

/* Helpers for implementations. */
hdo_dirs hdo__request_dirs(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q);
double hdo__request_nu(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q);
void hdo__keep_buffers(const hdo_objective *f, const hdo_request *q, float *g); /* copies x's buffers behind g */
/* g = (1/rv) sum_r c[r] u_r, tile by tile: every number of every direction is made once. */
void hdo__combine(const hdo_dirs *u, int rv, const double *c, float *g);

/* One constructor-free table per file. */
extern const hdo_estimator_ops hdo__est_fo, hdo__est_fd, hdo__est_forward_sim, hdo__est_forward_law;

#endif
