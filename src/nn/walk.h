/* SPDX-License-Identifier: Apache-2.0 — between net.c (walks over layers) and passes.c (passes over a batch). */
#ifndef HDO_NN_WALK_H
#define HDO_NN_WALK_H

#include "nn/nn.h"

/* One walk of a pass over a plan. B samples, G tangents. */
typedef struct hdo_walk {
    const hdo_plan *plan;
    const hdo_pass *pass;
    const float *input, *t_input; /* (B, n), (G, B, n): what the first layer reads */
    float *result, *t_result;     /* where the last value goes; NULL: into the block */
    float *block, *t_block;       /* plan->total * B floats, times G */
    float *fixed, *tmp;           /* grad only: plan->fixed floats; plan->tmp * B floats */
} hdo_walk;

size_t hdo__walk_scratch(const hdo_net *net, const hdo_plan *plan, int B, int G); /* bytes the layers take */
void hdo__walk_forward(const hdo_walk *w);
void hdo__walk_tangent(const hdo_walk *w);
float *hdo__walk_dlogits(const hdo_walk *w); /* (B, classes): written by the loss before the reverse walk */
void hdo__walk_reverse(const hdo_walk *w);

#endif
