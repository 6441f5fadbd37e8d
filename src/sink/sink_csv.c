/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.csv: what spreadsheets, gnuplot and R like to read. The columns are the metric table's, clocks included;
 * there is no second list. Names need no quotes: a class name is letters, digits, '_' and '-'.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "metrics/metrics.h"
#include "sink/sink.h"

enum { LINE_MAX_BYTES = 1 << 15, CSV_MAX_BYTES = 1 << 30 };

typedef struct csv {
    hdo_sink base;
    int fd;
    int64_t last_step; /* of the last line in the file */
    char path[HDO_PATH_MAX + 64];
    char class_name[HDO_CLASSES_MAX][HDO_NAME_MAX];
    size_t len;
    char line[LINE_MAX_BYTES]; /* some 130 columns of at most 64 characters */
} csv;

static void put(csv *c, const char *text) {
    int n = snprintf(c->line + c->len, sizeof c->line - c->len, "%s%s", c->len > 0 ? "," : "", text);
    if (n > 0 && c->len + (size_t)n < sizeof c->line) c->len += (size_t)n;
}

static void emit_name(void *ctx, const hdo_metric *m, const char *name, double real, int64_t integer) {
    (void)m;
    (void)real;
    (void)integer;
    put(ctx, name);
}

static void emit_value(void *ctx, const hdo_metric *m, const char *name, double real, int64_t integer) {
    char text[32] = "";
    (void)name;
    if (m->type == HDO_METRIC_INT) {
        snprintf(text, sizeof text, "%lld", (long long)integer);
    } else if (!isnan(real)) {
        hdo__real_text(real, text);
    }
    put(ctx, text);
}

static hdo_status write_line(csv *c, hdo_error *e) {
    c->line[c->len++] = '\n'; /* the line goes out in one piece: a killed run loses at most this one */
    ssize_t n = write(c->fd, c->line, c->len);
    if (n == (ssize_t)c->len) return HDO_OK;
    return hdo__fail(e, HDO_E_IO, "writing '%s' failed: %s", c->path, n < 0 ? strerror(errno) : "the disk is full");
}

static hdo_status csv_row(hdo_sink *s, const hdo_row *row, hdo_error *e) {
    csv *c = (csv *)s;
    if (row->step <= c->last_step) return HDO_OK;
    c->last_step = row->step;
    c->len = 0;
    hdo__metric_each(row, (const char(*)[HDO_NAME_MAX])c->class_name, emit_value, c);
    return write_line(c, e);
}

static hdo_status csv_mark(hdo_sink *s, int64_t step, hdo_linemark *out, hdo_error *e) {
    const csv *c = (const csv *)s;
    (void)step;
    (void)out;
    return fsync(c->fd) == 0 ? HDO_OK : hdo__fail(e, HDO_E_IO, "writing '%s' failed: %s", c->path, strerror(errno));
}

static void csv_destroy(hdo_sink *s) {
    csv *c = (csv *)s;
    if (c->fd >= 0) close(c->fd);
    hdo__free(c);
}

static const hdo_sink_ops csv_ops = {.name = "csv", .row = csv_row, .mark = csv_mark, .destroy = csv_destroy};

/* Keeps the header and the lines up to last_step of the file as it is, whole lines only. */
static hdo_status cut_back(csv *c, int64_t last_step, hdo_error *e) {
    char *text = NULL;
    size_t len = 0, keep = 0;
    if (!hdo__path_exists(c->path)) return HDO_OK;
    hdo_status st = hdo__file_read(c->path, CSV_MAX_BYTES, &text, &len, e);
    if (st != HDO_OK) return st;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        if (end == NULL) break;
        if (at > 0) { /* the step is the first column */
            int64_t step = strtoll(text + at, NULL, 10);
            if (step > last_step) break;
            c->last_step = step;
        }
        at = keep = (size_t)(end - text) + 1;
    }
    st = hdo__file_write(c->path, text, keep, e);
    free(text);
    return st;
}

static hdo_status csv_start(csv *c, const hdo_config *config, int64_t last_step, hdo_error *e) {
    hdo_status st = last_step >= 0 ? cut_back(c, last_step, e) : HDO_OK;
    if (st != HDO_OK) return st;
    c->fd = open(c->path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | (last_step < 0 ? O_TRUNC : 0), 0666);
    if (c->fd < 0) return hdo__fail(e, HDO_E_IO, "cannot write '%s': %s", c->path, strerror(errno));
    if (lseek(c->fd, 0, SEEK_END) > 0) return HDO_OK; /* the header is there */
    hdo_row row = {.n_classes = config->n_classes};
    hdo__metric_each(&row, (const char(*)[HDO_NAME_MAX])c->class_name, emit_name, c);
    return write_line(c, e);
}

hdo_status hdo__sink_csv_create(hdo_sink **out, const char *path, const hdo_config *c, int64_t last_step,
                                hdo_error *e) {
    csv *s = hdo__alloc(sizeof *s);
    if (s == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", path);
    s->base.ops = &csv_ops;
    s->fd = -1;
    s->last_step = -1;
    snprintf(s->path, sizeof s->path, "%s", path);
    for (int k = 0; k < c->n_classes; k++) memcpy(s->class_name[k], c->population[k].name, HDO_NAME_MAX);
    hdo_status st = csv_start(s, c, last_step, e);
    if (st != HDO_OK) {
        csv_destroy(&s->base);
        return st;
    }
    *out = &s->base;
    return HDO_OK;
}

static const char file_name[] = "metrics.csv";

static bool csv_wanted(const hdo_config *c) {
    return c->sink.csv;
}

static hdo_status csv_open(hdo_sink **out, const char *dir, const hdo_config *c, int64_t last_step, hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    if (!hdo__path_join(path, sizeof path, dir, file_name))
        return hdo__fail(e, HDO_E_CONFIG, "the folder name '%.100s...' is too long", dir);
    return hdo__sink_csv_create(out, path, c, last_step, e);
}

const hdo_sink_kind hdo__sink_csv = {.files = file_name, .wanted = csv_wanted, .open = csv_open};
