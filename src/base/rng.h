/* SPDX-License-Identifier: Apache-2.0
 *
 * Randomness is addressed, not consumed. A stream is a value: (seed, purpose, node, step, sub). Number i of a stream is
 * a pure function of the stream and i, so any slice can be made without the rest, in any order, on any thread or rank.
 *
 * Generator: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 *
 *   key     = (seed low, seed high)
 *   counter = (block, sub, step, purpose << 24 | node)
 *
 * Limits that follow: block < 2^32 (2^34 numbers a stream), step < 2^32, node < 2^24. All are checked where a run is
 * wired, not here.
 *
 * Every function below gives identical bits on every path (AVX2, portable C, any compiler, any optimisation): integers
 * are exact, floating point uses only + - * / sqrt in a fixed order, without contraction (the library is compiled with
 * -ffp-contract=off).
 */
#ifndef HDO_BASE_RNG_H
#define HDO_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

#include "hdo/status.h"

/* Who asks. The number is part of the address: never renumber, only append. */
typedef enum hdo_purpose {
    HDO_RNG_INIT = 1,      /* initial parameters; sub = tensor index */
    HDO_RNG_DIRECTION = 2, /* perturbation directions; sub = direction r (whole) or tensor-dependent, see dir.h */
    HDO_RNG_CHI = 3,       /* chi-square numbers of forward-law and other scalar draws of an estimator */
    HDO_RNG_SAMPLER = 4,   /* batches: which samples; step = epoch */
    HDO_RNG_SHARD = 5,     /* who holds which samples */
    HDO_RNG_MATCH = 6,     /* who meets whom */
    HDO_RNG_NOISE = 7,     /* additive gradient noise of synthetic objectives */
    HDO_RNG_DROPOUT = 8,   /* masks; sub = layer */
    HDO_RNG_AUGMENT = 9,   /* random crops and flips */
    HDO_RNG_DATA = 10,     /* generated data sets; sub = field of the generator */
    HDO_RNG_GRAPH = 11,    /* random topologies, placement of classes on a graph */
    HDO_RNG_CHURN = 12,    /* nodes leaving and returning, message loss */
    HDO_RNG_PROBLEM = 13,  /* constants of synthetic objectives */
    HDO_RNG_LEVEL = 14,    /* truncation level of the debiased estimator */
    HDO_RNG_ALONG = 15,    /* what a tile of a direction has along the gradient (forward-law) */
    HDO_RNG_FLEET = 16,    /* partners in a fleet; step = own step, sub = epoch */
    HDO_RNG_OWN = 17,      /* normals of estimators of one's own; sub = their stream */
    HDO_RNG_TEST = 200     /* free for tests and benchmarks */
} hdo_purpose;

typedef struct hdo_stream {
    uint64_t seed;
    uint32_t sub;
    uint32_t step;
    uint32_t who; /* purpose << 24 | node */
} hdo_stream;

static inline hdo_stream hdo__stream(uint64_t seed, hdo_purpose purpose, uint32_t node, uint64_t step, uint32_t sub) {
    hdo_stream s = {seed, sub, (uint32_t)step, ((uint32_t)purpose << 24) | (node & 0xffffffu)};
    return s;
}

/* The bare generator, for known-answer tests and for whoever needs one block: ctr and out hold 4 words, key 2. */
void hdo__philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

/* Slices [off, off + len) of the stream. Numbers of different kinds come from the same blocks: use one kind a stream.
 */
HDO_LAB void hdo__rng_bits(hdo_stream s, uint64_t off, size_t len, uint32_t *out);
HDO_LAB void hdo__rng_uniform(hdo_stream s, uint64_t off, size_t len, float *out); /* in the open interval (0, 1) */
HDO_LAB void hdo__rng_normal(hdo_stream s, uint64_t off, size_t len, float *out);  /* N(0, 1), Box-Muller, |z| < 6.7 */
HDO_LAB void hdo__rng_rademacher(hdo_stream s, uint64_t off, size_t len, float *out); /* -1 or +1 */

/* Single numbers: i is the position in the stream; different functions at the same i are not independent. */
double hdo__rng_double(hdo_stream s, uint64_t i);        /* (0, 1), 53 bits */
HDO_LAB double hdo__rng_gauss(hdo_stream s, uint64_t i); /* N(0, 1) in double */
HDO_LAB uint64_t hdo__rng_below(hdo_stream s, uint64_t i,
                                uint64_t bound);               /* uniform on 0 .. bound-1, exact; bound >= 1 */
double hdo__rng_gamma(hdo_stream s, uint64_t i, double shape); /* Gamma(shape, 1); attempts are chained, see rng.c */
double hdo__rng_chi2(hdo_stream s, uint64_t i, double dof);    /* chi-square */

/* Uniform random permutation of 0 .. n-1 (Fisher-Yates) into out. */
void hdo__rng_permutation(hdo_stream s, uint32_t n, uint32_t *out);

/* A keyed bijection on 0 .. n-1 evaluated point by point (Feistel network with cycle walking): a shuffle without an
 * array. Any n >= 1 up to 2^40. */
typedef struct hdo_perm {
    hdo_stream s;
    uint64_t n;
    uint32_t half_bits;
} hdo_perm;
HDO_LAB hdo_perm hdo__perm(hdo_stream s, uint64_t n);
HDO_LAB uint64_t hdo__perm_at(const hdo_perm *p, uint64_t i);

#endif
