/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.jsonl: one object per evaluation. Figures that depend on the speed of the machine are kept apart under
 * "time", so that the rest of two equal runs is equal byte for byte.
 */
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "metrics/metrics.h"
#include "sink/sink.h"

typedef struct jsonl {
    hdo_sink base;
    hdo_linelog log;
    char class_name[HDO_CLASSES_MAX][HDO_NAME_MAX];
    hdo_json text;
    bool clock; /* which half of the table is being written */
} jsonl;

static void emit(void *ctx, const hdo_metric *m, const char *name, double real, int64_t integer) {
    jsonl *j = ctx;
    if (m->clock != j->clock) return;
    if (m->clock) name = strchr(name, '/') + 1; /* "time/wall" -> time: {wall} */
    if (m->type == HDO_METRIC_INT) {
        hdo__json_int(&j->text, name, integer);
    } else {
        hdo__json_real(&j->text, name, real);
    }
}

static hdo_status jsonl_row(hdo_sink *s, const hdo_row *row, hdo_error *e) {
    jsonl *j = (jsonl *)s;
    hdo__json_reset(&j->text);
    hdo__json_object(&j->text, NULL);
    j->clock = false;
    hdo__metric_each(row, (const char(*)[HDO_NAME_MAX])j->class_name, emit, j);
    hdo__json_object(&j->text, "time");
    j->clock = true;
    hdo__metric_each(row, (const char(*)[HDO_NAME_MAX])j->class_name, emit, j);
    hdo__json_end(&j->text, '}');
    hdo__json_end(&j->text, '}');
    if (j->text.failed) return hdo__fail(e, HDO_E_MEMORY, "out of memory while writing '%s'", j->log.path);
    j->text.text[j->text.len] = '\n'; /* over the terminator: the line goes out in one piece */
    hdo_status st = hdo__linelog_put(&j->log, row->step, j->text.text, j->text.len + 1, e);
    j->text.text[j->text.len] = '\0';
    return st;
}

static hdo_status jsonl_mark(hdo_sink *s, int64_t step, hdo_linemark *out, hdo_error *e) {
    return hdo__linelog_mark(&((jsonl *)s)->log, step, out, e);
}

static void jsonl_destroy(hdo_sink *s) {
    jsonl *j = (jsonl *)s;
    hdo__linelog_close(&j->log);
    hdo__json_clear(&j->text);
    hdo__free(j);
}

static const hdo_sink_ops jsonl_ops = {.name = "jsonl", .row = jsonl_row, .mark = jsonl_mark, .destroy = jsonl_destroy};

hdo_status hdo__sink_jsonl_create(hdo_sink **out, const char *path, const hdo_config *c, hdo_error *e) {
    jsonl *j = hdo__alloc(sizeof *j);
    if (j == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", path);
    j->base.ops = &jsonl_ops;
    for (int k = 0; k < c->n_classes; k++) memcpy(j->class_name[k], c->population[k].name, HDO_NAME_MAX);
    hdo__json_init(&j->text, false);
    hdo_status st = hdo__linelog_open(&j->log, path, e);
    if (st != HDO_OK) {
        jsonl_destroy(&j->base);
        return st;
    }
    *out = &j->base;
    return HDO_OK;
}
