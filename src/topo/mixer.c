/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixing modes that need no graph, and the plan of a step. Adding a mode is one function and one line in the registry
 * below.
 */
#include "topo/mixer.h"

#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "config/names.h"
#include "config/own_call.h"

static hdo_stream match_stream(const hdo_mixer *m, int64_t t) {
    return hdo__stream(m->seed, HDO_RNG_MATCH, 0, (uint64_t)t, 0);
}

/* The permutation of hdo__rng_permutation, to the bit, made in slices: number k of the stream is words 0 and 1 of block
 * k, scaled to below n - k as in hdo__rng_below, and the places a slice will touch are asked for ahead. Ten times
 * faster for a million nodes. In a slice of bits, word q of block 8 g + j stands at 32 g + 8 q + j (see simd_rng.c). */
static void shuffle(hdo_stream s, uint32_t n, uint32_t *out) {
    enum { SLICE = 64, ROW = 8, GROUP = 32 };
    uint32_t w[4 * SLICE], pick[SLICE];
    for (uint32_t k = 0; k < n; k++) out[k] = k;
    for (uint32_t start = 0; start + 1 < n; start += SLICE) {
        uint32_t count = n - 1 - start < SLICE ? n - 1 - start : SLICE;
        hdo__rng_bits(s, 4 * (uint64_t)start, GROUP * (size_t)((count + ROW - 1) / ROW), w);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t lo = w[GROUP * (i / ROW) + i % ROW], hi = w[GROUP * (i / ROW) + ROW + i % ROW];
            uint64_t bound = n - start - i, high = (hi * bound + (lo * bound >> 32)) >> 32;
            if ((hi << 32 | lo) * bound < bound) { /* may have to be drawn again: let it decide */
                high = hdo__rng_below(s, start + i, bound);
            }
            pick[i] = start + i + (uint32_t)high;
            HDO_PREFETCH(&out[pick[i]]);
        }
        for (uint32_t i = 0; i < count; i++) {
            uint32_t keep = out[start + i];
            out[start + i] = out[pick[i]];
            out[pick[i]] = keep;
        }
    }
}

/* A uniformly random perfect matching: neighbours in a random order (odd n: the last one rests). */
int hdo__match_all(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *order) {
    shuffle(match_stream(m, t), (uint32_t)m->n, order);
    for (int k = 0; k < m->n / 2; k++) {
        pairs[k] = (hdo_pair){(int32_t)order[2 * k], (int32_t)order[2 * k + 1]};
    }
    return m->n / 2;
}

/* A uniformly random matching inside every class: in a random order each meets the next of its own class. */
static int match_own(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *order) {
    int32_t waits[HDO_CLASSES_MAX];
    int n = 0;
    for (int k = 0; k < m->n_classes; k++) waits[k] = -1;
    shuffle(match_stream(m, t), (uint32_t)m->n, order);
    for (int i = 0; i < m->n; i++) {
        int32_t node = (int32_t)order[i];
        int k = 0;
        while (k + 1 < m->n_classes && node >= m->class_first[k + 1]) k++;
        if (waits[k] < 0) {
            waits[k] = node;
        } else {
            pairs[n++] = (hdo_pair){waits[k], node};
            waits[k] = -1;
        }
    }
    return n;
}

/* Do the nodes meet inside their classes in step t? */
static bool among_their_own(const hdo_mixer *m, int64_t t) {
    const uint64_t parts = UINT64_C(1) << 32;
    if (!(m->own > 0.0) || m->ops->match != hdo__match_all) return false;
    uint64_t at = hdo__rng_below(hdo__stream(m->seed, HDO_RNG_MATCH, 1, (uint64_t)t, 0), 0, parts);
    return (double)at < m->own * (double)parts;
}

void hdo__mixer_classes(hdo_mixer *m, int n_classes, const int *first, double own) {
    m->n_classes = n_classes;
    for (int k = 0; k < n_classes; k++) m->class_first[k] = first[k];
    m->own = own;
}

/* Algorithm 1: two distinct nodes drawn uniformly at random. */
int hdo__match_one(const hdo_mixer *m, int64_t t, hdo_pair *pairs, uint32_t *scratch) {
    (void)scratch;
    if (m->n < 2) return 0;
    hdo_stream s = match_stream(m, t);
    int32_t a = (int32_t)hdo__rng_below(s, 0, (uint64_t)m->n);
    int32_t b = (int32_t)hdo__rng_below(s, 1, (uint64_t)m->n - 1);
    if (b >= a) b++;
    pairs[0] = (hdo_pair){a, b};
    return 1;
}

const hdo_mixer_ops hdo__mixer_matching = {.name = "matching",
                                           .help = "every node steps, then a random perfect matching averages",
                                           .all_step = true,
                                           .match = hdo__match_all};
const hdo_mixer_ops hdo__mixer_pairwise = {
    .name = "pairwise", .help = "one random pair steps and averages (Algorithm 1)", .match = hdo__match_one};
const hdo_mixer_ops hdo__mixer_none = {.name = "none", .help = "no communication", .all_step = true};
const hdo_mixer_ops hdo__mixer_allreduce = {
    .name = "allreduce", .help = "exact averaging of all nodes", .all_step = true, .allreduce = true};

const hdo_mixer_ops *const hdo__mixers[] = {
#define HDO_X(id, name) &hdo__mixer_##id,
    HDO_MIXING_LIST(HDO_X)
#undef HDO_X
        NULL};

const hdo_mixer_ops *hdo__mixer_find(const char *name) {
    for (int i = 0; hdo__mixers[i] != NULL; i++) {
        if (strcmp(hdo__mixers[i]->name, name) == 0) return hdo__mixers[i];
    }
    return NULL;
}

hdo_status hdo__mixer_init_placed(hdo_mixer *m, const hdo_mixing_config *c, uint64_t seed, int n, int n_first,
                                  int64_t warmup, hdo_error *e) {
    *m = (hdo_mixer){.ops = hdo__mixer_find(c->kind), .seed = seed, .n = n, .period = c->period, .warmup = warmup};
    if (m->ops == NULL) return hdo__fail(e, HDO_E_CONFIG, "mixing.kind '%s' does not exist", c->kind);
    const hdo_mixer_ops *ops = m->ops; /* init may choose another */
    hdo_status st = ops->init != NULL ? ops->init(m, c, n_first, e) : HDO_OK;
    if (st != HDO_OK) {
        hdo__mixer_clear(m);
        return st;
    }
    size_t scratch = ops->scratch != NULL ? ops->scratch(m) : (size_t)n;
    m->pairs = hdo__alloc((size_t)(n / 2 + 1) * sizeof(hdo_pair));
    m->scratch = hdo__alloc(scratch * sizeof(uint32_t));
    if (m->pairs == NULL || m->scratch == NULL) {
        hdo__mixer_clear(m);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the matching of %d nodes", n);
    }
    return HDO_OK;
}

hdo_status hdo__mixer_init(hdo_mixer *m, const hdo_mixing_config *c, uint64_t seed, int n, int64_t warmup,
                           hdo_error *e) {
    return hdo__mixer_init_placed(m, c, seed, n, -1, warmup, e);
}

void hdo__mixer_clear(hdo_mixer *m) {
    hdo__free(m->pairs);
    hdo__free(m->scratch);
    hdo__free(m->vertex);
    hdo__free(m->trouble);
    hdo__complaint_free(m->complaint);
    hdo__graph_clear(&m->graph);
    *m = (hdo_mixer){0};
}

void hdo__mixer_plan(hdo_mixer *m, int64_t t, hdo_plan *plan) {
    /* During the warm-up every node trains alone, whatever the time model (HDO, appendix: "warm-up steps"). */
    bool warm = t < m->warmup;
    bool meets = !warm && m->n > 1 && (t + 1 - m->warmup) % m->period == 0;
    *plan = (hdo_plan){.pairs = m->pairs, .all_step = warm || m->ops->all_step || m->n == 1};
    if (m->ops->match != NULL && !plan->all_step) { /* pairwise: who meets also says who steps */
        plan->n_pairs = m->ops->match(m, t, m->pairs, m->scratch);
    } else if (meets && among_their_own(m, t)) {
        plan->n_pairs = match_own(m, t, m->pairs, m->scratch);
    } else if (meets && m->ops->match != NULL) {
        plan->n_pairs = m->ops->match(m, t, m->pairs, m->scratch);
    }
    plan->allreduce = meets && m->ops->allreduce;
}
