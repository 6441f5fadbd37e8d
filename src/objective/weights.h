/* SPDX-License-Identifier: Apache-2.0 — weight files and objectives: by tensor names, trainable tensors and buffers. */
#ifndef HDO_OBJECTIVE_WEIGHTS_H
#define HDO_OBJECTIVE_WEIGHTS_H

#include "hdo/status.h"
#include "hdo/experimental/weights.h"
#include "objective/objective.h"

typedef struct hdo_weights_report {
    int loaded;      /* tensors copied from the file */
    int initialised; /* tensors of the model left as they were: not in the file, or a head of another size */
    int skipped;     /* tensors of the file the model has no place for */
    size_t numbers;  /* parameters and buffers copied */
    char text[2048]; /* lines for people: what was replaced, initialised, skipped; cut if too long */
} hdo_weights_report;

/* Copies tensors of the file into x, a whole model (hdo__objective_whole), which must hold an initialised one. A tensor
 * whose shape differs from the model's only in its first dimension, where the model has `classes`, is a head for other
 * classes: it keeps its initial values. Any other difference, or a file without a single tensor of the model, is
 * HDO_E_DATA. report may be NULL. On failure x is untouched. */
HDO_LAB hdo_status hdo__weights_load(const hdo_objective *o, const hdo_tensors *t, int classes, float *x,
                                     hdo_weights_report *report, hdo_error *e);

/* Writes the whole model that the row x (d + n_buf) stands for, under its names. notes: see hdo_tensors_write. */
HDO_LAB hdo_status hdo__weights_save(const hdo_objective *f, const float *x, const char *const *notes, const char *path,
                                     hdo_error *e);
/* Writes the row x as it is, what is trained and nothing else, under the names adapters have: base_model.model. in
 * front.
 */
HDO_LAB hdo_status hdo__weights_save_part(const hdo_objective *f, const float *x, const char *const *notes,
                                          const char *path, hdo_error *e);

#endif
