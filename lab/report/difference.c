/* SPDX-License-Identifier: Apache-2.0
 *
 * The difference of two groups of numbers, with Student's distribution: few seeds are the rule here, and with three of
 * them two standard errors are far from 95 %. Same seeds mean same start and same data order, so such values are
 * compared pair by pair.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/fail.h"
#include "hdo/lab/report.h"

/* Regularised incomplete beta function by its continued fraction (Lentz). */
static double beta_fraction(double a, double b, double x) {
    const double tiny = 1e-300;
    double c = 1.0, d = 1.0 - (a + b) * x / (a + 1.0);
    d = 1.0 / (fabs(d) < tiny ? tiny : d);
    double h = d;
    for (int m = 1; m <= 500; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        for (int k = 0; k < 2; k++) {
            double f = k == 0 ? even : odd;
            d = 1.0 + f * d;
            c = 1.0 + f / c;
            d = 1.0 / (fabs(d) < tiny ? tiny : d);
            c = fabs(c) < tiny ? tiny : c;
            h *= c * d;
        }
        if (fabs(c * d - 1.0) < 1e-15) break;
    }
    return h;
}

static double incomplete_beta(double a, double b, double x) {
    if (x <= 0.0) return 0.0;
    if (x >= 1.0) return 1.0;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1.0) / (a + b + 2.0) ? front * beta_fraction(a, b, x) / a
                                         : 1.0 - front * beta_fraction(b, a, 1.0 - x) / b;
}

/* P(|T| > t). */
static double two_sided(double t, double dof) {
    return incomplete_beta(0.5 * dof, 0.5, dof / (dof + t * t));
}

double hdo_student_quantile(double p, double dof) {
    double lo = 0.0, hi = 1.0, tail = 2.0 * (1.0 - p);
    while (two_sided(hi, dof) > tail && hi < 1e12) hi *= 2.0;
    for (int i = 0; i < 200; i++) {
        double mid = 0.5 * (lo + hi);
        if (two_sided(mid, dof) > tail) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return 0.5 * (lo + hi);
}

static double mean_of(const double *v, int n, double *se) {
    double mean = 0.0, var = 0.0;
    for (int i = 0; i < n; i++) mean += v[i] / n;
    for (int i = 0; i < n; i++) var += (v[i] - mean) * (v[i] - mean);
    *se = n > 1 ? sqrt(var / (n - 1) / n) : 0.0;
    return mean;
}

/* Fills pair[] with a - b of every a, if the seeds are the same and different among themselves. */
static bool pair_up(const double *a, const int64_t *sa, int na, const double *b, const int64_t *sb, int nb,
                    double *pair) {
    if (sa == NULL || sb == NULL || na != nb || na < 2) return false;
    for (int i = 0; i < na; i++) {
        int found = -1, times = 0;
        for (int j = 0; j < nb; j++) {
            if (sb[j] == sa[i]) {
                found = j;
                times++;
            }
        }
        if (times != 1) return false;
        pair[i] = a[i] - b[found];
    }
    return true;
}

hdo_difference hdo_compare_values(const double *a, const int64_t *seed_a, int n_a, const double *b,
                                  const int64_t *seed_b, int n_b) {
    hdo_difference d = {
        .n_a = n_a, .n_b = n_b, .low = (double)NAN, .high = (double)NAN, .t = (double)NAN, .p = (double)NAN};
    if (n_a < 1 || n_b < 1) return d;
    double dof = 0.0, *pair = malloc((size_t)n_a * sizeof *pair);
    d.a = mean_of(a, n_a, &d.a_se);
    d.b = mean_of(b, n_b, &d.b_se);
    d.diff = d.a - d.b;
    if (pair != NULL && pair_up(a, seed_a, n_a, b, seed_b, n_b, pair)) {
        d.paired = true;
        d.diff = mean_of(pair, n_a, &d.se);
        dof = n_a - 1;
    } else if (n_a > 1 && n_b > 1) { /* Welch */
        double va = d.a_se * d.a_se, vb = d.b_se * d.b_se;
        d.se = sqrt(va + vb);
        dof = va + vb > 0.0 ? (va + vb) * (va + vb) / (va * va / (n_a - 1) + vb * vb / (n_b - 1)) : n_a + n_b - 2;
    }
    free(pair);
    if (dof < 1.0) return d; /* one value: no idea of the spread */
    double half = hdo_student_quantile(0.975, dof) * d.se;
    d.low = d.diff - half;
    d.high = d.diff + half;
    d.t = d.se > 0.0 ? d.diff / d.se : d.diff > 0.0 ? DBL_MAX : d.diff < 0.0 ? -DBL_MAX : 0.0;
    d.p = d.se > 0.0 ? two_sided(d.t, dof) : d.diff == 0.0 ? 1.0 : 0.0;
    return d;
}

/* The largest x all runs of the group have. */
static double common_end(const hdo_bundle *g, double end) {
    for (int k = 0; k < g->n_runs; k++) {
        const hdo_series *s = &g->run[k];
        if (s->n > 0 && s->x[s->n - 1] < end) end = s->x[s->n - 1];
    }
    return end;
}

/* Why the axis cannot say how far the run is; NULL: it can, because it only grows. */
static const char *axis_flaw(const hdo_series *s, char buf[64]) {
    double first = (double)NAN, last = (double)NAN;
    for (int i = 0; i < s->n; i++) {
        if (isnan(s->x[i])) continue;
        if (s->x[i] < last) return "falls";
        last = s->x[i];
        if (isnan(first)) first = last;
    }
    if (last > first) return NULL;
    snprintf(buf, 64, isnan(last) ? "has no values" : "is %g from beginning to end", last);
    return buf;
}

static hdo_status check_axis(const hdo_bundle *g, const char *dir, const char *axis, hdo_error *e) {
    for (int k = 0; k < g->n_runs; k++) {
        char run[32] = "the run", buf[64];
        const char *flaw = axis_flaw(&g->run[k], buf);
        if (flaw == NULL) continue;
        if (g->n_runs > 1 && g->run[k].seed >= 0) snprintf(run, sizeof run, "seed %lld", (long long)g->run[k].seed);
        return hdo__fail(e, HDO_E_CONFIG,
                         "%s in '%s' cannot be compared at equal %s, which %s there; take another axis, such as cost "
                         "or step",
                         run, dir, axis, flaw);
    }
    return HDO_OK;
}

static hdo_status values_at(const hdo_bundle *g, const char *dir, double x, double *v, int64_t *seed, hdo_error *e) {
    for (int k = 0; k < g->n_runs; k++) {
        v[k] = hdo_series_at(&g->run[k], x);
        seed[k] = g->run[k].seed;
        if (isfinite(v[k])) continue;
        return hdo__fail(e, HDO_E_DATA, "a run in '%s' has no finite value at x = %g%s", dir, x,
                         g->run[k].diverged ? ": it diverged" : "");
    }
    return HDO_OK;
}

hdo_status hdo_compare_runs(const char *dir_a, const char *dir_b, const char *metric, const char *axis, double *x,
                            hdo_difference *out, hdo_error *e) {
    hdo_bundle a, b = {0};
    hdo_status st = hdo_bundle_load(&a, dir_a, axis, metric, e);
    if (st == HDO_OK) st = hdo_bundle_load(&b, dir_b, axis, metric, e);
    if (st == HDO_OK) st = check_axis(&a, dir_a, axis, e);
    if (st == HDO_OK) st = check_axis(&b, dir_b, axis, e);
    double *v = NULL;
    int64_t *seed = NULL;
    if (st == HDO_OK) {
        int n = a.n_runs + b.n_runs;
        v = malloc((size_t)n * sizeof *v);
        seed = malloc((size_t)n * sizeof *seed);
        if (!(*x >= 0.0)) *x = common_end(&b, common_end(&a, HUGE_VAL));
        if (v == NULL || seed == NULL) st = hdo__fail(e, HDO_E_MEMORY, "out of memory for %d runs", n);
        if (st == HDO_OK) st = values_at(&a, dir_a, *x, v, seed, e);
        if (st == HDO_OK) st = values_at(&b, dir_b, *x, v + a.n_runs, seed + a.n_runs, e);
        if (st == HDO_OK) *out = hdo_compare_values(v, seed, a.n_runs, v + a.n_runs, seed + a.n_runs, b.n_runs);
    }
    free(v);
    free(seed);
    hdo_bundle_clear(&a);
    hdo_bundle_clear(&b);
    return st;
}

static const hdo_series *of_seed(const hdo_bundle *g, int64_t seed) {
    for (int k = 0; k < g->n_runs; k++) {
        if (g->run[k].seed == seed && seed >= 0) return &g->run[k];
    }
    return NULL;
}

/* The partner of a run, if neither of the two diverged. */
static const hdo_series *partner(const hdo_series *s, const hdo_bundle *b) {
    const hdo_series *r = s->diverged ? NULL : of_seed(b, s->seed);
    return r != NULL && !r->diverged ? r : NULL;
}

/* Mean and standard error of the differences at the points of the first run, as far as all runs go. Pairs of which one
 * diverged are counted, not subtracted. */
static hdo_status subtract(hdo_curve *out, const hdo_bundle *a, const hdo_bundle *b, hdo_error *e) {
    int pairs = 0, lost = 0, longest = 0;
    for (int k = 0; k < a->n_runs; k++) {
        bool both = partner(&a->run[k], b) != NULL;
        pairs += both;
        lost += !both && of_seed(b, a->run[k].seed) != NULL;
        longest = a->run[k].n > longest ? a->run[k].n : longest;
    }
    if (pairs + lost == 0) return hdo__fail(e, HDO_E_DATA, "'%s' and '%s' have no seed in common", a->label, b->label);
    out->x = calloc((size_t)longest + 1, sizeof(double));
    out->mean = calloc((size_t)longest + 1, sizeof(double));
    out->se = calloc((size_t)longest + 1, sizeof(double));
    out->diverged = calloc((size_t)lost + 1, sizeof *out->diverged); /* without points: there is nothing to subtract */
    if (out->x == NULL || out->mean == NULL || out->se == NULL || out->diverged == NULL)
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for a curve");
    out->n_diverged = lost;
    for (int i = 0; i < longest && pairs > 0; i++) {
        double sum = 0.0, sum2 = 0.0;
        for (int k = 0; k < a->n_runs; k++) {
            const hdo_series *r = partner(&a->run[k], b);
            if (r == NULL) continue;
            double x = i < a->run[k].n ? a->run[k].x[i] : (double)NAN;
            double d = isnan(x) ? x : a->run[k].y[i] - hdo_series_at(r, x);
            sum += d;
            sum2 += d * d;
            out->x[i] = x;
        }
        if (!isfinite(sum)) break;
        double var = pairs > 1 ? (sum2 - sum * sum / pairs) / (pairs - 1) : (double)NAN;
        out->mean[i] = sum / pairs;
        out->se[i] = var < 0.0 ? 0.0 : sqrt(var / pairs);
        out->n_points = i + 1;
    }
    out->n_runs = pairs;
    return HDO_OK;
}

hdo_status hdo_curve_difference(hdo_curve *out, const char *dir, const char *reference, const char *x, const char *y,
                                hdo_error *e) {
    hdo_bundle a, b = {0};
    *out = (hdo_curve){0};
    hdo_status st = hdo_bundle_load(&a, dir, x, y, e);
    if (st == HDO_OK) st = hdo_bundle_load(&b, reference, x, y, e);
    if (st == HDO_OK) {
        memcpy(out->label, a.label, sizeof out->label);
        st = subtract(out, &a, &b, e);
    }
    hdo_bundle_clear(&a);
    hdo_bundle_clear(&b);
    if (st != HDO_OK) hdo_curve_clear(out);
    return st;
}
