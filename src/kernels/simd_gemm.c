/* SPDX-License-Identifier: Apache-2.0
 *
 * Our own matrix product. Its purpose is the small and the skinny product, where a library spends its time on packing
 * and on padding to its tile; without a BLAS library it serves every product.
 *
 * Two kernels:
 * - dot: op(A) and op(B) both contiguous along k (A plain, B transposed: the forward pass of a linear layer). Vectors
 *   run along k, so no width of the result is padded: 10 classes cost 10 columns, not 16.
 * - outer: vectors run along n. B is used in place where its rows are contiguous and the panel is reused little,
 *   otherwise it is packed, one panel of NR columns and KC rows (16 kB, first-level cache) at a time. A is used in
 *   place: two broadcast loads per vector load are free beside two multiply-adds.
 *
 * Sums are cut every KC (outer) or KD (dot) terms: for locality, and because a long float sum loses digits.
 */
#include "kernels/simd_mm.h"

#define KC ((size_t)256)  /* rows of a packed panel */
#define KD ((size_t)2048) /* terms of a dot sum: VL lanes of KD / VL */
#define MC ((size_t)192)  /* rows of A packed at a time when A is packed: MC * KC floats stay in the second level */

/* ---- dot: C (m, n) = alpha sum_k A[m, k] B[n, k] + beta C -------------------------------------------------------- */

typedef struct dot_args {
    size_t K, lda, ldb, cm, cn; /* cm, cn: strides of C over the rows of A and the rows of B */
    float alpha, beta;
} dot_args;

#define DM 4 /* rows of A times rows of B: at most 4 x 3 or 2 x 5 sums in registers */
#define DN 5

/* ahead: rows of A (as many as mr) to prefetch for the next strip, or NULL. */
MM_INLINE void dot_tile(int mr, int nr, const dot_args *s, const float *A, const float *B, float *C,
                        const float *ahead) {
    vec acc[DM][DN];
    MM_UNROLL for (int i = 0; i < mr; i++) {
        MM_UNROLL for (int j = 0; j < nr; j++) acc[i][j] = v_zero();
    }
    size_t k = 0;
    for (; k + VL <= s->K; k += VL) {
        vec a[DM];
        MM_UNROLL for (int i = 0; i < mr; i++) a[i] = v_load(A + (size_t)i * s->lda + k);
        if (ahead != NULL) {
            MM_UNROLL for (int i = 0; i < mr; i++) __builtin_prefetch(ahead + (size_t)i * s->lda + k);
        }
        MM_UNROLL for (int j = 0; j < nr; j++) {
            vec b = v_load(B + (size_t)j * s->ldb + k);
            MM_UNROLL for (int i = 0; i < mr; i++) acc[i][j] = v_fma(a[i], b, acc[i][j]);
        }
    }
    if (k < s->K) {
        vec a[DM];
        MM_UNROLL for (int i = 0; i < mr; i++) a[i] = v_load_part(A + (size_t)i * s->lda + k, s->K - k);
        MM_UNROLL for (int j = 0; j < nr; j++) {
            vec b = v_load_part(B + (size_t)j * s->ldb + k, s->K - k);
            MM_UNROLL for (int i = 0; i < mr; i++) acc[i][j] = v_fma(a[i], b, acc[i][j]);
        }
    }
    MM_UNROLL for (int j = 0; j < nr; j++) {
        float sum[4];
        if (mr == 4) {
            v_sum4(acc[0][j], acc[1][j], acc[2][j], acc[3][j], sum);
        } else {
            MM_UNROLL for (int i = 0; i < mr; i++) sum[i] = v_sum(acc[i][j]);
        }
        MM_UNROLL for (int i = 0; i < mr; i++) {
            float *out = C + (size_t)i * s->cm + (size_t)j * s->cn, v = s->alpha * sum[i];
            *out = s->beta == 0 ? v : s->beta * *out + v;
        }
    }
}

/* One strip: mr rows of A against N rows of B, `step` at a time, never leaving a single one if it can be avoided (a
 * tile of four sums waits for its own latency). The first tile fetches the next strip of A: a strip is short, and the
 * hardware only finds its streams when they are nearly over (10000 x 10 x 784: 40 -> 60 GFLOP/s). */
MM_INLINE void dot_strip(int mr, size_t step, size_t N, const dot_args *s, const float *A, const float *B, float *C,
                         const float *ahead) {
    for (size_t j = 0; j < N;) {
        size_t left = N - j, n = left < step ? left : step;
        if (left == step + 1) n = (step + 1) / 2;
        const float *b = B + j * s->ldb;
        float *c = C + j * s->cn;
        switch (n) {
        case 1: dot_tile(mr, 1, s, A, b, c, NULL); break;
        case 2: dot_tile(mr, 2, s, A, b, c, NULL); break;
        case 3:
            if (j == 0 && ahead != NULL)
                dot_tile(mr, 3, s, A, b, c, ahead);
            else
                dot_tile(mr, 3, s, A, b, c, NULL);
            break;
        case 4: dot_tile(mr, mr <= 2 ? 4 : 1, s, A, b, c, NULL); break; /* reached for mr <= 2 only */
        default: dot_tile(mr, mr <= 2 ? 5 : 1, s, A, b, c, NULL); break;
        }
        j += n;
    }
}

#define DOT_STRIP(mr, step)                                                                                            \
    static void dot_strip##mr(size_t N, const dot_args *s, const float *A, const float *B, float *C,                   \
                              const float *ahead) {                                                                    \
        dot_strip(mr, step, N, s, A, B, C, ahead);                                                                     \
    }
DOT_STRIP(1, 5)
DOT_STRIP(2, 5)
DOT_STRIP(3, 3)
DOT_STRIP(4, 3)

static void dot_gemm(size_t M, size_t N, size_t K, float alpha, const float *A, size_t lda, const float *B, size_t ldb,
                     float beta, float *C, size_t ldc) {
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
            if (left == DM + 1) n = 3;
            const float *a = A + i * s.lda + k0;
            float *c = C + i * s.cm;
            const float *ahead = left >= 2 * DM ? a + DM * s.lda : NULL;
            if (n == 4) dot_strip4(N, &s, a, B + k0, c, ahead);
            if (n == 3) dot_strip3(N, &s, a, B + k0, c, NULL);
            if (n == 2) dot_strip2(N, &s, a, B + k0, c, NULL);
            if (n == 1) dot_strip1(N, &s, a, B + k0, c, NULL);
            i += n;
        }
    }
}

/* ---- outer: C (m, n) = alpha sum_k A[m am + k ak] B[k ldb + n] + beta C ------------------------------------------ */

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

typedef struct outer_args {
    size_t K, am, ak, ldb, cols, ldc;
    float alpha, beta;
} outer_args;

MM_INLINE void outer_tile(int mr, int nv, const outer_args *s, const float *A, const float *B, float *C) {
    vec acc[MR][NV];
    /* The common stride 1 as a constant saves an address computation in the inner loop. */
    if (s->ak == 1)
        tile_sum(mr, nv, s->K, A, s->am, 1, B, s->ldb, acc);
    else
        tile_sum(mr, nv, s->K, A, s->am, s->ak, B, s->ldb, acc);
    tile_store(mr, nv, s->cols, acc, s->alpha, s->beta, C, s->ldc);
}

#define OUTER_TILE(mr, nv)                                                                                             \
    static void outer_tile##mr##nv(const outer_args *s, const float *A, const float *B, float *C) {                    \
        outer_tile(mr, nv, s, A, B, C);                                                                                \
    }
OUTER_TILE(1, 1)
OUTER_TILE(2, 1)
OUTER_TILE(3, 1)
OUTER_TILE(4, 1)
OUTER_TILE(5, 1)
OUTER_TILE(6, 1)
OUTER_TILE(1, 2)
OUTER_TILE(2, 2)
OUTER_TILE(3, 2)
OUTER_TILE(4, 2)
OUTER_TILE(5, 2)
OUTER_TILE(6, 2)

static void (*const outer_tiles[MR + 1][NV + 1])(const outer_args *, const float *, const float *, float *) = {
    {NULL, NULL, NULL},
    {NULL, outer_tile11, outer_tile12},
    {NULL, outer_tile21, outer_tile22},
    {NULL, outer_tile31, outer_tile32},
    {NULL, outer_tile41, outer_tile42},
    {NULL, outer_tile51, outer_tile52},
    {NULL, outer_tile61, outer_tile62},
};

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

/* Rows [0, M) of A against all of B for one block of k: B panel by panel, packed unless it can be used in place. */
static void outer_block(bool tb, size_t M, size_t N, outer_args *s, const float *A, const float *B, size_t ldb,
                        float *C) {
    float panel[KC * NR] __attribute__((aligned(HDO_ALIGN)));
    for (size_t j = 0; j < N; j += NR) {
        size_t cols = N - j < NR ? N - j : NR;
        const float *b = tb ? B + j * ldb : B + j, *use = b;
        s->ldb = ldb;
        if (tb || cols < NR || M > 4 * MR) { /* in place only when full and read a few times */
            pack_panel(tb, s->K, cols, b, ldb, panel);
            use = panel;
            s->ldb = NR;
        }
        int nv = cols <= VL ? 1 : 2;
        for (size_t i = 0; i < M; i += MR) {
            size_t rows = M - i < MR ? M - i : MR;
            s->cols = cols;
            outer_tiles[rows][nv](s, A + i * s->am, use, C + i * s->ldc + j);
        }
    }
}

/* dst (rows, KC) = a block of op(A). */
static void pack_rows(bool ta, size_t rows, size_t K, const float *A, size_t lda, float *dst) {
    if (!ta) {
        for (size_t i = 0; i < rows; i++) memcpy(dst + i * KC, A + i * lda, K * sizeof *dst);
        return;
    }
    for (size_t k = 0; k < K; k++)
        for (size_t i = 0; i < rows; i++) dst[i * KC + k] = A[k * lda + i];
}

/* In lanes of multiply-add: a dot product costs K and about 24 for the sum over lanes; the outer kernel pads N to whole
 * vectors and packs B, once for all M rows, at about 16 a number. Both operands of the dot kernel stream from the
 * second level when both are long, so that one has to be short. */
static bool dot_is_better(size_t M, size_t N, size_t K) {
    size_t padded = (N + VL - 1) / VL * VL;
    return (M <= 2 * NR || N <= 2 * NR) && N * M * (K + 24) < padded * K * (M + 16);
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
    if (!ta && tb && dot_is_better(M, N, K)) {
        dot_gemm(M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    /* A block of A is read once per panel of B: rows by the block stay in the second-level cache, and are worth copying
     * together when there are many panels. */
    bool copy = N > 8 * NR && M > 4 * MR;
    size_t step = copy || (N > NR && M > MC) ? MC : M;
    static _Thread_local float block[MC * KC] __attribute__((aligned(HDO_ALIGN)));
    for (size_t i = 0; i < M; i += step) {
        size_t rows = M - i < step ? M - i : step;
        for (size_t k = 0; k < K; k += KC) {
            outer_args s = {.K = K - k < KC ? K - k : KC, .ldc = ldc, .alpha = alpha, .beta = k == 0 ? beta : 1};
            const float *a = ta ? A + k * lda + i : A + i * lda + k;
            s.am = ta ? 1 : lda;
            s.ak = ta ? lda : 1;
            if (copy) {
                pack_rows(ta, rows, s.K, a, lda, block);
                a = block;
                s.am = KC;
                s.ak = 1;
            }
            outer_block(tb, rows, N, &s, a, tb ? B + k : B + k * ldb, ldb, C + i * ldc);
        }
    }
}

/* Measured (bench_kernels) against OpenBLAS 0.3.21 with its AVX2 kernels: we win from 1.05 to 7 times when a side is at
 * most 64 or the product is small, it wins by up to 1.2 times on large ones.
 * With AVX-512 its kernels for at most 10^6 multiply-adds are better than ours: kernels.c asks it for those first. */
bool HDO_ISA_FN(hdo__mm_gemm_wins)(bool ta, bool tb, int M, int N, int K) {
    (void)tb;
    int least = M < N ? M : N;
    return least <= 64 || K <= 16 || (double)M * (double)N * (double)K <= (ta ? 4e6 : 1.5e7);
}
