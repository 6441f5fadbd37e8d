/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that runs out: every single allocation of a small run is denied once. The run must end with a sentence and
 * give everything back, or do without.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_help.h"
#include "folder_help.h"
#include "run_help.h"

/* Everything a run does once; the number of allocations, or 0 when it failed. */
static hdo_status whole_run(const hdo_config *c, const char *dir, hdo_error *e) {
    hdo_run *r = NULL;
    hdo_stop why = HDO_RUNNING;
    char *summary = NULL;
    hdo_status st = hdo_run_create(&r, c, NULL, e);
    if (st != HDO_OK) assert_null(r);
    if (st == HDO_OK) st = hdo_run_attach_dir(r, dir, true, "test", e);
    if (st == HDO_OK) st = hdo_run_keep_rows(r, e);
    while (st == HDO_OK && why == HDO_RUNNING) st = hdo_run_advance(r, 2, &why, e);
    if (st == HDO_OK) st = hdo_run_write_summary(r, e);
    if (st == HDO_OK) summary = hdo_run_summary(r);
    free(summary);
    hdo_run_destroy(r);
    return st;
}

static void deny_each(const char *model, const char *const with[][2], int n) {
    static hdo_config c;
    hdo_error e = {0};
    char dir[64];
    snprintf(dir, sizeof dir, "%s/run", folder);
    base_config(&c, model, "2fo+2zo");
    if (strcmp(model, "quadratic") != 0) {
        set(&c, "data.train", "20");
        set(&c, "data.val", "5");
        set(&c, "kernels", "ref");
    }
    set(&c, "steps", "2");
    set(&c, "threads", "1");
    set(&c, "population.zo.rv", "2");
    for (int k = 0; k < n; k++) set(&c, with[k][0], with[k][1]);
    for (int k = 0; k < 2; k++) { /* the first brings what stays */
        if (whole_run(&c, dir, &e) != HDO_OK) fail_msg("%s", e.msg);
    }
    size_t before = atomic_load(&allocations), denials = 0;
    assert_int_equal(whole_run(&c, dir, &e), HDO_OK);
    size_t calls = atomic_load(&allocations) - before;
    for (size_t k = 1; k <= calls; k++) {
        long long had = atomic_load(&held);
        e = (hdo_error){0};
        atomic_store(&fail_at, atomic_load(&allocations) + k);
        hdo_status st = whole_run(&c, dir, &e);
        atomic_store(&fail_at, 0);
        if (st != HDO_OK) {
            denials++;
            if (e.msg[0] == '\0') fail_msg("%s: allocation %zu of %zu fails without a sentence", model, k, calls);
            if (st != HDO_E_MEMORY) fail_msg("%s: allocation %zu gives '%s'", model, k, e.msg);
        }
        if (atomic_load(&held) != had)
            fail_msg("%s: allocation %zu of %zu: %lld blocks are left", model, k, calls, atomic_load(&held) - had);
    }
    print_message("%s: %zu allocations, %zu of them end the run\n", model, calls, denials);
    assert_true(denials > 20);
}

static void test_memory_runs_out(void **state) {
    (void)state;
    static const char *const quadratic[][2] = {
        {"population.fo.momentum", "0.5"}, {"eval.weighted", "0.1"},          {"churn.leave", "0.1"},
        {"churn.model", "fresh"},          {"population.fo.backward_s", "1"}, {"sink.csv", "true"},
        {"sink.tensorboard", "true"}};
    static const char *const logistic[][2] = {{"mixing.kind", "graph"},         {"mixing.graph", "ring"},
                                              {"mixing.graph_mode", "colour"},  {"mixing.placement", "spread"},
                                              {"data.split", "dirichlet(0.5)"}, {"eval.trace", "true"}};
    static const char *const mlp[][2] = {{"population.zo.estimator", "fd"},
                                         {"mixing.kind", "graph"},
                                         {"mixing.graph", "random-regular(3)"},
                                         {"mixing.placement", "hub"}};
    deny_each("quadratic", quadratic, 7);
    deny_each("logistic", logistic, 6);
    deny_each("mlp", mlp, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_runs_out)};
    return cmocka_run_group_tests_name("memory", tests, make_folder, remove_folder);
}
