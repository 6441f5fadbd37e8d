/* SPDX-License-Identifier: Apache-2.0
 *
 * What became of a stored run, in plain sentences: which node went first when it diverged and why, or how it ended and
 * how far apart its nodes are.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_LAB_EXPLAIN_H
#define HDO_LAB_EXPLAIN_H

#include <stdbool.h>

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the run stored in dir. *text: sentences, one a line, or one JSON document with them and the figures they are
 * made of; free() it. check: looks at the stored configuration as `hdo check` does, which takes seconds and needs its
 * data, and says whether the rate of the class that went first is within the range found there. */
HDO_API hdo_status hdo_explain(const char *dir, bool json, bool check, char **text, hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
