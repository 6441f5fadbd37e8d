/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference attention, exp and GELU: the formulas as written on paper, in double, one row of weights at a time. Slow on
 * purpose; simd_attn.c is measured and tested against this file.
 *
 * For one head and one query i, with keep factors m_j = 0 or 1 / (1 - p) and scores s_j = q.k_j / sqrt(hs), j <= i:
 *   P_j = exp(s_j - max) / sum,   out = sum_j P_j m_j v_j,   lse = max + log(sum)
 *   backward:  a_j = m_j (dout.v_j),  dS_j = P_j (a_j - sum_l P_l a_l),  dv_j += P_j m_j dout,
 *              dq += dS_j k_j / sqrt(hs),  dk_j += dS_j q / sqrt(hs)
 *   tangent:   ds_j = (dq.k_j + q.dk_j) / sqrt(hs),  dP_j = P_j (ds_j - sum_l P_l ds_l),
 *              dout = sum_j m_j (dP_j v_j + P_j dv_j)
 */
#include <math.h>
#include <string.h>

#include "kernels/attn.h"

typedef struct ref_row { /* scratch of one row of weights, T long */
    double *p, *t;       /* P_j; a second array for the passes */
    float *keep;         /* m_j */
    uint32_t *bits;
} ref_row;

static ref_row ref_take(const hdo_attn *s, hdo_arena *a) {
    size_t T = (size_t)s->T;
    ref_row r;
    r.p = hdo__arena_doubles(a, T);
    r.t = hdo__arena_doubles(a, T);
    r.keep = hdo__arena_floats(a, T);
    r.bits = (uint32_t *)hdo__arena_take(a, hdo__attn_keep_words(s->T) * sizeof(uint32_t));
    return r;
}

static double ref_dot(int n, const float *x, const float *y) {
    double sum = 0.0;
    for (int d = 0; d < n; d++) sum += (double)x[d] * (double)y[d];
    return sum;
}

void hdo__attn_keep(const hdo_attn *s, int b, int h, int i, uint32_t *bits, float *keep) {
    if (!(s->dropout > 0.0f)) {
        for (int j = 0; j <= i; j++) keep[j] = 1.0f;
        return;
    }
    uint64_t n0 = hdo__attn_mask_head(s, b, h) + hdo__attn_mask_row(i), w0 = n0 / 2;
    uint32_t limit = hdo__attn_mask_limit(s->dropout);
    float up = 1.0f / (1.0f - s->dropout);
    hdo__rng_bits(s->mask, w0, (size_t)((n0 + (uint64_t)i) / 2 - w0 + 1), bits);
    for (int j = 0; j <= i; j++) {
        uint64_t n = n0 + (uint64_t)j;
        uint32_t number = (bits[n / 2 - w0] >> (16 * (n & 1))) & 0xffffu;
        keep[j] = number >= limit ? up : 0.0f;
    }
}

/* Fills P and the keep factors of row (b, h, i); returns the log-sum-exp. */
static double ref_weights(const hdo_attn *s, const float *qkv, int b, int h, int i, ref_row *r) {
    int hs = s->hs, D = s->heads * hs;
    double scale = 1.0 / sqrt((double)hs);
    const float *sample = qkv + (size_t)b * (size_t)s->T * 3 * (size_t)D;
    const float *q = sample + (size_t)i * 3 * (size_t)D + (size_t)h * (size_t)hs;
    double top = -HUGE_VAL, sum = 0.0;
    for (int j = 0; j <= i; j++) {
        const float *k = sample + (size_t)j * 3 * (size_t)D + (size_t)D + (size_t)h * (size_t)hs;
        r->p[j] = ref_dot(hs, q, k) * scale;
        if (r->p[j] > top) top = r->p[j];
    }
    for (int j = 0; j <= i; j++) {
        r->p[j] = exp(r->p[j] - top);
        sum += r->p[j];
    }
    for (int j = 0; j <= i; j++) r->p[j] /= sum;

    hdo__attn_keep(s, b, h, i, r->bits, r->keep);
    return top + log(sum);
}

void hdo__ref_attn_fwd(const hdo_attn *s, const float *qkv, float *out, float *lse, hdo_arena *a) {
    size_t mark = hdo__arena_mark(a);
    ref_row r = ref_take(s, a);
    int T = s->T, hs = s->hs;
    size_t D = (size_t)s->heads * (size_t)hs;
    for (int b = 0; b < s->B; b++) {
        const float *sample = qkv + (size_t)b * (size_t)T * 3 * D;
        for (int h = 0; h < s->heads; h++) {
            for (int i = 0; i < T; i++) {
                double l = ref_weights(s, qkv, b, h, i, &r);
                if (lse != NULL) lse[((size_t)b * (size_t)s->heads + (size_t)h) * (size_t)T + (size_t)i] = (float)l;
                for (int d = 0; d < hs; d++) {
                    const float *v = sample + 2 * D + (size_t)(h * hs + d);
                    double sum = 0.0;
                    for (int j = 0; j <= i; j++) sum += r.p[j] * (double)r.keep[j] * (double)v[(size_t)j * 3 * D];
                    out[((size_t)b * (size_t)T + (size_t)i) * D + (size_t)(h * hs + d)] = (float)sum;
                }
            }
        }
    }
    hdo__arena_rewind(a, mark);
}

void hdo__ref_attn_bwd(const hdo_attn *s, const float *qkv, const float *out, const float *lse, const float *dout,
                       float *dqkv, hdo_arena *a) {
    (void)out;
    (void)lse;
    size_t mark = hdo__arena_mark(a);
    ref_row r = ref_take(s, a);
    int T = s->T, hs = s->hs;
    size_t D = (size_t)s->heads * (size_t)hs, n = (size_t)T * 3 * D;
    double scale = 1.0 / sqrt((double)hs);
    double *sum = hdo__arena_doubles(a, n); /* gradient of one sample */
    for (int b = 0; b < s->B; b++) {
        const float *sample = qkv + (size_t)b * n;
        for (size_t x = 0; x < n; x++) sum[x] = 0.0;
        for (int h = 0; h < s->heads; h++) {
            size_t head = (size_t)h * (size_t)hs;
            for (int i = 0; i < T; i++) {
                const float *q = sample + (size_t)i * 3 * D + head;
                const float *g = dout + ((size_t)b * (size_t)T + (size_t)i) * D + head;
                double *dq = sum + (size_t)i * 3 * D + head, mean = 0.0;
                ref_weights(s, qkv, b, h, i, &r);
                for (int j = 0; j <= i; j++) {
                    r.t[j] = (double)r.keep[j] * ref_dot(hs, g, sample + (size_t)j * 3 * D + 2 * D + head);
                    mean += r.p[j] * r.t[j];
                }
                for (int j = 0; j <= i; j++) {
                    const float *k = sample + (size_t)j * 3 * D + D + head;
                    double *dk = sum + (size_t)j * 3 * D + D + head, *dv = dk + D;
                    double ds = r.p[j] * (r.t[j] - mean) * scale;
                    for (int d = 0; d < hs; d++) {
                        dq[d] += ds * (double)k[d];
                        dk[d] += ds * (double)q[d];
                        dv[d] += r.p[j] * (double)r.keep[j] * (double)g[d];
                    }
                }
            }
        }
        for (size_t x = 0; x < n; x++) dqkv[(size_t)b * n + x] = (float)sum[x];
    }
    hdo__arena_rewind(a, mark);
}

void hdo__ref_attn_jvp(const hdo_attn *s, int k, const float *qkv, const float *dqkv, float *out, float *dout,
                       hdo_arena *a) {
    size_t mark = hdo__arena_mark(a);
    ref_row r = ref_take(s, a);
    int T = s->T, hs = s->hs;
    size_t D = (size_t)s->heads * (size_t)hs, n = (size_t)T * 3 * D;
    double scale = 1.0 / sqrt((double)hs);
    hdo__ref_attn_fwd(s, qkv, out, NULL, a);
    for (int b = 0; b < s->B; b++) {
        const float *sample = qkv + (size_t)b * n;
        for (int h = 0; h < s->heads; h++) {
            size_t head = (size_t)h * (size_t)hs;
            for (int i = 0; i < T; i++) {
                const float *q = sample + (size_t)i * 3 * D + head;
                ref_weights(s, qkv, b, h, i, &r);
                for (int c = 0; c < k; c++) {
                    const float *tan = dqkv + ((size_t)c * (size_t)s->B + (size_t)b) * n;
                    const float *dq = tan + (size_t)i * 3 * D + head;
                    float *o = dout + (((size_t)c * (size_t)s->B + (size_t)b) * (size_t)T + (size_t)i) * D + head;
                    double mean = 0.0;
                    for (int j = 0; j <= i; j++) {
                        size_t key = (size_t)j * 3 * D + D + head;
                        r.t[j] = (ref_dot(hs, dq, sample + key) + ref_dot(hs, q, tan + key)) * scale;
                        mean += r.p[j] * r.t[j];
                    }
                    for (int d = 0; d < hs; d++) {
                        double sum = 0.0;
                        for (int j = 0; j <= i; j++) {
                            size_t value = (size_t)j * 3 * D + 2 * D + head + (size_t)d;
                            sum += (double)r.keep[j] * r.p[j] *
                                   ((r.t[j] - mean) * (double)sample[value] + (double)tan[value]);
                        }
                        o[d] = (float)sum;
                    }
                }
            }
        }
    }
    hdo__arena_rewind(a, mark);
}

size_t hdo__ref_attn_work(const hdo_attn *s, int k) {
    (void)k;
    size_t T = (size_t)s->T, n = T * 3 * (size_t)s->heads * (size_t)s->hs;
    size_t row = 2 * hdo__arena_round(T * sizeof(double)) + hdo__arena_round(T * sizeof(float)) +
                 hdo__arena_round(hdo__attn_keep_words(s->T) * sizeof(uint32_t));
    return 2 * row + hdo__arena_round(n * sizeof(double)); /* two rows: the tangent pass calls the forward pass */
}

void hdo__ref_vexp(size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; i++) y[i] = (float)exp((double)x[i]);
}

void hdo__ref_gelu(size_t n, const float *x, float *y, float *dy) {
    const double half_root = 0.70710678118654752440, density0 = 0.39894228040143267794; /* 1/sqrt(2), 1/sqrt(2 pi) */
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i], cdf = 0.5 * erfc(-v * half_root); /* erfc: no cancellation for negative x */
        y[i] = (float)(v * cdf);
        if (dy != NULL) dy[i] = (float)(cdf + v * density0 * exp(-0.5 * v * v));
    }
}
