/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of data sets: where it is, what counts as present, that wrong files are refused and leave nothing behind.
 * With the argument --real only the parts that need the real files run (make check-real), and fail without them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "data/data_impl.h"
#include "data/store.h"

#define MNIST_LOAD_S 0.3 /* promised, for a stamped set in the store; measured 0.0003 */
#define CIFAR_LOAD_S 1.0 /* the same; measured 0.018 */

static char real_dir[1024]; /* the user's data folder, before the tests point elsewhere */
static char own_dir[64];

static int setup(void **state) {
    (void)state;
    if (hdo__store_dir(real_dir, sizeof real_dir, NULL) != HDO_OK) real_dir[0] = '\0';
    snprintf(own_dir, sizeof own_dir, "/tmp/hdo-test-XXXXXX");
    if (mkdtemp(own_dir) == NULL) return -1;
    return setenv("HDO_DATA_DIR", own_dir, 1);
}

static int teardown(void **state) {
    (void)state;
    hdo__store_remove(own_dir);
    return 0;
}

static bool has_real(const char *name) {
    char dir[2048];
    snprintf(dir, sizeof dir, "%s/%s", real_dir, name);
    hdo_data_state s = hdo__store_state(hdo__store_find(name), dir);
    return s == HDO_DATA_READY || s == HDO_DATA_UNCHECKED;
}

static void test_store_folder_follows_the_environment(void **state) {
    (void)state;
    char buf[256];
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *old_xdg = xdg != NULL ? strdup(xdg) : NULL, *old_home = home != NULL ? strdup(home) : NULL;
    assert_int_equal(hdo__store_dir(buf, sizeof buf, NULL), HDO_OK);
    assert_string_equal(buf, own_dir);
    unsetenv("HDO_DATA_DIR");
    setenv("XDG_CACHE_HOME", "/x", 1);
    assert_int_equal(hdo__store_dir(buf, sizeof buf, NULL), HDO_OK);
    assert_string_equal(buf, "/x/hdo/data");
    setenv("XDG_CACHE_HOME", "", 1);
    setenv("HOME", "/h", 1);
    assert_int_equal(hdo__store_dir(buf, sizeof buf, NULL), HDO_OK);
    assert_string_equal(buf, "/h/.cache/hdo/data");
    unsetenv("HOME");
    assert_int_equal(hdo__store_dir(buf, sizeof buf, NULL), HDO_E_CONFIG);
    if (old_home != NULL) setenv("HOME", old_home, 1);
    if (old_xdg != NULL)
        setenv("XDG_CACHE_HOME", old_xdg, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    setenv("HDO_DATA_DIR", own_dir, 1);
    free(old_xdg);
    free(old_home);
}

static void test_store_absent_names_the_command(void **state) {
    (void)state;
    hdo_data_config c = {.name = "mnist"};
    hdo_dataset *t, *v;
    hdo_error e = {0};
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_DATA);
    assert_non_null(strstr(e.msg, "'hdo data get mnist'"));
    hdo_data_get_options o = {.offline = true};
    assert_int_equal(hdo_data_get("cifar10", &o, NULL, &e), HDO_E_DATA);
    assert_non_null(strstr(e.msg, "'hdo data get cifar10'"));
    assert_int_equal(hdo_data_verify("mnist", &e), HDO_E_DATA);
    assert_int_equal(hdo_data_verify("csv", &e), HDO_E_CONFIG);
    assert_int_equal(hdo_data_get("csv", NULL, NULL, &e), HDO_E_CONFIG);
    assert_int_equal(hdo_data_get("brackets", NULL, NULL, &e), HDO_OK);
    assert_int_equal(hdo_data_get("mnits", NULL, NULL, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "mnist"));
}

static int entries(const char *dir) { /* names in dir that are not locks */
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d)) != NULL;) {
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0 && strstr(f->d_name, ".lock") == NULL) n++;
    }
    closedir(d);
    return n;
}

static void test_store_refuses_wrong_files(void **state) {
    (void)state;
    char from[64], path[256];
    snprintf(from, sizeof from, "/tmp/hdo-test-XXXXXX");
    assert_non_null(mkdtemp(from));
    hdo_error e = {0};
    assert_int_equal(hdo_data_import(NULL, from, false, NULL, &e), HDO_E_DATA); /* nothing there */
    const hdo_store_set *set = hdo__store_find("mnist");
    for (int k = 0; k < set->n_files; k++) {
        snprintf(path, sizeof path, "%s/%s", from, set->file[k].name);
        assert_int_equal(hdo__file_write(path, "wrong", 5, NULL), HDO_OK);
    }
    assert_int_equal(hdo_data_import(NULL, from, false, NULL, &e), HDO_E_DATA);
    assert_non_null(strstr(e.msg, "SHA-256"));
    assert_int_equal(entries(own_dir), 0); /* nothing that looks finished, nothing at all */
    hdo_data_info info;
    assert_int_equal(hdo_data_find("mnist", &info, &e), HDO_OK);
    assert_int_equal(info.state, HDO_DATA_ABSENT);
    hdo__store_remove(from);
}

static void test_store_damaged_is_seen(void **state) {
    (void)state;
    const hdo_store_set *set = hdo__store_find("mnist");
    char dir[256], path[512];
    hdo_error e = {0};
    snprintf(dir, sizeof dir, "%s/mnist", own_dir);
    assert_int_equal(hdo__dir_create(dir, &e), HDO_OK);
    assert_int_equal(hdo__store_state(set, dir), HDO_DATA_DAMAGED); /* a folder without files */
    for (int k = 0; k < set->n_files; k++) {                        /* right sizes, wrong contents */
        snprintf(path, sizeof path, "%s/%s", dir, set->file[k].name);
        assert_int_equal(hdo__file_write(path, "", 0, NULL), HDO_OK);
        assert_int_equal(truncate(path, (off_t)set->file[k].bytes), 0);
    }
    assert_int_equal(hdo__store_state(set, dir), HDO_DATA_UNCHECKED);
    hdo_data_config c = {.name = "mnist"};
    hdo_dataset *t, *v;
    assert_int_equal(hdo__data_open(&c, &t, &v, &e), HDO_E_DATA);
    assert_non_null(strstr(e.msg, "SHA-256"));
    assert_non_null(strstr(e.msg, "hdo data get mnist"));
    hdo__store_remove(dir);
}

/* Leftovers of a killed import go when the next one starts. */
static void test_store_scratch_cleans_up(void **state) {
    (void)state;
    char a[512], b[512];
    hdo_error e = {0};
    assert_int_equal(hdo__store_scratch(own_dir, "mnist", a, sizeof a, &e), HDO_OK);
    assert_int_equal(hdo__store_scratch(own_dir, "mnist", b, sizeof b, &e), HDO_OK);
    assert_false(hdo__path_exists(a));
    assert_true(hdo__path_exists(b));
    hdo__store_remove(b);
    int fd;
    assert_int_equal(hdo__store_lock(own_dir, "mnist", &fd, &e), HDO_OK);
    hdo__store_unlock(fd);
}

/* ---- with the real files ---- */

static void load_and_time(const char *name, double limit_s) {
    setenv("HDO_DATA_DIR", real_dir, 1);
    hdo_data_config c = {.name = ""};
    snprintf(c.name, sizeof c.name, "%s", name);
    hdo_dataset *t, *v;
    hdo_error e = {0};
    hdo_status st = hdo__data_open(&c, &t, &v, &e); /* the first may have to compute checksums */
    if (st == HDO_OK) {
        hdo__dataset_destroy(t);
        hdo__dataset_destroy(v);
        double t0 = hdo__now_s();
        st = hdo__data_open(&c, &t, &v, &e);
        double s = hdo__now_s() - t0;
        print_message("%s loads in %.4f s\n", name, s);
        assert_true(s < limit_s);
        hdo__dataset_destroy(t);
        hdo__dataset_destroy(v);
    }
    setenv("HDO_DATA_DIR", own_dir, 1);
    if (st != HDO_OK) fail_msg("%s", e.msg);
}

static void check_moments(const char *name, const double *mean, const double *sd, int channels, int64_t count) {
    setenv("HDO_DATA_DIR", real_dir, 1);
    hdo_data_config c = {.name = ""};
    snprintf(c.name, sizeof c.name, "%s", name);
    hdo_data_stats s;
    hdo_error e = {0};
    hdo_status st = hdo_data_statistics(&c, false, &s, &e);
    setenv("HDO_DATA_DIR", own_dir, 1);
    if (st != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(s.count, count);
    for (int k = 0; k < channels;
         k++) { /* the constants used for scaling are those of the files, to the digits given */
        assert_true(fabs(s.mean[k] - mean[k]) < 6e-5);
        assert_true(fabs(s.sd[k] - sd[k]) < 6e-5);
    }
}

static void test_store_mnist(void **state) {
    (void)state;
    assert_true(has_real("mnist"));
    load_and_time("mnist", MNIST_LOAD_S);
    const double mean[1] = {0.1307}, sd[1] = {0.3081};
    check_moments("mnist", mean, sd, 1, 60000);
}

static void test_store_cifar10(void **state) {
    (void)state;
    assert_true(has_real("cifar10"));
    load_and_time("cifar10", CIFAR_LOAD_S);
    const double mean[3] = {0.4914, 0.4822, 0.4465}, sd[3] = {0.2470, 0.2435, 0.2616};
    check_moments("cifar10", mean, sd, 3, 50000);
}

/* From a folder, as raw files; then one byte changes and verify sees it; then import mends it. */
static void test_store_import_verify_mend(void **state) {
    (void)state;
    assert_true(has_real("mnist"));
    char from[2048], path[512];
    hdo_error e = {0};
    hdo_data_info info;
    snprintf(from, sizeof from, "%s/mnist", real_dir);
    assert_int_equal(hdo_data_import(NULL, from, false, &info, &e), HDO_OK);
    assert_string_equal(info.name, "mnist");
    assert_int_equal(info.state, HDO_DATA_READY);
    assert_int_equal(entries(own_dir), 1);
    assert_int_equal(hdo_data_verify("mnist", &e), HDO_OK);
    snprintf(path, sizeof path, "%s/mnist/t10k-labels-idx1-ubyte", own_dir);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, 5000, SEEK_SET);
    fputc(99, f);
    fclose(f);
    assert_int_equal(hdo_data_verify("mnist", &e), HDO_E_DATA);
    assert_non_null(strstr(e.msg, "t10k-labels"));
    assert_int_equal(hdo_data_find("mnist", &info, &e), HDO_OK);
    assert_int_equal(info.state, HDO_DATA_UNCHECKED); /* the stamp is gone */
    assert_int_equal(hdo_data_import("mnist", from, false, &info, &e), HDO_OK);
    assert_int_equal(info.state, HDO_DATA_READY);
    assert_int_equal(hdo_data_verify("mnist", &e), HDO_OK);
    assert_int_equal(entries(own_dir), 1);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_folder_follows_the_environment),
        cmocka_unit_test(test_store_absent_names_the_command),
        cmocka_unit_test(test_store_refuses_wrong_files),
        cmocka_unit_test(test_store_damaged_is_seen),
        cmocka_unit_test(test_store_scratch_cleans_up),
    };
    const struct CMUnitTest real_tests[] = {
        cmocka_unit_test(test_store_mnist),
        cmocka_unit_test(test_store_cifar10),
        cmocka_unit_test(test_store_import_verify_mend),
    };
    if (argc > 1 && strcmp(argv[1], "--real") == 0) return cmocka_run_group_tests(real_tests, setup, teardown);
    return cmocka_run_group_tests(tests, setup, teardown);
}
