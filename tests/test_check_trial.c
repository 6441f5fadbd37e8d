/* SPDX-License-Identifier: Apache-2.0 — hdo check: settings outside their range, and the trial of the population. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hdo/lab/check.h"
#include "hdo/experimental/all.h"

static hdo_config conf;
static hdo_check_result result;

static void set(const char *key, const char *value) {
    hdo_error e = {0};
    if (hdo_config_set_from(&conf, key, value, HDO_FROM_FLAG, &e) != HDO_OK) fail_msg("%s=%s: %s", key, value, e.msg);
}

static void check(int steps, double seconds) {
    hdo_error e = {0};
    hdo_check_options o = hdo_check_default();
    o.time_s = 0.05;
    o.try_steps = steps;
    o.try_s = seconds;
    if (hdo_check(&conf, &o, &result, &e) != HDO_OK || hdo_check_try(&conf, &o, &result, &e) != HDO_OK)
        fail_msg("%s", e.msg);
}

static const hdo_check_note *find(hdo_check_level level, const char *words) {
    for (int i = 0; i < result.n_notes; i++)
        if (result.note[i].level == level && strstr(result.note[i].text, words) != NULL) return &result.note[i];
    return NULL;
}

static void test_trial_rates_above_the_recommended(void **state) {
    (void)state;
    hdo_config_default(&conf);
    check(0, 1.0);
    assert_null(find(HDO_CHECK_ADVICE, "lr = "));
    for (int k = 0; k < 2; k++) { /* a little above what check itself prints as the upper end, for each class */
        char text[32], key[32];
        hdo_config_default(&conf);
        snprintf(text, sizeof text, "%.4g", 1.2 * result.cls[k].lr_best);
        snprintf(key, sizeof key, "population.%s.lr", k == 0 ? "fo" : "zo");
        set(key, text);
        check(0, 1.0);
        const hdo_check_note *n = find(HDO_CHECK_ADVICE, "the best step of a lone node");
        assert_non_null(n);
        assert_int_equal(n->cls, k);
    }
}

static void test_trial_batch_and_shard(void **state) {
    (void)state;
    hdo_config_default(&conf);
    set("data.train", "100");
    set("data.split", "single");
    check(0, 1.0);
    assert_int_equal(result.cls[0].least_shard, 3); /* 100 samples over 32 nodes */
    assert_non_null(find(HDO_CHECK_ADVICE, "batches repeat"));
    set("population.fo.batch", "3");
    set("population.zo.batch", "3");
    check(0, 1.0);
    assert_null(find(HDO_CHECK_ADVICE, "batches repeat"));
}

static void test_trial_finds_a_population_that_diverges(void **state) {
    (void)state;
    hdo_config_default(&conf);
    set("model", "quadratic");
    set("population.zo.lr", "5");
    set("warmup", "1000"); /* cut short: the full rate is tried */
    check(60, 20.0);
    assert_true(result.trial.diverged && result.trial.steps <= 60);
    assert_int_equal(result.trial.cls, 1);
    assert_true(result.trial.node >= 4 && result.trial.node < 32);
    const hdo_check_note *n = find(HDO_CHECK_PROBLEM, "diverged");
    assert_non_null(n);
    assert_int_equal(n->cls, 1);
    set("population.zo.lr", "0.05");
    check(60, 20.0);
    assert_true(!result.trial.diverged && result.trial.steps == 60);
    assert_true(result.trial.loss_end < result.trial.loss_start);
    assert_null(find(HDO_CHECK_PROBLEM, ""));
}

/* Far from diverging, but uphill. */
static void test_trial_says_that_the_loss_rises(void **state) {
    (void)state;
    hdo_config_default(&conf);
    set("population.zo.lr", "40");
    set("population.fo.lr", "40");
    check(60, 20.0);
    assert_false(result.trial.diverged);
    assert_non_null(find(HDO_CHECK_ADVICE, "the mean loss rose"));
}

static void test_trial_is_bounded_and_can_be_left_out(void **state) {
    (void)state;
    hdo_config_default(&conf);
    check(0, 1.0);
    assert_int_equal(result.trial.steps, 0);
    set("data.features", "2000");
    set("population.zo.estimator", "forward-sim");
    set("population.zo.rv", "2000");
    check(1000000, 0.3);
    assert_true(result.trial.steps > 0 && result.trial.steps < 1000000);
}

/* Settings of the cluster are no mistakes in a trial that runs in this process. */
static void test_trial_of_a_configuration_for_a_cluster(void **state) {
    (void)state;
    hdo_config_default(&conf);
    set("engine", "mpi");
    set("mpi.deadline_s", "7");
    set("mpi.async", "true");
    check(5, 20.0);
    assert_int_equal(result.trial.steps, 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trial_rates_above_the_recommended),
        cmocka_unit_test(test_trial_batch_and_shard),
        cmocka_unit_test(test_trial_finds_a_population_that_diverges),
        cmocka_unit_test(test_trial_says_that_the_loss_rises),
        cmocka_unit_test(test_trial_is_bounded_and_can_be_left_out),
        cmocka_unit_test(test_trial_of_a_configuration_for_a_cluster),
    };
    return cmocka_run_group_tests_name("trial", tests, NULL, NULL);
}
