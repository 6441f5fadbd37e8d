/* SPDX-License-Identifier: Apache-2.0 — reads a YAML (or JSON) configuration over a configuration.
 *
 * libyaml's events, not its document tree: they carry line and column, and a file is at most three levels deep, which
 * the functions below spell out (root, section or class, value). What a scalar means comes from the option table, so
 * YAML's guesses about yes and no never matter. Anchors, aliases and tags are refused: a configuration is plain data,
 * and a few bytes of aliases can stand for gigabytes. All reading goes into a copy.
 */
#include "config/value.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <yaml.h>

#define FILE_MAX ((size_t)1 << 20) /* 1 MiB; a long configuration is 10 kB */

typedef struct loader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one, when live */
    bool live;
    hdo_config *c;
    const char *name; /* of the file, for messages */
    const char *text;
    size_t len;
    int file; /* index into c->files */
    hdo_error *e;
} loader;

/* ---- sentences ---- */

static hdo_status fail_at(loader *l, yaml_mark_t at, const char *fmt, ...) HDO_PRINTF(3, 4);
static hdo_status fail_at(loader *l, yaml_mark_t at, const char *fmt, ...) {
    char msg[HDO_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return hdo__fail(l->e, HDO_E_CONFIG, "%s:%zu:%zu: %s", l->name, at.line + 1, at.column + 1, msg);
}

/* Puts the place in front of a sentence that others wrote. */
static hdo_status place(loader *l, yaml_mark_t at, hdo_status st) {
    if (st != HDO_OK) hdo__error_prefix(l->e, "%s:%zu:%zu", l->name, at.line + 1, at.column + 1);
    return st;
}

static bool indented_by_tab(const loader *l, size_t line) {
    const char *p = l->text, *end = l->text + l->len;
    for (; line > 0 && p < end; p++)
        if (*p == '\n') line--;
    while (p < end && *p == ' ') p++;
    return p < end && *p == '\t';
}

static hdo_status parser_failed(loader *l) {
    const yaml_parser_t *p = &l->parser;
    if (p->error == YAML_MEMORY_ERROR) return hdo__fail(l->e, HDO_E_MEMORY, "out of memory while reading %s", l->name);
    if (indented_by_tab(l, p->problem_mark.line))
        return fail_at(l, p->problem_mark, "the line is indented with a tab; YAML wants spaces");
    return fail_at(l, p->problem_mark, "this is not YAML: %s%s%s", p->problem != NULL ? p->problem : "no reason given",
                   p->context != NULL ? " " : "", p->context != NULL ? p->context : "");
}

/* ---- events ---- */

static hdo_status refuse_node(loader *l, const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor != NULL)
        return fail_at(l, l->event.start_mark, "anchors ('&name') are not allowed; write the value out");
    if (tag != NULL)
        return fail_at(l, l->event.start_mark, "tags ('!name') are not allowed; the type of a key is known without");
    return HDO_OK;
}

/* Moves on to the next event. */
static hdo_status next(loader *l) {
    if (l->live) yaml_event_delete(&l->event);
    l->live = false;
    if (!yaml_parser_parse(&l->parser, &l->event)) return parser_failed(l);
    l->live = true;
    switch (l->event.type) {
    case YAML_ALIAS_EVENT:
        return fail_at(l, l->event.start_mark, "aliases ('*name') are not allowed; write the value out");
    case YAML_SCALAR_EVENT: return refuse_node(l, l->event.data.scalar.anchor, l->event.data.scalar.tag);
    case YAML_MAPPING_START_EVENT:
        return refuse_node(l, l->event.data.mapping_start.anchor, l->event.data.mapping_start.tag);
    case YAML_SEQUENCE_START_EVENT:
        return refuse_node(l, l->event.data.sequence_start.anchor, l->event.data.sequence_start.tag);
    default: return HDO_OK;
    }
}

static const char *scalar(const loader *l) {
    return (const char *)l->event.data.scalar.value;
}

static bool is_null(const loader *l) {
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (l->event.type != YAML_SCALAR_EVENT || l->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(scalar(l), words[i]) == 0) return true;
    return false;
}

/* A double-quoted "\0" would cut a text short. */
static hdo_status refuse_nul(loader *l, const char *what) {
    if (strlen(scalar(l)) == l->event.data.scalar.length) return HDO_OK;
    return fail_at(l, l->event.start_mark, "%s contains a NUL character", what);
}

/* The current event as a key. Keys longer than buf are no keys of ours, cut or not. */
static hdo_status read_key(loader *l, char *buf, size_t cap) {
    if (l->event.type != YAML_SCALAR_EVENT) return fail_at(l, l->event.start_mark, "a key must be a word");
    snprintf(buf, cap, "%s", scalar(l));
    return refuse_nul(l, "the key");
}

/* ---- values ---- */

static hdo_origin origin_at(const loader *l, yaml_mark_t at) {
    return (hdo_origin){.source = HDO_FROM_FILE,
                        .file = (uint8_t)l->file,
                        .column = (uint16_t)(at.column < UINT16_MAX ? at.column + 1 : UINT16_MAX),
                        .line = (uint32_t)at.line + 1};
}

/* ---- options of plug-ins: any YAML, kept as JSON ---- */

typedef struct json_text {
    char buf[HDO_SPEC_MAX];
    size_t used;
    bool full;
} json_text;

static void put(json_text *j, const char *text, size_t len) {
    j->full = j->full || len >= sizeof j->buf - j->used;
    if (j->full) return;
    memcpy(j->buf + j->used, text, len);
    j->used += len;
    j->buf[j->used] = '\0';
}

static void put_string(json_text *j, const char *text) {
    put(j, "\"", 1);
    for (; *text != '\0'; text++) {
        char code[8] = "";
        if (*text == '"' || *text == '\\') put(j, "\\", 1);
        if ((unsigned char)*text < ' ')
            put(j, code, (size_t)snprintf(code, sizeof code, "\\u%04x", (unsigned)(unsigned char)*text));
        else
            put(j, text, 1);
    }
    put(j, "\"", 1);
}

/* A plain number is one if JSON would write it so too. */
static bool is_number(const char *text) {
    const char *digits = text + (text[0] == '-');
    double v;
    size_t n = strspn(digits, "0123456789");
    bool fraction = digits[n] != '.' || strspn(digits + n + 1, "0123456789") > 0;
    return n > 0 && (n == 1 || digits[0] != '0') && fraction && hdo__real_parse(text, &v);
}

static void put_scalar(const loader *l, json_text *j) {
    const char *text = scalar(l);
    bool plain = l->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    bool word = strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    if (is_null(l))
        put(j, "null", 4);
    else if (plain && (word || is_number(text)))
        put(j, text, strlen(text));
    else
        put_string(j, text);
}

/* The current event, whatever it holds. */
static hdo_status read_json(loader *l, json_text *j, int depth) {
    hdo_status st = HDO_OK;
    if (depth > 8) return fail_at(l, l->event.start_mark, "options are nested too deeply");
    if (l->event.type == YAML_SCALAR_EVENT) {
        st = refuse_nul(l, "an option");
        put_scalar(l, j);
        return st;
    }
    bool map = l->event.type == YAML_MAPPING_START_EVENT;
    put(j, map ? "{" : "[", 1);
    for (int n = 0; (st = next(l)) == HDO_OK; n++) {
        if (l->event.type == YAML_MAPPING_END_EVENT || l->event.type == YAML_SEQUENCE_END_EVENT) break;
        if (n > 0) put(j, ", ", 2);
        if (map) {
            char key[HDO_KEY_MAX];
            if ((st = read_key(l, key, sizeof key)) != HDO_OK) return st;
            put_string(j, key);
            put(j, ": ", 2);
            if ((st = next(l)) != HDO_OK) return st;
        }
        if ((st = read_json(l, j, depth + 1)) != HDO_OK) return st;
    }
    put(j, map ? "}" : "]", 1);
    return st;
}

static hdo_status read_options(loader *l, hdo_slot s) {
    yaml_mark_t at = l->event.start_mark;
    json_text j = {.used = 0};
    hdo_status st = read_json(l, &j, 0);
    if (st != HDO_OK) return st;
    if (j.full) return fail_at(l, at, "these options are longer than %d bytes", HDO_SPEC_MAX - 1);
    memcpy(hdo__slot_place(l->c, s), j.buf, j.used + 1);
    l->c->origin[s.row][s.col] = origin_at(l, at);
    return HDO_OK;
}

/* A relative path in a file counts from that file. */
static hdo_status from_file(loader *l, yaml_mark_t at, char path[HDO_PATH_MAX]) {
    const char *slash = strrchr(l->name, '/');
    char whole[2 * HDO_PATH_MAX];
    if (path[0] == '/' || path[0] == '\0' || slash == NULL) return HDO_OK;
    int n = snprintf(whole, sizeof whole, "%.*s/%s", (int)(slash - l->name), l->name, path);
    if (n < 0 || n >= HDO_PATH_MAX) return fail_at(l, at, "the path of the plug-in is too long");
    memcpy(path, whole, (size_t)n + 1);
    return HDO_OK;
}

/* The current event as the value of a slot. */
static hdo_status read_value(loader *l, hdo_slot s) {
    const hdo_option *o = hdo__slot_option(s);
    yaml_mark_t at = l->event.start_mark;
    char key[HDO_KEY_MAX], prefix[HDO_KEY_MAX], range[HDO_VALUE_MAX];
    hdo__row_prefix(l->c, s.row, prefix, sizeof prefix);
    snprintf(key, sizeof key, "%s%s", prefix, o->key);
    bool null = is_null(l), is_text = o->type == HDO_OPT_TEXT;
    if (l->event.type == YAML_MAPPING_START_EVENT && strcmp(o->key, "options") == 0) return read_options(l, s);
    if (l->event.type != YAML_SCALAR_EVENT || (null && !is_text)) {
        hdo__value_range(o, range, sizeof range);
        return fail_at(l, at, "%s is %s, but must be one value: %s", key,
                       null                                        ? "empty"
                       : l->event.type == YAML_MAPPING_START_EVENT ? "a group of keys"
                                                                   : "a list",
                       range);
    }
    hdo_status st = refuse_nul(l, key);
    if (st != HDO_OK) return st;
    const hdo_data_config data = l->c->data;
    st = hdo__value_parse(o, key, null ? "" : scalar(l), hdo__slot_place(l->c, s), l->e);
    if (st != HDO_OK) return place(l, at, st);
    if (strcmp(o->key, "plugin") == 0) st = from_file(l, at, hdo__slot_place(l->c, s));
    l->c->origin[s.row][s.col] = origin_at(l, at);
    if (hdo__data_differs(l->c, s, &data)) hdo__data_changed(l->c, s, l->c->origin[s.row][s.col]);
    return st;
}

/* ---- sections ---- */

typedef struct seen {
    size_t line[HDO_OPTIONS_MAX + HDO_SECTIONS_MAX + 1]; /* 0: not yet */
} seen;

static hdo_status once(loader *l, seen *s, int index, const char *key) {
    size_t first = s->line[index];
    s->line[index] = l->event.start_mark.line + 1;
    if (first == 0) return HDO_OK;
    return fail_at(l, l->event.start_mark, "duplicate key '%s', first on line %zu", key, first);
}

static hdo_status read_population(loader *l);
static hdo_status read_keys(loader *l, int row);

/* The current event as a section or class: a mapping, a scalar for its main key, or nothing. */
static hdo_status read_section(loader *l, int row) {
    const hdo_section *s = hdo__row_section(row);
    if (is_null(l)) return HDO_OK;
    if (l->event.type == YAML_MAPPING_START_EVENT) return read_keys(l, row);
    if (l->event.type == YAML_SCALAR_EVENT && s->main_key != NULL)
        return read_value(l, (hdo_slot){row, hdo__option_index(s, s->main_key)});
    char prefix[HDO_KEY_MAX];
    hdo__row_prefix(l->c, row, prefix, sizeof prefix);
    return fail_at(l, l->event.start_mark, "%.*s must hold keys, such as '%s: ...'", (int)strlen(prefix) - 1, prefix,
                   s->options[0].key);
}

/* The keys of a mapping whose start is the current event. Row 0, the root, holds sections too. */
static hdo_status read_keys(loader *l, int row) {
    seen had = {{0}};
    char key[HDO_KEY_MAX];
    for (;;) {
        hdo_status st = next(l);
        if (st != HDO_OK || l->event.type == YAML_MAPPING_END_EVENT) return st;
        if ((st = read_key(l, key, sizeof key)) != HDO_OK) return st;
        int col = hdo__option_index(hdo__row_section(row), key), section = row == 0 ? hdo__section_index(key) : -1;
        bool population = row == 0 && strcmp(key, hdo__class_section.name) == 0;
        if (col < 0 && section < 0 && !population)
            return place(l, l->event.start_mark, hdo__unknown_key(row, key, l->e));
        st = once(l, &had, col >= 0 ? col : HDO_OPTIONS_MAX + (population ? 0 : section), key);
        if (st == HDO_OK) st = next(l);
        if (st != HDO_OK) return st;
        if (col >= 0)
            st = read_value(l, (hdo_slot){row, col});
        else
            st = population ? read_population(l) : read_section(l, section);
        if (st != HDO_OK) return st;
    }
}

/* ---- population ---- */

static hdo_status add_class(loader *l, const char *name, yaml_mark_t at) {
    hdo_config *c = l->c;
    hdo_status st = hdo__class_name_check(name, l->e);
    if (st != HDO_OK) return place(l, at, st);
    if (hdo__class_index(c, name) >= 0) return fail_at(l, at, "duplicate class '%s'", name);
    if (c->n_classes == HDO_CLASSES_MAX) return fail_at(l, at, "population has more than %d classes", HDO_CLASSES_MAX);
    hdo__class_default(&c->population[c->n_classes++], name);
    return HDO_OK;
}

/* `population: 24fo+256zo` */
static hdo_status read_population_text(loader *l) {
    hdo_part parts[HDO_CLASSES_MAX];
    yaml_mark_t at = l->event.start_mark;
    int n = 0, col = hdo__option_index(&hdo__class_section, "count");
    hdo_status st = refuse_nul(l, "population");
    if (st == HDO_OK) st = place(l, at, hdo__population_parse(scalar(l), parts, &n, l->e));
    for (int i = 0; st == HDO_OK && i < n; i++) {
        if (parts[i].count == 0) continue;
        if ((st = add_class(l, parts[i].name, at)) != HDO_OK) return st;
        int k = l->c->n_classes - 1;
        l->c->population[k].count = parts[i].count;
        l->c->origin[HDO_SECTIONS_MAX + k][col] = origin_at(l, at);
    }
    return st;
}

static hdo_status read_classes(loader *l) {
    char name[HDO_KEY_MAX];
    for (;;) {
        hdo_status st = next(l);
        if (st != HDO_OK || l->event.type == YAML_MAPPING_END_EVENT) return st;
        if ((st = read_key(l, name, sizeof name)) != HDO_OK) return st;
        if ((st = add_class(l, name, l->event.start_mark)) != HDO_OK) return st;
        if ((st = next(l)) != HDO_OK) return st;
        if ((st = read_section(l, HDO_SECTIONS_MAX + l->c->n_classes - 1)) != HDO_OK) return st;
    }
}

/* The current event as the whole population: it replaces what was there. */
static hdo_status read_population(loader *l) {
    hdo_config *c = l->c;
    hdo_status st;
    yaml_mark_t at = l->event.start_mark;
    memset(c->population, 0, sizeof c->population);
    memset(c->origin[HDO_SECTIONS_MAX], 0, HDO_CLASSES_MAX * sizeof c->origin[0]);
    c->n_classes = 0;
    if (l->event.type == YAML_MAPPING_START_EVENT)
        st = read_classes(l);
    else if (l->event.type == YAML_SCALAR_EVENT && !is_null(l))
        st = read_population_text(l);
    else
        return fail_at(l, at, "population must hold classes, such as '{fo: 4, zo: 28}' or 4fo+28zo");
    if (st != HDO_OK) return st;
    if (c->n_classes == 0) return fail_at(l, at, "population has no class; write for example '{fo: 4, zo: 28}'");
    return place(l, at, hdo__nodes_check(c, l->e));
}

/* ---- stream ---- */

static hdo_status read_stream(loader *l) {
    hdo_status st = next(l); /* start of the stream */
    if (st == HDO_OK) st = next(l);
    if (st == HDO_OK && l->event.type == YAML_DOCUMENT_START_EVENT) st = next(l);
    if (st != HDO_OK) return st;
    if (l->event.type == YAML_STREAM_END_EVENT || is_null(l))
        return hdo__fail(l->e, HDO_E_CONFIG,
                         "%s:1:1: the file holds no settings; write at least one, such as "
                         "'steps: 300'",
                         l->name);
    if (l->event.type != YAML_MAPPING_START_EVENT)
        return fail_at(l, l->event.start_mark, "the file must hold keys with values, such as 'steps: 300'");
    st = read_keys(l, 0);
    if (st == HDO_OK) st = next(l); /* end of the document */
    if (st == HDO_OK) st = next(l);
    if (st == HDO_OK && l->event.type != YAML_STREAM_END_EVENT)
        return fail_at(l, l->event.start_mark, "a second document starts here, but a configuration is one document");
    return st;
}

/* UTF-8 without control characters, so that libyaml's reader has nothing left to complain about. */
static hdo_status check_bytes(loader *l) {
    yaml_mark_t at = {0, 0, 0};
    uint32_t code = 0;
    if (l->len > FILE_MAX)
        return hdo__fail(l->e, HDO_E_CONFIG, "%s is larger than 1 MiB, too large for a configuration", l->name);
    for (size_t i = 0, n; i < l->len; i += n) {
        n = hdo__utf8_next(l->text + i, l->len - i, &code);
        if (n == 0)
            return fail_at(l, at, "byte 0x%02x is not UTF-8; is this a text file, saved as UTF-8?",
                           (unsigned)(unsigned char)l->text[i]);
        if (code != '\r' && code != 0x2028 && code != 0x2029 && code != 0x85 && !hdo__text_char_ok(code))
            return fail_at(l, at, "the control character U+%04X has no place in a text file; is this a binary file?",
                           (unsigned)code);
        at.column = code == '\n' ? 0 : at.column + 1;
        if (code == '\n') at.line++;
    }
    return HDO_OK;
}

/* The index of the file's name in c->files; a long name keeps its end. */
static hdo_status remember_file(loader *l) {
    hdo_config *c = l->c;
    size_t n = strlen(l->name);
    const char *tail = n < HDO_PATH_MAX ? l->name : l->name + (n - HDO_PATH_MAX + 4);
    char stored[HDO_PATH_MAX] = "";
    snprintf(stored, sizeof stored, "%s%s", n < HDO_PATH_MAX ? "" : "...", tail);
    for (l->file = 0; l->file < c->n_files; l->file++)
        if (strcmp(c->files[l->file], stored) == 0) return HDO_OK;
    if (c->n_files == HDO_FILES_MAX)
        return hdo__fail(l->e, HDO_E_CONFIG, "%s is one file too many: at most %d are read over each other", l->name,
                         HDO_FILES_MAX);
    memcpy(c->files[c->n_files++], stored, sizeof stored);
    return HDO_OK;
}

hdo_status hdo_config_load_bytes(hdo_config *c, const char *name, const char *text, size_t len, hdo_error *e) {
    assert(c != NULL && name != NULL && (text != NULL || len == 0));
    loader l = {.name = name, .text = len > 0 ? text : "", .len = len, .e = e};
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* byte order mark of some editors */
        l.text += 3;
        l.len -= 3;
    }
    hdo_status st = check_bytes(&l);
    if (st != HDO_OK) return st;
    l.c = malloc(sizeof *l.c);
    if (l.c == NULL || !yaml_parser_initialize(&l.parser)) {
        free(l.c);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory while reading %s", name);
    }
    *l.c = *c;
    yaml_parser_set_encoding(&l.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&l.parser, (const unsigned char *)l.text, l.len);
    st = remember_file(&l);
    if (st == HDO_OK) st = read_stream(&l);
    if (st == HDO_OK) *c = *l.c;
    if (l.live) yaml_event_delete(&l.event);
    yaml_parser_delete(&l.parser);
    free(l.c);
    return st;
}

hdo_status hdo_config_load(hdo_config *c, const char *path, hdo_error *e) {
    if (c == NULL || path == NULL) return hdo__misuse(e, "hdo_config_load", "a configuration and a path");
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "<stdin>" : path;
    hdo_status st = HDO_OK;
    struct stat info;
    char *text = malloc(FILE_MAX + 1);
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    size_t len = 0;
    if (f == NULL) {
        st = hdo__fail(e, HDO_E_CONFIG, "cannot open the configuration %s: %s", name, strerror(errno));
    } else if (text == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory while reading %s", name);
    } else if (fstat(fileno(f), &info) == 0 && S_ISDIR(info.st_mode)) {
        st = hdo__fail(e, HDO_E_CONFIG, "%s is a directory, but must be a configuration file", name);
    } else {
        len = fread(text, 1, FILE_MAX + 1, f);
        if (ferror(f)) st = hdo__fail(e, HDO_E_IO, "reading %s failed: %s", name, strerror(errno));
    }
    if (f != NULL && !is_stdin) fclose(f);
    if (st == HDO_OK) st = hdo_config_load_bytes(c, name, text, len, e);
    free(text);
    return st;
}
