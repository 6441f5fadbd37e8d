/* SPDX-License-Identifier: Apache-2.0
 *
 * The asynchronous engine without MPI: two ranks are two threads, and a transport of a few lines is between them.
 * Averages keep the mean and bring the nodes together, rows are put together, whoever falls silent is named.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/async.h"

enum { RANKS = 2, NODES = 5, LEN = 6, D = 5, LD = 8, BOX = 64 };

typedef struct letter {
    int from;
    bool has_row;
    hdo_message m;
    float row[LEN];
} letter;

typedef struct wire { /* what the ranks have in common */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    letter box[RANKS][BOX];
    int head[RANKS], count[RANKS];
    int relayed; /* 0: nobody, 1: rank 0, 2: both; the last to look sets it back */
    unsigned char shared[4096];
    bool deaf; /* takes no letters */
} wire;

typedef struct rank {
    hdo_transport base;
    wire *w;
    int start[RANKS], held[RANKS], order[RANKS];
    letter last;
    float X[NODES * LD];
    hdo_models rows;
    hdo_async *async;
    hdo_async_stats stats;
    unsigned said;
    hdo_status st;
    hdo_error e;
    double slow_s;
} rank;

/* ---- the transport ---- */

static bool post(hdo_transport *t, int to, const hdo_message *m) {
    wire *w = ((rank *)t)->w;
    pthread_mutex_lock(&w->lock);
    bool room = w->count[to] < BOX && !w->deaf;
    if (room) {
        letter *l = &w->box[to][(w->head[to] + w->count[to]++) % BOX];
        *l = (letter){.from = t->rank, .has_row = m->row != NULL, .m = *m};
        if (l->has_row) memcpy(l->row, m->row, sizeof l->row);
    }
    pthread_mutex_unlock(&w->lock);
    return room;
}

static bool next(hdo_transport *t, int *from, hdo_message *m) {
    rank *r = (rank *)t;
    wire *w = r->w;
    pthread_mutex_lock(&w->lock);
    bool any = w->count[t->rank] > 0;
    if (any) {
        r->last = w->box[t->rank][w->head[t->rank]];
        w->head[t->rank] = (w->head[t->rank] + 1) % BOX;
        w->count[t->rank]--;
    }
    pthread_mutex_unlock(&w->lock);
    if (!any) return false;
    *from = r->last.from;
    *m = r->last.m;
    m->row = r->last.has_row ? r->last.row : NULL;
    return true;
}

static void wait_for(wire *w, int relayed) {
    while (w->relayed != relayed) pthread_cond_wait(&w->turn, &w->lock);
}

static void set_relayed(wire *w, int relayed) {
    w->relayed = relayed;
    pthread_cond_broadcast(&w->turn);
}

static hdo_status relay(hdo_transport *t, void *v, size_t each, size_t n, hdo_relay_fn fn, void *ctx, hdo_error *e) {
    wire *w = ((rank *)t)->w;
    (void)e;
    if (each * n > sizeof w->shared) return HDO_E_MEMORY;
    pthread_mutex_lock(&w->lock);
    wait_for(w, t->rank);
    if (t->rank > 0) memcpy(v, w->shared, each * n);
    fn(ctx, v, 0, n);
    memcpy(w->shared, v, each * n);
    set_relayed(w, t->rank + 1);
    if (t->rank == 0) {
        wait_for(w, RANKS);
        memcpy(v, w->shared, each * n);
        set_relayed(w, RANKS + 1);
    } else {
        wait_for(w, RANKS + 1);
        set_relayed(w, 0);
    }
    pthread_mutex_unlock(&w->lock);
    return HDO_OK;
}

static const char *host(const hdo_transport *t, int r) {
    (void)t;
    return r == 0 ? "alpha" : "beta";
}

static const hdo_transport_ops ops = {.name = "threads", .relay = relay, .post = post, .next = next};

/* Rank 0 holds nodes 0 and 1, rank 1 the other three; all numbers of node i are i. */
static void join(rank *r, int me, wire *w) {
    *r = (rank){.base = {.ops = &ops, .rank = me, .ranks = RANKS, .n = NODES, .host_ranks = RANKS, .host = host},
                .w = w};
    r->base.start = r->start;
    r->base.held = r->held;
    r->base.order = r->order;
    hdo__transport_assign(&r->base, NODES, (int[RANKS]){0, 2}, (int[RANKS]){2, 3});
    r->rows = (hdo_models){.X = r->X, .ld = LD, .len = LEN, .first = r->base.first, .count = r->base.count};
    for (int i = 0; i < r->rows.count; i++)
        for (int j = 0; j < LD; j++) r->X[i * LD + j] = (float)(r->rows.first + i);
}

static wire *new_wire(void) {
    wire *w = calloc(1, sizeof *w);
    assert_non_null(w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->turn, NULL);
    return w;
}

static void both(void *(*fn)(void *), rank r[RANKS]) {
    pthread_t thread[RANKS];
    for (int k = 0; k < RANKS; k++) assert_int_equal(pthread_create(&thread[k], NULL, fn, &r[k]), 0);
    for (int k = 0; k < RANKS; k++) pthread_join(thread[k], NULL);
    for (int k = 0; k < RANKS; k++)
        if (r[k].st != HDO_OK) fail_msg("rank %d: %s", k, r[k].e.msg);
}

static void nap(double s) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * s)}, NULL);
}

/* Pairs of a step: every node meets every other one in turn. */
static hdo_plan meet(int64_t step, hdo_pair pairs[2]) {
    int shift = (int)(step % NODES);
    for (int k = 0; k < 2; k++) {
        int a = (shift + 1 + k) % NODES, b = (shift + NODES - 1 - k) % NODES;
        pairs[k] = (hdo_pair){.a = a, .b = b};
    }
    return (hdo_plan){.pairs = pairs, .n_pairs = 2, .all_step = true};
}

static void finish_rank(rank *r) {
    if (r->st == HDO_OK) r->st = hdo__async_finish(r->async, &r->said, &r->stats, &r->e);
}

/* ---- averages ---- */

static const float origin[D]; /* the common start of the check: node i is moved to i by its first step */

static void *step_and_meet(void *p) {
    rank *r = p;
    hdo_pair pairs[2];
    r->st = hdo__async_create(&r->async, &r->base, &r->rows,
                              &(hdo_async_setup){.deadline_s = 20.0, .x0 = origin, .d = D}, &r->e);
    for (int64_t step = 0; step < 300 && r->st == HDO_OK; step++) {
        for (int i = 0; i < r->rows.count; i++) {
            float before[LEN];
            hdo__async_read(r->async, i, LEN, before);
            float *x = hdo__async_lock(r->async, i);
            memcpy(before, x, sizeof before);
            for (int j = 0; j < D; j++) x[j] += step == 0 ? (float)(r->rows.first + i) : 0.25f * (float)(j - i);
            hdo__async_unlock(r->async, i, before);
        }
        hdo_plan plan = meet(step, pairs);
        hdo__async_mix(r->async, &plan, step);
        nap(r->slow_s);
    }
    int k = r->base.rank + 1;
    r->stats = (hdo_async_stats){.loss_sum = 10.0 * k, .mg_sum = 7.0 * k, .step_s_min = 0.25 * k};
    for (int c = 0; c < HDO_COUNTS; c++) r->stats.counts[c] = k + c;
    finish_rank(r);
    return NULL;
}

/* What one gains the other loses: the sum of all models changes by the local steps alone. */
static void test_the_mean_is_kept(void **state) {
    (void)state;
    static rank r[RANKS];
    wire *w = new_wire();
    for (int k = 0; k < RANKS; k++) {
        join(&r[k], k, w);
        memset(r[k].X, 0, sizeof r[k].X);
        r[k].slow_s = k == 0 ? 1e-4 : 3e-4;
    }
    both(step_and_meet, r);
    double steps[NODES] = {0.0, 1.0, 0.0, 1.0, 2.0}; /* index within the rank */
    for (int j = 0; j < D; j++) {
        double sum = 0.0, want = 0.0;
        for (int i = 0; i < NODES; i++) {
            const rank *o = &r[i < 2 ? 0 : 1];
            sum += (double)o->X[(i - o->rows.first) * LD + j];
            want += (double)i + 299.0 * 0.25 * ((double)j - steps[i]);
        }
        assert_true(fabs(sum - want) < 1e-2);
    }
    for (int k = 0; k < RANKS; k++) { /* both know the sums of both */
        const hdo_async_stats *s = &r[k].stats;
        assert_true(r[k].stats.exchanges >= 1.0);
        assert_true(s->exchanges + s->missed <= 600.0);
        assert_true(s->residual >= 0.0 && s->residual < 1e-3);
        assert_true(s->loss_sum == 30.0 && s->mg_sum == 21.0);
        assert_true(s->step_s_min == 0.25 && s->step_s_max == 0.5);
        for (int c = 0; c < HDO_COUNTS; c++) assert_true(s->counts[c] == 3.0 + 2.0 * c);
        assert_true(s->stale_sum >= 0.0 && s->stale_max <= s->stale_sum && s->stale_max < 300.0);
        assert_true(s->gap_max <= s->gap_sum && s->gap_max < 300.0);
        assert_true(s->exchanges == r[0].stats.exchanges && s->gap_sum == r[0].stats.gap_sum);
        assert_true(hdo__async_checked(r[k].async));
        hdo__async_destroy(r[k].async);
    }
    free(w);
}

static bool near(const rank *r, float far) {
    bool yes = true;
    for (int i = 0; i < r->rows.count; i++) {
        float x[LEN];
        hdo__async_read(r->async, i, LEN, x);
        for (int j = 0; j < LEN; j++) yes = yes && fabsf(x[j] - 2.0f) < far;
    }
    return yes;
}

/* Until both have said that their nodes are near the mean. */
static void *only_meet(void *p) {
    rank *r = p;
    hdo_pair pairs[2];
    unsigned mine = r->base.rank == 0 ? HDO_SAY_TARGET : HDO_SAY_TIMEOUT, said = 0;
    double start = hdo__now_s();
    r->st = hdo__async_create(&r->async, &r->base, &r->rows, &(hdo_async_setup){.deadline_s = 20.0, .d = D}, &r->e);
    for (int64_t step = 0; r->st == HDO_OK && said != (HDO_SAY_TARGET | HDO_SAY_TIMEOUT); step++) {
        hdo_plan plan = meet(step, pairs);
        hdo__async_mix(r->async, &plan, step);
        nap(2e-4);
        said = hdo__async_say(r->async, near(r, 0.01f) ? mine : 0);
        if (hdo__now_s() - start > 60.0) said = HDO_SAY_TARGET | HDO_SAY_TIMEOUT;
    }
    finish_rank(r);
    return NULL;
}

static void test_nodes_come_together(void **state) {
    (void)state;
    static rank r[RANKS];
    wire *w = new_wire();
    for (int k = 0; k < RANKS; k++) join(&r[k], k, w);
    both(only_meet, r);
    for (int k = 0; k < RANKS; k++) {
        assert_int_equal(r[k].said, HDO_SAY_TARGET | HDO_SAY_TIMEOUT); /* by one each */
        assert_true(near(&r[k], 0.1f));
        for (int i = 0; i < r[k].rows.count; i++) /* behind the row nobody writes */
            for (int j = LEN; j < LD; j++) assert_true(r[k].X[i * LD + j] == (float)(r[k].rows.first + i));
        assert_true(isnan(r[k].stats.residual)); /* there was no start to check against */
        assert_false(hdo__async_checked(r[k].async));
        hdo__async_destroy(r[k].async);
    }
    free(w);
}

/* ---- rows ---- */

static void *report_rows(void *p) {
    rank *r = p;
    int k = r->base.rank;
    r->st = hdo__async_create(&r->async, &r->base, &r->rows,
                              &(hdo_async_setup){.deadline_s = 20.0, .d = D, .eval_every = 10, .steps = 50}, &r->e);
    for (int64_t step = 0; step <= 50 && r->st == HDO_OK; step += 10) {
        double v = (double)(step + k);
        hdo_async_part part = {
            .step = step,
            .nodes = {.node0_loss = k == 0 ? v : (double)NAN, .node0_acc = k == 0 ? 0.5 : (double)NAN},
            .train_loss = v,
            .mg = 2.0 * v,
            .counts = {1, 2, step, 3, 4, 5 + k, 0}};
        part.nodes.nodes[k] = r->rows.count;
        part.nodes.cls[k] = (hdo_group){v, 0.0, v, v, 0.25};
        hdo__async_report(r->async, &part);
    }
    finish_rank(r);
    return NULL;
}

static void test_rows_hold_what_all_said(void **state) {
    (void)state;
    static rank r[RANKS];
    wire *w = new_wire();
    hdo_row row;
    for (int k = 0; k < RANKS; k++) join(&r[k], k, w);
    both(report_rows, r);
    for (int64_t step = 0; step <= 50; step += 10) {
        double s = (double)step;
        assert_true(hdo__async_row(r[0].async, &row));
        assert_int_equal(row.step, step);
        assert_true(fabs(row.train_loss - (s + 0.6)) < 1e-12 && fabs(row.mg - 2.0 * (s + 0.6)) < 1e-12);
        assert_true(row.node0_loss == s && row.node0_acc == 0.5);
        assert_int_equal(row.n_classes, 2);
        assert_true(row.cls[0].loss_mean == s && row.cls[1].loss_mean == s + 1.0);
        assert_true(row.cls[1].loss_min == s + 1.0 && row.cls[1].acc_mean == 0.25);
        assert_true(fabs(row.all.loss_mean - (s + 0.6)) < 1e-12 && row.all.loss_min == s &&
                    row.all.loss_max == s + 1.0);
        assert_int_equal(row.interactions, 2);
        assert_int_equal(row.bytes, 4);
        assert_int_equal(row.forward, 2 * step);
        assert_int_equal(row.backward, 6);
        assert_int_equal(row.jvp, 8);
        assert_int_equal(row.cost, 11);
    }
    assert_false(hdo__async_row(r[0].async, &row));
    assert_false(hdo__async_row(r[1].async, &row));
    for (int k = 0; k < RANKS; k++) hdo__async_destroy(r[k].async);
    free(w);
}

/* ---- silence ---- */

static void alone(int me, bool deaf, double limit_s, const char *sentence) {
    static rank r;
    wire *w = new_wire();
    w->deaf = deaf;
    join(&r, me, w);
    double start = hdo__now_s();
    hdo_async_setup s = {.deadline_s = 0.3, .d = D};
    assert_int_equal(hdo__async_create(&r.async, &r.base, &r.rows, &s, &r.e), HDO_OK);
    hdo_pair across = {.a = 0, .b = 2};
    hdo__async_mix(r.async, &(hdo_plan){.pairs = &across, .n_pairs = 1, .all_step = true}, 4 + me);
    assert_int_equal(hdo__async_finish(r.async, &r.said, &r.stats, &r.e), HDO_E_ENGINE);
    assert_true(hdo__now_s() - start >= limit_s);
    if (strstr(r.e.msg, sentence) == NULL) fail_msg("'%s', not '%s'", r.e.msg, sentence);
    assert_true(r.base.broken);
    assert_true((hdo__async_say(r.async, 0) & HDO_SAY_STOP) != 0); /* whoever asks hears that it is over */
    hdo__async_destroy(r.async);
    free(w);
}

static void test_silence_is_named(void **state) {
    (void)state;
    alone(0, false, 0.3,
          "rank 1 (host beta) has not been heard of for 0 s (mpi.deadline_s); the others were at step 4");
    alone(1, false, 2.3, "rank 0 (host alpha) has not been heard of for 2 s");
    alone(1, true, 0.3, "rank 0 (host alpha) has taken no message within 0.3 s (mpi.deadline_s); rank 1 was at step 5");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_mean_is_kept),
        cmocka_unit_test(test_nodes_come_together),
        cmocka_unit_test(test_rows_hold_what_all_said),
        cmocka_unit_test(test_silence_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
