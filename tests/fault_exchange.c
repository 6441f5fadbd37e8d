/* SPDX-License-Identifier: Apache-2.0
 *
 * The fault simulator: the production state machine of an exchange under a network that delays, drops, repeats,
 * reorders and parts, with members that crash, restart from a checkpoint, stall and run at very different speeds. One
 * process, virtual time, everything drawn from one number. After every event the promises of exchange.h are checked.
 *
 *   fault_exchange [COUNT [FIRST]]   schedules FIRST .. FIRST + COUNT - 1
 *   fault_exchange --replay NUMBER   one of them, told event by event
 */
#include "exchange/exchange.c" /* sees inside the machine */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { MEMBERS_MAX = 7, LEN = 3, QUEUE_MAX = 4096, PENDING_MAX = 512, SLOTS = 3, DOUBTS = 3, EVENTS_MAX = 500000 };
#define MS INT64_C(1000)
#define ROUND_OFF 2e-3 /* models stay below 1000, some thousand events of 1e-7 relative rounding */

typedef enum { STEP, BEAT, DELIVER, SAVE, CRASH, RESTART, STALL, PART, HEAL, QUIET, END } what;

typedef struct event {
    int64_t at;
    uint64_t order;
    what kind;
    int who, other; /* members */
    uint32_t epoch; /* STEP, BEAT, SAVE: of the life that planned it */
    bool beat;      /* DELIVER: a sign of life */
    hdo_xmsg msg;
    float data[LEN];
} event;

typedef struct member {
    bool alive, ever_again;
    uint32_t epoch;
    float x[LEN], saved[LEN];
    int64_t pace_us, stalled_until, tick_at, heard[MEMBERS_MAX];
    uint32_t heard_epoch[MEMBERS_MAX];
    int64_t offered_quiet; /* own offers answered after the faults */
    double drift;
    hdo_exchange *m;
    void *memory;
} member;

typedef struct pending { /* the partner has applied, the offerer not yet */
    int offerer, partner;
    uint32_t offerer_epoch, partner_epoch;
    uint64_t seq;
    double half[LEN]; /* what the offerer will subtract */
} pending;

typedef struct world {
    uint64_t rng, number, order;
    bool tell, quiet, weighted, long_parts;
    int n, queued, n_pending;
    double drop, twice, slow; /* probabilities */
    int64_t now, delay_us, forget_us, quiet_at;
    int side[MEMBERS_MAX]; /* of a partition; members on different sides do not hear each other */
    double expected[LEN];
    int64_t applied, expired, deaths, events;
    const char *wrong;
    member who[MEMBERS_MAX];
    pending open[PENDING_MAX];
    event queue[QUEUE_MAX];
} world;

/* ---- numbers from one number ---- */

static uint64_t draw(world *w) { /* splitmix64 */
    uint64_t z = (w->rng += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static double chance(world *w) {
    return (double)(draw(w) >> 11) * 0x1p-53;
}
static int below(world *w, int n) {
    return (int)(draw(w) % (uint64_t)n);
}
static int64_t about(world *w, int64_t mean) { /* exponential, at least 1 */
    return 1 + (int64_t)(-(double)mean * log(1.0 - chance(w)));
}

/* ---- the queue: a heap by time ---- */

static bool earlier(const event *a, const event *b) {
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void put(world *w, event e) {
    e.order = w->order++;
    if (w->queued == QUEUE_MAX) {
        w->wrong = "the queue of the simulator is full: messages multiply";
        return;
    }
    int k = w->queued++;
    while (k > 0 && earlier(&e, &w->queue[(k - 1) / 2])) {
        w->queue[k] = w->queue[(k - 1) / 2];
        k = (k - 1) / 2;
    }
    w->queue[k] = e;
}

static event get(world *w) {
    event top = w->queue[0], last = w->queue[--w->queued];
    int k = 0;
    while (2 * k + 1 < w->queued) {
        int c = 2 * k + 1;
        if (c + 1 < w->queued && earlier(&w->queue[c + 1], &w->queue[c])) c++;
        if (!earlier(&w->queue[c], &last)) break;
        w->queue[k] = w->queue[c];
        k = c;
    }
    w->queue[k] = last;
    return top;
}

/* ---- the network ---- */

static void transmit(world *w, int from, int to, event e) {
    if (w->side[from] != w->side[to] || chance(w) < w->drop) return;
    int copies = chance(w) < w->twice ? 2 : 1;
    for (int k = 0; k < copies; k++) {
        int64_t under_way = about(w, w->delay_us);
        if (chance(w) < w->slow) under_way += about(w, 40 * w->delay_us);
        int64_t longest = w->forget_us / 2; /* exchange.h: forget_us is longer than that */
        e.at = w->now + (under_way < longest ? under_way : longest);
        put(w, e);
    }
}

/* ---- what is promised ---- */

static float weight_of(const world *w, int i) {
    return w->weighted ? (float)(1 + i % 3) : 1.0f;
}

static void note(world *w, const char *wrong) {
    if (w->wrong == NULL) w->wrong = wrong;
}

static void check_sum(world *w) {
    double sum[LEN] = {0}, size = 1.0;
    for (int i = 0; i < w->n; i++) {
        for (int c = 0; c < LEN && w->who[i].alive; c++) {
            sum[c] += (double)weight_of(w, i) * (double)w->who[i].x[c];
            size += fabs((double)w->who[i].x[c]);
        }
    }
    for (int k = 0; k < w->n_pending; k++) {
        const pending *p = &w->open[k];
        for (int c = 0; c < LEN; c++) sum[c] -= (double)weight_of(w, p->offerer) * p->half[c];
    }
    for (int c = 0; c < LEN; c++) {
        if (!(fabs(sum[c] - w->expected[c]) < ROUND_OFF * (1.0 + 1e-3 * size)))
            note(w, "the sum of the models changed");
    }
}

static void drop_pending(world *w, int k, bool lost) {
    const pending *p = &w->open[k];
    for (int c = 0; c < LEN && lost; c++) w->expected[c] += (double)weight_of(w, p->offerer) * p->half[c];
    w->open[k] = w->open[--w->n_pending];
}

static bool lives(const world *w, int i, uint32_t epoch) {
    return w->who[i].alive && w->who[i].epoch == epoch;
}

/* The machine of i has no open offer any more whose partner has applied: was it right to give up? */
static void check_given_up(world *w, int i, int64_t expired_before) {
    int64_t expired = w->who[i].m->stats.expired - expired_before;
    for (int k = w->n_pending - 1; k >= 0; k--) {
        const pending *p = &w->open[k];
        if (p->offerer != i || find_offer(w->who[i].m, (uint64_t)p->partner + 1, p->seq)) continue;
        if (lives(w, p->partner, p->partner_epoch)) {
            if (expired <= 0) note(w, "an offerer gave up although its partner had applied");
            if (!w->long_parts) note(w, "an exchange expired between two members that could hear each other again");
            w->expired++;
            expired--;
        }
        drop_pending(w, k, true);
    }
}

static void check_bounds(world *w, int i) {
    const hdo_exchange *m = w->who[i].m;
    int open = 0;
    for (int k = 0; k <= DOUBTS; k++) open += m->offers[k].to != 0;
    if (open > DOUBTS + 1) note(w, "more open offers than there is room for");
    if (m->out >= 0 && m->offers[m->out].to == 0) note(w, "an offer is out that is closed");
}

/* ---- driving a machine ---- */

static void remember_half(world *w, const event *d) {
    int i = (int)d->msg.from - 1, j = d->who;
    for (int k = 0; k < w->n_pending; k++) {
        const pending *p = &w->open[k];
        if (p->offerer == i && p->offerer_epoch == d->msg.from_epoch && p->seq == d->msg.seq)
            note(w, "a partner applied an offer twice");
    }
    if (w->n_pending == PENDING_MAX) {
        note(w, "too many open halves");
        return;
    }
    pending p = {.offerer = i,
                 .partner = j,
                 .offerer_epoch = d->msg.from_epoch,
                 .partner_epoch = w->who[j].epoch,
                 .seq = d->msg.seq};
    const slot *a = find_slot(w->who[j].m, d->msg.from, d->msg.seq);
    if (a == NULL) {
        note(w, "a partner applied and remembers nothing");
        return;
    }
    double f = (double)(weight_of(w, j) / (weight_of(w, i) + weight_of(w, j)));
    for (int c = 0; c < LEN; c++) p.half[c] = f * (double)a->diff[c];
    w->open[w->n_pending++] = p;
    /* the offerer has died meanwhile: its half died with it */
    if (!lives(w, i, p.offerer_epoch)) {
        drop_pending(w, w->n_pending - 1, true);
        return;
    }
    if (find_offer(w->who[i].m, (uint64_t)j + 1, p.seq) == NULL)
        note(w, "a partner applied an offer that had been given up");
}

static void settle_half(world *w, const event *d) {
    for (int k = 0; k < w->n_pending; k++) {
        const pending *p = &w->open[k];
        if (p->offerer != d->who || p->partner != (int)d->msg.from - 1 || p->seq != d->msg.seq) continue;
        if (p->partner_epoch != d->msg.from_epoch) continue;
        drop_pending(w, k, false);
        w->applied++;
        w->who[d->who].offered_quiet += w->quiet;
        return;
    }
    note(w, "an offerer applied an answer that was not open");
}

static void plan_tick(world *w, int i) {
    member *a = &w->who[i];
    int64_t due = hdo__exchange_due_us(a->m);
    if (due == INT64_MAX || (a->tick_at > w->now && a->tick_at <= due)) return;
    a->tick_at = due > w->now ? due : w->now + 1;
    put(w, (event){.at = a->tick_at, .kind = STEP, .who = i, .other = 1, .epoch = a->epoch});
}

static void drive(world *w, int i, hdo_xevent e, const event *d) {
    member *a = &w->who[i];
    hdo_xout out;
    int64_t expired = a->m->stats.expired;
    e.now_us = w->now;
    e.x = a->x;
    hdo__exchange_step(a->m, &e, &out);
    if (out.moved && d->msg.kind == HDO_XMSG_OFFER) remember_half(w, d);
    if (out.moved && d->msg.kind == HDO_XMSG_ANSWER) settle_half(w, d);
    if (out.moved && d->msg.kind != HDO_XMSG_OFFER && d->msg.kind != HDO_XMSG_ANSWER)
        note(w, "a model moved by itself");
    check_given_up(w, i, expired);
    check_bounds(w, i);
    for (int k = 0; k < out.n; k++) {
        event m = {.kind = DELIVER, .who = (int)out.msg[k].to - 1, .other = i, .msg = out.msg[k]};
        if (m.msg.data != NULL) memcpy(m.data, m.msg.data, sizeof m.data);
        transmit(w, i, m.who, m);
        if (w->tell)
            printf("%9" PRId64 " member %d says %d of %" PRIu64 " to %d\n", w->now, i, (int)m.msg.kind, m.msg.seq,
                   m.who);
    }
    plan_tick(w, i);
}

/* ---- members ---- */

static void start_life(world *w, int i) {
    member *a = &w->who[i];
    a->alive = true;
    a->epoch++;
    a->tick_at = 0;
    memcpy(a->x, a->saved, sizeof a->x);
    for (int c = 0; c < LEN; c++) w->expected[c] += (double)weight_of(w, i) * (double)a->x[c];
    hdo_exchange_setup s = {.self = (uint64_t)i + 1,
                            .epoch = a->epoch,
                            .len = LEN,
                            .weight = weight_of(w, i),
                            .slots = SLOTS,
                            .doubts = DOUBTS,
                            .peers = MEMBERS_MAX,
                            .wait_min_us = MS,
                            .wait_max_us = 100 * MS,
                            .forget_us = w->forget_us};
    a->m = hdo__exchange_start(a->memory, &s);
    for (int j = 0; j < w->n; j++) a->heard[j] = INT64_MIN / 2;
    put(w, (event){.at = w->now + about(w, a->pace_us), .kind = STEP, .who = i, .epoch = a->epoch});
    put(w, (event){.at = w->now + 1, .kind = BEAT, .who = i, .epoch = a->epoch});
    put(w, (event){.at = w->now + about(w, 500 * MS), .kind = SAVE, .who = i, .epoch = a->epoch});
}

static void crash(world *w, int i) {
    member *a = &w->who[i];
    if (!a->alive || w->quiet) return;
    for (int k = w->n_pending - 1; k >= 0; k--) { /* what it would still have subtracted dies with it */
        if (w->open[k].offerer == i) drop_pending(w, k, true);
    }
    for (int c = 0; c < LEN; c++) w->expected[c] -= (double)weight_of(w, i) * (double)a->x[c];
    a->alive = false;
    w->deaths++;
    a->ever_again = chance(w) < 0.85;
    if (a->ever_again) put(w, (event){.at = w->now + about(w, 300 * MS), .kind = RESTART, .who = i});
}

static void local_step(world *w, int i) {
    member *a = &w->who[i];
    for (int c = 0; c < LEN; c++) {
        float before = a->x[c];
        a->x[c] = before + (float)(chance(w) - 0.5 + a->drift - 0.01 * (double)before);
        w->expected[c] += (double)weight_of(w, i) * ((double)a->x[c] - (double)before);
    }
    int others[MEMBERS_MAX], n = 0;
    for (int j = 0; j < w->n; j++) {
        if (j != i && w->now - a->heard[j] < 400 * MS) others[n++] = j;
    }
    if (n > 0 && hdo__exchange_can_offer(a->m)) {
        int j = others[below(w, n)];
        event none = {0};
        drive(w, i, (hdo_xevent){.kind = HDO_XEVENT_OFFER, .member = (uint64_t)j + 1, .epoch = a->heard_epoch[j]},
              &none);
    }
    put(w, (event){.at = w->now + about(w, a->pace_us), .kind = STEP, .who = i, .epoch = a->epoch});
}

static void beat(world *w, int i) {
    for (int j = 0; j < w->n; j++) {
        if (j == i) continue;
        transmit(w, i, j, (event){.kind = DELIVER, .who = j, .other = i, .epoch = w->who[i].epoch, .beat = true});
    }
    put(w, (event){.at = w->now + 100 * MS, .kind = BEAT, .who = i, .epoch = w->who[i].epoch});
}

static void deliver(world *w, event *d) {
    member *a = &w->who[d->who];
    if (!a->alive) return;
    if (a->stalled_until > w->now) { /* stays in its socket */
        d->at = a->stalled_until;
        put(w, *d);
        return;
    }
    if (d->beat) {
        event none = {0};
        if (d->epoch >= a->heard_epoch[d->other]) {
            a->heard[d->other] = w->now;
            a->heard_epoch[d->other] = d->epoch;
        }
        drive(w, d->who, (hdo_xevent){.kind = HDO_XEVENT_PEER, .member = (uint64_t)d->other + 1, .epoch = d->epoch},
              &none);
        return;
    }
    if (d->msg.data != NULL) d->msg.data = d->data;
    drive(w, d->who, (hdo_xevent){.kind = HDO_XEVENT_MESSAGE, .msg = &d->msg}, d);
}

/* ---- faults ---- */

static void plan_faults(world *w) {
    static const what kinds[] = {CRASH, STALL, PART};
    int n = below(w, 12);
    for (int k = 0; k < n; k++)
        put(w,
            (event){.at = about(w, w->quiet_at / 2) % w->quiet_at, .kind = kinds[below(w, 3)], .who = below(w, w->n)});
}

static void part(world *w) {
    if (w->quiet) return;
    for (int i = 0; i < w->n; i++) w->side[i] = below(w, 2);
    int64_t longest = w->long_parts ? 3 * w->forget_us : w->forget_us / 4;
    int64_t t = about(w, w->long_parts ? w->forget_us : 200 * MS);
    put(w, (event){.at = w->now + (t < longest ? t : longest), .kind = HEAL});
}

static void happen(world *w, event *e) {
    member *a = &w->who[e->who];
    event none = {0};
    switch (e->kind) {
    case STEP:
    case BEAT:
    case SAVE:
        if (!lives(w, e->who, e->epoch)) return; /* planned by an earlier life */
        if (a->stalled_until > w->now) {
            e->at = a->stalled_until + 1; /* after the messages that wait */
            put(w, *e);
            return;
        }
        if (e->kind == BEAT) {
            beat(w, e->who);
        } else if (e->kind == SAVE) {
            memcpy(a->saved, a->x, sizeof a->saved);
            put(w, (event){.at = w->now + about(w, 500 * MS), .kind = SAVE, .who = e->who, .epoch = a->epoch});
        } else if (e->other == 1) {
            drive(w, e->who, (hdo_xevent){.kind = HDO_XEVENT_TICK}, &none);
        } else {
            local_step(w, e->who);
        }
        return;
    case DELIVER: deliver(w, e); return;
    case CRASH: crash(w, e->who); return;
    case RESTART: start_life(w, e->who); return;
    case STALL:
        if (!w->quiet) a->stalled_until = w->now + about(w, 300 * MS) % (w->forget_us / 4);
        return;
    case PART: part(w); return;
    case HEAL:
    case QUIET:
        memset(w->side, 0, sizeof w->side);
        if (e->kind == QUIET) {
            w->quiet = true;
            w->drop = w->twice = w->slow = 0.0;
        }
        return;
    case END: return;
    }
}

/* After the faults: everybody who lives has had an offer answered, and nothing of the time before is open. */
static bool recovered(const world *w) {
    int living = 0;
    for (int i = 0; i < w->n; i++) living += w->who[i].alive;
    for (int i = 0; i < w->n; i++) {
        const member *a = &w->who[i];
        if (!a->alive) continue;
        if (living > 1 && a->offered_quiet == 0) return false;
        for (int k = 0; k < SLOTS; k++) {
            if (a->m->slots[k].from != 0 && a->m->slots[k].since_us < w->quiet_at) return false;
        }
        for (int k = 0; k <= DOUBTS; k++) {
            if (a->m->offers[k].to != 0 && a->m->offers[k].sent_us < w->quiet_at) return false;
        }
    }
    return true;
}

static void play(world *w, uint64_t number, bool tell) {
    void *memory[MEMBERS_MAX];
    for (int i = 0; i < MEMBERS_MAX; i++) memory[i] = w->who[i].memory;
    memset(w, 0, sizeof *w);
    *w = (world){.rng = number * UINT64_C(0x2545f4914f6cdd1d) + 1, .number = number, .tell = tell};
    w->n = 2 + below(w, MEMBERS_MAX - 1);
    w->weighted = chance(w) < 0.3;
    w->long_parts = chance(w) < 0.15;
    w->drop = chance(w) < 0.3 ? 0.0 : 0.4 * chance(w);
    w->twice = 0.3 * chance(w);
    w->slow = 0.2 * chance(w);
    w->delay_us = 1 + about(w, 2 * MS);
    w->forget_us = 2000 * MS;
    w->quiet_at = w->long_parts ? 4 * w->forget_us : 200 * MS + about(w, 600 * MS);
    for (int i = 0; i < w->n; i++) {
        w->who[i].memory = memory[i];
        w->who[i].drift = (double)(i % 3) - 1.0;
        double fast = w->long_parts ? 40e3 : 4e3; /* us; the slowest takes 1000 times as long */
        w->who[i].pace_us = (int64_t)(fast * pow(1000.0, chance(w) < 0.8 ? 0.3 * chance(w) : chance(w)));
        start_life(w, i);
    }
    plan_faults(w);
    put(w, (event){.at = w->quiet_at, .kind = QUIET});
    int64_t slowest = 0;
    for (int i = 0; i < w->n; i++) slowest = w->who[i].pace_us > slowest ? w->who[i].pace_us : slowest;
    put(w, (event){.at = w->quiet_at + 5 * w->forget_us + 40 * slowest, .kind = END});
    bool over = false;
    while (!over && w->wrong == NULL) {
        event e = get(w);
        w->now = e.at;
        w->events++;
        if (tell && e.kind >= SAVE) printf("%9" PRId64 " event %d of member %d\n", w->now, (int)e.kind, e.who);
        happen(w, &e);
        check_sum(w);
        over = e.kind == END || (w->quiet && recovered(w));
        if (w->events > EVENTS_MAX) note(w, "there is no end of events");
    }
    if (w->wrong == NULL && !recovered(w))
        note(w, "long after the faults somebody met nobody, or something old is open");
}

int main(int argc, char **argv) {
    bool replay = argc == 3 && strcmp(argv[1], "--replay") == 0;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    uint64_t count = replay ? 1 : argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    world *w = calloc(1, sizeof *w);
    hdo_exchange_setup s = {.self = 1,
                            .epoch = 1,
                            .len = LEN,
                            .weight = 1.0f,
                            .slots = SLOTS,
                            .doubts = DOUBTS,
                            .peers = MEMBERS_MAX,
                            .wait_min_us = 1,
                            .wait_max_us = 2,
                            .forget_us = 3};
    for (int i = 0; w != NULL && i < MEMBERS_MAX; i++) w->who[i].memory = malloc(hdo__exchange_bytes(&s));
    int64_t events = 0, applied = 0, expired = 0, deaths = 0;
    int bad = 0;
    void *memory[MEMBERS_MAX];
    for (int i = 0; w != NULL && i < MEMBERS_MAX; i++) memory[i] = w->who[i].memory;
    for (uint64_t k = 0; w != NULL && k < count && bad < 5; k++) {
        for (int i = 0; i < MEMBERS_MAX; i++) w->who[i].memory = memory[i];
        play(w, first + k, replay);
        events += w->events;
        applied += w->applied;
        expired += w->expired;
        deaths += w->deaths;
        if (w->wrong == NULL) continue;
        bad++;
        printf("schedule %" PRIu64 ", time %" PRId64 " us: %s (fault_exchange --replay %" PRIu64 ")\n", w->number,
               w->now, w->wrong, w->number);
    }
    printf("%s %" PRIu64 " schedules: %" PRId64 " events, %" PRId64 " exchanges, %" PRId64 " deaths, %" PRId64
           " expired\n",
           bad == 0 ? "ok 1 -" : "not ok 1 -", count, events, applied, deaths, expired);
    for (int i = 0; w != NULL && i < MEMBERS_MAX; i++) free(memory[i]);
    free(w);
    return bad == 0 && w != NULL ? 0 : 1;
}
