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

void hdo__run_log(hdo_run *r, hdo_log_level level, const char *fmt, ...) {
    char msg[HDO_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(msg, sizeof msg - 1, fmt, ap);
    va_end(ap);
    if (n < 0 || (r->transport != NULL && r->transport->rank != 0)) return;
    if (r->hooks.log != NULL) r->hooks.log(r->hooks.ctx, level, msg);
    if (r->log_fd >= 0) { /* the log is a courtesy: a full disk shows in metrics.jsonl, which is checked */
        size_t len = strlen(msg);
        msg[len] = '\n';
        ssize_t ignored = write(r->log_fd, msg, len + 1);
        (void)ignored;
    }
}

int hdo__class_of(const hdo_run *r, int node) {
    int k = 0;
    while (k + 1 < r->n_classes && node >= r->classes[k + 1].first) k++;
    return k;
}

hdo_status hdo_run_create(hdo_run **out, const hdo_config *c, const hdo_hooks *hooks, hdo_error *e) {
    *out = NULL;
    hdo_status st = hdo_config_check(c, e);
    if (st != HDO_OK) return st;
    hdo_run *r = hdo__alloc(sizeof *r);
    if (r == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the run");
    r->config = *c;
    r->log_fd = -1;
    r->trace.fd = -1;
    r->lock_fd = -1;
    r->saved_step = -1;
    r->start_loss = (double)NAN;
    if (hooks != NULL) r->hooks = *hooks;
    r->start_s = hdo__now_s();
    r->saved_s = r->session_s = r->start_s;
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
    r->limit_s = seconds;
}

const hdo_config *hdo_run_config(const hdo_run *r) {
    return &r->config;
}

void hdo_run_destroy(hdo_run *r) {
    if (r == NULL) return;
    for (int k = 0; k < r->n_sinks; k++) r->sinks[k]->ops->destroy(r->sinks[k]);
    if (r->log_fd >= 0) close(r->log_fd);
    hdo__linelog_close(&r->trace);
    hdo__lock_drop(r->dir, r->lock_fd);
    for (int k = 0; k < r->n_classes; k++) hdo__schedule_clear(&r->classes[k].schedule);
    hdo__async_destroy(r->async);
    hdo__undo_clear(&r->undo);
    hdo__free(r->fresh);
    hdo__churn_clear(&r->churn);
    hdo__team_clear(&r->team);
    hdo__metrics_clear(&r->metrics);
    hdo__mixer_clear(&r->mixer);
    hdo__objective_destroy(r->objective);
    if (r->shards != NULL) hdo__shards_destroy(r->shards);
    hdo__dataset_destroy(r->train);
    hdo__dataset_destroy(r->val);
    if (r->transport != NULL) r->transport->ops->destroy(r->transport);
    hdo__free(r->momentum);
    hdo__free(r->batches);
    hdo__free(r->result);
    hdo__free(r->trail);
    hdo__free(r->active);
    hdo__free(r->own);
    hdo__free(r->returned);
    hdo__free(r->clock_s);
    hdo__free(r->y);
    hdo__free(r->start);
    hdo__free(r->seen);
    hdo__free(r->mine);
    hdo__free(r->peer);
    hdo__free(r);
}

void hdo_run_describe(const hdo_run *r, hdo_run_info *info) {
    int pairs = r->mixer.ops->match == NULL ? 0 : r->mixer.ops->all_step ? r->mixer.n / 2 : 1;
    *info = (hdo_run_info){.n = r->mixer.n,
                           .d = (int64_t)r->objective->d,
                           .n_buf = (int64_t)r->objective->n_buf,
                           .total_steps = r->config.warmup + r->config.steps,
                           .threads = r->team.threads,
                           .state_bytes =
                               (size_t)r->rows.count * r->rows.ld * sizeof(float) * (r->momentum != NULL ? 2 : 1),
                           .scratch_bytes = r->team.arena[0].size * (size_t)r->team.threads,
                           .bytes_per_step = 2 * (int64_t)pairs * (int64_t)(r->rows.len * sizeof(float)),
                           .train_samples = r->train != NULL ? r->train->count : 0,
                           .val_samples = r->val != NULL ? r->val->count : 0};
}

int hdo_run_rank(const hdo_run *r) {
    return r->transport->rank;
}
const hdo_row *hdo_run_last_row(const hdo_run *r) {
    return r->has_row && r->row.n_classes > 0 ? &r->row : NULL; /* none yet after a resume between two evaluations */
}
int64_t hdo_run_step(const hdo_run *r) {
    return r->step;
}

const float *hdo_run_params(const hdo_run *r, int64_t node, size_t *d) {
    if (node < r->rows.first || node >= r->rows.first + r->rows.count) return NULL;
    if (d != NULL) *d = r->objective->d;
    return r->rows.X + (size_t)(node - r->rows.first) * r->rows.ld;
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

/* The hash goes from rank to rank in node order: it comes out as in the simulator. */
void hdo__run_hash_rows(void *ctx, void *v, size_t first, size_t count) {
    const hdo_run *r = ctx;
    (void)first;
    (void)count;
    size_t len = r->objective->d + r->objective->n_buf;
    for (int i = 0; i < r->rows.count; i++) hash_floats(v, r->rows.X + (size_t)i * r->rows.ld, len);
}

void hdo_run_fingerprint(const hdo_run *r, char hex[65]) {
    hdo_sha256 c;
    unsigned char digest[32];
    if (r->fingerprint[0] != '\0') {
        memcpy(hex, r->fingerprint, sizeof r->fingerprint);
        return;
    }
    hdo__sha256_init(&c);
    hdo__run_hash_rows((void *)(uintptr_t)r, &c, 0, 1);
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, hex);
}
