/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that looks on while this process is inside MPI. Starting and ending a job, and on a broken network any call,
 * may block for ever in the library itself, out of reach of the deadlines of mpi_wait.c: then the guard says so and
 * ends the process, and mpirun, or whoever else is left, ends the others. It counts its own ticks, so time in which the
 * process stood still does not count.
 *
 * Under `hdo run --np` the guard of rank 0 also gives a sign of life on standard error, where mpirun carries it to the
 * launcher from any machine (cli/watch.c takes it out again).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hdo/experimental/run.h"
#include "transport/mpi/tp_mpi.h"

enum { TICK_MS = 50, BEAT_TICKS = 5, EXIT_ENGINE = 5 };

/* Of the process, as MPI itself is: started by the first run, never ended. */
static struct guard {
    bool started;
    bool beats;
    char who[2 * HOST_MAX]; /* "rank 1 (host a)" */
    _Atomic int64_t ticks;
    _Atomic int64_t due; /* tick; 0: nothing to look after */
    _Atomic(const char *) what;
    _Atomic int limit_ms; /* as the sentence tells it */
} g;

static void write_text(const char *text, size_t len) {
    ssize_t ignored = write(STDERR_FILENO, text, len);
    (void)ignored;
}

static void give_up(void) {
    char text[512];
    int n = snprintf(text, sizeof text, "hdo: error: %s: %s within %g s (mpi.deadline_s)\n", g.who,
                     atomic_load(&g.what), 1e-3 * atomic_load(&g.limit_ms));
    write_text(text, n > 0 && (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    _exit(EXIT_ENGINE);
}

static void *look(void *p) {
    (void)p;
    for (int64_t tick = 1;; tick++) {
        atomic_store(&g.ticks, tick);
        int64_t due = atomic_load(&g.due);
        if (due > 0 && tick >= due) give_up();
        if (g.beats && tick % BEAT_TICKS == 1) write_text(HDO_MPI_ALIVE "\n", sizeof HDO_MPI_ALIVE);
        nanosleep(&(struct timespec){.tv_nsec = TICK_MS * 1000000}, NULL);
    }
    return NULL;
}

hdo_status mpi_guard_start(int rank, hdo_error *e) {
    if (g.started) return HDO_OK;
    char host[HOST_MAX] = "";
    gethostname(host, sizeof host - 1);
    snprintf(g.who, sizeof g.who, "rank %d (host %s)", rank, host);
    const char *beat = getenv("HDO_MPI_BEAT");
    g.beats = rank == 0 && beat != NULL && beat[0] == '1';
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, look, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) return hdo__fail(e, HDO_E_ENGINE, "the thread that guards MPI could not be started");
    pthread_detach(thread);
    g.started = true;
    return HDO_OK;
}

void mpi_guard(double limit_s, double told_s, const char *what) {
    double s = limit_s < 1e6 ? limit_s : 1e6;
    atomic_store(&g.what, what);
    atomic_store(&g.limit_ms, (int)(1e3 * (told_s < 1e6 ? told_s : 1e6)));
    atomic_store(&g.due, atomic_load(&g.ticks) + 1 + (int64_t)(1e3 * s / TICK_MS));
}

void mpi_unguard(void) {
    atomic_store(&g.due, 0);
}
