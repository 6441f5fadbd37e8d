/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring the constants of a problem that has data, docs/theory.md 7. Points: the start, the middle and the end of a
 * short probe run, and the minimiser where there is one. Noise and heterogeneity are exact at a point (linear models)
 * or sampled (networks); the largest value over the points is kept. Whatever is taken from finitely many points is
 * labelled measured: it is a lower estimate of a supremum.
 */
#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "lab/study/study_internal.h"

enum { POINTS_MAX = 4, PROBE = 200, NET_SAMPLES = 512, NET_NODES = 8, BATCHES = 32, NET_LANCZOS = 12, BATCHES_L = 4 };

typedef struct points {
    int n;
    double *x[POINTS_MAX];
} points;

static void keep_max(hdo_constant *c, double v) {
    if (c->how == HDO_UNKNOWN) *c = (hdo_constant){v, HDO_MEASURED};
    if (c->how == HDO_MEASURED && v > c->value) c->value = v;
}

/* ---- where to measure ---- */

static hdo_status add_mean(points *p, const hdo_run *r, hdo_error *e) {
    size_t d = r->problem.objective->d;
    double *x = hdo__alloc(d * sizeof(double));
    if (x == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a point");
    bool finite = true;
    for (int i = 0; i < r->population.models.count; i++)
        hdo__accumulate(d, r->population.models.X + (size_t)i * r->population.models.ld, x);
    for (size_t j = 0; j < d; j++) {
        x[j] /= (double)r->population.models.count;
        finite = finite && isfinite(x[j]);
    }
    if (finite) {
        p->x[p->n++] = x;
    } else {
        hdo__free(x);
    }
    return HDO_OK;
}

static hdo_status visit(hdo_study *s, int64_t steps, points *p, hdo_error *e) {
    hdo_config *c = hdo__alloc(sizeof *c);
    hdo_run *r = NULL;
    if (c == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the probe run");
    *c = s->config;
    c->eval.every = 0;
    hdo_status st = add_mean(p, s->run, e);
    if (st == HDO_OK) st = hdo_run_create(&r, c, NULL, e);
    hdo_stop why = HDO_RUNNING;
    for (int64_t t = 0; t < steps && st == HDO_OK && why == HDO_RUNNING; t++) {
        st = hdo_run_advance(r, 1, &why, e);
        if (st == HDO_OK) st = hdo__study_tick(&s->hooks, "probe run", t, steps, e);
        if (st == HDO_OK && (t + 1 == steps / 2 || t + 1 == steps)) st = add_mean(p, r, e);
    }
    s->k.probe_diverged = why == HDO_DIVERGED || p->n < (steps > 0 ? 3 : 1);
    hdo_run_destroy(r);
    hdo__free(c);
    return st;
}

/* ---- gradient noise ---- */

/* Mean over samples of |gradient|^2 minus |mean gradient|^2, over the shard's first `count` samples; exact if all. */
static hdo_status sample_variance(hdo_exact_oracle *o, int node, const double *x, double *out, hdo_error *e) {
    size_t d = o->run->problem.objective->d;
    int64_t count = hdo__oracle_count(o, node);
    double *g = hdo__alloc(2 * d * sizeof(double)), *mean = g + d, sum = 0.0;
    if (g == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a gradient");
    hdo_status st = hdo__oracle_grad(o, node, x, mean, NULL, e);
    for (int64_t j = 0; j < count && st == HDO_OK; j++) {
        int64_t idx = hdo__shard_at(o->run->problem.shards, node, j);
        st = hdo__oracle_batch(o, &(hdo_draw){node, &idx, 1, j}, x, NULL, NULL, e);
        for (size_t q = 0; q < d; q++) {
            double v = (double)o->g[q] - mean[q];
            sum += v * v;
        }
    }
    bool all = count == hdo__shard_count(o->run->problem.shards, node);
    *out = sum / (double)(all || count < 2 ? count : count - 1);
    hdo__free(g);
    return st;
}

/* Unbiased variance of the gradient over BATCHES batches as the run draws them (dropout and batch-norm included). */
static hdo_status batch_variance(hdo_exact_oracle *o, int node, int batch, const double *x, double *out, hdo_error *e) {
    hdo_run *r = o->run;
    size_t d = r->problem.objective->d;
    int64_t *idx = hdo__alloc((size_t)batch * sizeof(int64_t));
    double *g = hdo__alloc(2 * d * sizeof(double)), *sum = g + d, sum2 = 0.0;
    if (idx == NULL || g == NULL) {
        hdo__free(idx);
        hdo__free(g);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for a gradient");
    }
    int size = batch < o->chunk ? batch : o->chunk; /* variance falls as 1/size: scaled below */
    hdo_status st = HDO_OK;
    for (int t = 0; t < BATCHES && st == HDO_OK; t++) {
        if (r->problem.train != NULL)
            hdo__sampler_batch(r->problem.shards, (uint64_t)r->config.seed + 1, node, t, size, idx);
        st = hdo__oracle_batch(o, &(hdo_draw){node, idx, size, t}, x, g, NULL, e);
        for (size_t j = 0; j < d; j++) {
            sum[j] += g[j];
            sum2 += g[j] * g[j];
        }
    }
    double mean2 = 0.0;
    for (size_t j = 0; j < d; j++) mean2 += sum[j] * sum[j] / ((double)BATCHES * (double)BATCHES);
    *out = fmax(0.0, (sum2 / BATCHES - mean2) * BATCHES / (BATCHES - 1.0)) * (double)size / (double)batch;
    hdo__free(idx);
    hdo__free(g);
    return st;
}

static hdo_status class_noise(hdo_study *s, hdo_exact_oracle *o, int k, int nodes_max, bool exact, const double *x,
                              hdo_error *e) {
    const hdo_class *c = &s->run->population.classes[k];
    bool shared = s->config.data.split.id == HDO_SPLIT_SHARED;
    int nodes = shared ? 1 : nodes_max > 0 && nodes_max < c->count ? nodes_max : c->count;
    double sum = 0.0;
    hdo_status st = HDO_OK;
    for (int i = 0; i < nodes && st == HDO_OK; i++) {
        const hdo_shards *shards = s->run->problem.shards; /* NULL: a formula, whose noise has a law of its own */
        double v = 0.0, m = shards != NULL ? (double)hdo__shard_count(shards, c->first + i) : 0.0, b = (double)c->batch;
        if (exact) {
            st = sample_variance(o, c->first + i, x, &v, e);
            v *= b < m ? (m - b) / (b * fmax(1.0, m - 1.0)) : 0.0; /* without replacement */
        } else {
            st = batch_variance(o, c->first + i, c->batch, x, &v, e);
        }
        sum += v / (double)nodes;
        if (st == HDO_OK) st = hdo__study_tick(&s->hooks, "gradient noise", i, nodes, e);
    }
    if (st == HDO_OK) keep_max(&s->k.sigma[k], sqrt(sum));
    return st;
}

/* ---- curvature of networks ---- */

typedef struct hessian {
    hdo_exact_oracle *o;
    const double *x;
    double h, *y, *g;
    int node, batch; /* batch > 0: of one batch */
    int64_t number, *idx;
} hessian;

static hdo_status slope(hessian *c, double sign, const double *v, double *g, hdo_error *e) {
    size_t d = c->o->run->problem.objective->d;
    for (size_t j = 0; j < d; j++) c->y[j] = c->x[j] + sign * c->h * v[j];
    if (c->batch > 0)
        return hdo__oracle_batch(c->o, &(hdo_draw){c->node, c->idx, c->batch, c->number}, c->y, g, NULL, e);
    return hdo__oracle_grad(c->o, c->node, c->y, g, NULL, e);
}

static hdo_status hessian_mul(void *ctx, const double *v, double *Hv, hdo_error *e) {
    hessian *c = ctx;
    hdo_status st = slope(c, 1.0, v, Hv, e);
    if (st == HDO_OK) st = slope(c, -1.0, v, c->g, e);
    for (size_t j = 0; j < c->o->run->problem.objective->d; j++) Hv[j] = (Hv[j] - c->g[j]) / (2.0 * c->h);
    return st;
}

/* Largest curvature of f^node, or of batches, at x. The step moves x by 0.3% of its length: large enough for float
 * gradients (relative error 1e-6 becomes 3e-4 of |g|/|x|), small enough that the curvature does not change. */
static hdo_status curvature(hdo_study *s, hdo_exact_oracle *o, const double *x, hdo_error *e) {
    size_t d = s->k.d;
    double len = 0.0;
    hdo_ritz z;
    for (size_t j = 0; j < d; j++) len += x[j] * x[j];
    int most = 0;
    for (int k = 0; k < s->run->population.n_classes; k++)
        most = s->run->population.classes[k].batch > most ? s->run->population.classes[k].batch : most;
    hessian c = {.o = o, .x = x, .h = 3e-3 * fmax(sqrt(len), 1e-2 * sqrt((double)d)), .node = -1};
    c.y = hdo__alloc(2 * d * sizeof(double));
    c.idx = hdo__alloc((size_t)most * sizeof(int64_t));
    hdo_status st = c.y == NULL || c.idx == NULL ? hdo__fail(e, HDO_E_MEMORY, "out of memory for a point") : HDO_OK;
    c.g = c.y + d;
    for (int i = -1; i < s->run->population.n_classes && st == HDO_OK;
         i++) { /* f, then the first node of every class */
        c.node = i < 0 ? -1 : s->run->population.classes[i].first;
        st = hdo__lanczos(hessian_mul, &c, d, NET_LANCZOS, 1, &z, e);
        if (st == HDO_OK) keep_max(&s->k.L, fmax(fabs(z.lowest), fabs(z.highest)));
        if (st == HDO_OK) st = hdo__study_tick(&s->hooks, "curvature", i + 1, s->run->population.n_classes, e);
    }
    for (int k = 0; k < s->run->population.n_classes && st == HDO_OK; k++) {
        const hdo_class *cl = &s->run->population.classes[k];
        c.node = cl->first;
        c.batch = cl->batch < o->chunk ? cl->batch : o->chunk;
        for (int t = 0; t < BATCHES_L && st == HDO_OK; t++) {
            if (s->run->problem.train != NULL)
                hdo__sampler_batch(s->run->problem.shards, (uint64_t)s->config.seed + 1, c.node, t, c.batch, c.idx);
            c.number = t;
            st = hdo__lanczos(hessian_mul, &c, d, NET_LANCZOS, 1, &z, e);
            if (st == HDO_OK) keep_max(&s->k.L_F, fmax(fabs(z.lowest), fabs(z.highest)));
        }
    }
    hdo__free(c.y);
    hdo__free(c.idx);
    return st;
}

/* ---- error of a loss value ---- */

/* Losses along a line are a parabola plus rounding: the largest residual of a least-squares parabola, from the start.
 * Orthogonal polynomials on 33 equidistant points. */
static hdo_status rounding(hdo_study *s, const hdo_class *c, hdo_error *e) {
    enum { M = 33 };
    hdo_run *r = s->run;
    hdo_work w = {&r->team.arena[0], &r->team, 0}; /* sized for this class's differences */
    size_t mark = hdo__arena_mark(w.arena), d = s->k.d;
    hdo_batch b = hdo__problem_batch(&r->problem, c->first, c->batch, 0, r->progress.step, w.arena);
    hdo_dirs u = {.s = hdo__stream(7, HDO_RNG_PROBLEM, 0, 0, 5), .dist = HDO_DIST_GAUSSIAN, .d = d};
    double y[M], a0 = 0.0, a1 = 0.0, a2 = 0.0, n1 = 0.0, n2 = 0.0, worst = 0.0, step = 1e-6 / sqrt((double)d);
    hdo_status st = HDO_OK;
    for (int k = 0; k < M && st == HDO_OK; k++) {
        st = hdo__objective_loss_many(r->problem.objective, &b, r->population.models.X, &u, 0, 1,
                                      (float)(step * (k + 1)), &w, &y[k]);
    }
    hdo__arena_rewind(w.arena, mark);
    if (st != HDO_OK)
        return hdo__problem_fail(&r->problem, st, e, "the objective failed while its rounding was measured");
    double c2 = 0.0;
    for (int k = 0; k < M; k++) c2 += (k - M / 2) * (k - M / 2) / (double)M;
    for (int k = 0; k < M; k++) {
        double t = k - M / 2, q = t * t - c2;
        a0 += y[k] / M;
        a1 += y[k] * t;
        a2 += y[k] * q;
        n1 += t * t;
        n2 += q * q;
    }
    for (int k = 0; k < M; k++) {
        double t = k - M / 2, q = t * t - c2;
        worst = fmax(worst, fabs(y[k] - a0 - a1 / n1 * t - a2 / n2 * q));
    }
    s->k.df = (hdo_constant){worst, HDO_MEASURED};
    return HDO_OK;
}

/* ---- all together ---- */

/* level: the largest heterogeneity at the first point, where it is still negative. */
static hdo_status at_point(hdo_study *s, hdo_exact_oracle *o, const double *x, int nodes, double *level, hdo_error *e) {
    bool linear = hdo__is_softmax_regression(&s->config);
    double *g = hdo__alloc(s->k.d * sizeof(double)), most = 0.0;
    if (g == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a gradient");
    hdo_status st = hdo__oracle_grad(o, -1, x, g, NULL, e);
    for (int k = 0; k < s->run->population.n_classes && st == HDO_OK; k++) {
        double z2 = 0.0;
        if (s->run->population.classes[k].count == 0) continue;
        st = hdo__oracle_spread(o, k, nodes, x, g, &z2, e);
        if (st != HDO_OK) break;
        keep_max(&s->k.varsigma_U[k], sqrt(z2));
        most = fmax(most, sqrt(z2));
        st = class_noise(s, o, k, nodes, linear, x, e);
    }
    if (st == HDO_OK && !linear) st = curvature(s, o, x, e);
    if (*level < 0.0) *level = most;
    if (*level > 0.0) s->k.grow = fmax(s->k.grow, most / *level);
    s->k.points++;
    hdo__free(g);
    return st;
}

/* The minimiser, and what is only known there. |grad f| <= tol certifies f - f* <= tol^2 / (2 ell), far below F. */
static hdo_status at_minimum(hdo_study *s, hdo_exact_oracle *o, const double *start, hdo_error *e) {
    size_t d = s->k.d;
    double f0, f, a = 0.0;
    s->x_star = hdo__alloc(d * sizeof(double));
    if (s->x_star == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the minimiser");
    memcpy(s->x_star, start, d * sizeof(double));
    hdo_status st = hdo__oracle_grad(o, -1, start, NULL, &f0, e);
    if (st == HDO_OK) st = hdo__oracle_minimise(o, &s->hooks, 1e-7, s->x_star, &f, &s->k.grad_star, e);
    if (st != HDO_OK) return st;
    for (size_t j = 0; j < d; j++) a += (start[j] - s->x_star[j]) * (start[j] - s->x_star[j]);
    double off = s->k.grad_star / s->k.ell.value, low = s->k.grad_star * s->k.grad_star / (2.0 * s->k.ell.value);
    s->k.a_0 = (hdo_constant){(sqrt(a) + off) * (sqrt(a) + off), HDO_CERTIFIED};
    s->k.f_star = (hdo_constant){f - low, HDO_CERTIFIED};
    s->k.F = (hdo_constant){f0 - f + low, HDO_CERTIFIED};
    for (int k = 0; k < s->run->population.n_classes && st == HDO_OK; k++) {
        double z2 = 0.0;
        if (s->run->population.classes[k].count > 0) st = hdo__oracle_spread(o, k, 0, s->x_star, NULL, &z2, e);
        s->k.varsigma_O[k] = (hdo_constant){sqrt(z2) + s->k.L.value * off, HDO_CERTIFIED};
    }
    return st;
}

hdo_status hdo_study_measure(hdo_study *s, const hdo_measure_options *opt, hdo_error *e) {
    const hdo_objective *f = s->run->problem.objective;
    bool own = f->complaint != NULL; /* of somebody else: nothing is known of its least value */
    if (s->k.quad) return HDO_OK;    /* known already */
    if (f->ops->grad == NULL)
        return hdo__fail(e, HDO_E_UNSUPPORTED, "constants are measured through gradients, and model '%s' has none",
                         f->model);
    bool linear = hdo__is_softmax_regression(&s->config);
    hdo_measure_options m = opt != NULL ? *opt : (hdo_measure_options){0};
    if (m.probe <= 0) m.probe = PROBE;
    if (m.probe > s->config.steps + s->config.warmup) m.probe = s->config.steps + s->config.warmup;
    if (!linear && m.samples <= 0) m.samples = NET_SAMPLES;
    if (!linear && m.nodes <= 0) m.nodes = NET_NODES;
    points p = {0};
    hdo_exact_oracle o = {0};
    double level = -1.0, f0 = 0.0;
    hdo_status st = hdo__oracle_init(&o, s->run, m.samples, e);
    if (st == HDO_OK && linear) st = hdo__linear_constants(s, e);
    if (st == HDO_OK) st = visit(s, m.probe, &p, e);
    if (st == HDO_OK && linear && s->k.ell.value > 0.0) st = at_minimum(s, &o, p.x[0], e);
    for (int i = 0; i < p.n && st == HDO_OK; i++) st = at_point(s, &o, p.x[i], m.nodes, &level, e);
    if (st == HDO_OK && s->x_star != NULL) st = at_point(s, &o, s->x_star, m.nodes, &level, e);
    if (st == HDO_OK && s->x_star == NULL && !own) { /* cross-entropy is never negative */
        st = hdo__oracle_grad(&o, -1, p.x[0], NULL, &f0, e);
        s->k.f_star = (hdo_constant){0.0, HDO_CERTIFIED};
        s->k.F = (hdo_constant){f0, m.samples > 0 ? HDO_MEASURED : HDO_CERTIFIED};
    }
    for (int k = 0; k < s->run->population.n_classes && st == HDO_OK;
         k++) { /* df: from a class that takes differences */
        const hdo_class *c = &s->run->population.classes[k];
        if (c->count > 0 && c->estimator.ops->difference) st = rounding(s, c, e);
    }
    if (st == HDO_OK && s->k.L_F.value < s->k.L.value) s->k.L_F.value = s->k.L.value;
    for (int i = 0; i < p.n; i++) hdo__free(p.x[i]);
    hdo__oracle_clear(&o);
    return st;
}
