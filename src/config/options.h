/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table: the one place that knows which keys exist. See <hdo/experimental/config.h>.
 */
#ifndef HDO_CONFIG_OPTIONS_H
#define HDO_CONFIG_OPTIONS_H

#include "base/status.h"
#include "hdo/experimental/config.h"
#include "hdo/experimental/suggest.h" /* for all who look up names */

typedef enum hdo_opt_type { HDO_OPT_BOOL, HDO_OPT_INT, HDO_OPT_REAL, HDO_OPT_TEXT, HDO_OPT_CHOICE } hdo_opt_type;

typedef struct hdo_word {
    const char *name; /* NULL ends the list */
    int id;
    bool takes_arg; /* written name(arg) */
    double lo, hi;  /* bounds of arg, inclusive */
    double arg;     /* default of arg when written without */
    bool whole;     /* arg is a whole number: shards(2) */
} hdo_word;

typedef struct hdo_option {
    const char *key; /* NULL ends the table */
    hdo_opt_type type;
    size_t offset;
    size_t cap;            /* TEXT: bytes */
    double lo, hi;         /* INT, REAL, and CHOICE when a bare number is allowed */
    bool lo_open;          /* the lower bound itself is not allowed */
    bool number;           /* CHOICE: a bare number is allowed (id HDO_NUMBER) */
    const hdo_word *words; /* CHOICE */
    const char *kind;      /* TEXT: the names of hdo_names(kind) are allowed; checked by hdo_config_check */
    const char *unit, *help;
} hdo_option;

typedef struct hdo_section {
    const char *name;     /* "" for the top level, "population" for a class */
    const char *main_key; /* what a scalar in place of the section sets: `data: mnist` is `data: {name: mnist}` */
    const char *help;
    size_t offset; /* in hdo_config; 0 for a class (then relative to hdo_class_config) */
    const hdo_option *options;
} hdo_section;

/* Top level first; the class section is apart because there are several of it. */
extern const hdo_section hdo__sections[];
extern const int hdo__n_sections;
extern const hdo_section hdo__class_section;

/* Defaults of a class by its name: `fo...` back-propagates, anything else starts as zeroth order. */
void hdo__class_default(hdo_class_config *k, const char *name);

/* Defaults with a class fo and a class zo: what help and schema speak of. NULL: out of memory. Free with free. */
hdo_config *hdo__config_example(void);

void hdo__data_default(hdo_data_config *d);

/* "(run.yaml:12:8) " or "" for the value of a dotted key, to put in front of a sentence about it. */
void hdo__config_where(const hdo_config *c, const char *key, char *buf, size_t cap);

/* The condition under which an option has an effect (effect.c): "" always; NULL: the option has no row there. */
const char *hdo__option_when(const hdo_section *s, const hdo_option *o);

/* Refuses what was typed and has no effect: names the key, the key that puts it out of use, and what to do. */
hdo_status hdo__config_effect_check(const hdo_config *c, hdo_error *e);

#endif
