/* SPDX-License-Identifier: Apache-2.0
 *
 * The MPI transport: compiled once per MPI implementation into a shared object of its own.
 *
 *   mpi_open.c      joining the job, leaving it         mpi_exchange.c  rows of pairs, in chunks, without blocking
 *   mpi_wait.c      waiting with a deadline, and who is late
 *   mpi_guard.c     a thread that ends the process when a call of MPI itself does not return
 *   mpi_shared.c    rows in memory that the ranks of one machine have in common
 *   mpi_collect.c   agreement at the end of a step, sums in node order
 *   mpi_message.c   messages of the asynchronous engine
 *
 * MPI is called from one thread at a time (MPI_THREAD_SERIALIZED): the caller's, or the asynchronous engine's. No MPI
 * call blocks: everything is started, then tested.
 */
#ifndef HDO_TRANSPORT_MPI_TP_MPI_H
#define HDO_TRANSPORT_MPI_TP_MPI_H

#include <mpi.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "transport/transport.h"

enum { HOST_MAX = 64, WHAT_MAX = 96, SHARE_HEADER = 8, RELAY_WINDOW = 32, SMALL_A_RANK = 8 };
enum { TAG_RELAY = 1, TAG_REPORT = 2, TAG_MESSAGE = 3, TAG_ROW = 4 }; /* on the control communicator */

typedef struct report {    /* "I am waiting", or no longer; to rank 0 */
    int32_t waiting, from; /* from: the rank it waits for, -1: all of them */
    int64_t step;
    double since_s; /* how long */
    char what[WHAT_MAX];
} report;

typedef struct slot { /* a pair with one local node */
    int mine, other, owner, pair;
    bool shared; /* the other row is in common memory: nothing to send */
    bool sent;
    int next_ready; /* -1: the last */
} slot;

typedef struct shared_head shared_head; /* memory in common with another rank: see mpi_shared.c */

typedef struct mpi_post { /* an asynchronous message under way */
    MPI_Request req[2];
    int64_t word[HDO_MESSAGE_WORDS + 1];
    float *row;
} mpi_post;

typedef struct mpi_tp {
    hdo_transport base;
    MPI_Comm rows, control;
    hdo_transport_setup setup;
    char (*hosts)[HOST_MAX]; /* (ranks) */
    bool crowded;            /* more ranks than CPUs on this machine: give way while waiting */
    int64_t step;
    int tag_max;

    /* exchange */
    size_t ld;
    float *X;             /* (count, ld): rows in memory of this rank alone, or NULL */
    shared_head **shared; /* (ranks): of those on this machine, this one included; NULL: by messages */
    int chunks;           /* of a row */
    int n_slots;
    atomic_int ready;  /* slots whose rows may leave, a list put together by all threads; -1: none */
    slot *slots;       /* (count) */
    int *slot_of_pair; /* (n / 2 + 1) */
    int *slot_of_node; /* (count) */
    float *arrived;    /* (count, ld), or NULL when no row comes by message */
    MPI_Request *req;  /* (count, 2, chunks): receives, sends */

    /* agreement */
    unsigned char *share;       /* all ranks' blocks */
    int *share_len, *share_off; /* (ranks) bytes */

    /* who is late */
    report *reports; /* (ranks), kept by rank 0 */
    report said;     /* being sent */
    MPI_Request said_req;

    /* asynchronous messages */
    mpi_post *posts;         /* (n_posts) */
    int n_posts, n_with_row; /* the first n_with_row have room for a row */
    float *inbox;            /* (ld) */
    MPI_Request coming;      /* the row of a message whose words are here */
    int coming_from;
    int64_t coming_word[HDO_MESSAGE_WORDS + 1];
} mpi_tp;

/* Waits for all n requests. from: the rank they depend on, -1: several. node: what `what` is about, -1: nothing. */
hdo_status mpi_wait(mpi_tp *t, int n, MPI_Request *req, int from, const char *what, int node, hdo_error *e);
/* Likewise, until done says so; done is called often and must itself call MPI, or nothing would move. */
hdo_status mpi_wait_until(mpi_tp *t, bool (*done)(mpi_tp *t, void *ctx), void *ctx, int from, const char *what,
                          int node, hdo_error *e);
void mpi_hear_reports(mpi_tp *t);

/* What follows may take limit_s; else this process says "rank r: what within told_s s" and ends. Until the next guard
 * or unguard. what: a literal. One thread at a time, as MPI itself. */
void mpi_guard(double limit_s, double told_s, const char *what);
void mpi_unguard(void);
hdo_status mpi_guard_start(int rank, hdo_error *e);
#define CALL_S 3.0 /* beyond the deadline: mpi_wait.c, which knows more, speaks first */
static inline void mpi_guard_call(const mpi_tp *t) {
    mpi_guard(t->setup.deadline_s + CALL_S, t->setup.deadline_s, "a call of MPI did not return");
}

/* Messages move only inside calls of MPI; this is one that does nothing else. */
static inline void mpi_move(mpi_tp *t) {
    int ignored;
    MPI_Iprobe(MPI_ANY_SOURCE, TAG_REPORT, t->control, &ignored, MPI_STATUS_IGNORE);
}

hdo_status mpi_exchange_begin(hdo_transport *t, const hdo_plan *plan, const hdo_models *rows, int64_t step,
                              hdo_error *e);
void mpi_exchange_ready(hdo_transport *t, const hdo_models *rows, int node, bool opener);
void mpi_exchange_send(hdo_transport *t, const hdo_models *rows);
hdo_status mpi_exchange_wait(hdo_transport *t, const hdo_plan *plan, const hdo_models *rows, int k, float **mine,
                             float **peer, hdo_error *e);
hdo_status mpi_agree(hdo_transport *t, hdo_status st, unsigned *say, void *per_node, size_t each, hdo_error *e);
hdo_status mpi_relay(hdo_transport *t, void *v, size_t each, size_t n, hdo_relay_fn fn, void *ctx, hdo_error *e);
bool mpi_post_message(hdo_transport *t, int to, const hdo_message *m);
bool mpi_next_message(hdo_transport *t, int *from, hdo_message *m);

hdo_status mpi_share(mpi_tp *t, hdo_error *e); /* called by all; shared[] stays NULL where it cannot be */
void mpi_unshare(mpi_tp *t);
float *mpi_shared_row(const mpi_tp *t, int rank, int node);
void mpi_shared_ready(mpi_tp *t);                                        /* the local steps of this step are done */
hdo_status mpi_shared_wait(mpi_tp *t, int rank, int node, hdo_error *e); /* until those of that rank are */

#endif
