/* SPDX-License-Identifier: Apache-2.0 — nodes that come and go, against the law of their chain; places on an irregular
 * graph from a file; what a spectrum says about degrees. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "folder_help.h"
#include "topo/churn.h"

enum { N = 4000 };
#define Z_MAX 4.5 /* a few dozen comparisons; seeds are fixed */

static hdo_config conf;

static void set(const char *key, const char *value) {
    hdo_error e;
    if (hdo_config_set_from(&conf, key, value, HDO_FROM_FLAG, &e) != HDO_OK) fail_msg("%s=%s: %s", key, value, e.msg);
}

static void start(hdo_churn *c, uint64_t seed, int n) {
    hdo_error e = {0};
    conf.seed = (int64_t)seed;
    if (hdo__churn_init(c, &conf, n, &e) != HDO_OK) fail_msg("%s", e.msg);
}

static void assert_share(double count, double n, double p) {
    double z = (count - n * p) / sqrt(n * p * (1.0 - p));
    if (!(fabs(z) < Z_MAX)) fail_msg("%g of %g, expected a share of %g: z = %g", count, n, p, z);
}

/* ---- churn ---- */

static void test_churn_presence_is_its_chain(void **state) {
    (void)state;
    static int32_t back[N];
    static bool was[N];
    hdo_churn c;
    hdo_config_default(&conf);
    set("churn.leave", "0.1");
    set("churn.back", "0.3");
    start(&c, 3, N);
    assert_true(c.active);
    double p = 0.0;
    for (int64_t t = 0; t < 12; t++) {
        for (int i = 0; i < N; i++) was[i] = hdo__churn_away(&c, t, i);
        int returned = hdo__churn_step(&c, t, back), away = 0, left = 0, stay = 0, at = 0;
        for (int i = 0; i < N; i++) {
            bool is = hdo__churn_away(&c, t, i);
            away += is;
            left += is && !was[i];
            stay += is && was[i];
            if (was[i] && !is) assert_int_equal(back[at++], i); /* in order, and nobody else */
        }
        assert_int_equal(at, returned);
        assert_share(left, N - (stay + returned), 0.1);
        if (stay + returned > 100) assert_share(returned, stay + returned, 0.3);
        p = p * 0.7 + (1.0 - p) * 0.1;
        assert_share(away, N, p);
    }
    hdo__churn_clear(&c);
}

static void test_churn_certain_and_never(void **state) {
    (void)state;
    int32_t back[8], list[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    hdo_churn c;
    hdo_config_default(&conf);
    start(&c, 1, 8);
    assert_false(c.active);
    assert_int_equal(hdo__churn_step(&c, 0, back), 0);
    assert_int_equal(hdo__churn_filter_nodes(&c, 0, list, 8), 8);
    hdo__churn_clear(&c);
    set("churn.leave", "1");
    set("churn.back", "1");
    start(&c, 1, 8);
    for (int64_t t = 0; t < 6; t++) { /* away, back, away, ... all together */
        assert_int_equal(hdo__churn_step(&c, t, back), t % 2 == 1 ? 8 : 0);
        assert_int_equal(hdo__churn_filter_nodes(&c, t, list, 8), t % 2 == 1 ? 8 : 0);
    }
    hdo__churn_clear(&c);
}

static void test_churn_lost_messages(void **state) {
    (void)state;
    static hdo_pair pairs[N];
    static bool lost[2][N];
    hdo_churn c;
    hdo_config_default(&conf);
    set("churn.loss", "0.3");
    start(&c, 3, 2 * N);
    assert_true(c.active);
    for (int64_t t = 0; t < 2; t++) {
        for (int k = 0; k < N; k++) pairs[k] = (hdo_pair){2 * k, 2 * k + 1};
        int kept = hdo__churn_filter_pairs(&c, t, pairs, N), at = 0;
        for (int k = 0; k < N; k++) {
            lost[t][k] = at >= kept || pairs[at].a != 2 * k;
            if (!lost[t][k]) assert_int_equal(pairs[at++].b, 2 * k + 1);
        }
        assert_int_equal(at, kept);
        assert_share(kept, N, 0.7);
    }
    int both = 0;
    for (int k = 0; k < N; k++) both += lost[0][k] && lost[1][k];
    assert_share(both, N, 0.09); /* steps are independent */
    int32_t list[3] = {5, 6, 7};
    assert_int_equal(hdo__churn_filter_nodes(&c, 0, list, 3), 3); /* it concerns messages, not steps */
    hdo__churn_clear(&c);
}

static void test_churn_stragglers(void **state) {
    (void)state;
    static int32_t list[N];
    static hdo_pair pairs[N];
    hdo_churn c;
    hdo_config_default(&conf);
    set("churn.straggle", "0.2");
    set("churn.loss", "0.2");
    start(&c, 4, 2 * N);
    for (int i = 0; i < N; i++) {
        list[i] = i;
        pairs[i] = (hdo_pair){2 * i, 2 * i + 1};
    }
    int kept = hdo__churn_filter_nodes(&c, 9, list, N), met = hdo__churn_filter_pairs(&c, 9, pairs, N), both = 0;
    assert_share(kept, N, 0.8);
    for (int i = 0; i < kept; i++) assert_true(i == 0 || list[i] > list[i - 1]);
    for (int i = 0, k = 0; i < kept; i++) {
        while (k < met && pairs[k].a < 2 * list[i]) k++;
        both += k < met && pairs[k].a == 2 * list[i];
    }
    assert_share(both, N, 0.64); /* step and message have numbers of their own */
    for (int i = 0; i < N; i++) assert_false(hdo__churn_away(&c, 9, i));
    hdo__churn_clear(&c);
}

static void test_churn_outage(void **state) {
    (void)state;
    int32_t back[10];
    hdo_error e = {0};
    hdo_churn c;
    hdo_config_default(&conf);
    assert_int_equal(hdo_config_population(&conf, "4fo+6zo", &e), HDO_OK);
    set("churn.outage", "zo");
    set("churn.outage_from", "3");
    set("churn.outage_to", "5");
    start(&c, 1, 10);
    assert_true(c.active);
    for (int64_t t = 0; t < 8; t++) {
        int n = hdo__churn_step(&c, t, back);
        assert_int_equal(n, t == 5 ? 6 : 0);
        for (int k = 0; k < n; k++) assert_int_equal(back[k], 4 + k);
        for (int i = 0; i < 10; i++) assert_int_equal(hdo__churn_away(&c, t, i), i >= 4 && (t == 3 || t == 4));
        hdo_pair pairs[3] = {{0, 1}, {2, 4}, {5, 3}};
        assert_int_equal(hdo__churn_filter_pairs(&c, t, pairs, 3), t == 3 || t == 4 ? 1 : 3);
    }
    hdo__churn_clear(&c);
    set("churn.outage", "nosuch");
    assert_int_equal(hdo__churn_init(&c, &conf, 10, &e), HDO_E_CONFIG);
    assert_non_null(strstr(e.msg, "churn.outage names class 'nosuch'"));
}

/* ---- places ---- */

/* Two stars, around 7 (six edges) and 3 (five), joined; a tail 11, 12, 13, 10 hangs from 3. */
static const hdo_pair joined[] = {{7, 0}, {7, 1}, {7, 2},  {7, 8},   {7, 9},   {13, 10}, {3, 4},
                                  {3, 5}, {3, 6}, {3, 11}, {11, 12}, {12, 13}, {3, 7}};
enum { JOINED = 14 };

static hdo_mixer joined_graph(const char *placement, int n_first) {
    char path[64];
    hdo_mixer m;
    hdo_error e;
    snprintf(path, sizeof path, "%s/edges", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t k = 0; k < sizeof joined / sizeof joined[0]; k++) fprintf(f, "%d %d\n", joined[k].a, joined[k].b);
    fclose(f);
    hdo_config_default(&conf);
    set("mixing.kind", "graph");
    set("mixing.graph", "file");
    set("mixing.edges", path);
    set("mixing.placement", placement);
    if (hdo__mixer_init_placed(&m, &conf.mixing, 5, JOINED, n_first, 0, &e) != HDO_OK) fail_msg("%s", e.msg);
    return m;
}

static void test_places_on_an_irregular_graph(void **state) {
    (void)state;
    hdo_mixer m = joined_graph("hub", 3);
    assert_int_equal(m.vertex[0], 7);
    assert_int_equal(m.vertex[1], 3);
    assert_true(m.vertex[2] >= 11 && m.vertex[2] <= 13); /* the only others with two edges */
    hdo__mixer_clear(&m);
    m = joined_graph("spread", 2); /* starts where most edges meet; 10 is farthest from there */
    assert_int_equal(m.vertex[0], 7);
    assert_int_equal(m.vertex[1], 10);
    hdo__mixer_clear(&m);
    m = joined_graph("clustered", 7); /* a ball around vertex 0: its neighbour, then all of that one's */
    assert_int_equal(m.vertex[0], 0);
    assert_int_equal(m.vertex[1], 7);
    for (int i = 2; i < 7; i++) {
        uint32_t v = m.vertex[i];
        assert_true(v == 1 || v == 2 || v == 3 || v == 8 || v == 9);
    }
    hdo__mixer_clear(&m);
    m = joined_graph("order", 3); /* edges keep their names */
    for (int i = 0; i < JOINED; i++) assert_int_equal(m.vertex[i], i);
    assert_int_equal(m.graph.n_edges, sizeof joined / sizeof joined[0]);
    assert_int_equal(m.graph.degree_min, 1);
    assert_int_equal(m.graph.degree_max, 6);
    hdo__mixer_clear(&m);
}

static void test_degrees_in_a_spectrum(void **state) {
    (void)state;
    static const struct {
        const char *kind, *graph;
        int n, least, most;
        int64_t edges;
    } cases[] = {
        {"matching", NULL, 9, 8, 8, 36},     {"pairwise", NULL, 2, 1, 1, 1},  {"graph", "complete", 6, 5, 5, 15},
        {"graph", "path", 7, 1, 2, 6},       {"graph", "star", 8, 1, 7, 7},   {"graph", "ring", 5, 2, 2, 5},
        {"graph", "torus(3)", 12, 4, 4, 24}, {"allreduce", NULL, 4, 3, 3, 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdo_mixer m;
        hdo_spectrum s;
        hdo_error e;
        hdo_config_default(&conf);
        set("mixing.kind", cases[i].kind);
        if (cases[i].graph != NULL) set("mixing.graph", cases[i].graph);
        if (hdo__mixer_init_placed(&m, &conf.mixing, 5, cases[i].n, 1, 0, &e) != HDO_OK) fail_msg("%s", e.msg);
        assert_int_equal(hdo__mixer_spectrum(&m, &s), HDO_OK);
        assert_int_equal(s.edges, cases[i].edges);
        assert_int_equal(s.degree_min, cases[i].least);
        assert_int_equal(s.degree_max, cases[i].most);
        hdo__mixer_clear(&m);
    }
}

static void test_disconnected_graphs_say_what_to_do(void **state) {
    (void)state;
    static const struct {
        const char *graph, *says;
    } cases[] = {
        {"random-regular(1)", "; a degree of 3 or more almost always does it"},
        {"erdos-renyi(0.01)", "; 40 nodes need an edge probability well above ln(n)/n = 0.092"},
        {"file", "; add edges to '"},
    };
    char path[64];
    snprintf(path, sizeof path, "%s/two", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("0 1\n2 3\n", f);
    fclose(f);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hdo_graph g;
        hdo_error e = {0};
        hdo_config_default(&conf);
        set("mixing.kind", "graph");
        set("mixing.graph", cases[i].graph);
        if (strcmp(cases[i].graph, "file") == 0) set("mixing.edges", path);
        assert_int_equal(hdo__graph_build(&g, &conf.mixing, 5, 40, &e), HDO_E_CONFIG);
        assert_int_equal(e.code, HDO_E_CONFIG);
        if (strstr(e.msg, cases[i].says) == NULL) fail_msg("'%s' does not say '%s'", e.msg, cases[i].says);
        assert_null(g.edges);
    }
}

/* Too many edges are refused before any of them is made: a million nodes, more than 2^26 edges. */
static void test_too_many_edges_are_refused(void **state) {
    (void)state;
    static const char *const graphs[] = {"random-regular(200)", "erdos-renyi(0.001)", "small-world(0.1)"};
    for (size_t i = 0; i < sizeof graphs / sizeof graphs[0]; i++) {
        hdo_graph g;
        hdo_error e = {0};
        hdo_config_default(&conf);
        set("mixing.kind", "graph");
        set("mixing.graph", graphs[i]);
        conf.mixing.degree = 200;
        assert_int_equal(hdo__graph_build(&g, &conf.mixing, 5, 1000000, &e), HDO_E_CONFIG);
        assert_non_null(strstr(e.msg, "edges"));
        assert_null(g.edges);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_churn_presence_is_its_chain),
        cmocka_unit_test(test_churn_certain_and_never),
        cmocka_unit_test(test_churn_lost_messages),
        cmocka_unit_test(test_churn_stragglers),
        cmocka_unit_test(test_churn_outage),
        cmocka_unit_test(test_places_on_an_irregular_graph),
        cmocka_unit_test(test_too_many_edges_are_refused),
        cmocka_unit_test(test_degrees_in_a_spectrum),
        cmocka_unit_test(test_disconnected_graphs_say_what_to_do),
    };
    return cmocka_run_group_tests_name("topo_more", tests, make_folder, remove_folder);
}
