/* SPDX-License-Identifier: Apache-2.0 — data sets over a table of one's own, and sets of which only numbers count. */
#include "data/own_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "config/own_call.h"
#include "data/data_impl.h"

typedef struct own_set {
    hdo_dataset ds;
    hdo_table_def *table;
    int train;
} own_set;

static hdo_status own_gather(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in,
                             int32_t *tok, int32_t *label) {
    const own_set *s = (const own_set *)ds;
    hdo_caller k;
    (void)augment;
    hdo__call_begin(&k, s->table, -1, -1, 0, 0);
    int result = s->table->def.dataset.gather(s->table->user, &k.call, s->train, n, idx, in, tok, label);
    hdo_status st = hdo__call_end(&k, result, ds->complaint);
    bool sound = st == HDO_OK;
    for (int i = 0; i < n && sound; i++) sound = label[i] >= 0 && label[i] < ds->classes;
    for (int64_t i = 0; tok != NULL && i < (int64_t)n * ds->n_in && sound; i++)
        sound = tok[i] >= 0 && tok[i] < ds->vocab;
    if (sound) return HDO_OK;
    if (st == HDO_OK) {
        snprintf(k.message, sizeof k.message, "gather gave a label or token out of range (classes %d, vocab %d)",
                 ds->classes, ds->vocab);
        st = hdo__call_failed(&k, -1, ds->complaint);
    }
    memset(label, 0, (size_t)n * sizeof *label); /* nobody sees what was not gathered */
    if (in != NULL) memset(in, 0, (size_t)n * (size_t)ds->n_in * sizeof *in);
    if (tok != NULL) memset(tok, 0, (size_t)n * (size_t)ds->n_in * sizeof *tok);
    return st;
}

/* Asked while a run is wired; a failure is found there, through the complaint. */
static int32_t own_label(const hdo_dataset *ds, int64_t i) {
    const own_set *s = (const own_set *)ds;
    const hdo_dataset_def *d = &s->table->def.dataset;
    int32_t label = 0;
    hdo_caller k;
    int result;
    float *in = NULL;
    if (d->label != NULL) {
        hdo__call_begin(&k, s->table, -1, -1, 0, 0);
        result = d->label(s->table->user, &k.call, s->train, i, &label);
    } else {
        in = malloc((size_t)ds->n_in * sizeof *in);
        hdo__call_begin(&k, s->table, -1, -1, 0, 0);
        result = in == NULL ? -1
                            : d->gather(s->table->user, &k.call, s->train, 1, &i, ds->vocab > 0 ? NULL : in,
                                        ds->vocab > 0 ? (int32_t *)(void *)in : NULL, &label);
    }
    if (result == 0 && (label < 0 || label >= ds->classes)) {
        snprintf(k.message, sizeof k.message, "sample %lld has label %d, but there are %d classes", (long long)i,
                 (int)label, ds->classes);
        result = -1;
    }
    free(in);
    return hdo__call_end(&k, result, ds->complaint) == HDO_OK ? label : 0;
}

static void own_destroy(hdo_dataset *ds) {
    own_set *s = (own_set *)ds;
    hdo__complaint_free(ds->complaint);
    hdo__table_drop(s->table);
    free(s);
}

static const hdo_dataset_ops own_ops = {
    .name = "own", .destroy = own_destroy, .try_gather = own_gather, .label = own_label};

static hdo_status make(hdo_table_def *t, int train, int64_t limit, hdo_dataset **out, hdo_error *e) {
    const hdo_dataset_def *d = &t->def.dataset;
    own_set *s = calloc(1, sizeof *s);
    hdo_complaint *c = hdo__complaint_new();
    if (s == NULL || c == NULL) {
        free(s);
        hdo__complaint_free(c);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for a data set");
    }
    int64_t count = train ? d->train_count : d->val_count;
    bool flat = d->shape[0] == 0;
    char text[HDO_IDENTITY_MAX + 128];
    s->ds = (hdo_dataset){.ops = &own_ops,
                          .count = limit > 0 && limit < count ? limit : count,
                          .n_in = d->n_in,
                          .classes = d->classes,
                          .vocab = d->vocab,
                          .complaint = c};
    for (int i = 0; i < 3; i++) s->ds.shape[i] = flat ? (i < 2 ? 1 : d->n_in) : d->shape[i];
    s->table = t;
    s->train = train;
    hdo__table_keep(t);
    snprintf(text, sizeof text, "%s %s %d %lld %d", t->name, t->identity, train, (long long)s->ds.count, d->n_in);
    hdo__sha256_bytes(text, strlen(text), s->ds.sha256);
    *out = &s->ds;
    return HDO_OK;
}

hdo_status hdo__own_data_open(hdo_table_def *t, const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val,
                              hdo_error *e) {
    *train = *val = NULL;
    hdo_status st = make(t, 1, c->train, train, e);
    if (st == HDO_OK) st = make(t, 0, c->val, val, e);
    if (st == HDO_OK && c->pretext.id == HDO_PRETEXT_ROTATION) {
        st = hdo__turned_wrap(train, t->name, e);
        if (st == HDO_OK) st = hdo__turned_wrap(val, t->name, e);
    }
    if (st == HDO_OK) return HDO_OK;
    hdo__dataset_destroy(*train);
    hdo__dataset_destroy(*val);
    *train = *val = NULL;
    return st;
}

/* ---- only numbers ---- */

typedef struct index_set {
    hdo_dataset ds;
    hdo_dataset *inner;
} index_set;

static void nothing_gathered(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in,
                             int32_t *tok, int32_t *label) {
    (void)ds, (void)idx, (void)augment, (void)in, (void)tok;
    memset(label, 0, (size_t)n * sizeof *label);
}

static int32_t inner_label(const hdo_dataset *ds, int64_t i) {
    const hdo_dataset *inner = ((const index_set *)ds)->inner;
    return inner != NULL ? inner->ops->label(inner, i) : 0;
}

static void index_destroy(hdo_dataset *ds) {
    hdo__dataset_destroy(((index_set *)ds)->inner);
    free(ds);
}

static const hdo_dataset_ops index_ops = {
    .name = "indices", .destroy = index_destroy, .gather = nothing_gathered, .label = inner_label};

hdo_status hdo__index_set_create(hdo_dataset **out, hdo_dataset *inner, int64_t count, const char *text, hdo_error *e) {
    index_set *s = calloc(1, sizeof *s);
    if (s == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a data set");
    s->ds = (hdo_dataset){.ops = &index_ops, .count = count, .shape = {1, 1, 0}, .classes = 1};
    s->inner = inner;
    if (inner != NULL) {
        s->ds.count = inner->count;
        s->ds.classes = inner->classes;
        s->ds.complaint = inner->complaint;
        memcpy(s->ds.sha256, inner->sha256, sizeof s->ds.sha256);
    } else {
        hdo__sha256_bytes(text, strlen(text), s->ds.sha256);
    }
    *out = &s->ds;
    return HDO_OK;
}
