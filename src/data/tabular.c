/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV: one sample a line, fields separated by ',' ';' or tab (whichever the first line has most of). A first line that
 * has no number in it, or names the label's column, is a heading. The label stands in the column data.label says (a
 * name of the heading, a number from 1, last); unless that is set in one called label, class, target or y, otherwise in
 * the last one. Labels are whole numbers from 0, or -1 and +1, or words (numbered alphabetically). All other fields
 * must be finite numbers: missing values are an error, not a zero.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/data_impl.h"
#include "data/realtext.h"

enum { NAMES_MAX = 256, COLUMNS_MAX = 1 << 20 };

void hdo__table_clear(hdo_table *r) {
    free(r->bytes);
    free(r->reals);
    free(r->label);
    free(r->names);
    *r = (hdo_table){0};
}

hdo_status hdo__labels_from_reals(hdo_table *r, const double *label, const hdo_table *like, const char *what,
                                  hdo_error *e) {
    bool pm = like != NULL ? like->plus_minus : true;
    for (int64_t i = 0; i < r->count && pm && like == NULL; i++) pm = label[i] == -1 || label[i] == 1;
    int most = 0;
    for (int64_t i = 0; i < r->count; i++) {
        double v = label[i];
        if (pm && (v == -1 || v == 1))
            v = v < 0 ? 0 : 1;
        else if (pm || !(v >= 0) || v > HDO_CLASS_LABEL_MAX || v != floor(v)) {
            return hdo__fail(e, HDO_E_DATA, "'%s': sample %lld has label %g; labels are %s", what, (long long)i + 1,
                             label[i],
                             pm ? "-1 and +1, as in the training file" : "whole numbers 0 .. 65535, or all -1 and +1");
        }
        r->label[i] = (int32_t)v;
        if (r->label[i] > most) most = r->label[i];
    }
    r->plus_minus = pm;
    r->classes = pm ? 2 : most + 1;
    if (like != NULL && r->classes > like->classes) {
        return hdo__fail(e, HDO_E_DATA, "'%s' has a label %d; the training file has labels 0 .. %d", what, most,
                         like->classes - 1);
    }
    if (like != NULL) r->classes = like->classes;
    return HDO_OK;
}

/* ---- lines and fields ---- */

typedef struct cursor {
    const char *p, *end;
    int64_t line;
    char sep;
} cursor;

/* Next line that is not blank into [*a, *b). False at the end. */
static bool next_line(cursor *c, const char **a, const char **b) {
    while (c->p < c->end) {
        const char *nl = memchr(c->p, '\n', (size_t)(c->end - c->p));
        *a = c->p;
        *b = nl != NULL ? nl : c->end;
        c->p = nl != NULL ? nl + 1 : c->end;
        c->line++;
        if (*b > *a && (*b)[-1] == '\r') (*b)--;
        for (const char *s = *a; s < *b; s++) {
            if (*s != ' ' && *s != '\t') return true;
        }
    }
    return false;
}

/* Field at *p, without spaces and quotes around it, into [*a, *b); *p moves behind its separator, or to NULL after the
 * last. A separator inside quotes does not separate. */
static void next_field(const char **p, const char *end, char sep, const char **a, const char **b) {
    const char *s = *p;
    while (s < end && *s == ' ') s++;
    if (s < end && *s == '"') {
        const char *q = ++s;
        while (q < end && !(*q == '"' && (q + 1 == end || q[1] != '"'))) q += *q == '"' ? 2 : 1;
        *a = s;
        *b = q;
        s = q;
        while (s < end && *s != sep) s++;
    } else {
        *a = s;
        const char *q = memchr(s, sep, (size_t)(end - s));
        s = q != NULL ? q : end;
        *b = s;
        while (*b > *a && ((*b)[-1] == ' ' || (*b)[-1] == '\t')) (*b)--;
    }
    *p = s < end ? s + 1 : NULL;
}

static bool is_real(const char *a, const char *b) {
    double v;
    return hdo__real_scan(&a, b, &v) && a == b;
}

static char find_separator(const char *a, const char *b) {
    static const char seps[] = ",;\t";
    char best = ',';
    int most = 0;
    for (int k = 0; k < 3; k++) {
        int n = 0;
        for (const char *s = a; s < b; s++) n += *s == seps[k];
        if (n > most) {
            most = n;
            best = seps[k];
        }
    }
    return best;
}

typedef struct span { /* text [a, b) */
    const char *a, *b;
} span;

typedef struct plan {   /* what the first line says */
    int columns, label; /* label: its column */
    bool heading;
} plan;

static bool names_label(const char *a, const char *b) {
    static const char *const words[] = {"label", "class", "target", "y", NULL};
    for (int i = 0; words[i] != NULL; i++) {
        if ((size_t)(b - a) == strlen(words[i]) && strncasecmp(a, words[i], (size_t)(b - a)) == 0) return true;
    }
    return false;
}

/* A column by its number, from 1; 0: the text is no number. */
static long column_number(const char *label) {
    if (label[0] == '\0' || label[strspn(label, "0123456789")] != '\0') return 0;
    long n = strtol(label, NULL, 10);
    return n > 0 && n <= COLUMNS_MAX ? n : COLUMNS_MAX + 1;
}

/* The columns of the first line, for a sentence: "a, b, c, ...". */
static void list_columns(const char *a, const char *b, char sep, char *buf, size_t cap) {
    size_t used = 0;
    buf[0] = '\0';
    for (const char *s = a; s != NULL && used + 70 < cap;) {
        const char *fa, *fb;
        next_field(&s, b, sep, &fa, &fb);
        used += (size_t)snprintf(buf + used, cap - used, "%s%.*s", used > 0 ? ", " : "",
                                 fb - fa < 40 ? (int)(fb - fa) : 40, fa);
        if (s != NULL && used + 70 >= cap) snprintf(buf + used, cap - used, ", ...");
    }
}

/* data.label is neither empty nor "last": finds its column, or says why there is none. */
static hdo_status choose_label(plan *p, const char *label, int named, const span *first, char sep, const char *what,
                               hdo_error *e) {
    long number = column_number(label);
    char list[400];
    if (number > 0 && number <= p->columns) {
        p->label = (int)number - 1;
        return HDO_OK;
    }
    if (number > 0)
        return hdo__fail(e, HDO_E_CONFIG, "data.label is %s, but '%s' has only %d columns, counted from 1", label, what,
                         p->columns);
    if (named >= 0) {
        p->label = named;
        p->heading = true;
        return HDO_OK;
    }
    list_columns(first->a, first->b, sep, list, sizeof list);
    return hdo__fail(e, HDO_E_CONFIG,
                     p->heading ? "data.label is '%s', but the columns of '%s' are %s"
                                : "data.label is '%s', but '%s' has no heading; its first line is %s. "
                                  "Give the number of the column, from 1, or last",
                     label, what, list);
}

static hdo_status read_plan(const cursor *c, const char *a, const char *b, const char *label, plan *out,
                            const char *what, hdo_error *e) {
    plan p = {.label = -1, .heading = true};
    int usual = -1, chosen = -1; /* columns so named */
    for (const char *s = a; s != NULL && p.columns <= COLUMNS_MAX; p.columns++) {
        const char *fa, *fb;
        next_field(&s, b, c->sep, &fa, &fb);
        if (is_real(fa, fb)) p.heading = false;
        if (usual < 0 && names_label(fa, fb)) usual = p.columns;
        if (chosen < 0 && (size_t)(fb - fa) == strlen(label) && memcmp(fa, label, strlen(label)) == 0)
            chosen = p.columns;
    }
    if (p.columns < 2 || p.columns > COLUMNS_MAX) {
        return hdo__fail(e, HDO_E_DATA,
                         "'%s', line %lld has %d columns; a table has inputs and a label, 2 .. %d columns", what,
                         (long long)c->line, p.columns, COLUMNS_MAX);
    }
    if (usual >= 0) p.heading = true;
    p.label = label[0] == '\0' && usual >= 0 ? usual : p.columns - 1;
    hdo_status st = HDO_OK;
    if (label[0] != '\0' && strcmp(label, "last") != 0)
        st = choose_label(&p, label, chosen, &(span){a, b}, c->sep, what, e);
    *out = p;
    return st;
}

/* ---- labels that are words ---- */

typedef struct words {
    char (*name)[64];
    int n;
} words;

static int word_number(const words *w, const char *name) {
    for (int i = 0; i < w->n; i++) {
        if (strcmp(w->name[i], name) == 0) return i;
    }
    return -1;
}

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

static void copy_word(char dst[64], const char *a, const char *b) {
    size_t n = (size_t)(b - a) < 63 ? (size_t)(b - a) : 63;
    memcpy(dst, a, n);
    dst[n] = '\0';
}

/* Numbers of the labels of all rows, after their alphabetical order. word (count) holds numbers by first appearance. */
static hdo_status number_words(hdo_table *r, words *w, const hdo_table *like, const char *what, hdo_error *e) {
    char(*sorted)[64] = malloc((size_t)w->n * sizeof *sorted);
    if (sorted == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the labels of '%s'", what);
    memcpy(sorted, w->name, (size_t)w->n * sizeof *sorted);
    words known = {sorted, w->n};
    if (like == NULL) {
        qsort(sorted, (size_t)w->n, sizeof *sorted, by_name);
    } else {
        known = (words){like->names, like->classes};
    }
    for (int i = 0; i < w->n; i++) {
        if (like != NULL && (like->names == NULL || word_number(&known, w->name[i]) < 0)) {
            hdo_status st = hdo__fail(e, HDO_E_DATA, "'%s' has the label '%s', which the training file does not have",
                                      what, w->name[i]);
            free(sorted);
            return st;
        }
    }
    for (int64_t i = 0; i < r->count; i++) r->label[i] = word_number(&known, w->name[r->label[i]]);
    r->classes = known.n;
    if (like == NULL) {
        r->names = sorted;
    } else {
        free(sorted);
    }
    return HDO_OK;
}

/* ---- CSV ---- */

typedef struct reader {
    cursor c;
    plan p;
    hdo_table *r; /* its arrays are there */
    const hdo_table *like;
    double *real; /* labels that are numbers */
    words w;      /* labels that are words */
    bool numbers; /* which of them */
    const char *what;
    hdo_error *e;
} reader;

static hdo_status read_row(reader *s, span line, float *x, span *label) {
    const plan *p = &s->p;
    int k = 0;
    for (const char *at = line.a; at != NULL && k <= COLUMNS_MAX; k++) {
        const char *fa, *fb;
        next_field(&at, line.b, s->c.sep, &fa, &fb);
        if (k >= p->columns) continue; /* counted, for the message below */
        if (k == p->label) {
            *label = (span){fa, fb};
            continue;
        }
        double v;
        const char *q = fa;
        if (!hdo__real_scan(&q, fb, &v) || q != fb || !isfinite((float)v)) {
            return hdo__fail(s->e, HDO_E_DATA, "'%s', line %lld, column %d: '%.*s' is not a finite number", s->what,
                             (long long)s->c.line, k + 1, fb - fa < 40 ? (int)(fb - fa) : 40, fa);
        }
        *x++ = (float)v;
    }
    if (k != p->columns) {
        return hdo__fail(s->e, HDO_E_DATA, "'%s', line %lld has %s than the %d columns of the first line", s->what,
                         (long long)s->c.line, k < p->columns ? "fewer" : "more", p->columns);
    }
    return HDO_OK;
}

/* The label of one line: a number into real[count], or a word, numbered by first appearance, into label[count]. */
static hdo_status read_label(reader *s, span t) {
    hdo_table *r = s->r;
    const char *q = t.a;
    if (s->numbers) {
        if (hdo__real_scan(&q, t.b, &s->real[r->count]) && q == t.b) return HDO_OK;
        return hdo__fail(s->e, HDO_E_DATA, "'%s', line %lld: the label '%.*s' is not a number", s->what,
                         (long long)s->c.line, t.b - t.a < 40 ? (int)(t.b - t.a) : 40, t.a);
    }
    char name[64];
    copy_word(name, t.a, t.b);
    int k = word_number(&s->w, name);
    if (k < 0 && (s->w.n == NAMES_MAX || name[0] == '\0')) {
        return hdo__fail(s->e, HDO_E_DATA, "'%s', line %lld: %s", s->what, (long long)s->c.line,
                         name[0] == '\0' ? "the label is missing" : "more than 256 different words as labels");
    }
    if (k < 0) memcpy(s->w.name[k = s->w.n++], name, sizeof name);
    r->label[r->count] = k;
    return HDO_OK;
}

/* All lines from the cursor on. */
static hdo_status read_lines(reader *s) {
    hdo_table *r = s->r;
    span line;
    s->numbers = s->like == NULL || s->like->names == NULL;
    while (next_line(&s->c, &line.a, &line.b)) {
        span label = {line.a, line.a};
        hdo_status st = read_row(s, line, r->reals + (size_t)r->count * (size_t)r->n_in, &label);
        if (r->count == 0 && s->like == NULL) s->numbers = is_real(label.a, label.b);
        if (st == HDO_OK) st = read_label(s, label);
        if (st != HDO_OK) return st;
        r->count++;
    }
    return s->numbers ? hdo__labels_from_reals(r, s->real, s->like, s->what, s->e)
                      : number_words(r, &s->w, s->like, s->what, s->e);
}

static hdo_status parse(hdo_table *r, cursor c, const hdo_table *like, const char *label, size_t max_bytes,
                        const char *what, hdo_error *e) {
    *r = (hdo_table){0};
    const cursor start = c;
    const char *a, *b;
    if (!next_line(&c, &a, &b)) return hdo__fail(e, HDO_E_DATA, "'%s' is empty", what);
    c.sep = find_separator(a, b);
    plan p = {0};
    hdo_status st = read_plan(&c, a, b, label, &p, what, e);
    if (st != HDO_OK) return st;
    if (like != NULL && like->n_in != p.columns - 1) {
        return hdo__fail(e, HDO_E_DATA, "'%s' has %d inputs a line; the training file has %d", what, p.columns - 1,
                         like->n_in);
    }
    size_t lines = p.heading ? 0 : 1;
    for (cursor count = c; next_line(&count, &a, &b);) lines++;
    if (lines == 0) return hdo__fail(e, HDO_E_DATA, "'%s' has a heading and no samples", what);
    const size_t width = (size_t)(p.columns - 1);
    if (lines > max_bytes / (width * sizeof(float) + 16)) {
        return hdo__fail(e, HDO_E_DATA, "'%s' has %zu lines of %zu inputs, too many for memory", what, lines, width);
    }
    r->n_in = (int)width;
    r->shape[0] = r->shape[1] = 1;
    r->shape[2] = r->n_in;
    r->reals = malloc(lines * width * sizeof(float));
    r->label = malloc(lines * sizeof *r->label);
    reader q = {.c = c, .p = p, .r = r, .like = like, .what = what, .e = e};
    if (!p.heading) q.c = (cursor){.p = start.p, .end = start.end, .sep = c.sep};
    q.real = malloc(lines * sizeof *q.real);
    q.w.name = malloc(NAMES_MAX * sizeof *q.w.name);
    if (r->reals == NULL || r->label == NULL || q.real == NULL || q.w.name == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", what);
    } else {
        st = read_lines(&q);
    }
    free(q.real);
    free(q.w.name);
    if (st != HDO_OK) hdo__table_clear(r);
    return st;
}

hdo_status hdo__csv_parse(hdo_table *r, const char *text, size_t len, const hdo_table *like, size_t max_bytes,
                          const char *what, hdo_error *e) {
    return parse(r, (cursor){.p = text, .end = text + len, .sep = ','}, like, "", max_bytes, what, e);
}

hdo_status hdo__csv_parse_label(hdo_table *r, const char *text, size_t len, const hdo_table *like, const char *label,
                                const char *what, hdo_error *e) {
    return parse(r, (cursor){.p = text, .end = text + len, .sep = ','}, like, label, HDO_READ_MAX, what, e);
}
