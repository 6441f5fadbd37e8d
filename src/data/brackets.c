/* SPDX-License-Identifier: Apache-2.0
 *
 * Brackets: strings of '(' and ')', to be judged correct (label 1) or not (label 0). Generated, nothing to download.
 *
 * For every even length 2, 4, ..., 256 there are 100 correct and 100 incorrect training strings (25,600) and 10 + 10
 * validation strings (2,560). A sample is <start> string <stop>, padded to `positions` (258) with <pad>. When positions
 * is smaller than 258, lengths end at positions - 2.
 *
 * Correct strings are uniform over all balanced strings of their length, by the cycle lemma (Dvoretzky, Motzkin 1947):
 * of the 2n+1 rotations of a sequence of n+1 '(' and n ')' exactly one keeps every prefix sum positive; without its
 * first '(' it is a balanced string, and every balanced string arises from equally many sequences. Incorrect strings
 * are uniform over all strings that fail the check, by rejection; most have unequal counts.
 *
 * Disjoint: validation first picks V different strings of each length and label, uniformly, and uses them in turn;
 * training draws again whatever is among them. V = 10 where there are at least 110 different strings, otherwise a
 * share of one in eleven, at least one: short lengths repeat strings inside each set, but never across. The one
 * exception is length 2, correct: there is only "()", which stands in both.
 *
 *   different strings   length 2   4   6    8   10    12
 *   correct                    1   2   5   14   42   132     V: 1 (shared), 1, 1, 1, 3, 10
 *   incorrect                  3  14  59  242  ...           V: 1, 1, 5, 10
 *
 * data.law: authors, the law of the authors' published file: a correct string of n pairs is (A)B with the number of
 * pairs of A uniform over 0 .. n-1, A and B made the same way. It is flatter: lengths 194 to 256 have a greatest depth
 * of 8.8 in the mean, uniform strings 17.3. Label 0 means correct there. Incorrect strings, and what is said above
 * about the two sets, are the same.
 *
 * Order: sample i is correct if i % 2, length 2 + 2 (i / 2 % L), so that the first k samples are balanced for every k.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "data/data_impl.h"

enum { GEN = 1, FIELD_VAL = 0, FIELD_TRAIN = 1 }; /* GEN: node number of this generator in HDO_RNG_DATA */

typedef struct maker { /* strings of one length and one label */
    uint64_t seed;
    int len;
    bool correct, authors;
    int n_held;
    uint8_t held[HDO_BRACKETS_VAL][HDO_BRACKETS_LONGEST]; /* validation's strings, as 1 for '(' */
} maker;

void hdo__brackets_balanced(hdo_stream s, int n_pairs, bool *open) {
    bool seq[HDO_BRACKETS_LONGEST + 1];
    const int m = 2 * n_pairs + 1;
    assert(n_pairs >= 1 && m <= HDO_BRACKETS_LONGEST + 1);
    int ups = n_pairs + 1;
    for (int i = 0; i < m; i++) { /* a uniform arrangement, chosen place by place */
        seq[i] = hdo__rng_below(s, (uint64_t)i, (uint64_t)(m - i)) < (uint64_t)ups;
        if (seq[i]) ups--;
    }
    int sum = 0, least = 0, start = 0; /* the good rotation starts after the last minimum of the prefix sums */
    for (int i = 0; i < m; i++) {
        sum += seq[i] ? 1 : -1;
        if (sum <= least) {
            least = sum;
            start = i + 1;
        }
    }
    for (int i = 0; i < 2 * n_pairs; i++) open[i] = seq[(start + 1 + i) % m];
}

/* (A)B, A B, ...: the loop goes on with B. Draws are numbered in the order of the opening brackets. */
static void fill_recursive(hdo_stream s, uint64_t *draw, int n_pairs, bool *open) {
    while (n_pairs > 0) {
        int a = (int)hdo__rng_below(s, (*draw)++, (uint64_t)n_pairs);
        open[0] = true;
        fill_recursive(s, draw, a, open + 1);
        open[2 * a + 1] = false;
        open += 2 * a + 2;
        n_pairs -= a + 1;
    }
}

void hdo__brackets_recursive(hdo_stream s, int n_pairs, bool *open) {
    uint64_t draw = 0;
    fill_recursive(s, &draw, n_pairs, open);
}

static bool balanced(const uint8_t *s, int len) {
    int depth = 0;
    for (int i = 0; i < len; i++) {
        depth += s[i] ? 1 : -1;
        if (depth < 0) return false;
    }
    return depth == 0;
}

/* Draw number `draw` of the given field into s (len), 1 for '('. */
static void draw_one(const maker *m, int field, uint32_t *draw, uint8_t *s) {
    uint32_t sub = (uint32_t)(field << 1 | (m->correct ? 1 : 0)) | (uint32_t)m->len << 8;
    if (m->correct) {
        bool open[HDO_BRACKETS_LONGEST];
        hdo_stream at = hdo__stream(m->seed, HDO_RNG_DATA, GEN, (*draw)++, sub);
        if (m->authors) {
            hdo__brackets_recursive(at, m->len / 2, open);
        } else {
            hdo__brackets_balanced(at, m->len / 2, open);
        }
        for (int i = 0; i < m->len; i++) s[i] = open[i];
        return;
    }
    do {
        uint32_t bits[HDO_BRACKETS_LONGEST / 32];
        hdo__rng_bits(hdo__stream(m->seed, HDO_RNG_DATA, GEN, (*draw)++, sub), 0, HDO_BRACKETS_LONGEST / 32, bits);
        for (int i = 0; i < m->len; i++) s[i] = (uint8_t)(bits[i / 32] >> (i % 32) & 1u);
    } while (balanced(s, m->len));
}

static bool is_held(const maker *m, const uint8_t *s) {
    for (int v = 0; v < m->n_held; v++) {
        if (memcmp(m->held[v], s, (size_t)m->len) == 0) return true;
    }
    return false;
}

/* How many different strings there are, at most 110 (exact below that). */
static int distinct(int len, bool correct) {
    static const int catalan[6] = {1, 1, 2, 5, 14, 42};
    int n = len / 2, c = n < 6 ? catalan[n] : 110;
    if (correct) return c;
    int all = len < 8 ? (1 << len) - c : 110;
    return all < 110 ? all : 110;
}

static void maker_init(maker *m, const hdo_brackets *how, int len, bool correct) {
    *m = (maker){.seed = how->seed, .len = len, .correct = correct, .authors = how->authors};
    int v = distinct(len, correct) / 11;
    if (v < 1) v = 1;
    if (v > HDO_BRACKETS_VAL) v = HDO_BRACKETS_VAL;
    uint32_t draw = 0;
    while (m->n_held < v) {
        uint8_t *s = m->held[m->n_held];
        draw_one(m, FIELD_VAL, &draw, s);
        if (!is_held(m, s)) m->n_held++;
    }
}

static void put_sample(hdo_tokens *t, int64_t i, const uint8_t *s, int len, bool label) {
    uint8_t *row = t->token + (size_t)i * (size_t)t->positions;
    memset(row, HDO_TOK_PAD, (size_t)t->positions);
    row[0] = HDO_TOK_START;
    for (int k = 0; k < len; k++) row[k + 1] = s[k] ? HDO_TOK_OPEN : HDO_TOK_CLOSE;
    row[len + 1] = HDO_TOK_STOP;
    t->label[i] = label;
}

void hdo__tokens_clear(hdo_tokens *t) {
    free(t->token);
    free(t->label);
    *t = (hdo_tokens){0};
}

hdo_status hdo__brackets_make(hdo_tokens *t, const hdo_brackets *how, bool val, hdo_error *e) {
    const int positions = how->positions;
    *t = (hdo_tokens){.positions = positions};
    const int longest = (positions - 2 < HDO_BRACKETS_LONGEST ? positions - 2 : HDO_BRACKETS_LONGEST) & ~1;
    if (longest < 2) return hdo__fail(e, HDO_E_CONFIG, "data.positions is %d; brackets need at least 4", positions);
    const int n_len = longest / 2, per = val ? HDO_BRACKETS_VAL : HDO_BRACKETS_TRAIN;
    t->count = (int64_t)2 * n_len * per;
    t->token = malloc((size_t)t->count * (size_t)positions);
    t->label = malloc((size_t)t->count);
    if (t->token == NULL || t->label == NULL) {
        hdo__tokens_clear(t);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the brackets data");
    }
    for (int l = 0; l < n_len; l++) {
        for (int correct = 0; correct < 2; correct++) {
            maker m;
            maker_init(&m, how, 2 * l + 2, correct != 0);
            const bool only_one = correct != 0 && l == 0;
            uint32_t draw = 0;
            for (int r = 0; r < per; r++) {
                uint8_t s[HDO_BRACKETS_LONGEST];
                if (val) {
                    memcpy(s, m.held[r % m.n_held], (size_t)m.len);
                } else {
                    do {
                        draw_one(&m, FIELD_TRAIN, &draw, s);
                    } while (!only_one && is_held(&m, s));
                }
                put_sample(t, ((int64_t)r * n_len + l) * 2 + correct, s, m.len, (correct != 0) != how->authors);
            }
        }
    }
    return HDO_OK;
}

/* ---- the data set ---- */

typedef struct tokenset {
    hdo_dataset ds;
    hdo_tokens t;
} tokenset;

static void destroy(hdo_dataset *ds) {
    tokenset *b = (tokenset *)ds;
    hdo__tokens_clear(&b->t);
    free(b);
}

static void gather(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in, int32_t *tok,
                   int32_t *label) {
    const tokenset *b = (const tokenset *)ds;
    (void)augment;
    (void)in;
    for (int k = 0; k < n; k++) {
        assert(idx[k] >= 0 && idx[k] < ds->count);
        const uint8_t *row = b->t.token + (size_t)idx[k] * (size_t)ds->n_in;
        int32_t *dst = tok + (size_t)k * (size_t)ds->n_in;
        for (int p = 0; p < ds->n_in; p++) dst[p] = row[p];
        label[k] = b->t.label[idx[k]];
    }
}

static int32_t label_of(const hdo_dataset *ds, int64_t i) {
    return ((const tokenset *)ds)->t.label[i];
}

static const hdo_dataset_ops ops = {.name = "tokens", .destroy = destroy, .gather = gather, .label = label_of};

hdo_status hdo__tokenset_create(hdo_dataset **out, hdo_tokens *t, hdo_error *e) {
    tokenset *b = calloc(1, sizeof *b);
    if (b == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a data set");
    b->ds = (hdo_dataset){.ops = &ops,
                          .count = t->count,
                          .n_in = t->positions,
                          .shape = {1, 1, t->positions},
                          .classes = 2,
                          .vocab = HDO_TOK_COUNT};
    b->t = *t;
    *t = (hdo_tokens){0};
    *out = &b->ds;
    return HDO_OK;
}

static hdo_status open_half(const hdo_data_config *c, const char *path, bool val, hdo_dataset **out, hdo_error *e) {
    const int positions = c->positions > 0 ? (int)c->positions : HDO_BRACKETS_LONGEST + 2;
    const bool authors = c->law.id == HDO_LAW_AUTHORS;
    hdo_tokens t = {0};
    hdo_status st;
    char sha[65], text[160];
    if (path != NULL) {
        hdo_blob b;
        st = hdo__blob_read(&b, path, e);
        if (st != HDO_OK) return st;
        hdo__sha256_bytes(b.p, b.len, sha);
        st = hdo__brackets_parse(&t, (const char *)b.p, b.len, positions, path, e);
        hdo__blob_close(&b);
    } else {
        st = hdo__brackets_make(&t, &(hdo_brackets){(uint64_t)c->data_seed, positions, authors}, val, e);
        snprintf(text, sizeof text, "brackets 1 %s positions=%d seed=%lld%s", val ? "val" : "train", positions,
                 (long long)c->data_seed, authors ? " law=authors" : "");
        hdo__sha256_bytes(text, strlen(text), sha);
    }
    if (st == HDO_OK) st = hdo__tokenset_create(out, &t, e);
    hdo__tokens_clear(&t);
    if (st != HDO_OK) return st;
    const int64_t limit = val ? c->val : c->train;
    if (limit > 0 && limit < (*out)->count) (*out)->count = limit;
    memcpy((*out)->sha256, sha, sizeof sha);
    return HDO_OK;
}

hdo_status hdo__brackets_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e) {
    if (c->positions < 0 || c->positions > 1 << 20) {
        return hdo__fail(e, HDO_E_CONFIG, "data.positions is %lld; 4 .. 1048576 makes sense", (long long)c->positions);
    }
    if ((c->path[0] == '\0') != (c->path_val[0] == '\0')) {
        return hdo__fail(e, HDO_E_CONFIG, "brackets from files need both data.path (training) and data.path_val");
    }
    const bool own = c->path[0] != '\0';
    if (own && c->law.id == HDO_LAW_AUTHORS) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "data.law is 'authors', but the strings of data.path are there already; leave data.law alone");
    }
    hdo_status st = open_half(c, own ? c->path : NULL, false, train, e);
    if (st == HDO_OK) st = open_half(c, own ? c->path_val : NULL, true, val, e);
    return st;
}
