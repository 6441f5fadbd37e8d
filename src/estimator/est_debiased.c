/* SPDX-License-Identifier: Apache-2.0
 *
 * debiased: finite differences without the bias of the step, by randomised truncation of a telescoping sum (Chen,
 * "Unbiased gradient simulation for zeroth-order optimization", 2020; the idea is Rhee and Glynn's). With
 *
 *     D_k = (F(x + nu_k u) - F(x)) / nu_k,     nu_k = nu 2^-k,     D_k -> u . grad F
 *
 * draw a level K with P(K = k) = p_k, k = 0 .. M-1, and take the slope
 *
 *     Z = D_0 + (D_{K+1} - D_K) / p_K,         E[Z | u] = D_M:
 *
 * the mean is that of the finest step nu 2^-M, the cost that of two or three forward passes. p_k is geometric with
 * ratio q (`debias_ratio`), cut at M (`debias_levels`).
 *
 * Why q > 1/4, and 1/2 by default. D_{k+1} - D_k is about (nu/4) 2^-k u'Hu, so the second moment of the correction is
 * a sum of 4^-k / p_k ~ (4q)^-k: finite for M -> infinity iff q > 1/4, least for p_k in proportion to 2^-k.
 *
 * Why M is finite. A loss that carries an error df (float arithmetic inside the model) turns into a slope error of
 * about 3 df 2^k / nu at level k, weighted by 1/p_k: its second moment is (3 df / nu)^2 sum_{k<M} 4^k / p_k, for
 * q = 1/2 about (3 df / nu)^2 (2/7) 8^M: a standard deviation of 34 (3 df / nu) for M = 4, of 2200 (3 df / nu) for
 * M = 8. It has mean zero as far as rounding errors have, and it must stay below |grad F|. So the finest step, not the
 * first, should be what fd would take: nu is then 2^M times that (docs/estimators.md).
 *
 * Which direction gets which level does not matter as long as levels are drawn independently of directions. So the
 * levels of a group of directions are drawn first, and neighbouring directions share a level: few, long evaluations.
 */
#include "estimator/estimator.h"

enum { LEVELS_MAX = 32 };

typedef struct debiased_ctx {
    const hdo_estimator *s;
    const hdo_objective *f;
    const hdo_request *q;
    hdo_work *w;
    double nu, loss;
    double *coarse, *fine; /* losses at nu_K and nu_{K+1} */
    int64_t forward;
} debiased_ctx;

static size_t debiased_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)batch;
    return hdo__slopes_work_bytes(s, f) + 2 * hdo__arena_round(HDO_DIRS_AT_ONCE * sizeof(double));
}

/* p[0 .. M): geometric, cut at M. */
static void level_probabilities(double ratio, int M, double *p) {
    double sum = 0.0, v = 1.0;
    for (int k = 0; k < M; k++, v *= ratio) sum += p[k] = v;
    for (int k = 0; k < M; k++) p[k] /= sum;
}

/* How many of k directions, numbers first .. first + k - 1, draw each level. */
static void draw_levels(const debiased_ctx *c, const hdo_dirs *u, int first, int k, const double *p, int *count) {
    hdo_stream s = hdo__sibling_stream(u, HDO_RNG_LEVEL);
    s.sub = (uint32_t)u->lo; /* per-tensor: levels of its own for every tensor */
    for (int l = 0; l < c->s->levels; l++) count[l] = 0;
    for (int r = 0; r < k; r++) {
        double v = hdo__rng_double(s, (uint64_t)(first + r));
        int l = 0;
        while (l + 1 < c->s->levels && v >= p[l]) v -= p[l++];
        count[l]++;
    }
}

static hdo_status losses(debiased_ctx *c, const hdo_dirs *u, int first, int k, double nu, double *out) {
    c->forward += k;
    return hdo__objective_loss_many(c->f, c->q->batch, c->q->x, u, first, k, (float)nu, c->w, out);
}

static hdo_status debiased_slopes(void *ctx, const hdo_dirs *u, int first, int k, double *slope) {
    debiased_ctx *c = ctx;
    double p[LEVELS_MAX];
    int count[LEVELS_MAX];
    level_probabilities(c->s->ratio, c->s->levels, p);
    draw_levels(c, u, first, k, p, count);
    hdo_status st = losses(c, u, first, k, c->nu, slope);
    for (int r = 0; r < k; r++) slope[r] = (slope[r] - c->loss) / c->nu; /* D_0 */
    double nu = c->nu; /* a power of two times the first: exact in float as long as it is not subnormal */
    for (int l = 0, at = 0; l < c->s->levels && st == HDO_OK; at += count[l], l++, nu *= 0.5) {
        if (count[l] == 0) continue;
        double *D = slope + at;
        if (l > 0) st = losses(c, u, first + at, count[l], nu, c->coarse);
        if (st == HDO_OK) st = losses(c, u, first + at, count[l], 0.5 * nu, c->fine);
        for (int r = 0; r < count[l] && st == HDO_OK; r++) {
            double coarse = l > 0 ? (c->coarse[r] - c->loss) / nu : D[r];
            D[r] += ((c->fine[r] - c->loss) / (0.5 * nu) - coarse) / p[l];
        }
    }
    return st;
}

static hdo_status debiased_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                                    float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena);
    debiased_ctx c = {.s = s, .f = f, .q = q, .w = w, .nu = (double)(float)hdo__request_nu(s, f, q), .forward = 1};
    c.coarse = hdo__arena_doubles(w->arena, HDO_DIRS_AT_ONCE);
    c.fine = hdo__arena_doubles(w->arena, HDO_DIRS_AT_ONCE);
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->loss(f, q->batch, q->x, w, &c.loss, f->n_buf > 0 ? g + f->d : NULL);
    if (st == HDO_OK) st = hdo__estimate_slopes(s, f, q, w, debiased_slopes, &c, g);
    info->loss = c.loss;
    info->cost = info->forward = c.forward;
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_debiased = {
    .name = "debiased",
    .help = "finite differences without the bias of nu: randomised levels nu / 2^k (about 2.5 rv forward passes)",
    .needs = HDO_CAN_LOSS,
    .zeroth = true,
    .difference = true,
    .family = HDO_EST_ONE_SIDED,
    .work_bytes = debiased_work_bytes,
    .estimate = debiased_estimate,
};
