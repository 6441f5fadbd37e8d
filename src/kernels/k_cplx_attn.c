/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention at complex points (cplx.h): scores s_j = q.k_j / sqrt(hs) without conjugates, weights
 * e^(s_j) / sum_l e^(s_l), out = sum_j weight_j m_j v_j with the keep factors m_j of the dropout mask. One row of
 * weights at a time, as in k_ref_attn.c; keys and values of a head are packed so that the loops over j are contiguous.
 *
 * Weights do not change when all scores of a row are shifted; here by the score with the largest real part. Shifting
 * the imaginary part along keeps the digits of what distinguishes the scores.
 */
#include "kernels/attn.h"
#include "kernels/cplx.h"

enum { LANES = 8 }; /* sums of a row go over eight lanes, then in order: vectors, and the same bits everywhere */

typedef struct head {
    size_t ld;              /* T rounded up to LANES; what lies behind T is zero */
    float *k, *tk, *v, *tv; /* (hs, ld): keys and values, real parts and imaginary parts over nu */
    float *s, *ts;          /* (ld): a row of scores, then of exponentials */
    float *keep;            /* (T) */
    uint32_t *bits;         /* hdo__attn_keep_words(T) */
} head;

static size_t padded(size_t n) {
    return (n + LANES - 1) / LANES * LANES;
}

size_t hdo__cplx_attn_work(const hdo_attn *s) {
    size_t T = (size_t)s->T, ld = padded(T);
    return 4 * hdo__arena_round((size_t)s->hs * ld * sizeof(float)) + 2 * hdo__arena_round(ld * sizeof(float)) +
           hdo__arena_round(T * sizeof(float)) + hdo__arena_round(hdo__attn_keep_words(s->T) * sizeof(uint32_t));
}

static head take(const hdo_attn *s, hdo_arena *a) {
    size_t T = (size_t)s->T, ld = padded(T), n = (size_t)s->hs * ld;
    head h = {.ld = ld};
    h.k = hdo__arena_floats(a, n);
    h.tk = hdo__arena_floats(a, n);
    h.v = hdo__arena_floats(a, n);
    h.tv = hdo__arena_floats(a, n);
    h.s = hdo__arena_floats(a, ld);
    h.ts = hdo__arena_floats(a, ld);
    h.keep = hdo__arena_floats(a, T);
    h.bits = hdo__arena_take(a, hdo__attn_keep_words(s->T) * sizeof(uint32_t));
    return h;
}

/* from (T, 3 D), column `at` on, to (hs, ld). */
static void pack(const hdo_attn *s, const head *h, const float *from, size_t at, float *to) {
    size_t T = (size_t)s->T, row = 3 * (size_t)s->heads * (size_t)s->hs;
    for (size_t d = 0; d < (size_t)s->hs; d++, to += h->ld) {
        for (size_t j = 0; j < T; j++) to[j] = from[j * row + at + d];
        for (size_t j = T; j < h->ld; j++) to[j] = 0;
    }
}

/* Scores of one query (hs) against keys 0 .. n-1. */
static void scores(const hdo_attn *s, double nu, const float *q, const float *tq, size_t n, const head *h) {
    float scale = (float)(1.0 / sqrt((double)s->hs)), imim = hdo__cplx_imim(nu);
    for (size_t j = 0; j < n; j++) h->s[j] = h->ts[j] = 0;
    for (size_t d = 0; d < (size_t)s->hs; d++) {
        const float *restrict k = h->k + d * h->ld, *restrict tk = h->tk + d * h->ld;
        float *restrict sj = h->s, *restrict tj = h->ts;
        float a = q[d] * scale, t = tq[d] * scale, c = imim * t;
        for (size_t j = 0; j < n; j++) {
            sj[j] += a * k[j] + c * tk[j];
            tj[j] += a * tk[j] + t * k[j];
        }
    }
}

/* Smallest and largest of n numbers, a multiple of LANES. */
static void range(size_t n, const float *v, float *lo, float *hi) {
    float a[LANES], b[LANES];
    for (size_t k = 0; k < LANES; k++) a[k] = b[k] = v[k];
    for (size_t j = LANES; j < n; j += LANES)
        for (size_t k = 0; k < LANES; k++) {
            a[k] = v[j + k] < a[k] ? v[j + k] : a[k];
            b[k] = v[j + k] > b[k] ? v[j + k] : b[k];
        }
    *lo = a[0];
    *hi = b[0];
    for (size_t k = 1; k < LANES; k++) {
        *lo = a[k] < *lo ? a[k] : *lo;
        *hi = b[k] > *hi ? b[k] : *hi;
    }
}

/* (e, t) -> e (cos y, sin(y) / nu) with y = nu t: a real exponential turned by an angle. far: the largest |t|. */
static void turn(double nu, double far, size_t n, float *restrict e, float *restrict t) {
    float step = (float)nu;
    if (nu * far < 0.125) { /* Taylor series, to 1e-16 */
        for (size_t j = 0; j < n; j++) {
            float y = step * t[j], y2 = y * y;
            float c = (float)(1.0 / 24) + y2 * ((float)(-1.0 / 720) + y2 * (float)(1.0 / 40320));
            float s = (float)(1.0 / 120) + y2 * ((float)(-1.0 / 5040) + y2 * (float)(1.0 / 362880));
            t[j] *= e[j] * (1 + y2 * ((float)(-1.0 / 6) + y2 * s));
            e[j] *= 1 + y2 * ((float)-0.5 + y2 * c);
        }
        return;
    }
    for (size_t j = 0; j < n; j++) {
        double y = nu * (double)t[j], size = (double)e[j];
        t[j] = (float)(size * sin(y) / nu);
        e[j] = (float)(size * cos(y));
    }
}

static double lanes(const float *v) {
    double sum = 0.0;
    for (size_t k = 0; k < LANES; k++) sum += (double)v[k];
    return sum;
}

/* sum_j (s_j + i nu ts_j) (v_j + i nu tv_j); the imaginary part over nu. n is a multiple of LANES. */
static hdo_z weigh(double nu, size_t n, const float *s, const float *ts, const float *v, const float *tv) {
    float re[LANES] = {0}, imim[LANES] = {0}, im[LANES] = {0};
    for (size_t j = 0; j < n; j += LANES)
        for (size_t k = 0; k < LANES; k++) {
            re[k] += s[j + k] * v[j + k];
            imim[k] += ts[j + k] * tv[j + k];
            im[k] += s[j + k] * tv[j + k] + ts[j + k] * v[j + k];
        }
    return (hdo_z){lanes(re) - nu * nu * lanes(imim), lanes(im)};
}

static hdo_z sum_of(size_t n, const float *s, const float *ts) {
    float re[LANES] = {0}, im[LANES] = {0};
    for (size_t j = 0; j < n; j += LANES)
        for (size_t k = 0; k < LANES; k++) {
            re[k] += s[j + k];
            im[k] += ts[j + k];
        }
    return (hdo_z){lanes(re), lanes(im)};
}

/* Scores 0 .. n-1 to e^(s_j - s_top), and zeros up to a multiple of LANES; returns their sum, imaginary part over nu.
 */
static hdo_z exponentials(double nu, const hdo_kernels *k, size_t n, const head *h) {
    size_t top = 0, end = padded(n);
    float lo, hi, t_lo, t_hi;
    for (size_t j = n; j < end; j++) {
        h->s[j] = h->s[0];
        h->ts[j] = h->ts[0];
    }
    range(end, h->s, &lo, &hi);
    range(end, h->ts, &t_lo, &t_hi);
    while (top + 1 < n && h->s[top] < hi) top++;
    float t = h->ts[top], far = t_hi - t > t - t_lo ? t_hi - t : t - t_lo;
    for (size_t j = 0; j < n; j++) {
        float below = h->s[j] - hi;
        h->s[j] = below < -87.0f ? -87.0f : below; /* the range of vexp; e^-87 is nothing */
        h->ts[j] -= t;
    }
    k->vexp(n, h->s, h->s);
    turn(nu, (double)far, n, h->s, h->ts);
    for (size_t j = n; j < end; j++) h->s[j] = h->ts[j] = 0;
    return sum_of(end, h->s, h->ts);
}

/* Row i of one head: q, tq (hs) -> out, t_out (hs). */
static void attend(const hdo_attn *s, double nu, const hdo_kernels *k, int b, int m, size_t i, const head *h,
                   const float *q, const float *tq, float *out, float *t_out) {
    size_t n = i + 1, end = padded(n);
    scores(s, nu, q, tq, n, h);
    hdo_z sum = exponentials(nu, k, n, h), over = hdo__z_inverse((hdo_z){sum.re, nu * sum.im});
    if (s->dropout > 0) {
        hdo__attn_keep(s, b, m, (int)i, h->bits, h->keep);
        for (size_t j = 0; j < n; j++) {
            h->s[j] *= h->keep[j];
            h->ts[j] *= h->keep[j];
        }
    }
    for (size_t d = 0; d < (size_t)s->hs; d++) {
        hdo_z y = weigh(nu, end, h->s, h->ts, h->v + d * h->ld, h->tv + d * h->ld);
        y = hdo__z_mul((hdo_z){y.re, nu * y.im}, over);
        out[d] = (float)y.re;
        t_out[d] = (float)(y.im / nu);
    }
}

void hdo__cplx_attn(const hdo_attn *s, double nu, const hdo_kernels *k, const float *qkv, const float *t_qkv,
                    float *out, float *t_out, hdo_arena *arena) {
    size_t mark = hdo__arena_mark(arena), T = (size_t)s->T, hs = (size_t)s->hs, D = (size_t)s->heads * hs;
    head h = take(s, arena);
    for (int b = 0; b < s->B; b++) {
        const float *x = qkv + (size_t)b * T * 3 * D, *t = t_qkv + (size_t)b * T * 3 * D;
        for (int m = 0; m < s->heads; m++) {
            size_t at = (size_t)m * hs, o = (size_t)b * T * D + at;
            pack(s, &h, x, D + at, h.k);
            pack(s, &h, t, D + at, h.tk);
            pack(s, &h, x, 2 * D + at, h.v);
            pack(s, &h, t, 2 * D + at, h.tv);
            for (size_t i = 0; i < T; i++)
                attend(s, nu, k, b, m, i, &h, x + i * 3 * D + at, t + i * 3 * D + at, out + o + i * D,
                       t_out + o + i * D);
        }
    }
    hdo__arena_rewind(arena, mark);
}
