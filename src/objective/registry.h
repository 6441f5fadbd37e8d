/* SPDX-License-Identifier: Apache-2.0 — constructors named in the registry (objective.c): one line each. */
#ifndef HDO_OBJECTIVE_REGISTRY_H
#define HDO_OBJECTIVE_REGISTRY_H

#include "objective/objective.h"

hdo_status hdo__quadratic_create(const hdo_objective_args *p, hdo_objective **out, hdo_error *e);
hdo_status hdo__logistic_create(const hdo_objective_args *p, hdo_objective **out, hdo_error *e);

#endif
