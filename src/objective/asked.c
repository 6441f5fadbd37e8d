/* SPDX-License-Identifier: Apache-2.0 — an objective whose values are told: see asked.h. */
#include "objective/asked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/vec.h"
#include "config/own_call.h"
#include "objective/own_objective.h"

static const hdo_objective_ops asked_ops;

hdo_asked *hdo__asked_of(const hdo_objective *f) {
    return f->ops == &asked_ops ? (hdo_asked *)(void *)f : NULL;
}

void hdo__asked_begin(hdo_asked *a, int node, bool ahead) {
    hdo_asked_node *v = &a->node[node];
    v->n = v->open = v->next = 0;
    v->ahead = ahead;
    v->missing = v->strayed = false;
}

void hdo__asked_pass(hdo_asked *a, int node) {
    a->node[node].next = 0;
    a->node[node].missing = a->node[node].strayed = false;
}

/* ---- questions ---- */

/* Room for one more, with its vectors; what is there is used again in later estimates. */
static bool reserve(hdo_asked_node *v, size_t d) {
    if (v->n == v->cap) {
        int cap = v->cap == 0 ? 8 : 2 * v->cap;
        hdo_asked_question *more = hdo__alloc((size_t)cap * sizeof *more);
        if (more == NULL) return false;
        if (v->cap > 0) memcpy(more, v->question, (size_t)v->cap * sizeof *more);
        hdo__free(v->question);
        v->question = more;
        v->cap = cap;
    }
    hdo_asked_question *q = &v->question[v->n];
    if (q->x == NULL) q->x = hdo__alloc(2 * d * sizeof(float));
    if (q->x == NULL) return false;
    q->other = q->x + d;
    return true;
}

/* The question at hand: one that was asked before, or a new one, which is missing. u: direction of a slope, or NULL. */
static hdo_status question(hdo_asked *a, int node, hdo_asked_kind kind, const float *x, const float *u,
                           hdo_asked_question **out) {
    hdo_asked_node *v = &a->node[node];
    size_t bytes = a->base.d * sizeof(float);
    if (v->next == v->n) {
        if (!reserve(v, a->base.d)) return HDO_E_MEMORY;
        hdo_asked_question *q = &v->question[v->n++];
        q->kind = kind;
        q->out = q->told = false;
        q->value = 0.0;
        memcpy(q->x, x, bytes);
        if (u != NULL) memcpy(q->other, u, bytes);
        v->open++;
    }
    *out = &v->question[v->next++];
    bool same =
        (*out)->kind == kind && memcmp((*out)->x, x, bytes) == 0 && (u == NULL || memcmp((*out)->other, u, bytes) == 0);
    if (!same) v->strayed = true;
    if (!same || !(*out)->told) v->missing = true;
    return HDO_OK;
}

/* After the questions of one call: go on, or break the estimate off. */
static hdo_status verdict(const hdo_asked *a, int node) {
    const hdo_asked_node *v = &a->node[node];
    return v->strayed || (v->missing && !v->ahead) ? HDO_E_STOPPED : HDO_OK;
}

/* ---- the table ---- */

static hdo_status asked_loss(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, double *loss,
                             float *buf) {
    hdo_asked *a = hdo__asked_of(f);
    hdo_asked_question *q;
    (void)w;
    (void)buf;
    *loss = 0.0;
    if (b->node < 0) return HDO_E_UNSUPPORTED;
    hdo_status st = question(a, b->node, HDO_ASKED_LOSS, x, NULL, &q);
    if (st != HDO_OK) return st;
    *loss = q->value;
    return verdict(a, b->node);
}

static hdo_status asked_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                             double *loss, float *buf) {
    hdo_asked *a = hdo__asked_of(f);
    hdo_asked_question *q;
    (void)w;
    (void)buf;
    *loss = 0.0;
    memset(g, 0, f->d * sizeof(float));
    if (b->node < 0) return HDO_E_UNSUPPORTED;
    hdo_status st = question(a, b->node, HDO_ASKED_GRADIENT, x, NULL, &q);
    if (st != HDO_OK) return st;
    *loss = q->value;
    if (q->told) memcpy(g, q->other, f->d * sizeof(float));
    return verdict(a, b->node);
}

/* x + nu u_r, as the wrapper in objective.c makes it: the same points as with a callback. All k of them are asked. */
static hdo_status asked_loss_many(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                  int first, int k, float nu, hdo_work *w, double *loss) {
    hdo_asked *a = hdo__asked_of(f);
    size_t mark = hdo__arena_mark(w->arena);
    float *y = hdo__arena_floats(w->arena, f->d);
    hdo_status st = b->node < 0 ? HDO_E_UNSUPPORTED : HDO_OK;
    for (int r = 0; r < k && st == HDO_OK; r++) {
        hdo_asked_question *q;
        hdo__dirs_fill(u, first + r, 0, f->d, y);
        hdo__axpby(f->d, 1.0f, x, nu, y);
        st = question(a, b->node, HDO_ASKED_LOSS, y, NULL, &q);
        if (st == HDO_OK) loss[r] = q->value;
    }
    hdo__arena_rewind(w->arena, mark);
    return st == HDO_OK ? verdict(a, b->node) : st;
}

/* The loss at x is a question of its own, in front of the slopes. */
static hdo_status asked_jvp(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                            int k, hdo_work *w, double *loss, double *dloss, float *buf) {
    hdo_asked *a = hdo__asked_of(f);
    hdo_asked_question *q;
    size_t mark = hdo__arena_mark(w->arena);
    float *dir = hdo__arena_floats(w->arena, f->d);
    (void)buf;
    *loss = 0.0;
    hdo_status st = b->node < 0 ? HDO_E_UNSUPPORTED : question(a, b->node, HDO_ASKED_LOSS, x, NULL, &q);
    if (st == HDO_OK) *loss = q->value;
    for (int r = 0; r < k && st == HDO_OK; r++) {
        hdo__dirs_fill(u, first + r, 0, f->d, dir);
        st = question(a, b->node, HDO_ASKED_SLOPE, x, dir, &q);
        if (st == HDO_OK) dloss[r] = q->value;
    }
    hdo__arena_rewind(w->arena, mark);
    return st == HDO_OK ? verdict(a, b->node) : st;
}

/* Nobody is asked for figures: rows hold what was told for the estimates (hdo_population.told). */
static hdo_status asked_evaluate(const hdo_objective *f, const hdo_batch *b, const float *X, size_t ld, int K,
                                 hdo_work *w, double *loss_sum, int64_t *correct) {
    (void)f;
    (void)b;
    (void)X;
    (void)ld;
    (void)w;
    (void)correct;
    for (int k = 0; k < K; k++) loss_sum[k] = (double)NAN;
    return HDO_OK;
}

static hdo_status asked_init(const hdo_objective *f, uint64_t seed, float *x) {
    const hdo_asked *a = hdo__asked_of(f);
    return hdo__own_start(a->table, f, seed, x);
}

static size_t asked_work_bytes(const hdo_objective *f, int batch, int k) {
    (void)batch;
    (void)k;
    return hdo__arena_round(f->d * sizeof(float));
}

static void asked_destroy(hdo_objective *f) {
    hdo_asked *a = hdo__asked_of(f);
    for (int i = 0; i < a->n && a->node != NULL; i++) {
        for (int k = 0; k < a->node[i].cap; k++) hdo__free(a->node[i].question[k].x);
        hdo__free(a->node[i].question);
    }
    hdo__free(a->node);
    hdo__complaint_free(f->complaint);
    hdo__table_drop(a->table);
    free(a->tensors);
    hdo__free(a);
}

static const hdo_objective_ops asked_ops = {
    .name = "asked",
    .destroy = asked_destroy,
    .work_bytes = asked_work_bytes,
    .init = asked_init,
    .loss = asked_loss,
    .grad = asked_grad,
    .jvp = asked_jvp,
    .loss_many = asked_loss_many,
    .evaluate = asked_evaluate,
};

bool hdo__own_is_asked(const hdo_table_def *t) {
    return t->def.objective.loss == NULL && t->def.objective.losses == NULL;
}

hdo_status hdo__asked_create(hdo_table_def *t, int n, hdo_objective **out, hdo_error *e) {
    const hdo_objective_def *d = &t->def.objective;
    hdo_asked *a = hdo__alloc(sizeof *a);
    if (a == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the objective");
    hdo__table_keep(t);
    a->table = t;
    a->base = (hdo_objective){.ops = &asked_ops,
                              .d = d->dim,
                              .usual_loss = d->usual_loss > 0.0 ? d->usual_loss : 1.0,
                              .model = t->name,
                              .eval_models = 1,
                              .eval_batch = 1,
                              .complaint = hdo__complaint_new()};
    a->n = n;
    a->node = hdo__alloc((size_t)n * sizeof *a->node);
    a->tensors = hdo__own_tensors(d, &a->base);
    if (a->node == NULL || a->tensors == NULL || a->base.complaint == NULL) {
        asked_destroy(&a->base);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the objective");
    }
    *out = &a->base;
    return HDO_OK;
}
