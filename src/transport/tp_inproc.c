/* SPDX-License-Identifier: Apache-2.0 — the simulator: every node is local, a peer's row is simply its row. */
#include "base/arena.h"
#include "transport/transport.h"

typedef struct inproc { /* one rank that holds everything */
    hdo_transport base;
    int start, held, order;
    float *X;
} inproc;

static hdo_status reserve(hdo_transport *t, hdo_models *rows, hdo_error *e) {
    rows->X = ((inproc *)t)->X = hdo__alloc((size_t)rows->count * rows->ld * sizeof(float));
    return rows->X != NULL ? HDO_OK : hdo__fail(e, HDO_E_MEMORY, "out of memory for %d models", rows->count);
}

static hdo_status begin(hdo_transport *t, const hdo_plan *plan, const hdo_models *rows, int64_t step, hdo_error *e) {
    (void)t;
    (void)plan;
    (void)rows;
    (void)step;
    (void)e;
    return HDO_OK;
}

static void ready(hdo_transport *t, const hdo_models *rows, int node, bool opener) {
    (void)opener;
    (void)t;
    (void)rows;
    (void)node;
}

static void send(hdo_transport *t, const hdo_models *rows) {
    (void)t;
    (void)rows;
}

static hdo_status wait(hdo_transport *t, const hdo_plan *plan, const hdo_models *rows, int k, float **mine,
                       float **peer, hdo_error *e) {
    (void)t;
    (void)e;
    *mine = rows->X + (size_t)plan->pairs[k].a * rows->ld;
    *peer = rows->X + (size_t)plan->pairs[k].b * rows->ld;
    return HDO_OK;
}

static hdo_status agree(hdo_transport *t, hdo_status st, unsigned *say, void *per_node, size_t each, hdo_error *e) {
    (void)t;
    (void)say;
    (void)per_node;
    (void)each;
    (void)e;
    return st;
}

static hdo_status relay(hdo_transport *t, void *v, size_t each, size_t n, hdo_relay_fn fn, void *ctx, hdo_error *e) {
    (void)t;
    (void)each;
    (void)e;
    fn(ctx, v, 0, n);
    return HDO_OK;
}

static bool post(hdo_transport *t, int to, const hdo_message *m) {
    (void)t;
    (void)to;
    (void)m;
    return false;
}

static bool next(hdo_transport *t, int *from, hdo_message *m) {
    (void)t;
    (void)from;
    (void)m;
    return false;
}

static const char *host(const hdo_transport *t, int rank) {
    (void)t;
    (void)rank;
    return "this machine";
}

static void destroy(hdo_transport *t) {
    hdo__free(((inproc *)t)->X);
    hdo__free(t);
}

static const hdo_transport_ops inproc_ops = {.name = "sim",
                                             .destroy = destroy,
                                             .reserve = reserve,
                                             .exchange_begin = begin,
                                             .exchange_ready = ready,
                                             .exchange_send = send,
                                             .exchange_wait = wait,
                                             .agree = agree,
                                             .relay = relay,
                                             .post = post,
                                             .next = next};

hdo_status hdo__inproc_create_part(hdo_transport **out, int n, int first, int count, hdo_error *e) {
    inproc *t = hdo__alloc(sizeof *t);
    if (t == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the transport");
    t->base = (hdo_transport){.ops = &inproc_ops, .ranks = 1, .host_ranks = 1, .host = host};
    t->base.start = &t->start;
    t->base.held = &t->held;
    t->base.order = &t->order;
    t->base.alone = count < n;
    hdo__transport_assign(&t->base, n, &first, &count);
    *out = &t->base;
    return HDO_OK;
}

hdo_status hdo__inproc_create(hdo_transport **out, int n, hdo_error *e) {
    return hdo__inproc_create_part(out, n, 0, n, e);
}
