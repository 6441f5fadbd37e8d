/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: edge lists. The first byte is the number of nodes. */
#define _GNU_SOURCE
#include "base/arena.h"
#include "fuzz.h"
#include "topo/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    if (size < 1) return 0;
    hdo_graph g = {.n = 1 + data[0] % 20};
    hdo_status st = hdo__graph_read(&g, file_of(data + 1, size - 1), &e);
    require_sentence(st, &e);
    for (size_t k = 0; k < g.n_edges; k++) {
        require(g.edges[k].a >= 0 && g.edges[k].a < g.n && g.edges[k].b >= 0 && g.edges[k].b < g.n, "no such vertex");
        require(g.edges[k].a != g.edges[k].b, "a loop");
        for (size_t i = 0; i < k; i++) {
            bool same = g.edges[i].a == g.edges[k].a && g.edges[i].b == g.edges[k].b;
            bool turned = g.edges[i].a == g.edges[k].b && g.edges[i].b == g.edges[k].a;
            require(!same && !turned, "an edge twice");
        }
    }
    hdo__graph_clear(&g);
    return 0;
}
