/* SPDX-License-Identifier: Apache-2.0
 *
 * Cost against the number of nodes and of coordinates, on a quadratic that costs next to nothing, so that what is seen
 * is the engine: matching, numbers, updates, averages. And the same work on one thread and on all.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/bench/bench_internal.h"

static hdo_status quadratic(hdo_config *c, int64_t fo, int64_t zo, const char *estimator, int64_t d, int threads,
                            hdo_error *e) {
    hdo_status st = hdo__bench_config(c, "theory-fleet", threads, e);
    if (st != HDO_OK) return st;
    c->model.dim = d;
    c->population[0].count = fo;
    c->population[1].count = zo;
    if (fo == 0) {
        c->population[0] = c->population[1];
        c->n_classes = 1;
    }
    return hdo__bench_set(c, "zo", "estimator", estimator, e);
}

/* idle: nobody takes a local step, so that only matching, averages and figures are left. */
static hdo_run *open_quadratic(hdo_bench *b, const hdo_bench_case *c, int64_t fo, int64_t zo, const char *estimator,
                               int64_t d, bool idle) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    hdo_config *config = hdo__alloc(sizeof *config);
    hdo_status st = config != NULL ? quadratic(config, fo, zo, estimator, d, b->asked, &e) : HDO_E_MEMORY;
    if (st == HDO_OK && idle) {
        config->churn.straggle = 1.0;
        config->eval.mean_model = config->eval.consensus = true;
    }
    if (st == HDO_OK) st = hdo_run_create(&r, config, NULL, &e);
    if (st == HDO_OK) st = hdo_run_advance(r, 3, NULL, &e);
    hdo__free(config);
    if (st == HDO_OK) return r;
    hdo__bench_skip(b, c, st, &e);
    hdo_run_destroy(r);
    return NULL;
}

static void time_nodes(hdo_bench *b, const hdo_bench_case *c, bool idle, hdo_bench_fn fn, const char *what) {
    int n = c->p[0];
    hdo_run *r = open_quadratic(b, c, n / 2, n - n / 2, "forward-law", c->p[1], idle);
    if (r == NULL) return;
    hdo_bench_row row = hdo__bench_row(c, b->threads);
    snprintf(row.shape, sizeof row.shape, "%d nodes, d %d: %s", n, c->p[1], what);
    hdo__bench_time(b, fn, r, 3, &row);
    hdo__bench_emit(b, &row, "M/s", 1e-6 * n, "", 0.0); /* nodes */
    hdo_run_destroy(r);
}

void hdo__bench_nodes(hdo_bench *b, const hdo_bench_case *c) {
    time_nodes(b, c, false, hdo__bench_one_step, "one step of all");
}

static void meet_and_measure(void *run) {
    hdo__bench_one_step(run);
    hdo__bench_one_evaluation(run);
}

void hdo__bench_beyond(hdo_bench *b, const hdo_bench_case *c) {
    time_nodes(b, c, true, meet_and_measure, "matching, metrics");
}

void hdo__bench_dim(hdo_bench *b, const hdo_bench_case *c) {
    hdo_run *r = open_quadratic(b, c, 0, 2, c->text[0], c->p[0], false);
    if (r == NULL) return;
    hdo_bench_row row = hdo__bench_row(c, b->threads);
    snprintf(row.shape, sizeof row.shape, "2 nodes, d %d: step and average", c->p[0]);
    hdo__bench_time(b, hdo__bench_one_step, r, 3, &row);
    hdo__bench_emit(b, &row, "M/s", 2e-6 * c->p[0], "", 0.0); /* coordinates */
    hdo_run_destroy(r);
}

/* Two rows: one thread, then all; the rate of the second is the gain, its limit the number of threads. */
void hdo__bench_threads(hdo_bench *b, const hdo_bench_case *c) {
    bool step = strcmp(c->text[1], "step") == 0;
    double alone = 0.0;
    int most = hdo__cpu_count();
    for (int threads = 1; threads <= most; threads += most > 1 ? most - 1 : 1) {
        hdo_error e = {0};
        hdo_run *r = NULL;
        hdo_config *config = hdo__alloc(sizeof *config);
        hdo_status st = config != NULL ? hdo__bench_config(config, c->text[0], threads, &e) : HDO_E_MEMORY;
        if (st == HDO_OK) st = hdo_run_create(&r, config, NULL, &e);
        if (st == HDO_OK && step) st = hdo_run_advance(r, 3, NULL, &e);
        hdo__free(config);
        if (st != HDO_OK) {
            hdo__bench_skip(b, c, st, &e);
            hdo_run_destroy(r);
            return;
        }
        hdo_bench_row row = hdo__bench_row(c, threads);
        snprintf(row.shape, sizeof row.shape, "%d nodes, d %zu", r->population.n, r->problem.objective->d);
        hdo__bench_time(b, step ? hdo__bench_one_step : hdo__bench_one_evaluation, r, 3, &row);
        if (threads == 1) alone = row.s.median;
        hdo__bench_emit(b, &row, "x", alone, "threads", threads);
        hdo_run_destroy(r);
    }
}
