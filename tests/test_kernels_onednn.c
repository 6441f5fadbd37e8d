/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions by oneDNN: what k_onednn.c promises beyond the right numbers (those are compared with the reference in
 * test_kernels_conv.c). Parts of the channels and of the samples have the bits of the whole, threads do not disturb
 * each other, no team is started, nothing of ours is allocated. Where oneDNN is not used the tests say so and pass.
 *
 * With --off (and HDO_ONEDNN=none, see meson.build): it is not used, and our kernels serve.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "hdo/config.h"
#include "kernel_tables.h"
#include "kernels/mm.h"

static const int batches[] = {1, 2, 3, 5, 7, 10, 13, 50};
enum { BATCHES = sizeof batches / sizeof batches[0], MOST = 50, UNIT_CHANNELS = 16 }; /* unit: as in nn/conv2d.c */

typedef struct layer { /* one entry with arrays for MOST samples */
    int pass;
    hdo_conv c;
    float *x, *w, *y;     /* given */
    float *whole, *parts; /* results */
    hdo_arena a;
} layer;

static size_t result_len(const layer *l, int B) {
    return l->pass == HDO_CONV_BWD_W   ? (size_t)l->c.O * l->c.w_step
           : l->pass == HDO_CONV_BWD_X ? (size_t)B * l->c.x_step
                                       : (size_t)B * l->c.y_step;
}

static int *channels(const layer *l, hdo_conv *c) { /* those that a pass may be cut in */
    return l->pass == HDO_CONV_BWD_X ? &c->C : &c->O;
}

/* The most that any part of it needs, asked as nn/conv2d.c asks. */
static size_t work_of(const layer *l, int B) {
    size_t most = 0;
    hdo_conv c = l->c;
    int *n = channels(l, &c), all = *n;
    c.B = B;
    for (*n = UNIT_CHANNELS; *n <= all; *n += UNIT_CHANNELS) {
        size_t work = hdo__onednn_work(l->pass, &c);
        most = work > most ? work : most;
    }
    return most;
}

static bool open_layer(int i, layer *l) {
    memset(l, 0, sizeof *l);
    if (!hdo__onednn_entry(i, &l->pass, &l->c)) return false;
    l->x = numbers(MOST * l->c.x_step, 1), l->y = numbers(MOST * l->c.y_step, 2);
    l->w = numbers((size_t)l->c.O * l->c.w_step, 3);
    l->whole = numbers(result_len(l, MOST), 4), l->parts = numbers(result_len(l, MOST), 5);
    assert_int_equal(hdo__arena_init(&l->a, work_of(l, MOST)), HDO_OK);
    return true;
}

static void close_layer(layer *l) {
    hdo__free(l->x), hdo__free(l->w), hdo__free(l->y), hdo__free(l->whole), hdo__free(l->parts);
    hdo__arena_clear(&l->a);
}

/* Samples b .. b + B - 1 and channels ch .. ch + n - 1 of the layer, into their place in `out`. */
static void run_part(layer *l, int b, int B, int ch, int n, float *out, hdo_arena *a) {
    hdo_conv c = l->c;
    c.B = B;
    *channels(l, &c) = n;
    size_t first = (size_t)b, o = (size_t)ch, map = (size_t)c.Ho * (size_t)c.Wo, plane = (size_t)c.H * (size_t)c.W;
    size_t taps = (size_t)c.kh * (size_t)c.kw;
    const float *x = l->x + first * c.x_step, *w = l->w, *y = l->y + first * c.y_step;
    if (l->pass == HDO_CONV_FWD)
        w += o * c.w_step, y = out + first * c.y_step + o * map;
    else if (l->pass == HDO_CONV_BWD_X)
        w += o * taps, x = out + first * c.x_step + o * plane;
    else
        y += o * map, w = out + o * c.w_step;
    assert_true(hdo__onednn_conv(l->pass, &c, x, w, y, a));
    assert_int_equal(a->used, 0);
}

static void run_whole(layer *l, int B, float *out, hdo_arena *a) {
    run_part(l, 0, B, 0, *channels(l, &l->c), out, a);
}

static int threads_of_process(void) {
    DIR *d = opendir("/proc/self/task");
    if (d == NULL) return -1;
    int n = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* First of all tests: no other has started threads that could serve a second team unseen. */
static void test_onednn_starts_no_team(void **state) {
    (void)state;
#ifdef _OPENMP
    omp_set_num_threads(4);
#endif
    int before = threads_of_process();
    layer l;
    for (int i = 0; open_layer(i, &l); i++) {
        run_whole(&l, MOST, l.whole, &l.a);
        close_layer(&l);
    }
    assert_int_equal(threads_of_process(), before);
#ifdef _OPENMP
    assert_int_equal(omp_get_max_threads(), 4);
    int wrong = 0;
#pragma omp parallel num_threads(2) reduction(+ : wrong)
    {
        layer mine;
        int was = omp_get_max_threads();
        for (int i = 0; open_layer(i, &mine); i++) {
            run_whole(&mine, 3, mine.whole, &mine.a);
            close_layer(&mine);
        }
        wrong += omp_get_max_threads() != was;
    }
    assert_int_equal(wrong, 0);
#endif
}

static void test_onednn_parts_of_channels(void **state) {
    (void)state;
    layer l;
    for (int i = 0; open_layer(i, &l); i++) {
        int all = *channels(&l, &l.c);
        for (int k = 0; k < BATCHES; k++) {
            size_t bytes = result_len(&l, batches[k]) * sizeof(float);
            run_whole(&l, batches[k], l.whole, &l.a);
            for (int n = UNIT_CHANNELS; n < all; n += UNIT_CHANNELS) {
                memset(l.parts, 0xFF, bytes);
                for (int ch = 0; ch < all; ch += n)
                    run_part(&l, 0, batches[k], ch, ch + n < all ? n : all - ch, l.parts, &l.a);
                assert_memory_equal(l.whole, l.parts, bytes);
            }
        }
        close_layer(&l);
    }
}

static void test_onednn_parts_of_samples(void **state) {
    (void)state;
    layer l;
    for (int i = 0; open_layer(i, &l); i++) {
        int all = *channels(&l, &l.c);
        for (int k = 0; l.pass != HDO_CONV_BWD_W && k < BATCHES; k++) { /* dw is a sum over samples: never cut there */
            int B = batches[k];
            run_whole(&l, B, l.whole, &l.a);
            for (int n = 1; n < B; n = n < 4 ? n + 1 : 2 * n) {
                memset(l.parts, 0xFF, result_len(&l, B) * sizeof(float));
                for (int b = 0; b < B; b += n) run_part(&l, b, b + n < B ? n : B - b, 0, all, l.parts, &l.a);
                assert_memory_equal(l.whole, l.parts, result_len(&l, B) * sizeof(float));
            }
        }
        close_layer(&l);
    }
}

/* An arena is sized for the largest batch: no smaller one and no part may need more. */
static void test_onednn_work_grows_with_the_batch(void **state) {
    (void)state;
    layer l;
    for (int i = 0; open_layer(i, &l); i++) {
        for (int k = 0; k < BATCHES; k++) assert_true(work_of(&l, batches[k]) <= work_of(&l, MOST));
        hdo_conv c = l.c;
        c.B = MOST;
        assert_true(hdo__kernels(HDO_KERNELS_AUTO)->conv_work(&c) >= hdo__onednn_work(l.pass, &c));
        close_layer(&l);
    }
}

static void test_onednn_allocates_nothing_of_ours(void **state) {
    (void)state;
    layer l;
    for (int i = 0; open_layer(i, &l); i++) {
        size_t before = hdo__alloc_count();
        for (int B = 1; B <= 8; B++) run_whole(&l, B, l.whole, &l.a);
        assert_int_equal(hdo__alloc_count(), before);
        close_layer(&l);
    }
}

/* Geometries beside an entry are ours: another size, stride or padding, and an entry with a bias. */
static void test_onednn_takes_entries_only(void **state) {
    (void)state;
    layer l;
    for (int i = 0; open_layer(i, &l); i++) {
        for (int other = 0; other < 4; other++) {
            hdo_conv c = l.c;
            c.H = c.W = l.c.H + (other == 0);
            c.stride += other == 1;
            c.pad += other == 2;
            c.O += other == 3 ? 16 : 0;
            hdo__conv_init(&c);
            assert_int_equal(hdo__onednn_work(l.pass, &c), 0);
        }
        close_layer(&l);
    }
    hdo_conv c = {.B = 2, .C = 64, .H = 8, .W = 8, .O = 64, .kh = 3, .kw = 3, .stride = 1, .pad = 1};
    hdo__conv_init(&c);
    for (int pass = HDO_CONV_FWD; pass <= HDO_CONV_BWD_W; pass++) {
        assert_int_equal(hdo__onednn_work(pass, &c), 0);
        assert_false(hdo__onednn_conv(pass, &c, NULL, NULL, NULL, NULL));
    }
}

typedef struct worker {
    layer *l;
    float *out;
    hdo_arena a;
    int first, wrong;
} worker;

static void *work(void *arg) {
    worker *k = arg;
    for (int r = 0; r < 30; r++) { /* each thread in another order: plans are made, lent and returned side by side */
        int B = batches[(k->first + r) % (BATCHES - 1)];
        if (k->l->pass == HDO_CONV_BWD_W) B = 7; /* its sum is over all samples */
        run_whole(k->l, B, k->out, &k->a);
        k->wrong += memcmp(k->out, k->l->whole, result_len(k->l, B) * sizeof(float)) != 0;
    }
    return NULL;
}

static void test_onednn_threads(void **state) {
    (void)state;
    layer l;
    for (int i = 0; open_layer(i, &l); i++) {
        run_whole(&l, l.pass == HDO_CONV_BWD_W ? 7 : MOST, l.whole, &l.a);
        worker k[4];
        pthread_t id[4];
        for (int t = 0; t < 4; t++) {
            k[t] = (worker){.l = &l, .out = numbers(result_len(&l, MOST), 6), .first = t};
            assert_int_equal(hdo__arena_init(&k[t].a, work_of(&l, MOST)), HDO_OK);
            assert_int_equal(pthread_create(&id[t], NULL, work, &k[t]), 0);
        }
        for (int t = 0; t < 4; t++) {
            pthread_join(id[t], NULL);
            assert_int_equal(k[t].wrong, 0);
            hdo__free(k[t].out);
            hdo__arena_clear(&k[t].a);
        }
        close_layer(&l);
    }
}

static void test_onednn_off(void **state) {
    (void)state;
    int pass;
    hdo_conv c = {.B = 3, .C = 64, .H = 8, .W = 8, .O = 128, .kh = 3, .kw = 3, .stride = 2, .pad = 1};
    hdo__conv_init(&c);
    assert_false(hdo__onednn_entry(0, &pass, &(hdo_conv){0}));
    assert_null(hdo__onednn_name(true));
    assert_int_equal(hdo__onednn_work(HDO_CONV_FWD, &c), 0);
    const hdo_kernels *k = hdo__kernels(HDO_KERNELS_AUTO);
    const hdo_mm_simd *own = tables[table_count() - 1];
    assert_int_equal(k->conv_work(&c), own->conv_work(&c));
    float *x = numbers(3 * c.x_step, 1), *w = numbers(128 * c.w_step, 2), *y = numbers(3 * c.y_step, 3);
    float *z = numbers(3 * c.y_step, 4);
    hdo_arena a;
    assert_int_equal(hdo__arena_init(&a, k->conv_work(&c)), HDO_OK);
    k->conv_fwd(&c, x, w, NULL, y, &a);
    own->conv_fwd(&c, x, w, NULL, z, &a);
    assert_memory_equal(y, z, 3 * c.y_step * sizeof *y);
    hdo__free(x), hdo__free(w), hdo__free(y), hdo__free(z);
    hdo__arena_clear(&a);
}

int main(int argc, char **argv) {
    const struct CMUnitTest off[] = {cmocka_unit_test(test_onednn_off)};
    if (argc > 1 && strcmp(argv[1], "--off") == 0) return cmocka_run_group_tests(off, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onednn_starts_no_team),
        cmocka_unit_test(test_onednn_parts_of_channels),
        cmocka_unit_test(test_onednn_parts_of_samples),
        cmocka_unit_test(test_onednn_work_grows_with_the_batch),
        cmocka_unit_test(test_onednn_allocates_nothing_of_ours),
        cmocka_unit_test(test_onednn_takes_entries_only),
        cmocka_unit_test(test_onednn_threads),
    };
    const char *name = hdo__onednn_name(true);
    if (name == NULL)
        printf("oneDNN is not used here (not built in, no library, or no AVX-512): only its absence is tested\n");
    else
        printf("%s\n", name);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
