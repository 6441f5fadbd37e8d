/* SPDX-License-Identifier: Apache-2.0
 *
 * What is behind hdo_run and hdo_row. Experimental: may change in any version.
 *
 * A run: a population, wired from a configuration, advanced step by step. The library never prints and never exits;
 * what it wants to say goes through the hooks.
 */
#ifndef HDO_EXPERIMENTAL_RUN_H
#define HDO_EXPERIMENTAL_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/experimental/config.h"
#include "hdo/hdo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Validation figures of a group of nodes. */
typedef struct hdo_group {
    double loss_mean, loss_std, loss_min, loss_max; /* over nodes; std with 1/n */
    double acc_mean;                                /* NaN when the objective has no accuracy */
} hdo_group;

/* One evaluation. The table in src/metrics/rowtable.c gives every field its name in files. */
struct hdo_row {
    int64_t step;         /* steps done, warm-up included */
    int64_t interactions; /* pairs that averaged so far */
    double parallel_time; /* steps, or interactions / n for pairwise mixing */
    double train_loss;    /* mean minibatch loss of the last step; NaN before the first */
    hdo_group all;
    int n_classes;
    hdo_group cls[HDO_CLASSES_MAX];
    double lr[HDO_CLASSES_MAX];
    double node0_loss, node0_acc;   /* the paper's fixed node */
    double mu_loss, mu_acc;         /* the mean model */
    double gamma;                   /* (1/n) sum |X_i - mu|^2 */
    double mg;                      /* (1/n) sum |G_i|^2, each node with its newest estimate; NaN before the first */
    double y_loss;                  /* of the weighted average y_T; NaN unless eval.weighted is set */
    int64_t present;                /* nodes that are not away */
    int64_t forward, backward, jvp; /* oracle calls so far */
    int64_t cost;                   /* weighted passes a device would have made so far: docs/metrics.md */
    int64_t failed;                 /* steps that nodes left out: a callback of one's own failed */
    int64_t bytes;                  /* exchanged so far: both directions of every pair */
    double sim_s;                   /* simulated time of the slowest node, from the classes' time model */
    double wall_s, step_s, eval_s;  /* time so far */
    const char (*class_name)[HDO_NAME_MAX]; /* (n_classes) of the run, borrowed; NULL in rows of other origin */
};

/* What a caller may ask for between two steps. On a cluster: to stop, on any rank; to save, on rank 0. */
enum { HDO_ASK_STOP = 2, HDO_ASK_SAVE = 8 };

typedef struct hdo_hooks {
    void *ctx;
    void (*log)(void *ctx, hdo_log_level level, const char *message); /* may be NULL */
    void (*row)(void *ctx, const hdo_row *row);                       /* after every evaluation; may be NULL */
    unsigned (*asked)(void *ctx); /* after every step: HDO_ASK_... of what the caller wants; may be NULL */
    /* Inside long steps, from any thread: true gives up the step and stops the run before it. May be NULL. */
    bool (*hurry)(void *ctx);
    /* Sets rates and weights of `auto` classes, on every rank alike: hdo_auto_tune of <hdo/lab/predict.h>. Called at
     * the start, after the warm-up and in steps 4, 8, 16, ... NULL: configurations with `auto` are refused. */
    hdo_status (*tune)(hdo_run *r, hdo_error *e);
} hdo_hooks;

/* What a run will be, without running it (for --dry-run). */
typedef struct hdo_node_bytes { /* what a node of a class needs by itself, apart from data and frozen numbers */
    size_t parameters;          /* its row: d numbers and buffers */
    size_t momentum;            /* the same again, or 0 */
    size_t estimate;            /* the same again */
    size_t activations;         /* of the passes its estimator makes */
    size_t directions;          /* what the estimator keeps beside them */
} hdo_node_bytes;

typedef struct hdo_run_info {
    int64_t n, d, n_buf;
    int64_t d_total;     /* numbers of the whole model: d, and what model.train leaves out */
    size_t frozen_bytes; /* of the one copy of a model that is trained in part; 0: it is trained whole */
    hdo_node_bytes node[HDO_CLASSES_MAX];
    int64_t total_steps; /* warm-up included */
    int threads;
    size_t state_bytes;     /* models and momenta */
    size_t scratch_bytes;   /* arenas of all threads */
    int64_t bytes_per_step; /* exchanged, at most: a matching on a graph may leave nodes alone */
    int64_t train_samples, val_samples;
} hdo_run_info;

/* hdo_run_new (dir NULL) or hdo_run_resume with hooks.tune, for configurations with `auto`. */
HDO_API hdo_status hdo_run_open_tuned(hdo_run **run, const hdo_config *c, const char *dir,
                                      hdo_status (*tune)(hdo_run *r, hdo_error *e), hdo_error *e);
HDO_API hdo_status hdo_run_create(hdo_run **out, const hdo_config *c, const hdo_hooks *hooks, hdo_error *e);
HDO_API void hdo_run_destroy(hdo_run *r); /* NULL is fine, here and in every destroy */
HDO_API void hdo_run_describe(const hdo_run *r, hdo_run_info *info);

/* Keeps the rows of all evaluations from now on, for curves without files. Call before the first hdo_run_advance. */
HDO_API hdo_status hdo_run_keep_rows(hdo_run *r, hdo_error *e);
/* The rows kept so far; borrowed, valid until the next hdo_run_advance. NULL without hdo_run_keep_rows. */
HDO_API const hdo_row *hdo_run_rows(const hdo_run *r, size_t *count);
/* ---- run folders: config.yaml, manifest.json, metrics.jsonl, summary.json, log.txt ---- */

/* ---- engine mpi: every rank makes the same calls in the same order; each waits with a deadline (docs/cluster.md) ----
 */

/* Was this process started by an MPI launcher? Its place among the ranks, without starting MPI. */
HDO_API bool hdo_mpi_launched(int *rank, int *ranks);
/* Under HDO_MPI_BEAT=1 the first rank writes this line to standard error a few times a second: a sign of life for
 * whoever started mpirun and reads its standard error. */
#define HDO_MPI_ALIVE "hdo-alive"
/* The MPI this process would use, "openmpi" or "mpich"; NULL: the plug-in is not installed. */
HDO_API const char *hdo_mpi_flavour(void);

/* Creates the folder and attaches it: rows go to metrics.jsonl from now on. An existing run is refused unless force.
 * command_line goes to the manifest, may be NULL. Call before the first hdo_run_advance. */
HDO_API hdo_status hdo_run_attach_dir(hdo_run *r, const char *dir, bool force, const char *command_line, hdo_error *e);

typedef struct hdo_setting {
    const char *key, *value;
} hdo_setting;

typedef struct hdo_resume { /* how to go on; all zero: as the run was */
    int64_t threads;
    int n_set;
    struct hdo_own *own;    /* tables of one's own the run needs (config/own.h); NULL: none */
    const hdo_setting *set; /* settings to change: those the past does not depend on, for example more steps */
} hdo_resume;

/* Continues the run stored in dir from its newest whole checkpoint, bit for bit: rows after it are dropped from
 * metrics.jsonl and will be written again. Damaged checkpoints are passed over, and a run without any starts from the
 * beginning; both are said through hooks->log. Refused: data that changed, rows that are missing. how may be NULL. */
HDO_API hdo_status hdo_run_resume_how(hdo_run **out, const char *dir, const hdo_resume *how, const hdo_hooks *hooks,
                                      hdo_error *e);

/* Ends the run after that many seconds from now on, as stop.time_s does, but only in this process: not stored. */
HDO_API void hdo_run_limit_time(hdo_run *r, double seconds);

#ifdef __cplusplus
}
#endif

#endif
