/* SPDX-License-Identifier: Apache-2.0 — a network whose trained tensors are products: lora, scales. */
#ifndef HDO_OBJECTIVE_ADAPTER_H
#define HDO_OBJECTIVE_ADAPTER_H

#include "objective/objective.h"
#include "objective/train.h"

/* Over `inner`, a network trained in part, which the adapter owns from then on, also when it fails: how[i] says how
 * tensor i of inner->tensors is trained. */
hdo_status hdo__adapter_create(hdo_objective *inner, const hdo_train *how, const hdo_kernels *k, hdo_objective **out,
                               hdo_error *e);

#endif
