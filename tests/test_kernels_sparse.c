/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits from lists of inputs: the definition of kernels/sparse.h term by term, the plain logits in double, every
 * instruction set, every block of models; and the cross-entropies made of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/explog.h"
#include "base/fma.h"
#include "hdo/experimental/config.h"
#include "kernel_tables.h"
#include "kernels/kernels.h"
#include "kernels/score.h"
#include "objective/logreg.h"

enum { B = 70 };

/* Four in five are the background, some samples nothing else, one without any. */
static float *pictures(int p, float b) {
    float *x = numbers((size_t)B * (size_t)p, 1), *u = numbers((size_t)B * (size_t)p, 2);
    for (size_t i = 0; i < (size_t)B * (size_t)p; i++) {
        size_t sample = i / (size_t)p;
        if (sample != 3 && (u[i] < 0.6F || sample % 10 == 7)) x[i] = b;
    }
    hdo__free(u);
    return x;
}

static float defined(int p, const float *x, float b, const float *w, float bias) {
    double s = 0;
    for (int j = 0; j < p; j++) s += (double)w[j];
    float z = (float)((double)bias + (double)b * s);
    for (int j = 0; j < p; j++)
        if (x[j] != b) z = hdo__fmaf(x[j] - b, w[j], z);
    return z;
}

static double plain(int p, const float *x, const float *w, float bias) {
    double z = (double)bias;
    for (int j = 0; j < p; j++) z += (double)x[j] * (double)w[j];
    return z;
}

static void check_shape(int p, int K, int C, float b) {
    size_t d = (size_t)C * (size_t)(p + 1), ld = d + 3, n = (size_t)B * (size_t)(K * C);
    float *in = pictures(p, b), *X = numbers((size_t)K * ld, 4), *z = numbers(n, 5), *one = numbers(n, 6);
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, hdo__sparse_bytes(B, p) + hdo__mm_portable.sparse_work(B, p)), HDO_OK);
    hdo_sparse s = hdo__sparse_make(B, p, in, b, &a);
    for (size_t t = 0; t < table_count(); t++) {
        tables[t]->sparse_logits(&s, K, C, X, ld, z, &a);
        for (int k = 0; k < K; k++) {
            const float *x = X + (size_t)k * ld;
            tables[t]->sparse_logits(&s, 1, C, x, ld, one, &a);
            for (int i = 0; i < B; i++)
                for (int c = 0; c < C; c++) {
                    const float *w = x + c * p, *im = in + i * p;
                    float got = z[(i * C + c) * K + k], alone = one[i * C + c], bias = x[C * p + c];
                    float want = defined(p, im, b, w, bias);
                    if (got != want || alone != want)
                        fail_msg("%s p=%d K=%d C=%d: sample %d, model %d, class %d: %a and %a, not %a", tables[t]->name,
                                 p, K, C, i, k, c, (double)got, (double)alone, (double)want);
                    assert_true(fabs((double)got - plain(p, im, w, bias)) < 2e-6 * sqrt((double)p + 9));
                }
        }
    }
    hdo__arena_clear(&a);
    hdo__free(in), hdo__free(X), hdo__free(z), hdo__free(one);
}

static void test_logits(void **state) {
    (void)state;
    static const int p[] = {1, 5, 63, 64, 65, 200};
    static const int models[][2] = {{1, 1}, {1, 10}, {2, 10}, {3, 13}, {4, 25}, {10, 10}, {2, 97}};
    for (size_t i = 0; i < sizeof p / sizeof p[0]; i++)
        for (size_t m = 0; m < sizeof models / sizeof models[0]; m++)
            check_shape(p[i], models[m][0], models[m][1], m % 2 ? -0.42421296F : 0.0F);
    check_shape(784, 29, 10, -0.42421296F);
}

static void test_background(void **state) {
    (void)state;
    float *x = pictures(100, 0.25F), b = 9;
    assert_true(hdo__sparse_background(B, 100, x, &b));
    assert_true(b == 0.25F);
    hdo__free(x);
    x = numbers(B * 100, 1);
    assert_false(hdo__sparse_background(B, 100, x, &b)); /* no value twice */
    for (size_t i = 0; i < 100; i++) x[i] = 0.5F;
    assert_false(hdo__sparse_background(B, 100, x, &b)); /* in the first sample only */
    x[0] = NAN;
    assert_false(hdo__sparse_background(B, 100, x, &b));
    hdo__free(x);
}

static void test_scores(void **state) {
    (void)state;
    enum { K = 45, C = 7 };
    for (size_t t = 0; t < table_count(); t++)
        for (int32_t label = 0; label < C; label++) {
            float *z = numbers(K * C, 3), *was = numbers(K * C, 3), e[K * C];
            int64_t hits[K] = {0};
            double loss[K] = {0};
            for (int c = 0; c < C; c++) z[c * K] = was[c * K] = 0.5F; /* model 0: all equal, the first one counts */
            tables[t]->score_top(K, C, z, label, hits);
            hdo__kernels(HDO_KERNELS_AUTO)->vexp(K * C, z, e);
            tables[t]->score_loss(K, C, e, z + label * K, loss);
            for (int k = 0; k < K; k++) {
                double sum = 0;
                int best = 0;
                for (int c = 0; c < C; c++) {
                    sum += exp((double)was[c * K + k]);
                    if (was[c * K + k] > was[best * K + k]) best = c;
                }
                assert_int_equal(hits[k], best == label);
                assert_true(fabs(loss[k] - (log(sum) - (double)was[label * K + k])) < 1e-6);
            }
            hdo__free(z), hdo__free(was);
        }
}

static void test_score_log(void **state) {
    (void)state;
    float u[2000];
    hdo__rng_uniform(hdo__stream(6, HDO_RNG_TEST, 0, 0, 3), 0, 2000, u);
    for (int i = 0; i < 2000; i++) {
        double x = 1 + (double)u[i] * (i % 2 ? 1 : 1000), got = score_log(x), want = hdo__log(x);
        assert_memory_equal(&got, &want, sizeof got);
    }
    assert_true(score_log(1.0) == 0.0);
    assert_true(isnan(score_log((double)NAN)));
    assert_true(isinf(score_log((double)INFINITY)));
}

/* ---- softmax regression knows its validation set ---- */

enum { P = 40, CLASSES = 3, SAMPLES = 1100 }; /* a whole piece and a short one */

static void show(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in, int32_t *tok,
                 int32_t *label) {
    (void)ds, (void)augment, (void)tok;
    for (int i = 0; i < n; i++) {
        label[i] = (int32_t)(idx[i] % CLASSES);
        hdo__rng_uniform(hdo__stream(7, HDO_RNG_TEST, 0, (uint64_t)idx[i], 1), 0, P, in + i * P);
        for (int j = 0; j < P; j++) in[i * P + j] = in[i * P + j] < 0.7F ? -0.5F : in[i * P + j];
    }
}

static void test_known_samples(void **state) {
    (void)state;
    static const hdo_dataset_ops ops = {.name = "shown", .gather = show};
    hdo_dataset set = {.ops = &ops, .count = SAMPLES, .n_in = P, .shape = {1, 1, P}, .classes = CLASSES};
    hdo_config config;
    hdo_objective *f = NULL;
    hdo_error e;
    hdo_config_default(&config);
    snprintf(config.model.name, sizeof config.model.name, "logistic");
    hdo_objective_args args = {.config = &config, .train = &set, .val = &set, .n = 1};
    assert_int_equal(hdo__objective_find("logistic")->create(&args, &f, &e), HDO_OK);
    assert_ptr_equal(f->known, &set);
    float *X = numbers(2 * f->d, 3), *in = numbers((size_t)f->eval_batch * P, 1);
    int64_t idx[HDO_LOGREG_EVAL_BATCH], hits[2][2] = {{0}};
    int32_t label[HDO_LOGREG_EVAL_BATCH];
    double loss[2][2] = {{0}};
    hdo_team team;
    assert_int_equal(hdo__team_init(&team, 1, hdo__objective_work_bytes(f, f->eval_batch, 1)), HDO_OK);
    hdo_work w = {&team.arena[0], &team, 0};
    for (int64_t first = 0; first < SAMPLES; first += f->eval_batch) {
        int n = (int)(SAMPLES - first < f->eval_batch ? SAMPLES - first : f->eval_batch);
        hdo_batch bare = {.size = n, .node = -1, .whole = &set, .first = first}, full = {.size = n, .node = -1};
        for (int i = 0; i < n; i++) idx[i] = first + i;
        hdo__batch_gather(&full, &set, idx, NULL, in, label);
        assert_int_equal(f->ops->evaluate(f, &bare, X, f->d, 2, &w, loss[0], hits[0]), HDO_OK);
        assert_int_equal(f->ops->evaluate(f, &full, X, f->d, 2, &w, loss[1], hits[1]), HDO_OK);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_memory_equal(hits[0], hits[1], sizeof hits[0]);
    assert_true(loss[0][0] > SAMPLES * 0.1);
    hdo__team_clear(&team);
    hdo__objective_destroy(f);
    hdo__free(X), hdo__free(in);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits), cmocka_unit_test(test_background),
                                       cmocka_unit_test(test_scores), cmocka_unit_test(test_score_log),
                                       cmocka_unit_test(test_known_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
