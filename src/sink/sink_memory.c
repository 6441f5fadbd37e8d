/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows kept in memory, for library users who want the whole curve after a run (hdo_run_keep_rows).
 */
#include <stdlib.h>

#include "base/arena.h"
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
