/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds which nodes, and how the rows of a pair come together. The simulator and a cluster differ in nothing else.
 * A transport only moves bytes; averaging stays in vec.h, once.
 *
 * Every rank computes the same plan for itself. All functions are called by all ranks in the same order (the messages
 * of the asynchronous engine excepted) and, exchange_ready excepted, from the thread that opened the transport. Each of
 * them waits with a deadline.
 */
#ifndef HDO_TRANSPORT_TRANSPORT_H
#define HDO_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "topo/mixer.h"

typedef struct hdo_transport hdo_transport;

typedef struct hdo_models { /* the local part of the population: row of node i is X + (i - first) * ld */
    float *X;
    size_t ld, len; /* len numbers of a row take part in an exchange */
    int first, count;
} hdo_models;

/* What a rank has to say at the end of a step; all ranks learn the union. */
enum { HDO_SAY_NOT_FINITE = 1, HDO_SAY_STOP = 2, HDO_SAY_TIMEOUT = 4, HDO_SAY_SAVE = 8, HDO_SAY_TARGET = 16 };

/* Adds this rank's part to count elements of v from element first on. */
typedef void (*hdo_relay_fn)(void *ctx, void *v, size_t first, size_t count);

enum { HDO_MESSAGE_WORDS = 14, HDO_OFFERS_MAX = 16 };
typedef struct hdo_message { /* of the asynchronous engine: a few words, and perhaps a row */
    int64_t word[HDO_MESSAGE_WORDS];
    float *row; /* (len) or NULL; of an arrived message: valid until the next call */
} hdo_message;

typedef struct hdo_transport_ops {
    const char *name;
    void (*destroy)(hdo_transport *t);
    /* Once sizes are known: the memory of the local rows, zero, as rows->X; buffers. All of it ends with destroy. */
    hdo_status (*reserve)(hdo_transport *t, hdo_models *rows, hdo_error *e);

    /* Before the local steps of a step: expects the rows of all pairs with exactly one local node. */
    hdo_status (*exchange_begin)(hdo_transport *t, const hdo_plan *plan, const hdo_models *rows, int64_t step,
                                 hdo_error *e);
    /* The local step of this node is done, its row may leave; called by whatever thread did it. opener: this is the
     * thread that opened the transport, so rows can leave at once, those of other threads too. Optional: send comes
     * after all local steps, before the first wait, and lets go whatever is still here. */
    void (*exchange_ready)(hdo_transport *t, const hdo_models *rows, int node, bool opener);
    void (*exchange_send)(hdo_transport *t, const hdo_models *rows);
    /* For pair k with at least one local node: *mine the local row, *peer the other's (a local row, a buffer holding
     * what arrived, or the row itself in memory in common). Both are to be averaged before the ranks agree. *mine =
     * NULL when neither is local or another rank does it. Waits until both rows may be written. */
    hdo_status (*exchange_wait)(hdo_transport *t, const hdo_plan *plan, const hdo_models *rows, int k, float **mine,
                                float **peer, hdo_error *e);

    /* The end of a step, when all averages are done everywhere: *say becomes the union over ranks; every rank brings
     * its own nodes' part of per_node (n entries of `each` bytes, at most HDO_SHARE_MAX; 0: nothing to share) and gets
     * the rest. Returns the status of the lowest rank that failed (st: this rank's), its sentence in e on rank 0. */
    hdo_status (*agree)(hdo_transport *t, hdo_status st, unsigned *say, void *per_node, size_t each, hdo_error *e);

    /* Hands v (n elements of `each` bytes) from rank to rank in node order, in pieces; every rank calls fn on each
     * piece once. The result is everywhere. Sums come out as in the simulator, to the bit. */
    hdo_status (*relay)(hdo_transport *t, void *v, size_t each, size_t n, hdo_relay_fn fn, void *ctx, hdo_error *e);

    /* Messages of the asynchronous engine. post: false when all buffers are in flight. next: false when none arrived.
     */
    bool (*post)(hdo_transport *t, int to, const hdo_message *m);
    bool (*next)(hdo_transport *t, int *from, hdo_message *m);
} hdo_transport_ops;

enum { HDO_SHARE_MAX = 64 };

struct hdo_transport { /* first member of every implementation */
    const hdo_transport_ops *ops;
    int rank, ranks;
    int n;                             /* nodes of the population */
    int first, count;                  /* local nodes */
    int *start;                        /* (ranks): first node of a rank */
    int *held;                         /* (ranks): how many it holds */
    int *order;                        /* (ranks): ranks in the order of their nodes */
    int host_ranks;                    /* ranks on this machine */
    bool alone;                        /* what it does not hold is of no account: not counted, not saved */
    bool broken;                       /* a peer is gone: nothing may be said any more */
    int64_t sent_bytes, sent_messages; /* of rows, by this rank */
    int64_t shared_bytes;              /* of rows that stayed where they were, in memory in common */
    double wait_s;                     /* spent waiting for others */
    const char *(*host)(const hdo_transport *t, int rank);
};

/* Fixes which nodes are where (start and held have an entry per rank) and derives order, first and count. */
void hdo__transport_assign(hdo_transport *t, int n, const int *start, const int *held);
int hdo__transport_owner(const hdo_transport *t, int node);
static inline bool hdo__transport_local(const hdo_transport *t, int node) {
    return node >= t->first && node < t->first + t->count;
}

/* All ranks fail if one does. */
static inline hdo_status hdo__transport_settle(hdo_transport *t, hdo_status st, hdo_error *e) {
    unsigned nothing = 0;
    return t->ops->agree(t, st, &nothing, NULL, 0, e);
}

/* Rows one rank may have under way to others at once in the asynchronous engine: bounds everybody's buffers. */
int hdo__transport_offers(const hdo_transport *t);

hdo_status hdo__inproc_create(hdo_transport **out, int n, hdo_error *e);
/* The same for a process that holds `count` of the n nodes and knows nothing of where the others are. */
hdo_status hdo__inproc_create_part(hdo_transport **out, int n, int first, int count, hdo_error *e);

/* ---- engines in a shared object of their own, so that the library needs no MPI ---- */

typedef struct hdo_transport_setup {
    double deadline_s;
    size_t chunk;           /* bytes of one message */
    bool shared;            /* ranks of one machine may have memory in common */
    int rank;               /* as the launcher says; MPI itself knows only once it has started */
    unsigned char same[32]; /* must be equal on all ranks: version and configuration */
    void (*warn)(void *ctx, const char *message);
    void *ctx;
} hdo_transport_setup;

/* Version of everything in this header that crosses the border. */
#define HDO_TRANSPORT_ABI 4
#define HDO_TRANSPORT_SYMBOL "hdo_transport_open"
typedef hdo_status (*hdo_transport_open_fn)(int abi, const char *version, const hdo_transport_setup *s,
                                            hdo_transport **out, hdo_error *e);

/* Loads the plug-in for the MPI this process was started under and joins the job. */
hdo_status hdo__mpi_create(hdo_transport **out, const hdo_transport_setup *s, hdo_error *e);

#endif
