/* SPDX-License-Identifier: Apache-2.0
 *
 * LIBSVM text: `label index:value index:value ...  # comment`, indices from 1, rising within a line. Stored dense: the
 * models here see every input anyway. Labels as in CSV: whole numbers from 0, or -1 and +1.
 */
#include <stdlib.h>
#include <string.h>

#include "data/data_impl.h"
#include "data/realtext.h"

enum { INDEX_MAX = 1 << 24 };

typedef struct sink { /* where the second pass writes; x is NULL in the first, which only measures */
    float *x;
    double *label;
    size_t width;
    int64_t rows;
    int64_t widest;
} sink;

static const char *skip_space(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p;
}

static hdo_status one_line(sink *s, const char *p, const char *end, int64_t line, const char *what, hdo_error *e) {
    const char *hash = memchr(p, '#', (size_t)(end - p));
    if (hash != NULL) end = hash;
    p = skip_space(p, end);
    if (p == end) return HDO_OK;
    double v;
    if (!hdo__real_scan(&p, end, &v) || (p < end && *p != ' ' && *p != '\t' && *p != '\r')) {
        return hdo__fail(e, HDO_E_DATA, "'%s', line %lld does not begin with a label", what, (long long)line);
    }
    if (s->x != NULL) s->label[s->rows] = v;
    int64_t last = 0;
    while ((p = skip_space(p, end)) < end) {
        int64_t k = 0;
        const char *start = p;
        for (; p < end && *p >= '0' && *p <= '9' && k <= INDEX_MAX; p++) k = 10 * k + (*p - '0');
        if (p == start || p == end || *p != ':') {
            return hdo__fail(e, HDO_E_DATA, "'%s', line %lld: expected index:value at '%.*s'", what, (long long)line,
                             end - start < 20 ? (int)(end - start) : 20, start);
        }
        if (k <= last || k > INDEX_MAX) {
            return hdo__fail(e, HDO_E_DATA, "'%s', line %lld: index %lld; indices rise from 1 to at most %d", what,
                             (long long)line, (long long)k, INDEX_MAX);
        }
        last = k;
        p++;
        if (!hdo__real_scan(&p, end, &v) || !isfinite((float)v) || (p < end && *p != ' ' && *p != '\t' && *p != '\r')) {
            return hdo__fail(e, HDO_E_DATA, "'%s', line %lld: the value of index %lld is not a finite number", what,
                             (long long)line, (long long)k);
        }
        if (s->x != NULL) s->x[(size_t)s->rows * s->width + (size_t)k - 1] = (float)v;
    }
    if (last > s->widest) s->widest = last;
    s->rows++;
    return HDO_OK;
}

static hdo_status all_lines(sink *s, const char *text, size_t len, const char *what, hdo_error *e) {
    const char *p = text, *end = text + len;
    for (int64_t line = 1; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        hdo_status st = one_line(s, p, nl != NULL ? nl : end, line, what, e);
        if (st != HDO_OK) return st;
        p = nl != NULL ? nl + 1 : end;
    }
    return HDO_OK;
}

/* like: its n_in is a lower bound of the width; custom.c widens the training rows afterwards if these are wider. */
hdo_status hdo__libsvm_parse(hdo_table *r, const char *text, size_t len, const hdo_table *like, size_t max_bytes,
                             const char *what, hdo_error *e) {
    *r = (hdo_table){0};
    sink s = {0};
    hdo_status st = all_lines(&s, text, len, what, e);
    if (st != HDO_OK) return st;
    if (s.rows == 0) return hdo__fail(e, HDO_E_DATA, "'%s' has no samples", what);
    if (like != NULL && s.widest < like->n_in) s.widest = like->n_in;
    if (s.widest == 0) return hdo__fail(e, HDO_E_DATA, "'%s' has labels but no inputs", what);
    const size_t rows = (size_t)s.rows, width = (size_t)s.widest;
    if (rows > max_bytes / (width * sizeof(float) + 16)) {
        return hdo__fail(e, HDO_E_DATA,
                         "'%s' has %zu samples with indices up to %zu: stored dense, too much for memory", what, rows,
                         width);
    }
    r->count = s.rows;
    r->n_in = (int)width;
    r->shape[0] = r->shape[1] = 1;
    r->shape[2] = r->n_in;
    r->reals = calloc(rows * width, sizeof(float));
    r->label = malloc(rows * sizeof *r->label);
    double *real = malloc(rows * sizeof *real);
    if (r->reals == NULL || r->label == NULL || real == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", what);
    } else {
        s = (sink){.x = r->reals, .label = real, .width = width};
        st = all_lines(&s, text, len, what, e);
    }
    if (st == HDO_OK) st = hdo__labels_from_reals(r, real, like, what, e);
    free(real);
    if (st != HDO_OK) hdo__table_clear(r);
    return st;
}
