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
#include "config/own.h"
#include "hdo/experimental/all.h"
#include "kernels/kernels.h"
#include "record/ckfile.h"
#include "record/ckstate.h"
#include "record/lock.h"
#include "record/record.h"

static void put_host(hdo_json *j, const hdo_record *r) {
    struct utsname u;
    hdo__json_object(j, "host");
    if (uname(&u) == 0) {
        hdo__json_text(j, "name", u.nodename);
        hdo__json_text(j, "system", u.sysname);
        hdo__json_text(j, "release", u.release);
        hdo__json_text(j, "machine", u.machine);
    }
    hdo__json_int(j, "cpus", hdo__cpu_count());
    hdo__json_int(j, "threads", r->population->team->threads);
    hdo__json_text(j, "simd", hdo__simd()->name);
    const hdo_kernels *k = hdo__kernels(r->config->kernels.id);
    hdo__json_text(j, "kernels", k->title);
    hdo__json_end(j, '}');
}

/* Tables of one's own, and of a plug-in the file they came from. */
static void put_own(hdo_json *j, const hdo_config *c) {
    if (c->own == NULL) return;
    hdo__json_array(j, "own");
    for (int i = 0; i < c->own->n; i++) {
        const hdo_table_def *t = c->own->table[i];
        const char *plugin = t->kind == HDO_OWN_OBJECTIVE ? c->model.plugin
                             : t->kind == HDO_OWN_DATASET ? c->data.plugin
                                                          : "";
        char sha256[65] = "";
        if (t->holder != NULL && plugin[0] != '\0') (void)hdo__sha256_file(plugin, sha256, NULL);
        hdo__json_object(j, NULL);
        hdo__json_text(j, "kind", hdo__own_kinds[t->kind]);
        hdo__json_text(j, "name", t->name);
        hdo__json_text(j, "identity", t->identity);
        hdo__json_text(j, "plugin", t->holder != NULL ? plugin : NULL);
        hdo__json_text(j, "plugin_sha256", sha256[0] != '\0' ? sha256 : NULL);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, ']');
}

static hdo_status write_manifest(const hdo_record *r, const char *path, const char *command_line, hdo_error *e) {
    hdo_json j;
    char stamp[32];
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &tm);
    hdo__json_begin(&j, true, HDO_SCHEMA_VERSION);
    hdo__json_text(&j, "version", hdo_version());
    hdo__json_text(&j, "commit", hdo_commit());
    hdo__put_revisions(&j, r->config);
    hdo__json_text(&j, "compiler", HDO_COMPILER);
    hdo__json_text(&j, "build", HDO_BUILDTYPE);
    hdo__json_text(&j, "started", stamp);
    hdo__json_text(&j, "command", command_line);
    hdo__json_text(&j, "run_id", r->run_id);
    hdo__json_int(&j, "seed", r->config->seed);
    hdo__json_int(&j, "d", (int64_t)r->problem->objective->d);
    hdo__json_int(&j, "n", r->population->n);
    hdo__json_object(&j, "data");
    hdo__json_text(&j, "train_sha256", r->problem->train != NULL ? r->problem->train->sha256 : NULL);
    hdo__json_text(&j, "val_sha256", r->problem->val != NULL ? r->problem->val->sha256 : NULL);
    hdo__json_end(&j, '}');
    put_own(&j, r->config);
    hdo__put_mixing(&j, r);
    put_host(&j, r);
    hdo__json_end(&j, '}');
    hdo_status st = j.failed ? hdo__fail(e, HDO_E_MEMORY, "out of memory for the manifest")
                             : hdo__file_write(path, j.text, j.len, e);
    hdo__json_clear(&j);
    return st;
}

void hdo__record_init(hdo_record *r) {
    r->trace.fd = -1;
    r->lock_fd = -1;
    r->saved_step = -1;
    for (int k = 0; k < r->config->n_classes; k++)
        memcpy(r->class_name[k], r->config->population[k].name, sizeof r->class_name[k]);
}

hdo_status hdo__record_reserve(hdo_record *r, hdo_error *e) {
    r->trail = hdo__alloc((size_t)r->population->n * sizeof(hdo_trail));
    if (r->trail == NULL)
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the steps of %d nodes", r->population->n);
    if (r->transport->rank != 0) return HDO_OK;
    return hdo__own_sinks_create(r->sinks, &r->n_sinks, HDO_SINKS_MAX, r->config, e);
}

void hdo__record_close(hdo_record *r) {
    for (int k = 0; k < r->n_sinks; k++) r->sinks[k]->ops->destroy(r->sinks[k]);
    if (r->log->fd >= 0) close(r->log->fd);
    hdo__linelog_close(&r->trace);
    hdo__lock_drop(r->dir, r->lock_fd);
    hdo__free(r->trail);
}

hdo_status hdo__record_write_config(const hdo_record *r, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    char *yaml = hdo__stored_config_text(r->config);
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

hdo_status hdo__record_dir_stands(const hdo_record *r, hdo_error *e) {
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

static hdo_status open_log(hdo_record *r, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    if (r->log->fd >= 0) close(r->log->fd);
    hdo__path_join(path, sizeof path, r->dir, "log.txt");
    r->log->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (r->log->fd >= 0) return HDO_OK;
    return hdo__fail(e, HDO_E_IO, "cannot write '%s': %s", path,
                     errno == ELOOP ? "it is a symbolic link; remove it" : strerror(errno));
}

static hdo_status take_dir(hdo_record *r, const char *dir, hdo_error *e) {
    bool sure;
    if (strlen(dir) >= sizeof r->dir - 32)
        return hdo__fail(e, HDO_E_CONFIG, "the folder name '%.100s...' is too long", dir);
    hdo_status st = hdo__lock_take(dir, &r->lock_fd, &sure, e);
    if (st != HDO_OK) return st;
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    if (!sure)
        hdo__log(r->log, HDO_LOG_WARN, "'%s' cannot be locked on this file system: let one run at a time write it",
                 dir);
    sweep(dir);
    return HDO_OK;
}

hdo_status hdo__record_lock_dir(hdo_record *r, const char *dir, hdo_error *e) {
    hdo_status st = take_dir(r, dir, e);
    return st == HDO_OK ? open_log(r, e) : st;
}

hdo_status hdo__record_open_rows(hdo_record *r, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    int64_t resumed_at = r->progress->step > 0 ? r->progress->step : -1;
    hdo__path_join(path, sizeof path, r->dir, "metrics.jsonl");
    hdo_status st = hdo__sink_jsonl_create(&r->sinks[r->n_sinks], path, r->config, e);
    if (st == HDO_OK) r->n_sinks++;
    if (st == HDO_OK) st = hdo__sinks_open(r->sinks, &r->n_sinks, HDO_SINKS_MAX, r->dir, r->config, resumed_at, e);
    for (int k = 0; k < r->n_sinks && st == HDO_OK; k++) {
        if (hdo__sink_is_own(r->sinks[k]))
            st = hdo__own_sink_open(r->sinks[k], r->dir, resumed_at > 0 ? resumed_at : 0, e);
    }
    if (st != HDO_OK || !r->config->eval.trace) return st;
    hdo__path_join(path, sizeof path, r->dir, "trace.jsonl");
    return hdo__linelog_open(&r->trace, path, e);
}

/* Checkpoints go first and config.yaml last: a process that is killed in between leaves the old run without
 * checkpoints, never the new one with old ones. */
hdo_status hdo__record_remove_old(const char *dir, bool all, hdo_error *e) {
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

hdo_status hdo__record_begin_dir(hdo_record *r, const char *command_line, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    if (!hdo__random_hex(r->run_id, HDO_RUN_ID_LEN))
        return hdo__fail(e, HDO_E_IO, "no random number for the run's name: /dev/urandom cannot be read");
    hdo__inputs_sha256(r->config, r->inputs_sha256);
    hdo_status st = hdo__record_write_config(r, e);
    if (st == HDO_OK) {
        hdo__path_join(path, sizeof path, r->dir, "manifest.json");
        st = write_manifest(r, path, command_line, e);
    }
    if (st == HDO_OK) st = open_log(r, e);
    if (st == HDO_OK) st = hdo__record_open_rows(r, e);
    return st;
}

static hdo_status make_dir(hdo_record *r, const char *dir, bool force, const char *command_line, hdo_error *e) {
    hdo_status st = hdo__dir_create(dir, e);
    if (st == HDO_OK) st = take_dir(r, dir, e);
    if (st != HDO_OK) return st;
    if (holds_run(dir) && !force) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "'%s' already holds a run; go on with it with --resume, choose another folder with -o, or "
                         "--force to replace it",
                         dir);
    }
    if (force) st = hdo__record_remove_old(dir, true, e);
    if (st == HDO_OK) st = hdo__record_begin_dir(r, command_line, e);
    if (st == HDO_OK && r->population->n > 1) {
        char text[512];
        hdo__spectrum_text(&r->population->mixer, &r->population->spectrum, text, sizeof text);
        bool graph =
            strcmp(r->config->mixing.kind, "graph") == 0; /* elsewhere it is always the same: to the log only */
        hdo__log(r->log, graph ? HDO_LOG_INFO : HDO_LOG_DEBUG, "%s", text);
    }
    return st;
}

typedef struct dir_note { /* from rank 0 to all */
    char dir[HDO_PATH_MAX];
    int64_t pid;
} dir_note;

static void put_note(void *ctx, void *v, size_t first, size_t count) {
    const hdo_record *r = ctx;
    dir_note *note = v;
    (void)first;
    (void)count;
    if (r->transport->rank != 0) return;
    snprintf(note->dir, sizeof note->dir, "%s", r->dir);
    note->pid = (int64_t)getpid();
}

hdo_status hdo__record_share_dir(hdo_record *r, hdo_status st, hdo_error *e) {
    dir_note note = {.pid = (int64_t)getpid()};
    st = hdo__transport_settle(r->transport, st, e);
    if (st == HDO_OK) st = r->transport->ops->relay(r->transport, &note, sizeof note, 1, put_note, r, e);
    if (st != HDO_OK) return st;
    snprintf(r->dir, sizeof r->dir, "%s", note.dir);
    r->writer = note.pid;
    return HDO_OK;
}

hdo_status hdo__record_attach(hdo_record *r, const char *dir, bool force, const char *command_line, hdo_error *e) {
    hdo_status st = r->transport->rank == 0 ? make_dir(r, dir, force, command_line, e) : HDO_OK;
    return hdo__record_share_dir(r, st, e);
}
