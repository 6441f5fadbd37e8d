/* SPDX-License-Identifier: Apache-2.0
 *
 * An objective is a function of d numbers with a minibatch loss. The model is `float x[d]`; only implementations know
 * that it has layers. Behind the d trainable numbers of a node's row stand n_buf buffer numbers (batch-norm
 * statistics): never perturbed, counted in the row length, not in d.
 *
 * All passes of one estimate get the same batch and, with dropout, the same masks: everything random is addressed by
 * (batch->seed, node, step).
 */
#ifndef HDO_OBJECTIVE_OBJECTIVE_H
#define HDO_OBJECTIVE_OBJECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dir.h"
#include "base/split.h"
#include "base/status.h"
#include "base/team.h"
#include "base/tensor.h"
#include "data/batch.h"
#include "hdo/experimental/config.h"

typedef struct hdo_objective hdo_objective;

/* A model of which only a part is trained (model.train): all of it, as files and people know it. */
typedef struct hdo_whole {
    size_t d, n_buf;
    const hdo_tensor *tensors; /* (n_tensors), covering [0, d) */
    int n_tensors;
    const hdo_tensor *buffers; /* (n_buffers): offsets count from d */
    int n_buffers;
} hdo_whole;

/* What an estimator may ask for. */
enum { HDO_CAN_LOSS = 1, HDO_CAN_GRAD = 2, HDO_CAN_JVP = 4, HDO_CAN_COMPLEX = 8, HDO_CAN_SPAN = 16 };

typedef struct hdo_objective_ops {
    const char *name;
    void (*destroy)(hdo_objective *f);

    /* Arena bytes the passes below need for batches of that size with k directions at once; team: threads inside. */
    size_t (*work_bytes)(const hdo_objective *f, int batch, int k);

    /* The same for the passes an estimator with these needs (HDO_CAN_*) makes and no others. NULL: as work_bytes. */
    size_t (*pass_bytes)(const hdo_objective *f, unsigned needs, int batch, int k);

    /* The initial model, x (d) and buffers behind it (n_buf), or of a part (f->whole) the whole model. */
    hdo_status (*init)(const hdo_objective *f, uint64_t seed, float *x);

    /* With f->whole, all three. adopt: what is not trained is read from this model from now on, (whole->d + n_buf),
     * whose memory stays the caller's. part: the trained part of it as a node starts with it. join: the model that a
     * row stands for. */
    void (*adopt)(hdo_objective *f, const float *model);
    void (*part)(const hdo_objective *f, uint64_t seed, const float *model, float *x);
    void (*join)(const hdo_objective *f, const float *x, float *model);

    /* *ds seen through the layers no trained number is below of, computed once a sample; *ds stays as it is where that
     * cannot be. NULL: there are no such layers. */
    hdo_status (*features)(const hdo_objective *f, hdo_dataset **ds);

    /* Runs the layers no trained number is below of once, into b->front, memory of the arena; every pass over the batch
     * then begins behind them. NULL: there are none. */
    hdo_status (*prepare)(const hdo_objective *f, hdo_batch *b, hdo_work *w);

    /* Mean loss of the batch at x. buf (n_buf), or NULL: receives the updated buffers of a training pass. Required. */
    hdo_status (*loss)(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, double *loss,
                       float *buf);

    /* Gradient into g (d), overwritten but for f->idle, where g is left alone (hdo__objective_grad makes zeros there).
     * NULL: no back-propagation here. */
    hdo_status (*grad)(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g, double *loss,
                       float *buf);

    /* Forward mode: dloss[r] = <grad F(x), u_{first+r}>, r < k, sharing one primal pass. NULL: no forward mode. */
    hdo_status (*jvp)(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first, int k,
                      hdo_work *w, double *loss, double *dloss, float *buf);

    /* loss[r] = F(x + nu u_{first+r}), r < k. NULL: a loop over loss with one perturbed copy of x. */
    hdo_status (*loss_many)(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                            int k, float nu, hdo_work *w, double *loss);

    /* Im F(x + i nu u_{first+r}) / nu, nu > 0; with kinks (f->kink) of the active piece. NULL: no complex points. */
    hdo_status (*complex_step)(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                               int k, double nu, hdo_work *w, double *slope);

    /* The batch loss sees a direction through few numbers: see span.h. NULL: it does not. */
    const struct hdo_span_ops *span;

    /* g (d) = (1/size) sum_b J_b' S_b J_b v of the batch: the Gauss-Newton matrix, S the Hessian of the loss in the
     * logits. J v comes from the logits at up = x + h v and down = x - h v; slope (3, size, classes) is scratch. NULL:
     * the Hessian serves, the loss is smooth in x. */
    hdo_status (*gauss_newton)(const hdo_objective *f, const hdo_batch *b, const float *x, const float *up,
                               const float *down, double h, hdo_work *w, float *slope, float *g);

    /* Evaluation of K models, rows of X with leading dimension ld, on one batch: adds the SUM of the losses over the
     * samples to loss_sum[K] and the number of correct answers to correct[K]. Required. Objectives without data add
     * f(x) once (batch->size is 0 then) and leave correct alone. */
    hdo_status (*evaluate)(const hdo_objective *f, const hdo_batch *b, const float *X, size_t ld, int K, hdo_work *w,
                           double *loss_sum, int64_t *correct);
} hdo_objective_ops;

struct hdo_objective { /* first member of every implementation */
    const hdo_objective_ops *ops;
    size_t d;                  /* trainable numbers */
    size_t n_buf;              /* buffer numbers behind them */
    const hdo_tensor *tensors; /* (n_tensors): trainable, in order, covering [0, d) */
    int n_tensors;
    const hdo_tensor *buffers; /* (n_buffers): offsets count from d */
    int n_buffers;
    const hdo_objective *inner; /* what an adapter (lora, scales) stands before; NULL: this is no adapter */
    const hdo_whole *whole;     /* NULL: x is the whole model */
    hdo_ranges idle;            /* coordinates no loss depends on: their estimates are 0 */
    bool has_accuracy;
    double usual_loss; /* a loss that is nothing unusual on this problem: of a blind guess, of noise alone. Above 0 */
    const char *model; /* its name in the configuration */
    const char
        *kink; /* not NULL: complex_step gives the slope of the active piece; the first kink ("ReLU behind fc1") */
    int eval_models;                 /* how many models `evaluate` likes to see at once */
    int eval_batch;                  /* how many samples */
    struct hdo_complaint *complaint; /* what one that may fail has to say (config/own_call.h); NULL: never fails */
    /* A data set `evaluate` has inputs and labels of: batches of eval_batch samples of it, in order, need no more than
     * size, whole and first. */
    const hdo_dataset *known;
};

/* correct[k] of `evaluate`: the loss of this model could not be had. It is left out of the figures. */
#define HDO_NO_LOSS (-(INT64_C(1) << 40)) /* may be added up over batches */

/* What an objective is built from. Borrowed for its life. */
typedef struct hdo_objective_args {
    const hdo_config *config;
    const hdo_dataset *train, *val; /* NULL for objectives without data */
    int n;                          /* nodes */
} hdo_objective_args;

typedef struct hdo_objective_entry { /* one line of the registry */
    const char *name;
    bool needs_data;
    hdo_status (*create)(const hdo_objective_args *p, hdo_objective **out, hdo_error *e);
} hdo_objective_entry;

extern const hdo_objective_entry hdo__objectives[]; /* ends with name == NULL */
const hdo_objective_entry *hdo__objective_find(const char *name);

/* ---- wrappers: asserts and defaults; only they touch ops ---- */
HDO_LAB unsigned hdo__objective_can(const hdo_objective *f);
void hdo__objective_destroy(hdo_objective *f);          /* NULL is fine */
hdo_whole hdo__objective_whole(const hdo_objective *f); /* f->whole, or x itself */
/* b->front, where the objective has one. Without it every pass makes its own. */
hdo_status hdo__objective_prepare(const hdo_objective *f, hdo_batch *b, hdo_work *w);
HDO_LAB size_t hdo__objective_live(const hdo_objective *f); /* coordinates a loss depends on: d, but for f->idle */
HDO_LAB hdo_status hdo__objective_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w,
                                       float *g, double *loss, float *buf);
HDO_LAB size_t hdo__objective_work_bytes(const hdo_objective *f, int batch, int k);
size_t hdo__objective_pass_bytes(const hdo_objective *f, unsigned needs, int batch, int k);
HDO_LAB hdo_status hdo__objective_loss_many(const hdo_objective *f, const hdo_batch *b, const float *x,
                                            const hdo_dirs *u, int first, int k, float nu, hdo_work *w, double *loss);

#endif
