/* SPDX-License-Identifier: Apache-2.0 — settings without effect: every key states its condition, and who typed one that
 * has none is told so. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/value.h"
#include "hdo/experimental/all.h"

static hdo_config conf; /* 24 kB: not for the stack */
static hdo_error err;

static void set_from(const char *key, const char *value, hdo_source from) {
    if (hdo_config_set_from(&conf, key, value, from, &err) != HDO_OK) fail_msg("%s", err.msg);
}

static void load(const char *yaml) {
    if (hdo_config_load_bytes(&conf, "own.yaml", yaml, strlen(yaml), &err) != HDO_OK) fail_msg("%s", err.msg);
}

static void accepted(void) {
    if (hdo_config_check(&conf, &err) != HDO_OK) fail_msg("refused: %s", err.msg);
}

static void refused(const char *key, const char *cause) {
    if (hdo_config_check(&conf, &err) != HDO_E_CONFIG) fail_msg("%s was accepted", key);
    if (strstr(err.msg, key) == NULL || strstr(err.msg, cause) == NULL || strstr(err.msg, "has no effect") == NULL)
        fail_msg("'%s' does not name %s and %s", err.msg, key, cause);
}

/* ---- the table ---- */

static bool is_word(const hdo_option *o, const char *word) {
    const char *const *names = o->kind != NULL ? hdo_names(o->kind) : NULL;
    for (int i = 0; names != NULL && names[i] != NULL; i++)
        if (strcmp(names[i], word) == 0) return true;
    for (const hdo_word *w = o->words; w != NULL && w->name != NULL; w++)
        if (strcmp(w->name, word) == 0) return true;
    return o->type == HDO_OPT_BOOL && (strcmp(word, "true") == 0 || strcmp(word, "false") == 0);
}

/* KEY OP WORDS, with a key and words that exist: a slip of the pen would make a condition that never holds. */
static void check_test(const hdo_section *own, char *test) {
    char *op = strchr(test, ' ');
    assert_non_null(op);
    *op++ = '\0';
    const hdo_section *s = own == &hdo__class_section ? own : &hdo__sections[0];
    char *dot = strchr(test, '.'), *key = test;
    if (dot != NULL) {
        *dot = '\0';
        assert_true(hdo__section_index(test) > 0);
        s = &hdo__sections[hdo__section_index(test)];
        key = dot + 1;
    }
    int at = hdo__option_index(s, key);
    if (at < 0) at = hdo__option_index(s = &hdo__sections[0], key);
    if (at < 0) fail_msg("there is no key '%s'", key);
    if (strcmp(op, "is set") == 0 || strcmp(op, "is empty") == 0) {
        assert_int_equal(s->options[at].type, HDO_OPT_TEXT);
        return;
    }
    char *words = op + strcspn(op, " ") + 1;
    if (op[0] == '>') {
        double v;
        assert_true(hdo__real_parse(words, &v));
        return;
    }
    assert_true(strncmp(op, "= ", 2) == 0 || strncmp(op, "!= ", 3) == 0);
    for (char *save = NULL, *w = strtok_r(words, ", ", &save); w != NULL; w = strtok_r(NULL, ", ", &save))
        if (!is_word(&s->options[at], w) && strncmp(w, "own", 3) != 0) fail_msg("'%s' is no value of '%s'", w, key);
}

static void check_condition(const hdo_section *s, const char *when) {
    while (when != NULL) { /* " or " and " and " both stand between tests */
        const char *either = strstr(when, " or "), *both = strstr(when, " and ");
        const char *end = either == NULL || (both != NULL && both < either) ? both : either;
        char test[256];
        snprintf(test, sizeof test, "%.*s", end != NULL ? (int)(end - when) : (int)strlen(when), when);
        check_test(s, test);
        when = end == NULL ? NULL : end + (end == both ? 5 : 4);
    }
}

static void test_effect_every_option_states_its_condition(void **state) {
    (void)state;
    for (int i = 0; i <= hdo__n_sections; i++) {
        const hdo_section *s = i < hdo__n_sections ? &hdo__sections[i] : &hdo__class_section;
        for (const hdo_option *o = s->options; o->key != NULL; o++) {
            const char *when = hdo__option_when(s, o);
            if (when == NULL)
                fail_msg("%s.%s: say in src/config/effect.c when it has an effect, or ALWAYS", s->name, o->key);
            if (when[0] != '\0') check_condition(s, when);
        }
    }
}

/* ---- refusals ---- */

static void test_effect_refuses_what_has_none(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *cause;
    } bad[] = {{"mixing.graph", "ring", "mixing.kind"},
               {"mixing.degree", "6", "mixing.kind"},
               {"mixing.edges", "a.txt", "mixing.kind"},
               {"model.l2", "0.1", "model.name"},
               {"model.dim", "10", "model.name"},
               {"model.layers", "linear 10", "model.name"},
               {"model.reading", "authors", ""},
               {"model.input_size", "64", "model.name"},
               {"data.positions", "100", "data.name"},
               {"data.augment", "true", "data.name"},
               {"population.fo.nu", "1e-3", "population.fo.estimator"},
               {"population.fo.rv", "3", "population.fo.estimator"},
               {"population.zo.nu", "1e-3", "population.zo.estimator"},
               {"population.zo.coords", "5", "population.zo.estimator"},
               {"population.zo.debias_levels", "5", "population.zo.estimator"},
               {"population.zo.allow_piecewise", "true", "population.zo.estimator"},
               {"population.zo.schedule_file", "a.txt", "population.zo.schedule"},
               {"population.zo.momentum_kind", "heavy-ball", "population.zo.momentum"},
               {"population.fo.jvp_s", "1", "population.fo.estimator"},
               {"churn.back", "0.2", "churn.leave"},
               {"churn.outage_from", "2", "churn.outage"},
               {"mpi.roles", "0:fo", "engine"},
               {"mpi.deadline_s", "5", "engine"},
               {"mpi.async", "true", "engine"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hdo_config_default(&conf);
        accepted();
        if (bad[i].cause[0] == '\0') continue; /* logistic has two readings */
        set_from(bad[i].key, bad[i].value, HDO_FROM_FLAG);
        refused(bad[i].key, bad[i].cause);
    }
    hdo_config_default(&conf);
    set_from("mixing.degree", "4", HDO_FROM_FLAG); /* typed: that it is the default does not matter */
    refused("mixing.degree", "mixing.kind");
    set_from("mixing.kind", "graph", HDO_FROM_FLAG);
    refused("mixing.degree", "mixing.graph");
    set_from("mixing.graph", "small-world(0.2)", HDO_FROM_FLAG);
    accepted();
    hdo_config_default(&conf);
    set_from("checkpoint.every", "20", HDO_FROM_FLAG);
    set_from("engine", "mpi", HDO_FROM_FLAG);
    accepted();
    set_from("mpi.async", "true", HDO_FROM_FLAG); /* such a run saves at its end alone */
    refused("checkpoint.every", "mpi.async");
}

static void test_effect_depends_on_who_said_it(void **state) {
    (void)state;
    hdo_config_default(&conf);
    load("mixing: {kind: matching, graph: ring}\n");
    refused("(own.yaml:1:33) mixing.graph", "mixing.kind");
    hdo_config_default(&conf);
    load("mixing: {kind: matching, graph: complete}\n"); /* the default, as in the file of a stored run */
    accepted();
    hdo_config_default(&conf);
    load("mixing: {kind: graph, graph: ring}\npopulation: {fo: 2, zo: {count: 2, rv: 7}}\n");
    accepted();
    set_from("mixing.kind", "matching", HDO_FROM_FLAG); /* a stronger word put the file's graph out of use */
    set_from("population.zo.estimator", "fo", HDO_FROM_FLAG);
    accepted();
    set_from("population.zo.rv", "9", HDO_FROM_FLAG); /* but not what was typed beside it */
    refused("population.zo.rv", "population.zo.estimator");
    hdo_config_default(&conf);
    load("mixing: {kind: matching, graph: ring}\n");
    hdo_config_as_base(&conf);
    accepted();
}

static void test_effect_presets_and_their_dumps(void **state) {
    (void)state;
    for (const char *const *p = hdo_preset_names(); *p != NULL; p++) {
        hdo_config_default(&conf);
        load(hdo_preset(*p)); /* as a file of one's own: every key of it counts */
        accepted();
        set_from("population",
                 conf.n_classes == 2                 ? "1fo+1zo"
                 : conf.population[0].name[0] == 'f' ? "1fo"
                                                     : "1zo",
                 HDO_FROM_FLAG);
        char *first = hdo_config_dump(&conf, false);
        hdo_config_default(&conf);
        load(first);
        accepted();
        char *second = hdo_config_dump(&conf, false);
        assert_string_equal(first, second);
        free(first);
        free(second);
    }
}

/* A stored configuration runs again, and says the same, whatever made parts of it idle. */
static void test_effect_a_dump_holds_no_idle_settings(void **state) {
    (void)state;
    hdo_config_default(&conf);
    load("population: {zo: {count: 2, rv: 7, momentum_kind: heavy-ball, momentum: 0.5}}\n");
    set_from("population.zo.estimator", "fo", HDO_FROM_FLAG);
    set_from("population.zo.momentum", "0", HDO_FROM_FLAG);
    char *text = hdo_config_dump(&conf, true);
    assert_non_null(strstr(text, "rv: 128"));
    assert_non_null(strstr(text, "# no effect: needs estimator != fo, fd-coord"));
    hdo_config_default(&conf);
    load(text);
    accepted();
    assert_string_equal(conf.population[0].estimator, "fo");
    free(text);
}

static void test_effect_is_shown(void **state) {
    (void)state;
    char *help = hdo_config_help("mixing"), *schema = hdo_config_schema();
    assert_non_null(strstr(help, "[needs"));
    assert_non_null(strstr(schema, "has an effect only with mixing.kind = graph and mixing.graph = small-world"));
    free(help);
    free(schema);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_effect_every_option_states_its_condition),
        cmocka_unit_test(test_effect_refuses_what_has_none),
        cmocka_unit_test(test_effect_depends_on_who_said_it),
        cmocka_unit_test(test_effect_presets_and_their_dumps),
        cmocka_unit_test(test_effect_a_dump_holds_no_idle_settings),
        cmocka_unit_test(test_effect_is_shown),
    };
    return cmocka_run_group_tests_name("effect", tests, NULL, NULL);
}
