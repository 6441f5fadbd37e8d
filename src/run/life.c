/* SPDX-License-Identifier: Apache-2.0 — a run from creation to destruction, and what can be seen of it from outside. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "config/own.h"
#include "plugin/plugin.h"
#include "run/run_internal.h"

hdo_status hdo__run_create(hdo_run **out, const hdo_config *c, hdo_fleet_seat *fleet, const hdo_hooks *hooks,
                           hdo_error *e) {
    *out = NULL;
    hdo_run *r = hdo__alloc(sizeof *r);
    if (r == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the run");
    r->config = *c;
    hdo__own_keep(r->config.own);
    hdo_status st = hdo__plugins_resolve(&r->config, e);
    if (st == HDO_OK) st = hdo_config_check(&r->config, e);
    if (st != HDO_OK) {
        hdo__own_drop(r->config.own);
        hdo__free(r);
        return st;
    }
    atomic_flag_clear(&r->busy);
    r->columns = hdo__metric_names(c);
    r->fleet = fleet;
    r->progress.start_loss = (double)NAN;
    if (hooks != NULL) r->hooks = *hooks;
    r->log = (hdo_log){.put = r->hooks.log, .ctx = r->hooks.ctx, .fd = -1};
    r->record = (hdo_record){.config = &r->config,
                             .hooks = &r->hooks,
                             .log = &r->log,
                             .problem = &r->problem,
                             .population = &r->population,
                             .progress = &r->progress,
                             .metrics = &r->metrics};
    hdo__record_init(&r->record);
    r->progress.start_s = hdo__now_s();
    r->record.saved_s = r->progress.session_s = r->progress.start_s;
    st = r->columns != NULL ? hdo__run_wire(r, e) : hdo__fail(e, HDO_E_MEMORY, "out of memory for the run");
    if (r->transport != NULL) st = hdo__transport_settle(r->transport, st, e);
    if (st != HDO_OK) {
        r->fleet = NULL; /* the caller's */
        hdo_run_destroy(r);
        return st;
    }
    *out = r;
    return HDO_OK;
}

hdo_status hdo_run_create(hdo_run **out, const hdo_config *c, const hdo_hooks *hooks, hdo_error *e) {
    return hdo__run_create(out, c, NULL, hooks, e);
}

void hdo_run_limit_time(hdo_run *r, double seconds) {
    r->progress.limit_s = seconds;
}

const hdo_config *hdo_run_config(const hdo_run *r) {
    return r != NULL ? &r->config : NULL;
}

void hdo_run_destroy(hdo_run *r) {
    if (r == NULL) return;
    hdo__record_close(&r->record);
    if (r->engine != NULL) r->engine->ops->destroy(r->engine);
    hdo__metrics_clear(&r->metrics);
    hdo__population_clear(&r->population);
    hdo__team_clear(&r->team);
    hdo__problem_close(&r->problem);
    if (r->transport != NULL) r->transport->ops->destroy(r->transport);
    hdo__own_drop(r->config.own);
    hdo__free(r->listener);
    free(r->columns);
    hdo__fleet_close(r->fleet);
    hdo__free(r);
}

static hdo_node_bytes node_bytes(const hdo_run *r, const hdo_class *c) {
    const hdo_objective *f = r->problem.objective;
    const hdo_estimator *s = &c->estimator;
    size_t row = (f->d + f->n_buf) * sizeof(float);
    int k = s->rv < HDO_DIRS_AT_ONCE ? s->rv : HDO_DIRS_AT_ONCE;
    return (hdo_node_bytes){.parameters = row,
                            .momentum = c->update.momentum > 0.0 ? row : 0,
                            .estimate = row,
                            .activations =
                                hdo__objective_pass_bytes(f, s->ops->needs, c->batch, s->ops->zeroth ? k : 1),
                            .directions = s->ops->work_bytes(s, f, c->batch)};
}

void hdo_run_describe(const hdo_run *r, hdo_run_info *info) {
    int pairs = r->population.mixer.ops->match == NULL ? 0
                : r->population.mixer.ops->all_step    ? r->population.n / 2
                                                       : 1;
    *info = (hdo_run_info){.n = r->population.n,
                           .d = (int64_t)r->problem.objective->d,
                           .n_buf = (int64_t)r->problem.objective->n_buf,
                           .total_steps = r->config.warmup + r->config.steps,
                           .threads = r->team.threads,
                           .state_bytes = (size_t)r->population.models.count * r->population.models.ld * sizeof(float) *
                                          (r->population.momentum != NULL ? 2 : 1),
                           .scratch_bytes = r->team.arena[0].size * (size_t)r->team.threads,
                           .bytes_per_step = 2 * (int64_t)pairs * (int64_t)(r->population.models.len * sizeof(float)),
                           .train_samples = r->problem.train != NULL ? r->problem.train->count : 0,
                           .val_samples = r->problem.val != NULL ? r->problem.val->count : 0};
    hdo_whole whole = hdo__objective_whole(r->problem.objective);
    info->d_total = (int64_t)whole.d;
    if (r->problem.objective->whole != NULL) info->frozen_bytes = (whole.d + whole.n_buf) * sizeof(float);
    for (int k = 0; k < r->population.n_classes; k++) info->node[k] = node_bytes(r, &r->population.classes[k]);
}

int hdo_run_rank(const hdo_run *r) {
    return r != NULL ? r->transport->rank : 0;
}
const hdo_row *hdo_run_last_row(const hdo_run *r) {
    if (r == NULL) return NULL;
    const hdo_record *k = &r->record;
    return k->has_row && k->row.n_classes > 0 ? &k->row : NULL; /* none yet after a resume between two evaluations */
}
int64_t hdo_run_step(const hdo_run *r) {
    return r != NULL ? r->progress.step : 0;
}

const float *hdo_run_params(const hdo_run *r, int64_t node, size_t *d) {
    if (r == NULL || node < r->population.models.first ||
        node >= r->population.models.first + r->population.models.count)
        return NULL;
    if (d != NULL) *d = r->problem.objective->d;
    return r->population.models.X + (size_t)(node - r->population.models.first) * r->population.models.ld;
}

/* ---- what is kept of it: record/ ---- */

hdo_status hdo_run_attach_dir(hdo_run *r, const char *dir, bool force, const char *command_line, hdo_error *e) {
    return hdo__record_attach(&r->record, dir, force, command_line, e);
}
hdo_status hdo_run_save(hdo_run *r, hdo_error *e) {
    hdo_status st = hdo__run_enter(r, "hdo_run_save", e);
    if (st != HDO_OK) return st;
    if (r->record.dir[0] == '\0') {
        st = hdo__fail(e, HDO_E_MISUSE, "hdo_run_save needs a folder to save into: hdo_run_open_dir comes first");
    } else {
        st = hdo__run_sound(r, e) ? hdo__record_save(&r->record, e) : r->failed.code;
    }
    return hdo__run_leave(r, st);
}
char *hdo_run_summary(const hdo_run *r) {
    return r != NULL ? hdo__record_summary(&r->record) : NULL;
}
hdo_status hdo_run_write_summary(hdo_run *r, hdo_error *e) {
    hdo_status st = hdo__run_enter(r, "hdo_run_write_summary", e);
    if (st != HDO_OK) return st;
    return hdo__run_leave(r, hdo__run_sound(r, e) ? hdo__record_write_summary(&r->record, e) : r->failed.code);
}
void hdo_run_fingerprint(const hdo_run *r, char hex[65]) {
    if (hex == NULL) return;
    hex[0] = '\0';
    if (r != NULL) hdo__record_fingerprint(&r->record, hex);
}
hdo_status hdo_run_keep_rows(hdo_run *r, hdo_error *e) {
    return hdo__record_keep_rows(&r->record, e);
}
const hdo_row *hdo_run_rows(const hdo_run *r, size_t *count) {
    return hdo__record_rows(&r->record, count);
}

/* ---- going on with a stored run ---- */

/* Applies the settings one by one; only those may change that the past does not depend on. */
static hdo_status change(hdo_config *c, const hdo_resume *how, hdo_error *e) {
    hdo_config *old = hdo__alloc(sizeof *old);
    if (old == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    *old = *c;
    hdo_status st = HDO_OK;
    for (int k = 0; how != NULL && k < how->n_set && st == HDO_OK; k++) {
        st = hdo_config_set_from(c, how->set[k].key, how->set[k].value, HDO_FROM_FLAG, e);
        if (st != HDO_OK || hdo__config_same_past(old, c)) continue;
        st = hdo__fail(
            e, HDO_E_CONFIG,
            "a run cannot go on with another '%s': what it has done depends on it. What may change: steps (if "
            "no rate follows from it: no cosine, no lr theorem), eval.every, checkpoint.*, stop.*, threads",
            how->set[k].key);
    }
    hdo__free(old);
    return st;
}

hdo_status hdo_run_resume_how(hdo_run **out, const char *dir, const hdo_resume *how, const hdo_hooks *hooks,
                              hdo_error *e) {
    char note[HDO_MSG_MAX];
    *out = NULL;
    hdo_config *c = hdo__alloc(sizeof *c);
    if (c == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    hdo_status st = hdo__stored_config_load(dir, c, note, sizeof note, e);
    c->own = how != NULL ? how->own : NULL;
    if (st == HDO_OK) st = change(c, how, e);
    if (how != NULL && how->threads > 0) c->threads = how->threads;
    int rank, ranks; /* the engine is that of this process, whatever the run was started with */
    c->engine.id = hdo_mpi_launched(&rank, &ranks) ? HDO_ENGINE_MPI : HDO_ENGINE_SIM;
    if (st == HDO_OK) st = hdo_run_create(out, c, hooks, e);
    hdo__free(c);
    if (st == HDO_OK)
        st = hdo__record_resume(&(*out)->record, dir, note, note[0] != '\0' || (how != NULL && how->n_set > 0), e);
    if (st != HDO_OK) {
        hdo_run_destroy(*out);
        *out = NULL;
    }
    return st;
}
