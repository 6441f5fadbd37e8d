/* SPDX-License-Identifier: Apache-2.0
 *
 * A mixing of one's own: who averages with whom in a step. Fill the table, hand it to hdo_config_use_mixing
 * (<hdo/hdo.h>): it then takes the place of `mixing.kind`.
 *
 * What holds for all callbacks (results, threads, purity) is said at the top of <hdo/objective.h>. Of a mixing purity
 * is the very idea: there is no coordinator, every rank asks for itself and all must hear the same, so that partners
 * follow from (call->seed, call->step) and nothing else.
 */
#ifndef HDO_MIXING_H
#define HDO_MIXING_H

#include "hdo/objective.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Members are optional unless "required" stands with them; 0 and NULL: not there. The table and its texts are copied.
 */
typedef struct hdo_mixing_def {
    size_t struct_size;   /* required: sizeof(hdo_mixing_def) */
    const char *name;     /* required: up to 31 of a-z, 0-9, '-', '_'; none of the library's own names */
    const char *identity; /* as of an objective: its version. Guards a resume. NULL: the name */
    unsigned flags;       /* none yet */
    int all_step;         /* not 0: all nodes take a local step in every step; 0: only those that meet somebody */

    /* Partner of every node, 0 .. n-1, in this step: partner[i] == i stays alone. Must be mutual (partner[partner[i]]
     * == i) and in range, which is checked: a run whose partners are not ends with a sentence. Required. */
    int (*pairs)(void *user, hdo_call *call, int n, int32_t *partner);

    void (*destroy)(void *user); /* as of an objective */
} hdo_mixing_def;

#ifdef __cplusplus
}
#endif

#endif
