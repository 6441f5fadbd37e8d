/* SPDX-License-Identifier: Apache-2.0 — one line to the caller's hook and to log.txt. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void hdo__log(const hdo_log *l, hdo_log_level level, const char *fmt, ...) {
    char msg[HDO_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(msg, sizeof msg - 1, fmt, ap);
    va_end(ap);
    if (n < 0 || l->quiet) return;
    if (l->put != NULL) l->put(l->ctx, level, msg);
    if (l->fd >= 0) { /* the log is a courtesy: a full disk shows in metrics.jsonl, which is checked */
        size_t len = strlen(msg);
        msg[len] = '\n';
        ssize_t ignored = write(l->fd, msg, len + 1);
        (void)ignored;
    }
}
