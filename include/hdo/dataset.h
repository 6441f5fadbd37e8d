/* SPDX-License-Identifier: Apache-2.0
 *
 * Data of one's own: numbered samples, each n_in numbers (or tokens) and a label, training and validation. Fill the
 * table, hand it to hdo_config_use_dataset (<hdo/hdo.h>): every model that comes with the library trains on it, split
 * over the nodes as `data.split` says, and an objective of one's own with HDO_WANT_DATA gets its batches from it.
 *
 * What holds for all callbacks (results, threads, purity) is said at the top of <hdo/objective.h>. A gather that
 * returns above 0 makes the node leave out its step; in an evaluation it ends the run, as below 0 does everywhere.
 */
#ifndef HDO_DATASET_H
#define HDO_DATASET_H

#include "hdo/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Members are optional unless "required" stands with them; 0 and NULL: not there. The table and its texts are copied.
 */
typedef struct hdo_dataset_def {
    size_t struct_size;   /* required: sizeof(hdo_dataset_def) */
    const char *name;     /* required: up to 31 of a-z, 0-9, '-', '_' */
    const char *identity; /* what is in it: a version, a checksum; up to 511 bytes. Guards a resume. NULL: the name */
    unsigned flags;       /* HDO_ANY_THREAD */
    int64_t train_count;  /* required: samples to train on, 1 or more */
    int64_t val_count;    /* required: samples to evaluate on, 1 or more */
    int n_in;             /* required: numbers (tokens) of a sample */
    int shape[3];         /* channels, height, width of images, with product n_in; zeros: flat */
    int classes;          /* required: labels are 0 .. classes-1 */
    int vocab;            /* above 0: samples are tokens 0 .. vocab-1 */

    /* Samples index[0 .. count) of the training set (train 1) or the validation set (train 0): into inputs (count,
     * n_in) row by row, or for tokens into tokens (count, n_in), the other being NULL; and into labels (count).
     * Required. */
    int (*gather)(void *user, hdo_call *call, int train, int count, const int64_t *index, float *inputs,
                  int32_t *tokens, int32_t *labels);

    /* The label alone, for splits by label (dirichlet, shards). NULL: gather is asked, which may be slow. */
    int (*label)(void *user, hdo_call *call, int train, int64_t index, int32_t *label);

    void (*destroy)(void *user); /* as of an objective */
} hdo_dataset_def;

#ifdef __cplusplus
}
#endif

#endif
