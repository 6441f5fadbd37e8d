/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks of which only some tensors are trained. A node's row holds the trained tensors, one behind the other; the
 * others lie in net->base, the whole model as it was at the start, at the places they have in a model that is trained
 * whole. Layers ask hdo__numbers where a tensor is and hdo__frozen whether anybody wants its slope.
 *
 * What lies below the lowest trained layer does not depend on a node's row: it is cut off and becomes a network of its
 * own, the front, run once for a batch. Its result, one value, is what the rest reads as its input, so the rest is
 * planned, cut into chunks and stacked as if it were a small network; for a head it is one product.
 *
 * A batch-norm that is frozen whole (scale and shift) uses its running statistics also in training: it is a fixed
 * affine map, and the samples of a batch stay independent. One of which something is trained works as always, and its
 * statistics belong to the node.
 */
#include <string.h>

#include "nn/nn.h"

static void close_ranks(hdo_layout *t, size_t base) {
    size_t off = 0;
    for (int i = 0; i < t->n; i++) {
        if (t->row[i].frozen) {
            t->row[i].off += base;
        } else {
            t->row[i].off = off;
            off += t->row[i].len;
        }
    }
    t->total = off;
}

void hdo__net_freeze(hdo_net *net, const bool *trained) {
    size_t d = net->params.total;
    for (int i = 0; i < net->params.n; i++) net->params.row[i].frozen = !trained[i];
    net->couples = false;
    for (int i = 0; i < net->n_layers; i++) {
        const hdo_layer *l = &net->layer[i];
        if (l->mean < 0) continue;
        bool frozen = hdo__frozen(net, l->weight) && hdo__frozen(net, l->bias);
        net->buffers.row[l->mean].frozen = net->buffers.row[l->var].frozen = frozen;
        net->couples = net->couples || !frozen;
    }
    close_ranks(&net->params, 0);
    close_ranks(&net->buffers, d);
}

static bool is_random(const hdo_layer *l) {
    return l->p > 0 && (strcmp(l->ops->name, "dropout") == 0 || strcmp(l->ops->name, "attention") == 0);
}

/* The first layer of the rest. With a fresh mask for every evaluation a front must not drop anything. */
static int find_cut(const hdo_net *net) {
    int cut = 0;
    for (int i = 0; i < net->n_layers; i++) {
        const hdo_layer *l = &net->layer[i];
        if (i > 0 && hdo__net_may_cut(net, i)) cut = i;
        if (!hdo__frozen(net, l->weight) || !hdo__frozen(net, l->bias)) return cut;
        if (net->fresh && is_random(l)) return cut;
    }
    return 0;
}

/* Layers cut .. of `all`; its input is what they read. Layer i makes value i + 1. */
static void keep_rest(hdo_net *net, const hdo_net *all, int cut) {
    int input = all->layer[cut].in;
    net->n_layers = all->n_layers - cut;
    net->n_values = net->n_layers + 1;
    net->value[0] = all->value[input];
    net->vocab = 0;
    for (int i = 0; i < net->n_layers; i++) {
        hdo_layer *l = &net->layer[i];
        *l = all->layer[cut + i];
        l->in = l->in == input ? 0 : l->in - cut;
        l->in2 = l->in2 < 0 ? -1 : l->in2 == input ? 0 : l->in2 - cut;
        l->out -= cut;
        net->value[l->out] = all->value[l->out + cut];
    }
}

hdo_net *hdo__net_split_front(hdo_net *net) {
    int cut = find_cut(net);
    hdo_net *front = cut > 0 ? hdo__alloc(sizeof *front) : NULL;
    if (front == NULL) return NULL;
    *front = *net;
    keep_rest(net, front, cut);
    front->n_layers = cut;
    front->n_values = cut + 1;
    front->classes = (int)net->value[0].n;
    front->couples = false;
    front->params.total = front->buffers.total = 0; /* nothing of it is a node's */
    return front;
}

size_t hdo__net_longest_frozen(const hdo_net *net) {
    size_t most = 0;
    for (int i = 0; i < net->n_layers; i++) {
        const int row[2] = {net->layer[i].weight, net->layer[i].bias};
        for (int k = 0; k < 2; k++)
            if (row[k] >= 0 && hdo__frozen(net, row[k]) && net->params.row[row[k]].len > most)
                most = net->params.row[row[k]].len;
    }
    return most;
}
