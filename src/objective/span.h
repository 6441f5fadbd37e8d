/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch losses that see a direction through few numbers: F(x + nu u) depends on u only through A u, where A (rows x d)
 * is fixed by the batch. Softmax regression is the case in hand: A u are the changes of the logits. With Q (d x k) an
 * orthonormal basis of the row space of A, a Gaussian direction splits into Q y, which the loss sees, and a part it
 * does not see; that is what makes `fd-law` exact in law at O(d + rv k) (docs/estimators.md).
 *
 * A part of the loss that does see all of u, such as an l2 term, is left to `rest`, which differentiates it exactly.
 */
#ifndef HDO_OBJECTIVE_SPAN_H
#define HDO_OBJECTIVE_SPAN_H

#include "objective/objective.h"

typedef struct hdo_span {
    int tensor;  /* directions inside this tensor only; -1: over all of x */
    int k;       /* numbers the loss sees: columns of Q */
    double loss; /* F(x), everything included */
    void *state; /* of the objective, in the arena */
} hdo_span;

typedef struct hdo_span_ops {
    /* Arena bytes of one span and its functions for batches of that size. */
    size_t (*work_bytes)(const hdo_objective *f, int batch);

    /* Largest k for batches of that size. */
    int (*most)(const hdo_objective *f, int batch);

    /* Factorises once a batch. The span lives in the arena: the caller marks before and rewinds after. */
    hdo_status (*open)(const hdo_objective *f, const hdo_batch *b, const float *x, int tensor, hdo_work *w,
                       hdo_span *out);

    /* diff[r] = F(x + nu Q y_r) - F(x) without the rest, y (n, k). Computed as a difference, not by subtracting. */
    void (*diff)(const hdo_objective *f, const hdo_batch *b, const hdo_span *s, double nu, int n, const float *y,
                 hdo_work *w, double *diff);

    /* out (k) = Q' z; z (d), read inside the span's tensor only. */
    void (*project)(const hdo_objective *f, const hdo_batch *b, const hdo_span *s, const float *z, hdo_work *w,
                    double *out);

    /* g += Q v; v (k), g (d). */
    void (*expand)(const hdo_objective *f, const hdo_batch *b, const hdo_span *s, const double *v, hdo_work *w,
                   float *g);

    /* g += gradient of the rest of the loss, inside the span's tensor. */
    void (*rest)(const hdo_objective *f, const hdo_span *s, const float *x, float *g);
} hdo_span_ops;

#endif
