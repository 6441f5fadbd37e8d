/* SPDX-License-Identifier: Apache-2.0 — the table of one instruction set. */
#include "base/simd_fns.h"

#define NAME_STR2(x) #x
#define NAME_STR(x) NAME_STR2(x)

const hdo_simd HDO_CAT(hdo__simd, HDO_ISA) = {
    .name = NAME_STR(HDO_ISA),
#ifdef __AVX2__
    .avx2 = true,
#endif
#ifdef __AVX512F__
    .avx512 = true,
#endif
    .rng_bits = HDO_ISA_FN(rng_bits),
    .rng_uniform = HDO_ISA_FN(rng_uniform),
    .rng_normal = HDO_ISA_FN(rng_normal),
    .rng_rademacher = HDO_ISA_FN(rng_rademacher),
    .axpy = HDO_VEC_FN(axpy),
    .axpby = HDO_VEC_FN(axpby),
    .scale = HDO_VEC_FN(scale),
    .average = HDO_VEC_FN(average),
    .dot = HDO_VEC_FN(dot),
    .sumsq = HDO_VEC_FN(sumsq),
    .distsq = HDO_VEC_FN(distsq),
    .accumulate = HDO_VEC_FN(accumulate),
    .pixels = HDO_VEC_FN(pixels),
};
