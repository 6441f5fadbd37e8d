/* SPDX-License-Identifier: Apache-2.0 — internal side of <hdo/status.h>. */
#ifndef HDO_BASE_STATUS_H
#define HDO_BASE_STATUS_H

#include "hdo/status.h"

/* Writes the sentence into e (if e is not NULL) and returns code, so that `return hdo__fail(e, ...)` reads well. */
hdo_status hdo__fail(hdo_error *e, hdo_status code, const char *fmt, ...) HDO_PRINTF(3, 4);

/* Puts "prefix: " in front of the sentence already in e. Keeps the code. */
void hdo__error_prefix(hdo_error *e, const char *fmt, ...) HDO_PRINTF(2, 3);

#endif
