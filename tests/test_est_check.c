/* SPDX-License-Identifier: Apache-2.0
 *
 * `hdo check` on problems whose answers are known (quadratics) or whose faults were put there (a step in the round-off,
 * a learning rate that must diverge, an estimator the model cannot serve).
 */
/* clang-format off: cmocka wants these before itself */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdo/lab/check.h"
#include "hdo/lab/report.h"

typedef struct lab {
    hdo_config c;
    hdo_check_result r;
    hdo_error e;
} lab;

static lab *make(const char *const (*set)[2], size_t n) {
    lab *l = calloc(1, sizeof *l);
    assert_non_null(l);
    hdo_config_default(&l->c);
    l->c.threads = 1;
    for (size_t i = 0; i < n; i++) {
        if (hdo_config_set_from(&l->c, set[i][0], set[i][1], HDO_FROM_BASE, &l->e) != HDO_OK) fail_msg("%s", l->e.msg);
    }
    return l;
}
#define MAKE(...)                                                                                                      \
    make((const char *const[][2]){__VA_ARGS__},                                                                        \
         sizeof((const char *const[][2]){__VA_ARGS__}) / sizeof(const char *const[2]))

static void run(lab *l, double time_s) {
    hdo_check_options o = hdo_check_default();
    o.time_s = time_s;
    if (hdo_check(&l->c, &o, &l->r, &l->e) != HDO_OK) fail_msg("%s", l->e.msg);
}

static const hdo_check_note *find_note(const lab *l, hdo_check_level level, const char *words) {
    for (int i = 0; i < l->r.n_notes; i++) {
        if (l->r.note[i].level == level && strstr(l->r.note[i].text, words) != NULL) return &l->r.note[i];
    }
    return NULL;
}

static void test_check_quadratic(void **state) {
    (void)state;
    lab *l = MAKE({"model.name", "quadratic"}, {"model.dim", "60"}, {"model.smoothness", "3"},
                  {"model.convexity", "0.3"}, {"population.zo.estimator", "fd-central"}, {"population.zo.rv", "8"});
    run(l, 0.5);
    const hdo_check_result *r = &l->r;
    double exact = 0.0;
    for (int j = 0; j < 60; j++) exact += 3.0 * pow(0.1, (double)j / 59.0);
    print_message("L %.3f (3), trace %.1f +- %.1f (%.1f), df %.1e\n", r->curvature.L, r->curvature.trace,
                  r->curvature.trace_se, exact, r->sweep.df);
    assert_true(r->agreement.ok && r->agreement.jvp_error < 1e-6 && r->agreement.complex_error < 1e-6);
    assert_true(fabs(r->curvature.L - 3.0) < 0.15);
    assert_true(fabs(r->curvature.trace - exact) < 4.0 * r->curvature.trace_se);
    const hdo_check_class *zo = &r->cls[1];
    print_message("variance %.3f +- %.3f (%.3f), cosine %.4f (%.4f), bias %.1e\n", zo->variance, zo->variance_se,
                  zo->variance_theory, zo->cosine, zo->cosine_theory, zo->bias);
    assert_true(fabs(zo->variance - 61.0 / 8.0) < 4.0 * zo->variance_se);
    assert_true(fabs(zo->cosine - zo->cosine_theory) < 0.02);
    assert_true(zo->bias < 1e-5); /* central differences of a quadratic are exact */
    assert_true(zo->forward == 16 && zo->backward == 0 && zo->time_s > 0.0 && zo->memory_bytes > 0);
    assert_true(fabs(r->cls[0].lr_best - 1.0 / 3.0) < 0.02 && r->cls[0].cosine > 0.9999);
    free(l);
}

/* The advice on lr is true: at lr_best a step of a lone node lowers the expected loss of a quadratic, well above lr_max
 * it raises it. E f(x - eta G) from the exact covariance of the forward gradient. */
static void test_check_learning_rate(void **state) {
    (void)state;
    lab *l = MAKE({"model.name", "quadratic"}, {"model.dim", "40"}, {"model.noise", "0"}, {"population.zo.rv", "4"});
    run(l, 0.3);
    const hdo_check_class *zo = &l->r.cls[1];
    double tr = 0.0, g = 1.0; /* start is e_1 times 1, h_1 = L = 1: gHg = |g|^2 = 1, f = 1/2 */
    for (int j = 0; j < 40; j++) tr += pow(0.1, (double)j / 39.0);
    double GHG = g * (1.0 + 1.0 / 4.0) + tr * g / 4.0;
    for (int i = 0; i < 2; i++) {
        double eta = i == 0 ? zo->lr_best : 1.5 * zo->lr_max, change = -eta * g + 0.5 * eta * eta * GHG;
        print_message("lr %.3f: expected change of the loss %+.3f\n", eta, change);
        assert_true(i == 0 ? change < -0.05 : change > 0.05);
    }
    free(l);
}

static void test_check_finds_faults(void **state) {
    (void)state;
    lab *l = MAKE({"model.name", "mlp"}, {"population.zo.estimator", "fd"}, {"population.zo.nu", "1e-8"},
                  {"population.zo.rv", "8"}, {"population.zo.lr", "1000"}, {"population.zo.streams", "shared"});
    run(l, 0.3);
    assert_non_null(find_note(l, HDO_CHECK_PROBLEM, "round-off"));
    assert_non_null(find_note(l, HDO_CHECK_PROBLEM, "lr = 1000"));
    assert_non_null(find_note(l, HDO_CHECK_ADVICE, "same directions"));
    assert_true(l->r.agreement.ok);
    assert_true(l->r.sweep.df > 1e-10 && l->r.sweep.df < 1e-5); /* float32 inside the network */
    assert_true(l->r.sweep.nu_one > 1e-7 && l->r.sweep.nu_one < 1e-1);
    free(l);
    l = MAKE({"population.zo.estimator", "fd"}, {"population.zo.nu", "3"});
    run(l, 0.3);
    assert_non_null(find_note(l, HDO_CHECK_PROBLEM, "curvature"));
    free(l);
    l = MAKE({"population.zo.estimator", "forward"}, {"population.zo.lr", "0.05"});
    run(l, 0.3);
    for (int i = 0; i < l->r.n_notes; i++) assert_true(l->r.note[i].level != HDO_CHECK_PROBLEM);
    free(l);
}

static void test_check_refuses(void **state) {
    (void)state;
    lab *l = MAKE({"model.name", "mlp"}, {"population.zo.estimator", "fd-law"});
    assert_int_equal(hdo_check(&l->c, NULL, &l->r, &l->e), HDO_E_UNSUPPORTED);
    assert_non_null(strstr(l->e.msg, "softmax regression"));
    free(l);
    l = MAKE({"population.zo.estimator", "forward-lw"});
    assert_int_equal(hdo_check(&l->c, NULL, &l->r, &l->e), HDO_E_CONFIG);
    assert_non_null(strstr(l->e.msg, "forward-law"));
    free(l);
}

/* Every estimator that logistic can serve, in one population: measured against theory. */
static void test_check_every_estimator(void **state) {
    (void)state;
    static const char *const names[] = {"fd",           "fd-central",  "fd-coord",    "debiased", "forward",
                                        "complex-step", "forward-sim", "forward-law", "fd-law"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        lab *l = MAKE({"data.features", "10"}, {"data.classes", "3"}, {"population.zo.rv", "4"},
                      {"population.zo.nu", "1e-5"});
        assert_int_equal(hdo_config_set_from(&l->c, "population.zo.estimator", names[i], HDO_FROM_FLAG, &l->e), HDO_OK);
        run(l, 0.15);
        const hdo_check_class *zo = &l->r.cls[1];
        /* fd-coord asks for every coordinate: no chance in it, and no z-score. */
        bool exact = strcmp(names[i], "fd-coord") == 0;
        double z = (zo->variance - zo->variance_theory) / (exact ? 1.0 : zo->variance_se);
        print_message("%-12s variance %.3f, theory %.3f, z %+.2f; cosine %.3f (%.3f); bias %.1e\n", names[i],
                      zo->variance, zo->variance_theory, z, zo->cosine, zo->cosine_theory, zo->bias);
        assert_true(exact ? zo->variance_theory == 0.0 : zo->variance_theory > 1.0 && zo->variance_se > 0.0);
        assert_true(fabs(z) < (exact ? 1e-3 : 4.5));
        assert_true(zo->bias >= 0.0 && zo->bias < 0.15); /* laws have no pair to cancel the noise: 0.05 is seen */
        free(l);
    }
}

/* Seven of eight parameters meet padding only: variance and cosine go by the others. */
static void test_check_counts_what_a_loss_depends_on(void **state) {
    (void)state;
    static const char *const distributions[] = {"gaussian", "sphere", "rademacher"};
    for (int i = 0; i < 6; i++) {
        lab *l = MAKE({"model.name", "custom"},
                      {"model.layers", "conv 40 5 pad 2 stride 2, gelu, conv 30 3 pad 1, linear classes"},
                      {"data.features", "2"}, {"data.classes", "3"}, {"population.zo.rv", "4"},
                      {"population.zo.estimator", "forward-sim"}, {"population.zo.distribution", distributions[i % 3]},
                      {"population.zo.directions", i < 3 ? "whole" : "per-tensor"});
        run(l, 0.3);
        const hdo_check_class *zo = &l->r.cls[1];
        double z = (zo->variance - zo->variance_theory) / zo->variance_se;
        print_message("%s, %s: variance %.1f, theory %.1f, z %+.2f; cosine %.4f (%.4f)\n", distributions[i % 3],
                      i < 3 ? "whole" : "per-tensor", zo->variance, zo->variance_theory, z, zo->cosine,
                      zo->cosine_theory);
        assert_true(l->r.live > 1000 && 7 * l->r.live < l->r.d);
        assert_true(fabs(z) < 4.5);
        assert_true(fabs(zo->cosine / zo->cosine_theory - 1.0) < 0.25);
        free(l);
    }
}

static void test_check_json_and_figure(void **state) {
    (void)state;
    lab *l = MAKE({"model.name", "quadratic"}, {"model.dim", "10"});
    run(l, 0.1);
    char *text = hdo_check_json(&l->r);
    assert_non_null(text);
    json_error_t je;
    json_t *j = json_loads(text, 0, &je);
    assert_non_null(j);
    assert_int_equal(json_integer_value(json_object_get(j, "schema_version")), 1);
    assert_int_equal(json_integer_value(json_object_get(j, "d")), 10);
    assert_int_equal(json_array_size(json_object_get(j, "classes")), 2);
    assert_true(json_is_true(json_object_get(json_object_get(j, "agreement"), "ok")));
    json_t *points = json_object_get(json_object_get(j, "nu_sweep"), "points");
    assert_true(json_array_size(points) > 20);
    const json_t *zo = json_array_get(json_object_get(j, "classes"), 1);
    assert_true(json_real_value(json_object_get(zo, "variance_theory")) > 0.0);
    json_decref(j);
    free(text);
    char base[] = "/tmp/hdo_check_XXXXXX", csv[64];
    assert_true(mkdtemp(base) != NULL);
    char path[64];
    snprintf(path, sizeof path, "%s/nu", base);
    hdo_check_figure(&l->r, path, 0, &l->e); /* without gnuplot it fails after the .csv, which is what we look at */
    snprintf(csv, sizeof csv, "%s/nu.csv", base);
    FILE *f = fopen(csv, "r");
    assert_non_null(f);
    fclose(f);
    unlink(csv);
    snprintf(csv, sizeof csv, "%s/nu.gp", base);
    unlink(csv);
    rmdir(base);
    free(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_quadratic),       cmocka_unit_test(test_check_learning_rate),
        cmocka_unit_test(test_check_finds_faults),    cmocka_unit_test(test_check_refuses),
        cmocka_unit_test(test_check_every_estimator), cmocka_unit_test(test_check_counts_what_a_loss_depends_on),
        cmocka_unit_test(test_check_json_and_figure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
