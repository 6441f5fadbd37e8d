/* SPDX-License-Identifier: Apache-2.0 — element-wise inner loops (nn_simd.h), compiled once per instruction set. */
#include "nn/nn_simd.h"

#include <math.h>

#include "base/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { LANES = 8 }; /* partial sums: enough to hide the latency of an addition */

static double add_lanes(const double *s) {
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* ---- loops the compiler vectorises ---- */

static void relu(size_t n, float *v) {
    for (size_t i = 0; i < n; i++) v[i] = v[i] < 0 ? 0 : v[i];
}

static void relu_mask(size_t n, const float *restrict y, float *restrict d) {
    for (size_t i = 0; i < n; i++) d[i] = y[i] > 0 ? d[i] : 0;
}

static void bias(int M, int O, const float *restrict b, bool with_relu, float *restrict y, int ld) {
    for (int m = 0; m < M; m++) {
        float *row = y + (size_t)m * (size_t)ld;
        if (b != NULL && with_relu) {
            for (int j = 0; j < O; j++) {
                float v = row[j] + b[j];
                row[j] = v < 0 ? 0 : v;
            }
        } else if (b != NULL) {
            for (int j = 0; j < O; j++) row[j] += b[j];
        } else if (with_relu) {
            for (int j = 0; j < O; j++) row[j] = row[j] < 0 ? 0 : row[j];
        }
    }
}

static void columns(int M, int O, const float *restrict y, float *restrict sum) {
    for (int m = 0; m < M; m++)
        for (int j = 0; j < O; j++) sum[j] += y[(size_t)m * (size_t)O + (size_t)j];
}

static void mul(size_t n, const float *a, const float *b, float *y) {
    for (size_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

static void add(size_t n, const float *a, const float *b, bool with_relu, float *y) {
    if (with_relu) {
        for (size_t i = 0; i < n; i++) {
            float v = a[i] + b[i];
            y[i] = v < 0 ? 0 : v;
        }
    } else {
        for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
    }
}

static double sum(size_t n, const float *x) {
    double s[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) s[l] += (double)x[i + (size_t)l];
    for (; i < n; i++) s[i % LANES] += (double)x[i];
    return add_lanes(s);
}

static double sum_sq(size_t n, const float *x, double mean) {
    double s[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            double d = (double)x[i + (size_t)l] - mean;
            s[l] += d * d;
        }
    for (; i < n; i++) s[i % LANES] += ((double)x[i] - mean) * ((double)x[i] - mean);
    return add_lanes(s);
}

static void affine(size_t n, const float *x, float mean, float scale, float shift, bool with_relu, float *y) {
    if (with_relu) {
        for (size_t i = 0; i < n; i++) {
            float v = (x[i] - mean) * scale + shift;
            y[i] = v < 0 ? 0 : v;
        }
    } else {
        for (size_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale + shift;
    }
}

static void dots(size_t n, const float *restrict x, const float *restrict dy, float mean, float rstd, double *total,
                 double *dot) {
    double s[LANES] = {0}, t[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            double g = (double)dy[i + (size_t)l];
            s[l] += g;
            t[l] += g * (double)((x[i + (size_t)l] - mean) * rstd);
        }
    for (; i < n; i++) {
        s[i % LANES] += (double)dy[i];
        t[i % LANES] += (double)dy[i] * (double)((x[i] - mean) * rstd);
    }
    *total += add_lanes(s);
    *dot += add_lanes(t);
}

static void norm_dx(size_t n, const float *x, const float *dy, float mean, float rstd, float scale, float a, float b,
                    float *dx) {
    for (size_t i = 0; i < n; i++) dx[i] = scale * (dy[i] - a - (x[i] - mean) * rstd * b);
}

static void keep_words(size_t words, const uint32_t *restrict word, uint32_t limit, float up, float *restrict keep) {
    for (size_t i = 0; i < words; i++) {
        keep[2 * i] = (word[i] & 0xffffu) >= limit ? up : 0;
        keep[2 * i + 1] = (word[i] >> 16) >= limit ? up : 0;
    }
}

/* ---- 2x2 max-pool ---- */

/* One output; the first of equal numbers wins. */
static inline void pool_one(const float *p, const float *q, int ox, float floor_at, float *y, uint8_t *place) {
    float a0 = p[2 * ox], a1 = p[2 * ox + 1], b0 = q[2 * ox], b1 = q[2 * ox + 1];
    int ra = a1 > a0, rb = b1 > b0;
    float a = ra ? a1 : a0, b = rb ? b1 : b0;
    int low = b > a;
    float v = low ? b : a;
    y[ox] = v < floor_at ? floor_at : v;
    if (place != NULL) place[ox] = (uint8_t)(low ? 2 + rb : ra);
}

#if defined(__AVX2__)
/* Even and odd columns of 16 numbers, lanes in the order 0 1 4 5 2 3 6 7: put right by one permutation at the end. */
#define EVEN(lo, hi) _mm256_shuffle_ps(lo, hi, 0x88)
#define ODD(lo, hi) _mm256_shuffle_ps(lo, hi, 0xdd)
#define IN_ORDER(v) _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8))

static inline __m256i places8(const uint8_t *place) { /* 8 places as integers, lanes in the order above */
    __m256i at = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)place));
    return _mm256_permute4x64_epi64(at, 0xd8);
}

static inline void pool_eight(const float *p, const float *q, int ox, __m256 floor_at, float *y, uint8_t *place) {
    __m256 p0 = _mm256_loadu_ps(p + 2 * ox), p1 = _mm256_loadu_ps(p + 2 * ox + 8);
    __m256 q0 = _mm256_loadu_ps(q + 2 * ox), q1 = _mm256_loadu_ps(q + 2 * ox + 8);
    __m256 a0 = EVEN(p0, p1), a1 = ODD(p0, p1), b0 = EVEN(q0, q1), b1 = ODD(q0, q1);
    __m256 a = _mm256_max_ps(a1, a0), b = _mm256_max_ps(b1, b0), v = _mm256_max_ps(b, a);
    _mm256_storeu_ps(y + ox, IN_ORDER(_mm256_max_ps(floor_at, v))); /* a NaN in the second operand survives */
    if (place == NULL) return;
    __m256i ra = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cmp_ps(a1, a0, _CMP_GT_OQ)), 31);
    __m256i rb = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cmp_ps(b1, b0, _CMP_GT_OQ)), 31);
    __m256 low = _mm256_cmp_ps(b, a, _CMP_GT_OQ);
    __m256 at =
        _mm256_blendv_ps(_mm256_castsi256_ps(ra), _mm256_castsi256_ps(_mm256_add_epi32(rb, _mm256_set1_epi32(2))), low);
    __m256i i32 = _mm256_castps_si256(IN_ORDER(at));
    __m128i i16 = _mm_packs_epi32(_mm256_castsi256_si128(i32), _mm256_extracti128_si256(i32, 1));
    _mm_storel_epi64((__m128i *)(void *)(place + ox), _mm_packus_epi16(i16, i16));
}

static inline void back_eight(const uint8_t *place, const float *dy, float *p, float *q, int ox) {
    __m256i at = places8(place + ox);
    __m256 d = IN_ORDER(_mm256_loadu_ps(dy + ox)); /* its own inverse: the same order as `at` */
    __m256 part[4];
    for (int k = 0; k < 4; k++)
        part[k] = _mm256_and_ps(d, _mm256_castsi256_ps(_mm256_cmpeq_epi32(at, _mm256_set1_epi32(k))));
    for (int k = 0; k < 2; k++) {
        float *to = (k == 0 ? p : q) + 2 * ox;
        _mm256_storeu_ps(to, _mm256_unpacklo_ps(part[2 * k], part[2 * k + 1]));
        _mm256_storeu_ps(to + 8, _mm256_unpackhi_ps(part[2 * k], part[2 * k + 1]));
    }
}

static inline void pick_eight(const uint8_t *place, const float *p, const float *q, float *y, int ox) {
    __m256i at = places8(place + ox);
    __m256 odd = _mm256_castsi256_ps(_mm256_slli_epi32(at, 31)), low = _mm256_castsi256_ps(_mm256_slli_epi32(at, 30));
    __m256 p0 = _mm256_loadu_ps(p + 2 * ox), p1 = _mm256_loadu_ps(p + 2 * ox + 8);
    __m256 q0 = _mm256_loadu_ps(q + 2 * ox), q1 = _mm256_loadu_ps(q + 2 * ox + 8);
    __m256 a = _mm256_blendv_ps(EVEN(p0, p1), ODD(p0, p1), odd), b = _mm256_blendv_ps(EVEN(q0, q1), ODD(q0, q1), odd);
    _mm256_storeu_ps(y + ox, IN_ORDER(_mm256_blendv_ps(a, b, low)));
}
#endif

static void pool2(int Ho, int Wo, int W, bool with_relu, const float *x, float *y, uint8_t *place) {
    float floor_at = with_relu ? 0 : -INFINITY;
    for (int oy = 0; oy < Ho; oy++) {
        const float *p = x + (size_t)(2 * oy) * (size_t)W, *q = p + W;
        float *to = y + (size_t)oy * (size_t)Wo;
        uint8_t *at = place != NULL ? place + (size_t)oy * (size_t)Wo : NULL;
        int ox = 0;
#if defined(__AVX2__)
        __m256 f = _mm256_set1_ps(floor_at);
        for (; ox + 8 <= Wo; ox += 8) pool_eight(p, q, ox, f, to, at);
        if (ox < Wo && Wo >= 8) { /* the last eight again: cheaper than one by one */
            pool_eight(p, q, Wo - 8, f, to, at);
            ox = Wo;
        }
#endif
        for (; ox < Wo; ox++) pool_one(p, q, ox, floor_at, to, at);
    }
}

static void pool2_back(int Ho, int Wo, int W, const uint8_t *place, const float *dy, float *dx) {
    for (int oy = 0; oy < Ho; oy++) {
        float *p = dx + (size_t)(2 * oy) * (size_t)W, *q = p + W;
        const uint8_t *at = place + (size_t)oy * (size_t)Wo;
        const float *d = dy + (size_t)oy * (size_t)Wo;
        int ox = 0;
#if defined(__AVX2__)
        for (; ox + 8 <= Wo; ox += 8) back_eight(at, d, p, q, ox);
        if (ox < Wo && Wo >= 8) {
            back_eight(at, d, p, q, Wo - 8);
            ox = Wo;
        }
#endif
        for (; ox < Wo; ox++) {
            p[2 * ox] = at[ox] == 0 ? d[ox] : 0;
            p[2 * ox + 1] = at[ox] == 1 ? d[ox] : 0;
            q[2 * ox] = at[ox] == 2 ? d[ox] : 0;
            q[2 * ox + 1] = at[ox] == 3 ? d[ox] : 0;
        }
    }
}

static void pool2_pick(int Ho, int Wo, int W, const uint8_t *place, const float *tx, float *ty) {
    for (int oy = 0; oy < Ho; oy++) {
        const float *p = tx + (size_t)(2 * oy) * (size_t)W, *q = p + W;
        const uint8_t *at = place + (size_t)oy * (size_t)Wo;
        float *to = ty + (size_t)oy * (size_t)Wo;
        int ox = 0;
#if defined(__AVX2__)
        for (; ox + 8 <= Wo; ox += 8) pick_eight(at, p, q, to, ox);
        if (ox < Wo && Wo >= 8) {
            pick_eight(at, p, q, to, Wo - 8);
            ox = Wo;
        }
#endif
        for (; ox < Wo; ox++) to[ox] = (at[ox] & 2 ? q : p)[2 * ox + (at[ox] & 1)];
    }
}

/* ---- layer-norm ---- */

static inline void row_stats(int D, float eps, const float *x, float *mean, float *rstd) {
    double s = 0, sq = 0;
    for (int i = 0; i < D; i++) s += (double)x[i];
    double mu = s / D;
    for (int i = 0; i < D; i++) sq += ((double)x[i] - mu) * ((double)x[i] - mu);
    *mean = (float)mu;
    *rstd = (float)(1.0 / sqrt(sq / D + (double)eps));
}

#if defined(__AVX2__)
/* Eight rows of four numbers as four vectors of columns and back: a 4x4 transposition in each half. */
typedef struct cols {
    __m256 c[4];
} cols;

static inline cols transpose(cols r) {
    __m256 t0 = _mm256_unpacklo_ps(r.c[0], r.c[1]), t1 = _mm256_unpackhi_ps(r.c[0], r.c[1]);
    __m256 t2 = _mm256_unpacklo_ps(r.c[2], r.c[3]), t3 = _mm256_unpackhi_ps(r.c[2], r.c[3]);
    cols o = {{_mm256_shuffle_ps(t0, t2, 0x44), _mm256_shuffle_ps(t0, t2, 0xee), _mm256_shuffle_ps(t1, t3, 0x44),
               _mm256_shuffle_ps(t1, t3, 0xee)}};
    return o;
}

static inline cols load_rows(const float *x) {
    cols r = {{_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24)}};
    return transpose(r);
}

static inline void store_rows(float *y, cols c) {
    cols r = transpose(c);
    for (int k = 0; k < 4; k++) _mm256_storeu_ps(y + 8 * k, r.c[k]);
}

static inline __m256 mean4(cols v) {
    return _mm256_mul_ps(_mm256_set1_ps(0.25f),
                         _mm256_add_ps(_mm256_add_ps(v.c[0], v.c[1]), _mm256_add_ps(v.c[2], v.c[3])));
}

/* xh and 1/sqrt(var + eps) of eight rows. */
static inline cols normal4(cols x, float eps, __m256 *rstd) {
    __m256 m = mean4(x);
    cols d, q;
    for (int k = 0; k < 4; k++) {
        d.c[k] = _mm256_sub_ps(x.c[k], m);
        q.c[k] = _mm256_mul_ps(d.c[k], d.c[k]);
    }
    *rstd = _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_sqrt_ps(_mm256_add_ps(mean4(q), _mm256_set1_ps(eps))));
    for (int k = 0; k < 4; k++) d.c[k] = _mm256_mul_ps(d.c[k], *rstd);
    return d;
}

static inline double add_eight(__m256 v) {
    float t[8];
    double s = 0;
    _mm256_storeu_ps(t, v);
    for (int k = 0; k < 8; k++) s += (double)t[k];
    return s;
}
#endif

static void ln_fwd(size_t rows, int D, float eps, const float *x, const float *w, const float *b, float *y) {
    size_t m = 0;
#if defined(__AVX2__)
    for (; D == 4 && m + 8 <= rows; m += 8) {
        __m256 rstd;
        cols xh = normal4(load_rows(x + 4 * m), eps, &rstd);
        for (int k = 0; k < 4; k++) {
            xh.c[k] = _mm256_mul_ps(xh.c[k], _mm256_set1_ps(w[k]));
            if (b != NULL) xh.c[k] = _mm256_add_ps(xh.c[k], _mm256_set1_ps(b[k]));
        }
        store_rows(y + 4 * m, xh);
    }
#endif
    for (; m < rows; m++) {
        const float *from = x + m * (size_t)D;
        float *to = y + m * (size_t)D, mean, rstd;
        row_stats(D, eps, from, &mean, &rstd);
        for (int i = 0; i < D; i++) to[i] = (from[i] - mean) * rstd * w[i] + (b != NULL ? b[i] : 0);
    }
}

static void ln_bwd(size_t rows, int D, float eps, const float *x, const float *w, const float *dy, float *dx,
                   double *dw, double *db) {
    size_t m = 0;
#if defined(__AVX2__)
    cols sw, sb;
    for (int k = 0; k < 4; k++) sw.c[k] = sb.c[k] = _mm256_setzero_ps();
    for (; D == 4 && m + 8 <= rows; m += 8) {
        __m256 rstd;
        cols xh = normal4(load_rows(x + 4 * m), eps, &rstd), g = load_rows(dy + 4 * m), t;
        for (int k = 0; k < 4; k++) {
            sw.c[k] = _mm256_add_ps(sw.c[k], _mm256_mul_ps(g.c[k], xh.c[k]));
            sb.c[k] = _mm256_add_ps(sb.c[k], g.c[k]);
            g.c[k] = _mm256_mul_ps(g.c[k], _mm256_set1_ps(w[k]));
            t.c[k] = _mm256_mul_ps(g.c[k], xh.c[k]);
        }
        if (dx == NULL) continue;
        __m256 ms = mean4(g), md = mean4(t);
        for (int k = 0; k < 4; k++)
            g.c[k] = _mm256_mul_ps(rstd, _mm256_sub_ps(_mm256_sub_ps(g.c[k], ms), _mm256_mul_ps(xh.c[k], md)));
        store_rows(dx + 4 * m, g);
    }
    for (int k = 0; k < 4 && m > 0; k++) {
        dw[k] += add_eight(sw.c[k]);
        db[k] += add_eight(sb.c[k]);
    }
#endif
    for (; m < rows; m++) {
        const float *from = x + m * (size_t)D, *g = dy + m * (size_t)D;
        float mean, rstd;
        row_stats(D, eps, from, &mean, &rstd);
        double s = 0, dot = 0;
        for (int i = 0; i < D; i++) {
            double xh = (double)((from[i] - mean) * rstd), t = (double)(g[i] * w[i]);
            dw[i] += (double)g[i] * xh;
            db[i] += (double)g[i];
            s += t;
            dot += t * xh;
        }
        if (dx == NULL) continue;
        float ms = (float)(s / D), md = (float)(dot / D), *to = dx + m * (size_t)D;
        for (int i = 0; i < D; i++) to[i] = rstd * (g[i] * w[i] - ms - (from[i] - mean) * rstd * md);
    }
}

static void ln_jvp(size_t rows, int D, float eps, const float *x, const float *tx, const float *w, const float *tw,
                   const float *tb, float *ty) {
    size_t m = 0;
#if defined(__AVX2__)
    for (; D == 4 && tx != NULL && m + 8 <= rows; m += 8) {
        __m256 rstd;
        cols xh = normal4(load_rows(x + 4 * m), eps, &rstd), t = load_rows(tx + 4 * m), q;
        for (int k = 0; k < 4; k++) q.c[k] = _mm256_mul_ps(t.c[k], xh.c[k]);
        __m256 ms = mean4(t), md = mean4(q);
        for (int k = 0; k < 4; k++) {
            __m256 d = _mm256_mul_ps(rstd, _mm256_sub_ps(_mm256_sub_ps(t.c[k], ms), _mm256_mul_ps(xh.c[k], md)));
            d = _mm256_add_ps(_mm256_mul_ps(d, _mm256_set1_ps(w[k])), _mm256_mul_ps(xh.c[k], _mm256_set1_ps(tw[k])));
            t.c[k] = tb != NULL ? _mm256_add_ps(d, _mm256_set1_ps(tb[k])) : d;
        }
        store_rows(ty + 4 * m, t);
    }
#endif
    for (; m < rows; m++) {
        const float *from = x + m * (size_t)D, *t = tx != NULL ? tx + m * (size_t)D : NULL;
        float *to = ty + m * (size_t)D, mean, rstd;
        row_stats(D, eps, from, &mean, &rstd);
        double s = 0, dot = 0;
        for (int i = 0; t != NULL && i < D; i++) {
            s += (double)t[i];
            dot += (double)t[i] * (double)((from[i] - mean) * rstd);
        }
        float ms = (float)(s / D), md = (float)(dot / D);
        for (int i = 0; i < D; i++) {
            float xh = (from[i] - mean) * rstd, v = tw[i] * xh + (tb != NULL ? tb[i] : 0);
            if (t != NULL) v += w[i] * rstd * (t[i] - ms - xh * md);
            to[i] = v;
        }
    }
}

const hdo_nn_simd HDO_ISA_FN(hdo__nn) = {.relu = relu,
                                         .relu_mask = relu_mask,
                                         .bias = bias,
                                         .columns = columns,
                                         .mul = mul,
                                         .add = add,
                                         .sum = sum,
                                         .sum_sq = sum_sq,
                                         .affine = affine,
                                         .dots = dots,
                                         .dx = norm_dx,
                                         .pool2 = pool2,
                                         .pool2_back = pool2_back,
                                         .pool2_pick = pool2_pick,
                                         .ln_fwd = ln_fwd,
                                         .ln_bwd = ln_bwd,
                                         .ln_jvp = ln_jvp,
                                         .keep = keep_words};
