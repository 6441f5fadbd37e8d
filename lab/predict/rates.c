/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates and weights for the next piece of a run: those with the least loss expected at its end. The mean model depends
 * on v_k = w_k e_k / W alone. In a direction of curvature l with the gradient's part g_l, a piece of T steps at pace
 * p = sum n_k v_k and R more steps at the pace p' leave
 *
 *     ( g_l^2 / (2 l) (1 - p l)^(2T)  +  l/2 sum n_k v_k^2 C_k,l (1 - (1 - p l)^(2T)) / (1 - (1 - p l)^2) ) (1 - p' l)^(2R)
 *
 * Early in a run noise in steep directions will be forgotten, and what is best is what is fast; late it is what is quiet.
 * At a given pace the noise is least for v_k inverse to a_k; where a class may not go as fast as the others, that costs
 * pace, and how much of it is worth while is searched: theta = 0 is inverse to a_k, theta = inf leaves slow classes out.
 */
#include <math.h>

#include "lab/predict/predict_internal.h"

enum { PACES = 25 };
static const double STEP = 0.70710678118654752;
static const double THETA[] = {0.0, 1.0, 2.0, 4.0, 8.0, HUGE_VAL}; /* weights: (rate / largest rate)^theta */
static const double PSI[] = {0.0, 0.5, 1.0};                       /* rates, where weights are equal: (a_least / a)^psi */
static const double LEAST_WEIGHT = 1e-3;
static const double GAIN_MAX = 0.9; /* of noise by noise: beyond it there is no prediction */

typedef struct piece {
    double pace, steps, later_pace, later;
} piece;

static double pow_keep(double rate, double l, double steps) {
    double keep = 1.0 - rate * l;
    return pow(fmin(1.0, keep * keep), steps);
}

/* What descent takes off the loss, per unit of squared gradient; straight down where nothing bends. */
static double descent(const void *ctx, double l) {
    const piece *q = ctx;
    if (q->pace * l < 1e-9) return q->pace * q->steps;
    return (1.0 - pow_keep(q->pace, l, q->steps)) / (2.0 * l) * pow_keep(q->later_pace, l, q->later);
}

static double cost(const void *ctx, double l) {
    const piece *q = ctx;
    double keep = 1.0 - q->pace * l, k2 = fmin(1.0, keep * keep);
    double sum = k2 < 1.0 - 1e-9 ? (1.0 - pow(k2, q->steps)) / (1.0 - k2) : q->steps;
    return 0.5 * l * sum * pow_keep(q->later_pace, l, q->later);
}

/* Loss expected at the end, less the present one. */
static double value(const hdo_auto *a, const hdo_local *p, const hdo_rates *r) {
    const hdo_crowd *w = a->crowd;
    double W = 0.0, pace = 0.0, noise = 0.0;
    for (int k = 0; k < w->n_classes; k++) W += w->cls[k].count * r->weight[k];
    for (int k = 0; k < w->n_classes; k++) pace += w->part * w->cls[k].count * r->weight[k] * r->rate[k] / W;
    piece q = {pace, a->steps, a->later_pace > 0.0 ? a->later_pace : pace, a->later};
    for (int k = 0; k < w->n_classes; k++) {
        double v = r->weight[k] * r->rate[k] / W, near = r->rate[k] / a->stable[k], gain = fmin(GAIN_MAX, near * near);
        if (w->cls[k].count > 0)
            noise += w->part * w->cls[k].count * v * v * hdo__crowd_noise(&w->cls[k], k, p, cost, &q) / (1.0 - gain);
    }
    return noise - hdo__local_grad(p, descent, &q);
}

/* Rates up to `top`, each below its limit, and weights. */
static void candidate(const hdo_auto *a, double top, double theta, double psi, hdo_rates *r) {
    const hdo_crowd *w = a->crowd;
    double least = HUGE_VAL, most = 0.0, first = 0.0;
    for (int k = 0; k < w->n_classes; k++) least = w->cls[k].count > 0 ? fmin(least, a->noise[k]) : least;
    for (int k = 0; k < w->n_classes; k++) {
        r->rate[k] = a->given[k] > 0.0 ? a->given[k]
                                       : fmin(a->limit[k], top * pow(least / fmax(a->noise[k], 1e-300), psi));
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
