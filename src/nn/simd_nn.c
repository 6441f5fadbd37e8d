/* SPDX-License-Identifier: Apache-2.0 — element-wise inner loops (nn_simd.h), compiled once per instruction set. */
#include "nn/nn_simd.h"

#include <math.h>

#include "base/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* Source and destination may be one array: without this the compiler's test for overlap sends it down the slow path. */
#if defined(__clang__)
#define IN_PLACE _Pragma("clang loop vectorize(assume_safety)")
#else
#define IN_PLACE _Pragma("GCC ivdep")
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
    IN_PLACE for (size_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

static void add(size_t n, const float *a, const float *b, bool with_relu, float *y) {
    if (with_relu) {
        IN_PLACE for (size_t i = 0; i < n; i++) {
            float v = a[i] + b[i];
            y[i] = v < 0 ? 0 : v;
        }
    } else {
        IN_PLACE for (size_t i = 0; i < n; i++) y[i] = a[i] + b[i];
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
        IN_PLACE for (size_t i = 0; i < n; i++) {
            float v = (x[i] - mean) * scale + shift;
            y[i] = v < 0 ? 0 : v;
        }
    } else {
        IN_PLACE for (size_t i = 0; i < n; i++) y[i] = (x[i] - mean) * scale + shift;
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
    IN_PLACE for (size_t i = 0; i < n; i++) dx[i] = scale * (dy[i] - a - (x[i] - mean) * rstd * b);
}

static void sums(size_t n, const float *restrict x, double *restrict total) {
    for (size_t i = 0; i < n; i++) total[i] += (double)x[i];
}

static void squares(size_t n, const float *restrict x, const double *restrict mean, double *restrict total) {
    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - mean[i];
        total[i] += d * d;
    }
}

static void affines(size_t n, const float *x, const float *mean, const float *scale, const float *shift, bool with_relu,
                    float *y) {
    if (with_relu) {
        IN_PLACE for (size_t i = 0; i < n; i++) {
            float v = (x[i] - mean[i]) * scale[i] + shift[i];
            y[i] = v < 0 ? 0 : v;
        }
    } else {
        IN_PLACE for (size_t i = 0; i < n; i++) y[i] = (x[i] - mean[i]) * scale[i] + shift[i];
    }
}

static void all_dots(size_t n, const float *restrict x, const float *restrict dy, const float *restrict mean,
                     const float *restrict rstd, double *restrict total, double *restrict dot) {
    for (size_t i = 0; i < n; i++) {
        double g = (double)dy[i];
        total[i] += g;
        dot[i] += g * (double)((x[i] - mean[i]) * rstd[i]);
    }
}

static void all_dx(size_t n, const float *x, const float *dy, const float *mean, const float *rstd, const float *scale,
                   const float *a, const float *b, float *dx) {
    IN_PLACE for (size_t i = 0; i < n; i++) dx[i] = scale[i] * (dy[i] - a[i] - (x[i] - mean[i]) * rstd[i] * b[i]);
}

static void keep_words(size_t words, const uint32_t *restrict word, uint32_t limit, float up, float *restrict keep) {
    for (size_t i = 0; i < words; i++) {
        keep[2 * i] = (word[i] & 0xffffu) >= limit ? up : 0;
        keep[2 * i + 1] = (word[i] >> 16) >= limit ? up : 0;
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

/* Rows of four, eight at a time, are done in float: eight rows are a vector for each of the four columns. Without AVX2
 * the vectors are arrays, with the same operations on every number. */
enum { ROWS = 8 };

#if defined(__AVX2__)
typedef __m256 rows8;
static inline rows8 r_set(float x) {
    return _mm256_set1_ps(x);
}
static inline rows8 r_add(rows8 a, rows8 b) {
    return _mm256_add_ps(a, b);
}
static inline rows8 r_sub(rows8 a, rows8 b) {
    return _mm256_sub_ps(a, b);
}
static inline rows8 r_mul(rows8 a, rows8 b) {
    return _mm256_mul_ps(a, b);
}
static inline rows8 r_rsqrt(rows8 a) {
    return _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_sqrt_ps(a));
}
static inline void r_store(float *t, rows8 v) {
    _mm256_storeu_ps(t, v);
}
#else
typedef struct rows8 {
    float v[ROWS];
} rows8;
#define R_EACH(result, expression)                                                                                     \
    rows8 result;                                                                                                      \
    for (int l = 0; l < ROWS; l++) result.v[l] = (expression);                                                         \
    return result
static inline rows8 r_set(float x) {
    R_EACH(r, x);
}
static inline rows8 r_add(rows8 a, rows8 b) {
    R_EACH(r, a.v[l] + b.v[l]);
}
static inline rows8 r_sub(rows8 a, rows8 b) {
    R_EACH(r, a.v[l] - b.v[l]);
}
static inline rows8 r_mul(rows8 a, rows8 b) {
    R_EACH(r, a.v[l] * b.v[l]);
}
static inline rows8 r_rsqrt(rows8 a) {
    R_EACH(r, 1.0f / sqrtf(a.v[l]));
}
static inline void r_store(float *t, rows8 v) {
    for (int l = 0; l < ROWS; l++) t[l] = v.v[l];
}
#endif

typedef struct cols {
    rows8 c[4];
} cols;

#if defined(__AVX2__)
/* A 4x4 transposition in each half: rows 0 2 4 6 1 3 5 7 in the lanes. */
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
#else
static const int row_of_lane[ROWS] = {0, 2, 4, 6, 1, 3, 5, 7}; /* as the transposition of vectors has them */

static inline cols load_rows(const float *x) {
    cols r;
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < ROWS; l++) r.c[k].v[l] = x[4 * row_of_lane[l] + k];
    return r;
}

static inline void store_rows(float *y, cols c) {
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < ROWS; l++) y[4 * row_of_lane[l] + k] = c.c[k].v[l];
}
#endif

static inline rows8 mean4(cols v) {
    return r_mul(r_set(0.25f), r_add(r_add(v.c[0], v.c[1]), r_add(v.c[2], v.c[3])));
}

/* xh and 1/sqrt(var + eps) of eight rows. */
static inline cols normal4(cols x, float eps, rows8 *rstd) {
    rows8 m = mean4(x);
    cols d, q;
    for (int k = 0; k < 4; k++) {
        d.c[k] = r_sub(x.c[k], m);
        q.c[k] = r_mul(d.c[k], d.c[k]);
    }
    *rstd = r_rsqrt(r_add(mean4(q), r_set(eps)));
    for (int k = 0; k < 4; k++) d.c[k] = r_mul(d.c[k], *rstd);
    return d;
}

static inline double add_eight(rows8 v) {
    float t[ROWS];
    double s = 0;
    r_store(t, v);
    for (int k = 0; k < ROWS; k++) s += (double)t[k];
    return s;
}

static void ln_fwd(size_t rows, int D, float eps, const float *x, const float *w, const float *b, float *y) {
    size_t m = 0;
    for (; D == 4 && m + ROWS <= rows; m += ROWS) {
        rows8 rstd;
        cols xh = normal4(load_rows(x + 4 * m), eps, &rstd);
        for (int k = 0; k < 4; k++) {
            xh.c[k] = r_mul(xh.c[k], r_set(w[k]));
            if (b != NULL) xh.c[k] = r_add(xh.c[k], r_set(b[k]));
        }
        store_rows(y + 4 * m, xh);
    }
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
    cols sw, sb;
    for (int k = 0; k < 4; k++) sw.c[k] = sb.c[k] = r_set(0.0f);
    for (; D == 4 && m + ROWS <= rows; m += ROWS) {
        rows8 rstd;
        cols xh = normal4(load_rows(x + 4 * m), eps, &rstd), g = load_rows(dy + 4 * m), t;
        for (int k = 0; k < 4; k++) {
            sw.c[k] = r_add(sw.c[k], r_mul(g.c[k], xh.c[k]));
            sb.c[k] = r_add(sb.c[k], g.c[k]);
            g.c[k] = r_mul(g.c[k], r_set(w[k]));
            t.c[k] = r_mul(g.c[k], xh.c[k]);
        }
        if (dx == NULL) continue;
        rows8 ms = mean4(g), md = mean4(t);
        for (int k = 0; k < 4; k++) g.c[k] = r_mul(rstd, r_sub(r_sub(g.c[k], ms), r_mul(xh.c[k], md)));
        store_rows(dx + 4 * m, g);
    }
    for (int k = 0; k < 4 && m > 0; k++) {
        dw[k] += add_eight(sw.c[k]);
        db[k] += add_eight(sb.c[k]);
    }
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
    for (; D == 4 && tx != NULL && m + ROWS <= rows; m += ROWS) {
        rows8 rstd;
        cols xh = normal4(load_rows(x + 4 * m), eps, &rstd), t = load_rows(tx + 4 * m), q;
        for (int k = 0; k < 4; k++) q.c[k] = r_mul(t.c[k], xh.c[k]);
        rows8 ms = mean4(t), md = mean4(q);
        for (int k = 0; k < 4; k++) {
            rows8 d = r_mul(rstd, r_sub(r_sub(t.c[k], ms), r_mul(xh.c[k], md)));
            d = r_add(r_mul(d, r_set(w[k])), r_mul(xh.c[k], r_set(tw[k])));
            t.c[k] = tb != NULL ? r_add(d, r_set(tb[k])) : d;
        }
        store_rows(ty + 4 * m, t);
    }
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
                                         .sums = sums,
                                         .squares = squares,
                                         .affines = affines,
                                         .all_dots = all_dots,
                                         .all_dx = all_dx,
                                         .pool2 = HDO_ISA_FN(hdo__pool2),
                                         .pool2_back = HDO_ISA_FN(hdo__pool2_back),
                                         .pool2_pick = HDO_ISA_FN(hdo__pool2_pick),
                                         .pool3 = HDO_ISA_FN(hdo__pool3),
                                         .ln_fwd = ln_fwd,
                                         .ln_bwd = ln_bwd,
                                         .ln_jvp = ln_jvp,
                                         .keep = keep_words};
