/* SPDX-License-Identifier: Apache-2.0
 *
 * What is kept of a run: rows of figures and where they go, the trace, the folder with its lock, checkpoints, the
 * manifest, the summary, who went first in a divergence. It looks at the run's parts; only a restore writes to them.
 *
 *   figures.c     a row of figures, its verdict    folder.c   the folder, manifest, log
 *   checkpoint.c, ckfile.c, ckstate.c  saved       summary.c  summary, fingerprint
 *   resume.c      which checkpoint to go on from   stored.c   the configuration in a folder
 *   fate.c        divergence                       lock.c     one writer at a time
 */
#ifndef HDO_RECORD_RECORD_H
#define HDO_RECORD_RECORD_H

#include "base/json.h"
#include "base/linelog.h"
#include "base/log.h"
#include "metrics/metrics.h"
#include "population/population.h"
#include "record/fate.h"
#include "sink/sink.h"

enum { HDO_SINKS_MAX = 8, HDO_RUN_ID_LEN = 32 };

typedef struct hdo_record {
    /* borrowed: what is looked at */
    const hdo_config *config;
    const hdo_hooks *hooks;
    hdo_log *log;
    hdo_transport *transport;
    const hdo_problem *problem;
    hdo_population *population;
    hdo_progress *progress;
    hdo_metrics *metrics;
    void (*put_engine)(void *engine, hdo_json *j); /* the engine's part of the summary; may be NULL */
    void *engine;

    hdo_sink *sinks[HDO_SINKS_MAX];
    int n_sinks;
    char class_name[HDO_CLASSES_MAX][HDO_NAME_MAX]; /* for hdo_row.class_name */
    hdo_row row;                                    /* last evaluation */
    bool has_row;
    hdo_linelog trace; /* trace.jsonl, fd -1 unless it is written */
    hdo_trail *trail;  /* (n): the last steps of every node, for hdo_fate */
    hdo_fate fate;     /* the first node lost, if any */

    char dir[HDO_PATH_MAX];          /* run folder, or empty */
    char run_id[HDO_RUN_ID_LEN + 1]; /* random, of the run's folder: a checkpoint of another run is never taken */
    char inputs_sha256[65];          /* of weights, edges and schedules; empty: none */
    int lock_fd;                     /* rank 0: holds the folder (lock.h), or -1 */
    int64_t writer;                  /* process id of rank 0, for temporary names */
    int64_t saved_step;              /* of the last checkpoint; -1: none */
    double saved_s;
    char fingerprint[65]; /* of the final models, made by all ranks together when the run stops */
    double wire[5];       /* over ranks: bytes and messages sent, seconds waited, most of one rank, bytes in common */
} hdo_record;

void hdo__record_init(hdo_record *r);                        /* no files, no rows; the borrowed parts stay */
hdo_status hdo__record_reserve(hdo_record *r, hdo_error *e); /* once the population is known */
void hdo__record_close(hdo_record *r);

/* ---- figures.c ---- */
/* All ranks: evaluates the population, completes the row with counts and times and puts it to sinks and hooks. */
hdo_status hdo__record_evaluate(hdo_record *r, hdo_error *e);
hdo_status hdo__record_put_row(hdo_record *r, hdo_error *e);   /* r->row, to sinks and hooks */
HDO_LAB hdo_stop hdo__record_judge(const hdo_record *r);       /* what r->row means for the run */
double hdo__record_loss_limit(const hdo_record *r);            /* a mean loss above it counts as diverged */
bool hdo__record_due(const hdo_record *r);                     /* is an evaluation due at this step? */
hdo_status hdo__record_trace(hdo_record *r, hdo_error *e);     /* a line of trace.jsonl, if it is written */
hdo_status hdo__record_keep_rows(hdo_record *r, hdo_error *e); /* in memory */
const hdo_row *hdo__record_rows(const hdo_record *r, size_t *count);

/* ---- checkpoint.c ---- */
hdo_status hdo__record_save(hdo_record *r, hdo_error *e); /* all ranks */
/* Loads the checkpoint of that step into a freshly wired run. */
hdo_status hdo__record_restore(hdo_record *r, const char *dir, int64_t step, hdo_error *e);
hdo_status hdo__checkpoints_remove(const char *dir, hdo_error *e);
void hdo__checkpoints_sweep(const char *dir);                  /* unfinished files of killed runs */
void hdo__checkpoint_set_aside(const char *dir, int64_t step); /* renames it to ....damaged */

/* ---- resume.c: goes on from the newest whole checkpoint of dir, or from the beginning. All ranks. ---- */
hdo_status hdo__record_resume(hdo_record *r, const char *dir, const char *note, bool rewrite, hdo_error *e);

/* ---- folder.c ---- */
hdo_status hdo__record_attach(hdo_record *r, const char *dir, bool force, const char *command_line, hdo_error *e);
hdo_status hdo__record_share_dir(hdo_record *r, hdo_status st, hdo_error *e); /* rank 0 tells where the folder is */
/* Of rank 0 only: */
hdo_status hdo__record_lock_dir(hdo_record *r, const char *dir, hdo_error *e); /* also sets r->dir, opens log.txt */
hdo_status hdo__record_dir_stands(const hdo_record *r, hdo_error *e);          /* fails if it was removed or replaced */
hdo_status hdo__record_begin_dir(hdo_record *r, const char *command_line, hdo_error *e); /* files of a new run */
hdo_status hdo__record_open_rows(hdo_record *r, hdo_error *e);              /* metrics.jsonl, trace.jsonl, sinks */
hdo_status hdo__record_remove_old(const char *dir, bool all, hdo_error *e); /* all: checkpoints and log.txt too */
hdo_status hdo__record_write_config(const hdo_record *r, hdo_error *e);

/* ---- summary.c ---- */
enum { HDO_SCHEMA_VERSION = 1 };
char *hdo__record_summary(const hdo_record *r); /* free it; NULL: out of memory */
hdo_status hdo__record_write_summary(hdo_record *r, hdo_error *e);
/* What only all ranks together can know about the end, so that afterwards any of them can be asked. */
hdo_status hdo__record_conclude(hdo_record *r, hdo_error *e);
void hdo__record_fingerprint(const hdo_record *r, char hex[65]);
void hdo__put_mixing(hdo_json *j, const hdo_record *r); /* also in the manifest */

/* ---- stored.c: the configuration stored in a run folder ---- */
/* config.yaml if it is as it was written, otherwise that of the newest whole checkpoint, with a sentence in note (may
 * be NULL). HDO_E_DATA if neither can be trusted. */
HDO_LAB hdo_status hdo__stored_config_load(const char *dir, hdo_config *c, char *note, size_t note_cap, hdo_error *e);
HDO_LAB bool hdo__stored_config_sealed(const char *dir); /* has config.yaml a checksum at all, right or wrong? */
char *hdo__stored_config_text(const hdo_config *c);      /* config.yaml: the dump and its checksum; free it */
/* Do a and b differ in nothing but settings that do not touch the past of a run? */
bool hdo__config_same_past(const hdo_config *a, const hdo_config *b);

/* The member "revisions" of manifest and summary: of what the configuration uses (revisions.c). */
void hdo__put_revisions(hdo_json *j, const hdo_config *c);

#endif
