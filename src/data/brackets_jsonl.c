/* SPDX-License-Identifier: Apache-2.0
 *
 * Brackets from files, as published with the paper: one JSON object a line, {"input": "( ( ) )", "label": "correct"}.
 * Spaces between brackets may be missing. Labels: "correct" and "incorrect", true and false, 1 and 0. Characters that
 * are neither brackets nor spaces become <unk>. Empty lines are skipped; other members of the object are ignored.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_impl.h"

/* 1, 0, or -1 when it is none of the words. */
static int label_of(const json_t *v) {
    if (json_is_true(v)) return 1;
    if (json_is_false(v)) return 0;
    if (json_is_integer(v) && (json_integer_value(v) == 0 || json_integer_value(v) == 1))
        return (int)json_integer_value(v);
    const char *s = json_string_value(v); /* NULL when v is NULL or no string */
    if (s == NULL) return -1;
    if (strcmp(s, "correct") == 0) return 1;
    return strcmp(s, "incorrect") == 0 ? 0 : -1;
}

static hdo_status put_line(hdo_tokens *t, const char *line, size_t len, int64_t number, const char *what,
                           hdo_error *e) {
    json_error_t je;
    json_t *o = json_loadb(line, len, 0, &je);
    if (o == NULL) return hdo__fail(e, HDO_E_DATA, "'%s', line %lld: %s", what, (long long)number, je.text);
    hdo_status st = HDO_OK;
    const char *s = json_string_value(json_object_get(o, "input"));
    const int label = label_of(json_object_get(o, "label"));
    if (s == NULL || label < 0) {
        st = hdo__fail(e, HDO_E_DATA,
                       "'%s', line %lld: expected {\"input\": \"( ( ) )\", \"label\": \"correct\" or \"incorrect\"}",
                       what, (long long)number);
        goto out;
    }
    uint8_t *row = t->token + (size_t)t->count * (size_t)t->positions;
    memset(row, HDO_TOK_PAD, (size_t)t->positions);
    int p = 0;
    row[p++] = HDO_TOK_START;
    for (; *s != '\0'; s++) {
        if (*s == ' ' || *s == '\t') continue;
        if (((unsigned char)*s & 0xc0) == 0x80) continue; /* inside a UTF-8 character: it was counted already */
        if (p >= t->positions - 1) {
            st = hdo__fail(e, HDO_E_DATA, "'%s', line %lld: the string is longer than data.positions - 2 = %d", what,
                           (long long)number, t->positions - 2);
            goto out;
        }
        row[p++] = *s == '(' ? HDO_TOK_OPEN : *s == ')' ? HDO_TOK_CLOSE : HDO_TOK_UNK;
    }
    row[p] = HDO_TOK_STOP;
    t->label[t->count++] = (uint8_t)label;
out:
    json_decref(o);
    return st;
}

static bool blank(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r') return false;
    }
    return true;
}

hdo_status hdo__brackets_parse(hdo_tokens *t, const char *text, size_t len, int positions, const char *what,
                               hdo_error *e) {
    *t = (hdo_tokens){.positions = positions};
    if (positions < 4) return hdo__fail(e, HDO_E_CONFIG, "data.positions is %d; brackets need at least 4", positions);
    size_t lines = 0;
    for (const char *p = text, *end = text + len; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl != NULL ? nl : end) - p);
        if (!blank(p, n)) lines++;
        p = nl != NULL ? nl + 1 : end;
    }
    if (lines == 0) return hdo__fail(e, HDO_E_DATA, "'%s' has no samples", what);
    if (lines > HDO_READ_MAX / (size_t)positions) return hdo__fail(e, HDO_E_DATA, "'%s' has too many lines", what);
    t->token = malloc(lines * (size_t)positions);
    t->label = malloc(lines);
    if (t->token == NULL || t->label == NULL) {
        hdo__tokens_clear(t);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for '%s'", what);
    }
    int64_t number = 0;
    for (const char *p = text, *end = text + len; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl != NULL ? nl : end) - p);
        number++;
        if (!blank(p, n)) {
            hdo_status st = put_line(t, p, n, number, what, e);
            if (st != HDO_OK) {
                hdo__tokens_clear(t);
                return st;
            }
        }
        p = nl != NULL ? nl + 1 : end;
    }
    return HDO_OK;
}
