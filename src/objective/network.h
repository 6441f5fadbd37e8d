/* SPDX-License-Identifier: Apache-2.0 — networks as objectives; used by the registry, by weight files and by tests. */
#ifndef HDO_OBJECTIVE_NETWORK_H
#define HDO_OBJECTIVE_NETWORK_H

#include "hdo/status.h"
#include "nn/nn.h"
#include "objective/objective.h"

/* mlp, cnn2, cnn3, resnet18, transformer, custom; logistic in the authors' reading. */
hdo_status hdo__network_create(const hdo_objective_args *p, hdo_objective **out, hdo_error *e);

HDO_LAB const hdo_net *hdo__network_net(const hdo_objective *f); /* f must come from hdo__network_create */

#endif
