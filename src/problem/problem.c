/* SPDX-License-Identifier: Apache-2.0 — configuration -> data, shards, objective; batches and the starting point. */
#include "problem/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/own_call.h"
#include "data/own_data.h"
#include "objective/asked.h"
#include "objective/own_objective.h"
#include "plugin/plugin.h"

static hdo_table_def *own_objective(const hdo_config *c) {
    return hdo__own_find(c->own, HDO_OWN_OBJECTIVE, c->model.name);
}

static hdo_status data_of(const hdo_problem *p, hdo_dataset **train, hdo_dataset **val, hdo_error *e) {
    hdo_table_def *t = hdo__own_find(p->config->own, HDO_OWN_DATASET, p->config->data.name);
    return t != NULL ? hdo__own_data_open(t, &p->config->data, train, val, e)
                     : hdo__data_open(&p->config->data, train, val, e);
}

/* Only the samples' numbers: of the configured data, or of data that are the objective's own. */
static hdo_status open_indices(hdo_problem *p, const hdo_table_def *t, hdo_error *e) {
    const hdo_objective_def *d = &t->def.objective;
    hdo_dataset *inner[2] = {NULL, NULL}, **set[2] = {&p->train, &p->val};
    int64_t count[2] = {d->train_count, d->val_count}, limit[2] = {p->config->data.train, p->config->data.val};
    hdo_status st = d->train_count > 0 ? HDO_OK : data_of(p, &inner[0], &inner[1], e);
    for (int k = 0; k < 2 && st == HDO_OK; k++) {
        char text[HDO_IDENTITY_MAX + 128];
        if (limit[k] > 0 && limit[k] < count[k]) count[k] = limit[k];
        snprintf(text, sizeof text, "%s %s %d %lld", t->name, t->identity, k, (long long)count[k]);
        st = hdo__index_set_create(set[k], inner[k], count[k], text, e);
        if (st == HDO_OK) inner[k] = NULL;
    }
    hdo__dataset_destroy(inner[0]);
    hdo__dataset_destroy(inner[1]);
    return st;
}

bool hdo__problem_has_data(const hdo_config *c) {
    const hdo_table_def *t = own_objective(c);
    if (t != NULL) return (t->def.objective.flags & (unsigned)(HDO_WANT_DATA | HDO_WANT_INDICES)) != 0;
    const hdo_objective_entry *entry = hdo__objective_find(c->model.name);
    return entry != NULL && entry->needs_data;
}

hdo_status hdo__problem_fail(const hdo_problem *p, hdo_status st, hdo_error *e, const char *fmt, ...) {
    hdo_complaint *from[] = {p->objective != NULL ? p->objective->complaint : NULL, p->complaint,
                             p->train != NULL ? p->train->complaint : NULL, p->val != NULL ? p->val->complaint : NULL};
    for (size_t k = 0; k < sizeof from / sizeof from[0]; k++)
        if (hdo__complaint_say(from[k], st, e)) return st;
    char text[HDO_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return hdo__fail(e, st, "%s", text);
}

static hdo_status open_data(hdo_problem *p, const hdo_table_def *own, hdo_error *e) {
    if (!hdo__problem_has_data(p->config)) return HDO_OK;
    bool indices = own != NULL && (own->def.objective.flags & (unsigned)HDO_WANT_INDICES) != 0;
    hdo_status st = indices ? open_indices(p, own, e) : data_of(p, &p->train, &p->val, e);
    if (st == HDO_OK && p->train == NULL) {
        st = hdo__fail(e, HDO_E_CONFIG, "model '%s' needs data, but data.name is 'none'", p->config->model.name);
    }
    return st;
}

static hdo_status open_shards(hdo_problem *p, hdo_error *e) {
    const hdo_config *c = p->config;
    int64_t count[HDO_CLASSES_MAX];
    if (p->train == NULL) return HDO_OK;
    for (int k = 0; k < c->n_classes; k++) count[k] = c->population[k].count;
    hdo_status st = hdo__shards_create(&p->shards, &c->data.split, (uint64_t)c->seed, c->n_classes, count, p->train, e);
    if (st == HDO_OK && !c->data.reshuffle) hdo__shards_fix_order(p->shards);
    if (st == HDO_OK && hdo__complaint_say(p->train->complaint, HDO_E_OBJECTIVE, e)) st = HDO_E_OBJECTIVE; /* labels */
    return st;
}

/* The plug-ins of a configuration that did not go through a run. */
static hdo_status resolve(hdo_problem *p, hdo_error *e) {
    p->resolved = malloc(sizeof *p->resolved);
    if (p->resolved == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the configuration");
    *p->resolved = *p->config;
    hdo__own_keep(p->resolved->own);
    p->config = p->resolved;
    hdo_status st = hdo__plugins_resolve(p->resolved, e);
    return st == HDO_OK ? hdo_config_check(p->resolved, e) : st;
}

/* ---- the starting point ---- */

/* model.weights: tensors by name over the random start. */
static hdo_status load_weights(const hdo_problem *p, float *x, hdo_weights_report *report, hdo_error *e) {
    const char *path = p->config->model.weights;
    hdo_tensors *t = NULL;
    hdo_status st = hdo_tensors_open(&t, path, e);
    if (st != HDO_OK) {
        hdo__error_prefix(e, "model.weights");
        return st;
    }
    st = hdo__weights_load(p->objective, t, p->train != NULL ? p->train->classes : 0, x, report, e);
    hdo_tensors_close(t);
    if (st != HDO_OK) hdo__error_prefix(e, "model.weights: %s", path);
    return st;
}

/* The whole model: drawn from the seed, then what model.weights has. */
static hdo_status whole_start(const hdo_problem *p, float *model, hdo_weights_report *report, hdo_error *e) {
    hdo_status st = p->objective->ops->init(p->objective, (uint64_t)p->config->seed, model);
    if (st != HDO_OK) return hdo__problem_fail(p, st, e, "the initial model could not be made");
    return p->config->model.weights[0] != '\0' ? load_weights(p, model, report, e) : HDO_OK;
}

/* model.train: what is not trained is one model for all nodes. */
static hdo_status open_base(hdo_problem *p, hdo_error *e) {
    hdo_whole whole = hdo__objective_whole(p->objective);
    p->base = hdo__alloc((whole.d + whole.n_buf) * sizeof(float));
    if (p->base == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a model of %zu numbers", whole.d);
    hdo_status st = whole_start(p, p->base, &p->weights, e);
    if (st != HDO_OK) return st;
    hdo_objective *f = p->objective;
    f->ops->adopt(f, p->base);
    if (!p->config->data.augment) st = f->ops->features(f, &p->train); /* crops and flips differ every time */
    if (st == HDO_OK) st = f->ops->features(f, &p->val);
    return st == HDO_OK ? st : hdo__fail(e, st, "out of memory for the features of frozen layers");
}

static hdo_status problem_open(hdo_problem *p, const hdo_config *c, bool shards, hdo_error *e) {
    *p = (hdo_problem){.config = c, .n_classes = c->n_classes};
    if (hdo__plugins_wanted(c)) {
        hdo_status st = resolve(p, e);
        if (st != HDO_OK) return st;
        c = p->config;
    }
    if (hdo__own_find(c->own, HDO_OWN_ESTIMATOR, NULL) != NULL) {
        p->complaint = hdo__complaint_new();
        if (p->complaint == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the problem");
    }
    for (int k = 0; k < c->n_classes; k++) p->class_first[k + 1] = p->class_first[k] + (int)c->population[k].count;
    p->n = p->class_first[c->n_classes];
    const hdo_objective_entry *entry = hdo__objective_find(c->model.name);
    hdo_table_def *own = own_objective(c);
    if (entry == NULL && own == NULL) return hdo__fail(e, HDO_E_CONFIG, "model '%s' does not exist", c->model.name);
    hdo_status st = open_data(p, own, e);
    if (st == HDO_OK && shards) st = open_shards(p, e);
    if (st != HDO_OK) return st;
    if (own != NULL && hdo__own_is_asked(own)) return hdo__asked_create(own, p->n, &p->objective, e);
    if (own != NULL) return hdo__own_objective_create(own, &p->objective, e);
    hdo_objective_args args = {.config = c, .train = p->train, .val = p->val, .n = p->n};
    st = entry->create(&args, &p->objective, e);
    return st == HDO_OK && p->objective->whole != NULL ? open_base(p, e) : st;
}

hdo_status hdo__problem_open(hdo_problem *p, const hdo_config *c, hdo_error *e) {
    return problem_open(p, c, true, e);
}

hdo_status hdo__problem_open_whole(hdo_problem *p, const hdo_config *c, hdo_error *e) {
    return problem_open(p, c, false, e);
}

void hdo__problem_close(hdo_problem *p) {
    hdo__objective_destroy(p->objective);
    hdo__complaint_free(p->complaint);
    if (p->shards != NULL) hdo__shards_destroy(p->shards);
    hdo__dataset_destroy(p->train);
    hdo__dataset_destroy(p->val);
    if (p->resolved != NULL) hdo__own_drop(p->resolved->own);
    free(p->resolved);
    hdo__free(p->base);
    *p = (hdo_problem){0};
}

int hdo__problem_class(const hdo_problem *p, int node) {
    int k = 0;
    while (k + 1 < p->n_classes && node >= p->class_first[k + 1]) k++;
    return k;
}

/* ---- batches ---- */

static void gather(const hdo_problem *p, hdo_batch *b, const int64_t *idx, const hdo_stream *augment, hdo_arena *a) {
    int32_t *label = hdo__arena_take(a, (size_t)b->size * sizeof(int32_t));
    void *in = hdo__arena_take(a, (size_t)b->size * (size_t)p->train->n_in * sizeof(float));
    hdo__batch_gather(b, p->train, idx, augment, in, label);
}

hdo_batch hdo__problem_batch(const hdo_problem *p, int node, int size, int64_t number, int64_t noise_step,
                             hdo_arena *a) {
    uint64_t seed = (uint64_t)p->config->seed;
    hdo_batch b = {.size = size, .node = node, .seed = seed, .step = noise_step, .train = true};
    if (p->train == NULL) return b;
    int64_t *idx = hdo__arena_take(a, (size_t)size * sizeof(int64_t));
    hdo__sampler_batch(p->shards, seed, node, number, size, idx);
    hdo_stream augment = hdo__stream(seed, HDO_RNG_AUGMENT, (uint32_t)node, (uint64_t)number, 0);
    gather(p, &b, idx, p->config->data.augment ? &augment : NULL, a);
    return b;
}

hdo_batch hdo__problem_samples(const hdo_problem *p, int node, const int64_t *idx, int size, hdo_arena *a) {
    hdo_batch b = {.size = size, .node = node, .seed = (uint64_t)p->config->seed, .train = true};
    if (p->train != NULL) gather(p, &b, idx, NULL, a);
    return b;
}

size_t hdo__problem_batch_bytes(const hdo_problem *p, int size) {
    return hdo__batch_bytes(p->train, size);
}

/* ---- where nodes start ---- */

hdo_status hdo__problem_start(const hdo_problem *p, float *x, hdo_weights_report *report, hdo_error *e) {
    const hdo_objective *f = p->objective;
    if (f->whole == NULL) return whole_start(p, x, report, e);
    f->ops->part(f, (uint64_t)p->config->seed, p->base, x);
    if (report != NULL) *report = p->weights;
    return HDO_OK;
}
