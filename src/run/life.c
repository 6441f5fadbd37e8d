/* SPDX-License-Identifier: Apache-2.0 — a run from creation to destruction, and what can be seen of it from outside. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "run/async.h"
#include "run/lock.h"
#include "run/run_internal.h"

const char *hdo_stop_name(hdo_stop why) {
    static const char *const names[] = {"running", "completed", "target", "timeout", "diverged", "stopped"};
    return names[why];
}

hdo_status hdo_run_create(hdo_run **out, const hdo_config *c, const hdo_hooks *hooks, hdo_error *e) {
    *out = NULL;
    hdo_status st = hdo_config_check(c, e);
    if (st != HDO_OK) return st;
    hdo_run *r = hdo__alloc(sizeof *r);
    if (r == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the run");
    r->config = *c;
    r->trace.fd = -1;
    r->lock_fd = -1;
    r->saved_step = -1;
    r->progress.start_loss = (double)NAN;
    if (hooks != NULL) r->hooks = *hooks;
    r->log = (hdo_log){.put = r->hooks.log, .ctx = r->hooks.ctx, .fd = -1};
    r->progress.start_s = hdo__now_s();
    r->saved_s = r->progress.session_s = r->progress.start_s;
    st = hdo__run_wire(r, e);
    if (r->transport != NULL) st = hdo__run_settle(r, st, e);
    if (st != HDO_OK) {
        hdo_run_destroy(r);
        return st;
    }
    *out = r;
    return HDO_OK;
}

void hdo_run_limit_time(hdo_run *r, double seconds) {
    r->progress.limit_s = seconds;
}

const hdo_config *hdo_run_config(const hdo_run *r) {
    return &r->config;
}

void hdo_run_destroy(hdo_run *r) {
    if (r == NULL) return;
    for (int k = 0; k < r->n_sinks; k++) r->sinks[k]->ops->destroy(r->sinks[k]);
    if (r->log.fd >= 0) close(r->log.fd);
    hdo__linelog_close(&r->trace);
    hdo__lock_drop(r->dir, r->lock_fd);
    hdo__async_destroy(r->async);
    hdo__undo_clear(&r->undo);
    hdo__metrics_clear(&r->metrics);
    hdo__population_clear(&r->population);
    hdo__team_clear(&r->team);
    hdo__problem_close(&r->problem);
    if (r->transport != NULL) r->transport->ops->destroy(r->transport);
    hdo__free(r->trail);
    hdo__free(r->start);
    hdo__free(r->seen);
    hdo__free(r);
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
}

int hdo_run_rank(const hdo_run *r) {
    return r->transport->rank;
}
const hdo_row *hdo_run_last_row(const hdo_run *r) {
    return r->has_row && r->row.n_classes > 0 ? &r->row : NULL; /* none yet after a resume between two evaluations */
}
int64_t hdo_run_step(const hdo_run *r) {
    return r->progress.step;
}

const float *hdo_run_params(const hdo_run *r, int64_t node, size_t *d) {
    if (node < r->population.models.first || node >= r->population.models.first + r->population.models.count)
        return NULL;
    if (d != NULL) *d = r->problem.objective->d;
    return r->population.models.X + (size_t)(node - r->population.models.first) * r->population.models.ld;
}

/* The hash goes from rank to rank in node order: it comes out as in the simulator. */
void hdo_run_fingerprint(const hdo_run *r, char hex[65]) {
    hdo_sha256 c;
    unsigned char digest[32];
    if (r->fingerprint[0] != '\0') {
        memcpy(hex, r->fingerprint, sizeof r->fingerprint);
        return;
    }
    hdo__sha256_init(&c);
    hdo__population_hash((void *)(uintptr_t)&r->population, &c, 0, 1);
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, hex);
}
