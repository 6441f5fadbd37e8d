/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands share. Results go to stdout, everything said to people to stderr. The commands use only the public
 * headers of the library, and the writers of base/ (JSON, quoting, programs without a shell), which are linked in.
 */
#ifndef HDO_CLI_H
#define HDO_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "hdo/experimental/json.h"
#include "hdo/experimental/quote.h"
#include "hdo/hdo.h"

enum {
    EXIT_USAGE = 2,
    EXIT_DATA = 3,
    EXIT_DIVERGED = 4,
    EXIT_WORKER_KILLED = 7, /* a signal ended the process of one of several runs */
    EXIT_SIGINT = 130,
    EXIT_SIGTERM = 143
};

typedef struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
    const char *summary;
} cli_command;
extern const cli_command cli_commands[]; /* ends with name == NULL */

int cmd_run(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_paper(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_sweep(int argc, char **argv);
int cmd_plot(int argc, char **argv);
int cmd_theory(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_weights(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_version(int argc, char **argv);

/* "hdo: error: ..." on stderr; returns the exit code that belongs to it. */
int cli_fail(const hdo_error *e);
int cli_usage_error(const char *command, const char *fmt, ...) HDO_PRINTF(2, 3); /* returns EXIT_USAGE */
void cli_note(const char *fmt, ...) HDO_PRINTF(1, 2);                            /* a line on stderr, unless quiet */

void cli_warn(const char *text); /* "hdo: warning: ..." on stderr, also when quiet */
/* The document on stdout, followed by a line end; clears it. Returns the exit code. */
int cli_json(hdo_json *j);

/* Flushes stdout; a full disk or a closed pipe becomes an exit code. Every command ends with it. */
int cli_finish(int code);

typedef struct cli_style { /* escape sequences, empty without colour */
    const char *bold, *dim, *red, *green, *off;
} cli_style;
void cli_colour(const char *when); /* auto, always, never */
cli_style cli_style_for(FILE *f);
void cli_set_quiet(bool quiet);
bool cli_quiet(void);

/* Parses a whole number in [lo, hi]; false if it is not one. */
bool cli_int(const char *text, int64_t lo, int64_t hi, int64_t *out);

/* The configuration a command works on: a file, a preset or "-", then the environment, then --set in order. */
hdo_status cli_config(hdo_config *c, const char *source, const char *population, int n_set, char **set, hdo_error *e);

/* --allow-piecewise: population.NAME.allow_piecewise=true for every class whose estimator is complex-step. */
hdo_status cli_allow_piecewise(hdo_config *c, hdo_error *e);

/* --set key=value, in order. */
hdo_status cli_apply_sets(hdo_config *c, int n_set, char **set, hdo_error *e);

/* Signals: the first SIGINT or SIGTERM asks for a stop at the end of the step, the second ends the process at once;
 * SIGUSR1 asks for a checkpoint. */
void cli_catch_signals(void);
int cli_signal(void);                   /* 0, SIGINT or SIGTERM */
void cli_end_with_parent(pid_t parent); /* of a worker: its parent's death counts as a SIGTERM */
bool cli_take_checkpoint(void);         /* true once after each SIGUSR1 */

/* What to ask a run for between steps (hdo_hooks.asked): signals, and the stop file of `hdo run --np`. */
unsigned cli_asked(void *ctx);
bool cli_hurry(void *ctx); /* hdo_hooks.hurry: is a stop asked for? Takes nothing away from cli_asked */

/* engine mpi. A silent process is a rank that is not the first: it says only what no other can. */
void cli_set_silent(void);
typedef struct cli_launch {
    int64_t np;
    const char *hostfile; /* may be NULL */
    const char *dir;      /* of the results, for messages; may be NULL */
    double deadline_s;    /* mpi.deadline_s of the run */
} cli_launch;
int cli_launch_mpi(const cli_launch *l, int argc,
                   char **argv); /* runs `hdo argv...` on np ranks; returns the exit code */

/* Progress of a run on stderr: one line that rewrites itself on a terminal, a plain line now and then otherwise. */
typedef struct cli_progress {
    const char *label;
    int64_t total;
    double start_s, last_s;
    double curve[64]; /* losses so far, thinned, for the sparkline */
    int n_curve, keep_every, seen;
    bool tty, live;
} cli_progress;
void cli_progress_start(cli_progress *p, const char *label, int64_t total);
void cli_progress_row(cli_progress *p, const hdo_row *row);
void cli_progress_step(cli_progress *p, int64_t step, const hdo_row *row);
void cli_progress_end(cli_progress *p);

/* A line of pieces that rewrites itself on a terminal. What does not fit goes, the highest rank first; a piece of rank
 * 0 stays and is cut. At most 8 pieces. Returns the columns left. */
typedef struct cli_piece {
    const char *text;
    int rank;
} cli_piece;
int cli_line(bool tty, const cli_piece *piece, int n);
int cli_columns(void); /* $COLUMNS, or of the terminal, or 80 */

double cli_now_s(void);
void cli_clock_text(double s, char buf[32]); /* 1:02:03 or 2:03 */

#endif
