/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration -> objects, top to bottom, once: transport (which nodes are local), data, shards, objective, classes
 * with their estimators, mixing, metrics; then everybody is asked for scratch bytes, rows and arenas are allocated and
 * the models initialised. After this nothing is allocated.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/formulas.h"
#include "base/arena.h"
#include "base/sha256.h"
#include "objective/weights.h"
#include "run/run_internal.h"

static void warn(void *ctx, const char *message) {
    hdo__run_log(ctx, HDO_LOG_WARN, "%s", message);
}

/* What must be equal on all ranks: everything but the number of threads. */
static hdo_status hash_config(const hdo_run *r, unsigned char out[32], hdo_error *e) {
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the configuration");
    *c = r->config;
    c->threads = 0;
    char *text = hdo_config_dump(c, false);
    free(c);
    if (text == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the configuration text");
    hdo_sha256 h;
    hdo__sha256_init(&h);
    hdo__sha256_update(&h, HDO_VERSION, sizeof HDO_VERSION);
    hdo__sha256_update(&h, text, strlen(text));
    hdo__sha256_final(&h, out);
    free(text);
    return HDO_OK;
}

static hdo_status wire_transport(hdo_run *r, int n, hdo_error *e) {
    if (r->config.engine.id != HDO_ENGINE_MPI) return hdo__inproc_create(&r->transport, n, e);
    hdo_transport_setup s = {.deadline_s = r->config.mpi.deadline_s,
                             .chunk = (size_t)r->config.mpi.chunk,
                             .shared = r->config.mpi.shared && !r->config.mpi.async,
                             .warn = warn,
                             .ctx = r};
    hdo_status st = hash_config(r, s.same, e);
    if (st == HDO_OK) st = hdo__mpi_create(&r->transport, &s, e);
    if (st != HDO_OK) return st;
    st = hdo__run_spread(&r->config, r->transport, e);
    if (st != HDO_OK && r->transport->rank != 0) hdo__fail(e, st, "%s", ""); /* all ranks found the same: one says it */
    return st;
}

static hdo_status wire_data(hdo_run *r, hdo_error *e) {
    const hdo_objective_entry *entry = hdo__objective_find(r->config.model.name);
    if (entry == NULL) return hdo__fail(e, HDO_E_CONFIG, "model '%s' does not exist", r->config.model.name);
    if (entry->needs_data) {
        hdo_status st = hdo__data_open(&r->config.data, &r->train, &r->val, e);
        if (st != HDO_OK) return st;
        if (r->train == NULL) {
            return hdo__fail(e, HDO_E_CONFIG, "model '%s' needs data, but data.name is 'none'", r->config.model.name);
        }
        int64_t count[HDO_CLASSES_MAX];
        for (int k = 0; k < r->config.n_classes; k++) count[k] = r->config.population[k].count;
        st = hdo__shards_create(&r->shards, &r->config.data.split, (uint64_t)r->config.seed, r->config.n_classes, count,
                                r->train, e);
        if (st != HDO_OK) return st;
        if (!r->config.data.reshuffle) hdo__shards_fix_order(r->shards);
    }
    hdo_problem p = {.config = &r->config, .train = r->train, .val = r->val, .n = r->transport->n};
    return entry->create(&p, &r->objective, e);
}

static hdo_status theorem_rate(const hdo_run *r, const char *class_name, double *lr, hdo_error *e) {
    const hdo_model_config *m = &r->config.model;
    double ell = strcmp(m->name, "quadratic") == 0 ? m->convexity : strcmp(m->name, "logistic-l2") == 0 ? m->l2 : 0.0;
    if (!(ell > 0.0)) {
        return hdo__fail(
            e, HDO_E_CONFIG,
            "population.%s.lr is 'theorem', which needs a strongly convex model (quadratic, logistic-l2) with "
            "a positive constant; give a number instead",
            class_name);
    }
    double T = (double)r->config.steps, n = (double)r->transport->n;
    if (T < 2.0)
        return hdo__fail(e, HDO_E_CONFIG, "population.%s.lr is 'theorem', which needs at least 2 steps", class_name);
    bool pairs = strcmp(r->config.mixing.kind, "pairwise") == 0;
    *lr = hdo_theorem_rate(pairs, n, T, ell);
    return HDO_OK;
}

static hdo_status wire_rate(hdo_run *r, hdo_class *c, const hdo_class_config *cc, hdo_error *e) {
    c->schedule =
        (hdo_schedule){.kind = cc->schedule.id, .lr = cc->lr.arg, .warmup = r->config.warmup, .steps = r->config.steps};
    c->noise = 1.0;
    c->balanced = cc->lr.id == HDO_LR_BALANCED;
    if (cc->lr.id == HDO_LR_THEOREM) return theorem_rate(r, cc->name, &c->schedule.lr, e);
    if (cc->schedule.id == HDO_SCHEDULE_FILE) return hdo__schedule_load(&c->schedule, cc->schedule_file, e);
    return HDO_OK;
}

static hdo_status wire_classes(hdo_run *r, hdo_error *e) {
    int first = 0;
    r->n_classes = r->config.n_classes;
    for (int k = 0; k < r->n_classes; k++) {
        const hdo_class_config *cc = &r->config.population[k];
        hdo_class *c = &r->classes[k];
        *c = (hdo_class){.first = first, .count = (int)cc->count, .batch = (int)cc->batch};
        first += c->count;
        const hdo_estimator_ops *ops = hdo__estimator_find(cc->estimator);
        if (ops == NULL) return hdo__fail(e, HDO_E_CONFIG, "estimator '%s' does not exist", cc->estimator);
        c->estimator = hdo__estimator_make(ops, cc);
        hdo_status st = hdo__estimator_check(&c->estimator, r->objective, cc->name, e);
        if (st != HDO_OK) return st;
        st = wire_rate(r, c, cc, e);
        if (st != HDO_OK) return st;
        c->update = (hdo_update){
            .momentum = cc->momentum, .momentum_kind = cc->momentum_kind.id, .weight_decay = cc->weight_decay};
    }
    return HDO_OK;
}

static size_t scratch_bytes(const hdo_run *r) {
    size_t most = hdo__metrics_work_bytes(&r->metrics);
    size_t row = hdo__arena_round(r->rows.ld * sizeof(float));
    /* async: works on a copy; noise: the difference of two estimates */
    if (r->config.mpi.async || hdo__run_uses_noise(r)) row *= 2;
    for (int k = 0; k < r->n_classes; k++) {
        const hdo_class *c = &r->classes[k];
        if (c->first + c->count <= r->rows.first || c->first >= r->rows.first + r->rows.count) continue; /* none here */
        size_t need = row + hdo__batch_bytes(r->train, c->batch) +
                      hdo__estimator_work_bytes(&c->estimator, r->objective, c->batch) +
                      hdo__update_work_bytes(r->objective->d);
        if (need > most) most = need;
    }
    return most;
}

static bool has_time_model(const hdo_run *r) {
    bool any = false;
    for (int k = 0; k < r->n_classes; k++) {
        const hdo_class_config *c = &r->config.population[k];
        any = any || c->forward_s > 0.0 || c->backward_s > 0.0 || c->jvp_s > 0.0 || c->latency_s > 0.0 ||
              c->bandwidth > 0.0;
    }
    return any;
}

static hdo_status wire_memory(hdo_run *r, hdo_error *e) {
    int n = r->rows.count, mates = r->transport->host_ranks, cpus = hdo__cpu_count();
    if (mates > 1) cpus = hdo__cpu_count_shared(mates); /* ranks of one machine share it */
    int threads = (int)r->config.threads > 0 ? (int)r->config.threads : cpus;
    size_t cells = (size_t)n * r->rows.ld;
    bool momentum = false;
    for (int k = 0; k < r->n_classes; k++) momentum = momentum || r->classes[k].update.momentum > 0.0;
    bool curve = r->config.mpi.async && r->config.eval.every > 0 && r->transport->ranks > 1;
    size_t matrices = (momentum ? 3u : 2u) + (curve ? 1u : 0u); /* models, and those that arrive */
    if (hdo__run_steps_are_long(r)) matrices += momentum ? 2 : 1;
    hdo_status st = hdo__run_check_memory(r, matrices * cells * sizeof(float), scratch_bytes(r) * (size_t)threads, e);
    if (st != HDO_OK) return st;
    if (momentum) r->momentum = hdo__alloc(cells * sizeof(float));
    r->batches = hdo__alloc((size_t)n * sizeof(int64_t));
    r->result = hdo__alloc((size_t)r->mixer.n * sizeof(hdo_node_result));
    r->trail = hdo__alloc((size_t)r->mixer.n * sizeof(hdo_trail));
    r->own = hdo__alloc((size_t)n * sizeof(int32_t));
    r->active = hdo__alloc((size_t)r->mixer.n * sizeof(int32_t));
    r->returned = hdo__alloc((size_t)r->mixer.n * sizeof(int32_t));
    r->mine = hdo__alloc((size_t)(r->mixer.n / 2 + 1) * sizeof(float *));
    r->peer = hdo__alloc((size_t)(r->mixer.n / 2 + 1) * sizeof(float *));
    for (int i = 0; r->result != NULL && i < r->mixer.n; i++) r->result[i].g2 = HDO_NO_ESTIMATE;
    bool timed = has_time_model(r), weighted = r->config.eval.weighted > 0.0;
    if (timed) r->clock_s = hdo__alloc((size_t)r->mixer.n * sizeof(double));
    if (weighted) r->y = hdo__alloc(r->rows.ld * sizeof(float));
    bool fresh = r->churn.active && r->churn.fresh;
    if (fresh) r->fresh = hdo__alloc(r->rows.ld * sizeof(float));
    bool checked = r->config.mpi.async && r->config.eval.trace;
    if (checked) r->start = hdo__alloc(r->rows.ld * sizeof(float));
    if (curve) r->seen = hdo__alloc(cells * sizeof(float));
    if (hdo__undo_init(r) != HDO_OK || (momentum && r->momentum == NULL) || r->batches == NULL || r->result == NULL ||
        r->trail == NULL || r->active == NULL || r->returned == NULL || (timed && r->clock_s == NULL) ||
        (weighted && r->y == NULL) || (fresh && r->fresh == NULL) || (checked && r->start == NULL) ||
        (curve && r->seen == NULL) || r->own == NULL || r->mine == NULL || r->peer == NULL) {
        return hdo__fail(e, HDO_E_MEMORY, "out of memory: %d nodes of %zu numbers need %.1f GB", n, r->rows.ld,
                         (double)(cells * sizeof(float) * (momentum ? 2 : 1)) / 1e9);
    }
    if (hdo__team_init(&r->team, threads, scratch_bytes(r)) != HDO_OK) {
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for scratch of %d threads (%.1f MB each)", threads,
                         (double)scratch_bytes(r) / 1e6);
    }
    return HDO_OK;
}

/* model.weights: tensors by name over the random start; says what was loaded, skipped and initialised. */
static hdo_status load_weights(hdo_run *r, float *x, hdo_error *e) {
    const char *path = r->config.model.weights;
    hdo_weights_report report = {0};
    hdo_tensors *t = NULL;
    hdo_status st = hdo_tensors_open(&t, path, e);
    if (st != HDO_OK) {
        hdo__error_prefix(e, "model.weights");
        return st;
    }
    st = hdo__weights_load(r->objective, t, r->train != NULL ? r->train->classes : 0, x, &report, e);
    hdo_tensors_close(t);
    if (st != HDO_OK) {
        hdo__error_prefix(e, "model.weights: %s", path);
        return st;
    }
    hdo__run_log(r, HDO_LOG_INFO, "weights from %s: %d tensors loaded (%zu numbers), %d initialised, %d skipped%s%s",
                 path, report.loaded, report.numbers, report.initialised, report.skipped,
                 report.text[0] != '\0' ? "\n" : "", report.text);
    return HDO_OK;
}

/* resnet18 is there to be fine-tuned; from a random start it is another experiment. */
static void say_random_start(hdo_run *r) {
    if (strcmp(r->config.model.name, "resnet18") != 0 || r->config.data.pretext.id != HDO_PRETEXT_NONE) return;
    hdo__run_log(r, HDO_LOG_WARN,
                 "model.weights is empty, so resnet18 starts from random weights, not from ImageNet's: this is not "
                 "fine-tuning. With https://download.pytorch.org/models/resnet18-f37072fd.pth at hand:\n"
                 "  tools/pth2safetensors.py resnet18-f37072fd.pth resnet18.safetensors\n"
                 "  hdo run ... --init resnet18.safetensors\n"
                 "Without: hdo run e3-start -o start && hdo weights convert start --node mean -o start.safetensors "
                 "learns a start from images alone");
}

/* All nodes start at the same random point (HDO, section 3), or from a file of weights. */
static hdo_status init_models(hdo_run *r, hdo_error *e) {
    hdo_status st = r->objective->ops->init(r->objective, (uint64_t)r->config.seed, r->rows.X);
    if (st != HDO_OK) return hdo__fail(e, st, "the initial model could not be made");
    if (r->config.model.weights[0] != '\0') {
        st = load_weights(r, r->rows.X, e);
    } else if (r->transport->rank == 0) {
        say_random_start(r);
    }
    if (st != HDO_OK) return st;
    size_t len = r->objective->d + r->objective->n_buf;
    if (r->fresh != NULL) memcpy(r->fresh, r->rows.X, len * sizeof(float));
    for (int i = 1; i < r->rows.count; i++) memcpy(r->rows.X + (size_t)i * r->rows.ld, r->rows.X, len * sizeof(float));
    return HDO_OK;
}

/* Whatever a rank does for itself. */
static hdo_status wire_own(hdo_run *r, hdo_error *e) {
    int64_t n = 0;
    for (int k = 0; k < r->config.n_classes; k++) n += r->config.population[k].count;
    hdo_status st = wire_transport(r, (int)n, e);
    if (st == HDO_OK) st = wire_data(r, e);
    if (st != HDO_OK) return st;
    size_t len = r->objective->d + r->objective->n_buf, line = HDO_ALIGN / sizeof(float);
    r->rows =
        (hdo_rows){.ld = (len + line - 1) / line * line, .first = r->transport->first, .count = r->transport->count};
    r->rows.len = r->config.model.buffers.id == HDO_BUFFERS_PRIVATE ? r->objective->d : len;
    st = wire_classes(r, e);
    if (st == HDO_OK)
        st = hdo__mixer_init_placed(&r->mixer, &r->config.mixing, (uint64_t)r->config.seed, (int)n,
                                    (int)r->config.population[0].count, r->config.warmup, e);
    if (st == HDO_OK) st = hdo__churn_init(&r->churn, &r->config, (int)n, e);
    if (st == HDO_OK) st = hdo__metrics_init(&r->metrics, r->objective, r->val, &r->config, &r->rows, r->transport, e);
    return st == HDO_OK ? wire_memory(r, e) : st;
}

hdo_status hdo__run_wire(hdo_run *r, hdo_error *e) {
    hdo_status st = wire_own(r, e);
    if (r->transport != NULL) st = hdo__run_settle(r, st, e); /* rows are reserved by all ranks together, or by none */
    if (st == HDO_OK) st = r->transport->ops->reserve(r->transport, &r->rows, e);
    if (st == HDO_OK) st = init_models(r, e);
    if (st == HDO_OK) st = hdo__mixer_spectrum(&r->mixer, &r->spectrum);
    if (st == HDO_OK) st = hdo__run_check_mpi(r, e);
    return st;
}
