/* SPDX-License-Identifier: Apache-2.0
 *
 * Between net.c (walks over the layers), chunk.c (one chunk of samples) and the passes over a batch (passes.c,
 * perturb.c, evaluate.c).
 */
#ifndef HDO_NN_WALK_H
#define HDO_NN_WALK_H

#include "nn/nn.h"

/* One walk of a pass over a plan. B samples, G tangents. */
typedef struct hdo_walk {
    const hdo_net_plan *plan;
    const hdo_pass *pass;
    const float *input, *t_input; /* (B, n), (G, B, n): what the first layer reads */
    float *result, *t_result;     /* where the last value goes; NULL: into the block */
    float *block, *t_block;       /* plan->total * B floats, times G */
    float *fixed, *tmp;           /* grad only: plan->fixed floats; plan->tmp * B floats */
} hdo_walk;

size_t hdo__walk_scratch(const hdo_net *net, const hdo_net_plan *plan, int B, int G); /* bytes the layers take */
void hdo__walk_forward(const hdo_walk *w);
size_t hdo__walk_many_bytes(const hdo_net *net, int B); /* along directions of low rank: beyond those of the tangents */
void hdo__walk_tangent(const hdo_walk *w);              /* forward mode, or (nu > 0) complex values */
float *hdo__walk_dlogits(const hdo_walk *w);            /* (B, classes): written by the loss before the reverse walk */
void hdo__walk_reverse(const hdo_walk *w);

/* ---- one chunk: samples lo .. lo + n - 1, the front `sub` of them at a time ---- */
void hdo__chunk_logits(hdo_pass *p, int lo, int n, int sub, float *logits); /* (n, classes) */
size_t hdo__chunk_logits_bytes(const hdo_net *net, int n, int sub);
double hdo__chunk_loss(hdo_pass *p, int lo, int n, int sub, int64_t *correct); /* sum; correct is added to */
size_t hdo__chunk_loss_bytes(const hdo_net *net, int n, int sub);
/* Logits z (n, classes) and their tangents, or imaginary parts over nu, tz (G, n, classes). The bytes include the
 * written-out directions. */
void hdo__chunk_tangent(hdo_pass *p, int lo, int n, int sub, float *z, float *tz);
size_t hdo__chunk_tangent_bytes(const hdo_net *net, int n, int sub, int G);

size_t hdo__evaluate_bytes(const hdo_net *net, int batch);

/* ---- what all passes share ---- */
static inline bool hdo__whole_batch(const hdo_net *net, const hdo_net_samples *s) {
    return net->couples && s->train;
}
static inline int hdo__chunks(int size, int chunk) {
    return (size + chunk - 1) / chunk;
}
static inline hdo_pass hdo__pass_init(const hdo_net *net, const hdo_net_samples *s, const float *x, hdo_work *w) {
    return (hdo_pass){.net = net,
                      .k = net->k,
                      .v = net->v,
                      .s = s,
                      .x = x,
                      .stats = x + net->params.total,
                      .mask_seed = s->seed,
                      .work = w};
}

#endif
