/* SPDX-License-Identifier: Apache-2.0
 *
 * Hostile names through every writer, and back through the program the text is for: gnuplot, bash, Jansson. The names
 * here are used by tests/cli/names.bats too, as folders.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/file.h"
#include "base/json.h"
#include "base/quote.h"
#include "base/spawn.h"
#include "folder_help.h"

static const char *const hostile[] = {"plain",
                                      "two words",
                                      "",
                                      "a\nsystem 'touch pwned'\n",
                                      "a\r\nb",
                                      "x'; system 'touch pwned'; '",
                                      "\"; !touch pwned",
                                      "`touch pwned`",
                                      "$(touch pwned)",
                                      "${HOME}",
                                      "back\\slash\\n",
                                      "a;b",
                                      "a&b|c>d<e",
                                      "<script>alert(1)</script>",
                                      "</title><b>",
                                      "-rf",
                                      "--help",
                                      "|touch pwned",
                                      "< touch pwned",
                                      "#comment",
                                      "50%s%n",
                                      "@macro",
                                      "{/Bold x}_y^z",
                                      "tab\there",
                                      "bell\a escape\033[31m",
                                      "\x7f",
                                      "caf\xc3\xa9",
                                      "\xff\xfe",
                                      "\xc3",
                                      "\xed\xa0\x80",
                                      "\xc2\x9b"
                                      "31m",
                                      "\xe2\x80\xae"
                                      "gnp",
                                      "~",
                                      "*",
                                      "!history",
                                      "=1+1",
                                      "1,2\"3\"",
                                      "'",
                                      "''",
                                      "\\"};
enum { N = sizeof hostile / sizeof hostile[0] };

typedef void (*writer)(FILE *f, const char *s);

static char *written(writer w, const char *s) {
    char *p = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&p, &n);
    w(f, s);
    fclose(f);
    return p;
}

/* All characters are UTF-8 and none is a control character. */
static bool harmless(const char *s, const char *but) {
    uint32_t code = 0;
    for (size_t left = strlen(s), n; left > 0; s += n, left -= n) {
        n = hdo__utf8_next(s, left, &code);
        if (n == 0) return false;
        if ((code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x202e) && strchr(but, (int)code) == NULL)
            return false;
    }
    return true;
}

static void test_quote_plain(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) {
        char *p = written(hdo__quote_plain, hostile[i]);
        assert_true(harmless(p, ""));
        free(p);
    }
    char *p = written(hdo__quote_plain, "a\nb\xff"
                                        "c\xc3\xa9");
    assert_string_equal(p, "a\xef\xbf\xbd"
                           "b\xef\xbf\xbd"
                           "c\xc3\xa9");
    free(p);
}

static void test_quote_html(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) {
        char *p = written(hdo__quote_html, hostile[i]);
        assert_true(harmless(p, "\n\t"));
        assert_null(strpbrk(p, "<>\"'"));
        free(p);
    }
    char *p = written(hdo__quote_html, "<a href=\"x\">&'");
    assert_string_equal(p, "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    free(p);
}

/* Reads one field of RFC 4180. */
static void csv_field(const char *s, char *out) {
    bool quoted = *s == '"';
    if (quoted) s++;
    while (*s != '\0' && !(quoted && s[0] == '"' && s[1] != '"')) {
        if (quoted && *s == '"') s++;
        *out++ = *s++;
    }
    *out = '\0';
    assert_string_equal(s, quoted ? "\"" : "");
}

static void test_quote_csv(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) {
        char *p = written(hdo__quote_csv, hostile[i]), *shown = written(hdo__quote_plain, hostile[i]), back[256];
        assert_true(harmless(p, ""));
        if (p[0] != '"') assert_null(strpbrk(p, ",\"\n"));
        csv_field(p, back);
        assert_string_equal(back, shown);
        free(p);
        free(shown);
    }
}

static void test_quote_json(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) {
        hdo_json j;
        hdo__json_init(&j, false);
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, hostile[i], hostile[i]);
        hdo__json_end(&j, '}');
        assert_true(harmless(j.text, "") || strstr(hostile[i], "\xe2\x80\xae") != NULL);
        json_t *o = json_loads(j.text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(o);
        const char *key = json_object_iter_key(json_object_iter(o));
        assert_string_equal(json_string_value(json_object_get(o, key)), key);
        if (harmless(hostile[i], "\n\r\t\a\033\x7f\x9b")) assert_string_equal(key, hostile[i]);
        json_decref(o);
        hdo__json_clear(&j);
    }
}

static void run_gnuplot(const char *script, char *out, size_t cap) {
    char path[300];
    snprintf(path, sizeof path, "%s/q.gp", folder);
    assert_int_equal(hdo__file_write(path, script, strlen(script), NULL), HDO_OK);
    const char *const argv[] = {"gnuplot", "./q.gp", NULL};
    assert_int_equal(hdo__spawn(&(hdo_spawn){.argv = argv, .dir = folder, .out = out, .cap = cap}), 0);
}

static void no_trap_sprang(void) {
    char path[300];
    snprintf(path, sizeof path, "%s/pwned", folder);
    assert_false(hdo__path_exists(path));
}

/* What gnuplot takes the string for is what was written. */
static void test_quote_gnuplot(void **state) {
    (void)state;
    char out[1024], want[1024];
    for (int i = 0; i < N; i++) {
        char *p = written(hdo__quote_gnuplot, hostile[i]), *shown = written(hdo__quote_plain, hostile[i]), script[2048];
        assert_null(strpbrk(p, "\n`'$;"));
        snprintf(script, sizeof script, "set print '-'\nprint %s\n", p);
        run_gnuplot(script, out, sizeof out);
        snprintf(want, sizeof want, "%s\n", shown);
        assert_string_equal(out, want);
        free(p);
        free(shown);
    }
    no_trap_sprang();
}

static void test_quote_gnuplot_file(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) {
        if (strchr(hostile[i], '/') != NULL) continue;
        char *script = NULL, out[256], path[600], *text;
        size_t n = 0, len;
        FILE *f = open_memstream(&script, &n);
        fputs("set print ", f);
        hdo__quote_gnuplot_file(f, hostile[i], ".out");
        fputs("\nprint 'here'\n", f);
        fclose(f);
        run_gnuplot(script, out, sizeof out);
        snprintf(path, sizeof path, "%s/%s.out", folder, hostile[i]); /* byte for byte */
        assert_int_equal(hdo__file_read(path, 100, &text, &len, NULL), HDO_OK);
        assert_string_equal(text, "here\n");
        free(text);
        free(script);
    }
    no_trap_sprang();
}

static void test_quote_shell(void **state) {
    (void)state;
    for (int i = 0; i < N; i++) {
        char *p = written(hdo__quote_shell, hostile[i]), script[1024], out[1024];
        assert_true(harmless(p, ""));
        snprintf(script, sizeof script, "printf %%s. %s", p);
        const char *const argv[] = {"bash", "-c", script, NULL};
        assert_int_equal(hdo__spawn(&(hdo_spawn){.argv = argv, .dir = folder, .out = out, .cap = sizeof out}), 0);
        if (hostile[i][0] != '-') { /* printf would take it for an option only in front of the format */
            assert_int_equal(strlen(out), strlen(hostile[i]) + 1);
        }
        assert_memory_equal(out, hostile[i], strlen(hostile[i]));
        free(p);
    }
    no_trap_sprang();
}

static void test_spawn_codes(void **state) {
    (void)state;
    char out[8];
    const char *const none[] = {"no-such-program-of-ours", NULL}, *const three[] = {"sh", "-c", "exit 3", NULL};
    const char *const killed[] = {"sh", "-c", "kill -9 $$", NULL}, *const much[] = {"sh", "-c", "seq 100000", NULL};
    assert_int_equal(hdo__spawn(&(hdo_spawn){.argv = none}), 127);
    assert_int_equal(hdo__spawn(&(hdo_spawn){.argv = three}), 3);
    assert_int_equal(hdo__spawn(&(hdo_spawn){.argv = killed}), 128 + 9);
    assert_int_equal(hdo__spawn(&(hdo_spawn){.argv = three, .dir = "/no/such/folder"}), 126);
    assert_int_equal(hdo__spawn(&(hdo_spawn){.argv = much, .out = out, .cap = sizeof out}), 0); /* no deadlock */
    assert_string_equal(out, "1\n2\n3\n4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quote_plain),   cmocka_unit_test(test_quote_html),
        cmocka_unit_test(test_quote_csv),     cmocka_unit_test(test_quote_json),
        cmocka_unit_test(test_quote_gnuplot), cmocka_unit_test(test_quote_gnuplot_file),
        cmocka_unit_test(test_quote_shell),   cmocka_unit_test(test_spawn_codes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
