/* SPDX-License-Identifier: Apache-2.0 — the state of a run as JSON: one table for writing and reading. */
#include "record/ckstate.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/sha256.h"
#include "config/own.h"

const char *const hdo__mark_files[HDO_MARKS] = {"metrics.jsonl", "trace.jsonl"};

typedef struct field { /* a number of hdo_progress that a checkpoint holds */
    const char *name;
    size_t at;
    bool real;
} field;

#define COUNT(f)                                                                                                       \
    { #f, offsetof(hdo_progress, counts.f), false }
#define REAL(f)                                                                                                        \
    { #f, offsetof(hdo_progress, f), true }
static const field fields[] = {COUNT(interactions), COUNT(bytes), COUNT(forward), COUNT(backward),
                               COUNT(jvp),          COUNT(cost),  COUNT(failed),  REAL(start_loss),
                               REAL(train_loss),    REAL(mg),     REAL(step_s),   REAL(eval_s)};
enum { FIELDS = sizeof fields / sizeof fields[0] };

static const char *const texts[] = {"run_id", "train_sha256", "val_sha256", "inputs_sha256"};
enum { TEXTS = sizeof texts / sizeof texts[0] };
static char *text_of(hdo_state_head *h, int k, size_t *cap) {
    char *const at[TEXTS] = {h->run_id, h->train_sha256, h->val_sha256, h->inputs_sha256};
    *cap = k == 0 ? sizeof h->run_id : sizeof h->train_sha256;
    return at[k];
}

/* ---- writing ---- */

/* Estimators and mixings of one's own; objectives and data are in the configuration with their identity. */
static bool in_use(const hdo_config *c, const hdo_table_def *t) {
    if (t->kind == HDO_OWN_MIXING) return strcmp(c->mixing.kind, t->name) == 0;
    for (int k = 0; k < c->n_classes && t->kind == HDO_OWN_ESTIMATOR; k++) {
        if (strcmp(c->population[k].estimator, t->name) == 0) return true;
    }
    return false;
}

void hdo__inputs_sha256(const hdo_config *c, char hex[65]) {
    const char *path[HDO_CLASSES_MAX + 2] = {c->model.weights, c->mixing.edges};
    int n = 2, used = 0;
    for (int k = 0; k < c->n_classes; k++) path[n++] = c->population[k].schedule_file;
    hdo_sha256 all;
    unsigned char digest[32];
    hdo__sha256_init(&all);
    for (int k = 0; k < n; k++) {
        char one[65] = "absent"; /* a file that is named and not read */
        if (path[k][0] == '\0') continue;
        (void)hdo__sha256_file(path[k], one, NULL);
        hdo__sha256_update(&all, one, strlen(one));
        used++;
    }
    for (int k = 0; c->own != NULL && k < c->own->n; k++) {
        const hdo_table_def *t = c->own->table[k];
        if (!in_use(c, t)) continue;
        hdo__sha256_update(&all, t->name, strlen(t->name) + 1);
        hdo__sha256_update(&all, t->identity, strlen(t->identity) + 1);
        used++;
    }
    hdo__sha256_final(&all, digest);
    hex[0] = '\0';
    if (used > 0) hdo__sha256_hex(digest, hex);
}

void hdo__state_head_of(const hdo_record *r, hdo_state_head *h) {
    *h = (hdo_state_head){.step = r->progress->step, .n = r->population->n, .d = (int64_t)r->problem->objective->d};
    for (int k = 0; k < r->population->n_classes; k++) h->noise[k] = r->population->classes[k].noise;
    memcpy(h->run_id, r->run_id, sizeof h->run_id);
    if (r->problem->train != NULL) memcpy(h->train_sha256, r->problem->train->sha256, sizeof h->train_sha256);
    if (r->problem->val != NULL) memcpy(h->val_sha256, r->problem->val->sha256, sizeof h->val_sha256);
    memcpy(h->inputs_sha256, r->inputs_sha256, sizeof h->inputs_sha256);
}

static void put_marks(hdo_json *j, const hdo_state_head *h) {
    hdo__json_array(j, "rows");
    for (int k = 0; k < HDO_MARKS; k++) {
        hdo__json_object(j, NULL);
        hdo__json_text(j, "file", hdo__mark_files[k]);
        hdo__json_int(j, "bytes", h->mark[k].bytes);
        hdo__json_text(j, "sha256", h->mark[k].sha256);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, ']');
}

char *hdo__state_text(const hdo_record *r, const hdo_state_head *h) {
    hdo_json j;
    hdo_state_head copy = *h;
    hdo__json_init(&j, false);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "step", h->step);
    hdo__json_int(&j, "n", h->n);
    hdo__json_int(&j, "d", h->d);
    for (int k = 0; k < TEXTS; k++) {
        size_t cap;
        hdo__json_text(&j, texts[k], text_of(&copy, k, &cap));
    }
    put_marks(&j, h);
    hdo__json_real(&j, "wall_s", hdo__now_s() - r->progress->start_s);
    for (int k = 0; k < FIELDS; k++) {
        const char *at = (const char *)r->progress + fields[k].at;
        if (fields[k].real) {
            hdo__json_real(&j, fields[k].name, *(const double *)(const void *)at);
        } else {
            hdo__json_int(&j, fields[k].name, *(const int64_t *)(const void *)at);
        }
    }
    hdo__json_array(&j, "lr");
    for (int k = 0; k < r->population->n_classes; k++) hdo__json_real(&j, NULL, r->population->classes[k].schedule.lr);
    hdo__json_end(&j, ']');
    hdo__json_real(&j, "own", r->population->mixer.own);
    const hdo_tuned *t = &r->population->tuned;
    const double tuned[] = {t->way, t->seen_way, t->seen_loss, t->slope};
    hdo__json_array(&j, "tuned");
    for (size_t k = 0; k < sizeof tuned / sizeof tuned[0]; k++) hdo__json_real(&j, NULL, tuned[k]);
    hdo__json_end(&j, ']');
    hdo__json_array(&j, "g2");
    for (int k = 0; k < r->population->n_classes; k++) {
        hdo__json_real(&j, NULL, r->population->classes[k].g2);
        hdo__json_real(&j, NULL, r->population->classes[k].g2_seen);
        hdo__json_real(&j, NULL, r->population->classes[k].g2_expected);
    }
    hdo__json_end(&j, ']');
    hdo__json_array(&j, "noise");
    for (int k = 0; k < r->population->n_classes; k++) hdo__json_real(&j, NULL, r->population->classes[k].noise);
    hdo__json_end(&j, ']');
    return hdo__json_finish(&j);
}

/* ---- reading ---- */

typedef struct reader { /* remembers what is wrong: the first key */
    const char *missing;
} reader;

/* A count: none is below zero. */
static int64_t get_int(reader *r, const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    if ((!json_is_integer(v) || json_integer_value(v) < 0) && r->missing == NULL) r->missing = key;
    return (int64_t)json_integer_value(v);
}

static double get_number(reader *r, const json_t *v, const char *key) {
    if (json_is_null(v)) return (double)NAN;
    if (!json_is_number(v) && r->missing == NULL) r->missing = key;
    return json_number_value(v);
}

static void get_text(reader *r, const json_t *o, const char *key, char *buf, size_t cap) {
    const char *s = json_string_value(json_object_get(o, key));
    if ((s == NULL || strlen(s) >= cap) && r->missing == NULL) r->missing = key;
    if (s != NULL && strlen(s) < cap) memcpy(buf, s, strlen(s) + 1);
}

static hdo_status state_open(const char *json, const char *path, json_t **o, hdo_error *e) {
    *o = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(*o)) return HDO_OK;
    json_decref(*o);
    *o = NULL;
    return hdo__fail(e, HDO_E_DATA, "%s is damaged: its state is not JSON", path);
}

static hdo_status state_done(const reader *r, json_t *o, const char *path, hdo_error *e) {
    hdo_status st = HDO_OK;
    if (r->missing != NULL)
        st = hdo__fail(e, HDO_E_DATA, "%s is damaged: '%s' is missing from its state or makes no sense", path,
                       r->missing);
    json_decref(o);
    return st;
}

hdo_status hdo__state_read_head(const char *json, const char *path, hdo_state_head *h, hdo_error *e) {
    json_t *o;
    reader r = {NULL};
    *h = (hdo_state_head){0};
    hdo_status st = state_open(json, path, &o, e);
    if (st != HDO_OK) return st;
    h->step = get_int(&r, o, "step");
    h->n = get_int(&r, o, "n");
    h->d = get_int(&r, o, "d");
    for (int k = 0; k < TEXTS; k++) {
        size_t cap;
        char *at = text_of(h, k, &cap);
        get_text(&r, o, texts[k], at, cap);
    }
    const json_t *rows = json_object_get(o, "rows"), *noise = json_object_get(o, "noise");
    for (size_t k = 0; k < HDO_CLASSES_MAX && k < json_array_size(noise); k++)
        h->noise[k] = get_number(&r, json_array_get(noise, k), "noise");
    for (int k = 0; k < HDO_MARKS; k++) {
        const json_t *m = json_array_get(rows, (size_t)k);
        h->mark[k].bytes = get_int(&r, m, "bytes");
        get_text(&r, m, "sha256", h->mark[k].sha256, sizeof h->mark[k].sha256);
    }
    return state_done(&r, o, path, e);
}

hdo_status hdo__state_load(hdo_record *run, const char *json, const char *path, hdo_error *e) {
    json_t *o;
    reader r = {NULL};
    hdo_status st = state_open(json, path, &o, e);
    if (st != HDO_OK) return st;
    run->progress->step = get_int(&r, o, "step");
    run->progress->start_s = hdo__now_s() - get_number(&r, json_object_get(o, "wall_s"), "wall_s");
    for (int k = 0; k < FIELDS; k++) {
        char *at = (char *)run->progress + fields[k].at;
        if (fields[k].real) {
            *(double *)(void *)at = get_number(&r, json_object_get(o, fields[k].name), fields[k].name);
        } else {
            bool there =
                json_object_get(o, fields[k].name) != NULL || fields[k].at != offsetof(hdo_progress, counts.failed);
            *(int64_t *)(void *)at = there ? get_int(&r, o, fields[k].name) : 0; /* files of before had no `failed` */
        }
    }
    const json_t *lr = json_object_get(o, "lr"), *noise = json_object_get(o, "noise"), *own = json_object_get(o, "own");
    const json_t *g2 = json_object_get(o, "g2"), *tuned = json_object_get(o, "tuned");
    hdo_tuned *t = &run->population->tuned;
    double *const past[] = {&t->way, &t->seen_way, &t->seen_loss, &t->slope};
    for (size_t k = 0; tuned != NULL && k < sizeof past / sizeof past[0]; k++)
        *past[k] = get_number(&r, json_array_get(tuned, k), "tuned");
    if (own != NULL) run->population->mixer.own = get_number(&r, own, "own"); /* older checkpoints have none */
    for (size_t k = 0; g2 != NULL && k < (size_t)run->population->n_classes; k++) {
        hdo_class *c = &run->population->classes[k];
        c->g2 = get_number(&r, json_array_get(g2, 3 * k), "g2");
        c->g2_seen = get_number(&r, json_array_get(g2, 3 * k + 1), "g2");
        c->g2_expected = get_number(&r, json_array_get(g2, 3 * k + 2), "g2");
    }
    for (int k = 0; k < run->population->n_classes; k++) {
        hdo_class *c = &run->population->classes[k];
        c->schedule.lr = get_number(&r, json_array_get(lr, (size_t)k), "lr");
        c->noise = get_number(&r, json_array_get(noise, (size_t)k), "noise");
        run->population->lr[k] =
            run->progress->step > 0 ? hdo__schedule_lr(&c->schedule, run->progress->step - 1) : 0.0;
    }
    return state_done(&r, o, path, e);
}
