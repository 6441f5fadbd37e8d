/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of lines, one write each, that knows at any time how long it is and the SHA-256 of all it holds. A checkpoint
 * stores both (a mark), so that a resumed run can tell whether the rows before it are still those that were written.
 */
#ifndef HDO_BASE_LINELOG_H
#define HDO_BASE_LINELOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "base/status.h"

enum { HDO_LINELOG_PATH_MAX = 4096 };

typedef struct hdo_linemark { /* the first bytes of a file, and their hash */
    int64_t bytes;
    char sha256[65];
} hdo_linemark;

typedef struct hdo_linelog {
    int fd; /* -1: not open */
    int64_t bytes, bytes_before;
    int64_t last_step;      /* of the last line; -1: not known */
    hdo_sha256 sha, before; /* of all, and of all but the last line */
    char path[HDO_LINELOG_PATH_MAX];
} hdo_linelog;

/* Opens for appending and reads what is there. A symbolic link is refused. */
hdo_status hdo__linelog_open(hdo_linelog *l, const char *path, hdo_error *e);
hdo_status hdo__linelog_put(hdo_linelog *l, int64_t step, const char *line, size_t len, hdo_error *e);
/* Brings all lines to the disk and marks them; without the last line if it is of step `except` (-1: with it). */
hdo_status hdo__linelog_mark(hdo_linelog *l, int64_t except, hdo_linemark *out, hdo_error *e);
void hdo__linelog_close(hdo_linelog *l);

/* Does the file still begin with the marked bytes? HDO_E_DATA and a sentence if not. Bytes 0: always. */
hdo_status hdo__linemark_check(const char *path, const hdo_linemark *mark, hdo_error *e);
/* Cuts the file off behind the mark. */
hdo_status hdo__linemark_cut(const char *path, const hdo_linemark *mark, hdo_error *e);

#endif
