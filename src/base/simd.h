/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels compiled once per instruction set from one source, chosen at run time.
 *
 * A file named simd_*.c is compiled for every target in meson.build with HDO_ISA set to the target's name; it defines
 * its entry points as HDO_ISA_FN(name) and one `const` table of them. The table for this machine comes from
 * hdo__simd(). The environment variable HDO_SIMD (portable, avx2, avx512), set before the first call, asks for a table
 * other than the best: tests use it to show that the bits do not depend on the path. What the machine cannot run is
 * not chosen, whatever is asked for.
 *
 * AVX-512 has random numbers and matrix products of its own. Flat vectors are those of AVX2, as fast in the caches and
 * from memory; so are other kernels of networks, which ask `avx2` instead of having a third table.
 */
#ifndef HDO_BASE_SIMD_H
#define HDO_BASE_SIMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hdo/status.h"
#include "base/rng.h"

#define HDO_CAT2(a, b) a##_##b
#define HDO_CAT(a, b) HDO_CAT2(a, b)
#define HDO_ISA_FN(name) HDO_CAT(name, HDO_ISA)

typedef struct hdo_simd {
    const char *name;  /* "portable", "avx2", "avx512" */
    bool avx2, avx512; /* kernels built for these may be used beside this table */

    /* Random numbers: see rng.h. */
    void (*rng_bits)(hdo_stream s, uint64_t off, size_t len, uint32_t *out);
    void (*rng_uniform)(hdo_stream s, uint64_t off, size_t len, float *out);
    void (*rng_normal)(hdo_stream s, uint64_t off, size_t len, float *out);
    void (*rng_rademacher)(hdo_stream s, uint64_t off, size_t len, float *out);

    /* Flat vectors: see vec.h. */
    void (*axpy)(size_t n, float a, const float *x, float *y);
    void (*axpby)(size_t n, float a, const float *x, float b, float *y);
    void (*scale)(size_t n, float a, float *x);
    void (*average)(size_t n, float *x, float *y);
    double (*dot)(size_t n, const float *x, const float *y);
    double (*sumsq)(size_t n, const float *x);
    double (*distsq)(size_t n, const float *x, const float *y);
    void (*accumulate)(size_t n, const float *x, double *sum);
    /* out = (v / 255 - mean) / sd, every operation rounded: the pixels of an image. */
    void (*pixels)(size_t n, const uint8_t *v, float mean, float sd, float *out);
} hdo_simd;

extern const hdo_simd hdo__simd_portable;
#ifdef HDO_HAVE_AVX2_BUILD
extern const hdo_simd hdo__simd_avx2;
#endif
#ifdef HDO_HAVE_AVX512_BUILD
extern const hdo_simd hdo__simd_avx512;
#endif

/* The tables this machine can run, portable first, better ones after; NULL behind the last. */
const hdo_simd *hdo__simd_tables(int i);

/* The best of them, or what HDO_SIMD asks for. Constant for the life of the process. */
HDO_LAB const hdo_simd *hdo__simd(void);

/* Has it instructions for SHA-256, and does HDO_SIMD not ask for portable code? */
bool hdo__simd_sha(void);

#endif
