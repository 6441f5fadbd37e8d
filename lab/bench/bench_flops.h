/* SPDX-License-Identifier: Apache-2.0 — operations of one forward pass; apart because it looks into networks. */
#ifndef HDO_BENCH_BENCH_FLOPS_H
#define HDO_BENCH_BENCH_FLOPS_H

#include "objective/objective.h"

/* Twice the multiply-adds of linear, convolution and attention layers of one sample. 0: not known. */
double hdo__bench_forward_flops(const hdo_objective *f);

#endif
