/* SPDX-License-Identifier: Apache-2.0 — model.train: which tensors of a network are trained, and how. */
#ifndef HDO_OBJECTIVE_TRAIN_H
#define HDO_OBJECTIVE_TRAIN_H

#include "hdo/status.h"
#include "nn/nn.h"

enum { HDO_TRAIN_FROZEN, HDO_TRAIN_PLAIN, HDO_TRAIN_LORA, HDO_TRAIN_SCALES };

typedef struct hdo_train { /* how one tensor is trained */
    int how, rank;         /* rank: of lora */
} hdo_train;

/* Is everything trained, tensor by tensor as it is? ("all", or an empty text) */
bool hdo__train_is_all(const char *text);

/* The text, item by item in its order, over the tensors of the network: how[i] for tensor i of params. An item that
 * names nothing is HDO_E_CONFIG. */
hdo_status hdo__train_parse(const char *text, const hdo_net *net, hdo_train how[HDO_PARAMS_MAX], hdo_error *e);

#endif
