/* SPDX-License-Identifier: Apache-2.0 — the conformance suites find every planted fault, and none where there is none.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "hdo/test.h"

/* f(x) = sum_j (h_j x_j^2 / 2 + cos x_j), which is no quadratic, and every way to get it wrong. */
enum { D = 9, CLASSES = 3 };
enum {
    SOUND,
    GRADIENT_LONG,
    GRADIENT_SIGN,
    GRADIENT_LOSS,
    SLOPES_WRONG,
    LOSSES_BITS,
    LOSSES_STRIDE,
    WRITES_X,
    READS_FAR,
    COUNTS,
    NOT_FINITE,
    SHARES_ROOM,
    METRICS_MEAN,
    START_MOVES,
    FAILS,
    FAULTS
};

static int fault, calls;
static double room[D];

static double term(int j, double x) {
    return 0.5 * (1.0 + 0.3 * j) * x * x + cos(x);
}
static double slope(int j, double x) {
    return (1.0 + 0.3 * j) * x - sin(x);
}

static int start(void *user, hdo_call *call, float *x) {
    (void)user, (void)call;
    for (int j = 0; j < D; j++) x[j] = (float)(0.5 + 0.1 * j + (fault == START_MOVES ? 0.1 * calls : 0.0));
    calls++;
    return 0;
}

static int loss(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *out) {
    double sum = 0.0;
    (void)user, (void)s;
    if (fault == SHARES_ROOM) { /* scratch that threads tread on */
        for (int j = 0; j < D; j++) room[j] = term(j, (double)x[j]);
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
        for (int j = 0; j < D; j++) sum += room[j];
    } else {
        for (int j = 0; j < D; j++) sum += term(j, (double)x[j]);
    }
    *out = sum;
    if (fault == WRITES_X) ((float *)(uintptr_t)x)[2] *= 1.5f;
    if (fault == READS_FAR) *out += 1e-3 * (double)x[D];
    if (fault == COUNTS) *out += 1e-9 * calls++;
    if (fault == NOT_FINITE) *out = sqrt(-1.0 - sum);
    if (fault == FAILS) snprintf(call->message, call->message_cap, "the sensor is off");
    return fault == FAILS ? 1 : 0;
}

static int losses(void *user, hdo_call *call, const hdo_samples *s, const float *points, size_t stride, int count,
                  double *out) {
    for (int k = 0; k < count; k++) {
        loss(user, call, s, points + (size_t)k * (fault == LOSSES_STRIDE ? D : stride), &out[k]);
        if (fault == LOSSES_BITS && count > 2) out[k] *= 1.0 + 1e-15;
    }
    return 0;
}

static int gradient(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *out, float *g) {
    for (int j = 0; j < D; j++) g[j] = (float)((fault == GRADIENT_LONG ? 1.1 : 1.0) * slope(j, (double)x[j]));
    if (fault == GRADIENT_SIGN) g[4] = -g[4];
    int st = loss(user, call, s, x, out);
    if (fault == GRADIENT_LOSS) *out *= 2.0;
    return st;
}

static int slopes(void *user, hdo_call *call, const hdo_samples *s, const float *x, const float *u, size_t stride,
                  int count, double *out, double *slope_out) {
    for (int k = 0; k < count; k++) {
        slope_out[k] = 0.0;
        for (int j = 0; j < D; j++) slope_out[k] += slope(j, (double)x[j]) * (double)u[(size_t)k * stride + (size_t)j];
        if (fault == SLOPES_WRONG) slope_out[k] *= 0.9;
    }
    return loss(user, call, s, x, out);
}

static int metrics(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *sum, int64_t *correct) {
    (void)correct;
    int st = loss(user, call, s, x, sum);
    if (s->count > 0 && fault != METRICS_MEAN) *sum *= s->count;
    return st;
}

static const hdo_objective_def good = {.struct_size = sizeof good,
                                       .name = "wave",
                                       .flags = HDO_ANY_THREAD | HDO_WANT_INDICES,
                                       .dim = D,
                                       .train_count = 20,
                                       .val_count = 5,
                                       .start = start,
                                       .loss = loss,
                                       .losses = losses,
                                       .gradient = gradient,
                                       .slopes = slopes,
                                       .metrics = metrics};

static const char *const finds[FAULTS] = {[GRADIENT_LONG] = "FAILED gradient against differences",
                                          [GRADIENT_SIGN] = "FAILED gradient against differences",
                                          [GRADIENT_LOSS] = "FAILED gradient's loss",
                                          [SLOPES_WRONG] = "FAILED slopes against differences",
                                          [LOSSES_BITS] = "FAILED losses",
                                          [LOSSES_STRIDE] = "FAILED losses",
                                          [WRITES_X] = "FAILED x is const",
                                          [READS_FAR] = "FAILED loss",
                                          [COUNTS] = "FAILED pure",
                                          [NOT_FINITE] = "FAILED loss",
                                          [SHARES_ROOM] = "FAILED threads",
                                          [METRICS_MEAN] = "FAILED metrics",
                                          [START_MOVES] = "FAILED start",
                                          [FAILS] = "the sensor is off"};

static void finds_every_fault(void **state) {
    (void)state;
    for (fault = SOUND; fault < FAULTS; fault++) {
        hdo_error e = {0};
        char *report = NULL;
        calls = 0;
        hdo_status st = hdo_test_objective(&good, NULL, NULL, &report, &e);
        assert_non_null(report);
        if (fault == SOUND && st != HDO_OK) fail_msg("%s\n%s", e.msg, report);
        if (fault != SOUND && (st != HDO_E_FAILED || strstr(report, finds[fault]) == NULL))
            fail_msg("fault %d: '%s' is not in:\n%s", fault, finds[fault], report);
        if (fault != SOUND) assert_non_null(strstr(e.msg, "'wave' does not conform"));
        hdo_free(report);
    }
    fault = SOUND;
}

/* Without data, without most oracles, without a report. */
static void small_tables(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_objective_def d = {.struct_size = sizeof d, .name = "wave", .dim = D, .losses = losses};
    if (hdo_test_objective(&d, NULL, NULL, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(hdo_test_objective(NULL, NULL, NULL, NULL, &e), HDO_E_MISUSE);
    d.dim = 0;
    assert_int_equal(hdo_test_objective(&d, NULL, NULL, NULL, &e), HDO_E_MISUSE);
    assert_int_equal(hdo_test_dataset(NULL, NULL, NULL, &e), HDO_E_MISUSE);
}

/* ---- data ---- */

enum { DATA_SOUND, LABEL_RANGE, LABEL_OTHER, WRITES_ON, POSITION, DATA_COUNTS, DATA_NAN, DATA_FAULTS };

static int gather(void *user, hdo_call *call, int train, int count, const int64_t *index, float *inputs,
                  int32_t *tokens, int32_t *labels) {
    (void)user, (void)call, (void)tokens;
    for (int k = 0; k < count; k++) {
        for (int j = 0; j < 4; j++) inputs[4 * k + j] = (float)(index[k] * 3 + j + 100 * train);
        labels[k] = (int32_t)(index[k] % CLASSES);
        if (fault == POSITION && k > 0) inputs[4 * k] += 1.0f;
        if (fault == DATA_NAN) inputs[4 * k + 1] = NAN;
    }
    if (fault == LABEL_RANGE) labels[0] = CLASSES;
    if (fault == WRITES_ON) inputs[4 * count] = 1.0f;
    if (fault == DATA_COUNTS) inputs[0] += (float)calls++;
    return 0;
}

static int label(void *user, hdo_call *call, int train, int64_t index, int32_t *out) {
    (void)user, (void)call, (void)train;
    *out = (int32_t)((index + (fault == LABEL_OTHER)) % CLASSES);
    return 0;
}

static void finds_faults_of_data(void **state) {
    (void)state;
    static const char *const want[DATA_FAULTS] = {
        "", "FAILED range", "FAILED label", "FAILED rows", "FAILED alone", "FAILED alone", "FAILED range"};
    hdo_dataset_def d = {.struct_size = sizeof d,
                         .name = "numbers",
                         .flags = HDO_ANY_THREAD,
                         .train_count = 40,
                         .val_count = 8,
                         .n_in = 4,
                         .classes = CLASSES,
                         .gather = gather,
                         .label = label};
    for (fault = DATA_SOUND; fault < DATA_FAULTS; fault++) {
        hdo_error e = {0};
        char *report = NULL;
        hdo_status st = hdo_test_dataset(&d, NULL, &report, &e);
        if (fault == DATA_SOUND && st != HDO_OK) fail_msg("%s", e.msg);
        if (fault != DATA_SOUND && (st != HDO_E_FAILED || strstr(report, want[fault]) == NULL))
            fail_msg("fault %d: '%s' is not in:\n%s", fault, want[fault], report);
        hdo_free(report);
    }
    fault = SOUND;
}

/* A library model learns on data of one's own; a bad label ends the run with a sentence. */
static void data_of_ones_own(void **state) {
    (void)state;
    hdo_dataset_def d = {.struct_size = sizeof d,
                         .name = "numbers",
                         .flags = HDO_ANY_THREAD,
                         .train_count = 40,
                         .val_count = 8,
                         .n_in = 4,
                         .classes = CLASSES,
                         .gather = gather};
    for (fault = DATA_SOUND; fault <= LABEL_RANGE; fault++) {
        hdo_error e = {0};
        hdo_run *r = NULL;
        hdo_stop why = HDO_RUNNING;
        hdo_config *c = hdo_config_new(NULL, &e);
        assert_int_equal(hdo_config_load_text(c, "model: logistic\nsteps: 5\ndata: {split: shards(2)}\n", &e), HDO_OK);
        if (hdo_config_use_dataset(c, &d, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
        hdo_status st = hdo_run_new(&r, c, &e);
        if (st == HDO_OK) st = hdo_run_advance(r, 10, &why, &e);
        if (fault == DATA_SOUND && st != HDO_OK) fail_msg("%s", e.msg);
        if (fault == LABEL_RANGE) assert_int_equal(st, HDO_E_OBJECTIVE);
        if (fault == LABEL_RANGE) assert_non_null(strstr(e.msg, "numbers: "));
        hdo_run_free(r);
        hdo_config_free(c);
    }
    fault = SOUND;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_every_fault), cmocka_unit_test(small_tables),
                                       cmocka_unit_test(finds_faults_of_data), cmocka_unit_test(data_of_ones_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
