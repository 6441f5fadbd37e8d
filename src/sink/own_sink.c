/* SPDX-License-Identifier: Apache-2.0 — sinks of one's own (<hdo/sink.h>): the table of ops over the user's table. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "config/own_call.h"
#include "hdo/hdo.h"
#include "metrics/metrics.h"
#include "sink/sink.h"

typedef struct own_sink {
    hdo_sink base;
    hdo_table_def *table;
    uint64_t seed;
    bool is_open;
    hdo_complaint *complaint;
    char **columns;
} own_sink;

/* Any result but 0 ends the run. */
static hdo_status result(const own_sink *s, hdo_caller *k, int rc, hdo_error *e) {
    hdo_error said;
    hdo_status st = hdo__call_end(k, rc != 0 ? -1 : 0, s->complaint);
    if (st == HDO_OK) return HDO_OK;
    hdo__complaint_say(s->complaint, st, &said);
    return hdo__fail(e, HDO_E_IO, "%s", said.msg);
}

hdo_status hdo__own_sink_open(hdo_sink *base, const char *dir, int64_t from_step, hdo_error *e) {
    own_sink *s = (own_sink *)base;
    const hdo_sink_def *def = &s->table->def.sink;
    if (s->is_open) return HDO_OK;
    s->is_open = true;
    if (def->open == NULL) return HDO_OK;
    hdo_caller k;
    hdo__call_begin(&k, s->table, -1, from_step, s->seed, 0);
    int rc = def->open(s->table->user, &k.call, dir, (const char *const *)s->columns, from_step);
    return result(s, &k, rc, e);
}

static hdo_status own_row(hdo_sink *base, const hdo_row *row, hdo_error *e) {
    own_sink *s = (own_sink *)base;
    hdo_status st = hdo__own_sink_open(base, NULL, 0, e);
    if (st != HDO_OK) return st;
    hdo_caller k;
    hdo__call_begin(&k, s->table, -1, row->step, s->seed, 0);
    int rc = s->table->def.sink.row(s->table->user, &k.call, row);
    return result(s, &k, rc, e);
}

static hdo_status own_mark(hdo_sink *base, int64_t step, hdo_linemark *out, hdo_error *e) {
    own_sink *s = (own_sink *)base;
    (void)out;
    if (s->table->def.sink.flush == NULL || !s->is_open) return HDO_OK;
    hdo_caller k;
    hdo__call_begin(&k, s->table, -1, step, s->seed, 0);
    int rc = s->table->def.sink.flush(s->table->user, &k.call, step);
    return result(s, &k, rc, e);
}

/* What close returns has no reader: the run is over. */
static void own_destroy(hdo_sink *base) {
    own_sink *s = (own_sink *)base;
    if (s->is_open && s->table->def.sink.close != NULL) {
        hdo_caller k;
        hdo__call_begin(&k, s->table, -1, -1, s->seed, 0);
        int rc = s->table->def.sink.close(s->table->user, &k.call);
        (void)result(s, &k, rc, NULL);
    }
    hdo__table_drop(s->table);
    hdo__complaint_free(s->complaint);
    free(s->columns);
    hdo__free(s);
}

static const hdo_sink_ops own_ops = {.name = "own", .row = own_row, .mark = own_mark, .destroy = own_destroy};

bool hdo__sink_is_own(const hdo_sink *s) {
    return s->ops == &own_ops;
}

hdo_status hdo__own_sinks_create(hdo_sink **sinks, int *n, int max, const hdo_config *c, hdo_error *e) {
    for (int k = 0; c->own != NULL && k < c->own->n; k++) {
        hdo_table_def *t = c->own->table[k];
        if (t->kind != HDO_OWN_SINK) continue;
        if (*n == max) return hdo__fail(e, HDO_E_UNSUPPORTED, "a run writes to at most %d places", max);
        own_sink *s = hdo__alloc(sizeof *s);
        if (s != NULL) s->columns = hdo__metric_names(c);
        if (s != NULL) s->complaint = hdo__complaint_new();
        if (s == NULL || s->columns == NULL || s->complaint == NULL) {
            if (s != NULL) free(s->columns), hdo__complaint_free(s->complaint);
            hdo__free(s);
            return hdo__fail(e, HDO_E_MEMORY, "out of memory for sink '%s'", t->name);
        }
        s->base.ops = &own_ops;
        s->table = t;
        s->seed = (uint64_t)c->seed;
        hdo__table_keep(t);
        sinks[(*n)++] = &s->base;
    }
    return HDO_OK;
}
