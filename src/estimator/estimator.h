/* SPDX-License-Identifier: Apache-2.0
 *
 * An estimator turns oracle calls at x into an estimate G of the gradient. First order: the gradient itself. Zeroth
 * order: averages of (slope along u) u over rv random directions. One estimator object per class of nodes, immutable
 * and shared by its nodes; what differs between nodes is in the request.
 *
 * Memory: directions are addressed, never stored rv x d. An estimator works on at most HDO_DIRS_AT_ONCE of them at a
 * time, so its scratch does not depend on rv. Bits: tasks and the order of sums are fixed, so nothing depends on the
 * number of threads or on how many directions are taken at once.
 */
#ifndef HDO_ESTIMATOR_ESTIMATOR_H
#define HDO_ESTIMATOR_ESTIMATOR_H

#include "hdo/status.h"
#include "config/names.h"
#include "objective/objective.h"

enum { HDO_DIRS_AT_ONCE = 256 }; /* enough to fill any team; 256 slopes are 2 KiB */

typedef struct hdo_estimator hdo_estimator;

typedef struct hdo_request { /* one estimate */
    const hdo_batch *batch;
    const float *x; /* (d + n_buf), never written */
    uint64_t seed;  /* address of the directions: seed, node, step */
    uint32_t node;
    int64_t step;
    double eta;               /* learning rate of this step, for nu = eta / sqrt(d) */
    bool (*hurry)(void *ctx); /* asked between chunks of directions: true gives up with HDO_E_STOPPED; may be NULL */
    void *hurry_ctx;
    struct hdo_complaint *complaint; /* what an estimator of one's own has to say (config/own_call.h); may be NULL */
} hdo_request;

static inline bool hdo__request_given_up(const hdo_request *q) {
    return q->hurry != NULL && q->hurry(q->hurry_ctx);
}

typedef struct hdo_estimate_info {
    double loss;                    /* minibatch loss at x */
    int64_t forward, backward, jvp; /* passes over the model, as this program made them */
    int64_t cost;                   /* passes a device that runs the estimator makes, each with its weight below */
} hdo_estimate_info;

/* What passes over a batch cost, in forward passes. A tangent travels beside every number (Baydin et al., 2022); a
 * reverse pass is two products a layer where the forward pass is one (Griewank and Walther, "Evaluating derivatives",
 * chapter 4); a product of complex numbers is four real ones. */
enum { HDO_COST_JVP = 2, HDO_COST_GRADIENT = 3, HDO_COST_COMPLEX = 4 };

typedef enum hdo_est_family {                    /* where the slopes of an estimator come from */
                              HDO_EST_GRADIENT,  /* no slopes: the gradient itself */
                              HDO_EST_FORWARD,   /* exact directional derivatives */
                              HDO_EST_ONE_SIDED, /* differences F(x + nu u) - F(x) */
                              HDO_EST_CENTRAL,   /* differences F(x + nu u) - F(x - nu u) */
                              HDO_EST_COMPLEX    /* complex step */
} hdo_est_family;

typedef struct hdo_estimator_ops {
    const char *name;
    const char *help;
    unsigned needs;  /* HDO_CAN_* of the objective */
    bool zeroth;     /* uses directions: rv and nu matter */
    bool gaussian;   /* exact in law, and that for Gaussian directions only */
    bool axes;       /* coordinate directions: no distribution to choose */
    bool difference; /* subtracts losses: nu trades truncation against round-off */
    hdo_est_family family;
    /* Arena bytes beyond the objective's own passes. */
    size_t (*work_bytes)(const hdo_estimator *s, const hdo_objective *f, int batch);
    /* g (d + n_buf): the estimate, then the updated buffers. What it leaves at f->idle has no meaning: no loss depends
     * on these coordinates, directions have no part there, and the estimate is the derivative, 0. */
    hdo_status (*estimate)(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w, float *g,
                           hdo_estimate_info *info);
} hdo_estimator_ops;

struct hdo_estimator {
    const hdo_estimator_ops *ops;
    int rv;
    hdo_choice nu;
    int directions, streams, distribution;
    int rank;             /* of low-rank directions; 0: they are plain */
    int64_t coords;       /* fd-coord */
    int levels;           /* debiased */
    double ratio;         /* debiased */
    bool allow_piecewise; /* complex-step */
};

extern const hdo_estimator_ops *const hdo__estimators[]; /* the registry, ends with NULL */
HDO_LAB const hdo_estimator_ops *hdo__estimator_find(const char *name);
/* The same with those a configuration brought (own_estimator.c). */
HDO_LAB const hdo_estimator_ops *hdo__estimator_of(const hdo_config *c, const char *name);
HDO_LAB hdo_estimator hdo__estimator_make(const hdo_estimator_ops *ops, const hdo_class_config *k);

/* Refuses an estimator the objective cannot serve, with a sentence. */
HDO_LAB hdo_status hdo__estimator_check(const hdo_estimator *s, const hdo_objective *f, const char *class_name,
                                        hdo_error *e);

/* All arena bytes of one estimate: the estimator's and the objective's. Does not grow with rv. */
HDO_LAB size_t hdo__estimator_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch);

/* One estimate, with its zeros at f->idle. The step loop calls ops->estimate and passes over them instead. */
HDO_LAB hdo_status hdo__estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                                 float *g, hdo_estimate_info *info);

/* ---- helpers for implementations (directions.c) ---- */

hdo_dirs hdo__request_dirs(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q);
/* The stream of another purpose at the address of u: chi-square numbers, levels. */
hdo_stream hdo__sibling_stream(const hdo_dirs *u, hdo_purpose purpose);
HDO_LAB double hdo__request_nu(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q);
void hdo__keep_buffers(const hdo_objective *f, const hdo_request *q, float *g); /* copies x's buffers behind g */

/* Blocks: pieces of x with a scalar of their own. One for `whole`, one a tensor for `per-tensor`. */
typedef struct hdo_block {
    size_t lo, hi;
    int tensor; /* -1: all of x */
} hdo_block;
int hdo__block_count(const hdo_estimator *s, const hdo_objective *f);
hdo_block hdo__block_at(const hdo_estimator *s, const hdo_objective *f, int b);

/* slope[r], r < k: an estimate of <grad F(x), u_{first+r}>. */
typedef hdo_status (*hdo_slope_fn)(void *ctx, const hdo_dirs *u, int first, int k, double *slope);

/* g (d) = (1/rv) sum_r slope_r u_r, block by block, slopes first and then one pass that makes every number of every
 * direction once, tile by tile. What all estimators that ask for slopes share. */
hdo_status hdo__estimate_slopes(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                                hdo_slope_fn fn, void *ctx, float *g);
size_t hdo__slopes_work_bytes(const hdo_estimator *s, const hdo_objective *f);
/* g += sum_r c[r] u_{first+r}, r < k, where u is not zero by its window. */
void hdo__combine(const hdo_dirs *u, int first, int k, const double *c, hdo_work *w, float *g);
/* The same for directions of low rank (low_rank.c), in hdo__combine_low_rank_bytes of every arena of the team. */
void hdo__combine_low_rank(const hdo_dirs *u, int first, int k, const double *c, hdo_team *team, float *g);
size_t hdo__combine_low_rank_bytes(const hdo_estimator *s, const hdo_objective *f);
/* scale (k) for the directions from u->scale_from on; u->scale then points at it. Nothing unless u is on the sphere. */
void hdo__scale_directions(hdo_dirs *u, int first, int k, hdo_team *team, float *scale);

/* What an estimator that stands for forward mode and computes one gradient instead reports: one pass back, and the cost
 * of the forward mode. */
static inline void hdo__info_simulated(const hdo_estimator *s, const hdo_objective *f, hdo_estimate_info *info) {
    info->backward = 1;
    info->cost = (int64_t)HDO_COST_JVP * s->rv * hdo__block_count(s, f);
}

/* One constructor-free table per estimator. */
#define HDO_X(id, name, zeroth, vectors) extern HDO_LAB const hdo_estimator_ops hdo__est_##id;
HDO_ESTIMATOR_LIST(HDO_X)
#undef HDO_X

#endif
