/* SPDX-License-Identifier: Apache-2.0 — score.h for one instruction set. */
#include "kernels/score.h"
#include "kernels/simd_mm.h"

void HDO_ISA_FN(hdo__score_top)(int K, int C, float *z, int32_t label, int64_t *hits) {
    score_tops((size_t)K, (size_t)C, z, label, hits);
}

void HDO_ISA_FN(hdo__score_loss)(int K, int C, const float *e, const float *own, double *loss) {
    score_losses((size_t)K, (size_t)C, e, own, loss);
}
