/* SPDX-License-Identifier: Apache-2.0 — reading metrics.jsonl back: one metric over the seeds of a group. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "hdo/experimental/fail.h"
#include "hdo/experimental/config.h"
#include "hdo/lab/report.h"
#include "lab/report/page.h"

enum { METRICS_MAX_BYTES = 1 << 30 };

static bool series_add(hdo_series *s, double x, double y) {
    if (s->n >= 64 ? (s->n & (s->n - 1)) == 0 : s->n == 0) { /* full at 64, 128, 256, ... */
        int cap = s->n == 0 ? 64 : 2 * s->n;
        double *nx = realloc(s->x, (size_t)cap * sizeof(double));
        if (nx != NULL) s->x = nx;
        double *ny = realloc(s->y, (size_t)cap * sizeof(double));
        if (ny != NULL) s->y = ny;
        if (nx == NULL || ny == NULL) return false;
    }
    s->x[s->n] = x;
    s->y[s->n++] = y;
    return true;
}

/* A figure by its name; "time/wall" is stored as time: {wall}, and "cost" is short for "oracle/cost". A missing or null
 * figure is NaN. */
static double figure_of(const json_t *row, const char *name, bool *known) {
    if (strcmp(name, "cost") == 0) name = "oracle/cost";
    const json_t *v = json_object_get(row, name);
    if (v == NULL && strncmp(name, "time/", 5) == 0) v = json_object_get(json_object_get(row, "time"), name + 5);
    if (v != NULL) *known = true;
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static hdo_status read_metrics(const char *path, const char *x, const char *y, hdo_series *out, hdo_error *e) {
    char *text;
    size_t len;
    hdo_status st = hdo__file_read(path, METRICS_MAX_BYTES, &text, &len, e);
    if (st != HDO_OK) return st;
    bool known_x = false, known_y = false;
    int line = 1;
    for (char *p = text; p < text + len && st == HDO_OK; line++) {
        char *end = memchr(p, '\n', len - (size_t)(p - text));
        if (end == NULL) break; /* the last line of a killed run may be torn */
        json_t *row = json_loadb(p, (size_t)(end - p), 0, NULL);
        if (!json_is_object(row)) {
            st = hdo__fail(e, HDO_E_DATA, "%s:%d: not a JSON object", path, line);
        } else if (!series_add(out, figure_of(row, x, &known_x), figure_of(row, y, &known_y))) {
            st = hdo__fail(e, HDO_E_MEMORY, "out of memory while reading '%s'", path);
        }
        json_decref(row);
        p = end + 1;
    }
    free(text);
    if (st == HDO_OK && out->n > 0 && (!known_x || !known_y)) {
        st = hdo__fail(e, HDO_E_CONFIG, "'%s' has no metric '%s'; docs/metrics.md lists them", path, known_x ? y : x);
    }
    return st;
}

/* Seed and outcome of a run from its summary; a run without one is still going or was killed. */
static void read_outcome(const char *dir, hdo_series *out) {
    char path[2 * HDO_PATH_MAX];
    out->seed = -1;
    if (!hdo__path_join(path, sizeof path, dir, "summary.json")) return;
    json_t *o = json_load_file(path, 0, NULL);
    const char *word = json_string_value(json_object_get(o, "outcome"));
    if (json_is_integer(json_object_get(o, "seed"))) out->seed = json_integer_value(json_object_get(o, "seed"));
    out->finished = word != NULL && strcmp(word, "stopped") != 0;
    out->diverged = word != NULL && strcmp(word, "diverged") == 0;
    json_decref(o);
}

static hdo_status read_run(const char *dir, const char *x, const char *y, hdo_series *out, hdo_error *e) {
    char path[2 * HDO_PATH_MAX + 32];
    read_outcome(dir, out);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    return read_metrics(path, x, y, out, e);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_folders(const char *dir, char ***out) {
    DIR *d = opendir(dir);
    int n = 0, cap = 0;
    char **names = NULL;
    if (d == NULL) return 0;
    for (struct dirent *ent; (ent = readdir(d)) != NULL;) {
        char path[2 * HDO_PATH_MAX];
        if (ent->d_name[0] == '.') continue;
        int len = snprintf(path, sizeof path, "%s/%s/metrics.jsonl", dir, ent->d_name);
        if (len < 0 || (size_t)len >= sizeof path || !hdo__path_exists(path)) continue;
        if (n == cap) {
            cap = cap == 0 ? 16 : 2 * cap;
            char **more = realloc(names, (size_t)cap * sizeof *names);
            if (more == NULL) break;
            names = more;
        }
        len -= (int)strlen("/metrics.jsonl");
        names[n] = malloc((size_t)len + 1);
        if (names[n] == NULL) break;
        memcpy(names[n], path, (size_t)len);
        names[n++][len] = '\0';
    }
    closedir(d);
    if (n > 1) qsort(names, (size_t)n, sizeof *names, by_name);
    *out = names;
    return n;
}

int hdo__list_runs(const char *dir, char ***out) {
    char path[HDO_PATH_MAX + 64];
    *out = NULL;
    if (!hdo__path_join(path, sizeof path, dir, "metrics.jsonl") || !hdo__path_exists(path))
        return list_folders(dir, out);
    *out = malloc(sizeof **out);
    if (*out == NULL || ((*out)[0] = strdup(dir)) == NULL) return 0;
    return 1;
}

static void set_label(char label[HDO_LABEL_MAX], const char *dir) {
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') len--;
    size_t start = len;
    while (start > 0 && dir[start - 1] != '/') start--;
    snprintf(label, HDO_LABEL_MAX, "%.*s", (int)(len - start), dir + start);
}

hdo_status hdo_bundle_load(hdo_bundle *out, const char *dir, const char *x, const char *y, hdo_error *e) {
    char **runs = NULL;
    *out = (hdo_bundle){0};
    set_label(out->label, dir);
    int n = hdo__list_runs(dir, &runs);
    if (n == 0) {
        free(runs);
        return hdo__fail(e, HDO_E_DATA, "'%s' is not a run: it has no metrics.jsonl, nor has any folder in it", dir);
    }
    out->run = calloc((size_t)n, sizeof *out->run);
    hdo_status st = out->run == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory") : HDO_OK;
    for (; out->n_runs < n && st == HDO_OK; out->n_runs++) {
        st = read_run(runs[out->n_runs], x, y, &out->run[out->n_runs], e);
    }
    for (int k = 0; k < n; k++) free(runs[k]);
    free(runs);
    if (st != HDO_OK) hdo_bundle_clear(out);
    return st;
}

double hdo_series_at(const hdo_series *s, double x) {
    int hi = 0;
    while (hi < s->n && s->x[hi] < x) hi++;
    if (hi == s->n || (hi == 0 && s->x[0] > x)) return (double)NAN;
    if (s->x[hi] <= x || hi == 0) return s->y[hi];
    double t = (x - s->x[hi - 1]) / (s->x[hi] - s->x[hi - 1]);
    return s->y[hi - 1] + t * (s->y[hi] - s->y[hi - 1]);
}

/* Moves the runs that diverged to the end of the list; returns how many did not. */
static int part_diverged(hdo_bundle *b) {
    int kept = 0;
    for (int k = 0; k < b->n_runs; k++) {
        if (b->run[k].diverged) continue;
        hdo_series s = b->run[k];
        memmove(&b->run[kept + 1], &b->run[kept], (size_t)(k - kept) * sizeof s);
        b->run[kept++] = s;
    }
    return kept;
}

/* Mean and standard error over the first n_runs runs at the points all of them have. */
static hdo_status average(hdo_curve *c, const hdo_series *s, int n_runs, hdo_error *e) {
    int n = n_runs > 0 ? s[0].n : 0;
    for (int k = 1; k < n_runs; k++) n = s[k].n < n ? s[k].n : n;
    c->x = calloc((size_t)n + 1, sizeof(double));
    c->mean = calloc((size_t)n + 1, sizeof(double));
    c->se = calloc((size_t)n + 1, sizeof(double));
    if (c->x == NULL || c->mean == NULL || c->se == NULL)
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for a curve");
    for (int i = 0; i < n; i++) {
        double mean = 0.0, x = 0.0, var = 0.0;
        for (int k = 0; k < n_runs; k++) {
            mean += s[k].y[i] / n_runs;
            x += s[k].x[i] / n_runs;
        }
        for (int k = 0; k < n_runs; k++) var += (s[k].y[i] - mean) * (s[k].y[i] - mean);
        c->x[i] = x;
        c->mean[i] = mean;
        c->se[i] = n_runs > 1 ? sqrt(var / (n_runs - 1) / n_runs) : (double)NAN;
    }
    c->n_points = n;
    c->n_runs = n_runs;
    return HDO_OK;
}

/* Hands the runs that diverged over to the curve. */
static hdo_status take_diverged(hdo_curve *c, hdo_bundle *b, int kept, hdo_error *e) {
    int n = b->n_runs - kept;
    if (n == 0) return HDO_OK;
    c->diverged = calloc((size_t)n, sizeof *c->diverged);
    if (c->diverged == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a curve");
    memcpy(c->diverged, b->run + kept, (size_t)n * sizeof *c->diverged);
    c->n_diverged = n;
    b->n_runs = kept;
    return HDO_OK;
}

hdo_status hdo_curve_load(hdo_curve *out, const char *dir, const char *x, const char *y, hdo_error *e) {
    hdo_bundle b;
    *out = (hdo_curve){0};
    hdo_status st = hdo_bundle_load(&b, dir, x, y, e);
    if (st != HDO_OK) return st;
    memcpy(out->label, b.label, sizeof out->label);
    int kept = part_diverged(&b);
    st = average(out, b.run, kept, e);
    if (st == HDO_OK) st = take_diverged(out, &b, kept, e);
    hdo_bundle_clear(&b);
    if (st != HDO_OK) hdo_curve_clear(out);
    return st;
}

static void free_series(hdo_series *s, int n) {
    for (int k = 0; k < n; k++) {
        free(s[k].x);
        free(s[k].y);
    }
    free(s);
}

void hdo_bundle_clear(hdo_bundle *b) {
    free_series(b->run, b->n_runs);
    *b = (hdo_bundle){0};
}

void hdo_curve_clear(hdo_curve *c) {
    free(c->x);
    free(c->mean);
    free(c->se);
    free_series(c->diverged, c->n_diverged);
    *c = (hdo_curve){0};
}
