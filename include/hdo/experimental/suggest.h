/* SPDX-License-Identifier: Apache-2.0
 *
 * "Did you mean": the nearest of some words.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_SUGGEST_H
#define HDO_EXPERIMENTAL_SUGGEST_H

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The nearest of the candidates (NULL-terminated) to word, edit distance at most 2 or a third of its length; or NULL.
 */
HDO_API const char *hdo__suggest(const char *word, const char *const *candidates);

#ifdef __cplusplus
}
#endif

#endif
