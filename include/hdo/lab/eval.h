/* SPDX-License-Identifier: Apache-2.0
 *
 * How good is a stored model? Of a run, of a checkpoint, or foreign weights by their tensor names, on any data set.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_EVAL_H
#define HDO_LAB_EVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/experimental/config.h"
#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HDO_EVAL_MEAN = -1, HDO_EVAL_CLASSES_MAX = 128 };

typedef struct hdo_eval_options {
    int64_t node;      /* of a run or checkpoint; HDO_EVAL_MEAN: the mean of all nodes, weighted as their averages */
    bool train;        /* on the training set */
    int64_t limit;     /* only the first that many samples; 0: all */
    int threads;       /* 0: all CPUs this process may use */
    bool no_confusion; /* loss and accuracies only: one pass instead of one for each class */
} hdo_eval_options;

typedef struct hdo_evaluation {
    char kind[16];   /* "run", "checkpoint", "weights" */
    char which[256]; /* of a run or checkpoint: "3", "mean" or "weighted mean: fo 1, zo 0.1" */
    int64_t step, n; /* of a run or checkpoint: steps done, nodes; -1 otherwise */
    int64_t d, samples;
    double loss, accuracy; /* accuracy NaN when the model has none */
    int classes;
    int64_t count[HDO_EVAL_CLASSES_MAX]; /* samples of every class */
    int64_t correct[HDO_EVAL_CLASSES_MAX];
    int64_t *confusion; /* (classes, classes): true class, predicted class; NULL without */
    char note[2048];    /* weights: tensors that were not found, or had no place */
} hdo_evaluation;

/* The configuration a stored model belongs to: of a run folder, or of the run folder a checkpoint lies in. HDO_E_DATA
 * when source is neither (foreign weights: the caller says which model). */
HDO_API hdo_status hdo_stored_config(const char *source, hdo_config *c, hdo_error *e);

/* source: a run folder, a checkpoint, or a weights file. c names model and data. */
HDO_API hdo_status hdo_evaluate(const hdo_config *c, const char *source, const hdo_eval_options *o, hdo_evaluation *out,
                                hdo_error *e);
HDO_API void hdo_evaluation_clear(hdo_evaluation *v);

/* Writes the model of a run or checkpoint (node, or HDO_EVAL_MEAN) to a safetensors file under PyTorch's tensor names,
 * parameters and buffers. */
HDO_API hdo_status hdo_export_weights(const char *source, int64_t node, const char *path, hdo_error *e);
/* The same of what the run trains alone (model.train), named as adapters are: base_model.model.fc.lora_A.weight. */
HDO_API hdo_status hdo_export_trained(const char *source, int64_t node, const char *path, hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
