/* SPDX-License-Identifier: Apache-2.0
 *
 * One value of the option table: text to value and back, and finding it in a configuration. Shared by the files of this
 * folder only. Nothing here depends on the locale: a run stored in Berlin must load in Boston.
 */
#ifndef HDO_CONFIG_VALUE_H
#define HDO_CONFIG_VALUE_H

#include "base/quote.h"
#include "config/options.h"

#define HDO_VALUE_MAX 640      /* bytes of the longest formatted value: a text of HDO_SPEC_MAX or HDO_PATH_MAX */
#define HDO_KEY_MAX 128        /* bytes of the longest dotted key */
#define HDO_REAL_MAX 40        /* bytes of a formatted number */
#define HDO_NODES_MAX 16777215 /* 2^24 - 1 nodes in all: a node is 24 bits of the random numbers' address */

/* ---- value.c: one value ---- */

/* Decimal notation only: no hexadecimal, infinity or NaN, no blanks. False leaves *v alone. */
bool hdo__real_parse(const char *s, double *v);
/* The shortest decimal that reads back to v; good YAML (1.1 and 1.2) and good JSON. */
void hdo__real_format(double v, char *buf, size_t cap);
/* A bound of o as text, without a fraction for whole numbers. */
void hdo__bound_format(const hdo_option *o, double bound, char *buf, size_t cap);

/* May the character stand in a text value? Not so control characters (but tab and line feed) and Unicode's own line
 * breaks, which YAML would fold. */
bool hdo__text_char_ok(uint32_t code);

/* Reads text as a value of o into dst; key is what the sentence calls it. dst is untouched on failure. */
hdo_status hdo__value_parse(const hdo_option *o, const char *key, const char *text, void *dst, hdo_error *e);
void hdo__value_format(const hdo_option *o, const void *src, char *buf, size_t cap);
/* What is allowed, for people: "1 to 4096", "number > 0 | balanced | theorem". */
void hdo__value_range(const hdo_option *o, char *buf, size_t cap);

/* Text of others inside a sentence: cut when long, harmless characters only. */
#define HDO_SHOWN_MAX 64
const char *hdo__shown(const char *text, char buf[HDO_SHOWN_MAX]);

/* ---- options.c: values in a configuration ---- */

/* A row of hdo_config.origin: sections in order, then classes from HDO_SECTIONS_MAX on. */
typedef struct hdo_slot {
    int row, col;
} hdo_slot;

const hdo_section *hdo__row_section(int row);
/* "" or "model." or "population.zo." */
void hdo__row_prefix(const hdo_config *c, int row, char *buf, size_t cap);
const hdo_option *hdo__slot_option(hdo_slot s);
const void *hdo__slot_value(const hdo_config *c, hdo_slot s);
void *hdo__slot_place(hdo_config *c, hdo_slot s);

/* Index into the options of s, or -1. */
int hdo__option_index(const hdo_section *s, const char *key);
/* Index into hdo__sections of a named section, or -1; the top level has no name. */
int hdo__section_index(const char *name);
int hdo__class_index(const hdo_config *c, const char *name);

/* ---- effect.c ---- */

/* Has the value no effect, with the others as they are? *cause: the value to blame. */
bool hdo__slot_idle(const hdo_config *c, hdo_slot s, hdo_slot *cause);
/* c with its default in place of every value without effect. False when out of memory. */
bool hdo__config_rest(const hdo_config *c, hdo_config *out);

/* ---- keys and classes ---- */

/* The slot of a dotted key; the name of a section or class alone means its main key. */
hdo_status hdo__slot_find(const hdo_config *c, const char *key, hdo_slot *s, hdo_error *e);
/* To be called when data.name or data.path got another value from `now`: what other sources said about the data set
 * before (limits, files, shape) does not hold for this one and goes back to its default. */
void hdo__data_changed(hdo_config *c, hdo_slot changed, hdo_origin now);
/* Is the slot data.name or data.path, and is its value another than `before`? */
bool hdo__data_differs(const hdo_config *c, hdo_slot s, const hdo_data_config *before);
hdo_status hdo__unknown_key(int row, const char *key, hdo_error *e);
hdo_status hdo__class_name_check(const char *name, hdo_error *e);
hdo_status hdo__nodes_check(const hdo_config *c, hdo_error *e);

/* "24fo+256zo" taken apart. */
typedef struct hdo_part {
    char name[HDO_NAME_MAX];
    int64_t count;
} hdo_part;
hdo_status hdo__population_parse(const char *text, hdo_part parts[HDO_CLASSES_MAX], int *n, hdo_error *e);

#endif
