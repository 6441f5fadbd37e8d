/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of pairs with one node here and one elsewhere. Receives are posted before the local steps, a row leaves as
 * soon as its own step is done, in chunks: nothing depends on eager limits or on who comes first. The number of the
 * pair is the tag, so messages of a step never mix; between steps MPI keeps the order. A pair with both nodes here
 * never reaches MPI, nor does one whose other node is in memory in common (mpi_shared.c). When the first wait begins
 * everything has been sent, so no two ranks can wait for each other.
 */
#include <string.h>

#include "transport/mpi/tp_mpi.h"

static int chunk_numbers(const mpi_tp *t, const hdo_models *rows, int c, size_t *off) {
    size_t per = t->setup.chunk / sizeof(float);
    *off = (size_t)c * per;
    return (int)(rows->len - *off < per ? rows->len - *off : per);
}

static MPI_Request *requests(mpi_tp *t, int s) {
    return t->req + (size_t)s * 2 * (size_t)t->chunks;
}

hdo_status mpi_exchange_begin(hdo_transport *base, const hdo_plan *plan, const hdo_models *rows, int64_t step,
                              hdo_error *e) {
    mpi_tp *t = (mpi_tp *)base;
    t->step = step;
    t->n_slots = 0;
    atomic_store(&t->ready, -1);
    for (int i = 0; i < base->count; i++) t->slot_of_node[i] = -1;
    if (plan->n_pairs > t->tag_max) {
        return hdo__fail(e, HDO_E_UNSUPPORTED, "%d pairs in a step, but this MPI tells only %d apart", plan->n_pairs,
                         t->tag_max);
    }
    for (int k = 0; k < plan->n_pairs; k++) {
        int a = plan->pairs[k].a, b = plan->pairs[k].b;
        bool here = hdo__transport_local(base, a);
        t->slot_of_pair[k] = -1;
        if (here == hdo__transport_local(base, b)) continue;
        int s = t->n_slots++, mine = here ? a : b, other = here ? b : a;
        t->slots[s] = (slot){.mine = mine, .other = other, .owner = hdo__transport_owner(base, other), .pair = k};
        t->slots[s].shared = t->shared[t->slots[s].owner] != NULL;
        t->slot_of_pair[k] = s;
        if (t->slots[s].shared) continue;
        t->slot_of_node[mine - base->first] = s;
        MPI_Request *req = requests(t, s);
        for (int c = 0; c < t->chunks; c++) {
            size_t off;
            int len = chunk_numbers(t, rows, c, &off);
            MPI_Irecv(t->arrived + (size_t)s * t->ld + off, len, MPI_FLOAT, t->slots[s].owner, k, t->rows, &req[c]);
            req[t->chunks + c] = MPI_REQUEST_NULL;
        }
    }
    return HDO_OK;
}

static void send_row(mpi_tp *t, const hdo_models *rows, slot *s) {
    if (s->sent) return;
    s->sent = true;
    if (s->shared) {
        t->base.shared_bytes += (int64_t)(rows->len * sizeof(float));
        return;
    }
    MPI_Request *req = requests(t, (int)(s - t->slots)) + t->chunks;
    const float *row = rows->X + (size_t)(s->mine - rows->first) * rows->ld;
    for (int c = 0; c < t->chunks; c++) {
        size_t off;
        int len = chunk_numbers(t, rows, c, &off);
        MPI_Isend(row + off, len, MPI_FLOAT, s->owner, s->pair, t->rows, &req[c]);
    }
    t->base.sent_messages += t->chunks;
    t->base.sent_bytes += (int64_t)(rows->len * sizeof(float));
}

void mpi_exchange_ready(hdo_transport *base, const hdo_models *rows, int node, bool opener) {
    mpi_tp *t = (mpi_tp *)base;
    if (t->arrived == NULL) return; /* no messages at all */
    int s = t->slot_of_node[node - base->first];
    if (s >= 0) {
        t->slots[s].next_ready = atomic_load(&t->ready);
        while (!atomic_compare_exchange_weak(&t->ready, &t->slots[s].next_ready, s)) {}
    }
    if (!opener) return;
    for (int k = atomic_exchange(&t->ready, -1); k >= 0; k = t->slots[k].next_ready) send_row(t, rows, &t->slots[k]);
    mpi_move(t); /* while the next node computes */
}

void mpi_exchange_send(hdo_transport *base, const hdo_models *rows) {
    mpi_tp *t = (mpi_tp *)base;
    mpi_shared_ready(t);
    for (int s = 0; s < t->n_slots; s++) send_row(t, rows, &t->slots[s]);
}

hdo_status mpi_exchange_wait(hdo_transport *base, const hdo_plan *plan, const hdo_models *rows, int k, float **mine,
                             float **peer, hdo_error *e) {
    mpi_tp *t = (mpi_tp *)base;
    *mine = *peer = NULL;
    int s = t->slot_of_pair[k];
    if (s < 0) {
        if (!hdo__transport_local(base, plan->pairs[k].a)) return HDO_OK;
        *mine = rows->X + (size_t)(plan->pairs[k].a - rows->first) * rows->ld;
        *peer = rows->X + (size_t)(plan->pairs[k].b - rows->first) * rows->ld;
        return HDO_OK;
    }
    const slot *p = &t->slots[s];
    if (p->shared && (k % 2 == 0) != (p->mine == plan->pairs[k].a)) return HDO_OK; /* the other rank averages both */
    *mine = rows->X + (size_t)(p->mine - rows->first) * rows->ld;
    if (p->shared) {
        *peer = mpi_shared_row(t, p->owner, p->other);
        return mpi_shared_wait(t, p->owner, p->other, e);
    }
    *peer = t->arrived + (size_t)s * t->ld;
    return mpi_wait(t, 2 * t->chunks, requests(t, s), p->owner, "the model of node", p->other, e);
}
