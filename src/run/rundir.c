/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of a run: config.yaml (resolved), manifest.json (everything needed to rerun), metrics.jsonl, log.txt and,
 * at the end, summary.json. Files appear whole (base/file.h) or, for the two logs, line by line.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/simd.h"
#include "hdo/hdo.h"
#include "kernels/kernels.h"
#include "run/ckfile.h"
#include "run/ckstate.h"
#include "run/lock.h"
#include "run/run_internal.h"

enum { SCHEMA_VERSION = 1 };

static const char *outcome_of(hdo_stop stop) {
    switch (stop) {
    case HDO_COMPLETED:
    case HDO_TARGET: return "completed";
    case HDO_DIVERGED: return "diverged";
    default: return "stopped";
    }
}

static void put_group(hdo_json *j, const hdo_group *g) {
    hdo__json_real(j, "val_loss_mean", g->loss_mean);
    hdo__json_real(j, "val_loss_std", g->loss_std);
    hdo__json_real(j, "val_loss_min", g->loss_min);
    hdo__json_real(j, "val_loss_max", g->loss_max);
    hdo__json_real(j, "val_acc_mean", g->acc_mean);
}

static void put_final(hdo_json *j, const hdo_run *r) {
    const hdo_row *row = &r->row;
    hdo__json_object(j, "final");
    put_group(j, &row->all);
    hdo__json_real(j, "val_loss_node0", row->node0_loss);
    hdo__json_real(j, "val_acc_node0", row->node0_acc);
    hdo__json_real(j, "val_loss_mu", row->mu_loss);
    hdo__json_real(j, "val_acc_mu", row->mu_acc);
    hdo__json_real(j, "gamma", row->gamma);
    hdo__json_real(j, "mg", row->mg);
    hdo__json_real(j, "train_loss", row->train_loss);
    hdo__json_object(j, "classes");
    for (int k = 0; k < r->population.n_classes; k++) {
        hdo__json_object(j, r->config.population[k].name);
        put_group(j, &row->cls[k]);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, '}');
    hdo__json_end(j, '}');
}

static void put_classes(hdo_json *j, const hdo_run *r) {
    hdo__json_array(j, "classes");
    for (int k = 0; k < r->population.n_classes; k++) {
        const hdo_class_config *c = &r->config.population[k];
        hdo__json_object(j, NULL);
        hdo__json_text(j, "name", c->name);
        hdo__json_int(j, "count", c->count);
        hdo__json_text(j, "estimator", c->estimator);
        hdo__json_int(j, "rv", r->population.classes[k].estimator.ops->zeroth ? c->rv : 0);
        hdo__json_int(j, "batch", c->batch);
        hdo__json_real(j, "lr", r->population.classes[k].schedule.lr);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, ']');
}

static void put_async(hdo_json *j, const hdo_async_stats *s) {
    double n = s->exchanges > 0.0 ? s->exchanges : 1.0;
    hdo__json_object(j, "async");
    hdo__json_int(j, "exchanges", (int64_t)s->exchanges);
    hdo__json_int(j, "missed", (int64_t)s->missed);
    hdo__json_real(j, "stale_steps_mean", s->stale_sum / n);
    hdo__json_real(j, "stale_steps_max", s->stale_max);
    hdo__json_real(j, "gap_steps_mean", s->gap_sum / n);
    hdo__json_real(j, "gap_steps_max", s->gap_max);
    hdo__json_real(j, "step_s_fastest", s->step_s_min);
    hdo__json_real(j, "step_s_slowest", s->step_s_max);
    hdo__json_real(j, "mean_residual", s->residual); /* how far the mean is from start + updates; eval.trace */
    hdo__json_end(j, '}');
}

/* How fast mixing alone brings the nodes together (docs/topologies.md). */
static void put_mixing(hdo_json *j, const hdo_run *r) {
    const hdo_spectrum *s = &r->population.spectrum;
    hdo__json_object(j, "mixing");
    hdo__json_text(j, "kind", r->config.mixing.kind);
    hdo__json_real(j, "lambda", s->lambda);
    hdo__json_real(j, "lambda_error", s->error);
    hdo__json_text(j, "how", hdo__spectrum_how_name(s->how));
    hdo__json_real(j, "spectral_gap", s->gap);
    hdo__json_int(j, "edges", s->edges);
    hdo__json_end(j, '}');
}

char *hdo_run_summary(const hdo_run *r) {
    hdo_json j;
    char hex[65];
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", SCHEMA_VERSION);
    hdo__json_text(&j, "outcome", outcome_of(r->progress.stop));
    hdo__json_text(&j, "reason", hdo_stop_name(r->progress.stop));
    hdo__json_text(&j, "version", hdo_version());
    hdo__json_text(&j, "commit", hdo_commit());
    hdo__put_revisions(&j, &r->config);
    if (r->progress.stop == HDO_DIVERGED) hdo__fate_put(&j, r);
    hdo__json_text(&j, "name", r->config.name);
    hdo__json_text(&j, "model", r->config.model.name);
    hdo__json_text(&j, "data", r->problem.train != NULL ? r->config.data.name : "none");
    hdo__json_int(&j, "d", (int64_t)r->problem.objective->d);
    hdo__json_int(&j, "n", r->population.n);
    put_classes(&j, r);
    hdo__json_int(&j, "seed", r->config.seed);
    hdo__json_int(&j, "steps", r->progress.step);
    hdo__json_int(&j, "interactions", r->progress.counts.interactions);
    put_final(&j, r);
    hdo__json_object(&j, "time");
    hdo__json_real(&j, "wall_s", r->row.wall_s);
    hdo__json_real(&j, "step_s", r->progress.step_s);
    hdo__json_real(&j, "eval_s", r->progress.eval_s);
    hdo__json_end(&j, '}');
    hdo__json_object(&j, "oracle");
    hdo__json_int(&j, "forward", r->progress.counts.forward);
    hdo__json_int(&j, "backward", r->progress.counts.backward);
    hdo__json_int(&j, "jvp", r->progress.counts.jvp);
    hdo__json_int(&j, "cost", r->progress.counts.cost);
    hdo__json_end(&j, '}');
    put_mixing(&j, r);
    hdo__json_int(&j, "bytes_exchanged", r->progress.counts.bytes);
    hdo_run_fingerprint(r, hex);
    hdo__json_text(&j, "params_sha256", hex);
    if (r->transport->ranks > 1) {
        hdo__json_object(&j, "mpi");
        hdo__json_int(&j, "ranks", r->transport->ranks);
        hdo__json_int(&j, "wire_bytes", (int64_t)r->wire[0]); /* of models, between ranks, without headers */
        hdo__json_int(&j, "wire_messages", (int64_t)r->wire[1]);
        hdo__json_int(&j, "shared_bytes", (int64_t)r->wire[4]); /* likewise, in memory in common */
        hdo__json_real(&j, "wait_s_mean", r->wire[2] / r->transport->ranks);
        hdo__json_real(&j, "wait_s_max", r->wire[3]);
        if (r->config.mpi.async) put_async(&j, &r->drifted);
        hdo__json_end(&j, '}');
    }
    hdo__json_text(&j, "dir", r->dir[0] != '\0' ? r->dir : NULL);
    hdo__json_end(&j, '}');
    if (j.failed) {
        hdo__json_clear(&j);
        return NULL;
    }
    return j.text;
}

static void put_host(hdo_json *j, const hdo_run *r) {
    struct utsname u;
    hdo__json_object(j, "host");
    if (uname(&u) == 0) {
        hdo__json_text(j, "name", u.nodename);
        hdo__json_text(j, "system", u.sysname);
        hdo__json_text(j, "release", u.release);
        hdo__json_text(j, "machine", u.machine);
    }
    hdo__json_int(j, "cpus", hdo__cpu_count());
    hdo__json_int(j, "threads", r->team.threads);
    hdo__json_text(j, "simd", hdo__simd()->name);
    const hdo_kernels *k = hdo__kernels(r->config.kernels.id);
    hdo__json_text(j, "kernels", k->title);
    hdo__json_end(j, '}');
}

static hdo_status write_manifest(const hdo_run *r, const char *path, const char *command_line, hdo_error *e) {
    hdo_json j;
    char stamp[32];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &tm);
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", SCHEMA_VERSION);
    hdo__json_text(&j, "version", hdo_version());
    hdo__json_text(&j, "commit", hdo_commit());
    hdo__put_revisions(&j, &r->config);
    hdo__json_text(&j, "compiler", HDO_COMPILER);
    hdo__json_text(&j, "build", HDO_BUILDTYPE);
    hdo__json_text(&j, "started", stamp);
    hdo__json_text(&j, "command", command_line);
    hdo__json_text(&j, "run_id", r->run_id);
    hdo__json_int(&j, "seed", r->config.seed);
    hdo__json_int(&j, "d", (int64_t)r->problem.objective->d);
    hdo__json_int(&j, "n", r->population.n);
    hdo__json_object(&j, "data");
    hdo__json_text(&j, "train_sha256", r->problem.train != NULL ? r->problem.train->sha256 : NULL);
    hdo__json_text(&j, "val_sha256", r->problem.val != NULL ? r->problem.val->sha256 : NULL);
    hdo__json_end(&j, '}');
    put_mixing(&j, r);
    put_host(&j, r);
    hdo__json_end(&j, '}');
    hdo_status st = j.failed ? hdo__fail(e, HDO_E_MEMORY, "out of memory for the manifest")
                             : hdo__file_write(path, j.text, j.len, e);
    hdo__json_clear(&j);
    return st;
}

hdo_status hdo__run_write_config(const hdo_run *r, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    char *yaml = hdo__stored_config_text(&r->config);
    if (yaml == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the configuration text");
    hdo__path_join(path, sizeof path, r->dir, "config.yaml");
    hdo_status st = hdo__file_write(path, yaml, strlen(yaml), e);
    free(yaml);
    return st;
}

/* A folder that holds a run is one with metrics, a summary, a configuration or a checkpoint in it. */
static bool holds_run(const char *dir) {
    static const char *const marks[] = {"metrics.jsonl", "summary.json", "config.yaml"};
    char path[HDO_PATH_MAX + 64];
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (hdo__path_join(path, sizeof path, dir, marks[i]) && hdo__path_exists(path)) return true;
    }
    int64_t *steps;
    int n = hdo__ckfile_list(dir, &steps);
    free(steps);
    return n > 0;
}

/* ---- the folder while it is ours ---- */

hdo_status hdo__run_dir_stands(const hdo_run *r, hdo_error *e) {
    if (r->lock_fd < 0 || hdo__lock_stands(r->dir, r->lock_fd)) return HDO_OK;
    return hdo__fail(e, HDO_E_IO, "the run folder '%s' was removed or replaced while the run was writing to it",
                     r->dir);
}

/* Unfinished files of killed runs. Only names of ours: other programs may write here too. */
static void sweep(const char *dir) {
    static const char *const ours[] = {"config.yaml", "manifest.json", "summary.json", "metrics.csv"};
    char path[HDO_PATH_MAX + 320];
    DIR *d = opendir(dir);
    for (struct dirent *f; d != NULL && (f = readdir(d)) != NULL;) {
        for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
            size_t len = strlen(ours[i]);
            bool litter = strncmp(f->d_name, ours[i], len) == 0 && strncmp(f->d_name + len, ".tmp.", 5) == 0;
            if (litter && hdo__path_join(path, sizeof path, dir, f->d_name)) unlink(path);
        }
    }
    if (d != NULL) closedir(d);
    hdo__checkpoints_sweep(dir);
}

static hdo_status open_log(hdo_run *r, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    if (r->log.fd >= 0) close(r->log.fd);
    hdo__path_join(path, sizeof path, r->dir, "log.txt");
    r->log.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (r->log.fd >= 0) return HDO_OK;
    return hdo__fail(e, HDO_E_IO, "cannot write '%s': %s", path,
                     errno == ELOOP ? "it is a symbolic link; remove it" : strerror(errno));
}

static hdo_status take_dir(hdo_run *r, const char *dir, hdo_error *e) {
    bool sure;
    if (strlen(dir) >= sizeof r->dir - 32)
        return hdo__fail(e, HDO_E_CONFIG, "the folder name '%.100s...' is too long", dir);
    hdo_status st = hdo__lock_take(dir, &r->lock_fd, &sure, e);
    if (st != HDO_OK) return st;
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    if (!sure)
        hdo__log(&r->log, HDO_LOG_WARN, "'%s' cannot be locked on this file system: let one run at a time write it",
                 dir);
    sweep(dir);
    return HDO_OK;
}

hdo_status hdo__run_lock_dir(hdo_run *r, const char *dir, hdo_error *e) {
    hdo_status st = take_dir(r, dir, e);
    return st == HDO_OK ? open_log(r, e) : st;
}

hdo_status hdo__run_open_rows(hdo_run *r, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    int64_t resumed_at = r->progress.step > 0 ? r->progress.step : -1;
    hdo__path_join(path, sizeof path, r->dir, "metrics.jsonl");
    hdo_status st = hdo__sink_jsonl_create(&r->sinks[r->n_sinks], path, &r->config, e);
    if (st == HDO_OK) r->n_sinks++;
    if (st == HDO_OK) st = hdo__sinks_open(r->sinks, &r->n_sinks, HDO_SINKS_MAX, r->dir, &r->config, resumed_at, e);
    if (st != HDO_OK || !r->config.eval.trace) return st;
    hdo__path_join(path, sizeof path, r->dir, "trace.jsonl");
    return hdo__linelog_open(&r->trace, path, e);
}

/* Checkpoints go first and config.yaml last: a process that is killed in between leaves the old run without
 * checkpoints, never the new one with old ones. */
hdo_status hdo__run_remove_old(const char *dir, bool all, hdo_error *e) {
    static const char *const old[] = {"summary.json", "metrics.jsonl", "trace.jsonl",
                                      "log.txt",      "manifest.json", "config.yaml"};
    char path[HDO_PATH_MAX + 64];
    hdo_status st = all ? hdo__checkpoints_remove(dir, e) : HDO_OK;
    if (st == HDO_OK) hdo__sinks_remove(dir);
    for (size_t i = 0; i < sizeof old / sizeof old[0] && st == HDO_OK; i++) {
        bool stays = !all && (strcmp(old[i], "log.txt") == 0 || strcmp(old[i], "config.yaml") == 0);
        if (stays || !hdo__path_join(path, sizeof path, dir, old[i])) continue;
        if (unlink(path) != 0 && errno != ENOENT)
            st = hdo__fail(e, HDO_E_IO, "cannot remove '%s': %s", path, strerror(errno));
    }
    return st;
}

hdo_status hdo__run_begin_dir(hdo_run *r, const char *command_line, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    if (!hdo__random_hex(r->run_id, HDO_RUN_ID_LEN))
        return hdo__fail(e, HDO_E_IO, "no random number for the run's name: /dev/urandom cannot be read");
    hdo__run_hash_inputs(r);
    hdo_status st = hdo__run_write_config(r, e);
    if (st == HDO_OK) {
        hdo__path_join(path, sizeof path, r->dir, "manifest.json");
        st = write_manifest(r, path, command_line, e);
    }
    if (st == HDO_OK) st = open_log(r, e);
    if (st == HDO_OK) st = hdo__run_open_rows(r, e);
    return st;
}

static hdo_status make_dir(hdo_run *r, const char *dir, bool force, const char *command_line, hdo_error *e) {
    hdo_status st = hdo__dir_create(dir, e);
    if (st == HDO_OK) st = take_dir(r, dir, e);
    if (st != HDO_OK) return st;
    if (holds_run(dir) && !force) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "'%s' already holds a run; go on with it with --resume, choose another folder with -o, or "
                         "--force to replace it",
                         dir);
    }
    if (force) st = hdo__run_remove_old(dir, true, e);
    if (st == HDO_OK) st = hdo__run_begin_dir(r, command_line, e);
    if (st == HDO_OK && r->population.n > 1) {
        char text[512];
        hdo__spectrum_text(&r->population.mixer, &r->population.spectrum, text, sizeof text);
        bool graph = strcmp(r->config.mixing.kind, "graph") == 0; /* elsewhere it is always the same: to the log only */
        hdo__log(&r->log, graph ? HDO_LOG_INFO : HDO_LOG_DEBUG, "%s", text);
    }
    return st;
}

typedef struct dir_note { /* from rank 0 to all */
    char dir[HDO_PATH_MAX];
    int64_t pid;
} dir_note;

static void put_note(void *ctx, void *v, size_t first, size_t count) {
    const hdo_run *r = ctx;
    dir_note *note = v;
    (void)first;
    (void)count;
    if (r->transport->rank != 0) return;
    snprintf(note->dir, sizeof note->dir, "%s", r->dir);
    note->pid = (int64_t)getpid();
}

hdo_status hdo__run_share_dir(hdo_run *r, hdo_status st, hdo_error *e) {
    dir_note note = {.pid = (int64_t)getpid()};
    st = hdo__run_settle(r, st, e);
    if (st == HDO_OK) st = r->transport->ops->relay(r->transport, &note, sizeof note, 1, put_note, r, e);
    if (st != HDO_OK) return st;
    snprintf(r->dir, sizeof r->dir, "%s", note.dir);
    r->writer = note.pid;
    return HDO_OK;
}

hdo_status hdo_run_attach_dir(hdo_run *r, const char *dir, bool force, const char *command_line, hdo_error *e) {
    hdo_status st = r->transport->rank == 0 ? make_dir(r, dir, force, command_line, e) : HDO_OK;
    return hdo__run_share_dir(r, st, e);
}

static hdo_status write_summary(hdo_run *r, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    hdo_status st = hdo__run_dir_stands(r, e);
    if (st != HDO_OK) return st;
    char *text = hdo_run_summary(r);
    if (text == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the summary");
    hdo__path_join(path, sizeof path, r->dir, "summary.json");
    st = hdo__file_write(path, text, strlen(text), e);
    free(text);
    return st;
}

/* The checkpoint first: where there is a summary, the models it speaks of are there too. */
hdo_status hdo_run_write_summary(hdo_run *r, hdo_error *e) {
    if (r->dir[0] == '\0') return HDO_OK;
    hdo_status st = r->progress.stop != HDO_DIVERGED && r->saved_step != r->progress.step ? hdo_run_save(r, e) : HDO_OK;
    if (st != HDO_OK) return st;
    return hdo__run_settle(r, r->transport->rank == 0 ? write_summary(r, e) : HDO_OK, e);
}
