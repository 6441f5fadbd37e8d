/* SPDX-License-Identifier: Apache-2.0 — the configuration engine: table, values, keys, population, sentences.
 *
 * Most cases run over the whole option table, so a new option is tested by adding its row. Files, dump and schema are
 * in test_config_file.c.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/value.h"

/* ---- helpers ---- */

static hdo_config conf; /* 24 kB: not for the stack */
static hdo_error err;

static void fresh(void) {
    memset(&err, 0, sizeof err);
    hdo_config_default(&conf);
}

static void expect_start(const char *msg, const char *start) {
    if (strncmp(msg, start, strlen(start)) != 0) fail_msg("'%s' does not start with '%s'", msg, start);
}

/* Refused, with this sentence (or start of one), and nothing has changed. */
static void refuse_set(const char *key, const char *value, const char *start) {
    static hdo_config before;
    fresh();
    before = conf;
    assert_int_equal(hdo_config_set_from(&conf, key, value, HDO_FROM_FLAG, &err), HDO_E_CONFIG);
    expect_start(err.msg, start);
    assert_memory_equal(&before, &conf, sizeof conf);
}

static void accept_set(const char *key, const char *value) {
    if (hdo_config_set_from(&conf, key, value, HDO_FROM_FLAG, &err) != HDO_OK) fail_msg("%s", err.msg);
}

static void expect_get(const char *key, const char *value) {
    char buf[HDO_VALUE_MAX];
    assert_int_equal(hdo_config_get(&conf, key, buf, sizeof buf, &err), HDO_OK);
    assert_string_equal(buf, value);
}

/* Calls f for every option of every section and of the class zo. */
static void each_option(void (*f)(const hdo_option *o, const char *key)) {
    for (int i = 0; i <= hdo__n_sections; i++) {
        hdo_slot s = {i < hdo__n_sections ? i : HDO_SECTIONS_MAX + 1, 0};
        for (; hdo__slot_option(s)->key != NULL; s.col++) {
            char key[HDO_KEY_MAX], prefix[HDO_KEY_MAX];
            fresh();
            hdo__row_prefix(&conf, s.row, prefix, sizeof prefix);
            snprintf(key, sizeof key, "%s%s", prefix, hdo__slot_option(s)->key);
            f(hdo__slot_option(s), key);
        }
    }
}

/* ---- every option ---- */

static void check_described(const hdo_option *o, const char *key) {
    char range[HDO_VALUE_MAX], value[HDO_VALUE_MAX], again[HDO_VALUE_MAX];
    hdo__value_range(o, range, sizeof range);
    assert_true(o->help != NULL && strlen(o->help) > 10 && strlen(range) > 0);
    assert_true(o->type != HDO_OPT_TEXT || (o->cap > 1 && o->cap < HDO_VALUE_MAX));
    assert_true((o->type != HDO_OPT_INT && o->type != HDO_OPT_REAL) || o->lo < o->hi);
    assert_int_equal(hdo_config_get(&conf, key, value, sizeof value, &err), HDO_OK);
    accept_set(key, value); /* every default is allowed and survives being written and read */
    assert_int_equal(hdo_config_get(&conf, key, again, sizeof again, &err), HDO_OK);
    assert_string_equal(value, again);
}
static void test_config_every_option_described(void **state) {
    (void)state;
    each_option(check_described);
}

static void check_bounds(const hdo_option *o, const char *key) {
    char lo[HDO_REAL_MAX], hi[HDO_REAL_MAX], below[HDO_REAL_MAX], above[HDO_REAL_MAX], start[256];
    bool is_int = o->type == HDO_OPT_INT;
    if (!is_int && o->type != HDO_OPT_REAL && !o->number) return;
    hdo__bound_format(o, o->lo, lo, sizeof lo);
    hdo__bound_format(o, o->hi, hi, sizeof hi);
    hdo__bound_format(o, is_int ? o->lo - 1 : nextafter(o->lo, -HUGE_VAL), below, sizeof below);
    hdo__bound_format(o, is_int ? o->hi + 1 : nextafter(o->hi, HUGE_VAL), above, sizeof above);
    if (is_int && o->hi >= 0x1p63) snprintf(above, sizeof above, "9223372036854775808");
    snprintf(start, sizeof start, "%s is %s, but must be %s %s", key, below, o->lo_open ? "more than" : "at least", lo);
    refuse_set(key, below, start);
    snprintf(start, sizeof start, "%s is %s, but must be at most %s", key, above, hi);
    refuse_set(key, above, start);
    snprintf(start, sizeof start, "%s is %s, but must be more than", key, lo);
    if (o->lo_open)
        refuse_set(key, lo, start);
    else
        accept_set(key, lo);
    accept_set(key, hi);
    expect_get(key, hi);
}
static void test_config_every_bound_holds(void **state) {
    (void)state;
    each_option(check_bounds);
}

static void check_nonsense(const hdo_option *o, const char *key) {
    static const char *const words[] = {"nan",  "NaN",   "inf", "-inf", ".nan", ".inf", "infinity",
                                        "0x10", "1e999", "1 2", "1,5",  "--1",  "e5",   "1e",
                                        ".",    "+",     "",    " ",    "zzzz", "null"};
    char start[256];
    snprintf(start, sizeof start, "%s is ", key);
    for (size_t i = 0; o->type != HDO_OPT_TEXT && i < sizeof words / sizeof *words; i++)
        refuse_set(key, words[i], start);
}
static void test_config_every_option_refuses_nonsense(void **state) {
    (void)state;
    each_option(check_nonsense);
}

static void check_text(const hdo_option *o, const char *key) {
    char text[HDO_VALUE_MAX], start[256];
    if (o->type != HDO_OPT_TEXT) return;
    memset(text, 'x', sizeof text);
    text[o->cap - 1] = '\0';
    accept_set(key, text);
    expect_get(key, text);
    accept_set(key, "");
    expect_get(key, "");
    text[o->cap - 1] = 'x';
    text[o->cap] = '\0';
    snprintf(start, sizeof start, "%s is %zu bytes long, but at most %zu fit", key, o->cap, o->cap - 1);
    refuse_set(key, text, start);
    snprintf(start, sizeof start, "%s contains the control character U+0007", key);
    refuse_set(key, "a\ab", start);
    snprintf(start, sizeof start, "%s is not valid UTF-8 text", key);
    refuse_set(key, "\xc3(", start);
    refuse_set(key, "\xed\xa0\x80", start); /* a surrogate */
    refuse_set(key, "\xc0\x80", start);     /* NUL in two bytes */
}
static void test_config_every_text_fits_or_is_refused(void **state) {
    (void)state;
    each_option(check_text);
}

static void check_words(const hdo_option *o, const char *key) {
    char text[128], bound[HDO_REAL_MAX], start[256];
    for (const hdo_word *w = o->words; w != NULL && w->name != NULL; w++) {
        accept_set(key, w->name);
        snprintf(text, sizeof text, "%s(1)", w->name);
        snprintf(start, sizeof start, "%s is '%s(...)', but '%s' takes no number", key, w->name, w->name);
        if (!w->takes_arg) {
            expect_get(key, w->name);
            refuse_set(key, text, start);
            continue;
        }
        for (int side = 0; side < 2; side++) {
            hdo__real_format(side ? w->hi : w->lo, bound, sizeof bound);
            snprintf(text, sizeof text, "%s(%s)", w->name, bound);
            accept_set(key, text);
            expect_get(key, text);
            hdo__real_format(side ? w->hi * 2 : w->lo - 1, bound, sizeof bound);
            snprintf(text, sizeof text, "%s(%s)", w->name, bound);
            snprintf(start, sizeof start, "the number of '%s' in %s is %s, but must be at %s", w->name, key, bound,
                     side ? "most" : "least");
            refuse_set(key, text, start);
        }
        snprintf(text, sizeof text, "%s(nan)", w->name);
        refuse_set(key, text, "the number of '");
        snprintf(text, sizeof text, "%s()", w->name);
        refuse_set(key, text, "the number of '");
    }
}
static void test_config_every_word_reads(void **state) {
    (void)state;
    each_option(check_words);
    refuse_set("data.split", "shards(2.5)", "the number of 'shards' in data.split is '2.5', but must be a whole");
    refuse_set("population.zo.lr", "balnced",
               "population.zo.lr is 'balnced', but must be one of number 0 to 1000000 | "
               "balanced | theorem | auto; did you mean 'balanced'?");
}

/* ---- values ---- */

static void test_config_numbers_read_exactly(void **state) {
    (void)state;
    static const struct {
        const char *text, *value;
    } good[] = {{"1e6", "1000000"},
                {"1.5e3", "1500"},
                {"300.0", "300"},
                {" 7 ", "7"},
                {"+7", "7"},
                {"007", "7"},
                {"-0", "0"},
                {"0e99", "0"},
                {"70e-1", "7"},
                {"0.00005e5", "5"},
                {"4294967295", "4294967295"}};
    fresh();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        accept_set("steps", good[i].text);
        expect_get("steps", good[i].value);
    }
    accept_set("seed", "9223372036854775807");
    assert_true(conf.seed == INT64_MAX);
    refuse_set("steps", "1.5", "steps is '1.5', but must be a whole number, 0 to 4294967295 steps");
    refuse_set("steps", "1e99", "steps is 1e99, but must be at most 4294967295 steps");
    refuse_set("steps", "-99999999999999999999", "steps is -99999999999999999999, but must be at least 0 steps");
    refuse_set("population.zo.rv", "0", "population.zo.rv is 0, but must be at least 1");
    refuse_set("data.augment", "maybe", "data.augment is 'maybe', but must be true or false");
    static const char *const bools[] = {"false", "true", "no", "yes", "off", "on", "FALSE", "True"};
    for (size_t i = 0; i < sizeof bools / sizeof *bools; i++) {
        accept_set("data.augment", bools[i]);
        assert_int_equal(conf.data.augment, i % 2);
    }
}

static void check_reals(void) {
    static const char *const same[] = {"0",
                                       "1",
                                       "0.1",
                                       "0.0001",
                                       "1.0e-5",
                                       "123.456",
                                       "1000000",
                                       "1.0e+10",
                                       "-2.5",
                                       "5.0e-324",
                                       "1.7976931348623157e+308",
                                       "0.30000000000000004"};
    char buf[HDO_REAL_MAX];
    double v = 0, w = 0;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        assert_true(hdo__real_parse(same[i], &v));
        hdo__real_format(v, buf, sizeof buf);
        assert_string_equal(buf, same[i]);
    }
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++) { /* any double comes back, from all over the exponents */
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(&v, &x, sizeof v);
        if (!isfinite(v)) continue;
        hdo__real_format(v, buf, sizeof buf);
        assert_true(hdo__real_parse(buf, &w));
        assert_true(v == w);
    }
}
static void test_config_reals_round_trip(void **state) {
    (void)state;
    check_reals();
}

static void test_config_suggest_nearest(void **state) {
    (void)state;
    static const char *const words[] = {"steps", "seed", "lr", "momentum_kind", NULL};
    assert_string_equal(hdo__suggest("setps", words), "steps");
    assert_string_equal(hdo__suggest("step", words), "steps");
    assert_string_equal(hdo__suggest("LR", words), "lr");
    assert_string_equal(hdo__suggest("momentumknd", words), "momentum_kind");
    assert_null(hdo__suggest("zz", words));
    assert_null(hdo__suggest("", words));
    assert_null(hdo__suggest("epochs", words));
    assert_null(hdo__suggest("steps", NULL));
}

/* ---- keys ---- */

static void test_config_set_finds_keys(void **state) {
    (void)state;
    char tiny[4];
    fresh();
    accept_set("model", "mlp"); /* a section alone is its main key */
    expect_get("model.name", "mlp");
    accept_set("population.zo", "7");
    expect_get("population.zo.count", "7");
    accept_set("population", "2zo+1fo");
    expect_get("population", "1fo+2zo");
    refuse_set("setps", "1", "unknown key 'setps'; did you mean 'steps'?");
    refuse_set("modle.name", "1", "unknown key 'modle'; did you mean 'model'?");
    refuse_set("model.nam", "1", "unknown key 'nam' in 'model'; did you mean 'name'?");
    refuse_set("rv", "1", "unknown key 'rv'; did you mean 'population.<class>.rv'? The keys here are name, seed, ");
    refuse_set("steps.x", "1", "unknown key 'steps.x'; ");
    refuse_set("population.xo.rv", "1", "there is no class 'xo' in the population; the classes are fo, zo");
    refuse_set("stop", "1", "'stop' is a section; name a key in it, such as 'stop.loss'");
    refuse_set("", "1", "unknown key ''");
    assert_int_equal(hdo_config_get(&conf, "nothing", tiny, sizeof tiny, &err), HDO_E_CONFIG);
    assert_string_equal(tiny, "");
    assert_int_equal(hdo_config_get(&conf, "model.name", tiny, sizeof tiny, NULL), HDO_E_FAILED);
    assert_string_equal(tiny, "log");
}

static void test_config_defaults_are_small_and_hybrid(void **state) {
    (void)state;
    fresh();
    expect_get("population", "4fo+28zo");
    expect_get("model", "logistic");
    expect_get("data", "synthetic");
    expect_get("population.fo.estimator", "fo");
    expect_get("population.zo.estimator", "forward-law");
    hdo_class_config k;
    hdo__class_default(&k, "fo-big");
    assert_string_equal(k.estimator, "fo");
    hdo__class_default(&k, "phones");
    assert_string_equal(k.estimator, "forward-law");
    assert_true(k.rv == 128 && k.batch == 2 && k.lr.arg == 0.01 && k.nu.arg == 1e-4);
}

static void test_config_population_text(void **state) {
    (void)state;
    static const struct {
        const char *text, *msg;
    } bad[] = {{"", "population is '', but must look like 24fo+256zo"},
               {"fo", "population is 'fo', but must look like"},
               {"24", "population is '24', but must look like"},
               {"24fo+", "population is '24fo+', but must look like"},
               {"+24fo", "population is '+24fo', but must look like"},
               {"-1fo", "population is '-1fo', but must look like"},
               {"1fo 2zo", "population is '1fo 2zo', but needs a '+'"},
               {"1fo+2fo", "population '1fo+2fo' names the class 'fo' twice"},
               {"1fo+2xo", "there is no class 'xo' in the population; the classes are fo, zo"},
               {"1FO", "'FO' cannot name a class"},
               {"0fo+0zo", "population '0fo+0zo' has 0 nodes in all, but must have 1 to 16777215"},
               {"16000001fo", "population.fo.count is 16000001, but must be at most 16000000 nodes"},
               {"99999999999999999999999999999999999999zo", "population.zo.count is 9999"},
               {"16000000fo+777216zo", "population '16000000fo+777216zo' has 16777216 nodes in all"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static hdo_config before;
        fresh();
        before = conf;
        assert_int_equal(hdo_config_population(&conf, bad[i].text, &err), HDO_E_CONFIG);
        expect_start(err.msg, bad[i].msg);
        assert_memory_equal(&before, &conf, sizeof conf);
    }
    fresh();
    accept_set("population.zo.rv", "9");
    assert_int_equal(hdo_config_population(&conf, " 24 fo + 256zo\n", &err), HDO_OK);
    expect_get("population", "24fo+256zo");
    assert_int_equal(hdo_config_population(&conf, "0fo+5zo", &err), HDO_OK);
    expect_get("population", "5zo");
    expect_get("population.zo.rv", "9"); /* the rest of a class, and its origins, move along */
    int rv = hdo__option_index(&hdo__class_section, "rv");
    assert_int_equal(conf.origin[HDO_SECTIONS_MAX][rv].source, HDO_FROM_FLAG);
    assert_int_equal(conf.origin[HDO_SECTIONS_MAX + 1][rv].source, HDO_FROM_DEFAULT);
    refuse_set("population.fo.count", "16777200", "population.fo.count is 16777200, but must be at most 16000000");
    fresh();
    accept_set("population.fo.count", "16000000");
    assert_int_equal(hdo_config_set_from(&conf, "population.zo.count", "777216", HDO_FROM_FLAG, &err), HDO_E_CONFIG);
    assert_string_equal(err.msg, "population has 16777216 nodes in all, but must have at most 16777215");
    expect_get("population.zo.count", "28");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_every_option_described),
        cmocka_unit_test(test_config_every_bound_holds),
        cmocka_unit_test(test_config_every_option_refuses_nonsense),
        cmocka_unit_test(test_config_every_text_fits_or_is_refused),
        cmocka_unit_test(test_config_every_word_reads),
        cmocka_unit_test(test_config_numbers_read_exactly),
        cmocka_unit_test(test_config_reals_round_trip),
        cmocka_unit_test(test_config_suggest_nearest),
        cmocka_unit_test(test_config_set_finds_keys),
        cmocka_unit_test(test_config_defaults_are_small_and_hybrid),
        cmocka_unit_test(test_config_population_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
