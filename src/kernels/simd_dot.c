/* SPDX-License-Identifier: Apache-2.0
 *
 * The other matrix product: op(A) and op(B) both contiguous along k (A plain, B transposed: the forward pass of a
 * linear layer) and one of them short. Vectors run along k, so no width of the result is padded: 10 classes cost 10
 * columns, not 16.
 *
 * The sum of an output has LANES chains of multiply-adds, k modulo LANES, in order, and then a tree: lanes i and i + 8,
 * i and i + 4, i and i + 2, the last two. Sums are cut every KD terms, and the parts are added in order.
 */
#include "kernels/simd_mm.h"

#define LANES 16
#define LV (LANES / VL)   /* vectors of one sum */
#define KD ((size_t)2048) /* terms of one sum: a long float sum loses digits */

typedef struct dot_args {
    size_t K, lda, ldb, cm, cn; /* cm, cn: strides of C over the rows of A and the rows of B */
    float alpha, beta;
} dot_args;

#ifdef __AVX512F__
#define DM 4 /* rows of A times rows of B */
#define DN 5
#else
#define DM 2
#define DN 3
#endif

MM_INLINE float sum_of(const vec *acc) {
#ifdef __AVX512F__
    return v_sum16(acc[0]);
#else
    return v_sum(v_add(acc[0], acc[1]));
#endif
}

MM_INLINE vec load_upto(const float *p, size_t k, size_t K) {
    return k + VL <= K ? v_load(p + k) : k < K ? v_load_part(p + k, K - k) : v_zero();
}

/* ahead: rows of A (as many as mr) to prefetch for the next strip, or NULL. */
MM_INLINE void dot_tile(int mr, int nr, const dot_args *s, const float *A, const float *B, float *C,
                        const float *ahead) {
    vec acc[DM][DN][LV];
    MM_UNROLL for (int i = 0; i < mr; i++) {
        MM_UNROLL for (int j = 0; j < nr; j++) {
            MM_UNROLL for (int v = 0; v < LV; v++) acc[i][j][v] = v_zero();
        }
    }
    size_t k = 0;
    for (; k + LANES <= s->K; k += LANES) {
        if (ahead != NULL) {
            MM_UNROLL for (int i = 0; i < mr; i++) __builtin_prefetch(ahead + (size_t)i * s->lda + k);
        }
        MM_UNROLL for (int v = 0; v < LV; v++) {
            vec a[DM];
            MM_UNROLL for (int i = 0; i < mr; i++) a[i] = v_load(A + (size_t)i * s->lda + k + (size_t)v * VL);
            MM_UNROLL for (int j = 0; j < nr; j++) {
                vec b = v_load(B + (size_t)j * s->ldb + k + (size_t)v * VL);
                MM_UNROLL for (int i = 0; i < mr; i++) acc[i][j][v] = v_fma(a[i], b, acc[i][j][v]);
            }
        }
    }
    if (k < s->K) {
        MM_UNROLL for (int v = 0; v < LV; v++) {
            size_t at = k + (size_t)v * VL;
            vec a[DM];
            MM_UNROLL for (int i = 0; i < mr; i++) a[i] = load_upto(A + (size_t)i * s->lda, at, s->K);
            MM_UNROLL for (int j = 0; j < nr; j++) {
                vec b = load_upto(B + (size_t)j * s->ldb, at, s->K);
                MM_UNROLL for (int i = 0; i < mr; i++) acc[i][j][v] = v_fma(a[i], b, acc[i][j][v]);
            }
        }
    }
    MM_UNROLL for (int j = 0; j < nr; j++) {
        MM_UNROLL for (int i = 0; i < mr; i++) {
            float *out = C + (size_t)i * s->cm + (size_t)j * s->cn, v = s->alpha * sum_of(acc[i][j]);
            *out = s->beta == 0 ? v : s->beta * *out + v;
        }
    }
}

/* One strip: mr rows of A against N rows of B. The first tile fetches the next strip of A: a strip is short, and the
 * hardware only finds its streams when they are nearly over. */
MM_INLINE void dot_strip(int mr, size_t N, const dot_args *s, const float *A, const float *B, float *C,
                         const float *ahead) {
    for (size_t j = 0; j < N;) {
        size_t left = N - j, n = left < DN ? left : DN;
        if (left == DN + 1) n = (DN + 1) / 2; /* no lonely one at the end */
        const float *b = B + j * s->ldb, *next = j == 0 ? ahead : NULL;
        float *c = C + j * s->cn;
        switch (n) {
        case 1: dot_tile(mr, 1, s, A, b, c, NULL); break;
        case 2: dot_tile(mr, 2, s, A, b, c, NULL); break;
        case 3: dot_tile(mr, 3, s, A, b, c, DN == 3 ? next : NULL); break;
        case 4: dot_tile(mr, DN > 4 ? 4 : 1, s, A, b, c, NULL); break; /* the last two for DN = 5 only */
        default: dot_tile(mr, DN > 4 ? 5 : 1, s, A, b, c, next); break;
        }
        j += n;
    }
}

typedef void strip_fn(size_t N, const dot_args *s, const float *A, const float *B, float *C, const float *ahead);
#define DOT_STRIP(mr)                                                                                                  \
    static void dot_strip##mr(size_t N, const dot_args *s, const float *A, const float *B, float *C,                   \
                              const float *ahead) {                                                                    \
        dot_strip(mr, N, s, A, B, C, ahead);                                                                           \
    }
DOT_STRIP(1)
DOT_STRIP(2)
#ifdef __AVX512F__
DOT_STRIP(3)
DOT_STRIP(4)
static strip_fn *const strips[DM + 1] = {NULL, dot_strip1, dot_strip2, dot_strip3, dot_strip4};
#else
static strip_fn *const strips[DM + 1] = {NULL, dot_strip1, dot_strip2};
#endif

void HDO_ISA_FN(hdo__mm_dot)(size_t M, size_t N, size_t K, float alpha, const float *A, size_t lda, const float *B,
                             size_t ldb, float beta, float *C, size_t ldc) {
    dot_args s = {.lda = lda, .ldb = ldb, .cm = ldc, .cn = 1, .alpha = alpha};
    /* Strips of the longer operand pass over the whole shorter one, which stays in cache. */
    if (M < N) {
        size_t n = M;
        const float *p = A;
        M = N, N = n;
        A = B, B = p;
        s = (dot_args){.lda = ldb, .ldb = lda, .cm = 1, .cn = ldc, .alpha = alpha};
    }
    for (size_t k0 = 0; k0 < K; k0 += KD) {
        s.K = K - k0 < KD ? K - k0 : KD;
        s.beta = k0 == 0 ? beta : 1;
        for (size_t i = 0; i < M;) {
            size_t left = M - i, n = left < DM ? left : DM;
            if (DM > 2 && left == DM + 1) n = (DM + 1) / 2 + 1;
            const float *a = A + i * s.lda + k0, *ahead = left >= 2 * DM ? a + DM * s.lda : NULL;
            strips[n](N, &s, a, B + k0, C + i * s.cm, n == DM ? ahead : NULL);
            i += n;
        }
    }
}
