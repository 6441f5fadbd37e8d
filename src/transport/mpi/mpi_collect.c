/* SPDX-License-Identifier: Apache-2.0
 *
 * What all ranks do together. Agreement: one allgather of a few bytes a node. Relay: a vector goes from rank to rank in
 * node order and back, in pieces that overlap; each rank adds its nodes in order, so a sum has the simulator's bits,
 * which no reduction of MPI promises. It costs twice a ring's latency and the same bytes.
 */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "transport/mpi/tp_mpi.h"

typedef struct share_header {
    uint32_t say;
    int32_t status;
} share_header;
_Static_assert(sizeof(share_header) == SHARE_HEADER, "share_header");

/* The sentence of rank `from` to rank 0; the others need only the code. */
static hdo_status fetch_sentence(mpi_tp *t, int from, hdo_status code, hdo_error *e) {
    char text[HDO_MSG_MAX] = "";
    MPI_Request req;
    if (t->base.rank != from && t->base.rank != 0) return hdo__fail(e, code, "%s", "");
    if (from == 0) return code;
    hdo_status st;
    if (t->base.rank == from) {
        if (e != NULL) memcpy(text, e->msg, sizeof text);
        MPI_Isend(text, (int)sizeof text, MPI_CHAR, 0, TAG_RELAY, t->control, &req);
        st = mpi_wait(t, 1, &req, 0, "rank 0 to take a message", -1, e);
        return st != HDO_OK ? st : hdo__fail(e, code, "%s", "");
    }
    MPI_Irecv(text, (int)sizeof text, MPI_CHAR, from, TAG_RELAY, t->control, &req);
    st = mpi_wait(t, 1, &req, from, "the reason of a failure", -1, e);
    if (st != HDO_OK) return st;
    text[sizeof text - 1] = '\0';
    return hdo__fail(e, code, "rank %d (host %s): %.900s", from, t->hosts[from], text);
}

hdo_status mpi_agree(hdo_transport *base, hdo_status st, unsigned *say, void *per_node, size_t each, hdo_error *e) {
    mpi_tp *t = (mpi_tp *)base;
    assert(each <= HDO_SHARE_MAX);
    if (base->broken) return HDO_E_ENGINE;
    int off = 0;
    for (int r = 0; r < base->ranks; r++) {
        t->share_len[r] = SHARE_HEADER + base->held[r] * (int)each;
        t->share_off[r] = off;
        off += t->share_len[r];
    }
    unsigned char *own = t->share + t->share_off[base->rank];
    share_header h = {*say, (int32_t)st};
    memcpy(own, &h, sizeof h);
    if (each > 0) memcpy(own + SHARE_HEADER, (char *)per_node + (size_t)base->first * each, (size_t)base->count * each);
    MPI_Request req;
    atomic_thread_fence(memory_order_seq_cst); /* rows in common memory: written before, read after */
    MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, t->share, t->share_len, t->share_off, MPI_BYTE, t->control,
                    &req);
    hdo_status waited = mpi_wait(t, 1, &req, -1, "all ranks to finish", -1, e);
    atomic_thread_fence(memory_order_seq_cst);
    if (waited != HDO_OK) return waited;
    int failed = -1;
    *say = 0;
    for (int r = base->ranks - 1; r >= 0; r--) {
        memcpy(&h, t->share + t->share_off[r], sizeof h);
        *say |= h.say;
        if (h.status != HDO_OK) {
            failed = r;
            st = (hdo_status)h.status;
        }
        if (each == 0 || r == base->rank) continue;
        memcpy((char *)per_node + (size_t)base->start[r] * each, t->share + t->share_off[r] + SHARE_HEADER,
               (size_t)base->held[r] * each);
    }
    return failed < 0 ? HDO_OK : fetch_sentence(t, failed, st, e);
}

typedef struct chain { /* n things of `each` bytes go along it */
    char *v;
    size_t each, n;
} chain;

/* One way along the chain: pieces come from `prev`, go to `next` (-1: nobody). */
static hdo_status pass_on(mpi_tp *t, const chain *q, int prev, int next, hdo_relay_fn fn, void *ctx, hdo_error *e) {
    char *v = q->v;
    const size_t each = q->each, n = q->n;
    MPI_Request in[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL}, out[RELAY_WINDOW];
    size_t per = t->setup.chunk / each > 0 ? t->setup.chunk / each : 1, pieces = (n + per - 1) / per;
    hdo_status st = HDO_OK;
    for (int k = 0; k < RELAY_WINDOW; k++) out[k] = MPI_REQUEST_NULL;
    for (size_t c = 0; c <= pieces && st == HDO_OK; c++) {
        size_t first = c * per, count = c < pieces ? (n - first < per ? n - first : per) : 0;
        if (prev >= 0 && c < pieces) { /* one receive ahead of the piece being worked on */
            MPI_Irecv(v + first * each, (int)(count * each), MPI_BYTE, prev, TAG_RELAY, t->control, &in[c % 2]);
        }
        if (c == 0) continue;
        size_t k = c - 1, at = k * per, len = n - at < per ? n - at : per;
        if (prev >= 0) st = mpi_wait(t, 1, &in[k % 2], prev, "its part of a sum", -1, e);
        if (st == HDO_OK && fn != NULL) fn(ctx, v, at, len);
        if (st != HDO_OK || next < 0) continue;
        st = mpi_wait(t, 1, &out[k % RELAY_WINDOW], next, "it to take part of a sum", -1, e);
        MPI_Isend(v + at * each, (int)(len * each), MPI_BYTE, next, TAG_RELAY, t->control, &out[k % RELAY_WINDOW]);
    }
    return st == HDO_OK ? mpi_wait(t, RELAY_WINDOW, out, next, "it to take part of a sum", -1, e) : st;
}

hdo_status mpi_relay(hdo_transport *base, void *v, size_t each, size_t n, hdo_relay_fn fn, void *ctx, hdo_error *e) {
    mpi_tp *t = (mpi_tp *)base;
    if (base->broken) return HDO_E_ENGINE;
    int place = 0;
    while (base->order[place] != base->rank) place++;
    int before = place > 0 ? base->order[place - 1] : -1;
    int after = place + 1 < base->ranks ? base->order[place + 1] : -1;
    chain q = {v, each, n};
    hdo_status st = pass_on(t, &q, before, after, fn, ctx, e);
    return st == HDO_OK ? pass_on(t, &q, after, before, NULL, NULL, e) : st;
}
