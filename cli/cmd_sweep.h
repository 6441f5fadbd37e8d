/* SPDX-License-Identifier: Apache-2.0 — hdo sweep: what its files share. */
#ifndef HDO_CMD_SWEEP_H
#define HDO_CMD_SWEEP_H

#include "cli.h"
#include "hdo/lab/sweep.h"

typedef struct sweep_options {
    cli_common common;
    const char *source, *metric, *output, *command_line;
    cli_list grid;
    hdo_sweep_axis axis[HDO_SWEEP_AXES];
    int n_axes;
    int64_t random, jobs;
    cli_seeds seeds; /* first < 0: the seed of the configuration */
    bool halving, paper, per_class;
} sweep_options;

/* One search; best receives the best settings. */
int sweep_search(const sweep_options *o, const hdo_config *base, const hdo_sweep_axis *axis, int n_axes,
                 const char *dir, hdo_config *best);
/* A single node of every class, with the axes that concern it. */
int sweep_classes(const sweep_options *o, const hdo_config *base, hdo_config *best);

#endif
