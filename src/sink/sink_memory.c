/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows kept in memory, for library users who want the whole curve after a run (hdo_run_keep_rows), and the optional
 * sinks of a run folder, opened and removed together.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "sink/sink.h"

typedef struct memory {
    hdo_sink base;
    hdo_row *rows;
    size_t count, cap;
} memory;

static hdo_status memory_row(hdo_sink *s, const hdo_row *row, hdo_error *e) {
    memory *m = (memory *)s;
    if (m->count == m->cap) {
        size_t cap = m->cap > 0 ? 2 * m->cap : 64;
        hdo_row *more = realloc(m->rows, cap * sizeof *more);
        if (more == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for %zu rows of figures", cap);
        m->rows = more;
        m->cap = cap;
    }
    m->rows[m->count++] = *row;
    return HDO_OK;
}

static void memory_destroy(hdo_sink *s) {
    memory *m = (memory *)s;
    free(m->rows);
    hdo__free(m);
}

static const hdo_sink_ops memory_ops = {.name = "memory", .row = memory_row, .destroy = memory_destroy};

hdo_status hdo__sink_memory_create(hdo_sink **out, hdo_error *e) {
    memory *m = hdo__alloc(sizeof *m);
    if (m == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for rows of figures");
    m->base.ops = &memory_ops;
    *out = &m->base;
    return HDO_OK;
}

const hdo_row *hdo__sink_memory_rows(const hdo_sink *s, size_t *count) {
    *count = 0;
    if (s->ops != &memory_ops) return NULL;
    const memory *m = (const memory *)s;
    static const hdo_row nothing; /* something to point at before the first row */
    *count = m->count;
    return m->count > 0 ? m->rows : &nothing;
}

/* ---- the optional sinks of a run folder ---- */

static const char csv_name[] = "metrics.csv";

hdo_status hdo__sinks_open(hdo_sink **sinks, int *n, int max, const char *dir, const hdo_config *c, int64_t last_step,
                           hdo_error *e) {
    char path[HDO_PATH_MAX + 64];
    hdo_status st = HDO_OK;
    if (*n + c->sink.csv + c->sink.tensorboard > max) {
        return hdo__fail(e, HDO_E_FAILED, "a run writes to at most %d places", max);
    }
    if (c->sink.csv) {
        if (!hdo__path_join(path, sizeof path, dir, csv_name)) {
            return hdo__fail(e, HDO_E_CONFIG, "the folder name '%.100s...' is too long", dir);
        }
        st = hdo__sink_csv_create(&sinks[*n], path, c, last_step, e);
        if (st == HDO_OK) ++*n;
    }
    if (st == HDO_OK && c->sink.tensorboard) {
        st = hdo__sink_tb_create(&sinks[*n], dir, c, e);
        if (st == HDO_OK) ++*n;
    }
    return st;
}

void hdo__sinks_remove(const char *dir) {
    static const char events[] = "events.out.tfevents.";
    char path[HDO_PATH_MAX + 512];
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        bool ours = strcmp(f->d_name, csv_name) == 0 || strncmp(f->d_name, events, sizeof events - 1) == 0;
        if (ours && hdo__path_join(path, sizeof path, dir, f->d_name)) unlink(path);
    }
    closedir(d);
}
