/* SPDX-License-Identifier: Apache-2.0 — softmax regression: what its files share. */
#ifndef HDO_OBJECTIVE_LOGREG_H
#define HDO_OBJECTIVE_LOGREG_H

#include "kernels/kernels.h"
#include "objective/objective.h"
#include "objective/span.h"

typedef struct hdo_logreg_piece { /* eval_batch validation samples, as evaluation wants them */
    hdo_sparse lists;
    int32_t *label;
} hdo_logreg_piece;

typedef struct hdo_logreg {
    hdo_objective base;
    hdo_tensor tensor[2]; /* weight (C, p), bias (C), as torch.nn.Linear */
    const hdo_kernels *kernels;
    int p, C;
    double l2;
    hdo_choice init;
    bool sparse; /* evaluation samples are mostly `background`: see kernels/sparse.h */
    float background;
    hdo_logreg_piece *piece; /* (n_pieces): the whole validation set, if it has a background */
    int n_pieces;
} hdo_logreg;

enum { HDO_LOGREG_EVAL_MODELS = 96, HDO_LOGREG_EVAL_BATCH = 1000 }; /* large enough for products to run near peak */

/* z (B, C) = in (B, p) W' + b */
void hdo__logreg_logits(const hdo_logreg *f, int B, const float *in, const float *x, float *z);
double hdo__logreg_regulariser(const hdo_logreg *f, const float *x);

/* Evaluation (logreg_eval.c): looks at the validation set once, to see whether it has a background, and keeps what
 * differs from it (MNIST: 12 MB); then as evaluate in objective.h. */
hdo_status hdo__logreg_look(hdo_logreg *f, const hdo_dataset *val, hdo_error *e);
void hdo__logreg_forget(hdo_logreg *f);
size_t hdo__logreg_evaluate_work(const hdo_logreg *f, int batch);
hdo_status hdo__logreg_evaluate(const hdo_objective *o, const hdo_batch *b, const float *X, size_t ld, int K,
                                hdo_work *w, double *loss_sum, int64_t *correct);

extern const hdo_span_ops hdo__logreg_span; /* logreg_span.c */

#endif
