/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimators, mixings and sinks of one's own, through the public interface: what they get, what they may do, and what a
 * run says about those that do not.
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

enum { D = 12 };

static const char base[] = "model: {name: quadratic, dim: 12, noise: 0.1, start: 2}\ndata: {name: none}\nseed: "
                           "7\nsteps: 40\neval: {every: 10}\n";

/* ---- estimators ---- */

typedef struct book { /* what a callback saw and is to do */
    int calls, result_at, result;
    int64_t nodes_seen;
    int destroyed;
} book;

static int central(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g) {
    book *b = user;
    size_t d = hdo_oracle_dim(o);
    int rv = hdo_oracle_rv(o);
    float *u = hdo_oracle_scratch(o), *pair = u + d, nu = (float)hdo_oracle_nu(o);
    b->calls++;
    b->nodes_seen |= INT64_C(1) << call->node;
    if (b->calls == b->result_at) {
        if (b->result < 0)
            snprintf(call->message, call->message_cap, "the wind has turned in step %d", (int)call->step);
        return b->result;
    }
    memset(g, 0, d * sizeof *g);
    for (int r = 0; r < rv; r++) {
        double loss[2];
        hdo_oracle_direction(o, r, u);
        for (size_t j = 0; j < d; j++) {
            pair[j] = x[j] + nu * u[j];
            pair[d + j] = x[j] - nu * u[j];
        }
        int failed = hdo_oracle_losses(o, pair, d, 2, loss);
        if (failed != 0) return failed;
        double slope = (loss[0] - loss[1]) / (2.0 * (double)nu) / rv;
        for (size_t j = 0; j < d; j++) g[j] += (float)slope * u[j];
    }
    return 0;
}

/* Asks everything once, and checks the answers against each other. */
static int curious(void *user, hdo_call *call, hdo_oracle *o, const float *x, float *g) {
    double loss[3], again, slope[2];
    float z[8], z2[8], *u = hdo_oracle_scratch(o), *copy = u + 2 * D;
    (void)call;
    ((book *)user)->calls++;
    if (hdo_oracle_dim(o) != D || hdo_oracle_rv(o) != 5 || !(hdo_oracle_nu(o) > 0.0) || !(hdo_oracle_rate(o) > 0.0))
        return -2;
    if (((uintptr_t)u & 63) != 0) return -3;
    memcpy(copy, x, D * sizeof *x);
    for (int k = 1; k < 3; k++) memcpy(copy + k * D, x, D * sizeof *x);
    if (hdo_oracle_loss(o, x, &again) != 0 || hdo_oracle_losses(o, copy, D, 3, loss) != 0) return -4;
    for (int k = 0; k < 3; k++)
        if (fabs(loss[k] - again) > 1e-9 * fabs(again)) return -5;
    if (hdo_oracle_gradient(o, x, &loss[0], g) != 0 || loss[0] != again) return -6;
    hdo_oracle_direction(o, 0, u);
    hdo_oracle_direction(o, 3, u + D);
    if (memcmp(u, u + D, D * sizeof *u) == 0) return -7;
    if (hdo_oracle_slopes(o, x, u, D, 2, &loss[1], slope) != 0 || loss[1] != again) return -8;
    for (int k = 0; k < 2; k++) {
        double want = 0.0;
        for (int j = 0; j < D; j++) want += (double)g[j] * (double)u[k * D + j];
        if (fabs(want - slope[k]) > 1e-5 * (1.0 + fabs(want))) return -9;
    }
    if (hdo_oracle_normals(o, 1, 8, z) != 0 || hdo_oracle_normals(o, 2, 8, z2) != 0 || memcmp(z, z2, sizeof z) == 0)
        return -10;
    hdo_oracle_normals(o, 1, 4, z2);
    if (memcmp(z, z2, 4 * sizeof *z) != 0) return -11;
    return 0;
}

static hdo_estimator_def estimator_def(const char *name) {
    return (hdo_estimator_def){.struct_size = sizeof(hdo_estimator_def),
                               .name = name,
                               .needs = HDO_NEED_LOSSES,
                               .uses_directions = 1,
                               .scratch_per_dim = 3 * sizeof(float),
                               .estimate = central};
}

static hdo_config *new_config(const char *settings) {
    hdo_error e = {0};
    hdo_config *c = hdo_config_new(NULL, &e);
    assert_non_null(c);
    if (hdo_config_load_text(c, base, &e) != HDO_OK) fail_msg("%s", e.msg);
    if (hdo_config_load_text(c, settings, &e) != HDO_OK) fail_msg("%s", e.msg);
    return c;
}

static void bring_estimator(hdo_config *c, const hdo_estimator_def *d, book *b) {
    hdo_error e = {0};
    if (hdo_config_use_estimator(c, d, b, &e) != HDO_OK) fail_msg("%s", e.msg);
}

/* Runs to the end; HDO_OK or what went wrong. */
static hdo_status finish(hdo_config *c, hdo_run **run, hdo_error *e) {
    hdo_stop why = HDO_RUNNING;
    hdo_status st = hdo_run_new(run, c, e);
    while (st == HDO_OK && why == HDO_RUNNING) st = hdo_run_advance(*run, 15, &why, e);
    hdo_config_free(c);
    return st;
}

static const char mine[] = "population: {fo: {count: 1, estimator: fo, lr: 0.1}, zo: {count: 3, estimator: mine, rv: "
                           "5, lr: 0.05, nu: 1.0e-3}}\n";

static void an_estimator_trains(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_run *run;
    book b = {0};
    hdo_estimator_def d = estimator_def("mine");
    hdo_config *c = new_config(mine);
    bring_estimator(c, &d, &b);
    if (finish(c, &run, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(b.calls, 3 * 40);
    assert_int_equal(b.nodes_seen, 0xe);
    const hdo_row *row = hdo_run_last_row(run);
    assert_true(hdo_row_value(row, "oracle/forward") == 3.0 * 40 * 10);
    assert_true(hdo_row_value(row, "oracle/backward") == 40.0);
    assert_true(hdo_row_value(row, "val/loss_mu") < 0.1 * hdo_row_value(hdo_run_row(run, 0), "val/loss_mu"));
    hdo_run_free(run);
}

static void threads_do_not_matter(void **state) {
    char hex[2][65];
    (void)state;
    for (int k = 0; k < 2; k++) {
        hdo_error e = {0};
        hdo_run *run;
        book b = {0};
        hdo_estimator_def d = estimator_def("mine");
        hdo_config *c = new_config(mine);
        assert_int_equal(hdo_config_set(c, "threads", k == 0 ? "1" : "3", &e), HDO_OK);
        bring_estimator(c, &d, &b);
        if (finish(c, &run, &e) != HDO_OK) fail_msg("%s", e.msg);
        hdo_run_fingerprint(run, hex[k]);
        hdo_run_free(run);
    }
    assert_string_equal(hex[0], hex[1]);
}

static void the_oracle_answers(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_run *run;
    book b = {0};
    hdo_estimator_def d = estimator_def("mine");
    d.estimate = curious;
    d.needs = HDO_NEED_LOSSES | HDO_NEED_GRADIENT | HDO_NEED_SLOPES;
    d.scratch = 64;
    d.scratch_per_dim = 5 * sizeof(float);
    hdo_config *c = new_config(mine);
    bring_estimator(c, &d, &b);
    if (finish(c, &run, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(b.calls, 120);
    assert_true(hdo_row_value(hdo_run_last_row(run), "oracle/jvp") == 240.0);
    hdo_run_free(run);
}

static void its_sentence_is_never_lost(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        hdo_error e = {0};
        hdo_run *run;
        book b = {.result_at = 50, .result = -1};
        hdo_estimator_def d = estimator_def("mine");
        hdo_config *c = new_config(mine);
        assert_int_equal(hdo_config_set(c, "threads", threads == 1 ? "1" : "3", &e), HDO_OK);
        bring_estimator(c, &d, &b);
        assert_int_equal(finish(c, &run, &e), HDO_E_OBJECTIVE);
        if (strcmp(e.msg, "mine: the wind has turned in step 16") != 0) fail_msg("%s", e.msg);
        assert_int_equal(hdo_status_exit_code(e.code), 6);
        hdo_stop why;
        assert_int_equal(hdo_run_advance(run, 1, &why, &e), HDO_E_OBJECTIVE);
        assert_non_null(strstr(e.msg, "the wind"));
        hdo_run_free(run);
    }
}

static void tables_that_cannot_be_used(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t size;
        unsigned needs;
        int no_callback;
        const char *says;
    } cases[] = {
        {"fd", sizeof(hdo_estimator_def), 1, 0, "the library has one of that name"},
        {NULL, sizeof(hdo_estimator_def), 1, 0, "no name"},
        {"A b", sizeof(hdo_estimator_def), 1, 0, "cannot name"},
        {"mine", 0, 1, 0, "struct_size"},
        {"mine", sizeof(hdo_estimator_def) + 8, 1, 0, "newer version"},
        {"mine", sizeof(hdo_estimator_def), 64, 0, "HDO_NEED_"},
        {"mine", sizeof(hdo_estimator_def), 1, 1, "no 'estimate'"},
    };
    hdo_config *c = new_config("seed: 7\n");
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        hdo_error e = {0};
        char room[sizeof(hdo_estimator_def) + 16] = {0};
        hdo_estimator_def d = estimator_def(cases[k].name);
        d.struct_size = cases[k].size;
        d.needs = cases[k].needs;
        if (cases[k].no_callback) d.estimate = NULL;
        memcpy(room, &d, sizeof d);
        hdo_status st = hdo_config_use_estimator(c, (const hdo_estimator_def *)(const void *)room, NULL, &e);
        if (st == HDO_OK || strstr(e.msg, cases[k].says) == NULL) fail_msg("case %zu: %d, %s", k, st, e.msg);
    }
    assert_int_equal(hdo_config_use_estimator(NULL, NULL, NULL, NULL), HDO_E_MISUSE);
    assert_int_equal(hdo_config_use_mixing(c, NULL, NULL, NULL), HDO_E_MISUSE);
    assert_int_equal(hdo_config_use_sink(c, NULL, NULL, NULL), HDO_E_MISUSE);
    hdo_error e;
    assert_int_equal(hdo_config_set(c, "population.fo.estimator", "mine", &e), HDO_OK);
    assert_int_equal(hdo_config_check(c, &e), HDO_E_CONFIG); /* nobody brought it */
    hdo_config_free(c);
}

static void destroy(void *user) {
    ((book *)user)->destroyed++;
}

static void destroyed_once_by_the_last(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_run *run;
    book b = {0}, other = {0};
    hdo_estimator_def d = estimator_def("mine");
    d.destroy = destroy;
    hdo_config *c = new_config(mine);
    bring_estimator(c, &d, &other);
    bring_estimator(c, &d, &b); /* takes its place */
    assert_int_equal(other.destroyed, 1);
    hdo_config *copy = hdo_config_copy(c);
    if (hdo_run_new(&run, copy, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_config_free(c);
    hdo_config_free(copy);
    assert_int_equal(b.destroyed, 0);
    assert_int_equal(hdo_run_advance(run, 2, NULL, &e), HDO_OK);
    hdo_run_free(run);
    assert_int_equal(b.destroyed, 1);
}

/* ---- mixings ---- */

typedef enum manner { ALONE, NEIGHBOURS, NOT_MUTUAL, OUT_OF_RANGE, REFUSES, ONE_PAIR } manner;

static int pairs(void *user, hdo_call *call, int n, int32_t *partner) {
    manner m = *(const manner *)user;
    if (call->step < 0) return -7;
    for (int i = 0; i < n; i++) partner[i] = i;
    for (int i = call->step % 2 == 0 ? 0 : 1; i + 1 < n && m == NEIGHBOURS; i += 2) {
        partner[i] = i + 1;
        partner[i + 1] = i;
    }
    if (m == NOT_MUTUAL && call->step == 3) partner[1] = 2;
    if (m == OUT_OF_RANGE && call->step == 3) partner[2] = n;
    if (m == REFUSES && call->step == 3) {
        snprintf(call->message, call->message_cap, "the bridge is closed");
        return -1;
    }
    if (m == ONE_PAIR) {
        int i = (int)(call->step % (n - 1));
        partner[i] = i + 1;
        partner[i + 1] = i;
    }
    return 0;
}

static hdo_status mix(manner m, int all_step, hdo_run **run, hdo_error *e) {
    static manner kept[8];
    kept[m] = m;
    hdo_mixing_def d = {.struct_size = sizeof d, .name = "bridges", .all_step = all_step, .pairs = pairs};
    hdo_config *c = new_config("population: {fo: {count: 4, estimator: fo, lr: 0.1}}\n");
    if (hdo_config_use_mixing(c, &d, &kept[m], e) != HDO_OK) fail_msg("%s", e->msg);
    return finish(c, run, e);
}

static void a_mixing_says_who_meets(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_run *run, *none;
    char a[65], b[65];
    if (mix(ALONE, 1, &run, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_run_fingerprint(run, a);
    assert_true(hdo_row_value(hdo_run_last_row(run), "interactions") == 0.0);
    hdo_config *c = new_config("population: {fo: {count: 4, estimator: fo, lr: 0.1}}\nmixing: {kind: none}\n");
    if (finish(c, &none, &e) != HDO_OK) fail_msg("%s", e.msg);
    hdo_run_fingerprint(none, b);
    assert_string_equal(a, b);
    hdo_run_free(run);
    hdo_run_free(none);
    if (mix(NEIGHBOURS, 1, &run, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_true(hdo_row_value(hdo_run_last_row(run), "interactions") == 20.0 * 2 + 20.0 * 1);
    assert_true(hdo_row_value(hdo_run_last_row(run), "oracle/backward") == 160.0);
    hdo_run_free(run);
    if (mix(ONE_PAIR, 0, &run, &e) != HDO_OK) fail_msg("%s", e.msg); /* only those who meet step */
    assert_true(hdo_row_value(hdo_run_last_row(run), "oracle/backward") == 80.0);
    hdo_run_free(run);
}

static void partners_that_are_none(void **state) {
    static const struct {
        manner how;
        const char *says;
    } cases[] = {{NOT_MUTUAL, "mixing 'bridges', step 3: the partner of node 1 is 2, but the partner of node 2 is 2"},
                 {OUT_OF_RANGE, "the partner of node 2 is 4, but nodes are 0 to 3"},
                 {REFUSES, "bridges: the bridge is closed"}};
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        hdo_error e = {0};
        hdo_run *run;
        assert_int_equal(mix(cases[k].how, 1, &run, &e), HDO_E_OBJECTIVE);
        if (strstr(e.msg, cases[k].says) == NULL) fail_msg("%s", e.msg);
        hdo_run_free(run);
    }
    hdo_error e;
    hdo_mixing_def d = {.struct_size = sizeof d, .name = "matching", .pairs = pairs};
    hdo_config *c = new_config("seed: 7\n");
    assert_int_equal(hdo_config_use_mixing(c, &d, NULL, &e), HDO_E_MISUSE);
    d.name = "bridges";
    d.pairs = NULL;
    assert_int_equal(hdo_config_use_mixing(c, &d, NULL, &e), HDO_E_MISUSE);
    hdo_config_free(c);
}

/* Another identity under the same name, or nobody at all, does not go on with a stored run. */
static void identities_guard_a_resume(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        hdo_error e = {0};
        hdo_run *run;
        book b = {0};
        manner alone = ALONE;
        char dir[64];
        snprintf(dir, sizeof dir, "%s/identity%d", folder, how);
        hdo_estimator_def d = estimator_def("mine");
        hdo_mixing_def m = {
            .struct_size = sizeof m, .name = "bridges", .identity = "old", .all_step = 1, .pairs = pairs};
        for (int again = 0; again < 2; again++) {
            d.identity = again && how == 1 ? "mine 2" : "mine 1";
            m.identity = again && how == 2 ? "new" : "old";
            hdo_config *c = new_config(mine);
            bring_estimator(c, &d, &b);
            assert_int_equal(hdo_config_use_mixing(c, &m, &alone, &e), HDO_OK);
            if (again == 0) {
                if (hdo_run_new(&run, c, &e) != HDO_OK) fail_msg("%s", e.msg);
                assert_int_equal(hdo_run_open_dir(run, dir, false, &e), HDO_OK);
                assert_int_equal(hdo_run_advance(run, 5, NULL, &e), HDO_OK);
                assert_int_equal(hdo_run_save(run, &e), HDO_OK);
            } else {
                hdo_status st = hdo_run_resume(&run, dir, how == 3 ? NULL : c, &e);
                assert_int_equal(st, how == 0 ? HDO_OK : how == 3 ? HDO_E_CONFIG : HDO_E_DATA);
                if (how == 1 || how == 2) assert_non_null(strstr(e.msg, "of one's own"));
                if (how == 3) assert_non_null(strstr(e.msg, "bridges"));
            }
            hdo_run_free(run);
            hdo_config_free(c);
        }
    }
}

/* ---- sinks ---- */

typedef struct basin {
    int opened, rows, flushed, closed, columns;
    bool had_dir;
    int64_t from_step, last_step, refuse_at;
} basin;

static int sink_open(void *user, hdo_call *call, const char *dir, const char *const *columns, int64_t from_step) {
    basin *b = user;
    (void)call;
    b->opened++;
    b->had_dir = dir != NULL;
    b->from_step = from_step;
    for (b->columns = 0; columns[b->columns] != NULL; b->columns++) continue;
    return strcmp(columns[0], "step") == 0 ? 0 : -1;
}
static int sink_row(void *user, hdo_call *call, const struct hdo_row *row) {
    basin *b = user;
    b->rows++;
    b->last_step = (int64_t)hdo_row_value(row, "step");
    if (b->refuse_at == 0 || b->last_step < b->refuse_at) return 0;
    snprintf(call->message, call->message_cap, "the basin is full");
    return 1;
}
static int sink_flush(void *user, hdo_call *call, int64_t step) {
    (void)call, (void)step;
    return ((basin *)user)->flushed++ * 0;
}
static int sink_close(void *user, hdo_call *call) {
    (void)call;
    return ((basin *)user)->closed++ * 0;
}

static hdo_config *with_sink(basin *b) {
    hdo_error e = {0};
    hdo_sink_def d = {.struct_size = sizeof d,
                      .name = "basin",
                      .open = sink_open,
                      .row = sink_row,
                      .flush = sink_flush,
                      .close = sink_close};
    hdo_config *c = new_config("population: {fo: {count: 2, estimator: fo, lr: 0.1}}\ncheckpoint: {every: 20}\n");
    if (hdo_config_use_sink(c, &d, b, &e) != HDO_OK) fail_msg("%s", e.msg);
    return c;
}

static void a_sink_gets_rows(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_run *run;
    basin b = {0};
    if (finish(with_sink(&b), &run, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(b.opened, 1);
    assert_false(b.had_dir);
    assert_int_equal(b.rows, 5);
    assert_int_equal(b.rows, hdo_run_row_count(run));
    int columns = 0;
    for (const char *const *c = hdo_run_columns(run); c[columns] != NULL; columns++) continue;
    assert_int_equal(b.columns, columns);
    hdo_run_free(run);
    assert_int_equal(b.closed, 1);
}

static void a_sink_knows_the_folder_and_resumes(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_run *run;
    hdo_stop why;
    basin b = {0}, again = {0};
    char dir[64];
    snprintf(dir, sizeof dir, "%s/sink", folder);
    hdo_config *c = with_sink(&b);
    if (hdo_run_new(&run, c, &e) != HDO_OK) fail_msg("%s", e.msg);
    if (hdo_run_open_dir(run, dir, false, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_true(b.had_dir);
    assert_int_equal(hdo_run_advance(run, 25, &why, &e), HDO_OK);
    assert_int_equal(b.flushed, 1);
    hdo_run_free(run);
    hdo_config_free(c);
    c = with_sink(&again);
    if (hdo_run_resume(&run, dir, c, &e) != HDO_OK) fail_msg("%s", e.msg);
    assert_int_equal(again.from_step, 20);
    assert_int_equal(hdo_run_advance(run, 100, &why, &e), HDO_OK);
    assert_int_equal(again.last_step, 40);
    hdo_run_free(run);
    hdo_config_free(c);
}

static void a_sink_can_end_a_run(void **state) {
    (void)state;
    hdo_error e = {0};
    hdo_run *run;
    basin b = {.refuse_at = 20};
    assert_int_equal(finish(with_sink(&b), &run, &e), HDO_E_IO);
    assert_string_equal(e.msg, "basin: the basin is full");
    hdo_run_free(run);
    assert_int_equal(b.closed, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_estimator_trains),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(the_oracle_answers),
        cmocka_unit_test(its_sentence_is_never_lost),
        cmocka_unit_test(tables_that_cannot_be_used),
        cmocka_unit_test(destroyed_once_by_the_last),
        cmocka_unit_test(a_mixing_says_who_meets),
        cmocka_unit_test(partners_that_are_none),
        cmocka_unit_test(identities_guard_a_resume),
        cmocka_unit_test(a_sink_gets_rows),
        cmocka_unit_test(a_sink_knows_the_folder_and_resumes),
        cmocka_unit_test(a_sink_can_end_a_run),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
