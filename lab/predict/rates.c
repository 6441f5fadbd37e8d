/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates and weights for the rest of a run: those with the least loss expected at its end. The mean model depends on
 * v_k = w_k e_k / W alone; its pace is p = sum n_k v_k. Three parts, for T steps to go:
 *
 *   descent   loss over the logarithm of the way (the sum of the paces) is nearly a straight line: - s ln(1 + p T /
 * way) noise     l/2 sum n_k v_k^2 C_k,l (1 - q^T) / (1 - q) in a direction of curvature l, with q = (1 - p l)^2 old
 * noise what the pace so far has left, as far as it will not be forgotten: the same with q^T
 *
 * Descent by the local quadratic would do for a few steps only: it sees no more than its own minimum. At a given pace
 * the noise is least for v_k inverse to a_k; where a class may not go as fast as the others, that costs pace, and how
 * much of it is worth while is searched: theta = 0 is inverse to a_k, theta = inf leaves slow classes out.
 */
#include <math.h>

#include "lab/predict/predict_internal.h"

enum { PACES = 31 };
static const double STEP = 0.8;
static const double THETA[] = {0.0, 1.0, 2.0, 4.0, HUGE_VAL}; /* weights: (rate / largest rate)^theta */
static const double PSI[] = {0.0, 0.5, 1.0};                  /* rates, where weights are equal: (a_least / a)^psi */
static const double LEAST_WEIGHT = 1e-3;
static const double GAIN_MAX = 0.9; /* of noise by noise: beyond it there is no prediction */

typedef struct piece {
    double pace, steps;    /* to come */
    double before, so_far; /* of the steps that have been */
    bool old;              /* noise of those */
} piece;

static double keep(double rate, double l) {
    return fmin(1.0, (1.0 - rate * l) * (1.0 - rate * l));
}

static double added(double rate, double l, double steps) {
    double k = keep(rate, l);
    return k < 1.0 - 1e-9 ? (1.0 - pow(k, steps)) / (1.0 - k) : steps;
}

static double cost(const void *ctx, double l) {
    const piece *q = ctx;
    if (!q->old) return 0.5 * l * added(q->pace, l, q->steps);
    return 0.5 * l * added(q->before, l, q->so_far) * pow(keep(q->pace, l), q->steps);
}

static double noise_of(const hdo_auto *a, const hdo_local *p, const hdo_rates *r, const piece *q) {
    const hdo_crowd *w = a->crowd;
    double W = 0.0, noise = 0.0;
    for (int k = 0; k < w->n_classes; k++) W += w->cls[k].count * r->weight[k];
    for (int k = 0; k < w->n_classes; k++) {
        double v = r->weight[k] * r->rate[k] / W, near = r->rate[k] / a->stable[k];
        double gain = w->cls[k].zeroth ? fmin(GAIN_MAX, near * near) : 0.0;
        if (w->cls[k].count > 0 && v > 0.0)
            noise += w->part * w->cls[k].count * v * v * hdo__crowd_noise(&w->cls[k], k, p, cost, q) / (1.0 - gain);
    }
    return noise;
}

/* Loss expected at the end, less the present one. */
static double value(const hdo_auto *a, const hdo_local *p, const hdo_rates *r) {
    double pace = hdo__rates_pace(a->crowd, r);
    piece q = {pace, a->steps, hdo__rates_pace(a->crowd, &a->before), a->so_far, false};
    double sum = noise_of(a, p, r, &q) - a->slope * log1p(pace * a->steps / a->way);
    q.old = true;
    return a->so_far > 0.0 ? sum + noise_of(a, p, &a->before, &q) : sum;
}

/* Rates up to `top`, each below its limit, and weights. */
static void candidate(const hdo_auto *a, double top, double theta, double psi, hdo_rates *r) {
    const hdo_crowd *w = a->crowd;
    double least = HUGE_VAL, most = 0.0, first = 0.0;
    for (int k = 0; k < w->n_classes; k++) least = w->cls[k].count > 0 ? fmin(least, a->noise[k]) : least;
    for (int k = 0; k < w->n_classes; k++) {
        r->rate[k] =
            a->given[k] > 0.0 ? a->given[k] : fmin(a->limit[k], top * pow(least / fmax(a->noise[k], 1e-300), psi));
        r->weight[k] = 1.0;
        if (w->cls[k].count > 0) most = fmax(most, r->rate[k]);
    }
    for (int k = 0; k < w->n_classes && a->weights; k++) {
        double slow = r->rate[k] / most, part = slow < 1.0 - 1e-12 ? pow(slow, theta) : 1.0;
        r->weight[k] = w->cls[k].count > 0 ? fmax(part, 0.0) / (a->noise[k] * r->rate[k]) : 0.0;
        if (w->cls[k].count > 0 && first == 0.0) first = r->weight[k];
        first = fmax(first, r->weight[k]);
    }
    for (int k = 0; k < w->n_classes && a->weights; k++) r->weight[k] = fmax(LEAST_WEIGHT, r->weight[k] / first);
}

double hdo__rates_pace(const hdo_crowd *w, const hdo_rates *r) {
    double W = 0.0, pace = 0.0;
    for (int k = 0; k < w->n_classes; k++) W += w->cls[k].count * r->weight[k];
    for (int k = 0; k < w->n_classes; k++) pace += w->part * w->cls[k].count * r->weight[k] * r->rate[k] / W;
    return pace;
}

void hdo__rates_best(const hdo_auto *a, const hdo_local *p, hdo_rates *best) {
    double least = HUGE_VAL, top = a->top;
    int thetas = a->weights ? (int)(sizeof THETA / sizeof THETA[0]) : 1;
    int psis = a->weights ? 1 : (int)(sizeof PSI / sizeof PSI[0]);
    for (int i = 0; i < PACES; i++, top *= STEP) {
        for (int j = 0; j < thetas * psis; j++) {
            hdo_rates r;
            candidate(a, top, THETA[j / psis], PSI[j % psis], &r);
            double v = value(a, p, &r);
            if (v < least || i + j == 0) {
                least = v;
                *best = r;
            }
        }
    }
}
