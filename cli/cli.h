/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands share. Results go to stdout, everything said to people to stderr. The commands use only headers
 * of include/hdo: public ones, and a few experimental ones (JSON, quoting, programs without a shell).
 */
#ifndef HDO_CLI_H
#define HDO_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "hdo/experimental/json.h"
#include "hdo/experimental/quote.h"
#include "hdo/experimental/all.h"
#include "options.h"

enum {
    EXIT_USAGE = 2,
    EXIT_DATA = 3,
    EXIT_DIVERGED = 4,
    EXIT_WORKER_KILLED = 7, /* a signal ended the process of one of several runs */
    EXIT_SIGINT = 130,
    EXIT_SIGTERM = 143
};

#define CLI_AXES "step|interactions|cost|bytes_exchanged|sim_time|time/wall" /* of figures */

/* The commands, each a table in its own file. */
extern const cli_command cmd_run, cmd_demo, cmd_paper, cmd_plot, cmd_report, cmd_compare, cmd_verify, cmd_eval,
    cmd_sweep, cmd_theory, cmd_plan, cmd_predict, cmd_spectrum, cmd_check, cmd_explain, cmd_config, cmd_data, cmd_bench,
    cmd_weights, cmd_new, cmd_node, cmd_fleet, cmd_doctor, cmd_help, cmd_completion, cmd_version;

/* "hdo: error: ..." on stderr; returns the exit code that belongs to it. */
int cli_fail(const hdo_error *e);
int cli_usage_error(const char *command, const char *fmt, ...) HDO_PRINTF(2, 3); /* returns EXIT_USAGE */
int cli_no_command(const char *name);                                            /* the same */
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

/* "0-4" or "3". */
bool cli_seed_range(const char *text, int64_t *first, int64_t *last);

/* The configuration a command works on: a file, a preset or "-", then the environment, then what the common options say
 * (--population, --set in order, --threads, --allow-piecewise). */
hdo_status cli_config(hdo_config *c, const char *source, const cli_common *o, hdo_error *e);

/* Makes that configuration, and calls work on it. Returns the exit code. */
typedef int cli_work(void *ctx, hdo_config *c);
int cli_with_config(const char *source, const cli_common *o, cli_work *work, void *ctx);

/* --set key=value, in order. */
hdo_status cli_apply_sets(hdo_config *c, const cli_list *set, hdo_error *e);

/* Obtains the data set of the configuration if it is one with files of its own that are not here. */
hdo_status cli_fetch_data(const hdo_config *c, hdo_error *e);

/* text, made by malloc or NULL (out of memory), on stdout with `end` behind it; freed. Returns the exit code. */
int cli_print(char *text, const char *end);

/* The words of the command line as one line, for manifests; before cli_parse takes them apart. */
enum { CLI_LINE_MAX = 2048 };
void cli_join(int argc, char **argv, char buf[CLI_LINE_MAX]);

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
