/* SPDX-License-Identifier: Apache-2.0
 *
 * Points of a search and what becomes of them. Random points are addressed by (seed, point, axis): adding points never
 * changes those that were there.
 *
 * Successive halving (Jamieson and Talwalkar 2016) with factor 3: a run is paused by a checkpoint and taken up again,
 * so nothing is computed twice and schedules see the whole length from the start.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/file.h"
#include "hdo/experimental/json.h"
#include "base/rng.h"
#include "hdo/experimental/fail.h"
#include "hdo/lab/report.h"
#include "hdo/lab/sweep.h"
#include "lab/report/gnuplot.h"

enum { FACTOR = 3 };

/* ---- axes and points ---- */

static bool number(const char *text, size_t len, double *out) {
    char buf[64], *end;
    if (len == 0 || len >= sizeof buf) return false;
    memcpy(buf, text, len);
    buf[len] = '\0';
    *out = strtod(buf, &end);
    return *end == '\0' && isfinite(*out);
}

static hdo_status parse_interval(const char *text, const char *colon, hdo_sweep_axis *a, hdo_error *e) {
    const char *rest = colon + 1, *second = strchr(rest, ':');
    size_t len = second != NULL ? (size_t)(second - rest) : strlen(rest);
    a->log = second != NULL && strcmp(second + 1, "log") == 0;
    if (!number(text, (size_t)(colon - text), &a->lo) || !number(rest, len, &a->hi) || !(a->lo <= a->hi) ||
        (second != NULL && !a->log) || (a->log && !(a->lo > 0.0))) {
        return hdo__fail(e, HDO_E_CONFIG, "'%s': an interval is lo:hi or lo:hi:log with lo <= hi, and lo > 0 for log",
                         text);
    }
    a->whole = strcspn(text, ".eE") >= (size_t)(rest - text) + len;
    return HDO_OK;
}

hdo_status hdo_sweep_axis_parse(const char *text, hdo_sweep_axis *out, hdo_error *e) {
    const char *eq = strchr(text, '='), *p = eq != NULL ? eq + 1 : text;
    *out = (hdo_sweep_axis){.n = 0};
    if (eq == NULL || eq == text || *p == '\0' || (size_t)(eq - text) >= sizeof out->key) {
        return hdo__fail(e, HDO_E_CONFIG, "'%s': a search takes key=a,b,c or key=lo:hi[:log]", text);
    }
    memcpy(out->key, text, (size_t)(eq - text));
    const char *colon = strchr(p, ':');
    if (colon != NULL && strchr(p, ',') == NULL) return parse_interval(p, colon, out, e);
    for (;;) {
        size_t len = strcspn(p, ",");
        if (len == 0 || len >= sizeof out->value[0] || out->n == HDO_SWEEP_VALUES) {
            return hdo__fail(e, HDO_E_CONFIG, "'%s': a list has 1 to %d values of at most 31 characters", text,
                             HDO_SWEEP_VALUES);
        }
        memcpy(out->value[out->n], p, len);
        out->value[out->n++][len] = '\0';
        if (p[len] == '\0') return HDO_OK;
        p += len + 1;
    }
}

static void draw_value(const hdo_sweep_axis *a, uint64_t seed, int point, int axis, char out[32]) {
    float u;
    hdo__rng_uniform(hdo__stream(seed, HDO_RNG_PROBLEM, (uint32_t)axis, (uint64_t)point, UINT32_MAX), 0, 1, &u);
    if (a->n > 0) {
        int k = (int)((double)u * a->n);
        snprintf(out, 32, "%s", a->value[k < a->n ? k : a->n - 1]);
        return;
    }
    double lo = a->log ? log(a->lo) : a->lo, hi = a->log ? log(a->hi) : a->hi, v = lo + (double)u * (hi - lo);
    v = a->log ? exp(v) : v;
    if (a->whole) {
        snprintf(out, 32, "%.0f", floor(v + 0.5));
    } else {
        snprintf(out, 32, "%.4g", v);
    }
}

hdo_status hdo_sweep_create(hdo_sweep **out, const hdo_sweep_axis *axis, int n_axes, int random, uint64_t seed,
                            hdo_error *e) {
    double points = random > 0 ? random : 1.0;
    *out = NULL;
    if (n_axes < 1 || n_axes > HDO_SWEEP_AXES)
        return hdo__fail(e, HDO_E_CONFIG, "a search has 1 to %d axes, not %d", HDO_SWEEP_AXES, n_axes);
    for (int k = 0; k < n_axes && random == 0; k++) {
        if (axis[k].n == 0)
            return hdo__fail(e, HDO_E_CONFIG, "'%s' is an interval: give --random N, or a list of values", axis[k].key);
        points *= axis[k].n;
    }
    if (points > HDO_SWEEP_POINTS)
        return hdo__fail(e, HDO_E_CONFIG, "%.0f points are more than %d", points, HDO_SWEEP_POINTS);
    hdo_sweep *s = calloc(1, sizeof *s);
    size_t n = (size_t)points;
    if (s != NULL) {
        s->value = calloc(n, sizeof *s->value);
        s->score = calloc(n, sizeof *s->score);
        s->se = calloc(n, sizeof *s->se);
        s->steps = calloc(n, sizeof *s->steps);
    }
    if (s == NULL || s->value == NULL || s->score == NULL || s->se == NULL || s->steps == NULL) {
        hdo_sweep_destroy(s);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for %zu points", n);
    }
    s->n_axes = n_axes;
    s->n_points = (int)n;
    memcpy(s->axis, axis, (size_t)n_axes * sizeof *axis);
    for (int p = 0; p < s->n_points; p++) {
        int rest = p;
        s->score[p] = (double)NAN;
        for (int k = n_axes - 1; k >= 0; k--) {
            if (random > 0) {
                draw_value(&axis[k], seed, p, k, s->value[p][k]);
            } else {
                memcpy(s->value[p][k], axis[k].value[rest % axis[k].n], 32);
                rest /= axis[k].n;
            }
        }
    }
    *out = s;
    return HDO_OK;
}

void hdo_sweep_destroy(hdo_sweep *s) {
    if (s == NULL) return;
    free(s->value);
    free(s->score);
    free(s->se);
    free(s->steps);
    free(s);
}

hdo_status hdo_sweep_apply(const hdo_sweep *s, int point, hdo_config *c, hdo_error *e) {
    hdo_status st = HDO_OK;
    for (int k = 0; k < s->n_axes && st == HDO_OK; k++)
        st = hdo_config_set_from(c, s->axis[k].key, s->value[point][k], HDO_FROM_FLAG, e);
    return st;
}

/* ---- halving ---- */

int hdo_sweep_rungs(int n_points, int64_t total, int64_t least, hdo_sweep_rung out[HDO_SWEEP_RUNGS]) {
    int n = 1;
    for (int64_t len = total / FACTOR, left = n_points / FACTOR; n < HDO_SWEEP_RUNGS && len >= least && left >= 1;
         n++) {
        len /= FACTOR;
        left /= FACTOR;
    }
    for (int k = n - 1; k >= 0; k--) out[k].until = k == n - 1 ? total : out[k + 1].until / FACTOR;
    for (int k = 0, keep = n_points; k < n; k++) {
        out[k].keep = keep;
        keep = keep / FACTOR > 1 ? keep / FACTOR : 1;
    }
    return n;
}

typedef struct place {
    double key;
    int64_t steps;
    int point;
} place;

static int compare_places(const void *pa, const void *pb) {
    const place *a = pa, *b = pb;
    bool lost_a = isnan(a->key), lost_b = isnan(b->key);
    if (lost_a != lost_b) return lost_a ? 1 : -1;
    if (a->steps != b->steps) return a->steps > b->steps ? -1 : 1;
    if (!lost_a && a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->point - b->point;
}

void hdo_sweep_order(const hdo_sweep *s, bool larger, int *order) {
    place *p = malloc((size_t)s->n_points * sizeof *p);
    for (int k = 0; k < s->n_points; k++) {
        order[k] = k;
        if (p != NULL) p[k] = (place){larger ? -s->score[k] : s->score[k], s->steps[k], k};
    }
    if (p == NULL) return;
    qsort(p, (size_t)s->n_points, sizeof *p, compare_places);
    for (int k = 0; k < s->n_points; k++) order[k] = p[k].point;
    free(p);
}

hdo_status hdo_sweep_score(const char *dir, const char *metric, double *score, double *se, int64_t *steps,
                           hdo_error *e) {
    hdo_bundle b;
    hdo_status st = hdo_bundle_load(&b, dir, "step", metric, e);
    if (st != HDO_OK) return st;
    double sum = 0.0, sum2 = 0.0, n = 0.0, reached = HUGE_VAL;
    for (int k = 0; k < b.n_runs; k++) {
        const hdo_series *s = &b.run[k];
        double v = s->n > 0 && !s->diverged ? s->y[s->n - 1] : (double)NAN;
        sum += v;
        sum2 += v * v;
        n += 1.0;
        reached = fmin(reached, s->n > 0 ? s->x[s->n - 1] : 0.0);
    }
    *score = sum / n;
    double var = n > 1.0 ? (sum2 - sum * sum / n) / (n - 1.0) : (double)NAN;
    *se = var < 0.0 ? 0.0 : sqrt(var / n);
    *steps = (int64_t)reached;
    hdo_bundle_clear(&b);
    return HDO_OK;
}

/* ---- results ---- */

/* An empty field: diverged, or one seed and no spread. */
static void real_or_empty(double v, char buf[32]) {
    buf[0] = '\0';
    if (isfinite(v)) hdo__real_text(v, buf);
}

static void put_csv(FILE *f, const hdo_sweep *s, const char *metric, const int *order) {
    fputs("rank,point,steps,", f);
    hdo__quote_csv(f, metric);
    fputs(",se", f);
    for (int k = 0; k < s->n_axes; k++) {
        fputc(',', f);
        hdo__quote_csv(f, s->axis[k].key);
    }
    fputc('\n', f);
    for (int r = 0; r < s->n_points; r++) {
        char score[32], se[32];
        int p = order[r];
        real_or_empty(s->score[p], score);
        real_or_empty(s->se[p], se);
        fprintf(f, "%d,%d,%lld,%s,%s", r + 1, p, (long long)s->steps[p], score, se);
        for (int k = 0; k < s->n_axes; k++) {
            fputc(',', f);
            hdo__quote_csv(f, s->value[p][k]);
        }
        fputc('\n', f);
    }
}

static int index_of(const hdo_sweep_axis *a, const char *value) {
    for (int i = 0; i < a->n; i++) {
        if (strcmp(a->value[i], value) == 0) return i;
    }
    return -1;
}

static hdo_status write_map(const hdo_sweep *s, const char *metric, bool larger, const char *dir, hdo_error *e) {
    const hdo_sweep_axis *ax = &s->axis[0], *ay = &s->axis[1];
    const char *nx[HDO_SWEEP_VALUES], *ny[HDO_SWEEP_VALUES];
    char base[HDO_PATH_MAX + 16];
    double *v = malloc((size_t)(ax->n * ay->n) * sizeof *v);
    if (v == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a heat map");
    for (int i = 0; i < ax->n * ay->n; i++) v[i] = (double)NAN;
    for (int i = 0; i < ax->n; i++) nx[i] = ax->value[i];
    for (int i = 0; i < ay->n; i++) ny[i] = ay->value[i];
    for (int p = 0; p < s->n_points; p++) {
        double *cell = &v[index_of(ay, s->value[p][1]) * ax->n + index_of(ax, s->value[p][0])];
        if (isnan(*cell) || (larger ? s->score[p] > *cell : s->score[p] < *cell)) *cell = s->score[p];
    }
    hdo_heatmap h = {.x_label = ax->key,
                     .y_label = ay->key,
                     .value_label = metric,
                     .nx = ax->n,
                     .ny = ay->n,
                     .x_name = nx,
                     .y_name = ny,
                     .value = v};
    snprintf(base, sizeof base, "%s/heatmap", dir);
    hdo_status st = hdo_heatmap_write(&h, base, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, e);
    free(v);
    return st;
}

hdo_status hdo_sweep_write(const hdo_sweep *s, const char *metric, bool larger, const char *dir, hdo_error *e) {
    char path[HDO_PATH_MAX + 32];
    hdo_text t;
    int *order = malloc((size_t)s->n_points * sizeof *order);
    if (order == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the table");
    hdo_sweep_order(s, larger, order);
    hdo__text_open(&t);
    if (t.f != NULL) put_csv(t.f, s, metric, order);
    free(order);
    snprintf(path, sizeof path, "%.*s/sweep.csv", HDO_PATH_MAX - 1, dir);
    hdo_status st = hdo__text_save(&t, path, e);
    bool map = s->n_axes >= 2 && s->axis[0].n > 1 && s->axis[1].n > 1;
    return st == HDO_OK && map ? write_map(s, metric, larger, dir, e) : st;
}
