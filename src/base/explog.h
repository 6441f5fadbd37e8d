/* SPDX-License-Identifier: Apache-2.0
 *
 * exp, log and cos of a double from additions, multiplications and one division, each rounded: the same bits
 * everywhere. A libm has its own, and glibc has several, chosen by the processor. Relative error below 2e-16 (exp,
 * log), absolute error below 2e-16 (cos).
 */
#ifndef HDO_BASE_EXPLOG_H
#define HDO_BASE_EXPLOG_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define HDO_LN2_HI 0x1.62e42feep-1 /* 32 bits: its product with an exponent is exact */
#define HDO_LN2_LO 0x1.a39ef35793c76p-33

static inline double hdo__power2(int64_t k) { /* -1022 <= k <= 1023 */
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* exp(r) - 1, |r| <= ln 2 / 2: the series to r^13, which leaves 4e-18. */
static inline double hdo__exp_of(double r) {
    double r2 = r * r, r4 = r2 * r2;
    double a = (0x1p-1 + r * 0x1.5555555555555p-3) + r2 * (0x1.5555555555555p-5 + r * 0x1.1111111111111p-7);
    double b =
        (0x1.6c16c16c16c17p-10 + r * 0x1.a01a01a01a01ap-13) + r2 * (0x1.a01a01a01a01ap-16 + r * 0x1.71de3a556c734p-19);
    double c =
        (0x1.27e4fb7789f5cp-22 + r * 0x1.ae64567f544e4p-26) + r2 * (0x1.1eed8eff8d898p-29 + r * 0x1.6124613a86d09p-33);
    return r + r2 * (a + r4 * (b + r4 * c));
}

/* x = k ln 2 + r; times 2^k, in two halves so that a subnormal result is rounded once. */
static inline double hdo__exp(double x) {
    if (!(x > -746.0 && x < 710.0)) return x > 0 ? (double)INFINITY : x < 0 ? 0.0 : x; /* a NaN stays */
    double t = x * 0x1.71547652b82fep+0 + 0x1.8p52, n = t - 0x1.8p52;
    double e = 1.0 + hdo__exp_of((x - n * HDO_LN2_HI) - n * HDO_LN2_LO);
    int64_t k = (int64_t)n, half = k >> 1;
    return e * hdo__power2(half) * hdo__power2(k - half);
}

static inline double hdo__expm1(double x) { /* relative error below 1e-15 */
    return x > -0.34 && x < 0.34 ? hdo__exp_of(x) : hdo__exp(x) - 1.0;
}

/* log(2^n x), sqrt(1/2) <= x = 1 + f < sqrt(2); with s = f / (2 + f), log(1 + f) = 2 s + 2 s^3 / 3 + ... and
 * 2 s = f - s f. Terms to s^23 leave 2e-19. */
static inline double hdo__log_of(double x, double n) {
    double f = x - 1.0, s = f / (2.0 + f), z = s * s, w = z * z;
    double even =
        0x1.999999999999ap-2 +
        w * (0x1.c71c71c71c71cp-3 + w * (0x1.3b13b13b13b14p-3 + w * (0x1.e1e1e1e1e1e1ep-4 + w * 0x1.8618618618618p-4)));
    double odd = 0x1.5555555555555p-1 +
                 w * (0x1.2492492492492p-2 +
                      w * (0x1.745d1745d1746p-3 +
                           w * (0x1.1111111111111p-3 + w * (0x1.af286bca1af28p-4 + w * 0x1.642c8590b2164p-4))));
    double more = z * (odd + z * even);
    return n * HDO_LN2_HI + (f - (s * (f - more) - n * HDO_LN2_LO));
}

static inline double hdo__log(double x) {
    if (!(x > 0.0 && x < (double)INFINITY)) return x == 0.0 ? -(double)INFINITY : x < 0.0 ? (double)NAN : x;
    int64_t k = 0;
    if (x < 0x1p-1022) x *= 0x1p54, k = -54;
    uint64_t bits, top;
    memcpy(&bits, &x, sizeof bits);
    top = (bits - 0x3fe6a09e667f3bcdu) >> 52; /* sqrt(1/2) */
    k += (int64_t)(top << 52) >> 52;
    bits -= top << 52;
    memcpy(&x, &bits, sizeof x);
    return hdo__log_of(x, (double)k);
}

/* With u = 1 + x as rounded, log(u) / (u - 1) is that of 1 + x to rounding. Relative error below 1e-15. */
static inline double hdo__log1p(double x) {
    double u = 1.0 + x;
    if (u == 1.0 || !(u > 0.0 && u < (double)INFINITY)) return u == 1.0 ? x : hdo__log(u);
    return hdo__log(u) * (x / (u - 1.0));
}

/* x = n pi / 2 + r, |r| <= pi / 4; the series of cos(r) to r^16 or of sin(r) to r^17. For |x| < 10^6. */
static inline double hdo__cos(double x) {
    double t = x * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = t - 0x1.8p52;
    double r = (x - n * 0x1.921fb54400000p+0) - n * 0x1.0b4611a626331p-34, z = r * r;
    int64_t quarter = (int64_t)n & 3;
    if (quarter & 1) {
        double s =
            r + r * (z * (-0x1.5555555555555p-3 +
                          z * (0x1.1111111111111p-7 +
                               z * (-0x1.a01a01a01a01ap-13 +
                                    z * (0x1.71de3a556c734p-19 +
                                         z * (-0x1.ae64567f544e4p-26 +
                                              z * (0x1.6124613a86d09p-33 +
                                                   z * (-0x1.ae7f3e733b81fp-41 + z * 0x1.952c77030ad4ap-49))))))));
        return quarter == 1 ? -s : s;
    }
    double c = 1.0 + z * (-0x1.0000000000000p-1 +
                          z * (0x1.5555555555555p-5 +
                               z * (-0x1.6c16c16c16c17p-10 +
                                    z * (0x1.a01a01a01a01ap-16 +
                                         z * (-0x1.27e4fb7789f5cp-22 +
                                              z * (0x1.1eed8eff8d898p-29 +
                                                   z * (-0x1.93974a8c07c9dp-37 + z * 0x1.ae7f3e733b81fp-45)))))));
    return quarter == 2 ? -c : c;
}

#endif
