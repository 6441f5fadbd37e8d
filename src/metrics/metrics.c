/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation of the whole population. Models are evaluated in blocks (an objective may stack them into one product),
 * the validation set in batches. With few models the batches become tasks of their own, so that a single node uses all
 * cores; partial sums are added in batch order either way, so the figures do not depend on the decomposition.
 */
#include "metrics/metrics.h"

#include <math.h>
#include <string.h>

enum {
    COLUMN_TILE = 1024,     /* columns of the population handled by one task of the consensus pass */
    FEW_MODEL_BLOCKS = 8    /* below this many model blocks, batches are separate tasks */
};

static int ceil_div(int64_t a, int64_t b) { return (int)((a + b - 1) / b); }

static int n_batches(const hdo_metrics *m) {
    return m->val == NULL ? 1 : ceil_div(m->val->count, m->f->eval_batch);
}

static int n_model_blocks(const hdo_metrics *m) { return ceil_div(m->n_slots, m->f->eval_models); }

hdo_status hdo__metrics_init(hdo_metrics *m, const hdo_objective *f, const hdo_dataset *val, const hdo_config *c,
                             const hdo_rows *rows, hdo_error *e) {
    *m = (hdo_metrics){.f = f,
                       .val = val,
                       .n_classes = c->n_classes,
                       .mean_model = c->eval.mean_model,
                       .consensus = c->eval.consensus,
                       .n_slots = rows->count + 1};
    for (int k = 0; k < c->n_classes; k++) m->class_first[k + 1] = m->class_first[k] + (int)c->population[k].count;
    m->n_blocks = n_model_blocks(m) < FEW_MODEL_BLOCKS ? n_batches(m) : 1;
    size_t cells = (size_t)m->n_blocks * (size_t)m->n_slots;
    m->loss = hdo__alloc(cells * sizeof(double));
    m->correct = hdo__alloc(cells * sizeof(int64_t));
    m->mu = hdo__alloc(rows->ld * sizeof(double));
    m->mu_row = hdo__alloc(rows->ld * sizeof(float));
    m->tile_sum = hdo__alloc((rows->ld / COLUMN_TILE + 1) * sizeof(double));
    if (m->loss == NULL || m->correct == NULL || m->mu == NULL || m->mu_row == NULL || m->tile_sum == NULL) {
        hdo__metrics_clear(m);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the metrics of %d nodes", rows->count);
    }
    return HDO_OK;
}

void hdo__metrics_clear(hdo_metrics *m) {
    hdo__free(m->loss);
    hdo__free(m->correct);
    hdo__free(m->mu);
    hdo__free(m->mu_row);
    hdo__free(m->tile_sum);
    *m = (hdo_metrics){0};
}

static size_t batch_bytes(const hdo_metrics *m) {
    if (m->val == NULL) return 0;
    size_t B = (size_t)m->f->eval_batch;
    return hdo__arena_round(B * (size_t)m->val->n_in * sizeof(float)) + hdo__arena_round(B * sizeof(int64_t)) +
           hdo__arena_round(B * sizeof(int32_t));
}

size_t hdo__metrics_work_bytes(const hdo_metrics *m) {
    return batch_bytes(m) + hdo__objective_work_bytes(m->f, m->f->eval_batch, 1);
}

/* ---- losses ---- */

typedef struct eval_ctx {
    hdo_metrics *m;
    const hdo_rows *rows;
    int slots;    /* nodes, and the mean model if it is wanted */
    hdo_status st; /* worst status of any task; tasks only ever write failures */
} eval_ctx;

/* Batch number k of the validation set, in order. */
static hdo_batch gather(const hdo_dataset *val, int batch, int k, hdo_arena *a) {
    if (val == NULL) return (hdo_batch){.node = -1};
    int64_t first = (int64_t)k * batch;
    int n = (int)(val->count - first < batch ? val->count - first : batch);
    int64_t *idx = hdo__arena_take(a, (size_t)n * sizeof(int64_t));
    int32_t *label = hdo__arena_take(a, (size_t)n * sizeof(int32_t));
    float *in = hdo__arena_floats(a, (size_t)n * (size_t)val->n_in);
    for (int i = 0; i < n; i++) idx[i] = first + i;
    val->ops->gather(val, idx, n, NULL, in, (int32_t *)in, label);
    return (hdo_batch){.size = n,
                       .in = val->vocab > 0 ? NULL : in,
                       .tok = val->vocab > 0 ? (const int32_t *)in : NULL,
                       .label = label,
                       .node = -1};
}

static void eval_task(void *p, int task, hdo_work *w) {
    eval_ctx *c = p;
    hdo_metrics *m = c->m;
    int blocks = n_model_blocks(m);
    int block = task % blocks, group = task / blocks;
    int first = block * m->f->eval_models;
    int last = first + m->f->eval_models < c->slots ? first + m->f->eval_models : c->slots;
    int nodes = (last < c->rows->count ? last : c->rows->count) - first; /* rows of the population among them */
    double *loss = m->loss + (size_t)group * (size_t)m->n_slots;
    int64_t *correct = m->correct + (size_t)group * (size_t)m->n_slots;
    int b0 = m->n_blocks > 1 ? group : 0, b1 = m->n_blocks > 1 ? group + 1 : n_batches(m);
    for (int b = b0; b < b1; b++) {
        size_t mark = hdo__arena_mark(w->arena);
        hdo_batch batch = gather(m->val, m->f->eval_batch, b, w->arena);
        hdo_status st = HDO_OK;
        if (nodes > 0) {
            const float *X = c->rows->X + (size_t)first * c->rows->ld;
            st = m->f->ops->evaluate(m->f, &batch, X, c->rows->ld, nodes, w, loss + first, correct + first);
        }
        if (st == HDO_OK && last > c->rows->count) { /* the last slot is the mean model */
            int s = c->rows->count;
            st = m->f->ops->evaluate(m->f, &batch, m->mu_row, c->rows->ld, 1, w, loss + s, correct + s);
        }
        if (st != HDO_OK) c->st = st;
        hdo__arena_rewind(w->arena, mark);
    }
}

static hdo_group group_of(const hdo_metrics *m, int first, int last, double samples) {
    hdo_group g = {.loss_min = INFINITY, .loss_max = -INFINITY};
    double n = (double)(last - first), hits = 0.0;
    for (int i = first; i < last; i++) {
        g.loss_mean += m->loss[i] / n;
        g.loss_min = m->loss[i] < g.loss_min ? m->loss[i] : g.loss_min;
        g.loss_max = m->loss[i] > g.loss_max ? m->loss[i] : g.loss_max;
        hits += (double)m->correct[i];
    }
    double var = 0.0;
    for (int i = first; i < last; i++) var += (m->loss[i] - g.loss_mean) * (m->loss[i] - g.loss_mean) / n;
    g.loss_std = sqrt(var);
    g.acc_mean = m->f->has_accuracy ? hits / (n * samples) : (double)NAN;
    return g;
}

hdo_status hdo__metrics_evaluate(hdo_metrics *m, const hdo_rows *rows, hdo_team *team, hdo_row *row) {
    row->gamma = (double)NAN;
    if (m->mean_model || m->consensus) row->gamma = hdo__metrics_consensus(m, rows, team);
    size_t cells = (size_t)m->n_blocks * (size_t)m->n_slots;
    memset(m->loss, 0, cells * sizeof(double));
    memset(m->correct, 0, cells * sizeof(int64_t));
    eval_ctx c = {.m = m, .rows = rows, .slots = rows->count + (m->mean_model ? 1 : 0), .st = HDO_OK};
    hdo__team_run(team, n_model_blocks(m) * m->n_blocks, eval_task, &c);
    if (c.st != HDO_OK) return c.st;
    double samples = m->val == NULL ? 1.0 : (double)m->val->count;
    for (int i = 0; i < c.slots; i++) {
        for (int b = 1; b < m->n_blocks; b++) {
            m->loss[i] += m->loss[(size_t)b * (size_t)m->n_slots + (size_t)i];
            m->correct[i] += m->correct[(size_t)b * (size_t)m->n_slots + (size_t)i];
        }
        m->loss[i] /= samples;
    }
    row->all = group_of(m, 0, rows->count, samples);
    row->n_classes = m->n_classes;
    for (int k = 0; k < m->n_classes; k++) row->cls[k] = group_of(m, m->class_first[k], m->class_first[k + 1], samples);
    bool acc = m->f->has_accuracy;
    row->node0_loss = m->loss[0];
    row->node0_acc = acc ? (double)m->correct[0] / samples : (double)NAN;
    row->mu_loss = m->mean_model ? m->loss[rows->count] : (double)NAN;
    row->mu_acc = m->mean_model && acc ? (double)m->correct[rows->count] / samples : (double)NAN;
    return HDO_OK;
}

hdo_status hdo__metrics_one(hdo_metrics *m, const float *x, hdo_team *team, double *loss) {
    hdo_work w = {&team->arena[0], team};
    double sum = 0.0;
    int64_t correct = 0;
    hdo_status st = HDO_OK;
    for (int b = 0; b < n_batches(m) && st == HDO_OK; b++) {
        size_t mark = hdo__arena_mark(w.arena);
        hdo_batch batch = gather(m->val, m->f->eval_batch, b, w.arena);
        st = m->f->ops->evaluate(m->f, &batch, x, m->f->d + m->f->n_buf, 1, &w, &sum, &correct);
        hdo__arena_rewind(w.arena, mark);
    }
    *loss = sum / (m->val == NULL ? 1.0 : (double)m->val->count);
    return st;
}

/* ---- consensus ---- */

static void consensus_task(void *p, int task, hdo_work *w) {
    eval_ctx *c = p;
    (void)w;
    const hdo_rows *rows = c->rows;
    size_t j0 = (size_t)task * COLUMN_TILE;
    size_t total = c->m->f->d + c->m->f->n_buf;
    size_t j1 = j0 + COLUMN_TILE < total ? j0 + COLUMN_TILE : total;
    double *mu = c->m->mu;
    for (size_t j = j0; j < j1; j++) mu[j] = 0.0;
    for (int i = 0; i < rows->count; i++) {
        const float *x = rows->X + (size_t)i * rows->ld;
        for (size_t j = j0; j < j1; j++) mu[j] += (double)x[j];
    }
    for (size_t j = j0; j < j1; j++) {
        mu[j] /= (double)rows->count;
        c->m->mu_row[j] = (float)mu[j];
    }
    size_t jd = j1 < c->m->f->d ? j1 : c->m->f->d; /* buffers are averaged but do not count as distance */
    double sum = 0.0;
    for (int i = 0; i < rows->count; i++) {
        const float *x = rows->X + (size_t)i * rows->ld;
        double s = 0.0;
        for (size_t j = j0; j < jd; j++) s += ((double)x[j] - mu[j]) * ((double)x[j] - mu[j]);
        sum += s;
    }
    c->m->tile_sum[task] = sum;
}

double hdo__metrics_consensus(hdo_metrics *m, const hdo_rows *rows, hdo_team *team) {
    int tiles = ceil_div((int64_t)(m->f->d + m->f->n_buf), COLUMN_TILE);
    eval_ctx c = {.m = m, .rows = rows};
    hdo__team_run(team, tiles, consensus_task, &c);
    double gamma = 0.0;
    for (int t = 0; t < tiles; t++) gamma += m->tile_sum[t];
    return gamma / (double)rows->count;
}
