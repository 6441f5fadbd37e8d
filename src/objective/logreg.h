/* SPDX-License-Identifier: Apache-2.0 — softmax regression: what its two files share. */
#ifndef HDO_OBJECTIVE_LOGREG_H
#define HDO_OBJECTIVE_LOGREG_H

#include "kernels/kernels.h"
#include "objective/objective.h"
#include "objective/span.h"

typedef struct hdo_logreg {
    hdo_objective base;
    hdo_tensor tensor[2]; /* weight (C, p), bias (C), as torch.nn.Linear */
    const hdo_kernels *kernels;
    int p, C;
    double l2;
    hdo_choice init;
} hdo_logreg;

/* z (B, C) = in (B, p) W' + b */
void hdo__logreg_logits(const hdo_logreg *f, int B, const float *in, const float *x, float *z);
double hdo__logreg_regulariser(const hdo_logreg *f, const float *x);

extern const hdo_span_ops hdo__logreg_span; /* logreg_span.c */

#endif
