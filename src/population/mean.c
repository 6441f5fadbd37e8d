/* SPDX-License-Identifier: Apache-2.0
 *
 * The mean of all models, the distance of the models from it, and the weighted average of the means. Where pairs take
 * weighted averages the mean has the same weights: that is what an exchange keeps. Sums run node by node in a fixed
 * order, in double, tile by tile: they do not depend on the number of threads or ranks.
 */
#include <math.h>
#include <string.h>

#include "population/population.h"

enum { COLUMN_TILE = 1024 }; /* columns of the model matrix handled by one task */

hdo_status hdo__mean_init(hdo_mean *m, size_t ld) {
    size_t tiles = ld / COLUMN_TILE + 1;
    m->mu = hdo__alloc(tiles * COLUMN_TILE * sizeof(double)); /* whole tiles travel */
    m->model = hdo__alloc(ld * sizeof(float));
    m->tile_sum = hdo__alloc(tiles * sizeof(double));
    return m->mu == NULL || m->model == NULL || m->tile_sum == NULL ? HDO_E_MEMORY : HDO_OK;
}

void hdo__mean_clear(hdo_mean *m) {
    hdo__free(m->mu);
    hdo__free(m->model);
    hdo__free(m->tile_sum);
    *m = (hdo_mean){0};
}

typedef struct tile_ctx {
    hdo_population *p;
    size_t first; /* tile of task 0 */
    double weight[HDO_CLASSES_MAX], total;
} tile_ctx;

static size_t tile_end(const hdo_population *p, size_t j0) {
    size_t total = p->problem->objective->d + p->problem->objective->n_buf;
    return j0 + COLUMN_TILE < total ? j0 + COLUMN_TILE : total;
}

/* The columns of one tile, over the local nodes in order: sums, ... */
static void tile_add(const tile_ctx *c, size_t tile) {
    size_t j0 = tile * COLUMN_TILE, j1 = tile_end(c->p, j0);
    for (int i = 0; i < c->p->models.count; i++) {
        const float *x = c->p->models.X + (size_t)i * c->p->models.ld;
        double weight = c->weight[hdo__population_class(c->p, c->p->models.first + i)];
        for (size_t j = j0; j < j1; j++) c->p->mean.mu[j] += weight * (double)x[j];
    }
}

/* ... means, ... */
static void tile_mean(const tile_ctx *c, size_t tile) {
    size_t j0 = tile * COLUMN_TILE, j1 = tile_end(c->p, j0);
    for (size_t j = j0; j < j1; j++) {
        c->p->mean.mu[j] /= c->total;
        c->p->mean.model[j] = (float)c->p->mean.mu[j];
    }
}

/* ... and squared distances. Buffers are averaged but do not count as distance. */
static void tile_distance(const tile_ctx *c, size_t tile) {
    size_t j0 = tile * COLUMN_TILE, j1 = tile_end(c->p, j0),
           jd = j1 < c->p->problem->objective->d ? j1 : c->p->problem->objective->d;
    const double *mu = c->p->mean.mu;
    for (int i = 0; i < c->p->models.count; i++) {
        const float *x = c->p->models.X + (size_t)i * c->p->models.ld;
        double s = 0.0;
        for (size_t j = j0; j < jd; j++) s += ((double)x[j] - mu[j]) * ((double)x[j] - mu[j]);
        c->p->mean.tile_sum[tile] += s;
    }
}

static void add_task(void *p, int task, hdo_work *w) {
    (void)w;
    tile_add(p, ((tile_ctx *)p)->first + (size_t)task);
}
static void distance_task(void *p, int task, hdo_work *w) {
    (void)w;
    tile_distance(p, ((tile_ctx *)p)->first + (size_t)task);
}
static void whole_task(void *p, int task, hdo_work *w) { /* one rank: all three while the tile is in the cache */
    (void)w;
    tile_add(p, (size_t)task);
    tile_mean(p, (size_t)task);
    tile_distance(p, (size_t)task);
}

static void relay_add(void *p, void *v, size_t first, size_t count) { /* elements are tiles of sums */
    tile_ctx *c = p;
    (void)v;
    c->first = first;
    hdo__team_run(c->p->team, (int)count, add_task, c);
}
static void relay_distance(void *p, void *v, size_t first, size_t count) {
    tile_ctx *c = p;
    (void)v;
    c->first = first;
    hdo__team_run(c->p->team, (int)count, distance_task, c);
}

hdo_status hdo__population_mean(hdo_population *p, double *gamma, hdo_error *e) {
    size_t total = p->problem->objective->d + p->problem->objective->n_buf;
    int tiles = (int)((total + COLUMN_TILE - 1) / COLUMN_TILE);
    tile_ctx c = {.p = p};
    for (int k = 0; k < p->n_classes; k++) {
        c.weight[k] = hdo__population_weight(p, k);
        c.total += p->classes[k].count * c.weight[k];
    }
    memset(p->mean.mu, 0, total * sizeof(double));
    memset(p->mean.tile_sum, 0, (size_t)tiles * sizeof(double));
    hdo_transport *t = p->transport;
    if (t->ranks == 1) {
        hdo__team_run(p->team, tiles, whole_task, &c);
    } else {
        hdo_status st = t->ops->relay(t, p->mean.mu, COLUMN_TILE * sizeof(double), (size_t)tiles, relay_add, &c, e);
        if (st != HDO_OK) return st;
        for (size_t k = 0; k < (size_t)tiles; k++) tile_mean(&c, k);
        st = t->ops->relay(t, p->mean.tile_sum, sizeof(double), (size_t)tiles, relay_distance, &c, e);
        if (st != HDO_OK) return st;
    }
    double sum = 0.0;
    for (int k = 0; k < tiles; k++) sum += p->mean.tile_sum[k];
    if (gamma != NULL) *gamma = sum / (double)p->n;
    return HDO_OK;
}

/* y_t = sum_{k<=t} w_k mu_{k-1} / S_t with w_k = (1-rate)^-k, kept as a running mean: the newest weight is
 * w_t / S_t = rate / (1 - (1-rate)^t) (HDO, strongly convex theorem). */
hdo_status hdo__population_add_to_y(hdo_population *p, int64_t step, hdo_error *e) {
    if (p->y == NULL) return HDO_OK;
    hdo_status st = hdo__population_mean(p, NULL, e);
    if (st != HDO_OK) return st;
    double rate = p->problem->config->eval.weighted, t = (double)(step + 1);
    double w = hdo__newest_weight(rate, t);
    size_t len = p->problem->objective->d + p->problem->objective->n_buf;
    for (size_t j = 0; j < len; j++) p->y[j] = (float)((double)p->y[j] + w * (p->mean.mu[j] - (double)p->y[j]));
    return HDO_OK;
}
