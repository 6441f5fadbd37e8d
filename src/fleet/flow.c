/* SPDX-License-Identifier: Apache-2.0 — what exchanges have moved: see flow.h. */
#include "fleet/flow.h"

/* Signs from the number of the coordinate, eight coordinates at a time. */
static uint32_t signs_of(size_t block) {
    uint32_t h = (uint32_t)block * 2654435761u;
    h ^= h >> 15;
    return h * 2246822519u >> 24;
}

double hdo__flow_measure(const float *x, size_t len) {
    double lane[8] = {0};
    size_t blocks = len / 8;
    for (size_t b = 0; b < blocks; b++) {
        uint32_t s = signs_of(b);
        for (int k = 0; k < 8; k++)
            lane[k] += (s >> k & 1) != 0 ? -(double)x[8 * b + (size_t)k] : (double)x[8 * b + (size_t)k];
    }
    double sum = 0.0;
    for (int k = 0; k < 8; k++) sum += lane[k];
    for (size_t c = 8 * blocks; c < len; c++) sum += (double)x[c];
    return sum;
}

void hdo__flow_add(hdo_flows *f, uint64_t from, uint64_t to, uint32_t epoch, double moved) {
    for (int k = 0; k < f->n; k++) {
        hdo_flow *w = &f->flow[k];
        if (w->from != from || w->to != to || w->epoch != epoch) continue;
        w->sum += moved;
        w->count++;
        return;
    }
    if (f->n == HDO_FLOWS_MAX) {
        f->beyond++;
        return;
    }
    f->flow[f->n++] = (hdo_flow){.from = from, .to = to, .epoch = epoch, .count = 1, .sum = moved};
}
