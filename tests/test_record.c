/* SPDX-License-Identifier: Apache-2.0 — what is kept of a run: which files are checkpoints, whose configuration counts,
 * what the summary and the manifest say, which files of a folder are ours. */
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

#include "base/clock.h"
#include "base/file.h"
#include "folder_help.h"
#include "hdo/experimental/all.h"
#include "record/ckfile.h"
#include "record/ckstate.h"
#include "record/lock.h"
#include "run/run_internal.h"

/* ---- helpers ---- */

static void set(hdo_config *c, const char *key, const char *value) {
    hdo_error e = {0};
    if (hdo_config_set_from(c, key, value, HDO_FROM_FLAG, &e) != HDO_OK) fail_msg("%s=%s: %s", key, value, e.msg);
}

static void small(hdo_config *c) {
    hdo_error e = {0};
    hdo_config_default(c);
    set(c, "model", "quadratic");
    set(c, "data.name", "none");
    set(c, "model.dim", "3");
    set(c, "steps", "4");
    set(c, "eval.every", "2");
    set(c, "checkpoint.every", "1");
    set(c, "checkpoint.keep", "3");
    assert_int_equal(hdo_config_population(c, "1fo+2zo", &e), HDO_OK);
    set(c, "population.zo.estimator", "fd");
    set(c, "population.zo.rv", "5");
    set(c, "population.zo.lr", "0.01");
    set(c, "population.fo.lr", "0.02");
}

/* The path of name in the folder of a run of this file. */
static const char *in(const char *run, const char *name) {
    static char path[4][256];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s%s%s", folder, run, name[0] != '\0' ? "/" : "", name);
    return path[k];
}

static hdo_run *make(const hdo_config *c, const char *name, int64_t steps) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    if (hdo_run_create(&r, c, NULL, &e) != HDO_OK ||
        hdo_run_attach_dir(r, in(name, ""), false, "by hand", &e) != HDO_OK ||
        hdo_run_advance(r, steps, NULL, &e) != HDO_OK)
        fail_msg("%s", e.msg);
    return r;
}

static void stored(const char *name) {
    hdo_config c;
    small(&c);
    hdo_run_destroy(make(&c, name, 4));
}

static void put(const char *path, const char *text) {
    hdo_error e = {0};
    if (hdo__file_write(path, text, strlen(text), &e) != HDO_OK) fail_msg("%s", e.msg);
}

static void says(const hdo_error *e, const char *part) {
    if (strstr(e->msg, part) == NULL) fail_msg("'%s' does not say '%s'", e->msg, part);
}

static bool there(const char *path) {
    return access(path, F_OK) == 0;
}

/* ---- what may change when a run goes on ---- */

static bool same_past(const char *base, const char *base_value, const char *key, const char *value) {
    hdo_config a, b;
    small(&a);
    if (base != NULL) set(&a, base, base_value);
    b = a;
    set(&b, key, value);
    return hdo__config_same_past(&a, &b);
}

/* Where a rate follows from the number of steps, more steps would have been another run from the start. */
static void test_what_may_change(void **state) {
    (void)state;
    static const char *const by_length[][2] = {{"population.zo.schedule", "cosine"},
                                               {"population.fo.schedule", "cosine-authors"},
                                               {"population.zo.lr", "auto"},
                                               {"population.fo.lr", "theorem"},
                                               {"mixing.average", "auto"}};
    static const char *const free_to_change[][2] = {
        {"steps", "9"},           {"threads", "2"},     {"eval.every", "1"}, {"checkpoint.every", "7"},
        {"checkpoint.keep", "1"}, {"stop.loss", "0.5"}, {"engine", "mpi"},   {"mpi.deadline_s", "9"}};
    static const char *const fixed[][2] = {
        {"seed", "5"},      {"warmup", "1"},       {"population.fo.lr", "0.03"}, {"population.zo.rv", "6"},
        {"model.dim", "4"}, {"mpi.async", "true"}, {"eval.trace", "true"},       {"mixing.kind", "none"}};
    for (int k = 0; k < 5; k++) {
        if (same_past(by_length[k][0], by_length[k][1], "steps", "9"))
            fail_msg("with %s=%s the number of steps may change", by_length[k][0], by_length[k][1]);
        assert_true(same_past(by_length[k][0], by_length[k][1], "threads", "3"));
    }
    for (int k = 0; k < 8; k++) {
        if (!same_past(NULL, NULL, free_to_change[k][0], free_to_change[k][1]))
            fail_msg("%s may not change", free_to_change[k][0]);
        if (same_past(NULL, NULL, fixed[k][0], fixed[k][1])) fail_msg("%s may change", fixed[k][0]);
    }
}

/* ---- what is a checkpoint ---- */

/* A safetensors file with this metadata and one tensor of three numbers. */
static const char *tensor_file(const char *metadata) {
    hdo_st_tensor t = {.name = "params", .dtype = "F32", .n_dim = 2, .dim = {1, 3}};
    char all[4096] = "";
    hdo_st_head head;
    hdo_error e = {0};
    const char *path = in("odd.safetensors", "");
    if (hdo__st_plan(&t, 1, metadata, &head, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_true(head.file_len < sizeof all);
    memcpy(all, head.bytes, head.len);
    assert_int_equal(hdo__file_write(path, all, (size_t)head.file_len, &e), HDO_OK);
    free(head.bytes);
    return path;
}

static void test_what_is_no_checkpoint(void **state) {
    (void)state;
#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
    static const struct {
        const char *metadata;
        hdo_status st;
        const char *said;
    } cases[] = {
        {NULL, HDO_E_DATA, "is not a checkpoint"},
        {"{\"version\": \"3\"}", HDO_E_DATA, "is not a checkpoint"},
        {"{\"format\": \"pt\", \"version\": \"3\"}", HDO_E_DATA, "is not a checkpoint"},
        {"{\"format\": \"hdo-checkpoint\"}", HDO_E_UNSUPPORTED, "format 2 or older"},
        {"{\"format\": \"hdo-checkpoint\", \"version\": \"2\"}", HDO_E_UNSUPPORTED, "has format 2,"},
        {"{\"format\": \"hdo-checkpoint\", \"version\": \"4\"}", HDO_E_UNSUPPORTED, "reads format 3 only"},
        {"{\"format\": \"hdo-checkpoint\", \"version\": \"3\", \"state\": \"\", \"config\": \"\"}", HDO_E_DATA,
         "missing"},
        {"{\"format\": \"hdo-checkpoint\", \"version\": \"3\", \"sha256\": \"00\", \"state\": \"\", \"config\": \"\"}",
         HDO_E_DATA, "missing"},
        {"{\"format\": \"hdo-checkpoint\", \"version\": \"3\", \"sha256\": \"" ZEROS "\", \"config\": \"\"}",
         HDO_E_DATA, "missing"},
        {"{\"format\": \"hdo-checkpoint\", \"version\": \"3\", \"sha256\": \"" ZEROS "\", \"state\": \"\"}", HDO_E_DATA,
         "missing"},
    };
    hdo_error e = {0};
    hdo_ckfile f;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        assert_int_equal(hdo__ckfile_open(&f, tensor_file(cases[k].metadata), &e), cases[k].st);
        says(&e, cases[k].said);
        assert_true(f.fd < 0 && f.state == NULL && f.config == NULL && f.list.t == NULL); /* nothing is left open */
    }
    const char *whole = tensor_file("{\"format\": \"hdo-checkpoint\", \"version\": \"3\", \"sha256\": \"" ZEROS
                                    "\", \"state\": \"s\", \"config\": \"c\"}");
    assert_int_equal(hdo__ckfile_open(&f, whole, &e), HDO_OK);
    assert_string_equal(f.state, "s");
    assert_string_equal(f.config, "c");
    assert_int_equal(f.list.n, 1);
    assert_int_equal(hdo__ckfile_verify(&f, &e), HDO_E_DATA); /* never sealed */
    says(&e, "do not match its checksum");
    hdo__ckfile_close(&f);
    put(whole, "1234567");
    assert_int_equal(hdo__ckfile_open(&f, whole, &e), HDO_E_DATA);
    says(&e, "too short");
    put(whole, "\377\377\377\377\377\377\377\177");
    assert_int_equal(hdo__ckfile_open(&f, whole, &e), HDO_E_DATA);
    says(&e, "truncated");
    assert_int_equal(hdo__ckfile_open(&f, in("nowhere", ""), &e), HDO_E_DATA);
    says(&e, "cannot read");
    char *name = malloc(9000);
    memset(name, 'x', 8999);
    name[8999] = '\0';
    assert_int_equal(hdo__ckfile_open(&f, name, &e), HDO_E_DATA);
    says(&e, "too long");
    free(name);
}

/* The checkpoint of step 9 in "shape", with these tensors and nothing in them. */
static void fake(const hdo_run *r, hdo_st_tensor *t, int n) {
    hdo_error e = {0};
    hdo_state_head h;
    hdo__state_head_of(&r->record, &h);
    char *text = hdo__state_text(&r->record, &h), path[HDO_CKFILE_PATH_MAX], all[8192] = "";
    hdo_st_head head;
    if (hdo__ckfile_plan(t, n, text, "", &head, &e) != HDO_OK) fail_msg("%s", e.msg);
    memcpy(all, head.bytes, head.len);
    hdo__ckfile_path(in("shape", ""), 9, path);
    assert_int_equal(hdo__file_write(path, all, (size_t)head.file_len, &e), HDO_OK);
    free(head.bytes);
    free(text);
}

/* Tensors of another shape, type, name or number than the run's. */
static void test_other_shapes_are_refused(void **state) {
    (void)state;
    const hdo_st_tensor right[] = {{.name = "params", .dtype = "F32", .n_dim = 2, .dim = {3, 3}},
                                   {.name = "batches", .dtype = "I64", .n_dim = 2, .dim = {3, 1}},
                                   {.name = "g2", .dtype = "F64", .n_dim = 2, .dim = {3, 1}}};
    hdo_config c;
    hdo_error e = {0};
    small(&c);
    hdo_run *r = make(&c, "shape", 2);
    for (int k = 0; k < 7; k++) {
        hdo_st_tensor t[3];
        memcpy(t, right, sizeof t);
        if (k == 1) t[0].dim[1] = 4;
        if (k == 2) t[0].dim[0] = 4;
        if (k == 3) t[2].dim[1] = 2;
        if (k == 4) memcpy(t[0].dtype, "I32", 4);
        if (k == 5) memcpy(t[1].name, "Batches", 8);
        fake(r, t, k == 6 ? 2 : 3);
        assert_int_equal(hdo__record_restore(&r->record, in("shape", ""), 9, &e), HDO_E_DATA);
        says(&e, k == 0   ? "do not match its checksum" /* right, but never sealed */
                 : k == 6 ? "holds 2 tensors, but this run has 3"
                          : "is missing or of another shape than this run's");
    }
    hdo_run_destroy(r);
}

static void test_states_that_are_none(void **state) {
    (void)state;
    static const char *const bad[] = {"", "{", "[]", "3", "{\"step\": 1, \"step\": 2}"};
    hdo_config c;
    hdo_state_head h;
    small(&c);
    hdo_run *r = make(&c, "states", 1);
    for (int k = 0; k < 5; k++) {
        hdo_error e = {0};
        assert_int_equal(hdo__state_read_head(bad[k], "here", &h, &e), HDO_E_DATA);
        says(&e, "here is damaged");
        assert_int_equal(hdo__state_load(&r->record, bad[k], "here", &e), HDO_E_DATA);
        says(&e, "its state is not JSON");
    }
    hdo_run_destroy(r);
}

static void test_the_newest_whole_one(void **state) {
    (void)state;
    hdo_ckfile f;
    hdo_error e = {0};
    hdo_state_head h;
    char note[512], path[HDO_CKFILE_PATH_MAX];
    stored("newest");
    for (int64_t step = 4; step >= 2; step--) { /* three are kept */
        assert_int_equal(hdo__ckfile_open_newest(&f, in("newest", ""), note, sizeof note, &e), HDO_OK);
        assert_int_equal(hdo__state_read_head(f.state, "x", &h, &e), HDO_OK);
        assert_int_equal(h.step, step);
        assert_true((strstr(note, "an older checkpoint is used") != NULL) == (step < 4));
        if (step < 4) assert_non_null(strstr(note, "step-000000004")); /* the newest is the one to know of */
        hdo__ckfile_close(&f);
        assert_int_equal(hdo__ckfile_open_newest(&f, in("newest", ""), NULL, 0, &e), HDO_OK);
        hdo__ckfile_close(&f);
        hdo__ckfile_path(in("newest", ""), step, path);
        assert_int_equal(truncate(path, 500), 0);
    }
    assert_int_equal(hdo__ckfile_open_newest(&f, in("newest", ""), note, sizeof note, &e), HDO_E_DATA);
    says(&e, "damaged");
    assert_int_equal(hdo__checkpoints_remove(in("newest", ""), &e), HDO_OK);
    assert_int_equal(hdo__ckfile_open_newest(&f, in("newest", ""), note, sizeof note, &e), HDO_E_DATA);
    says(&e, "has no checkpoint");
}

/* ---- whose configuration counts ---- */

static void test_whose_configuration(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    char note[512], *text, *long_name = malloc(HDO_PATH_MAX + 100);
    size_t len;
    stored("config");
    assert_true(hdo__stored_config_sealed(in("config", "")));
    assert_int_equal(hdo__stored_config_load(in("config", ""), &c, note, sizeof note, &e), HDO_OK);
    assert_string_equal(note, "");
    assert_int_equal(c.steps, 4);
    assert_int_equal(hdo__file_read(in("config", "config.yaml"), 1 << 20, &text, &len, &e), HDO_OK);
    char *steps = strstr(text, "steps: 4");
    assert_non_null(steps);
    steps[7] = '5'; /* edited: the checkpoint's copy counts, and that is said */
    put(in("config", "config.yaml"), text);
    assert_int_equal(hdo__stored_config_load(in("config", ""), &c, note, sizeof note, &e), HDO_OK);
    assert_int_equal(c.steps, 4);
    assert_non_null(strstr(note, "is not as the run wrote it"));
    assert_int_equal(hdo__stored_config_load(in("config", ""), &c, NULL, 0, &e), HDO_OK);
    assert_int_equal(hdo__checkpoints_remove(in("config", ""), &e), HDO_OK);
    assert_int_equal(hdo__stored_config_load(in("config", ""), &c, note, sizeof note, &e), HDO_E_DATA);
    says(&e, "was damaged or edited");
    steps[7] = '4';
    text[len - 1] = ' '; /* the last line does not end */
    put(in("config", "config.yaml"), text);
    assert_int_equal(hdo__stored_config_load(in("config", ""), &c, note, sizeof note, &e), HDO_E_DATA);
    put(in("config", "config.yaml"), "steps: 4\n"); /* somebody else's */
    assert_false(hdo__stored_config_sealed(in("config", "")));
    assert_int_equal(unlink(in("config", "config.yaml")), 0);
    assert_false(hdo__stored_config_sealed(in("config", "")));
    assert_int_equal(hdo__stored_config_load(in("config", ""), &c, note, sizeof note, &e), HDO_E_CONFIG);
    says(&e, "has no config.yaml");
    memset(long_name, 'x', HDO_PATH_MAX + 99);
    long_name[HDO_PATH_MAX - 64] = '\0';
    assert_int_equal(hdo__stored_config_load(long_name, &c, note, sizeof note, &e), HDO_E_CONFIG);
    says(&e, "too long");
    free(long_name);
    free(text);
}

/* ---- which files are ours ---- */

static void test_only_our_litter_goes(void **state) {
    (void)state;
    static const char *const ours[] = {"config.yaml.tmp.1", "manifest.json.tmp.22", "summary.json.tmp.x",
                                       "metrics.csv.tmp.7", "checkpoints/step-000000001.safetensors.tmp.5"};
    static const char *const others[] = {"notes.tmp.1",
                                         "config.yaml.bak",
                                         "summary.json~",
                                         "metrics.csv.tmp",
                                         "my.tmp.config.yaml",
                                         "checkpoints/step-1.txt",
                                         "checkpoints/readme.safetensors.tmp.5"};
    hdo_error e = {0};
    hdo_run *r;
    stored("litter");
    for (int k = 0; k < 5; k++) put(in("litter", ours[k]), "x");
    for (int k = 0; k < 7; k++) put(in("litter", others[k]), "x");
    assert_int_equal(hdo_run_resume_how(&r, in("litter", ""), &(hdo_resume){0}, NULL, &e), HDO_OK);
    hdo_run_destroy(r);
    for (int k = 0; k < 5; k++)
        if (there(in("litter", ours[k]))) fail_msg("%s is left", ours[k]);
    for (int k = 0; k < 7; k++)
        if (!there(in("litter", others[k]))) fail_msg("%s is gone", others[k]);
    assert_int_equal(hdo__checkpoints_remove(in("litter", ""), &e), HDO_OK); /* all that begins with step- */
    assert_false(there(in("litter", "checkpoints/step-000000004.safetensors")));
    assert_true(there(in("litter", "checkpoints/readme.safetensors.tmp.5")));
}

/* ---- what the summary and the manifest say ---- */

static json_t *load(const char *path) {
    json_error_t e;
    json_t *o = json_load_file(path, 0, &e);
    if (o == NULL) fail_msg("%s: %s", path, e.text);
    return o;
}

static json_int_t whole(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v)) fail_msg("'%s' is no whole number", key);
    return json_integer_value(v);
}

static double real(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v)) fail_msg("'%s' is no number", key);
    return json_number_value(v);
}

static const char *word(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    if (s == NULL) fail_msg("'%s' is no text", key);
    return s;
}

static void check_group(const json_t *o, const hdo_group *g) {
    assert_true(real(o, "val_loss_mean") == g->loss_mean && real(o, "val_loss_std") == g->loss_std);
    assert_true(real(o, "val_loss_min") == g->loss_min && real(o, "val_loss_max") == g->loss_max);
}

static void test_summary(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    small(&c);
    set(&c, "seed", "11");
    set(&c, "name", "tale");
    double began = hdo__now_s();
    hdo_run *r = make(&c, "summary", 4);
    assert_int_equal(hdo_run_write_summary(r, &e), HDO_OK);
    json_t *o = load(in("summary", "summary.json")), *fin = json_object_get(o, "final");
    const hdo_row *row = hdo_run_last_row(r);
    assert_int_equal(whole(o, "schema_version"), HDO_SCHEMA_VERSION);
    assert_string_equal(word(o, "outcome"), "completed");
    assert_string_equal(word(o, "reason"), "completed");
    assert_string_equal(word(o, "version"), hdo_version());
    assert_string_equal(word(o, "name"), "tale");
    assert_string_equal(word(o, "model"), "quadratic");
    assert_string_equal(word(o, "data"), "none");
    assert_string_equal(word(o, "dir"), in("summary", ""));
    assert_true(whole(o, "d") == 3 && whole(o, "n") == 3 && whole(o, "seed") == 11 && whole(o, "steps") == 4);
    assert_int_equal(whole(o, "interactions"), 4); /* three nodes: one pair a step */
    assert_int_equal(whole(o, "bytes_exchanged"), 4 * 2 * 3 * 4);
    json_t *oracle = json_object_get(o, "oracle"), *list = json_object_get(o, "classes");
    assert_int_equal(whole(oracle, "backward"), 4);
    assert_int_equal(whole(oracle, "forward"), 4 * 2 * 6);
    assert_int_equal(whole(oracle, "jvp"), 0);
    assert_int_equal(whole(oracle, "cost"), 4 * (3 + 2 * 6));
    assert_int_equal(json_array_size(list), 2);
    static const struct {
        const char *name, *estimator;
        int count, rv;
        double lr;
    } want[] = {{"fo", "fo", 1, 0, 0.02}, {"zo", "fd", 2, 5, 0.01}};
    for (int k = 0; k < 2; k++) {
        const json_t *one = json_array_get(list, (size_t)k);
        assert_string_equal(word(one, "name"), want[k].name);
        assert_string_equal(word(one, "estimator"), want[k].estimator);
        assert_true(whole(one, "count") == want[k].count && whole(one, "rv") == want[k].rv &&
                    real(one, "lr") == want[k].lr);
        check_group(json_object_get(json_object_get(fin, "classes"), want[k].name), &row->cls[k]);
    }
    check_group(fin, &row->all);
    assert_true(real(fin, "val_loss_node0") == row->node0_loss && real(fin, "val_loss_mu") == row->mu_loss);
    assert_true(real(fin, "gamma") == row->gamma && real(fin, "mg") == row->mg &&
                real(fin, "train_loss") == row->train_loss);
    assert_true(row->gamma > 0.0 && row->mg > 0.0);
    const json_t *time = json_object_get(o, "time");
    assert_true(real(time, "wall_s") >= real(time, "step_s") + real(time, "eval_s"));
    assert_true(real(time, "wall_s") <= hdo__now_s() - began && real(time, "step_s") > 0.0 &&
                real(time, "eval_s") > 0.0);
    assert_string_equal(word(json_object_get(o, "mixing"), "kind"), "matching");
    assert_null(json_object_get(o, "mpi"));
    assert_null(json_object_get(o, "divergence"));
    assert_int_equal(strlen(word(o, "params_sha256")), 64);
    json_decref(o);
    o = load(in("summary", "manifest.json"));
    assert_string_equal(word(o, "command"), "by hand");
    assert_int_equal(strlen(word(o, "run_id")), HDO_RUN_ID_LEN);
    assert_string_equal(word(o, "run_id"), r->record.run_id);
    assert_true(whole(o, "seed") == 11 && whole(o, "d") == 3 && whole(o, "n") == 3);
    assert_true(json_is_null(json_object_get(json_object_get(o, "data"), "train_sha256")));
    assert_true(whole(json_object_get(o, "host"), "cpus") >= 1);
    assert_int_equal(strlen(word(o, "started")), strlen("2000-01-01T00:00:00Z"));
    json_decref(o);
    hdo_run_destroy(r);
}

/* A lock, a row and a summary want the folder that the run began with. */
static void test_folders_that_are_refused(void **state) {
    (void)state;
    hdo_config c;
    hdo_error e = {0};
    hdo_run *r = NULL;
    int fd;
    bool sure;
    small(&c);
    char *name = malloc(9000);
    memset(name, 'x', 8999);
    name[8999] = '\0';
    assert_int_equal(hdo__lock_take(name, &fd, &sure, &e), HDO_E_CONFIG);
    says(&e, "too long");
    assert_int_equal(hdo_run_create(&r, &c, NULL, &e), HDO_OK);
    assert_int_equal(hdo__record_lock_dir(&r->record, name, &e), HDO_E_CONFIG);
    free(name);
    stored("refused");
    assert_int_equal(hdo_run_attach_dir(r, in("refused", ""), false, NULL, &e), HDO_E_CONFIG);
    says(&e, "already holds a run");
    hdo_run_destroy(r);
    r = make(&c, "link", 1);
    assert_int_equal(rename(in("link", ""), in("gone", "")), 0);
    assert_int_equal(hdo__record_save(&r->record, &e), HDO_E_IO);
    says(&e, "removed or replaced");
    assert_int_equal(hdo_run_write_summary(r, &e), HDO_E_IO);
    hdo_run_destroy(r);
    assert_int_equal(hdo__dir_create(in("linked", ""), &e), 0);
    assert_int_equal(symlink("/tmp/nowhere", in("linked", "run.lock")), 0);
    assert_int_equal(hdo__lock_take(in("linked", ""), &fd, &sure, &e), HDO_E_IO);
    says(&e, "symbolic link");
    assert_int_equal(fd, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_may_change),          cmocka_unit_test(test_what_is_no_checkpoint),
        cmocka_unit_test(test_other_shapes_are_refused), cmocka_unit_test(test_states_that_are_none),
        cmocka_unit_test(test_the_newest_whole_one),     cmocka_unit_test(test_whose_configuration),
        cmocka_unit_test(test_only_our_litter_goes),     cmocka_unit_test(test_summary),
        cmocka_unit_test(test_folders_that_are_refused)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
