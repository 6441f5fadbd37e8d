/* SPDX-License-Identifier: Apache-2.0 — objectives and data of one's own: refused, run, failing, batched, resumed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "folder_help.h"
#include "hdo/hdo.h"

/* ---- a quadratic of one's own: f(x) = sum_j h_j x_j^2 / 2 with h from 1 down to 0.1, start at 1 ---- */

enum { D = 12 };

typedef struct counter { /* what the callbacks saw */
    pthread_mutex_t lock;
    int64_t calls, points, most; /* of losses: calls, points in all, most points at once */
    int inside, together;        /* callbacks at work now, most at once */
    int64_t fail_step, fail_node;
    int fail; /* what to return there */
    int destroyed;
} counter;

static void enter(counter *c, int64_t points) {
    pthread_mutex_lock(&c->lock);
    c->calls++;
    c->points += points;
    if (points > c->most) c->most = points;
    if (++c->inside > c->together) c->together = c->inside;
    pthread_mutex_unlock(&c->lock);
}

static int leave(counter *c, hdo_call *call) {
    pthread_mutex_lock(&c->lock);
    c->inside--;
    bool here = c->fail != 0 && call->node == c->fail_node && call->step == c->fail_step;
    pthread_mutex_unlock(&c->lock);
    if (!here) return 0;
    snprintf(call->message, call->message_cap, "the furnace of node %lld is cold", (long long)call->node);
    return c->fail;
}

static double value(const float *x) {
    double sum = 0.0;
    for (int j = 0; j < D; j++) sum += 0.5 * (1.0 - 0.08 * j) * (double)x[j] * (double)x[j];
    return sum;
}

static int q_start(void *user, hdo_call *call, float *x) {
    (void)user, (void)call;
    for (int j = 0; j < D; j++) x[j] = 1.0f;
    return 0;
}

static int q_loss(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss) {
    (void)s;
    enter(user, 1);
    *loss = value(x);
    return leave(user, call);
}

static int q_losses(void *user, hdo_call *call, const hdo_samples *s, const float *points, size_t stride, int count,
                    double *loss) {
    (void)s;
    enter(user, count);
    for (int k = 0; k < count; k++) loss[k] = value(points + (size_t)k * stride);
    return leave(user, call);
}

static int q_gradient(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss, float *g) {
    (void)s;
    enter(user, 1);
    *loss = value(x);
    for (int j = 0; j < D; j++) g[j] = (float)(1.0 - 0.08 * j) * x[j];
    return leave(user, call);
}

static int q_slopes(void *user, hdo_call *call, const hdo_samples *s, const float *x, const float *u, size_t stride,
                    int count, double *loss, double *slope) {
    (void)s;
    enter(user, count);
    *loss = value(x);
    for (int k = 0; k < count; k++) {
        slope[k] = 0.0;
        for (int j = 0; j < D; j++)
            slope[k] += (1.0 - 0.08 * j) * (double)x[j] * (double)u[(size_t)k * stride + (size_t)j];
    }
    return leave(user, call);
}

static void q_destroy(void *user) {
    ((counter *)user)->destroyed++;
}

static hdo_objective_def full(void) {
    return (hdo_objective_def){.struct_size = sizeof(hdo_objective_def),
                               .name = "furnace",
                               .identity = "furnace 1",
                               .flags = HDO_ANY_THREAD,
                               .dim = D,
                               .start = q_start,
                               .loss = q_loss,
                               .losses = q_losses,
                               .gradient = q_gradient,
                               .slopes = q_slopes};
}

static counter fresh(void) {
    return (counter){.lock = PTHREAD_MUTEX_INITIALIZER, .fail_step = -2, .fail_node = -2};
}

static hdo_config *config(const hdo_objective_def *d, counter *c, const char *yaml) {
    hdo_error e = {0};
    hdo_config *k = hdo_config_new(NULL, &e);
    assert_non_null(k);
    if (hdo_config_load_text(k, yaml, &e) != HDO_OK) fail_msg("%s", e.msg);
    if (d != NULL && hdo_config_use_objective(k, d, c, &e) != HDO_OK) fail_msg("%s", e.msg);
    return k;
}

static const char hybrid[] = "steps: 40\neval: {every: 10}\npopulation:\n"
                             "  fo: {count: 3, estimator: fo, lr: 0.1}\n"
                             "  zo: {count: 3, estimator: fd, rv: 8, nu: 1.0e-3, lr: 0.05}\n"
                             "  fw: {count: 2, estimator: forward, rv: 4, lr: 0.05}\n";
static const char zo_only[] = "steps: 40\neval: {every: 10}\npopulation:\n"
                              "  zo: {count: 4, estimator: fd, rv: 300, nu: 1.0e-3, lr: 0.02}\n";

static hdo_run *begin(const hdo_config *k) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    if (hdo_run_new(&r, k, &e) != HDO_OK) fail_msg("%s", e.msg);
    return r;
}

static hdo_stop finish(hdo_run *r) {
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    while (why == HDO_RUNNING)
        if (hdo_run_advance(r, 7, &why, &e) != HDO_OK) fail_msg("%s", e.msg);
    return why;
}

static double last(const hdo_run *r, const char *column) {
    return hdo_row_value(hdo_run_last_row(r), column);
}

/* ---- it runs ---- */

static void runs_hybrid(void **state) {
    (void)state;
    counter c = fresh();
    hdo_objective_def d = full();
    d.destroy = q_destroy;
    hdo_config *k = config(&d, &c, hybrid);
    char one[65], other[65];
    for (int threads = 1; threads <= 2; threads++) {
        hdo_error e = {0};
        assert_int_equal(hdo_config_set(k, "threads", threads == 1 ? "1" : "2", &e), HDO_OK);
        hdo_run *r = begin(k);
        assert_int_equal(finish(r), HDO_COMPLETED);
        assert_true(last(r, "val/loss_mean") < 0.2 * hdo_row_value(hdo_run_row(r, 0), "val/loss_mean"));
        assert_true(last(r, "oracle/failed") == 0.0);
        assert_int_equal(hdo_run_dim(r), D);
        hdo_run_fingerprint(r, threads == 1 ? one : other);
        hdo_run_free(r);
    }
    assert_string_equal(one, other);
    assert_int_equal(c.destroyed, 0);
    hdo_config *copy = hdo_config_copy(k);
    hdo_config_free(k);
    assert_int_equal(c.destroyed, 0);
    hdo_run *r = begin(copy);
    hdo_config_free(copy);
    assert_int_equal(c.destroyed, 0); /* the run holds it */
    hdo_run_free(r);
    assert_int_equal(c.destroyed, 1);
}

/* rv = 300 random vectors: a call for 256 and one for 44, and the one at x. */
static void batches_points(void **state) {
    (void)state;
    counter c = fresh();
    hdo_objective_def d = full();
    d.gradient = NULL;
    d.slopes = NULL;
    hdo_config *k = config(&d, &c, zo_only);
    hdo_error e = {0};
    hdo_config_set(k, "threads", "1", &e);
    hdo_run *r = begin(k);
    hdo_stop why;
    assert_int_equal(hdo_run_advance(r, 0, &why, &e), HDO_OK);
    c.calls = c.points = 0;
    assert_int_equal(hdo_run_advance(r, 1, &why, &e), HDO_OK);
    assert_int_equal(c.points, 4 * 301);
    assert_int_equal(c.calls, 4 * 3);
    assert_int_equal(c.most, 256);
    hdo_run_free(r);
    hdo_config_free(k);
}

/* loss alone, losses alone and both: the same bits. */
static void any_subset(void **state) {
    (void)state;
    char hex[3][65];
    for (int i = 0; i < 3; i++) {
        counter c = fresh();
        hdo_objective_def d = full();
        d.gradient = NULL;
        d.slopes = NULL;
        if (i == 0) d.losses = NULL;
        if (i == 1) d.loss = NULL;
        hdo_config *k = config(&d, &c, zo_only);
        hdo_run *r = begin(k);
        finish(r);
        hdo_run_fingerprint(r, hex[i]);
        hdo_run_free(r);
        hdo_config_free(k);
    }
    assert_string_equal(hex[0], hex[1]);
    assert_string_equal(hex[0], hex[2]);
}

/* Without HDO_ANY_THREAD callbacks take turns. */
static void takes_turns(void **state) {
    (void)state;
    counter c = fresh();
    hdo_objective_def d = full();
    d.flags = 0;
    hdo_config *k = config(&d, &c, hybrid);
    hdo_error e = {0};
    hdo_config_set(k, "threads", "4", &e);
    hdo_run *r = begin(k);
    finish(r);
    assert_int_equal(c.together, 1);
    hdo_run_free(r);
    hdo_config_free(k);
}

/* ---- it fails ---- */

static void a_step_is_left_out(void **state) {
    (void)state;
    counter c = fresh();
    hdo_objective_def d = full();
    hdo_config *k = config(&d, &c, hybrid);
    c.fail = 3;
    c.fail_node = 1;
    c.fail_step = 5;
    hdo_run *r = begin(k);
    assert_int_equal(finish(r), HDO_COMPLETED);
    assert_true(last(r, "oracle/failed") == 1.0);
    assert_true(isfinite(last(r, "train/loss")));
    char *s = hdo_run_summary(r);
    assert_non_null(strstr(s, "\"failed\": 1"));
    hdo_free(s);
    hdo_run_free(r);
    hdo_config_free(k);
}

static void the_sentence_is_never_lost(void **state) {
    (void)state;
    static const char *const threads[] = {"1", "2", "4"};
    for (int i = 0; i < 3; i++) {
        for (int64_t node = 0; node < 8; node += 3) { /* fo, zo, fw */
            counter c = fresh();
            hdo_error e = {0};
            hdo_objective_def d = full();
            hdo_config *k = config(&d, &c, hybrid);
            hdo_config_set(k, "threads", threads[i], &e);
            c.fail = -7;
            c.fail_node = node;
            c.fail_step = 5;
            hdo_run *r = begin(k);
            hdo_stop why = HDO_RUNNING;
            char want[128];
            snprintf(want, sizeof want, "furnace: the furnace of node %lld is cold", (long long)node);
            assert_int_equal(hdo_run_advance(r, 100, &why, &e), HDO_E_OBJECTIVE);
            assert_string_equal(e.msg, want);
            memset(&e, 0, sizeof e);
            assert_int_equal(hdo_run_advance(r, 100, &why, &e), HDO_E_OBJECTIVE); /* it stays failed */
            assert_string_equal(e.msg, want);
            hdo_run_free(r);
            hdo_config_free(k);
        }
    }
}

/* In an evaluation: above 0 nothing is known and the run goes on, below 0 it ends. */
static void fails_in_an_evaluation(void **state) {
    (void)state;
    for (int result = -1; result <= 1; result += 2) {
        counter c = fresh();
        hdo_error e = {0};
        hdo_objective_def d = full();
        hdo_config *k = config(&d, &c, hybrid);
        c.fail = result;
        c.fail_node = -1;
        c.fail_step = -1;
        hdo_run *r = begin(k);
        hdo_stop why = HDO_RUNNING;
        hdo_status st = hdo_run_advance(r, 1000, &why, &e);
        assert_int_equal(st, result < 0 ? HDO_E_OBJECTIVE : HDO_OK);
        if (result < 0) assert_string_equal(e.msg, "furnace: the furnace of node -1 is cold");
        if (result > 0) assert_int_equal(why, HDO_COMPLETED);
        if (result > 0) assert_true(isnan(last(r, "val/loss_mean")));
        hdo_run_free(r);
        hdo_config_free(k);
    }
}

static int no_start(void *user, hdo_call *call, float *x) {
    (void)user, (void)x;
    snprintf(call->message, call->message_cap, "no start\nwithout a sensor");
    return 1;
}

static void fails_at_the_start(void **state) {
    (void)state;
    counter c = fresh();
    hdo_error e = {0};
    hdo_objective_def d = full();
    d.start = no_start;
    hdo_config *k = config(&d, &c, hybrid);
    hdo_run *r = NULL;
    assert_int_equal(hdo_run_new(&r, k, &e), HDO_E_OBJECTIVE);
    assert_string_equal(e.msg, "furnace: no start without a sensor"); /* one line, whatever it wrote */
    assert_null(r);
    hdo_config_free(k);
}

/* ---- it is refused ---- */

static void estimators_need_oracles(void **state) {
    (void)state;
    counter c = fresh();
    hdo_error e = {0};
    hdo_objective_def d = full();
    d.gradient = NULL;
    hdo_config *k = config(&d, &c, hybrid);
    hdo_run *r = NULL;
    assert_int_equal(hdo_run_new(&r, k, &e), HDO_E_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "class 'fo': estimator 'fo' needs a gradient"));
    assert_non_null(strstr(e.msg, "'furnace'"));
    hdo_config_free(k);
    d.slopes = NULL;
    k = config(&d, &c, "population:\n  fw: {count: 2, estimator: forward, lr: 0.1}\n");
    assert_int_equal(hdo_run_new(&r, k, &e), HDO_E_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "forward-mode"));
    hdo_config_free(k);
}

static void refuse(hdo_objective_def d, const char *sentence) {
    hdo_error e = {0};
    hdo_config *k = hdo_config_new(NULL, NULL);
    counter c = fresh();
    d.destroy = q_destroy;
    hdo_status st = hdo_config_use_objective(k, &d, &c, &e);
    assert_true(st == HDO_E_MISUSE || st == HDO_E_UNSUPPORTED);
    if (strstr(e.msg, sentence) == NULL) fail_msg("'%s' is not in '%s'", sentence, e.msg);
    assert_int_equal(c.destroyed, 0);
    assert_int_equal(hdo_config_check(k, &e), HDO_OK); /* untouched */
    hdo_config_free(k);
}

static void tables_without_sense(void **state) {
    (void)state;
    hdo_tensor_def t = {"w", 2, {3, 3}};
    hdo_objective_def d;
#define BAD(sentence, ...)                                                                                             \
    d = full();                                                                                                        \
    __VA_ARGS__;                                                                                                       \
    refuse(d, sentence)
    BAD("struct_size 0", d.struct_size = 0);
    BAD("newer version", d.struct_size = sizeof d + 8);
    BAD("no name", d.name = NULL);
    BAD("cannot name", d.name = "Two words");
    BAD("choose another", d.name = "quadratic");
    BAD("dim is 0", d.dim = 0);
    BAD("neither loss nor losses", d.loss = NULL; d.losses = NULL);
    BAD("flags", d.flags = 1024);
    BAD("both gathered and as indices", d.flags = HDO_WANT_DATA | HDO_WANT_INDICES);
    BAD("no metrics", d.flags = HDO_HAS_ACCURACY);
    BAD("HDO_WANT_INDICES", d.train_count = 5);
    BAD("no list", d.n_tensors = 2);
    BAD("9 numbers, but dim is 12", d.n_tensors = 1; d.tensors = &t);
    /* Of an older version: a shorter table. Members behind it do not exist. */
    counter c = fresh();
    d = full();
    d.struct_size = offsetof(hdo_objective_def, gradient);
    hdo_config *k = config(&d, &c, zo_only);
    hdo_run *r = begin(k);
    finish(r);
    hdo_run_free(r);
    hdo_config_free(k);
}

/* ---- it is stored and resumed ---- */

static void resumed_with_the_same(void **state) {
    (void)state;
    counter c = fresh();
    hdo_error e = {0};
    hdo_objective_def d = full();
    char dir[256], hex[65], again[65];
    snprintf(dir, sizeof dir, "%s/own", folder);
    hdo_config *k = config(&d, &c, hybrid);
    hdo_run *r = begin(k);
    finish(r);
    hdo_run_fingerprint(r, hex);
    hdo_run_free(r);

    r = begin(k);
    hdo_stop why;
    if (hdo_run_open_dir(r, dir, false, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(hdo_run_advance(r, 15, &why, &e), HDO_OK);
    if (hdo_run_save(r, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_run_free(r);

    assert_int_equal(hdo_run_resume(&r, dir, NULL, &e), HDO_E_CONFIG); /* without the table */
    assert_non_null(strstr(e.msg, "furnace"));
    assert_non_null(strstr(e.msg, "not here"));
    d.identity = "furnace 2";
    hdo_config *other = config(&d, &c, hybrid);
    assert_int_equal(hdo_run_resume(&r, dir, other, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "'furnace 1'"));
    assert_non_null(strstr(e.msg, "'furnace 2'"));
    hdo_config_free(other);

    if (hdo_run_resume(&r, dir, k, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(hdo_run_step(r), 15);
    finish(r);
    hdo_run_fingerprint(r, again);
    assert_string_equal(hex, again);
    if (hdo_run_write_summary(r, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_run_free(r);
    hdo_config_free(k);
}

/* ---- settings that have no meaning for it ---- */

static void settings_without_effect(void **state) {
    (void)state;
    counter c = fresh();
    hdo_error e = {0};
    hdo_objective_def d = full();
    hdo_config *k = config(&d, &c, hybrid);
    assert_int_equal(hdo_config_set(k, "data.split", "shared", &e), HDO_OK);
    assert_int_equal(hdo_config_check(k, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "data.split is 'shared', but has no effect"));
    hdo_config_free(k);
    k = config(NULL, NULL, hybrid);
    assert_int_equal(hdo_config_set(k, "model.identity", "x", &e), HDO_OK);
    assert_int_equal(hdo_config_check(k, &e), HDO_E_CONFIG);
    hdo_config_free(k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_hybrid),
        cmocka_unit_test(batches_points),
        cmocka_unit_test(any_subset),
        cmocka_unit_test(takes_turns),
        cmocka_unit_test(a_step_is_left_out),
        cmocka_unit_test(the_sentence_is_never_lost),
        cmocka_unit_test(fails_in_an_evaluation),
        cmocka_unit_test(fails_at_the_start),
        cmocka_unit_test(estimators_need_oracles),
        cmocka_unit_test(tables_without_sense),
        cmocka_unit_test(resumed_with_the_same),
        cmocka_unit_test(settings_without_effect),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
