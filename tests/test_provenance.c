/* SPDX-License-Identifier: Apache-2.0 — revisions of estimators and models: which stored runs they make stale. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/file.h"
#include "estimator/estimator.h"
#include "hdo/experimental/all.h"
#include "hdo/lab/paper.h"
#include "hdo/lab/verify.h"
#include "folder_help.h"

static bool known(const char *const *names, const char *name) {
    for (; *names != NULL; names++) {
        if (strcmp(*names, name) == 0) return true;
    }
    return false;
}

/* Every row is about something there is, numbers go up one by one, and what has no row has revision 1. */
static void test_revision_table(void **state) {
    (void)state;
    int n = 0;
    for (; hdo_revision_at(n) != NULL; n++) {
        const hdo_revision *r = hdo_revision_at(n);
        bool estimator = strcmp(r->kind, "estimator") == 0;
        assert_true(estimator ? hdo__estimator_find(r->name) != NULL : known(hdo_names(r->kind), r->name));
        assert_true(r->number >= 2 && r->number <= hdo_revision_of(r->kind, r->name) && strlen(r->what) > 20);
        assert_true(r->when == NULL || strchr(r->when, '=') != NULL);
    }
    assert_true(n > 0);
    assert_null(hdo_revision_at(n));
    assert_int_equal(hdo_revision_of("estimator", "fo"), 1);
    assert_int_equal(hdo_revision_of("estimator", "forward-law"), 2);
    assert_true(strlen(hdo_commit()) >= 7);
}

static void put(const char *dir, const char *name, const char *text) {
    char path[HDO_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(hdo__dir_create(dir, NULL), HDO_OK);
    assert_int_equal(hdo__file_write(path, text, strlen(text), NULL), HDO_OK);
}

static int changes(const char *dir, const char *config, const char *summary) {
    const hdo_revision *r[4] = {NULL};
    put(dir, "config.yaml", config);
    put(dir, "manifest.json", summary);
    put(dir, "summary.json", summary);
    int n = hdo_run_changes(dir, r, 4);
    for (int i = 0; i < n; i++) assert_non_null(r[i]);
    return n;
}

static void test_run_changes(void **state) {
    (void)state;
    char dir[160];
    snprintf(dir, sizeof dir, "%s/run", folder);
    static const char law[] = "population:\n  zo: {count: 2, estimator: forward-law}\n",
                      none[] =
                          "population:\n  fo: {count: 2, estimator: fo}\n  zo: {count: 0, estimator: forward-law}\n",
                      shared[] = "population:\n  zo: {count: 2, estimator: forward-law, streams: shared}\n",
                      text[] = "model: cnn2\npopulation:\n  fo: {count: 1, estimator: fo}\n",
                      authors[] =
                          "model: {name: cnn2, reading: authors}\npopulation:\n  fo: {count: 1, estimator: fo}\n";
    assert_int_equal(changes(dir, law, "{\"outcome\": \"diverged\"}"), 1);
    assert_int_equal(changes(dir, law, "{\"outcome\": \"completed\"}"), 0);
    assert_int_equal(
        changes(dir, law, "{\"outcome\": \"diverged\", \"revisions\": {\"estimator\": {\"forward-law\": 2}}}"), 0);
    assert_int_equal(changes(dir, none, "{\"outcome\": \"diverged\"}"), 0);
    assert_int_equal(changes(dir, shared, "{\"outcome\": \"completed\"}"), 1);
    assert_int_equal(changes(dir, text, "{\"outcome\": \"completed\"}"), 0);
    assert_int_equal(changes(dir, authors, "{\"outcome\": \"completed\"}"), 1);
    /* begun before the change and ended after it */
    assert_int_equal(changes(dir, law, "{\"outcome\": \"diverged\"}"), 1);
    put(dir, "summary.json", "{\"outcome\": \"diverged\", \"revisions\": {\"estimator\": {\"forward-law\": 2}}}");
    assert_int_equal(hdo_run_changes(dir, NULL, 0), 1);
    assert_int_equal(hdo_run_changes("/nonexistent", NULL, 0), 0);
}

/* A stored run as hdo paper leaves it, with what it says about itself. */
static void fake(const hdo_paper_case *k, int variant, int seed, const char *outcome, const char *more) {
    char dir[HDO_PATH_MAX], summary[512];
    hdo_config *c = malloc(sizeof *c);
    assert_true(hdo_paper_dir(k, variant, seed, dir, sizeof dir));
    assert_int_equal(hdo_paper_config(k, variant, seed, c, NULL), HDO_OK);
    char *yaml = hdo_config_dump(c, false);
    put(dir, "config.yaml", yaml);
    put(dir, "metrics.jsonl", "{\"step\": 0, \"val/loss_mean\": 1}\n{\"step\": 500, \"val/loss_mean\": 0.5}\n");
    snprintf(summary, sizeof summary, "{\"outcome\": \"%s\", \"seed\": %d%s}", outcome, seed, more);
    put(dir, "manifest.json", summary);
    put(dir, "summary.json", summary);
    free(yaml);
    free(c);
}

static char *report(const char *root) {
    char md[200], *text;
    size_t len;
    snprintf(md, sizeof md, "%s/results.md", root);
    assert_int_equal(hdo_paper_report(root, NULL, md, NULL, NULL), HDO_OK);
    assert_int_equal(hdo__file_read(md, 1 << 22, &text, &len, NULL), HDO_OK);
    return text;
}

static void test_report_marks_stale_rows(void **state) {
    (void)state;
    char root[160], dir[HDO_PATH_MAX];
    snprintf(root, sizeof root, "%s/paper", folder);
    hdo_paper_case k = {.x = hdo_paper_find("e5"), .reading = hdo_paper_reading_find("text"), .root = root};
    const char *now =
        ", \"version\": \"0.1.0\", \"commit\": \"abc\", \"revisions\": {\"estimator\": {\"forward-law\": 2}}";
    for (int seed = 0; seed < 2; seed++) {
        fake(&k, 0, seed, "completed", "");
        fake(&k, 1, seed, "diverged", now);
        fake(&k, 4, seed, "diverged", seed == 0 ? "" : now);
    }
    assert_int_equal(hdo_paper_tables(&k, NULL), HDO_OK);
    char *text = report(root);
    assert_non_null(strstr(text, "| unknown version |\n"));
    assert_non_null(strstr(text, "| lr 0.01 | 2 | 2 diverged |"));
    assert_non_null(strstr(text, "| 0.1.0 abc |\n"));
    assert_non_null(strstr(text, "| unknown version and others, **stale** |\n"));
    assert_non_null(strstr(text, "\n- stale: `lr 0.5`: estimator forward-law, revision 2: "));
    assert_null(strstr(text, "stale: `lr 0.01`"));
    assert_non_null(strstr(text, "| | | text (stale) |"));
    free(text);

    /* A stale run is made again, one that is not is kept. */
    hdo_config *c = malloc(sizeof *c);
    assert_int_equal(hdo_paper_config(&k, 4, 0, c, NULL), HDO_OK);
    assert_true(hdo_paper_dir(&k, 4, 0, dir, sizeof dir));
    assert_int_equal(hdo_run_stored(dir, c), HDO_STORED_OTHER);
    assert_int_equal(hdo_paper_config(&k, 1, 0, c, NULL), HDO_OK);
    assert_true(hdo_paper_dir(&k, 1, 0, dir, sizeof dir));
    assert_int_equal(hdo_run_stored(dir, c), HDO_STORED_DONE);

    /* Nor is a run current whose settings are not those of the experiment. */
    c->steps++;
    char *yaml = hdo_config_dump(c, false);
    put(dir, "config.yaml", yaml);
    text = report(root);
    assert_non_null(strstr(text, "\n- stale: `lr 0.01`: made with other settings than the experiment has now\n"));
    free(yaml);
    free(text);
    free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_revision_table),
        cmocka_unit_test(test_run_changes),
        cmocka_unit_test(test_report_marks_stale_rows),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
