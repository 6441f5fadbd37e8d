/* SPDX-License-Identifier: Apache-2.0 — looking after the mpirun that `hdo run --np` has started: see watch.c. */
#ifndef HDO_CLI_WATCH_H
#define HDO_CLI_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct cli_watch {
    pid_t pid;             /* mpirun */
    int errors;            /* its standard error; taken over */
    double deadline_s;     /* mpi.deadline_s */
    const char *stop_file; /* made for the ranks to see when a stop is asked for */
} cli_watch;

typedef struct cli_end {
    int status; /* of mpirun, as waitpid gives it; -1: it did not end */
    bool said;  /* an error has been told on standard error */
    bool ended; /* by us: the job had failed or stood still */
    int signal; /* SIGINT or SIGTERM if somebody asked us to stop */
} cli_end;

/* Before the fork: signals come here, orphans of mpirun become children of this process. */
void cli_watch_prepare(void);
/* In the child, before it becomes mpirun: signals as they were; it does not outlive the launcher. */
void cli_watch_child(pid_t launcher);
/* Passes on what mpirun says, and what the terminal asks for; returns when the job is over and nothing is left. */
cli_end cli_watch_job(const cli_watch *w);

#endif
