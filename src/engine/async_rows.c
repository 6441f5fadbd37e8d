/* SPDX-License-Identifier: Apache-2.0 — rows of an asynchronous run, put together from what the ranks say. */
#include "engine/async_rows.h"

#include <math.h>

#include "base/arena.h"

enum { AHEAD_MAX = 4096 };

hdo_status hdo__async_rows_init(hdo_async_rows *a, int64_t every, int64_t steps, int ranks) {
    int64_t rows = every > 0 ? steps / every + 1 : 0;
    *a = (hdo_async_rows){.every = every, .ranks = ranks, .cap = (int)(rows < AHEAD_MAX ? rows : AHEAD_MAX)};
    if (a->cap == 0) return HDO_OK;
    a->entry = hdo__alloc((size_t)a->cap * sizeof *a->entry);
    if (a->entry == NULL) return HDO_E_MEMORY;
    for (int k = 0; k < a->cap; k++) a->entry[k].step = -1;
    return HDO_OK;
}

void hdo__async_rows_clear(hdo_async_rows *a) {
    hdo__free(a->entry);
    *a = (hdo_async_rows){0};
}

/* NULL: its place is still taken by a row that a slow rank is that far behind with. */
static hdo_async_entry *entry_of(hdo_async_rows *a, int64_t step) {
    hdo_async_entry *t = &a->entry[step / a->every % a->cap];
    if (t->step < 0) {
        *t = (hdo_async_entry){.step = step};
        t->row.step = step;
        t->row.node0_loss = t->row.node0_acc = (double)NAN;
        t->row.mu_loss = t->row.mu_acc = t->row.gamma = t->row.y_loss = (double)NAN;
    }
    return t->step == step ? t : NULL;
}

void hdo__async_rows_class(hdo_async_rows *a, int64_t step, int k, int nodes, const hdo_group *g) {
    hdo_async_entry *t = entry_of(a, step);
    if (t == NULL || nodes == 0) return;
    hdo__group_merge(&t->row.cls[k], t->nodes[k], g, (double)nodes);
    t->nodes[k] += (double)nodes;
    if (k >= t->row.n_classes) t->row.n_classes = k + 1;
}

void hdo__async_rows_part(hdo_async_rows *a, const hdo_async_part *p, int weight, double now_s) {
    hdo_async_entry *t = entry_of(a, p->step);
    if (t == NULL) return;
    double w = (double)weight;
    const hdo_counts *c = &p->counts;
    t->row.interactions += c->interactions;
    t->row.bytes += c->bytes;
    t->row.forward += c->forward;
    t->row.backward += c->backward;
    t->row.jvp += c->jvp;
    t->row.cost += c->cost;
    t->weight += w;
    t->row.train_loss += (p->train_loss - t->row.train_loss) * w / t->weight;
    t->row.mg += (p->mg - t->row.mg) * w / t->weight;
    if (!isnan(p->nodes.node0_loss)) {
        t->row.node0_loss = p->nodes.node0_loss;
        t->row.node0_acc = p->nodes.node0_acc;
    }
    t->row.wall_s = now_s;
    if (++t->parts == a->ranks) a->complete++;
}

bool hdo__async_rows_take(hdo_async_rows *a, hdo_row *row) {
    hdo_async_entry *first = NULL;
    for (int k = 0; k < a->cap && a->complete > 0; k++) {
        hdo_async_entry *t = &a->entry[k];
        if (t->step >= 0 && t->parts == a->ranks && (first == NULL || t->step < first->step)) first = t;
    }
    if (first == NULL) return false;
    *row = first->row;
    double n = 0.0;
    for (int k = 0; k < row->n_classes; k++) {
        hdo__group_merge(&row->all, n, &row->cls[k], first->nodes[k]);
        n += first->nodes[k];
    }
    int64_t done = first->step;
    for (int k = 0; k < a->cap; k++) { /* ranks speak in the order of their steps: older rows will never be complete */
        if (a->entry[k].step <= done) a->entry[k].step = -1;
    }
    a->complete--;
    return true;
}
