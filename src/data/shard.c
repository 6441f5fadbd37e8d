/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds which samples. N samples, nodes numbered class by class (fo 0 .. n0-1, zo n0 .. n-1, ...).
 *
 *   copies        every class of nodes gets one full copy of the training set, dealt out among its nodes: node i of m
 *                 holds places i N / m .. (i+1) N / m - 1 of a keyed shuffle. No arrays.
 *   single        the same with all n nodes as one class.
 *   shared        every node holds everything.
 *   dirichlet(a)  as copies, but with label skew: for each label the shares of the m nodes are drawn from
 *                 Dirichlet(a, ..., a). Small a: few labels a node; large a: as copies, in expectation. A node that
 *                 would go empty gets one sample from a node that has most.
 *   shards(k)     as copies, but the copy is sorted by label and cut into m k equal pieces, k random pieces a node
 *                 (McMahan et al. 2017). When m k > N, k is lowered until every piece has a sample.
 *
 * In all but `shared` the samples of a class of nodes are a partition of the training set, unless the class has more
 * nodes than there are samples: then node i of m holds the one sample at place i N / m of the shuffle.
 */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "data/data_impl.h"

/* Streams of HDO_RNG_SHARD: step = group of nodes, sub = what for. node is the label for SUB_LABEL. */
enum { SUB_SHUFFLE = 0, SUB_SHARE = 1, SUB_LABEL = 2, SUB_PIECE = 3 };

typedef struct group { /* nodes that share one copy */
    int first;         /* node number of its first node */
    int64_t m;         /* nodes */
    hdo_perm perm;     /* the shuffle of its copy */
    int64_t *idx;      /* (N) sample numbers node by node, or NULL: by perm */
    int64_t *start;    /* (m + 1) where a node's samples begin in idx */
} group;

struct hdo_shards {
    bool shared;
    bool fixed; /* all passes in the order of the first */
    int64_t N;
    int n_groups;
    group g[HDO_CLASSES_MAX];
};

void hdo__shards_destroy(hdo_shards *s) {
    if (s == NULL) return;
    for (int k = 0; k < s->n_groups; k++) {
        free(s->g[k].idx);
        free(s->g[k].start);
    }
    free(s);
}

void hdo__shards_fix_order(hdo_shards *s) {
    s->fixed = true;
}

bool hdo__shards_order_fixed(const hdo_shards *s) {
    return s->fixed;
}

/* ---- by label ---- */

/* Sample numbers sorted by label, shuffled inside each label, into idx (N); begin (classes + 1). */
static hdo_status sort_by_label(const group *g, const hdo_dataset *ds, int64_t N, int64_t *idx, int64_t *begin) {
    for (int c = 0; c <= ds->classes; c++) begin[c] = 0;
    for (int64_t i = 0; i < N; i++) begin[ds->ops->label(ds, i) + 1]++;
    for (int c = 0; c < ds->classes; c++) begin[c + 1] += begin[c];
    const size_t C = (size_t)ds->classes;
    int64_t *next = C < SIZE_MAX / sizeof *next ? malloc(C * sizeof *next) : NULL;
    if (next == NULL) return HDO_E_MEMORY;
    for (int c = 0; c < ds->classes; c++) next[c] = begin[c];
    for (int64_t i = 0; i < N; i++) { /* in the order of the shuffle: random inside each label */
        int64_t sample = (int64_t)hdo__perm_at(&g->perm, (uint64_t)i);
        idx[next[ds->ops->label(ds, sample)]++] = sample;
    }
    free(next);
    return HDO_OK;
}

typedef struct dirichlet {
    uint64_t seed;
    int group_no;
    double alpha;
    int64_t m;     /* nodes */
    double *share; /* (m): scratch */
} dirichlet;

/* cut[i] = how many of n samples belong to nodes 0 .. i-1, for random shares. */
static void draw_cuts(const dirichlet *q, int label, int64_t n, int64_t *cut) {
    const uint64_t seed = q->seed;
    const int group_no = q->group_no;
    const int64_t m = q->m;
    double *share = q->share;
    hdo_stream s = hdo__stream(seed, HDO_RNG_SHARD, (uint32_t)label, (uint64_t)group_no, SUB_SHARE);
    double sum = 0;
    for (int64_t i = 0; i < m; i++) {
        share[i] = hdo__rng_gamma(s, (uint64_t)i, q->alpha);
        sum += share[i];
    }
    if (!(sum > 0)) { /* every draw underflowed, as happens for alpha near 0: one node takes the label */
        share[hdo__rng_below(hdo__stream(seed, HDO_RNG_SHARD, (uint32_t)label, (uint64_t)group_no, SUB_LABEL), 0,
                             (uint64_t)m)] = sum = 1;
    }
    double run = 0;
    cut[0] = 0;
    for (int64_t i = 0; i < m; i++) {
        run += share[i];
        int64_t k = (int64_t)((double)n * (run / sum) + 0.5);
        cut[i + 1] = k < cut[i] ? cut[i] : k > n ? n : k;
    }
    cut[m] = n;
}

/* How many each node shall have: what it drew, but at least one; those that drew most give, down to one level.
 * The sum is at least m. */
static void feed_empty(const int64_t *drawn, int64_t m, int64_t *want) {
    int64_t empty = 0, most = 0;
    for (int64_t i = 0; i < m; i++) {
        empty += drawn[i] == 0;
        if (drawn[i] > most) most = drawn[i];
    }
    int64_t level = 1, above = most; /* the highest level that yields enough is in [level, above) */
    while (above - level > 1) {
        int64_t mid = level + (above - level) / 2, yield = 0;
        for (int64_t i = 0; i < m; i++) yield += drawn[i] > mid ? drawn[i] - mid : 0;
        if (yield >= empty) {
            level = mid;
        } else {
            above = mid;
        }
    }
    for (int64_t i = 0; i < m; i++) {
        int64_t give = drawn[i] > level ? drawn[i] - level : 0;
        if (give > empty) give = empty;
        empty -= give;
        want[i] = drawn[i] == 0 ? 1 : drawn[i] - give;
    }
}

static hdo_status by_dirichlet(group *g, int group_no, uint64_t seed, double alpha, const hdo_dataset *ds, int64_t N) {
    const size_t m = (size_t)g->m, C = (size_t)ds->classes;
    int64_t *sorted = malloc((size_t)N * sizeof *sorted), *begin = malloc((C + 1) * sizeof *begin);
    int64_t *cut = malloc((m + 1) * sizeof *cut), *drawn = calloc(m, sizeof *drawn);
    int64_t *want = malloc(m * sizeof *want), *have = calloc(m, sizeof *have);
    dirichlet q = {.seed = seed, .group_no = group_no, .alpha = alpha, .m = g->m, .share = malloc(m * sizeof(double))};
    hdo_status st = HDO_E_MEMORY;
    if (sorted == NULL || begin == NULL || cut == NULL || drawn == NULL || want == NULL || have == NULL ||
        q.share == NULL) {
        goto out;
    }
    st = sort_by_label(g, ds, N, sorted, begin);
    if (st != HDO_OK) goto out;
    for (size_t c = 0; c < C; c++) { /* how many each node gets */
        draw_cuts(&q, (int)c, begin[c + 1] - begin[c], cut);
        for (size_t i = 0; i < m; i++) drawn[i] += cut[i + 1] - cut[i];
    }
    feed_empty(drawn, g->m, want);
    g->start[0] = 0;
    for (size_t i = 0; i < m; i++) g->start[i + 1] = g->start[i] + want[i];
    size_t poor = 0; /* deal: what a giver has too many of goes to the next node that drew none */
    for (size_t c = 0; c < C; c++) {
        draw_cuts(&q, (int)c, begin[c + 1] - begin[c], cut);
        for (size_t i = 0; i < m; i++) {
            for (int64_t k = cut[i]; k < cut[i + 1]; k++) {
                size_t to = i;
                if (have[i] == want[i]) {
                    while (drawn[poor] > 0) poor++;
                    to = poor++;
                }
                g->idx[g->start[to] + have[to]++] = sorted[begin[c] + k];
            }
        }
    }
out:
    free(sorted);
    free(begin);
    free(cut);
    free(drawn);
    free(want);
    free(have);
    free(q.share);
    return st;
}

static hdo_status by_pieces(group *g, int group_no, uint64_t seed, double arg, const hdo_dataset *ds, int64_t N) {
    int64_t k = arg > (double)N ? N : (int64_t)arg;
    if (k > N / g->m) k = N / g->m; /* at least 1: m <= N here */
    const int64_t pieces = g->m * k;
    int64_t *sorted = malloc((size_t)N * sizeof *sorted), *begin = malloc(((size_t)ds->classes + 1) * sizeof *begin);
    hdo_status st = HDO_E_MEMORY;
    if (sorted == NULL || begin == NULL) goto out;
    st = sort_by_label(g, ds, N, sorted, begin);
    if (st != HDO_OK) goto out;
    hdo_perm perm = hdo__perm(hdo__stream(seed, HDO_RNG_SHARD, 0, (uint64_t)group_no, SUB_PIECE), (uint64_t)pieces);
    int64_t at = 0;
    for (int64_t i = 0; i < g->m; i++) {
        g->start[i] = at;
        for (int64_t j = 0; j < k; j++) {
            int64_t piece = (int64_t)hdo__perm_at(&perm, (uint64_t)(i * k + j));
            int64_t a = piece * N / pieces, b = (piece + 1) * N / pieces;
            for (; a < b; a++) g->idx[at++] = sorted[a];
        }
    }
    g->start[g->m] = at;
out:
    free(sorted);
    free(begin);
    return st;
}

/* ---- creation and questions ---- */

static hdo_status fill_group(group *g, int group_no, const hdo_choice *split, uint64_t seed, const hdo_dataset *ds,
                             int64_t N) {
    g->perm = hdo__perm(hdo__stream(seed, HDO_RNG_SHARD, 0, (uint64_t)group_no, SUB_SHUFFLE), (uint64_t)N);
    const bool skew = split->id == HDO_SPLIT_DIRICHLET || split->id == HDO_SPLIT_SHARDS;
    if (!skew || g->m > N || g->m == 0) return HDO_OK;
    g->idx = malloc((size_t)N * sizeof *g->idx);
    g->start = malloc(((size_t)g->m + 1) * sizeof *g->start);
    if (g->idx == NULL || g->start == NULL) return HDO_E_MEMORY;
    return split->id == HDO_SPLIT_DIRICHLET ? by_dirichlet(g, group_no, seed, split->arg, ds, N)
                                            : by_pieces(g, group_no, seed, split->arg, ds, N);
}

hdo_status hdo__shards_create(hdo_shards **out, const hdo_choice *split, uint64_t seed, int n_classes,
                              const int64_t *class_count, const hdo_dataset *train, hdo_error *e) {
    *out = NULL;
    if (n_classes < 1 || n_classes > HDO_CLASSES_MAX) {
        return hdo__fail(e, HDO_E_CONFIG, "%d classes of nodes; 1 .. %d are possible", n_classes, HDO_CLASSES_MAX);
    }
    if (train == NULL || train->count < 1) return hdo__fail(e, HDO_E_DATA, "the training set has no samples");
    if (split->id == HDO_SPLIT_DIRICHLET && !(split->arg > 0)) {
        return hdo__fail(e, HDO_E_CONFIG, "data.split is dirichlet(%g); the number must be above 0", split->arg);
    }
    if (split->id == HDO_SPLIT_SHARDS && !(split->arg >= 1)) {
        return hdo__fail(e, HDO_E_CONFIG, "data.split is shards(%g); the number must be at least 1", split->arg);
    }
    hdo_shards *s = calloc(1, sizeof *s);
    if (s == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the split");
    s->N = train->count;
    s->shared = split->id == HDO_SPLIT_SHARED;
    const bool one = split->id == HDO_SPLIT_SINGLE || s->shared;
    int64_t first = 0;
    for (int k = 0; k < n_classes; k++) {
        assert(class_count[k] >= 0);
        if (k == 0 || !one) s->g[s->n_groups++].first = (int)first;
        s->g[s->n_groups - 1].m += class_count[k];
        first += class_count[k];
        if (first > INT_MAX) {
            hdo__shards_destroy(s);
            return hdo__fail(e, HDO_E_CONFIG, "the population has more than %d nodes", INT_MAX);
        }
    }
    for (int k = 0; k < s->n_groups; k++) {
        if (fill_group(&s->g[k], k, split, seed, train, s->N) == HDO_OK) continue;
        hdo__shards_destroy(s);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the split");
    }
    *out = s;
    return HDO_OK;
}

static const group *group_of(const hdo_shards *s, int node) {
    int k = s->n_groups - 1;
    while (k > 0 && node < s->g[k].first) k--;
    assert(node >= s->g[k].first && node - s->g[k].first < s->g[k].m);
    return &s->g[k];
}

int64_t hdo__shard_count(const hdo_shards *s, int node) {
    if (s->shared) return s->N;
    const group *g = group_of(s, node);
    const int64_t i = node - g->first;
    if (g->m > s->N) return 1;
    if (g->idx != NULL) return g->start[i + 1] - g->start[i];
    return (i + 1) * s->N / g->m - i * s->N / g->m;
}

int64_t hdo__shard_at(const hdo_shards *s, int node, int64_t j) {
    assert(j >= 0 && j < hdo__shard_count(s, node));
    if (s->shared) return j;
    const group *g = group_of(s, node);
    const int64_t i = node - g->first;
    if (g->idx != NULL) return g->idx[g->start[i] + j];
    return (int64_t)hdo__perm_at(&g->perm, (uint64_t)(i * s->N / g->m + j));
}
