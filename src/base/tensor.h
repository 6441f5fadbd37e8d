/* SPDX-License-Identifier: Apache-2.0 — a named piece of a flat vector of numbers. */
#ifndef HDO_BASE_TENSOR_H
#define HDO_BASE_TENSOR_H

#include <stddef.h>

#include "base/split.h"

typedef struct hdo_tensor { /* one row of the layout: a named piece of x */
    const char *name;       /* PyTorch's name: "fc1.weight" */
    size_t off, len;
    int n_dim, dim[4];
    hdo_split split; /* how it is stored; files hold plain tensors */
} hdo_tensor;

/* The part of it a loss depends on: all of it, or the live taps, which come first. */
static inline size_t hdo__tensor_live(const hdo_tensor *t) {
    const hdo_split *s = &t->split;
    return s->kh > 0 ? t->len / (size_t)(s->kh * s->kw) * (size_t)(s->h * s->w) : t->len;
}

#endif
