/* SPDX-License-Identifier: Apache-2.0 — what the conformance suites of <hdo/test.h> share: a list of verdicts. */
#ifndef HDO_RUN_CONFORM_H
#define HDO_RUN_CONFORM_H

#include "base/status.h"
#include "hdo/test.h"

typedef struct hdo_verdicts {
    char text[8192];
    size_t used;
    int failed;
    char first[512]; /* the first fault */
} hdo_verdicts;

/* One line: what was looked at, and if it does not hold, how. */
void hdo__verdict(hdo_verdicts *v, bool holds, const char *what, const char *fmt, ...) HDO_PRINTF(4, 5);
hdo_status hdo__verdicts_end(const hdo_verdicts *v, const char *name, char **report, hdo_error *e);

#endif
