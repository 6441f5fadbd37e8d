/* SPDX-License-Identifier: Apache-2.0 — the paper's experiments: tables, configurations, stored runs, claims,
 * evaluation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/file.h"
#include "hdo/lab/eval.h"
#include "hdo/experimental/all.h"
#include "hdo/lab/paper.h"
#include "hdo/lab/sweep.h"
#include "folder_help.h"

static hdo_paper_case case_of(const char *id, const char *reading, const char *root) {
    return (hdo_paper_case){.x = hdo_paper_find(id), .reading = hdo_paper_reading_find(reading), .root = root};
}

/* Work of a run without evaluations: passes over samples. */
static double work_of(const char *estimator, const char *rv) {
    static const char *const sets[][2] = {{"steps", "10"}, {"eval.every", "0"}, {"data.val", "1"}};
    hdo_config *c = malloc(sizeof *c);
    hdo_error e = {0};
    hdo_config_default(c);
    assert_int_equal(hdo_config_population(c, "2zo", &e), HDO_OK);
    for (int k = 0; k < 3; k++)
        assert_int_equal(hdo_config_set_from(c, sets[k][0], sets[k][1], HDO_FROM_FLAG, &e), HDO_OK);
    c->population[0].batch = 5;
    assert_int_equal(hdo_config_set_from(c, "population.zo.estimator", estimator, HDO_FROM_FLAG, &e), HDO_OK);
    assert_int_equal(hdo_config_set_from(c, "population.zo.rv", rv, HDO_FROM_FLAG, &e), HDO_OK);
    double work = (hdo_paper_cost(c) - 10.0 * 2.0 / 11.0) / (10.0 * 2.0 * 5.0); /* two nodes are evaluated at the end */
    free(c);
    return work;
}

/* Vectors are work, unless a law stands for all of them. */
static void test_paper_work(void **state) {
    (void)state;
    assert_float_equal(work_of("fd", "16"), 17.0, 1e-9);
    assert_float_equal(work_of("fd-central", "16"), 32.0, 1e-9);
    assert_float_equal(work_of("forward", "16"), 32.0, 1e-9);
    assert_float_equal(work_of("forward-sim", "16"), 32.0, 1e-9);
    assert_float_equal(work_of("complex-step", "16"), 65.0, 1e-9);
    assert_float_equal(work_of("forward-law", "16"), 3.0, 1e-9);
    assert_float_equal(work_of("fd-law", "16"), 3.0, 1e-9);
    assert_float_equal(work_of("fo", "1"), 3.0, 1e-9);
}

/* Every curve of every experiment under every reading, in full and quick, is a configuration that makes sense. */
static void test_paper_configurations(void **state) {
    (void)state;
    hdo_config *c = malloc(sizeof *c);
    int n = 0;
    for (int i = 0; hdo_paper_at(i) != NULL; i++) {
        for (int r = 0; hdo_paper_reading_at(r) != NULL; r++) {
            for (int q = 0; q < 2; q++) {
                hdo_paper_case k = {
                    .x = hdo_paper_at(i), .reading = hdo_paper_reading_at(r), .quick = q == 1, .root = "x"};
                for (int v = 0; v < k.x->n_variants; v++, n++) {
                    hdo_error e = {0};
                    hdo_status st = hdo_paper_config(&k, v, 7, c, &e);
                    if (st == HDO_OK) st = hdo_config_check(c, &e);
                    if (st != HDO_OK)
                        print_error("%s %s %s: %s\n", k.x->id, k.reading->name, k.x->variant[v].label, e.msg);
                    assert_int_equal(st, HDO_OK);
                    assert_int_equal(c->seed, 7);
                    assert_true(hdo_paper_cost(c) > 0.0);
                }
            }
        }
    }
    assert_int_equal(n, 2 * 12 * (6 + 6 + 4 + 5 + 5 + 9 + 5));
    hdo_paper_case k = case_of("e1", "he-per-tensor", "x");
    assert_int_equal(hdo_paper_config(&k, 2, 0, c, NULL), HDO_OK);
    assert_string_equal(c->population[0].estimator, "fd");
    assert_true(c->population[0].rv == 128 && c->model.init.id == HDO_INIT_HE);
    assert_int_equal(c->population[0].directions.id, HDO_DIRECTIONS_PER_TENSOR);
    k = case_of("e5", "text", "x");
    assert_int_equal(hdo_paper_config(&k, 4, 0, c, NULL), HDO_OK);
    assert_true(c->population[0].lr.arg == 0.5 && c->population[1].lr.arg == 0.5 && c->population[1].count == 90);
    free(c);
}

/* The authors' code: literal vectors, alike on all nodes, tensor by tensor; but differences along whole vectors. */
static void test_paper_authors(void **state) {
    (void)state;
    hdo_config *c = malloc(sizeof *c);
    hdo_paper_case k = case_of("e1", "authors", "x");
    for (int v = 0; v < k.x->n_variants; v++) {
        assert_int_equal(hdo_paper_config(&k, v, 0, c, NULL), HDO_OK);
        bool fd = strcmp(c->population[0].estimator, "fd") == 0;
        assert_int_equal(fd, strncmp(k.x->variant[v].label, "fd", 2) == 0);
        assert_int_equal(c->population[0].directions.id, fd ? HDO_DIRECTIONS_WHOLE : HDO_DIRECTIONS_PER_TENSOR);
    }
    for (int i = 1; hdo_paper_at(i) != NULL; i++) {
        for (int reading = 0; reading < 2; reading++) {
            k = case_of(hdo_paper_at(i)->id, reading == 0 ? "authors" : "shared-streams", "x");
            assert_int_equal(hdo_paper_config(&k, k.x->n_variants - 1, 0, c, NULL), HDO_OK);
            for (int p = 0; p < c->n_classes; p++) {
                if (strcmp(c->population[p].name, "zo") != 0) continue;
                assert_string_equal(c->population[p].estimator, "forward-sim");
                assert_int_equal(c->population[p].streams.id, HDO_STREAMS_SHARED);
            }
        }
    }
    for (int i = 0; hdo_paper_at(i) != NULL; i++) { /* every difference there is, and none of them in the text */
        for (int authors = 0; authors < 2; authors++) {
            const char *id = hdo_paper_at(i)->id;
            k = case_of(id, authors ? "authors" : "text", "x");
            assert_int_equal(hdo_paper_config(&k, 0, 0, c, NULL), HDO_OK);
            bool e3 = authors && strcmp(id, "e3") == 0, e4 = authors && strcmp(id, "e4") == 0;
            bool both = authors && !e3 && !e4; /* these two are the same network in both readings */
            assert_int_equal(c->model.reading.id, both ? HDO_READING_AUTHORS : HDO_READING_TEXT);
            assert_int_equal(c->data.reshuffle, !authors);
            assert_int_equal(c->data.law.id, e4 ? HDO_LAW_AUTHORS : HDO_LAW_UNIFORM);
            assert_int_equal(c->data.scaling.id, e3 ? HDO_SCALING_TWICE : HDO_SCALING_NORMALISED);
            assert_true(c->data.augment == e3 && c->data.augment_val == e3 && c->model.resize == (e3 ? 256 : 0));
            bool cosine = strcmp(id, "e1") == 0 || strcmp(id, "e3") == 0 || strcmp(id, "e4") == 0;
            for (int p = 0; p < c->n_classes; p++)
                assert_int_equal(c->population[p].schedule.id, !cosine   ? HDO_SCHEDULE_CONSTANT
                                                               : authors ? HDO_SCHEDULE_COSINE_AUTHORS
                                                                         : HDO_SCHEDULE_COSINE);
        }
    }
    free(c);
}

/* A centre larger than the picture, or a picture the model does not resize, is refused. */
static void test_paper_resize(void **state) {
    (void)state;
    hdo_config *c = malloc(sizeof *c);
    hdo_error e = {0};
    hdo_paper_case k = case_of("e3", "authors", "x");
    assert_int_equal(hdo_paper_config(&k, 0, 0, c, &e), HDO_OK);
    assert_int_equal(hdo_config_check(c, &e), HDO_OK);
    c->model.resize = 223;
    assert_int_equal(hdo_config_check(c, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "model.resize is 223"));
    assert_non_null(strstr(e.msg, "model.input_size (224)"));
    strcpy(c->model.name, "cnn2");
    assert_int_equal(hdo_config_check(c, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "model.resize is for resnet18, but model.name is 'cnn2'"));
    free(c);
}

/* The paper's search intervals are ones hdo sweep understands, of settings the presets have; its tables search batch,
 * momentum and rv too. */
static void test_paper_searches(void **state) {
    (void)state;
    hdo_config *c = malloc(sizeof *c);
    hdo_sweep_axis *axis = calloc(HDO_SWEEP_AXES, sizeof *axis);
    int batches = 0, momenta = 0, vectors = 0;
    for (int i = 0; hdo_paper_at(i) != NULL; i++) {
        const hdo_paper_experiment *x = hdo_paper_at(i);
        hdo_sweep *s = NULL;
        int n = 0;
        const char *yaml = hdo_preset(x->id);
        hdo_config_default(c);
        assert_int_equal(hdo_config_load_bytes(c, x->id, yaml, strlen(yaml), NULL), HDO_OK);
        for (; n < HDO_PAPER_AXES && x->search[n] != NULL; n++) {
            assert_int_equal(hdo_sweep_axis_parse(x->search[n], &axis[n], NULL), HDO_OK);
            batches += strstr(axis[n].key, ".batch") != NULL;
            momenta += strstr(axis[n].key, ".momentum") != NULL;
            vectors += strstr(axis[n].key, ".rv") != NULL;
        }
        assert_int_equal(hdo_sweep_create(&s, axis, n, 20, 1, NULL), HDO_OK);
        for (int p = 0; p < s->n_points; p++) {
            hdo_error e = {0};
            if (hdo_sweep_apply(s, p, c, &e) != HDO_OK) fail_msg("%s: %s", x->id, e.msg);
            assert_int_equal(hdo_config_check(c, NULL), HDO_OK);
        }
        hdo_sweep_destroy(s);
    }
    assert_true(batches == 7 && momenta == 2 && vectors == 4);
    free(axis);
    free(c);
}

static void test_paper_folders(void **state) {
    (void)state;
    char dir[HDO_PATH_MAX];
    hdo_paper_case k = case_of("e6", "authors", "root");
    assert_true(hdo_paper_dir(&k, 0, 2, dir, sizeof dir));
    assert_string_equal(dir, "root/e6-authors/4fo+16zo-rv-8/seed-2");
    k.quick = true;
    assert_true(hdo_paper_dir(&k, -1, -1, dir, sizeof dir));
    assert_string_equal(dir, "root/e6-authors-quick");
    assert_false(hdo_paper_dir(&k, 0, 2, dir, 20));
}

/* ---- claims on made-up curves ---- */

typedef struct shape { /* loss = a + b exp(-step / tau), plus a zigzag */
    double a, b, tau, zigzag, noise;
    int diverges; /* after this many points; 0: never */
    double price; /* cost of a step; 0: one */
} shape;

static void fake(const hdo_paper_case *k, int variant, int seed, shape s) {
    char dir[HDO_PATH_MAX], path[HDO_PATH_MAX + 32], text[32768];
    size_t len = 0;
    int points = s.diverges > 0 ? s.diverges : 51;
    assert_true(hdo_paper_dir(k, variant, seed, dir, sizeof dir));
    assert_int_equal(hdo__dir_create(dir, NULL), HDO_OK);
    for (int i = 0; i < points; i++) {
        double x = 10.0 * i,
               loss = s.a + s.b * exp(-x / s.tau) + (i % 2 == 0 ? s.zigzag : -s.zigzag) + s.noise * (seed - 1);
        len += (size_t)snprintf(text + len, sizeof text - len,
                                "{\"step\": %d, \"val/loss_mean\": %.17g, \"val/acc_mean\": %.17g, \"val/loss_std\": "
                                "%.17g, \"val/loss_mu\": 1, \"val/loss_node0\": %.17g, \"val/acc_node0\": %.17g, "
                                "\"oracle/cost\": %.17g}\n",
                                10 * i, loss, 1.0 - loss / 10.0, s.b * exp(-x / s.tau) * (1.0 + 0.01 * seed),
                                2.0 * loss, 1.0 - loss / 5.0, (s.price > 0.0 ? s.price : 1.0) * x);
    }
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    assert_int_equal(hdo__file_write(path, text, len, NULL), HDO_OK);
    len = (size_t)snprintf(text, sizeof text, "{\"outcome\": \"%s\", \"seed\": %d}",
                           s.diverges > 0 ? "diverged" : "completed", seed);
    snprintf(path, sizeof path, "%s/summary.json", dir);
    assert_int_equal(hdo__file_write(path, text, len, NULL), HDO_OK);
}

static const hdo_claim_result *part(const hdo_claim_result *r, int n, const char *text) {
    for (int i = 0; i < n; i++) {
        if (strcmp(r[i].text, text) == 0) return &r[i];
    }
    fail_msg("no part '%s'", text);
    return NULL;
}

static void test_paper_claims_know_their_curves(void **state) {
    (void)state;
    hdo_claim_result r[HDO_CLAIM_PARTS_MAX];
    char root[128];
    snprintf(root, sizeof root, "%s/all", folder);
    bool seen[8] = {false};
    for (int i = 0; hdo_paper_at(i) != NULL; i++) {
        int n = 0;
        hdo_paper_case k = {.x = hdo_paper_at(i), .reading = hdo_paper_reading_find("text"), .root = root};
        assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
        assert_true(n > 0);
        for (int p = 0; p < n; p++) {
            assert_int_equal(r[p].verdict, HDO_UNDECIDED);
            assert_string_equal(r[p].note, "not run");
        }
        for (int v = 0; v < k.x->n_variants; v++) {
            for (int seed = 0; seed < 3; seed++)
                fake(&k, v, seed, (shape){1.0 + 0.1 * v, 1.0, 100.0, 0.01, 0.001, 0, 0});
        }
        assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
        for (int p = 0; p < n; p++) {
            seen[r[p].claim] = true;
            assert_string_not_equal(r[p].note, "not run"); /* every label of the table of claims is one of the curves */
            assert_int_equal(r[p].d.n_a, 3);
        }
        assert_int_equal(hdo_paper_tables(&k, NULL), HDO_OK);
        assert_int_equal(hdo_paper_figures(&k, "step", 0, NULL), HDO_OK);
    }
    for (int c = 1; c <= 7; c++) assert_true(seen[c] && hdo_claim_text(c) != NULL);
    assert_null(hdo_claim_text(8));
    char html[160], md[160], *text;
    size_t len;
    snprintf(html, sizeof html, "%s/page.html", folder);
    snprintf(md, sizeof md, "%s/results.md", folder);
    const char before[] = "# Mine\n<!-- results -->\nREPLACED\n<!-- end of results -->\nafter\n";
    assert_int_equal(hdo__file_write(md, before, sizeof before - 1, NULL), HDO_OK);
    assert_int_equal(hdo_paper_report(root, html, md, NULL, NULL), HDO_OK);
    assert_int_equal(hdo__file_read(md, 1 << 22, &text, &len, NULL), HDO_OK);
    assert_non_null(strstr(text, "# Mine\n<!-- results -->\n"));
    assert_non_null(strstr(text, "\n<!-- end of results -->\nafter\n"));
    assert_null(strstr(text, "REPLACED"));
    assert_non_null(strstr(text, "| | | text |\n|---|---|---|\n| **2** | **first-order nodes beat the same"));
    assert_non_null(strstr(text, "|\n|  | 256 ZO beat 24 FO at the end | no |\n"));
    free(text);
    assert_true(hdo__path_exists(html));
    assert_int_equal(hdo_paper_report("/nonexistent", html, NULL, NULL, NULL), HDO_E_DATA);
}

static void test_paper_verdicts(void **state) {
    (void)state;
    hdo_claim_result r[HDO_CLAIM_PARTS_MAX];
    int n = 0;
    char root[128];
    snprintf(root, sizeof root, "%s/verdicts", folder);
    hdo_paper_case k = case_of("e2", "text", root);
    /* 1 FO bad; 24 FO fast at first, then worse; 256 ZO and the hybrid better at the end, equal to each other */
    const shape s[] = {{1.0, 1.0, 100, 0, 0.01, 0, 0}, {0.5, 1.0, 30, 0, 0.01, 0, 0}, {1.5, 1.0, 100, 0, 0.01, 0, 0},
                       {1.2, 1.0, 100, 0, 0.01, 0, 0}, {0.4, 1.5, 80, 0, 0.01, 0, 0}, {0.4, 1.5, 80, 0, -0.01, 0, 0}};
    for (int v = 0; v < 6; v++) {
        for (int seed = 0; seed < 3; seed++) fake(&k, v, seed, s[v]);
    }
    assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
    assert_int_equal(part(r, n, "256 ZO beat 1 FO")->verdict, HDO_HOLDS);
    assert_int_equal(part(r, n, "256 ZO beat 24 FO at the end")->verdict, HDO_HOLDS);
    assert_int_equal(part(r, n, "24 FO lead 256 ZO at first (steps 20 to 150)")->verdict, HDO_HOLDS);
    assert_int_equal(part(r, n, "256 ZO beat 24 FO at the end")->lean, 1);
    assert_int_equal(part(r, n, "the hybrid beats 256 ZO at the end")->verdict, HDO_UNDECIDED);
    assert_int_equal(part(r, n, "the hybrid beats 256 ZO at the end")->lean, 1); /* by its nodes' -0.01 a seed */
    assert_non_null(strstr(part(r, n, "24 FO lead 256 ZO at first (steps 20 to 150)")->note, "cross last near step"));
    assert_int_equal(hdo_claim_verdict(r, n, 3), HDO_HOLDS);
    assert_int_equal(hdo_claim_verdict(r, n, 4), HDO_UNDECIDED);
    assert_int_equal(part(r, n, "24 FO beat 24 ZO")->verdict, HDO_HOLDS);
    assert_int_equal(part(r, n, "1 FO beats 1 ZO")->verdict, HDO_HOLDS);
    assert_int_equal(hdo_claim_verdict(r, n, 2), HDO_HOLDS);
    const hdo_claim_result *fixed = part(r, n, "fixed node: 256 ZO beat 24 FO");
    assert_int_equal(fixed->verdict, HDO_HOLDS);
    assert_true(fixed->claim == 0 && fabs(fixed->d.b - 1.0) < 1e-3); /* node 0 has twice the loss here */
    for (int seed = 0; seed < 3; seed++) fake(&k, 5, seed, (shape){0.9, 1.0, 100, 0, 0.01, 0, 0});
    assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
    assert_int_equal(part(r, n, "the hybrid beats 24 FO at the end")->verdict, HDO_FAILS);
    assert_int_equal(part(r, n, "the hybrid beats 24 FO at the end")->lean, -1);
    assert_int_equal(hdo_claim_verdict(r, n, 4), HDO_FAILS);
}

static void test_paper_verdicts_of_diverged_runs(void **state) {
    (void)state;
    hdo_claim_result r[HDO_CLAIM_PARTS_MAX];
    int n = 0;
    char root[128];
    snprintf(root, sizeof root, "%s/diverged", folder);
    hdo_paper_case k = case_of("e7", "text", root);
    const shape fine = {0.2, 2.0, 40, 0, 0.001, 0, 0}, slow = {0.22, 2.0, 80, 0, 0.001, 0, 0},
                lost = {2.0, 2.0, 100, 0, 0, 7, 0};
    for (int seed = 0; seed < 3; seed++) {
        fake(&k, 0, seed, fine);
        fake(&k, 2, seed, slow);
        fake(&k, 4, seed, lost);
    }
    assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
    assert_int_equal(part(r, n, "16 FO: spread below a tenth of its largest value")->verdict, HDO_HOLDS);
    assert_int_equal(part(r, n, "16 ZO: the same")->verdict, HDO_UNDECIDED);
    assert_int_equal(part(r, n, "16 ZO: the same")->lean, -1);
    assert_non_null(strstr(part(r, n, "16 ZO: the same")->note, "diverged: 3 of 3"));
    assert_int_equal(part(r, n, "8 FO + 8 ZO are slower than 16 FO")->verdict, HDO_HOLDS);
    assert_int_equal(part(r, n, "16 ZO are slower than 8 FO + 8 ZO")->verdict, HDO_UNDECIDED);
    assert_int_equal(part(r, n, "16 ZO are slower than 8 FO + 8 ZO")->lean, 1);
    assert_int_equal(part(r, n, "final loss of 16 ZO within a quarter of that of 16 FO")->verdict, HDO_UNDECIDED);
    fake(&k, 4, 0, slow); /* one seed of three comes through: undecided, but it leans */
    assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
    assert_int_equal(part(r, n, "16 ZO are slower than 8 FO + 8 ZO")->verdict, HDO_UNDECIDED);
    assert_int_equal(part(r, n, "16 ZO are slower than 8 FO + 8 ZO")->lean, 1);
    k = case_of("e7", "he", root); /* one seed */
    fake(&k, 0, 0, fine);
    fake(&k, 2, 0, slow);
    fake(&k, 4, 0, lost);
    assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
    for (int i = 0; i < n; i++) assert_int_equal(r[i].verdict, HDO_UNDECIDED);
    assert_int_equal(part(r, n, "16 ZO are slower than 8 FO + 8 ZO")->lean, 1);
    assert_int_equal(part(r, n, "16 ZO: the same")->lean, -1);
    k = case_of("e5", "text", root);
    for (int seed = 0; seed < 3; seed++) {
        fake(&k, 0, seed, (shape){0.5, 2.0, 200, 0.001, 0.001, 0, 0});
        fake(&k, 1, seed, (shape){0.4, 2.0, 100, 0.002 + 0.0001 * seed, 0.001, 0, 0});
        fake(&k, 4, seed, (shape){0.8, 2.0, 50, 0.2 + 0.01 * seed, 0.001, 0, 0});
    }
    assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
    assert_int_equal(part(r, n, "lr 0.5 oscillates more than 0.005")->verdict, HDO_HOLDS);
    assert_int_equal(part(r, n, "lr 0.5 is slower than 0.01")->verdict, HDO_HOLDS);
    assert_string_equal(part(r, n, "lr 0.5 is slower than 0.05")->note, "not run");
}

/* Divergence is an outcome, not evidence: where both curves are lost in every seed there is not even a lean. */
static void test_paper_all_diverged_is_undecided(void **state) {
    (void)state;
    hdo_claim_result r[HDO_CLAIM_PARTS_MAX];
    int n = 0;
    char root[128];
    snprintf(root, sizeof root, "%s/lost", folder);
    static const char *const ids[] = {"e1", "e2", "e4", "e5", "e6", "e7"};
    for (int i = 0; i < 6; i++) {
        hdo_paper_case k = case_of(ids[i], "text", root);
        for (int v = 0; v < k.x->n_variants; v++)
            for (int seed = 0; seed < 3; seed++) fake(&k, v, seed, (shape){2.0, 2.0, 100, 0, 0, 7, 0});
        assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
        for (int p = 0; p < n; p++) {
            assert_int_equal(r[p].verdict, HDO_UNDECIDED);
            assert_non_null(strstr(r[p].note, "diverged: 3 of 3"));
        }
    }
}

/* Seeds whose losses differ by far more than the curves of one seed do; one curve lacks a seed in the middle. */
static void test_paper_similar_pairs_seeds(void **state) {
    (void)state;
    hdo_claim_result r[HDO_CLAIM_PARTS_MAX];
    int n = 0;
    char root[128];
    snprintf(root, sizeof root, "%s/pairs", folder);
    hdo_paper_case k = case_of("e7", "text", root);
    for (int seed = 0; seed < 5; seed++) {
        shape s = {0.2 * (seed + 1), 2.0, 20, 0, 0, 0, 0};
        fake(&k, 0, seed, s);
        s.a *= 1.1;
        if (seed != 1) fake(&k, 4, seed, s);
    }
    assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
    const hdo_claim_result *p = part(r, n, "final loss of 16 ZO within a quarter of that of 16 FO");
    assert_int_equal(p->d.n_a, 4);
    assert_true(fabs(p->d.a - 0.1) < 1e-3);
    assert_int_equal(p->verdict, HDO_HOLDS);
    k = case_of("e7", "he", root); /* no seed in common */
    for (int seed = 0; seed < 3; seed++) {
        fake(&k, 0, seed, (shape){0.2, 2.0, 20, 0, 0, 0, 0});
        fake(&k, 4, 5 + seed, (shape){0.2, 2.0, 20, 0, 0, 0, 0});
    }
    assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
    p = part(r, n, "final loss of 16 ZO within a quarter of that of 16 FO");
    assert_int_equal(p->verdict, HDO_UNDECIDED);
    assert_string_equal(p->note, "no seed in common");
}

/* Many directions win per step and lose per pass when each step costs sixteen times as much. */
static void test_paper_equal_cost(void **state) {
    (void)state;
    hdo_claim_result r[HDO_CLAIM_PARTS_MAX];
    int n = 0;
    char root[128];
    snprintf(root, sizeof root, "%s/cost", folder);
    hdo_paper_case k = case_of("e1", "text", root);
    for (int seed = 0; seed < 3; seed++) {
        fake(&k, 3, seed, (shape){1.0, 2.0, 120, 0, 0.001 + 0.0001 * seed, 0, 16.0}); /* forward rv 8 */
        fake(&k, 5, seed, (shape){1.0, 2.0, 100, 0, 0.001, 0, 256.0});                /* forward rv 128 */
    }
    assert_int_equal(hdo_paper_claims(&k, r, &n, NULL), HDO_OK);
    const hdo_claim_result *p = part(r, n, "forward, at equal cost: 8 vectors beat 128");
    assert_int_equal(p->verdict, HDO_HOLDS);
    assert_string_equal(p->note, "at cost 8000"); /* 500 steps of rv 8 */
    assert_string_equal(part(r, n, "differences, at equal cost: 8 vectors beat 128")->note, "not run");
}

/* ---- stored runs and their evaluation ---- */

static void small_config(hdo_config *c) {
    static const char yaml[] =
        "model: logistic\ndata: {name: synthetic, classes: 4, features: 6, train: 400, val: 200, separation: 2.0}\n"
        "steps: 30\nthreads: 1\npopulation:\n  fo: {count: 2, estimator: fo, lr: 0.1, batch: 4}\n"
        "  zo: {count: 2, estimator: forward-law, rv: 8, lr: 0.1, batch: 4}\n";
    hdo_config_default(c);
    assert_int_equal(hdo_config_load_bytes(c, "small", yaml, strlen(yaml), NULL), HDO_OK);
}

static void test_paper_stored_runs(void **state) {
    (void)state;
    hdo_config *c = malloc(sizeof *c);
    hdo_run *r;
    hdo_stop why;
    char dir[160], path[200];
    snprintf(dir, sizeof dir, "%s/run", folder);
    small_config(c);
    assert_int_equal(hdo_run_stored(dir, c), HDO_STORED_NOTHING);
    assert_int_equal(hdo_run_create(&r, c, NULL, NULL), HDO_OK);
    assert_int_equal(hdo_run_attach_dir(r, dir, false, NULL, NULL), HDO_OK);
    assert_int_equal(hdo_run_advance(r, 1000, &why, NULL), HDO_OK);
    assert_int_equal(hdo_run_stored(dir, c), HDO_STORED_PART);
    assert_int_equal(hdo_run_write_summary(r, NULL), HDO_OK);
    assert_int_equal(hdo_run_stored(dir, c), HDO_STORED_DONE);
    c->threads = 2; /* results do not depend on it */
    assert_int_equal(hdo_run_stored(dir, c), HDO_STORED_DONE);
    c->seed++;
    assert_int_equal(hdo_run_stored(dir, c), HDO_STORED_OTHER);

    /* its models, evaluated again */
    hdo_row row = *hdo_run_last_row(r);
    hdo_evaluation v;
    hdo_eval_options o = {.node = HDO_EVAL_MEAN, .threads = 1};
    assert_int_equal(hdo_stored_config(dir, c, NULL), HDO_OK);
    assert_int_equal(hdo_evaluate(c, dir, &o, &v, NULL), HDO_OK);
    assert_true(fabs(v.loss - row.mu_loss) < 1e-6 && fabs(v.accuracy - row.mu_acc) < 1e-12);
    assert_true(v.samples == 200 && v.classes == 4 && v.n == 4 && v.step == 30);
    int64_t all = 0, diagonal = 0;
    for (int i = 0; i < 16; i++) all += v.confusion[i];
    for (int i = 0; i < 4; i++) diagonal += v.confusion[5 * i];
    assert_int_equal(all, 200);
    assert_true(fabs((double)diagonal / 200.0 - v.accuracy) < 1e-12);
    hdo_evaluation_clear(&v);
    o.node = 0;
    snprintf(path, sizeof path, "%s/checkpoints/step-000000030.safetensors", dir);
    assert_int_equal(hdo_stored_config(path, c, NULL), HDO_OK);
    assert_int_equal(hdo_evaluate(c, path, &o, &v, NULL), HDO_OK);
    assert_true(fabs(v.loss - row.node0_loss) < 1e-6 && fabs(v.accuracy - row.node0_acc) < 1e-12);
    assert_string_equal(v.kind, "checkpoint");
    hdo_evaluation_clear(&v);
    o.node = 4;
    assert_int_equal(hdo_evaluate(c, dir, &o, &v, NULL), HDO_E_CONFIG);
    o = (hdo_eval_options){.node = HDO_EVAL_MEAN, .limit = 50, .train = true, .no_confusion = true};
    assert_int_equal(hdo_evaluate(c, dir, &o, &v, NULL), HDO_OK);
    assert_true(v.samples == 50 && v.confusion == NULL);
    hdo_evaluation_clear(&v);
    c->data.features = 7;
    assert_int_equal(hdo_evaluate(c, dir, &o, &v, NULL), HDO_E_DATA);
    assert_int_equal(hdo_stored_config("/nonexistent/x.safetensors", c, NULL), HDO_E_DATA);
    hdo_run_destroy(r);
    free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paper_work),
        cmocka_unit_test(test_paper_configurations),
        cmocka_unit_test(test_paper_authors),
        cmocka_unit_test(test_paper_resize),
        cmocka_unit_test(test_paper_searches),
        cmocka_unit_test(test_paper_folders),
        cmocka_unit_test(test_paper_claims_know_their_curves),
        cmocka_unit_test(test_paper_verdicts),
        cmocka_unit_test(test_paper_verdicts_of_diverged_runs),
        cmocka_unit_test(test_paper_all_diverged_is_undecided),
        cmocka_unit_test(test_paper_similar_pairs_seeds),
        cmocka_unit_test(test_paper_equal_cost),
        cmocka_unit_test(test_paper_stored_runs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
