/* SPDX-License-Identifier: Apache-2.0 — the simulator: every node is local, a peer's row is simply its row. */
#include "base/arena.h"
#include "transport/transport.h"

static hdo_status begin(hdo_transport *t, const hdo_plan *plan, const hdo_rows *rows, hdo_error *e) {
    (void)t;
    (void)plan;
    (void)rows;
    (void)e;
    return HDO_OK;
}

static hdo_status wait(hdo_transport *t, const hdo_plan *plan, const hdo_rows *rows, int k, float **mine, float **peer,
                       hdo_error *e) {
    (void)t;
    (void)e;
    *mine = rows->X + (size_t)plan->pairs[k].a * rows->ld;
    *peer = rows->X + (size_t)plan->pairs[k].b * rows->ld;
    return HDO_OK;
}

static hdo_status reduce_sum(hdo_transport *t, double *v, int n, hdo_error *e) {
    (void)t;
    (void)v;
    (void)n;
    (void)e;
    return HDO_OK;
}

static void destroy(hdo_transport *t) { hdo__free(t); }

static const hdo_transport_ops inproc_ops = {.name = "sim",
                                             .destroy = destroy,
                                             .exchange_begin = begin,
                                             .exchange_wait = wait,
                                             .reduce_sum = reduce_sum};

hdo_status hdo__inproc_create(hdo_transport **out, int n, hdo_error *e) {
    hdo_transport *t = hdo__alloc(sizeof *t);
    if (t == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the transport");
    *t = (hdo_transport){.ops = &inproc_ops, .rank = 0, .ranks = 1, .first = 0, .count = n};
    *out = t;
    return HDO_OK;
}
