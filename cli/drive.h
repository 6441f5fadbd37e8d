/* SPDX-License-Identifier: Apache-2.0 — driving one run: step by step to its end, and the exit code of how it ended. */
#ifndef HDO_CLI_DRIVE_H
#define HDO_CLI_DRIVE_H

#include "cli.h"

/* Advances r to its end, or to step `until` (0: none). Signals end it through its hook (cli_asked). */
hdo_status cli_drive(hdo_run *r, int64_t until, void (*step)(void *ctx, const hdo_run *r), void *ctx, hdo_stop *why,
                     hdo_error *e);
int cli_stop_code(hdo_stop why);

#endif
