/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting with a deadline, and finding out who is late.
 *
 * A rank that has waited for a quarter of the deadline tells rank 0 whom it waits for, and takes it back when the wait
 * ends. Rank 0 then knows: a rank that is waited for and does not wait itself is late; if everybody waits for everybody
 * (a collective), the silent ones are. At a third of the deadline rank 0 warns, at the deadline it gives up. The others
 * give up a little later: by then rank 0 would have ended the job, unless it is the one that is gone, or began to wait
 * later. Time in which this process itself stood still does not count.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "transport/mpi/tp_mpi.h"

#define SPEAK_S 1.0 /* rank 0 speaks first, and then the others one after the other: one message, as a rule */
#define APART_S 0.25
enum { SPINS = 2000, CHECK_EVERY = 64 }; /* about 100 us of testing before the first look at the clock */

static void say(mpi_tp *t, int waiting, int from, double since_s, const char *what) {
    int done = 1;
    if (t->base.rank == 0) return;
    if (t->said_req != MPI_REQUEST_NULL) MPI_Test(&t->said_req, &done, MPI_STATUS_IGNORE);
    if (!done) return; /* rank 0 does not even take the last report */
    t->said = (report){.waiting = waiting, .from = from, .step = t->step, .since_s = since_s};
    snprintf(t->said.what, sizeof t->said.what, "%s", what);
    MPI_Isend(&t->said, (int)sizeof t->said, MPI_BYTE, 0, TAG_REPORT, t->control, &t->said_req);
}

void mpi_hear_reports(mpi_tp *t) {
    int there = 1;
    MPI_Status s;
    while (t->base.rank == 0 && t->base.ranks > 1) {
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_REPORT, t->control, &there, &s);
        if (!there) return;
        MPI_Recv(&t->reports[s.MPI_SOURCE], (int)sizeof(report), MPI_BYTE, s.MPI_SOURCE, TAG_REPORT, t->control,
                 MPI_STATUS_IGNORE); /* it is here already: does not block */
    }
}

/* Rank 0, waiting itself: who keeps everybody? Writes "rank 2 (host b), rank 5 (host c)" and, to what, the best reason.
 */
static void name_late(const mpi_tp *t, const report *own, char *who, size_t cap, char *what, size_t what_cap) {
    const hdo_transport *b = &t->base;
    int direct = 0;
    who[0] = '\0';
    snprintf(what, what_cap, "rank 0 waits for %s", own->what);
    for (int pass = 0; pass < 2 && who[0] == '\0'; pass++) {
        for (int r = 1; r < b->ranks; r++) {
            if (t->reports[r].waiting) continue;
            bool late = pass == 1;
            for (int k = 0; k < b->ranks && pass == 0; k++) {
                const report *p = k == 0 ? own : &t->reports[k];
                if (!p->waiting || p->from != r) continue;
                if (direct++ == 0) snprintf(what, what_cap, "rank %d waits for %s", k, p->what);
                late = true;
            }
            size_t len = strlen(who);
            if (late && len + 1 < cap) {
                snprintf(who + len, cap - len, "%srank %d (host %s)", len > 0 ? ", " : "", r, t->hosts[r]);
            }
        }
    }
    if (who[0] == '\0') snprintf(who, cap, "some rank");
}

static void describe(const mpi_tp *t, const char *what, int node, char *buf, size_t cap) {
    if (node >= 0) {
        snprintf(buf, cap, "%s %d in step %lld", what, node, (long long)t->step);
    } else {
        snprintf(buf, cap, "%s in step %lld", what, (long long)t->step);
    }
}

/* One look at the clock. True: time is up, the sentence is in e. */
static bool too_late(mpi_tp *t, double waited, int from, const char *what, int node, int *stage, hdo_error *e) {
    double limit = t->setup.deadline_s;
    char who[256], why[2 * WHAT_MAX], text[WHAT_MAX], line[HDO_MSG_MAX];
    if (t->base.rank != 0) {
        if (*stage == 0 && waited > 0.25 * limit) {
            describe(t, what, node, text, sizeof text);
            say(t, 1, from, waited, text);
            *stage = 1;
        }
        if (waited < limit + SPEAK_S + APART_S * (t->base.rank < 5 ? t->base.rank - 1 : 4)) return false;
        describe(t, what, node, text, sizeof text);
        int late = from >= 0 ? from : 0;
        hdo__fail(e, HDO_E_ENGINE,
                  "rank %d (host %s) has waited %.0f s for %s (mpi.deadline_s is %g), and rank %d (host %s) %s",
                  t->base.rank, t->hosts[t->base.rank], waited, text, limit, late, t->hosts[late],
                  from >= 0 ? "is silent" : "has not said who is late");
        return true;
    }
    mpi_hear_reports(t);
    if ((*stage == 0 && waited < 0.34 * limit) || (*stage == 1 && waited < limit)) return false;
    report own = {.waiting = 1, .from = from, .step = t->step, .since_s = waited};
    describe(t, what, node, own.what, sizeof own.what);
    name_late(t, &own, who, sizeof who, why, sizeof why);
    if (*stage == 0) {
        *stage = 1;
        snprintf(line, sizeof line, "%s late: %s, for %.1f s now; the job ends after %g s (mpi.deadline_s)", who, why,
                 waited, limit);
        if (t->setup.warn != NULL) t->setup.warn(t->setup.ctx, line);
        return false;
    }
    hdo__fail(e, HDO_E_ENGINE, "%s did not answer within %g s (mpi.deadline_s): %s", who, limit, why);
    return true;
}

hdo_status mpi_wait_until(mpi_tp *t, bool (*done)(mpi_tp *t, void *ctx), void *ctx, int from, const char *what,
                          int node, hdo_error *e) {
    int stage = 0;
    double start = 0.0, looked = 0.0, stood = 0.0;
    mpi_guard_call(t);
    for (int spin = 0; !done(t, ctx); spin++) {
        if (t->crowded) sched_yield();
        if (spin == 0) start = looked = hdo__now_s();
        if (spin < SPINS || spin % CHECK_EVERY != 0) continue;
        if (!t->crowded) sched_yield();
        double now = hdo__now_s();
        if (now - looked > 0.25 * t->setup.deadline_s) stood += now - looked; /* we did, not they (SIGSTOP, SIGCONT) */
        looked = now;
        if (too_late(t, now - start - stood, from, what, node, &stage, e)) {
            t->base.broken = true;
            return HDO_E_ENGINE;
        }
        if (spin == 1 << 30) spin = SPINS;
    }
    mpi_guard_call(t); /* whatever follows has its own time */
    if (start > 0.0) t->base.wait_s += hdo__now_s() - start;
    if (stage > 0) say(t, 0, -1, 0.0, "");
    return HDO_OK;
}

typedef struct requests {
    int n;
    MPI_Request *req;
} requests;

static bool all_done(mpi_tp *t, void *ctx) {
    requests *r = ctx;
    int done = 0;
    (void)t;
    MPI_Testall(r->n, r->req, &done, MPI_STATUSES_IGNORE);
    return done != 0;
}

hdo_status mpi_wait(mpi_tp *t, int n, MPI_Request *req, int from, const char *what, int node, hdo_error *e) {
    return mpi_wait_until(t, all_done, &(requests){n, req}, from, what, node, e);
}
