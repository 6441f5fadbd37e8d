/* SPDX-License-Identifier: Apache-2.0
 *
 * Quadratics with everything known: the yardstick for estimators and bounds.
 *
 *     f^i(x) = (x - c_i)' H (x - c_i) / 2 - f*,      F^i(x, xi) = f^i(x) + <xi, x>
 *
 * H is diagonal, its eigenvalues spaced evenly in logarithm from model.smoothness (L) down to model.convexity (ell).
 * Inside a class of nodes the minimisers c_i are +s e_1, -s e_1, +s e_2, -s e_2, ... with s = model.spread (an odd last
 * node has c = 0), so every class has mean zero: x* = 0, f = (1/n) sum f^i has minimum 0, and the population is
 * balanced. The noise xi is Gaussian with E|xi|^2 = model.noise^2 / batch; all evaluations of one estimate see the same
 * xi. All nodes start at model.start times e_1.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/explog.h"
#include "base/vec.h"
#include "hdo/experimental/formulas.h"
#include "objective/registry.h"

enum { TILE = 1024 };

typedef struct quadratic {
    hdo_objective base;
    hdo_tensor tensor;
    double *h;    /* (d) eigenvalues */
    double shift; /* mean over nodes of c_i' H c_i / 2: what disagreement costs at x*; taken off, so that f* = 0 */
    double noise, spread, start;
    int n_classes;
    int64_t first[HDO_CLASSES_MAX + 1]; /* first node of each class */
} quadratic;

/* Centre of a node: sign * spread on one axis; sign 0 for the odd last node of a class. */
static void centre(const quadratic *q, int64_t node, size_t *axis, double *value) {
    int k = 0;
    while (k + 1 < q->n_classes && node >= q->first[k + 1]) k++;
    int64_t j = node - q->first[k], count = q->first[k + 1] - q->first[k];
    *axis = (size_t)(j / 2) % q->base.d;
    bool lone = j == count - 1 && count % 2 == 1;
    *value = lone ? 0.0 : (j % 2 == 0 ? q->spread : -q->spread);
}

static hdo_stream noise_stream(const hdo_batch *b) {
    return hdo__stream(b->seed, HDO_RNG_NOISE, (uint32_t)b->node, (uint64_t)b->step, 0);
}

static bool noisy(const quadratic *q, const hdo_batch *b) {
    return b->train && b->node >= 0 && q->noise > 0.0;
}

/* xi has d entries of deviation noise / sqrt(d * batch). */
static double noise_scale(const quadratic *q, const hdo_batch *b) {
    return q->noise / sqrt((double)q->base.d * (double)(b->size > 0 ? b->size : 1));
}

static double spread_cost(const quadratic *q, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        size_t axis;
        double c;
        centre(q, i, &axis, &c);
        sum += 0.5 * q->h[axis] * c * c;
    }
    return sum / (double)n;
}

/* Loss along x + a u for one direction (u == NULL: at x), in double. */
static double loss_along(const quadratic *q, const hdo_batch *b, const float *x, const hdo_dirs *u, int r, double a) {
    size_t axis = 0;
    double c = 0.0, x_axis = 0.0;
    if (b->node >= 0) centre(q, b->node, &axis, &c);
    float xi[TILE], dir[TILE];
    double hx = 0.0, lin = 0.0;
    double scale = noise_scale(q, b);
    for (size_t off = 0; off < q->base.d; off += TILE) {
        size_t len = q->base.d - off < TILE ? q->base.d - off : TILE;
        if (u != NULL) hdo__dirs_fill(u, r, off, len, dir);
        if (noisy(q, b)) hdo__rng_normal(noise_stream(b), off, len, xi);
        for (size_t j = 0; j < len; j++) {
            double y = (double)x[off + j] + (u != NULL ? a * (double)dir[j] : 0.0);
            hx += 0.5 * q->h[off + j] * y * y;
            if (noisy(q, b)) lin += scale * (double)xi[j] * y;
            if (off + j == axis) x_axis = y;
        }
    }
    if (b->node < 0) return hx; /* classes are centred: the linear terms cancel, the constants are the shift */
    return hx - q->h[axis] * c * x_axis + 0.5 * q->h[axis] * c * c - q->shift + lin;
}

static hdo_status quad_loss(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, double *loss,
                            float *buf) {
    (void)w;
    (void)buf;
    *loss = loss_along((const quadratic *)f, b, x, NULL, 0, 0.0);
    return HDO_OK;
}

static hdo_status quad_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                            double *loss, float *buf) {
    const quadratic *q = (const quadratic *)f;
    (void)w;
    (void)buf;
    if (noisy(q, b)) {
        hdo__rng_normal(noise_stream(b), 0, f->d, g);
        double scale = noise_scale(q, b);
        for (size_t j = 0; j < f->d; j++) g[j] = (float)(scale * (double)g[j] + q->h[j] * (double)x[j]);
    } else {
        for (size_t j = 0; j < f->d; j++) g[j] = (float)(q->h[j] * (double)x[j]);
    }
    if (b->node >= 0) {
        size_t axis;
        double c;
        centre(q, b->node, &axis, &c);
        g[axis] = (float)((double)g[axis] - q->h[axis] * c);
    }
    *loss = loss_along(q, b, x, NULL, 0, 0.0);
    return HDO_OK;
}

static hdo_status quad_jvp(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                           int k, hdo_work *w, double *loss, double *dloss, float *buf) {
    size_t mark = hdo__arena_mark(w->arena);
    float *g = hdo__arena_floats(w->arena, f->d);
    hdo_status st = quad_grad(f, b, x, w, g, loss, buf);
    float dir[TILE];
    for (int r = 0; r < k; r++) {
        dloss[r] = 0.0;
        for (size_t off = 0; off < f->d; off += TILE) {
            size_t len = f->d - off < TILE ? f->d - off : TILE;
            hdo__dirs_fill(u, first + r, off, len, dir);
            dloss[r] += hdo__dot(len, dir, g + off);
        }
    }
    hdo__arena_rewind(w->arena, mark);
    return st;
}

static hdo_status quad_loss_many(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                 int first, int k, float nu, hdo_work *w, double *loss) {
    (void)w;
    for (int r = 0; r < k; r++) loss[r] = loss_along((const quadratic *)f, b, x, u, first + r, (double)nu);
    return HDO_OK;
}

/* Im F(x + i nu u) / nu of a quadratic is its exact slope. */
static hdo_status quad_complex(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                               int k, double nu, hdo_work *w, double *slope) {
    (void)nu;
    double loss;
    return quad_jvp(f, b, x, u, first, k, w, &loss, slope, NULL);
}

static hdo_status quad_evaluate(const hdo_objective *f, const hdo_batch *b, const float *X, size_t ld, int K,
                                hdo_work *w, double *loss_sum, int64_t *correct) {
    (void)w;
    (void)correct;
    hdo_batch whole = *b;
    whole.node = -1;
    whole.train = false;
    for (int k = 0; k < K; k++) {
        loss_sum[k] += loss_along((const quadratic *)f, &whole, X + (size_t)k * ld, NULL, 0, 0.0);
    }
    return HDO_OK;
}

static hdo_status quad_init(const hdo_objective *f, uint64_t seed, float *x) {
    (void)seed;
    memset(x, 0, f->d * sizeof(float));
    x[0] = (float)((const quadratic *)f)->start;
    return HDO_OK;
}

static size_t quad_work_bytes(const hdo_objective *f, int batch, int k) {
    (void)batch;
    (void)k;
    return hdo__arena_round(f->d * sizeof(float));
}

static void quad_destroy(hdo_objective *f) {
    quadratic *q = (quadratic *)f;
    hdo__free(q->h);
    hdo__free(q);
}

double hdo_quadratic_eigenvalue(double smoothness, double convexity, size_t d, size_t j) {
    double t = d > 1 ? (double)j / (double)(d - 1) : 0.0;
    return t < 1.0 ? smoothness * hdo__exp(t * hdo__log(convexity / smoothness)) : convexity;
}

static const hdo_objective_ops quadratic_ops = {
    .name = "quadratic",
    .destroy = quad_destroy,
    .work_bytes = quad_work_bytes,
    .init = quad_init,
    .loss = quad_loss,
    .grad = quad_grad,
    .jvp = quad_jvp,
    .loss_many = quad_loss_many,
    .complex_step = quad_complex,
    .evaluate = quad_evaluate,
};

hdo_status hdo__quadratic_create(const hdo_objective_args *p, hdo_objective **out, hdo_error *e) {
    const hdo_model_config *m = &p->config->model;
    if (m->convexity > m->smoothness) {
        return hdo__fail(e, HDO_E_CONFIG, "model.convexity (%g) is larger than model.smoothness (%g)", m->convexity,
                         m->smoothness);
    }
    quadratic *q = hdo__alloc(sizeof *q);
    if (q == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the objective");
    size_t d = (size_t)m->dim;
    q->base = (hdo_objective){.ops = &quadratic_ops, .d = d, .model = m->name, .eval_models = 64, .eval_batch = 1};
    q->tensor = (hdo_tensor){.name = "x", .off = 0, .len = d, .n_dim = 1, .dim = {(int)d}};
    q->base.tensors = &q->tensor;
    q->base.n_tensors = 1;
    q->noise = m->noise;
    q->spread = m->spread;
    q->start = m->start;
    q->n_classes = p->config->n_classes;
    for (int k = 0; k < q->n_classes; k++) q->first[k + 1] = q->first[k] + p->config->population[k].count;
    q->h = hdo__alloc(d * sizeof(double));
    if (q->h == NULL) {
        hdo__free(q);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for %zu eigenvalues", d);
    }
    for (size_t j = 0; j < d; j++) q->h[j] = hdo_quadratic_eigenvalue(m->smoothness, m->convexity, d, j);
    q->shift = spread_cost(q, p->n);
    /* where the gradient is as long as its noise, |grad|^2 / 2L, and distances of the nodes' minimisers and the start;
     * when all of them are 0, those of a difference step that is not small */
    double L = m->smoothness, least = 1e-3, away = m->spread * m->spread + m->start * m->start;
    q->base.usual_loss = m->noise * m->noise / (2.0 * L) + 0.5 * L * fmax(away, least * least);
    *out = &q->base;
    return HDO_OK;
}
