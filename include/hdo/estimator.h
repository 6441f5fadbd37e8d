/* SPDX-License-Identifier: Apache-2.0
 *
 * An estimator of one's own: it turns answers of the objective (losses, slopes, gradients) at x into an estimate of the
 * gradient, which the node then steps along. Fill the table, hand it to hdo_config_use_estimator (<hdo/hdo.h>), and
 * name it in a class of nodes: `population: {mine: {estimator: NAME}}`.
 *
 * What holds for all callbacks (results, threads, purity) is said at the top of <hdo/objective.h>.
 */
#ifndef HDO_ESTIMATOR_H
#define HDO_ESTIMATOR_H

#include "hdo/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an estimate may ask, for one node in one step: same samples, same noise for all questions. Opaque. */
typedef struct hdo_oracle hdo_oracle;

/* What the objective must offer. */
enum { HDO_NEED_LOSS = 1, HDO_NEED_LOSSES = 2, HDO_NEED_GRADIENT = 4, HDO_NEED_SLOPES = 8 };

/* Members are optional unless "required" stands with them; 0 and NULL: not there. The table and its texts are copied.
 */
typedef struct hdo_estimator_def {
    size_t struct_size;     /* required: sizeof(hdo_estimator_def) */
    const char *name;       /* required: up to 31 of a-z, 0-9, '-', '_'; none of the library's own names */
    const char *identity;   /* as of an objective: its version. Guards a resume. NULL: the name */
    const char *help;       /* one line for people */
    unsigned flags;         /* HDO_ANY_THREAD */
    unsigned needs;         /* HDO_NEED_...: an objective without them is refused in a sentence */
    int uses_directions;    /* not 0: random directions, so that `rv` and `nu` of the class have a meaning */
    size_t scratch;         /* bytes of scratch one estimate needs at most, beside scratch_per_dim * dim */
    size_t scratch_per_dim; /* bytes of scratch for each number of x */

    /* The estimate at x (dim) into g (dim), overwritten. A question to o that does not return 0 has failed: return what
     * it returned. Required. */
    int (*estimate)(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g);

    void (*destroy)(void *user); /* as of an objective */
} hdo_estimator_def;

/* ---- what an estimate may ask; inside `estimate`, on its thread ----
 *
 * Results: 0, or the question failed and `estimate` is to return what it got. Each question counts as passes (columns
 * oracle/...), as those of our estimators do. The run's figure train/loss is the loss at x if it was asked, otherwise
 * the mean of the losses that were. */

/* The loss at x (dim). */
HDO_API int hdo_oracle_loss(hdo_oracle *o, const float *x, double *loss);
/* Losses at many points, point k at points + k * stride, in as few calls of the objective as may be. */
HDO_API int hdo_oracle_losses(hdo_oracle *o, const float *points, size_t stride, int count, double *loss);
/* Loss and gradient at x, into g (dim). */
HDO_API int hdo_oracle_gradient(hdo_oracle *o, const float *x, double *loss, float *g);
/* Loss at x, and derivatives along directions: direction k at directions + k * stride. */
HDO_API int hdo_oracle_slopes(hdo_oracle *o, const float *x, const float *directions, size_t stride, int count,
                              double *loss, double *slope);
/* Random direction r = 0, 1, ... of this node and step into u (dim), as `distribution` and `streams` of the class say:
 * the same whenever it is asked for. Costs no pass. */
HDO_API int hdo_oracle_direction(hdo_oracle *o, int r, float *u);
/* `count` independent standard normal numbers of this node and step; different streams are independent. */
HDO_API int hdo_oracle_normals(hdo_oracle *o, uint32_t stream, size_t count, float *z);
/* Numbers of x; random vectors (`rv`), difference step (`nu`) and learning rate of the class in this step. 0 when o is
 * NULL. */
HDO_API size_t hdo_oracle_dim(const hdo_oracle *o);
HDO_API int hdo_oracle_rv(const hdo_oracle *o);
HDO_API double hdo_oracle_nu(const hdo_oracle *o);
HDO_API double hdo_oracle_rate(const hdo_oracle *o);
/* Memory for this estimate: scratch + scratch_per_dim * dim bytes, aligned to 64, not cleared. Borrowed. */
HDO_API void *hdo_oracle_scratch(hdo_oracle *o);

#ifdef __cplusplus
}
#endif

#endif
