/* SPDX-License-Identifier: Apache-2.0
 *
 * libhdo: hybrid decentralised optimisation.
 *
 * One model is trained by a population of nodes. Some have gradients (first order), others can only ask for values
 * (zeroth order). There is no coordinator: nodes take local steps and average with random partners.
 *
 *     hdo_error e;
 *     hdo_config *c = hdo_config_new("demo", &e);
 *     hdo_config_set(c, "population.zo.count", "28", &e);
 *     hdo_run *run;
 *     if (hdo_run_new(&run, c, &e) != HDO_OK) { puts(e.msg); return 1; }
 *     hdo_stop why = HDO_RUNNING;
 *     while (why == HDO_RUNNING && hdo_run_advance(run, 100, &why, &e) == HDO_OK) continue;
 *     printf("%g\n", hdo_row_value(hdo_run_last_row(run), "val/loss_mean"));
 *     hdo_run_free(run);
 *     hdo_config_free(c);
 *
 * What holds for every function here, unless it says otherwise:
 *
 * Errors. A function that can fail returns an hdo_status, HDO_OK or negative, and takes an hdo_error as its last
 * argument, which may be NULL: after a failure it holds one sentence (what was wrong, where, what to do), after a
 * success it is untouched. NULL where an object belongs, calls in an order that has no meaning and calls from inside a
 * callback of the same run are HDO_E_MISUSE, never a crash. Functions that return something else say what they return
 * then. The library never prints and never exits.
 *
 * Ownership. _new makes, _free ends; NULL is fine for every _free. Texts returned as `char *` are the caller's:
 * hdo_free. `const` pointers are borrowed. What a caller passes in is copied.
 *
 * Threads. Different objects are independent. One object belongs to one thread at a time; a second call on a run that
 * is busy returns HDO_E_MISUSE. A run uses threads of its own (`threads`).
 *
 * Determinism. Same version, configuration and seed: same bits, on any number of threads or ranks, in one go, in pieces
 * or resumed. Times (columns time/...) are excepted.
 *
 * Clusters. With `engine: mpi` every rank makes the same calls in the same order; rank 0 writes files and calls back.
 *
 * Configurations, runs and rows are opaque: new options, columns and functions break no program. What is promised:
 * <hdo/version.h>. What is behind: <hdo/experimental/...>, without promises.
 */
#ifndef HDO_HDO_H
#define HDO_HDO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/dataset.h"
#include "hdo/estimator.h"
#include "hdo/mixing.h"
#include "hdo/objective.h"
#include "hdo/sink.h"
#include "hdo/status.h"
#include "hdo/version.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hdo_config hdo_config; /* settings, and tables of one's own */
typedef struct hdo_run hdo_run;       /* a population on its way */
typedef struct hdo_row hdo_row;       /* the figures of one evaluation */

/* ---- this library ---- */

HDO_API const char *hdo_version(void); /* "0.1.0" of the library in use; static */
HDO_API int hdo_abi(void);             /* HDO_ABI of the library in use */
/* `git describe` of the sources it was built from, "unknown" without; "-dirty" behind it: with changes of their own. */
HDO_API const char *hdo_commit(void);
/* What this build and this machine offer (compiler, processors, vector unit, zlib, MPI, ...), a line each: "name:
 * detail". Free it with hdo_free; NULL: out of memory. */
HDO_API char *hdo_features(void);
/* Frees a text this library returned. NULL is fine. */
HDO_API void hdo_free(void *text);

/* ---- names ---- */

/* Words a configuration may use, NULL-terminated, static: kind is "estimator", "model", "data", "mixing" or "preset".
 * NULL for another kind. */
HDO_API const char *const *hdo_names(const char *kind);

/* ---- configurations ---- */

/* A configuration that is complete and runnable: a small hybrid population on generated data; or a preset, by a name of
 * hdo_names("preset"). NULL: no such preset, or out of memory; e says which. */
HDO_API hdo_config *hdo_config_new(const char *preset, hdo_error *e);
/* The same settings; tables of one's own are shared. NULL: out of memory, or c is NULL. */
HDO_API hdo_config *hdo_config_copy(const hdo_config *c);
HDO_API void hdo_config_free(hdo_config *c);

/* Reads a YAML (or JSON) file, or text, over c. Errors name line and column, the bound or the words allowed, and the
 * nearest key. A `population` in it replaces the classes of c. On failure c is untouched. */
HDO_API hdo_status hdo_config_load(hdo_config *c, const char *path, hdo_error *e);
HDO_API hdo_status hdo_config_load_text(hdo_config *c, const char *text, hdo_error *e);

/* One value by its dotted key: hdo_config_set(c, "population.zo.rv", "64", &e). On failure c is untouched. */
HDO_API hdo_status hdo_config_set(hdo_config *c, const char *key, const char *value, hdo_error *e);
/* The value of one key as text into buf (cap bytes, always terminated). Fails for unknown keys and short buffers. */
HDO_API hdo_status hdo_config_get(const hdo_config *c, const char *key, char *buf, size_t cap, hdo_error *e);
/* "24fo+256zo": sets the counts of the named classes and drops the classes not named. */
HDO_API hdo_status hdo_config_population(hdo_config *c, const char *text, hdo_error *e);
/* Does it make sense as a whole: names exist, estimators and objective agree, nothing is set that has no effect?
 * hdo_run_new asks the same. */
HDO_API hdo_status hdo_config_check(const hdo_config *c, hdo_error *e);
/* All settings as YAML, which loads back to the same. NULL: out of memory, or c is NULL. */
HDO_API char *hdo_config_text(const hdo_config *c);
/* The table of keys: of a section ("population"), of one dotted key, or (NULL) all: default, what is allowed, meaning.
 * NULL: no such section or key, or out of memory. */
HDO_API char *hdo_config_help(const char *section);

/* ---- tables of one's own ---- */

/* Brings an objective: it takes the place of `model.name`, which becomes the table's name. The table is copied; the
 * user's pointer is kept, shared by copies of the configuration and by runs, and def->destroy, if there is one, is
 * called with it when the last of them is gone (not when this function fails). Bringing another one replaces it.
 * HDO_E_MISUSE: a table that makes no sense, in a sentence. Callbacks are called from inside hdo_run_new,
 * hdo_run_advance and hdo_run_stop only: their threads and purity are said in <hdo/objective.h>. */
HDO_API hdo_status hdo_config_use_objective(hdo_config *c, const hdo_objective_def *def, void *user, hdo_error *e);
/* Brings data: they take the place of `data.name`. All else as above. */
HDO_API hdo_status hdo_config_use_dataset(hdo_config *c, const hdo_dataset_def *def, void *user, hdo_error *e);

/* ---- runs ---- */

/* Why a run is where it is. Diverging is the outcome of an experiment, not an error. */
typedef enum hdo_stop {
    HDO_RUNNING,   /* more steps to go */
    HDO_COMPLETED, /* all steps done */
    HDO_TARGET,    /* stop.loss or stop.accuracy reached */
    HDO_TIMEOUT,   /* stop.time_s used up */
    HDO_DIVERGED,  /* a loss or a parameter stopped being finite, or the mean loss passed the limit of stop.diverged */
    HDO_STOPPED    /* the caller ended it, see hdo_run_stop */
} hdo_stop;
HDO_API const char *hdo_stop_name(hdo_stop why); /* "running", "completed", ...; "unknown" for other numbers */

/* Wires a run: reads the data, checks everything, reserves all memory; models are at the common start. The
 * configuration is copied and may be freed or changed. `lr: auto` is refused: it needs the laboratory (libhdo-lab). On
 * failure *run is NULL. */
HDO_API hdo_status hdo_run_new(hdo_run **run, const hdo_config *c, hdo_error *e);
/* Ends a run and closes its files; nothing is saved by it. Called from inside a callback of the run it takes effect
 * when the call that called back returns. */
HDO_API void hdo_run_free(hdo_run *run);

/* Up to `steps` more steps, evaluating when due (the start counts as due). *why (may be NULL) says how it stands
 * afterwards; once it is not HDO_RUNNING further calls do nothing. Allocates nothing but room for rows. A run that
 * failed stays failed: further calls return the same status and sentence. HDO_E_OBJECTIVE: a callback returned below 0.
 */
HDO_API hdo_status hdo_run_advance(hdo_run *run, int64_t steps, hdo_stop *why, hdo_error *e);
/* Ends a run early: evaluates once more if the last evaluation is not of the present step. */
HDO_API hdo_status hdo_run_stop(hdo_run *run, hdo_error *e);

/* A run folder: config.yaml, manifest.json, log.txt; rows go to metrics.jsonl from now on, checkpoints as the
 * configuration says. Before the first hdo_run_advance. A folder that holds a run is refused unless force, which
 * replaces it. */
HDO_API hdo_status hdo_run_open_dir(hdo_run *run, const char *dir, bool force, hdo_error *e);
/* A checkpoint of the present step into the folder; the oldest beyond checkpoint.keep are dropped. */
HDO_API hdo_status hdo_run_save(hdo_run *run, hdo_error *e);
/* The end: a last checkpoint, unless the run diverged, and summary.json. Without a folder nothing. */
HDO_API hdo_status hdo_run_write_summary(hdo_run *run, hdo_error *e);
/* Goes on with the run stored in dir, from its newest whole checkpoint, bit for bit: rows after it are dropped and will
 * be written again. c: a configuration that holds the tables of one's own the run was made with, of the same identity;
 * its settings are not looked at. NULL for runs without. Damaged checkpoints are passed over, which is said through
 * hdo_run_on_log; a run without any starts from the beginning. On failure *run is NULL. */
HDO_API hdo_status hdo_run_resume(hdo_run **run, const char *dir, const hdo_config *c, hdo_error *e);

/* What a run says, and its rows, when they come; NULL ends it. From the thread that called the run. What was said while
 * the run was made is handed over at once. */
typedef enum hdo_log_level { HDO_LOG_DEBUG, HDO_LOG_INFO, HDO_LOG_WARN } hdo_log_level;
HDO_API hdo_status hdo_run_on_log(hdo_run *run, void (*fn)(void *ctx, hdo_log_level level, const char *message),
                                  void *ctx, hdo_error *e);
HDO_API hdo_status hdo_run_on_row(hdo_run *run, void (*fn)(void *ctx, const hdo_row *row), void *ctx, hdo_error *e);

/* Its size: nodes of the population, numbers of a model, steps done (warm-up included), this process's rank (0 unless
 * on a cluster). 0 when run is NULL. */
HDO_API int64_t hdo_run_nodes(const hdo_run *run);
HDO_API size_t hdo_run_dim(const hdo_run *run);
HDO_API int64_t hdo_run_step(const hdo_run *run);
HDO_API int hdo_run_rank(const hdo_run *run);
/* A node's model (*d numbers; d may be NULL), borrowed: valid until the run is freed, its numbers change as it goes on.
 * NULL: no such node, or held by another rank. */
HDO_API const float *hdo_run_params(const hdo_run *run, int64_t node, size_t *d);
/* The mean of all models into mean (hdo_run_dim numbers). On a cluster every rank gets it. */
HDO_API hdo_status hdo_run_mean(hdo_run *run, float *mean, hdo_error *e);
/* SHA-256 over all nodes' models in node order, as text: two runs are equal iff these are. Empty text if run is NULL.
 */
HDO_API void hdo_run_fingerprint(const hdo_run *run, char hex[65]);
/* summary.json as text. NULL: out of memory, or run is NULL. */
HDO_API char *hdo_run_summary(const hdo_run *run);
/* The configuration it was wired from. Borrowed, lives as long as the run. NULL if run is NULL. */
HDO_API const hdo_config *hdo_run_config(const hdo_run *run);

/* ---- rows ---- */

/* The last evaluation; borrowed, its figures change with the next one. NULL before the first. */
HDO_API const hdo_row *hdo_run_last_row(const hdo_run *run);
/* All evaluations of this process: how many, and number i from 0, borrowed until the run goes on. NULL beyond the end.
 */
HDO_API size_t hdo_run_row_count(const hdo_run *run);
HDO_API const hdo_row *hdo_run_row(const hdo_run *run, size_t i);
/* Names of the columns, as in metrics.jsonl, NULL-terminated: "step", "val/loss_mean", "val/loss_zo" (of class zo), ...
 * Borrowed, lives as long as the run. docs/metrics.md says what they mean. NULL if run is NULL. */
HDO_API const char *const *hdo_run_columns(const hdo_run *run);
/* One figure. NaN: not known at this step, no such column, or row is NULL. */
HDO_API double hdo_row_value(const hdo_row *row, const char *column);

/* ---- estimators, mixings and sinks of one's own ---- */

/* Brings a table: it is copied, `user` goes to its callbacks. Estimators are then named in classes
 * (`population.zo.estimator`), a mixing takes the place of `mixing.kind`, which becomes its name, a sink gets the rows
 * of every run. A table of the same kind and name is replaced; there is one mixing. On failure c is untouched and
 * destroy is not called. HDO_E_MISUSE: NULL, or a table that cannot be used, and the sentence says why. */
HDO_API hdo_status hdo_config_use_estimator(hdo_config *c, const hdo_estimator_def *def, void *user, hdo_error *e);
HDO_API hdo_status hdo_config_use_mixing(hdo_config *c, const hdo_mixing_def *def, void *user, hdo_error *e);
HDO_API hdo_status hdo_config_use_sink(hdo_config *c, const hdo_sink_def *def, void *user, hdo_error *e);

/* ---- ask and tell: the caller is the oracle ---- */

/* What is to be found out. */
typedef enum hdo_question_kind {
    HDO_QUESTION_LOSS = 1, /* the loss at x */
    HDO_QUESTION_GRADIENT, /* the loss at x and its gradient */
    HDO_QUESTION_SLOPE     /* the derivative at x along `direction` */
} hdo_question_kind;

/* A point to evaluate. */
typedef struct hdo_question {
    uint64_t id;            /* for hdo_tell. Asked again after a resume, a question has the id it had */
    int64_t node, step;     /* whose estimate, in which of its steps */
    hdo_question_kind kind; /* what is asked */
    size_t dim;             /* numbers of x */
    const float *x; /* (dim), borrowed: until the question is told, or its node gives up the step (hdo_tell_failed) */
    const float *direction; /* (dim), likewise; NULL unless a slope is asked */
    uint64_t reserved[4];   /* zeros */
} hdo_question;

/* For runs whose objective has neither loss nor losses: up to max questions nobody has been given yet, at once, into
 * questions (room for max), their number into *count. First the run goes as far as the answers told so far carry it:
 * steps, averages, rows, checkpoints. *why (may be NULL) says how it stands; once it is not HDO_RUNNING there are no
 * more questions. A count of 0 while it is running: answers are due.
 *
 * Told in rounds (all questions are told before it is asked again) a run has the bits of the same run with callbacks,
 * in whatever order. To ask while answers are due means that somebody is free: nodes that wait for a late partner then
 * average with it as it is and go on. */
HDO_API hdo_status hdo_ask(hdo_run *run, int max, hdo_question *questions, int *count, hdo_stop *why, hdo_error *e);
/* An answer: the loss or the slope, and for a gradient its dim numbers (copied; otherwise NULL). In any order, whenever
 * it is there. Late ones, whose step is over, and those told before are counted and forgotten: HDO_OK. HDO_E_MISUSE:
 * nobody asked that, a gradient is missing, or it is not finite; the question stays open. */
HDO_API hdo_status hdo_tell(hdo_run *run, uint64_t id, double value, const float *gradient, hdo_error *e);
/* There will be no answer: the node leaves out the step, which is counted as `failed`. */
HDO_API hdo_status hdo_tell_failed(hdo_run *run, uint64_t id, hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
