/* SPDX-License-Identifier: Apache-2.0 — the table of one instruction set. */
#include "base/simd_fns.h"

#define NAME_STR2(x) #x
#define NAME_STR(x) NAME_STR2(x)

const hdo_simd HDO_CAT(hdo__simd, HDO_ISA) = {
    .name = NAME_STR(HDO_ISA),
    .rng_bits = HDO_ISA_FN(rng_bits),
    .rng_uniform = HDO_ISA_FN(rng_uniform),
    .rng_normal = HDO_ISA_FN(rng_normal),
    .rng_rademacher = HDO_ISA_FN(rng_rademacher),
    .axpy = HDO_ISA_FN(axpy),
    .axpby = HDO_ISA_FN(axpby),
    .scale = HDO_ISA_FN(scale),
    .average = HDO_ISA_FN(average),
    .dot = HDO_ISA_FN(dot),
    .sumsq = HDO_ISA_FN(sumsq),
    .distsq = HDO_ISA_FN(distsq),
    .accumulate = HDO_ISA_FN(accumulate),
    .pixels = HDO_ISA_FN(pixels),
};
