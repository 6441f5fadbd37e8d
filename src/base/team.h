/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads. Parallelism lives in two places, over local nodes or inside one node, never both at once; both are a team
 * running numbered tasks. The number of tasks must never depend on the number of threads (cut a batch into fixed
 * chunks, sum the parts in order): that is what makes the bits independent of the machine.
 */
#ifndef HDO_BASE_TEAM_H
#define HDO_BASE_TEAM_H

#include "hdo/status.h"
#include "base/arena.h"

typedef struct hdo_team {
    int threads;      /* >= 1 */
    hdo_arena *arena; /* (threads): arena[k] belongs to thread k while tasks run */
    int first;        /* number of its first thread: not 0 inside a task of a wider team */
} hdo_team;

/* What a computation may use: its own arena for scratch, and a team to spread numbered tasks over. When work runs
 * inside a task of a wider team, its own team has one thread and team->arena[0] is the same object as arena. */
typedef struct hdo_work {
    hdo_arena *arena;
    hdo_team *team;
    int thread; /* number of the thread, 0 .. threads-1 of the widest team */
} hdo_work;

typedef void (*hdo_task)(void *ctx, int task, hdo_work *w);

/* Runs fn(ctx, 0 .. n_tasks-1), in any order, over the team's threads; returns when all are done. With one thread the
 * tasks run in order on the caller. Tasks get a work whose team is a single thread. Arena marks are restored. */
HDO_LAB void hdo__team_run(hdo_team *t, int n_tasks, hdo_task fn, void *ctx);

HDO_LAB hdo_status hdo__team_init(hdo_team *t, int threads, size_t arena_bytes);
HDO_LAB void hdo__team_clear(hdo_team *t);

/* CPUs this process may use: the affinity mask, and a cgroup quota if there is one. */
HDO_LAB int hdo__cpu_count(void);
/* The same when that many processes share the machine: at most an equal part of it, at least 1. */
int hdo__cpu_count_shared(int processes);

#endif
