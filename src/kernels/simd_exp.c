/* SPDX-License-Identifier: Apache-2.0 — exp and GELU over arrays; compiled once per instruction set. */
#include <string.h>

#include "kernels/simd_lanes.h"

#define LN2_HI 0x1.62e4p-1f /* 14 bits: its product with an exponent is exact */
#define LN2_LO 0x1.7f7d1cp-20f

/* exp(hi + lo), |lo| small against hi or both small: any result, zero to infinity, subnormal numbers included; the
 * caller keeps hi in [-105, 90]. Degree 6 with the constant term fixed at 1: 2.6e-9 before rounding. The power of two
 * is applied in two halves so that a subnormal result is rounded once, by the hardware. */
HDO_INLINE f32v exp_sum(f32v hi, f32v lo) {
    f32v t = (hi + lo) * LOG2E + ROUND_MAGIC, n = t - ROUND_MAGIC;
    f32v r = fnma_(n, splat(LN2_LO), fnma_(n, splat(LN2_HI), hi)) + lo;
    f32v p = fma_(r, splat(0x1.709b92p-10f), splat(0x1.12904ep-7f));
    p = fma_(p, r, splat(0x1.55515ep-5f));
    p = fma_(p, r, splat(0x1.5553c0p-3f));
    p = fma_(p, r, splat(0x1.000002p-1f));
    p = fma_(p, r, splat(1.0f));
    p = fma_(p, r, splat(1.0f));
    i32v e = (i32v)((u32v)t - ROUND_BITS), e1 = e >> 1, e2 = e - e1;
    f32v s1 = (f32v)((u32v)(e1 + 127) << 23), s2 = (f32v)((u32v)(e2 + 127) << 23);
    return p * s1 * s2;
}

HDO_INLINE f32v exp_full(f32v x) {
    x = min_(splat(90.0f), max_(splat(-105.0f), x));
    return exp_sum(x, (f32v){0});
}

/* The lower tail of the normal distribution is Phi(-a) = exp(-a^2 / 2) R(a). R is smooth and falls like 1 / a: as t
 * times a polynomial of degree 8 in t = 1 / (1 + 11/32 a) it has relative error 2.5e-8 on 0 <= a <= 14.4, where Phi(-a)
 * leaves the subnormal range. The same exponential is the density in the derivative. a^2 is made of an exact square and
 * a remainder, otherwise its rounding would be multiplied by a^2 in the exponential. */
HDO_INLINE void gelu_vec(f32v x, f32v *y, f32v *dy) {
    f32v xc = min_(splat(14.5f), max_(splat(-14.5f), x));
    f32v a = and_mask(xc, (u32v){0} + 0x7fffffffu), ah = and_mask(a, (u32v){0} + 0xfffff000u);
    f32v e = exp_sum(ah * ah * -0.5f, (a - ah) * (a + ah) * -0.5f);
    f32v t = 1.0f / fma_(a, splat(0.34375f), splat(1.0f));
    f32v p = fma_(t, splat(-0x1.c4a346p-6f), splat(0x1.24e210p-3f));
    p = fma_(p, t, splat(-0x1.148fdap-2f));
    p = fma_(p, t, splat(0x1.836bfcp-3f));
    p = fma_(p, t, splat(-0x1.38c9e6p-5f));
    p = fma_(p, t, splat(0x1.cba21ap-4f));
    p = fma_(p, t, splat(0x1.de9838p-4f));
    p = fma_(p, t, splat(0x1.19a8d0p-3f));
    p = fma_(p, t, splat(0x1.18d292p-3f));
    f32v tail = e * (p * t);
    u32v negative = (u32v)((i32v)xc >> 31);
    f32v cdf = (f32v)(((u32v)tail & negative) | ((u32v)(1.0f - tail) & ~negative));
    *y = max_(splat(-14.5f), x) * cdf;
    *dy = fma_(xc * 0x1.988454p-2f, e, cdf); /* 1 / sqrt(2 pi) */
}

void HDO_ISA_FN(hdo__vexp)(size_t n, const float *x, float *y) {
    size_t i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        f32v a = exp_full(load(x + i)), b = exp_full(load(x + i + W));
        store(y + i, a);
        store(y + i + W, b);
    }
    for (; i < n; i += W) {
        float t[W] = {0};
        size_t m = n - i < W ? n - i : W;
        memcpy(t, x + i, m * sizeof(float));
        store(t, exp_full(load(t)));
        memcpy(y + i, t, m * sizeof(float));
    }
}

void HDO_ISA_FN(hdo__gelu)(size_t n, const float *x, float *y, float *dy) {
    size_t i = 0;
    for (; i + W <= n; i += W) {
        f32v g, dg;
        gelu_vec(load(x + i), &g, &dg);
        store(y + i, g);
        if (dy != NULL) store(dy + i, dg);
    }
    if (i < n) {
        float t[W] = {0}, dt[W];
        f32v g, dg;
        memcpy(t, x + i, (n - i) * sizeof(float));
        gelu_vec(load(t), &g, &dg);
        store(t, g);
        store(dt, dg);
        memcpy(y + i, t, (n - i) * sizeof(float));
        if (dy != NULL) memcpy(dy + i, dt, (n - i) * sizeof(float));
    }
}
