/* SPDX-License-Identifier: Apache-2.0
 *
 * A sink of one's own: where rows of figures go, beside metrics.jsonl. Fill the table, hand it to hdo_config_use_sink
 * (<hdo/hdo.h>). For a callback in the same program hdo_run_on_row is simpler; a sink also fits into a plug-in, hears
 * of the run's folder and of checkpoints, and can end a run.
 *
 * What holds for all callbacks (results, threads) is said at the top of <hdo/objective.h>; any result but 0 ends the
 * run with HDO_E_IO and the sentence in call->message. On a cluster rank 0 alone has sinks.
 */
#ifndef HDO_SINK_H
#define HDO_SINK_H

#include "hdo/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hdo_row; /* figures of one evaluation: hdo_row_value of <hdo/hdo.h> reads them */

/* Members are optional unless "required" stands with them; 0 and NULL: not there. The table and its texts are copied.
 */
typedef struct hdo_sink_def {
    size_t struct_size; /* required: sizeof(hdo_sink_def) */
    const char *name;   /* required: up to 31 of a-z, 0-9, '-', '_' */
    unsigned flags;     /* none yet */

    /* Before the first row. dir: the run's folder, NULL without one. columns: names as in metrics.jsonl, NULL at the
     * end, valid until close. from_step: rows beyond this step were dropped by a resume and will come again; 0: a new
     * run. */
    int (*open)(void *user, hdo_call *call, const char *dir, const char *const *columns, int64_t from_step);
    /* After every evaluation; the row is valid during the call. Required. */
    int (*row)(void *user, hdo_call *call, const struct hdo_row *row);
    /* Before a checkpoint of that step is written: rows so far must be safe on return. */
    int (*flush)(void *user, hdo_call *call, int64_t step);
    /* After the last row, also when the run failed. */
    int (*close)(void *user, hdo_call *call);

    void (*destroy)(void *user); /* as of an objective */
} hdo_sink_def;

#ifdef __cplusplus
}
#endif

#endif
