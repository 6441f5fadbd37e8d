/* SPDX-License-Identifier: Apache-2.0
 *
 * Who meets whom. A mixer is a pure function of (seed, step): every thread and every rank computes the same plan for
 * itself, so no coordinator exists.
 */
#ifndef HDO_TOPO_MIXER_H
#define HDO_TOPO_MIXER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "hdo/experimental/config.h"
#include "config/names.h"
#include "topo/graph.h"

typedef struct hdo_plan {  /* what happens in one step */
    const hdo_pair *pairs; /* disjoint */
    int n_pairs;
    bool all_step;  /* every node takes a local step; otherwise only the nodes in pairs */
    bool allreduce; /* all nodes take the exact mean instead of pairs */
} hdo_plan;

typedef struct hdo_mixer hdo_mixer;

typedef struct hdo_mixer_ops {
    const char *name;
    const char *help;
    bool all_step;
    /* Pairs of step t into pairs (room for n / 2), returns how many. scratch: as in hdo_mixer. NULL: never any pairs.
     */
    int (*match)(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *scratch);
    bool allreduce;
    /* What is settled once; may put a more special table into m->ops. n_first: nodes of the first class, -1: none.
     * NULL: nothing. */
    hdo_status (*init)(hdo_mixer *m, const hdo_mixing_config *c, int n_first, hdo_error *e);
    size_t (*scratch)(const hdo_mixer *m); /* numbers of scratch; NULL: n */
} hdo_mixer_ops;

enum { HDO_COLOURS_MAX = 64 };

struct hdo_mixer {
    const hdo_mixer_ops *ops;
    uint64_t seed;
    int n;
    int64_t period;    /* nodes meet in steps t with (t + 1) % period == 0 */
    int64_t warmup;    /* and not before */
    hdo_pair *pairs;   /* (n / 2) */
    uint32_t *scratch; /* (n), for matchings in a graph (edges + n) */
    hdo_error
        *trouble; /* of a mixing of one's own: what is wrong with its partners, code HDO_OK: nothing. NULL: ours */
    struct hdo_complaint *complaint;

    /* mixing.partners */
    double own; /* share of the meetings that are inside the classes */
    int n_classes, class_first[HDO_CLASSES_MAX];

    /* mixing.kind: graph */
    hdo_graph graph;  /* edges between nodes, not vertices */
    uint32_t *vertex; /* (n) where node i sits; NULL without a graph */
    int graph_mode;   /* HDO_GRAPH_MODE_... */
    int n_colours;    /* mode colour: edges [colour_end[k-1], colour_end[k]) share no node */
    uint32_t colour_end[HDO_COLOURS_MAX];
};

extern const hdo_mixer_ops *const hdo__mixers[]; /* ends with NULL */
HDO_LAB const hdo_mixer_ops *hdo__mixer_find(const char *name);

/* n_first: how many nodes the first class has (nodes 0 .. n_first-1): mixing.placement says where on the graph they
 * sit. */
hdo_status hdo__mixer_init_placed(hdo_mixer *m, const hdo_mixing_config *c, uint64_t seed, int n, int n_first,
                                  int64_t warmup, hdo_error *e);
/* The same without a first class; refuses placements that are about it. */
hdo_status hdo__mixer_init(hdo_mixer *m, const hdo_mixing_config *c, uint64_t seed, int n, int64_t warmup,
                           hdo_error *e);
/* The mixing a configuration brought, if there is one, otherwise as above. */
HDO_LAB hdo_status hdo__mixer_init_config(hdo_mixer *m, const hdo_config *c, int n, hdo_error *e);
HDO_LAB void hdo__mixer_clear(hdo_mixer *m);
hdo_status hdo__mixer_sound(const hdo_mixer *m, hdo_error *e); /* are the partners of the last plan partners? */
/* Kind matching: in a share `own` of the exchanges nodes meet inside their classes only. Class k has the nodes from
 * first[k] on. */
HDO_LAB void hdo__mixer_classes(hdo_mixer *m, int n_classes, const int *first, double own);
void hdo__mixer_plan(hdo_mixer *m, int64_t t, hdo_plan *plan); /* valid until the next call */

/* How fast mixing alone brings the nodes together (docs/theory.md 3.3). */
typedef enum hdo_spectrum_how {
    HDO_SPECTRUM_CLOSED,    /* a formula */
    HDO_SPECTRUM_NUMERICAL, /* the expected mixing matrix is known, its eigenvalue was computed */
    HDO_SPECTRUM_SAMPLED,   /* the expected mixing matrix was estimated from sampled steps */
    HDO_SPECTRUM_SKIPPED    /* too large: lambda and gap are NaN */
} hdo_spectrum_how;

typedef struct hdo_spectrum {
    double lambda; /* second largest eigenvalue of E[W'W] of one exchange: E Gamma' <= lambda Gamma. 1: never agrees */
    double error;  /* of lambda: 0 for a formula, numerical accuracy, or the sampling error */
    double gap; /* second smallest eigenvalue of the graph's normalised Laplacian, 1 - that of the random walk; the lazy
                 * walk has half of it. NaN without a graph (none) */
    hdo_spectrum_how how;
    int64_t edges;
    int degree_min, degree_max;
    int64_t samples; /* steps sampled */
} hdo_spectrum;

/* Larger graphs are skipped unless there is a formula: 2000 nodes stay below 0.2 s. */
enum { HDO_SPECTRUM_NODES = 4096, HDO_SPECTRUM_EDGES = 1 << 18, HDO_SPECTRUM_EDGES_SAMPLED = 1 << 16 };
HDO_LAB hdo_status hdo__mixer_spectrum(const hdo_mixer *m, hdo_spectrum *out);
const char *hdo__spectrum_how_name(hdo_spectrum_how how); /* "closed form", "numerical", "sampled", "skipped" */

/* One line for the log: "mixing along a graph (ring, colour): 16 edges, ...; lambda = 0.962 (...)". */
void hdo__spectrum_text(const hdo_mixer *m, const hdo_spectrum *s, char *buf, size_t cap);

/* ---- between the files of this folder ---- */
#if defined(__GNUC__)
#define HDO_PREFETCH(address) __builtin_prefetch(address)
#else
#define HDO_PREFETCH(address) ((void)(address))
#endif

#define HDO_X(id, name) extern const hdo_mixer_ops hdo__mixer_##id;
HDO_MIXING_LIST(HDO_X)
#undef HDO_X
int hdo__match_all(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *order);
int hdo__match_one(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *scratch);
/* A random maximal matching of the graph: edge numbers into scratch[0 ..], returns how many. */
int hdo__graph_match(const hdo_graph *g, hdo_stream s, uint32_t *scratch);

#endif
