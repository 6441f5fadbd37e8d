/* SPDX-License-Identifier: Apache-2.0 — order statistics, selection by name, rows of a few quick cases. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "hdo/lab/bench.h"

static const double TIGHT = 1e-12; /* a handful of additions of numbers near 1 */

static void assert_near(double a, double b) {
    assert_true(fabs(a - b) <= TIGHT);
}

static void test_stats_are_numpys(void **state) { /* numpy.percentile(t, [50, 10, 90]) */
    (void)state;
    double t[] = {5, 1, 4, 2, 3, 10};
    hdo_bench_stats s = hdo_bench_summarise(t, 6);
    assert_int_equal(s.n, 6);
    assert_near(s.median, 3.5);
    assert_near(s.p10, 1.5);
    assert_near(s.p90, 7.5);
    assert_near(s.min, 1.0);
    assert_near(t[5], 10.0); /* sorted in place */
}

static void test_stats_of_one_and_two(void **state) {
    (void)state;
    double one[] = {0.25}, two[] = {3, 1};
    hdo_bench_stats s = hdo_bench_summarise(one, 1);
    assert_near(s.median, 0.25);
    assert_near(s.p10, 0.25);
    assert_near(s.p90, 0.25);
    s = hdo_bench_summarise(two, 2);
    assert_near(s.median, 2.0);
    assert_near(s.p10, 1.2);
    assert_near(s.p90, 2.8);
}

static void test_stats_ignore_an_outlier(void **state) { /* one descheduled window must not move the median */
    (void)state;
    double t[101];
    for (int i = 0; i < 101; i++) t[i] = 1.0;
    t[50] = 1e6;
    hdo_bench_stats s = hdo_bench_summarise(t, 101);
    assert_near(s.median, 1.0);
    assert_near(s.p90, 1.0);
}

static void test_names_select_whole_words(void **state) {
    (void)state;
    assert_true(hdo_bench_selects("step", "step/e2/fo"));
    assert_true(hdo_bench_selects("step/e2", "step/e2/fo"));
    assert_true(hdo_bench_selects("step/e2/fo", "step/e2/fo"));
    assert_true(hdo_bench_selects("all", "step/e2/fo"));
    assert_false(hdo_bench_selects("step/e", "step/e2/fo"));
    assert_false(hdo_bench_selects("step/e2/fo/x", "step/e2/fo"));
    assert_false(hdo_bench_selects("nodes/100", "nodes/1000"));
}

static void test_case_names_are_unique_and_fit(void **state) {
    (void)state;
    hdo_bench_row row;
    bool quick = false, any = false;
    for (int i = 0; hdo_bench_case_name(i, &quick) != NULL; i++) {
        any = any || quick;
        assert_true(strlen(hdo_bench_case_name(i, NULL)) + 8 < sizeof row.name); /* room for /bwd_x */
        for (int j = 0; j < i; j++) assert_string_not_equal(hdo_bench_case_name(i, NULL), hdo_bench_case_name(j, NULL));
    }
    assert_true(any);
    assert_null(hdo_bench_case_name(-1, NULL));
}

typedef struct seen {
    int rows;
    hdo_bench_row last;
} seen;

static void keep(void *ctx, const hdo_bench_row *row) {
    seen *s = ctx;
    s->rows++;
    s->last = *row;
    assert_true(row->s.n >= 1 && row->calls >= 1);
    assert_true(row->s.min > 0.0 && row->s.min <= row->s.p10 && row->s.p10 <= row->s.median &&
                row->s.median <= row->s.p90);
}

static void run_case(const char *name, bool allocates) {
    seen s = {0};
    hdo_bench_options o = {.name = name, .threads = 1, .seconds = 0.001, .ctx = &s, .row = keep};
    hdo_error e = {0};
    assert_int_equal(hdo_bench_run(&o, &e), HDO_OK);
    assert_true(s.rows > 3); /* after the limits */
    assert_true(allocates ? s.last.allocations > 0.0 : s.last.allocations == 0.0);
}

static void test_steps_allocate_nothing_and_wiring_is_counted(void **state) {
    (void)state;
    run_case("normals/l1", false);
    run_case("conv/cnn3", false);
    run_case("gather/brackets", false); /* tokens, made here: needs no files */
    run_case("nodes/1000", false);
    run_case("step/e4/fo", false);
    run_case("create/theory-fleet", true);
}

static void test_an_unknown_name_is_refused(void **state) {
    (void)state;
    hdo_error e = {0};
    assert_int_equal(hdo_bench_run(&(hdo_bench_options){.name = "nosuch"}, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "nosuch"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats_are_numpys),
        cmocka_unit_test(test_stats_of_one_and_two),
        cmocka_unit_test(test_stats_ignore_an_outlier),
        cmocka_unit_test(test_names_select_whole_words),
        cmocka_unit_test(test_case_names_are_unique_and_fit),
        cmocka_unit_test(test_steps_allocate_nothing_and_wiring_is_counted),
        cmocka_unit_test(test_an_unknown_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
