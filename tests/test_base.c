/* SPDX-License-Identifier: Apache-2.0 — base: status, arena, team, SHA-256, JSON, files, directions. */
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
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/split.h"
#include "base/status.h"
#include "base/team.h"
#include "base/vec.h"

static void test_status_codes_have_texts_and_exit_codes(void **state) {
    (void)state;
    assert_string_equal(hdo_status_text(HDO_OK), "ok");
    assert_int_equal(hdo_status_exit_code(HDO_OK), 0);
    assert_int_equal(hdo_status_exit_code(HDO_E_CONFIG), 2);
    assert_int_equal(hdo_status_exit_code(HDO_E_DATA), 3);
    assert_int_equal(hdo_status_exit_code(HDO_E_ENGINE), 5);
    assert_int_equal(hdo_status_exit_code(HDO_E_OBJECTIVE), 6);
    assert_int_equal(hdo_status_exit_code((hdo_status)-99), 1);
}

static void test_status_fail_and_prefix(void **state) {
    (void)state;
    hdo_error e = {0};
    assert_int_equal(hdo__fail(&e, HDO_E_IO, "cannot read '%s'", "x"), HDO_E_IO);
    hdo__error_prefix(&e, "run %d", 3);
    assert_string_equal(e.msg, "run 3: cannot read 'x'");
    assert_int_equal(hdo__fail(NULL, HDO_E_IO, "nobody listens"), HDO_E_IO);
    char longer[3 * HDO_MSG_MAX];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    hdo__fail(&e, HDO_E_IO, "%s", longer);
    assert_int_equal(strlen(e.msg), HDO_MSG_MAX - 1);
}

static void test_arena_marks_and_high_water(void **state) {
    (void)state;
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, 64 * 1024), HDO_OK);
    size_t mark = hdo__arena_mark(&a);
    float *x = hdo__arena_floats(&a, 100);
    double *y = hdo__arena_doubles(&a, 3);
    assert_int_equal((uintptr_t)x % HDO_ALIGN, 0);
    assert_int_equal((uintptr_t)y % HDO_ALIGN, 0);
    assert_true((char *)y >= (char *)(x + 100));
    size_t high = a.high;
    hdo__arena_rewind(&a, mark);
    assert_int_equal(a.used, 0);
    assert_ptr_equal(hdo__arena_floats(&a, 1), x);
    assert_int_equal(a.high, high);
    hdo__arena_clear(&a);
}

static void count_task(void *ctx, int task, hdo_work *w) {
    int *seen = ctx;
    assert_int_equal(w->team->threads, 1);
    float *scratch = hdo__arena_floats(w->arena, 16);
    scratch[0] = 1.0f;
    seen[task]++;
}

/* Many short regions, with and without a pause in which the workers fall asleep; each sees what the one before wrote.
 */
static void add_task(void *ctx, int task, hdo_work *w) {
    int *v = ctx;
    (void)w;
    v[task]++;
}

static void test_team_many_regions(void **state) {
    (void)state;
    enum { N = 9, ROUNDS = 20000 };
    hdo_team t;
    int v[N] = {0};
    assert_int_equal(hdo__team_init(&t, 4, 4096), HDO_OK);
    for (int i = 0; i < ROUNDS; i++) {
        hdo__team_run(&t, 1 + i % N, add_task, v);
        if (i % 500 == 0) nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    hdo__team_clear(&t);
    for (int k = 0; k < N; k++) { /* task k is in every region of more than k tasks */
        int want = 0;
        for (int i = 0; i < ROUNDS; i++) want += 1 + i % N > k;
        assert_int_equal(v[k], want);
    }
    for (int i = 0; i < 200; i++) { /* cleared while workers are starting, looking or asleep */
        assert_int_equal(hdo__team_init(&t, 3, 64), HDO_OK);
        if (i % 2) hdo__team_run(&t, 5, add_task, v);
        hdo__team_clear(&t);
    }
}

static void test_team_runs_every_task_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        hdo_team t;
        int seen[257] = {0};
        assert_int_equal(hdo__team_init(&t, threads, 4096), HDO_OK);
        hdo__team_run(&t, 257, count_task, seen);
        hdo__team_run(&t, 0, count_task, seen);
        for (int i = 0; i < 257; i++) assert_int_equal(seen[i], 1);
        for (int k = 0; k < t.threads; k++) assert_int_equal(t.arena[k].used, 0);
        hdo__team_clear(&t);
    }
    assert_true(hdo__cpu_count() >= 1);
}

static void sha_of(const char *text, size_t chunk, char hex[65]) {
    hdo_sha256 c;
    unsigned char digest[32];
    hdo__sha256_init(&c);
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i += chunk) hdo__sha256_update(&c, text + i, len - i < chunk ? len - i : chunk);
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, hex);
}

/* Vectors of FIPS 180-4 / NIST's examples. */
static void test_sha256_known_answers(void **state) {
    (void)state;
    static const struct {
        const char *text, *hex;
    } v[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    char hex[65];
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        for (size_t chunk = 1; chunk < 70; chunk += 13) {
            sha_of(v[i].text, chunk, hex);
            assert_string_equal(hex, v[i].hex);
        }
    }
    char *million = malloc(1000001);
    memset(million, 'a', 1000000);
    million[1000000] = '\0';
    sha_of(million, 997, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

static void test_json_reads_back(void **state) {
    (void)state;
    for (int pretty = 0; pretty < 2; pretty++) {
        hdo_json j;
        hdo__json_init(&j, pretty != 0);
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, "text", "quote \" back \\ line\n tab\t bell\a");
        hdo__json_real(&j, "tenth", 0.1);
        hdo__json_real(&j, "nan", (double)NAN);
        hdo__json_int(&j, "big", INT64_C(9007199254740993));
        hdo__json_bool(&j, "yes", true);
        hdo__json_array(&j, "list");
        hdo__json_int(&j, NULL, 1);
        hdo__json_object(&j, NULL);
        hdo__json_end(&j, '}');
        hdo__json_end(&j, ']');
        hdo__json_text(&j, "none", NULL);
        hdo__json_end(&j, '}');
        json_t *v = json_loads(j.text, 0, NULL);
        assert_non_null(v);
        assert_string_equal(json_string_value(json_object_get(v, "text")), "quote \" back \\ line\n tab\t bell\a");
        assert_true(json_real_value(json_object_get(v, "tenth")) == 0.1);
        assert_true(json_is_null(json_object_get(v, "nan")));
        assert_true(json_integer_value(json_object_get(v, "big")) == INT64_C(9007199254740993));
        assert_int_equal(json_array_size(json_object_get(v, "list")), 2);
        json_decref(v);
        hdo__json_clear(&j);
    }
}

static void test_real_text_round_trips(void **state) {
    (void)state;
    hdo_stream s = hdo__stream(7, HDO_RNG_TEST, 0, 0, 0);
    for (uint64_t i = 0; i < 2000; i++) {
        double v = (hdo__rng_double(s, i) - 0.5) * pow(10.0, (double)hdo__rng_below(s, 5000 + i, 40) - 20.0);
        char buf[32];
        hdo__real_text(v, buf);
        assert_true(strtod(buf, NULL) == v);
    }
}

static void test_file_is_whole_or_absent(void **state) {
    (void)state;
    char dir[] = "/tmp/hdo-test-XXXXXX", path[64], text[16];
    hdo_error e = {0};
    char *back;
    size_t len;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a/b", dir);
    assert_int_equal(hdo__dir_create(path, &e), HDO_OK);
    snprintf(path, sizeof path, "%s/a/b/file", dir);
    assert_int_equal(hdo__file_write(path, "one", 3, &e), HDO_OK);
    assert_int_equal(hdo__file_write(path, "three", 5, &e), HDO_OK);
    assert_int_equal(hdo__file_read(path, 100, &back, &len, &e), HDO_OK);
    assert_int_equal(len, 5);
    assert_string_equal(back, "three");
    free(back);
    assert_int_equal(hdo__file_read(path, 4, &back, &len, &e), HDO_E_IO);
    assert_int_equal(hdo__file_write("/dev/null/x", text, 1, &e), HDO_E_IO);
    assert_non_null(strstr(e.msg, "/dev/null/x"));
    unlink(path);
    for (char *s; (s = strrchr(path, '/')) != NULL && s > path + 4;) {
        *s = '\0';
        rmdir(path);
    }
}

static void test_dirs_slice_equals_whole(void **state) {
    (void)state;
    enum { D = 5000, K = 3 };
    static float whole[D], part[D];
    float scale[K];
    for (int dist = HDO_DIST_GAUSSIAN; dist <= HDO_DIST_RADEMACHER; dist++) {
        hdo_dirs u = {.s = hdo__stream(11, HDO_RNG_DIRECTION, 5, 9, 0), .dist = dist, .d = D};
        if (dist == HDO_DIST_SPHERE) {
            hdo__dirs_sphere_scale(&u, K, scale);
            u.scale = scale;
        }
        for (int r = 0; r < K; r++) {
            hdo__dirs_fill(&u, r, 0, D, whole);
            for (size_t off = 0; off < D; off += 617) {
                size_t len = D - off < 401 ? D - off : 401;
                hdo__dirs_fill(&u, r, off, len, part);
                assert_memory_equal(part, whole + off, len * sizeof(float));
            }
            if (dist != HDO_DIST_GAUSSIAN) assert_true(fabs(hdo__sumsq(D, whole) / D - 1.0) < 1e-5);
        }
    }
}

/* Zero in the idle ranges, unchanged elsewhere (on the sphere: but for the length), in every slice and window. */
static void test_dirs_have_no_part_in_idle_ranges(void **state) {
    (void)state;
    enum { D = 300 };
    static const hdo_range some[] = {{0, 20}, {33, 34}, {150, 220}};
    for (int dist = HDO_DIST_GAUSSIAN; dist <= HDO_DIST_RADEMACHER; dist++)
        for (int windowed = 0; windowed < 2; windowed++) {
            float full[D], u[D], part[D], scale[2][1];
            hdo_dirs all = {.s = hdo__stream(11, HDO_RNG_DIRECTION, 5, 9, 0), .dist = dist, .d = D}, some_of = all;
            some_of.idle = (hdo_ranges){some, 3};
            if (windowed) all.lo = some_of.lo = 10, all.hi = some_of.hi = 200;
            if (dist == HDO_DIST_SPHERE) {
                hdo__dirs_sphere_scale(&all, 1, scale[0]);
                hdo__dirs_sphere_scale(&some_of, 1, scale[1]);
                all.scale = scale[0];
                some_of.scale = scale[1];
            }
            hdo__dirs_fill(&all, 0, 0, D, full);
            hdo__dirs_fill(&some_of, 0, 0, D, u);
            size_t live = 0;
            for (size_t j = 0; j < D; j++) {
                bool in = hdo__all_inside(some_of.idle, j, 1);
                live += !in && (!windowed || (j >= 10 && j < 200));
                float want = in ? 0.0f : full[j];
                if (dist == HDO_DIST_SPHERE) want *= scale[1][0] / scale[0][0];
                assert_true(fabsf(u[j] - want) <= (dist == HDO_DIST_SPHERE ? 1e-6f * fabsf(want) : 0.0f));
            }
            if (dist != HDO_DIST_GAUSSIAN) assert_true(fabs(hdo__sumsq(D, u) / (double)live - 1.0) < 1e-5);
            for (size_t lo = 0; lo < D; lo += 7)
                for (size_t len = 1; lo + len <= D; len += 13) {
                    hdo__dirs_fill(&some_of, 0, lo, len, part);
                    assert_memory_equal(part, u + lo, len * sizeof(float));
                }
        }
}

/* Two filters of 3 x 3 taps, of which row 1, columns 1 and 2 are live. */
static void test_split_keeps_live_taps_together(void **state) {
    (void)state;
    static const float want[18] = {4, 5, 13, 14, 0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17};
    hdo_split s = {.kh = 3, .kw = 3, .y = 1, .x = 1, .h = 1, .w = 2}, none = {0};
    float plain[18], stored[18], back[18];
    for (int i = 0; i < 18; i++) plain[i] = (float)i;
    hdo__split_store(&s, 18, plain, stored);
    assert_memory_equal(stored, want, sizeof want);
    hdo__split_plain(&s, 18, stored, back);
    assert_memory_equal(back, plain, sizeof plain);
    hdo__split_store(&none, 18, plain, stored);
    assert_memory_equal(stored, plain, sizeof plain);
}

static void test_ranges_and_the_rest_cover_everything(void **state) {
    (void)state;
    enum { N = 40 };
    static const hdo_range some[] = {{0, 3}, {7, 8}, {8, 12}, {30, 40}};
    hdo_ranges r = {some, 4}, none = {NULL, 0};
    for (size_t lo = 0; lo <= N; lo++)
        for (size_t hi = lo; hi <= N; hi++)
            for (size_t most = 1; most < 6; most++) {
                int seen[N] = {0};
                size_t sum = 0;
                for (size_t at = lo, n; (n = hdo__outside(r, &at, hi, most)) > 0; at += n) {
                    assert_true(n <= most);
                    for (size_t i = at; i < at + n; i++) seen[i]++;
                    sum += n;
                }
                assert_int_equal(hdo__count_outside(r, lo, hi), sum);
                float x[N];
                for (size_t i = 0; i < N; i++) x[i] = 1.0f;
                hdo__ranges_clear(r, lo, hi, x);
                for (size_t i = 0; i < N; i++) {
                    bool in = hdo__all_inside(r, i, 1), asked = i >= lo && i < hi;
                    assert_int_equal(seen[i], asked && !in);
                    assert_true((x[i] == 0.0f) == (asked && in));
                }
            }
    size_t at = 3;
    assert_int_equal(hdo__outside(none, &at, 9, 100), 6);
    assert_int_equal(hdo__count_outside(none, 3, 9), 6);
    assert_false(hdo__all_inside(r, 7, 2)); /* two ranges that touch are still two */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_codes_have_texts_and_exit_codes),
        cmocka_unit_test(test_status_fail_and_prefix),
        cmocka_unit_test(test_arena_marks_and_high_water),
        cmocka_unit_test(test_team_runs_every_task_once),
        cmocka_unit_test(test_team_many_regions),
        cmocka_unit_test(test_sha256_known_answers),
        cmocka_unit_test(test_json_reads_back),
        cmocka_unit_test(test_real_text_round_trips),
        cmocka_unit_test(test_file_is_whole_or_absent),
        cmocka_unit_test(test_dirs_slice_equals_whole),
        cmocka_unit_test(test_dirs_have_no_part_in_idle_ranges),
        cmocka_unit_test(test_split_keeps_live_taps_together),
        cmocka_unit_test(test_ranges_and_the_rest_cover_everything),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
