/* SPDX-License-Identifier: Apache-2.0
 *
 * Who meets whom: matchings, graphs, placements, and how fast they mix.
 *
 * Every seed is fixed, so a case that passes once passes always. Limits on scores were chosen before looking: |z| < 4.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "hdo/lab/theory.h"
#include "topo/mixer.h"

#define Z_MAX 4.0
enum { NODES_MAX = 64 };

/* ---- helpers ---- */

static hdo_config conf; /* too large for a stack frame of every case */

static void set(const char *key, const char *value) {
    hdo_error e;
    if (hdo_config_set_from(&conf, key, value, HDO_FROM_FLAG, &e) != HDO_OK) fail_msg("%s=%s: %s", key, value, e.msg);
}

static void configure(const char *kind, const char *graph, const char *mode, const char *placement) {
    hdo_config_default(&conf);
    set("mixing.kind", kind);
    if (graph != NULL) set("mixing.graph", graph);
    if (mode != NULL) set("mixing.graph_mode", mode);
    if (placement != NULL) set("mixing.placement", placement);
}

static hdo_mixer make(uint64_t seed, int n, int n_first) {
    hdo_mixer m;
    hdo_error e;
    if (hdo__mixer_init_placed(&m, &conf.mixing, seed, n, n_first, 0, &e) != HDO_OK) fail_msg("n = %d: %s", n, e.msg);
    return m;
}

static hdo_spectrum spectrum_of(const hdo_mixer *m) {
    hdo_spectrum s;
    assert_int_equal(hdo__mixer_spectrum(m, &s), HDO_OK);
    return s;
}

/* A chi-square value with k degrees of freedom as a standard score (Wilson and Hilferty). */
static double chi2_score(double x, double k) {
    return (cbrt(x / k) - (1.0 - 2.0 / (9.0 * k))) / sqrt(2.0 / (9.0 * k));
}

static bool has_edge(const hdo_graph *g, int a, int b) {
    for (size_t k = 0; k < g->n_edges; k++) {
        if ((g->edges[k].a == a && g->edges[k].b == b) || (g->edges[k].a == b && g->edges[k].b == a)) return true;
    }
    return g->complete;
}

/* Graphs every case can run through; the numbers of nodes they take. */
static const struct {
    const char *graph;
    int n[6];
} shapes[] = {
    {"complete", {2, 3, 6, 7, 32, 33}},
    {"ring", {2, 3, 6, 7, 32, 33}},
    {"torus", {4, 6, 9, 15, 35, 36}},
    {"torus(2)", {4, 6, 8, 10, 14, 26}},
    {"hypercube", {2, 4, 8, 16, 32, 64}},
    {"star", {2, 3, 6, 7, 32, 33}},
    {"path", {2, 3, 6, 7, 32, 33}},
    {"random-regular(4)", {5, 6, 7, 9, 32, 33}},
    {"random-regular(3)", {4, 6, 8, 10, 32, 64}},
    {"erdos-renyi(0.4)", {8, 9, 10, 11, 32, 33}},
    {"erdos-renyi(0.9)", {2, 3, 6, 7, 32, 33}},
    {"small-world(0.3)", {5, 6, 7, 9, 32, 33}},
    {"exponential", {2, 3, 6, 7, 32, 33}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };
static const char *const modes[] = {"matching", "colour", "edge"};
static const char *const placements[] = {"random", "spread", "clustered", "hub", "order"};

/* ---- the matching of all nodes ---- */

/* A name for each of the 15 perfect matchings of 6 nodes: the partner of 0, then of the smallest node left. */
static int matching_name(const hdo_plan *p) {
    int partner[6] = {0}, left[4], n_left = 0;
    for (int k = 0; k < p->n_pairs; k++) {
        partner[p->pairs[k].a] = p->pairs[k].b;
        partner[p->pairs[k].b] = p->pairs[k].a;
    }
    for (int i = 1; i < 6; i++) {
        if (i != partner[0]) left[n_left++] = i;
    }
    int second = 0;
    for (int k = 1; k < 4; k++) second = left[k] == partner[left[0]] ? k - 1 : second;
    return (partner[0] - 1) * 3 + second;
}

/* The names a configuration may use are those of the tables. */
static void test_names(void **state) {
    (void)state;
    const char *const *names = hdo_names("mixing");
    int n = 0;
    for (; names[n] != NULL; n++) {
        assert_non_null(hdo__mixer_find(names[n]));
        assert_ptr_equal(hdo__mixer_find(names[n]), hdo__mixers[n]);
    }
    assert_null(hdo__mixers[n]);
}

static void test_topo_matching_is_uniform(void **state) {
    (void)state;
    enum { DRAWS = 150000 };
    static const char *const kinds[] = {"matching",
                                        "graph"}; /* the complete graph is the same law, and the same bits */
    for (int k = 0; k < 2; k++) {
        double count[15] = {0}, x = 0;
        configure(kinds[k], "complete", NULL, NULL);
        hdo_mixer m = make(42, 6, 2);
        for (int64_t t = 0; t < DRAWS; t++) {
            hdo_plan p;
            hdo__mixer_plan(&m, t, &p);
            assert_int_equal(p.n_pairs, 3);
            count[matching_name(&p)]++;
        }
        for (int b = 0; b < 15; b++) x += (count[b] - DRAWS / 15.0) * (count[b] - DRAWS / 15.0) / (DRAWS / 15.0);
        double z = chi2_score(x, 14);
        print_message("%s: chi2(14) = %.2f, p = %.3f, z = %.2f\n", kinds[k], x, 0.5 * erfc(z / sqrt(2.0)), z);
        assert_true(fabs(z) < Z_MAX);
        hdo__mixer_clear(&m);
    }
}

/* The pairs are neighbours in the permutation of base/rng.h, to the bit. */
static void test_topo_matching_is_the_permutation(void **state) {
    (void)state;
    static uint32_t order[70000];
    static const int sizes[] = {1, 2, 3, 63, 64, 65, 66, 128, 129, 1000, 70000};
    configure("matching", NULL, NULL, NULL);
    for (int i = 0; i < 11; i++) {
        hdo_mixer m = make(77, sizes[i], 0);
        for (int64_t t = 0; t < 20; t++) {
            hdo_plan p;
            hdo__mixer_plan(&m, t, &p);
            hdo__rng_permutation(hdo__stream(77, HDO_RNG_MATCH, 0, (uint64_t)t, 0), (uint32_t)sizes[i], order);
            for (int k = 0; k < p.n_pairs; k++) {
                assert_int_equal(p.pairs[k].a, order[2 * k]);
                assert_int_equal(p.pairs[k].b, order[2 * k + 1]);
            }
        }
        hdo__mixer_clear(&m);
    }
}

/* Odd n: who rests is uniform too. */
static void test_topo_matching_rest_is_uniform(void **state) {
    (void)state;
    enum { N = 7, DRAWS = 70000 };
    double rest[N] = {0}, x = 0;
    configure("matching", NULL, NULL, NULL);
    hdo_mixer m = make(7, N, 2);
    for (int64_t t = 0; t < DRAWS; t++) {
        hdo_plan p;
        int sum = N * (N - 1) / 2;
        hdo__mixer_plan(&m, t, &p);
        for (int k = 0; k < p.n_pairs; k++) sum -= p.pairs[k].a + p.pairs[k].b;
        rest[sum]++;
    }
    for (int b = 0; b < N; b++) x += (rest[b] - DRAWS / N) * (rest[b] - DRAWS / N) / (DRAWS / N);
    double z = chi2_score(x, N - 1);
    print_message("chi2(6) = %.2f, z = %.2f\n", x, z);
    assert_true(fabs(z) < Z_MAX);
    hdo__mixer_clear(&m);
}

static void test_topo_pairwise_is_uniform(void **state) {
    (void)state;
    enum { N = 5, DRAWS = 100000 };
    static const char *const kinds[] = {"pairwise", "graph"};
    for (int k = 0; k < 2; k++) {
        double count[N][N] = {{0}}, x = 0;
        configure(kinds[k], "complete", "edge", NULL);
        hdo_mixer m = make(3, N, 2);
        for (int64_t t = 0; t < DRAWS; t++) {
            hdo_plan p;
            hdo__mixer_plan(&m, t, &p);
            assert_int_equal(p.n_pairs, 1);
            assert_false(p.all_step);
            count[p.pairs[0].a][p.pairs[0].b]++;
        }
        for (int a = 0; a < N; a++) {
            for (int b = 0; b < N; b++) x += a == b ? 0 : pow(count[a][b] - DRAWS / 20.0, 2) / (DRAWS / 20.0);
        }
        double z = chi2_score(x, 19); /* ordered pairs: 20 of them */
        assert_true(fabs(z) < Z_MAX);
        hdo__mixer_clear(&m);
    }
}

/* ---- every graph, mode and placement ---- */

static void check_plan(const hdo_mixer *m, const hdo_plan *p, const char *what) {
    int partner[NODES_MAX];
    for (int i = 0; i < m->n; i++) partner[i] = -1;
    for (int k = 0; k < p->n_pairs; k++) {
        int a = p->pairs[k].a, b = p->pairs[k].b;
        if (a == b || a < 0 || b < 0 || a >= m->n || b >= m->n) fail_msg("%s: pair (%d, %d)", what, a, b);
        if (partner[a] != -1 || partner[b] != -1) fail_msg("%s: %d or %d meets twice", what, a, b);
        if (m->vertex != NULL && !has_edge(&m->graph, a, b)) fail_msg("%s: (%d, %d) is no edge", what, a, b);
        partner[a] = b; /* symmetric by construction: both average with each other */
        partner[b] = a;
    }
}

/* No edge may be left with two free ends. */
static void check_maximal(const hdo_mixer *m, const hdo_plan *p, const char *what) {
    bool busy[NODES_MAX] = {false};
    for (int k = 0; k < p->n_pairs; k++) busy[p->pairs[k].a] = busy[p->pairs[k].b] = true;
    for (size_t k = 0; k < m->graph.n_edges; k++) {
        if (!busy[m->graph.edges[k].a] && !busy[m->graph.edges[k].b]) fail_msg("%s: not maximal", what);
    }
}

static void each_mixer(void (*check)(hdo_mixer *m, const char *what)) {
    for (int s = 0; s < SHAPES; s++) {
        for (int j = 0; j < 6; j++) {
            for (int k = 0; k < 3; k++) {
                for (int q = 0; q < 5; q++) {
                    char what[128];
                    int n = shapes[s].n[j];
                    snprintf(what, sizeof what, "%s n=%d %s %s", shapes[s].graph, n, modes[k], placements[q]);
                    configure("graph", shapes[s].graph, modes[k], placements[q]);
                    hdo_mixer m = make(11, n, n / 3);
                    check(&m, what);
                    hdo__mixer_clear(&m);
                }
            }
        }
    }
    static const char *const kinds[] = {"matching", "pairwise", "none", "allreduce"};
    for (int k = 0; k < 4; k++) {
        for (int n = 1; n < 10; n++) {
            configure(kinds[k], NULL, NULL, NULL);
            hdo_mixer m = make(11, n, n / 3);
            check(&m, kinds[k]);
            hdo__mixer_clear(&m);
        }
    }
}

static void plans_are_disjoint(hdo_mixer *m, const char *what) {
    for (int64_t t = 0; t < 40; t++) {
        hdo_plan p;
        hdo__mixer_plan(m, t, &p);
        check_plan(m, &p, what);
        bool edge = strcmp(m->ops->name, "graph") == 0 && m->graph_mode == HDO_GRAPH_MODE_EDGE;
        if (strcmp(m->ops->name, "graph") == 0) assert_int_equal(p.all_step, !edge);
        if (m->ops->match != NULL && m->n > 1) assert_true(p.n_pairs >= 1);
        if (m->vertex != NULL && m->graph_mode == HDO_GRAPH_MODE_MATCHING) check_maximal(m, &p, what);
    }
}

static void test_topo_pairs_are_disjoint_edges(void **state) {
    (void)state;
    each_mixer(plans_are_disjoint);
}

/* A plan depends on (seed, step) alone: not on what was asked before. */
static void plans_are_pure(hdo_mixer *m, const char *what) {
    hdo_pair first[NODES_MAX / 2 + 1];
    hdo_plan p;
    hdo__mixer_plan(m, 17, &p);
    int n = p.n_pairs;
    memcpy(first, p.pairs, (size_t)n * sizeof *first);
    for (int64_t t = 30; t > 0; t -= 7) hdo__mixer_plan(m, t, &p);
    hdo__mixer_plan(m, 17, &p);
    if (p.n_pairs != n || memcmp(first, p.pairs, (size_t)n * sizeof *first) != 0) fail_msg("%s: not pure", what);
}

static void test_topo_plans_are_pure(void **state) {
    (void)state;
    each_mixer(plans_are_pure);
}

/* Rounding of one average moves the sum of a coordinate by at most an ulp: 60 steps of at most 32 pairs stay far below
 * the limit, a lost or doubled row would not. */
static void mean_stays(hdo_mixer *m, const char *what) {
    enum { D = 5 };
    static float X[NODES_MAX][16];
    double before[D] = {0}, after[D] = {0};
    for (int i = 0; i < m->n; i++) {
        hdo__rng_normal(hdo__stream(5, HDO_RNG_TEST, (uint32_t)i, 0, 0), 0, D, X[i]);
        for (int c = 0; c < D; c++) before[c] += (double)X[i][c] / m->n;
    }
    for (int64_t t = 0; t < 60; t++) {
        hdo_plan p;
        hdo__mixer_plan(m, t, &p);
        for (int k = 0; k < p.n_pairs; k++) hdo__average(D, X[p.pairs[k].a], X[p.pairs[k].b]);
    }
    for (int i = 0; i < m->n; i++) {
        for (int c = 0; c < D; c++) after[c] += (double)X[i][c] / m->n;
    }
    for (int c = 0; c < D; c++) {
        if (!(fabs(after[c] - before[c]) < 2e-6)) fail_msg("%s: the mean moved by %g", what, after[c] - before[c]);
    }
}

static void test_topo_mixing_conserves_mean(void **state) {
    (void)state;
    each_mixer(mean_stays);
}

/* Exchange period and warm-up. */
static void test_topo_period_and_warmup(void **state) {
    (void)state;
    configure("graph", "ring", NULL, NULL);
    conf.mixing.period = 3;
    hdo_mixer m;
    assert_int_equal(hdo__mixer_init_placed(&m, &conf.mixing, 1, 8, 2, 5, NULL), HDO_OK);
    for (int64_t t = 0; t < 20; t++) {
        hdo_plan p;
        hdo__mixer_plan(&m, t, &p);
        assert_true(p.all_step);
        assert_int_equal(p.n_pairs > 0, t >= 5 && (t - 5 + 1) % 3 == 0);
    }
    hdo__mixer_clear(&m);
}

/* ---- what the graphs are ---- */

static int distance_on_ring(int a, int b, int n) {
    int d = abs(a - b);
    return d < n - d ? d : n - d;
}

static bool should_meet(const char *graph, int n, int a, int b) {
    int d = distance_on_ring(a, b, n);
    if (strcmp(graph, "ring") == 0) return d == 1;
    if (strcmp(graph, "path") == 0) return abs(a - b) == 1;
    if (strcmp(graph, "star") == 0) return a == 0 || b == 0;
    if (strcmp(graph, "hypercube") == 0) return __builtin_popcount((unsigned)(a ^ b)) == 1;
    if (strcmp(graph, "exponential") == 0) {
        for (int j = 1; j < n; j *= 2) {
            if ((a + j) % n == b || (b + j) % n == a) return true;
        }
        return false;
    }
    int rows = 1; /* torus */
    for (int r = 1; r * r <= n; r++) rows = n % r == 0 ? r : rows;
    if (strcmp(graph, "torus(2)") == 0) rows = 2;
    int cols = n / rows, dr = distance_on_ring(a / cols, b / cols, rows),
        dc = distance_on_ring(a % cols, b % cols, cols);
    return dr + dc == 1;
}

static void test_topo_graphs_have_their_edges(void **state) {
    (void)state;
    static const char *const fixed[] = {"ring", "path", "star", "hypercube", "exponential", "torus", "torus(2)"};
    for (int f = 0; f < 7; f++) {
        for (int s = 0; s < SHAPES; s++) {
            if (strcmp(shapes[s].graph, fixed[f]) != 0) continue;
            for (int j = 0; j < 6; j++) {
                int n = shapes[s].n[j];
                size_t want = 0;
                configure("graph", fixed[f], "matching", "order");
                hdo_mixer m = make(1, n, 1);
                for (int a = 0; a < n; a++) {
                    for (int b = a + 1; b < n; b++) {
                        bool meet = should_meet(fixed[f], n, a, b);
                        want += meet;
                        if (has_edge(&m.graph, a, b) != meet) fail_msg("%s n=%d: (%d, %d)", fixed[f], n, a, b);
                    }
                }
                assert_int_equal(m.graph.n_edges, want); /* each edge once */
                hdo__mixer_clear(&m);
            }
        }
    }
}

static void check_simple(const hdo_graph *g) {
    hdo_pairset set;
    assert_int_equal(hdo__pairset_init(&set, g->n_edges + 1, NULL), HDO_OK);
    for (size_t k = 0; k < g->n_edges; k++) {
        assert_true(g->edges[k].a < g->edges[k].b && g->edges[k].a >= 0 && g->edges[k].b < g->n);
        assert_true(hdo__pairset_add(&set, g->edges[k].a, g->edges[k].b));
    }
    hdo__pairset_clear(&set);
}

static void test_topo_random_graphs(void **state) {
    (void)state;
    static const int sizes[][2] = {{6, 2},  {6, 3},   {6, 4},   {6, 5},    {9, 6},
                                   {50, 3}, {50, 30}, {51, 48}, {1000, 5}, {20000, 4}};
    for (int i = 0; i < 10; i++) {
        char graph[32];
        int n = sizes[i][0], k = sizes[i][1];
        snprintf(graph, sizeof graph, "random-regular(%d)", k);
        configure("graph", graph, NULL, NULL);
        hdo_mixer m = make(5, n, 1);
        assert_int_equal(m.graph.degree_min, k);
        assert_int_equal(m.graph.degree_max, k);
        if (!m.graph.complete) assert_int_equal(m.graph.n_edges, n * k / 2);
        check_simple(&m.graph);
        hdo__mixer_clear(&m);
    }
    static const double ps[] = {0.02, 0.3, 0.5, 0.7};
    for (int i = 0; i < 4; i++) { /* number of edges: binomial */
        char graph[32];
        snprintf(graph, sizeof graph, "erdos-renyi(%g)", ps[i]);
        configure("graph", graph, NULL, NULL);
        hdo_mixer m = make(5, 500, 1);
        double pairs = 500 * 499 / 2.0,
               z = ((double)m.graph.n_edges - pairs * ps[i]) / sqrt(pairs * ps[i] * (1 - ps[i]));
        print_message("%s: %zu edges, z = %.2f\n", graph, m.graph.n_edges, z);
        assert_true(fabs(z) < Z_MAX);
        check_simple(&m.graph);
        hdo__mixer_clear(&m);
    }
    static const double betas[] = {0.0, 0.2, 1.0};
    for (int i = 0; i < 3; i++) { /* edges that left the ring of neighbours: binomial */
        char graph[32];
        enum { N = 2000, K = 6 };
        snprintf(graph, sizeof graph, "small-world(%g)", betas[i]);
        configure("graph", graph, NULL, "order");
        conf.mixing.degree = K;
        hdo_mixer m = make(5, N, 1);
        double moved = 0, all = N * K / 2;
        assert_int_equal(m.graph.n_edges, N * K / 2);
        for (size_t k = 0; k < m.graph.n_edges; k++) {
            moved += distance_on_ring(m.graph.edges[k].a, m.graph.edges[k].b, N) > K / 2;
        }
        if (betas[i] <= 0.0) assert_true(moved == 0);
        if (betas[i] >= 1.0) assert_true(moved == all);
        if (betas[i] > 0.0 && betas[i] < 1.0) {
            assert_true(fabs(moved - all * betas[i]) / sqrt(all * betas[i] * (1 - betas[i])) < Z_MAX);
        }
        check_simple(&m.graph);
        hdo__mixer_clear(&m);
    }
}

/* There are 70 labelled 3-regular graphs on 6 nodes: 60 prisms and 10 times K33. */
static void test_topo_random_regular_is_nearly_uniform(void **state) {
    (void)state;
    enum { DRAWS = 14000 };
    int prisms = 0;
    configure("graph", "random-regular(3)", NULL, "order");
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        hdo_mixer m = make(seed, 6, 1);
        bool triangle = false; /* K33 has none */
        for (int a = 0; a < 6; a++) {
            for (int b = a + 1; b < 6; b++) {
                for (int c = b + 1; c < 6; c++) {
                    triangle |= has_edge(&m.graph, a, b) && has_edge(&m.graph, b, c) && has_edge(&m.graph, a, c);
                }
            }
        }
        prisms += triangle;
        hdo__mixer_clear(&m);
    }
    double share = (double)prisms / DRAWS;
    print_message("prisms: %.4f, uniform would be %.4f\n", share, 6.0 / 7.0);
    assert_true(fabs(share - 6.0 / 7.0) < 0.05); /* Steger and Wormald promise it for large n only */
}

static void test_topo_refuses_with_a_sentence(void **state) {
    (void)state;
    static const struct {
        const char *graph, *mode;
        int n, degree;
        const char *says;
    } bad[] = {
        {"torus", "matching", 7, 4, "torus needs n = rows x columns with at least 2 of each, but 7 nodes cannot"},
        {"torus(4)", "matching", 6, 4, "torus(4), but 6 nodes do not fill 4 rows"},
        {"hypercube", "matching", 12, 4, "power of two of nodes, but the population has 12; the nearest are 8 and 16"},
        {"random-regular(3)", "matching", 7, 4, "nodes x degree must be even"},
        {"random-regular(8)", "matching", 8, 4, "a node has at most 7 others"},
        {"random-regular(1)", "matching", 8, 4, "not connected in any of 32 draws: it falls into 4 parts"},
        {"erdos-renyi(0.001)", "matching", 100, 4, "ln(n)/n = 0.046"},
        {"erdos-renyi(0.5)", "matching", 1000000, 4, "use mixing.graph: complete"},
        {"small-world(0.1)", "matching", 10, 3, "needs an even degree below 10"},
        {"small-world(0.1)", "matching", 4, 4, "needs an even degree below 4"},
        {"star", "colour", 50, 4, "a node has 49 neighbours"},
        {"file", "edge", 5, 4, "mixing.edges does not name one"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hdo_mixer m;
        hdo_error e;
        configure("graph", bad[i].graph, bad[i].mode, "spread");
        conf.mixing.degree = bad[i].degree;
        assert_int_equal(hdo__mixer_init_placed(&m, &conf.mixing, 1, bad[i].n, 1, 0, &e), HDO_E_CONFIG);
        if (strstr(e.msg, bad[i].says) == NULL) fail_msg("%s: %s", bad[i].graph, e.msg);
        assert_null(m.ops); /* cleared */
    }
    hdo_mixer m;
    assert_int_equal(hdo__mixer_init(&m, &conf.mixing, 1, 8, 0, NULL), HDO_E_UNSUPPORTED); /* spread, but of whom? */
}

/* ---- edge lists ---- */

static hdo_status from_text(const char *text, int n, hdo_mixer *m, hdo_error *e) {
    char path[] = "/tmp/hdo_edges_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    configure("graph", "file", NULL, "order");
    set("mixing.edges", path);
    hdo_status st = hdo__mixer_init_placed(m, &conf.mixing, 1, n, 1, 0, e);
    unlink(path);
    return st;
}

static void test_topo_edge_list(void **state) {
    (void)state;
    hdo_mixer m;
    hdo_error e;
    assert_int_equal(from_text("# a square with a tail\n0 1\n 1,2\r\n2\t3 % comment\n\n3 , 0\n1 0\n3 4", 5, &m, &e),
                     HDO_OK);
    assert_int_equal(m.graph.n_edges, 5);
    assert_true(has_edge(&m.graph, 0, 1) && has_edge(&m.graph, 1, 2) && has_edge(&m.graph, 2, 3));
    assert_true(has_edge(&m.graph, 0, 3) && has_edge(&m.graph, 3, 4) && !has_edge(&m.graph, 0, 2));
    hdo__mixer_clear(&m);
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"0 1\n1 2\n2 x\n", ":3: a line must hold two vertex numbers such as '3 17', but here is 'x'"},
        {"0 1\n1\n", ":2: a line must hold two vertex numbers"},
        {"0 1 0.5\n", ":1: two vertex numbers make a line, but '0.5' follows"},
        {"0 1\n\n# c\n-1 2\n", ":4: a line must hold"},
        {"0 1\n1 5\n", ":2: vertex 5 does not exist: 5 nodes have the vertices 0 to 4"},
        {"0 99999999999999999999\n", ":1: vertex 99999999999999999999 does not exist"},
        {"3 3\n", ":1: vertex 3 is joined to itself"},
        {"0 1\n3 4\n", "not connected: it falls into 3 parts, and vertex 2 cannot be reached"},
        {"", "falls into 5 parts"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(from_text(bad[i].text, 5, &m, &e), HDO_E_CONFIG);
        if (strstr(e.msg, bad[i].says) == NULL) fail_msg("'%s': %s", bad[i].text, e.msg);
    }
    configure("graph", "file", NULL, NULL);
    set("mixing.edges", "/nowhere/edges.txt");
    assert_int_equal(hdo__mixer_init_placed(&m, &conf.mixing, 1, 5, 1, 0, &e), HDO_E_IO);
    assert_non_null(strstr(e.msg, "/nowhere/edges.txt"));
}

/* ---- placement ---- */

static void placed_well(hdo_mixer *m, const char *what) {
    bool seen[NODES_MAX] = {false};
    if (m->vertex == NULL) return;
    for (int i = 0; i < m->n; i++) {
        if (m->vertex[i] >= (uint32_t)m->n || seen[m->vertex[i]]) fail_msg("%s: not a permutation", what);
        seen[m->vertex[i]] = true;
    }
}

static void test_topo_placement_is_a_permutation(void **state) {
    (void)state;
    each_mixer(placed_well);
}

static void seats(const char *graph, const char *placement, int n, int k, uint32_t *seat) {
    configure("graph", graph, NULL, placement);
    hdo_mixer m = make(9, n, k);
    memcpy(seat, m.vertex, (size_t)k * sizeof *seat);
    /* The edges moved along with the nodes: vertex names restored, they are the same graph. */
    configure("graph", graph, NULL, "order");
    hdo_mixer plain = make(9, n, k);
    assert_int_equal(m.graph.n_edges, plain.graph.n_edges);
    for (size_t q = 0; q < m.graph.n_edges; q++) {
        assert_true(has_edge(&plain.graph, (int)m.vertex[m.graph.edges[q].a], (int)m.vertex[m.graph.edges[q].b]));
    }
    hdo__mixer_clear(&m);
    hdo__mixer_clear(&plain);
}

static void test_topo_placement(void **state) {
    (void)state;
    uint32_t s[64];
    seats("ring", "spread", 16, 4, s); /* evenly around */
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(s[i], 4 * i);
    seats("path", "spread", 15, 3, s); /* the middles of three thirds */
    assert_true(s[0] == 2 && s[1] == 7 && s[2] == 12);
    seats("torus", "spread", 64, 4, s); /* 8 x 8: no two closer than 4 */
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < i; j++) {
            int d =
                distance_on_ring((int)s[i] / 8, (int)s[j] / 8, 8) + distance_on_ring((int)s[i] % 8, (int)s[j] % 8, 8);
            assert_true(d >= 4);
        }
    }
    seats("hypercube", "spread", 16, 2, s); /* opposite corners */
    assert_int_equal(s[0] ^ s[1], 15);
    seats("ring", "clustered", 16, 5, s); /* an arc around 0 */
    for (int i = 0; i < 5; i++) assert_true(distance_on_ring((int)s[i], 0, 16) <= 2);
    seats("torus", "clustered", 36, 5, s); /* a plus */
    for (int i = 1; i < 5; i++) assert_true(should_meet("torus", 36, 0, (int)s[i]));
    seats("star", "hub", 10, 1, s);
    assert_int_equal(s[0], 0);
    seats("path", "hub", 10, 8, s); /* the ends come last */
    for (int i = 0; i < 8; i++) assert_true(s[i] != 0 && s[i] != 9);
    seats("erdos-renyi(0.2)", "hub", 40, 10, s); /* degrees fall along the seats and below them */
    configure("graph", "erdos-renyi(0.2)", NULL, "order");
    hdo_mixer m = make(9, 40, 10);
    int degree[40] = {0}, lowest;
    for (size_t q = 0; q < m.graph.n_edges; q++) {
        degree[m.graph.edges[q].a]++;
        degree[m.graph.edges[q].b]++;
    }
    for (int i = 1; i < 10; i++) assert_true(degree[s[i]] <= degree[s[i - 1]]);
    lowest = degree[s[9]];
    for (int v = 0; v < 40; v++) {
        bool in = false;
        for (int i = 0; i < 10; i++) in |= s[i] == (uint32_t)v;
        assert_true(in || degree[v] <= lowest);
    }
    hdo__mixer_clear(&m);
    seats("ring", "random", 64, 64, s);
    int fixed = 0;
    for (uint32_t i = 0; i < 64; i++) fixed += s[i] == i;
    assert_true(fixed < 8); /* Poisson with mean one */
}

/* ---- how fast it mixes ---- */

/* Second largest eigenvalue of a symmetric matrix, all eigenvalues by Jacobi's rotations. */
static double second_eigenvalue(int n, double A[16][16]) {
    for (int sweep = 0; sweep < 100; sweep++) {
        for (int p = 0; p < n; p++) {
            for (int q = p + 1; q < n; q++) {
                if (fabs(A[p][q]) < 1e-300) continue;
                double theta = (A[q][q] - A[p][p]) / (2 * A[p][q]);
                double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1),
                       s = t * c;
                for (int k = 0; k < n; k++) {
                    double x = A[k][p], y = A[k][q];
                    A[k][p] = c * x - s * y;
                    A[k][q] = s * x + c * y;
                }
                for (int k = 0; k < n; k++) {
                    double x = A[p][k], y = A[q][k];
                    A[p][k] = c * x - s * y;
                    A[q][k] = s * x + c * y;
                }
            }
        }
    }
    double first = -1e9, second = -1e9;
    for (int i = 0; i < n; i++) {
        if (A[i][i] > first) {
            second = first;
            first = A[i][i];
        } else if (A[i][i] > second) {
            second = A[i][i];
        }
    }
    return second;
}

/* Exact probability of every edge under random greedy matching: chance flows from the set of all edges to the sets that
 * are left, each alive edge being next with equal chance. */
static void exact_probabilities(const hdo_graph *g, double *p) {
    size_t E = g->n_edges, sets = (size_t)1 << E;
    assert_true(E <= 20);
    double *mass = calloc(sets, sizeof *mass);
    assert_non_null(mass);
    mass[sets - 1] = 1;
    for (size_t k = 0; k < E; k++) p[k] = 0;
    for (size_t set_ = sets - 1; set_ > 0; set_--) {
        if (mass[set_] <= 0) continue;
        double each = mass[set_] / __builtin_popcountl(set_);
        for (size_t k = 0; k < E; k++) {
            if (!(set_ >> k & 1)) continue;
            size_t left = set_;
            for (size_t j = 0; j < E; j++) {
                hdo_pair x = g->edges[k], y = g->edges[j];
                if (x.a == y.a || x.a == y.b || x.b == y.a || x.b == y.b) left &= ~((size_t)1 << j);
            }
            p[k] += each;
            mass[left] += each;
        }
    }
    free(mass);
}

static double exact_lambda(const hdo_mixer *m) {
    double W[16][16] = {{0}}, p[32];
    for (int i = 0; i < m->n; i++) W[i][i] = 1;
    if (m->graph_mode == HDO_GRAPH_MODE_MATCHING) {
        exact_probabilities(&m->graph, p);
    } else {
        double each = 1.0 / (m->graph_mode == HDO_GRAPH_MODE_EDGE ? (double)m->graph.n_edges : (double)m->n_colours);
        for (size_t k = 0; k < m->graph.n_edges; k++) p[k] = each;
    }
    for (size_t k = 0; k < m->graph.n_edges; k++) {
        int a = m->graph.edges[k].a, b = m->graph.edges[k].b;
        W[a][a] -= p[k] / 2;
        W[b][b] -= p[k] / 2;
        W[a][b] += p[k] / 2;
        W[b][a] += p[k] / 2;
    }
    return second_eigenvalue(m->n, W);
}

static const struct {
    const char *graph;
    int n;
} small[] = {
    {"ring", 8},
    {"ring", 7},
    {"ring", 3},
    {"path", 6},
    {"path", 9},
    {"star", 6},
    {"torus", 6},
    {"torus", 8},
    {"torus", 9},
    {"hypercube", 8},
    {"exponential", 5},
    {"exponential", 6},
    {"random-regular(3)", 8},
    {"erdos-renyi(0.4)", 8},
    {"small-world(0.3)", 9},
};

static void test_topo_lambda_against_dense(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        for (int k = 0; k < 3; k++) {
            configure("graph", small[i].graph, modes[k], "random");
            hdo_mixer m = make(2, small[i].n, 2);
            hdo_spectrum s = spectrum_of(&m);
            double want = exact_lambda(&m), off = s.lambda - want;
            print_message("%-18s n=%d %-8s lambda %.6f exact %.6f (%s, +- %.1e)\n", small[i].graph, small[i].n,
                          modes[k], s.lambda, want, hdo__spectrum_how_name(s.how), s.error);
            /* sampled: 4096 steps; the stated error is a standard deviation from two halves, itself uncertain */
            double limit = s.how == HDO_SPECTRUM_SAMPLED ? 3 * s.error + 0.006 : 1e-9;
            assert_true(fabs(off) < limit);
            assert_true(s.lambda >= 0 && s.lambda < 1);
            hdo__mixer_clear(&m);
        }
    }
}

/* The law of the greedy matching itself: edges come as often as the exact computation says. */
static void test_topo_greedy_matching_has_its_law(void **state) {
    (void)state;
    enum { DRAWS = 40000 };
    static const char *const graphs[] = {"path", "torus(2)", "erdos-renyi(0.5)", "exponential"};
    double worst = 0;
    for (int i = 0; i < 4; i++) {
        double p[32], count[32] = {0};
        configure("graph", graphs[i], "matching", "order");
        hdo_mixer m = make(21, 6, 1);
        exact_probabilities(&m.graph, p);
        for (int64_t t = 0; t < DRAWS; t++) {
            int found = hdo__graph_match(&m.graph, hdo__stream(m.seed, HDO_RNG_MATCH, 0, (uint64_t)t, 0), m.scratch);
            for (int k = 0; k < found; k++) count[m.scratch[k]]++;
        }
        for (size_t k = 0; k < m.graph.n_edges; k++) {
            double z = (count[k] - DRAWS * p[k]) / sqrt(DRAWS * p[k] * (1 - p[k]) + 1e-9);
            if (fabs(z) > worst) worst = fabs(z);
        }
        hdo__mixer_clear(&m);
    }
    print_message("largest |z| over edges: %.2f\n", worst);
    assert_true(worst < Z_MAX);
}

static double lambda_of(const char *kind, const char *graph, const char *mode, int n) {
    configure(kind, graph, mode, NULL);
    hdo_mixer m = make(1, n, 1);
    hdo_spectrum s = spectrum_of(&m);
    hdo__mixer_clear(&m);
    return s.lambda;
}

/* Known answers of docs/theory.md 6.2, seven digits. */
static void test_topo_lambda_known_answers(void **state) {
    (void)state;
    static const struct {
        const char *kind, *graph, *mode;
        int n;
        double lambda;
    } known[] = {
        {"graph", "ring", "edge", 8, 0.9633883},   {"graph", "ring", "edge", 16, 0.9952425},
        {"graph", "ring", "colour", 8, 0.8535534}, {"graph", "ring", "colour", 16, 0.9619398},
        {"matching", NULL, NULL, 8, 0.4285714},    {"graph", "complete", "matching", 8, 0.4285714},
        {"pairwise", NULL, NULL, 8, 0.8571429},    {"graph", "complete", "edge", 8, 0.8571429},
        {"matching", NULL, NULL, 7, 0.5},          {"none", NULL, NULL, 8, 1.0},
        {"allreduce", NULL, NULL, 8, 0.0},         {"graph", "ring", "matching", 2, 0.0},
        {"graph", "star", "edge", 11, 0.95},       {"graph", "hypercube", "edge", 8, 1.0 - 1.0 / 12},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        double got = lambda_of(known[i].kind, known[i].graph, known[i].mode, known[i].n);
        if (!(fabs(got - known[i].lambda) < 5e-8)) fail_msg("known answer %zu: %.9f", i, got);
    }
    assert_true(fabs(hdo_theory_lambda_ring_third(8) - 0.647603) < 5e-7);
    assert_true(fabs(hdo_theory_lambda_ring_third(16) - 0.9010813) < 5e-8);
}

/* Matchings shrink the distance from the mean by lambda or faster: Gamma of random vectors, averaged over steps. */
static void test_topo_lambda_bounds_contraction(void **state) {
    (void)state;
    enum { N = 12, TRIES = 20000 };
    static const char *const graphs[] = {"complete", "ring", "torus", "star"};
    for (int i = 0; i < 4; i++) {
        configure("graph", graphs[i], "matching", "order");
        hdo_mixer m = make(4, N, 1);
        hdo_spectrum s = spectrum_of(&m);
        double x[N], sum = 0, all = 0;
        for (int k = 0; k < N; k++) { /* the slow mode of a ring; on the complete graph every vector is slow */
            x[k] = cos(2 * 3.14159265358979324 * k / N);
            all += x[k] * x[k];
        }
        for (int64_t t = 0; t < TRIES; t++) {
            hdo_plan p;
            double y = all;
            hdo__mixer_plan(&m, t, &p);
            for (int k = 0; k < p.n_pairs; k++) y -= 0.5 * pow(x[p.pairs[k].a] - x[p.pairs[k].b], 2);
            sum += y / all;
        }
        double factor = sum / TRIES;
        print_message("%s: measured factor %.5f, lambda %.5f\n", graphs[i], factor, s.lambda);
        assert_true(factor <= s.lambda + 4 * 0.3 / sqrt(TRIES)); /* one factor lies in [0, 1]: deviation below 0.3 */
        if (i < 2) assert_true(factor >= s.lambda - 4 * 0.3 / sqrt(TRIES));
        hdo__mixer_clear(&m);
    }
}

static void test_topo_gap_known_answers(void **state) {
    (void)state;
    static const struct {
        const char *graph;
        int n;
        double gap;
    } known[] = {
        {"complete", 8, 8.0 / 7},
        {"ring", 8, 0.2928932188},
        {"hypercube", 64, 1.0 / 3},
        {"star", 9, 1.0},
        {"torus", 64, (2 - 2 * 0.7071067812) / 4},
        {"path", 5, 0.2928932188},
        {"random-regular(7)", 8, 8.0 / 7},
        {"torus(2)", 6, 2.0 / 3}, /* prism: 2 and 3 are the smallest of its Laplacian */
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        configure("graph", known[i].graph, "edge", NULL);
        hdo_mixer m = make(1, known[i].n, 1);
        hdo_spectrum s = spectrum_of(&m);
        if (!(fabs(s.gap - known[i].gap) < 1e-8)) fail_msg("%s: gap %.10f", known[i].graph, s.gap);
        hdo__mixer_clear(&m);
    }
}

/* Large populations: formulas still answer, the rest says so, and nothing needs n^2 memory. */
static void test_topo_large(void **state) {
    (void)state;
    enum { N = 200000 };
    static const char *const graphs[] = {"complete",         "ring", "star", "path", "torus", "exponential",
                                         "random-regular(4)"};
    for (int i = 0; i < 7; i++) {
        configure("graph", graphs[i], "matching", "spread");
        hdo_mixer m = make(1, N, 1000);
        hdo_plan p;
        hdo__mixer_plan(&m, 3, &p);
        assert_true(p.n_pairs >= 1);
        hdo_spectrum s = spectrum_of(&m);
        assert_int_equal(isnan(s.lambda), i >= 3);
        assert_int_equal(s.how, i >= 3 ? HDO_SPECTRUM_SKIPPED : HDO_SPECTRUM_CLOSED);
        hdo__mixer_clear(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_topo_matching_is_uniform),
        cmocka_unit_test(test_topo_matching_is_the_permutation),
        cmocka_unit_test(test_topo_matching_rest_is_uniform),
        cmocka_unit_test(test_topo_pairwise_is_uniform),
        cmocka_unit_test(test_topo_pairs_are_disjoint_edges),
        cmocka_unit_test(test_topo_plans_are_pure),
        cmocka_unit_test(test_topo_mixing_conserves_mean),
        cmocka_unit_test(test_topo_period_and_warmup),
        cmocka_unit_test(test_topo_graphs_have_their_edges),
        cmocka_unit_test(test_topo_random_graphs),
        cmocka_unit_test(test_topo_random_regular_is_nearly_uniform),
        cmocka_unit_test(test_topo_refuses_with_a_sentence),
        cmocka_unit_test(test_topo_edge_list),
        cmocka_unit_test(test_topo_placement_is_a_permutation),
        cmocka_unit_test(test_topo_placement),
        cmocka_unit_test(test_topo_lambda_against_dense),
        cmocka_unit_test(test_topo_greedy_matching_has_its_law),
        cmocka_unit_test(test_topo_lambda_known_answers),
        cmocka_unit_test(test_topo_lambda_bounds_contraction),
        cmocka_unit_test(test_topo_gap_known_answers),
        cmocka_unit_test(test_topo_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
