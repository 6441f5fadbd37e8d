/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run is made of. Only the files of this folder see it; a part never receives an hdo_run.
 *
 *   wire.c     configuration -> objects       run.c       the loop          life.c   create, destroy, views
 *   step.c     a step                         rundir.c    folder, manifest, summary
 *   checkpoint.c, ckfile.c, ckstate.c  saved  own_time.c  the same, where ranks do not wait for each other
 *   resume.c, stored.c, lock.c        folder   undo.c      giving up a long step
 */
#ifndef HDO_RUN_RUN_INTERNAL_H
#define HDO_RUN_RUN_INTERNAL_H

#include "base/json.h"
#include "base/linelog.h"
#include "base/team.h"
#include "estimator/estimator.h"
#include "hdo/run.h"
#include "metrics/metrics.h"
#include "run/async.h"
#include "run/fate.h"
#include "sink/sink.h"
#include "topo/churn.h"
#include "topo/mixer.h"
#include "transport/transport.h"
#include "update/update.h"

enum { HDO_SINKS_MAX = 8, HDO_RUN_ID_LEN = 32 };

typedef struct hdo_class { /* a class of nodes, wired */
    int first, count;      /* its nodes, numbered over the whole population */
    int batch;
    hdo_estimator estimator;
    hdo_schedule schedule;
    hdo_update update;
    bool balanced; /* its rate follows from the measured noise */
    double noise;  /* E|G - E G|^2 of one node, as measured; 1 before */
} hdo_class;

#define HDO_NO_ESTIMATE (-1.0) /* hdo_node_result.g2 of a node that has not stepped yet; a square is not negative */

typedef struct hdo_node_result { /* what a local step leaves behind for step.c to add up, in node order */
    double loss, g2;             /* of its newest estimate: g2 = |G|^2 */
    int64_t forward, backward, jvp, cost;
    hdo_status status;
} hdo_node_result;

enum { HDO_UNDO_COUNTS = 6 };
typedef struct hdo_undo { /* the state before a long step, see undo.c; X is NULL where steps are short */
    float *X, *momentum, *y;
    int64_t *batches, count[HDO_UNDO_COUNTS];
    uint8_t *away;
    double lr[HDO_CLASSES_MAX], rate[HDO_CLASSES_MAX], noise[HDO_CLASSES_MAX];
} hdo_undo;

struct hdo_run {
    hdo_config config;
    hdo_hooks hooks;
    hdo_transport *transport;
    hdo_dataset *train, *val;
    hdo_shards *shards;
    hdo_objective *objective;
    int n_classes;
    hdo_class classes[HDO_CLASSES_MAX];
    hdo_mixer mixer;
    hdo_churn churn;
    hdo_spectrum spectrum;
    hdo_metrics metrics;
    hdo_team team;
    hdo_sink *sinks[HDO_SINKS_MAX];
    int n_sinks;

    /* state: everything a checkpoint holds */
    hdo_rows rows;
    float *momentum;   /* rows like X, or NULL when no class has momentum */
    int64_t *batches;  /* (count): batches node i has drawn so far */
    double *clock_s;   /* (n): simulated time of every node; NULL without a time model */
    float *y;          /* (ld): the weighted average y_t; NULL unless kept */
    float *fresh;      /* (ld): the common start, for nodes that return with a fresh model; NULL unless they do */
    double start_loss; /* mean validation loss before the first step; NaN: not evaluated */
    int64_t step;
    int64_t interactions, bytes, forward, backward, jvp, cost;
    hdo_undo undo;

    /* of the last step */
    hdo_node_result *result; /* (n): of local nodes, of all once the ranks have agreed */
    hdo_trail *trail;        /* (n): who went where, for hdo_fate */
    hdo_fate fate;           /* the first node lost, if any */
    int32_t *active;         /* (n): nodes that step, in order */
    int32_t *own;            /* (count): those of them that are local */
    int n_active, n_own;
    bool in_exchange;     /* rows may leave as soon as their step is done */
    unsigned said;        /* HDO_SAY_...: what the ranks agreed on */
    int32_t *returned;    /* (n): scratch */
    float **mine, **peer; /* (n / 2): rows of the pairs in flight */
    double train_loss;
    double mg;        /* (1/n) sum |G_i|^2 over all nodes, each with its newest estimate */
    double mg_active; /* over those that stepped: in pairwise time an unbiased estimate of M^G at this very step */
    double lr[HDO_CLASSES_MAX];

    hdo_row row; /* last evaluation */
    bool has_row;
    hdo_stop stop;
    double start_s, step_s, eval_s;
    int64_t timed_steps; /* the first few, on one thread, decide whether threads pay: see worth_threads */
    double timed_s, quickest_s;
    char dir[HDO_PATH_MAX];          /* run folder, or empty */
    char run_id[HDO_RUN_ID_LEN + 1]; /* random, of the run's folder: a checkpoint of another run is never taken */
    char inputs_sha256[65];          /* of weights, edges and schedules; empty: none */
    int lock_fd;                     /* rank 0: holds the folder (lock.h), or -1 */
    double session_s;                /* when this process took the run up */
    double limit_s;                  /* seconds this process may spend on it; 0: as stop.time_s says */
    char fingerprint[65];            /* of the final models, made by all ranks together when the run stops */
    double wire[5];     /* over ranks: bytes and messages sent, seconds waited, most of one rank, bytes in common */
    int64_t writer;     /* process id of rank 0, for temporary names */
    int64_t saved_step; /* of the last checkpoint; -1: none */
    double saved_s;
    hdo_async *async;        /* NULL unless mpi.async, and before the first step */
    hdo_async_stats drifted; /* its statistics, at the end */
    float *start;            /* (ld): the common start, kept for its check of the mean; NULL otherwise */
    float *seen;             /* (count, ld): rows as they are evaluated while others change them; NULL unless async */
    double slow;             /* this rank takes that many times as long for its local steps; 1: as it is */
    int log_fd;              /* log.txt, or -1 */
    hdo_linelog trace;       /* trace.jsonl, fd -1 unless it is written */
};

hdo_status hdo__run_wire(hdo_run *r, hdo_error *e);
void hdo__run_log(hdo_run *r, hdo_log_level level, const char *fmt, ...) HDO_PRINTF(3, 4);
HDO_LAB int hdo__class_of(const hdo_run *r, int node);

/* A step of all nodes (step.c), and its parts, which a step in the rank's own time (own_time.c) is made of too. */
hdo_status hdo__run_step(hdo_run *r, hdo_error *e);
void hdo__run_choose(hdo_run *r, hdo_plan *plan);            /* who steps, and whom of them this rank has */
void hdo__run_local_steps(hdo_run *r, const hdo_plan *plan); /* estimate and move, for those this rank has */
bool hdo__run_collect(hdo_run *r, hdo_status *st);           /* adds up what they left; false: not finite */
unsigned hdo__run_opinion(const hdo_run *r);                 /* HDO_SAY_*: the clock, and what the caller wants */
hdo_status hdo__run_own_step(hdo_run *r, hdo_error *e);
void hdo__run_evaluate_own(hdo_run *r);
hdo_status hdo__run_put_row(hdo_run *r, hdo_error *e); /* r->row, to sinks and hooks */
HDO_LAB hdo_stop hdo__run_judge_row(const hdo_run *r); /* what r->row means for the run */
double hdo__run_loss_limit(const hdo_run *r);          /* a mean loss above it counts as diverged */

HDO_LAB hdo_batch hdo__run_batch(const hdo_run *r, const hdo_class *c, int node, int64_t number, hdo_arena *a);

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
HDO_LAB hdo_status hdo__stored_config_load(const char *dir, hdo_config *c, char *note, size_t note_cap, hdo_error *e);
HDO_LAB bool hdo__stored_config_sealed(const char *dir); /* has config.yaml a checksum at all, right or wrong? */
char *hdo__stored_config_text(const hdo_config *c);      /* config.yaml: the dump and its checksum; free it */
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

/* Adds this rank's rows to the SHA-256 v, in node order (a step of a relay: life.c). ctx is the run. */
void hdo__run_hash_rows(void *ctx, void *v, size_t first, size_t count);

/* Giving up a long step (undo.c). */
bool hdo__run_steps_are_long(const hdo_run *r);
hdo_status hdo__undo_init(hdo_run *r);
void hdo__undo_clear(hdo_undo *u);
void hdo__undo_keep(hdo_run *r); /* before a step */
void hdo__undo_step(hdo_run *r); /* back to it; the run is stopped */

/* Simulated time of the nodes after a step (simclock.c). */
void hdo__run_advance_clocks(hdo_run *r, const hdo_plan *plan);

/* Measures the noise of the classes at the present models and sets the rates of balanced classes (noise.c). */
HDO_LAB hdo_status hdo__run_measure_noise(hdo_run *r, hdo_error *e);
bool hdo__run_uses_noise(const hdo_run *r);          /* at some step */
HDO_LAB bool hdo__run_wants_noise(const hdo_run *r); /* before this one */

#endif
