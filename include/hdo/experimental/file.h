/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are whole or absent: write to a temporary name beside the target, fsync, rename. A reader never sees half
 * a file, a killed writer leaves only a name ending in ".tmp.<pid>".
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_FILE_H
#define HDO_EXPERIMENTAL_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "hdo/experimental/fail.h"

#ifdef __cplusplus
extern "C" {
#endif

HDO_API hdo_status hdo__file_write(const char *path, const void *data, size_t len, hdo_error *e);
HDO_API hdo_status hdo__file_read(const char *path, size_t max, char **data, size_t *len,
                                  hdo_error *e);                    /* free(*data) */
HDO_API hdo_status hdo__dir_create(const char *path, hdo_error *e); /* with parents; fine if it exists */
HDO_API int hdo__file_create(const char *path); /* a new file, never somebody's link; -1: errno says why */
/* Makes the entry of path in its folder durable; failure is not an error (some file systems cannot). */
HDO_API void hdo__dir_sync_of(const char *path);
HDO_API bool hdo__random_hex(char *hex, size_t digits); /* of the system's generator; hex has digits + 1 bytes */
HDO_API bool hdo__path_exists(const char *path);

/* dir + "/" + name into buf; false when it does not fit. */
HDO_API bool hdo__path_join(char *buf, size_t cap, const char *dir, const char *name);

#ifdef __cplusplus
}
#endif

#endif
