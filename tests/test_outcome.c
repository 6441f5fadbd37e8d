/* SPDX-License-Identifier: Apache-2.0 — figures that are not finite, figures of nodes that rest, and when a run counts
 * as diverged. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "folder_help.h"
#include "hdo/experimental/all.h"
#include "hdo/lab/report.h"
#include "run/run_internal.h"
#include "run_help.h"

/* ---- helpers ---- */

static void quadratic(hdo_config *c, const char *population) {
    base_config(c, "quadratic", population);
    set(c, "model.dim", "5");
}

static hdo_run *make_in(const hdo_config *c, const char *name) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    char dir[256];
    if (hdo_run_create(&r, c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    snprintf(dir, sizeof dir, "%s/%s", folder, name != NULL ? name : "");
    if (name != NULL && hdo_run_attach_dir(r, dir, false, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    return r;
}

static hdo_stop advance(hdo_run *r, int64_t steps) {
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    if (hdo_run_advance(r, steps, &why, &e) != HDO_OK) fail_msg("%s", e.msg);
    return why;
}

static hdo_stop outcome(const hdo_config *c, double *last) {
    hdo_run *r = make_in(c, NULL);
    hdo_stop why = advance(r, INT64_MAX);
    *last = hdo_run_last_row(r)->all.loss_mean;
    hdo_run_destroy(r);
    return why;
}

/* The lines of a file of the folder as JSON values, in an array. */
static json_t *lines_of(const char *name) {
    char path[256], *text;
    size_t len;
    hdo_error e = {0};
    json_t *all = json_array();
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (hdo__file_read(path, 1 << 20, &text, &len, &e) != HDO_OK) fail_msg("%s", e.msg);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *v = json_loads(line, 0, NULL);
        if (v == NULL) fail_msg("%s: this is not JSON: %s", name, line);
        json_object_del(v, "time");
        json_array_append_new(all, v);
    }
    free(text);
    return all;
}

/* ---- not finite ---- */

static void test_outcome_numbers_for_json(void **state) {
    (void)state;
    char buf[HDO_NUMBER_MAX];
    assert_string_equal(hdo_json_number((double)NAN, buf), "null");
    assert_string_equal(hdo_json_number(-(double)NAN, buf), "null");
    assert_string_equal(hdo_json_number((double)INFINITY, buf), "null");
    assert_string_equal(hdo_json_number(-(double)INFINITY, buf), "null");
    assert_string_equal(hdo_json_number(0.1, buf), "0.1");
    assert_true(strtod(hdo_json_number(1.0 / 3.0, buf), NULL) == 1.0 / 3.0);
}

static void test_outcome_trace_says_null(void **state) {
    (void)state;
    hdo_config c;
    quadratic(&c, "2fo");
    set(&c, "population.fo.lr", "1000000");
    set(&c, "steps", "500");
    set(&c, "eval.every", "0");
    set(&c, "eval.trace", "true");
    hdo_run *r = make_in(&c, "trace");
    assert_int_equal(advance(r, INT64_MAX), HDO_DIVERGED);
    hdo_run_destroy(r);
    json_t *rows = lines_of("trace/trace.jsonl"), *last = json_array_get(rows, json_array_size(rows) - 1);
    assert_true(json_is_null(json_object_get(last, "train/loss")) ||
                json_is_null(json_object_get(last, "consensus/mg")));
    json_decref(rows);
}

/* Everybody leaves in the first step: no loss, no estimate. The state file and the rows after a resume know that. */
static void test_outcome_nan_survives_a_checkpoint(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    char dir[256];
    quadratic(&c, "4fo");
    set(&c, "churn.leave", "1");
    set(&c, "churn.back", "0");
    hdo_run *r = make_in(&c, "whole");
    advance(r, INT64_MAX);
    hdo_run_destroy(r);
    r = make_in(&c, "parts");
    advance(r, 10);
    assert_true(isnan(r->progress.train_loss) && isnan(r->progress.mg));
    assert_int_equal(hdo_run_save(r, &e), HDO_OK);
    hdo_run_destroy(r);
    snprintf(dir, sizeof dir, "%s/parts", folder);
    if (hdo_run_resume_how(&r, dir, 0, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_true(isnan(r->progress.train_loss) && isnan(r->progress.mg));
    advance(r, INT64_MAX);
    hdo_run_destroy(r);
    json_t *whole = lines_of("whole/metrics.jsonl"), *parts = lines_of("parts/metrics.jsonl");
    assert_true(json_equal(whole, parts));
    assert_true(json_is_null(json_object_get(json_array_get(parts, 2), "train/loss")));
    json_decref(whole);
    json_decref(parts);
}

/* ---- nodes that rest ---- */

static void test_outcome_mg_is_over_all_nodes(void **state) {
    (void)state;
    enum { NODES = 6 };
    hdo_config c;
    hdo_error e = {0};
    char dir[256];
    double newest[NODES];
    for (int i = 0; i < NODES; i++) newest[i] = -1.0;
    quadratic(&c, "3fo+3zo");
    set(&c, "mixing", "pairwise");
    set(&c, "steps", "60");
    hdo_run *r = make_in(&c, "pairs");
    bool rested = false;
    for (int t = 0; t < 40; t++) {
        advance(r, 1);
        double sum = 0.0, n = 0.0;
        assert_int_equal(r->population.n_active, 2);
        for (int k = 0; k < r->population.n_active; k++)
            newest[r->population.active[k]] = r->population.result[r->population.active[k]].g2;
        for (int i = 0; i < NODES; i++) {
            if (newest[i] < 0.0) continue;
            sum += newest[i];
            n += 1.0;
        }
        assert_true(r->progress.mg == sum / n);
        rested = rested || fabs(r->progress.mg / r->progress.mg_active - 1.0) > 0.1;
    }
    assert_true(rested); /* it is not the mean over the pair */
    assert_int_equal(hdo_run_save(r, &e), HDO_OK);
    advance(r, 1);
    double mg = r->progress.mg;
    hdo_run_destroy(r);
    snprintf(dir, sizeof dir, "%s/pairs", folder);
    if (hdo_run_resume_how(&r, dir, 0, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    advance(r, 1);
    assert_true(r->progress.mg == mg);
    hdo_run_destroy(r);
}

/* ---- crops ---- */

static const hdo_dataset_ops *inner;
static hdo_stream seen;
static void gather_and_note(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in,
                            int32_t *tok, int32_t *label) {
    if (augment != NULL) seen = *augment;
    inner->gather(ds, idx, n, NULL, in, tok, label);
}

/* Noise is measured from pairs of batches in one step: each batch has crops of its own. In a run of one batch a step
 * the crops are those of the step, as they always were. */
static void test_outcome_crops_belong_to_the_batch(void **state) {
    (void)state;
    hdo_config c;
    hdo_config_default(&c);
    c.data.augment = true;
    hdo_run *r = make_in(&c, NULL);
    inner = r->problem.train->ops;
    hdo_dataset_ops noting = *inner;
    noting.gather = gather_and_note;
    r->problem.train->ops = &noting;
    hdo_arena *a = &r->team.arena[0];
    for (r->progress.step = 0; r->progress.step < 3; r->progress.step++) {
        size_t mark = hdo__arena_mark(a);
        hdo__problem_batch(&r->problem, 1, r->population.classes[0].batch, r->progress.step, r->progress.step, a);
        hdo_stream ordinary = hdo__stream((uint64_t)c.seed, HDO_RNG_AUGMENT, 1, (uint64_t)r->progress.step, 0);
        assert_true(seen.seed == ordinary.seed && seen.sub == ordinary.sub);
        assert_true(seen.step == ordinary.step && seen.who == ordinary.who);
        hdo__problem_batch(&r->problem, 1, r->population.classes[0].batch, INT64_C(0xF0000000), r->progress.step, a);
        hdo_stream first = seen;
        hdo__problem_batch(&r->problem, 1, r->population.classes[0].batch, INT64_C(0xF0000001), r->progress.step, a);
        assert_int_not_equal(first.step, seen.step);
        hdo__arena_rewind(a, mark);
    }
    r->problem.train->ops = inner;
    hdo_run_destroy(r);
}

/* ---- diverged ---- */

static void test_outcome_diverged_is_relative_to_the_start(void **state) {
    (void)state;
    hdo_config c;
    double last;
    quadratic(&c, "2fo");
    set(&c, "model.noise", "0");
    set(&c, "population.fo.lr", "2.2"); /* 2 / L is the limit: the error grows by 1.2 a step, the loss by 1.44 */
    set(&c, "steps", "25");
    set(&c, "eval.every", "1");
    assert_int_equal(outcome(&c, &last), HDO_DIVERGED);
    assert_true(last < 200.0);       /* found at some 100 times the start, long before a million */
    set(&c, "stop.diverged", "1e6"); /* a number is a number */
    assert_int_equal(outcome(&c, &last), HDO_COMPLETED);
    set(&c, "stop.diverged", "relative(1000000)");
    assert_int_equal(outcome(&c, &last), HDO_COMPLETED);
}

/* From the optimum noise alone lifts the loss without end in relative terms: that is no divergence. */
static void test_outcome_a_start_at_the_optimum_is_no_trap(void **state) {
    (void)state;
    static const char *const noise[] = {"0", "1", "1000"};
    for (int i = 0; i < 3; i++) {
        hdo_config c;
        double last;
        quadratic(&c, "2fo+2zo");
        set(&c, "model.start", "0");
        set(&c, "model.noise", noise[i]);
        set(&c, "population.zo.estimator", "fd");
        set(&c, "steps", "300");
        assert_int_equal(outcome(&c, &last), HDO_COMPLETED);
        set(&c, "population.fo.lr", "3");
        set(&c, "population.zo.lr", "3");
        if (i > 0) assert_int_equal(outcome(&c, &last), HDO_DIVERGED);
    }
}

static void test_outcome_limit_of_any_start(void **state) {
    (void)state;
    hdo_config c;
    hdo_config_default(&c); /* ten classes: a blind guess costs log 10 */
    hdo_run *r = make_in(&c, NULL);
    double usual = log(10.0);
    static const double start[] = {2.3, 0.001, 0.0, -5.0};
    const double limit[] = {2.3 + 100.0 * usual, 0.001 + 100.0 * usual, 100.0 * usual, -5.0 + 500.0};
    for (int i = 0; i < 4; i++) {
        r->progress.start_loss = start[i];
        assert_true(fabs(hdo__record_loss_limit(&r->record) - limit[i]) < 1e-9);
    }
    r->progress.start_loss = (double)NAN; /* never evaluated: only losses that are not finite count */
    assert_true(isinf(hdo__record_loss_limit(&r->record)));
    hdo_run_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outcome_numbers_for_json),
        cmocka_unit_test(test_outcome_trace_says_null),
        cmocka_unit_test(test_outcome_nan_survives_a_checkpoint),
        cmocka_unit_test(test_outcome_mg_is_over_all_nodes),
        cmocka_unit_test(test_outcome_crops_belong_to_the_batch),
        cmocka_unit_test(test_outcome_diverged_is_relative_to_the_start),
        cmocka_unit_test(test_outcome_a_start_at_the_optimum_is_no_trap),
        cmocka_unit_test(test_outcome_limit_of_any_start),
    };
    return cmocka_run_group_tests_name("outcome", tests, make_folder, remove_folder);
}
