/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of the commands: well-formed, and every option in them is read by the parser, shown by --help, on the man
 * page and in the completion scripts. A new command or option is held to this without a line here.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* What `print` writes to stdout; the caller frees it. */
/* What a command line sets lives as long as its process (cli/values.c): no leak in the program, many in this one. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0";
}

static char *captured(void (*print)(const void *arg), const void *arg) {
    FILE *f = tmpfile();
    assert_non_null(f);
    fflush(stdout);
    int old = dup(STDOUT_FILENO);
    dup2(fileno(f), STDOUT_FILENO);
    print(arg);
    fflush(stdout);
    dup2(old, STDOUT_FILENO);
    close(old);
    fseek(f, 0, SEEK_END);
    long len = ftell(f);
    rewind(f);
    char *text = calloc((size_t)len + 1, 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)len, f), (size_t)len);
    fclose(f);
    return text;
}

static void print_help(const void *c) {
    cli_help(c);
}
static void print_man(const void *c) {
    cli_man(c);
}
static void print_completion(const void *shell) {
    char word[8], name[] = "completion";
    snprintf(word, sizeof word, "%s", (const char *)shell);
    char *argv[] = {name, word, NULL};
    assert_int_equal(cmd_completion.run(2, argv), 0);
}

/* stderr goes nowhere until loud(old). */
static int hushed(void) {
    fflush(stderr);
    int old = dup(STDERR_FILENO);
    assert_non_null(freopen("/dev/null", "w", stderr));
    return old;
}
static void loud(int old) {
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    close(old);
}

/* cli_parse with one or two words, errors thrown away. */
static int parse(const cli_command *c, const char *first, const char *second, void *options) {
    char name[] = "x", one[256], two[256];
    char *argv[] = {name, one, two, NULL};
    snprintf(one, sizeof one, "%s", first);
    snprintf(two, sizeof two, "%s", second != NULL ? second : "");
    int old = hushed(), code = cli_parse(c, second != NULL ? 3 : 2, argv, options);
    loud(old);
    return code;
}

static bool is_number(const cli_option *o) {
    return o->kind == CLI_INT || o->kind == CLI_INT32 || o->kind == CLI_REAL || o->kind == CLI_DURATION;
}

/* A value that the option must take. */
static void good_value(const cli_option *o, char *buf, size_t cap) {
    if (is_number(o)) {
        snprintf(buf, cap, "%.17g", o->lo > 0.0 && o->lo < 1e-300 ? 1.0 : o->lo);
    } else if (o->kind == CLI_CHOICE) {
        snprintf(buf, cap, "%.*s", (int)strcspn(o->words, "|"), o->words);
    } else {
        snprintf(buf, cap, "%s", o->kind == CLI_SEEDS ? "0-1" : "a");
    }
}

typedef void each_option(const cli_command *c, const cli_option *o);
static void for_all(each_option *check) {
    int seen = 0;
    for (int i = 0; cli_commands[i] != NULL; i++) {
        for (int k = 0; cli_option_at(cli_commands[i], k) != NULL; k++) {
            const cli_option *o = cli_option_at(cli_commands[i], k);
            if (o->kind != CLI_HEADING) check(cli_commands[i], o), seen++;
        }
    }
    assert_true(seen > 150);
}

static void commands_are_whole(void **state) {
    (void)state;
    for (int i = 0; cli_commands[i] != NULL; i++) {
        const cli_command *c = cli_commands[i];
        assert_ptr_equal(cli_find(c->name), c); /* unique */
        assert_non_null(c->run);
        assert_true(strlen(c->summary) > 5 && strlen(c->about) > 5);
        assert_true(c->usage != NULL || c->verbs != NULL);
        assert_true(c->size >= sizeof(cli_common));
        assert_true(c->least == 0 || c->missing != NULL);
        assert_true(c->most < 0 || c->most >= c->least);
        int k = 0;
        while (cli_option_at(c, k) != NULL) k++;
        assert_true(k >= 1 && k <= 64); /* given has a bit for each */
        assert_string_equal(cli_option_at(c, k - 1)->name, "help");
    }
    assert_null(cli_find("nosuch"));
}

static void check_row(const cli_command *c, const cli_option *o) {
    int same = 0, letters = 0;
    for (int k = 0; cli_option_at(c, k) != NULL; k++) {
        const cli_option *other = cli_option_at(c, k);
        same += strcmp(o->name, other->name) == 0;
        letters += o->letter != 0 && o->letter == other->letter;
    }
    if (same != 1 || letters > 1) fail_msg("hdo %s: --%s or its letter is there twice", c->name, o->name);
    if (o->help == NULL || strlen(o->help) < 4) fail_msg("hdo %s: --%s has no help", c->name, o->name);
    assert_true(strspn(o->name, "abcdefghijklmnopqrstuvwxyzL0123456789-") == strlen(o->name));
    bool takes = o->kind != CLI_FLAG && (o->kind != CLI_KEY || o->arg != NULL);
    if (takes != (o->arg != NULL)) fail_msg("hdo %s: --%s and its argument do not fit", c->name, o->name);
    if (is_number(o) && !(o->lo < o->hi)) fail_msg("hdo %s: --%s has no bounds", c->name, o->name);
    if (o->kind == CLI_INT32) assert_true(o->lo >= INT32_MIN && o->hi <= INT32_MAX);
    assert_true((o->kind == CLI_KEY) == (o->key != NULL));
    assert_true(o->kind != CLI_CHOICE || o->words != NULL);
    assert_true(o->target < c->size);
}

static void rows_are_well_formed(void **state) {
    (void)state;
    for_all(check_row);
}

/* Taken as --name value, --name=value and -n value; refused without a value, with one too many, out of bounds. */
static void check_parsed(const cli_command *c, const cli_option *o) {
    char flag[80], both[200], value[64], letter[3] = {'-', o->letter, '\0'};
    if (strcmp(o->name, "help") == 0) return;
    cli_command any = *c; /* words are another matter */
    any.least = 0;
    void *options = calloc(1, c->size);
    assert_non_null(options);
    good_value(o, value, sizeof value);
    snprintf(flag, sizeof flag, "--%s", o->name);
    snprintf(both, sizeof both, "--%s=%s", o->name, value);
    if (parse(&any, flag, o->arg != NULL ? value : NULL, options) != -1)
        fail_msg("hdo %s does not take --%s %s", c->name, o->name, value);
    assert_true(((cli_common *)options)->given != 0);
    assert_int_equal(parse(&any, both, NULL, options), o->arg != NULL ? -1 : EXIT_USAGE);
    if (o->letter != 0) assert_int_equal(parse(&any, letter, o->arg != NULL ? value : NULL, options), -1);
    if (o->arg != NULL) assert_int_equal(parse(&any, flag, NULL, options), EXIT_USAGE);
    if (is_number(o) || o->kind == CLI_CHOICE || o->kind == CLI_SEEDS) {
        assert_int_equal(parse(&any, flag, "nosuch", options), EXIT_USAGE);
        assert_int_equal(parse(&any, flag, "", options), EXIT_USAGE);
    }
    if (is_number(o)) {
        snprintf(value, sizeof value, "%.17g", o->lo - 1.0);
        assert_int_equal(parse(&any, flag, value, options), EXIT_USAGE);
        assert_int_equal(parse(&any, flag, "nan", options), EXIT_USAGE);
        assert_int_equal(parse(&any, flag, "1e400", options), EXIT_USAGE);
    }
    free(options);
    cli_set_quiet(false);
    cli_colour("auto");
}

static void every_option_is_read(void **state) {
    (void)state;
    for_all(check_parsed);
}

static void check_shown(const cli_command *c, const cli_option *o) {
    char flags[128], escaped[256], *at = escaped;
    cli_flag_text(o, flags, sizeof flags);
    char *help = captured(print_help, c), *man = captured(print_man, c);
    if (strstr(help, flags) == NULL) fail_msg("hdo %s --help lacks %s", c->name, flags);
    for (const char *p = flags; *p != '\0'; p++) {
        if (*p == '-') *at++ = '\\';
        *at++ = *p;
    }
    *at = '\0';
    if (strstr(man, escaped) == NULL) fail_msg("the page of hdo %s lacks %s", c->name, flags);
    free(help);
    free(man);
}

static void help_and_page_show_every_option(void **state) {
    (void)state;
    for_all(check_shown);
}

/* The part of a script about one command: from its line to that of the next. */
static const char *section_of(const char *script, const char *name, size_t *len) {
    char line[64];
    snprintf(line, sizeof line, "\n    %s)\n", name);
    const char *at = strstr(script, line);
    if (at == NULL) return NULL;
    const char *end = strstr(at, "' ;;\n");
    *len = end != NULL ? (size_t)(end - at) : strlen(at);
    return at;
}

static bool section_has(const char *section, size_t len, const char *flag) {
    for (const char *p = section; (p = strstr(p, flag)) != NULL && p < section + len; p++) {
        if (strchr(" '[}|)\\", p[strlen(flag)]) != NULL) return true;
    }
    return false;
}

static char *script_of[3];
static void check_completed(const cli_command *c, const cli_option *o) {
    char flag[80], line[160];
    snprintf(flag, sizeof flag, "--%s", o->name);
    for (int s = 0; s < 2; s++) {
        size_t len = 0;
        const char *section = section_of(script_of[s], c->name, &len);
        if (section == NULL) fail_msg("completion lacks hdo %s", c->name);
        const char *flags =
            s == 0 ? strstr(section, "\n        flags='") : section; /* not where its value is completed */
        assert_true(flags != NULL && flags < section + len);
        len -= (size_t)(flags - section);
        section = flags;
        if (!section_has(section, len, flag)) fail_msg("completion lacks hdo %s %s", c->name, flag);
    }
    snprintf(line, sizeof line, "'__fish_seen_subcommand_from %s' -l %s ", c->name, o->name);
    if (strstr(script_of[2], line) == NULL) fail_msg("fish lacks hdo %s %s", c->name, flag);
}

static void completion_knows_every_option(void **state) {
    static const char *const shell[] = {"bash", "zsh", "fish"};
    (void)state;
    for (int s = 0; s < 3; s++) script_of[s] = captured(print_completion, shell[s]);
    for_all(check_completed);
    for (int s = 0; s < 3; s++) free(script_of[s]);
}

/* The forms a command line may have. */
static void words_and_forms(void **state) {
    (void)state;
    char w[][16] = {"sweep", "demo", "-qo", "dir", "a=1,2", "--set", "x=1", "--see=3-4", "--", "--b=2", "-"};
    char *argv[12] = {NULL};
    struct {
        cli_common common;
        char rest[1 << 20];
    } *o = calloc(1, sizeof *o);
    assert_non_null(o);
    assert_true(cmd_sweep.size <= sizeof *o);
    for (int i = 0; i < 11; i++) argv[i] = w[i];
    assert_int_equal(cli_parse(&cmd_sweep, 11, argv, o), -1);
    assert_int_equal(o->common.n_words, 4);
    assert_string_equal(o->common.word[0], "demo");
    assert_string_equal(o->common.word[1], "a=1,2");
    assert_string_equal(o->common.word[2], "--b=2");
    assert_string_equal(o->common.word[3], "-");
    assert_true(o->common.quiet);
    assert_int_equal(o->common.set.n, 1);
    assert_string_equal(o->common.set.item[0], "x=1");
    cli_set_quiet(false);
    free(o);
}

static void nearest_names(void **state) {
    (void)state;
    assert_string_equal(cli_nearest_command("rnu"), "run");
    assert_string_equal(cli_nearest_command("therory"), "theory");
    assert_null(cli_nearest_command("zzzzzz"));
    assert_string_equal(cli_nearest_preset("deom"), "demo");
    assert_null(cli_nearest_preset("nothing-like-it"));
}

static void durations(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double s;
    } good[] = {{"90", 90}, {"1.5", 1.5}, {"90s", 90}, {"15m", 900}, {"2h", 7200}};
    static const char *const bad[] = {"", "m", "2d", "2hh", "1e999", "nan", "-1", "2 h"};
    static const cli_option row = {"t", 0, CLI_DURATION, "S", "seconds", .target = 0, .lo = 0, .hi = HUGE_VAL};
    for (size_t k = 0; k < sizeof good / sizeof good[0]; k++) {
        double v = -1.0;
        assert_int_equal(cli_take(&cmd_run, &row, good[k].text, &v), 0);
        assert_true(v == good[k].s);
    }
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        double v = -1.0;
        int old = hushed(), code = cli_take(&cmd_run, &row, bad[k], &v);
        loud(old);
        assert_int_equal(code, EXIT_USAGE);
        assert_true(v == -1.0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_are_whole),
        cmocka_unit_test(rows_are_well_formed),
        cmocka_unit_test(every_option_is_read),
        cmocka_unit_test(help_and_page_show_every_option),
        cmocka_unit_test(completion_knows_every_option),
        cmocka_unit_test(words_and_forms),
        cmocka_unit_test(nearest_names),
        cmocka_unit_test(durations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
