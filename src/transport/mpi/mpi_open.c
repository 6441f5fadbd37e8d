/* SPDX-License-Identifier: Apache-2.0
 *
 * Joining the job and leaving it. MPI can be started once per process, so it is started by the first run and ended when
 * the process ends; every run gets communicators of its own. A process that leaves while a peer is gone ends the whole
 * job instead: MPI has no other way to leave without everybody's consent.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "transport/mpi/tp_mpi.h"

enum { EXIT_ENGINE = 5, HEARD_MS = 250 };
#define ABORT_S 1.0       /* for MPI_Abort, which may have lost its way to mpirun */
#define START_APART_S 0.5 /* ranks give up their start one after the other: one message, as a rule */

static bool g_broken; /* of this process, as MPI itself is */
static double g_deadline_s;

/* Our own sentence has said why; MPICH would add an "Abort(5)" to it. */
static void abandon(void) {
    fflush(NULL);
    /* mpirun hands the sentence on by itself, and an abort may overtake it. */
    nanosleep(&(struct timespec){.tv_nsec = HEARD_MS * 1000000L}, NULL);
    int null = open("/dev/null", O_WRONLY);
    if (null >= 0) dup2(null, STDERR_FILENO);
    mpi_guard(ABORT_S, ABORT_S, "MPI_Abort did not return");
    MPI_Abort(MPI_COMM_WORLD, EXIT_ENGINE);
    _exit(EXIT_ENGINE);
}

/* Runs when the process ends. MPI_Finalize waits for everybody. */
static void leave(void) {
    int over = 0;
    MPI_Finalized(&over);
    if (over) return;
    fflush(NULL);
    if (g_broken) abandon();
    mpi_guard(g_deadline_s + 1.0, g_deadline_s, "the other ranks did not come to the end of the job");
    MPI_Finalize();
    mpi_unguard();
}

static hdo_status start(hdo_error *e) {
    int up = 0, got = MPI_THREAD_SINGLE;
    MPI_Initialized(&up);
    if (!up) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &got) != MPI_SUCCESS) {
            return hdo__fail(e, HDO_E_ENGINE, "MPI could not be started");
        }
        atexit(leave);
    } else {
        MPI_Query_thread(&got);
    }
    if (got < MPI_THREAD_SERIALIZED)
        return hdo__fail(e, HDO_E_ENGINE, "this MPI does not allow threads (MPI_THREAD_SERIALIZED)");
    return HDO_OK;
}

static void destroy(hdo_transport *base) {
    mpi_tp *t = (mpi_tp *)base;
    if (base->broken) {
        g_broken = true; /* buffers and communicators may still be in use; the process is about to end */
        return;
    }
    int over = 0;
    MPI_Finalized(&over);
    if (!over && t->said_req != MPI_REQUEST_NULL) MPI_Request_free(&t->said_req);
    mpi_hear_reports(t);
    if (!over) {
        mpi_guard_call(t); /* freeing may wait for everybody */
        MPI_Comm_free(&t->rows);
        MPI_Comm_free(&t->control);
        mpi_unguard();
    }
    mpi_unshare(t);
    hdo__free(base->start);
    hdo__free(t->hosts);
    hdo__free(t->slots);
    hdo__free(t->slot_of_pair);
    hdo__free(t->arrived);
    hdo__free(t->shared);
    hdo__free(t->X);
    hdo__free(t->req);
    hdo__free(t->share);
    hdo__free(t->share_len);
    hdo__free(t->reports);
    if (t->posts != NULL) hdo__free(t->posts[0].row);
    hdo__free(t->posts);
    hdo__free(t->inbox);
    hdo__free(t);
}

static hdo_status reserve(hdo_transport *base, hdo_models *rows, hdo_error *e) {
    mpi_tp *t = (mpi_tp *)base;
    size_t count = (size_t)base->count, ranks = (size_t)base->ranks;
    size_t per = t->setup.chunk / sizeof(float);
    t->ld = rows->ld;
    t->chunks = (int)((rows->len + per - 1) / per);
    hdo_status st = mpi_share(t, e);
    if (st != HDO_OK) return st;
    bool own = t->shared[base->rank] == NULL, messages = false;
    if (own) t->X = hdo__alloc(count * rows->ld * sizeof(float));
    rows->X = own ? t->X : mpi_shared_row(t, base->rank, base->first);
    for (int r = 0; r < base->ranks; r++) messages = messages || (r != base->rank && t->shared[r] == NULL);
    if (messages) t->arrived = hdo__alloc(count * rows->ld * sizeof(float));
    t->slots = hdo__alloc(count * sizeof(slot));
    t->slot_of_pair = hdo__alloc(((size_t)base->n / 2 + 1 + count) * sizeof(int));
    t->req = hdo__alloc(count * 2 * (size_t)t->chunks * sizeof(MPI_Request));
    hdo__free(t->share);
    t->share = hdo__alloc((size_t)base->n * HDO_SHARE_MAX + ranks * SHARE_HEADER);
    if (rows->X == NULL || (messages && t->arrived == NULL) || t->slots == NULL || t->slot_of_pair == NULL ||
        t->req == NULL || t->share == NULL) {
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for %d models of rank %d", base->count, base->rank);
    }
    t->slot_of_node = t->slot_of_pair + base->n / 2 + 1;
    return HDO_OK;
}

static const char *host(const hdo_transport *base, int rank) {
    return ((const mpi_tp *)base)->hosts[rank];
}

/* ---- every call under guard ---- */

static hdo_status guarded_reserve(hdo_transport *t, hdo_models *rows, hdo_error *e) {
    mpi_guard_call((mpi_tp *)t);
    hdo_status st = reserve(t, rows, e);
    mpi_unguard();
    return st;
}
static hdo_status guarded_begin(hdo_transport *t, const hdo_plan *plan, const hdo_models *rows, int64_t step,
                                hdo_error *e) {
    mpi_guard_call((mpi_tp *)t);
    hdo_status st = mpi_exchange_begin(t, plan, rows, step, e);
    mpi_unguard();
    return st;
}
static void guarded_ready(hdo_transport *t, const hdo_models *rows, int node, bool opener) {
    if (opener) mpi_guard_call((mpi_tp *)t); /* the others do not call MPI */
    mpi_exchange_ready(t, rows, node, opener);
    if (opener) mpi_unguard();
}
static void guarded_send(hdo_transport *t, const hdo_models *rows) {
    mpi_guard_call((mpi_tp *)t);
    mpi_exchange_send(t, rows);
    mpi_unguard();
}
static hdo_status guarded_wait(hdo_transport *t, const hdo_plan *plan, const hdo_models *rows, int k, float **mine,
                               float **peer, hdo_error *e) {
    mpi_guard_call((mpi_tp *)t);
    hdo_status st = mpi_exchange_wait(t, plan, rows, k, mine, peer, e);
    mpi_unguard();
    return st;
}
static hdo_status guarded_agree(hdo_transport *t, hdo_status st, unsigned *say, void *per_node, size_t each,
                                hdo_error *e) {
    mpi_guard_call((mpi_tp *)t);
    st = mpi_agree(t, st, say, per_node, each, e);
    mpi_unguard();
    return st;
}
static hdo_status guarded_relay(hdo_transport *t, void *v, size_t each, size_t n, hdo_relay_fn fn, void *ctx,
                                hdo_error *e) {
    mpi_guard_call((mpi_tp *)t);
    hdo_status st = mpi_relay(t, v, each, n, fn, ctx, e);
    mpi_unguard();
    return st;
}
static bool guarded_post(hdo_transport *t, int to, const hdo_message *m) {
    mpi_guard_call((mpi_tp *)t);
    bool posted = mpi_post_message(t, to, m);
    mpi_unguard();
    return posted;
}
static bool guarded_next(hdo_transport *t, int *from, hdo_message *m) {
    mpi_guard_call((mpi_tp *)t);
    bool any = mpi_next_message(t, from, m);
    mpi_unguard();
    return any;
}

static const hdo_transport_ops mpi_ops = {.name = "mpi",
                                          .destroy = destroy,
                                          .reserve = guarded_reserve,
                                          .exchange_begin = guarded_begin,
                                          .exchange_ready = guarded_ready,
                                          .exchange_send = guarded_send,
                                          .exchange_wait = guarded_wait,
                                          .agree = guarded_agree,
                                          .relay = guarded_relay,
                                          .post = guarded_post,
                                          .next = guarded_next};

typedef struct hello { /* what ranks tell each other first */
    char host[HOST_MAX];
    unsigned char same[32];
} hello;

/* Learns where everybody is and that all were started alike. */
static hdo_status meet(mpi_tp *t, hdo_error *e) {
    int ranks = t->base.ranks;
    hello mine, *all = hdo__alloc((size_t)ranks * sizeof *all);
    if (all == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for %d ranks", ranks);
    memset(&mine, 0, sizeof mine);
    if (gethostname(mine.host, sizeof mine.host - 1) != 0) snprintf(mine.host, sizeof mine.host, "unknown");
    memcpy(mine.same, t->setup.same, sizeof mine.same);
    for (int r = 0; r < ranks; r++) snprintf(t->hosts[r], HOST_MAX, "unknown");
    MPI_Request req;
    MPI_Iallgather(&mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine, MPI_BYTE, t->control, &req);
    hdo_status st = mpi_wait(t, 1, &req, -1, "all ranks to join", -1, e);
    for (int r = 0; r < ranks && st == HDO_OK; r++) {
        memcpy(t->hosts[r], all[r].host, HOST_MAX);
        t->hosts[r][HOST_MAX - 1] = '\0';
    }
    for (int r = 0; r < ranks && st == HDO_OK; r++) {
        if (strcmp(t->hosts[r], t->hosts[t->base.rank]) == 0) t->base.host_ranks++;
        if (memcmp(all[r].same, all[0].same, sizeof mine.same) == 0) continue;
        st = hdo__fail(
            e, HDO_E_CONFIG, "%s%d%s", t->base.rank == 0 ? "rank " : "", r,
            " was started with another configuration or another version of hdo than rank 0; all ranks need the "
            "same command line and files");
        if (t->base.rank != 0) hdo__fail(e, HDO_E_CONFIG, "%s", "");
    }
    hdo__free(all);
    return st;
}

static hdo_status make(mpi_tp *t, hdo_error *e) {
    hdo_transport *b = &t->base;
    MPI_Comm_dup(MPI_COMM_WORLD, &t->rows);
    MPI_Comm_dup(MPI_COMM_WORLD, &t->control);
    MPI_Comm_set_errhandler(t->rows, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_rank(t->control, &b->rank);
    MPI_Comm_size(t->control, &b->ranks);
    t->said_req = MPI_REQUEST_NULL;
    int *tag_max = NULL, there = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &there);
    t->tag_max = there ? *tag_max : 32767;
    size_t ranks = (size_t)b->ranks;
    b->start = hdo__alloc(3 * ranks * sizeof(int));
    t->hosts = hdo__alloc(ranks * HOST_MAX);
    t->share_len = hdo__alloc(2 * ranks * sizeof(int));
    t->reports = hdo__alloc(ranks * sizeof(report));
    t->share = hdo__alloc(ranks * SHARE_HEADER); /* enough to agree on a failure before sizes are known */
    if (t->share == NULL || b->start == NULL || t->hosts == NULL || t->share_len == NULL || t->reports == NULL) {
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for %d ranks", b->ranks);
    }
    b->held = b->start + ranks;
    b->order = b->held + ranks;
    t->share_off = t->share_len + ranks;
    hdo_status st = meet(t, e);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    t->crowded = b->host_ranks > (cpus > 0 ? (int)cpus : 1);
    return st;
}

/* The one symbol of this shared object. */
HDO_API hdo_status hdo_transport_open(int abi, const char *version, const hdo_transport_setup *s, hdo_transport **out,
                                      hdo_error *e);
hdo_status hdo_transport_open(int abi, const char *version, const hdo_transport_setup *s, hdo_transport **out,
                              hdo_error *e) {
    *out = NULL;
    if (abi != HDO_TRANSPORT_ABI || strcmp(version, HDO_VERSION) != 0) {
        return hdo__fail(e, HDO_E_ENGINE,
                         "this plug-in is of hdo %s (interface %d), but the library is %s (interface %d)", HDO_VERSION,
                         HDO_TRANSPORT_ABI, version, abi);
    }
    hdo_status st = mpi_guard_start(s->rank, e);
    if (st != HDO_OK) return st;
    double apart = START_APART_S * (s->rank < 3 ? s->rank : 3);
    mpi_guard(s->deadline_s + apart, s->deadline_s,
              "the other ranks did not come to the start of the job, or cannot be reached,");
    st = start(e);
    if (st != HDO_OK) return st;
    mpi_tp *t = hdo__alloc(sizeof *t);
    if (t == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the transport");
    t->base = (hdo_transport){.ops = &mpi_ops, .host = host};
    t->setup = *s;
    g_deadline_s = s->deadline_s;
    st = make(t, e);
    mpi_unguard();
    if (st != HDO_OK) {
        destroy(&t->base);
        return st;
    }
    *out = &t->base;
    return HDO_OK;
}
