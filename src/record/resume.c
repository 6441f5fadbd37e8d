/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on with a stored run: which checkpoint, whether it may be trusted, and from the beginning if there is none.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/sha256.h"
#include "record/ckfile.h"
#include "record/ckstate.h"
#include "record/record.h"

/* Of the manifest; empty: it has none, or cannot be read. */
static void stored_id(const char *dir, char id[HDO_RUN_ID_LEN + 1]) {
    char path[HDO_PATH_MAX + 64];
    hdo__path_join(path, sizeof path, dir, "manifest.json");
    json_t *o = json_load_file(path, 0, NULL);
    const char *s = json_string_value(json_object_get(o, "run_id"));
    snprintf(id, HDO_RUN_ID_LEN + 1, "%s", s != NULL && strlen(s) == HDO_RUN_ID_LEN ? s : "");
    json_decref(o);
}

/* What the run reads must be what it read before. */
static hdo_status same_inputs(const hdo_record *r, const char *dir, const hdo_state_head *h, hdo_error *e) {
    hdo_state_head now;
    hdo__state_head_of(r, &now);
    const char *what = strcmp(now.train_sha256, h->train_sha256) != 0 ? "training data"
                       : strcmp(now.val_sha256, h->val_sha256) != 0   ? "validation data"
                       : strcmp(now.inputs_sha256, h->inputs_sha256) != 0
                           ? "weights, edges, schedules, or estimators or mixing of one's own"
                           : NULL;
    if (what == NULL) return HDO_OK;
    return hdo__fail(
        e, HDO_E_DATA,
        "the %s of '%s' have changed since its checkpoint of step %lld: going on would mix two experiments; "
        "bring the old files back, or start a new run",
        what, dir, (long long)h->step);
}

static hdo_status same_past(const hdo_record *r, const hdo_ckfile *f, hdo_error *e) {
    hdo_config *c = hdo__alloc(sizeof *c);
    if (c == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    hdo_config_default(c);
    hdo_status st = hdo_config_load_bytes(c, f->path, f->config, strlen(f->config), e);
    c->own = r->config->own; /* settings of it have an effect with it only */
    if (st == HDO_OK && !hdo__config_same_past(c, r->config))
        st =
            hdo__fail(e, HDO_E_DATA, "the checkpoint '%s' was made with another configuration than the run's", f->path);
    hdo__free(c);
    return st;
}

typedef struct choice { /* what the search for a checkpoint found */
    int64_t step;       /* -1: none, from the beginning */
    bool kept_out;      /* whole ones were passed over: then the beginning is no way out */
} choice;

/* Is this checkpoint whole and of this run, and are the rows before it there? HDO_E_DATA: no, try the one before. */
static hdo_status judge(hdo_record *r, const char *dir, const char *id, int64_t step, choice *c, bool *final,
                        hdo_error *e) {
    char path[HDO_CKFILE_PATH_MAX];
    hdo_ckfile f;
    hdo_state_head h;
    hdo__ckfile_path(dir, step, path);
    *final = false;
    hdo_status st = hdo__ckfile_open_whole(&f, path, e);
    if (st != HDO_OK) return st;
    st = hdo__state_read_head(f.state, path, &h, e);
    if (st == HDO_OK && id[0] != '\0' && strcmp(id, h.run_id) != 0) {
        c->kept_out = true;
        st = hdo__fail(e, HDO_E_DATA, "the checkpoint '%s' is of another run (%.8s..., but manifest.json says %.8s...)",
                       path, h.run_id, id);
    } else if (st == HDO_OK) {
        for (int k = 0; k < HDO_MARKS && st == HDO_OK; k++) {
            hdo__path_join(path, sizeof path, dir, hdo__mark_files[k]);
            st = hdo__linemark_check(path, &h.mark[k], e);
        }
        if (st != HDO_OK) c->kept_out = true;
    }
    if (st == HDO_OK) {
        *final = true;
        st = same_past(r, &f, e);
        if (st == HDO_OK) st = same_inputs(r, dir, &h, e);
        memcpy(r->run_id, h.run_id, sizeof h.run_id);
        c->step = step;
    }
    hdo__ckfile_close(&f);
    return st;
}

/* The identity is what counts; a plug-in's file that changed is worth a word. */
static void look_at_plugins(const hdo_record *r, const char *dir) {
    char path[HDO_PATH_MAX + 64], now[65];
    hdo__path_join(path, sizeof path, dir, "manifest.json");
    json_t *o = json_load_file(path, 0, NULL);
    const json_t *own = json_object_get(o, "own");
    for (size_t i = 0; i < json_array_size(own); i++) {
        const json_t *t = json_array_get(own, i);
        const char *file = json_string_value(json_object_get(t, "plugin"));
        const char *then = json_string_value(json_object_get(t, "plugin_sha256"));
        if (file == NULL || then == NULL || hdo__sha256_file(file, now, NULL) != HDO_OK || strcmp(now, then) == 0)
            continue;
        hdo__log(r->log, HDO_LOG_WARN,
                 "plug-in '%s' is another file than the run was made with; it says it is the same (identity)", file);
    }
    json_decref(o);
}

/* Rank 0: the newest checkpoint that can be trusted. Those passed over are set aside, so that they are neither met
 * again nor counted among those to keep. */
static hdo_status choose(hdo_record *r, const char *dir, choice *c, hdo_error *e) {
    char id[HDO_RUN_ID_LEN + 1];
    int64_t *steps;
    int n = hdo__ckfile_list(dir, &steps), i;
    hdo_status st = HDO_E_DATA;
    hdo_error why = {0};
    bool final = false;
    stored_id(dir, id);
    hdo__inputs_sha256(r->config, r->inputs_sha256);
    for (i = 0; i < n && st == HDO_E_DATA && !final; i++) {
        st = judge(r, dir, id, steps[i], c, &final, &why);
        if (st == HDO_E_DATA && !final) hdo__log(r->log, HDO_LOG_WARN, "%s", why.msg);
    }
    if (final || (st != HDO_OK && st != HDO_E_DATA)) {
        if (st != HDO_OK) hdo__fail(e, st, "%s", why.msg);
    } else if (c->kept_out) {
        st = hdo__fail(
            e, HDO_E_DATA,
            "'%s' cannot be resumed: %s. The models in its checkpoints are whole (hdo eval reads them); bring "
            "the file back, or start again with --force",
            dir, why.msg);
    } else {
        st = HDO_OK;
    }
    for (int k = 0; k < n && st == HDO_OK && steps[k] > c->step; k++) hdo__checkpoint_set_aside(dir, steps[k]);
    if (st == HDO_OK && n > 0 && c->step < steps[0])
        hdo__log(r->log, HDO_LOG_WARN,
                 "damaged checkpoints of '%s' are kept as checkpoints/*.damaged; going on from %s%lld", dir,
                 c->step >= 0 ? "that of step " : "the beginning, step ", (long long)(c->step >= 0 ? c->step : 0));
    if (st == HDO_OK && n == 0)
        hdo__log(r->log, HDO_LOG_WARN, "'%s' has no checkpoint: it starts from the beginning", dir);
    free(steps);
    return st;
}

static void tell_step(void *ctx, void *v, size_t first, size_t count) {
    const choice *c = ctx;
    (void)first;
    (void)count;
    if (c->step != INT64_MIN) *(int64_t *)v = c->step;
}

/* Rank 0, after the restore: rows behind the checkpoint are dropped, and the files stand open again. */
static hdo_status take_up(hdo_record *r, const char *dir, int64_t step, hdo_error *e) {
    char path[HDO_CKFILE_PATH_MAX];
    hdo_ckfile f;
    hdo_state_head h;
    hdo__ckfile_path(dir, step, path);
    hdo_status st = hdo__ckfile_open(&f, path, e);
    if (st == HDO_OK) {
        st = hdo__state_read_head(f.state, path, &h, e);
        hdo__ckfile_close(&f);
    }
    for (int k = 0; k < HDO_MARKS && st == HDO_OK; k++) {
        hdo__path_join(path, sizeof path, dir, hdo__mark_files[k]);
        st = hdo__linemark_cut(path, &h.mark[k], e);
    }
    if (st == HDO_OK &&
        r->progress->step < r->config->warmup + r->config->steps) { /* a summary of an earlier end is no longer true */
        hdo__path_join(path, sizeof path, dir, "summary.json");
        unlink(path);
    }
    return st == HDO_OK ? hdo__record_open_rows(r, e) : st;
}

static hdo_status begin_again(hdo_record *r, const char *dir, hdo_error *e) {
    hdo_status st = hdo__record_remove_old(dir, false, e);
    return st == HDO_OK ? hdo__record_begin_dir(r, "hdo run --resume", e) : st;
}

/* `rewrite`: config.yaml is to be written anew. */
hdo_status hdo__record_resume(hdo_record *r, const char *dir, const char *note, bool rewrite, hdo_error *e) {
    bool root = r->transport->rank == 0;
    choice c = {.step = INT64_MIN};
    int64_t step = -1;
    hdo_status st = root ? hdo__record_lock_dir(r, dir, e) : HDO_OK;
    if (st == HDO_OK && root) {
        if (note[0] != '\0') hdo__log(r->log, HDO_LOG_WARN, "%s", note);
        look_at_plugins(r, dir);
        c.step = -1;
        st = choose(r, dir, &c, e);
    }
    st = hdo__transport_settle(r->transport, st, e);
    if (st == HDO_OK) st = r->transport->ops->relay(r->transport, &step, sizeof step, 1, tell_step, &c, e);
    if (st == HDO_OK && step >= 0) st = hdo__record_restore(r, dir, step, e);
    if (st == HDO_OK && step > r->config->warmup + r->config->steps) {
        st = hdo__fail(e, HDO_E_CONFIG, "the run in '%s' has done %lld steps already, more than steps=%lld", dir,
                       (long long)step, (long long)r->config->steps);
    }
    if (st == HDO_OK && root) st = step >= 0 ? take_up(r, dir, step, e) : begin_again(r, dir, e);
    if (st == HDO_OK && root && rewrite && step >= 0) st = hdo__record_write_config(r, e);
    return hdo__record_share_dir(r, st, e);
}
