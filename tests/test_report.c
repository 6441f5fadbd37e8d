/* SPDX-License-Identifier: Apache-2.0 — stored results: bundles, curves, differences, figures, pages, sweeps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/file.h"
#include "hdo/experimental/all.h"
#include "hdo/lab/report.h"
#include "hdo/lab/sweep.h"
#include "folder_help.h"

static const char *in_folder(const char *name) {
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

/* A stored run: loss = base + slope * step at steps 0, 10, ... */
static void fake_run(const char *name, int seed, int points, double base, double slope, const char *outcome) {
    char text[8192], path[300];
    size_t len = 0;
    assert_int_equal(hdo__dir_create(in_folder(name), NULL), HDO_OK);
    for (int i = 0; i < points; i++) {
        char loss[32] = "null";
        if (isfinite(base)) snprintf(loss, sizeof loss, "%.17g", base + slope * 10.0 * i);
        len += (size_t)snprintf(
            text + len, sizeof text - len,
            "{\"step\": %d, \"val/loss_mean\": %s, \"bytes_exchanged\": %d, \"time\": {\"wall\": %d}}\n", 10 * i, loss,
            100 * i * (seed + 1), i);
    }
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", folder, name);
    assert_int_equal(hdo__file_write(path, text, len, NULL), HDO_OK);
    if (outcome == NULL) return;
    len = (size_t)snprintf(
        text, sizeof text, "{\"outcome\": \"%s\", \"seed\": %d, \"steps\": %d, \"final\": {\"val_loss_mean\": %g}}",
        outcome, seed, 10 * (points - 1), isfinite(base) ? base + slope * 10.0 * (points - 1) : -1.0);
    snprintf(path, sizeof path, "%s/%s/summary.json", folder, name);
    assert_int_equal(hdo__file_write(path, text, len, NULL), HDO_OK);
}

static void test_report_student_known_values(void **state) {
    (void)state;
    assert_true(fabs(hdo_student_quantile(0.975, 1) - 12.706204736) < 1e-6);
    assert_true(fabs(hdo_student_quantile(0.975, 2) - 4.302652730) < 1e-7);
    assert_true(fabs(hdo_student_quantile(0.975, 10) - 2.228138852) < 1e-7);
    assert_true(fabs(hdo_student_quantile(0.975, 1e6) - 1.959966) < 1e-4);
}

static void test_report_difference_paired_and_welch(void **state) {
    (void)state;
    const double a[] = {1.0, 2.0, 3.0}, b[] = {0.9, 1.8, 2.7};
    const int64_t s[] = {0, 1, 2}, other[] = {3, 4, 5};
    hdo_difference d = hdo_compare_values(a, s, 3, b, s, 3);
    assert_true(d.paired);
    assert_true(fabs(d.diff - 0.2) < 1e-12 && fabs(d.se - 0.1 / sqrt(3.0)) < 1e-12);
    assert_true(fabs(d.t - 2.0 * sqrt(3.0)) < 1e-9);
    assert_true(fabs(d.p - 0.07417990023) < 1e-8); /* two-sided, 2 degrees of freedom */
    assert_true(d.low < 0.0 && d.high > 0.2);
    hdo_difference w = hdo_compare_values(a, s, 3, b, other, 3);
    assert_false(w.paired);
    assert_true(w.se > d.se && w.low < d.low);
    hdo_difference one = hdo_compare_values(a, s, 1, b, s, 1);
    assert_true(isnan(one.low) && fabs(one.diff - 0.1) < 1e-12);
    const double shuffled[] = {2.7, 0.9, 1.8};
    const int64_t order[] = {2, 0, 1};
    assert_true(fabs(hdo_compare_values(a, s, 3, shuffled, order, 3).t - d.t) < 1e-9);
}

static void test_report_bundle_and_curve(void **state) {
    (void)state;
    hdo_bundle b;
    hdo_curve c;
    hdo_error e = {0};
    fake_run("group/seed-0", 0, 11, 2.0, -0.01, "completed");
    fake_run("group/seed-1", 1, 11, 2.2, -0.01, "completed");
    fake_run("group/seed-2", 2, 8, 2.4, -0.01, "diverged");
    fake_run("group/seed-3", 3, 9, 2.0, 0.0, NULL);
    assert_int_equal(hdo_bundle_load(&b, in_folder("group"), "step", "val/loss_mean", &e), HDO_OK);
    assert_int_equal(b.n_runs, 4);
    assert_string_equal(b.label, "group");
    assert_true(b.run[0].finished && !b.run[0].diverged && b.run[2].diverged && !b.run[3].finished);
    assert_int_equal(b.run[1].seed, 1);
    assert_int_equal(b.run[3].seed, -1);
    assert_true(fabs(hdo_series_at(&b.run[0], 15.0) - 1.85) < 1e-12);
    assert_true(fabs(hdo_series_at(&b.run[0], 0.0) - 2.0) < 1e-12);
    assert_true(isnan(hdo_series_at(&b.run[2], 71.0)));
    hdo_bundle_clear(&b);
    assert_int_equal(hdo_curve_load(&c, in_folder("group"), "step", "val/loss_mean", &e), HDO_OK);
    assert_int_equal(c.n_points, 9); /* the run that is still going; the diverged one is not part of the mean */
    assert_int_equal(c.n_runs, 3);
    assert_true(fabs(c.mean[0] - 6.2 / 3) < 1e-12 && c.se[0] > 0.0);
    assert_int_equal(c.n_diverged, 1);
    assert_true(c.diverged[0].seed == 2 && c.diverged[0].n == 8);
    hdo_curve_clear(&c);
    assert_int_equal(hdo_curve_load(&c, in_folder("group/seed-0"), "step", "val/loss_mean", &e), HDO_OK);
    assert_true(c.n_runs == 1 && isnan(c.se[0])); /* one run has no spread */
    hdo_curve_clear(&c);
    assert_int_equal(hdo_bundle_load(&b, in_folder("group"), "step", "no/such", &e), HDO_E_CONFIG);
    assert_int_equal(hdo_bundle_load(&b, in_folder("nothing"), "step", "val/loss_mean", &e), HDO_E_DATA);
}

static void test_report_compare_at_equal_bytes(void **state) {
    (void)state;
    hdo_difference d;
    hdo_error e = {0};
    double x = -1.0;
    fake_run("one/seed-0", 0, 11, 1.0, -0.001, "completed"); /* 1000 bytes at step 100 */
    fake_run("two/seed-1", 1, 11, 1.0, -0.001, "completed"); /* 1000 bytes at step 50 */
    assert_int_equal(
        hdo_compare_runs(in_folder("one"), in_folder("two"), "val/loss_mean", "bytes_exchanged", &x, &d, &e), HDO_OK);
    assert_true(x == 1000.0 && fabs(d.a - 0.9) < 1e-12 && fabs(d.b - 0.95) < 1e-12);
    x = 40.0;
    assert_int_equal(hdo_compare_runs(in_folder("one"), in_folder("two"), "val/loss_mean", "step", &x, &d, &e), HDO_OK);
    assert_true(fabs(d.diff) < 1e-12);
    x = 400.0;
    assert_int_equal(hdo_compare_runs(in_folder("one"), in_folder("two"), "val/loss_mean", "step", &x, &d, &e),
                     HDO_E_DATA);
}

static void test_report_curve_difference(void **state) {
    (void)state;
    hdo_curve c;
    char dir[256];
    fake_run("left/seed-0", 0, 11, 1.0, 0.0, "completed");
    fake_run("left/seed-1", 1, 11, 1.2, 0.0, "completed");
    fake_run("left/seed-7", 7, 11, 9.0, 0.0, "completed"); /* no partner */
    fake_run("right/seed-0", 0, 11, 0.9, 0.0, "completed");
    fake_run("right/seed-1", 1, 9, 1.0, 0.0, "completed");
    snprintf(dir, sizeof dir, "%s", in_folder("left"));
    assert_int_equal(hdo_curve_difference(&c, dir, in_folder("right"), "step", "val/loss_mean", NULL), HDO_OK);
    assert_true(c.n_runs == 2 && c.n_points == 9); /* as far as all of them go */
    assert_true(fabs(c.mean[4] - 0.15) < 1e-12 && fabs(c.se[4] - 0.05) < 1e-12 && c.x[4] == 40.0);
    hdo_curve_clear(&c);
    assert_int_equal(hdo_curve_difference(&c, dir, in_folder("two"), "step", "val/loss_mean", NULL),
                     HDO_OK); /* seed 1 */
    hdo_curve_clear(&c);
    fake_run("other/seed-9", 9, 11, 1.0, 0.0, "completed");
    assert_int_equal(hdo_curve_difference(&c, dir, in_folder("other"), "step", "val/loss_mean", NULL), HDO_E_DATA);
}

static void test_report_figure_files(void **state) {
    (void)state;
    double x[] = {0, 1, 2}, y[] = {1.0, 0.5, 50.0}, z[] = {0, 0, 0};
    hdo_curve c = {.label = "it's, \"quoted\"", .n_runs = 2, .n_points = 3, .x = x, .mean = y, .se = z};
    hdo_figure f = {.title = "a, b", .x_label = hdo_axis_label("step"), .y_label = "loss", .curves = &c, .n_curves = 1};
    f.y_max = hdo_figure_clip(&c, 1);
    assert_true(f.y_max > 1.0 && f.y_max < 50.0);
    double rising[] = {0.1, 0.5, 0.9};
    hdo_curve acc = {.n_runs = 1, .n_points = 3, .x = x, .mean = rising, .se = z};
    assert_true(hdo_figure_clip(&acc, 1) == 0.0);
    assert_string_equal(hdo_axis_label("no/such"), "no/such");
    assert_int_equal(hdo_figure_write(&f, in_folder("figs/f"), HDO_FORMAT_SVG, NULL), HDO_OK);
    char *text;
    size_t len;
    assert_int_equal(hdo__file_read(in_folder("figs/f.gp"), 1 << 20, &text, &len, NULL), HDO_OK);
    assert_non_null(strstr(text, "set yrange [*:1.5]"));
    assert_non_null(strstr(text, "set title \"a, b\""));
    assert_non_null(strstr(text, "title \"it\\047s, \\042quoted\\042\""));
    free(text);
    const char *nx[] = {"0.1", "0.2"}, *ny[] = {"a"};
    double v[] = {1.0, (double)NAN};
    hdo_heatmap h = {.nx = 2, .ny = 1, .x_name = nx, .y_name = ny, .value = v, .value_label = "loss"};
    assert_int_equal(hdo_heatmap_write(&h, in_folder("figs/h"), 0, NULL), HDO_OK);
    assert_int_equal(hdo__file_read(in_folder("figs/h.csv"), 1 << 20, &text, &len, NULL), HDO_OK);
    assert_string_equal(text, ",0.1,0.2\na,1,nan\n");
    free(text);
}

static char *figure_script(const hdo_curve *c, int n, double y_max, char **csv) {
    hdo_figure f = {.x_label = "x", .y_label = "y", .y_max = y_max, .curves = c, .n_curves = n};
    char *text;
    size_t len;
    hdo_error e = {0};
    assert_int_equal(hdo_figure_write(&f, in_folder("figs/d"), HDO_FORMAT_SVG, &e), HDO_OK);
    assert_int_equal(hdo__file_read(in_folder("figs/d.csv"), 1 << 20, csv, &len, NULL), HDO_OK);
    assert_int_equal(hdo__file_read(in_folder("figs/d.gp"), 1 << 20, &text, &len, NULL), HDO_OK);
    return text;
}

/* A run that diverged is drawn as far as it went and ends in a cross; the key says how many. */
static void test_report_figure_of_diverged_runs(void **state) {
    (void)state;
    hdo_curve c[2];
    char *csv, *text;
    fake_run("lost/seed-0", 0, 11, 1.0, -0.001, "completed");
    fake_run("lost/seed-1", 1, 11, 1.1, -0.001, "completed");
    fake_run("lost/seed-2", 2, 4, 1.0, 0.1, "diverged"); /* 1, 2, 3, 4 */
    fake_run("gone/seed-0", 0, 1, (double)NAN, 0.0, "diverged");
    assert_int_equal(hdo_curve_load(&c[0], in_folder("lost"), "step", "val/loss_mean", NULL), HDO_OK);
    assert_true(c[0].n_runs == 2 && c[0].n_diverged == 1 && c[0].n_points == 11);
    assert_true(fabs(hdo_figure_clip(c, 1) - 1.575) < 1e-12); /* 1.5 times the highest start: the lost run counts */
    text = figure_script(c, 1, 1.5, &csv);
    assert_non_null(strstr(text, "title \"lost (1 of 3 seeds diverged)\""));
    assert_non_null(strstr(text, "index 2 skip 1 using 1:2 with points pt 2"));
    assert_non_null(strstr(csv, "30,4,nan,nan,nan,1,\"lost (seed 2, diverged)\"\n"));
    assert_non_null(strstr(csv, "\n5,1.5,nan,nan,nan,1,\"lost (seed 2, diverged)\"\n")); /* leaves the figure there */
    free(csv);
    free(text);
    assert_int_equal(hdo_curve_load(&c[1], in_folder("lost/seed-2"), "step", "val/loss_mean", NULL), HDO_OK);
    assert_true(c[1].n_runs == 0 && c[1].n_points == 0 && c[1].n_diverged == 1);
    text = figure_script(c, 2, 0.0, &csv);
    assert_non_null(strstr(text, "title \"seed-2 (diverged)\""));
    free(csv);
    free(text);
    hdo_curve_clear(&c[1]);
    assert_int_equal(hdo_curve_load(&c[1], in_folder("gone"), "step", "val/loss_mean", NULL), HDO_OK);
    text = figure_script(c, 2, 0.0, &csv); /* no point at all: still in the key */
    assert_non_null(strstr(text, "title \"gone (diverged)\""));
    free(csv);
    free(text);
    text = figure_script(&c[1], 1, 0.0, &csv); /* and nothing else in the figure */
    assert_non_null(strstr(text, "no finite value to draw"));
    free(csv);
    free(text);
    hdo_curve_clear(&c[0]);
    hdo_curve_clear(&c[1]);
    char dir[256];
    snprintf(dir, sizeof dir, "%s", in_folder("lost"));
    assert_int_equal(hdo_curve_difference(&c[0], dir, in_folder("lost"), "step", "val/loss_mean", NULL), HDO_OK);
    assert_true(c[0].n_runs == 2 && c[0].n_diverged == 1 && c[0].n_points == 11);
    hdo_curve_clear(&c[0]);
}

static void test_report_heatmap_of_diverged_cells(void **state) {
    (void)state;
    const char *nx[] = {"0.1", "it's"}, *ny[] = {"a_b", "`c`"};
    double v[] = {1.0, (double)NAN, 2.0, 3.0}, all[] = {(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    hdo_heatmap h = {.nx = 2, .ny = 2, .x_name = nx, .y_name = ny, .value = v, .value_label = "loss"};
    char *text;
    size_t len;
    assert_int_equal(hdo_heatmap_write(&h, in_folder("figs/m"), HDO_FORMAT_SVG, NULL), HDO_OK);
    assert_int_equal(hdo__file_read(in_folder("figs/m.gp"), 1 << 20, &text, &len, NULL), HDO_OK);
    assert_non_null(strstr(text, "$diverged << END\n1,0,nan\nEND"));
    assert_null(strstr(text, "`c`"));
    free(text);
    assert_int_equal(hdo__file_read(in_folder("figs/m.svg"), 1 << 20, &text, &len, NULL), HDO_OK);
    assert_non_null(strstr(text, ">diverged<"));
    assert_non_null(strstr(text, ">`c`<"));
    free(text);
    h.value = all;
    assert_int_equal(hdo_heatmap_write(&h, in_folder("figs/m"), HDO_FORMAT_SVG, NULL), HDO_OK);
}

static void test_report_page_is_self_contained(void **state) {
    (void)state;
    char dir[256], *text;
    size_t len;
    fake_run("page/seed-0", 0, 11, 2.0, -0.01, "completed");
    fake_run("page/seed-1", 1, 11, 2.1, -0.01, "completed");
    snprintf(dir, sizeof dir, "%s", in_folder("page"));
    const char *dirs[] = {dir};
    assert_int_equal(hdo_report_write(dirs, 1, "a < b & c", "step", in_folder("page.html"), NULL), HDO_OK);
    assert_int_equal(hdo__file_read(in_folder("page.html"), 1 << 24, &text, &len, NULL), HDO_OK);
    assert_non_null(strstr(text, "<title>a &lt; b &amp; c</title>"));
    assert_non_null(strstr(text, "1.0500"));
    assert_null(strstr(text, "src="));
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "<link"));
    free(text);
    const char *none[] = {"/nonexistent"};
    assert_int_equal(hdo_report_write(none, 1, "x", "step", in_folder("no.html"), NULL), HDO_E_DATA);
}

static void test_report_sweep_points(void **state) {
    (void)state;
    hdo_sweep_axis a[2];
    hdo_sweep *s, *more;
    hdo_error e = {0};
    assert_int_equal(hdo_sweep_axis_parse("population.fo.lr=0.1,0.2,0.3", &a[0], &e), HDO_OK);
    assert_int_equal(hdo_sweep_axis_parse("population.zo.rv=8,64", &a[1], &e), HDO_OK);
    assert_int_equal(hdo_sweep_create(&s, a, 2, 0, 1, &e), HDO_OK);
    assert_int_equal(s->n_points, 6);
    assert_string_equal(s->value[0][0], "0.1");
    assert_string_equal(s->value[5][0], "0.3");
    assert_string_equal(s->value[5][1], "64");
    hdo_config *c = malloc(sizeof *c);
    hdo_config_default(c);
    assert_int_equal(hdo_sweep_apply(s, 5, c, &e), HDO_OK);
    assert_true(c->population[0].lr.arg == 0.3 && c->population[1].rv == 64);
    const double score[] = {3.0, (double)NAN, 1.0, 2.0, 9.0, 0.5};
    memcpy(s->score, score, sizeof score);
    for (int k = 0; k < 6; k++) s->steps[k] = k == 4 ? 100 : 30; /* point 4 got further */
    int order[6];
    hdo_sweep_order(s, false, order);
    const int want[] = {4, 5, 2, 3, 0, 1};
    assert_memory_equal(order, want, sizeof want);
    hdo_sweep_destroy(s);
    assert_int_equal(hdo_sweep_axis_parse("population.fo.lr=0.001:0.1:log", &a[0], &e), HDO_OK);
    assert_int_equal(hdo_sweep_axis_parse("population.zo.rv=1:100", &a[1], &e), HDO_OK);
    assert_true(a[1].whole && !a[0].whole && a[0].log);
    assert_int_equal(hdo_sweep_create(&s, a, 2, 0, 1, &e), HDO_E_CONFIG); /* an interval has no grid */
    assert_int_equal(hdo_sweep_create(&s, a, 2, 50, 1, &e), HDO_OK);
    assert_int_equal(hdo_sweep_create(&more, a, 2, 60, 1, &e), HDO_OK);
    int low = 0;
    for (int k = 0; k < 50; k++) {
        double lr = atof(s->value[k][0]);
        assert_true(lr >= 0.001 && lr <= 0.1);
        assert_int_equal(hdo_sweep_apply(s, k, c, &e), HDO_OK);
        assert_string_equal(s->value[k][0], more->value[k][0]);
        low += lr < 0.01;
    }
    assert_in_range(low, 14, 36); /* even in the logarithm: half of them; four standard deviations */
    hdo_sweep_destroy(s);
    hdo_sweep_destroy(more);
    free(c);
    static const char *const bad[] = {"lr", "=1", "lr=", "lr=1,,2", "lr=2:1", "lr=0:1:log", "lr=1:2:cube", "lr=a:b"};
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        assert_int_equal(hdo_sweep_axis_parse(bad[k], &a[0], &e), HDO_E_CONFIG);
}

static void test_report_sweep_rungs(void **state) {
    (void)state;
    hdo_sweep_rung r[HDO_SWEEP_RUNGS];
    assert_int_equal(hdo_sweep_rungs(27, 900, 10, r), 4);
    assert_true(r[0].until == 33 && r[1].until == 100 && r[2].until == 300 && r[3].until == 900);
    assert_true(r[0].keep == 27 && r[1].keep == 9 && r[2].keep == 3 && r[3].keep == 1);
    assert_int_equal(hdo_sweep_rungs(2, 900, 10, r), 1);
    assert_int_equal(hdo_sweep_rungs(100, 20, 10, r), 1);
    assert_true(r[0].until == 20 && r[0].keep == 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report_student_known_values),
        cmocka_unit_test(test_report_difference_paired_and_welch),
        cmocka_unit_test(test_report_bundle_and_curve),
        cmocka_unit_test(test_report_compare_at_equal_bytes),
        cmocka_unit_test(test_report_curve_difference),
        cmocka_unit_test(test_report_figure_files),
        cmocka_unit_test(test_report_figure_of_diverged_runs),
        cmocka_unit_test(test_report_heatmap_of_diverged_cells),
        cmocka_unit_test(test_report_page_is_self_contained),
        cmocka_unit_test(test_report_sweep_points),
        cmocka_unit_test(test_report_sweep_rungs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
