/* SPDX-License-Identifier: Apache-2.0
 *
 * Numerical kernels behind the networks. Every kernel has a plain C reference (k_ref_*.c: the meaning, the fallback and
 * the oracle of the tests) and vector code for every instruction set, with the same bits from each (mm.h). A table is
 * chosen once per objective: hdo__kernels(HDO_KERNELS_AUTO | HDO_KERNELS_REF). Arrays are row-major and plain (NCHW,
 * OIHW): flat parameter vectors are never repacked behind the caller's back (base/split.h: what a layer may store
 * apart).
 *
 * Kernels are single-threaded: parallelism is over nodes or over fixed chunks of a batch, above this layer.
 */
#ifndef HDO_KERNELS_KERNELS_H
#define HDO_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/status.h"
#include "base/arena.h"
#include "base/rng.h"
#include "kernels/sparse.h"

typedef struct hdo_conv { /* a 2-d convolution, square or not */
    int B;                /* samples */
    int C, H, W;          /* input channels, height, width */
    int O, kh, kw;        /* output channels, kernel */
    int stride, pad;
    int Ho, Wo; /* output height and width, filled by hdo__conv_init */
    /* Floats between samples of x and of y, and between output channels of w; dense from hdo__conv_init. Larger ones
     * make C input channels (for bwd_x) or O output channels (for fwd, bwd_w) a part of a wider convolution. */
    size_t x_step, y_step, w_step;
} hdo_conv;

HDO_LAB void hdo__conv_init(hdo_conv *c); /* computes Ho, Wo and the steps */

typedef struct hdo_attn { /* causal multi-head self-attention of small heads */
    int B, T, heads, hs;  /* samples, positions, heads, head size; model width D = heads * hs */
    int b0;               /* index of this call's first sample within the batch: masks do not depend on chunking */
    float dropout;        /* on attention weights, 0 <= p < 1; 0: none */
    hdo_stream mask;      /* address of the mask when dropout > 0 */
    /* Weight (b, h, i, j) is kept, and scaled by 1 / (1 - p), iff its 16-bit number is >= floor(p * 65536). The number
     * has index n = ((b0 + b) * heads + h) * R + i (i + 1) / 2 + j, R = T (T + 1) / 2 rounded up to a multiple of 64:
     * the packed triangle, so that nothing is generated for j > i. Number n is half n & 1 (0: low) of 32-bit word n / 2
     * of the stream. */
} hdo_attn;

/* ---- what a kernel computes, the same for the reference and every vector unit ---- */

/* C (M, N) = alpha op(A) op(B) + beta C, row-major; ta: A is stored (K, M). */
typedef void hdo_gemm_fn(bool ta, bool tb, int M, int N, int K, float alpha, const float *A, int lda, const float *B,
                         int ldb, float beta, float *C, int ldc);

/* y (B, O, Ho, Wo) = conv(x, w) + bias (bias may be NULL). */
typedef void hdo_conv_fwd_fn(const hdo_conv *c, const float *x, const float *w, const float *bias, float *y,
                             hdo_arena *a);
/* dx (B, C, H, W) = transposed convolution of dy; overwritten. */
typedef void hdo_conv_bwd_x_fn(const hdo_conv *c, const float *dy, const float *w, float *dx, hdo_arena *a);
/* dw (O, C, kh, kw) and db (O; may be NULL), overwritten: sums over the batch. */
typedef void hdo_conv_bwd_w_fn(const hdo_conv *c, const float *x, const float *dy, float *dw, float *db, hdo_arena *a);
typedef size_t hdo_conv_work_fn(const hdo_conv *c); /* scratch bytes of the three passes */

/* z (B, C, K): logits of K linear models, rows of X with leading dimension ld: weights (C, p), then biases (C). */
typedef void hdo_sparse_logits_fn(const hdo_sparse *s, int K, int C, const float *X, size_t ld, float *z, hdo_arena *a);
typedef size_t hdo_sparse_work_fn(int B, int p);

/* One sample under K models, z (C, K): z -= its largest class, hits (K) += is that the label? Then, with e = exp(z),
 * loss (K) += log(sum of e over classes) - own, in double, classes rising. */
typedef void hdo_score_top_fn(int K, int C, float *z, int32_t label, int64_t *hits);
typedef void hdo_score_loss_fn(int K, int C, const float *e, const float *own, double *loss);

/* qkv (B, T, 3 D): query, key, value side by side; out (B, T, D); lse (B, heads, T) log-sum-exp for the backward pass,
 * may be NULL. Scores are q.k / sqrt(hs), positions j <= i. No score matrix is ever stored. */
typedef void hdo_attn_fwd_fn(const hdo_attn *s, const float *qkv, float *out, float *lse, hdo_arena *a);
typedef void hdo_attn_bwd_fn(const hdo_attn *s, const float *qkv, const float *out, const float *lse, const float *dout,
                             float *dqkv, hdo_arena *a);
/* tangent: (qkv, dqkv) -> (out, dout) for k tangents; dqkv (k, B, T, 3 D), dout (k, B, T, D). */
typedef void hdo_attn_jvp_fn(const hdo_attn *s, int k, const float *qkv, const float *dqkv, float *out, float *dout,
                             hdo_arena *a);
typedef size_t hdo_attn_work_fn(const hdo_attn *s, int k);

/* y[i] = exp(x[i]) for moderate x (|x| < 87), relative error below 2e-7. In place is fine. */
typedef void hdo_vexp_fn(size_t n, const float *x, float *y);
/* GELU (exact, erf form) and its derivative; dy may be NULL. */
typedef void hdo_gelu_fn(size_t n, const float *x, float *y, float *dy);

typedef struct hdo_kernels {
    const char *name;  /* "ref", "auto" */
    const char *title; /* "plain C", "own, avx2": for hdo doctor */
    hdo_gemm_fn *gemm;
    hdo_conv_fwd_fn *conv_fwd;
    hdo_conv_bwd_x_fn *conv_bwd_x;
    hdo_conv_bwd_w_fn *conv_bwd_w;
    hdo_conv_work_fn *conv_work;
    hdo_sparse_logits_fn *sparse_logits; /* NULL in the reference: it has no use for lists */
    hdo_sparse_work_fn *sparse_work;
    hdo_score_top_fn *score_top;
    hdo_score_loss_fn *score_loss;
    hdo_attn_fwd_fn *attn_fwd;
    hdo_attn_bwd_fn *attn_bwd;
    hdo_attn_jvp_fn *attn_jvp;
    hdo_attn_work_fn *attn_work;
    hdo_vexp_fn *vexp;
    hdo_gelu_fn *gelu;
} hdo_kernels;

HDO_LAB const hdo_kernels *hdo__kernels(int which); /* HDO_KERNELS_AUTO or HDO_KERNELS_REF */

#endif
