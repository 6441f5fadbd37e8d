/* SPDX-License-Identifier: Apache-2.0 — where a run says what it does: the caller's hook, and log.txt once it is open.
 */
#ifndef HDO_BASE_LOG_H
#define HDO_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"
#include "hdo/experimental/run.h"

typedef struct hdo_log {
    void (*put)(void *ctx, hdo_log_level level, const char *message); /* may be NULL */
    void *ctx;
    int fd;     /* log.txt, or -1 */
    bool quiet; /* ranks other than 0 say nothing */
} hdo_log;

HDO_LAB void hdo__log(const hdo_log *l, hdo_log_level level, const char *fmt, ...) HDO_PRINTF(3, 4);

#endif
