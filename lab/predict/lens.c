/* SPDX-License-Identifier: Apache-2.0
 *
 * A problem at one point: the spectrum of its Hessian as random vectors, as the noise of the data and as the gradient
 * see it. Products with H are differences of gradients over a fixed set of samples, sums in double.
 *
 * Noise of the data: with random signs s_i of N samples, v = N^-1/2 sum s_i (g_i - g) has E v v' = C_1, the covariance
 * of the gradient of one sample. Samples of equal sign go through the objective together, so v costs one gradient.
 * Models with batch-norm have no gradient of one sample: there batches of the first class stand for it.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "lab/predict/predict_internal.h"

enum {
    SAMPLES = 2048,
    SAMPLES_NET = 512,
    STEPS = 32,
    STEPS_NET = 24,
    LARGE = 20000,
    PAIRS = 64,
    FORWARD = 64,
    MOVES = 2
};

hdo_status hdo__lens_init(hdo_lens *l, hdo_run *r, const hdo_predict_options *opt, const hdo_study_hooks *hooks,
                          hdo_error *e) {
    size_t d = r->problem.objective->d;
    bool large = d > LARGE;
    *l = (hdo_lens){.run = r};
    if (hooks != NULL) l->hooks = *hooks;
    l->n = opt->samples > 0 ? opt->samples : large ? SAMPLES_NET : SAMPLES;
    if (r->problem.train != NULL && l->n > r->problem.train->count) l->n = r->problem.train->count;
    l->steps = opt->products > 0 ? opt->products : large ? STEPS_NET : STEPS;
    l->probes = large ? 2 : HDO_PROBES; /* relative error sqrt(2 / effective dimension) each */
    l->noises = large ? 2 : HDO_NOISES;
    hdo_status st = hdo__oracle_init(&l->o, r, l->n, e);
    if (st != HDO_OK) return st;
    l->idx = hdo__alloc(2 * (size_t)l->n * sizeof(int64_t));
    l->y = hdo__alloc(4 * d * sizeof(double));
    if (l->idx == NULL || l->y == NULL) {
        hdo__lens_clear(l);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for a spectrum of dimension %zu", d);
    }
    l->part = l->idx + l->n;
    if (r->problem.objective->ops->gauss_newton != NULL) {
        l->up = hdo__alloc((r->population.models.ld * 3) * sizeof(float));
        l->slope = hdo__alloc(3 * (size_t)l->o.chunk * (size_t)r->problem.train->classes * sizeof(float));
        if (l->up == NULL || l->slope == NULL) {
            hdo__lens_clear(l);
            return hdo__fail(e, HDO_E_MEMORY, "out of memory for a spectrum of dimension %zu", d);
        }
        l->down = l->up + r->population.models.ld;
        l->at = l->down + r->population.models.ld;
        for (int k = 0; k < 3; k++)
            memcpy(l->up + (size_t)k * r->population.models.ld, l->o.row,
                   (d + r->problem.objective->n_buf) * sizeof(float));
    }
    l->g = l->y + d;
    l->ga = l->g + d;
    l->v = l->ga + d;
    for (int64_t i = 0; i < l->n && r->problem.train != NULL; i++) l->idx[i] = i * r->problem.train->count / l->n;
    return HDO_OK;
}

void hdo__lens_clear(hdo_lens *l) {
    hdo__oracle_clear(&l->o);
    hdo__free(l->idx);
    hdo__free(l->y);
    hdo__free(l->up);
    hdo__free(l->slope);
    *l = (hdo_lens){0};
}

hdo_status hdo__lens_grad(hdo_lens *l, const int64_t *idx, int64_t n, const double *x, double *g, double *loss,
                          hdo_error *e) {
    if (l->run->problem.train == NULL) return hdo__oracle_grad(&l->o, -1, x, g, loss, e);
    size_t d = l->run->problem.objective->d;
    double sum = 0.0, part;
    memset(g, 0, d * sizeof *g);
    for (int64_t first = 0; first < n; first += l->o.chunk) {
        int m = (int)(n - first < l->o.chunk ? n - first : l->o.chunk);
        hdo_status st = hdo__oracle_batch(&l->o, &(hdo_draw){-1, idx + first, m, first}, x, NULL, &part, e);
        if (st != HDO_OK) return st;
        double share = (double)m / (double)n;
        for (size_t j = 0; j < d; j++) g[j] += share * (double)l->o.g[j];
        sum += share * part;
    }
    if (loss != NULL) *loss = sum;
    return HDO_OK;
}

/* Gauss-Newton product over samples idx[0 .. n): l->up = x + h q and l->down = x - h q are set. */
static hdo_status gauss_newton(hdo_lens *l, const int64_t *idx, int64_t n, double *out, hdo_error *e) {
    hdo_run *r = l->run;
    const hdo_objective *f = r->problem.objective;
    hdo_work w = {&l->o.team.arena[0], &l->o.team, 0};
    memset(out, 0, f->d * sizeof *out);
    for (int64_t first = 0; first < n; first += l->o.chunk) {
        int m = (int)(n - first < l->o.chunk ? n - first : l->o.chunk);
        size_t mark = hdo__arena_mark(w.arena);
        hdo_batch b = {.size = m, .seed = (uint64_t)r->config.seed, .step = first, .train = true};
        int32_t *label = hdo__arena_take(w.arena, (size_t)m * sizeof(int32_t));
        void *in = hdo__arena_take(w.arena, (size_t)m * (size_t)r->problem.train->n_in * sizeof(float));
        hdo__batch_gather(&b, r->problem.train, idx + first, NULL, in, label);
        hdo_status st = f->ops->gauss_newton(f, &b, l->at, l->up, l->down, l->h, &w, l->slope, l->o.g);
        hdo__arena_rewind(w.arena, mark);
        if (st != HDO_OK)
            return hdo__problem_fail(&r->problem, st, e, "the objective failed while its curvature was measured");
        for (size_t j = 0; j < f->d; j++) out[j] += (double)l->o.g[j] * (double)m / (double)n;
    }
    return HDO_OK;
}

/* H q over samples idx[0 .. n), by a central difference; |q| = 1. */
static hdo_status product_of(hdo_lens *l, const int64_t *idx, int64_t n, const double *q, double *Hq, hdo_error *e) {
    size_t d = l->run->problem.objective->d;
    if (l->slope != NULL) {
        for (size_t j = 0; j < d; j++) {
            l->up[j] = (float)(l->x[j] + l->h * q[j]);
            l->down[j] = (float)(l->x[j] - l->h * q[j]);
        }
        return gauss_newton(l, idx, n, Hq, e);
    }
    for (size_t j = 0; j < d; j++) l->y[j] = l->x[j] + l->h * q[j];
    hdo_status st = hdo__lens_grad(l, idx, n, l->y, Hq, NULL, e);
    if (st != HDO_OK) return st;
    for (size_t j = 0; j < d; j++) l->y[j] = l->x[j] - l->h * q[j];
    st = hdo__lens_grad(l, idx, n, l->y, l->ga, NULL, e);
    for (size_t j = 0; j < d; j++) Hq[j] = (Hq[j] - l->ga[j]) / (2.0 * l->h);
    return st;
}

static hdo_status product(void *ctx, const double *q, double *Hq, hdo_error *e) {
    hdo_lens *l = ctx;
    return product_of(l, l->idx, l->n, q, Hq, e);
}

static hdo_stream stream(const hdo_lens *l, int purpose, int number) {
    return hdo__stream((uint64_t)l->run->config.seed, HDO_RNG_PROBLEM, (uint32_t)purpose, 0, (uint32_t)(200 + number));
}

/* Random signs, none where no loss looks. */
static void fill_probe(const hdo_lens *l, int number, double *v) {
    const hdo_objective *f = l->run->problem.objective;
    float tile[1024];
    for (size_t off = 0; off < f->d; off += 1024) {
        size_t len = f->d - off < 1024 ? f->d - off : 1024;
        hdo__rng_rademacher(stream(l, 1, number), off, len, tile);
        hdo__ranges_clear(f->idle, off, off + len, tile);
        for (size_t j = 0; j < len; j++) v[off + j] = (double)tile[j];
    }
}

/* Samples with one sign into l->part; returns how many. */
static int64_t one_sign(hdo_lens *l, int number, int side) {
    int64_t m = 0;
    for (int64_t i = 0; i < l->n; i++) {
        uint32_t bit;
        hdo__rng_bits(stream(l, 2, number), (uint64_t)i, 1, &bit);
        if ((int)(bit >> 31) == side) l->part[m++] = l->idx[i];
    }
    return m;
}

/* v = N^-1/2 sum s_i (g_i - g) at l->x, or with z sum s_i H_i z. */
static hdo_status signed_samples(hdo_lens *l, int number, const double *z, double *v, hdo_error *e) {
    size_t d = l->run->problem.objective->d;
    double *part = hdo__alloc(d * sizeof *part);
    if (part == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a gradient");
    hdo_status st = HDO_OK;
    memset(v, 0, d * sizeof *v);
    for (int side = 0; side < 2 && st == HDO_OK; side++) {
        int64_t m = one_sign(l, number, side);
        if (m == 0) continue;
        st = z != NULL ? product_of(l, l->part, m, z, part, e) : hdo__lens_grad(l, l->part, m, l->x, part, NULL, e);
        double scale = (side == 0 ? 1.0 : -1.0) * (double)m / sqrt((double)l->n);
        for (size_t j = 0; j < d; j++) v[j] += scale * (part[j] - (z != NULL ? 0.0 : l->g[j]));
    }
    hdo__free(part);
    return st;
}

/* The same from differences of batches, made into the noise of one sample. */
static hdo_status signed_batches(hdo_lens *l, int number, double *v, hdo_error *e) {
    hdo_run *r = l->run;
    size_t d = r->problem.objective->d;
    int batch = r->problem.train == NULL                      ? 1
                : r->population.classes[0].batch < l->o.chunk ? r->population.classes[0].batch
                                                              : l->o.chunk;
    double scale = sqrt((double)batch / (2.0 * PAIRS));
    memset(v, 0, d * sizeof *v);
    for (int b = 0; b < 2 * PAIRS; b++) {
        int64_t t = (int64_t)number * 2 * PAIRS + b;
        if (r->problem.train != NULL)
            hdo__sampler_batch(r->problem.shards, (uint64_t)r->config.seed + 1, 0, t, batch, l->part);
        hdo_status st = hdo__oracle_batch(&l->o, &(hdo_draw){0, l->part, batch, t}, l->x, NULL, NULL, e);
        if (st != HDO_OK) return st;
        for (size_t j = 0; j < d; j++) v[j] += (b % 2 == 0 ? scale : -scale) * (double)l->o.g[j];
    }
    return HDO_OK;
}

static double norm2(size_t n, const double *x) {
    double s = 0.0;
    for (size_t i = 0; i < n; i++) s += x[i] * x[i];
    return s;
}

/* Squared lengths by tensor, of one sample's noise. */
static void add_tensors(const hdo_objective *f, const double *v, double share, double *len2) {
    for (int t = 0; t < f->n_tensors; t++) len2[t] += share * norm2(f->tensors[t].len, v + f->tensors[t].off);
}

/* Directions tensor by tensor: signs times the length of the batch gradient in the tensor. */
static hdo_status look_blocks(hdo_lens *l, const double *c2, hdo_local *out, hdo_error *e) {
    const hdo_objective *f = l->run->problem.objective;
    hdo_status st = HDO_OK;
    for (int k = 0; k < l->run->population.n_classes && st == HDO_OK; k++) {
        const hdo_class *c = &l->run->population.classes[k];
        if (!c->estimator.ops->zeroth || c->estimator.directions != HDO_DIRECTIONS_PER_TENSOR) continue;
        for (int i = 0; i < HDO_BLOCKS && st == HDO_OK; i++) {
            fill_probe(l, i, l->v);
            for (int t = 0; t < f->n_tensors; t++) {
                const hdo_tensor *q = &f->tensors[t];
                double len = sqrt(norm2(q->len, l->g + q->off) + c2[t] / (double)c->batch);
                for (size_t j = 0; j < q->len; j++) l->v[q->off + j] *= len;
            }
            st = hdo__slq(product, l, f->d, l->v, l->steps, &out->block[k][i], e);
        }
    }
    return st;
}

static void add_extremes(const hdo_quadrature *q, hdo_local *out) {
    if (q->n == 0) return;
    out->l_max = fmax(out->l_max, q->node[q->n - 1]);
    out->l_min = fmin(out->l_min, q->node[0]);
}

static hdo_status tick(hdo_lens *l, int done, hdo_error *e) {
    return hdo__study_tick(&l->hooks, "spectrum", done, l->probes + l->noises + 1, e);
}

/* v = N^-1/2 sum s_i H_i z with random signs z: E v v' = E H_1^2, how much one sample's gradient changes with x. */
static hdo_status look_change(hdo_lens *l, hdo_local *out, hdo_error *e) {
    size_t d = l->run->problem.objective->d;
    double *z = hdo__alloc(d * sizeof *z), len = sqrt((double)out->live);
    if (z == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a spectrum");
    fill_probe(l, 0, z);
    for (size_t j = 0; j < d; j++) z[j] /= len;
    hdo_status st = signed_samples(l, 0, z, l->v, e);
    for (size_t j = 0; j < d; j++) l->v[j] *= len;
    if (st == HDO_OK) st = hdo__slq(product, l, d, l->v, l->steps, &out->change, e);
    hdo__free(z);
    return st;
}

static hdo_status look_gradient(hdo_lens *l, hdo_local *out, double *tensor_c2, hdo_error *e) {
    const hdo_objective *f = l->run->problem.objective;
    bool batches = l->run->problem.train == NULL || f->n_buf > 0;
    hdo_status st = hdo__lens_grad(l, l->idx, l->n, l->x, l->g, &out->loss, e);
    out->g2 = norm2(f->d, l->g);
    for (int i = 0; i < l->probes && st == HDO_OK; i++) {
        fill_probe(l, i, l->v);
        st = hdo__slq(product, l, f->d, l->v, l->steps, &out->probe[out->n_probe++], e);
        if (st == HDO_OK) st = tick(l, i, e);
    }
    for (int i = 0; i < l->noises && st == HDO_OK; i++) {
        st = batches ? signed_batches(l, i, l->v, e) : signed_samples(l, i, NULL, l->v, e);
        if (st != HDO_OK) break;
        add_tensors(f, l->v, 1.0 / l->noises, tensor_c2);
        out->c2 += norm2(f->d, l->v) / l->noises;
        st = hdo__slq(product, l, f->d, l->v, l->steps, &out->noise[out->n_noise++], e);
        if (st == HDO_OK) st = tick(l, l->probes + i, e);
    }
    if (st == HDO_OK) st = hdo__slq(product, l, f->d, l->g, l->steps, &out->grad, e);
    if (st == HDO_OK) st = look_blocks(l, tensor_c2, out, e);
    if (st == HDO_OK && !batches) st = look_change(l, out, e);
    for (int i = 0; i < out->n_probe; i++) add_extremes(&out->probe[i], out);
    for (int i = 0; i < out->n_noise; i++) add_extremes(&out->noise[i], out);
    add_extremes(&out->grad, out);
    return st;
}

/* ---- losses only ---- */

static hdo_status mean_loss(hdo_lens *l, const int64_t *idx, int64_t n, double *loss, hdo_error *e) {
    hdo_run *r = l->run;
    hdo_work w = {&l->o.team.arena[0], &l->o.team, 0};
    *loss = 0.0;
    for (int64_t first = 0; first < n; first += l->o.chunk) {
        int m = (int)(n - first < l->o.chunk ? n - first : l->o.chunk);
        size_t mark = hdo__arena_mark(w.arena);
        hdo_batch b = {
            .size = m, .node = r->problem.train == NULL ? -1 : 0, .seed = (uint64_t)r->config.seed, .step = first};
        if (r->problem.train != NULL) {
            int32_t *label = hdo__arena_take(w.arena, (size_t)m * sizeof(int32_t));
            void *in = hdo__arena_take(w.arena, (size_t)m * (size_t)r->problem.train->n_in * sizeof(float));
            hdo__batch_gather(&b, r->problem.train, idx + first, NULL, in, label);
            b.train = true;
        }
        double part;
        hdo_status st = r->problem.objective->ops->loss(r->problem.objective, &b, l->o.row, &w, &part, NULL);
        hdo__arena_rewind(w.arena, mark);
        if (st != HDO_OK)
            return hdo__problem_fail(&r->problem, st, e, "the objective failed while its curvature was measured");
        *loss += part * (double)m / (double)n;
    }
    return HDO_OK;
}

/* Loss of samples idx[0 .. n) at x + a v. */
static hdo_status loss_at(hdo_lens *l, const int64_t *idx, int64_t n, double a, double *loss, hdo_error *e) {
    for (size_t j = 0; j < l->run->problem.objective->d; j++) l->o.row[j] = (float)(l->x[j] + a * l->v[j]);
    return mean_loss(l, idx, n, loss, e);
}

hdo_status hdo__lens_bend(hdo_lens *l, const hdo_local *p, double s, double *trace, hdo_error *e) {
    double loss, sum = 0.0;
    hdo_status st = HDO_OK;
    for (int side = 0; side < 2 * MOVES && st == HDO_OK; side++) {
        fill_probe(l, side / 2, l->v);
        st = loss_at(l, l->idx, l->n, side % 2 == 0 ? s : -s, &loss, e);
        sum += 2.0 * (loss - p->loss) / (s * s) / (2.0 * MOVES);
    }
    *trace = sum;
    return st;
}

/* Moves as large as a step of a zeroth-order class really makes: what they do to the loss beyond the quadratures, and
 * to the size of batch gradients. */
static hdo_status look_moves(hdo_lens *l, hdo_local *out, hdo_error *e) {
    const hdo_run *r = l->run;
    size_t d = r->problem.objective->d;
    double *z = hdo__alloc(3 * d * sizeof *z), *y = z + d, *g = y + d, rounds = 0.0, trace = 0.0;
    const double *x = l->x;
    if (z == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a spectrum");
    memcpy(g, l->g, d * sizeof *g);
    hdo_status st = HDO_OK;
    for (int k = 0; k < r->population.n_classes && st == HDO_OK; k++) {
        const hdo_class *c = &r->population.classes[k];
        double b = (double)c->batch, gb2 = out->g2 + out->c2 / b, s = c->schedule.lr * sqrt(gb2 / c->estimator.rv);
        if (!c->estimator.ops->zeroth || !(s > 0.0)) continue;
        for (int side = 0; side < 2 * MOVES && st == HDO_OK; side++) {
            double loss, sum = 0.0;
            fill_probe(l, side / 2, z);
            for (size_t j = 0; j < d; j++) y[j] = x[j] + (side % 2 == 0 ? s : -s) * z[j];
            l->x = y;
            st = hdo__lens_grad(l, l->idx, l->n, y, l->g, &loss, e);
            if (st == HDO_OK) sum = norm2(d, l->g);
            if (st == HDO_OK) st = signed_samples(l, side / 2, NULL, l->v, e);
            sum += norm2(d, l->v) / b;
            const hdo_quadrature *q = &out->noise[side / 2]; /* the same signs at x: most of the scatter cancels */
            out->growth[k] += (sum - out->g2 - q->norm2 / b) / (s * s) / (2.0 * MOVES);
            trace += 2.0 * (loss - out->loss) / (s * s);
            rounds += 1.0;
            l->x = x;
        }
        out->growth[k] = fmax(0.0, out->growth[k]);
    }
    if (rounds > 0.0 && r->problem.objective->kink != NULL)
        out->bulk = fmax(0.0, trace / rounds - hdo__local_trace(out, hdo__itself, NULL));
    memcpy(l->g, g, d * sizeof *g);
    hdo__free(z);
    return st;
}

/* tr H = E u'Hu by second differences, |g|^2 and E|g_1|^2 = E (u . g)^2 by first ones; u: random signs. */
static hdo_status look_losses(hdo_lens *l, hdo_local *out, hdo_error *e) {
    size_t d = l->run->problem.objective->d;
    double h = l->h / sqrt((double)d), up, down, one2 = 0.0, rounds = 0.0;
    hdo_status st = loss_at(l, l->idx, l->n, 0.0, &out->loss, e);
    for (int i = 0; i < FORWARD && st == HDO_OK; i++) {
        fill_probe(l, i, l->v);
        st = loss_at(l, l->idx, l->n, h, &up, e);
        if (st == HDO_OK) st = loss_at(l, l->idx, l->n, -h, &down, e);
        out->trace += (up - 2.0 * out->loss + down) / (h * h) / FORWARD;
        out->g2 += (up - down) * (up - down) / (4.0 * h * h) / FORWARD;
        for (int64_t k = 0; k < 4 && k < l->n && st == HDO_OK && l->run->problem.train != NULL; k++) {
            const int64_t *one = l->idx + (i * 4 + k) % l->n;
            st = loss_at(l, one, 1, h, &up, e);
            if (st == HDO_OK) st = loss_at(l, one, 1, -h, &down, e);
            one2 += (up - down) * (up - down) / (4.0 * h * h);
            rounds += 1.0;
        }
        if (st == HDO_OK) st = hdo__study_tick(&l->hooks, "spectrum", i, FORWARD, e);
    }
    out->c2 = rounds > 0.0 ? fmax(0.0, one2 / rounds - out->g2) : 0.0;
    out->l_max = (double)NAN;
    out->l_min = (double)NAN;
    return st;
}

static void look_at(hdo_lens *l, const double *x) {
    size_t d = l->run->problem.objective->d;
    l->x = x;
    /* 0.3% of the length of x: large enough for float gradients, small enough that the curvature does not change */
    l->h = 3e-3 * fmax(sqrt(norm2(d, x)), 3e-2 * sqrt((double)d));
    for (size_t j = 0; j < d && l->at != NULL; j++) l->at[j] = (float)x[j];
}

hdo_status hdo__lens_top(hdo_lens *l, const double *x, int products, hdo_quadrature *out, hdo_error *e) {
    look_at(l, x);
    hdo_status st = hdo__lens_grad(l, l->idx, l->n, x, l->g, NULL, e);
    return st == HDO_OK ? hdo__slq(product, l, l->run->problem.objective->d, l->g, products, out, e) : st;
}

hdo_status hdo__lens_look(hdo_lens *l, const double *x, hdo_local *out, hdo_error *e) {
    const hdo_objective *f = l->run->problem.objective;
    size_t d = f->d;
    memset(out, 0, sizeof *out);
    out->live = hdo__objective_live(f);
    out->gradient = (hdo__objective_can(f) & HDO_CAN_GRAD) != 0;
    look_at(l, x);
    double *c2 = hdo__alloc((size_t)(f->n_tensors + 1) * sizeof *c2);
    if (c2 == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a spectrum");
    hdo_status st = out->gradient ? look_gradient(l, out, c2, e) : look_losses(l, out, e);
    if (st == HDO_OK && out->gradient && l->run->problem.train != NULL && f->n_buf == 0 && !l->still)
        st = look_moves(l, out, e);
    if (out->gradient) out->trace = hdo__local_trace(out, hdo__itself, NULL);
    /* The gradient of N samples is that of f and noise: E|g_N|^2 = |g|^2 + tr C_1 / N. */
    double count = l->run->problem.train != NULL ? (double)l->run->problem.train->count : 0.0, n = (double)l->n;
    if (out->gradient && n < count && f->n_buf == 0) {
        out->samples = n * (count - 1.0) / (count - n);
        out->g2 = fmax(1e-3 * out->g2, out->g2 - out->c2 / out->samples);
    }
    for (size_t j = 0; j < d; j++) l->o.row[j] = (float)x[j];
    if (st == HDO_OK && !l->quick) st = hdo__metrics_one(&l->run->metrics, l->o.row, &out->val_loss);
    hdo__free(c2);
    return st;
}

/* ---- sums over spectra ---- */

/* Products with H come from differences: curvatures as small as their noise are none. Where H is positive semidefinite
 * the most negative node shows how large that is. */
typedef struct clipped {
    hdo_spectral_fn f;
    const void *ctx;
    double floor;
} clipped;

static double clip(const void *ctx, double l) {
    const clipped *c = ctx;
    return c->f(c->ctx, l > c->floor ? l : 0.0);
}

static double mean_sum(const hdo_local *p, const hdo_quadrature *q, int n, hdo_spectral_fn f, const void *ctx) {
    clipped c = {f, ctx, fmin(2.0 * fabs(p->l_min), 1e-3 * p->l_max)};
    double s = 0.0;
    for (int i = 0; i < n; i++) s += hdo__slq_sum(&q[i], clip, &c) / n;
    return s;
}

double hdo__local_trace(const hdo_local *p, hdo_spectral_fn f, const void *ctx) {
    return mean_sum(p, p->probe, p->n_probe, f, ctx);
}
double hdo__local_noise(const hdo_local *p, hdo_spectral_fn f, const void *ctx) {
    return mean_sum(p, p->noise, p->n_noise, f, ctx);
}
double hdo__local_grad(const hdo_local *p, hdo_spectral_fn f, const void *ctx) {
    double all = mean_sum(p, &p->grad, 1, f, ctx);
    if (!(p->samples > 0.0)) return all;
    return fmax(1e-3 * all, all - hdo__local_noise(p, f, ctx) / p->samples);
}
double hdo__local_change(const hdo_local *p, hdo_spectral_fn f, const void *ctx) {
    return mean_sum(p, &p->change, 1, f, ctx);
}
double hdo__local_block(const hdo_local *p, int k, hdo_spectral_fn f, const void *ctx) {
    return mean_sum(p, p->block[k], HDO_BLOCKS, f, ctx);
}

double hdo__itself(const void *ctx, double l) {
    (void)ctx;
    return l;
}

double hdo__learnt(const void *ctx, double l) {
    const hdo_horizon *h = ctx;
    double move = h->rate * l;
    return move < 2.0 ? 1.0 - pow(fabs(1.0 - move), 2.0 * h->steps) : 1.0;
}
