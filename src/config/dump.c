/* SPDX-License-Identifier: Apache-2.0 — a configuration as YAML, and the table of keys for people.
 *
 * The dump is written by hand rather than by libyaml's emitter, which knows no comments. It uses a small part of YAML:
 * block mappings, plain scalars of harmless characters, double-quoted scalars for everything else. open_memstream keeps
 * the memory; only strings are printed, so no locale can slip in.
 */
#include "config/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- YAML ---- */

#define COMMENT_COLUMN 40 /* of origins; longer lines push theirs to the right */

/* Letters first, then letters and a few signs that mean nothing to YAML; and not a word YAML has a meaning for. */
static bool plain_ok(const char *s) {
    static const char *const taken[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (strcspn(s, letters) != 0 && s[0] != '/') return false;
    if (s[0] == '\0' || s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-")] != '\0')
        return false;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcasecmp(s, taken[i]) == 0) return false;
    return true;
}

/* Returns columns. s has passed hdo__text_char_ok: tab, line feed, quote and backslash are all there is to escape. */
static int write_text(FILE *f, const char *s) {
    int n = 2;
    if (plain_ok(s)) return fprintf(f, "%s", s);
    fputc('"', f);
    for (; *s != '\0'; s++) {
        if (*s == '\n')
            n += fprintf(f, "\\n");
        else if (*s == '\t')
            n += fprintf(f, "\\t");
        else if (*s == '"' || *s == '\\')
            n += fprintf(f, "\\%c", *s);
        else
            n += fprintf(f, "%c", *s);
    }
    fputc('"', f);
    return n;
}

/* A file's name may hold anything but NUL; a comment ends at the line and must stay UTF-8. */
static void write_file_name(FILE *f, const char *s) {
    size_t left = strlen(s);
    while (left > 0) {
        uint32_t code = 0;
        size_t n = hdo__utf8_next(s, left, &code);
        if (n == 0 || !hdo__text_char_ok(code) || code < 0x20)
            fputc('?', f);
        else
            fwrite(s, 1, n, f);
        s += n > 0 ? n : 1;
        left -= n > 0 ? n : 1;
    }
}

static void write_origin(FILE *f, const hdo_config *c, hdo_slot s, int column) {
    hdo_origin o = c->origin[s.row][s.col];
    fprintf(f, "%*s# ", column < COMMENT_COLUMN - 2 ? COMMENT_COLUMN - column : 2, "");
    hdo_slot cause;
    if (hdo__slot_idle(c, s, &cause)) {
        fprintf(f, "no effect: needs %s", hdo__option_when(hdo__row_section(s.row), hdo__slot_option(s)));
    } else if ((o.source == HDO_FROM_FILE || o.source == HDO_FROM_BASE) && o.line > 0 && o.file < c->n_files) {
        write_file_name(f, c->files[o.file]);
        fprintf(f, ":%u", (unsigned)o.line);
    } else {
        static const char *const names[] = {"default", "preset", "file", "environment", "--set"};
        fputs(names[o.source], f);
    }
}

static void dump_row(FILE *f, const hdo_config *c, int row, int indent, bool with_origin) {
    char value[HDO_VALUE_MAX];
    hdo_slot s = {row, 0};
    for (; hdo__slot_option(s)->key != NULL; s.col++) {
        const hdo_option *o = hdo__slot_option(s);
        int column = fprintf(f, "%*s%s: ", indent, "", o->key);
        hdo__value_format(o, hdo__slot_value(c, s), value, sizeof value);
        column += o->type == HDO_OPT_TEXT ? write_text(f, value) : fprintf(f, "%s", value);
        if (with_origin) write_origin(f, c, s, column);
        fputc('\n', f);
    }
}

static char *finish(FILE *f, char **text) {
    bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad) {
        free(*text);
        return NULL;
    }
    return *text;
}

static void dump_all(FILE *f, const hdo_config *c, bool with_origin) {
    for (int row = 0; row < hdo__n_sections; row++) {
        if (row > 0) fprintf(f, "%s:\n", hdo__sections[row].name);
        dump_row(f, c, row, row > 0 ? 2 : 0, with_origin);
    }
    fprintf(f, "%s:%s\n", hdo__class_section.name, c->n_classes > 0 ? "" : " {}");
    for (int k = 0; k < c->n_classes; k++) {
        fputs("  ", f);
        write_text(f, c->population[k].name); /* a class may be called `no` */
        fputs(":\n", f);
        dump_row(f, c, HDO_SECTIONS_MAX + k, 4, with_origin);
    }
}

char *hdo_config_dump(const hdo_config *c, bool with_origin) {
    char *text = NULL;
    size_t len = 0;
    hdo_config *rest = malloc(sizeof *rest);
    FILE *f = rest != NULL && hdo__config_rest(c, rest) ? open_memstream(&text, &len) : NULL;
    if (f == NULL) {
        free(rest);
        return NULL;
    }
    dump_all(f, rest, with_origin);
    free(rest);
    return finish(f, &text);
}

/* ---- help ---- */

enum { KEY, DEFAULT, RANGE, HELP, CELLS };
static const int cell_width[CELLS] = {15, 15, 25, 39}; /* with two blanks before each: 100 columns at most */
_Static_assert(15 + 15 + 25 + 39 + 2 * 3 <= 100, "help fits 100 columns");

/* How much of s fits a line of width columns: up to a blank if there is one, all of it if it fits. */
static int line_length(const char *s, int width) {
    int n = (int)strlen(s), cut = width;
    if (n <= width) return n;
    while (cut > 0 && s[cut] != ' ') cut--;
    return cut > 0 ? cut : width;
}

static void write_cells(FILE *f, const char *cells[CELLS]) {
    bool more = true;
    while (more) {
        int owed = 0; /* blanks are written late, so that no line ends with one */
        more = false;
        for (int i = 0; i < CELLS; i++) {
            int n = line_length(cells[i], cell_width[i]);
            if (n > 0) fprintf(f, "%*s%.*s", owed, "", n, cells[i]);
            owed = n > 0 ? cell_width[i] - n + 2 : owed + cell_width[i] + 2;
            cells[i] += n;
            cells[i] += strspn(cells[i], " ");
            more = more || cells[i][0] != '\0';
        }
        fputc('\n', f);
    }
}

/* The default as text; of a class both, when a class named fo... starts differently from the rest. */
static void default_text(const hdo_config *c, hdo_slot s, char *buf, size_t cap) {
    char value[HDO_VALUE_MAX], other[HDO_VALUE_MAX];
    const hdo_option *o = hdo__slot_option(s);
    hdo__value_format(o, hdo__slot_value(c, s), value, sizeof value);
    if (s.row >= HDO_SECTIONS_MAX) {
        hdo__value_format(o, hdo__slot_value(c, (hdo_slot){s.row + 1, s.col}), other, sizeof other);
        if (strcmp(value, other) != 0) {
            snprintf(buf, cap, "fo: %.100s, else %.100s", value, other);
            return;
        }
    }
    snprintf(buf, cap, "%s", value[0] != '\0' ? value : "(empty)");
}

/* A section, or only one of its keys (only >= 0). */
static void help_row(FILE *f, const hdo_config *c, int row, int only) {
    const hdo_section *s = hdo__row_section(row);
    char range[HDO_VALUE_MAX + 32], value[HDO_VALUE_MAX], meaning[1024];
    fprintf(f, "%s%s - %s\n", s->name[0] != '\0' ? s->name : "top level", row >= HDO_SECTIONS_MAX ? ".<class>" : "",
            s->help);
    for (hdo_slot slot = {row, 0}; s->options[slot.col].key != NULL; slot.col++) {
        const hdo_option *o = &s->options[slot.col];
        if (only >= 0 && slot.col != only) continue;
        hdo__value_range(o, range, sizeof range - 32);
        if (o->unit != NULL) {
            size_t n = strlen(range);
            snprintf(range + n, sizeof range - n, " %s", o->unit);
        }
        default_text(c, slot, value, sizeof value);
        const char *when = hdo__option_when(s, o);
        bool always = when == NULL || when[0] == '\0';
        snprintf(meaning, sizeof meaning, "%s%s%s%s", o->help, always ? "" : " [needs ", always ? "" : when,
                 always ? "" : "]");
        const char *cells[CELLS] = {o->key, value, range, meaning};
        write_cells(f, cells);
    }
}

char *hdo_config_help(const char *section) {
    char *text = NULL;
    size_t len = 0;
    bool found = false;
    hdo_config *c = hdo__config_example();
    FILE *f = c != NULL ? open_memstream(&text, &len) : NULL;
    if (f == NULL) {
        free(c);
        return NULL;
    }
    for (int i = 0; i <= hdo__n_sections; i++) {
        int row = i < hdo__n_sections ? i : HDO_SECTIONS_MAX;
        if (section != NULL && strcmp(section, hdo__row_section(row)->name) != 0) continue;
        if (found) fputc('\n', f);
        if (!found) write_cells(f, (const char *[CELLS]){"KEY", "DEFAULT", "ALLOWED", "MEANING"});
        help_row(f, c, row, -1);
        found = true;
    }
    hdo_slot slot;
    if (!found && hdo__slot_find(c, section, &slot, NULL) == HDO_OK) {
        help_row(f, c, slot.row < HDO_SECTIONS_MAX ? slot.row : HDO_SECTIONS_MAX, slot.col);
        found = true;
    }
    free(c);
    text = finish(f, &text);
    if (found) return text;
    free(text);
    return NULL;
}
