/* SPDX-License-Identifier: Apache-2.0
 *
 * What is behind hdo_config. Experimental: may change in any version.
 *
 * A configuration is a plain value: names as short char arrays, nested by component. Copy it with `=`,
 * compare it, dump it, store it beside the results. Every field has one row in the option table (src/config/table.c):
 * key, type, bounds, unit, help. File reading, `--set`, `--help`, range checks, the schema and the dump all read that
 * table; defaults come from hdo_config_default().
 */
#ifndef HDO_EXPERIMENTAL_CONFIG_H
#define HDO_EXPERIMENTAL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/hdo.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HDO_NAME_MAX 32
#define HDO_PATH_MAX 512
#define HDO_SPEC_MAX 512
#define HDO_CLASSES_MAX 16
#define HDO_VALIDATION_DEFAULT 0.2

/* One of a few words, some of which take a number: `copies`, `dirichlet(0.3)`; or a bare number where that is allowed
 * (then id is HDO_NUMBER and arg the value). */
typedef struct hdo_choice {
    int id;
    double arg;
} hdo_choice;

enum { HDO_NUMBER = 0 };
enum { HDO_READING_TEXT = 1, HDO_READING_AUTHORS };
enum { HDO_INIT_PYTORCH = 1, HDO_INIT_HE, HDO_INIT_NORMAL, HDO_INIT_ZERO };
enum { HDO_BUFFERS_AVERAGE = 1, HDO_BUFFERS_PRIVATE };
enum { HDO_MASK_SHARED = 1, HDO_MASK_FRESH };
enum { HDO_SPLIT_COPIES = 1, HDO_SPLIT_SINGLE, HDO_SPLIT_SHARED, HDO_SPLIT_DIRICHLET, HDO_SPLIT_SHARDS };
enum { HDO_SCALING_NORMALISED = 1, HDO_SCALING_UNIT, HDO_SCALING_TWICE };
enum { HDO_PRETEXT_NONE = 1, HDO_PRETEXT_ROTATION };
enum { HDO_LAW_UNIFORM = 1, HDO_LAW_AUTHORS };
enum { HDO_NU_ETA_SQRT_D = 1 };
enum { HDO_LR_BALANCED = 1, HDO_LR_THEOREM, HDO_LR_AUTO };
enum { HDO_MOMENTUM_EMA = 1, HDO_MOMENTUM_HEAVY_BALL };
enum { HDO_SCHEDULE_CONSTANT = 1, HDO_SCHEDULE_COSINE, HDO_SCHEDULE_FILE, HDO_SCHEDULE_COSINE_AUTHORS };
enum { HDO_DIRECTIONS_WHOLE = 1, HDO_DIRECTIONS_PER_TENSOR, HDO_DIRECTIONS_LOW_RANK };
enum { HDO_STREAMS_INDEPENDENT = 1, HDO_STREAMS_SHARED };
enum { HDO_DIST_GAUSSIAN = 1, HDO_DIST_SPHERE, HDO_DIST_RADEMACHER };
enum { HDO_KERNELS_AUTO = 1, HDO_KERNELS_REF };
enum { HDO_ENGINE_SIM = 1, HDO_ENGINE_MPI, HDO_ENGINE_FLEET };
enum {
    HDO_GRAPH_COMPLETE = 1,
    HDO_GRAPH_RING,
    HDO_GRAPH_TORUS,
    HDO_GRAPH_HYPERCUBE,
    HDO_GRAPH_STAR,
    HDO_GRAPH_PATH,
    HDO_GRAPH_REGULAR,
    HDO_GRAPH_ERDOS_RENYI,
    HDO_GRAPH_SMALL_WORLD,
    HDO_GRAPH_EXPONENTIAL,
    HDO_GRAPH_FILE
};
enum { HDO_GRAPH_MODE_MATCHING = 1, HDO_GRAPH_MODE_COLOUR, HDO_GRAPH_MODE_EDGE };
enum {
    HDO_PLACEMENT_RANDOM = 1,
    HDO_PLACEMENT_SPREAD,
    HDO_PLACEMENT_CLUSTERED,
    HDO_PLACEMENT_HUB,
    HDO_PLACEMENT_ORDER
};
enum { HDO_AVERAGE_EQUAL = 1, HDO_AVERAGE_NOISE, HDO_AVERAGE_AUTO };
enum { HDO_PARTNERS_ANY = 1, HDO_PARTNERS_OWN, HDO_PARTNERS_AUTO };
enum { HDO_DIVERGED_RELATIVE = 1 };
enum { HDO_RETURN_STALE = 1, HDO_RETURN_FRESH };

typedef struct hdo_model_config {
    char name[HDO_NAME_MAX];     /* objective: logistic, mlp, ..., quadratic; or that of a table of one's own */
    char plugin[HDO_PATH_MAX];   /* a shared object with the objective; empty: none */
    char options[HDO_SPEC_MAX];  /* for it, a JSON object; empty: none */
    double trial_s;              /* seconds a plug-in has for its trial; 0: none */
    char identity[HDO_SPEC_MAX]; /* of a table of one's own: what it must be; empty: not known yet */
    hdo_choice reading;          /* text | authors: spec of the network models */
    hdo_choice init;             /* pytorch | he | normal(std) | zero */
    hdo_choice buffers;          /* batch-norm statistics on exchange: average | private */
    hdo_choice dropout_mask;     /* shared | fresh */
    double dropout;              /* transformer, custom networks */
    int64_t input_size;          /* resnet18: 32, 64, 224 */
    int64_t resize;              /* resnet18: resized to this first, input_size is then the centre; 0: no */
    char layers[HDO_SPEC_MAX];   /* model custom: "conv 8 3, relu, pool 2, linear 10" */
    char train[HDO_SPEC_MAX];    /* what is trained: all | head | patterns over tensor names, ... (docs/models.md) */
    char weights[HDO_PATH_MAX];  /* safetensors to start from; empty: random initialisation */
    double l2;                   /* logistic-l2: coefficient of |x|^2 / 2 */
    int64_t dim;                 /* quadratic: d */
    double smoothness;           /* quadratic: L, largest eigenvalue */
    double convexity;            /* quadratic: ell, smallest eigenvalue */
    double noise;                /* quadratic: E|xi|^2 of the additive gradient noise, square root of it */
    double spread;               /* quadratic: |c_i - mean c|, heterogeneity of the nodes' minimisers */
    double start;                /* quadratic: distance of the start from the minimiser */
} hdo_model_config;

typedef struct hdo_data_config {
    char name[HDO_NAME_MAX];     /* synthetic, mnist, cifar10, brackets, csv, libsvm, npy, idx; none for quadratics */
    char plugin[HDO_PATH_MAX];   /* a shared object with the data; empty: none */
    char options[HDO_SPEC_MAX];  /* for it, a JSON object */
    char identity[HDO_SPEC_MAX]; /* of a table of one's own, as of a model */
    char path[HDO_PATH_MAX];     /* file or folder of custom data */
    char path_val[HDO_PATH_MAX];
    char label[64]; /* csv: the label's column: a name, a number from 1, last; empty: by its usual names, then last */
    double validation;  /* own files without path_val: share of the samples to hold out */
    hdo_choice split;   /* copies | single | shared | dirichlet(alpha) | shards(k) */
    hdo_choice scaling; /* normalised | unit | twice */
    hdo_choice pretext; /* none | rotation */
    bool reshuffle;     /* every pass over a shard in another order, or all in the order of the first */
    bool augment;       /* cifar10: random crop with padding 4, horizontal flip */
    bool augment_val;   /* cifar10: the same in validation, one crop and flip for each image */
    int64_t train;      /* use only the first that many training samples; 0: all. synthetic: how many to make */
    int64_t val;        /* the same for validation */
    int64_t classes;    /* synthetic: classes */
    int64_t features;   /* synthetic: input dimension */
    double separation;  /* synthetic: distance between class means in standard deviations */
    int64_t positions;  /* brackets: padded length */
    hdo_choice law;     /* brackets: uniform | authors */
    int64_t data_seed;  /* synthetic, brackets: seed of the generator, apart from the run's seed */
} hdo_data_config;

typedef struct hdo_class_config {
    char name[HDO_NAME_MAX];      /* the key under `population` */
    int64_t count;                /* nodes in the class */
    char estimator[HDO_NAME_MAX]; /* fo, fd, ..., forward-law; or that of a table of one's own */
    char plugin[HDO_PATH_MAX];    /* a shared object with the estimator; empty: none */
    int64_t rv;                   /* random vectors */
    hdo_choice nu;                /* difference step: number | eta/sqrt(d) */
    hdo_choice lr;                /* learning rate: number | balanced | theorem | auto */
    int64_t batch;
    double momentum;
    hdo_choice momentum_kind; /* ema | heavy-ball */
    double weight_decay;
    hdo_choice schedule; /* constant | cosine | cosine-authors | file */
    char schedule_file[HDO_PATH_MAX];
    hdo_choice directions;               /* whole | per-tensor | low-rank(r) */
    hdo_choice streams;                  /* independent | shared */
    hdo_choice distribution;             /* gaussian | sphere | rademacher */
    int64_t coords;                      /* fd-coord: coordinates per estimate; 0: all */
    int64_t debias_levels;               /* debiased: halvings of nu that may be drawn */
    double forward_s, backward_s, jvp_s; /* time model: seconds of one oracle call; 0: free */
    double latency_s;                    /* time model: seconds per exchange */
    double bandwidth;                    /* time model: bytes per second; 0: infinite */
    double debias_ratio;                 /* debiased: probability of a level over that of the one before */
    bool allow_piecewise;                /* complex-step on a model with kinks */
} hdo_class_config;

typedef struct hdo_mixing_config {
    char kind[HDO_NAME_MAX];   /* matching, pairwise, graph, none, allreduce */
    char plugin[HDO_PATH_MAX]; /* a shared object with the mixing; empty: none */
    int64_t period;            /* exchange every that many steps */
    hdo_choice graph;          /* kind graph: complete | ring | torus(rows) | ... | random-regular(k) | file */
    hdo_choice graph_mode;     /* matching | colour | edge: what a step draws from the graph */
    hdo_choice placement;      /* where the first class sits: random | spread | clustered | hub | order */
    int64_t degree;            /* small-world: neighbours before rewiring */
    char edges[HDO_PATH_MAX];  /* graph file: the edge list */
    hdo_choice average;        /* equal (the paper) | noise: weights inverse to the noise of the class | auto */
    double clip;               /* fleet: models farther away than this many usual distances are refused; 0: none */
    hdo_choice partners;       /* any (the paper) | own(share): meetings inside the classes | auto */
} hdo_mixing_config;

typedef struct hdo_eval_config {
    int64_t every;   /* steps between evaluations; 0: only at the start and the end */
    bool mean_model; /* evaluate mu too */
    bool consensus;  /* Gamma_t at evaluations */
    bool trace;      /* Gamma_t, M_t^G and training loss of every step to trace.jsonl */
    double weighted; /* rate of the weighted average y_T of the strongly convex theorem; 0: not kept */
} hdo_eval_config;

typedef struct hdo_checkpoint_config {
    int64_t every;  /* steps; 0: only at a stop */
    double every_s; /* seconds; 0: never by time */
    int64_t keep;   /* how many to keep */
} hdo_checkpoint_config;

typedef struct hdo_sink_config {
    char plugin[HDO_PATH_MAX]; /* a shared object with a sink; empty: none */
    bool csv;                  /* metrics.csv in the run folder */
    bool tensorboard;          /* events.out.tfevents... in the run folder */
} hdo_sink_config;

typedef struct hdo_stop_config {
    double loss;         /* stop when the mean validation loss falls to this; 0: never */
    double accuracy;     /* stop when the mean validation accuracy reaches this; 0: never */
    double time_s;       /* stop after that many seconds of wall time in this session; 0: never */
    hdo_choice diverged; /* mean loss that counts as diverged: relative(k) to the start | a number */
} hdo_stop_config;

/* Nodes that come and go, in the simulator. */
typedef struct hdo_churn_config {
    double leave;                   /* probability that a present node leaves, per step */
    double back;                    /* probability that an absent node returns, per step */
    hdo_choice model;               /* a returning node has its stale model | a fresh one (the common start) */
    double loss;                    /* probability that an exchange fails */
    double straggle;                /* probability that a node is too slow for its local step */
    char outage[HDO_NAME_MAX];      /* class that is away ... */
    int64_t outage_from, outage_to; /* ... in steps from <= t < to */
} hdo_churn_config;

/* engine: mpi. Nothing here changes the bits of a run, except async. */
typedef struct hdo_mpi_config {
    char roles[HDO_SPEC_MAX]; /* "0:fo,1-3:zo,hostname:zo": what a rank or host may be given; empty: anything */
    double deadline_s;        /* a rank that keeps others waiting this long ends the job */
    int64_t chunk;            /* bytes of one message */
    bool shared;              /* ranks of one machine average in memory in common instead of by messages */
    double memory;            /* bytes a rank may use; 0: its share of what its host has free */
    bool async;               /* no steps in common: every rank at its own pace */
    char slow[HDO_NAME_MAX];  /* "2:4": rank 2 takes 4 times as long for its local steps, to study stragglers */
} hdo_mpi_config;

/* engine: fleet. */
typedef struct hdo_fleet_config {
    double beat_s;   /* seconds between signs of life; silence of five of them means gone */
    double forget_s; /* an exchange whose other half is silent this long is given up */
} hdo_fleet_config;

/* Where a value came from, for messages and `hdo config show --origin`. */
typedef enum hdo_source { /* from the weakest to the strongest */
                          HDO_FROM_DEFAULT,
                          HDO_FROM_BASE, /* a preset or another foundation, see hdo_config_as_base */
                          HDO_FROM_FILE,
                          HDO_FROM_ENV,
                          HDO_FROM_FLAG
} hdo_source;
typedef struct hdo_origin {
    uint8_t source; /* hdo_source */
    uint8_t file;   /* index into hdo_config.files */
    uint16_t column;
    uint32_t line;
} hdo_origin;

#define HDO_OPTIONS_MAX 40 /* most options of one section */
#define HDO_SECTIONS_MAX 12
#define HDO_FILES_MAX 4

struct hdo_config {
    char name[HDO_NAME_MAX]; /* used for the run folder */
    int64_t seed;
    int64_t steps;      /* T: steps after the warm-up */
    int64_t warmup;     /* W: local-only steps with rising learning rate, before them */
    int64_t threads;    /* 0: all CPUs this process may use */
    hdo_choice kernels; /* auto | ref */
    hdo_choice engine;  /* sim: all nodes in this process | mpi: nodes spread over ranks | fleet: see docs/fleet.md */
    hdo_model_config model;
    hdo_data_config data;
    hdo_mixing_config mixing;
    hdo_eval_config eval;
    hdo_checkpoint_config checkpoint;
    hdo_stop_config stop;
    hdo_sink_config sink;
    hdo_churn_config churn;
    hdo_mpi_config mpi;
    hdo_fleet_config fleet;
    int n_classes;
    hdo_class_config population[HDO_CLASSES_MAX];

    /* Tables of one's own (config/own.h), shared by copies; NULL: none. The handles of <hdo/hdo.h> and runs hold it. */
    struct hdo_own *own;

    /* Origins, kept by the functions below. */
    char files[HDO_FILES_MAX][HDO_PATH_MAX];
    int n_files;
    hdo_origin origin[HDO_SECTIONS_MAX + HDO_CLASSES_MAX][HDO_OPTIONS_MAX];
};

/* Complete and runnable as it is: a small hybrid population on generated data. */
HDO_API void hdo_config_default(hdo_config *c);

/* As hdo_config_load_text, with a name for messages. */
HDO_API hdo_status hdo_config_load_bytes(hdo_config *c, const char *name, const char *text, size_t len, hdo_error *e);

/* What was set so far is a foundation to build on (a preset, a stored run, a configuration that a program goes on to
 * change): values of it that later settings put out of use are no mistakes. */
HDO_API void hdo_config_as_base(hdo_config *c);

/* One value by its dotted key, as `--set`: hdo_config_set_from(c, "population.zo.rv", "64", HDO_FROM_FLAG, &e). */
HDO_API hdo_status hdo_config_set_from(hdo_config *c, const char *key, const char *value, hdo_source from,
                                       hdo_error *e);

/* Loads the plug-ins c names, whose tables it carries from then on: their names and identities are then in c. Runs and
 * problems do this for themselves. */
HDO_API hdo_status hdo_config_resolve(hdo_config *c, hdo_error *e);
/* Lets go of the tables c carries; for structs that were not made by hdo_config_new. */
HDO_API void hdo_config_let_go(hdo_config *c);

/* Configurations that come with the program: the YAML text of one, or NULL; and all names, NULL-terminated. */
HDO_API const char *hdo_preset(const char *name);
HDO_API const char *const *hdo_preset_names(void);

/* Texts for people and programs; the caller frees the result with free(). NULL when out of memory. */
HDO_API char *hdo_config_dump(const hdo_config *c,
                              bool with_origin); /* YAML; loads back to an equal value, but for settings without effect:
                                                    those are at their default in it */
HDO_API char *hdo_config_schema(void);           /* JSON Schema */

#ifdef __cplusplus
}
#endif

#endif
