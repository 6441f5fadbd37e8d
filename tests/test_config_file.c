/* SPDX-License-Identifier: Apache-2.0 — the configuration engine: files in, dump, schema and help out. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/value.h"

/* ---- helpers ---- */

static hdo_config conf; /* 24 kB: not for the stack */
static hdo_error err;

static void fresh(void) {
    memset(&err, 0, sizeof err);
    hdo_config_default(&conf);
}

static hdo_status load(const char *text) {
    return hdo_config_load_bytes(&conf, "t.yaml", text, strlen(text), &err);
}

static void accept(const char *text) {
    fresh();
    if (load(text) != HDO_OK) fail_msg("%s", err.msg);
}

static void expect_start(const char *msg, const char *start) {
    if (strncmp(msg, start, strlen(start)) != 0) fail_msg("'%s' does not start with '%s'", msg, start);
}

static void expect_get(const char *key, const char *value) {
    char buf[HDO_VALUE_MAX];
    assert_int_equal(hdo_config_get(&conf, key, buf, sizeof buf, &err), HDO_OK);
    assert_string_equal(buf, value);
}

static void expect_where(const char *key, const char *where) {
    char buf[HDO_PATH_MAX + 32];
    hdo__config_where(&conf, key, buf, sizeof buf);
    assert_string_equal(buf, where);
}

/* A file in a folder of the test's own. */
static char folder[] = "/tmp/hdo_test_config_XXXXXX";
static char path[sizeof folder + 16];
static int make_folder(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/run.yaml", folder);
    return 0;
}
static int remove_folder(void **state) {
    (void)state;
    remove(path);
    return rmdir(folder);
}
static void write_file(const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* ---- reading ---- */

static void test_config_load_reads_the_specified_form(void **state) {
    (void)state;
    accept("model: logistic\n"
           "data: {name: mnist, split: dirichlet(0.5), scaling: unit}\n"
           "steps: 500\n"
           "population:\n"
           "  fo: {count: 24, estimator: fo, lr: 0.01, batch: 3}\n"
           "  zo: {count: 256, estimator: forward-law, rv: 128, lr: balanced, nu: eta/sqrt(d)}\n"
           "mixing: {kind: matching}\n"
           "eval: {every: 20}\n"
           "checkpoint: 50\n");
    expect_get("data.split", "dirichlet(0.5)");
    expect_get("population", "24fo+256zo");
    expect_get("population.fo.batch", "3");
    expect_get("population.zo.batch", "2"); /* a class of a file starts from its own default */
    expect_get("population.zo.lr", "balanced");
    expect_get("population.zo.nu", "eta/sqrt(d)");
    expect_get("checkpoint.every", "50");
    expect_get("warmup", "0");
    expect_where("population.zo.rv", "(t.yaml:6:48) ");
    expect_where("checkpoint.every", "(t.yaml:9:13) ");
    expect_where("warmup", "");
    expect_where("no.such.key", "");
}

static void test_config_load_reads_short_forms(void **state) {
    (void)state;
    accept("mixing: pairwise\ndata: mnist\npopulation: {fo: 24, phones: }\neval:\nmodel: {weights: ~, layers: null}\n");
    expect_get("mixing.kind", "pairwise");
    expect_get("data.name", "mnist");
    expect_get("population", "24fo+1phones");
    expect_get("eval.every", "10");
    expect_get("model.weights", "");
    accept("population: 3fo + 0cars + 5phones\n");
    expect_get("population", "3fo+5phones");
    expect_where("population.phones.count", "(t.yaml:1:13) ");
    accept("{\"name\": \"null\", \"steps\": 1e3, \"data\": {\"augment\": true}}"); /* JSON is YAML */
    expect_get("name", "null");
    expect_get("steps", "1000");
    expect_get("data.augment", "true");
    accept("\xef\xbb\xbfsteps: 7 # byte order mark, comment, CR LF\r\nname: \"\\u00e4\"\r\n...\r\n");
    expect_get("steps", "7");
    expect_get("name", "\xc3\xa4");
    expect_where("steps", "(t.yaml:1:8) ");
    accept("model:\n  layers: >\n    conv 8 3,\n    linear 10\n");
    expect_get("model.layers", "conv 8 3, linear 10\n");
    accept("{}");
}

static void test_config_load_layers_files(void **state) {
    (void)state;
    fresh();
    assert_int_equal(hdo_config_load_bytes(&conf, "user.yaml", "steps: 5\nseed: 6\n", 17, &err), HDO_OK);
    assert_int_equal(hdo_config_load_bytes(&conf, "run.yaml", "\nseed: 7\n", 9, &err), HDO_OK);
    assert_int_equal(hdo_config_set_from(&conf, "warmup", "3", HDO_FROM_FLAG, &err), HDO_OK);
    assert_int_equal(hdo_config_set_from(&conf, "threads", "2", HDO_FROM_ENV, &err), HDO_OK);
    expect_where("steps", "(user.yaml:1:8) ");
    expect_where("seed", "(run.yaml:2:7) ");
    expect_where("warmup", "");
    char *text = hdo_config_dump(&conf, true);
    assert_non_null(strstr(text, "steps: 5                                # user.yaml:1\n"));
    assert_non_null(strstr(text, "seed: 7                                 # run.yaml:2\n"));
    assert_non_null(strstr(text, "warmup: 3                               # --set\n"));
    assert_non_null(strstr(text, "threads: 2                              # environment\n"));
    assert_non_null(strstr(text, "kernels: auto                           # default\n"));
    free(text);
    for (int i = 0; i < 3; i++) assert_int_equal(hdo_config_load_bytes(&conf, "run.yaml", "seed: 8", 7, &err), HDO_OK);
    assert_int_equal(conf.n_files, 2);
    assert_int_equal(hdo_config_load_bytes(&conf, "c", "seed: 8", 7, &err), HDO_OK);
    assert_int_equal(hdo_config_load_bytes(&conf, "d", "seed: 8", 7, &err), HDO_OK);
    assert_int_equal(hdo_config_load_bytes(&conf, "e", "seed: 9", 7, &err), HDO_E_CONFIG);
    assert_string_equal(err.msg, "e is one file too many: at most 4 are read over each other");
    expect_get("seed", "8");
}

static void test_config_load_names_the_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *msg;
    } bad[] = {
        {"", "t.yaml:1:1: the file holds no settings"},
        {"# nothing\n", "t.yaml:1:1: the file holds no settings"},
        {"---\n", "t.yaml:1:1: the file holds no settings"},
        {"steps", "t.yaml:1:1: the file must hold keys with values, such as 'steps: 300'"},
        {"[steps]", "t.yaml:1:1: the file must hold keys"},
        {"steps: 1\nsetps: 2\n", "t.yaml:2:1: unknown key 'setps'; did you mean 'steps'?"},
        {"model:\n  dropuot: 1\n", "t.yaml:2:3: unknown key 'dropuot' in 'model'; did you mean 'dropout'?"},
        {"lr: 1\n", "t.yaml:1:1: unknown key 'lr'; did you mean 'population.<class>.lr'? The keys here are name, "},
        {"model: {steps: 1}\n", "t.yaml:1:9: unknown key 'steps' in 'model'; did you mean 'steps' at the top level?"},
        {"steps: 1\nseed: 2\nsteps: 3\n", "t.yaml:3:1: duplicate key 'steps', first on line 1"},
        {"model: x\nmodel: y\n", "t.yaml:2:1: duplicate key 'model', first on line 1"},
        {"model: {name: x, name: y}\n", "t.yaml:1:18: duplicate key 'name', first on line 1"},
        {"population: {fo: 1}\npopulation: {fo: 1}\n", "t.yaml:2:1: duplicate key 'population'"},
        {"population:\n  fo: 1\n  fo: 2\n", "t.yaml:3:3: duplicate class 'fo'"},
        {"steps: many\n", "t.yaml:1:8: steps is 'many', but must be a whole number, 0 to 4294967295 steps"},
        {"steps: [1]\n", "t.yaml:1:8: steps is a list, but must be one value: 0 to 4294967295"},
        {"steps: {a: 1}\n", "t.yaml:1:8: steps is a group of keys, but must be one value"},
        {"steps:\n", "t.yaml:1:7: steps is empty, but must be one value"},
        {"data: {augment: null}\n", "t.yaml:1:17: data.augment is empty, but must be one value: true | false"},
        {"population:\n  zo: {count: 3, rv: 0}\n", "t.yaml:2:22: population.zo.rv is 0, but must be at least 1"},
        {"population:\n  zo: {lr: .nan}\n", "t.yaml:2:12: population.zo.lr is '.nan', but must be one of number"},
        {"model: {name: {a: {b: {c: 1}}}}\n", "t.yaml:1:15: model.name is a group of keys"},
        {"model: [x]\n", "t.yaml:1:8: model must hold keys, such as 'name: ...'"},
        {"stop: 3\n", "t.yaml:1:7: stop must hold keys, such as 'loss: ...'"},
        {"model: &a x\n", "t.yaml:1:8: anchors ('&name') are not allowed"},
        {"model: *a\n", "t.yaml:1:8: aliases ('*name') are not allowed"},
        {"model: !!str x\n", "t.yaml:1:8: tags ('!name') are not allowed"},
        {"model: !x {}\n", "t.yaml:1:8: tags"},
        {"? [a]\n: b\n", "t.yaml:1:3: a key must be a word"},
        {"\"a\\0b\": 1\n", "t.yaml:1:1: the key contains a NUL character"},
        {"name: \"a\\0b\"\n", "t.yaml:1:7: name contains a NUL character"},
        {"name: \"\\e\"\n", "t.yaml:1:7: name contains the control character U+001B"},
        {"steps: 1\n---\nseed: 1\n", "t.yaml:2:1: a second document starts here"},
        {"{steps: 1", "t.yaml:2:1: this is not YAML: did not find expected ',' or '}' while parsing a flow mapping"},
        {"model:\n\tname: x\n", "t.yaml:2:1: the line is indented with a tab; YAML wants spaces"},
        {"population:\n", "t.yaml:1:12: population must hold classes, such as '{fo: 4, zo: 28}'"},
        {"population: {}\n", "t.yaml:1:13: population has no class"},
        {"population: [fo]\n", "t.yaml:1:13: population must hold classes"},
        {"population: 24\n", "t.yaml:1:13: population is '24', but must look like 24fo+256zo"},
        {"population: {Fo: 1}\n", "t.yaml:1:14: 'Fo' cannot name a class: a letter a-z, then up to 30 of a-z"},
        {"population: {abcdefghijklmnopqrstuvwxyzabcdef: 1}\n", "t.yaml:1:14: 'abcdefghijklmnopqrstuvwxyzabcdef'"},
        {"population: {a: 16000000, b: 777216}\n", "t.yaml:1:13: population has 16777216 nodes in all"},
        {"population: {a: 1,b: 1,c: 1,d: 1,e: 1,f: 1,g: 1,h: 1,i: 1,j: 1,k: 1,l: 1,m: 1,n: 1,o: 1,p: 1,q: 1}\n",
         "t.yaml:1:94: population has more than 16 classes"},
        {"steps: 1\nname: \xff\n", "t.yaml:2:7: byte 0xff is not UTF-8"},
        {"\xff\xfes", "t.yaml:1:1: byte 0xff is not UTF-8"}, /* UTF-16 */
        {"name: \xc3\xa4\x01\n", "t.yaml:1:8: the control character U+0001 has no place in a text file"},
    };
    static hdo_config before;
    hdo_config_default(&before);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fresh();
        assert_int_equal(load(bad[i].text), HDO_E_CONFIG);
        assert_int_equal(err.code, HDO_E_CONFIG);
        expect_start(err.msg, bad[i].msg);
        assert_memory_equal(&before, &conf, sizeof conf);
        assert_int_equal(hdo_config_load_bytes(&conf, "x", bad[i].text, strlen(bad[i].text), NULL), HDO_E_CONFIG);
    }
    assert_int_equal(hdo_config_load_bytes(&conf, "t.yaml", "a\0b", 3, &err), HDO_E_CONFIG);
    expect_start(err.msg, "t.yaml:1:2: the control character U+0000");
}

static void test_config_load_survives_depth(void **state) {
    (void)state;
    static char deep[300000];
    memset(deep, '[', sizeof deep);
    fresh();
    assert_int_equal(hdo_config_load_bytes(&conf, "t.yaml", deep, sizeof deep, &err), HDO_E_CONFIG);
    for (size_t i = 0; i + 3 <= sizeof deep; i += 3) memcpy(deep + i, "{a:", 3);
    assert_int_equal(hdo_config_load_bytes(&conf, "t.yaml", deep, sizeof deep, &err), HDO_E_CONFIG);
}

static void test_config_load_reads_files(void **state) {
    (void)state;
    static char big[(1 << 20) + 1];
    char start[256];
    fresh();
    write_file("steps: 12\n", 10);
    assert_int_equal(hdo_config_load(&conf, path, &err), HDO_OK);
    expect_get("steps", "12");
    write_file("steps: x\n", 9);
    assert_int_equal(hdo_config_load(&conf, path, &err), HDO_E_CONFIG);
    snprintf(start, sizeof start, "%s:1:8: steps is 'x'", path);
    expect_start(err.msg, start);
    write_file("", 0);
    assert_int_equal(hdo_config_load(&conf, path, &err), HDO_E_CONFIG);
    memset(big, '\n', sizeof big);
    memcpy(big, "steps: 13", 9);
    write_file(big, sizeof big - 1);
    assert_int_equal(hdo_config_load(&conf, path, &err), HDO_OK);
    write_file(big, sizeof big);
    assert_int_equal(hdo_config_load(&conf, path, &err), HDO_E_CONFIG);
    snprintf(start, sizeof start, "%s is larger than 1 MiB", path);
    expect_start(err.msg, start);
    assert_int_equal(hdo_config_load(&conf, folder, &err), HDO_E_CONFIG);
    snprintf(start, sizeof start, "%s is a directory", folder);
    expect_start(err.msg, start);
    assert_int_equal(hdo_config_load(&conf, "/no/such/file.yaml", &err), HDO_E_CONFIG);
    assert_string_equal(err.msg, "cannot open the configuration /no/such/file.yaml: No such file or directory");
    write_file("steps: 14\n", 10);
    assert_non_null(freopen(path, "r", stdin));
    assert_int_equal(hdo_config_load(&conf, "-", &err), HDO_OK);
    expect_get("steps", "14");
    expect_where("steps", "(<stdin>:1:8) ");
}

/* ---- writing ---- */

static uint64_t rng = 0x9e3779b97f4a7c15u;
static uint64_t draw(uint64_t n) {
    rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
    return (rng >> 11) % n;
}

static double draw_real(double lo, double hi) {
    double u = (double)draw(UINT64_C(1) << 53) / 0x1p53;
    if (draw(4) == 0) return hi;
    double v = draw(2) == 0 ? lo + (hi - lo) * u : hi * u * 1e-7 * u;
    return v > lo && v <= hi ? v : hi;
}

static void draw_value(const hdo_option *o, void *dst) {
    static const char *const pieces[] = {"a",
                                         "no",
                                         "#",
                                         ": ",
                                         "\"",
                                         "\\",
                                         "'",
                                         "\n",
                                         "\t",
                                         " ",
                                         "{",
                                         "}",
                                         "[",
                                         ",",
                                         "&",
                                         "*",
                                         "!",
                                         "|",
                                         ">",
                                         "%",
                                         "@",
                                         "`",
                                         "~",
                                         "null",
                                         "1",
                                         "0x1",
                                         "1e5",
                                         ".5",
                                         "-",
                                         "\xc3\xa4",
                                         "\xe2\x82\xac",
                                         "\xf0\x9f\x98\x80",
                                         "---",
                                         "...",
                                         "? ",
                                         "<<",
                                         "="};
    hdo_choice *choice = dst;
    size_t words = 0, used = 0;
    switch (o->type) {
    case HDO_OPT_BOOL: *(bool *)dst = draw(2) == 1; return;
    case HDO_OPT_REAL: *(double *)dst = draw_real(o->lo, o->hi); return;
    case HDO_OPT_INT:
        if (o->hi >= 0x1p63)
            *(int64_t *)dst = (int64_t)(rng >> 1);
        else
            *(int64_t *)dst = (int64_t)o->lo + (int64_t)draw((uint64_t)(o->hi - o->lo) + 1);
        return;
    case HDO_OPT_TEXT:
        memset(dst, 0, o->cap);
        for (size_t n = draw(8); n > 0 && used + 8 < o->cap; n--, used = strlen(dst))
            snprintf((char *)dst + used, o->cap - used, "%s", pieces[draw(sizeof pieces / sizeof *pieces)]);
        return;
    case HDO_OPT_CHOICE: break;
    }
    while (o->words[words].name != NULL) words++;
    size_t pick = draw(words + (o->number ? 1 : 0));
    const hdo_word *w = pick < words ? &o->words[pick] : NULL;
    choice->id = w != NULL ? w->id : HDO_NUMBER;
    choice->arg = w == NULL ? draw_real(o->lo, o->hi) : w->whole ? 3 : w->takes_arg ? draw_real(w->lo, w->hi) : 0;
}

static void draw_config(hdo_config *c) {
    static const char *const names[] = {"fo", "zo", "no", "null", "y", "on", "a-b_c", "phones2", "true"};
    size_t first = draw(sizeof names / sizeof *names);
    hdo_config_default(c);
    memset(c->population, 0, sizeof c->population);
    c->n_classes = 1 + (int)draw(sizeof names / sizeof *names);
    for (int k = 0; k < c->n_classes; k++)
        hdo__class_default(&c->population[k], names[(first + (size_t)k) % (sizeof names / sizeof *names)]);
    for (int row = 0; row < HDO_SECTIONS_MAX + c->n_classes; row++) {
        if (row >= hdo__n_sections && row < HDO_SECTIONS_MAX) continue;
        for (hdo_slot s = {row, 0}; hdo__slot_option(s)->key != NULL; s.col++)
            draw_value(hdo__slot_option(s), hdo__slot_place(c, s));
        if (row >= HDO_SECTIONS_MAX) c->population[row - HDO_SECTIONS_MAX].count %= 1000000;
    }
}

static void test_config_dump_loads_back(void **state) {
    (void)state;
    static hdo_config drawn, c;
    const size_t values = offsetof(hdo_config, files);
    for (int i = 0; i < 500; i++) {
        draw_config(&drawn);
        assert_true(hdo__config_rest(&drawn, &c)); /* what has no effect is at its default */
        char *text = hdo_config_dump(&c, i % 2 == 1);
        assert_non_null(text);
        accept(text);
        assert_memory_equal(&c, &conf, values);
        free(text);
        text = hdo_config_dump(&drawn, false);
        accept(text);
        assert_memory_equal(&c, &conf, values);
        free(text);
    }
}

static void test_config_dump_comments_stay_comments(void **state) {
    (void)state;
    fresh();
    assert_int_equal(hdo_config_load_bytes(&conf, "evil\nsteps: 9\xff", "seed: 3", 7, &err), HDO_OK);
    char *text = hdo_config_dump(&conf, true);
    assert_non_null(strstr(text, "# evil?steps: 9?:1\n"));
    accept(text);
    expect_get("steps", "300");
    free(text);
}

/* ---- schema and help ---- */

static json_t *section_properties(json_t *schema, int row) {
    const char *name = row >= HDO_SECTIONS_MAX ? "class" : hdo__sections[row].name;
    json_t *section = row == 0 ? schema : json_object_get(json_object_get(schema, "$defs"), name);
    assert_true(json_is_false(json_object_get(section, "additionalProperties")));
    return json_object_get(section, "properties");
}

static void test_config_schema_has_every_key(void **state) {
    (void)state;
    char *text = hdo_config_schema();
    json_error_t at;
    json_t *schema = json_loads(text, JSON_REJECT_DUPLICATES, &at);
    if (schema == NULL) fail_msg("line %d: %s", at.line, at.text);
    for (int i = 0; i <= hdo__n_sections; i++) {
        hdo_slot s = {i < hdo__n_sections ? i : HDO_SECTIONS_MAX, 0};
        json_t *properties = section_properties(schema, s.row);
        for (; hdo__slot_option(s)->key != NULL; s.col++) {
            const hdo_option *o = hdo__slot_option(s);
            json_t *p = json_object_get(properties, o->key);
            assert_non_null(p);
            expect_start(json_string_value(json_object_get(p, "description")), o->help);
            assert_true(json_array_size(json_object_get(p, "examples")) > 0);
            if (o->type != HDO_OPT_INT && o->type != HDO_OPT_REAL) continue;
            json_t *lo = json_object_get(p, o->lo_open ? "exclusiveMinimum" : "minimum");
            assert_true(json_is_number(lo) && json_number_value(lo) == o->lo);
            assert_true(json_number_value(json_object_get(p, "maximum")) == o->hi);
        }
        if (i > 0 && i < hdo__n_sections)
            assert_non_null(json_object_get(json_object_get(schema, "properties"), hdo__sections[i].name));
    }
    json_t *example = json_array_get(json_object_get(schema, "examples"), 0);
    char *yaml = json_dumps(example, 0);
    accept(yaml);
    free(yaml);
    json_decref(schema);
    free(text);
}

static void test_config_help_is_a_table(void **state) {
    (void)state;
    char *all = hdo_config_help(NULL), *one = hdo_config_help("stop"), *top = hdo_config_help("");
    assert_non_null(strstr(all, "\nmomentum_kind    ema              ema | heavy-ball "));
    assert_non_null(strstr(all, "\npopulation.<class> - "));
    assert_non_null(strstr(one, "\ndiverged         relative(100)    number above 0"));
    assert_null(strstr(one, "momentum"));
    assert_non_null(strstr(top, "\nsteps            300 "));
    assert_null(hdo_config_help("nothing"));
    char *key = hdo_config_help("population.zo.rv");
    assert_non_null(strstr(key, "\nrv "));
    assert_null(strstr(key, "momentum"));
    free(key);
    for (char *line = strtok(all, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) <= 100);
        assert_true(line[strlen(line) - 1] != ' ');
    }
    free(all);
    free(one);
    free(top);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_load_reads_the_specified_form),
        cmocka_unit_test(test_config_load_reads_short_forms),
        cmocka_unit_test(test_config_load_layers_files),
        cmocka_unit_test(test_config_load_names_the_place),
        cmocka_unit_test(test_config_load_survives_depth),
        cmocka_unit_test(test_config_load_reads_files),
        cmocka_unit_test(test_config_dump_loads_back),
        cmocka_unit_test(test_config_dump_comments_stay_comments),
        cmocka_unit_test(test_config_schema_has_every_key),
        cmocka_unit_test(test_config_help_is_a_table),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
