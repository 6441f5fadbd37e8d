/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to simd_avx2.h and simd_avx512.h: what is the same intrinsic but for its prefix. X86(add_ps) is that of the
 * vector `vec`.
 */
MM_INLINE vec v_zero(void) {
    return X86(setzero_ps)();
}
MM_INLINE vec v_load(const float *p) {
    return X86(loadu_ps)(p);
}
MM_INLINE void v_store(float *p, vec v) {
    X86(storeu_ps)(p, v);
}
MM_INLINE vec v_set1(float x) {
    return X86(set1_ps)(x);
}
MM_INLINE vec v_fma(vec a, vec b, vec c) {
    return X86(fmadd_ps)(a, b, c);
}
MM_INLINE vec v_add(vec a, vec b) {
    return X86(add_ps)(a, b);
}
MM_INLINE vec v_mul(vec a, vec b) {
    return X86(mul_ps)(a, b);
}
