/* SPDX-License-Identifier: Apache-2.0
 *
 * Many runs, a process each, as many at once as there are CPUs: runs that differ in seed, population or settings need
 * no synchronisation. Used by `run --seeds`, `paper` and `sweep`.
 */
#ifndef HDO_CLI_POOL_H
#define HDO_CLI_POOL_H

#include "cli.h"

typedef struct cli_job {
    /* what to do */
    char dir[HDO_PATH_MAX];
    char label[2 * HDO_NAME_MAX];
    double cost;   /* relative to other jobs, for the time left; 0 counts as 1 */
    bool resume;   /* go on with the run in dir; without a checkpoint, from its beginning */
    bool force;    /* replace what is in dir */
    int64_t until; /* pause after this step, with a checkpoint and without a summary; 0: run to the end */

    /* how it went */
    bool done;    /* reached its end or `until`, or diverged; row is then valid */
    int code;     /* exit code of its process */
    hdo_stop why; /* HDO_RUNNING: paused */
    hdo_row row;  /* last evaluation */
    double seconds;
} cli_job;

typedef struct cli_pool {
    const char *label;        /* in front of the progress line */
    int workers;              /* processes at once; 0: one for each CPU */
    const char *command_line; /* for the manifests */
    double max_time_s;        /* of each run, in this session; 0: as its configuration says */
    int n_set;                /* settings to change in runs that are taken up (hdo_resume) */
    const hdo_setting *set;
    void *ctx;
    /* The configuration of job k, called in its process. */
    hdo_status (*config)(void *ctx, int k, hdo_config *c, hdo_error *e);
    /* Called in the parent when job k has ended; may be NULL. */
    void (*ended)(void *ctx, int k, const cli_job *job);
} cli_pool;

/* Runs all jobs. Returns 0, EXIT_DIVERGED if the worst that happened is a divergence, 128 + signal after a signal
 * (running jobs have saved themselves), or the code of the job that failed (no new ones are started then):
 * EXIT_WORKER_KILLED if a signal ended its process. When this process dies, the others save and stop. */
int cli_pool_run(const cli_pool *p, cli_job *jobs, int n);

#endif
