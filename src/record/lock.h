/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of a run folder: one process writes it at a time. It is a lock on the file run.lock, so it vanishes with the
 * process; the file says who holds it. It also tells whether the folder is still the one the run began in.
 */
#ifndef HDO_RECORD_LOCK_H
#define HDO_RECORD_LOCK_H

#include <stdbool.h>

#include "base/status.h"

/* HDO_E_FAILED and a sentence that names the holder if another process has it. *sure = false: this file system has no
 * locks. */
hdo_status hdo__lock_take(const char *dir, int *fd, bool *sure, hdo_error *e);
bool hdo__lock_stands(const char *dir, int fd); /* false: the folder was removed or replaced */
void hdo__lock_drop(const char *dir, int fd);

#endif
