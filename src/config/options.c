/* SPDX-License-Identifier: Apache-2.0 — values in a configuration by their dotted key: find, set, get, origins.
 *
 * A slot (row, column) addresses a value and its origin alike. Rows are the sections in table order, then the classes
 * from HDO_SECTIONS_MAX on; columns are the options of the section. A slot stays valid while the class list does.
 */
#include "config/value.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- slots ---- */

const hdo_section *hdo__row_section(int row) {
    assert(row >= 0 && row < HDO_SECTIONS_MAX + HDO_CLASSES_MAX);
    return row < HDO_SECTIONS_MAX ? &hdo__sections[row] : &hdo__class_section;
}

void hdo__row_prefix(const hdo_config *c, int row, char *buf, size_t cap) {
    const char *section = hdo__row_section(row)->name;
    if (row >= HDO_SECTIONS_MAX)
        snprintf(buf, cap, "%s.%s.", section, c->population[row - HDO_SECTIONS_MAX].name);
    else
        snprintf(buf, cap, "%s%s", section, row > 0 ? "." : "");
}

const hdo_option *hdo__slot_option(hdo_slot s) {
    return &hdo__row_section(s.row)->options[s.col];
}

static size_t slot_offset(hdo_slot s) {
    size_t base = hdo__row_section(s.row)->offset;
    if (s.row >= HDO_SECTIONS_MAX)
        base += offsetof(hdo_config, population) + (size_t)(s.row - HDO_SECTIONS_MAX) * sizeof(hdo_class_config);
    return base + hdo__slot_option(s)->offset;
}

const void *hdo__slot_value(const hdo_config *c, hdo_slot s) {
    return (const char *)c + slot_offset(s);
}
void *hdo__slot_place(hdo_config *c, hdo_slot s) {
    return (char *)c + slot_offset(s);
}

int hdo__option_index(const hdo_section *s, const char *key) {
    for (int i = 0; s->options[i].key != NULL; i++)
        if (strcmp(s->options[i].key, key) == 0) return i;
    return -1;
}

int hdo__section_index(const char *name) {
    for (int i = 1; i < hdo__n_sections; i++)
        if (strcmp(hdo__sections[i].name, name) == 0) return i;
    return -1;
}

int hdo__class_index(const hdo_config *c, const char *name) {
    for (int k = 0; k < c->n_classes; k++)
        if (strcmp(c->population[k].name, name) == 0) return k;
    return -1;
}

/* ---- unknown keys ---- */

#define KEYS_MAX (HDO_OPTIONS_MAX + HDO_SECTIONS_MAX + 2)

/* The keys allowed in a row, NULL-terminated: at the top level the sections count too. */
static void row_keys(int row, const char *keys[KEYS_MAX]) {
    const hdo_section *s = hdo__row_section(row);
    int n = 0;
    for (; s->options[n].key != NULL; n++) keys[n] = s->options[n].key;
    for (int i = 1; row == 0 && i < hdo__n_sections; i++) keys[n++] = hdo__sections[i].name;
    if (row == 0) keys[n++] = hdo__class_section.name;
    keys[n] = NULL;
}

/* A key that exists, but in another section: `rv` at the top level, `lr` under `model`. */
static bool found_elsewhere(const char *key, char *buf, size_t cap) {
    for (int i = 0; i <= hdo__n_sections; i++) {
        const hdo_section *s = i < hdo__n_sections ? &hdo__sections[i] : &hdo__class_section;
        if (hdo__option_index(s, key) < 0) continue;
        if (i == 0)
            snprintf(buf, cap, "'%s' at the top level", key);
        else
            snprintf(buf, cap, "'%s%s%s'", s->name, i < hdo__n_sections ? "." : ".<class>.", key);
        return true;
    }
    return false;
}

hdo_status hdo__unknown_key(int row, const char *key, hdo_error *e) {
    const char *keys[KEYS_MAX];
    char shown[HDO_SHOWN_MAX], place[HDO_SHOWN_MAX] = "", other[HDO_KEY_MAX], list[512] = "";
    row_keys(row, keys);
    if (row > 0) snprintf(place, sizeof place, " in '%s'", hdo__row_section(row)->name);
    hdo__shown(key, shown);
    const char *near = hdo__suggest(key, keys);
    if (near != NULL) return hdo__fail(e, HDO_E_CONFIG, "unknown key '%s'%s; did you mean '%s'?", shown, place, near);
    for (size_t i = 0, used = 0; keys[i] != NULL && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", keys[i]);
    if (found_elsewhere(key, other, sizeof other))
        return hdo__fail(e, HDO_E_CONFIG, "unknown key '%s'%s; did you mean %s? The keys here are %s", shown, place,
                         other, list);
    return hdo__fail(e, HDO_E_CONFIG, "unknown key '%s'%s; the keys here are %s", shown, place, list);
}

/* ---- dotted keys ---- */

static hdo_status unknown_class(const hdo_config *c, const char *name, hdo_error *e) {
    char shown[HDO_SHOWN_MAX], list[HDO_CLASSES_MAX * (HDO_NAME_MAX + 2)] = "";
    size_t used = 0;
    for (int k = 0; k < c->n_classes && used < sizeof list; k++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", k > 0 ? ", " : "", c->population[k].name);
    return hdo__fail(e, HDO_E_CONFIG, "there is no class '%s' in the population; the classes are %s",
                     hdo__shown(name, shown), list);
}

/* Cuts the first word off a dotted key: word gets it, the rest is returned, NULL when there is none. */
static const char *next_word(const char *key, char *word, size_t cap) {
    const char *dot = strchr(key, '.');
    size_t n = dot != NULL ? (size_t)(dot - key) : strlen(key);
    snprintf(word, cap, "%.*s", (int)(n < cap ? n : cap - 1), key);
    return dot != NULL ? dot + 1 : NULL;
}

hdo_status hdo__slot_find(const hdo_config *c, const char *key, hdo_slot *s, hdo_error *e) {
    char word[HDO_KEY_MAX];
    const char *rest = next_word(key, word, sizeof word);
    *s = (hdo_slot){0, -1};
    if (strcmp(word, hdo__class_section.name) == 0) {
        if (rest == NULL) rest = "";
        rest = next_word(rest, word, sizeof word);
        int k = hdo__class_index(c, word);
        if (k < 0) return unknown_class(c, word, e);
        s->row = HDO_SECTIONS_MAX + k;
    } else if (hdo__section_index(word) > 0) {
        s->row = hdo__section_index(word);
    } else {
        rest = key; /* top level: no further dots */
    }
    const hdo_section *section = hdo__row_section(s->row);
    if (rest == NULL) rest = section->main_key;
    if (rest == NULL)
        return hdo__fail(e, HDO_E_CONFIG, "'%s' is a section; name a key in it, such as '%s.%s'", section->name,
                         section->name, section->options[0].key);
    s->col = hdo__option_index(section, rest);
    if (s->col >= 0) return HDO_OK;
    /* `modle.name`: the first word is at fault, unless it is a key that has no keys below it */
    return hdo__unknown_key(s->row, s->row == 0 && hdo__option_index(section, word) < 0 ? word : rest, e);
}

/* ---- population ---- */

hdo_status hdo__class_name_check(const char *name, hdo_error *e) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz", all[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    char shown[HDO_SHOWN_MAX];
    size_t n = strlen(name);
    if (n > 0 && n < HDO_NAME_MAX && strchr(letters, name[0]) != NULL && strspn(name, all) == n) return HDO_OK;
    return hdo__fail(e, HDO_E_CONFIG,
                     "'%s' cannot name a class: a letter a-z, then up to 30 of a-z, 0-9, '_' and '-' can",
                     hdo__shown(name, shown));
}

hdo_status hdo__nodes_check(const hdo_config *c, hdo_error *e) {
    int64_t total = 0; /* no overflow: 16 classes of at most 16 million */
    for (int k = 0; k < c->n_classes; k++) total += c->population[k].count;
    if (total <= HDO_NODES_MAX) return HDO_OK;
    return hdo__fail(e, HDO_E_CONFIG, "population has %lld nodes in all, but must have at most %d", (long long)total,
                     HDO_NODES_MAX);
}

hdo_status hdo__population_parse(const char *text, hdo_part parts[HDO_CLASSES_MAX], int *n, hdo_error *e) {
    static const char blanks[] = " \t\r\n";
    const hdo_option *count = &hdo__class_section.options[hdo__option_index(&hdo__class_section, "count")];
    char shown[HDO_SHOWN_MAX], digits[32], what[HDO_KEY_MAX];
    const char *p = text;
    for (*n = 0;; p++) {
        if (*n == HDO_CLASSES_MAX)
            return hdo__fail(e, HDO_E_CONFIG, "population '%s' has more than %d classes", hdo__shown(text, shown),
                             HDO_CLASSES_MAX);
        hdo_part *part = &parts[*n];
        p += strspn(p, blanks);
        size_t len = strspn(p, "0123456789"), gap = strspn(p + len, blanks);
        snprintf(digits, sizeof digits, "%.*s", (int)(len < sizeof digits ? len : sizeof digits - 1), p);
        p += len + gap;
        size_t name_len = strcspn(p, "+ \t\r\n"), fits = name_len < HDO_NAME_MAX ? name_len : HDO_NAME_MAX - 1;
        if (len == 0 || name_len == 0)
            return hdo__fail(e, HDO_E_CONFIG,
                             "population is '%s', but must look like 24fo+256zo: a count and a class, "
                             "joined by '+'",
                             hdo__shown(text, shown));
        memset(part, 0, sizeof *part);
        snprintf(part->name, sizeof part->name, "%.*s", (int)fits, p);
        snprintf(what, sizeof what, "population.%s.count", part->name);
        hdo_status st = hdo__class_name_check(fits == name_len ? part->name : p, e);
        if (st == HDO_OK) st = hdo__value_parse(count, what, digits, &part->count, e);
        if (st != HDO_OK) return st;
        for (int i = 0; i < *n; i++)
            if (strcmp(parts[i].name, part->name) == 0)
                return hdo__fail(e, HDO_E_CONFIG, "population '%s' names the class '%s' twice", hdo__shown(text, shown),
                                 part->name);
        ++*n;
        p += name_len;
        p += strspn(p, blanks);
        if (*p == '\0') return HDO_OK;
        if (*p != '+')
            return hdo__fail(e, HDO_E_CONFIG, "population is '%s', but needs a '+' between two classes",
                             hdo__shown(text, shown));
    }
}

static int64_t part_count(const hdo_part *parts, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(parts[i].name, name) == 0) return parts[i].count;
    return 0;
}

static hdo_status set_population(hdo_config *c, const char *text, hdo_source from, hdo_error *e) {
    hdo_part parts[HDO_CLASSES_MAX];
    char shown[HDO_SHOWN_MAX];
    int n = 0, kept = 0;
    int64_t total = 0;
    hdo_status st = hdo__population_parse(text, parts, &n, e);
    if (st != HDO_OK) return st;
    for (int i = 0; i < n; i++) {
        if (hdo__class_index(c, parts[i].name) < 0) return unknown_class(c, parts[i].name, e);
        total += parts[i].count;
    }
    if (total < 1 || total > HDO_NODES_MAX)
        return hdo__fail(e, HDO_E_CONFIG, "population '%s' has %lld nodes in all, but must have 1 to %d",
                         hdo__shown(text, shown), (long long)total, HDO_NODES_MAX);
    for (int k = 0; k < c->n_classes; k++) {
        int64_t count = part_count(parts, n, c->population[k].name);
        if (count == 0) continue;
        if (kept != k) {
            c->population[kept] = c->population[k];
            memcpy(c->origin[HDO_SECTIONS_MAX + kept], c->origin[HDO_SECTIONS_MAX + k], sizeof c->origin[0]);
        }
        c->population[kept].count = count;
        c->origin[HDO_SECTIONS_MAX + kept][hdo__option_index(&hdo__class_section, "count")] =
            (hdo_origin){.source = (uint8_t)from};
        kept++;
    }
    size_t dropped = (size_t)(c->n_classes - kept);
    memset(&c->population[kept], 0, dropped * sizeof c->population[0]);
    memset(c->origin[HDO_SECTIONS_MAX + kept], 0, dropped * sizeof c->origin[0]);
    c->n_classes = kept;
    return HDO_OK;
}

hdo_status hdo_config_population(hdo_config *c, const char *text, hdo_error *e) {
    if (c == NULL || text == NULL) return hdo__misuse(e, "hdo_config_population", "a configuration and a text");
    return set_population(c, text, HDO_FROM_FLAG, e);
}

/* ---- another data set ---- */

static size_t size_of(const hdo_option *o) {
    switch (o->type) {
    case HDO_OPT_BOOL: return sizeof(bool);
    case HDO_OPT_INT: return sizeof(int64_t);
    case HDO_OPT_REAL: return sizeof(double);
    case HDO_OPT_CHOICE: return sizeof(hdo_choice);
    default: return o->cap;
    }
}

bool hdo__data_differs(const hdo_config *c, hdo_slot s, const hdo_data_config *before) {
    if (s.row != hdo__section_index("data")) return false;
    const char *key = hdo__slot_option(s)->key;
    if (strcmp(key, "name") == 0) return strcmp(c->data.name, before->name) != 0;
    return strcmp(key, "path") == 0 && strcmp(c->data.path, before->path) != 0;
}

void hdo__data_changed(hdo_config *c, hdo_slot changed, hdo_origin now) {
    static const char *const keys[] = {"train",   "val",      "path_val",   "path",      "label", "validation",
                                       "classes", "features", "separation", "positions", "law",   "augment_val"};
    bool path = strcmp(hdo__slot_option(changed)->key, "path") == 0;
    int n = path ? 3 : (int)(sizeof keys / sizeof keys[0]); /* another file of the same kind, or another kind */
    hdo_data_config fresh = {0};
    hdo__data_default(&fresh);
    for (int i = 0; i < n; i++) {
        hdo_slot s = {changed.row, hdo__option_index(hdo__row_section(changed.row), keys[i])};
        const hdo_option *o = hdo__slot_option(s);
        hdo_origin *from = &c->origin[s.row][s.col];
        if (from->source == now.source && (now.source != HDO_FROM_FILE || from->file == now.file)) continue;
        memcpy(hdo__slot_place(c, s), (const char *)&fresh + o->offset, size_of(o));
        *from = (hdo_origin){0};
    }
}

/* ---- one value ---- */

hdo_status hdo_config_set_from(hdo_config *c, const char *key, const char *value, hdo_source from, hdo_error *e) {
    assert(c != NULL && key != NULL && value != NULL);
    hdo_slot s;
    char full[HDO_KEY_MAX], prefix[HDO_KEY_MAX];
    hdo_class_config before;
    if (strcmp(key, hdo__class_section.name) == 0) return set_population(c, value, from, e);
    hdo_status st = hdo__slot_find(c, key, &s, e);
    if (st != HDO_OK) return st;
    hdo__row_prefix(c, s.row, prefix, sizeof prefix);
    snprintf(full, sizeof full, "%s%s", prefix, hdo__slot_option(s)->key);
    if (s.row >= HDO_SECTIONS_MAX) before = c->population[s.row - HDO_SECTIONS_MAX];
    const hdo_data_config data = c->data;
    st = hdo__value_parse(hdo__slot_option(s), full, value, hdo__slot_place(c, s), e);
    if (st != HDO_OK) return st;
    if (s.row >= HDO_SECTIONS_MAX && (st = hdo__nodes_check(c, e)) != HDO_OK) {
        c->population[s.row - HDO_SECTIONS_MAX] = before;
        return st;
    }
    c->origin[s.row][s.col] = (hdo_origin){.source = (uint8_t)from};
    if (hdo__data_differs(c, s, &data)) hdo__data_changed(c, s, c->origin[s.row][s.col]);
    return HDO_OK;
}

/* "4fo+28zo" */
static void format_population(const hdo_config *c, char *buf, size_t cap) {
    size_t used = 0;
    buf[0] = '\0';
    for (int k = 0; k < c->n_classes && used < cap; k++)
        used += (size_t)snprintf(buf + used, cap - used, "%s%lld%s", k > 0 ? "+" : "",
                                 (long long)c->population[k].count, c->population[k].name);
}

hdo_status hdo_config_get(const hdo_config *c, const char *key, char *buf, size_t cap, hdo_error *e) {
    if (c == NULL || key == NULL || buf == NULL || cap == 0)
        return hdo__misuse(e, "hdo_config_get", "a configuration, a key and a buffer");
    hdo_slot s;
    char value[HDO_VALUE_MAX];
    buf[0] = '\0';
    if (strcmp(key, hdo__class_section.name) == 0) {
        format_population(c, value, sizeof value);
    } else {
        hdo_status st = hdo__slot_find(c, key, &s, e);
        if (st != HDO_OK) return st;
        hdo__value_format(hdo__slot_option(s), hdo__slot_value(c, s), value, sizeof value);
    }
    if ((size_t)snprintf(buf, cap, "%s", value) < cap) return HDO_OK;
    return hdo__fail(e, HDO_E_FAILED, "the value of %s needs %zu bytes, but the buffer has %zu", key, strlen(value) + 1,
                     cap);
}

void hdo__config_where(const hdo_config *c, const char *key, char *buf, size_t cap) {
    hdo_slot s;
    if (cap == 0) return;
    buf[0] = '\0';
    if (hdo__slot_find(c, key, &s, NULL) != HDO_OK) return;
    hdo_origin o = c->origin[s.row][s.col];
    if ((o.source == HDO_FROM_FILE || o.source == HDO_FROM_BASE) && o.line > 0 && o.file < c->n_files)
        snprintf(buf, cap, "(%s:%u:%u) ", c->files[o.file], (unsigned)o.line, (unsigned)o.column);
}
