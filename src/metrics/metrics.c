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
    FEW_MODEL_BLOCKS = 8 /* below this many model blocks, batches are separate tasks */
};

static int ceil_div(int64_t a, int64_t b) {
    return (int)((a + b - 1) / b);
}

static int n_batches(const hdo_metrics *m) {
    return m->val == NULL ? 1 : ceil_div(m->val->count, m->f->eval_batch);
}

static int n_model_blocks(const hdo_metrics *m) {
    return ceil_div(m->n_slots, m->f->eval_models);
}

hdo_status hdo__metrics_init(hdo_metrics *m, hdo_population *p, hdo_error *e) {
    const hdo_config *c = p->problem->config;
    *m = (hdo_metrics){.population = p,
                       .f = p->problem->objective,
                       .val = p->problem->val,
                       .mean_model = c->eval.mean_model,
                       .consensus = c->eval.consensus,
                       .n_slots = p->models.count + 1};
    m->n_blocks = n_model_blocks(m) < FEW_MODEL_BLOCKS ? n_batches(m) : 1;
    size_t cells = (size_t)m->n_blocks * (size_t)m->n_slots;
    m->loss = hdo__alloc(cells * sizeof(double));
    m->correct = hdo__alloc(cells * sizeof(int64_t));
    m->all = hdo__alloc((size_t)p->n * sizeof(hdo_node_figure));
    if (m->all == NULL || m->loss == NULL || m->correct == NULL) {
        hdo__metrics_clear(m);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the metrics of %d nodes", p->models.count);
    }
    return HDO_OK;
}

void hdo__metrics_clear(hdo_metrics *m) {
    hdo__free(m->loss);
    hdo__free(m->correct);
    hdo__free(m->all);
    *m = (hdo_metrics){0};
}

size_t hdo__metrics_work_bytes(const hdo_metrics *m) {
    return hdo__batch_bytes(m->val, m->f->eval_batch) + hdo__objective_work_bytes(m->f, m->f->eval_batch, 1);
}

/* ---- losses ---- */

typedef struct eval_ctx {
    hdo_metrics *m;
    const hdo_models *models;
    int slots;     /* nodes, and the mean model if it is wanted */
    hdo_status st; /* worst status of any task; tasks only ever write failures */
} eval_ctx;

/* Batch number k of the validation set, in order. */
static hdo_batch gather(const hdo_metrics *m, int k, hdo_arena *a) {
    const hdo_dataset *val = m->val;
    if (val == NULL) return (hdo_batch){.node = -1};
    int batch = m->f->eval_batch;
    int64_t first = (int64_t)k * batch;
    int n = (int)(val->count - first < batch ? val->count - first : batch);
    if (m->f->known == val) return (hdo_batch){.size = n, .node = -1, .whole = val, .first = first};
    int64_t *idx = hdo__arena_take(a, (size_t)n * sizeof(int64_t));
    int32_t *label = hdo__arena_take(a, (size_t)n * sizeof(int32_t));
    void *in = hdo__arena_take(a, (size_t)n * (size_t)val->n_in * sizeof(float));
    for (int i = 0; i < n; i++) idx[i] = first + i;
    hdo_batch b = {.size = n, .node = -1};
    hdo__batch_gather(&b, val, idx, NULL, in, label);
    return b;
}

static void eval_task(void *p, int task, hdo_work *w) {
    eval_ctx *c = p;
    hdo_metrics *m = c->m;
    int blocks = n_model_blocks(m);
    int block = task % blocks, group = task / blocks;
    int first = block * m->f->eval_models;
    int last = first + m->f->eval_models < c->slots ? first + m->f->eval_models : c->slots;
    int nodes = (last < c->models->count ? last : c->models->count) - first; /* models of nodes among them */
    double *loss = m->loss + (size_t)group * (size_t)m->n_slots;
    int64_t *correct = m->correct + (size_t)group * (size_t)m->n_slots;
    int b0 = m->n_blocks > 1 ? group : 0, b1 = m->n_blocks > 1 ? group + 1 : n_batches(m);
    for (int b = b0; b < b1; b++) {
        size_t mark = hdo__arena_mark(w->arena);
        hdo_batch batch = gather(m, b, w->arena);
        hdo_status st = batch.status == HDO_E_SKIPPED ? HDO_E_OBJECTIVE : batch.status;
        if (st == HDO_OK && nodes > 0) {
            const float *X = c->models->X + (size_t)first * c->models->ld;
            st = m->f->ops->evaluate(m->f, &batch, X, c->models->ld, nodes, w, loss + first, correct + first);
        }
        if (st == HDO_OK && last > c->models->count) { /* the last slot is the mean model */
            int s = c->models->count;
            st = m->f->ops->evaluate(m->f, &batch, m->population->mean.model, c->models->ld, 1, w, loss + s,
                                     correct + s);
        }
        if (st != HDO_OK) c->st = st;
        hdo__arena_rewind(w->arena, mark);
    }
}

static hdo_group group_of(const hdo_metrics *m, int first, int last, double samples) {
    hdo_group g = {.loss_min = (double)INFINITY, .loss_max = -(double)INFINITY};
    double n = 0.0, hits = 0.0;
    for (int i = first; i < last; i++) n += m->all[i].correct < 0 ? 0.0 : 1.0;
    if (n == 0.0) return (hdo_group){(double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN};
    for (int i = first; i < last; i++) {
        if (m->all[i].correct < 0) continue; /* its evaluation failed: see HDO_NO_LOSS */
        double loss = m->all[i].loss;
        g.loss_mean += loss / n;
        g.loss_min = loss < g.loss_min ? loss : g.loss_min;
        g.loss_max = loss > g.loss_max || isnan(loss) ? loss : g.loss_max; /* once NaN, it stays NaN */
        hits += (double)m->all[i].correct;
    }
    double var = 0.0;
    for (int i = first; i < last; i++)
        if (m->all[i].correct >= 0) var += (m->all[i].loss - g.loss_mean) * (m->all[i].loss - g.loss_mean) / n;
    g.loss_std = sqrt(var);
    g.acc_mean = m->f->has_accuracy ? hits / (n * samples) : (double)NAN;
    return g;
}

void hdo__group_merge(hdo_group *a, double na, const hdo_group *b, double nb) {
    if (nb <= 0.0) return;
    if (na <= 0.0) {
        *a = *b;
        return;
    }
    double n = na + nb, apart = b->loss_mean - a->loss_mean;
    double var = (na * a->loss_std * a->loss_std + nb * b->loss_std * b->loss_std + apart * apart * na * nb / n) / n;
    a->loss_mean += apart * nb / n;
    a->loss_std = sqrt(var);
    a->loss_min = b->loss_min < a->loss_min ? b->loss_min : a->loss_min;
    a->loss_max = b->loss_max > a->loss_max ? b->loss_max : a->loss_max;
    a->acc_mean += (b->acc_mean - a->acc_mean) * nb / n;
}

static double n_samples(const hdo_metrics *m) {
    return m->val == NULL ? 1.0 : (double)m->val->count;
}

static double accuracy(const hdo_metrics *m, int64_t correct) {
    return m->f->has_accuracy && correct >= 0 ? (double)correct / n_samples(m) : (double)NAN;
}

/* The losses of the nodes' newest estimates. Nobody was asked about the mean model. */
static hdo_status take_told(hdo_metrics *m, int count) {
    const hdo_population *p = m->population;
    for (int i = 0; i < count; i++) {
        bool known = p->result[i].g2 != HDO_NO_ESTIMATE && !isnan(p->result[i].loss);
        m->all[i] = (hdo_node_figure){known ? p->result[i].loss : (double)NAN, known ? 0 : HDO_NO_LOSS};
    }
    m->loss[count] = (double)NAN;
    return HDO_OK;
}

/* Losses of the local nodes into `all`, and of the mean model if it is wanted here. */
static hdo_status evaluate_here(hdo_metrics *m, const hdo_models *models, bool mean_here) {
    if (m->population->told) return take_told(m, models->count);
    size_t cells = (size_t)m->n_blocks * (size_t)m->n_slots;
    memset(m->loss, 0, cells * sizeof(double));
    memset(m->correct, 0, cells * sizeof(int64_t));
    eval_ctx c = {.m = m, .models = models, .slots = models->count + (mean_here ? 1 : 0), .st = HDO_OK};
    hdo__team_run(m->population->team, n_model_blocks(m) * m->n_blocks, eval_task, &c);
    for (int i = 0; i < c.slots; i++) {
        for (int b = 1; b < m->n_blocks; b++) {
            m->loss[i] += m->loss[(size_t)b * (size_t)m->n_slots + (size_t)i];
            m->correct[i] += m->correct[(size_t)b * (size_t)m->n_slots + (size_t)i];
        }
        m->loss[i] = m->correct[i] < 0 ? (double)NAN : m->loss[i] / n_samples(m);
        if (i < models->count) m->all[models->first + i] = (hdo_node_figure){m->loss[i], m->correct[i]};
    }
    return c.st;
}

hdo_status hdo__metrics_local(hdo_metrics *m, const hdo_models *models, hdo_metrics_part *p) {
    *p = (hdo_metrics_part){.node0_loss = (double)NAN, .node0_acc = (double)NAN};
    hdo_status st = evaluate_here(m, models, false);
    if (st != HDO_OK) return st;
    for (int k = 0; k < m->population->n_classes; k++) {
        int first = m->population->problem->class_first[k], last = m->population->problem->class_first[k + 1],
            end = models->first + models->count;
        first = first > models->first ? first : models->first;
        last = last < end ? last : end;
        p->nodes[k] = last > first ? last - first : 0;
        if (last > first) p->cls[k] = group_of(m, first, last, n_samples(m));
    }
    if (models->first == 0) {
        p->node0_loss = m->all[0].loss;
        p->node0_acc = accuracy(m, m->all[0].correct);
    }
    return HDO_OK;
}

hdo_status hdo__metrics_evaluate(hdo_metrics *m, hdo_row *row, hdo_error *e) {
    const hdo_models *models = &m->population->models;
    hdo_status st = HDO_OK;
    row->gamma = (double)NAN;
    if (m->mean_model || m->consensus) st = hdo__population_mean(m->population, m->consensus ? &row->gamma : NULL, e);
    if (st != HDO_OK) return st;
    bool mean_here = m->mean_model && m->population->transport->rank == 0;
    st = evaluate_here(m, models, mean_here);
    if (st != HDO_OK) hdo__problem_fail(m->population->problem, st, e, "evaluation failed: %s", hdo_status_text(st));
    st = m->population->transport->ops->agree(m->population->transport, st, &(unsigned){0}, m->all, sizeof *m->all, e);
    if (st != HDO_OK) return st;
    double samples = n_samples(m);
    m->unknown = 0;
    for (int i = 0; i < m->population->n; i++) m->unknown += m->all[i].correct < 0;
    row->all = group_of(m, 0, m->population->n, samples);
    row->n_classes = m->population->n_classes;
    for (int k = 0; k < m->population->n_classes; k++)
        row->cls[k] =
            group_of(m, m->population->problem->class_first[k], m->population->problem->class_first[k + 1], samples);
    row->node0_loss = m->all[0].loss;
    row->node0_acc = accuracy(m, m->all[0].correct);
    row->mu_loss = mean_here ? m->loss[models->count] : (double)NAN;
    row->mu_acc = mean_here ? accuracy(m, m->correct[models->count]) : (double)NAN;
    return HDO_OK;
}

hdo_status hdo__metrics_one(hdo_metrics *m, const float *x, double *loss) {
    hdo_work w = {&m->population->team->arena[0], m->population->team, 0};
    double sum = 0.0;
    int64_t correct = 0;
    hdo_status st = HDO_OK;
    for (int b = 0; b < n_batches(m) && st == HDO_OK; b++) {
        size_t mark = hdo__arena_mark(w.arena);
        hdo_batch batch = gather(m, b, w.arena);
        st = batch.status;
        if (st == HDO_OK) st = m->f->ops->evaluate(m->f, &batch, x, m->f->d + m->f->n_buf, 1, &w, &sum, &correct);
        hdo__arena_rewind(w.arena, mark);
    }
    *loss = correct < 0 ? (double)NAN : sum / (m->val == NULL ? 1.0 : (double)m->val->count);
    return st;
}
