/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to simd_gemm.c, simd_conv.c, simd_stem.c, simd_wino.c, simd_igemm.c, simd_convw.c and
 * simd_mm.c: the vector type of one
 * instruction set, the register tile every matrix product is made of, and the prototypes these files share. HDO_ISA
 * names the set, see base/simd.h.
 */
#ifndef HDO_KERNELS_SIMD_MM_H
#define HDO_KERNELS_SIMD_MM_H

#include <string.h>

#include "base/simd.h"
#include "kernels/mm.h"

#ifndef HDO_ISA
#error "simd_*.c are compiled once per instruction set with -DHDO_ISA=<name>, see meson.build"
#endif

#define MM_INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define MM_UNROLL _Pragma("unroll")
#else
#define MM_UNROLL _Pragma("GCC unroll 16")
#endif

#ifdef __AVX2__
#include <immintrin.h>
#define VL 8 /* floats in a vector */
typedef __m256 vec;
MM_INLINE vec v_zero(void) {
    return _mm256_setzero_ps();
}
MM_INLINE vec v_load(const float *p) {
    return _mm256_loadu_ps(p);
}
MM_INLINE void v_store(float *p, vec v) {
    _mm256_storeu_ps(p, v);
}
MM_INLINE vec v_set1(float x) {
    return _mm256_set1_ps(x);
}
MM_INLINE vec v_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
MM_INLINE vec v_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}
MM_INLINE vec v_mul(vec a, vec b) {
    return _mm256_mul_ps(a, b);
}
/* The first n < VL floats at p, zeros behind them. */
MM_INLINE vec v_load_part(const float *p, size_t n) {
    static const int ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(const void *)(ones + 8 - n)));
}
MM_INLINE __m128 v_fold(vec v) {
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
MM_INLINE float v_sum(vec v) { /* a fixed tree: lanes i and i + 4, then i and i + 2, then the last two */
    __m128 s = v_fold(v);
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
/* Four sums at once, each by the tree of v_sum: the same bits. */
MM_INLINE void v_sum4(vec a, vec b, vec c, vec d, float out[4]) {
    __m128 p = v_fold(a), q = v_fold(b), r = v_fold(c), s = v_fold(d);
    __m128 ab = _mm_add_ps(_mm_unpacklo_ps(p, q), _mm_unpackhi_ps(p, q));
    __m128 cd = _mm_add_ps(_mm_unpacklo_ps(r, s), _mm_unpackhi_ps(r, s));
    _mm_storeu_ps(out, _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)));
}
/* The first n < VL floats to p. A masked store is microcode on AMD: halves, quarters and singles instead. */
MM_INLINE void v_store_part(float *p, vec v, size_t n) {
    __m128 s = _mm256_castps256_ps128(v);
    if (n & 4) {
        _mm_storeu_ps(p, s);
        s = _mm256_extractf128_ps(v, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)(void *)p, s);
        s = _mm_movehl_ps(s, s);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, s);
}
MM_INLINE void v_transpose(vec r[8]) {
    vec p[8], q[8];
    MM_UNROLL for (int i = 0; i < 8; i += 2) {
        p[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        p[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    MM_UNROLL for (int i = 0; i < 8; i += 4) {
        q[i] = _mm256_shuffle_ps(p[i], p[i + 2], 0x44);
        q[i + 1] = _mm256_shuffle_ps(p[i], p[i + 2], 0xee);
        q[i + 2] = _mm256_shuffle_ps(p[i + 1], p[i + 3], 0x44);
        q[i + 3] = _mm256_shuffle_ps(p[i + 1], p[i + 3], 0xee);
    }
    MM_UNROLL for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(q[i], q[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(q[i], q[i + 4], 0x31);
    }
}
#else
#define VL 4
typedef float vec __attribute__((vector_size(16)));
MM_INLINE vec v_zero(void) {
    return (vec){0, 0, 0, 0};
}
MM_INLINE vec v_load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
MM_INLINE void v_store(float *p, vec v) {
    memcpy(p, &v, sizeof v);
}
MM_INLINE vec v_set1(float x) {
    return (vec){x, x, x, x};
}
MM_INLINE vec v_fma(vec a, vec b, vec c) {
    return a * b + c;
}
MM_INLINE vec v_add(vec a, vec b) {
    return a + b;
}
MM_INLINE vec v_mul(vec a, vec b) {
    return a * b;
}
MM_INLINE vec v_load_part(const float *p, size_t n) {
    return (vec){n > 0 ? p[0] : 0, n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, 0};
}
MM_INLINE float v_sum(vec v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}
MM_INLINE void v_sum4(vec a, vec b, vec c, vec d, float out[4]) {
    out[0] = v_sum(a), out[1] = v_sum(b), out[2] = v_sum(c), out[3] = v_sum(d);
}
MM_INLINE void v_store_part(float *p, vec v, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = v[i];
}
MM_INLINE void v_transpose(vec r[4]) {
    vec q[4];
    MM_UNROLL for (int i = 0; i < 4; i++) q[i] = (vec){r[0][i], r[1][i], r[2][i], r[3][i]};
    MM_UNROLL for (int i = 0; i < 4; i++) r[i] = q[i];
}
#endif

/* The register tile: MR rows of A times NV vectors of B. 12 sums, NV loads and one broadcast fill the 16 registers, and
 * 12 independent sums hide the latency of the multiply-add (4 cycles, two per cycle). */
#define MR 6
#define NV 2
#define NR (NV * VL)

/* acc (mr, nv) = sum over k of A[r * am + k * ak] B[k * ldb ...]; mr <= MR and nv <= NV must be constants. */
MM_INLINE void tile_sum(int mr, int nv, size_t K, const float *A, size_t am, size_t ak, const float *B, size_t ldb,
                        vec acc[MR][NV]) {
    MM_UNROLL for (int r = 0; r < mr; r++) {
        MM_UNROLL for (int v = 0; v < nv; v++) acc[r][v] = v_zero();
    }
    for (size_t k = 0; k < K; k++, A += ak, B += ldb) {
        vec b[NV];
        MM_UNROLL for (int v = 0; v < nv; v++) b[v] = v_load(B + v * VL);
        MM_UNROLL for (int r = 0; r < mr; r++) {
            vec a = v_set1(A[(size_t)r * am]);
            MM_UNROLL for (int v = 0; v < nv; v++) acc[r][v] = v_fma(a, b[v], acc[r][v]);
        }
    }
}

void HDO_ISA_FN(hdo__mm_gemm)(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda,
                              const float *B, int ldb, float beta, float *C, int ldc);
bool HDO_ISA_FN(hdo__mm_gemm_wins)(bool ta, bool tb, int M, int N, int K);

/* Channels of the convolution that c is a part of: they choose the path, so that a part goes the way of the whole. */
static inline int whole_C(const hdo_conv *c) {
    return (int)(c->w_step / ((size_t)c->kh * (size_t)c->kw));
}
static inline int whole_O(const hdo_conv *c) {
    return (int)(c->y_step / ((size_t)c->Ho * (size_t)c->Wo));
}

/* Direct convolution: only where `fits` (forward, bwd_x) or `fits_w` (bwd_w) says so. */
bool HDO_ISA_FN(hdo__direct_fits)(const hdo_conv *c);
bool HDO_ISA_FN(hdo__direct_fits_w)(const hdo_conv *c);
size_t HDO_ISA_FN(hdo__direct_work)(const hdo_conv *c);
void HDO_ISA_FN(hdo__direct_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                                 hdo_arena *a);
void HDO_ISA_FN(hdo__direct_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
void HDO_ISA_FN(hdo__direct_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a);

/* Few channels, stride 2: forward only, where it fits. */
bool HDO_ISA_FN(hdo__stem_fits)(const hdo_conv *c);
size_t HDO_ISA_FN(hdo__stem_work)(const hdo_conv *c);
void HDO_ISA_FN(hdo__stem_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                               hdo_arena *a);

/* Winograd: only where it fits, all three passes. */
bool HDO_ISA_FN(hdo__wino_fits)(const hdo_conv *c);
size_t HDO_ISA_FN(hdo__wino_work)(const hdo_conv *c);
void HDO_ISA_FN(hdo__wino_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                               hdo_arena *a);
void HDO_ISA_FN(hdo__wino_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
void HDO_ISA_FN(hdo__wino_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a);

/* Implicit matrix product: any convolution. */
size_t HDO_ISA_FN(hdo__igemm_work)(const hdo_conv *c);   /* forward and bwd_x */
size_t HDO_ISA_FN(hdo__igemm_w_work)(const hdo_conv *c); /* bwd_w */
void HDO_ISA_FN(hdo__igemm_fwd)(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                                hdo_arena *a);
void HDO_ISA_FN(hdo__igemm_bwd_x)(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
void HDO_ISA_FN(hdo__igemm_bwd_w)(const hdo_conv *c, const float *x, const float *dy, float *dw, hdo_arena *a);

#endif
