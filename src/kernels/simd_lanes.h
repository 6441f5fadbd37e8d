/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to simd_attn.c and simd_exp.c: vectors of eight floats, and powers of two. Where the machine has shorter ones
 * the compiler makes one of two.
 */
#ifndef HDO_KERNELS_SIMD_LANES_H
#define HDO_KERNELS_SIMD_LANES_H

#include "base/fma.h"
#include "base/simd_fns.h"
#include "kernels/attn.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define VB 32 /* bytes: eight lanes on every instruction set, so that a sum over lanes is the same sum */
#define W (VB / 4)

typedef float f32v __attribute__((vector_size(VB)));
typedef uint32_t u32v __attribute__((vector_size(VB)));
typedef int32_t i32v __attribute__((vector_size(VB)));
typedef float f32u __attribute__((vector_size(VB), aligned(4), may_alias)); /* for loads and stores at any address */
typedef uint32_t u32u __attribute__((vector_size(VB), aligned(4), may_alias));

/* ---- vector operations ------------------------------------------------------------------------------------------- */

HDO_INLINE f32v load(const float *p) {
    return *(const f32u *)p;
}
HDO_INLINE void store(float *p, f32v v) {
    *(f32u *)p = v;
}
HDO_INLINE f32v splat(float x) {
    return x - (f32v){0};
} /* x + 0 is not x for x = -0: that would stay an addition */
HDO_INLINE f32v and_mask(f32v a, u32v m) {
    return (f32v)((u32v)a & m);
}

/* The library is compiled without contraction, so a fused multiply-add has to be asked for. */
HDO_INLINE f32v fma_(f32v a, f32v b, f32v c) {
#if defined(__AVX2__)
    return (f32v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    hdo_f32x4 x[2], y[2], z[2];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    memcpy(z, &c, sizeof z);
    z[0] = hdo__fma4(x[0], y[0], z[0]);
    z[1] = hdo__fma4(x[1], y[1], z[1]);
    memcpy(&c, z, sizeof c);
    return c;
#endif
}
HDO_INLINE f32v fnma_(f32v a, f32v b, f32v c) { /* c - a b */
#if defined(__AVX2__)
    return (f32v)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return fma_(-a, b, c);
#endif
}

/* Both give b when either is not a number: pass the data as b. */
HDO_INLINE f32v max_(f32v a, f32v b) {
#if defined(__AVX2__)
    return (f32v)_mm256_max_ps((__m256)a, (__m256)b);
#else
    u32v m = (u32v)(a > b);
    return (f32v)(((u32v)a & m) | ((u32v)b & ~m));
#endif
}
HDO_INLINE f32v min_(f32v a, f32v b) {
#if defined(__AVX2__)
    return (f32v)_mm256_min_ps((__m256)a, (__m256)b);
#else
    u32v m = (u32v)(a < b);
    return (f32v)(((u32v)a & m) | ((u32v)b & ~m));
#endif
}

HDO_INLINE float sum_lanes(f32v a) {
    float s = 0.0f;
    for (int l = 0; l < W; l++) s += a[l];
    return s;
}
HDO_INLINE float max_lanes(f32v a) {
    float s = a[0];
    for (int l = 1; l < W; l++) s = a[l] > s ? a[l] : s;
    return s;
}

/* All ones in lanes 0 .. n, zero above; 0 <= n < W. */
HDO_INLINE u32v lanes_to(int n) {
    static const uint32_t edge[2 * W] = {[0 ... W - 1] = 0xffffffffu};
    return *(const u32u *)(edge + (W - 1 - n));
}

/* ---- 2^x and log2 ------------------------------------------------------------------------------------------------ */

/* Adding and subtracting 1.5 * 2^23 rounds to an integer and leaves that integer in the low bits of the sum. */
#define ROUND_MAGIC 0x1.8p23f
#define ROUND_BITS 0x4b400000u

#define LOG2E 0x1.715476p+0f
#define LN2 0x1.62e430p-1f

/* 2^x for -100 <= x < 127; below: 2^-100; above: garbage (the caller masks those lanes). Degree 5 on [-1/2, 1/2],
 * fitted to the relative error with the constant term fixed at 1, so that 2^0 is 1: 1.3e-7 before rounding. In two
 * halves of about equal latency: the loops below do the first half of one vector beside the second half of the one
 * before, since the whole chain (40 cycles) is longer than what the scheduler of a core can look ahead. */
typedef struct split { /* x = integer + f; the integer is in the low bits of t */
    f32v f, t;
} split;
HDO_INLINE split exp2_split(f32v x) {
    split s;
    x = max_(splat(-100.0f), x);
    s.t = x + ROUND_MAGIC;
    s.f = x - (s.t - ROUND_MAGIC);
    return s;
}
HDO_INLINE f32v exp2_join(split s) {
    f32v p = fma_(s.f, splat(0x1.5f51f2p-10f), splat(0x1.3cf5f0p-7f));
    p = fma_(p, s.f, splat(0x1.c6aeb4p-5f));
    p = fma_(p, s.f, splat(0x1.ebf996p-3f));
    p = fma_(p, s.f, splat(0x1.62e430p-1f));
    p = fma_(p, s.f, splat(1.0f));
    return (f32v)((u32v)p + ((u32v)s.t << 23));
}

/* log2 of positive normal numbers: x = 2^e z, sqrt(1/2) <= z < sqrt(2), log2 z = s poly(s^2), s = (z - 1) / (z + 1).
 * 0.7e-9 before rounding. */
HDO_INLINE f32v log2_(f32v x) {
    i32v e = (i32v)((u32v)x - 0x3f3504f3u) >> 23;
    f32v z = (f32v)((u32v)x - ((u32v)e << 23));
    f32v s = (z - 1.0f) / (z + 1.0f), u = s * s;
    f32v p = fma_(u, splat(0x1.ba1b44p-2f), splat(0x1.274710p-1f));
    p = fma_(p, u, splat(0x1.ec70e6p-1f));
    p = fma_(p, u, splat(0x1.715476p+1f));
#if defined(__AVX2__)
    f32v ef = (f32v)_mm256_cvtepi32_ps((__m256i)e);
#else
    f32v ef = __builtin_convertvector(e, f32v);
#endif
    return fma_(p, s, ef);
}

void HDO_ISA_FN(hdo__vexp)(size_t n, const float *x, float *y);
void HDO_ISA_FN(hdo__gelu)(size_t n, const float *x, float *y, float *dy);

#endif
