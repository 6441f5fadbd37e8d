/* SPDX-License-Identifier: Apache-2.0
 *
 * The asynchronous engine: no step in common, no barrier. Every rank steps its nodes at its own pace; a second thread
 * talks, so that a rank answers at once however long its steps are.
 *
 * An average of nodes i (here) and j (there) is an offer and an answer:
 *
 *     offer   x_i travels to j's rank
 *     there   delta = (x_i - x_j) / 2;   x_j += delta
 *     answer  delta travels back;        x_i -= delta
 *
 * What j gains i loses, whatever either has done in between, so the mean of all models changes by local steps alone, up
 * to rounding. This is AD-PSGD (Lian et al., 2018) without its atomic average: i goes on stepping until the answer
 * comes. A node has at most one offer out, otherwise it would cover the same distance several times and overshoot; a
 * rank has at most hdo__transport_offers, which bounds memory. A meeting that finds no room is left out and counted.
 *
 * The plan is the synchronous one of the rank's own step; of each pair one node, by parity, makes the offer.
 */
#include "engine/async.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/vec.h"

enum { IDLE_NS = 50000, SPINS = 1000 };
enum { OFFER, ANSWER, BEAT, BEAT_BACK, SAY, SAID, CLASS, PART, DONE, END }; /* word[0] of a message */
enum { LIVE, LEAVING, GONE };
#define SPEAK_S 2.0

typedef struct offer {
    int node, partner;
    int64_t step;
} offer;

struct hdo_async {
    hdo_transport *t;
    hdo_models *rows;
    double deadline_s;
    pthread_t thread;
    bool started;
    pthread_mutex_t *lock; /* (count): one per row */
    pthread_mutex_t queue; /* offers, statistics, figures */
    offer waiting[HDO_OFFERS_MAX];
    bool *is_out;                 /* (count): the node has an offer out */
    int n_waiting, n_out, offers; /* offers not yet sent; offers without an answer, those included */
    _Atomic int64_t step;
    _Atomic unsigned said; /* by anybody, as far as known */
    _Atomic int state;
    hdo_async_stats stats;
    hdo_async_part part; /* to be sent to rank 0 */
    bool has_part;
    hdo_async_rows curve; /* rank 0 */
    int done, *is_done;   /* rank 0: who has finished */
    double *heard_s;      /* (ranks): when; others keep entry 0 only */
    hdo_status st;
    hdo_error error;

    size_t d; /* the check of conservation */
    const float *x0;
    double *drift; /* (d): sum of all local changes */
    pthread_mutex_t drift_lock;
};

/* ---- rows ---- */

void hdo__async_read(hdo_async *a, int i, size_t len, float *copy) {
    pthread_mutex_lock(&a->lock[i]);
    memcpy(copy, a->rows->X + (size_t)i * a->rows->ld, len * sizeof(float));
    pthread_mutex_unlock(&a->lock[i]);
}

float *hdo__async_lock(hdo_async *a, int i) {
    pthread_mutex_lock(&a->lock[i]);
    return a->rows->X + (size_t)i * a->rows->ld;
}

void hdo__async_unlock(hdo_async *a, int i, const float *before) {
    const float *x = a->rows->X + (size_t)i * a->rows->ld;
    if (a->drift != NULL && before != NULL) {
        pthread_mutex_lock(&a->drift_lock);
        for (size_t j = 0; j < a->d; j++) a->drift[j] += (double)x[j] - (double)before[j];
        pthread_mutex_unlock(&a->drift_lock);
    }
    pthread_mutex_unlock(&a->lock[i]);
}

bool hdo__async_checked(const hdo_async *a) {
    return a->drift != NULL;
}

int hdo__async_mix(hdo_async *a, const hdo_plan *plan, int64_t step) {
    int averaged = 0;
    atomic_store(&a->step, step);
    for (int k = 0; k < plan->n_pairs; k++) {
        int p = plan->pairs[k].a, q = plan->pairs[k].b;
        bool here_p = hdo__transport_local(a->t, p), here_q = hdo__transport_local(a->t, q);
        if (here_p && here_q) {
            int lo = (p < q ? p : q) - a->rows->first, hi = (p < q ? q : p) - a->rows->first;
            float *x = hdo__async_lock(a, lo), *y = hdo__async_lock(a, hi);
            hdo__average(a->rows->len, x, y);
            hdo__async_unlock(a, hi, NULL);
            hdo__async_unlock(a, lo, NULL);
            averaged++;
            continue;
        }
        int maker = ((p ^ q ^ (int)step) & 1) != 0 ? p : q;
        if (!hdo__transport_local(a->t, maker)) continue;
        pthread_mutex_lock(&a->queue);
        bool *is_out = &a->is_out[maker - a->rows->first];
        if (a->n_out < a->offers && !*is_out) {
            *is_out = true;
            a->waiting[a->n_waiting++] = (offer){maker, maker == p ? q : p, step};
            a->n_out++;
        } else {
            a->stats.missed++;
        }
        pthread_mutex_unlock(&a->queue);
    }
    return averaged;
}

/* ---- the thread that talks ---- */

/* All buffers are under way only while others do not take what they hold, so this ends soon or at the deadline. */
static void post(hdo_async *a, int to, const hdo_message *m) {
    double waited = 0.0, looked = 0.0;
    for (int64_t spin = 0; !a->t->ops->post(a->t, to, m); spin++) {
        if (atomic_load(&a->state) == GONE) return;
        if (spin < SPINS) continue;
        double now = hdo__now_s(), slice = spin == SPINS ? 0.0 : now - looked;
        waited += slice < a->deadline_s / 4.0 ? slice : 0.0; /* longer: we stood still, not they */
        looked = now;
        if (waited >= a->deadline_s) {
            a->st = hdo__fail(&a->error, HDO_E_ENGINE,
                              "rank %d (host %s) has taken no message within %g s (mpi.deadline_s); rank %d was at "
                              "step %lld",
                              to, a->t->host(a->t, to), a->deadline_s, a->t->rank, (long long)atomic_load(&a->step));
            a->t->broken = true;
            atomic_store(&a->state, GONE);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = IDLE_NS}, NULL);
    }
}

static void tell(hdo_async *a, int to, int64_t kind, int64_t value) {
    post(a, to, &(hdo_message){.word = {kind, value}});
}

/* A message of figures: kind, step, a number, then reals as they are in memory. */
enum { CLASS_REALS = 5, PART_REALS = 4, PART_WORDS = 2 + PART_REALS + HDO_COUNTS };
_Static_assert((int)PART_WORDS <= (int)HDO_MESSAGE_WORDS && 4 + (int)CLASS_REALS <= (int)HDO_MESSAGE_WORDS, "they fit");
_Static_assert(sizeof(hdo_group) == CLASS_REALS * sizeof(int64_t), "hdo_group");

static void send_part(hdo_async *a) {
    pthread_mutex_lock(&a->queue);
    bool any = a->has_part;
    hdo_async_part p = a->part;
    pthread_mutex_unlock(&a->queue);
    if (!any) return;
    for (int k = 0; k < HDO_CLASSES_MAX; k++) {
        if (p.nodes.nodes[k] == 0) continue;
        hdo_message m = {.word = {CLASS, p.step, k, p.nodes.nodes[k]}};
        memcpy(&m.word[4], &p.nodes.cls[k], sizeof p.nodes.cls[k]);
        post(a, 0, &m);
    }
    hdo_message m = {.word = {PART, p.step}};
    memcpy(&m.word[2], (double[PART_REALS]){p.nodes.node0_loss, p.nodes.node0_acc, p.train_loss, p.mg},
           PART_REALS * sizeof(double));
    memcpy(&m.word[2 + PART_REALS], &p.counts, sizeof p.counts);
    post(a, 0, &m);
    pthread_mutex_lock(&a->queue);
    a->has_part = false;
    pthread_mutex_unlock(&a->queue);
}

static void take_class(hdo_async *a, const hdo_message *m) {
    hdo_group g;
    memcpy(&g, &m->word[4], sizeof g);
    pthread_mutex_lock(&a->queue);
    hdo__async_rows_class(&a->curve, m->word[1], (int)m->word[2], (int)m->word[3], &g);
    pthread_mutex_unlock(&a->queue);
}

static void take_part(hdo_async *a, int from, const hdo_message *m) {
    double real[PART_REALS];
    memcpy(real, &m->word[2], sizeof real);
    hdo_async_part p = {.step = m->word[1],
                        .nodes = {.node0_loss = real[0], .node0_acc = real[1]},
                        .train_loss = real[2],
                        .mg = real[3]};
    memcpy(&p.counts, &m->word[2 + PART_REALS], sizeof p.counts);
    pthread_mutex_lock(&a->queue);
    hdo__async_rows_part(&a->curve, &p, a->t->held[from], hdo__now_s());
    pthread_mutex_unlock(&a->queue);
}

static void take_offer(hdo_async *a, int from, hdo_message *m) {
    int i = (int)m->word[1] - a->rows->first;
    float *x = hdo__async_lock(a, i);
    for (size_t j = 0; j < a->rows->len; j++) {
        float delta = 0.5f * (m->row[j] - x[j]);
        x[j] += delta;
        m->row[j] = delta;
    }
    hdo__async_unlock(a, i, NULL);
    hdo_message back = {.word = {ANSWER, m->word[2], m->word[3], atomic_load(&a->step)}, .row = m->row};
    post(a, from, &back);
}

static void take_answer(hdo_async *a, const hdo_message *m) {
    int i = (int)m->word[1] - a->rows->first;
    float *x = hdo__async_lock(a, i);
    for (size_t j = 0; j < a->rows->len; j++) x[j] -= m->row[j];
    hdo__async_unlock(a, i, NULL);
    int64_t now = atomic_load(&a->step);
    double stale = (double)(now - m->word[2]), gap = fabs((double)(m->word[3] - m->word[2]));
    pthread_mutex_lock(&a->queue);
    a->n_out--;
    a->is_out[i] = false;
    hdo_async_stats *s = &a->stats;
    s->exchanges++;
    s->stale_sum += stale;
    s->stale_max = fmax(s->stale_max, stale);
    s->gap_sum += gap;
    s->gap_max = fmax(s->gap_max, gap);
    pthread_mutex_unlock(&a->queue);
}

static void take(hdo_async *a, int from, hdo_message *m) {
    if (a->t->rank == 0) a->heard_s[from] = hdo__now_s();
    if (from == 0) a->heard_s[0] = hdo__now_s();
    switch (m->word[0]) {
    case OFFER: take_offer(a, from, m); break;
    case ANSWER: take_answer(a, m); break;
    case BEAT: tell(a, from, BEAT_BACK, 0); break;
    case SAY: /* to rank 0, which tells all */
        atomic_fetch_or(&a->said, (unsigned)m->word[1]);
        for (int r = 1; r < a->t->ranks; r++) tell(a, r, SAID, (int64_t)atomic_load(&a->said));
        break;
    case SAID: atomic_fetch_or(&a->said, (unsigned)m->word[1]); break;
    case CLASS: take_class(a, m); break;
    case PART: take_part(a, from, m); break;
    case DONE:
        if (!a->is_done[from]) a->done++;
        a->is_done[from] = 1;
        break;
    case END:
        atomic_fetch_or(&a->said, (unsigned)m->word[1]);
        atomic_store(&a->state, GONE);
        break;
    default: break;
    }
}

static void send_offers(hdo_async *a) {
    for (;;) {
        pthread_mutex_lock(&a->queue);
        bool any = a->n_waiting > 0;
        offer o = a->waiting[0];
        if (any) memmove(a->waiting, a->waiting + 1, (size_t)--a->n_waiting * sizeof o);
        pthread_mutex_unlock(&a->queue);
        if (!any) return;
        int i = o.node - a->rows->first;
        hdo_message m = {.word = {OFFER, o.partner, o.node, o.step}, .row = hdo__async_lock(a, i)};
        bool sent = a->t->ops->post(a->t, hdo__transport_owner(a->t, o.partner), &m);
        hdo__async_unlock(a, i, NULL);
        if (sent) continue;
        pthread_mutex_lock(&a->queue);
        a->n_out--;
        a->is_out[i] = false;
        a->stats.missed++;
        pthread_mutex_unlock(&a->queue);
    }
}

/* Somebody has not been heard of for too long. */
static bool lost_somebody(hdo_async *a, double now) {
    hdo_transport *t = a->t;
    for (int r = 0; r < t->ranks; r++) {
        if (r == t->rank || (t->rank != 0 && r != 0)) continue;
        double limit = t->rank == 0 ? a->deadline_s : a->deadline_s + SPEAK_S; /* rank 0 speaks first */
        if (now - a->heard_s[r] < limit) continue;
        a->st = hdo__fail(
            &a->error, HDO_E_ENGINE,
            "rank %d (host %s) has not been heard of for %.0f s (mpi.deadline_s); the others were at step %lld", r,
            t->host(t, r), limit, (long long)atomic_load(&a->step));
        t->broken = true;
        return true;
    }
    return false;
}

static bool nothing_out(hdo_async *a) {
    pthread_mutex_lock(&a->queue);
    bool none = a->n_out == 0 && !a->has_part;
    pthread_mutex_unlock(&a->queue);
    return none;
}

static void *talk(void *p) {
    hdo_async *a = p;
    hdo_transport *t = a->t;
    unsigned told = 0;
    bool reported = false;
    double beat_s = 0.0, looked = hdo__now_s();
    while (atomic_load(&a->state) != GONE) {
        hdo_message m;
        int from;
        bool busy = false;
        while (atomic_load(&a->state) != GONE && t->ops->next(t, &from, &m)) {
            take(a, from, &m);
            busy = true;
        }
        send_offers(a);
        send_part(a);
        double now = hdo__now_s();
        for (int r = 0; r < t->ranks && now - looked > a->deadline_s / 4.0; r++)
            a->heard_s[r] += now - looked; /* we stood still, not they (SIGSTOP, SIGCONT) */
        looked = now;
        unsigned said = atomic_load(&a->said);
        if (said != told) {
            for (int r = 1; r < t->ranks && t->rank == 0; r++) tell(a, r, SAID, (int64_t)said);
            if (t->rank != 0) tell(a, 0, SAY, (int64_t)said);
            told = said;
        }
        if (now - beat_s > a->deadline_s / 8.0 && t->rank != 0) {
            tell(a, 0, BEAT, 0);
            beat_s = now;
        }
        if (atomic_load(&a->state) == LEAVING && !reported && nothing_out(a)) {
            reported = true;
            if (t->rank == 0) {
                a->done++;
            } else {
                tell(a, 0, DONE, 0);
            }
        }
        if (t->rank == 0 && a->done == t->ranks) { /* all have their answers: nothing is under way any more */
            for (int r = 1; r < t->ranks; r++) tell(a, r, END, (int64_t)atomic_load(&a->said));
            break;
        }
        if (a->st != HDO_OK || lost_somebody(a, now)) break;
        if (!busy) nanosleep(&(struct timespec){.tv_nsec = IDLE_NS}, NULL);
    }
    atomic_store(&a->state, GONE);
    return NULL;
}

/* ---- figures ---- */

void hdo__async_report(hdo_async *a, const hdo_async_part *p) {
    for (;;) {
        pthread_mutex_lock(&a->queue);
        bool room = !a->has_part;
        if (room) {
            a->part = *p;
            a->part.counts.interactions += (int64_t)a->stats.exchanges;
            a->part.counts.bytes += 2 * (int64_t)a->stats.exchanges * (int64_t)(a->rows->len * sizeof(float));
            a->has_part = a->t->rank != 0;
        }
        if (room && a->t->rank == 0) {
            for (int k = 0; k < HDO_CLASSES_MAX; k++)
                hdo__async_rows_class(&a->curve, p->step, k, p->nodes.nodes[k], &p->nodes.cls[k]);
            hdo__async_rows_part(&a->curve, &a->part, a->rows->count, hdo__now_s());
        }
        pthread_mutex_unlock(&a->queue);
        if (room || atomic_load(&a->state) == GONE) return;
        nanosleep(&(struct timespec){.tv_nsec = IDLE_NS}, NULL); /* the last one is just leaving */
    }
}

bool hdo__async_row(hdo_async *a, hdo_row *row) {
    pthread_mutex_lock(&a->queue);
    bool any = hdo__async_rows_take(&a->curve, row);
    pthread_mutex_unlock(&a->queue);
    return any;
}

/* ---- life ---- */

unsigned hdo__async_say(hdo_async *a, unsigned say) {
    unsigned all = atomic_fetch_or(&a->said, say) | say;
    return atomic_load(&a->state) == GONE ? all | HDO_SAY_STOP : all; /* the talk is over: a peer is gone */
}

static void add_stats(void *ctx, void *v, size_t first, size_t count) {
    const hdo_async_stats *own = ctx;
    hdo_async_stats *sum = v;
    (void)first;
    (void)count;
    sum->exchanges += own->exchanges;
    sum->missed += own->missed;
    sum->stale_sum += own->stale_sum;
    sum->stale_max = fmax(sum->stale_max, own->stale_max);
    sum->gap_sum += own->gap_sum;
    sum->gap_max = fmax(sum->gap_max, own->gap_max);
    for (int k = 0; k < HDO_COUNTS; k++) sum->counts[k] += own->counts[k];
    sum->loss_sum += own->loss_sum;
    sum->mg_sum += own->mg_sum;
    if (sum->step_s_min <= 0.0 || own->step_s_min < sum->step_s_min) sum->step_s_min = own->step_s_min;
    sum->step_s_max = fmax(sum->step_s_max, own->step_s_max);
}

static void add_drift(void *ctx, void *v, size_t first, size_t count) {
    const hdo_async *a = ctx;
    double *sum = v;
    for (size_t j = first; j < first + count; j++) {
        sum[j] += a->drift[j];
        for (int i = 0; i < a->rows->count; i++) sum[j] -= (double)a->rows->X[(size_t)i * a->rows->ld + j];
    }
}

/* max_j |mean(X)_j - x0_j - drift_j / n| */
static hdo_status residual(hdo_async *a, double *out, hdo_error *e) {
    *out = (double)NAN;
    if (a->drift == NULL) return HDO_OK;
    double *sum = hdo__alloc(a->d * sizeof(double)), most = 0.0, n = (double)a->t->n;
    if (sum == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the check of the mean");
    hdo_status st = a->t->ops->relay(a->t, sum, sizeof(double), a->d, add_drift, a, e);
    for (size_t j = 0; j < a->d; j++) most = fmax(most, fabs(sum[j] / n + (double)a->x0[j]));
    hdo__free(sum);
    *out = most;
    return st;
}

hdo_status hdo__async_finish(hdo_async *a, unsigned *say, hdo_async_stats *s, hdo_error *e) {
    int live = LIVE;
    atomic_compare_exchange_strong(&a->state, &live, LEAVING);
    if (a->started) pthread_join(a->thread, NULL);
    a->started = false;
    if (a->st != HDO_OK) {
        if (e != NULL) *e = a->error;
        return a->st;
    }
    *say = atomic_load(&a->said);
    a->stats.step_s_min = a->stats.step_s_max = s->step_s_min;
    a->stats.loss_sum = s->loss_sum;
    a->stats.mg_sum = s->mg_sum;
    memcpy(a->stats.counts, s->counts, sizeof s->counts);
    *s = (hdo_async_stats){0};
    hdo_status st = a->t->ops->relay(a->t, s, sizeof *s, 1, add_stats, &a->stats, e);
    return st == HDO_OK ? residual(a, &s->residual, e) : st;
}

hdo_status hdo__async_create(hdo_async **out, hdo_transport *t, hdo_models *rows, const hdo_async_setup *s,
                             hdo_error *e) {
    hdo_async *a = hdo__alloc(sizeof *a);
    *out = NULL;
    if (a == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the asynchronous engine");
    a->t = t;
    a->rows = rows;
    a->deadline_s = s->deadline_s;
    a->d = s->d;
    a->x0 = s->x0;
    a->lock = hdo__alloc((size_t)rows->count * sizeof *a->lock);
    a->offers = hdo__transport_offers(t);
    a->is_out = hdo__alloc((size_t)rows->count * sizeof(bool));
    a->is_done = hdo__alloc((size_t)t->ranks * sizeof(int));
    a->heard_s = hdo__alloc((size_t)t->ranks * sizeof(double));
    if (s->x0 != NULL) a->drift = hdo__alloc(s->d * sizeof(double));
    hdo_status st = hdo__async_rows_init(&a->curve, t->rank == 0 ? s->eval_every : 0, s->steps, t->ranks);
    if (st != HDO_OK || a->lock == NULL || a->is_out == NULL || a->is_done == NULL || a->heard_s == NULL ||
        (s->x0 != NULL && a->drift == NULL)) {
        hdo__async_destroy(a);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the asynchronous engine");
    }
    for (int i = 0; i < rows->count; i++) pthread_mutex_init(&a->lock[i], NULL);
    pthread_mutex_init(&a->queue, NULL);
    pthread_mutex_init(&a->drift_lock, NULL);
    for (int r = 0; r < t->ranks; r++) a->heard_s[r] = hdo__now_s();
    if (pthread_create(&a->thread, NULL, talk, a) != 0) {
        hdo__async_destroy(a);
        return hdo__fail(e, HDO_E_FAILED, "the thread of the asynchronous engine could not be started");
    }
    a->started = true;
    *out = a;
    return HDO_OK;
}

void hdo__async_destroy(hdo_async *a) {
    if (a == NULL) return;
    atomic_store(&a->state, GONE);
    if (a->started) pthread_join(a->thread, NULL);
    hdo__free(a->lock);
    hdo__free(a->is_out);
    hdo__free(a->is_done);
    hdo__free(a->heard_s);
    hdo__free(a->drift);
    hdo__async_rows_clear(&a->curve);
    hdo__free(a);
}
