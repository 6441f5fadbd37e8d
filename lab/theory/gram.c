/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact expectations on isotropic quadratics f^i(x) = (h/2)|x - c_i|^2, docs/theory.md 5.1.
 *
 * Gradients are h (X_i - c_i), estimators are unbiased, and their variance omega |grad|^2 + add depends on the models
 * only through squared norms. So the expectation of the Gram matrix K of (X_1..X_n, c_1..c_n) closes: one round is
 * K -> sum_k prob_k [ W_k (A_k K A_k' + noise) W_k' ], with A_k the step of the nodes that move. Simulators are tested
 * against this, and the bounds too; dimension never appears.
 *
 * Events are produced one at a time by a function, not stored: a matching of 10 nodes has 945 outcomes.
 */
#include "hdo/lab/theory.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- events ----------------------------------------------------------------------------------------------------- */

static void identity(size_t n, double *W) {
    memset(W, 0, n * n * sizeof *W);
    for (size_t i = 0; i < n; i++) W[i * n + i] = 1.0;
}

static void average(size_t n, double *W, size_t i, size_t j) {
    W[i * n + i] = W[j * n + j] = W[i * n + j] = W[j * n + i] = 0.5;
}

int64_t hdo_theory_gram_pair_count(int n) {
    return (int64_t)n * (n - 1) / 2;
}

/* Pairs in lexicographic order, all equally likely; the two nodes step and average. */
void hdo_theory_gram_pair(const void *ctx, int n, int64_t k, double *prob, double *W, double *step) {
    (void)ctx;
    assert(n >= 2 && k >= 0 && k < hdo_theory_gram_pair_count(n));
    size_t m = (size_t)n, i = 0, rest = (size_t)k;
    while (rest >= m - 1 - i) {
        rest -= m - 1 - i;
        i++;
    }
    size_t j = i + 1 + rest;
    *prob = 1.0 / (double)hdo_theory_gram_pair_count(n);
    identity(m, W);
    average(m, W, i, j);
    for (size_t l = 0; l < m; l++) step[l] = l == i || l == j ? 1.0 : 0.0;
}

/* An odd population plays with one absent partner: whoever meets it stays alone. */
int64_t hdo_theory_gram_match_count(int n) {
    int64_t c = 1;
    for (int64_t m = (n % 2 == 0 ? n : n + 1) - 1; m > 1; m -= 2) c *= m;
    return c;
}

/* Matching number k: the first free node takes partner k mod (free - 1) among the others, and so on. All nodes step.
 * Free nodes are found by a zero diagonal, so no list is kept. */
void hdo_theory_gram_match(const void *ctx, int n, int64_t k, double *prob, double *W, double *step) {
    (void)ctx;
    assert(n >= 1 && k >= 0 && k < hdo_theory_gram_match_count(n));
    size_t m = (size_t)n;
    int64_t left = n % 2 == 0 ? n : n + 1;
    *prob = 1.0 / (double)hdo_theory_gram_match_count(n);
    memset(W, 0, m * m * sizeof *W);
    for (size_t l = 0; l < m; l++) step[l] = 1.0;
    for (size_t i = 0; i < m; i++) {
        if (W[i * m + i] != 0.0) continue;
        int64_t pick = k % (left - 1);
        k /= left - 1;
        left -= 2;
        size_t j = i + 1;
        for (; j < m; j++) {
            if (W[j * m + j] != 0.0) continue;
            if (pick == 0) break;
            pick--;
        }
        if (j < m)
            average(m, W, i, j);
        else
            W[i * m + i] = 1.0; /* met the absent partner */
    }
}

void hdo_theory_gram_fixed(const void *W0, int n, int64_t k, double *prob, double *W, double *step) {
    (void)k;
    size_t m = (size_t)n;
    *prob = 1.0;
    memcpy(W, W0, m * m * sizeof *W);
    for (size_t l = 0; l < m; l++) step[l] = 1.0;
}

/* ---- the recursion ---------------------------------------------------------------------------------------------- */

size_t hdo_theory_gram_work(int n) {
    size_t m = (size_t)n;
    return 2 * (2 * m) * (2 * m) + m * (2 * m) + m * m + 2 * m; /* next, stepped, product, W, step, variance */
}

void hdo_theory_gram_init(int n, size_t d, const double *X, const double *c, double *K) {
    size_t m = (size_t)n, N = 2 * m;
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            const double *u = i < m ? X + i * d : c + (i - m) * d, *v = j < m ? X + j * d : c + (j - m) * d;
            double s = 0.0;
            for (size_t l = 0; l < d; l++) s += u[l] * v[l];
            K[i * N + j] = s;
        }
}

/* Distance of the mean to x* = mean of the centres, disagreement, and mean second moment of the estimators. */
static void read_off(const hdo_gram *g, const double *K, double *var, double *a, double *Gamma, double *MG) {
    size_t n = (size_t)g->n, N = 2 * n;
    double xx = 0.0, xc = 0.0, cc = 0.0, tr = 0.0, second = 0.0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            xx += K[i * N + j];
            xc += K[i * N + n + j];
            cc += K[(n + i) * N + n + j];
        }
        double kii = K[i * N + i], grad = g->h * g->h * (kii + K[(n + i) * N + n + i] - 2.0 * K[i * N + n + i]);
        tr += kii;
        var[i] = g->omega[i] * grad + g->add[i];
        second += grad + var[i];
    }
    double m = (double)n, m2 = m * m;
    if (a != NULL) *a = (xx - 2.0 * xc + cc) / m2;
    if (Gamma != NULL) *Gamma = tr / m - xx / m2;
    if (MG != NULL) *MG = second / m;
}

/* Y = A K A' + diag(eta^2 var) over the nodes that step: X_i <- X_i - eta h (X_i - c_i) + noise. */
static void step_gram(const hdo_gram *g, const double *K, const double *step, const double *var, double *Y) {
    size_t n = (size_t)g->n, N = 2 * n;
    memcpy(Y, K, N * N * sizeof *Y);
    for (size_t i = 0; i < n; i++) {
        double s = step[i] * g->eta[i] * g->h;
        for (size_t j = 0; j < N; j++) Y[i * N + j] += s * (Y[(n + i) * N + j] - Y[i * N + j]);
    }
    for (size_t i = 0; i < n; i++) {
        double s = step[i] * g->eta[i] * g->h;
        for (size_t j = 0; j < N; j++) Y[j * N + i] += s * (Y[j * N + n + i] - Y[j * N + i]);
    }
    for (size_t i = 0; i < n; i++) Y[i * N + i] += step[i] * g->eta[i] * g->eta[i] * var[i];
}

/* next += prob * (W Y W' in the model block, W Y in the mixed block); Q = W Y is scratch, (n, 2n). */
static void mix_gram(size_t n, double prob, const double *W, const double *Y, double *Q, double *next) {
    size_t N = 2 * n;
    memset(Q, 0, n * N * sizeof *Q);
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < n; l++) {
            double w = W[i * n + l];
            if (w == 0.0) continue;
            for (size_t j = 0; j < N; j++) Q[i * N + j] += w * Y[l * N + j];
        }
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            double s = 0.0;
            for (size_t l = 0; l < n; l++) s += Q[i * N + l] * W[j * n + l];
            next[i * N + j] += prob * s;
        }
        for (size_t j = n; j < N; j++) next[i * N + j] += prob * Q[i * N + j];
    }
}

void hdo_theory_gram_run(const hdo_gram *g, double *K, int64_t T, double *work, double *a, double *Gamma, double *MG) {
    assert(g->n >= 1 && T >= 0 && g->n_events >= 1 && g->event != NULL);
    size_t n = (size_t)g->n, N = 2 * n;
    double *next = work, *Y = next + N * N, *Q = Y + N * N, *W = Q + n * N, *step = W + n * n, *var = step + n;
    for (int64_t t = 0;; t++) {
        read_off(g, K, var, a == NULL ? NULL : a + t, Gamma == NULL ? NULL : Gamma + t, MG == NULL ? NULL : MG + t);
        if (t == T) return;
        memset(next, 0, n * N * sizeof *next);
        for (int64_t k = 0; k < g->n_events; k++) {
            double prob;
            g->event(g->ctx, g->n, k, &prob, W, step);
            step_gram(g, K, step, var, Y);
            mix_gram(n, prob, W, Y, Q, next);
        }
        memcpy(K, next, n * N * sizeof *K); /* model rows; the centres never move */
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) K[(n + j) * N + i] = K[i * N + n + j];
    }
}
