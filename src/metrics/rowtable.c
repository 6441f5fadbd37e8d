/* SPDX-License-Identifier: Apache-2.0 — the metric table: names in files, offsets in hdo_row. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/metrics.h"

#define ONE_INT(name, field, clock, help)                                                                              \
    { name, HDO_METRIC_INT, offsetof(hdo_row, field), 0, clock, help }
#define ONE_REAL(name, field, clock, help)                                                                             \
    { name, HDO_METRIC_REAL, offsetof(hdo_row, field), 0, clock, help }
#define PER_CLASS(name, field, member, help)                                                                           \
    { name, HDO_METRIC_REAL, offsetof(hdo_row, field) + offsetof(hdo_group, member), sizeof(hdo_group), false, help }

const hdo_metric hdo__metric_table[] = {
    ONE_INT("step", step, false, "steps done, warm-up included"),
    ONE_INT("interactions", interactions, false, "pairs that averaged so far"),
    ONE_REAL("parallel_time", parallel_time, false, "steps, or interactions / n for pairwise mixing"),
    ONE_REAL("train/loss", train_loss, false, "mean minibatch loss of the last step"),
    ONE_REAL("val/loss_mean", all.loss_mean, false, "validation loss, mean over nodes"),
    ONE_REAL("val/loss_std", all.loss_std, false, "standard deviation over nodes"),
    ONE_REAL("val/loss_min", all.loss_min, false, "best node"),
    ONE_REAL("val/loss_max", all.loss_max, false, "worst node"),
    ONE_REAL("val/acc_mean", all.acc_mean, false, "validation accuracy, mean over nodes"),
    PER_CLASS("val/loss_*", cls, loss_mean, "validation loss, mean over the nodes of the class"),
    PER_CLASS("val/loss_std_*", cls, loss_std, "standard deviation inside the class"),
    PER_CLASS("val/loss_min_*", cls, loss_min, "best node of the class"),
    PER_CLASS("val/loss_max_*", cls, loss_max, "worst node of the class"),
    PER_CLASS("val/acc_*", cls, acc_mean, "validation accuracy, mean over the nodes of the class"),
    ONE_REAL("val/loss_node0", node0_loss, false, "validation loss of node 0 (the paper's fixed node)"),
    ONE_REAL("val/acc_node0", node0_acc, false, "validation accuracy of node 0"),
    ONE_REAL("val/loss_mu", mu_loss, false, "validation loss of the mean model"),
    ONE_REAL("val/acc_mu", mu_acc, false, "validation accuracy of the mean model"),
    ONE_REAL("val/loss_y", y_loss, false, "validation loss of the weighted average y_T (eval.weighted)"),
    ONE_REAL("consensus/gamma", gamma, false, "(1/n) sum |X_i - mu|^2"),
    ONE_REAL("consensus/mg", mg, false, "(1/n) sum |G_i|^2 over all nodes, each with its newest estimate"),
    {"lr/*", HDO_METRIC_REAL, offsetof(hdo_row, lr), sizeof(double), false,
     "learning rate of the class in the last step"},
    ONE_INT("oracle/forward", forward, false, "forward passes so far, all nodes"),
    ONE_INT("oracle/backward", backward, false, "gradients by reverse mode so far"),
    ONE_INT("oracle/jvp", jvp, false, "forward-mode derivatives so far"),
    ONE_INT("oracle/cost", cost, false, "weighted passes that devices would have made so far, all nodes"),
    ONE_INT("oracle/failed", failed, false, "steps left out because a callback of one's own failed, all nodes"),
    ONE_INT("bytes_exchanged", bytes, false, "parameter bytes exchanged so far, both directions"),
    ONE_INT("nodes/present", present, false, "nodes that are not away"),
    ONE_REAL("sim_time", sim_s, false, "simulated seconds of the slowest node (time model of the classes)"),
    ONE_REAL("time/wall", wall_s, true, "seconds since the start"),
    ONE_REAL("time/step", step_s, true, "seconds in steps"),
    ONE_REAL("time/eval", eval_s, true, "seconds in evaluation"),
    {NULL, HDO_METRIC_INT, 0, 0, false, NULL},
};

static void emit_one(const hdo_row *row, const hdo_metric *m, size_t offset, const char *name,
                     void (*emit)(void *, const hdo_metric *, const char *, double, int64_t), void *ctx) {
    const unsigned char *p = (const unsigned char *)row + offset;
    if (m->type == HDO_METRIC_INT) {
        int64_t v;
        memcpy(&v, p, sizeof v);
        emit(ctx, m, name, (double)v, v);
    } else {
        double v;
        memcpy(&v, p, sizeof v);
        emit(ctx, m, name, v, 0);
    }
}

void hdo__metric_each(const hdo_row *row, const char (*class_name)[HDO_NAME_MAX],
                      void (*emit)(void *ctx, const hdo_metric *m, const char *name, double real, int64_t integer),
                      void *ctx) {
    for (const hdo_metric *m = hdo__metric_table; m->name != NULL; m++) {
        if (m->stride == 0) {
            emit_one(row, m, m->offset, m->name, emit, ctx);
            continue;
        }
        for (int k = 0; k < row->n_classes; k++) {
            char name[2 * HDO_NAME_MAX];
            const char *star = strchr(m->name, '*');
            snprintf(name, sizeof name, "%.*s%s%s", (int)(star - m->name), m->name, class_name[k], star + 1);
            emit_one(row, m, m->offset + (size_t)k * m->stride, name, emit, ctx);
        }
    }
}

/* ---- figures by name ---- */

typedef struct name_list {
    char **list;
    char *text;
    size_t n, bytes;
} name_list;

static void add_name(void *ctx, const hdo_metric *m, const char *name, double real, int64_t integer) {
    name_list *l = ctx;
    size_t len = strlen(name) + 1;
    (void)m, (void)real, (void)integer;
    if (l->list != NULL) l->list[l->n] = memcpy(l->text + l->bytes, name, len);
    l->n++;
    l->bytes += len;
}

char **hdo__metric_names(const hdo_config *c) {
    char class_name[HDO_CLASSES_MAX][HDO_NAME_MAX];
    hdo_row row = {.n_classes = c->n_classes};
    name_list l = {0};
    for (int k = 0; k < c->n_classes; k++) memcpy(class_name[k], c->population[k].name, sizeof class_name[k]);
    hdo__metric_each(&row, (const char(*)[HDO_NAME_MAX])class_name, add_name, &l);
    size_t pointers = (l.n + 1) * sizeof(char *);
    l.list = malloc(pointers + l.bytes);
    if (l.list == NULL) return NULL;
    l.text = (char *)l.list + pointers;
    l.n = l.bytes = 0;
    hdo__metric_each(&row, (const char(*)[HDO_NAME_MAX])class_name, add_name, &l);
    l.list[l.n] = NULL;
    return l.list;
}

typedef struct wanted {
    const char *name;
    double value;
} wanted;

static void take_value(void *ctx, const hdo_metric *m, const char *name, double real, int64_t integer) {
    wanted *w = ctx;
    (void)m, (void)integer;
    if (strcmp(name, w->name) == 0) w->value = real;
}

double hdo_row_value(const hdo_row *row, const char *column) {
    wanted w = {.name = column, .value = (double)NAN};
    if (row != NULL && column != NULL && row->class_name != NULL)
        hdo__metric_each(row, row->class_name, take_value, &w);
    return w.value;
}
