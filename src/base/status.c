/* SPDX-License-Identifier: Apache-2.0 — status codes: one list, expanded for texts and for exit codes. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *hdo_status_text(hdo_status code) {
    switch (code) {
#define HDO_X(name, value, exit_code, text)                                                                            \
    case HDO_##name: return text;
        HDO_STATUS_LIST(HDO_X)
#undef HDO_X
    }
    return "unknown status";
}

int hdo_status_exit_code(hdo_status code) {
    switch (code) {
#define HDO_X(name, value, exit_code, text)                                                                            \
    case HDO_##name: return exit_code;
        HDO_STATUS_LIST(HDO_X)
#undef HDO_X
    }
    return 1;
}

hdo_status hdo__fail(hdo_error *e, hdo_status code, const char *fmt, ...) {
    if (e != NULL) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        e->code = code;
    }
    return code;
}

hdo_status hdo__misuse(hdo_error *e, const char *function, const char *what) {
    return hdo__fail(e, HDO_E_MISUSE, "%s needs %s, but got NULL", function, what);
}

void hdo__error_prefix(hdo_error *e, const char *fmt, ...) {
    if (e == NULL) return;
    char old[HDO_MSG_MAX];
    memcpy(old, e->msg, sizeof old);
    old[sizeof old - 1] = '\0';
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof e->msg) return;
    size_t at = (size_t)n, room = sizeof e->msg - at - 1, len = strlen(old);
    if (room < 2) return;
    memcpy(e->msg + at, ": ", 2);
    if (len > room - 2) len = room - 2; /* cut, as everywhere */
    memcpy(e->msg + at + 2, old, len);
    e->msg[at + 2 + len] = '\0';
}
