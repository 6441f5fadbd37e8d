/* SPDX-License-Identifier: Apache-2.0 — the nodes: creation, memory, the common start. */
#include "population/population.h"

#include <math.h>
#include <string.h>

#include "base/sha256.h"

/* Rows of the model matrix begin at cache lines; what lies between them is never touched. */
static hdo_models shape_of(const hdo_problem *problem, const hdo_transport *t) {
    const hdo_objective *f = problem->objective;
    size_t len = f->d + f->n_buf, line = HDO_ALIGN / sizeof(float);
    bool private_buffers = problem->config->model.buffers.id == HDO_BUFFERS_PRIVATE;
    return (hdo_models){.ld = (len + line - 1) / line * line,
                        .len = private_buffers ? f->d : len,
                        .first = t->first,
                        .count = t->count};
}

hdo_status hdo__population_init(hdo_population *p, const hdo_problem *problem, hdo_transport *t, const hdo_log *log,
                                hdo_error *e) {
    const hdo_config *c = problem->config;
    *p = (hdo_population){.problem = problem,
                          .transport = t,
                          .log = log,
                          .n = problem->n,
                          .n_classes = problem->n_classes,
                          .models = shape_of(problem, t),
                          .slow = 1.0};
    hdo_status st = hdo__population_wire_classes(p, e);
    if (st == HDO_OK) st = hdo__mixer_init_config(&p->mixer, c, p->n, e);
    const hdo_choice *q = &c->mixing.partners;
    if (st == HDO_OK && problem->n_classes > 1)
        hdo__mixer_classes(&p->mixer, p->n_classes, problem->class_first, q->id == HDO_PARTNERS_OWN ? q->arg : 0.0);
    return st == HDO_OK ? hdo__churn_init(&p->churn, c, p->n, e) : st;
}

size_t hdo__population_work_bytes(const hdo_population *p) {
    const hdo_objective *f = p->problem->objective;
    size_t most = 0, row = hdo__arena_round(p->models.ld * sizeof(float));
    /* an estimate; and a copy of the model (mpi.async, fleet) or a second estimate (noise) */
    bool copied = p->problem->config->mpi.async || p->problem->config->engine.id == HDO_ENGINE_FLEET;
    if (copied || hdo__population_uses_noise(p)) row *= 2;
    for (int k = 0; k < p->n_classes; k++) {
        const hdo_class *c = &p->classes[k];
        bool here = c->first + c->count > p->models.first && c->first < p->models.first + p->models.count;
        if (!here) continue;
        size_t need = row + hdo__problem_batch_bytes(p->problem, c->batch) +
                      hdo__estimator_work_bytes(&c->estimator, f, c->batch) + hdo__update_work_bytes(f->d);
        if (need > most) most = need;
    }
    return most;
}

bool hdo__population_has_momentum(const hdo_population *p) {
    bool any = false;
    for (int k = 0; k < p->n_classes; k++) any = any || p->classes[k].update.momentum > 0.0;
    return any;
}

static bool has_time_model(const hdo_population *p) {
    bool any = false;
    for (int k = 0; k < p->n_classes; k++) {
        const hdo_class_config *c = &p->problem->config->population[k];
        any = any || c->forward_s > 0.0 || c->backward_s > 0.0 || c->jvp_s > 0.0 || c->latency_s > 0.0 ||
              c->bandwidth > 0.0;
    }
    return any;
}

/* One block of memory that is needed only if `wanted`. False: out of memory. */
static bool get(void *out, bool wanted, size_t bytes) {
    void *m = wanted ? hdo__alloc(bytes) : NULL;
    memcpy(out, &m, sizeof m);
    return !wanted || m != NULL;
}

hdo_status hdo__population_reserve(hdo_population *p, hdo_error *e) {
    size_t n = (size_t)p->n, count = (size_t)p->models.count, row = p->models.ld * sizeof(float);
    bool momentum = hdo__population_has_momentum(p);
    bool ok = get(&p->momentum, momentum, count * row) && get(&p->batches, true, count * sizeof(int64_t)) &&
              get(&p->clock_s, has_time_model(p), n * sizeof(double)) &&
              get(&p->y, p->problem->config->eval.weighted > 0.0, row) &&
              get(&p->fresh, p->churn.active && p->churn.fresh, row) && get(&p->active, true, n * sizeof(int32_t)) &&
              get(&p->own, true, count * sizeof(int32_t)) && get(&p->result, true, n * sizeof(hdo_node_result)) &&
              get(&p->returned, true, n * sizeof(int32_t)) && get(&p->mine, true, (n / 2 + 1) * sizeof(float *)) &&
              get(&p->peer, true, (n / 2 + 1) * sizeof(float *)) &&
              (p->transport->alone || hdo__mean_init(&p->mean, p->models.ld) == HDO_OK);
    if (!ok) {
        return hdo__fail(e, HDO_E_MEMORY, "out of memory: %d nodes of %zu numbers need %.1f GB", p->models.count,
                         p->models.ld, (double)(count * row * (momentum ? 2 : 1)) / 1e9);
    }
    for (int i = 0; i < p->n; i++) p->result[i].g2 = HDO_NO_ESTIMATE;
    return HDO_OK;
}

/* resnet18 is there to be fine-tuned; from a random start it is another experiment. */
static void say_random_start(const hdo_population *p) {
    const hdo_config *c = p->problem->config;
    if (strcmp(c->model.name, "resnet18") != 0 || c->data.pretext.id != HDO_PRETEXT_NONE) return;
    hdo__log(p->log, HDO_LOG_WARN,
             "model.weights is empty, so resnet18 starts from random weights, not from ImageNet's: this is not "
             "fine-tuning. With https://download.pytorch.org/models/resnet18-f37072fd.pth at hand:\n"
             "  tools/pth2safetensors.py resnet18-f37072fd.pth resnet18.safetensors\n"
             "  hdo run ... --init resnet18.safetensors\n"
             "Without: hdo run e3-start -o start && hdo weights convert start --node mean -o start.safetensors "
             "learns a start from images alone");
}

/* All nodes start at the same random point (HDO, section 3), or from a file of weights. */
hdo_status hdo__population_start(hdo_population *p, hdo_error *e) {
    const char *weights = p->problem->config->model.weights;
    hdo_weights_report report = {0};
    hdo_status st = hdo__problem_start(p->problem, p->models.X, &report, e);
    if (st != HDO_OK) return st;
    if (weights[0] != '\0') {
        hdo__log(p->log, HDO_LOG_INFO,
                 "weights from %s: %d tensors loaded (%zu numbers), %d initialised, %d skipped%s%s", weights,
                 report.loaded, report.numbers, report.initialised, report.skipped, report.text[0] != '\0' ? "\n" : "",
                 report.text);
    } else {
        say_random_start(p);
    }
    size_t len = p->problem->objective->d + p->problem->objective->n_buf;
    if (p->fresh != NULL) memcpy(p->fresh, p->models.X, len * sizeof(float));
    for (int i = 1; i < p->models.count; i++)
        memcpy(p->models.X + (size_t)i * p->models.ld, p->models.X, len * sizeof(float));
    return hdo__mixer_spectrum(&p->mixer, &p->spectrum);
}

void hdo__population_clear(hdo_population *p) {
    for (int k = 0; k < p->n_classes; k++) hdo__schedule_clear(&p->classes[k].schedule);
    hdo__churn_clear(&p->churn);
    hdo__mixer_clear(&p->mixer);
    hdo__mean_clear(&p->mean);
    hdo__free(p->momentum);
    hdo__free(p->batches);
    hdo__free(p->clock_s);
    hdo__free(p->y);
    hdo__free(p->fresh);
    hdo__free(p->active);
    hdo__free(p->own);
    hdo__free(p->result);
    hdo__free(p->returned);
    hdo__free(p->mine);
    hdo__free(p->peer);
    *p = (hdo_population){0};
}

/* Which bits a NaN has depends on the vector unit, so all of them count as the same. */
static void hash_floats(hdo_sha256 *sha, const float *x, size_t n) {
    float block[1024];
    for (size_t at = 0; at < n;) {
        size_t k = n - at < 1024 ? n - at : 1024;
        for (size_t i = 0; i < k; i++) block[i] = isnan(x[at + i]) ? NAN : x[at + i];
        hdo__sha256_update(sha, block, k * sizeof(float));
        at += k;
    }
}

void hdo__population_hash(void *ctx, void *v, size_t first, size_t count) {
    const hdo_population *p = ctx;
    (void)first;
    (void)count;
    size_t len = p->problem->objective->d + p->problem->objective->n_buf;
    for (int i = 0; i < p->models.count; i++) hash_floats(v, p->models.X + (size_t)i * p->models.ld, len);
}
