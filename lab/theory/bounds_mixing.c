/* SPDX-License-Identifier: Apache-2.0
 *
 * What one round of communication does: seven numbers per scheme, the contraction lambda in closed form for the usual
 * graphs, and by power iteration for any other. docs/theory.md 3.3.
 *
 * The power iteration starts from a fixed pseudo-random vector, so its answer is reproducible, and it judges
 * convergence by the residual, which also bounds the error; comparing successive values would stop too early on large
 * rings, whose leading eigenvalues lie close together.
 */
#include "hdo/experimental/formulas.h"
#include "hdo/lab/theory.h"

#include <assert.h>
#include <math.h>

#include "hdo/experimental/fail.h"

static const double pi = 3.14159265358979323846;

hdo_status hdo_theory_mix_check(hdo_theory_mix kind, int n, double lambda, hdo_error *e) {
    switch (kind) {
    case HDO_THEORY_PAIR:
        if (n < 2) return hdo__fail(e, HDO_E_CONFIG, "Pairwise averaging needs at least 2 nodes, not %d.", n);
        return HDO_OK;
    case HDO_THEORY_MATCH:
        if (n < 1) return hdo__fail(e, HDO_E_CONFIG, "The number of nodes is %d; at least 1 is needed.", n);
        return HDO_OK;
    case HDO_THEORY_GOSSIP:
        if (n < 1) return hdo__fail(e, HDO_E_CONFIG, "The number of nodes is %d; at least 1 is needed.", n);
        if (!(lambda >= 0.0 && lambda < 1.0))
            return hdo__fail(e, HDO_E_CONFIG,
                             "The contraction lambda = %g must lie in [0, 1): is the communication graph connected?",
                             lambda);
        return HDO_OK;
    case HDO_THEORY_PAIR_GRAPH:
        if (n < 2) return hdo__fail(e, HDO_E_CONFIG, "Pairwise averaging needs at least 2 nodes, not %d.", n);
        if (!(lambda >= 0.0 && lambda < 1.0))
            return hdo__fail(e, HDO_E_CONFIG,
                             "The contraction lambda = %g must lie in [0, 1): is the communication graph connected?",
                             lambda);
        return HDO_OK;
    }
    return hdo__fail(e, HDO_E_CONFIG, "The communication scheme %d is unknown.", (int)kind);
}

/* All nodes step, then an average with contraction lambda. Young's inequality spends half of 1 - lambda. */
static hdo_mix_const all_step(hdo_theory_mix kind, int n, double lambda) {
    hdo_mix_const m = {.kind = kind, .n = n, .tf = 1.0};
    m.p_v = 1.0 / (double)n;
    m.delta0 = (1.0 - lambda) / 2.0;
    m.u_v = lambda * (1.0 - 1.0 / (double)n);
    m.u_V = lambda * (1.0 + lambda) / (1.0 - lambda);
    return m;
}

/* Mixing table, docs/theory.md 3.3. */
hdo_mix_const hdo_theory_mix_const(hdo_theory_mix kind, int n, double lambda) {
    assert(hdo_theory_mix_check(kind, n, lambda, NULL) == HDO_OK);
    if (kind == HDO_THEORY_MATCH) return all_step(kind, n, hdo_theory_lambda_match(n));
    if (kind == HDO_THEORY_GOSSIP) return all_step(kind, n, lambda);
    hdo_mix_const m = {.kind = kind, .n = n, .tf = 2.0 / (double)n, .p_v = 0.5};
    double nn = (double)n;
    if (n == 2) { /* both nodes meet: consensus after every round */
        m.delta0 = 1.0;
        return m;
    }
    m.u_v = (nn - 2.0) / 4.0;
    m.u_h = (nn - 2.0) / 2.0;
    if (kind == HDO_THEORY_PAIR) {
        m.p_V = (nn - 2.0) / (2.0 * (nn - 1.0));
        m.delta0 = 1.0 / (2.0 * (nn - 1.0));
        m.u_V = 3.0 * (nn - 2.0) * (nn - 2.0) / (4.0 * (nn - 1.0));
    } else {
        double dg = 1.0 - lambda;
        m.p_V = 1.0;
        m.delta0 = dg / 2.0;
        m.u_V = 2.0 / dg + (nn - 2.0) / 2.0;
    }
    return m;
}

/* ---- contractions in closed form: docs/theory.md 3.3 ------------------------------------------------------------ */

double hdo_theory_lambda_match(int n) {
    return hdo_lambda_matching(n);
}

double hdo_theory_lambda_gap(double gap) {
    return (1.0 - gap) * (1.0 - gap);
}

double hdo_theory_lambda_complete_edge(int n) {
    return hdo_lambda_pair(n);
}

double hdo_theory_lambda_ring_edge(int n) {
    assert(n >= 3);
    return 1.0 - (1.0 - cos(2.0 * pi / (double)n)) / (double)n;
}

double hdo_theory_lambda_ring_third(int n) {
    assert(n >= 3);
    double l2 = (1.0 + 2.0 * cos(2.0 * pi / (double)n)) / 3.0;
    return l2 * l2;
}

double hdo_theory_lambda_ring_match(int n) {
    assert(n >= 4 && n % 2 == 0);
    return (1.0 + cos(2.0 * pi / (double)n)) / 2.0;
}

/* ---- power iteration -------------------------------------------------------------------------------------------- */

/* Start vector in (-1, 1): a fixed integer hash of the index (the splitmix64 finaliser). */
static double start_value(uint64_t k) {
    uint64_t z = (k + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) * 0x1p-52 - 1.0;
}

static void remove_mean(double *x, size_t n) {
    double s = 0.0;
    for (size_t i = 0; i < n; i++) s += x[i];
    s /= (double)n;
    for (size_t i = 0; i < n; i++) x[i] -= s;
}

static double dot(const double *x, const double *y, size_t n) {
    double s = 0.0;
    for (size_t i = 0; i < n; i++) s += x[i] * y[i];
    return s;
}

hdo_status hdo_theory_power(hdo_theory_matvec mul, const void *ctx, size_t n, const hdo_theory_search *s,
                            hdo_theory_eig *out, hdo_error *e) {
    assert(mul != NULL && s->work != NULL && out != NULL && n >= 1 && s->tol > 0.0);
    const bool deflate = s->deflate;
    double *x = s->work, *y = s->work + n;
    /* Mixing matrices have norm 1: a product at the level of rounding means lambda = 0, perfect averaging. */
    double zero = deflate ? 1e-15 : 0.0;
    *out = (hdo_theory_eig){0};
    if (deflate && n == 1) return HDO_OK; /* nothing is orthogonal to the ones */
    for (size_t i = 0; i < n; i++) x[i] = start_value((uint64_t)i);
    if (deflate) remove_mean(x, n);
    double scale = 1.0 / sqrt(dot(x, x, n));
    for (size_t i = 0; i < n; i++) x[i] *= scale;
    for (int64_t it = 1; it <= s->max_iter; it++) {
        mul(ctx, n, x, y);
        if (deflate) remove_mean(y, n);
        double value = dot(x, y, n), res = 0.0;
        for (size_t i = 0; i < n; i++) res += (y[i] - value * x[i]) * (y[i] - value * x[i]);
        *out = (hdo_theory_eig){.value = value, .residual = sqrt(res), .iterations = it};
        double norm = sqrt(dot(y, y, n));
        if (!isfinite(norm))
            return hdo__fail(e, HDO_E_FAILED, "The power iteration met a value that is not finite in round %lld.",
                             (long long)it);
        if (norm <= zero || out->residual <= s->tol * fabs(value)) return HDO_OK;
        for (size_t i = 0; i < n; i++) x[i] = y[i] / norm;
    }
    return hdo__fail(e, HDO_E_FAILED,
                     "The power iteration did not converge in %lld rounds: eigenvalue near %.9g, residual %.3g.",
                     (long long)s->max_iter, out->value, out->residual);
}

static void mul_dense(const void *ctx, size_t n, const double *x, double *y) {
    const double *A = ctx;
    for (size_t i = 0; i < n; i++) y[i] = dot(A + i * n, x, n);
}

hdo_status hdo_theory_power_dense(const double *A, size_t n, const hdo_theory_search *s, hdo_theory_eig *out,
                                  hdo_error *e) {
    return hdo_theory_power(mul_dense, A, n, s, out, e);
}

struct gram_op {
    const double *W;
    double *tmp;
};

/* y = W'(W x) */
static void mul_gram(const void *ctx, size_t n, const double *x, double *y) {
    const struct gram_op *op = ctx;
    for (size_t i = 0; i < n; i++) op->tmp[i] = dot(op->W + i * n, x, n);
    for (size_t j = 0; j < n; j++) y[j] = 0.0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) y[j] += op->W[i * n + j] * op->tmp[i];
}

hdo_status hdo_theory_lambda_dense(const double *W, size_t n, double tol, int64_t max_iter, double *work,
                                   hdo_theory_eig *out, hdo_error *e) {
    struct gram_op op = {W, work + 2 * n};
    return hdo_theory_power(mul_gram, &op, n, &(hdo_theory_search){true, tol, max_iter, work}, out, e);
}
