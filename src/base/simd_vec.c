/* SPDX-License-Identifier: Apache-2.0
 *
 * Flat vectors: the kernels behind vec.h.
 *
 * Sums (dot, sumsq, distsq) are kept in 16 lanes of double: lane l takes the elements i with i % 16 == l, in order, and
 * the lanes are added as a tree of halves (l with l + 8, then l + 4, l + 2, l + 1). That order is the definition, not
 * an implementation detail: a wider or narrower machine only changes how many lanes share a register. Sixteen keep two
 * add pipes busy at AVX2 width and leave room for AVX-512.
 *
 * Element kernels do one multiply and one add, each rounded: no FMA, so the bits do not depend on the target. A source
 * may be the destination itself; other overlaps are not allowed. Pointers need the alignment of their type only.
 */
#include "base/simd_fns.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define FL (HDO_VEC_BYTES / 4) /* floats in a vector */
#define DL (HDO_VEC_BYTES / 8) /* doubles in a vector */
#define SUM_LANES 16
#define SUM_VECS (SUM_LANES / DL)

typedef float f32v __attribute__((vector_size(HDO_VEC_BYTES)));
typedef double f64v __attribute__((vector_size(HDO_VEC_BYTES)));
/* For loads and stores at any address. */
typedef float f32u __attribute__((vector_size(HDO_VEC_BYTES), aligned(4), may_alias));
typedef double f64u __attribute__((vector_size(HDO_VEC_BYTES), aligned(8), may_alias));

HDO_INLINE f32v load(const float *p) {
    return *(const f32u *)p;
}

HDO_INLINE void store(float *p, f32v v) {
    *(f32u *)p = v;
}

/* DL floats as doubles. */
HDO_INLINE f64v load_wide(const float *p) {
#if defined(__AVX2__)
    return (f64v)_mm256_cvtps_pd(_mm_loadu_ps(p));
#elif defined(__SSE2__)
    return (f64v)_mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)p)));
#elif defined(__aarch64__)
    return (f64v)vcvt_f64_f32(vld1_f32(p));
#else
    f64v v = {0};
    for (int l = 0; l < DL; l++) v[l] = (double)p[l];
    return v;
#endif
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

#define UNROLL 4 /* vectors a turn, by taste: memory is the limit, not the loop */

void HDO_ISA_FN(axpy)(size_t n, float a, const float *x, float *y) {
    size_t i = 0;
    for (; i + UNROLL * FL <= n; i += UNROLL * FL) {
        for (size_t u = 0; u < UNROLL * FL; u += FL) store(y + i + u, load(y + i + u) + a * load(x + i + u));
    }
    for (; i < n; i++) y[i] = y[i] + a * x[i];
}

/* y = a x + b y */
void HDO_ISA_FN(axpby)(size_t n, float a, const float *x, float b, float *y) {
    size_t i = 0;
    for (; i + UNROLL * FL <= n; i += UNROLL * FL) {
        for (size_t u = 0; u < UNROLL * FL; u += FL) store(y + i + u, a * load(x + i + u) + b * load(y + i + u));
    }
    for (; i < n; i++) y[i] = a * x[i] + b * y[i];
}

void HDO_ISA_FN(scale)(size_t n, float a, float *x) {
    size_t i = 0;
    for (; i + UNROLL * FL <= n; i += UNROLL * FL) {
        for (size_t u = 0; u < UNROLL * FL; u += FL) store(x + i + u, a * load(x + i + u));
    }
    for (; i < n; i++) x[i] = a * x[i];
}

/* Addition commutes to the bit, so it does not matter which of the two is named first. The stores of a turn go to one
 * vector, then to the other: alternating between the two takes 1.4 to 2 times as long in the caches (Zen 4, n = 7850;
 * how bad depends on where the pages lie, which changes from run to run). */
void HDO_ISA_FN(average)(size_t n, float *x, float *y) {
    size_t i = 0;
    for (; i + 4 * FL <= n; i += 4 * FL) {
        float *p = x + i, *q = y + i;
        f32v m0 = 0.5f * (load(p) + load(q)), m1 = 0.5f * (load(p + FL) + load(q + FL));
        f32v m2 = 0.5f * (load(p + 2 * FL) + load(q + 2 * FL)), m3 = 0.5f * (load(p + 3 * FL) + load(q + 3 * FL));
        store(p, m0);
        store(p + FL, m1);
        store(p + 2 * FL, m2);
        store(p + 3 * FL, m3);
        store(q, m0);
        store(q + FL, m1);
        store(q + 2 * FL, m2);
        store(q + 3 * FL, m3);
    }
    for (; i < n; i++) {
        float m = 0.5f * (x[i] + y[i]);
        x[i] = m;
        y[i] = m;
    }
}

void HDO_ISA_FN(accumulate)(size_t n, const float *x, double *sum) {
    size_t i = 0;
    for (; i + UNROLL * DL <= n; i += UNROLL * DL) {
        for (size_t u = 0; u < UNROLL * DL; u += DL) {
            f64u *s = (f64u *)(sum + i + u);
            *s = *s + load_wide(x + i + u);
        }
    }
    for (; i < n; i++) sum[i] += (double)x[i];
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

typedef enum sum_kind { DOT, DISTSQ } sum_kind;

/* acc + p q for p, q that were floats: their product is exact in double, so a fused multiply-add rounds where the two
 * steps round and nowhere else. It takes the addition off the pipes that also convert (Zen 4, L1: dot 0.39 to 0.27
 * cycles an element; sumsq stays at 0.25, one addition after the other in each lane). */
HDO_INLINE f64v add_exact(f64v acc, f64v p, f64v q) {
#if defined(__AVX2__) && defined(__FMA__)
    return (f64v)_mm256_fmadd_pd((__m256d)p, (__m256d)q, (__m256d)acc);
#else
    return acc + p * q;
#endif
}

/* k is a constant at every call. For DOT the order of the additions is the whole story; DISTSQ rounds the difference
 * and its square as well. */
HDO_INLINE double sum(sum_kind k, size_t n, const float *x, const float *y) {
    f64v acc[SUM_VECS];
    for (int v = 0; v < SUM_VECS; v++) acc[v] = (f64v){0};
    size_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES) {
#pragma GCC unroll 8
        for (int v = 0; v < SUM_VECS; v++) {
            f64v p = load_wide(x + i + v * DL), q = load_wide(y + i + v * DL);
            if (k == DOT) acc[v] = add_exact(acc[v], p, q);
            if (k == DISTSQ) acc[v] = acc[v] + (p - q) * (p - q);
        }
    }
    double lane[SUM_LANES];
    for (int v = 0; v < SUM_VECS; v++) *(f64u *)(lane + v * DL) = acc[v];
    for (int l = 0; i < n; i++, l++) {
        double p = (double)x[i], q = (double)y[i];
        if (k == DISTSQ) p = q = p - q;
        lane[l] = lane[l] + p * q;
    }
    for (int half = SUM_LANES / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; l++) lane[l] = lane[l] + lane[l + half];
    }
    return lane[0];
}

double HDO_ISA_FN(dot)(size_t n, const float *x, const float *y) {
    return sum(DOT, n, x, y);
}

double HDO_ISA_FN(sumsq)(size_t n, const float *x) {
    return sum(DOT, n, x, x);
}

double HDO_ISA_FN(distsq)(size_t n, const float *x, const float *y) {
    return sum(DISTSQ, n, x, y);
}

/* Two divisions for eight numbers beat eight lookups in a table fourfold. (hdo bench gather) */
void HDO_ISA_FN(pixels)(size_t n, const uint8_t *restrict v, float mean, float sd, float *restrict out) {
    for (size_t i = 0; i < n; i++) out[i] = ((float)v[i] / 255.0f - mean) / sd;
}
