/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention, exp and GELU: the reference (k_ref_attn.c) and the vector kernels (simd_attn.c, simd_exp.c, one
 * table per instruction set, see base/simd.h). The meaning of every entry is in kernels.h.
 */
#ifndef HDO_KERNELS_ATTN_H
#define HDO_KERNELS_ATTN_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "kernels/kernels.h"

/* Plain C, sums in double, any head size: the oracle. The backward pass recomputes what it needs and ignores out and
 * lse (either may be NULL there). */
hdo_attn_fwd_fn hdo__ref_attn_fwd;
hdo_attn_bwd_fn hdo__ref_attn_bwd;
hdo_attn_jvp_fn hdo__ref_attn_jvp;
hdo_attn_work_fn hdo__ref_attn_work;
hdo_vexp_fn hdo__ref_vexp;
hdo_gelu_fn hdo__ref_gelu;

typedef struct hdo_attn_simd {
    hdo_attn_fwd_fn *attn_fwd;
    hdo_attn_bwd_fn *attn_bwd;
    hdo_attn_jvp_fn *attn_jvp;
    hdo_attn_work_fn *attn_work;
    hdo_vexp_fn *vexp;
    hdo_gelu_fn *gelu;
} hdo_attn_simd;

extern const hdo_attn_simd hdo__attn_portable;
#ifdef HDO_HAVE_AVX2_BUILD
extern const hdo_attn_simd hdo__attn_avx2;
#endif

/* The dropout mask, shared by reference and vector kernels so that they cannot disagree (definition: hdo_attn). */
static inline uint64_t hdo__attn_mask_head(const hdo_attn *s, int b, int h) { /* number of weight (b, h, 0, 0) */
    uint64_t t = (uint64_t)s->T, r = (t * (t + 1) / 2 + 63) & ~(uint64_t)63;
    return (((uint64_t)s->b0 + (uint64_t)b) * (uint64_t)s->heads + (uint64_t)h) * r;
}
static inline uint64_t hdo__attn_mask_row(int i) {
    return (uint64_t)i * ((uint64_t)i + 1) / 2;
}
static inline uint32_t hdo__attn_mask_limit(float p) {
    return (uint32_t)((double)p * 65536.0);
}
/* Keep factors of row (b, h, i): keep (i + 1); bits: scratch of hdo__attn_keep_words(T). Plain C. */
void hdo__attn_keep(const hdo_attn *s, int b, int h, int i, uint32_t *bits, float *keep);
static inline size_t hdo__attn_keep_words(int T) {
    return (size_t)T / 2 + 2;
}

#endif
