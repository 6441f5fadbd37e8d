/* SPDX-License-Identifier: Apache-2.0 — hdo run: what its files share. */
#ifndef HDO_CMD_RUN_H
#define HDO_CMD_RUN_H

#include "cli.h"

typedef struct run_options {
    cli_common common;
    const char *source, *output, *resume;
    const char *engine;   /* as typed; NULL: not given */
    const char *hostfile; /* may be NULL */
    int64_t np;           /* 0: not given */
    double max_time_s;    /* 0: no limit of this session */
    cli_seeds seeds;      /* first < 0: from the configuration */
    bool dry_run, fetch;
    const char *command_line;
} run_options;

/* One run into dir. With final, nothing is printed and it receives the last row. */
int run_once(const run_options *o, const hdo_config *c, const char *dir, hdo_row *final);
int run_resumed(const run_options *o);

int run_seeds(const run_options *o, const hdo_config *c, const char *dir); /* a process each */
int run_seeds_in_turn(const run_options *o, hdo_config *c,
                      const char *dir);      /* engine mpi: the ranks are the processes */
int run_resumed_seeds(const run_options *o); /* all runs of a folder of seeds; --seeds adds to them */

/* The settings of the command line that a stored run is to go on with. They point into text, which is cut up. */
int run_resume_settings(const run_options *o, hdo_setting out[CLI_LIST_MAX]);

#endif
