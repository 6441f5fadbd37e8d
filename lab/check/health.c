/* SPDX-License-Identifier: Apache-2.0
 *
 * The health of one class: what its estimator does on its own batch at the starting point, against theory.
 *
 * Cosine: for Gaussian directions over the whole vector cos^2 has the law Beta(rv/2, (d-1)/2) (from the exact law of
 * the forward gradient), so E cos = G((rv+1)/2) G((rv+d-1)/2) / (G(rv/2) G((rv+d)/2)); otherwise about 1/sqrt(1 +
 * omega).
 *
 * Variance: omega |g|^2 with omega = (d+1)/rv (whole), sum_l (d_l+1)|g_l|^2 / (rv |g|^2) (per-tensor), d - 1 for sphere
 * and rademacher; slopes off by a relative e add omega e^2. Here d counts the coordinates a loss depends on.
 *
 * Bias: estimators that share their directions with forward-sim are compared with it draw by draw. The noise of the
 * directions cancels and a small bias shows. The others have no pair; theirs is measured along the gradient, where the
 * noise is least.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "lab/check/lab.h"

enum { NOISE_BATCHES = 16, SAMPLES_MIN = 8 };

/* ---- predictions ---- */

/* Factors make the noise of a matrix (m, n) larger by 2 (m + n + 1) / rank coordinates. */
static double low_rank_omega(const hdo_objective *f, const hdo_estimator *s, const float *g) {
    double d = (double)hdo__objective_live(f), sum = 0.0;
    const hdo_dirs u = {.rank = s->rank, .tensors = f->tensors, .n_tensors = f->n_tensors};
    for (int t = 0; t < f->n_tensors; t++) {
        int m, n;
        bool factors = hdo__dirs_matrix(&u, f->tensors[t].off, &m, &n) != NULL;
        double more = factors ? 2.0 * (double)(m + n + 1) / (double)s->rank : 0.0;
        sum += (d + 1.0 + more) * hdo__sumsq(f->tensors[t].len, g + f->tensors[t].off);
    }
    return sum / ((double)s->rv * hdo__sumsq(f->d, g));
}

static double omega(const hdo_lab *l, const hdo_estimator *s, const float *g) {
    const hdo_objective *f = l->f;
    double extra = s->distribution == HDO_DIST_GAUSSIAN ? 1.0 : -1.0, rv = (double)s->rv;
    if (!s->ops->zeroth) return 0.0;
    if (s->ops->axes) return s->coords > 0 && (size_t)s->coords < f->d ? (double)f->d / (double)s->coords - 1.0 : 0.0;
    if (s->directions == HDO_DIRECTIONS_LOW_RANK && g != NULL) return low_rank_omega(f, s, g);
    if (s->directions != HDO_DIRECTIONS_PER_TENSOR || g == NULL) return ((double)hdo__objective_live(f) + extra) / rv;
    double sum = 0.0;
    for (int t = 0; t < f->n_tensors; t++) {
        size_t lo = f->tensors[t].off, len = f->tensors[t].len;
        sum += ((double)hdo__count_outside(f->idle, lo, lo + len) + extra) * hdo__sumsq(len, g + lo);
    }
    return sum / (rv * hdo__sumsq(f->d, g));
}

static double cosine_theory(const hdo_lab *l, const hdo_estimator *s, double variance) {
    double rv = (double)s->rv, d = (double)hdo__objective_live(l->f);
    bool beta = s->ops->zeroth && !s->ops->axes && s->directions == HDO_DIRECTIONS_WHOLE &&
                s->distribution == HDO_DIST_GAUSSIAN && d > 1.0;
    if (!beta) return 1.0 / sqrt(1.0 + variance);
    return exp(lgamma(0.5 * (rv + 1.0)) + lgamma(0.5 * (rv + d - 1.0)) - lgamma(0.5 * rv) - lgamma(0.5 * (rv + d)));
}

/* Relative error of a slope at this step, read off the sweep (linear in the logarithms). */
static double slope_error(const hdo_check_sweep *w, const hdo_estimator *s, double nu) {
    if (!s->ops->difference) return 0.0;
    const double *err = s->ops->family == HDO_EST_CENTRAL ? w->central : w->one_sided;
    for (int i = 0; i + 1 < w->n; i++) {
        if (nu > w->nu[i] || nu < w->nu[i + 1]) continue;
        double t = log(nu / w->nu[i]) / log(w->nu[i + 1] / w->nu[i]);
        return exp((1.0 - t) * log(err[i]) + t * log(err[i + 1]));
    }
    return nu > w->nu[0] ? err[0] : err[w->n - 1];
}

/* |E G - g| <= b of docs/theory.md 3.2 with the measured curvature and round-off, relative to |g|. */
static double bias_bound(const hdo_lab *l, const hdo_estimator *s, const hdo_check_result *r, double nu, double norm) {
    if (!s->ops->difference && s->ops->family != HDO_EST_COMPLEX) return 0.0;
    if (!(r->curvature.L > 0.0) || s->ops->family == HDO_EST_COMPLEX) return (double)NAN; /* L2 is not known */
    if (s->ops == &hdo__est_debiased) nu = ldexp(nu, -s->levels);
    hdo_est_params p = hdo_theory_est_default(hdo__theory_row(s->ops->family), hdo__objective_live(l->f));
    p.rv = s->rv;
    p.nu = nu;
    p.L = p.L_F = r->curvature.L;
    p.df = r->sweep.df;
    return hdo_theory_est_const(&p).b / norm;
}

/* ---- measurements ---- */

static bool pairs_with_sim(const hdo_lab *l, const hdo_estimator *s) {
    return l->f->ops->grad != NULL && s->ops->zeroth && !s->ops->axes && !s->ops->gaussian &&
           s->ops != &hdo__est_forward_sim;
}

static double now_of(hdo_lab *l, const hdo_estimator *s, const hdo_request *q, hdo_work *w, float *g,
                     hdo_check_class *c, hdo_status *st) {
    hdo_estimate_info info = {0};
    double start = hdo__now_s();
    *st = hdo__estimate(s, l->f, q, w, g, &info);
    double t = hdo__now_s() - start;
    c->forward = info.forward;
    c->backward = info.backward;
    c->jvp = info.jvp;
    return t;
}

/* Scratch and time of one estimate: with the class's own share of threads. */
static hdo_status cost(hdo_lab *l, const hdo_estimator *s, const hdo_request *q, hdo_work *w, hdo_check_class *c) {
    hdo_status st;
    for (int k = 0; k < l->team.threads; k++) l->team.arena[k].high = l->team.arena[k].used;
    c->time_s = now_of(l, s, q, w, l->v[0], c, &st);
    size_t high = 0;
    for (int k = 0; k < w->team->threads; k++) high += w->team->arena[k].high;
    c->memory_bytes = high + (l->f->d + l->f->n_buf) * sizeof(float) * 2;
    return st;
}

/* Moments over estimates; l->g holds the gradient of the batch. */
static hdo_status moments(hdo_lab *l, const hdo_estimator *s, hdo_request *q, hdo_work *w, hdo_check_class *c) {
    size_t d = l->f->d;
    bool paired = pairs_with_sim(l, s);
    hdo_estimator sim = *s;
    sim.ops = &hdo__est_forward_sim;
    double g2 = hdo__sumsq(d, l->g), sum_cos = 0.0, sum_e = 0.0, sum_e2 = 0.0, sum_d = 0.0, best = c->time_s;
    double sum_a = 0.0, sum_a2 = 0.0; /* G.g / |g|^2 */
    double start = hdo__now_s(), *mean = l->mean;
    int n = 0;
    memset(mean, 0, d * sizeof *mean);
    for (; n < l->options->samples && (n < SAMPLES_MIN || hdo__now_s() - start < l->options->time_s); n++) {
        hdo_status st;
        q->step = n;
        best = fmin(best, now_of(l, s, q, w, l->v[0], c, &st));
        if (st != HDO_OK) return st;
        double n2 = hdo__sumsq(d, l->v[0]), e = hdo__distsq(d, l->v[0], l->g) / g2;
        sum_cos += n2 > 0.0 ? hdo__dot(d, l->v[0], l->g) / sqrt(n2 * g2) : 0.0;
        double a = hdo__dot(d, l->v[0], l->g) / g2;
        sum_a += a;
        sum_a2 += a * a;
        sum_e += e;
        sum_e2 += e * e;
        const float *base = l->g;
        if (paired) {
            hdo_estimate_info info = {0};
            st = hdo__estimate(&sim, l->f, q, w, l->v[1], &info);
            if (st != HDO_OK) return st;
            base = l->v[1];
        }
        sum_d += hdo__distsq(d, l->v[0], base);
        for (size_t j = 0; j < d; j++) mean[j] += (double)l->v[0][j] - (double)base[j];
        if (!s->ops->zeroth && n >= 1) break; /* nothing random about it */
    }
    double k = (double)n, m2 = 0.0;
    if (!s->ops->zeroth) k = n = n + 1;
    for (size_t j = 0; j < d; j++) m2 += mean[j] / k * (mean[j] / k);
    double var = fmax(0.0, sum_d / k - m2) * k / fmax(1.0, k - 1.0); /* of G - base */
    c->samples = n;
    c->cosine = sum_cos / k;
    c->variance = sum_e / k;
    c->variance_se = sqrt(fmax(0.0, sum_e2 / k - c->variance * c->variance) / fmax(1.0, k - 1.0));
    c->bias = sqrt(fmax(0.0, m2 - var / k) / g2); /* |mean|^2 is too large by the variance of the mean */
    c->bias_se = sqrt(var / k / g2);
    if (s->ops->zeroth && !s->ops->axes && !paired) {
        double along = sum_a / k, var_a = fmax(0.0, sum_a2 / k - along * along) / fmax(1.0, k - 1.0);
        c->bias = sqrt(fmax(0.0, (along - 1.0) * (along - 1.0) - var_a));
        c->bias_se = sqrt(var_a);
    }
    c->time_s = best;
    return HDO_OK;
}

/* s^2 / |g|^2 from batches of the class's first node; leaves l->g alone. */
static hdo_status data_noise(hdo_lab *l, int node, int batch, double *out) {
    size_t d = l->f->d;
    double sum2 = 0.0, m2 = 0.0, loss, start = hdo__now_s();
    int n = 0;
    memset(l->mean, 0, d * sizeof *l->mean);
    for (; n < NOISE_BATCHES && (n < 4 || hdo__now_s() - start < l->options->time_s); n++) {
        hdo_batch b = hdo__lab_batch(l, node, n + 1, batch);
        hdo_status st = hdo__objective_grad(l->f, &b, l->x, &l->work, l->v[0], &loss, NULL);
        if (st != HDO_OK) return st;
        sum2 += hdo__sumsq(d, l->v[0]);
        hdo__accumulate(d, l->v[0], l->mean);
    }
    double k = (double)n;
    for (size_t j = 0; j < d; j++) m2 += l->mean[j] / k * (l->mean[j] / k);
    double s2 = fmax(0.0, sum2 / k - m2) * k / (k - 1.0), signal = m2 - s2 / k;
    *out = signal > 0.0 ? s2 / signal : HUGE_VAL;
    return HDO_OK;
}

/* Expected loss after one step with learning rate eta, to second order: F - eta |g|^2 + eta^2/2 E G'HG, where for
 * isotropic noise E G'HG <= (L (1 + 1/rv) + tr H / rv) |g|^2. Least at lr_best, F again at lr_max = 2 lr_best. Shared
 * batches, no data noise, no averaging: what a lone node can bear. Heavy-ball momentum multiplies a step by 1/(1-m). */
static void learning_rates(const hdo_class_config *cc, const hdo_estimator *s, const hdo_check_curvature *h,
                           hdo_check_class *c) {
    double L = h->L, trace = fmax(h->trace + 2.0 * h->trace_se, L); /* on the safe side: the trace is an estimate */
    double spread = s->ops->zeroth ? (trace + L) / (double)s->rv : 0.0;
    if (s->ops->axes) spread = s->coords > 0 ? L * (c->variance_theory) : 0.0;
    double momentum = cc->momentum_kind.id == HDO_MOMENTUM_HEAVY_BALL ? 1.0 - cc->momentum : 1.0;
    c->lr_best = momentum / (L + spread);
    c->lr_max = 2.0 * c->lr_best;
    c->rv_useful = s->ops->zeroth && !s->ops->axes ? ceil(trace / L) : (double)NAN;
}

hdo_status hdo__check_class(hdo_lab *l, int k, const hdo_check_result *r, hdo_check_class *c, hdo_error *e) {
    const hdo_class_config *cc = &l->config->population[k];
    const hdo_estimator *s = &l->estimator[k];
    double lr = cc->lr.id == HDO_NUMBER ? cc->lr.arg : 0.01; /* rules for lr are resolved by a run */
    *c = (hdo_check_class){
        .count = cc->count, .rv = cc->rv, .batch = cc->batch, .coords = cc->coords, .zeroth = s->ops->zeroth, .lr = lr};
    memcpy(c->name, cc->name, sizeof c->name);
    memcpy(c->estimator, cc->estimator, sizeof c->estimator);
    c->per_tensor = s->directions == HDO_DIRECTIONS_PER_TENSOR;
    c->cosine = c->variance = c->variance_se = c->bias = c->bias_se = c->data_noise = c->grad_norm = c->rv_data =
        (double)NAN;

    hdo_status st = HDO_OK;
    int node = l->problem.class_first[k] < l->problem.n ? l->problem.class_first[k] : 0;
    if (l->f->ops->grad != NULL) st = data_noise(l, node, (int)cc->batch, &c->data_noise);
    hdo_batch batch = hdo__lab_batch(l, node, 0, (int)cc->batch);
    hdo_request q = {.batch = &batch, .x = l->x, .seed = (uint64_t)l->config->seed, .node = (uint32_t)node, .eta = lr};
    c->nu = hdo__request_nu(s, l->f, &q);
    /* Nodes are spread over threads when there are enough of them; otherwise the threads work inside one node. */
    hdo_team one = {1, l->team.arena, 0};
    hdo_work alone = {l->team.arena, &one, 0}, *w = cc->count >= l->team.threads ? &alone : &l->work;
    if (st == HDO_OK) st = l->f->ops->loss(l->f, &batch, l->x, w, &c->loss, NULL);
    if (st == HDO_OK) st = cost(l, s, &q, w, c);
    if (st == HDO_OK && l->f->ops->grad != NULL) {
        double loss;
        st = hdo__objective_grad(l->f, &batch, l->x, w, l->g, &loss, NULL);
        c->grad_norm = sqrt(hdo__sumsq(l->f->d, l->g));
        if (st == HDO_OK && c->grad_norm > 0.0) st = moments(l, s, &q, w, c);
    }
    if (st != HDO_OK)
        return hdo__problem_fail(&l->problem, st, e, "class '%s': an estimate failed: %s", cc->name,
                                 hdo_status_text(st));

    double om = omega(l, s, l->f->ops->grad != NULL ? l->g : NULL);
    c->slope_error = slope_error(&r->sweep, s, c->nu);
    c->variance_theory = om * (1.0 + c->slope_error * c->slope_error);
    c->cosine_theory = cosine_theory(l, s, c->variance_theory);
    c->bias_bound = bias_bound(l, s, r, c->nu, c->grad_norm);
    learning_rates(cc, s, &r->curvature, c);
    for (int i = l->problem.class_first[k]; l->problem.shards != NULL && i < l->problem.class_first[k] + (int)cc->count;
         i++) {
        int64_t held = hdo__shard_count(l->problem.shards, i);
        if (c->least_shard == 0 || held < c->least_shard) c->least_shard = held;
    }
    if (s->ops->zeroth && !s->ops->axes && c->data_noise > 0.0) { /* omega (1 + noise) = noise */
        c->rv_data = ceil(om * (double)s->rv * (1.0 + 1.0 / c->data_noise));
    }
    return HDO_OK;
}
