/* SPDX-License-Identifier: Apache-2.0
 *
 * Building a network: layers, values and the tensor table, one row per named piece of the flat vector. Offsets, views,
 * initialisation, weight files and the messages of checks all derive from it. Trainable tensors and buffers are two
 * tables; a buffer's offset counts from d.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "nn/nn.h"

hdo_net *hdo__net_create(const hdo_kernels *k, int C, int H, int W, int vocab, int classes) {
    hdo_net *net = hdo__alloc(sizeof *net);
    if (net == NULL) return NULL;
    net->k = k;
    net->v = &hdo__nn_portable;
#ifdef HDO_HAVE_AVX2_BUILD
    if (strcmp(k->name, "ref") != 0 && hdo__simd()->avx2) net->v = &hdo__nn_avx2;
#endif
    net->vocab = vocab;
    net->classes = classes;
    net->value[0] = (hdo_value){.n = (size_t)C * (size_t)H * (size_t)W, .C = C, .H = H, .W = W};
    net->n_values = 1;
    return net;
}

const hdo_value *hdo__net_value(const hdo_net *net, int value) {
    return &net->value[value];
}
const hdo_kernels *hdo__net_kernels(const hdo_net *net) {
    return net->k;
}
int hdo__net_rank(const hdo_net *net) {
    return net->rank;
}
int hdo__net_vocab(const hdo_net *net) {
    return net->vocab;
}

/* ---- layers ---- */

hdo_layer *hdo__net_layer(hdo_net *net, const hdo_layer_ops *ops, int in, int in2, hdo_value out) {
    if (net->n_layers == HDO_LAYERS_MAX) return NULL;
    hdo_layer *l = &net->layer[net->n_layers];
    *l = (hdo_layer){.ops = ops, .in = in, .in2 = in2, .out = net->n_values, .n = out.n, .number = net->n_layers++};
    l->weight = l->bias = l->mean = l->var = -1;
    net->value[net->n_values++] = out;
    net->couples = net->couples || ops->couples;
    return l;
}

/* A value somebody else reads, or that has a name, keeps what its layer made. */
static bool seen(const hdo_net *net, int v) {
    for (int i = 0; i < net->n_layers; i++)
        if (net->layer[i].in == v || net->layer[i].in2 == v) return true;
    return net->pinned[v];
}

bool hdo__net_fuse_relu(hdo_net *net, int v) {
    hdo_layer *l = net->n_layers > 0 ? &net->layer[net->n_layers - 1] : NULL;
    if (l == NULL || l->out != v || !l->ops->fuses_relu || l->relu || seen(net, v)) return false;
    l->relu = true;
    return true;
}

bool hdo__net_take_relu(hdo_net *net, int v) {
    hdo_layer *l = net->n_layers > 0 ? &net->layer[net->n_layers - 1] : NULL;
    if (l == NULL || l->out != v || !l->relu || net->pinned[v]) return false;
    l->relu = false;
    return true;
}

void hdo__net_kink(const hdo_net *net, char text[HDO_KINK_MAX]) {
    const char *behind = NULL; /* the last layer with parameters on the way */
    text[0] = '\0';
    for (int i = 0; i < net->n_layers; i++) {
        const hdo_layer *l = &net->layer[i];
        if (l->weight >= 0) behind = net->params.row[l->weight].name;
        bool relu = l->relu || l->act == HDO_ACT_RELU;
        if (!relu && strcmp(l->ops->name, "maxpool") != 0) continue;
        const char *what = relu ? "ReLU" : "max-pool", *dot = behind != NULL ? strrchr(behind, '.') : NULL;
        if (dot != NULL) {
            snprintf(text, HDO_KINK_MAX, "%s behind %.*s", what, (int)(dot - behind), behind);
        } else {
            snprintf(text, HDO_KINK_MAX, "%s at the input", what);
        }
        return;
    }
}

/* ---- tensors ---- */

int hdo__layout_find(const hdo_layout *t, const char *name) {
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->row[i].name, name) == 0) return i;
    return -1;
}

static int layout_add(hdo_layout *t, const char *prefix, const char *suffix, hdo_param like) {
    int n = snprintf(like.name, sizeof like.name, "%s.%s", prefix, suffix);
    if (n < 0 || (size_t)n >= sizeof like.name || t->n == HDO_PARAMS_MAX || hdo__layout_find(t, like.name) >= 0)
        return -1;
    like.off = t->total;
    like.len = 1;
    for (int i = 0; i < like.n_dim; i++) like.len *= (size_t)like.dim[i];
    if (like.fill == 0) like.fill = HDO_FILL_CONST;
    t->row[t->n] = like;
    t->total += like.len;
    return t->n++;
}

int hdo__net_param(hdo_net *net, const char *prefix, const char *suffix, hdo_param like) {
    return layout_add(&net->params, prefix, suffix, like);
}
int hdo__net_buffer(hdo_net *net, const char *prefix, const char *suffix, hdo_param like) {
    return layout_add(&net->buffers, prefix, suffix, like);
}

bool hdo__net_uniform(hdo_net *net, hdo_layer *l, const char *name, hdo_param weight, bool bias) {
    weight.role = HDO_ROLE_WEIGHT;
    weight.fill = HDO_FILL_UNIFORM;
    weight.arg = 1.0 / sqrt((double)weight.fan_in);
    l->weight = hdo__net_param(net, name, "weight", weight);
    if (l->weight < 0 || !bias) return l->weight >= 0;
    hdo_param b = {.role = HDO_ROLE_BIAS, .n_dim = 1, .dim = {weight.dim[0]}, .fill = weight.fill, .arg = weight.arg};
    b.fan_in = weight.fan_in;
    l->bias = hdo__net_param(net, name, "bias", b);
    return l->bias >= 0;
}
