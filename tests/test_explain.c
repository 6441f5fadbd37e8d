/* SPDX-License-Identifier: Apache-2.0 — who went first when a run diverged, and what `hdo explain` says of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "folder_help.h"
#include "hdo/lab/explain.h"
#include "hdo/experimental/all.h"
#include "run/run_internal.h"
#include "run_help.h"

/* L = ell = 1, no noise: a node with lr > 2 loses itself, one below is the cure. */
static void problem(hdo_config *c, const char *population) {
    base_config(c, "quadratic", population);
    set(c, "model.dim", "5");
    set(c, "model.convexity", "1");
    set(c, "model.noise", "0");
    set(c, "steps", "400");
    set(c, "eval.every", "10");
    set(c, "population.fo.lr", "0.1");
}

/* Runs it into the folder and returns its "divergence", or NULL; the explanation goes to *text. */
static json_t *story(const hdo_config *c, const char *name, char **text) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    hdo_stop why;
    char dir[256];
    snprintf(dir, sizeof dir, "%s/%s", folder, name);
    if (hdo_run_create(&r, c, NULL, &e) != HDO_OK || hdo_run_attach_dir(r, dir, true, NULL, &e) != HDO_OK ||
        hdo_run_advance(r, INT64_MAX, &why, &e) != HDO_OK || hdo_run_write_summary(r, &e) != HDO_OK)
        fail_msg("%s", e.msg);
    hdo_run_destroy(r);
    char *json = NULL;
    if (hdo_explain(dir, false, false, text, &e) != HDO_OK || hdo_explain(dir, true, false, &json, &e) != HDO_OK)
        fail_msg("%s", e.msg);
    json_t *all = json_loads(json, 0, NULL), *d = json_incref(json_object_get(all, "divergence"));
    assert_non_null(all);
    assert_true(json_array_size(json_object_get(all, "sentences")) >= 3);
    json_decref(all);
    free(json);
    if (strstr(*text, "nan") != NULL) fail_msg("%s", *text);
    return d;
}

static const char *word(const json_t *o, const char *key) {
    return json_string_value(json_object_get(o, key));
}

static void expect(const char *text, const char *part) {
    if (strstr(text, part) == NULL) fail_msg("'%s' does not say '%s'", text, part);
}

static void test_explain_names_the_class_that_is_at_fault(void **state) {
    (void)state;
    static const char *const mixing[] = {"matching", "pairwise", "allreduce", "none"};
    for (int m = 0; m < 4; m++) {
        hdo_config c;
        char *text;
        problem(&c, "12fo+4zo");
        set(&c, "population.zo.lr", "30");
        set(&c, "population.zo.estimator", "fo"); /* its name does not decide */
        set(&c, "mixing", mixing[m]);
        set(&c, "eval.every", "0");
        json_t *d = story(&c, "fault", &text), *f = json_object_get(d, "first");
        assert_true(json_is_object(d));
        assert_string_equal(word(f, "class"), "zo");
        assert_true(json_integer_value(json_object_get(f, "node")) >= 12);
        assert_true(json_number_value(json_object_get(f, "lr")) == 30.0);
        assert_string_equal(word(d, "why"), strcmp(word(d, "why"), "first-step") == 0 ? "first-step" : "rate");
        expect(text, "of class 'zo' went first, in step ");
        expect(text, "lr = 30 of class 'zo'");
        int64_t lost = json_integer_value(json_object_get(json_object_get(d, "lost"), "fo"));
        if (m == 3) { /* without averaging nobody else is lost */
            assert_int_equal(lost, 0);
        } else {
            assert_true(lost > 0);
            expect(text, "averaging handed it on");
        }
        json_decref(d);
        free(text);
    }
}

/* In pairwise time a node that took a lost model may step before the one it took it from: still the other went first.
 */
static void test_explain_sees_through_averaging(void **state) {
    (void)state;
    int infected = 0;
    for (int seed = 0; seed < 30; seed++) {
        hdo_config c;
        char text_seed[16], *text;
        problem(&c, "7fo+1zo");
        snprintf(text_seed, sizeof text_seed, "%d", seed);
        set(&c, "seed", text_seed);
        set(&c, "population.zo.estimator", "fo");
        set(&c, "population.zo.lr", "1000");
        set(&c, "mixing", "pairwise");
        json_t *d = story(&c, "pairs", &text);
        assert_string_equal(word(json_object_get(d, "first"), "class"), "zo");
        if (json_is_true(json_object_get(d, "by_averaging"))) {
            infected++;
            assert_string_equal(word(d, "class"), "fo");
            expect(text, "did not lose itself: it took the model by averaging with node 7");
        }
        json_decref(d);
        free(text);
    }
    assert_true(infected > 0 && infected < 30);
}

/* A node that crosses the limit and comes back is forgotten: a run is explained by what ended it. */
static void test_explain_forgets_who_recovered(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    hdo_run *r = NULL;
    problem(&c, "2fo");
    set(&c, "eval.every", "1");
    if (hdo_run_create(&r, &c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(hdo_run_advance(r, 1, NULL, &e), HDO_OK);
    r->population.models.X[0] = 1e3f; /* a blow from outside, healed by hand before it is evaluated */
    set(&r->config, "eval.every", "0");
    assert_int_equal(hdo_run_advance(r, 1, NULL, &e), HDO_OK);
    assert_int_equal(r->record.fate.what, HDO_FATE_LOSS);
    r->population.models.X[0] = r->population.models.X[r->population.models.ld] = 0.0f;
    set(&r->config, "eval.every", "1");
    assert_int_equal(hdo_run_advance(r, 1, NULL, &e), HDO_OK);
    assert_int_equal(r->record.fate.what, HDO_FATE_NONE);
    hdo_run_destroy(r);
}

/* A rank of an asynchronous run looks at its own nodes alone; at the end the ranks put together what they saw. */
static void test_explain_own_nodes(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    hdo_run *r = NULL;
    problem(&c, "2fo+2zo");
    if (hdo_run_create(&r, &c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(hdo_run_advance(r, 1, NULL, &e), HDO_OK);
    hdo_population *p = &r->population;
    hdo_fate *f = &r->record.fate;
    const hdo_pair pair = {2, 3};
    hdo_plan plan = {.pairs = &pair, .n_pairs = 1, .all_step = true}, nobody = {.all_step = true};
    memset(r->record.trail, 0, 4 * sizeof *r->record.trail);
    double limit = hdo__record_loss_limit(&r->record);
    p->n_active = 2; /* the nodes 2 and 3 are here */
    p->active[0] = 2;
    p->active[1] = 3;
    p->result[2] = (hdo_node_result){.loss = 1.0, .g2 = 1.0};
    p->result[3] = (hdo_node_result){.loss = 1.0, .g2 = 1e12};
    p->result[0].loss = 2.0 * limit; /* elsewhere: none of its business */
    r->progress.step = 5;
    assert_false(hdo__fate_own(&r->record, &plan));
    assert_int_equal(f->what, HDO_FATE_NONE);
    assert_int_equal(r->record.trail[2].met, 3);
    assert_int_equal(r->record.trail[3].steps, 6);
    assert_true(r->record.trail[3].g == 1e6);
    r->progress.step = 6;
    p->result[2].loss = 2.0 * limit; /* after averaging with 3, whose step was a million times as long */
    assert_true(hdo__fate_own(&r->record, &nobody));
    assert_int_equal(f->what, HDO_FATE_LOSS);
    assert_true(f->node == 2 && f->first == 3 && f->step == 6 && f->loss == 2.0 * limit);
    assert_int_equal(f->step_of_first.steps, 6);
    r->progress.step = 7;
    p->result[3].loss = 3.0 * limit; /* no longer news */
    assert_false(hdo__fate_own(&r->record, &nobody));
    assert_true(f->node == 2 && f->step == 6);
    hdo_trail kept = r->record.trail[3];
    assert_int_equal(hdo__fate_join(&r->record, &e), HDO_OK);
    assert_true(f->node == 2 && f->first == 3 && f->what == HDO_FATE_LOSS);
    assert_true(r->record.trail[3].steps == kept.steps && r->record.trail[3].g == kept.g);
    p->result[2].loss = p->result[3].loss = 1.0; /* they came back */
    assert_false(hdo__fate_own(&r->record, &nobody));
    assert_int_equal(f->what, HDO_FATE_NONE);
    r->progress.step = 9;
    p->result[3].g2 = (double)INFINITY; /* the estimate of this very step */
    assert_true(hdo__fate_own(&r->record, &nobody));
    assert_true(f->what == HDO_FATE_ESTIMATE && f->first == 3 && f->step_of_first.steps == 10);
    hdo_run_destroy(r);
}

/* Where only the evaluation shows it: the worst node is named, and the lost ones of every class are counted. */
static void test_explain_by_validation_alone(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    hdo_run *r = NULL;
    problem(&c, "2fo+3zo");
    if (hdo_run_create(&r, &c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(hdo_run_advance(r, 1, NULL, &e), HDO_OK);
    hdo_fate *f = &r->record.fate;
    double limit = hdo__record_loss_limit(&r->record);
    static const double times[] = {2.0, 0.5, 3.0, 1.0, 2.5}; /* of the limit; the limit itself is not beyond it */
    for (int i = 0; i < 5; i++) r->metrics.all[i].loss = times[i] * limit;
    assert_int_equal(hdo__fate_row(&r->record, &e), HDO_OK); /* the run goes on: nobody to blame yet */
    assert_int_equal(f->what, HDO_FATE_NONE);
    r->progress.stop = HDO_DIVERGED;
    assert_int_equal(hdo__fate_row(&r->record, &e), HDO_OK);
    assert_int_equal(f->what, HDO_FATE_VALIDATION);
    assert_true(f->node == 2 && f->loss == 3.0 * limit);
    assert_true(f->lost[0] == 1 && f->lost[1] == 2);
    r->progress.stop = HDO_RUNNING;
    for (int i = 0; i < 5; i++) r->metrics.all[i].loss = 0.5 * limit;
    assert_int_equal(hdo__fate_row(&r->record, &e), HDO_OK);
    assert_int_equal(f->what, HDO_FATE_NONE);
    assert_true(f->lost[0] == 0 && f->lost[1] == 0);
    r->progress.stop = HDO_DIVERGED;
    r->metrics.all[4].loss = (double)NAN; /* is beyond any limit */
    r->metrics.all[1].loss = 9.0 * limit;
    assert_int_equal(hdo__fate_row(&r->record, &e), HDO_OK);
    assert_true(f->node == 4 && f->lost[0] == 1 && f->lost[1] == 1);
    hdo_run_destroy(r);
}

static void test_explain_a_run_that_completed(void **state) {
    (void)state;
    hdo_config c;
    char *text;
    problem(&c, "4fo+4zo");
    json_t *d = story(&c, "well", &text);
    assert_true(json_is_null(d));
    expect(text, "The run completed after 400 steps.");
    expect(text, "standard deviation");
    expect(text, "mean losses of the classes were: fo ");
    json_decref(d);
    free(text);
}

static void test_explain_refuses_what_is_no_run(void **state) {
    (void)state;
    hdo_error e = {0};
    char *text;
    assert_int_equal(hdo_explain("/nonexistent", false, false, &text, &e), HDO_E_DATA);
    assert_null(text);
    expect(e.msg, "is not a run");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_explain_names_the_class_that_is_at_fault),
        cmocka_unit_test(test_explain_sees_through_averaging),
        cmocka_unit_test(test_explain_forgets_who_recovered),
        cmocka_unit_test(test_explain_own_nodes),
        cmocka_unit_test(test_explain_by_validation_alone),
        cmocka_unit_test(test_explain_a_run_that_completed),
        cmocka_unit_test(test_explain_refuses_what_is_no_run),
    };
    return cmocka_run_group_tests_name("explain", tests, make_folder, remove_folder);
}
