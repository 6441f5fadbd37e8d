/* SPDX-License-Identifier: Apache-2.0
 *
 * How a function fails: with a code and a sentence (<hdo/status.h>).
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_FAIL_H
#define HDO_EXPERIMENTAL_FAIL_H

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the sentence into e (if e is not NULL) and returns code, so that `return hdo__fail(e, ...)` reads well. */
HDO_API hdo_status hdo__fail(hdo_error *e, hdo_status code, const char *fmt, ...) HDO_PRINTF(3, 4);

/* Puts "prefix: " in front of the sentence already in e. Keeps the code. */
HDO_API void hdo__error_prefix(hdo_error *e, const char *fmt, ...) HDO_PRINTF(2, 3);

/* HDO_E_MISUSE: "FUNCTION needs WHAT; something is NULL". */
HDO_API hdo_status hdo__misuse(hdo_error *e, const char *function, const char *what);

#ifdef __cplusplus
}
#endif

#endif
