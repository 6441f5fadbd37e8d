/* SPDX-License-Identifier: Apache-2.0 — numbered tasks over OpenMP threads. */
#define _GNU_SOURCE
#include "base/team.h"

#include <stdio.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

static void run_one(hdo_arena *arena, int task, hdo_task fn, void *ctx) {
    hdo_team self = {1, arena};
    hdo_work w = {arena, &self};
    size_t mark = hdo__arena_mark(arena);
    fn(ctx, task, &w);
    hdo__arena_rewind(arena, mark);
}

void hdo__team_run(hdo_team *t, int n_tasks, hdo_task fn, void *ctx) {
#ifdef _OPENMP
    if (t->threads > 1 && n_tasks > 1) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(t->threads)
        for (int k = 0; k < n_tasks; k++) run_one(&t->arena[omp_get_thread_num()], k, fn, ctx);
        return;
    }
#endif
    for (int k = 0; k < n_tasks; k++) run_one(&t->arena[0], k, fn, ctx);
}

hdo_status hdo__team_init(hdo_team *t, int threads, size_t arena_bytes) {
#ifndef _OPENMP
    threads = 1;
#endif
    *t = (hdo_team){0};
    t->arena = hdo__alloc(sizeof(hdo_arena) * (size_t)threads);
    if (t->arena == NULL) return HDO_E_MEMORY;
    for (int k = 0; k < threads; k++) {
        if (hdo__arena_init(&t->arena[k], arena_bytes) != HDO_OK) {
            hdo__team_clear(t);
            return HDO_E_MEMORY;
        }
        t->threads = k + 1;
    }
    return HDO_OK;
}

void hdo__team_clear(hdo_team *t) {
    for (int k = 0; k < t->threads; k++) hdo__arena_clear(&t->arena[k]);
    hdo__free(t->arena);
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
