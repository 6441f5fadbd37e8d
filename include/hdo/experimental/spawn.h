/* SPDX-License-Identifier: Apache-2.0
 *
 * Another program, started without a shell.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_SPAWN_H
#define HDO_EXPERIMENTAL_SPAWN_H

#include <stdbool.h>
#include <stddef.h>

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hdo_spawn {
    const char *const *argv; /* NULL-terminated; argv[0] is looked for in $PATH unless it has a slash */
    const char *dir;         /* folder to run it in; NULL: this one */
    bool quiet;              /* what it says on stderr is dropped */
    char *out;               /* if not NULL: receives its standard output, cut at cap - 1, NUL-terminated */
    size_t cap;
} hdo_spawn;

/* Runs it and waits. Returns its exit code, 127 if it was not found, 128 + signal if one ended it, -1 if it could not
 * be started. */
HDO_API int hdo__spawn(const hdo_spawn *s);

#ifdef __cplusplus
}
#endif

#endif
