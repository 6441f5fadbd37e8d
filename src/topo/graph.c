/* SPDX-License-Identifier: Apache-2.0
 *
 * The families of graphs that need no chance, and what all graphs share: growing, connectivity, degrees. Adding a
 * family is one builder, one row in the table at the end, one word in the option table.
 */
#include "topo/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"

/* ---- edges ---- */

hdo_status hdo__graph_limit(const char *what, int n, double n_edges, hdo_error *e) {
    if (n_edges <= (double)HDO_EDGES_MAX) return HDO_OK;
    return hdo__fail(
        e, HDO_E_CONFIG,
        "mixing.graph %s on %d nodes has about %.3g edges, but at most %d are held in memory; a graph this "
        "dense mixes like the complete one: use mixing.graph: complete",
        what, n, n_edges, HDO_EDGES_MAX);
}

hdo_status hdo__graph_reserve(hdo_graph *g, size_t n_edges, hdo_error *e) {
    if (n_edges <= g->cap) return HDO_OK;
    hdo_pair *more = hdo__alloc(n_edges * sizeof(hdo_pair));
    if (more == NULL)
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for %zu edges of the communication graph", n_edges);
    if (g->n_edges > 0) memcpy(more, g->edges, g->n_edges * sizeof(hdo_pair));
    hdo__free(g->edges);
    g->edges = more;
    g->cap = n_edges;
    return HDO_OK;
}

hdo_status hdo__graph_add(hdo_graph *g, int64_t a, int64_t b, hdo_error *e) {
    if (g->n_edges == g->cap) {
        if (g->n_edges >= HDO_EDGES_MAX) return hdo__graph_limit("as configured", g->n, 1.0 + (double)g->n_edges, e);
        hdo_status st = hdo__graph_reserve(g, g->cap < 64 ? 64 : 2 * g->cap, e);
        if (st != HDO_OK) return st;
    }
    g->edges[g->n_edges++] = (hdo_pair){(int32_t)(a < b ? a : b), (int32_t)(a < b ? b : a)};
    return HDO_OK;
}

/* Everything added since the last call is one orbit. */
static void end_orbit(hdo_graph *g) {
    g->orbit_end[g->n_orbits++] = g->n_edges;
}

/* ---- families; n >= 2 ---- */

typedef struct source { /* what a builder may look at */
    const hdo_mixing_config *config;
    uint64_t seed;
    uint64_t attempt;
} source;

static hdo_stream edge_stream(const source *src) {
    return hdo__stream(src->seed, HDO_RNG_GRAPH, 0, src->attempt, HDO_GRAPH_SUB_EDGES);
}

static hdo_status build_complete(hdo_graph *g, const source *src, hdo_error *e) {
    (void)src;
    (void)e;
    g->complete = true;
    return HDO_OK;
}

static hdo_status build_path(hdo_graph *g, const source *src, hdo_error *e) {
    (void)src;
    hdo_status st = hdo__graph_reserve(g, (size_t)g->n, e);
    for (int i = 0; i + 1 < g->n && st == HDO_OK; i++) st = hdo__graph_add(g, i, i + 1, e);
    return st;
}

static hdo_status build_ring(hdo_graph *g, const source *src, hdo_error *e) {
    hdo_status st =
        build_path(g, src, e); /* in order around the ring: greedy colouring then needs 2 colours if n is even */
    if (st == HDO_OK && g->n > 2) st = hdo__graph_add(g, g->n - 1, 0, e);
    end_orbit(g);
    return st;
}

static hdo_status build_star(hdo_graph *g, const source *src, hdo_error *e) {
    (void)src;
    hdo_status st = hdo__graph_reserve(g, (size_t)g->n, e);
    for (int i = 1; i < g->n && st == HDO_OK; i++) st = hdo__graph_add(g, 0, i, e);
    end_orbit(g);
    return st;
}

/* rows x columns, wrapped both ways. A side of 2 has one edge where a longer one has two. */
static hdo_status build_torus(hdo_graph *g, const source *src, hdo_error *e) {
    int n = g->n, rows = (int)src->config->graph.arg;
    if (rows == 0) { /* as square as n allows */
        rows = 1;
        for (int r = 2; (int64_t)r * r <= n; r++) {
            if (n % r == 0) rows = r;
        }
        if (rows == 1) {
            return hdo__fail(
                e, HDO_E_CONFIG,
                "mixing.graph torus needs n = rows x columns with at least 2 of each, but %d nodes cannot be "
                "arranged so; %d nodes can, or use mixing.graph: ring",
                n, n < 4 ? 4 : n + 1);
        }
    } else if (rows < 2 || n % rows != 0 || n / rows < 2) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "mixing.graph is torus(%d), but %d nodes do not fill %d rows of at least 2 columns evenly",
                         rows, n, rows);
    }
    int cols = n / rows;
    hdo_status st = hdo__graph_reserve(g, 2 * (size_t)n, e);
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < (cols > 2 ? cols : 1) && st == HDO_OK; c++) {
            st = hdo__graph_add(g, (int64_t)r * cols + c, (int64_t)r * cols + (c + 1) % cols, e);
        }
    }
    if (rows != cols) end_orbit(g); /* a square torus has the mirror image, too: all edges alike */
    for (int c = 0; c < cols; c++) {
        for (int r = 0; r < (rows > 2 ? rows : 1) && st == HDO_OK; r++) {
            st = hdo__graph_add(g, (int64_t)r * cols + c, (int64_t)((r + 1) % rows) * cols + c, e);
        }
    }
    end_orbit(g);
    return st;
}

static hdo_status build_hypercube(hdo_graph *g, const source *src, hdo_error *e) {
    (void)src;
    int n = g->n, dims = 0;
    while (1 << dims < n) dims++;
    if (1 << dims != n) {
        return hdo__fail(
            e, HDO_E_CONFIG,
            "mixing.graph hypercube needs a power of two of nodes, but the population has %d; the nearest are %d "
            "and %d",
            n, 1 << (dims - 1), 1 << dims);
    }
    hdo_status st = hdo__graph_reserve(g, (size_t)n * (size_t)dims / 2, e);
    for (int d = 0; d < dims; d++) {
        for (int i = 0; i < n && st == HDO_OK; i++) {
            if ((i >> d & 1) == 0) st = hdo__graph_add(g, i, i | 1 << d, e);
        }
    }
    end_orbit(g);
    return st;
}

/* i meets i + 2^j mod n, both ways (Ying et al., "Exponential graph is provably efficient for decentralized deep
 * training", 2021, made symmetric). A jump and its opposite are the same edges. */
static hdo_status build_exponential(hdo_graph *g, const source *src, hdo_error *e) {
    (void)src;
    int64_t n = g->n, seen[HDO_ORBITS_MAX];
    hdo_status st = HDO_OK;
    for (int64_t jump = 1; jump < n && st == HDO_OK; jump *= 2) {
        int64_t d = jump <= n - jump ? jump : n - jump;
        bool again = false;
        for (int k = 0; k < g->n_orbits; k++) again = again || seen[k] == d;
        if (again) continue;
        int64_t count = 2 * d == n ? n / 2 : n;
        for (int64_t i = 0; i < count && st == HDO_OK; i++) st = hdo__graph_add(g, i, (i + d) % n, e);
        seen[g->n_orbits] = d;
        end_orbit(g);
    }
    return st;
}

static hdo_status build_regular(hdo_graph *g, const source *src, hdo_error *e) {
    int k = (int)src->config->graph.arg;
    if (k >= g->n) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "mixing.graph is random-regular(%d), but with %d nodes a node has at most %d others to meet",
                         k, g->n, g->n - 1);
    }
    if ((int64_t)k * g->n % 2 != 0) {
        return hdo__fail(
            e, HDO_E_CONFIG,
            "mixing.graph is random-regular(%d) on %d nodes, but nodes x degree must be even: every edge has two "
            "ends; take an even degree or one node more",
            k, g->n);
    }
    hdo_status st = hdo__graph_limit("random-regular", g->n, 0.5 * (double)k * (double)g->n, e);
    return st == HDO_OK ? hdo__graph_regular(g, k, edge_stream(src), e) : st;
}

static hdo_status build_gnp(hdo_graph *g, const source *src, hdo_error *e) {
    double p = src->config->graph.arg, n = (double)g->n;
    if (p >= 1.0) return build_complete(g, src, e);
    hdo_status st = hdo__graph_limit("erdos-renyi", g->n, 0.5 * p * n * (n - 1.0), e);
    return st == HDO_OK ? hdo__graph_gnp(g, p, edge_stream(src), e) : st;
}

static hdo_status build_small_world(hdo_graph *g, const source *src, hdo_error *e) {
    int64_t k = src->config->degree;
    if (k % 2 != 0 || k >= g->n) {
        return hdo__fail(
            e, HDO_E_CONFIG,
            "mixing.degree is %lld, but mixing.graph small-world on %d nodes needs an even degree below %d: a node "
            "starts with as many neighbours on either side",
            (long long)k, g->n, g->n);
    }
    hdo_status st = hdo__graph_limit("small-world", g->n, 0.5 * (double)k * (double)g->n, e);
    return st == HDO_OK ? hdo__graph_small_world(g, (int)k, src->config->graph.arg, edge_stream(src), e) : st;
}

static hdo_status build_file(hdo_graph *g, const source *src, hdo_error *e) {
    if (src->config->edges[0] == '\0') {
        return hdo__fail(e, HDO_E_CONFIG, "mixing.graph is file, but mixing.edges does not name one");
    }
    return hdo__graph_read(g, src->config->edges, e);
}

static const struct {
    int kind;
    bool random; /* worth drawing again if not connected */
    hdo_status (*build)(hdo_graph *g, const source *src, hdo_error *e);
} families[] = {
    {HDO_GRAPH_COMPLETE, false, build_complete},
    {HDO_GRAPH_RING, false, build_ring},
    {HDO_GRAPH_TORUS, false, build_torus},
    {HDO_GRAPH_HYPERCUBE, false, build_hypercube},
    {HDO_GRAPH_STAR, false, build_star},
    {HDO_GRAPH_PATH, false, build_path},
    {HDO_GRAPH_EXPONENTIAL, false, build_exponential},
    {HDO_GRAPH_REGULAR, true, build_regular},
    {HDO_GRAPH_ERDOS_RENYI, true, build_gnp},
    {HDO_GRAPH_SMALL_WORLD, true, build_small_world},
    {HDO_GRAPH_FILE, false, build_file},
};

/* ---- what all share ---- */

static uint32_t root_of(uint32_t *parent, uint32_t v) {
    while (parent[v] != v) {
        parent[v] = parent[parent[v]];
        v = parent[v];
    }
    return v;
}

int hdo__graph_components(const hdo_graph *g, int *outside, hdo_error *e) {
    if (g->complete) return 1;
    uint32_t *parent = hdo__alloc((size_t)g->n * sizeof(uint32_t));
    if (parent == NULL) {
        hdo__fail(e, HDO_E_MEMORY, "out of memory for a graph of %d nodes", g->n);
        return -1;
    }
    int parts = g->n;
    for (int i = 0; i < g->n; i++) parent[i] = (uint32_t)i;
    for (size_t k = 0; k < g->n_edges; k++) {
        uint32_t a = root_of(parent, (uint32_t)g->edges[k].a), b = root_of(parent, (uint32_t)g->edges[k].b);
        if (a == b) continue;
        if (a < b) {
            parent[b] = a;
        } else {
            parent[a] = b;
        }
        parts--;
    }
    *outside = 0;
    for (int i = 0; i < g->n && *outside == 0; i++) { /* the smallest name is the root: 0 is the root of its part */
        if (root_of(parent, (uint32_t)i) != 0) *outside = i;
    }
    hdo__free(parent);
    return parts;
}

static hdo_status measure_degrees(hdo_graph *g, hdo_error *e) {
    g->degree_min = g->degree_max = g->n - 1;
    if (g->complete) return HDO_OK;
    int32_t *degree = hdo__alloc((size_t)g->n * sizeof(int32_t));
    if (degree == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a graph of %d nodes", g->n);
    for (size_t k = 0; k < g->n_edges; k++) {
        degree[g->edges[k].a]++;
        degree[g->edges[k].b]++;
    }
    g->degree_max = 0;
    for (int i = 0; i < g->n; i++) {
        if (degree[i] < g->degree_min) g->degree_min = degree[i];
        if (degree[i] > g->degree_max) g->degree_max = degree[i];
    }
    hdo__free(degree);
    return HDO_OK;
}

static hdo_status refuse_disconnected(const hdo_graph *g, const hdo_mixing_config *c, int parts, int outside,
                                      bool random, hdo_error *e) {
    char hint[160] = "";
    if (g->kind == HDO_GRAPH_ERDOS_RENYI) {
        snprintf(hint, sizeof hint, "; %d nodes need an edge probability well above ln(n)/n = %.2g", g->n,
                 log((double)g->n) / (double)g->n);
    } else if (g->kind == HDO_GRAPH_REGULAR) {
        snprintf(hint, sizeof hint, "; a degree of 3 or more almost always does it");
    } else if (g->kind == HDO_GRAPH_FILE) {
        snprintf(hint, sizeof hint, "; add edges to '%.100s'", c->edges);
    }
    return hdo__fail(
        e, HDO_E_CONFIG,
        "the communication graph is not connected%s: it falls into %d parts, and vertex %d cannot be reached from "
        "vertex 0, so the population could never agree%s",
        random ? " in any of 32 draws" : "", parts, outside, hint);
}

static hdo_status build_connected(hdo_graph *g, size_t family, source *src, hdo_error *e) {
    bool random = families[family].random;
    int parts = 0, outside = 0;
    for (src->attempt = 0; src->attempt < (random ? HDO_GRAPH_TRIES : 1); src->attempt++) {
        g->n_edges = 0;
        g->n_orbits = 0;
        hdo_status st = families[family].build(g, src, e);
        if (st != HDO_OK) return st;
        parts = hdo__graph_components(g, &outside, e);
        if (parts < 0) return HDO_E_MEMORY;
        if (parts == 1) return measure_degrees(g, e);
    }
    return refuse_disconnected(g, src->config, parts, outside, random, e);
}

hdo_status hdo__graph_build(hdo_graph *g, const hdo_mixing_config *c, uint64_t seed, int n, hdo_error *e) {
    *g = (hdo_graph){.n = n, .kind = c->graph.id};
    if (n == 1) return HDO_OK;
    source src = {.config = c, .seed = seed};
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        if (families[f].kind != c->graph.id) continue;
        hdo_status st = build_connected(g, f, &src, e);
        if (st != HDO_OK) hdo__graph_clear(g);
        return st;
    }
    return hdo__fail(e, HDO_E_CONFIG, "mixing.graph has the number %d, which means no graph", c->graph.id);
}

void hdo__graph_clear(hdo_graph *g) {
    hdo__free(g->edges);
    *g = (hdo_graph){0};
}
