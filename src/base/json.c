/* SPDX-License-Identifier: Apache-2.0 — a small JSON writer. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quote.h"
#include "hdo/experimental/number.h"

static void put(hdo_json *j, const char *s, size_t n) {
    if (j->failed) return;
    if (j->len + n + 1 > j->cap) {
        size_t cap = j->cap < 512 ? 1024 : 2 * j->cap;
        while (cap < j->len + n + 1) cap *= 2;
        char *t = realloc(j->text, cap);
        if (t == NULL) {
            j->failed = true;
            return;
        }
        j->text = t;
        j->cap = cap;
    }
    memcpy(j->text + j->len, s, n);
    j->len += n;
    j->text[j->len] = '\0';
}

static void puts_(hdo_json *j, const char *s) {
    put(j, s, strlen(s));
}

static void put_string(hdo_json *j, const char *s) {
    char out[HDO_JSON_CHAR];
    puts_(j, "\"");
    for (size_t left = strlen(s); left > 0;) {
        size_t n = hdo__json_next(&s, &left, out);
        put(j, out, n);
    }
    puts_(j, "\"");
}

static void newline(hdo_json *j) {
    if (!j->pretty || j->depth > 2) {
        if (!j->first) puts_(j, " ");
        return;
    }
    puts_(j, "\n");
    for (int i = 0; i < j->depth; i++) puts_(j, "  ");
}

static void member(hdo_json *j, const char *key) {
    if (j->depth > 0) {
        if (!j->first) puts_(j, ",");
        newline(j);
    }
    j->first = false;
    if (key != NULL) {
        put_string(j, key);
        puts_(j, ": ");
    }
}

void hdo__json_init(hdo_json *j, bool pretty) {
    *j = (hdo_json){.first = true, .pretty = pretty};
    put(j, "", 0);
}

void hdo__json_clear(hdo_json *j) {
    free(j->text);
    *j = (hdo_json){0};
}

void hdo__json_reset(hdo_json *j) {
    j->len = 0;
    j->depth = 0;
    j->first = true;
    if (j->text != NULL) j->text[0] = '\0';
}

static void open_bracket(hdo_json *j, const char *key, const char *bracket) {
    member(j, key);
    puts_(j, bracket);
    j->depth++;
    j->first = true;
}

void hdo__json_object(hdo_json *j, const char *key) {
    open_bracket(j, key, "{");
}
void hdo__json_array(hdo_json *j, const char *key) {
    open_bracket(j, key, "[");
}

void hdo__json_end(hdo_json *j, char bracket) {
    bool empty = j->first;
    int depth = j->depth--;
    if (!empty && j->pretty && depth <= 2) newline(j);
    put(j, &bracket, 1);
    j->first = false;
}

void hdo__json_text(hdo_json *j, const char *key, const char *value) {
    member(j, key);
    if (value == NULL) {
        puts_(j, "null");
    } else {
        put_string(j, value);
    }
}

void hdo__real_text(double v, char buf[32]) {
    if (!isfinite(v)) {
        snprintf(buf, 32, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) return;
    }
}

const char *hdo_json_number(double v, char buf[HDO_NUMBER_MAX]) {
    if (isfinite(v)) {
        hdo__real_text(v, buf);
    } else {
        snprintf(buf, HDO_NUMBER_MAX, "null");
    }
    return buf;
}

void hdo__json_real(hdo_json *j, const char *key, double value) {
    char buf[HDO_NUMBER_MAX];
    member(j, key);
    puts_(j, hdo_json_number(value, buf));
}

void hdo__json_int(hdo_json *j, const char *key, int64_t value) {
    member(j, key);
    char buf[32];
    snprintf(buf, sizeof buf, "%lld", (long long)value);
    puts_(j, buf);
}

void hdo__json_bool(hdo_json *j, const char *key, bool value) {
    member(j, key);
    puts_(j, value ? "true" : "false");
}

void hdo__json_raw(hdo_json *j, const char *key, const char *json) {
    member(j, key);
    puts_(j, json);
}

void hdo__json_reals(hdo_json *j, const hdo_json_pair *v, size_t n) {
    for (size_t i = 0; i < n; i++) hdo__json_real(j, v[i].key, v[i].value);
}
void hdo__json_ints(hdo_json *j, const hdo_json_count *v, size_t n) {
    for (size_t i = 0; i < n; i++) hdo__json_int(j, v[i].key, v[i].value);
}

void hdo__json_begin(hdo_json *j, bool pretty, int schema_version) {
    hdo__json_init(j, pretty);
    hdo__json_object(j, NULL);
    hdo__json_int(j, "schema_version", schema_version);
}

char *hdo__json_finish(hdo_json *j) {
    hdo__json_end(j, '}');
    if (j->failed) hdo__json_clear(j);
    return j->text;
}
