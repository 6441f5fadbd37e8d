/* SPDX-License-Identifier: Apache-2.0
 *
 * Prototypes of the kernels of one instruction set (see simd.h): private to the simd_*.c files. HDO_ISA names the set.
 */
#ifndef HDO_BASE_SIMD_FNS_H
#define HDO_BASE_SIMD_FNS_H

#include "base/simd.h"

#ifndef HDO_ISA
#error "simd_*.c are compiled once per instruction set with -DHDO_ISA=<name>, see meson.build"
#endif

/* Bytes in the widest vector the set has. Every kernel gives the same bits for every width. */
#if defined(__AVX512F__)
#define HDO_VEC_BYTES 64
#elif defined(__AVX2__)
#define HDO_VEC_BYTES 32
#else
#define HDO_VEC_BYTES 16
#endif

/* The kernels rely on being one straight piece of code in registers, whatever the compiler thinks of their size. */
#define HDO_INLINE static inline __attribute__((always_inline))

void HDO_ISA_FN(rng_bits)(hdo_stream s, uint64_t off, size_t len, uint32_t *out);
void HDO_ISA_FN(rng_uniform)(hdo_stream s, uint64_t off, size_t len, float *out);
void HDO_ISA_FN(rng_normal)(hdo_stream s, uint64_t off, size_t len, float *out);
void HDO_ISA_FN(rng_rademacher)(hdo_stream s, uint64_t off, size_t len, float *out);

#ifdef __AVX512F__ /* also uses these of the narrower table */
void HDO_CAT(rng_bits, avx2)(hdo_stream s, uint64_t off, size_t len, uint32_t *out);
void HDO_CAT(rng_uniform, avx2)(hdo_stream s, uint64_t off, size_t len, float *out);
void HDO_CAT(rng_normal, avx2)(hdo_stream s, uint64_t off, size_t len, float *out);
void HDO_CAT(rng_rademacher, avx2)(hdo_stream s, uint64_t off, size_t len, float *out);
#endif

/* Flat vectors at 64 bytes gain nothing over 32 (half as many loads a cycle, conversions to double are slower): the
 * table of AVX-512 names those of AVX2. */
#ifdef __AVX512F__
#define HDO_VEC_FN(name) HDO_CAT(name, avx2)
#else
#define HDO_VEC_FN(name) HDO_ISA_FN(name)
#endif

void HDO_VEC_FN(axpy)(size_t n, float a, const float *x, float *y);
void HDO_VEC_FN(axpby)(size_t n, float a, const float *x, float b, float *y);
void HDO_VEC_FN(scale)(size_t n, float a, float *x);
void HDO_VEC_FN(average)(size_t n, float *x, float *y);
double HDO_VEC_FN(dot)(size_t n, const float *x, const float *y);
double HDO_VEC_FN(sumsq)(size_t n, const float *x);
double HDO_VEC_FN(distsq)(size_t n, const float *x, const float *y);
void HDO_VEC_FN(accumulate)(size_t n, const float *x, double *sum);
void HDO_VEC_FN(pixels)(size_t n, const uint8_t *v, float mean, float sd, float *out);

#endif
