/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax regression: constants with a guarantee, docs/theory.md 7. With z = W x + b the loss of a sample is
 * lse(z) - z_label. Its Hessian in z is diag(p) - pp', eigenvalues at most 1/2 for any number of classes (two classes
 * included: there are two rows of weights), so with xx' including the 1 of the bias
 *
 *     L   <= lambda_max(X_i'X_i / N_i) / 2 + l2          L_F <= max_j |x_j|^2 / 2 + l2
 *     L2  <= c3 max_j |x_j|^3,   c3 = 2 sqrt(2) / (6 sqrt(3))
 *
 * The third derivative along a is the third central moment of a_Y, Y ~ p; a variable with range r has at most
 * r^3 / (6 sqrt(3)), and |a| <= 1 means r <= sqrt(2). Strong convexity comes from l2 alone.
 *
 * lambda_max is the largest Ritz value of Lanczos from a random start, enlarged by an error that is exceeded with
 * probability 1e-12 over all nodes together.
 */
#include <math.h>
#include <string.h>

#include "lab/study/study_internal.h"

enum { STEPS = 60, ROWS = 512 };
#define FAIL 1e-12
#define CACHE_BYTES ((size_t)512 << 20) /* larger shards are gathered again for every product */

typedef struct gram {
    const hdo_run *run;
    int node;
    int64_t count;
    size_t p;
    float *rows; /* (count or ROWS, p) */
    int32_t *label;
    bool cached;
} gram;

bool hdo__is_softmax_regression(const hdo_config *c) {
    if (strcmp(c->model.name, "logistic-l2") == 0) return true;
    return strcmp(c->model.name, "logistic") == 0 && c->model.reading.id != HDO_READING_AUTHORS;
}

static const float *fetch(gram *g, int64_t first, int n) {
    if (g->cached) return g->rows + (size_t)first * g->p;
    int64_t idx[ROWS];
    for (int k = 0; k < n; k++) idx[k] = hdo__shard_at(g->run->problem.shards, g->node, first + k);
    hdo__dataset_gather(g->run->problem.train, idx, n, NULL, g->rows, NULL, g->label); /* real inputs: no tokens */
    return g->rows;
}

/* y = X'X x / N, the last coordinate being the bias. */
static hdo_status gram_mul(void *ctx, const double *x, double *y, hdo_error *e) {
    gram *g = ctx;
    (void)e;
    size_t p = g->p;
    memset(y, 0, (p + 1) * sizeof(double));
    for (int64_t first = 0; first < g->count; first += ROWS) {
        int n = (int)(g->count - first < ROWS ? g->count - first : ROWS);
        const float *rows = fetch(g, first, n);
        for (int k = 0; k < n; k++) {
            const float *r = rows + (size_t)k * p;
            double s = x[p];
            for (size_t j = 0; j < p; j++) s += (double)r[j] * x[j];
            s /= (double)g->count;
            for (size_t j = 0; j < p; j++) y[j] += s * (double)r[j];
            y[p] += s;
        }
    }
    return HDO_OK;
}

/* Gathers the shard if it fits and finds its largest squared sample norm (with the 1 of the bias). */
static void load(gram *g, size_t have, double *norm2) {
    size_t need = (size_t)g->count * g->p;
    g->cached = false;
    double most = 0.0;
    bool fits = need <= have;
    for (int64_t first = 0; first < g->count; first += ROWS) {
        int n = (int)(g->count - first < ROWS ? g->count - first : ROWS);
        float *base = g->rows;
        if (fits) g->rows += (size_t)first * g->p;
        const float *rows = fetch(g, first, n);
        for (int k = 0; k < n; k++) {
            double s = 1.0;
            for (size_t j = 0; j < g->p; j++)
                s += (double)rows[(size_t)k * g->p + j] * (double)rows[(size_t)k * g->p + j];
            most = fmax(most, s);
        }
        g->rows = base;
    }
    g->cached = fits;
    *norm2 = fmax(*norm2, most);
}

hdo_status hdo__linear_constants(hdo_study *s, hdo_error *e) {
    const hdo_run *r = s->run;
    int n = s->config.data.split.id == HDO_SPLIT_SHARED ? 1 : r->population.models.count;
    size_t p = (size_t)r->problem.train->n_in, most = ROWS * p;
    for (int i = 0; i < n; i++) {
        size_t need = (size_t)hdo__shard_count(r->problem.shards, i) * p;
        if (need > most && need * sizeof(float) <= CACHE_BYTES) most = need;
    }
    gram g = {.run = r, .p = p, .rows = hdo__alloc(most * sizeof(float)), .label = hdo__alloc(ROWS * sizeof(int32_t))};
    hdo_status st = HDO_OK;
    if (g.rows == NULL || g.label == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory for the data of one node");
    double top = 0.0, norm2 = 0.0;
    int steps = p + 1 < STEPS ? (int)p + 1 : STEPS;
    double error = hdo__lanczos_error(p + 1, steps, FAIL / (double)n);
    for (int i = 0; i < n && st == HDO_OK; i++) {
        hdo_ritz z;
        g.node = i;
        g.count = hdo__shard_count(r->problem.shards, i);
        st = hdo__study_tick(&s->hooks, "smoothness", i, n, e);
        if (st != HDO_OK) break;
        load(&g, most, &norm2);
        st = hdo__lanczos(gram_mul, &g, p + 1, steps, (uint64_t)s->config.seed, &z, e);
        if (st == HDO_OK) top = fmax(top, z.highest / (1.0 - fmin(error, 0.99)));
    }
    hdo__free(g.rows);
    hdo__free(g.label);
    if (st != HDO_OK) return st;
    double l2 = strcmp(s->config.model.name, "logistic-l2") == 0 ? s->config.model.l2 : 0.0;
    top = fmin(top, norm2); /* the mean of |x|^2 is at most the largest */
    s->k.L = (hdo_constant){0.5 * top + l2, HDO_CERTIFIED};
    s->k.L_F = (hdo_constant){0.5 * norm2 + l2, HDO_CERTIFIED};
    s->k.L2 = (hdo_constant){2.0 * sqrt(2.0) / (6.0 * sqrt(3.0)) * norm2 * sqrt(norm2), HDO_CERTIFIED};
    s->k.ell = s->k.ell_loc = (hdo_constant){l2, HDO_CERTIFIED};
    return HDO_OK;
}
