/* SPDX-License-Identifier: Apache-2.0
 *
 * Random graphs, each a pure function of its stream, in time O(nodes + edges). Only whole numbers and + - * / decide,
 * so a seed gives the same graph on every machine.
 */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "topo/graph.h"

/* ---- a set of pairs: open addressing, at most half full; 0 marks a free slot ---- */

static uint64_t key_of(int64_t a, int64_t b) {
    uint64_t lo = (uint64_t)(a < b ? a : b), hi = (uint64_t)(a < b ? b : a);
    return (lo << 32 | hi) + 1;
}

static uint64_t home(const hdo_pairset *s, uint64_t key) {
    key *= UINT64_C(0x9E3779B97F4A7C15); /* Fibonacci hashing: the good bits are the high ones */
    return (key ^ key >> 32) & s->mask;
}

hdo_status hdo__pairset_init(hdo_pairset *s, size_t most, hdo_error *e) {
    size_t slots = 64;
    while (slots < 2 * most) slots *= 2;
    *s = (hdo_pairset){.slot = hdo__alloc(slots * sizeof(uint64_t)), .mask = slots - 1};
    if (s->slot == NULL)
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for a communication graph of %zu edges", most);
    return HDO_OK;
}

void hdo__pairset_clear(hdo_pairset *s) {
    hdo__free(s->slot);
    *s = (hdo_pairset){0};
}

/* Where the key is, or the free slot where it would go. */
static uint64_t slot_of(const hdo_pairset *s, uint64_t key) {
    uint64_t i = home(s, key);
    while (s->slot[i] != 0 && s->slot[i] != key) i = (i + 1) & s->mask;
    return i;
}

bool hdo__pairset_has(const hdo_pairset *s, int64_t a, int64_t b) {
    return s->slot[slot_of(s, key_of(a, b))] != 0;
}

bool hdo__pairset_add(hdo_pairset *s, int64_t a, int64_t b) {
    uint64_t key = key_of(a, b), i = slot_of(s, key);
    if (s->slot[i] != 0) return false;
    s->slot[i] = key;
    return true;
}

/* ---- random regular ---- */

/* Steger and Wormald, "Generating random regular graphs quickly" (1999): every vertex has k points; join two random
 * free points if that makes neither a loop nor a double edge; start over when stuck. Nearly uniform over the k-regular
 * graphs (asymptotically so for k up to a small power of n). Starting over goes on in the same stream. */
static hdo_status regular_pairs(hdo_graph *g, int k, hdo_stream s, hdo_pairset *set, uint32_t *point, hdo_error *e) {
    size_t all = (size_t)g->n * (size_t)k;
    uint64_t draw = 0;
    for (;;) {
        size_t left = all, fails = 0;
        for (size_t i = 0; i < all; i++) point[i] = (uint32_t)(i / (size_t)k);
        memset(set->slot, 0, (size_t)(set->mask + 1) * sizeof(uint64_t));
        g->n_edges = 0;
        while (left > 0 && fails <= left * left + 100) { /* that many failures in a row: no suitable pair is left */
            size_t i = hdo__rng_below(s, draw++, left), j = hdo__rng_below(s, draw++, left - 1);
            if (j >= i) j++;
            uint32_t a = point[i], b = point[j];
            if (a == b || !hdo__pairset_add(set, a, b)) {
                fails++;
                continue;
            }
            fails = 0;
            hdo_status st = hdo__graph_add(g, a, b, e);
            if (st != HDO_OK) return st;
            point[i > j ? i : j] = point[--left]; /* the last point moves into the hole; the higher hole first */
            point[i > j ? j : i] = point[--left];
        }
        if (left == 0) return HDO_OK;
    }
}

/* All pairs that set does not hold. */
static hdo_status complement(hdo_graph *g, const hdo_pairset *set, hdo_error *e) {
    hdo_status st = HDO_OK;
    g->n_edges = 0;
    for (int a = 0; a < g->n; a++) {
        for (int b = a + 1; b < g->n && st == HDO_OK; b++) {
            if (!hdo__pairset_has(set, a, b)) st = hdo__graph_add(g, a, b, e);
        }
    }
    return st;
}

hdo_status hdo__graph_regular(hdo_graph *g, int k, hdo_stream s, hdo_error *e) {
    if (k == g->n - 1) {
        g->complete = true;
        return HDO_OK;
    }
    /* Above half of all pairs it is easier to draw the edges that are missing: a regular graph, too. */
    bool dense = 2 * k > g->n - 1;
    int drawn = dense ? g->n - 1 - k : k;
    hdo_pairset set;
    hdo_status st = hdo__pairset_init(&set, (size_t)g->n * (size_t)drawn / 2, e);
    if (st != HDO_OK) return st;
    uint32_t *point = hdo__alloc((size_t)g->n * (size_t)drawn * sizeof(uint32_t));
    if (point == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for a random regular graph of %d nodes", g->n);
    } else {
        st = hdo__graph_reserve(g, (size_t)g->n * (size_t)k / 2, e);
    }
    if (st == HDO_OK) st = regular_pairs(g, drawn, s, &set, point, e);
    if (st == HDO_OK && dense) st = complement(g, &set, e);
    hdo__free(point);
    hdo__pairset_clear(&set);
    return st;
}

/* ---- Erdos-Renyi ---- */

/* -ln(1 - p) = 2 artanh(p / (2 - p)) as a series: the C library's last bits differ between machines. p <= 1/2. */
static double minus_log1m(double p) {
    double s = p / (2.0 - p), z = s * s, power = s, sum = 0.0;
    for (int k = 1; k < 64; k += 2) {
        sum += power / (double)k;
        power *= z;
    }
    return 2.0 * sum;
}

/* Batagelj and Brandes, "Efficient generation of large random networks" (2005): the gap to the next edge, in the order
 * (1,0), (2,0), (2,1), (3,0) ..., is geometric, the whole part of an exponential number. */
static hdo_status gnp_sparse(hdo_graph *g, double p, hdo_stream s, hdo_error *e) {
    double rate = minus_log1m(p), most = (double)g->n * (double)g->n;
    int64_t a = 1, b = -1;
    hdo_status st = HDO_OK;
    for (uint64_t draw = 0; st == HDO_OK; draw++) {
        double gap = hdo__rng_gamma(s, draw, 1.0) / rate;
        b += 1 + (int64_t)(gap < most ? gap : most);
        while (a < g->n && b >= a) {
            b -= a;
            a++;
        }
        if (a >= g->n) return HDO_OK;
        st = hdo__graph_add(g, a, b, e);
    }
    return st;
}

hdo_status hdo__graph_gnp(hdo_graph *g, double p, hdo_stream s, hdo_error *e) {
    double mean = 0.5 * p * (double)g->n * ((double)g->n - 1.0);
    hdo_status st = hdo__graph_reserve(g, (size_t)(mean + 6.0 * sqrt(mean)) + 16, e);
    if (st != HDO_OK) return st;
    if (p <= 0.5) return gnp_sparse(g, p, s, e);
    uint64_t draw = 0; /* most pairs are edges: ask each */
    for (int a = 1; a < g->n; a++) {
        for (int b = 0; b < a && st == HDO_OK; b++) {
            if (hdo__rng_double(s, draw++) < p) st = hdo__graph_add(g, a, b, e);
        }
    }
    return st;
}

/* ---- small world ---- */

/* Watts and Strogatz, "Collective dynamics of small-world networks" (1998): a ring in which everybody knows the k/2
 * next on either side; the far end of each edge moves with probability beta to a uniform vertex that is not a
 * neighbour, nor was one at the start. A vertex without such candidates keeps its edge. */
hdo_status hdo__graph_small_world(hdo_graph *g, int k, double beta, hdo_stream s, hdo_error *e) {
    enum { MOVES_MAX = 100 };
    int64_t n = g->n;
    hdo_pairset set;
    hdo_status st = hdo__pairset_init(&set, (size_t)n * (size_t)k, e); /* old and new places of every edge */
    if (st == HDO_OK) st = hdo__graph_reserve(g, (size_t)n * (size_t)k / 2, e);
    for (int j = 1; j <= k / 2 && st == HDO_OK; j++) {
        for (int64_t i = 0; i < n && st == HDO_OK; i++) {
            if (hdo__pairset_add(&set, i, (i + j) % n)) st = hdo__graph_add(g, i, (i + j) % n, e);
        }
    }
    uint64_t draw = 0;
    for (size_t q = 0; q < g->n_edges && st == HDO_OK; q++) {
        /* edge q of the lattice starts at vertex q mod n: every distance j was added for all i in order */
        int64_t from = (int64_t)(q % (size_t)n);
        if (!(hdo__rng_double(s, draw++) < beta)) continue;
        for (int move = 0; move < MOVES_MAX; move++) {
            int64_t to = (int64_t)hdo__rng_below(s, draw++, (uint64_t)n);
            if (to == from || !hdo__pairset_add(&set, from, to)) continue;
            g->edges[q] = (hdo_pair){(int32_t)(from < to ? from : to), (int32_t)(from < to ? to : from)};
            break;
        }
    }
    hdo__pairset_clear(&set);
    return st;
}
