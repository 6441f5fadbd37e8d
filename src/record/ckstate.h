/* SPDX-License-Identifier: Apache-2.0
 *
 * The small half of a checkpoint: what is not a tensor, as JSON. A key that is missing or of another type is an error;
 * NaN is written as null and read back as NaN.
 */
#ifndef HDO_RECORD_CKSTATE_H
#define HDO_RECORD_CKSTATE_H

#include "hdo/status.h"
#include "base/linelog.h"
#include "record/record.h"

enum { HDO_MARK_METRICS, HDO_MARK_TRACE, HDO_MARKS };
extern const char *const hdo__mark_files[HDO_MARKS]; /* metrics.jsonl, trace.jsonl */

typedef struct hdo_state_head { /* what a state belongs to */
    char run_id[HDO_RUN_ID_LEN + 1];
    int64_t step, n, d;
    double noise[HDO_CLASSES_MAX]; /* of the classes: their inverses are the weights of weighted averages */
    char train_sha256[65], val_sha256[65], inputs_sha256[65]; /* empty: none */
    hdo_linemark mark[HDO_MARKS];                             /* the rows before it */
} hdo_state_head;

/* The head that r would write now, but for the marks. */
void hdo__state_head_of(const hdo_record *r, hdo_state_head *h);
/* Of the files besides the data that a run reads (weights, edges, schedules) and of the identities of tables; empty:
 * none. */
HDO_LAB void hdo__inputs_sha256(const hdo_config *c, char hex[65]);
char *hdo__state_text(const hdo_record *r, const hdo_state_head *h); /* free it; NULL: out of memory */
/* path is for messages. */
HDO_LAB hdo_status hdo__state_read_head(const char *json, const char *path, hdo_state_head *h, hdo_error *e);
hdo_status hdo__state_load(hdo_record *r, const char *json, const char *path, hdo_error *e);

#endif
