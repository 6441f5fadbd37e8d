/* SPDX-License-Identifier: Apache-2.0 — the bench of `hdo check`: objective, data, starting point, scratch. */
#include <string.h>

#include "base/arena.h"
#include "lab/check/lab.h"

enum { BATCH_MIN = 32 }; /* taste: enough samples that the curvature means something */

int hdo__lab_batch_size(const hdo_lab *l) {
    int64_t most = BATCH_MIN;
    for (int k = 0; k < l->config->n_classes; k++) {
        if (l->config->population[k].batch > most) most = l->config->population[k].batch;
    }
    if (l->problem.train != NULL && l->problem.train->count < most) most = l->problem.train->count;
    return (int)most;
}

static hdo_status open_estimators(hdo_lab *l, hdo_error *e) {
    for (int k = 0; k < l->config->n_classes; k++) {
        const hdo_class_config *cc = &l->config->population[k];
        const hdo_estimator_ops *ops = hdo__estimator_of(l->config, cc->estimator);
        if (ops == NULL) return hdo__fail(e, HDO_E_CONFIG, "estimator '%s' does not exist", cc->estimator);
        l->estimator[k] = hdo__estimator_make(ops, cc);
        hdo_status st = hdo__estimator_check(&l->estimator[k], l->f, cc->name, e);
        if (st != HDO_OK) return st;
    }
    return HDO_OK;
}

static size_t scratch_bytes(const hdo_lab *l) {
    int size = hdo__lab_batch_size(l);
    size_t most = hdo__objective_work_bytes(l->f, size, HDO_DIRS_AT_ONCE);
    for (int k = 0; k < l->config->n_classes; k++) {
        int batch = (int)l->config->population[k].batch;
        size_t need = hdo__estimator_work_bytes(&l->estimator[k], l->f, batch);
        hdo_estimator sim = l->estimator[k]; /* the paired comparison of health.c */
        sim.ops = &hdo__est_forward_sim;
        size_t paired = hdo__estimator_work_bytes(&sim, l->f, batch);
        if (paired > need) need = paired;
        if (need > most) most = need;
    }
    return most;
}

static hdo_status open_memory(hdo_lab *l, hdo_error *e) {
    size_t len = l->f->d + l->f->n_buf;
    l->batch_max = hdo__lab_batch_size(l);
    for (int k = 0; k < l->config->n_classes; k++) { /* a class may ask for more samples than there are */
        if (l->config->population[k].batch > l->batch_max) l->batch_max = (int)l->config->population[k].batch;
    }
    l->x = hdo__alloc(len * sizeof(float));
    l->g = hdo__alloc(len * sizeof(float));
    l->v[0] = hdo__alloc(len * sizeof(float));
    l->v[1] = hdo__alloc(len * sizeof(float));
    l->v[2] = hdo__alloc(len * sizeof(float));
    l->mean = hdo__alloc(l->f->d * sizeof(double));
    size_t batch_bytes = hdo__problem_batch_bytes(&l->problem, l->batch_max);
    int threads = (int)l->config->threads > 0 ? (int)l->config->threads : hdo__cpu_count();
    if (l->x == NULL || l->g == NULL || l->v[0] == NULL || l->v[1] == NULL || l->v[2] == NULL || l->mean == NULL ||
        (batch_bytes > 0 && hdo__arena_init(&l->batch, batch_bytes) != HDO_OK) ||
        hdo__team_init(&l->team, threads, scratch_bytes(l)) != HDO_OK) {
        return hdo__fail(e, HDO_E_MEMORY, "out of memory: a check of d = %zu numbers needs %.1f MB and scratch",
                         l->f->d, (double)(len * 5 * sizeof(float) + l->f->d * sizeof(double)) / 1e6);
    }
    l->work = (hdo_work){&l->team.arena[0], &l->team, 0};
    return HDO_OK;
}

hdo_status hdo__lab_open(hdo_lab *l, const hdo_config *c, const hdo_check_options *o, hdo_error *e) {
    *l = (hdo_lab){.config = c, .options = o};
    hdo_status st = hdo__problem_open(&l->problem, c, e);
    l->f = l->problem.objective;
    if (st == HDO_OK) st = open_estimators(l, e);
    if (st == HDO_OK) st = open_memory(l, e);
    return st == HDO_OK ? hdo__problem_start(&l->problem, l->x, NULL, e) : st;
}

void hdo__lab_close(hdo_lab *l) {
    hdo__team_clear(&l->team);
    hdo__arena_clear(&l->batch);
    hdo__problem_close(&l->problem);
    hdo__free(l->x);
    hdo__free(l->g);
    hdo__free(l->v[0]);
    hdo__free(l->v[1]);
    hdo__free(l->v[2]);
    hdo__free(l->mean);
    *l = (hdo_lab){0};
}

hdo_batch hdo__lab_batch(hdo_lab *l, int node, int64_t t, int size) {
    hdo__arena_rewind(&l->batch, 0);
    return hdo__problem_batch(&l->problem, node, size, t, t, &l->batch);
}

hdo_dirs hdo__lab_dirs(const hdo_lab *l) {
    return (hdo_dirs){
        .s = hdo__stream((uint64_t)l->config->seed, HDO_RNG_TEST, 0, 0, 0), .dist = HDO_DIST_GAUSSIAN, .d = l->f->d};
}
