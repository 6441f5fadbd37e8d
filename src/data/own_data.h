/* SPDX-License-Identifier: Apache-2.0 — data sets over a table of one's own (<hdo/dataset.h>), and sets of numbers. */
#ifndef HDO_DATA_OWN_DATA_H
#define HDO_DATA_OWN_DATA_H

#include "config/own.h"
#include "data/dataset.h"

/* Training and validation set of the table, with the limits and the pretext of c. */
hdo_status hdo__own_data_open(hdo_table_def *t, const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val,
                              hdo_error *e);

/* Samples of which only the numbers count: nothing is gathered, n_in is 0. inner (taken over, may be NULL) has count
 * and labels; without it there are `count` samples of label 0, and sha256 is that of the text. On failure inner stays
 * the caller's. */
hdo_status hdo__index_set_create(hdo_dataset **out, hdo_dataset *inner, int64_t count, const char *text, hdo_error *e);

#endif
