/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast mixing alone brings the nodes together: lambda, the second largest eigenvalue of E[W'W], and the spectral gap
 * of the graph. A matching is a projection (W'W = W), so with p_e the probability that edge e is drawn
 *
 *   lambda = 1 - mu / 2,   mu = second smallest eigenvalue of the Laplacian with weights p_e        (docs/theory.md 3.3)
 *
 * p_e is 1/edges or 1/colours where a step draws one of those. In a random maximal matching it is known for rings and
 * stars, and for other graphs measured over sampled steps. Edges that symmetries exchange share one p. Where each edge
 * has its own, the eigenvalue of the noisy matrix lies above the true one on average (the largest eigenvalue is convex)
 * by an amount that falls like 1/samples: comparing the two halves of the sample with the whole gives both the
 * correction and the error stated.
 *
 * Eigenvalues: Lanczos without reorthogonalisation, whose ghosts copy eigenvalues but do not move the extreme one. Power
 * iteration, which the bounds use for small matrices, needs n^2 rounds on a ring; Lanczos needs n.
 */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "hdo/theory.h"
#include "topo/mixer.h"

static const double pi = 3.14159265358979323846;

enum {
    SAMPLES_MAX = 4096,
    SAMPLES_MIN = 32,
    EDGE_VISITS = 5000000,   /* of all samples together: some 30 ms */
    LANCZOS_VISITS = 20000000 /* of nodes and edges in one eigenvalue: some 50 ms */
};

/* ---- the smallest eigenvalue of a Laplacian beside its zero ---- */

typedef struct laplacian {
    size_t n, n_edges;
    const hdo_pair *edges;
    const double *weight; /* (n_edges) */
    double *scale;        /* (n): S of S L S; ones, or degree^-1/2 for the normalised Laplacian */
    double *null;         /* (n): unit vector with S L S null = 0 */
} laplacian;

/* y = S L S x */
static void multiply(const laplacian *l, const double *x, double *y) {
    memset(y, 0, l->n * sizeof(double));
    for (size_t k = 0; k < l->n_edges; k++) {
        size_t a = (size_t)l->edges[k].a, b = (size_t)l->edges[k].b;
        double flow = l->weight[k] * (l->scale[a] * x[a] - l->scale[b] * x[b]);
        y[a] += flow;
        y[b] -= flow;
    }
    for (size_t i = 0; i < l->n; i++) y[i] *= l->scale[i];
}

static double dot(size_t n, const double *x, const double *y) {
    double s = 0.0;
    for (size_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

static void subtract(size_t n, double a, const double *x, double *y) {
    for (size_t i = 0; i < n; i++) y[i] -= a * x[i];
}

/* Has the tridiagonal matrix an eigenvalue below x? A pivot of T - x that is not positive says so (Sturm). */
static bool has_below(size_t m, const double *alpha, const double *beta, double x) {
    double q = alpha[0] - x;
    for (size_t i = 1; i < m && q > 0.0; i++) q = alpha[i] - x - beta[i - 1] * beta[i - 1] / q;
    return !(q > 0.0);
}

static double smallest_of(size_t m, const double *alpha, const double *beta) {
    double lo = 0.0, hi = alpha[0];
    for (size_t i = 1; i < m; i++) hi = alpha[i] < hi ? alpha[i] : hi;
    for (int turn = 0; turn < 100 && hi - lo > 1e-14 * hi; turn++) {
        double mid = 0.5 * (lo + hi);
        if (has_below(m, alpha, beta, mid)) {
            hi = mid;
        } else {
            lo = mid;
        }
    }
    return 0.5 * (lo + hi);
}

static size_t lanczos_steps(const laplacian *l) {
    size_t most = (size_t)LANCZOS_VISITS / (l->n + l->n_edges) + 8;
    return most < 6 * l->n + 16 ? most : 6 * l->n + 16;
}

/* work: 3 n + 2 lanczos_steps doubles. *error: what the last quarter of the steps still changed. */
static double smallest_eigenvalue(const laplacian *l, double *work, double *error) {
    const double tol = 1e-10; /* relative; the figure is printed with six digits */
    size_t n = l->n, most = lanczos_steps(l), check = 8;
    double *v = work, *old = work + n, *w = work + 2 * n, *alpha = work + 3 * n, *beta = alpha + most;
    double value = 0.0, last = HUGE_VAL, b = 0.0, top = 0.0;
    hdo_stream s = hdo__stream(0, HDO_RNG_GRAPH, 0, 0, HDO_GRAPH_SUB_SPECTRUM); /* a fixed start: the answer is too */
    for (size_t i = 0; i < n; i++) {
        v[i] = hdo__rng_double(s, i) - 0.5;
        old[i] = 0.0;
    }
    subtract(n, dot(n, l->null, v), l->null, v);
    double norm = sqrt(dot(n, v, v));
    for (size_t i = 0; i < n; i++) v[i] /= norm;
    for (size_t m = 1;; m++) {
        multiply(l, v, w);
        double a = dot(n, v, w);
        for (size_t i = 0; i < n; i++) w[i] -= a * v[i] + b * old[i];
        subtract(n, dot(n, l->null, w), l->null, w);
        b = sqrt(dot(n, w, w));
        alpha[m - 1] = a;
        beta[m - 1] = b;
        if (a > top) top = a;
        bool end = m == most || b <= 1e-13 * top; /* b = 0: the space is closed, T is exact */
        if (end || m >= check) {
            value = smallest_of(m, alpha, beta);
            *error = b <= 1e-13 * top ? 0.0 : fabs(value - last);
            if (end || *error <= tol * value || *error <= 1e-15 * top) return value;
            last = value;
            check = m + m / 4 + 1;
        }
        double *spare = old;
        old = v;
        v = w;
        w = spare;
        for (size_t i = 0; i < n; i++) v[i] /= b;
    }
}

/* ---- one computation: memory and the two Laplacians ---- */

typedef struct solver {
    laplacian l;
    double *block;  /* everything below in one piece */
    double *weight; /* (n_edges) */
    double *work;
    uint32_t *count[2]; /* (n_edges): how often an edge was drawn in either half of the sample */
    uint32_t *scratch;
} solver;

static bool solver_init(solver *s, const hdo_graph *g) {
    size_t n = (size_t)g->n, E = g->n_edges;
    *s = (solver){.l = {.n = n, .n_edges = E, .edges = g->edges}};
    s->block = hdo__alloc((E + 5 * n + 2 * lanczos_steps(&s->l)) * sizeof(double));
    s->count[0] = hdo__alloc((3 * E + n) * sizeof(uint32_t));
    if (s->block == NULL || s->count[0] == NULL) return false;
    s->count[1] = s->count[0] + E;
    s->scratch = s->count[1] + E;
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
static double plain_mu(solver *s, double *error) {
    for (size_t i = 0; i < s->l.n; i++) {
        s->l.scale[i] = 1.0;
        s->l.null[i] = 1.0 / sqrt((double)s->l.n);
    }
    return smallest_eigenvalue(&s->l, s->work, error);
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
    return smallest_eigenvalue(&s->l, s->work, &error);
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

/* ---- sampling ---- */

static int64_t sample(solver *s, const hdo_mixer *m) {
    int64_t M = EDGE_VISITS / (int64_t)m->graph.n_edges / 2 * 2;
    if (M > SAMPLES_MAX) M = SAMPLES_MAX;
    if (M < SAMPLES_MIN) M = SAMPLES_MIN;
    for (int64_t t = 0; t < M; t++) { /* not the steps of the run: the same law, other numbers */
        hdo_stream stream = hdo__stream(m->seed, HDO_RNG_GRAPH, 1, (uint64_t)t, HDO_GRAPH_SUB_SPECTRUM);
        int found = hdo__graph_match(&m->graph, stream, s->scratch);
        for (int k = 0; k < found; k++) s->count[t & 1][s->scratch[k]]++;
    }
    return M;
}

/* Probabilities from counts, averaged over orbits where they are known. which: 0, 1: a half; 2: all. */
static void sampled_weights(solver *s, const hdo_graph *g, int64_t M, int which) {
    double per = which == 2 ? 1.0 / (double)M : 2.0 / (double)M;
    for (size_t k = 0; k < g->n_edges; k++) {
        double times = which == 2 ? (double)s->count[0][k] + (double)s->count[1][k] : (double)s->count[which][k];
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
    double lambda[3], numerical = 0.0;
    out->how = HDO_SPECTRUM_SAMPLED;
    out->samples = sample(s, m);
    if (m->graph.n_orbits == 1) { /* all edges alike: lambda is linear in their one p, and one eigenvalue serves */
        unit_weights(s);
        double mu, gap;
        if (!closed_forms(&m->graph, &mu, &gap)) mu = plain_mu(s, &numerical);
        for (int h = 0; h < 3; h++) {
            sampled_weights(s, &m->graph, out->samples, h);
            lambda[h] = 1.0 - 0.5 * s->weight[0] * mu;
        }
    } else {
        for (int h = 0; h < 3; h++) {
            sampled_weights(s, &m->graph, out->samples, h);
            lambda[h] = 1.0 - 0.5 * plain_mu(s, &numerical);
        }
    }
    double bias = 0.5 * (lambda[0] + lambda[1]) - lambda[2]; /* of the whole, as large as what a half has more */
    out->lambda = clamp01(lambda[2] - bias);
    out->error = fabs(bias) + 0.5 * fabs(lambda[0] - lambda[1]) + 0.5 * numerical;
}

/* ---- all together ---- */

const char *hdo__spectrum_how_name(hdo_spectrum_how how) {
    static const char *const names[] = {"closed form", "numerical", "sampled", "skipped"};
    return names[how];
}

/* Everybody with everybody: matching, pairwise, allreduce, complete graph, and any graph of two nodes. */
static void spectrum_complete(const hdo_mixer *m, hdo_spectrum *out) {
    double n = (double)m->n;
    out->edges = (int64_t)m->n * (m->n - 1) / 2;
    out->degree_min = out->degree_max = m->n - 1;
    out->gap = n / (n - 1.0);
    out->lambda = m->ops->allreduce  ? 0.0
                  : m->ops->all_step ? hdo_theory_lambda_match(m->n)
                                     : hdo_theory_lambda_complete_edge(m->n);
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
    if (m->n > HDO_SPECTRUM_NODES || g->n_edges > HDO_SPECTRUM_EDGES) {
        out->lambda = (double)NAN;
        out->how = HDO_SPECTRUM_SKIPPED;
        return HDO_OK;
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
        out->lambda = 1.0 - 0.5 * p * plain_mu(&s, &out->error);
        out->error *= 0.5 * p;
    }
    if (!closed) out->gap = normalised_gap(&s);
    solver_clear(&s);
    return HDO_OK;
}
