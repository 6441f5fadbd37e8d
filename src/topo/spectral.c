/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast mixing alone brings the nodes together: lambda, the second largest eigenvalue of E[W'W], and the spectral
 * gap of the graph. A matching is a projection (W'W = W), so with p_e the probability that edge e is drawn
 *
 *   lambda = 1 - mu / 2,   mu = second smallest eigenvalue of the Laplacian with weights p_e (docs/theory.md 3.3)
 *
 * p_e is 1/edges or 1/colours where a step draws one of those. In a random maximal matching it is known for rings,
 * paths and stars, and for other graphs measured over sampled steps. Edges that symmetries exchange share one p. Where
 * each edge has its own, the eigenvalue of the noisy matrix lies above the true one on average (the largest eigenvalue
 * is convex) by an amount that falls like 1/samples: comparing the quarters of the sample with the whole gives both the
 * correction and the error stated.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "hdo/experimental/formulas.h"
#include "topo/laplacian.h"
#include "topo/mixer.h"

static const double pi = 3.14159265358979323846;

enum {
    PARTS = 4, /* of a sample */
    SAMPLES_MAX = 4096,
    SAMPLES_MIN = 8 * PARTS,
    EDGE_VISITS = 5000000 /* of all samples together: some 30 ms */
};

static const double TOL = 1e-10;        /* of eigenvalues; figures are printed with six digits or so */
static const double TOL_SAMPLED = 1e-6; /* where sampling blurs more than that */

/* ---- one computation: memory and the two Laplacians ---- */

typedef struct solver {
    hdo_laplacian l;
    double *block;  /* everything below in one piece */
    double *weight; /* (n_edges) */
    double *work;
    uint32_t *count[PARTS]; /* (n_edges) each: how often an edge was drawn in that part of the sample */
    uint32_t *scratch;
} solver;

static bool solver_init(solver *s, const hdo_graph *g) {
    size_t n = (size_t)g->n, E = g->n_edges;
    *s = (solver){.l = {.n = n, .n_edges = E, .edges = g->edges}};
    s->block = hdo__alloc((E + 5 * n + 2 * hdo__laplacian_steps(&s->l)) * sizeof(double));
    s->count[0] = hdo__alloc(((PARTS + 1) * E + n) * sizeof(uint32_t));
    if (s->block == NULL || s->count[0] == NULL) return false;
    for (int k = 1; k < PARTS; k++) s->count[k] = s->count[k - 1] + E;
    s->scratch = s->count[PARTS - 1] + E;
    s->weight = s->block;
    s->l.weight = s->weight;
    s->l.scale = s->block + E;
    s->l.null = s->l.scale + n;
    s->work = s->l.null + n;
    return true;
}

static void solver_clear(solver *s) {
    hdo__free(s->block);
    hdo__free(s->count[0]);
}

/* mu of the Laplacian with the weights of s. */
static double plain_mu(solver *s, double tol, double *error) {
    for (size_t i = 0; i < s->l.n; i++) {
        s->l.scale[i] = 1.0;
        s->l.null[i] = 1.0 / sqrt((double)s->l.n);
    }
    return hdo__laplacian_smallest(&s->l, tol, s->work, error);
}

static void unit_weights(solver *s) {
    for (size_t k = 0; k < s->l.n_edges; k++) s->weight[k] = 1.0;
}

/* The normalised Laplacian D^-1/2 (D - A) D^-1/2, whose zero belongs to D^1/2 1. */
static double normalised_gap(solver *s) {
    double error;
    unit_weights(s);
    memset(s->l.null, 0, s->l.n * sizeof(double));
    for (size_t k = 0; k < s->l.n_edges; k++) {
        s->l.null[s->l.edges[k].a] += 1.0;
        s->l.null[s->l.edges[k].b] += 1.0;
    }
    for (size_t i = 0; i < s->l.n; i++) {
        s->l.scale[i] = 1.0 / sqrt(s->l.null[i]);
        s->l.null[i] = sqrt(s->l.null[i] / (2.0 * (double)s->l.n_edges));
    }
    return hdo__laplacian_smallest(&s->l, TOL, s->work, &error);
}

/* ---- formulas ---- */

/* mu of the unweighted Laplacian and the gap, n >= 3. False: no formula here. */
static bool closed_forms(const hdo_graph *g, double *mu, double *gap) {
    double n = (double)g->n;
    switch (g->kind) {
    case HDO_GRAPH_RING:
        *mu = 2.0 - 2.0 * cos(2.0 * pi / n);
        *gap = *mu / 2.0;
        return true;
    case HDO_GRAPH_PATH:
        *mu = 2.0 - 2.0 * cos(pi / n);
        *gap = 1.0 - cos(pi / (n - 1.0));
        return true;
    case HDO_GRAPH_STAR:
        *mu = 1.0;
        *gap = 1.0;
        return true;
    case HDO_GRAPH_HYPERCUBE:
        *mu = 2.0;
        *gap = 2.0 / (double)g->degree_max;
        return true;
    default: return false;
    }
}

/* Expected pairs of a random maximal matching of a ring, over its n edges. The first edge leaves a path of n - 2 nodes;
 * on a path of m nodes the first edge is uniform among m - 1 and leaves two paths: M(m) = 1 + 2/(m-1) sum_{k<=m-2} M(k)
 * (Flory 1939). For large n this is (1 - e^-2) / 2. */
static double ring_matching_probability(int n) {
    double pairs = 0.0, sum = 0.0; /* M(m-1), sum of M(0 .. m-2) */
    for (int m = 2; m <= n - 2; m++) {
        double next = 1.0 + 2.0 / (double)(m - 1) * sum;
        sum += pairs;
        pairs = next;
    }
    return (1.0 + pairs) / (double)n;
}

/* Probability of an edge of a path with l edges on one side and r on the other. Give every edge a uniform time; the end
 * towards the l edges is still free at time t with probability h_l(t) = 1 - int_0^t h_{l-1}, h_0 = 1: the exponential
 * series of -t cut after t^l. The edge is drawn with probability int_0^1 h_l h_r. */
static double path_edge_probability(int l, int r) {
    double sum = 0.0, fa = 1.0;
    for (int a = 0; a <= l && a <= 20; a++) { /* 1/21! is below rounding */
        double fb = 1.0;
        for (int b = 0; b <= r && b <= 20; b++) {
            sum += fa * fb / (double)(a + b + 1);
            fb /= -(double)(b + 1);
        }
        fa /= -(double)(a + 1);
    }
    return sum;
}

/* mu of a path whose edges have these probabilities. With B the edges' differences, L = B'PB has the eigenvalues of the
 * tridiagonal sqrt(P) B B' sqrt(P), without the zero: no iteration. */
static hdo_status path_mu(int n, double *mu) {
    size_t E = (size_t)n - 1;
    double *alpha = hdo__alloc(2 * E * sizeof(double));
    if (alpha == NULL) return HDO_E_MEMORY;
    double *beta = alpha + E;
    for (size_t k = 0; k < E; k++) alpha[k] = 2.0 * path_edge_probability((int)k, (int)(E - 1 - k));
    for (size_t k = 0; k + 1 < E; k++) beta[k] = 0.5 * sqrt(alpha[k] * alpha[k + 1]);
    *mu = hdo__tridiagonal_smallest(E, alpha, beta);
    hdo__free(alpha);
    return HDO_OK;
}

/* ---- sampling ---- */

static int64_t sample(solver *s, const hdo_mixer *m) {
    int64_t M = EDGE_VISITS / (int64_t)m->graph.n_edges / PARTS * PARTS;
    if (M > SAMPLES_MAX) M = SAMPLES_MAX;
    if (M < SAMPLES_MIN) M = SAMPLES_MIN;
    for (int64_t t = 0; t < M; t++) { /* not the steps of the run: the same law, other numbers */
        hdo_stream stream = hdo__stream(m->seed, HDO_RNG_GRAPH, 1, (uint64_t)t, HDO_GRAPH_SUB_SPECTRUM);
        int found = hdo__graph_match(&m->graph, stream, s->scratch);
        for (int k = 0; k < found; k++) s->count[t % PARTS][s->scratch[k]]++;
    }
    return M;
}

/* Probabilities from the counts of one part, or of all (part = PARTS), averaged over orbits where they are known. */
static void sampled_weights(solver *s, const hdo_graph *g, int64_t M, int part) {
    int from_part = part < PARTS ? part : 0, to_part = part < PARTS ? part + 1 : PARTS;
    double per = (part < PARTS ? (double)PARTS : 1.0) / (double)M;
    for (size_t k = 0; k < g->n_edges; k++) {
        double times = 0.0;
        for (int q = from_part; q < to_part; q++) times += (double)s->count[q][k];
        s->weight[k] = per * times;
    }
    for (int o = 0; o < g->n_orbits; o++) {
        size_t from = o > 0 ? g->orbit_end[o - 1] : 0, to = g->orbit_end[o];
        double sum = 0.0;
        for (size_t k = from; k < to; k++) sum += s->weight[k];
        for (size_t k = from; k < to; k++) s->weight[k] = sum / (double)(to - from);
    }
}

static double clamp01(double x) {
    return x < 0.0 ? 0.0 : x > 1.0 ? 1.0 : x;
}

static void lambda_sampled(solver *s, const hdo_mixer *m, hdo_spectrum *out) {
    double lambda[PARTS + 1], numerical = 0.0, mean = 0.0, var = 0.0, mu = 0.0, gap;
    bool alike = m->graph.n_orbits == 1; /* then lambda is linear in the one p, and one eigenvalue serves */
    out->how = HDO_SPECTRUM_SAMPLED;
    out->samples = sample(s, m);
    if (alike && !closed_forms(&m->graph, &mu, &gap)) {
        unit_weights(s);
        mu = plain_mu(s, TOL, &numerical);
    }
    for (int q = 0; q <= PARTS; q++) {
        sampled_weights(s, &m->graph, out->samples, q);
        lambda[q] = 1.0 - 0.5 * (alike ? s->weight[0] * mu : plain_mu(s, TOL_SAMPLED, &numerical));
        if (q < PARTS) mean += lambda[q] / PARTS;
    }
    for (int q = 0; q < PARTS; q++) var += (lambda[q] - mean) * (lambda[q] - mean) / (PARTS - 1);
    double bias = (mean - lambda[PARTS]) / (PARTS - 1); /* a part has PARTS times as much of it as the whole */
    out->lambda = clamp01(lambda[PARTS] - bias);
    out->error = fabs(bias) + sqrt(var / PARTS) + 0.5 * numerical;
}

/* ---- all together ---- */

void hdo__spectrum_text(const hdo_mixer *m, const hdo_spectrum *s, char *buf, size_t cap) {
    static const char *const graphs[] = {"no graph",    "complete",    "ring",        "torus",
                                         "hypercube",   "star",        "path",        "random-regular",
                                         "erdos-renyi", "small-world", "exponential", "edge list"};
    static const char *const modes[] = {"", "matching", "colour", "edge"};
    char where[128], speed[128];
    snprintf(where, sizeof where, "mixing %s", m->ops->name);
    if (m->vertex != NULL) {
        snprintf(where, sizeof where, "mixing along a graph (%s, %s): %lld edges, degree %d to %d, spectral gap %.4g",
                 graphs[m->graph.kind], modes[m->graph_mode], (long long)s->edges, s->degree_min, s->degree_max,
                 s->gap);
    }
    if (s->lambda > 0.0 && s->lambda < 1.0) { /* E Gamma_t = lambda^t Gamma_0 at worst */
        snprintf(speed, sizeof speed, "%s; disagreement halves in %.3g exchanges", hdo__spectrum_how_name(s->how),
                 log(2.0) / -log(s->lambda));
    } else {
        snprintf(speed, sizeof speed, "%s", hdo__spectrum_how_name(s->how));
    }
    if (s->how == HDO_SPECTRUM_SKIPPED) {
        snprintf(buf, cap, "%s; too large to compute lambda", where);
    } else if (s->how == HDO_SPECTRUM_SAMPLED) {
        snprintf(buf, cap, "%s; lambda = %.6g +- %.1g (%s)", where, s->lambda, s->error, speed);
    } else {
        snprintf(buf, cap, "%s; lambda = %.9g (%s)", where, s->lambda, speed);
    }
}

const char *hdo__spectrum_how_name(hdo_spectrum_how how) {
    static const char *const names[] = {"closed form", "numerical", "sampled", "skipped"};
    return names[how];
}

double hdo_lambda_matching(int n) {
    assert(n >= 1);
    if (n == 1) return 0.0;
    if (n % 2 != 0) return 0.5; /* one node stays alone: every edge has probability 1/n */
    return ((double)n - 2.0) / (2.0 * ((double)n - 1.0));
}

double hdo_lambda_pair(int n) {
    assert(n >= 2);
    return 1.0 - 1.0 / ((double)n - 1.0);
}

/* Everybody with everybody: matching, pairwise, allreduce, complete graph, and any graph of two nodes. */
static void spectrum_complete(const hdo_mixer *m, hdo_spectrum *out) {
    double n = (double)m->n;
    out->edges = (int64_t)m->n * (m->n - 1) / 2;
    out->degree_min = out->degree_max = m->n - 1;
    out->gap = n / (n - 1.0);
    out->lambda = m->ops->allreduce ? 0.0 : m->ops->all_step ? hdo_lambda_matching(m->n) : hdo_lambda_pair(m->n);
    out->lambda = m->own + (1.0 - m->own) * out->lambda; /* inside the classes their means do not come nearer */
}

/* The probability that all edges share, or NaN: then it has to be sampled. */
static double common_probability(const hdo_mixer *m) {
    if (m->graph_mode == HDO_GRAPH_MODE_COLOUR) return 1.0 / (double)m->n_colours;
    if (m->graph_mode == HDO_GRAPH_MODE_EDGE || m->graph.kind == HDO_GRAPH_STAR) return 1.0 / (double)m->graph.n_edges;
    return m->graph.kind == HDO_GRAPH_RING ? ring_matching_probability(m->n) : (double)NAN;
}

hdo_status hdo__mixer_spectrum(const hdo_mixer *m, hdo_spectrum *out) {
    const hdo_graph *g = &m->graph;
    *out = (hdo_spectrum){.gap = (double)NAN, .how = HDO_SPECTRUM_CLOSED};
    if (m->n == 1) return HDO_OK; /* always agrees */
    if (m->ops->match == NULL && !m->ops->allreduce) {
        out->lambda = 1.0;
        return HDO_OK;
    }
    if (m->trouble != NULL) { /* of one's own: its law is not known */
        out->lambda = (double)NAN;
        out->how = HDO_SPECTRUM_SKIPPED;
        return HDO_OK;
    }
    if (m->vertex == NULL || g->complete || m->n == 2) {
        spectrum_complete(m, out);
        return HDO_OK;
    }
    out->edges = (int64_t)g->n_edges;
    out->degree_min = g->degree_min;
    out->degree_max = g->degree_max;
    double mu = 0.0, p = common_probability(m);
    bool closed = closed_forms(g, &mu, &out->gap);
    if (closed && !isnan(p)) {
        out->lambda = 1.0 - 0.5 * p * mu;
        return HDO_OK;
    }
    size_t most = isnan(p) ? HDO_SPECTRUM_EDGES_SAMPLED : HDO_SPECTRUM_EDGES;
    if (m->n > HDO_SPECTRUM_NODES || g->n_edges > most) {
        out->lambda = (double)NAN;
        out->how = HDO_SPECTRUM_SKIPPED;
        return HDO_OK;
    }
    if (isnan(p) && g->kind == HDO_GRAPH_PATH) {
        hdo_status st = path_mu(m->n, &mu);
        out->how = HDO_SPECTRUM_NUMERICAL;
        out->lambda = 1.0 - 0.5 * mu;
        return st;
    }
    solver s;
    if (!solver_init(&s, g)) {
        solver_clear(&s);
        return HDO_E_MEMORY;
    }
    if (isnan(p)) {
        lambda_sampled(&s, m, out);
    } else {
        unit_weights(&s);
        out->how = HDO_SPECTRUM_NUMERICAL;
        out->lambda = 1.0 - 0.5 * p * plain_mu(&s, TOL, &out->error);
        out->error *= 0.5 * p;
    }
    if (!closed) out->gap = normalised_gap(&s);
    solver_clear(&s);
    return HDO_OK;
}
