/* SPDX-License-Identifier: Apache-2.0
 *
 * A stored run, made again: the same configuration must give the same models and the same rows.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_VERIFY_H
#define HDO_LAB_VERIFY_H

#include "hdo/experimental/revision.h"
#include "hdo/experimental/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The changes since the run in dir that concern it: their number, the first cap of them in out. A run that stores no
 * revisions is older than the first change. */
HDO_API int hdo_run_changes(const char *dir, const hdo_revision **out, int cap);

typedef enum hdo_same {
    HDO_SAME,
    HDO_DIFFERENT,
    HDO_NOT_VERIFIED /* it could not be made again: why is in `difference` */
} hdo_same;
HDO_API const char *hdo_same_text(hdo_same v); /* "same", "different", "not verified" */

enum { HDO_CHANGES_MAX = 8 };

typedef struct hdo_verified {
    const char *dir; /* borrowed */
    hdo_same verdict;
    hdo_status status;            /* why it could not be verified; HDO_OK otherwise */
    int rows;                     /* compared */
    char difference[HDO_MSG_MAX]; /* the first one; empty: none */
    char stored_sha[65], sha[65];
    char version[32], commit[80];                /* that made it; empty: not stored */
    bool other_build;                            /* than this one */
    const hdo_revision *change[HDO_CHANGES_MAX]; /* since then, that concern it */
    int n_changes;
    char machine[512]; /* vector units, kernels or data that differ from those it was made with; empty: none */
} hdo_verified;

/* dir is a run folder, or a folder of runs: every one of them, in order of their names. threads: 0 takes the stored
 * number. hooks (may be NULL) see the run that is made again. HDO_E_DATA: dir holds no run; HDO_E_FAILED: interrupted.
 */
HDO_API hdo_status hdo_verify(const char *dir, int64_t threads, const hdo_hooks *hooks,
                              void (*each)(void *ctx, const hdo_verified *v), void *ctx, hdo_error *e);

HDO_API char *hdo_verified_json(const hdo_verified *v); /* one object; free() it. NULL: out of memory */

#ifdef __cplusplus
}
#endif

#endif
