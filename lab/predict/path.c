/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient descent at a given pace, with large batches (or the exact gradient where there are no data), and the problem
 * as it looks on the way: at the start, after the warm-up and at T/16, T/8, ... T. What noise the large batches leave
 * is known by the same calculus and taken off by the reader.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "lab/predict/predict_internal.h"

enum { HALVINGS = 4, TICK = 16, BATCH_MOST = 64 };

void hdo__path_clear(hdo_path *p) {
    hdo__free(p->pace);
    hdo__free(p->scale);
    hdo__free(p->at);
    *p = (hdo_path){0};
}

double hdo__path_hat(const hdo_path *p, int i, int64_t t) {
    double s = (double)t, mid = (double)p->at[i].step;
    if (s <= mid) {
        if (i == 0) return s < mid ? 0.0 : 1.0;
        double lo = (double)p->at[i - 1].step;
        return s > lo ? (s - lo) / (mid - lo) : 0.0;
    }
    if (i + 1 == p->n) return 0.0;
    double hi = (double)p->at[i + 1].step;
    return s < hi ? (hi - s) / (hi - mid) : 0.0;
}

static int points(int64_t total, int64_t warmup, int64_t *step) {
    int n = 0;
    step[n++] = 0;
    if (warmup > 0 && warmup < total) step[n++] = warmup;
    for (int k = HALVINGS; k >= 0; k--) {
        int64_t at = (warmup < total ? warmup + ((total - warmup) >> k) : total >> k);
        if (at > step[n - 1]) step[n++] = at;
    }
    return n;
}

static void interpolate(hdo_path *p) {
    for (int i = 0; i + 1 < p->n; i++) {
        int64_t lo = p->at[i].step, hi = p->at[i + 1].step;
        double a = log(fmax(p->at[i].trace, 1e-300)), b = log(fmax(p->at[i + 1].trace, 1e-300));
        for (int64_t t = lo; t <= hi; t++) p->scale[t] = exp(a + (b - a) * (double)(t - lo) / (double)(hi - lo));
    }
    if (p->n == 1) p->scale[0] = p->at[0].trace;
}

/* Samples of step t: a window of an endless shuffled sequence over all training data. */
static int64_t choose(const hdo_lens *l, int64_t t, int64_t batch, int64_t *idx) {
    int64_t count = l->run->problem.train->count;
    if (batch > count) batch = count;
    for (int64_t i = 0; i < batch; i++) {
        int64_t at = t * batch + i;
        hdo_perm q = hdo__perm(
            hdo__stream((uint64_t)l->run->config.seed, HDO_RNG_PROBLEM, 3, (uint64_t)(at / count), 0), (uint64_t)count);
        idx[i] = (int64_t)hdo__perm_at(&q, (uint64_t)(at % count));
    }
    return batch;
}

/* ---- nodes around the mean ---- */

/* Gradients are taken where the nodes are, so the mean descends E f(x + xi), with xi spread as the nodes are: f + tr(H
 * Gamma) / 2 to second order. Where curvature falls along the way (saturating losses) the mean moves faster for it. A
 * xi is made every step: the noise of one batch of a class that is drawn by its share, as far as meetings leave it. */
typedef struct wobble {
    const hdo_crowd *crowd; /* NULL: nobody is anywhere else */
    double left[HDO_CLASSES_MAX];
    double *xi, *ga; /* (d) each */
    int64_t *idx;
    bool any;
} wobble;

static int draw_class(const hdo_lens *l, const hdo_crowd *w, int64_t t) {
    uint64_t at = hdo__rng_below(hdo__stream((uint64_t)l->run->config.seed, HDO_RNG_PROBLEM, 4, (uint64_t)t, 0), 0,
                                 (uint64_t)w->n);
    int k = 0;
    for (int64_t end = w->cls[0].count; k + 1 < w->n_classes && (int64_t)at >= end; end += w->cls[++k].count)
        ;
    return k;
}

static void add_directions(const hdo_lens *l, int64_t t, double scale, double *xi) {
    float tile[1024];
    size_t d = l->run->problem.objective->d;
    hdo_stream s = hdo__stream((uint64_t)l->run->config.seed, HDO_RNG_PROBLEM, 5, (uint64_t)t, 0);
    for (size_t off = 0; off < d; off += 1024) {
        size_t len = d - off < 1024 ? d - off : 1024;
        hdo__rng_normal(s, off, len, tile);
        hdo__ranges_clear(l->run->problem.objective->idle, off, off + len, tile);
        for (size_t j = 0; j < len; j++) xi[off + j] += scale * (double)tile[j];
    }
}

static hdo_status wander(hdo_lens *l, wobble *b, int64_t t, const double *x, hdo_error *e) {
    const hdo_crowd *w = b->crowd;
    size_t d = l->run->problem.objective->d;
    int k = draw_class(l, w, t);
    const hdo_crowd_class *c = &w->cls[k];
    for (int i = 0; i < w->n_classes; i++) {
        if (w->cls[i].count > 0)
            b->left[i] = (b->left[i] + w->enter[i][1][t]) * (hdo__crowd_meets(w, t) ? w->lambda : 1.0);
    }
    double scale = sqrt(b->left[k] * w->n / c->count), size = 0.0;
    int64_t m = (int64_t)c->batch < BATCH_MOST ? (int64_t)c->batch : BATCH_MOST;
    b->any = scale > 0.0;
    if (!b->any) return HDO_OK;
    m = choose(l, 1000003 + t, 2 * m, b->idx) / 2;
    hdo_status st = hdo__lens_grad(l, b->idx, m, x, b->xi, NULL, e);
    if (st == HDO_OK) st = hdo__lens_grad(l, b->idx + m, m, x, b->ga, NULL, e);
    for (size_t j = 0; j < d; j++) {
        size += 0.5 * (b->xi[j] * b->xi[j] + b->ga[j] * b->ga[j]);
        b->xi[j] = scale * (b->xi[j] - b->ga[j]) * sqrt(0.5 * (double)m / c->batch);
    }
    if (c->zeroth) add_directions(l, t, scale * sqrt(size / c->rv), b->xi);
    return st;
}

/* Gradient of a batch: one half of it at x + xi, the other at x - xi. */
static hdo_status gradient(hdo_lens *l, const wobble *b, const int64_t *idx, int64_t n, double *x, double *g,
                           double *loss, hdo_error *e) {
    size_t d = l->run->problem.objective->d;
    if (b->crowd == NULL || !b->any || n < 2) return hdo__lens_grad(l, idx, n, x, g, loss, e);
    double other = 0.0, share = (double)(n / 2) / (double)n;
    for (size_t j = 0; j < d; j++) x[j] += b->xi[j];
    hdo_status st = hdo__lens_grad(l, idx, n / 2, x, b->ga, &other, e);
    for (size_t j = 0; j < d; j++) x[j] -= 2.0 * b->xi[j];
    if (st == HDO_OK) st = hdo__lens_grad(l, idx + n / 2, n - n / 2, x, g, loss, e);
    for (size_t j = 0; j < d; j++) {
        x[j] += b->xi[j];
        g[j] = share * b->ga[j] + (1.0 - share) * g[j];
    }
    *loss = share * other + (1.0 - share) * *loss;
    return st;
}

static hdo_status walk(hdo_lens *l, hdo_path *p, int64_t batch, const hdo_crowd *w, const int64_t *step, int n,
                       double *x, hdo_error *e) {
    size_t d = l->run->problem.objective->d;
    double *g = x + d, *m = x + 2 * d, loss;
    int64_t *idx = hdo__alloc((size_t)(batch + 1 + 2 * BATCH_MOST) * sizeof *idx);
    if (idx == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a batch");
    wobble b = {.crowd = w, .xi = x + 3 * d, .ga = x + 4 * d, .idx = idx + batch + 1};
    hdo_status st = HDO_OK;
    for (int64_t t = 0; t <= p->total && st == HDO_OK; t++) {
        if (p->n < n && t == step[p->n]) {
            st = hdo__lens_look(l, x, &p->at[p->n], e);
            p->at[p->n].step = t;
            p->n += st == HDO_OK;
        }
        if (t == p->total || st != HDO_OK) break;
        int64_t size = l->run->problem.train != NULL ? choose(l, t, batch, idx) : 0;
        if (w != NULL) st = wander(l, &b, t, x, e);
        if (st == HDO_OK) st = gradient(l, &b, idx, size, x, g, &loss, e);
        if (st == HDO_OK && !isfinite(loss)) {
            p->lost = t;
            break;
        }
        for (size_t j = 0; j < d; j++) {
            m[j] = p->momentum * m[j] + (1.0 - p->momentum) * g[j];
            x[j] -= p->pace[t] * m[j];
        }
        if (st == HDO_OK && t % TICK == 0) st = hdo__study_tick(&l->hooks, "descent", t, p->total, e);
    }
    hdo__free(idx);
    return st;
}

hdo_status hdo__path_make(hdo_lens *l, const hdo_descent *q, hdo_path *out, hdo_error *e) {
    const hdo_run *r = l->run;
    const hdo_crowd *w = q->crowd;
    bool around = w->enter[0][1] != NULL && w->n > 1 && r->problem.train != NULL;
    size_t d = r->problem.objective->d;
    int64_t step[HDO_LOCALS_MAX];
    int n = points(w->total, w->warmup, step);
    *out = (hdo_path){.total = w->total, .momentum = q->momentum, .lost = -1};
    out->batch = r->problem.train != NULL && q->batch < r->problem.train->count ? (double)q->batch : 0.0;
    out->pace = hdo__alloc((size_t)w->total * sizeof(double));
    out->scale = hdo__alloc((size_t)(w->total + 1) * sizeof(double));
    out->at = hdo__alloc((size_t)n * sizeof(hdo_local));
    double *x = hdo__alloc(5 * d * sizeof *x);
    hdo_status st = HDO_OK;
    if (out->pace == NULL || out->scale == NULL || out->at == NULL || x == NULL) {
        st = hdo__fail(e, HDO_E_MEMORY, "out of memory for a descent of %lld steps", (long long)w->total);
    } else {
        memcpy(out->pace, q->pace, (size_t)w->total * sizeof(double));
        for (size_t j = 0; j < d; j++) x[j] = (double)r->population.models.X[j];
        st = walk(l, out, q->batch, around ? w : NULL, step, n, x, e);
        if (st == HDO_E_FAILED && out->n > 0 && out->n < n && !isfinite(x[0])) st = HDO_OK;
    }
    if (st == HDO_OK) interpolate(out);
    if (st != HDO_OK) hdo__path_clear(out);
    hdo__free(x);
    return st;
}
