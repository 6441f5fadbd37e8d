/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU, sigmoid and softmax cross-entropy at complex points (cplx.h says how values are stored and why).
 *
 * GELU is z Phi(z) with Phi(z) = (1 + erf(z / sqrt 2)) / 2, and erf is entire. With E = erf(x + i y) - erf(x),
 *
 *     E = 2/sqrt(pi) e^(-x^2) integral over v in (0, y) of e^(v^2) (sin 2xv + i cos 2xv),
 *
 * a form in which the imaginary part is never a difference of larger numbers: y may be 1e-20.
 */
#include "kernels/cplx.h"

enum { ERF_Y_MAX = 13 }; /* cosh of n y for all n of the sum is still a double */

/* y small: the Taylor series to y^4. The next terms are below (2 |x y|)^4 / 120 of the first. */
static hdo_z erf_rest_small(double x, double y) {
    double y2 = y * y, x2 = x * x;
    return (hdo_z){x * y2 * (1.0 + y2 * (3.0 - 2.0 * x2) / 6.0), y * (1.0 + y2 * (1.0 - 2.0 * x2) / 3.0)};
}

/* Otherwise e^(v^2) = (1 + 2 sum_n e^(-n^2/4) cosh nv) / (2 sqrt pi), true to e^(-4 pi^2) = 7e-18 for all v, and every
 * term is integrated exactly (Salzer 1951; Abramowitz and Stegun 7.1.29). The result is over 2/sqrt(pi). */
static hdo_z erf_rest_sum(double x, double y) {
    const double root_pi = 1.77245385090551602730, decay = 0.60653065971263342360; /* e^(-1/2) */
    double w = 2.0 * x * y, sw = sin(w), cw = cos(w), half = sin(0.5 * w);
    double c1 = cosh(y), s1 = sinh(y), c = 1.0, s = 0.0;
    double q = 1.0, ratio = 0.77880078307140486825; /* e^(-n^2/4) by recurrence; e^(-1/4) */
    hdo_z sum = {0.0, 0.0};
    int last = (int)(2.0 * fabs(y)) + 13; /* the terms peak at n = 2 |y|; 6.5 further they are e^(-42) of that */
    for (int n = 1; n <= last; n++) {
        double cn = c * c1 + s * s1;
        s = s * c1 + c * s1;
        c = cn;
        q *= ratio;
        ratio *= decay;
        double m = (double)n, f = q / (m * m + 4.0 * x * x);
        /* the first bracket is 1 - cosh cos, which cancels for small y */
        sum.re += f * (2.0 * x * (2.0 * half * half - (c - 1.0) * cw) + m * s * sw);
        sum.im += f * (2.0 * x * c * sw + m * s * cw);
    }
    double first_re = x != 0.0 ? half * half / (2.0 * x) : 0.0, first_im = x != 0.0 ? sw / (4.0 * x) : 0.5 * y;
    return (hdo_z){(first_re + sum.re) / root_pi, (first_im + sum.im) / root_pi};
}

hdo_z hdo__z_erf_rest(double x, double y) {
    const double two_over_root_pi = 1.12837916709551257390;
    if (x * x - y * y > 745.0) return (hdo_z){0.0, 0.0}; /* e^(y^2 - x^2) underflows */
    if (!(fabs(y) <= ERF_Y_MAX)) return (hdo_z){HUGE_VAL, HUGE_VAL};
    hdo_z r = fabs(y) * (1.0 + fabs(x)) < 1e-3 ? erf_rest_small(x, y) : erf_rest_sum(x, y);
    return hdo__z_scale(two_over_root_pi * exp(-x * x), r);
}

void hdo__cplx_gelu(size_t n, double nu, const float *a, const float *t, float *ya, float *yt) {
    const double half_root = 0.70710678118654752440; /* 1/sqrt(2) */
    for (size_t i = 0; i < n; i++) {
        hdo_z z = {(double)a[i], nu * (double)t[i]}, rest = hdo__z_erf_rest(z.re * half_root, z.im * half_root);
        rest.re += erfc(-z.re * half_root); /* 1 + erf without cancellation for negative x */
        hdo_z y = hdo__z_mul(z, rest);
        ya[i] = (float)(0.5 * y.re);
        yt[i] = (float)(0.5 * y.im / nu);
    }
}

void hdo__cplx_sigmoid(size_t n, double nu, const float *a, const float *t, float *ya, float *yt) {
    for (size_t i = 0; i < n; i++) {
        bool negative = a[i] < 0; /* e^z / (1 + e^z), or 1 / (1 + e^-z): no overflow */
        hdo_z z = {(double)a[i], nu * (double)t[i]}, e = hdo__z_exp(negative ? z : hdo__z_scale(-1.0, z));
        hdo_z y = hdo__z_inverse((hdo_z){1.0 + e.re, e.im});
        if (negative) y = hdo__z_mul(e, y);
        ya[i] = (float)y.re;
        yt[i] = (float)(y.im / nu);
    }
}

/* log sum_c e^(z_c) - z_label: its imaginary part is the angle of the sum minus that of e^(z_label). Real parts are
 * shifted by the largest. */
double hdo__cplx_xent(int B, int C, double nu, const float *a, const float *t, const int32_t *label) {
    double total = 0.0;
    for (int b = 0; b < B; b++, a += C, t += C) {
        double top = (double)a[0];
        for (int c = 1; c < C; c++) top = (double)a[c] > top ? (double)a[c] : top;
        hdo_z sum = {0.0, 0.0};
        for (int c = 0; c < C; c++) sum = hdo__z_add(sum, hdo__z_exp((hdo_z){(double)a[c] - top, nu * (double)t[c]}));
        total += atan2(sum.im, sum.re) / nu - (double)t[label[b]];
    }
    return total;
}
