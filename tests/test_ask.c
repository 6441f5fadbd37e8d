/* SPDX-License-Identifier: Apache-2.0
 *
 * Ask and tell. Told in rounds, in any order, a run has the bits of the same run with callbacks; late, missing,
 * repeated, failed and foolish answers do what <hdo/hdo.h> says.
 */
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder_help.h"
#include "hdo/hdo.h"

enum { D = 6, MAX = 64 };

/* ---- the function, as an answer and as callbacks ---- */

static double value_of(const float *x, float *g) {
    double sum = 0.0;
    for (int j = 0; j < D; j++) {
        double off = (double)x[j] - 0.25 * (j + 1), h = 1.0 + 0.5 * j;
        sum += 0.5 * h * off * off + 0.1 * cos((double)x[j]);
        if (g != NULL) g[j] = (float)(h * off - 0.1 * sin((double)x[j]));
    }
    return sum;
}

static double slope_of(const float *x, const float *u) {
    float g[D];
    double sum = 0.0;
    value_of(x, g);
    for (int j = 0; j < D; j++) sum += (double)g[j] * (double)u[j];
    return sum;
}

static int cb_loss(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss) {
    (void)user, (void)call, (void)s;
    *loss = value_of(x, NULL);
    return 0;
}

static int cb_gradient(void *user, hdo_call *call, const hdo_samples *s, const float *x, double *loss, float *g) {
    (void)user, (void)call, (void)s;
    *loss = value_of(x, g);
    return 0;
}

static int cb_slopes(void *user, hdo_call *call, const hdo_samples *s, const float *x, const float *directions,
                     size_t stride, int count, double *loss, double *slope) {
    (void)user, (void)call, (void)s;
    *loss = value_of(x, NULL);
    for (int k = 0; k < count; k++) slope[k] = slope_of(x, directions + (size_t)k * stride);
    return 0;
}

static int cb_start(void *user, hdo_call *call, float *x) {
    (void)user, (void)call;
    for (int j = 0; j < D; j++) x[j] = 0.5f - 0.1f * (float)j;
    return 0;
}

/* An estimator whose second question depends on the answer to the first. */
static int adaptive(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g) {
    double at_x, ahead;
    float *y = hdo_oracle_scratch(o), *u = y + D;
    (void)user, (void)call;
    int failed = hdo_oracle_loss(o, x, &at_x);
    if (failed != 0) return failed;
    hdo_oracle_direction(o, 0, u);
    float step = at_x > 2.0 ? 0.02f : 0.01f;
    for (int j = 0; j < D; j++) y[j] = x[j] + step * u[j];
    failed = hdo_oracle_loss(o, y, &ahead);
    if (failed != 0) return failed;
    for (int j = 0; j < D; j++) g[j] = (float)((ahead - at_x) / (double)step) * u[j];
    return 0;
}

/* One that does not repeat itself. */
static int strays(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g) {
    static int calls;
    float *y = hdo_oracle_scratch(o);
    double loss;
    (void)user, (void)call, (void)g;
    for (int j = 0; j < D; j++) y[j] = x[j] + (float)calls;
    calls++;
    return hdo_oracle_loss(o, y, &loss);
}

static const char hybrid[] = "seed: 3\nsteps: 12\neval: {every: 4}\ncheckpoint: {every: 0}\n"
                             "population:\n"
                             "  fo: {count: 2, estimator: fo, lr: 0.05, momentum: 0.5}\n"
                             "  fd: {count: 2, estimator: fd, rv: 3, nu: 1.0e-3, lr: 0.03}\n"
                             "  ce: {count: 1, estimator: fd-central, rv: 2, nu: 1.0e-3, lr: 0.03}\n"
                             "  fw: {count: 1, estimator: forward, rv: 2, lr: 0.03}\n"
                             "  my: {count: 1, estimator: adaptive, rv: 1, lr: 0.02}\n";

static hdo_config *config_of(const char *settings, bool asked) {
    hdo_error e = {0};
    const hdo_objective_def told = {.struct_size = sizeof told, .name = "told", .dim = D, .start = cb_start};
    hdo_objective_def computed = told;
    computed.loss = cb_loss;
    computed.gradient = cb_gradient;
    computed.slopes = cb_slopes;
    hdo_estimator_def est = {.struct_size = sizeof est,
                             .name = "adaptive",
                             .uses_directions = 1,
                             .needs = HDO_NEED_LOSS,
                             .scratch_per_dim = 2 * sizeof(float),
                             .estimate = adaptive};
    hdo_config *c = hdo_config_new(NULL, &e);
    assert_non_null(c);
    if (hdo_config_use_objective(c, asked ? &told : &computed, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    if (hdo_config_use_estimator(c, &est, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    est.name = "strays";
    est.estimate = strays;
    if (hdo_config_use_estimator(c, &est, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    if (hdo_config_load_text(c, settings, &e) != HDO_OK) fail_msg("%s", e.msg);
    return c;
}

static hdo_run *run_of(const char *settings, bool asked) {
    hdo_error e = {0};
    hdo_run *run;
    hdo_config *c = config_of(settings, asked);
    if (hdo_run_new(&run, c, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_config_free(c);
    return run;
}

/* The fingerprint of the same run with callbacks. */
static void reference(const char *settings, char hex[65]) {
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    hdo_run *run = run_of(settings, false);
    while (why == HDO_RUNNING) {
        if (hdo_run_advance(run, 100, &why, &e) != HDO_OK) fail_msg("%s", e.msg);
    }
    assert_int_equal(why, HDO_COMPLETED);
    hdo_run_fingerprint(run, hex);
    hdo_run_free(run);
}

static void tell(hdo_run *run, const hdo_question *q) {
    hdo_error e = {0};
    float g[D];
    double value = q->kind == HDO_QUESTION_SLOPE ? slope_of(q->x, q->direction) : value_of(q->x, g);
    if (hdo_tell(run, q->id, value, q->kind == HDO_QUESTION_GRADIENT ? g : NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
}

static int ask(hdo_run *run, int max, hdo_question *q, hdo_stop *why) {
    hdo_error e = {0};
    int n = 0;
    if (hdo_ask(run, max, q, &n, why, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_in_range(n, 0, max);
    return n;
}

typedef enum order { FORWARDS, BACKWARDS, SHUFFLED, TWICE } order;

static void rounds(hdo_run *run, int max, order how) {
    hdo_question q[MAX];
    hdo_stop why = HDO_RUNNING;
    unsigned seed = 5;
    while (why == HDO_RUNNING) {
        int n = ask(run, max, q, &why);
        if (why == HDO_RUNNING) assert_true(n > 0);
        for (int k = n - 1; k > 0 && how == SHUFFLED; k--) {
            seed = seed * 1103515245u + 12345u;
            int other = (int)((seed >> 16) % (unsigned)(k + 1));
            hdo_question keep = q[k];
            q[k] = q[other];
            q[other] = keep;
        }
        for (int k = 0; k < n; k++) {
            tell(run, &q[how == BACKWARDS ? n - 1 - k : k]);
            if (how == TWICE) assert_int_equal(hdo_tell(run, q[k].id, 1e9, NULL, NULL), HDO_OK); /* the first counts */
        }
    }
    assert_int_equal(why, HDO_COMPLETED);
}

static void same_bits_as_callbacks(void **state) {
    static const struct {
        int max;
        order how;
    } cases[] = {{1, FORWARDS}, {MAX, FORWARDS}, {3, BACKWARDS}, {MAX, SHUFFLED}, {5, TWICE}};
    char want[65], got[65];
    (void)state;
    reference(hybrid, want);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        hdo_run *run = run_of(hybrid, true);
        rounds(run, cases[k].max, cases[k].how);
        hdo_run_fingerprint(run, got);
        if (strcmp(got, want) != 0) fail_msg("case %zu: other bits than with callbacks", k);
        assert_int_equal(hdo_run_step(run), 12);
        hdo_run_free(run);
    }
}

static void figures_are_what_was_told(void **state) {
    (void)state;
    hdo_run *run = run_of(hybrid, true);
    hdo_run *other = run_of(hybrid, false);
    hdo_stop why = HDO_RUNNING;
    rounds(run, MAX, FORWARDS);
    assert_int_equal(hdo_run_advance(other, 12, &why, NULL), HDO_OK);
    const hdo_row *a = hdo_run_last_row(run), *b = hdo_run_last_row(other);
    static const char *const same[] = {"step",           "train/loss",      "consensus/gamma", "consensus/mg",
                                       "oracle/forward", "oracle/backward", "oracle/jvp",      "oracle/cost",
                                       "interactions",   "bytes_exchanged"};
    for (size_t k = 0; k < sizeof same / sizeof same[0]; k++)
        if (!(hdo_row_value(a, same[k]) == hdo_row_value(b, same[k])))
            fail_msg("%s: told %g, computed %g", same[k], hdo_row_value(a, same[k]), hdo_row_value(b, same[k]));
    assert_true(fabs(hdo_row_value(a, "val/loss_mean") - hdo_row_value(a, "train/loss")) < 1e-12);
    assert_true(isnan(hdo_row_value(a, "val/loss_mu")));
    hdo_run_free(run);
    hdo_run_free(other);
}

static void averaging_follows_the_mixing(void **state) {
    static const char *const mixings[] = {"{kind: none}", "{kind: matching, period: 3}", "{kind: graph, graph: ring}"};
    char settings[1024], want[65], got[65];
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        snprintf(settings, sizeof settings, "%smixing: %s\nwarmup: 2\n", hybrid, mixings[k]);
        reference(settings, want);
        hdo_run *run = run_of(settings, true);
        rounds(run, 7, BACKWARDS);
        hdo_run_fingerprint(run, got);
        assert_string_equal(got, want);
        hdo_run_free(run);
    }
}

/* One node is never answered: the others go on, each to its last step, and the caller ends the run. */
static void never_told(void **state) {
    hdo_question q[MAX];
    hdo_stop why = HDO_RUNNING;
    hdo_error e = {0};
    int64_t last[7] = {0};
    int quiet = 0, asked = 0;
    (void)state;
    hdo_run *run = run_of(hybrid, true);
    while (why == HDO_RUNNING && quiet < 2) {
        int n = ask(run, 4, q, &why);
        quiet = n == 0 ? quiet + 1 : 0;
        for (int k = 0; k < n; k++) {
            asked++;
            last[q[k].node] = q[k].step;
            if (q[k].node != 1) tell(run, &q[k]);
        }
    }
    assert_int_equal(why, HDO_RUNNING);
    for (int i = 0; i < 7; i++) assert_int_equal(last[i], i == 1 ? 0 : 11);
    assert_int_equal(hdo_run_step(run), 6 * 12 / 7);
    assert_int_equal(hdo_run_stop(run, &e), HDO_OK);
    assert_int_equal(ask(run, 4, q, &why), 0);
    assert_int_equal(why, HDO_STOPPED);
    assert_true(asked > 100);
    hdo_run_free(run);
}

/* An answer after its step was given up is counted and changes nothing; so do answers after the end. */
static void failed_and_late(void **state) {
    hdo_question q[MAX], bad = {0};
    hdo_stop why = HDO_RUNNING;
    hdo_error e = {0};
    int n_failed = 0, n_late = 0;
    (void)state;
    hdo_run *run = run_of(hybrid, true);
    while (why == HDO_RUNNING) {
        int n = ask(run, MAX, q, &why);
        for (int k = 0; k < n; k++) {
            if (q[k].node == 2 && q[k].step % 4 == 1) {
                bool first = bad.id == 0 || bad.step != q[k].step;
                assert_int_equal(hdo_tell_failed(run, q[k].id, &e), HDO_OK);
                n_failed += first;
                n_late += !first;
                bad = q[k];
            } else {
                tell(run, &q[k]);
            }
        }
        if (bad.id != 0 && n > 0 && q[0].step > bad.step) {
            assert_int_equal(hdo_tell(run, bad.id, 0.0, NULL, &e), HDO_OK);
            n_late++;
            bad.id = 0;
        }
    }
    assert_int_equal(why, HDO_COMPLETED);
    assert_int_equal(n_failed, 3);
    char want[80], *summary = hdo_run_summary(run);
    snprintf(want, sizeof want, "\"failed\": %d", n_failed);
    if (strstr(summary, want) == NULL) fail_msg("%s is not in %s", want, strstr(summary, "\"asked\""));
    snprintf(want, sizeof want, "\"late\": %d", n_late);
    if (strstr(summary, want) == NULL) fail_msg("%s is not in %s", want, strstr(summary, "\"asked\""));
    hdo_free(summary);
    hdo_run_free(run);
}

static void foolish_answers(void **state) {
    hdo_question q[MAX];
    hdo_stop why;
    hdo_error e = {0};
    float g[D] = {0};
    int n = 0;
    (void)state;
    hdo_run *run = run_of(hybrid, true);
    assert_int_equal(hdo_tell(run, 1, 0.0, g, &e), HDO_E_MISUSE); /* nothing was asked yet */
    n = ask(run, MAX, q, &why);
    assert_true(n > 0);
    assert_int_equal(q[0].kind, HDO_QUESTION_GRADIENT);
    assert_int_equal(hdo_tell(run, 0, 0.0, NULL, &e), HDO_E_MISUSE);
    assert_int_equal(hdo_tell(run, UINT64_MAX, 0.0, NULL, &e), HDO_E_MISUSE);
    assert_non_null(strstr(e.msg, "nobody asked"));
    assert_int_equal(hdo_tell_failed(run, q[0].id + 12345, &e), HDO_E_MISUSE);
    assert_int_equal(hdo_tell(run, q[0].id, 1.0, NULL, &e), HDO_E_MISUSE);
    assert_non_null(strstr(e.msg, "gradient"));
    assert_int_equal(hdo_tell(run, q[0].id, (double)NAN, g, &e), HDO_E_MISUSE);
    assert_non_null(strstr(e.msg, "hdo_tell_failed"));
    g[2] = INFINITY;
    assert_int_equal(hdo_tell(run, q[0].id, 1.0, g, &e), HDO_E_MISUSE);
    for (int k = 0; k < n; k++) tell(run, &q[k]); /* none of it did harm */
    assert_int_equal(hdo_ask(run, 0, q, &n, &why, &e), HDO_E_MISUSE);
    assert_int_equal(hdo_ask(NULL, 1, q, &n, &why, &e), HDO_E_MISUSE);
    assert_int_equal(hdo_ask(run, 1, NULL, &n, &why, &e), HDO_E_MISUSE);
    assert_int_equal(hdo_run_advance(run, 1, &why, &e), HDO_E_MISUSE);
    assert_non_null(strstr(e.msg, "hdo_ask"));
    hdo_run_free(run);
    run = run_of(hybrid, false);
    assert_int_equal(hdo_ask(run, MAX, q, &n, &why, &e), HDO_E_MISUSE);
    assert_int_equal(hdo_tell(run, 1, 1.0, NULL, &e), HDO_E_MISUSE);
    hdo_run_free(run);
}

static int by_id(const void *a, const void *b) {
    const hdo_question *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Saved in the middle of estimates, taken up again: questions that were out are asked again under their old ids, and
 * the end is the end of the uninterrupted run. */
static void checkpoint_and_resume(void **state) {
    char want[65], got[65], dir[64];
    hdo_question q[MAX], again[MAX];
    hdo_stop why = HDO_RUNNING;
    hdo_error e = {0};
    int n = 0;
    (void)state;
    reference(hybrid, want);
    hdo_run *run = run_of(hybrid, true);
    snprintf(dir, sizeof dir, "%s/run", folder);
    assert_int_equal(hdo_run_open_dir(run, dir, false, &e), HDO_OK);
    while (hdo_run_step(run) < 5) {
        n = ask(run, MAX, q, &why);
        for (int k = 0; k < n && hdo_run_step(run) < 5; k++) tell(run, &q[k]);
    }
    tell(run, &q[0]); /* and the others are out */
    if (hdo_run_save(run, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_run_free(run);
    hdo_config *c = config_of(hybrid, true);
    if (hdo_run_resume(&run, dir, c, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(hdo_run_step(run), 5);
    int m = ask(run, MAX, again, &why);
    assert_int_equal(m, n);
    qsort(q, (size_t)n, sizeof *q, by_id);
    qsort(again, (size_t)n, sizeof *again, by_id);
    for (int k = 0; k < n; k++) { /* node 6 asks in two turns: it may have to begin again */
        if (q[k].node != 6) assert_int_equal(again[k].id, q[k].id);
        tell(run, &again[k]);
    }
    rounds(run, 4, FORWARDS);
    hdo_run_fingerprint(run, got);
    assert_string_equal(got, want);
    hdo_run_free(run);
    hdo_config_free(c);
}

static void what_cannot_be_asked(void **state) {
    static const char *const settings[] = {"mixing: {kind: pairwise}\n", "mixing: {kind: allreduce}\n",
                                           "churn: {leave: 0.1, back: 0.5}\n"};
    char text[1024];
    hdo_error e;
    hdo_run *run;
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        snprintf(text, sizeof text, "%s%s", hybrid, settings[k]);
        hdo_config *c = config_of(text, true);
        assert_int_equal(hdo_run_new(&run, c, &e), HDO_E_UNSUPPORTED);
        assert_null(run);
        assert_non_null(strstr(e.msg, "asked and told needs"));
        hdo_config_free(c);
    }
}

static void an_estimator_that_strays(void **state) {
    hdo_question q[MAX];
    hdo_stop why;
    hdo_error e = {0};
    int n = 0;
    (void)state;
    hdo_run *run = run_of("steps: 3\npopulation: {my: {count: 1, estimator: strays, rv: 1, lr: 0.1}}\n", true);
    assert_int_equal(ask(run, 1, q, &why), 1);
    tell(run, &q[0]);
    assert_int_equal(hdo_ask(run, 1, q, &n, &why, &e), HDO_E_FAILED);
    assert_non_null(strstr(e.msg, "another question"));
    hdo_run_free(run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_callbacks),
        cmocka_unit_test(figures_are_what_was_told),
        cmocka_unit_test(averaging_follows_the_mixing),
        cmocka_unit_test(never_told),
        cmocka_unit_test(failed_and_late),
        cmocka_unit_test(foolish_answers),
        cmocka_unit_test(checkpoint_and_resume),
        cmocka_unit_test(what_cannot_be_asked),
        cmocka_unit_test(an_estimator_that_strays),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
