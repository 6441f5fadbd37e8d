/* SPDX-License-Identifier: Apache-2.0 — hdo paper: what its files share. */
#ifndef HDO_CMD_PAPER_H
#define HDO_CMD_PAPER_H

#include "cli.h"
#include "hdo/lab/paper.h"

typedef struct paper_options {
    cli_common common;
    const char *output, *only, *x, *html, *markdown, *figures, *reading;
    hdo_paper_case k;
    cli_seeds seeds; /* first < 0: those of the experiment */
    int64_t jobs;
    bool dry_run, fetch;
    char root[HDO_PATH_MAX];
    const char *command_line;
} paper_options;

bool paper_from_weights(const hdo_paper_experiment *x); /* does it start from weights of others? */

/* All that is missing of an experiment, then its figures and claims. */
int paper_experiment(paper_options *o, const hdo_paper_experiment *x, bool own_seeds);

#endif
