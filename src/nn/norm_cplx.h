/* SPDX-License-Identifier: Apache-2.0 — normalisation at complex points: one function for batch-norm and layer-norm. */
#ifndef HDO_NN_NORM_CPLX_H
#define HDO_NN_NORM_CPLX_H

#include "nn/layer.h"

/* Numbers that share a statistic: a channel of a batch, a row of a sequence. */
typedef struct hdo_norm_group {
    size_t first, runs, stride, len; /* runs of len numbers, stride apart */
    const float *w, *tw, *b, *tb;    /* real parts and imaginary parts over nu; b may be NULL */
    size_t step;                     /* from the weight of a number to that of the next */
    const double *fixed;             /* running mean and 1/sqrt(var + eps), or NULL: those of the group */
} hdo_norm_group;

/* out, tout = w (in - mean) / sqrt(var + eps) + b over the group, with complex numbers: the variance is the mean of
 * (in - mean)^2 without conjugates, the root the principal one. */
void hdo__norm_cplx(const hdo_layer *l, double nu, const hdo_norm_group *g, const hdo_io *io);

#endif
