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
    size_t struct_size;   /* required: sizeof(hdo_estimator_def) */
    const char *name;     /* required: up to 31 of a-z, 0-9, '-', '_'; none of the library's own names */
    const char *identity; /* as of an objective: its version. Guards a resume. NULL: the name */
    const char *help;     /* one line for people */
    unsigned flags;       /* HDO_ANY_THREAD */
    unsigned needs;       /* HDO_NEED_...: an objective without them is refused in a sentence */
    int uses_directions;  /* not 0: random directions, so that `rv` and `nu` of the class have a meaning */
    size_t scratch;       /* bytes of scratch one estimate needs at most, beside scratch_per_dim * dim */
    size_t scratch_per_dim;

    /* The estimate at x (dim) into g (dim), overwritten. A question to o that does not return 0 has failed: return what
     * it returned. Required. */
    int (*estimate)(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g);

    void (*destroy)(void *user); /* as of an objective */
} hdo_estimator_def;

#ifdef __cplusplus
}
#endif

#endif
