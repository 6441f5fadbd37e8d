/* SPDX-License-Identifier: Apache-2.0 — what a run says about itself: plan, rows, outcomes, what the caller asks for.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sha256.h"
#include "folder_help.h"
#include "run/run_internal.h"
#include "run_help.h"

static const hdo_row *rows_of(hdo_run *r, size_t *n) {
    hdo_error e;
    assert_int_equal(hdo_run_keep_rows(r, &e), HDO_OK);
    finish(r);
    return hdo_run_rows(r, n);
}

static void test_describe(void **state) {
    (void)state;
    static const struct {
        const char *mixing;
        int64_t pairs;
    } cases[] = {{"matching", 3}, {"pairwise", 1}, {"none", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int momentum = 0; momentum < 2; momentum++) {
            hdo_config c;
            hdo_run_info info;
            base_config(&c, "logistic", "3fo+4zo");
            set(&c, "warmup", "6");
            set(&c, "threads", "2");
            set(&c, "mixing", cases[i].mixing);
            if (momentum) set(&c, "population.zo.momentum", "0.5");
            hdo_run *r = make(&c);
            hdo_run_describe(r, &info);
            assert_int_equal(info.n, 7);
            assert_int_equal(info.d, 33 * 10);
            assert_int_equal(info.n_buf, 0);
            assert_int_equal(info.total_steps, 26);
            assert_int_equal(info.threads, 2);
            assert_int_equal(info.train_samples, 500);
            assert_int_equal(info.val_samples, 200);
            assert_int_equal(info.bytes_per_step, cases[i].pairs * 2 * 330 * 4);
            assert_int_equal(info.state_bytes, 7 * 336 * 4 * (1 + momentum)); /* rows are whole cache lines */
            assert_true(info.scratch_bytes >= 2 * 330 * 4);
            assert_int_equal(hdo_run_rank(r), 0);
            assert_null(hdo_run_last_row(r));
            assert_null(hdo_run_params(r, -1, NULL));
            hdo_run_destroy(r);
        }
    }
}

static void test_rows_come_when_due(void **state) {
    (void)state;
    static const struct {
        const char *every, *warmup, *steps;
        int64_t at[8];
    } cases[] = {
        {"5", "0", "12", {0, 5, 10, 12, -1}},
        {"5", "3", "12", {0, 5, 10, 15, -1}},
        {"0", "0", "4", {0, 4, -1}},
        {"1", "1", "2", {0, 1, 2, 3, -1}},
        {"9", "0", "0", {0, -1}},
        {"3", "0", "6", {0, 3, 6, -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdo_config c;
        size_t n, k = 0;
        base_config(&c, "quadratic", "2fo+1zo");
        set(&c, "eval.every", cases[i].every);
        set(&c, "warmup", cases[i].warmup);
        set(&c, "steps", cases[i].steps);
        hdo_run *r = make(&c);
        const hdo_row *row = rows_of(r, &n);
        for (; cases[i].at[k] >= 0; k++) {
            assert_true(k < n);
            assert_int_equal(row[k].step, cases[i].at[k]);
        }
        assert_int_equal(n, k);
        hdo_run_destroy(r);
    }
}

/* Everything in a row that can be known: one pair a step, constant rates, counted calls, clocks that only rise. */
static void test_rows_say_what_happened(void **state) {
    (void)state;
    hdo_config c;
    size_t n;
    base_config(&c, "quadratic", "2fo+3zo");
    set(&c, "mixing", "pairwise");
    set(&c, "eval.every", "1");
    set(&c, "warmup", "4");
    set(&c, "population.fo.lr", "0.08");
    set(&c, "population.zo.lr", "0.04");
    set(&c, "population.zo.estimator", "fd");
    set(&c, "population.zo.rv", "3");
    hdo_run *r = make(&c);
    const hdo_row *row = rows_of(r, &n);
    assert_int_equal(n, 25);
    assert_true(isnan(row[0].train_loss) && isnan(row[0].mg) && isnan(row[0].y_loss));
    for (size_t k = 1; k < n; k++) {
        int64_t met = row[k].interactions, before = row[k - 1].interactions;
        assert_true(met - before == (k > 4)); /* local only while warming up */
        assert_true(fabs(row[k].parallel_time - (double)met / 5.0) < 1e-12);
        assert_int_equal(row[k].bytes, met * 2 * 100 * 4);
        double rise = k < 4 ? (double)k / 4.0 : 1.0;
        assert_true(fabs(row[k].lr[0] - 0.08 * rise) < 1e-12 && fabs(row[k].lr[1] - 0.04 * rise) < 1e-12);
        int64_t grads = row[k].backward - row[k - 1].backward, losses = row[k].forward - row[k - 1].forward;
        if (k > 4) assert_true(losses >= 4 * (2 - grads) && grads >= 0 && grads <= 2); /* two nodes step */
        assert_true(isfinite(row[k].train_loss) && row[k].mg > 0.0 && row[k].gamma >= 0.0);
        assert_int_equal(row[k].present, 5);
        assert_int_equal(row[k].n_classes, 2);
        assert_true(row[k].wall_s >= row[k - 1].wall_s && row[k].step_s >= row[k - 1].step_s);
        assert_true(row[k].eval_s >= row[k - 1].eval_s && row[k].wall_s >= row[k].step_s);
        assert_true(row[k].all.loss_min <= row[k].all.loss_mean && row[k].all.loss_mean <= row[k].all.loss_max);
        double both = (2.0 * row[k].cls[0].loss_mean + 3.0 * row[k].cls[1].loss_mean) / 5.0;
        assert_true(fabs(both - row[k].all.loss_mean) < 1e-9 * (1.0 + both));
    }
    hdo_run_destroy(r);
}

static void test_outcomes(void **state) {
    (void)state;
    hdo_config c;
    base_config(&c, "logistic", "4fo");
    set(&c, "steps", "400");
    set(&c, "population.fo.lr", "0.5");
    set(&c, "stop.accuracy", "0.5");
    hdo_run *r = make(&c);
    assert_int_equal(finish(r), HDO_TARGET);
    assert_true(hdo_run_last_row(r)->all.acc_mean >= 0.5 && hdo_run_step(r) < 400);
    hdo_run_destroy(r);
    set(&c, "stop.accuracy", "0");
    set(&c, "stop.time_s", "0.02");
    set(&c, "steps", "100000000");
    set(&c, "eval.every", "0");
    r = make(&c);
    assert_int_equal(finish(r), HDO_TIMEOUT);
    assert_int_equal(hdo_run_last_row(r)->step, hdo_run_step(r)); /* evaluated where it stopped */
    assert_true(hdo_run_last_row(r)->wall_s < 60.0);
    hdo_run_destroy(r);
    assert_string_equal(hdo_stop_name(HDO_TIMEOUT), "timeout");
}

static void assert_same(const json_t *o, const char *key, double want) {
    const json_t *v = json_object_get(o, key);
    if (v == NULL) fail_msg("the summary has no '%s'", key);
    if (isnan(want)) {
        assert_true(json_is_null(v));
    } else if (!(json_number_value(v) == want)) {
        fail_msg("the summary has %s %.17g, the run %.17g", key, json_number_value(v), want);
    }
}

static void assert_group(const json_t *o, const hdo_group *g) {
    assert_non_null(o);
    assert_same(o, "val_loss_mean", g->loss_mean);
    assert_same(o, "val_loss_std", g->loss_std);
    assert_same(o, "val_loss_min", g->loss_min);
    assert_same(o, "val_loss_max", g->loss_max);
    assert_same(o, "val_acc_mean", g->acc_mean);
}

static void test_summary_says_the_last_row(void **state) {
    (void)state;
    hdo_config c;
    char hex[65];
    base_config(&c, "logistic", "2fo+3zo");
    set(&c, "population.zo.rv", "5");
    set(&c, "seed", "77");
    hdo_run *r = make(&c);
    finish(r);
    char *text = hdo_run_summary(r);
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *final = json_object_get(o, "final");
    const hdo_row *row = hdo_run_last_row(r);
    assert_non_null(o);
    hdo_run_fingerprint(r, hex);
    assert_string_equal(json_string_value(json_object_get(o, "params_sha256")), hex);
    assert_string_equal(json_string_value(json_object_get(o, "outcome")), "completed");
    assert_string_equal(json_string_value(json_object_get(o, "model")), "logistic");
    assert_string_equal(json_string_value(json_object_get(o, "data")), "synthetic");
    assert_same(o, "d", 330);
    assert_same(o, "n", 5);
    assert_same(o, "seed", 77);
    assert_same(o, "steps", 20);
    assert_same(o, "interactions", 40);
    assert_same(o, "bytes_exchanged", 40 * 2 * 330 * 4);
    assert_group(final, &row->all);
    assert_group(json_object_get(json_object_get(final, "classes"), "fo"), &row->cls[0]);
    assert_group(json_object_get(json_object_get(final, "classes"), "zo"), &row->cls[1]);
    assert_same(final, "val_loss_node0", row->node0_loss);
    assert_same(final, "val_acc_node0", row->node0_acc);
    assert_same(final, "val_loss_mu", row->mu_loss);
    assert_same(final, "val_acc_mu", row->mu_acc);
    assert_same(final, "gamma", row->gamma);
    assert_same(final, "mg", row->mg);
    assert_same(final, "train_loss", row->train_loss);
    const json_t *zo = json_array_get(json_object_get(o, "classes"), 1),
                 *fo = json_array_get(json_object_get(o, "classes"), 0);
    assert_same(zo, "count", 3);
    assert_same(zo, "rv", 5);
    assert_same(fo, "rv", 0); /* it draws none */
    assert_same(zo, "batch", (double)c.population[1].batch);
    assert_same(zo, "lr", c.population[1].lr.arg);
    assert_same(json_object_get(o, "oracle"), "backward", (double)row->backward);
    assert_same(json_object_get(o, "oracle"), "forward", (double)row->forward);
    assert_same(json_object_get(o, "oracle"), "jvp", (double)row->jvp);
    assert_null(json_object_get(o, "mpi")); /* one process */
    json_decref(o);
    free(text);
    hdo_run_destroy(r);
}

static json_t *manifest_of(const char *name) {
    hdo_config c;
    hdo_error e = {0};
    char dir[64], path[128];
    base_config(&c, "logistic", "2fo+3zo");
    hdo_run *r = make(&c);
    snprintf(dir, sizeof dir, "%s/%s", folder, name);
    assert_int_equal(hdo_run_attach_dir(r, dir, false, "hdo run x", &e), HDO_OK);
    hdo_run_destroy(r);
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    return o;
}

static void test_manifest(void **state) {
    (void)state;
    json_t *o = manifest_of("m5");
    static const char *const texts[] = {"version", "compiler", "build", "started", "command"};
    for (int k = 0; k < 5; k++) assert_true(json_string_length(json_object_get(o, texts[k])) > 0);
    assert_string_equal(json_string_value(json_object_get(o, "version")), HDO_VERSION);
    assert_string_equal(json_string_value(json_object_get(o, "command")), "hdo run x");
    assert_same(o, "seed", 1);
    assert_same(o, "d", 330);
    assert_same(o, "n", 5);
    const json_t *data = json_object_get(o, "data"), *mixing = json_object_get(o, "mixing");
    const json_t *host = json_object_get(o, "host");
    assert_int_equal(json_string_length(json_object_get(data, "train_sha256")), 64);
    assert_int_equal(json_string_length(json_object_get(data, "val_sha256")), 64);
    assert_string_not_equal(json_string_value(json_object_get(data, "train_sha256")),
                            json_string_value(json_object_get(data, "val_sha256")));
    assert_string_equal(json_string_value(json_object_get(mixing, "kind")), "matching");
    assert_same(mixing, "edges", 10);
    assert_true(json_number_value(json_object_get(mixing, "lambda")) > 0.0);
    static const char *const facts[] = {"name", "system", "release", "machine", "simd", "kernels"};
    for (int k = 0; k < 6; k++) assert_true(json_string_length(json_object_get(host, facts[k])) > 0);
    assert_true(json_number_value(json_object_get(host, "cpus")) >= 1.0);
    assert_true(json_number_value(json_object_get(host, "threads")) >= 1.0);
    json_decref(o);
}

static void test_log_has_lines(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    char dir[64], path[128], text[4096] = "";
    base_config(&c, "quadratic", "2fo");
    hdo_run *r = make(&c);
    snprintf(dir, sizeof dir, "%s/log", folder);
    assert_int_equal(hdo_run_attach_dir(r, dir, false, NULL, &e), HDO_OK);
    hdo__log(&r->log, HDO_LOG_INFO, "one %d", 1);
    hdo__log(&r->log, HDO_LOG_WARN, "two");
    hdo_run_destroy(r);
    snprintf(path, sizeof path, "%s/log.txt", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    assert_int_equal(strlen(text), n); /* no zeros */
    assert_non_null(strstr(text, "one 1\n"));
    assert_string_equal(text + n - 4, "two\n");
}

/* Every number of every model counts, buffers included, and nothing between the rows. */
static void test_fingerprint_covers_everything(void **state) {
    (void)state;
    hdo_config c;
    char hex[65], other[65], want[65];
    base_config(&c, "logistic", "2fo+1zo");
    set(&c, "model.reading", "authors"); /* with batch-norm */
    hdo_run *r = make(&c);
    size_t len = r->problem.objective->d + r->problem.objective->n_buf, ld = r->population.models.ld;
    assert_true(r->problem.objective->n_buf > 0 && ld > len);
    hdo_run_fingerprint(r, hex);
    hdo_sha256 h;
    unsigned char digest[32];
    hdo__sha256_init(&h);
    for (int i = 0; i < 3; i++) hdo__sha256_update(&h, r->population.models.X + (size_t)i * ld, len * sizeof(float));
    hdo__sha256_final(&h, digest);
    hdo__sha256_hex(digest, want);
    assert_string_equal(hex, want);
    size_t at[] = {0,  r->problem.objective->d - 1, len - 1, 2 * ld, 2 * ld + len - 1,
                   len}; /* the last lies between rows */
    for (size_t k = 0; k < 6; k++) {
        float was = r->population.models.X[at[k]];
        r->population.models.X[at[k]] = was + 1.0f;
        hdo_run_fingerprint(r, other);
        assert_int_equal(strcmp(hex, other) == 0, k == 5);
        r->population.models.X[at[k]] = was;
    }
    hdo_run_destroy(r);
}

/* A run that replaces another leaves nothing of it, its other sinks included. */
static void test_force_leaves_nothing_behind(void **state) {
    (void)state;
    static const char *const files[] = {"metrics.csv", "trace.jsonl", "summary.json"};
    char dir[64], path[128];
    hdo_config c;
    hdo_error e = {0};
    snprintf(dir, sizeof dir, "%s/force", folder);
    base_config(&c, "quadratic", "2fo");
    set(&c, "sink.csv", "true");
    set(&c, "eval.trace", "true");
    for (int again = 0; again < 2; again++) {
        hdo_run *r = make(&c);
        assert_int_equal(hdo_run_attach_dir(r, dir, again, NULL, &e), HDO_OK);
        if (!again) {
            finish(r);
            assert_int_equal(hdo_run_write_summary(r, &e), HDO_OK);
        }
        for (int k = 0; k < 3; k++) {
            snprintf(path, sizeof path, "%s/%s", dir, files[k]);
            assert_int_equal(access(path, F_OK) == 0, !again);
        }
        hdo_run_destroy(r);
        set(&c, "sink.csv", "false");
        set(&c, "eval.trace", "false");
    }
}

/* ---- mpi.async and mpi.slow, as a rank would check them ---- */

static hdo_status check_async(const char *key, const char *value, const char *slow, double *factor, hdo_error *e) {
    hdo_config c;
    base_config(&c, "logistic", "2fo+2zo");
    if (key != NULL) set(&c, key, value);
    hdo_run *r = make(&c);
    r->config.engine.id = HDO_ENGINE_MPI;
    r->config.mpi.async = slow == NULL;
    if (slow != NULL) snprintf(r->config.mpi.slow, sizeof r->config.mpi.slow, "%s", slow);
    hdo_status st = hdo__engine_check(&r->population, e);
    if (factor != NULL) *factor = r->population.slow;
    r->config.engine.id = HDO_ENGINE_SIM;
    if (slow == NULL && key == NULL)
        assert_int_equal(hdo__engine_check(&r->population, e), HDO_E_CONFIG); /* needs the engine */
    if (slow != NULL && st == HDO_OK) { /* a run of several ranks that goes on in one process: nobody is slow there */
        assert_int_equal(hdo__engine_check(&r->population, e), HDO_OK);
        assert_true(r->population.slow == 1.0);
    }
    hdo_run_destroy(r);
    return st;
}

static void test_async_needs_steps_of_one_kind(void **state) {
    (void)state;
    static const char *const bad[][2] = {{"mixing", "pairwise"},          {"mixing", "allreduce"},
                                         {"mixing.average", "noise"},     {"eval.weighted", "0.1"},
                                         {"churn.loss", "0.1"},           {"population.fo.backward_s", "1"},
                                         {"population.zo.lr", "balanced"}};
    hdo_error e = {0};
    for (int k = 0; k < 7; k++) {
        assert_int_equal(check_async(bad[k][0], bad[k][1], NULL, NULL, &e), HDO_E_UNSUPPORTED);
        assert_non_null(strstr(e.msg, "mpi.async"));
    }
    assert_int_equal(check_async(NULL, NULL, NULL, NULL, &e), HDO_OK);
    assert_int_equal(check_async("mixing", "none", NULL, NULL, &e), HDO_OK);
}

static void test_slow_ranks(void **state) {
    (void)state;
    static const char *const bad[] = {"1", "1:", ":2", "0:0.5", "-1:2", "0:2x", "0:nan", "0:1e7", "x:2"};
    hdo_error e = {0};
    double factor;
    for (int k = 0; k < 9; k++) assert_int_equal(check_async(NULL, NULL, bad[k], &factor, &e), HDO_E_CONFIG);
    assert_int_equal(check_async(NULL, NULL, "0:4", &factor, &e), HDO_OK);
    assert_true(factor == 4.0);
    assert_int_equal(check_async(NULL, NULL, "2:4", &factor, &e), HDO_OK); /* another rank */
    assert_true(factor == 1.0);
    assert_int_equal(check_async(NULL, NULL, "0:1", &factor, &e), HDO_OK);
}

/* ---- what the caller asks for ---- */

typedef struct caller {
    int64_t at, now;
    unsigned what;
    int rows;
} caller;

static unsigned asked(void *ctx) {
    caller *k = ctx;
    return ++k->now == k->at ? k->what : 0;
}

static void row_came(void *ctx, const hdo_row *row) {
    caller *k = ctx;
    k->rows++;
    assert_true(row->step >= 0);
}

static void test_caller_stops_and_saves(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    char dir[64], path[128];
    base_config(&c, "quadratic", "2fo");
    set(&c, "eval.every", "0");
    for (int save = 0; save < 2; save++) {
        caller k = {.at = 3, .what = save ? HDO_ASK_SAVE : HDO_ASK_STOP};
        hdo_hooks hooks = {.ctx = &k, .row = row_came, .asked = asked};
        hdo_run *r = NULL;
        assert_int_equal(hdo_run_create(&r, &c, &hooks, &e), HDO_OK);
        snprintf(dir, sizeof dir, "%s/asked-%d", folder, save);
        assert_int_equal(hdo_run_attach_dir(r, dir, false, NULL, &e), HDO_OK);
        assert_int_equal(finish(r), save ? HDO_COMPLETED : HDO_STOPPED);
        assert_int_equal(hdo_run_step(r), save ? 20 : 3);
        assert_int_equal(k.rows, 2); /* the start and the end */
        snprintf(path, sizeof path, "%s/checkpoints/step-000000003.safetensors", dir);
        assert_int_equal(access(path, F_OK) == 0, save);
        assert_int_equal(hdo_run_write_summary(r, &e), HDO_OK);
        snprintf(path, sizeof path, "%s/checkpoints/step-%09d.safetensors", dir, save ? 20 : 3);
        assert_int_equal(access(path, F_OK), 0);
        hdo_run_destroy(r);
    }
}

static void test_checkpoints_come_when_due(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    char dir[64], path[128];
    base_config(&c, "quadratic", "2fo");
    set(&c, "steps", "11");
    set(&c, "checkpoint.every", "4");
    set(&c, "checkpoint.keep", "100");
    hdo_run *r = make(&c);
    snprintf(dir, sizeof dir, "%s/due", folder);
    assert_int_equal(hdo_run_attach_dir(r, dir, false, "a command", &e), HDO_OK);
    finish(r);
    for (int t = 0; t <= 11; t++) {
        snprintf(path, sizeof path, "%s/checkpoints/step-%09d.safetensors", dir, t);
        assert_int_equal(access(path, F_OK) == 0, t == 4 || t == 8);
    }
    hdo_run_destroy(r);
    r = make(&c); /* an existing run is not written over */
    assert_int_equal(hdo_run_attach_dir(r, dir, false, NULL, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "already holds a run"));
    hdo_run_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_rows_come_when_due),
        cmocka_unit_test(test_rows_say_what_happened),
        cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_summary_says_the_last_row),
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_fingerprint_covers_everything),
        cmocka_unit_test(test_log_has_lines),
        cmocka_unit_test(test_force_leaves_nothing_behind),
        cmocka_unit_test(test_async_needs_steps_of_one_kind),
        cmocka_unit_test(test_slow_ranks),
        cmocka_unit_test(test_caller_stops_and_saves),
        cmocka_unit_test(test_checkpoints_come_when_due),
    };
    return cmocka_run_group_tests_name("run_rows", tests, make_folder, remove_folder);
}
