/* SPDX-License-Identifier: Apache-2.0 — a data set seen through layers that nobody trains. */
#ifndef HDO_OBJECTIVE_FRONT_DATA_H
#define HDO_OBJECTIVE_FRONT_DATA_H

#include "data/dataset.h"
#include "nn/nn.h"

/* *ds becomes a data set whose samples are what `front` makes of those of the old *ds, which it owns from then on.
 * Every sample is computed once, when it is first asked for. model: the frozen numbers. Both are borrowed.
 * HDO_E_UNSUPPORTED, and *ds as it was: the front draws random numbers, or there are too many features to keep. */
hdo_status hdo__features_wrap(const hdo_net *front, const float *model, hdo_dataset **ds);

#endif
