/* SPDX-License-Identifier: Apache-2.0 — driving one run. */
#include "drive.h"

#include <signal.h>

hdo_status cli_drive(hdo_run *r, int64_t until, void (*step)(void *ctx, const hdo_run *r), void *ctx, hdo_stop *why,
                     hdo_error *e) {
    hdo_status st = HDO_OK;
    *why = HDO_RUNNING;
    while (*why == HDO_RUNNING && st == HDO_OK && (until == 0 || hdo_run_step(r) < until)) {
        st = hdo_run_advance(r, 1, why, e);
        if (step != NULL) step(ctx, r);
    }
    return st;
}

int cli_stop_code(hdo_stop why) {
    if (why == HDO_DIVERGED) return EXIT_DIVERGED;
    if (why == HDO_STOPPED) return cli_signal() == SIGTERM ? EXIT_SIGTERM : EXIT_SIGINT;
    return 0;
}
