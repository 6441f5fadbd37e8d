/* SPDX-License-Identifier: Apache-2.0 — an objective over a table of one's own (<hdo/objective.h>). */
#ifndef HDO_OBJECTIVE_OWN_OBJECTIVE_H
#define HDO_OBJECTIVE_OWN_OBJECTIVE_H

#include "config/own.h"
#include "objective/objective.h"

hdo_samples hdo__own_samples(const hdo_batch *b); /* a batch as callbacks see it */

/* What objectives over a table share: the starting point, and tensors, which go to f and are to be freed (free). NULL:
 * out of memory. */
hdo_status hdo__own_start(hdo_table_def *t, const hdo_objective *f, uint64_t seed, float *x);
hdo_tensor *hdo__own_tensors(const hdo_objective_def *d, hdo_objective *f);

hdo_status hdo__own_objective_create(hdo_table_def *t, hdo_objective **out, hdo_error *e);

#endif
