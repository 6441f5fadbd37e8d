/* SPDX-License-Identifier: Apache-2.0
 *
 * Our own matrix product, C = alpha op(A) op(B) + beta C.
 *
 * Every sum over k is one chain of fused multiply-adds, in order, cut every KC terms (for locality, and because a long
 * float sum loses digits); the parts are added to C in order. Vectors run over columns of C and never over k, so every
 * instruction set gives the same bits, whatever its tile. Products that are better done along k have another
 * definition and a kernel of their own (simd_dot.c); which of the two it is depends on the shape alone.
 *
 * Blocks: KC x NC numbers of op(B) are packed into panels of NR columns (second-level cache); a strip of MR rows of
 * op(A) is packed beside them (first level) and meets all panels in turn. B is used in place where its rows are
 * contiguous and read a few times only, A where there is one panel only.
 */
#include "kernels/simd_mm.h"

#define KC ((size_t)256) /* terms of one chain: part of the definition */
#define NC ((size_t)480) /* columns of a packed block */

/* acc alpha + beta C into C: `cols` columns of nv vectors. */
MM_INLINE void tile_store(int mr, int nv, size_t cols, vec acc[MR][NV], float alpha, float beta, float *C, size_t ldc) {
    vec va = v_set1(alpha), vb = v_set1(beta);
    if (cols == (size_t)nv * VL) {
        MM_UNROLL for (int r = 0; r < mr; r++) {
            MM_UNROLL for (int v = 0; v < nv; v++) {
                float *out = C + (size_t)r * ldc + v * VL;
                vec sum = v_mul(va, acc[r][v]);
                v_store(out, beta == 0 ? sum : v_fma(vb, v_load(out), sum));
            }
        }
        return;
    }
    size_t rest = cols - (size_t)(nv - 1) * VL; /* lanes of the last vector */
    MM_UNROLL for (int r = 0; r < mr; r++) {
        float *out = C + (size_t)r * ldc;
        MM_UNROLL for (int v = 0; v < nv; v++, out += VL) {
            vec sum = v_mul(va, acc[r][v]);
            if (v < nv - 1) {
                v_store(out, beta == 0 ? sum : v_fma(vb, v_load(out), sum));
            } else {
                if (beta != 0) sum = v_fma(vb, v_load_part(out, rest), sum);
                v_store_part(out, sum, rest);
            }
        }
    }
}

typedef struct tile_args {
    size_t K, am, ak, ldb, cols, ldc;
    float alpha, beta;
} tile_args;

MM_INLINE void tile(int mr, int nv, const tile_args *s, const float *A, const float *B, float *C) {
    vec acc[MR][NV];
    if (s->am == 1 && s->ak == MR && s->ldb == NR) /* both packed: constants save address computations */
        tile_sum(mr, nv, s->K, A, 1, MR, B, NR, acc);
    else if (s->ak == 1)
        tile_sum(mr, nv, s->K, A, s->am, 1, B, s->ldb, acc);
    else
        tile_sum(mr, nv, s->K, A, s->am, s->ak, B, s->ldb, acc);
    tile_store(mr, nv, s->cols, acc, s->alpha, s->beta, C, s->ldc);
}

typedef void tile_fn(const tile_args *s, const float *A, const float *B, float *C);
#define TILE(mr)                                                                                                       \
    static void tile##mr##_1(const tile_args *s, const float *A, const float *B, float *C) {                           \
        tile(mr, 1, s, A, B, C);                                                                                       \
    }                                                                                                                  \
    static void tile##mr##_2(const tile_args *s, const float *A, const float *B, float *C) {                           \
        tile(mr, 2, s, A, B, C);                                                                                       \
    }
MM_EACH_ROW(TILE)
#define TILE_ROW(mr) {NULL, tile##mr##_1, tile##mr##_2},
static tile_fn *const tiles[MR + 1][NV + 1] = {{NULL, NULL, NULL}, MM_EACH_ROW(TILE_ROW)};

MM_INLINE vec load_upto(const float *p, size_t n) {
    return n >= VL ? v_load(p) : v_load_part(p, n);
}

/* dst (K, NR) = `cols` columns of op(B), zeros behind them; a second vector that stays empty is not written. */
static void pack_panel(bool tb, size_t K, size_t cols, const float *B, size_t ldb, float *dst) {
    size_t nv = (cols + VL - 1) / VL;
    if (!tb) {
        for (size_t k = 0; k < K; k++) {
            const float *row = B + k * ldb;
            float *d = dst + k * NR;
            if (cols == NR) {
                MM_UNROLL for (int v = 0; v < NV; v++) v_store(d + v * VL, v_load(row + v * VL));
            } else {
                for (size_t v = 0; v < nv; v++) v_store(d + v * VL, load_upto(row + v * VL, cols - v * VL));
            }
        }
        return;
    }
    for (size_t v = 0; v < nv; v++)
        for (size_t k = 0; k < K; k += VL) {
            vec r[VL];
            size_t n = K - k, have = cols - v * VL;
            const float *p = B + v * VL * ldb + k;
            float *d = dst + k * NR + v * VL;
            if (have >= VL && n >= VL) {
                MM_UNROLL for (size_t i = 0; i < VL; i++) r[i] = v_load(p + i * ldb);
            } else {
                MM_UNROLL for (size_t i = 0; i < VL; i++) r[i] = i < have ? load_upto(p + i * ldb, n) : v_zero();
            }
            v_transpose(r);
            if (n >= VL) {
                MM_UNROLL for (size_t i = 0; i < VL; i++) v_store(d + i * NR, r[i]);
            } else {
                MM_UNROLL for (size_t i = 0; i < VL; i++) if (i < n) v_store(d + i * NR, r[i]);
            }
        }
}

/* dst (K, MR) = `rows` rows of op(A), garbage behind them; dst has room for VL more. */
static void pack_strip(bool ta, size_t rows, size_t K, const float *A, size_t lda, float *dst) {
    if (ta) {
        for (size_t k = 0; k < K; k++)
            for (size_t r = 0; r < rows; r++) dst[k * MR + r] = A[k * lda + r];
        return;
    }
    size_t k = 0;
    for (; k + VL <= K; k += VL) {
        vec r[VL];
        MM_UNROLL for (size_t i = 0; i < VL; i++) r[i] = i < rows ? v_load(A + i * lda + k) : v_zero();
        v_transpose(r);
        MM_UNROLL for (size_t i = 0; i < VL; i++) v_store(dst + (k + i) * MR, r[i]); /* the next one covers the end */
    }
    for (; k < K; k++)
        for (size_t r = 0; r < rows; r++) dst[k * MR + r] = A[r * lda + k];
}

/* All rows of A against a block of at most NC columns of B, one block of k. */
static void block(bool ta, bool tb, size_t M, size_t N, tile_args *s, const float *A, size_t lda, const float *B,
                  size_t ldb, float *C) {
    static _Thread_local float panels[KC * NC] __attribute__((aligned(HDO_ALIGN)));
    float strip[KC * MR + VL] __attribute__((aligned(HDO_ALIGN)));
    bool in_place = !tb && M <= 2 * MR, copy = N > NR;
    size_t whole = in_place ? N / NR * NR : 0; /* columns used where they are */
    for (size_t j = whole; j < N; j += NR)
        pack_panel(tb, s->K, N - j < NR ? N - j : NR, tb ? B + j * ldb : B + j, ldb, panels + j * KC);
    for (size_t i = 0; i < M; i += MR) {
        size_t rows = M - i < MR ? M - i : MR;
        const float *a = ta ? A + i : A + i * lda;
        s->am = ta ? 1 : lda;
        s->ak = ta ? lda : 1;
        if (copy) {
            pack_strip(ta, rows, s->K, a, lda, strip);
            a = strip;
            s->am = 1;
            s->ak = MR;
        }
        for (size_t j = 0; j < N; j += NR) {
            s->cols = N - j < NR ? N - j : NR;
            s->ldb = j < whole ? ldb : NR;
            tiles[rows][s->cols <= VL ? 1 : 2](s, a, j < whole ? B + j : panels + j * KC, C + i * s->ldc + j);
        }
    }
}

/* The rule between the two definitions, in lanes of multiply-add: a sum along k costs K and about 24 for the sum over
 * lanes; the kernel here pads N to whole vectors and packs B, once for all M rows, at about 16 a number. Both operands
 * of the other stream from the second level when both are long, so that one has to be short. Part of the definition:
 * the numbers must not depend on the instruction set. */
static bool along_k(size_t M, size_t N, size_t K) {
    size_t padded = (N + 7) / 8 * 8;
    return (M <= 32 || N <= 32) && N * M * (K + 24) < padded * K * (M + 16);
}

void HDO_ISA_FN(hdo__mm_gemm)(bool ta, bool tb, int M_, int N_, int K_, float alpha, const float *A, int lda_,
                              const float *B, int ldb_, float beta, float *C, int ldc_) {
    size_t M = (size_t)M_, N = (size_t)N_, K = (size_t)K_;
    size_t lda = (size_t)lda_, ldb = (size_t)ldb_, ldc = (size_t)ldc_;
    if (K == 0 || alpha == 0) { /* BLAS meaning: op(A) op(B) is not looked at */
        for (size_t m = 0; m < M; m++)
            for (size_t n = 0; n < N; n++) C[m * ldc + n] = beta == 0 ? 0 : beta * C[m * ldc + n];
        return;
    }
    if (!ta && tb && along_k(M, N, K)) {
        HDO_ISA_FN(hdo__mm_dot)(M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
#ifdef __AVX512F__
    if (N <= 8) { /* half a vector: the same sums by the shorter one */
        HDO_CAT(hdo__mm_gemm, avx2)(ta, tb, M_, N_, K_, alpha, A, lda_, B, ldb_, beta, C, ldc_);
        return;
    }
#endif
    for (size_t j = 0; j < N; j += NC)
        for (size_t k = 0; k < K; k += KC) {
            tile_args s = {.K = K - k < KC ? K - k : KC, .ldc = ldc, .alpha = alpha, .beta = k == 0 ? beta : 1};
            block(ta, tb, M, N - j < NC ? N - j : NC, &s, ta ? A + k * lda : A + k, lda,
                  tb ? B + j * ldb + k : B + k * ldb + j, ldb, C + j);
        }
}
