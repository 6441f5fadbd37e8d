/* SPDX-License-Identifier: Apache-2.0 — the handles of <hdo/hdo.h>: thin, careful functions over the structs behind. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "config/own.h"
#include "hdo/experimental/all.h"
#include "hdo/experimental/suggest.h"
#include "run/run_internal.h"

int hdo_abi(void) {
    return HDO_ABI;
}

void hdo_free(void *text) {
    free(text);
}

/* ---- configurations ---- */

hdo_config *hdo_config_new(const char *preset, hdo_error *e) {
    const char *text = preset != NULL ? hdo_preset(preset) : NULL;
    if (preset != NULL && text == NULL) {
        const char *near = hdo__suggest(preset, hdo_preset_names());
        hdo__fail(e, HDO_E_CONFIG, "there is no preset '%.64s'%s%s%s; hdo_names(\"preset\") lists them", preset,
                  near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
        return NULL;
    }
    hdo_config *c = malloc(sizeof *c);
    if (c == NULL) {
        hdo__fail(e, HDO_E_MEMORY, "out of memory for a configuration");
        return NULL;
    }
    hdo_config_default(c);
    if (text != NULL && hdo_config_load_bytes(c, preset, text, strlen(text), e) != HDO_OK) {
        free(c);
        return NULL;
    }
    hdo_config_as_base(c);
    return c;
}

hdo_config *hdo_config_copy(const hdo_config *c) {
    hdo_config *copy = c != NULL ? malloc(sizeof *copy) : NULL;
    if (copy == NULL) return NULL;
    *copy = *c;
    hdo__own_keep(copy->own);
    return copy;
}

void hdo_config_free(hdo_config *c) {
    if (c == NULL) return;
    hdo__own_drop(c->own);
    free(c);
}

hdo_status hdo_config_load_text(hdo_config *c, const char *text, hdo_error *e) {
    if (c == NULL || text == NULL) return hdo__misuse(e, "hdo_config_load_text", "a configuration and a text");
    return hdo_config_load_bytes(c, "text", text, strlen(text), e);
}

hdo_status hdo_config_set(hdo_config *c, const char *key, const char *value, hdo_error *e) {
    if (c == NULL || key == NULL || value == NULL)
        return hdo__misuse(e, "hdo_config_set", "a configuration, a key and a value");
    return hdo_config_set_from(c, key, value, HDO_FROM_FLAG, e);
}

char *hdo_config_text(const hdo_config *c) {
    return c != NULL ? hdo_config_dump(c, false) : NULL;
}

/* ---- runs ---- */

/* Who listens to a run. What is said before anybody does is kept, as far as it fits. */
struct hdo_listener {
    void (*log)(void *ctx, hdo_log_level level, const char *message);
    void *log_ctx;
    void (*row)(void *ctx, const hdo_row *row);
    void *row_ctx;
    bool made; /* the run is there: what is said now is said to those who listen now */
    size_t used;
    char early[4096]; /* level, text, 0; level, text, 0; ... */
};

static void hear_log(void *ctx, hdo_log_level level, const char *message) {
    struct hdo_listener *l = ctx;
    size_t len = strlen(message) + 1;
    if (l->log != NULL) {
        l->log(l->log_ctx, level, message);
    } else if (!l->made && len < sizeof l->early - l->used) {
        l->early[l->used] = (char)level;
        memcpy(l->early + l->used + 1, message, len);
        l->used += len + 1;
    }
}

static void hear_row(void *ctx, const hdo_row *row) {
    const struct hdo_listener *l = ctx;
    if (l->row != NULL) l->row(l->row_ctx, row);
}

hdo_status hdo_run_on_log(hdo_run *r, void (*fn)(void *ctx, hdo_log_level level, const char *message), void *ctx,
                          hdo_error *e) {
    if (r == NULL || r->listener == NULL) return hdo__misuse(e, "hdo_run_on_log", "a run of hdo_run_new");
    struct hdo_listener *l = r->listener;
    l->log = fn;
    l->log_ctx = ctx;
    for (size_t at = 0; fn != NULL && at < l->used; at += strlen(l->early + at + 1) + 2)
        fn(ctx, (hdo_log_level)l->early[at], l->early + at + 1);
    if (fn != NULL) l->used = 0;
    return HDO_OK;
}

hdo_status hdo_run_on_row(hdo_run *r, void (*fn)(void *ctx, const hdo_row *row), void *ctx, hdo_error *e) {
    if (r == NULL || r->listener == NULL) return hdo__misuse(e, "hdo_run_on_row", "a run of hdo_run_new");
    r->listener->row = fn;
    r->listener->row_ctx = ctx;
    return HDO_OK;
}

/* A run with a listener that keeps its rows: new (dir NULL), or taken up from a folder. */
static hdo_status open_run(hdo_run **run, const hdo_config *c, const char *dir,
                           hdo_status (*tune)(hdo_run *r, hdo_error *e), hdo_error *e) {
    struct hdo_listener *l = hdo__alloc(sizeof *l);
    if (l == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the run");
    hdo_hooks hooks = {.ctx = l, .log = hear_log, .row = hear_row, .tune = tune};
    hdo_resume how = {.own = c != NULL ? c->own : NULL};
    hdo_status st = dir != NULL ? hdo_run_resume_how(run, dir, &how, &hooks, e) : hdo_run_create(run, c, &hooks, e);
    if (st == HDO_OK) {
        (*run)->listener = l;
        l->made = true;
        st = hdo_run_keep_rows(*run, e);
        if (st == HDO_OK) return HDO_OK;
        hdo_run_destroy(*run);
        *run = NULL;
        return st;
    }
    hdo__free(l);
    return st;
}

hdo_status hdo_run_new(hdo_run **run, const hdo_config *c, hdo_error *e) {
    if (run != NULL) *run = NULL;
    if (run == NULL || c == NULL) return hdo__misuse(e, "hdo_run_new", "a place for the run and a configuration");
    return open_run(run, c, NULL, NULL, e);
}

hdo_status hdo_run_open_tuned(hdo_run **run, const hdo_config *c, const char *dir,
                              hdo_status (*tune)(hdo_run *r, hdo_error *e), hdo_error *e) {
    if (run != NULL) *run = NULL;
    if (run == NULL || (c == NULL && dir == NULL))
        return hdo__misuse(e, "hdo_run_open_tuned", "a place for the run and a configuration or a folder");
    return open_run(run, c, dir, tune, e);
}

hdo_status hdo_run_resume(hdo_run **run, const char *dir, const hdo_config *c, hdo_error *e) {
    if (run != NULL) *run = NULL;
    if (run == NULL || dir == NULL) return hdo__misuse(e, "hdo_run_resume", "a place for the run and a folder");
    return open_run(run, c, dir, NULL, e);
}

void hdo_run_free(hdo_run *r) {
    if (r == NULL) return;
    atomic_store(&r->doomed, true);
    if (atomic_flag_test_and_set(&r->busy)) return; /* called back: the caller of the run ends it */
    hdo_run_destroy(r);
}

hdo_status hdo__run_enter(hdo_run *r, const char *function, hdo_error *e) {
    if (r == NULL) return hdo__misuse(e, function, "a run");
    if (!atomic_flag_test_and_set(&r->busy)) return HDO_OK;
    return hdo__fail(e, HDO_E_MISUSE,
                     "%s was called while another call on the same run is under way: not from inside its callbacks, "
                     "and one thread at a time",
                     function);
}

hdo_status hdo__run_leave(hdo_run *r, hdo_status st) {
    atomic_flag_clear(&r->busy);
    if (atomic_load(&r->doomed)) hdo_run_free(r);
    return st;
}

hdo_status hdo_run_open_dir(hdo_run *r, const char *dir, bool force, hdo_error *e) {
    if (r == NULL || dir == NULL) return hdo__misuse(e, "hdo_run_open_dir", "a run and a folder");
    hdo_status st = hdo__run_enter(r, "hdo_run_open_dir", e);
    if (st != HDO_OK) return st;
    if (r->record.dir[0] != '\0' || r->record.has_row || r->progress.step > 0) {
        st = hdo__fail(e, HDO_E_MISUSE, "hdo_run_open_dir comes once, before the first hdo_run_advance; %s",
                       r->record.dir[0] != '\0' ? "this run has a folder" : "this run has begun");
    } else {
        st = hdo__record_attach(&r->record, dir, force, NULL, e);
    }
    return hdo__run_leave(r, st);
}

/* ---- views ---- */

int64_t hdo_run_nodes(const hdo_run *r) {
    return r != NULL ? r->population.n : 0;
}

size_t hdo_run_dim(const hdo_run *r) {
    return r != NULL ? r->problem.objective->d : 0;
}

hdo_status hdo_run_mean(hdo_run *r, float *mean, hdo_error *e) {
    if (r == NULL || mean == NULL) return hdo__misuse(e, "hdo_run_mean", "a run and room for its mean");
    hdo_status st = hdo__run_enter(r, "hdo_run_mean", e);
    if (st != HDO_OK) return st;
    st = hdo__population_mean(&r->population, NULL, e);
    if (st == HDO_OK) memcpy(mean, r->population.mean.model, r->problem.objective->d * sizeof(float));
    return hdo__run_leave(r, st);
}

size_t hdo_run_row_count(const hdo_run *r) {
    size_t count = 0;
    if (r != NULL) hdo__record_rows(&r->record, &count);
    return count;
}

const hdo_row *hdo_run_row(const hdo_run *r, size_t i) {
    size_t count = 0;
    const hdo_row *rows = r != NULL ? hdo__record_rows(&r->record, &count) : NULL;
    return i < count ? &rows[i] : NULL;
}

const char *const *hdo_run_columns(const hdo_run *r) {
    return r != NULL ? (const char *const *)r->columns : NULL;
}
