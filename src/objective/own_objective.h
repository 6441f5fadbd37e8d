/* SPDX-License-Identifier: Apache-2.0 — an objective over a table of one's own (<hdo/objective.h>). */
#ifndef HDO_OBJECTIVE_OWN_OBJECTIVE_H
#define HDO_OBJECTIVE_OWN_OBJECTIVE_H

#include "config/own.h"
#include "objective/objective.h"

hdo_samples hdo__own_samples(const hdo_batch *b); /* a batch as callbacks see it */
hdo_status hdo__own_objective_create(hdo_table_def *t, hdo_objective **out, hdo_error *e);

#endif
