/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run is made of. Only the files of this folder see it; a part never receives an hdo_run.
 *
 *   wire.c     configuration -> objects       run.c       the loop          life.c   create, destroy, views
 *   check.c    cross-field sense, names       step.c      a step            rundir.c folder, manifest, summary
 *   checkpoint.c, ckfile.c, ckstate.c  saved  own_time.c  the same, where ranks do not wait for each other
 *   resume.c, stored.c, lock.c        folder   undo.c      giving up a long step
 */
#ifndef HDO_RUN_RUN_INTERNAL_H
#define HDO_RUN_RUN_INTERNAL_H

#include "base/json.h"
#include "base/linelog.h"
#include "hdo/run.h"
#include "metrics/metrics.h"
#include "population/population.h"
#include "run/async.h"
#include "run/fate.h"
#include "sink/sink.h"

enum { HDO_SINKS_MAX = 8, HDO_RUN_ID_LEN = 32 };

typedef struct hdo_undo { /* the state before a long step, see undo.c; X is NULL where steps are short */
    float *X, *momentum, *y;
    int64_t *batches;
    hdo_counts counts;
    uint8_t *away;
    double lr[HDO_CLASSES_MAX], rate[HDO_CLASSES_MAX], noise[HDO_CLASSES_MAX];
} hdo_undo;

struct hdo_run {
    hdo_config config;
    hdo_hooks hooks;
    hdo_log log;
    hdo_transport *transport;
    hdo_team team;
    hdo_problem problem;
    hdo_population population;
    hdo_progress progress;
    hdo_metrics metrics;
    hdo_undo undo;
    bool in_exchange; /* models may leave as soon as their step is done */

    hdo_sink *sinks[HDO_SINKS_MAX];
    int n_sinks;
    hdo_trail *trail; /* (n): who went where, for hdo_fate */
    hdo_fate fate;    /* the first node lost, if any */
    hdo_row row;      /* last evaluation */
    bool has_row;
    char dir[HDO_PATH_MAX];          /* run folder, or empty */
    char run_id[HDO_RUN_ID_LEN + 1]; /* random, of the run's folder: a checkpoint of another run is never taken */
    char inputs_sha256[65];          /* of weights, edges and schedules; empty: none */
    int lock_fd;                     /* rank 0: holds the folder (lock.h), or -1 */
    char fingerprint[65];            /* of the final models, made by all ranks together when the run stops */
    double wire[5];     /* over ranks: bytes and messages sent, seconds waited, most of one rank, bytes in common */
    int64_t writer;     /* process id of rank 0, for temporary names */
    int64_t saved_step; /* of the last checkpoint; -1: none */
    double saved_s;
    hdo_linelog trace; /* trace.jsonl, fd -1 unless it is written */

    hdo_async *async;        /* NULL unless mpi.async, and before the first step */
    hdo_async_stats drifted; /* its statistics, at the end */
    float *start;            /* (ld): the common start, kept for its check of the mean; NULL otherwise */
    float *seen;             /* (count, ld): models as they are evaluated while others change them; NULL unless async */
};

hdo_status hdo__run_wire(hdo_run *r, hdo_error *e);

/* A step of all nodes (step.c), and its parts, which a step in the rank's own time (own_time.c) is made of too. */
hdo_status hdo__run_step(hdo_run *r, hdo_error *e);
unsigned hdo__run_opinion(const hdo_run *r); /* HDO_SAY_*: the clock, and what the caller wants */
hdo_status hdo__run_own_step(hdo_run *r, hdo_error *e);
void hdo__run_evaluate_own(hdo_run *r);
hdo_status hdo__run_put_row(hdo_run *r, hdo_error *e); /* r->row, to sinks and hooks */
hdo_stop hdo__run_judge_row(const hdo_run *r);         /* what r->row means for the run */
double hdo__run_loss_limit(const hdo_run *r);          /* a mean loss above it counts as diverged */

bool hdo__run_due(const hdo_run *r); /* is an evaluation due at this step? */

/* Loads the checkpoint of that step into a freshly wired run (checkpoint.c). */
hdo_status hdo__run_restore(hdo_run *r, const char *dir, int64_t step, hdo_error *e);
hdo_status hdo__checkpoints_remove(const char *dir, hdo_error *e);
void hdo__checkpoints_sweep(const char *dir);                  /* unfinished files of killed runs */
void hdo__checkpoint_set_aside(const char *dir, int64_t step); /* renames it to ....damaged */

/* The folder (rundir.c). All of rank 0 only. */
hdo_status hdo__run_lock_dir(hdo_run *r, const char *dir, hdo_error *e); /* also sets r->dir, sweeps, opens log.txt */
hdo_status hdo__run_dir_stands(const hdo_run *r, hdo_error *e);          /* fails if it was removed or replaced */
hdo_status hdo__run_begin_dir(hdo_run *r, const char *command_line, hdo_error *e); /* files of a new run */
hdo_status hdo__run_open_rows(hdo_run *r, hdo_error *e); /* metrics.jsonl, trace.jsonl and the sinks, for appending */
hdo_status hdo__run_remove_old(const char *dir, bool all, hdo_error *e); /* all: checkpoints and log.txt too */
hdo_status hdo__run_write_config(const hdo_run *r, hdo_error *e);

/* The configuration stored in a run folder: config.yaml if it is as it was written, otherwise that of the newest whole
 * checkpoint, with a sentence in note (may be NULL). HDO_E_DATA if neither can be trusted (stored.c). */
hdo_status hdo__stored_config_load(const char *dir, hdo_config *c, char *note, size_t note_cap, hdo_error *e);
bool hdo__stored_config_sealed(const char *dir);    /* has config.yaml a checksum at all, right or wrong? */
char *hdo__stored_config_text(const hdo_config *c); /* config.yaml: the dump and its checksum; free it */
/* Do a and b differ in nothing but settings that do not touch the past of a run? */
bool hdo__config_same_past(const hdo_config *a, const hdo_config *b);

/* The member "revisions" of manifest and summary: of what the configuration uses (revisions.c). */
void hdo__put_revisions(hdo_json *j, const hdo_config *c);

/* Which rank holds which nodes: blocks of equal cost, as mpi.roles allows (roles.c). */
hdo_status hdo__run_spread(const hdo_config *c, hdo_transport *t, hdo_error *e);
/* Refuses a run whose part on this rank does not fit into the memory it may use. */
hdo_status hdo__run_check_memory(const hdo_run *r, size_t state_bytes, size_t scratch_bytes, hdo_error *e);
hdo_status hdo__run_check_mpi(hdo_run *r, hdo_error *e);                /* mpi.async and mpi.slow make sense here */
hdo_status hdo__run_settle(hdo_run *r, hdo_status st, hdo_error *e);    /* all ranks fail if one does */
hdo_status hdo__run_share_dir(hdo_run *r, hdo_status st, hdo_error *e); /* rank 0 tells where the folder is */

/* Giving up a long step (undo.c). */
bool hdo__run_steps_are_long(const hdo_run *r);
hdo_status hdo__undo_init(hdo_run *r);
void hdo__undo_clear(hdo_undo *u);
void hdo__undo_keep(hdo_run *r); /* before a step */
void hdo__undo_step(hdo_run *r); /* back to it; the run is stopped */

#endif
