/* SPDX-License-Identifier: Apache-2.0
 *
 * The experiments: one node-step (batch, estimate, momentum, update and everything the loop does around it), one
 * evaluation of one node on the whole validation set, one whole run, and the wiring of a run. Steps run at a rate so
 * small that the model stays where it started: every step costs the same and none diverges.
 *
 * Rates: operations are the multiply-adds of linear, convolution and attention layers (taps on padding included), three
 * passes for a gradient, rv + 1 for one-sided differences; exponentials, activations and random numbers are not counted
 * and show as a lower fraction. Rows of estimators that draw rv d numbers count those numbers instead.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lab/bench/bench_internal.h"
#include "hdo/experimental/all.h"

hdo_status hdo__bench_set(hdo_config *c, const char *class_name, const char *key, const char *value, hdo_error *e) {
    char full[96];
    snprintf(full, sizeof full, "population.%s.%s", class_name, key);
    return hdo_config_set_from(c, full, value, HDO_FROM_FLAG, e);
}

hdo_status hdo__bench_config(hdo_config *c, const char *preset, int threads, hdo_error *e) {
    const char *text = hdo_preset(preset);
    if (text == NULL) return hdo__fail(e, HDO_E_CONFIG, "there is no preset '%s'", preset);
    hdo_config_default(c);
    hdo_status st = hdo_config_load_bytes(c, preset, text, strlen(text), e);
    if (st != HDO_OK) return st;
    hdo_config_as_base(c);
    c->steps = 1000000000;
    c->warmup = 0;
    c->threads = threads;
    c->eval.every = 0;
    c->eval.mean_model = c->eval.consensus = false;
    for (int k = 0; k < c->n_classes; k++) {
        hdo_class_config *p = &c->population[k];
        p->lr = (hdo_choice){HDO_NUMBER, 1e-6};
        p->schedule = (hdo_choice){HDO_SCHEDULE_CONSTANT, 0.0};
    }
    return HDO_OK;
}

/* One node of one class. */
static hdo_status one_node(hdo_config *c, const hdo_bench_case *q, int threads, hdo_error *e) {
    char population[HDO_NAME_MAX + 4], rv[16];
    hdo_status st = hdo__bench_config(c, q->text[0], threads, e);
    snprintf(population, sizeof population, "1%s", q->text[1]);
    snprintf(rv, sizeof rv, "%d", q->p[0]);
    if (st == HDO_OK) st = hdo_config_population(c, population, e);
    if (st == HDO_OK && q->text[2] != NULL) st = hdo__bench_set(c, q->text[1], "estimator", q->text[2], e);
    if (st == HDO_OK && q->p[0] > 0) st = hdo__bench_set(c, q->text[1], "rv", rv, e);
    if (st == HDO_OK && q->text[2] != NULL && strcmp(q->text[2], "complex-step") == 0) {
        st = hdo__bench_set(c, q->text[1], "nu", "1e-20", e);
    }
    return st;
}

void hdo__bench_one_step(void *run) {
    hdo_error e;
    if (hdo_run_advance(run, 1, NULL, &e) != HDO_OK) abort(); /* wired and stepped before: cannot fail */
}

void hdo__bench_one_evaluation(void *run) {
    hdo_run *r = run;
    hdo_row row = {0};
    hdo_error e;
    if (hdo__metrics_evaluate(&r->metrics, &row, &e) != HDO_OK) abort();
}

/* Creates the run of a case; skips the case and gives NULL if that fails. */
static hdo_run *open_run(hdo_bench *b, const hdo_bench_case *c, int threads) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    hdo_config *config = hdo__alloc(sizeof *config);
    hdo_status st = config != NULL ? one_node(config, c, threads, &e) : HDO_E_MEMORY;
    if (st == HDO_OK) st = hdo_run_create(&r, config, NULL, &e);
    hdo__free(config);
    if (st != HDO_OK) hdo__bench_skip(b, c, st, &e);
    return r;
}

void hdo__bench_step(hdo_bench *b, const hdo_bench_case *c) {
    hdo_run *r = open_run(b, c, b->asked);
    if (r == NULL) return;
    const hdo_class *k = &r->population.classes[0];
    const char *name = k->estimator.ops->name;
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    hdo_status st = hdo_run_advance(r, 3, &why, &e); /* evaluates once; the first steps decide about threads */
    if (st == HDO_OK && why != HDO_RUNNING) st = hdo__fail(&e, HDO_E_FAILED, "the run ended as %s", hdo_stop_name(why));
    if (st != HDO_OK) {
        hdo__bench_skip(b, c, st, &e);
    } else {
        hdo_bench_row row = hdo__bench_row(c, b->threads);
        double flops = hdo__bench_forward_flops(r->problem.objective) * k->batch * 1e-9,
               d = (double)r->problem.objective->d;
        int n = snprintf(row.shape, sizeof row.shape, "d %zu, batch %d", r->problem.objective->d, k->batch);
        if (k->estimator.ops->zeroth) snprintf(row.shape + n, sizeof row.shape - (size_t)n, ", rv %d", k->estimator.rv);
        hdo__bench_time(b, hdo__bench_one_step, r, 3, &row);
        if (strcmp(name, "forward-sim") == 0) {
            hdo__bench_emit(b, &row, "G/s", 1e-9 * d * k->estimator.rv, "normals", b->normals * b->threads);
        } else {
            bool sided = strcmp(name, "fd") == 0, central = strcmp(name, "fd-central") == 0;
            bool gradient = strcmp(name, "fo") == 0 || strcmp(name, "forward-law") == 0;
            double passes = gradient  ? 3.0
                            : sided   ? 1.0 + k->estimator.rv
                            : central ? 1.0 + 2.0 * k->estimator.rv
                                      : 0.0;
            hdo__bench_emit(b, &row, passes > 0.0 ? "GFLOP/s" : "", flops * passes, passes > 0.0 ? "fma" : "",
                            passes > 0.0 ? b->fma * b->threads : 0.0);
        }
    }
    hdo_run_destroy(r);
}

void hdo__bench_eval(hdo_bench *b, const hdo_bench_case *c) {
    hdo_run *r = open_run(b, c, b->asked);
    if (r == NULL) return;
    hdo_bench_row row = hdo__bench_row(c, b->threads);
    int64_t samples = r->problem.val != NULL ? r->problem.val->count : 0;
    snprintf(row.shape, sizeof row.shape, "d %zu, %lld samples", r->problem.objective->d, (long long)samples);
    hdo__bench_time(b, hdo__bench_one_evaluation, r, 3, &row);
    hdo__bench_emit(b, &row, "GFLOP/s", 1e-9 * hdo__bench_forward_flops(r->problem.objective) * (double)samples, "fma",
                    b->fma * b->threads);
    hdo_run_destroy(r);
}

/* ---- a whole run, as the preset says ---- */

typedef struct whole {
    const hdo_config *config;
    hdo_error e;
    hdo_status st;
    hdo_row last;
    double flops; /* of the evaluations */
} whole;

static void do_whole(void *p) {
    whole *w = p;
    hdo_run *r = NULL;
    hdo_stop why = HDO_RUNNING;
    w->st = hdo_run_create(&r, w->config, NULL, &w->e);
    while (w->st == HDO_OK && why == HDO_RUNNING) w->st = hdo_run_advance(r, 100, &why, &w->e);
    if (w->st == HDO_OK) {
        const hdo_config *c = w->config;
        int64_t total = c->steps + c->warmup,
                evaluations = 1 + (c->eval.every > 0 ? (total + c->eval.every - 1) / c->eval.every : 1);
        w->last = *hdo_run_last_row(r);
        w->flops = 1e-9 * hdo__bench_forward_flops(r->problem.objective) *
                   (double)(r->problem.val != NULL ? r->problem.val->count : 0) * (double)evaluations *
                   (double)(r->population.n + (c->eval.mean_model ? 1 : 0));
    }
    hdo_run_destroy(r);
}

void hdo__bench_whole(hdo_bench *b, const hdo_bench_case *c) {
    hdo_config *config = hdo__alloc(sizeof *config);
    whole w = {.config = config, .st = HDO_E_MEMORY};
    if (config != NULL) {
        const char *text = hdo_preset(c->text[0]);
        hdo_config_default(config);
        w.st = hdo_config_load_bytes(config, c->text[0], text, strlen(text), &w.e);
        hdo_config_as_base(config);
        config->threads = b->asked;
        if (w.st == HDO_OK && c->text[2] != NULL)
            w.st = hdo__bench_set(config, c->text[1], "estimator", c->text[2], &w.e);
    }
    hdo_bench_row row = hdo__bench_row(c, b->threads);
    if (w.st == HDO_OK) hdo__bench_time(b, do_whole, &w, 1, &row);
    if (w.st != HDO_OK) {
        hdo__bench_skip(b, c, w.st, &w.e);
    } else {
        snprintf(row.shape, sizeof row.shape, "steps %.3g s, evaluation %.3g s", w.last.step_s, w.last.eval_s);
        hdo__bench_emit(b, &row, "GFLOP/s", w.flops, "fma", b->fma * b->threads);
    }
    hdo__free(config);
}

/* ---- wiring: what a run costs before its first step, data included ---- */

static void do_create(void *p) {
    whole *w = p;
    hdo_run *r = NULL;
    hdo_status st = hdo_run_create(&r, w->config, NULL, &w->e);
    hdo_run_destroy(r);
    if (st != HDO_OK) w->st = st;
}

void hdo__bench_create(hdo_bench *b, const hdo_bench_case *c) {
    hdo_config *config = hdo__alloc(sizeof *config);
    whole w = {.config = config, .st = HDO_E_MEMORY};
    if (config != NULL) w.st = hdo__bench_config(config, c->text[0], b->asked, &w.e);
    hdo_bench_row row = hdo__bench_row(c, b->threads);
    if (w.st == HDO_OK) hdo__bench_time(b, do_create, &w, 3, &row);
    if (w.st != HDO_OK) {
        hdo__bench_skip(b, c, w.st, &w.e);
    } else {
        snprintf(row.shape, sizeof row.shape, "create and destroy");
        hdo__bench_emit(b, &row, "", 0.0, "", 0.0);
    }
    hdo__free(config);
}
