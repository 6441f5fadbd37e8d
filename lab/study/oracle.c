/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of f and of every f^i without batch noise: whole shards, cut into chunks, sums in double. The model is a
 * double vector here; it becomes float at the door of the objective. Also the minimiser of a strongly convex f.
 */
#include <math.h>
#include <string.h>

#include "lab/study/study_internal.h"

enum { CHUNK = 256, MEMORY = 12, ITERATIONS = 3000 };

static size_t chunk_bytes(const hdo_run *r, int chunk) {
    return hdo__problem_batch_bytes(&r->problem, chunk) + hdo__objective_work_bytes(r->problem.objective, chunk, 1);
}

hdo_status hdo__oracle_init(hdo_exact_oracle *o, hdo_run *r, int64_t samples, hdo_error *e) {
    *o = (hdo_exact_oracle){.run = r, .chunk = CHUNK, .samples = samples};
    size_t len = r->problem.objective->d + r->problem.objective->n_buf;
    o->row = hdo__alloc(len * sizeof(float));
    o->g = hdo__alloc(len * sizeof(float));
    o->sum = hdo__alloc(r->problem.objective->d * sizeof(double));
    if (o->row == NULL || o->g == NULL || o->sum == NULL ||
        hdo__team_init(&o->team, r->team.threads, chunk_bytes(r, CHUNK)) != HDO_OK) {
        hdo__oracle_clear(o);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for gradients of dimension %zu", r->problem.objective->d);
    }
    memcpy(o->row, r->population.models.X, len * sizeof(float)); /* buffers of node 0; the rest is overwritten */
    return HDO_OK;
}

void hdo__oracle_clear(hdo_exact_oracle *o) {
    hdo__team_clear(&o->team);
    hdo__free(o->row);
    hdo__free(o->g);
    hdo__free(o->sum);
    *o = (hdo_exact_oracle){0};
}

int64_t hdo__oracle_count(const hdo_exact_oracle *o, int node) {
    if (o->run->problem.train == NULL) return 1;
    int64_t m = node < 0 ? o->run->problem.train->count : hdo__shard_count(o->run->problem.shards, node);
    return o->samples > 0 && o->samples < m ? o->samples : m;
}

static void set_row(hdo_exact_oracle *o, const double *x) {
    for (size_t j = 0; j < o->run->problem.objective->d; j++) o->row[j] = (float)x[j];
}

/* One chunk at o->row; g into o->g. */
static hdo_status chunk_grad(hdo_exact_oracle *o, const hdo_draw *q, bool noisy, double *loss, hdo_error *e) {
    hdo_run *r = o->run;
    const hdo_objective *f = r->problem.objective;
    hdo_work w = {&o->team.arena[0], &o->team, 0};
    size_t mark = hdo__arena_mark(w.arena);
    hdo_batch b = hdo__problem_samples(&r->problem, q->node, q->idx, q->n, w.arena);
    b.step = q->number;
    if (r->problem.train != NULL) {
        b.node = q->node >= 0 ? q->node : 0;
    } else {
        b.train = noisy;
    }
    hdo_status st = b.status;
    if (st == HDO_OK) st = hdo__objective_grad(f, &b, o->row, &w, o->g, loss, f->n_buf > 0 ? o->g + f->d : NULL);
    hdo__arena_rewind(w.arena, mark);
    return st == HDO_OK
               ? st
               : hdo__problem_fail(&r->problem, st, e, "the objective failed while its constants were measured");
}

/* Sum over the first `count` samples of node's shard (-1: of all data) of their gradients, into o->sum. */
static hdo_status add_samples(hdo_exact_oracle *o, int node, double *loss, hdo_error *e) {
    const hdo_run *r = o->run;
    size_t d = r->problem.objective->d;
    int64_t count = hdo__oracle_count(o, node), idx[CHUNK];
    for (int64_t first = 0; first < count; first += o->chunk) {
        int n = (int)(count - first < o->chunk ? count - first : o->chunk);
        for (int k = 0; k < n && r->problem.train != NULL; k++) {
            idx[k] = node < 0 ? first + k : hdo__shard_at(r->problem.shards, node, first + k);
        }
        double part;
        hdo_status st = chunk_grad(o, &(hdo_draw){node, idx, n, first}, false, &part, e);
        if (st != HDO_OK) return st;
        for (size_t j = 0; j < d; j++) o->sum[j] += (double)n * (double)o->g[j];
        *loss += (double)n * part;
    }
    return HDO_OK;
}

/* f is the loss on all data when every class holds all of it in equal shares, otherwise the mean over the nodes. */
hdo_status hdo__oracle_grad(hdo_exact_oracle *o, int node, const double *x, double *g, double *loss, hdo_error *e) {
    const hdo_run *r = o->run;
    size_t d = r->problem.objective->d;
    bool equal = r->problem.train == NULL || r->config.data.split.id == HDO_SPLIT_SHARED || o->samples > 0;
    bool partition = r->config.data.split.id == HDO_SPLIT_COPIES || r->config.data.split.id == HDO_SPLIT_SHARDS;
    for (int i = 0; i < r->population.models.count && partition && !equal; i++) {
        partition =
            hdo__shard_count(r->problem.shards, i) ==
            hdo__shard_count(r->problem.shards, r->population.classes[hdo__population_class(&r->population, i)].first);
    }
    equal = equal || partition;
    int first = node, last = node + 1;
    if (node < 0 && !equal) first = 0, last = r->population.models.count;
    memset(o->sum, 0, d * sizeof(double));
    double total = 0.0, *acc = NULL;
    set_row(o, x);
    if (last - first > 1) {
        acc = hdo__alloc(d * sizeof(double));
        if (acc == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a gradient");
    }
    hdo_status st = HDO_OK;
    for (int i = first; i < last && st == HDO_OK; i++) {
        double part = 0.0, scale = 1.0 / ((double)hdo__oracle_count(o, i) * (double)(last - first));
        st = add_samples(o, i, &part, e);
        total += part * scale;
        for (size_t j = 0; j < d && acc != NULL; j++) {
            acc[j] += o->sum[j] * scale;
            o->sum[j] = 0.0;
        }
        for (size_t j = 0; j < d && acc == NULL; j++) o->sum[j] *= scale;
    }
    if (st == HDO_OK && g != NULL) memcpy(g, acc != NULL ? acc : o->sum, d * sizeof(double));
    if (st == HDO_OK && loss != NULL) *loss = total;
    hdo__free(acc);
    return st;
}

hdo_status hdo__oracle_batch(hdo_exact_oracle *o, const hdo_draw *q, const double *x, double *g, double *loss,
                             hdo_error *e) {
    double value;
    set_row(o, x);
    hdo_status st = chunk_grad(o, q, true, &value, e);
    for (size_t j = 0; j < o->run->problem.objective->d && st == HDO_OK && g != NULL; j++) g[j] = (double)o->g[j];
    if (loss != NULL) *loss = value;
    return st;
}

hdo_status hdo__oracle_spread(hdo_exact_oracle *o, int k, int nodes_max, const double *x, const double *ref,
                              double *out, hdo_error *e) {
    const hdo_class *c = &o->run->population.classes[k];
    size_t d = o->run->problem.objective->d;
    int nodes = nodes_max > 0 && nodes_max < c->count ? nodes_max : c->count;
    double *g = hdo__alloc(d * sizeof(double)), sum = 0.0;
    if (g == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a gradient");
    hdo_status st = HDO_OK;
    for (int i = 0; i < nodes && st == HDO_OK; i++) {
        st = hdo__oracle_grad(o, c->first + i, x, g, NULL, e);
        for (size_t j = 0; j < d; j++) {
            double v = g[j] - (ref != NULL ? ref[j] : 0.0);
            sum += v * v;
        }
    }
    hdo__free(g);
    *out = nodes > 0 ? sum / (double)nodes : 0.0;
    return st;
}

/* ---- the minimiser ---- */

static double dot(size_t n, const double *x, const double *y) {
    double s = 0.0;
    for (size_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

/* p = -H g with the two-loop recursion over the last m pairs; newest at slot (at - 1) % MEMORY. */
static void direction(size_t d, const double *g, const double *S, const double *Y, int m, int at, double *p) {
    double a[MEMORY];
    memcpy(p, g, d * sizeof(double));
    for (int k = 1; k <= m; k++) {
        size_t q = (size_t)((at - k + MEMORY) % MEMORY);
        a[q] = dot(d, S + q * d, p) / dot(d, S + q * d, Y + q * d);
        for (size_t j = 0; j < d; j++) p[j] -= a[q] * Y[q * d + j];
    }
    if (m > 0) {
        size_t q = (size_t)((at - 1 + MEMORY) % MEMORY);
        double scale = dot(d, S + q * d, Y + q * d) / dot(d, Y + q * d, Y + q * d);
        for (size_t j = 0; j < d; j++) p[j] *= scale;
    }
    for (int k = m; k >= 1; k--) {
        size_t q = (size_t)((at - k + MEMORY) % MEMORY);
        double b = dot(d, Y + q * d, p) / dot(d, S + q * d, Y + q * d);
        for (size_t j = 0; j < d; j++) p[j] += (a[q] - b) * S[q * d + j];
    }
    for (size_t j = 0; j < d; j++) p[j] = -p[j];
}

hdo_status hdo__oracle_minimise(hdo_exact_oracle *o, const hdo_study_hooks *h, double tol, double *x, double *f,
                                double *grad, hdo_error *e) {
    size_t d = o->run->problem.objective->d;
    double *S = hdo__alloc((2 * MEMORY + 4) * d * sizeof(double));
    if (S == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the minimiser of dimension %zu", d);
    double *Y = S + MEMORY * d, *g = Y + MEMORY * d, *p = g + d, *xn = p + d, *gn = xn + d, fn;
    int m = 0, at = 0;
    hdo_status st = hdo__oracle_grad(o, -1, x, g, f, e);
    double norm = st == HDO_OK ? sqrt(dot(d, g, g)) : 0.0, first = norm;
    bool stuck = false;
    for (int it = 0; it < ITERATIONS && st == HDO_OK && norm > tol && !stuck; it++) {
        st = hdo__study_tick(h, "minimiser", it, ITERATIONS, e);
        direction(d, g, S, Y, m, at, p);
        double slope = dot(d, g, p), step = m == 0 ? 1.0 / fmax(1.0, norm) : 1.0;
        for (int tries = 0; st == HDO_OK; tries++, step *= 0.5) { /* Armijo, with room for the rounding of f */
            for (size_t j = 0; j < d; j++) xn[j] = x[j] + step * p[j];
            st = hdo__oracle_grad(o, -1, xn, gn, &fn, e);
            double nn = sqrt(dot(d, gn, gn));
            if (fn <= *f + 1e-4 * step * slope || (fn <= *f + 1e-7 * fabs(*f) && nn < norm)) break;
            if (tries == 30) {
                stuck = true;
                break;
            }
        }
        if (st != HDO_OK || stuck) {
            if (stuck && m > 0) { /* start over along the gradient once the model of the curvature is spoilt */
                m = 0;
                stuck = false;
                if (norm < 1e-4 * first) break; /* as flat as float arithmetic gets */
            }
            continue;
        }
        double *s = S + (size_t)at * d, *y = Y + (size_t)at * d;
        for (size_t j = 0; j < d; j++) {
            s[j] = xn[j] - x[j];
            y[j] = gn[j] - g[j];
        }
        if (dot(d, s, y) > 1e-12 * sqrt(dot(d, s, s) * dot(d, y, y))) {
            at = (at + 1) % MEMORY;
            m = m < MEMORY ? m + 1 : MEMORY;
        }
        memcpy(x, xn, d * sizeof(double));
        memcpy(g, gn, d * sizeof(double));
        *f = fn;
        norm = sqrt(dot(d, g, g));
    }
    *grad = norm;
    hdo__free(S);
    return st;
}
