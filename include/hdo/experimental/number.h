/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers as JSON has them.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_NUMBER_H
#define HDO_EXPERIMENTAL_NUMBER_H

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The shortest text that reads back to the same double, or null when it is not finite. The one writer of real numbers
 * into JSON, in the library and in the commands. Returns buf. */
#define HDO_NUMBER_MAX 32
HDO_API const char *hdo_json_number(double v, char buf[HDO_NUMBER_MAX]);

#ifdef __cplusplus
}
#endif

#endif
