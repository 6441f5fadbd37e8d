/* SPDX-License-Identifier: Apache-2.0
 *
 * Which node sits on which vertex. The question is where the first class sits (usually the few nodes that can
 * back-propagate): anywhere, far apart, together, or where the most edges meet. All others share the rest at random.
 */
#include <string.h>

#include "base/arena.h"
#include "topo/graph.h"

typedef struct adjacency { /* neighbours of v: to[start[v]] .. to[start[v+1]-1] */
    uint32_t *start, *to;
} adjacency;

static void adjacency_clear(adjacency *a) {
    hdo__free(a->start);
    hdo__free(a->to);
}

static bool adjacency_init(adjacency *a, const hdo_graph *g) {
    size_t n = (size_t)g->n;
    *a = (adjacency){hdo__alloc((n + 2) * sizeof(uint32_t)), hdo__alloc((2 * g->n_edges + 1) * sizeof(uint32_t))};
    if (a->start == NULL || a->to == NULL) return false;
    uint32_t *at = a->start + 1; /* shifted by one: counting and filling leave the starts in place */
    for (size_t k = 0; k < g->n_edges; k++) {
        at[g->edges[k].a + 1]++;
        at[g->edges[k].b + 1]++;
    }
    for (size_t v = 1; v <= n; v++) at[v] += at[v - 1];
    for (size_t k = 0; k < g->n_edges; k++) {
        a->to[at[g->edges[k].a]++] = (uint32_t)g->edges[k].b;
        a->to[at[g->edges[k].b]++] = (uint32_t)g->edges[k].a;
    }
    return true;
}

/* ---- the ways; each writes the n_first vertices into seat ---- */

/* Breadth first from vertex 0: a ball around it. room: (n) */
static void clustered(const hdo_graph *g, const adjacency *adj, int n_first, uint32_t *seat, uint32_t *queue) {
    uint8_t *seen = (uint8_t *)(queue + g->n);
    int head = 0, tail = 0;
    queue[tail++] = 0;
    seen[0] = 1;
    while (head < n_first) {
        uint32_t v = queue[head];
        seat[head++] = v;
        for (uint32_t k = adj->start[v]; k < adj->start[v + 1]; k++) {
            uint32_t w = adj->to[k];
            if (seen[w]) continue;
            seen[w] = 1;
            queue[tail++] = w;
        }
    }
}

/* Vertices by their distance to the nearest seat taken, as doubly linked lists: distances only fall, so the farthest
 * vertex is found by a finger that moves down. */
typedef struct far_lists {
    uint32_t *dist, *next, *prev, *head; /* (n), (n), (n), (n + 1); none: n */
    uint32_t n;
} far_lists;

static void far_unlink(far_lists *f, uint32_t v) {
    if (f->prev[v] != f->n) {
        f->next[f->prev[v]] = f->next[v];
    } else {
        f->head[f->dist[v]] = f->next[v];
    }
    if (f->next[v] != f->n) f->prev[f->next[v]] = f->prev[v];
}

static void far_move(far_lists *f, uint32_t v, uint32_t dist) {
    far_unlink(f, v);
    f->dist[v] = dist;
    f->prev[v] = f->n;
    f->next[v] = f->head[dist];
    if (f->head[dist] != f->n) f->prev[f->head[dist]] = v;
    f->head[dist] = v;
}

/* Farthest-first traversal (Gonzalez 1985): every seat goes where the nearest taken one is farthest. No seat is left
 * farther out than twice the optimum. A search from a new seat only visits vertices that come closer. */
static void spread_far(const hdo_graph *g, const adjacency *adj, int n_first, uint32_t *seat, uint32_t *room) {
    uint32_t n = (uint32_t)g->n, finger = n, root = 0;
    far_lists f = {room, room + n, room + 2 * n, room + 3 * n, n};
    uint32_t *queue = room + 4 * n + 1;
    for (uint32_t k = 0; k <= n; k++) f.head[k] = n;
    for (uint32_t v = n; v-- > 0;) { /* everybody at distance n, the lowest name in front */
        f.dist[v] = n;
        f.prev[v] = n;
        f.next[v] = f.head[n];
        if (f.head[n] != n) f.prev[f.head[n]] = v;
        f.head[n] = v;
    }
    for (uint32_t v = 1; v < n; v++) { /* start where most edges meet */
        if (adj->start[v + 1] - adj->start[v] > adj->start[root + 1] - adj->start[root]) root = v;
    }
    for (int i = 0; i < n_first; i++) {
        while (i > 0 && f.head[finger] == n) finger--;
        uint32_t s = i == 0 ? root : f.head[finger], tail = 0;
        seat[i] = s;
        far_move(&f, s, 0);
        queue[tail++] = s;
        for (uint32_t head = 0; head < tail; head++) {
            uint32_t v = queue[head], d = f.dist[v] + 1;
            for (uint32_t k = adj->start[v]; k < adj->start[v + 1]; k++) {
                uint32_t w = adj->to[k];
                if (f.dist[w] <= d) continue;
                far_move(&f, w, d);
                queue[tail++] = w; /* at most once a search: breadth first meets w at its least distance */
            }
        }
    }
}

static void spread(const hdo_graph *g, const adjacency *adj, int n_first, uint32_t *seat, uint32_t *room) {
    uint64_t n = (uint64_t)g->n, k = (uint64_t)n_first;
    if (g->kind == HDO_GRAPH_RING) { /* where the best answer is known, take it */
        for (uint64_t i = 0; i < k; i++) seat[i] = (uint32_t)(i * n / k);
    } else if (g->kind == HDO_GRAPH_PATH) {
        for (uint64_t i = 0; i < k; i++) seat[i] = (uint32_t)((2 * i + 1) * n / (2 * k));
    } else {
        spread_far(g, adj, n_first, seat, room);
    }
}

/* Highest degree first, equals in random order: on a regular graph this is `random`. order holds a random permutation.
 */
static void hub(const hdo_graph *g, const adjacency *adj, int n_first, const uint32_t *order, uint32_t *seat,
                uint32_t *room) {
    uint32_t *at = room; /* (n + 1): where the next vertex of a degree goes; sorting by counting */
    for (int v = 0; v < g->n; v++) at[(uint32_t)g->n - 1 - (adj->start[v + 1] - adj->start[v]) + 1]++;
    for (int k = 1; k <= g->n; k++) at[k] += at[k - 1];
    for (int i = 0; i < g->n; i++) {
        uint32_t v = order[i], to = at[(uint32_t)g->n - 1 - (adj->start[v + 1] - adj->start[v])]++;
        if (to < (uint32_t)n_first) seat[to] = v;
    }
}

/* ---- all together ---- */

/* The first n_first of vertex are given; the rest follows in the order of `order`. */
static void seat_others(int n, int n_first, const uint32_t *order, uint32_t *vertex, uint32_t *room) {
    uint8_t *taken = (uint8_t *)room;
    memset(taken, 0, (size_t)n);
    for (int i = 0; i < n_first; i++) taken[vertex[i]] = 1;
    for (int i = 0, to = n_first; i < n; i++) {
        if (!taken[order[i]]) vertex[to++] = order[i];
    }
}

static void rename_edges(hdo_graph *g, const uint32_t *vertex, uint32_t *node) {
    for (int i = 0; i < g->n; i++) node[vertex[i]] = (uint32_t)i;
    for (size_t k = 0; k < g->n_edges; k++) {
        int32_t a = (int32_t)node[g->edges[k].a], b = (int32_t)node[g->edges[k].b];
        g->edges[k] = (hdo_pair){a < b ? a : b, a < b ? b : a};
    }
}

hdo_status hdo__graph_place(hdo_graph *g, int placement, uint64_t seed, int n_first, uint32_t *vertex, hdo_error *e) {
    for (int i = 0; i < g->n; i++) vertex[i] = (uint32_t)i;
    if (g->complete || g->n == 1 || placement == HDO_PLACEMENT_ORDER) return HDO_OK;
    size_t n = (size_t)g->n;
    adjacency adj = {0};
    uint32_t *order = hdo__alloc(n * sizeof(uint32_t));
    uint32_t *room = hdo__alloc((5 * n + 2) * sizeof(uint32_t));
    bool simple = placement == HDO_PLACEMENT_RANDOM;
    if (order == NULL || room == NULL || (!simple && !adjacency_init(&adj, g))) {
        adjacency_clear(&adj);
        hdo__free(order);
        hdo__free(room);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory to place %d nodes on the graph", g->n);
    }
    hdo__rng_permutation(hdo__stream(seed, HDO_RNG_GRAPH, 0, 0, HDO_GRAPH_SUB_PLACE), (uint32_t)g->n, order);
    if (placement == HDO_PLACEMENT_SPREAD) {
        spread(g, &adj, n_first, vertex, room);
    } else if (placement == HDO_PLACEMENT_CLUSTERED) {
        clustered(g, &adj, n_first, vertex, room);
    } else if (placement == HDO_PLACEMENT_HUB) {
        hub(g, &adj, n_first, order, vertex, room);
    } else {
        n_first = 0;
    }
    seat_others(g->n, n_first, order, vertex, room);
    rename_edges(g, vertex, room);
    adjacency_clear(&adj);
    hdo__free(order);
    hdo__free(room);
    return HDO_OK;
}
