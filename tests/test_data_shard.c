/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits and samplers: every sample exactly as often as promised, balance, label skew that grows as alpha falls, passes
 * without replacement that differ, any batch addressable.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_impl.h"

enum { LABELS = 10 };

/* A set without inputs: label i * i % 10, so labels are unevenly frequent and not in order. */
static int32_t fake_label(const hdo_dataset *ds, int64_t i) {
    (void)ds;
    return (int32_t)(i * i % LABELS);
}
static const hdo_dataset_ops fake_ops = {.name = "fake", .label = fake_label};

static hdo_dataset fake(int64_t count) {
    hdo_dataset ds = {.ops = &fake_ops, .count = count, .n_in = 1, .shape = {1, 1, 1}, .classes = LABELS};
    return ds;
}

static hdo_shards *make(int id, double arg, uint64_t seed, int n_classes, const int64_t *count, const hdo_dataset *ds) {
    hdo_shards *s;
    hdo_error e = {0};
    const hdo_choice split = {id, arg};
    assert_int_equal(hdo__shards_create(&s, &split, seed, n_classes, count, ds, &e), HDO_OK);
    return s;
}

/* How often each sample occurs among nodes first .. first+m-1. */
static void tally(const hdo_shards *s, int first, int64_t m, int64_t N, int *times) {
    memset(times, 0, (size_t)N * sizeof *times);
    for (int i = first; i < first + m; i++) {
        assert_true(hdo__shard_count(s, i) >= 1);
        for (int64_t j = 0; j < hdo__shard_count(s, i); j++) {
            int64_t k = hdo__shard_at(s, i, j);
            assert_true(k >= 0 && k < N);
            times[k]++;
        }
    }
}

static void test_split_is_a_partition_of_each_class(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 7, 100, 1000, 4097};
    static const int64_t counts[][2] = {{1, 0}, {3, 5}, {24, 256}, {7, 1}, {100, 100}};
    static const struct {
        int id;
        double arg;
    } splits[] = {{HDO_SPLIT_COPIES, 0},         {HDO_SPLIT_SINGLE, 0},    {HDO_SPLIT_DIRICHLET, 0.05},
                  {HDO_SPLIT_DIRICHLET, 100},    {HDO_SPLIT_SHARDS, 2},    {HDO_SPLIT_SHARDS, 50},
                  {HDO_SPLIT_DIRICHLET, 1e-300}, {HDO_SPLIT_SHARDS, 1e300}};
    int *times = malloc(4097 * sizeof *times);
    for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++) {
        const hdo_dataset ds = fake(sizes[z]);
        const int64_t N = sizes[z];
        for (size_t p = 0; p < sizeof counts / sizeof counts[0]; p++) {
            for (size_t k = 0; k < sizeof splits / sizeof splits[0]; k++) {
                hdo_shards *s = make(splits[k].id, splits[k].arg, 9, 2, counts[p], &ds);
                const bool one = splits[k].id == HDO_SPLIT_SINGLE;
                int first = 0;
                for (int g = 0; g < (one ? 1 : 2); g++) {
                    const int64_t m = one ? counts[p][0] + counts[p][1] : counts[p][g];
                    tally(s, first, m, N, times);
                    if (m <= N && m > 0) {
                        for (int64_t i = 0; i < N; i++) assert_int_equal(times[i], 1);
                    }
                    if (m > N) { /* more nodes than samples: one each, spread evenly */
                        for (int i = first; i < first + m; i++) assert_int_equal(hdo__shard_count(s, i), 1);
                        for (int64_t i = 0; i < N; i++) assert_true(times[i] == m / N || times[i] == m / N + 1);
                    }
                    first += (int)m;
                }
                hdo__shards_destroy(s);
            }
        }
    }
    free(times);
}

static void test_split_balance(void **state) {
    (void)state;
    const hdo_dataset ds = fake(1003);
    const int64_t count[2] = {10, 16};
    static const int ids[] = {HDO_SPLIT_COPIES, HDO_SPLIT_SINGLE, HDO_SPLIT_SHARED};
    for (int k = 0; k < 3; k++) {
        hdo_shards *s = make(ids[k], 0, 1, 2, count, &ds);
        for (int i = 0; i < 26; i++) {
            int64_t n = hdo__shard_count(s, i), m = ids[k] == HDO_SPLIT_COPIES ? (i < 10 ? 10 : 16) : 26;
            if (ids[k] == HDO_SPLIT_SHARED) m = 1;
            assert_true(n == 1003 / m || n == 1003 / m + 1);
        }
        hdo__shards_destroy(s);
    }
    hdo_shards *a = make(HDO_SPLIT_COPIES, 0, 1, 2, count, &ds), *b = make(HDO_SPLIT_COPIES, 0, 2, 2, count, &ds);
    int same = 0;
    for (int64_t j = 0; j < 100; j++) same += hdo__shard_at(a, 0, j) == hdo__shard_at(b, 0, j);
    assert_true(same < 10); /* another seed deals differently */
    hdo__shards_destroy(a);
    hdo__shards_destroy(b);
}

/* Mean over nodes of the total variation distance between the labels of a node and those of all. */
static double skew(const hdo_shards *s, const hdo_dataset *ds, int m) {
    double all[LABELS] = {0}, sum = 0;
    for (int64_t i = 0; i < ds->count; i++) all[fake_label(ds, i)] += 1.0 / (double)ds->count;
    for (int i = 0; i < m; i++) {
        double mine[LABELS] = {0}, tv = 0;
        const int64_t n = hdo__shard_count(s, i);
        for (int64_t j = 0; j < n; j++) mine[fake_label(ds, hdo__shard_at(s, i, j))] += 1.0 / (double)n;
        for (int c = 0; c < LABELS; c++) tv += 0.5 * fabs(mine[c] - all[c]);
        sum += tv / m;
    }
    return sum;
}

static void test_split_label_skew_grows_as_alpha_falls(void **state) {
    (void)state;
    const hdo_dataset ds = fake(20000);
    const int64_t count[1] = {40};
    static const double alpha[] = {1000, 10, 1, 0.1, 0.01};
    double last = 0;
    for (int k = 0; k < 5; k++) {
        hdo_shards *s = make(HDO_SPLIT_DIRICHLET, alpha[k], 3, 1, count, &ds);
        double now = skew(s, &ds, 40);
        assert_true(now > last);
        last = now;
        hdo__shards_destroy(s);
    }
    assert_true(last > 0.6);
    hdo_shards *s = make(HDO_SPLIT_COPIES, 0, 3, 1, count, &ds);
    assert_true(skew(s, &ds, 40) < 0.1);
    hdo__shards_destroy(s);
    s = make(HDO_SPLIT_SHARDS, 2, 3, 1, count,
             &ds); /* two pieces a node: at most three labels (a piece may straddle) */
    for (int i = 0; i < 40; i++) {
        bool has[LABELS] = {false};
        int labels = 0;
        for (int64_t j = 0; j < hdo__shard_count(s, i); j++) has[fake_label(&ds, hdo__shard_at(s, i, j))] = true;
        for (int c = 0; c < LABELS; c++) labels += has[c];
        assert_true(labels <= 4);
    }
    assert_true(skew(s, &ds, 40) > 0.5);
    hdo__shards_destroy(s);
}

static void test_split_refuses_nonsense(void **state) {
    (void)state;
    hdo_shards *s;
    hdo_error e = {0};
    const hdo_dataset ds = fake(10), empty = fake(0);
    const int64_t count[1] = {2};
    hdo_choice split = {HDO_SPLIT_DIRICHLET, 0};
    assert_int_equal(hdo__shards_create(&s, &split, 1, 1, count, &ds, &e), HDO_E_CONFIG);
    split = (hdo_choice){HDO_SPLIT_SHARDS, 0.5};
    assert_int_equal(hdo__shards_create(&s, &split, 1, 1, count, &ds, &e), HDO_E_CONFIG);
    split = (hdo_choice){HDO_SPLIT_COPIES, 0};
    assert_int_equal(hdo__shards_create(&s, &split, 1, 1, count, &empty, &e), HDO_E_DATA);
    assert_int_equal(hdo__shards_create(&s, &split, 1, 17, count, &ds, &e), HDO_E_CONFIG);
    hdo__shards_destroy(NULL);
}

static void test_sampler_passes_without_replacement(void **state) {
    (void)state;
    const hdo_dataset ds = fake(1003);
    const int64_t count[2] = {3, 4};
    hdo_shards *s = make(HDO_SPLIT_COPIES, 0, 1, 2, count, &ds);
    static const int batches[] = {1, 2, 7, 64, 600};
    for (int node = 0; node < 7; node++) {
        const int64_t n = hdo__shard_count(s, node);
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
            const int B = batches[b];
            int64_t *all = malloc((size_t)(5 * n + B) * sizeof *all);
            for (int64_t t = 0; t * B < 5 * n; t++) hdo__sampler_batch(s, 1, node, t, B, all + t * B);
            int repeats = 0;
            for (int pass = 0; pass < 5; pass++) { /* each pass is the whole shard */
                int *times = calloc(1003, sizeof *times);
                for (int64_t k = 0; k < n; k++) times[all[pass * n + k]]++;
                for (int64_t j = 0; j < n; j++) assert_int_equal(times[hdo__shard_at(s, node, j)], 1);
                for (int64_t k = 0; k < n; k++) repeats += pass > 0 && all[pass * n + k] == all[(pass - 1) * n + k];
                free(times);
            }
            assert_true(repeats < 40); /* passes differ: about one place in n agrees by chance */
            free(all);
        }
    }
    hdo__shards_destroy(s);
}

/* Fixed order: pass e is pass 0, whatever the batch; and pass 0 is that of the shuffled sequence. */
static void test_sampler_fixed_order(void **state) {
    (void)state;
    const hdo_dataset ds = fake(1003);
    const int64_t count[1] = {3};
    hdo_shards *s = make(HDO_SPLIT_COPIES, 0, 1, 1, count, &ds);
    enum { B = 7 };
    for (int node = 0; node < 3; node++) {
        const int64_t n = hdo__shard_count(s, node);
        int64_t *first = malloc((size_t)(n + B) * sizeof *first), *all = malloc((size_t)(4 * n + B) * sizeof *all);
        for (int64_t t = 0; t * B < n; t++) hdo__sampler_batch(s, 1, node, t, B, first + t * B);
        hdo__shards_fix_order(s);
        for (int64_t t = 0; t * B < 4 * n; t++) hdo__sampler_batch(s, 1, node, t, B, all + t * B);
        for (int64_t k = 0; k < 4 * n; k++) assert_int_equal(all[k], first[k % n]);
        free(first);
        free(all);
        hdo__shards_destroy(s);
        s = make(HDO_SPLIT_COPIES, 0, 1, 1, count, &ds);
    }
    hdo__shards_destroy(s);
}

static void test_sampler_any_batch_by_address(void **state) {
    (void)state;
    const hdo_dataset ds = fake(50000);
    const int64_t count[1] = {5};
    hdo_shards *s = make(HDO_SPLIT_DIRICHLET, 0.3, 1, 1, count, &ds);
    int64_t a[32], b[32], c[32];
    hdo__sampler_batch(s, 4, 2, 1000003, 32, a); /* straight to it, as after a resume */
    hdo__sampler_batch(s, 4, 2, 1000003, 32, b);
    hdo__sampler_batch(s, 5, 2, 1000003, 32, c);
    assert_memory_equal(a, b, sizeof a);
    assert_true(memcmp(a, c, sizeof a) != 0);
    hdo__sampler_batch(s, 4, 2, 2 * 1000003, 16, b); /* the same window in halves */
    hdo__sampler_batch(s, 4, 2, 2 * 1000003 + 1, 16, b + 16);
    assert_memory_equal(a, b, sizeof a);
    hdo__shards_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_is_a_partition_of_each_class),    cmocka_unit_test(test_split_balance),
        cmocka_unit_test(test_split_label_skew_grows_as_alpha_falls), cmocka_unit_test(test_split_refuses_nonsense),
        cmocka_unit_test(test_sampler_passes_without_replacement),    cmocka_unit_test(test_sampler_fixed_order),
        cmocka_unit_test(test_sampler_any_batch_by_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
