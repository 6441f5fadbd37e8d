/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbered tasks over threads of our own. The workers of a team are started by its first run and live until it is
 * cleared. Between two runs they look for the next one for SPIN_S, then sleep: steps of a few microseconds would
 * otherwise be spent waking threads. The caller works too and takes whatever task is next. When none is left it closes
 * the gate and waits for those inside only: a worker that has not got a processor meanwhile is not missed.
 */
#define _GNU_SOURCE
#include "base/team.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

#include "base/clock.h"

#define SPIN_S 20e-6

/* The gate: number of the run, is it open?, how many workers are inside. One word, so that entering is one exchange. */
enum { INSIDE = 0xffff, OPEN = 0x10000, RUN = 0x20000 };

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    _Atomic uint64_t gate;
    _Atomic int sleeping; /* workers that need a wake */
    _Atomic bool waiting; /* the caller needs to be told when the last worker has left */
    _Atomic bool over;
    int workers; /* started */
    bool tried;  /* to start them */
    /* The run: written while nobody is inside and the gate is closed. */
    hdo_task fn;
    void *ctx;
    int n_tasks;
    _Atomic int next;
} pool;

typedef struct worker {
    pool *p;
    pthread_t thread;
    hdo_arena *arena;
} worker;

/* What hdo__team_init allocates for more than one thread; hdo_team.arena points into it. */
typedef struct crew {
    pool p;
    worker *w; /* (threads - 1) */
    hdo_arena arena[];
} crew;

static crew *crew_of(const hdo_team *t) {
    return (crew *)(void *)((char *)t->arena - offsetof(crew, arena));
}

static void run_one(hdo_arena *arena, int thread, int task, hdo_task fn, void *ctx) {
    hdo_team self = {1, arena, thread};
    hdo_work w = {arena, &self, thread};
    size_t mark = hdo__arena_mark(arena);
    fn(ctx, task, &w);
    hdo__arena_rewind(arena, mark);
}

static void run_some(pool *p, hdo_arena *arena) {
    for (int k = atomic_fetch_add(&p->next, 1); k < p->n_tasks; k = atomic_fetch_add(&p->next, 1))
        run_one(arena, (int)(arena - ((crew *)(void *)p)->arena), k, p->fn, p->ctx);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool open_for(const pool *p, uint64_t seen) {
    uint64_t g = atomic_load(&p->gate);
    return ((g & OPEN) && g / RUN != seen) || atomic_load(&p->over);
}

static bool empty(const pool *p) {
    return (atomic_load(&p->gate) & INSIDE) == 0;
}

/* A worker waits for a run it has not seen. */
static void await_run(pool *p, uint64_t seen) {
    double until = hdo__now_s() + SPIN_S;
    do {
        for (int i = 0; i < 64; i++, relax())
            if (open_for(p, seen)) return;
    } while (hdo__now_s() < until);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->sleeping, 1); /* before looking again: the caller opens first and asks for sleepers then */
    while (!open_for(p, seen)) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg) {
    worker *w = arg;
    pool *p = w->p;
    uint64_t seen = 0;
    for (;;) {
        await_run(p, seen);
        if (atomic_load(&p->over)) return NULL;
        uint64_t g = atomic_load(&p->gate);
        if (!(g & OPEN) || !atomic_compare_exchange_strong(&p->gate, &g, g + 1)) continue;
        seen = g / RUN;
        run_some(p, w->arena);
        g = atomic_fetch_sub(&p->gate, 1) - 1;
        if ((g & (INSIDE | OPEN)) == 0 && atomic_load(&p->waiting)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

/* Signals are for the caller's threads. What cannot be started is not missed. */
static void start_workers(crew *c, int n) {
    sigset_t all, old;
    c->p.tried = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int k = 0; k < n; k++) {
        worker *w = &c->w[k];
        *w = (worker){.p = &c->p, .arena = &c->arena[k + 1]};
        if (pthread_create(&w->thread, NULL, work, w) != 0) break;
        c->p.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void await_empty(pool *p) {
    double until = hdo__now_s() + SPIN_S;
    do {
        for (int i = 0; i < 64; i++, relax())
            if (empty(p)) return;
    } while (hdo__now_s() < until);
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->waiting, true);
    while (!empty(p)) pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->waiting, false);
    pthread_mutex_unlock(&p->lock);
}

void hdo__team_run(hdo_team *t, int n_tasks, hdo_task fn, void *ctx) {
    if (t->threads <= 1 || n_tasks <= 1) {
        for (int k = 0; k < n_tasks; k++) run_one(&t->arena[0], t->first, k, fn, ctx);
        return;
    }
    crew *c = crew_of(t);
    pool *p = &c->p;
    if (!p->tried) start_workers(c, t->threads - 1);
    p->fn = fn;
    p->ctx = ctx;
    p->n_tasks = n_tasks;
    atomic_store(&p->next, 0);
    atomic_store(&p->gate, (atomic_load(&p->gate) / RUN + 1) * RUN | OPEN);
    if (atomic_load(&p->sleeping) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
    run_some(p, &t->arena[0]);
    atomic_fetch_and(&p->gate, ~(uint64_t)OPEN);
    await_empty(p);
}

hdo_status hdo__team_init(hdo_team *t, int threads, size_t arena_bytes) {
    *t = (hdo_team){0};
    size_t n = (size_t)threads;
    crew *c = hdo__alloc(sizeof *c + n * sizeof(hdo_arena));
    if (c == NULL) return HDO_E_MEMORY;
    c->w = hdo__alloc(n * sizeof *c->w);
    pthread_mutex_init(&c->p.lock, NULL);
    pthread_cond_init(&c->p.wake, NULL);
    pthread_cond_init(&c->p.done, NULL);
    t->arena = c->arena;
    for (int k = 0; k < threads; k++) {
        if (c->w == NULL || hdo__arena_init(&t->arena[k], arena_bytes) != HDO_OK) {
            hdo__team_clear(t);
            return HDO_E_MEMORY;
        }
        t->threads = k + 1;
    }
    return HDO_OK;
}

void hdo__team_clear(hdo_team *t) {
    if (t->arena != NULL) {
        crew *c = crew_of(t);
        pthread_mutex_lock(&c->p.lock);
        atomic_store(&c->p.over, true);
        pthread_cond_broadcast(&c->p.wake);
        pthread_mutex_unlock(&c->p.lock);
        for (int k = 0; k < c->p.workers; k++) pthread_join(c->w[k].thread, NULL);
        pthread_cond_destroy(&c->p.wake);
        pthread_cond_destroy(&c->p.done);
        pthread_mutex_destroy(&c->p.lock);
        for (int k = 0; k < t->threads; k++) hdo__arena_clear(&t->arena[k]);
        hdo__free(c->w);
        hdo__free(c);
    }
    *t = (hdo_team){0};
}

/* cgroup v2: "quota period" in microseconds, or "max period". */
static int cgroup_limit(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f == NULL) return 0;
    long quota = 0, period = 0;
    int got = fscanf(f, "%ld %ld", &quota, &period);
    fclose(f);
    if (got != 2 || quota <= 0 || period <= 0) return 0;
    long cpus = (quota + period - 1) / period;
    return cpus > 0 && cpus < 100000 ? (int)cpus : 0;
}

int hdo__cpu_count(void) {
    int n = 0;
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
#endif
    if (n <= 0) {
        long k = sysconf(_SC_NPROCESSORS_ONLN);
        n = k > 0 ? (int)k : 1;
    }
    int limit = cgroup_limit();
    return limit > 0 && limit < n ? limit : n;
}

int hdo__cpu_count_shared(int processes) {
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    int limit = cgroup_limit(), mine = hdo__cpu_count();
    if (all < 1) all = 1;
    if (limit > 0 && limit < all) all = limit;
    int part = (int)all / processes > 1 ? (int)all / processes : 1;
    return mine < part ? mine : part;
}
