/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixing along the edges of a graph, in three ways:
 *
 *   matching  every node steps; the edges are visited in a uniformly random order and every edge whose ends are both
 *             still free joins them. The matching is maximal: no edge is left with two free ends. O(edges) a step. The
 *             law is symmetric (it does not look at names) but E[W] has a closed form only for few graphs; spectral.c
 *             estimates it. Uniform matchings of a general graph would need a Markov chain.
 *   colour    every node steps; the edges were coloured once so that equal colours share no node, and a step draws one
 *             colour. O(n) a step and E[W] = I - L / (2 colours) exactly; two steps of different colours never repeat a
 *             pair. On an even ring these are its two perfect matchings.
 *   edge      one uniform edge; its two nodes step and average (Algorithm 1 on a graph). A node steps in proportion to
 *             its degree.
 *
 * The complete graph is handed to the mixers that need no graph: same law, no edges in memory.
 */
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "topo/mixer.h"

static hdo_stream step_stream(const hdo_mixer *m, int64_t t) {
    return hdo__stream(m->seed, HDO_RNG_MATCH, 0, (uint64_t)t, 0);
}

/* ---- matching ---- */

/* Fisher-Yates over the edges, accepting as it goes. Position k takes a uniform number below left = edges - k from 64
 * bits by multiplication (high word of bits x left); it is off from uniform by less than left / 2^64 < 2^-38. The bits
 * are made a slice at a time, which is several times faster than one address at a time, and the memory a slice will
 * touch is asked for ahead: with millions of edges every access misses the caches. */
int hdo__graph_match(const hdo_graph *g, hdo_stream s, uint32_t *scratch) {
    enum { SLICE = 128 };
    uint32_t bits[2 * SLICE], pick[SLICE], n_edges = (uint32_t)g->n_edges;
    uint32_t *order = scratch;
    uint8_t *busy = (uint8_t *)(scratch + g->n_edges);
    int found = 0;
    memset(busy, 0, (size_t)g->n);
    for (uint32_t k = 0; k < n_edges; k++) order[k] = k;
    for (uint32_t start = 0; start < n_edges && 2 * found + 1 < g->n; start += SLICE) {
        uint32_t count = n_edges - start < SLICE ? n_edges - start : SLICE;
        hdo__rng_bits(s, 2 * (uint64_t)start, 2 * (size_t)count, bits);
        for (uint32_t i = 0; i < count; i++) { /* (hi 2^32 + lo) left / 2^64; left < 2^32, so nothing overflows */
            uint32_t left = n_edges - start - i;
            uint64_t low = (uint64_t)bits[2 * i] * left >> 32;
            pick[i] = start + i + (uint32_t)(((uint64_t)bits[2 * i + 1] * left + low) >> 32);
            HDO_PREFETCH(&order[pick[i]]);
        }
        for (uint32_t i = 0; i < count; i++) HDO_PREFETCH(&g->edges[order[pick[i]]]); /* but for swaps in the slice */
        for (uint32_t i = 0; i < count; i++) {
            uint32_t edge = order[pick[i]];
            order[pick[i]] = order[start + i];
            hdo_pair p = g->edges[edge];
            if (busy[p.a] | busy[p.b]) continue;
            busy[p.a] = busy[p.b] = 1;
            order[found++] = edge; /* found <= start + i: places that were drawn already */
        }
    }
    return found;
}

static int match_greedy(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *scratch) {
    int found = hdo__graph_match(&m->graph, step_stream(m, t), scratch);
    for (int k = 0; k < found; k++) pairs[k] = m->graph.edges[scratch[k]];
    return found;
}

/* ---- edge ---- */

static int match_edge(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *scratch) {
    (void)scratch;
    if (m->graph.n_edges == 0) return 0;
    pairs[0] = m->graph.edges[hdo__rng_below(step_stream(m, t), 0, m->graph.n_edges)];
    return 1;
}

/* ---- colour ---- */

/* Smallest colour free at both ends, edge by edge: fewer than twice the largest degree. Rings and tori of even sides
 * and hypercubes come out with as many colours as neighbours, thanks to the order of their edges. Sorts the edges by
 * colour; their orbits are then lost, and not needed. */
static hdo_status colour_edges(hdo_mixer *m, hdo_error *e) {
    hdo_graph *g = &m->graph;
    if (2 * g->degree_max - 1 > HDO_COLOURS_MAX) {
        return hdo__fail(
            e, HDO_E_CONFIG,
            "mixing.graph_mode is colour, but a node has %d neighbours and the edges are only coloured up to %d; "
            "use mixing.graph_mode: matching",
            g->degree_max, HDO_COLOURS_MAX / 2);
    }
    uint64_t *used = hdo__alloc((size_t)g->n * sizeof(uint64_t));
    uint8_t *colour = hdo__alloc(g->n_edges + 1);
    hdo_pair *sorted = hdo__alloc((g->n_edges + 1) * sizeof(hdo_pair));
    if (used == NULL || colour == NULL || sorted == NULL) {
        hdo__free(used);
        hdo__free(colour);
        hdo__free(sorted);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory to colour %zu edges", g->n_edges);
    }
    uint32_t at[HDO_COLOURS_MAX + 1] = {0};
    for (size_t k = 0; k < g->n_edges; k++) {
        hdo_pair p = g->edges[k];
        uint64_t taken = used[p.a] | used[p.b];
        uint8_t c = 0;
        while (taken >> c & 1) c++;
        used[p.a] |= UINT64_C(1) << c;
        used[p.b] |= UINT64_C(1) << c;
        colour[k] = c;
        at[c + 1]++;
        if (c >= m->n_colours) m->n_colours = c + 1;
    }
    for (int c = 0; c < m->n_colours; c++) {
        at[c + 1] += at[c];
        m->colour_end[c] = at[c + 1];
    }
    for (size_t k = 0; k < g->n_edges; k++) sorted[at[colour[k]]++] = g->edges[k];
    hdo__free(g->edges);
    g->edges = sorted;
    g->n_orbits = 0;
    hdo__free(used);
    hdo__free(colour);
    return HDO_OK;
}

static int match_colour(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *scratch) {
    (void)scratch;
    if (m->n_colours == 0) return 0;
    size_t c = hdo__rng_below(step_stream(m, t), 0, (uint64_t)m->n_colours);
    uint32_t from = c > 0 ? m->colour_end[c - 1] : 0, count = m->colour_end[c] - from;
    memcpy(pairs, m->graph.edges + from, count * sizeof(hdo_pair));
    return (int)count;
}

/* ---- wiring ---- */

#define GRAPH_HELP "along the edges of mixing.graph"
static const hdo_mixer_ops by_edge = {.name = "graph", .help = GRAPH_HELP, .match = match_edge};
static const hdo_mixer_ops by_colour = {.name = "graph", .help = GRAPH_HELP, .all_step = true, .match = match_colour};
/* A maximal matching of a star is one of its edges: the same law in O(1). */
static const hdo_mixer_ops by_spoke = {.name = "graph", .help = GRAPH_HELP, .all_step = true, .match = match_edge};
static const hdo_mixer_ops of_all = {.name = "graph", .help = GRAPH_HELP, .all_step = true, .match = hdo__match_all};
static const hdo_mixer_ops one_of_all = {.name = "graph", .help = GRAPH_HELP, .match = hdo__match_one};

static const hdo_mixer_ops *ops_for(const hdo_mixer *m) {
    bool edge = m->graph_mode == HDO_GRAPH_MODE_EDGE;
    if (m->graph.complete) return edge ? &one_of_all : &of_all;
    if (edge) return &by_edge;
    if (m->graph_mode == HDO_GRAPH_MODE_COLOUR) return &by_colour;
    return m->graph.kind == HDO_GRAPH_STAR ? &by_spoke : &hdo__mixer_graph;
}

static hdo_status graph_init(hdo_mixer *m, const hdo_mixing_config *c, int n_first, hdo_error *e) {
    int place = c->placement.id;
    if (n_first < 0 && place != HDO_PLACEMENT_RANDOM && place != HDO_PLACEMENT_ORDER) {
        return hdo__fail(e, HDO_E_UNSUPPORTED, "mixing.placement is about the first class, but there is none here");
    }
    m->graph_mode = c->graph_mode.id;
    hdo_status st = hdo__graph_build(&m->graph, c, m->seed, m->n, e);
    if (st != HDO_OK) return st;
    m->vertex = hdo__alloc((size_t)m->n * sizeof(uint32_t));
    if (m->vertex == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a graph of %d nodes", m->n);
    if (m->graph_mode == HDO_GRAPH_MODE_COLOUR && !m->graph.complete) st = colour_edges(m, e);
    if (st == HDO_OK) st = hdo__graph_place(&m->graph, place, m->seed, n_first, m->vertex, e);
    m->ops = ops_for(m);
    return st;
}

static size_t graph_scratch(const hdo_mixer *m) {
    bool greedy = m->ops == &hdo__mixer_graph;
    return (greedy ? m->graph.n_edges : 0) + (size_t)m->n;
}

/* The one in the registry; init replaces it by the one that fits the mode. */
const hdo_mixer_ops hdo__mixer_graph = {.name = "graph",
                                        .help = GRAPH_HELP,
                                        .all_step = true,
                                        .match = match_greedy,
                                        .init = graph_init,
                                        .scratch = graph_scratch};
