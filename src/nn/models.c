/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in networks in the layer language (language.c, docs/models.md), in the text's reading and in the authors'
 * code's. `classes` is the number of classes of the data, `dropout` the setting model.dropout.
 */
#include <string.h>

#include "nn/nn.h"

/* clang-format off */

/* torchvision's basic block: two 3x3 convolutions and a residual, which is projected where the shape changes. Tensor
 * order and names are torchvision's. */
#define CONV3(name, c, s) name ": conv " c " 3 stride " s " pad 1 nobias fanout, "
#define NORM(name) name ": batchnorm, "
#define BLOCK(name, c)                                           \
    "save id, "                                                  \
    CONV3(name ".conv1", c, "1") NORM(name ".bn1") "relu, "      \
    CONV3(name ".conv2", c, "1") NORM(name ".bn2") "add id, relu, "
#define BLOCK_DOWN(name, c)                                      \
    "save id, "                                                  \
    CONV3(name ".conv1", c, "2") NORM(name ".bn1") "relu, "      \
    CONV3(name ".conv2", c, "1") NORM(name ".bn2") "save main, " \
    "load id, "                                                  \
    name ".downsample.0: conv " c " 1 stride 2 nobias fanout, "  \
    NORM(name ".downsample.1") "add main, relu, "

#define RESNET18                                                                                   \
    "conv1: conv 64 7 stride 2 pad 3 nobias fanout, bn1: batchnorm, relu, pool 3 stride 2 pad 1, " \
    BLOCK("layer1.0", "64") BLOCK("layer1.1", "64")                                                \
    BLOCK_DOWN("layer2.0", "128") BLOCK("layer2.1", "128")                                         \
    BLOCK_DOWN("layer3.0", "256") BLOCK("layer3.1", "256")                                         \
    BLOCK_DOWN("layer4.0", "512") BLOCK("layer4.1", "512")                                         \
    "avgpool, fc: linear classes"

/* A pre-norm GPT block of width 4 with 2 heads. Residual projections start at 0.02 / sqrt(2 layers) = 0.01. */
#define GPT_BLOCK(name)                                                             \
    "save r, " name ".ln_1: layernorm nobias, "                                     \
    name ".attn.c_attn: linear 12 nobias std 0.02, attention 2 dropout, "           \
    name ".attn.c_proj: linear 4 nobias std 0.01, dropout, add r, "                 \
    "save r, " name ".ln_2: layernorm nobias, "                                     \
    name ".mlp.c_fc: linear 16 nobias std 0.02, gelu, "                             \
    name ".mlp.c_proj: linear 4 nobias std 0.01, dropout, add r, "

#define GPT                                                                            \
    "transformer.wte: embed 4 std 0.02, transformer.wpe: position std 0.02, dropout, " \
    GPT_BLOCK("transformer.h.0") GPT_BLOCK("transformer.h.1")                          \
    "transformer.ln_f: layernorm nobias, flatten, head: linear classes std 0.02"

/* clang-format on */

static const struct {
    const char *name, *text, *authors;
} models[] = {
    {"logistic", "fc: linear classes", "fc: linear classes, bn: batchnorm, sigmoid"},
    {"mlp", "fc1: linear 128, relu, fc2: linear 128, relu, fc3: linear classes",
     "fc1: linear 128, bn1: batchnorm, relu, fc2: linear 128, bn2: batchnorm, relu, "
     "fc3: linear classes, bn3: batchnorm, sigmoid"},
    {"cnn2",
     "conv1: conv 8 3 pad 1, relu, pool 2, conv2: conv 8 3 pad 1, relu, pool 2, "
     "fc1: linear 128, relu, fc2: linear classes",
     "conv1: conv 8 3 pad 1, bn1: batchnorm, relu, conv2: conv 16 3 pad 1, bn2: batchnorm, relu, pool 2, "
     "fc1: linear 128, bn3: batchnorm, relu, fc2: linear classes, bn4: batchnorm, sigmoid"},
    {"cnn3",
     "conv1: conv 8 3 pad 1, relu, pool 2, conv2: conv 8 3 pad 1, relu, pool 2, conv3: conv 8 3 pad 1, relu, "
     "fc1: linear 128, relu, fc2: linear 128, relu, fc3: linear classes",
     "conv1: conv 8 3 pad 1, bn1: batchnorm, relu, conv2: conv 16 3 pad 1, bn2: batchnorm, relu, pool 2, "
     "conv3: conv 32 3 pad 1, bn3: batchnorm, relu, pool 2, "
     "fc1: linear 128, bn4: batchnorm, relu, fc2: linear 128, bn5: batchnorm, relu, "
     "fc3: linear classes, bn6: batchnorm, sigmoid"},
    {"resnet18", RESNET18, RESNET18},
    {"transformer", GPT, GPT},
};

const char *hdo__model_text(const char *name, bool authors) {
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(models[i].name, name) == 0) return authors ? models[i].authors : models[i].text;
    return NULL;
}
