/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run measures. Losses of all nodes over the whole validation set, per class, of node 0 and of the mean model;
 * the consensus distance. Sums run in a fixed order: figures do not depend on the number of threads.
 */
#ifndef HDO_METRICS_METRICS_H
#define HDO_METRICS_METRICS_H

#include "population/population.h"

typedef struct hdo_node_figure { /* what ranks tell each other about a node */
    double loss;
    int64_t correct;
} hdo_node_figure;

typedef struct hdo_metrics {
    hdo_population *population; /* borrowed */
    const hdo_objective *f;
    const hdo_dataset *val; /* NULL: objective without data */
    bool mean_model, consensus;
    double *loss;         /* (blocks, count + 1): per local node, last column the mean model */
    int64_t *correct;     /* likewise */
    int n_slots;          /* count + 1 */
    int n_blocks;         /* batch groups evaluated as separate tasks */
    hdo_node_figure *all; /* (n): of every node; correct below 0: its evaluation failed */
    int unknown;          /* how many did, in the last row */
} hdo_metrics;

hdo_status hdo__metrics_init(hdo_metrics *m, hdo_population *p, hdo_error *e);
void hdo__metrics_clear(hdo_metrics *m);
size_t hdo__metrics_work_bytes(const hdo_metrics *m); /* arena bytes of each thread */

/* Fills the validation part of row (all, cls, node0, mu, gamma). All ranks together; the loss of
 * the mean model is known to rank 0 only. */
HDO_LAB hdo_status hdo__metrics_evaluate(hdo_metrics *m, hdo_row *row, hdo_error *e);

typedef struct hdo_metrics_part { /* the same, of this rank's nodes alone */
    int nodes[HDO_CLASSES_MAX];   /* of each class here */
    hdo_group cls[HDO_CLASSES_MAX];
    double node0_loss, node0_acc; /* NaN where node 0 is not */
} hdo_metrics_part;

/* Without the other ranks. models: the local ones, or a copy of them. */
hdo_status hdo__metrics_local(hdo_metrics *m, const hdo_models *models, hdo_metrics_part *p);
/* a, over na nodes, becomes what it is over those and the nb nodes of b. */
void hdo__group_merge(hdo_group *a, double na, const hdo_group *b, double nb);

/* Validation loss of one model that is not in the population. */
HDO_LAB hdo_status hdo__metrics_one(hdo_metrics *m, const float *x, double *loss);

/* ---- the metric table: one row per figure; JSON lines, CSV, TensorBoard and docs/metrics.md all read it ---- */
typedef enum hdo_metric_type { HDO_METRIC_INT, HDO_METRIC_REAL } hdo_metric_type;
typedef struct hdo_metric {
    const char *name; /* "val/loss_mean"; '*' stands for the class name in per-class figures */
    hdo_metric_type type;
    size_t offset; /* in hdo_row */
    size_t stride; /* 0: one figure; otherwise one per class, that far apart */
    bool clock;    /* depends on the machine's speed: left out when two runs are compared */
    const char *help;
} hdo_metric;
extern const hdo_metric hdo__metric_table[]; /* ends with name == NULL */

/* Calls emit for every figure of the row with its full name ("val/loss_zo"). */
HDO_LAB void hdo__metric_each(const hdo_row *row, const char (*class_name)[HDO_NAME_MAX],
                              void (*emit)(void *ctx, const hdo_metric *m, const char *name, double real,
                                           int64_t integer),
                              void *ctx);

/* The names of all figures of a run with these classes, as a NULL-terminated list in one block: free() it. NULL: out of
 * memory. */
char **hdo__metric_names(const hdo_config *c);

#endif
