/* SPDX-License-Identifier: Apache-2.0 — the option table as a JSON Schema (draft 2020-12), for editors and checkers.
 *
 * Every section is a definition under $defs, so that the short form (`data: mnist`) can refer to its main key. Written
 * by hand: numbers come out as short as in the dump, and keys in table order.
 */
#include "config/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLASS_PATTERN "[a-z][a-z0-9_-]{0,30}"
#define NUMBER_PATTERN "[-+]?[0-9.]+([eE][-+]?[0-9]+)?"

/* A word inside a regular expression. */
static void json_pattern(FILE *f, const char *s) {
    for (; *s != '\0'; s++) {
        if (strchr("\\^$.|?*+()[]{}", *s) != NULL) fputs("\\\\", f);
        fputc(*s, f);
    }
}

static void json_value(FILE *f, const hdo_option *o, const void *src) {
    char value[HDO_VALUE_MAX];
    hdo__value_format(o, src, value, sizeof value);
    bool text = o->type == HDO_OPT_TEXT || (o->type == HDO_OPT_CHOICE && ((const hdo_choice *)src)->id != HDO_NUMBER);
    if (text)
        hdo__quote_json(f, value);
    else
        fputs(value, f);
}

static void number_limits(FILE *f, const hdo_option *o) {
    char lo[HDO_REAL_MAX], hi[HDO_REAL_MAX];
    hdo__bound_format(o, o->lo, lo, sizeof lo);
    hdo__bound_format(o, o->hi, hi, sizeof hi);
    fprintf(f, "\"type\": \"%s\", \"%s\": %s, \"maximum\": %s", o->type == HDO_OPT_INT ? "integer" : "number",
            o->lo_open ? "exclusiveMinimum" : "minimum", lo, hi);
}

static void choice_schema(FILE *f, const hdo_option *o) {
    fputs("\"anyOf\": [", f);
    if (o->number) {
        fputs("{", f);
        number_limits(f, o);
        fputs("}, ", f);
    }
    fputs("{\"enum\": [", f);
    for (const hdo_word *w = o->words; w->name != NULL; w++) {
        if (w != o->words) fputs(", ", f);
        hdo__quote_json(f, w->name);
    }
    fputs("]}", f);
    for (const hdo_word *w = o->words; w->name != NULL; w++) {
        if (!w->takes_arg) continue;
        fputs(", {\"type\": \"string\", \"pattern\": \"^", f);
        json_pattern(f, w->name);
        fprintf(f, "\\\\(%s\\\\)$\"}", w->whole ? "[0-9]+" : NUMBER_PATTERN);
    }
    fputs("]", f);
}

static void text_schema(FILE *f, const hdo_option *o) {
    const char *const *names = o->kind != NULL ? hdo_names(o->kind) : NULL;
    if (names == NULL) {
        fprintf(f, "\"type\": [\"string\", \"null\"], \"maxLength\": %zu", o->cap - 1);
        return;
    }
    fputs("\"enum\": [", f);
    for (size_t i = 0; names[i] != NULL; i++) {
        if (i > 0) fputs(", ", f);
        hdo__quote_json(f, names[i]);
    }
    fputs("]", f);
}

/* Examples: the default, of a class those of an fo and a zo class; and words with their number, easy to miss. */
static void examples(FILE *f, const hdo_config *c, hdo_slot s) {
    const hdo_option *o = hdo__slot_option(s);
    hdo_choice with_arg = {0, 0};
    char a[HDO_VALUE_MAX], b[HDO_VALUE_MAX];
    fputs(", \"examples\": [", f);
    json_value(f, o, hdo__slot_value(c, s));
    hdo__value_format(o, hdo__slot_value(c, s), a, sizeof a);
    if (s.row >= HDO_SECTIONS_MAX) {
        hdo_slot other = {s.row + 1, s.col};
        hdo__value_format(o, hdo__slot_value(c, other), b, sizeof b);
        if (strcmp(a, b) != 0) {
            fputs(", ", f);
            json_value(f, o, hdo__slot_value(c, other));
        }
    }
    for (const hdo_word *w = o->words; w != NULL && w->name != NULL; w++) {
        if (!w->takes_arg) continue;
        with_arg.id = w->id;
        with_arg.arg = w->arg;
        fputs(", ", f);
        json_value(f, o, &with_arg);
    }
    fputs("]", f);
}

static void option_schema(FILE *f, const hdo_config *c, hdo_slot s) {
    const hdo_option *o = hdo__slot_option(s);
    char help[1024];
    const char *when = hdo__option_when(hdo__row_section(s.row), o);
    bool always = when == NULL || when[0] == '\0';
    fputs("        ", f);
    hdo__quote_json(f, o->key);
    fputs(": {", f);
    switch (o->type) {
    case HDO_OPT_BOOL: fputs("\"type\": \"boolean\"", f); break;
    case HDO_OPT_INT:
    case HDO_OPT_REAL: number_limits(f, o); break;
    case HDO_OPT_TEXT: text_schema(f, o); break;
    case HDO_OPT_CHOICE: choice_schema(f, o); break;
    }
    snprintf(help, sizeof help, "%s%s%s%s%s%s", o->help, o->unit != NULL ? " [" : "", o->unit != NULL ? o->unit : "",
             o->unit != NULL ? "]" : "", always ? "" : "; has an effect only with ", always ? "" : when);
    fputs(", \"description\": ", f);
    hdo__quote_json(f, help);
    if (s.row < HDO_SECTIONS_MAX) { /* of a class it depends on the name */
        fputs(", \"default\": ", f);
        json_value(f, o, hdo__slot_value(c, s));
    }
    examples(f, c, s);
    fputs("}", f);
}

/* The definition of a section or class under $defs; the top level under properties. */
static void options_schema(FILE *f, const hdo_config *c, int row) {
    hdo_slot s = {row, 0};
    for (; hdo__slot_option(s)->key != NULL; s.col++) {
        fputs(s.col > 0 ? ",\n" : "", f);
        option_schema(f, c, s);
    }
}

static void section_definition(FILE *f, const hdo_config *c, int row, const char *name) {
    fputs("    ", f);
    hdo__quote_json(f, name);
    fputs(": {\n      \"type\": \"object\", \"additionalProperties\": false, \"description\": ", f);
    hdo__quote_json(f, hdo__row_section(row)->help);
    fputs(",\n      \"properties\": {\n", f);
    options_schema(f, c, row);
    fputs("\n      }\n    }", f);
}

/* A section in full, its main key alone, or nothing. */
static void section_reference(FILE *f, const hdo_section *s, const char *name) {
    fprintf(f, "{\"anyOf\": [{\"$ref\": \"#/$defs/%s\"}", name);
    if (s->main_key != NULL) fprintf(f, ", {\"$ref\": \"#/$defs/%s/properties/%s\"}", name, s->main_key);
    fputs(", {\"type\": \"null\"}]}", f);
}

static void write_schema(FILE *f, const hdo_config *c) {
    fputs("{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
          "  \"title\": \"HDO run configuration\",\n  \"type\": \"object\",\n  \"additionalProperties\": false,\n"
          "  \"properties\": {\n",
          f);
    options_schema(f, c, 0);
    for (int i = 1; i < hdo__n_sections; i++) {
        fprintf(f, ",\n        \"%s\": ", hdo__sections[i].name);
        section_reference(f, &hdo__sections[i], hdo__sections[i].name);
    }
    fprintf(f, ",\n        \"%s\": {\"description\": ", hdo__class_section.name);
    hdo__quote_json(f, hdo__class_section.help);
    fprintf(f,
            ", \"anyOf\": [\n          {\"type\": \"object\", \"additionalProperties\": false, \"minProperties\": 1"
            ", \"maxProperties\": %d,\n           \"patternProperties\": {\"^" CLASS_PATTERN "$\": ",
            HDO_CLASSES_MAX);
    section_reference(f, &hdo__class_section, "class");
    fputs("}},\n          {\"type\": \"string\", \"pattern\": \"^ *[0-9]+ *" CLASS_PATTERN
          "( *\\\\+ *[0-9]+ *" CLASS_PATTERN
          ")* *$\"}],\n          \"examples\": [{\"fo\": 4, \"zo\": {\"count\": 28, \"rv\": 64}}, "
          "\"4fo+28zo\"]}\n  },\n  \"$defs\": {\n",
          f);
    for (int i = 1; i < hdo__n_sections; i++) {
        section_definition(f, c, i, hdo__sections[i].name);
        fputs(",\n", f);
    }
    section_definition(f, c, HDO_SECTIONS_MAX, "class");
    fputs("\n  },\n  \"examples\": [{\"model\": \"logistic\", \"data\": {\"name\": \"mnist\", \"split\": \"copies\"},"
          " \"steps\": 500, \"population\": {\"fo\": 24, \"zo\": {\"count\": 256, \"rv\": 128, \"lr\": 0.01}}}]\n}\n",
          f);
}

char *hdo_config_schema(void) {
    char *text = NULL;
    size_t len = 0;
    hdo_config *c = hdo__config_example();
    FILE *f = c != NULL ? open_memstream(&text, &len) : NULL;
    if (f == NULL) {
        free(c);
        return NULL;
    }
    write_schema(f, c);
    free(c);
    bool bad = ferror(f) != 0;
    if (fclose(f) == 0 && !bad) return text;
    free(text);
    return NULL;
}
