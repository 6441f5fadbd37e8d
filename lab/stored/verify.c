/* SPDX-License-Identifier: Apache-2.0
 *
 * hdo verify: a stored run is made again in memory, in the simulator, and compared with what the folder says: summary
 * (outcome, counts, final figures, fingerprint), then every row of metrics.jsonl that both have. Figures that only one
 * version knows are passed over; clocks are not compared.
 */
#include "hdo/lab/verify.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "base/simd.h"
#include "hdo/experimental/all.h"
#include "kernels/kernels.h"
#include "lab/report/page.h"
#include "run/run_internal.h"

enum { ROWS_MAX_BYTES = 1 << 30 };

const char *hdo_same_text(hdo_same v) {
    static const char *const text[] = {"same", "different", "not verified"};
    return text[v];
}

static json_t *read_json(const char *dir, const char *name) {
    char path[HDO_PATH_MAX + 64];
    return hdo__path_join(path, sizeof path, dir, name) ? json_load_file(path, 0, NULL) : NULL;
}

static void differ(hdo_verified *v, const char *where, const char *stored, const char *now) {
    v->verdict = HDO_DIFFERENT;
    if (v->difference[0] == '\0')
        snprintf(v->difference, sizeof v->difference, "%s is %.80s, but was stored as %.80s", where, now, stored);
}

static void scalar_text(const json_t *o, char buf[96]) {
    char *text = json_dumps(o, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    snprintf(buf, 96, "%s", text != NULL ? text : "?");
    free(text);
}

/* Everything of `stored` that `now` has too. */
static void compare_json(hdo_verified *v, const char *where, const json_t *stored, const json_t *now) {
    if (json_is_object(stored) && json_is_object(now)) {
        const char *key;
        json_t *a;
        json_object_foreach((json_t *)(uintptr_t)stored, key, a) {
            char name[128];
            const json_t *b = json_object_get(now, key);
            snprintf(name, sizeof name, "%s.%s", where, key);
            if (b != NULL) compare_json(v, name, a, b);
        }
        return;
    }
    bool numbers = json_is_number(stored) && json_is_number(now);
    bool same = numbers ? json_number_value(stored) == json_number_value(now) : json_equal(stored, now) != 0;
    char a[96], b[96];
    if (same) return;
    scalar_text(stored, a);
    scalar_text(now, b);
    differ(v, where, a, b);
}

static void compare_summary(hdo_verified *v, const json_t *stored, const hdo_run *r) {
    static const char *const keys[] = {"outcome",      "d",     "n",      "steps",
                                       "interactions", "final", "oracle", "bytes_exchanged"};
    char *text = hdo_run_summary(r);
    json_t *now = text != NULL ? json_loads(text, 0, NULL) : NULL;
    free(text);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *a = json_object_get(stored, keys[i]), *b = json_object_get(now, keys[i]);
        if (a != NULL && b != NULL) compare_json(v, keys[i], a, b);
    }
    json_decref(now);
    hdo_run_fingerprint(r, v->sha);
    if (strcmp(v->sha, v->stored_sha) != 0) differ(v, "params_sha256", v->stored_sha, v->sha);
}

/* ---- rows ---- */

typedef struct row_ctx {
    hdo_verified *v;
    const json_t *stored;
    int64_t step;
} row_ctx;

static void compare_figure(void *p, const hdo_metric *m, const char *name, double real, int64_t integer) {
    row_ctx *c = p;
    const json_t *o = json_object_get(c->stored, name);
    if (o == NULL || m->clock) return;
    double was = json_is_number(o) ? json_number_value(o) : (double)NAN;
    double now = m->type == HDO_METRIC_INT ? (double)integer : real;
    if (was == now || (!isfinite(was) && !isfinite(now))) return; /* null stands for all that are not finite */
    char where[2 * HDO_NAME_MAX + 64], a[32], b[32];
    snprintf(where, sizeof where, "%s at step %lld", name, (long long)c->step);
    snprintf(a, sizeof a, "%.17g", was);
    snprintf(b, sizeof b, "%.17g", now);
    differ(c->v, where, a, b);
}

static const hdo_row *row_of(const hdo_row *row, size_t n, int64_t step) {
    for (size_t i = 0; i < n; i++) {
        if (row[i].step == step) return &row[i];
    }
    return NULL;
}

/* A run that was stopped and went on has rows of its stops, which an uninterrupted one has not. */
static hdo_status compare_rows(hdo_verified *v, const hdo_run *r, hdo_error *e) {
    char path[HDO_PATH_MAX + 64], names[HDO_CLASSES_MAX][HDO_NAME_MAX], *text;
    size_t n, len;
    const hdo_row *row = hdo_run_rows(r, &n);
    for (int k = 0; k < r->population.n_classes; k++) memcpy(names[k], r->config.population[k].name, sizeof names[k]);
    if (!hdo__path_join(path, sizeof path, v->dir, "metrics.jsonl"))
        return hdo__fail(e, HDO_E_CONFIG, "the folder name '%.100s...' is too long", v->dir);
    hdo_status st = hdo__file_read(path, ROWS_MAX_BYTES, &text, &len, e);
    if (st != HDO_OK) return st;
    for (char *p = text, *end; (end = memchr(p, '\n', len - (size_t)(p - text))) != NULL; p = end + 1) {
        json_t *o = json_loadb(p, (size_t)(end - p), 0, NULL);
        const hdo_row *now = row_of(row, n, json_integer_value(json_object_get(o, "step")));
        if (!json_is_object(o)) {
            differ(v, "metrics.jsonl", "a line that is no JSON object", "not");
        } else if (now != NULL) {
            row_ctx c = {v, o, now->step};
            hdo__metric_each(now, (const char(*)[HDO_NAME_MAX])names, compare_figure, &c);
            v->rows++;
        }
        json_decref(o);
    }
    free(text);
    char a[32], b[32];
    snprintf(a, sizeof a, "%d", v->rows);
    snprintf(b, sizeof b, "%zu", n);
    if ((size_t)v->rows < n) differ(v, "number of rows", a, b);
    return HDO_OK;
}

/* ---- what else is not as it was ---- */

static void other(hdo_verified *v, const char *what, const json_t *was, const char *now) {
    const char *old = json_string_value(was);
    size_t len = strlen(v->machine);
    if (old == NULL || now == NULL || strcmp(old, now) == 0) return;
    snprintf(v->machine + len, sizeof v->machine - len, "%s%s %.60s, was %.60s", len > 0 ? "; " : "", what, now, old);
}

static void compare_machine(hdo_verified *v, const hdo_run *r) {
    json_t *m = read_json(v->dir, "manifest.json");
    const json_t *host = json_object_get(m, "host"), *data = json_object_get(m, "data");
    const hdo_kernels *k = hdo__kernels(r->config.kernels.id);
    other(v, "compiler", json_object_get(m, "compiler"), HDO_COMPILER);
    other(v, "vector unit", json_object_get(host, "simd"), hdo__simd()->name);
    other(v, "kernels", json_object_get(host, "kernels"), k->title);
    other(v, "matrix products by", json_object_get(host, "gemm"), k->title); /* of older runs */
    other(v, "training data", json_object_get(data, "train_sha256"),
          r->problem.train != NULL ? r->problem.train->sha256 : NULL);
    other(v, "validation data", json_object_get(data, "val_sha256"),
          r->problem.val != NULL ? r->problem.val->sha256 : NULL);
    json_decref(m);
}

/* Who made it: the summary says, and for older runs the manifest. */
static void provenance(hdo_verified *v, const json_t *summary) {
    json_t *m = read_json(v->dir, "manifest.json");
    const char *version = json_string_value(json_object_get(summary, "version")),
               *commit = json_string_value(json_object_get(summary, "commit"));
    if (version == NULL) version = json_string_value(json_object_get(m, "version"));
    if (commit == NULL) commit = json_string_value(json_object_get(m, "commit"));
    if (version != NULL) snprintf(v->version, sizeof v->version, "%s", version);
    if (commit != NULL) snprintf(v->commit, sizeof v->commit, "%s", commit);
    v->other_build = strcmp(v->version, hdo_version()) != 0 || strcmp(v->commit, hdo_commit()) != 0;
    v->n_changes = hdo_run_changes(v->dir, v->change, HDO_CHANGES_MAX);
    if (v->n_changes > HDO_CHANGES_MAX) v->n_changes = HDO_CHANGES_MAX;
    json_decref(m);
}

/* ---- one run ---- */

static hdo_status load_config(const char *dir, int64_t threads, hdo_config *c, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    hdo_config_default(c);
    if (!hdo__path_join(path, sizeof path, dir, "config.yaml"))
        return hdo__fail(e, HDO_E_CONFIG, "the folder name '%.100s...' is too long", dir);
    hdo_status st = hdo_config_load(c, path, e);
    c->engine.id = HDO_ENGINE_SIM; /* the same bits */
    c->stop.time_s = 0.0;
    if (threads > 0) c->threads = threads;
    return st;
}

/* Up to the step the stored run reached. *r is there even when it failed on the way. */
static hdo_status make_again(const hdo_config *c, int64_t steps, const hdo_hooks *hooks, hdo_run **r, hdo_error *e) {
    hdo_stop why = HDO_RUNNING;
    hdo_status st = hdo_run_create(r, c, hooks, e);
    if (st == HDO_OK) st = hdo_run_keep_rows(*r, e);
    if (st == HDO_OK) st = hdo_run_advance(*r, steps, &why, e);
    if (st == HDO_OK && why == HDO_STOPPED && hdo_run_step(*r) < steps)
        return hdo__fail(e, HDO_E_FAILED, "interrupted");
    return st == HDO_OK && why == HDO_RUNNING ? hdo_run_stop(*r, e) : st;
}

static hdo_status verify_stored(hdo_verified *v, const json_t *summary, int64_t threads, const hdo_hooks *hooks,
                                hdo_error *e) {
    const char *sha = json_string_value(json_object_get(summary, "params_sha256"));
    if (sha == NULL || strlen(sha) != 64)
        return hdo__fail(e, HDO_E_DATA, "'%s' has no summary with a fingerprint: the run has not ended", v->dir);
    memcpy(v->stored_sha, sha, 65);
    if (json_object_get(json_object_get(summary, "mpi"), "async") != NULL)
        return hdo__fail(e, HDO_E_UNSUPPORTED, "'%s' is asynchronous (mpi.async): it depends on the clock", v->dir);
    hdo_run *r = NULL;
    hdo_config *c = malloc(sizeof *c);
    hdo_status st = c != NULL ? load_config(v->dir, threads, c, e) : hdo__fail(e, HDO_E_MEMORY, "out of memory");
    if (st == HDO_OK) st = make_again(c, json_integer_value(json_object_get(summary, "steps")), hooks, &r, e);
    if (st == HDO_OK) {
        compare_summary(v, summary, r);
        st = compare_rows(v, r, e);
        compare_machine(v, r);
    }
    hdo_run_destroy(r);
    free(c);
    return st;
}

static hdo_status verify_one(const char *dir, int64_t threads, const hdo_hooks *hooks,
                             void (*each)(void *, const hdo_verified *), void *ctx, hdo_error *e) {
    hdo_verified v = {.dir = dir};
    json_t *summary = read_json(dir, "summary.json");
    provenance(&v, summary);
    v.status = verify_stored(&v, summary, threads, hooks, e);
    json_decref(summary);
    if (v.status == HDO_E_FAILED) return v.status;
    if (v.status != HDO_OK) {
        v.verdict = HDO_NOT_VERIFIED;
        snprintf(v.difference, sizeof v.difference, "%s", e->msg);
    }
    each(ctx, &v);
    return HDO_OK;
}

hdo_status hdo_verify(const char *dir, int64_t threads, const hdo_hooks *hooks,
                      void (*each)(void *ctx, const hdo_verified *v), void *ctx, hdo_error *e) {
    char **runs = NULL;
    hdo_error own = {0};
    if (e == NULL) e = &own;
    int n = hdo__list_runs(dir, &runs);
    hdo_status st =
        n > 0 ? HDO_OK
              : hdo__fail(e, HDO_E_DATA, "'%s' is not a run: it has no metrics.jsonl, nor has any folder in it", dir);
    for (int k = 0; k < n; k++) {
        if (st == HDO_OK) st = verify_one(runs[k], threads, hooks, each, ctx, e);
        free(runs[k]);
    }
    free(runs);
    return st;
}

char *hdo_verified_json(const hdo_verified *v) {
    hdo_json j;
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_text(&j, "dir", v->dir);
    hdo__json_text(&j, "verdict", hdo_same_text(v->verdict));
    hdo__json_int(&j, "rows", v->rows);
    hdo__json_text(&j, "difference", v->difference[0] != '\0' ? v->difference : NULL);
    hdo__json_text(&j, "stored_params_sha256", v->stored_sha[0] != '\0' ? v->stored_sha : NULL);
    hdo__json_text(&j, "params_sha256", v->sha[0] != '\0' ? v->sha : NULL);
    hdo__json_text(&j, "stored_version", v->version[0] != '\0' ? v->version : NULL);
    hdo__json_text(&j, "stored_commit", v->commit[0] != '\0' ? v->commit : NULL);
    hdo__json_text(&j, "version", hdo_version());
    hdo__json_text(&j, "commit", hdo_commit());
    hdo__json_text(&j, "machine", v->machine[0] != '\0' ? v->machine : NULL);
    hdo__json_array(&j, "changes");
    for (int i = 0; i < v->n_changes; i++) {
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, "kind", v->change[i]->kind);
        hdo__json_text(&j, "name", v->change[i]->name);
        hdo__json_int(&j, "revision", v->change[i]->number);
        hdo__json_text(&j, "what", v->change[i]->what);
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    return hdo__json_finish(&j);
}
