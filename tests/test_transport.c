/* SPDX-License-Identifier: Apache-2.0 — where nodes are: blocks, roles, owners; the simulator's transport; plug-ins;
 * rows that ranks put together without meeting. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/async.h"
#include "run/run_internal.h"

enum { RANKS_MAX = 16 };

typedef struct fake { /* a transport that only knows who is where */
    hdo_transport base;
    int start[RANKS_MAX], held[RANKS_MAX], order[RANKS_MAX];
} fake;

static const char *fake_host(const hdo_transport *t, int rank) {
    (void)t;
    return rank < 2 ? "alpha.cluster" : "beta";
}

static void fake_init(fake *f, int ranks) {
    *f = (fake){.base = {.ranks = ranks, .host_ranks = 1, .host = fake_host}};
    f->base.start = f->start;
    f->base.held = f->held;
    f->base.order = f->order;
}

static void population(hdo_config *c, int fo, int zo, const char *zo_estimator, const char *roles) {
    char text[64];
    hdo_error e = {0};
    hdo_config_default(c);
    snprintf(text, sizeof text, "%d", fo);
    assert_int_equal(hdo_config_set_from(c, "population.fo.count", text, HDO_FROM_FLAG, &e), HDO_OK);
    snprintf(text, sizeof text, "%d", zo);
    assert_int_equal(hdo_config_set_from(c, "population.zo.count", text, HDO_FROM_FLAG, &e), HDO_OK);
    assert_int_equal(hdo_config_set_from(c, "population.zo.estimator", zo_estimator, HDO_FROM_FLAG, &e), HDO_OK);
    assert_int_equal(hdo_config_set_from(c, "mpi.roles", roles, HDO_FROM_FLAG, &e), HDO_OK);
}

static void check_cover(const fake *f, int n) {
    int seen = 0;
    for (int k = 0; k < f->base.ranks; k++) {
        int r = f->order[k];
        assert_int_equal(f->start[r], seen);
        assert_true(f->held[r] >= 1);
        for (int i = f->start[r]; i < f->start[r] + f->held[r]; i++)
            assert_int_equal(hdo__transport_owner(&f->base, i), r);
        seen += f->held[r];
    }
    assert_int_equal(seen, n);
}

static void test_spread_covers_every_node_once(void **state) {
    static hdo_config c;
    (void)state;
    for (int ranks = 1; ranks <= 11; ranks++) {
        for (int fo = 1; fo <= 10; fo += 3) {
            fake f;
            hdo_error e = {0};
            population(&c, fo, 11 - fo, "fd", "");
            fake_init(&f, ranks);
            assert_int_equal(hdo__population_spread(&c, &f.base, &e), HDO_OK);
            check_cover(&f, 11);
        }
    }
}

static void test_spread_balances_cost(void **state) {
    static hdo_config c;
    fake f;
    hdo_error e = {0};
    (void)state;
    population(&c, 100, 10, "fd", ""); /* a zo node costs (65 x 4 + 4 x 64) / (3 x 4) = 43 fo nodes */
    fake_init(&f, 2);
    assert_int_equal(hdo__population_spread(&c, &f.base, &e), HDO_OK);
    check_cover(&f, 110);
    assert_in_range(f.held[0], 102, 106); /* all cheap nodes and about four dear ones */
    population(&c, 6, 6, "forward-law", "");
    fake_init(&f, 3);
    assert_int_equal(hdo__population_spread(&c, &f.base, &e), HDO_OK);
    check_cover(&f, 12);
}

static void test_roles_are_kept(void **state) {
    static const struct {
        const char *roles;
        int ranks;
    } good[] = {{"0:fo,1-3:zo", 4}, {"3:fo,0-2:zo", 4},      {"2:fo", 3},
                {"0:zo", 3},        {"alpha:fo,beta:zo", 5}, {"0:any,1:fo,2:zo", 3}};
    static hdo_config c;
    (void)state;
    for (size_t k = 0; k < sizeof good / sizeof good[0]; k++) {
        fake f;
        hdo_error e = {0};
        population(&c, 5, 9, "fd", good[k].roles);
        fake_init(&f, good[k].ranks);
        assert_int_equal(hdo__population_spread(&c, &f.base, &e), HDO_OK);
        check_cover(&f, 14);
        char text[64];
        snprintf(text, sizeof text, "%s,", good[k].roles);
        for (int r = 0; r < good[k].ranks; r++) { /* what the text says about single ranks and the hosts */
            char fo[16], zo[16];
            snprintf(fo, sizeof fo, "%d:fo,", r);
            snprintf(zo, sizeof zo, "%d:zo,", r);
            bool host = strstr(text, "alpha") != NULL;
            if (strstr(text, fo) != NULL || (host && r < 2)) assert_true(f.start[r] + f.held[r] <= 5);
            if (strstr(text, zo) != NULL || (host && r >= 2)) assert_true(f.start[r] >= 5);
        }
    }
}

static void test_roles_that_cannot_be_kept_are_refused(void **state) {
    static const struct {
        const char *roles, *estimator, *word;
    } bad[] = {{"0:fo,1-2:zo", "forward-law", "reverse mode"},
               {"0-2:zo", "fd", "cannot be kept"},
               {"5:zo", "fd", "0 to 2"},
               {"gamma:zo", "fd", "no rank runs there"},
               {"0:best", "fd", "ROLE"},
               {"0-2:fo", "fd", "cannot be kept"}};
    static hdo_config c;
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        fake f;
        hdo_error e = {0};
        population(&c, 4, 4, bad[k].estimator, bad[k].roles);
        fake_init(&f, 3);
        assert_int_not_equal(hdo__population_spread(&c, &f.base, &e), HDO_OK);
        if (strstr(e.msg, bad[k].word) == NULL) fail_msg("'%s' does not say '%s'", e.msg, bad[k].word);
    }
    fake f;
    hdo_error e = {0};
    population(&c, 1, 1, "fd", "");
    fake_init(&f, 3);
    assert_int_equal(hdo__population_spread(&c, &f.base, &e), HDO_E_CONFIG); /* more ranks than nodes */
}

/* Can it be done at all? Any rank needs a node, any node a rank that may hold it. */
static bool possible(int fo, int zo, int ranks, const int count[3]) {
    if (count[1] > fo || count[2] > zo || ranks > fo + zo) return false;
    return count[0] > 0 || ((count[1] > 0 || fo == 0) && (count[2] > 0 || zo == 0));
}

/* One assignment of roles (0 any, 1 fo, 2 zo), the number's digits to base 3. */
static void check_roles(int fo, int zo, int ranks, int digits) {
    static hdo_config c;
    static const char *const names[] = {"any", "fo", "zo"};
    char text[64] = "";
    int role[4], count[3] = {0, 0, 0};
    for (int r = 0; r < ranks; r++, digits /= 3) {
        role[r] = digits % 3;
        count[role[r]]++;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d:%s", r > 0 ? "," : "", r, names[role[r]]);
    }
    fake f;
    hdo_error e = {0};
    population(&c, fo, zo, "fd", text);
    fake_init(&f, ranks);
    bool done = hdo__population_spread(&c, &f.base, &e) == HDO_OK;
    if (done != possible(fo, zo, ranks, count)) fail_msg("%dfo+%dzo on %s: %s", fo, zo, text, e.msg);
    if (!done) return;
    check_cover(&f, fo + zo);
    for (int r = 0; r < ranks; r++) {
        if (role[r] == 1) assert_true(f.start[r] + f.held[r] <= fo);
        if (role[r] == 2) assert_true(f.start[r] >= fo);
    }
}

static void test_roles_are_kept_whenever_they_can_be(void **state) {
    (void)state;
    for (int ranks = 1, all = 3; ranks <= 4; ranks++, all *= 3) {
        for (int fo = 0; fo <= 4; fo++) {
            for (int zo = fo == 0; zo <= 4; zo++) {
                for (int digits = 0; digits < all; digits++) check_roles(fo, zo, ranks, digits);
            }
        }
    }
}

/* Ranks that take anything take what is too much for the others. A zo node with one direction costs what a fo node
 * does: (2 x 4 + 4) = 3 x 4. */
static void test_roles_share_the_cost(void **state) {
    static hdo_config c;
    hdo_error e = {0};
    fake f;
    (void)state;
    population(&c, 30, 3, "fd", "0:fo,1:any,2:zo");
    assert_int_equal(hdo_config_set_from(&c, "population.zo.rv", "1", HDO_FROM_FLAG, &e), HDO_OK);
    assert_int_equal(hdo_config_set_from(&c, "population.zo.batch", "4", HDO_FROM_FLAG, &e), HDO_OK);
    assert_int_equal(hdo_config_set_from(&c, "population.fo.batch", "4", HDO_FROM_FLAG, &e), HDO_OK);
    fake_init(&f, 3);
    assert_int_equal(hdo__population_spread(&c, &f.base, &e), HDO_OK);
    assert_true(f.held[0] == 11 && f.held[1] == 19 && f.held[2] == 3);
    population(&c, 3, 30, "fd", "0:fo,1:any,2:zo");
    assert_int_equal(hdo_config_set_from(&c, "population.zo.rv", "1", HDO_FROM_FLAG, &e), HDO_OK);
    assert_int_equal(hdo_config_set_from(&c, "population.zo.batch", "4", HDO_FROM_FLAG, &e), HDO_OK);
    assert_int_equal(hdo_config_set_from(&c, "population.fo.batch", "4", HDO_FROM_FLAG, &e), HDO_OK);
    assert_int_equal(hdo__population_spread(&c, &f.base, &e), HDO_OK);
    assert_true(f.held[0] == 3 && f.held[1] == 19 && f.held[2] == 11);
}

/* Without roles no rank has more than its share by more than a node. */
static void test_spread_is_even(void **state) {
    static hdo_config c;
    (void)state;
    for (int n = 1; n <= 24; n++) {
        for (int ranks = 1; ranks <= n && ranks <= RANKS_MAX; ranks++) {
            fake f;
            hdo_error e = {0};
            population(&c, n, 0, "fd", "");
            fake_init(&f, ranks);
            assert_int_equal(hdo__population_spread(&c, &f.base, &e), HDO_OK);
            check_cover(&f, n);
            for (int r = 0; r < ranks; r++) assert_in_range(f.held[r], n / ranks, (n + ranks - 1) / ranks);
        }
    }
}

static void add_three(void *ctx, void *v, size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) ((double *)v)[i] += 3.0;
    *(int *)ctx += 1;
}

static void test_inproc_is_one_rank_with_everything(void **state) {
    hdo_transport *t;
    hdo_error e = {0};
    (void)state;
    assert_int_equal(hdo__inproc_create(&t, 6, &e), HDO_OK);
    assert_true(t->rank == 0 && t->ranks == 1 && t->n == 6 && t->first == 0 && t->count == 6);
    assert_int_equal(hdo__transport_owner(t, 5), 0);
    hdo_models rows = {.ld = 16, .len = 10, .count = 6};
    assert_int_equal(t->ops->reserve(t, &rows, &e), HDO_OK);
    hdo_pair pair = {.a = 1, .b = 4};
    hdo_plan plan = {.pairs = &pair, .n_pairs = 1};
    float *mine, *peer;
    assert_int_equal(t->ops->exchange_begin(t, &plan, &rows, 0, &e), HDO_OK);
    t->ops->exchange_send(t, &rows);
    assert_int_equal(t->ops->exchange_wait(t, &plan, &rows, 0, &mine, &peer, &e), HDO_OK);
    assert_true(mine == rows.X + 16 && peer == rows.X + 64);
    double v[3] = {1.0, 2.0, 3.0};
    int calls = 0;
    assert_int_equal(t->ops->relay(t, v, sizeof v[0], 3, add_three, &calls, &e), HDO_OK);
    assert_true(calls == 1 && v[0] == 4.0 && v[2] == 6.0);
    unsigned say = HDO_SAY_STOP;
    assert_int_equal(t->ops->agree(t, HDO_E_OBJECTIVE, &say, NULL, 0, &e), HDO_E_OBJECTIVE);
    assert_int_equal(say, HDO_SAY_STOP);
    t->ops->destroy(t);
}

static hdo_group group_of(const double *loss, int n) {
    hdo_group g = {.loss_min = loss[0], .loss_max = loss[0], .acc_mean = 0.1 * loss[0]};
    double var = 0.0;
    for (int i = 0; i < n; i++) {
        g.loss_mean += loss[i] / n;
        g.loss_min = fmin(g.loss_min, loss[i]);
        g.loss_max = fmax(g.loss_max, loss[i]);
    }
    for (int i = 0; i < n; i++) var += (loss[i] - g.loss_mean) * (loss[i] - g.loss_mean) / n;
    g.loss_std = sqrt(var);
    return g;
}

static void test_groups_merge_to_the_whole(void **state) {
    static const double loss[] = {3.0, 1.0, 4.0, 1.5, 9.0, 2.0};
    (void)state;
    hdo_group whole = group_of(loss, 6), sum = {0}, one = group_of(loss, 2), two = group_of(loss + 2, 4);
    hdo__group_merge(&sum, 0.0, &one, 2.0);
    hdo__group_merge(&sum, 2.0, &two, 4.0);
    hdo__group_merge(&sum, 6.0, &one, 0.0);
    assert_true(fabs(sum.loss_mean - whole.loss_mean) < 1e-12 && fabs(sum.loss_std - whole.loss_std) < 1e-12);
    assert_true(sum.loss_min == 1.0 && sum.loss_max == 9.0);
    assert_true(fabs(sum.acc_mean - (2.0 * 0.3 + 4.0 * 0.4) / 6.0) < 1e-12);
}

static void say_part(hdo_async_rows *a, int rank, int64_t step) {
    double loss[2] = {(double)step + rank, (double)step - rank};
    hdo_group g = group_of(loss, 2);
    hdo_async_part p = {.step = step, .train_loss = rank, .counts = {1, 2, 3, 4, 5, 6, 0}};
    p.nodes.node0_loss = p.nodes.node0_acc = rank == 0 ? 0.5 : (double)NAN;
    hdo__async_rows_class(a, step, rank, 2, &g);
    hdo__async_rows_part(a, &p, 2, 0.0);
}

/* Rank 1 runs ahead; rows come out in order, when the slow rank has come by, with both ranks' figures. */
static void test_async_rows_wait_for_the_slowest(void **state) {
    hdo_async_rows a;
    hdo_row row;
    (void)state;
    assert_int_equal(hdo__async_rows_init(&a, 10, 50, 2), HDO_OK);
    for (int64_t s = 10; s <= 50; s += 10) say_part(&a, 1, s);
    assert_false(hdo__async_rows_take(&a, &row));
    say_part(&a, 0, 10);
    say_part(&a, 0, 20);
    for (int64_t s = 10; s <= 20; s += 10) {
        assert_true(hdo__async_rows_take(&a, &row));
        assert_true(row.step == s && row.n_classes == 2 && row.all.loss_mean == (double)s);
        assert_true(row.cls[1].loss_max == (double)(s + 1) && row.all.loss_max == (double)(s + 1));
        assert_true(row.interactions == 2 && row.jvp == 10 && row.train_loss == 0.5);
        assert_true(row.node0_loss == 0.5 && isnan(row.gamma) && isnan(row.mu_loss));
    }
    assert_false(hdo__async_rows_take(&a, &row));
    hdo__async_rows_clear(&a);
}

/* No room for a rank that is too far ahead: that row is left out, later ones still come. */
static void test_async_rows_are_left_out_beyond_the_room(void **state) {
    hdo_async_rows a;
    hdo_row row;
    (void)state;
    assert_int_equal(hdo__async_rows_init(&a, 1, 3, 2), HDO_OK); /* four places */
    for (int64_t s = 1; s <= 5; s++) say_part(&a, 1, s);         /* 5 would take the place of 1 */
    for (int64_t s = 1; s <= 5; s++) say_part(&a, 0, s);
    int64_t taken = 0;
    while (hdo__async_rows_take(&a, &row)) assert_int_equal(row.step, ++taken);
    assert_int_equal(taken, 4);
    say_part(&a, 0, 9);
    say_part(&a, 1, 9);
    assert_true(hdo__async_rows_take(&a, &row));
    assert_int_equal(row.step, 9);
    hdo__async_rows_clear(&a);
}

/* A plug-in of another version must not be used: it says so before it touches MPI. */
static void test_plugin_of_another_version_is_refused(void **state) {
    static const char *const flavours[] = {"openmpi", "mpich"};
    const char *dir = getenv("HDO_PLUGIN_PATH");
    int found = 0;
    (void)state;
    for (int k = 0; k < 2 && dir != NULL; k++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/libhdo-mpi-%s.so", dir, flavours[k]);
        void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (so == NULL) continue;
        void *symbol = dlsym(so, HDO_TRANSPORT_SYMBOL);
        assert_non_null(symbol);
        hdo_transport_open_fn open_fn;
        memcpy(&open_fn, &symbol, sizeof open_fn);
        hdo_transport *t;
        hdo_transport_setup s = {.deadline_s = 1.0};
        hdo_error e = {0};
        assert_int_equal(open_fn(HDO_TRANSPORT_ABI + 1, "9.9.9", &s, &t, &e), HDO_E_ENGINE);
        assert_non_null(strstr(e.msg, "9.9.9"));
        assert_int_equal(open_fn(HDO_TRANSPORT_ABI, "9.9.9", &s, &t, &e), HDO_E_ENGINE);
        assert_null(t);
        found++;
        break; /* two MPIs in one process would disturb each other */
    }
    if (found == 0) skip(); /* built without MPI: the suite `mpi` fails for that */
}

/* A peer that takes nothing: the talking thread gives up at the deadline and names it. */
static bool take_nothing(hdo_transport *t, int to, const hdo_message *m) {
    (void)t, (void)to, (void)m;
    return false;
}
static bool hear_nothing(hdo_transport *t, int *from, hdo_message *m) {
    (void)t, (void)from, (void)m;
    return false;
}

static void test_async_gives_up_on_a_full_queue(void **state) {
    static const hdo_transport_ops ops = {.post = take_nothing, .next = hear_nothing};
    int start[2] = {0, 1}, held[2] = {1, 1};
    float X[16] = {0};
    fake f;
    hdo_async *a = NULL;
    hdo_error e = {0};
    unsigned say = 0;
    (void)state;
    fake_init(&f, 2);
    f.base.ops = &ops;
    f.base.rank = 1;
    hdo__transport_assign(&f.base, 2, start, held);
    hdo_models rows = {.X = X, .ld = 16, .len = 16, .first = 1, .count = 1};
    hdo_async_setup s = {.deadline_s = 0.2, .d = 16, .steps = 10};
    assert_int_equal(hdo__async_create(&a, &f.base, &rows, &s, &e), HDO_OK);
    double from = hdo__now_s();
    assert_int_equal(hdo__async_finish(a, &say, &(hdo_async_stats){0}, &e), HDO_E_ENGINE);
    assert_true(hdo__now_s() - from < 5.0); /* of a busy machine */
    assert_non_null(strstr(e.msg, "rank 0 (host alpha.cluster) has taken no message within 0.2 s (mpi.deadline_s)"));
    assert_true(f.base.broken);
    hdo__async_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread_covers_every_node_once),
        cmocka_unit_test(test_spread_balances_cost),
        cmocka_unit_test(test_roles_are_kept),
        cmocka_unit_test(test_roles_that_cannot_be_kept_are_refused),
        cmocka_unit_test(test_roles_are_kept_whenever_they_can_be),
        cmocka_unit_test(test_roles_share_the_cost),
        cmocka_unit_test(test_spread_is_even),
        cmocka_unit_test(test_inproc_is_one_rank_with_everything),
        cmocka_unit_test(test_groups_merge_to_the_whole),
        cmocka_unit_test(test_async_rows_wait_for_the_slowest),
        cmocka_unit_test(test_async_rows_are_left_out_beyond_the_room),
        cmocka_unit_test(test_async_gives_up_on_a_full_queue),
        cmocka_unit_test(test_plugin_of_another_version_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
