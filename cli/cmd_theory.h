/* SPDX-License-Identifier: Apache-2.0 — what the commands about theory share. */
#ifndef HDO_CLI_CMD_THEORY_H
#define HDO_CLI_CMD_THEORY_H

#include "cli.h"
#include "hdo/lab/study.h"

typedef struct cli_study_progress { /* ctx of the hook below */
    cli_progress bar;
    const char *what;
} cli_study_progress;
bool cli_study_tick(void *ctx, const char *what, int64_t done, int64_t total);
void cli_study_end(cli_study_progress *p);
int cli_study_fail(const hdo_error *e); /* exit code: that of the signal if one ended the work */

void cli_print_constants(const hdo_config *c, const hdo_constants *k);
void cli_print_assessment(const hdo_config *c, const hdo_assessment *a, bool measured);
void cli_print_comparison(const hdo_comparison *c, const char *figures);

#endif
