/* SPDX-License-Identifier: Apache-2.0
 *
 * Who meets whom: how far the nodes of each class are from the (weighted) mean, for random matchings that are inside
 * the classes in a share `own` of the exchanges, with unequal weights. Nodes of a class are exchangeable, so second
 * moments A_k = E|x_i|^2 and B_kl = E x_i . x_j (i, j two nodes of classes k and l, x from the mean) are all there is:
 * they follow a linear recursion, which is iterated. Every step adds independent noise to a node, and a drift where
 * classes move at different rates; curvature is too slow to matter for what is forgotten within a few meetings.
 */
#include <math.h>
#include <string.h>

#include "lab/predict/predict_internal.h"

enum { ROUNDS = 400 };
#define K HDO_CLASSES_MAX
static const double SHARES[] = {0.0, 0.5, 0.75, 0.875, 0.9375};
static const double CLEAR = 0.02; /* less of a gain is none */

typedef struct moments {
    double a[K], b[K][K], m[K]; /* m: offset of the class along the gradient */
} moments;

static double part(const hdo_meeting *w, int k, int l) { /* of itself that a node of k keeps when it meets one of l */
    return w->weight[k] / (w->weight[k] + w->weight[l]);
}

/* E of the square of the average of a node of k and one of l. */
static double met(const hdo_meeting *w, const moments *s, int k, int l) {
    double p = part(w, k, l), q = 1.0 - p;
    return p * p * s->a[k] + q * q * s->a[l] + 2.0 * p * q * s->b[k][l];
}

/* Nodes of class c besides up to three others. Class n_classes: nobody, whom one of an odd number meets. */
static double left(const hdo_meeting *w, int c, int k, int l, int d, double nobody) {
    double all = c == w->n_classes ? nobody : w->count[c];
    return fmax(0.0, all - (c == k) - (c == l) - (c == d));
}

/* Two nodes of k and l meet each other, or two others of classes c and d. */
static double apart(const hdo_meeting *w, const moments *s, int k, int l, double n, double nobody) {
    double even = n + nobody, each = 1.0 / (even - 1.0), sum = each * met(w, s, k, l);
    int none = w->n_classes;
    if (even < 4.0) return sum + (1.0 - each) * s->b[k][l];
    for (int c = 0; c <= none; c++) {
        for (int d = 0; d <= none; d++) {
            double chance = left(w, c, k, l, -1, nobody) / (even - 2.0) * left(w, d, k, l, c, nobody) / (even - 3.0);
            double p = c < none ? part(w, k, c) : 1.0, q = d < none ? part(w, l, d) : 1.0, both = p * q * s->b[k][l];
            if (d < none) both += p * (1.0 - q) * s->b[k][d];
            if (c < none) both += (1.0 - p) * q * s->b[c][l];
            if (c < none && d < none) both += (1.0 - p) * (1.0 - q) * s->b[c][d];
            sum += (1.0 - each) * chance * both;
        }
    }
    return sum;
}

static void meet_any(const hdo_meeting *w, const moments *s, double n, moments *out) {
    double nobody = fmod(n, 2.0), rest = nobody / n;
    for (int k = 0; k < w->n_classes; k++) {
        out->a[k] = rest * s->a[k];
        out->m[k] = rest * s->m[k];
        for (int l = 0; l < w->n_classes && w->count[k] > 0; l++) {
            double chance = (w->count[l] - (k == l)) / (n + nobody - 1.0), p = part(w, k, l);
            out->a[k] += chance * met(w, s, k, l);
            out->m[k] += chance * (p * s->m[k] + (1.0 - p) * s->m[l]);
            out->b[k][l] = w->count[l] > 0 ? apart(w, s, k, l, n, nobody) : 0.0;
        }
    }
}

static void meet_own(const hdo_meeting *w, const moments *s, moments *out) {
    *out = *s;
    for (int k = 0; k < w->n_classes; k++) {
        double n = w->count[k], some = fmod(n, 2.0) > 0.0 ? (n - 1.0) / n : 1.0; /* of an odd number one rests */
        if (n < 2.0) continue;
        double both = 0.5 * (s->a[k] + s->b[k][k]);
        out->a[k] = some * both + (1.0 - some) * s->a[k];
        double each = some / (n - 1.0); /* a given other node is the partner */
        out->b[k][k] = each * both + (1.0 - each) * s->b[k][k];
    }
}

/* Deviations from the weighted mean as it is now. */
static void centre(const hdo_meeting *w, moments *s) {
    double total = 0.0, with[K] = {0}, mean = 0.0, offset = 0.0;
    for (int k = 0; k < w->n_classes; k++) total += w->count[k] * w->weight[k];
    for (int k = 0; k < w->n_classes; k++) {
        for (int l = 0; l < w->n_classes; l++)
            with[k] += w->weight[l] / total * ((w->count[l] - (k == l)) * s->b[k][l] + (k == l ? s->a[k] : 0.0));
        mean += w->count[k] * w->weight[k] / total * with[k];
        offset += w->count[k] * w->weight[k] / total * s->m[k];
    }
    for (int k = 0; k < w->n_classes; k++) {
        s->a[k] += mean - 2.0 * with[k];
        s->m[k] -= offset;
        for (int l = 0; l < w->n_classes; l++) s->b[k][l] += mean - with[k] - with[l];
    }
}

static void blend(const hdo_meeting *w, const moments *any, const moments *own, double share, moments *s) {
    for (int k = 0; k < w->n_classes; k++) {
        s->a[k] = share * own->a[k] + (1.0 - share) * any->a[k];
        s->m[k] = share * own->m[k] + (1.0 - share) * any->m[k];
        for (int l = 0; l < w->n_classes; l++) s->b[k][l] = share * own->b[k][l] + (1.0 - share) * any->b[k][l];
    }
}

void hdo__meet_spread(const hdo_meeting *w, double own, double *spread) {
    moments s = {.a = {0}}, any = s, same = s;
    double n = 0.0;
    for (int k = 0; k < w->n_classes; k++) n += w->count[k];
    for (int t = 0; t < ROUNDS; t++) {
        for (int k = 0; k < w->n_classes; k++) { /* a step of everybody: x_k gains drift_k and noise of its own */
            s.a[k] += 2.0 * s.m[k] * w->drift[k] + w->drift[k] * w->drift[k] + w->noise[k];
            for (int l = 0; l < w->n_classes; l++)
                s.b[k][l] += s.m[k] * w->drift[l] + s.m[l] * w->drift[k] + w->drift[k] * w->drift[l];
        }
        for (int k = 0; k < w->n_classes; k++) s.m[k] += w->drift[k];
        if (n > 1.0) {
            meet_any(w, &s, n, &any);
            meet_own(w, &s, &same);
            blend(w, &any, &same, own, &s);
        }
        centre(w, &s);
    }
    for (int k = 0; k < w->n_classes; k++) spread[k] = w->count[k] > 0 ? s.a[k] : 0.0;
}

/* Gradients are taken where the nodes are: those that carry the pace should be near the mean. */
double hdo__meet_share(const hdo_meeting *w, double *gain) {
    double best = 0.0, least = HUGE_VAL, first = HUGE_VAL;
    for (size_t i = 0; i < sizeof SHARES / sizeof SHARES[0]; i++) {
        double spread[K], sum = 0.0;
        hdo__meet_spread(w, SHARES[i], spread);
        for (int k = 0; k < w->n_classes; k++) sum += w->count[k] * w->speed[k] * spread[k];
        if (i == 0) first = sum;
        if (sum < least && (i == 0 || sum < (1.0 - CLEAR) * first)) least = sum, best = SHARES[i];
    }
    if (gain != NULL) *gain = first > 0.0 ? least / first : 1.0;
    return best;
}
