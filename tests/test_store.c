/* SPDX-License-Identifier: Apache-2.0 — what lies in a run folder: checkpoint files, their state, rows, the lock. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/linelog.h"
#include "folder_help.h"
#include "hdo/experimental/all.h"
#include "record/ckfile.h"
#include "record/ckstate.h"
#include "record/lock.h"
#include "run/run_internal.h"

static hdo_run *tiny(const char *dir) {
    static const char *const sets[][2] = {{"model", "quadratic"}, {"data.name", "none"},     {"model.dim", "3"},
                                          {"steps", "4"},         {"checkpoint.every", "1"}, {"checkpoint.keep", "9"}};
    hdo_error e = {0};
    hdo_config *c = malloc(sizeof *c);
    hdo_run *r = NULL;
    hdo_config_default(c);
    assert_int_equal(hdo_config_population(c, "1fo+1zo", &e), HDO_OK);
    for (size_t k = 0; k < sizeof sets / sizeof sets[0]; k++) {
        if (hdo_config_set_from(c, sets[k][0], sets[k][1], HDO_FROM_FLAG, &e) != HDO_OK) fail_msg("%s", e.msg);
    }
    if (hdo_run_create(&r, c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    if (dir != NULL && hdo_run_attach_dir(r, dir, false, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    if (hdo_run_advance(r, 4, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    free(c);
    return r;
}

static void test_state_missing_keys_are_errors_and_null_is_nan(void **state) {
    (void)state;
    static const char *const keys[] = {"step",         "n",     "d",  "run_id",   "train_sha256", "rows", "wall_s",
                                       "interactions", "bytes", "mg", "backward", "jvp",          "lr",   "noise",
                                       "train_loss"};
    hdo_run *r = tiny(NULL);
    hdo_state_head h, got;
    hdo_error e = {0};
    hdo__state_head_of(&r->record, &h);
    r->progress.mg = (double)NAN;
    char *text = hdo__state_text(&r->record, &h);
    r->progress.mg = 0.0;
    assert_int_equal(hdo__state_load(&r->record, text, "x", &e), HDO_OK);
    assert_true(isnan(r->progress.mg));
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        char *bad = strdup(text), quoted[32];
        snprintf(quoted, sizeof quoted, "\"%s\"", keys[k]);
        char *at = strstr(bad, quoted);
        assert_non_null(at);
        at[1] = '_'; /* another name */
        bool head = hdo__state_read_head(bad, "x", &got, &e) == HDO_OK,
             rest = hdo__state_load(&r->record, bad, "x", &e) == HDO_OK;
        if (head && rest) fail_msg("'%s' was not missed", keys[k]);
        assert_non_null(strstr(e.msg, "is missing from its state"));
        free(bad);
    }
    r->progress.counts.interactions = -1;
    h.step = -1;
    char *below = hdo__state_text(&r->record, &h);
    assert_int_equal(hdo__state_read_head(below, "x", &got, &e), HDO_E_DATA);
    assert_int_equal(hdo__state_load(&r->record, below, "x", &e), HDO_E_DATA);
    free(below);
    free(text);
    hdo_run_destroy(r);
}

/* A file of the last of the most classes there can be counts as well as that of the first. */
static void test_inputs_of_every_class_count(void **state) {
    (void)state;
    hdo_run *r = tiny(NULL);
    char path[64], first[65], same[65];
    snprintf(path, sizeof path, "%s/rates", folder);
    assert_int_equal(hdo__file_write(path, "0 1\n", 4, NULL), HDO_OK);
    hdo__inputs_sha256(r->record.config, r->record.inputs_sha256);
    assert_string_equal(r->record.inputs_sha256, ""); /* none is named */
    for (int k = 0; k < HDO_CLASSES_MAX; k += HDO_CLASSES_MAX - 1) {
        r->config.n_classes = HDO_CLASSES_MAX;
        snprintf(r->config.population[k].schedule_file, sizeof r->config.population[k].schedule_file, "%s", path);
        hdo__inputs_sha256(r->record.config, r->record.inputs_sha256);
        memcpy(first, r->record.inputs_sha256, sizeof first);
        assert_int_equal(strlen(first), 64);
        assert_int_equal(hdo__file_write(path, k == 0 ? "0 2\n" : "0 3\n", 4, NULL), HDO_OK);
        hdo__inputs_sha256(r->record.config, r->record.inputs_sha256);
        assert_string_not_equal(r->record.inputs_sha256, first);
        memcpy(same, r->record.inputs_sha256, sizeof same);
        r->config.n_classes = HDO_CLASSES_MAX - 1; /* behind the last class nothing is read */
        hdo__inputs_sha256(r->record.config, r->record.inputs_sha256);
        if (k == 0) assert_string_equal(r->record.inputs_sha256, same);
        if (k > 0) assert_string_not_equal(r->record.inputs_sha256, same);
    }
    r->config.n_classes = 2;
    hdo_run_destroy(r);
}

static void test_checkpoint_every_byte_counts(void **state) {
    (void)state;
    char dir[64], path[HDO_CKFILE_PATH_MAX], *data;
    size_t len;
    hdo_error e = {0};
    hdo_ckfile f;
    snprintf(dir, sizeof dir, "%s/run", folder);
    hdo_run_destroy(tiny(dir));
    hdo__ckfile_path(dir, 3, path);
    assert_int_equal(hdo__ckfile_open_whole(&f, path, &e), HDO_OK);
    hdo__ckfile_close(&f);
    assert_int_equal(hdo__file_read(path, 1 << 20, &data, &len, &e), HDO_OK);
    int fd = open(path, O_WRONLY);
    for (size_t i = 0; i < len; i++) {
        char byte = (char)(data[i] ^ (1 << (i % 8)));
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)i), 1);
        if (hdo__ckfile_open_whole(&f, path, &e) == HDO_OK) fail_msg("byte %zu of %zu was not missed", i, len);
        assert_int_equal(pwrite(fd, &data[i], 1, (off_t)i), 1);
    }
    for (size_t cut = 0; cut < len; cut += 97) {
        assert_int_equal(ftruncate(fd, (off_t)cut), 0);
        assert_int_not_equal(hdo__ckfile_open_whole(&f, path, &e), HDO_OK);
    }
    close(fd);
    free(data);
}

static void test_checkpoints_are_listed_newest_first(void **state) {
    (void)state;
    char path[HDO_CKFILE_PATH_MAX], list[64];
    static const int64_t made[] = {40, 1000000000000, 7, 300, 5, 299};
    snprintf(path, sizeof path, "%s/list/checkpoints", folder);
    snprintf(list, sizeof list, "%s/list", folder);
    assert_int_equal(hdo__dir_create(path, NULL), HDO_OK);
    for (int k = 0; k < 6; k++) {
        hdo__ckfile_path(list, made[k], path);
        assert_int_equal(hdo__file_write(path, "x", 1, NULL), HDO_OK);
    }
    snprintf(path, sizeof path, "%s/checkpoints/step-000000999.safetensors.tmp.1", list);
    assert_int_equal(hdo__file_write(path, "x", 1, NULL), HDO_OK);
    int64_t *steps;
    assert_int_equal(hdo__ckfile_list(list, &steps), 6);
    static const int64_t want[] = {1000000000000, 300, 299, 40, 7, 5};
    for (int k = 0; k < 6; k++) assert_int_equal(steps[k], want[k]);
    free(steps);
}

static void test_linelog_marks(void **state) {
    (void)state;
    char path[64];
    hdo_linelog l;
    hdo_linemark all, before;
    hdo_error e = {0};
    snprintf(path, sizeof path, "%s/rows", folder);
    assert_int_equal(hdo__linelog_open(&l, path, &e), HDO_OK);
    assert_int_equal(hdo__linelog_put(&l, 1, "one\n", 4, &e), HDO_OK);
    assert_int_equal(hdo__linelog_put(&l, 2, "two\n", 4, &e), HDO_OK);
    assert_int_equal(hdo__linelog_mark(&l, 3, &all, &e), HDO_OK);
    assert_int_equal(hdo__linelog_mark(&l, 2, &before, &e), HDO_OK);
    hdo__linelog_close(&l);
    assert_int_equal(all.bytes, 8);
    assert_int_equal(before.bytes, 4);
    assert_int_equal(hdo__linemark_check(path, &all, &e), HDO_OK);
    assert_int_equal(hdo__linemark_check(path, &before, &e), HDO_OK);
    assert_int_equal(hdo__linemark_cut(path, &before, &e), HDO_OK);
    assert_int_equal(hdo__linemark_check(path, &before, &e), HDO_OK);
    assert_int_equal(hdo__linemark_check(path, &all, &e), HDO_E_DATA);
    assert_non_null(strstr(e.msg, "rows are missing"));
    assert_int_equal(hdo__linelog_open(&l, path, &e), HDO_OK); /* goes on where the file ends */
    assert_int_equal(hdo__linelog_put(&l, 2, "two\n", 4, &e), HDO_OK);
    assert_int_equal(hdo__linelog_mark(&l, -1, &before, &e), HDO_OK);
    assert_string_equal(before.sha256, all.sha256);
    hdo__linelog_close(&l);
    assert_int_equal(hdo__file_write(path, "One\ntwo\n", 8, &e), HDO_OK);
    assert_int_equal(hdo__linemark_check(path, &all, &e), HDO_E_DATA);
    assert_non_null(strstr(e.msg, "not those the run wrote"));
}

static void test_lock_has_one_holder(void **state) {
    (void)state;
    char dir[64], moved[64], mine[64];
    int a, b;
    bool sure;
    hdo_error e = {0};
    snprintf(dir, sizeof dir, "%s/lock", folder);
    assert_int_equal(hdo__dir_create(dir, &e), HDO_OK);
    assert_int_equal(hdo__lock_take(dir, &a, &sure, &e), HDO_OK);
    assert_true(sure);
    assert_int_equal(hdo__lock_take(dir, &b, &sure, &e), HDO_E_FAILED);
    snprintf(mine, sizeof mine, "process %ld on ", (long)getpid());
    assert_non_null(strstr(e.msg, mine));
    static const struct { /* whatever stands in it */
        const char *text, *said;
    } notes[] = {{"", "another run; wait"}, {"x", "another run (x); wait"}, {"x\ny", "another run (x); wait"}};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(ftruncate(a, 0), 0);
        assert_int_equal(pwrite(a, notes[k].text, strlen(notes[k].text), 0), strlen(notes[k].text));
        assert_int_equal(hdo__lock_take(dir, &b, &sure, &e), HDO_E_FAILED);
        assert_non_null(strstr(e.msg, notes[k].said));
    }
    assert_true(hdo__lock_stands(dir, a));
    snprintf(moved, sizeof moved, "%s/moved", folder);
    assert_int_equal(rename(dir, moved), 0);
    assert_false(hdo__lock_stands(dir, a));
    assert_int_equal(hdo__dir_create(dir, &e), HDO_OK); /* another folder of that name is not ours */
    assert_int_equal(hdo__lock_take(dir, &b, &sure, &e), HDO_OK);
    assert_false(hdo__lock_stands(dir, a));
    hdo__lock_drop(dir, a); /* takes nothing away from b */
    assert_true(hdo__lock_stands(dir, b));
    hdo__lock_drop(dir, b);
    assert_int_equal(hdo__lock_take(moved, &a, &sure, &e), HDO_OK);
    hdo__lock_drop(moved, a);
}

/* ---- nothing is left ---- */

static int open_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d != NULL && readdir(d) != NULL) n++;
    if (d != NULL) closedir(d);
    return n;
}

/* A run, one that goes on behind a damaged checkpoint, one that is refused, states that are none. */
static void come_and_go(int round) {
    char dir[64], path[HDO_CKFILE_PATH_MAX];
    hdo_error e = {0};
    hdo_state_head head;
    hdo_run *r;
    snprintf(dir, sizeof dir, "%s/round-%d", folder, round);
    hdo_run_destroy(tiny(dir));
    hdo__ckfile_path(dir, 4, path);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(hdo_run_resume_how(&r, dir, &(hdo_resume){0}, NULL, &e), HDO_OK);
    assert_int_equal(hdo_run_step(r), 3);
    assert_int_equal(hdo_run_advance(r, 4, NULL, &e), HDO_OK);
    hdo__state_head_of(&r->record, &head);
    char *text = hdo__state_text(&r->record, &head);
    char list[8192] = "[";
    for (int k = 1; k < 8000; k += 2) memcpy(list + k, "0,", 2);
    memcpy(list + 8001, "0]", 3);
    assert_int_not_equal(hdo__state_read_head(list, "x", &head, &e), HDO_OK);
    assert_int_not_equal(hdo__state_load(&r->record, "{}", "x", &e), HDO_OK);
    assert_int_not_equal(hdo__state_load(&r->record, "{", "x", &e), HDO_OK);
    free(text);
    hdo_run_destroy(r);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_int_equal(truncate(path, 3), 0);
    assert_int_not_equal(hdo_run_resume_how(&r, dir, &(hdo_resume){0}, NULL, &e), HDO_OK);
    assert_null(r);
    snprintf(path, sizeof path, "%s/nowhere", dir);
    assert_int_not_equal(hdo_run_resume_how(&r, path, &(hdo_resume){0}, NULL, &e), HDO_OK);
}

static void test_nothing_is_left(void **state) {
    (void)state;
    come_and_go(0); /* what is made once */
    come_and_go(1);
    size_t bytes = mallinfo2().uordblks;
    int files = open_files();
    for (int round = 2; round < 6; round++) come_and_go(round);
    size_t now = mallinfo2().uordblks; /* with what other libraries took, and what malloc keeps for the next time */
    assert_true(now < bytes + 16384);
    assert_int_equal(open_files(), files);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_state_missing_keys_are_errors_and_null_is_nan),
                                       cmocka_unit_test(test_inputs_of_every_class_count),
                                       cmocka_unit_test(test_checkpoint_every_byte_counts),
                                       cmocka_unit_test(test_checkpoints_are_listed_newest_first),
                                       cmocka_unit_test(test_linelog_marks),
                                       cmocka_unit_test(test_lock_has_one_holder),
                                       cmocka_unit_test(test_nothing_is_left)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
