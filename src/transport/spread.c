/* SPDX-License-Identifier: Apache-2.0 — which rank holds which nodes: contiguous blocks, so that finding one is quick.
 */
#include <assert.h>

#include "transport/transport.h"

void hdo__transport_assign(hdo_transport *t, int n, const int *start, const int *held) {
    t->n = n;
    for (int r = 0; r < t->ranks; r++) {
        t->start[r] = start[r];
        t->held[r] = held[r];
        int k = r; /* insertion: ranks are few and nearly sorted */
        for (; k > 0 && t->start[t->order[k - 1]] > start[r]; k--) t->order[k] = t->order[k - 1];
        t->order[k] = r;
    }
    t->first = start[t->rank];
    t->count = held[t->rank];
}

int hdo__transport_owner(const hdo_transport *t, int node) {
    int lo = 0, hi = t->ranks - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (t->start[t->order[mid]] <= node) {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    assert(node >= t->start[t->order[lo]] && node < t->start[t->order[lo]] + t->held[t->order[lo]]);
    return t->order[lo];
}

int hdo__transport_offers(const hdo_transport *t) {
    int most = 1;
    for (int r = 0; r < t->ranks; r++) most = t->held[r] > most ? t->held[r] : most;
    return most < HDO_OFFERS_MAX ? most : HDO_OFFERS_MAX;
}
