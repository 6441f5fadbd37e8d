/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication graphs: a list of edges, each once, and nothing else. A graph is made once, before the first step, from
 * the configuration and the seed; memory and time are O(nodes + edges). The complete graph is never written out: its
 * n (n - 1) / 2 edges are all pairs, and the mixers that need no graph already draw from those.
 *
 * Builders speak of vertices 0 .. n-1; hdo__graph_place says which node sits on which vertex and renames the edges, so
 * that the mixer never looks anything up.
 */
#ifndef HDO_TOPO_GRAPH_H
#define HDO_TOPO_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"
#include "hdo/experimental/config.h"

enum {
    HDO_EDGES_MAX = 1 << 26, /* 0.5 GB of edges; building a random graph takes another 1 GB for a moment */
    HDO_ORBITS_MAX = 32,
    HDO_GRAPH_TRIES = 32 /* draws of a random graph before giving up on a connected one; taste */
};

typedef struct hdo_pair {
    int32_t a, b;
} hdo_pair;

typedef struct hdo_graph {
    int n;
    int kind;        /* HDO_GRAPH_... of <hdo/experimental/config.h> */
    bool complete;   /* all pairs; edges is then NULL */
    hdo_pair *edges; /* (n_edges) */
    size_t n_edges, cap;
    int degree_min, degree_max;
    /* Edges [orbit_end[k-1], orbit_end[k]) are images of each other under symmetries of the graph, so any sampling that
     * does not look at names treats them alike. n_orbits = 0: no symmetry known. */
    int n_orbits;
    size_t orbit_end[HDO_ORBITS_MAX];
} hdo_graph;

/* What the numbers of HDO_RNG_GRAPH are for: the `sub` word of the stream. Never renumber. */
enum { HDO_GRAPH_SUB_EDGES = 0, HDO_GRAPH_SUB_PLACE = 1, HDO_GRAPH_SUB_SPECTRUM = 2 };

/* Connected, or refused with a sentence. One node: no edges, whatever the kind. */
hdo_status hdo__graph_build(hdo_graph *g, const hdo_mixing_config *c, uint64_t seed, int n, hdo_error *e);
void hdo__graph_clear(hdo_graph *g);

/* vertex[i], (n): where node i sits. The first n_first nodes are placed by `placement` (HDO_PLACEMENT_...), the others
 * take what is left, in random order. Renames the edges from vertices to nodes. Nothing to do on a complete graph. */
hdo_status hdo__graph_place(hdo_graph *g, int placement, uint64_t seed, int n_first, uint32_t *vertex, hdo_error *e);

int hdo__graph_components(const hdo_graph *g, int *outside, hdo_error *e); /* -1: out of memory; outside: not with 0 */

/* ---- between the files of this folder ---- */
hdo_status hdo__graph_reserve(hdo_graph *g, size_t n_edges, hdo_error *e);
hdo_status hdo__graph_add(hdo_graph *g, int64_t a, int64_t b, hdo_error *e); /* grows if it must */
hdo_status hdo__graph_limit(const char *what, int n, double n_edges, hdo_error *e);

/* One draw each; attempt is part of the random numbers' address. */
hdo_status hdo__graph_regular(hdo_graph *g, int k, hdo_stream s, hdo_error *e);
hdo_status hdo__graph_gnp(hdo_graph *g, double p, hdo_stream s, hdo_error *e);
hdo_status hdo__graph_small_world(hdo_graph *g, int k, double beta, hdo_stream s, hdo_error *e);
hdo_status hdo__graph_read(hdo_graph *g, const char *path, hdo_error *e);

/* A set of pairs; removes duplicates in O(1). */
typedef struct hdo_pairset {
    uint64_t *slot;
    uint64_t mask;
} hdo_pairset;
hdo_status hdo__pairset_init(hdo_pairset *s, size_t most, hdo_error *e); /* room for `most` pairs */
void hdo__pairset_clear(hdo_pairset *s);
bool hdo__pairset_add(hdo_pairset *s, int64_t a, int64_t b); /* false: was there already */
bool hdo__pairset_has(const hdo_pairset *s, int64_t a, int64_t b);

#endif
