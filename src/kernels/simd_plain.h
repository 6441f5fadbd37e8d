/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to simd_mm.h: vectors of eight floats where there is no AVX2, as two of four. On aarch64 these are NEON
 * registers; on an old x86 the multiply-add is made by hand (base/fma.h).
 */
#define VL 8
typedef struct vec {
    hdo_f32x4 a, b;
} vec;
typedef hdo_f32x4 f32x4u __attribute__((aligned(4), may_alias));

MM_INLINE vec v_zero(void) {
    return (vec){{0, 0, 0, 0}, {0, 0, 0, 0}};
}
MM_INLINE vec v_load(const float *p) {
    return (vec){*(const f32x4u *)p, *(const f32x4u *)(p + 4)};
}
MM_INLINE void v_store(float *p, vec v) {
    *(f32x4u *)p = v.a;
    *(f32x4u *)(p + 4) = v.b;
}
MM_INLINE vec v_set1(float x) {
    return (vec){{x, x, x, x}, {x, x, x, x}};
}
MM_INLINE vec v_fma(vec x, vec y, vec z) {
    return (vec){hdo__fma4(x.a, y.a, z.a), hdo__fma4(x.b, y.b, z.b)};
}
MM_INLINE vec v_add(vec x, vec y) {
    return (vec){x.a + y.a, x.b + y.b};
}
MM_INLINE vec v_mul(vec x, vec y) {
    return (vec){x.a * y.a, x.b * y.b};
}
MM_INLINE vec v_load_part(const float *p, size_t n) {
    float t[VL] = {0};
    for (size_t i = 0; i < n; i++) t[i] = p[i];
    return v_load(t);
}
MM_INLINE void v_store_part(float *p, vec v, size_t n) {
    float t[VL];
    v_store(t, v);
    for (size_t i = 0; i < n; i++) p[i] = t[i];
}
MM_INLINE vec v_load_masked(const float *p, const int32_t *mask) {
    float t[VL];
    for (int i = 0; i < VL; i++) t[i] = mask[i] ? p[i] : 0;
    return v_load(t);
}
MM_INLINE vec v_gather_masked(const float *p, const int32_t *idx, const int32_t *mask) {
    float t[VL];
    for (int i = 0; i < VL; i++) t[i] = mask[i] ? p[idx[i]] : 0;
    return v_load(t);
}
MM_INLINE float v_sum(vec v) {
    hdo_f32x4 s = v.a + v.b;
    return (s[0] + s[2]) + (s[1] + s[3]);
}
MM_INLINE void v_transpose(vec r[VL]) {
    float t[VL][VL];
    for (int i = 0; i < VL; i++) v_store(t[i], r[i]);
    for (int i = 0; i < VL; i++) {
        float c[VL];
        for (int j = 0; j < VL; j++) c[j] = t[j][i];
        r[i] = v_load(c);
    }
}
