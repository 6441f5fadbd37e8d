/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes of what an estimator, a model or a data set *is*: its law, its numbers. Speed and rounding are not among
 * them. Every run stores the revisions of what it uses, so that results made before a change can be told from those
 * after it.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_REVISION_H
#define HDO_EXPERIMENTAL_REVISION_H

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hdo_revision {
    const char *kind; /* "estimator", "model" or "data" */
    const char *name;
    int number;       /* 2, 3, ...; what has never changed has revision 1 */
    const char *when; /* "key=value": concerns runs with this setting only; "outcome=...": with this outcome; NULL: all.
                         For an estimator the key is one of its class. */
    const char *what; /* the change, in a few words */
} hdo_revision;

HDO_API const hdo_revision *hdo_revision_at(int i); /* NULL beyond the last */
HDO_API int hdo_revision_of(const char *kind, const char *name);

#ifdef __cplusplus
}
#endif

#endif
