/* SPDX-License-Identifier: Apache-2.0
 *
 * What networks need at complex points x + i nu u. A complex value a + i nu t is stored as two arrays, a and t: its
 * imaginary part in units of nu. So nu may be 1e-20 or smaller and t is still an ordinary float, products keep the term
 * im * im, which is -nu^2 times a product of two t and vanishes exactly when it is below rounding, and the slope
 * Im F / nu is read off without a division that could lose digits. At nu = 0 all formulas become forward mode.
 *
 * Between load and store everything is double, with imaginary parts nu t in full: a double holds 1e-100 as well as 1.
 * No conjugates anywhere: functions are continued analytically from the real line. Written with pairs, not with C's
 * complex type, whose multiplication and division differ between compilers.
 */
#ifndef HDO_KERNELS_CPLX_H
#define HDO_KERNELS_CPLX_H

#include <float.h>
#include <math.h>

#include "base/explog.h"
#include "kernels/kernels.h"

typedef struct hdo_z {
    double re, im;
} hdo_z;

static inline hdo_z hdo__z_add(hdo_z a, hdo_z b) {
    return (hdo_z){a.re + b.re, a.im + b.im};
}
static inline hdo_z hdo__z_sub(hdo_z a, hdo_z b) {
    return (hdo_z){a.re - b.re, a.im - b.im};
}
static inline hdo_z hdo__z_scale(double c, hdo_z a) {
    return (hdo_z){c * a.re, c * a.im};
}
static inline hdo_z hdo__z_mul(hdo_z a, hdo_z b) {
    return (hdo_z){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
static inline hdo_z hdo__z_inverse(hdo_z a) {
    double n = a.re * a.re + a.im * a.im;
    return (hdo_z){a.re / n, -a.im / n};
}
static inline hdo_z hdo__z_exp(hdo_z a) {
    double e = hdo__exp(a.re), c = cos(a.im), s = sin(a.im);
    return (hdo_z){e * c, e * s};
}
static inline hdo_z hdo__z_sqrt(hdo_z a) { /* principal branch; nothing cancels */
    double r = sqrt(0.5 * (hypot(a.re, a.im) + fabs(a.re)));
    if (!(r > 0.0)) return (hdo_z){r, r};
    return a.re >= 0.0 ? (hdo_z){r, 0.5 * a.im / r} : (hdo_z){0.5 * fabs(a.im) / r, copysign(r, a.im)};
}

/* -nu^2, the weight of a product of two imaginary parts in a real part; 0 where it cannot change a float (and would
 * make the products slow: denormal numbers). */
static inline float hdo__cplx_imim(double nu) {
    double v = nu * nu;
    return v > (double)FLT_MIN ? (float)-v : 0;
}

/* erf(x + i y) - erf(x) to 1e-12 of its modulus, and below |y| = 0.1 its imaginary part to 1e-12 of itself. Infinite
 * beyond |y| = 13, unless x is large enough to make it zero. */
hdo_z hdo__z_erf_rest(double x, double y);

/* Element-wise; in place is fine. */
void hdo__cplx_gelu(size_t n, double nu, const float *a, const float *t, float *ya, float *yt);
void hdo__cplx_sigmoid(size_t n, double nu, const float *a, const float *t, float *ya, float *yt);

/* Softmax cross-entropy of logits a + i nu t, both (B, C): sum over the samples of its imaginary part, over nu. */
double hdo__cplx_xent(int B, int C, double nu, const float *a, const float *t, const int32_t *label);

/* Attention (hdo_kernels.attn_fwd) of qkv + i nu t_qkv. k: for its exponential. */
size_t hdo__cplx_attn_work(const hdo_attn *s);
void hdo__cplx_attn(const hdo_attn *s, double nu, const hdo_kernels *k, const float *qkv, const float *t_qkv,
                    float *out, float *t_out, hdo_arena *arena);

#endif
