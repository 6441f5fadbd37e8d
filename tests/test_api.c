/* SPDX-License-Identifier: Apache-2.0 — hdo.h: misuse gives a status and a sentence, never a crash. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "folder_help.h"
#include "hdo/hdo.h"

static const char small[] = "model: {name: quadratic, dim: 5}\nsteps: 20\neval: {every: 5}\n"
                            "population:\n  fo: {count: 2, estimator: fo, lr: 0.1}\n";

static hdo_config *config(void) {
    hdo_error e = {0};
    hdo_config *c = hdo_config_new(NULL, &e);
    if (c == NULL || hdo_config_load_text(c, small, &e) != HDO_OK) fail_msg("%s", e.msg);
    return c;
}

static hdo_run *begin(void) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    hdo_config *c = config();
    if (hdo_run_new(&r, c, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_config_free(c);
    return r;
}

#define MISUSE(call)                                                                                                   \
    do {                                                                                                               \
        e = (hdo_error){0};                                                                                            \
        assert_int_equal(call, HDO_E_MISUSE);                                                                          \
        assert_true(strlen(e.msg) > 10);                                                                               \
    } while (0)

static void nulls(void **state) {
    (void)state;
    hdo_error e;
    char buf[8], hex[65];
    float x[5];
    hdo_config *c = config();
    hdo_run *r = begin(), *made = (hdo_run *)buf;
    hdo_objective_def objective = {0};
    hdo_dataset_def data = {0};
    MISUSE(hdo_config_load(NULL, "x", &e));
    MISUSE(hdo_config_load(c, NULL, &e));
    MISUSE(hdo_config_load_text(NULL, "x", &e));
    MISUSE(hdo_config_load_text(c, NULL, &e));
    MISUSE(hdo_config_set(NULL, "steps", "1", &e));
    MISUSE(hdo_config_set(c, NULL, "1", &e));
    MISUSE(hdo_config_set(c, "steps", NULL, &e));
    MISUSE(hdo_config_get(NULL, "steps", buf, sizeof buf, &e));
    MISUSE(hdo_config_get(c, NULL, buf, sizeof buf, &e));
    MISUSE(hdo_config_get(c, "steps", NULL, sizeof buf, &e));
    MISUSE(hdo_config_get(c, "steps", buf, 0, &e));
    MISUSE(hdo_config_population(NULL, "2fo", &e));
    MISUSE(hdo_config_population(c, NULL, &e));
    MISUSE(hdo_config_check(NULL, &e));
    MISUSE(hdo_config_use_objective(NULL, &objective, NULL, &e));
    MISUSE(hdo_config_use_objective(c, NULL, NULL, &e));
    MISUSE(hdo_config_use_objective(c, &objective, NULL, &e));
    MISUSE(hdo_config_use_dataset(NULL, &data, NULL, &e));
    MISUSE(hdo_config_use_dataset(c, NULL, NULL, &e));
    MISUSE(hdo_config_use_dataset(c, &data, NULL, &e));
    MISUSE(hdo_run_new(NULL, c, &e));
    MISUSE(hdo_run_new(&made, NULL, &e));
    assert_null(made);
    MISUSE(hdo_run_resume(NULL, "x", NULL, &e));
    MISUSE(hdo_run_resume(&made, NULL, NULL, &e));
    MISUSE(hdo_run_advance(NULL, 1, NULL, &e));
    MISUSE(hdo_run_stop(NULL, &e));
    MISUSE(hdo_run_open_dir(NULL, "x", false, &e));
    MISUSE(hdo_run_open_dir(r, NULL, false, &e));
    MISUSE(hdo_run_save(NULL, &e));
    MISUSE(hdo_run_save(r, &e)); /* no folder */
    MISUSE(hdo_run_write_summary(NULL, &e));
    MISUSE(hdo_run_on_log(NULL, NULL, NULL, &e));
    MISUSE(hdo_run_on_row(NULL, NULL, NULL, &e));
    MISUSE(hdo_run_mean(NULL, x, &e));
    MISUSE(hdo_run_mean(r, NULL, &e));
    assert_int_equal(hdo_run_advance(NULL, 1, NULL, NULL), HDO_E_MISUSE); /* without an error too */
    assert_null(hdo_config_new("no such preset", &e));
    assert_non_null(strstr(e.msg, "no such preset"));
    assert_null(hdo_config_copy(NULL));
    assert_null(hdo_config_text(NULL));
    assert_null(hdo_config_help("no such section"));
    assert_null(hdo_names(NULL));
    assert_null(hdo_names("no such kind"));
    assert_non_null(hdo_names("preset"));
    assert_int_equal(hdo_run_nodes(NULL), 0);
    assert_int_equal(hdo_run_dim(NULL), 0);
    assert_int_equal(hdo_run_step(NULL), 0);
    assert_int_equal(hdo_run_rank(NULL), 0);
    assert_null(hdo_run_params(NULL, 0, NULL));
    assert_null(hdo_run_params(r, -1, NULL));
    assert_null(hdo_run_params(r, 99, NULL));
    assert_null(hdo_run_summary(NULL));
    assert_null(hdo_run_config(NULL));
    assert_null(hdo_run_last_row(NULL));
    assert_null(hdo_run_last_row(r)); /* nothing was evaluated yet */
    assert_int_equal(hdo_run_row_count(NULL), 0);
    assert_null(hdo_run_row(NULL, 0));
    assert_null(hdo_run_row(r, 0));
    assert_null(hdo_run_columns(NULL));
    assert_true(isnan(hdo_row_value(NULL, "step")));
    hdo_run_fingerprint(NULL, hex);
    assert_string_equal(hex, "");
    hdo_run_fingerprint(r, NULL);
    assert_string_equal(hdo_stop_name((hdo_stop)77), "unknown");
    assert_string_equal(hdo_status_text((hdo_status)77), "unknown status");
    hdo_free(NULL);
    hdo_config_free(NULL);
    hdo_run_free(NULL);
    hdo_run_free(r);
    hdo_config_free(c);
}

typedef struct seen {
    hdo_run *r;
    int rows, misuses;
    bool free_it;
} seen;

/* Everything that may not be called from inside. */
static void from_inside(void *ctx, const hdo_row *row) {
    seen *s = ctx;
    float x[5];
    hdo_stop why;
    assert_true(hdo_row_value(row, "step") >= 0.0);
    s->rows++;
    s->misuses += hdo_run_advance(s->r, 1, &why, NULL) == HDO_E_MISUSE;
    s->misuses += hdo_run_stop(s->r, NULL) == HDO_E_MISUSE;
    s->misuses += hdo_run_save(s->r, NULL) == HDO_E_MISUSE;
    s->misuses += hdo_run_write_summary(s->r, NULL) == HDO_E_MISUSE;
    s->misuses += hdo_run_open_dir(s->r, "x", false, NULL) == HDO_E_MISUSE;
    s->misuses += hdo_run_mean(s->r, x, NULL) == HDO_E_MISUSE;
    if (s->free_it) hdo_run_free(s->r);
}

static void calls_from_inside(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_stop why;
    seen s = {.r = begin()};
    assert_int_equal(hdo_run_on_row(s.r, from_inside, &s, &e), HDO_OK);
    assert_int_equal(hdo_run_advance(s.r, 100, &why, &e), HDO_OK);
    assert_int_equal(why, HDO_COMPLETED);
    assert_int_equal(s.rows, 5);
    assert_int_equal(s.misuses, 6 * 5);
    hdo_run_free(s.r);
    s = (seen){.r = begin(), .free_it = true};
    assert_int_equal(hdo_run_on_row(s.r, from_inside, &s, &e), HDO_OK);
    assert_int_equal(hdo_run_advance(s.r, 100, &why, &e), HDO_OK); /* freed when it returns */
}

static void order_of_calls(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    char dir[256];
    float mean[5];
    hdo_run *r = begin();
    snprintf(dir, sizeof dir, "%s/order", folder);
    assert_int_equal(hdo_run_advance(r, -5, &why, &e), HDO_OK); /* no steps: the start is evaluated */
    assert_int_equal(hdo_run_step(r), 0);
    assert_int_equal(hdo_run_row_count(r), 1);
    MISUSE(hdo_run_open_dir(r, dir, false, &e)); /* too late */
    assert_int_equal(hdo_run_advance(r, 7, &why, &e), HDO_OK);
    assert_int_equal(hdo_run_stop(r, &e), HDO_OK);
    assert_int_equal(hdo_run_stop(r, &e), HDO_OK); /* again: nothing */
    assert_int_equal(hdo_run_advance(r, 7, &why, &e), HDO_OK);
    assert_int_equal(why, HDO_STOPPED);
    assert_int_equal(hdo_run_step(r), 7);
    assert_int_equal(hdo_run_mean(r, mean, &e), HDO_OK);
    assert_int_equal(hdo_run_write_summary(r, &e), HDO_OK); /* without a folder nothing */
    assert_true(isnan(hdo_row_value(hdo_run_last_row(r), "no such column")));
    for (const char *const *k = hdo_run_columns(r); *k != NULL; k++) (void)hdo_row_value(hdo_run_last_row(r), *k);
    hdo_run_free(r);
    r = begin();
    assert_int_equal(hdo_run_open_dir(r, dir, false, &e), HDO_OK);
    MISUSE(hdo_run_open_dir(r, dir, true, &e)); /* twice */
    hdo_run_free(r);
    assert_int_equal(hdo_run_resume(&r, "/nowhere/at/all", NULL, &e), HDO_E_CONFIG);
    assert_null(r);
}

static void texts(void **state) {
    (void)state;
    hdo_error e = {0};
    char *features = hdo_features(), value[64];
    assert_non_null(strstr(features, "simd: "));
    hdo_free(features);
    assert_int_equal(hdo_abi(), HDO_ABI);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", HDO_VERSION_MAJOR, HDO_VERSION_MINOR, HDO_VERSION_PATCH);
    assert_string_equal(version, hdo_version());
    hdo_config *c = config(), *d = hdo_config_new("demo", &e);
    char *text = hdo_config_text(c);
    assert_int_equal(hdo_config_load_text(d, text, &e), HDO_OK);
    assert_int_equal(hdo_config_get(d, "model.dim", value, sizeof value, &e), HDO_OK);
    assert_string_equal(value, "5");
    hdo_free(text);
    hdo_config_free(c);
    hdo_config_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nulls), cmocka_unit_test(calls_from_inside),
                                       cmocka_unit_test(order_of_calls), cmocka_unit_test(texts)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
