/* SPDX-License-Identifier: Apache-2.0
 *
 * Edge lists: a line is two vertex numbers 0 .. n-1, separated by blanks, tabs or a comma. '#' and '%' start a comment,
 * empty lines are skipped. An edge may stand there in both directions or twice: it counts once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "topo/graph.h"

enum { FILE_MAX = 1 << 30 };

typedef struct reader {
    const char *path, *p, *end;
    int64_t line;
    int n;
} reader;

static bool is_gap(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_gaps(reader *r) {
    while (r->p < r->end && is_gap(*r->p)) r->p++;
}

static bool at_line_end(const reader *r) {
    return r->p == r->end || *r->p == '\n' || *r->p == '#' || *r->p == '%';
}

/* The rest of the line, cut, for a message. */
static const char *shown(const reader *r, char buf[32]) {
    size_t len = 0;
    while (r->p + len < r->end && len < 31 && r->p[len] != '\n' && r->p[len] != '\r') {
        buf[len] = (unsigned char)r->p[len] < ' ' ? '?' : r->p[len];
        len++;
    }
    buf[len] = '\0';
    return buf;
}

static hdo_status read_vertex(reader *r, int64_t *v, hdo_error *e) {
    char buf[32];
    const char *start = r->p;
    *v = 0;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') {
        if (*v <= HDO_EDGES_MAX) *v = *v * 10 + (*r->p - '0'); /* beyond that it is too large anyway */
        r->p++;
    }
    if (r->p == start || !(at_line_end(r) || is_gap(*r->p) || *r->p == ',')) {
        r->p = start;
        return hdo__fail(e, HDO_E_CONFIG,
                         "%s:%lld: a line must hold two vertex numbers such as '3 17', but here is '%s'", r->path,
                         (long long)r->line, shown(r, buf));
    }
    if (*v >= r->n) {
        return hdo__fail(e, HDO_E_CONFIG, "%s:%lld: vertex %.*s does not exist: %d nodes have the vertices 0 to %d",
                         r->path, (long long)r->line, (int)(r->p - start < 20 ? r->p - start : 20), start, r->n,
                         r->n - 1);
    }
    skip_gaps(r);
    return HDO_OK;
}

/* One line; *found says whether it held an edge. Leaves the reader at the start of the next. */
static hdo_status read_line(reader *r, int64_t *a, int64_t *b, bool *found, hdo_error *e) {
    char buf[32];
    hdo_status st = HDO_OK;
    skip_gaps(r);
    *found = !at_line_end(r);
    if (*found) {
        st = read_vertex(r, a, e);
        if (st == HDO_OK && r->p < r->end && *r->p == ',') {
            r->p++;
            skip_gaps(r);
        }
        if (st == HDO_OK) st = read_vertex(r, b, e);
        if (st == HDO_OK && !at_line_end(r)) {
            st = hdo__fail(e, HDO_E_CONFIG,
                           "%s:%lld: two vertex numbers make a line, but '%s' follows; edges have no weights", r->path,
                           (long long)r->line, shown(r, buf));
        }
        if (st == HDO_OK && *a == *b) {
            st = hdo__fail(e, HDO_E_CONFIG, "%s:%lld: vertex %lld is joined to itself", r->path, (long long)r->line,
                           (long long)*a);
        }
    }
    while (r->p < r->end && *r->p != '\n') r->p++;
    if (r->p < r->end) r->p++;
    r->line++;
    return st;
}

hdo_status hdo__graph_read(hdo_graph *g, const char *path, hdo_error *e) {
    char *text = NULL;
    size_t len = 0, lines = 1;
    hdo_status st = hdo__file_read(path, FILE_MAX, &text, &len, e);
    if (st != HDO_OK) {
        hdo__error_prefix(e, "mixing.edges");
        return st;
    }
    for (size_t i = 0; i < len; i++) lines += text[i] == '\n';
    hdo_pairset set = {0};
    st = hdo__graph_limit("file", g->n, (double)lines, e);
    if (st == HDO_OK) st = hdo__pairset_init(&set, lines, e);
    reader r = {.path = path, .p = text, .end = text + len, .line = 1, .n = g->n};
    while (st == HDO_OK && r.p < r.end) {
        int64_t a = 0, b = 0;
        bool found = false;
        st = read_line(&r, &a, &b, &found, e);
        if (st == HDO_OK && found && hdo__pairset_add(&set, a, b)) st = hdo__graph_add(g, a, b, e);
    }
    hdo__pairset_clear(&set);
    free(text);
    return st;
}
