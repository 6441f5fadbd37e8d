/* SPDX-License-Identifier: Apache-2.0 — verdicts of the conformance suites, and that of data sets. */
#include "run/conform.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hdo__verdict(hdo_verdicts *v, bool holds, const char *what, const char *fmt, ...) {
    char why[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (!holds && v->failed++ == 0) snprintf(v->first, sizeof v->first, "%s: %s", what, why);
    size_t room = sizeof v->text - v->used;
    int n = snprintf(v->text + v->used, room, holds ? "ok %s\n" : "FAILED %s: %s\n", what, why);
    if (n > 0) v->used += (size_t)n < room ? (size_t)n : room - 1;
}

hdo_status hdo__verdicts_end(const hdo_verdicts *v, const char *name, char **report, hdo_error *e) {
    if (report != NULL && (*report = malloc(v->used + 1)) != NULL) memcpy(*report, v->text, v->used + 1);
    if (report != NULL && *report == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a report");
    if (v->failed == 0) return HDO_OK;
    return hdo__fail(e, HDO_E_FAILED, "'%s' does not conform in %d ways; the first: %s", name, v->failed, v->first);
}

/* ---- data ---- */

enum { BATCH = 5, GUARD = 16, THREADS = 4, ROUNDS = 25 };

typedef struct data_test {
    const hdo_dataset_def *d;
    void *user;
    hdo_verdicts *v;
} data_test;

typedef struct rows { /* BATCH samples and what must stay untouched behind them */
    float *in;
    int32_t label[BATCH + 1];
} rows;

static int gather(const data_test *t, int train, int n, const int64_t *idx, rows *r) {
    char message[512] = "";
    hdo_call call = {
        .struct_size = sizeof call, .node = -1, .step = -1, .message = message, .message_cap = sizeof message};
    bool tokens = t->d->vocab > 0;
    size_t cells = (size_t)BATCH * (size_t)t->d->n_in + GUARD;
    memset(r->in, 0x5a, cells * sizeof(float));
    memset(r->label, 0x5a, sizeof r->label);
    return t->d->gather(t->user, &call, train, n, idx, tokens ? NULL : r->in, tokens ? (int32_t *)(void *)r->in : NULL,
                        r->label);
}

static bool rows_sound(const data_test *t, const rows *r, int n) {
    const int32_t *tok = (const int32_t *)(const void *)r->in;
    bool sound = true;
    for (size_t i = 0; i < (size_t)n * (size_t)t->d->n_in; i++)
        sound = sound && (t->d->vocab > 0 ? tok[i] >= 0 && tok[i] < t->d->vocab : isfinite((double)r->in[i]) != 0);
    for (int i = 0; i < n; i++) sound = sound && r->label[i] >= 0 && r->label[i] < t->d->classes;
    return sound;
}

static bool rest_untouched(const data_test *t, const rows *r, int n) {
    const unsigned char *p = (const unsigned char *)(r->in + (size_t)n * (size_t)t->d->n_in);
    const unsigned char *end = (const unsigned char *)(r->in + (size_t)BATCH * (size_t)t->d->n_in + GUARD);
    bool same = true;
    for (; p < end; p++) same = same && *p == 0x5a;
    for (int i = n; i <= BATCH; i++) same = same && r->label[i] == 0x5a5a5a5a;
    return same;
}

static bool same_row(const data_test *t, const rows *a, int i, const rows *b, int j) {
    size_t n = (size_t)t->d->n_in;
    return memcmp(a->in + (size_t)i * n, b->in + (size_t)j * n, n * sizeof(float)) == 0 && a->label[i] == b->label[j];
}

typedef struct data_thread {
    const data_test *t;
    const int64_t *idx;
    const rows *want;
    rows got;
    bool same;
} data_thread;

static void *gather_often(void *p) {
    data_thread *h = p;
    h->same = true;
    for (int k = 0; k < ROUNDS; k++) {
        bool fine = gather(h->t, 1, BATCH, h->idx, &h->got) == 0;
        for (int i = 0; i < BATCH; i++) fine = fine && same_row(h->t, &h->got, i, h->want, i);
        h->same = h->same && fine;
    }
    return NULL;
}

static void try_threads(const data_test *t, const int64_t *idx, const rows *want) {
    data_thread h[THREADS];
    pthread_t id[THREADS];
    bool same = true;
    int n = 0;
    for (; n < THREADS; n++) {
        h[n] = (data_thread){.t = t, .idx = idx, .want = want};
        h[n].got.in = malloc(((size_t)BATCH * (size_t)t->d->n_in + GUARD) * sizeof(float));
        if (h[n].got.in == NULL || pthread_create(&id[n], NULL, gather_often, &h[n]) != 0) break;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(id[i], NULL);
        same = same && h[i].same;
        free(h[i].got.in);
    }
    if (n < THREADS) free(h[n].got.in);
    hdo__verdict(t->v, same, "threads",
                 "four threads at once get other samples than one; HDO_ANY_THREAD does not hold");
}

static void try_set(const data_test *t, int train, rows *a, rows *b) {
    const char *set = train ? "training" : "validation";
    int64_t count = train ? t->d->train_count : t->d->val_count, idx[BATCH];
    for (int i = 0; i < BATCH; i++) idx[i] = (count - 1) * i / (BATCH - 1);
    int result = gather(t, train, BATCH, idx, a);
    hdo__verdict(t->v, result == 0, "gather", "returned %d for %s samples", result, set);
    if (result != 0) return;
    hdo__verdict(t->v, rows_sound(t, a, BATCH), "range",
                 "%s samples hold numbers that are not finite, or labels or tokens out of range", set);
    hdo__verdict(t->v, rest_untouched(t, a, BATCH), "rows", "gather wrote behind the %d rows it was asked for", BATCH);
    bool alone = true, label = true;
    for (int i = 0; i < BATCH; i++) {
        int32_t y = -1;
        char message[512] = "";
        hdo_call call = {.struct_size = sizeof call, .message = message, .message_cap = sizeof message};
        alone = alone && gather(t, train, 1, &idx[i], b) == 0 && same_row(t, a, i, b, 0) && rest_untouched(t, b, 1);
        if (t->d->label != NULL)
            label = label && t->d->label(t->user, &call, train, idx[i], &y) == 0 && y == a->label[i];
    }
    hdo__verdict(t->v, alone, "alone", "a %s sample by itself is not the same as among others, or not every time", set);
    if (t->d->label != NULL) hdo__verdict(t->v, label, "label", "label and gather do not agree on %s samples", set);
    if (train && (t->d->flags & (unsigned)HDO_ANY_THREAD) != 0) try_threads(t, idx, a);
}

hdo_status hdo_test_dataset(const hdo_dataset_def *def, void *user, char **report, hdo_error *e) {
    if (report != NULL) *report = NULL;
    if (def == NULL) return hdo__misuse(e, "hdo_test_dataset", "a table");
    hdo_config *c = hdo_config_new(NULL, e);
    if (c == NULL) return HDO_E_MEMORY;
    hdo_verdicts *v = calloc(1, sizeof *v);
    hdo_dataset_def d = {0};
    memcpy(&d, def, def->struct_size < sizeof d ? def->struct_size : sizeof d);
    d.destroy = NULL;
    hdo_status st = v == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory") : hdo_config_use_dataset(c, &d, user, e);
    size_t bytes = st == HDO_OK ? ((size_t)BATCH * (size_t)d.n_in + GUARD) * sizeof(float) : 1;
    rows a = {.in = malloc(bytes)}, b = {.in = malloc(bytes)};
    if (st == HDO_OK && (a.in == NULL || b.in == NULL)) st = hdo__fail(e, HDO_E_MEMORY, "out of memory for samples");
    if (st == HDO_OK) {
        data_test t = {.d = &d, .user = user, .v = v};
        try_set(&t, 1, &a, &b);
        try_set(&t, 0, &a, &b);
        st = hdo__verdicts_end(v, d.name, report, e);
    }
    free(a.in);
    free(b.in);
    free(v);
    hdo_config_free(c);
    return st;
}
