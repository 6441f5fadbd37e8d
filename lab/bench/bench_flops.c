/* SPDX-License-Identifier: Apache-2.0
 *
 * How much arithmetic a forward pass is. Taps of a convolution on the padding count, as libraries count them; attention
 * counts scores and weighted values of positions j <= i; exponentials, activations and normalisations do not count.
 */
#include "lab/bench/bench_flops.h"

#include <string.h>

#include "objective/network.h"

static double layer_flops(const hdo_net *net, const hdo_layer *l) {
    if (strcmp(l->ops->name, "linear") == 0) return 2.0 * l->rows * l->n_in * l->n_out;
    if (strcmp(l->ops->name, "conv") == 0) {
        return 2.0 * l->geo.O * l->geo.C * l->geo.kh * l->geo.kw * l->geo.Ho * l->geo.Wo;
    }
    if (strcmp(l->ops->name, "attention") != 0) return 0.0;
    const hdo_value *v = &net->value[l->out];
    return 2.0 * v->H * (v->H + 1.0) * v->W;
}

double hdo__bench_forward_flops(const hdo_objective *f) {
    if (strcmp(f->ops->name, "logistic") == 0) return 2.0 * (double)f->tensors[0].len;
    if (strcmp(f->ops->name, "network") != 0) return 0.0;
    const hdo_net *net = hdo__network_net(f);
    double sum = 0.0;
    for (int i = 0; i < net->n_layers; i++) sum += layer_flops(net, &net->layer[i]);
    return sum;
}
