/* SPDX-License-Identifier: Apache-2.0
 *
 * Brackets: every label against an independent checker, the length histogram, disjoint sets, uniform balanced strings,
 * and JSON lines.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_impl.h"

#define Z_MAX 4.0 /* fixed seeds; 6e-5 two-sided */

/* Independent of the generator: delete "()" until nothing changes; correct if nothing is left. */
static bool reduces_to_nothing(const char *text) {
    char s[HDO_BRACKETS_LONGEST + 1];
    snprintf(s, sizeof s, "%s", text);
    for (char *hit; (hit = strstr(s, "()")) != NULL;) memmove(hit, hit + 2, strlen(hit + 2) + 1);
    return s[0] == '\0';
}

/* The string of a sample; checks start, stop and padding. */
static int read_sample(const hdo_tokens *t, int64_t i, char out[HDO_BRACKETS_LONGEST + 1]) {
    const uint8_t *row = t->token + (size_t)i * (size_t)t->positions;
    assert_int_equal(row[0], HDO_TOK_START);
    int n = 0;
    while (row[n + 1] == HDO_TOK_OPEN || row[n + 1] == HDO_TOK_CLOSE) {
        out[n] = row[n + 1] == HDO_TOK_OPEN ? '(' : ')';
        n++;
    }
    out[n] = '\0';
    assert_int_equal(row[n + 1], HDO_TOK_STOP);
    for (int p = n + 2; p < t->positions; p++) assert_int_equal(row[p], HDO_TOK_PAD);
    return n;
}

static void test_brackets_labels_and_lengths(void **state) {
    (void)state;
    hdo_error e = {0};
    for (int val = 0; val < 2; val++) {
        hdo_tokens t;
        const int per = val ? 10 : 100;
        assert_int_equal(hdo__brackets_make(&t, &(hdo_brackets){1, 258, false}, val != 0, &e), HDO_OK);
        assert_int_equal(t.count, val ? 2560 : 25600);
        int seen[2][129] = {{0}}, unequal = 0, wrong = 0;
        for (int64_t i = 0; i < t.count; i++) {
            char s[HDO_BRACKETS_LONGEST + 1];
            int n = read_sample(&t, i, s), opens = 0;
            assert_true(n >= 2 && n <= 256 && n % 2 == 0);
            assert_int_equal(t.label[i], reduces_to_nothing(s));
            seen[t.label[i]][n / 2]++;
            for (int k = 0; k < n; k++) opens += s[k] == '(';
            if (t.label[i] == 0) {
                wrong++;
                unequal += opens != n - opens;
            }
        }
        for (int l = 1; l <= 128; l++) {
            assert_int_equal(seen[0][l], per);
            assert_int_equal(seen[1][l], per);
        }
        assert_true(unequal > wrong * 8 / 10); /* most incorrect strings have unequal counts */
        hdo__tokens_clear(&t);
    }
}

static int by_text(const void *a, const void *b) {
    return strcmp(a, b);
}

static void test_brackets_validation_is_disjoint(void **state) {
    (void)state;
    hdo_error e = {0};
    for (uint64_t seed = 0; seed < 3; seed++) {
        hdo_tokens t, v;
        assert_int_equal(hdo__brackets_make(&t, &(hdo_brackets){seed, 258, false}, false, &e), HDO_OK);
        assert_int_equal(hdo__brackets_make(&v, &(hdo_brackets){seed, 258, false}, true, &e), HDO_OK);
        char(*s)[HDO_BRACKETS_LONGEST + 1] = malloc((size_t)t.count * sizeof *s);
        for (int64_t i = 0; i < t.count; i++) read_sample(&t, i, s[i]);
        qsort(s, (size_t)t.count, sizeof *s, by_text);
        for (int64_t i = 0; i < v.count; i++) {
            char x[HDO_BRACKETS_LONGEST + 1];
            read_sample(&v, i, x);
            bool in_training = bsearch(x, s, (size_t)t.count, sizeof *s, by_text) != NULL;
            assert_int_equal(in_training, strcmp(x, "()") == 0); /* the one string of its kind */
        }
        free(s);
        hdo__tokens_clear(&t);
        hdo__tokens_clear(&v);
    }
}

static void test_brackets_same_seed_same_bits(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_tokens a, b, c;
    assert_int_equal(hdo__brackets_make(&a, &(hdo_brackets){5, 258, false}, true, &e), HDO_OK);
    assert_int_equal(hdo__brackets_make(&b, &(hdo_brackets){5, 258, false}, true, &e), HDO_OK);
    assert_int_equal(hdo__brackets_make(&c, &(hdo_brackets){6, 258, false}, true, &e), HDO_OK);
    assert_memory_equal(a.token, b.token, (size_t)a.count * 258);
    assert_true(memcmp(a.token, c.token, (size_t)a.count * 258) != 0);
    hdo__tokens_clear(&b);
    hdo__tokens_clear(&c);
    assert_int_equal(hdo__brackets_make(&b, &(hdo_brackets){5, 514, false}, true, &e),
                     HDO_OK); /* the authors' padding: same strings */
    for (int64_t i = 0; i < a.count; i++) assert_memory_equal(a.token + i * 258, b.token + i * 514, 258);
    hdo__tokens_clear(&a);
    hdo__tokens_clear(&b);
    assert_int_equal(hdo__brackets_make(&a, &(hdo_brackets){5, 10, false}, true, &e),
                     HDO_OK); /* short: lengths 2 .. 8 */
    assert_int_equal(a.count, 4 * 20);
    hdo__tokens_clear(&a);
    assert_int_equal(hdo__brackets_make(&a, &(hdo_brackets){5, 3, false}, true, &e), HDO_E_CONFIG);
}

/* All 42 balanced strings of length 10 equally often: chi-square with 41 degrees of freedom. */
static void test_brackets_balanced_is_uniform(void **state) {
    (void)state;
    enum { DRAWS = 42000 };
    static int count[1024];
    for (uint32_t k = 0; k < DRAWS; k++) {
        bool open[10];
        hdo__brackets_balanced(hdo__stream(3, HDO_RNG_TEST, 0, k, 0), 5, open);
        int code = 0, depth = 0;
        for (int i = 0; i < 10; i++) {
            code = code << 1 | open[i];
            depth += open[i] ? 1 : -1;
            assert_true(depth >= 0);
        }
        assert_int_equal(depth, 0);
        count[code]++;
    }
    int distinct = 0;
    double chi2 = 0;
    for (int i = 0; i < 1024; i++) {
        if (count[i] == 0) continue;
        distinct++;
        chi2 += (count[i] - 1000.0) * (count[i] - 1000.0) / 1000.0;
    }
    assert_int_equal(distinct, 42);
    assert_true(fabs(chi2 - 41) / sqrt(2 * 41.0) < Z_MAX);
}

/* ---- the authors' law: (A)B, the pairs of A uniform over what fits ---- */

/* P(greatest depth <= h) of n pairs, exactly: p[h][n] = (1/n) sum_a p[h-1][a] p[h][n-1-a]. */
static double mean_depth(int n_pairs) {
    enum { N = HDO_BRACKETS_LONGEST / 2 };
    static double p[N + 1][N + 1];
    if (p[0][0] < 1.0) { /* once */
        for (int h = 0; h <= N; h++) {
            p[h][0] = 1.0;
            for (int n = 1; n <= N && h > 0; n++)
                for (int a = 0; a < n; a++) p[h][n] += p[h - 1][a] * p[h][n - 1 - a] / n;
        }
    }
    double mean = 0.0;
    for (int h = 0; h < N; h++) mean += 1.0 - p[h][n_pairs];
    return mean;
}

static int depth_of(const char *s) {
    int depth = 0, most = 0;
    for (; *s != '\0'; s++) {
        depth += *s == '(' ? 1 : -1;
        most = depth > most ? depth : most;
    }
    return most;
}

/* Greatest depths of long strings, against their exact mean; labels are the other way round; sets stay disjoint. */
static void test_brackets_authors_law(void **state) {
    (void)state;
    hdo_error e = {0};
    double exact = 0.0, sum[2] = {0}, sq[2] = {0}, n[2] = {0};
    for (int authors = 0; authors < 2; authors++) {
        hdo_tokens t;
        assert_int_equal(hdo__brackets_make(&t, &(hdo_brackets){2, 258, authors == 1}, false, &e), HDO_OK);
        for (int64_t i = 0; i < t.count; i++) {
            char s[HDO_BRACKETS_LONGEST + 1];
            int len = read_sample(&t, i, s);
            bool correct = reduces_to_nothing(s);
            assert_int_equal(t.label[i], correct != (authors == 1));
            if (!correct || len < 194) continue;
            double d = depth_of(s) - (authors == 1 ? mean_depth(len / 2) : 0.0);
            exact += authors == 1 ? mean_depth(len / 2) : 0.0;
            sum[authors] += d;
            sq[authors] += d * d;
            n[authors] += 1.0;
        }
        hdo__tokens_clear(&t);
    }
    double z = sum[1] / sqrt(sq[1]), uniform = sum[0] / n[0];
    print_message("greatest depth of lengths 194 .. 256: %.2f exactly, off by z %+.2f; uniform strings %.2f\n",
                  exact / n[1], z, uniform);
    assert_true(fabs(exact / n[1] - 8.76) < 0.01); /* the authors' file, some hundred strings: 8.7 */
    assert_true(fabs(z) < Z_MAX);
    assert_true(uniform > 16.5 && uniform < 18.0);
}

/* Length 6, where the probabilities are known: 1/3 for (())(), 1/6 for the four others. */
static void test_brackets_authors_short(void **state) {
    (void)state;
    enum { DRAWS = 12000 };
    static int count[64];
    for (uint32_t k = 0; k < DRAWS; k++) {
        bool open[6];
        hdo__brackets_recursive(hdo__stream(3, HDO_RNG_TEST, 0, k, 0), 3, open);
        int code = 0;
        for (int i = 0; i < 6; i++) code = code << 1 | open[i];
        count[code]++;
    }
    static const int codes[5] = {0x32, 0x2a, 0x2c, 0x34, 0x38}; /* (())() ()()() ()(()) (()()) ((())) */
    double chi2 = 0.0;
    int all = 0;
    for (int i = 0; i < 5; i++) {
        double want = DRAWS / (i == 0 ? 3.0 : 6.0);
        chi2 += (count[codes[i]] - want) * (count[codes[i]] - want) / want;
        all += count[codes[i]];
    }
    assert_int_equal(all, DRAWS);
    assert_true(fabs(chi2 - 4) / sqrt(2 * 4.0) < Z_MAX);
}

/* The setting reaches the data, changes its fingerprint, and is refused where it would do nothing. */
static void test_brackets_law_setting(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_data_config c = {.name = "brackets", .positions = 20, .data_seed = 1, .law = {HDO_LAW_UNIFORM, 0}};
    hdo_dataset *t[2], *v[2];
    for (int i = 0; i < 2; i++) {
        c.law.id = i == 0 ? HDO_LAW_UNIFORM : HDO_LAW_AUTHORS;
        assert_int_equal(hdo__data_open(&c, &t[i], &v[i], &e), HDO_OK);
        assert_int_equal(t[i]->ops->label(t[i], 1), i == 0 ? 1 : 0);
    }
    assert_string_not_equal(t[0]->sha256, t[1]->sha256);
    for (int i = 0; i < 2; i++) {
        hdo__dataset_destroy(t[i]);
        hdo__dataset_destroy(v[i]);
    }
    strcpy(c.path, "a.jsonl");
    strcpy(c.path_val, "b.jsonl");
    assert_int_equal(hdo__data_open(&c, &t[0], &v[0], &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "data.law is 'authors', but the strings of data.path"));
    strcpy(c.name, "synthetic");
    assert_int_equal(hdo__data_open(&c, &t[0], &v[0], &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "data.law is 'authors', a law of brackets, but data.name is 'synthetic'"));
}

static void test_brackets_jsonl(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_tokens t;
    const char *good =
        "{\"input\": \"( ( ) )\", \"label\": \"correct\"}\n\n{\"label\": \"incorrect\", \"id\": 3, \"input\": "
        "\"))\"}\r\n"
        "{\"input\": \"(x\\u00e9\", \"label\": 0}";
    assert_int_equal(hdo__brackets_parse(&t, good, strlen(good), 8, "f", &e), HDO_OK);
    assert_int_equal(t.count, 3);
    const uint8_t want[3][8] = {{0, 4, 4, 5, 5, 1, 2, 2}, {0, 5, 5, 1, 2, 2, 2, 2}, {0, 4, 3, 3, 1, 2, 2, 2}};
    assert_memory_equal(t.token, want, sizeof want);
    assert_int_equal(t.label[0], 1);
    assert_int_equal(t.label[1], 0);
    hdo__tokens_clear(&t);
    static const char *const bad[] = {"",
                                      "\n \n",
                                      "x",
                                      "[]",
                                      "{\"input\": \"()\"}",
                                      "{\"input\": 3, \"label\": \"correct\"}",
                                      "{\"input\": \"()\", \"label\": \"maybe\"}",
                                      "{\"input\": \"()\", \"label\": 2}",
                                      "{\"input\": \"((((((()))))))\", \"label\": \"correct\"}",
                                      NULL};
    for (int i = 0; bad[i] != NULL; i++) {
        assert_int_equal(hdo__brackets_parse(&t, bad[i], strlen(bad[i]), 8, "f", &e), HDO_E_DATA);
        assert_null(t.token);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brackets_labels_and_lengths),  cmocka_unit_test(test_brackets_validation_is_disjoint),
        cmocka_unit_test(test_brackets_same_seed_same_bits), cmocka_unit_test(test_brackets_balanced_is_uniform),
        cmocka_unit_test(test_brackets_authors_law),         cmocka_unit_test(test_brackets_authors_short),
        cmocka_unit_test(test_brackets_law_setting),         cmocka_unit_test(test_brackets_jsonl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
