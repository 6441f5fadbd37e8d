/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of rng.h that makes one number at a time. The slices are in simd_rng.c.
 *
 * Addresses. Single number i of a stream starts from Philox block i, that is counter (i, sub, step, who) with i taken
 * modulo 2^32; i < 2^32 is the caller's affair. Words 0 and 1 make one 64-bit integer, words 2 and 3 another. Whoever
 * needs more (a rejected attempt, a second variable) takes as next counter the four words just made, under the same
 * key: `again` below. The counter is a function of (stream, i, attempt) like any other, no range of blocks has to be
 * set aside for attempts, and as Philox is a bijection two numbers meet on this way only by the chance of two random
 * 128-bit words being equal.
 *
 * Same bits everywhere. The last bits of log, exp and cos differ between C libraries, so none of them is called: the
 * ones here use + - * / and sqrt (exactly rounded by IEEE 754) in a fixed order. Errors are about 1 ulp of double.
 */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "base/simd.h"

/* ---- slices ------------------------------------------------------------------------------------------------------ */

void hdo__rng_bits(hdo_stream s, uint64_t off, size_t len, uint32_t *out) {
    hdo__simd()->rng_bits(s, off, len, out);
}

void hdo__rng_uniform(hdo_stream s, uint64_t off, size_t len, float *out) {
    hdo__simd()->rng_uniform(s, off, len, out);
}

void hdo__rng_normal(hdo_stream s, uint64_t off, size_t len, float *out) {
    hdo__simd()->rng_normal(s, off, len, out);
}

void hdo__rng_rademacher(hdo_stream s, uint64_t off, size_t len, float *out) {
    hdo__simd()->rng_rademacher(s, off, len, out);
}

/* ---- Philox4x32-10 ----------------------------------------------------------------------------------------------- */

void hdo__philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];
    for (int r = 0; r < 10; r++) {
        uint64_t p0 = (uint64_t)c0 * 0xd2511f53u, p1 = (uint64_t)c2 * 0xcd9e8d57u;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* One block and the way to the next. */
typedef struct draw {
    uint32_t key[2];
    uint32_t w[4];
} draw;

static void again(draw *d) {
    uint32_t ctr[4];
    memcpy(ctr, d->w, sizeof ctr);
    hdo__philox(ctr, d->key, d->w);
}

static draw first(hdo_stream s, uint64_t i) {
    draw d = {{(uint32_t)s.seed, (uint32_t)(s.seed >> 32)}, {(uint32_t)i, s.sub, s.step, s.who}};
    again(&d);
    return d;
}

/* half 0: words 0, 1; half 1: words 2, 3. */
static uint64_t word64(const draw *d, int half) {
    return (uint64_t)d->w[2 * half] | (uint64_t)d->w[2 * half + 1] << 32;
}

/* An odd multiple of 2^-53: never 0 or 1, symmetric about 1/2, every value exact. */
static double unit(uint64_t x) {
    return (double)((x >> 11) | 1u) * 0x1p-53;
}

/* ---- log, exp, cos with the same bits everywhere ----------------------------------------------------------------- */

static const double ln2_hi = 0x1.62e42fefa0000p-1;  /* 37 bits: times an exponent it is exact */
static const double ln2_lo = 0x1.cf79abc9e3b39p-40; /* ln 2 - ln2_hi */

/* x normal and positive. ln(m 2^e) = e ln 2 + 2 artanh s, s = (m - 1) / (m + 1), m in [sqrt 1/2, sqrt 2): s^2 < 0.0295,
 * and the series to s^21 leaves less than 1e-17. */
static double log_d(double x) {
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    const uint64_t root_half = 0x3fe6a09e667f3bcdu;
    int64_t e = (int64_t)(b - root_half) >> 52; /* arithmetic shift in every compiler we build with */
    b -= (uint64_t)e << 52;
    double m;
    memcpy(&m, &b, sizeof m);
    double s = (m - 1.0) / (m + 1.0), z = s * s, p = 1.0 / 21.0;
    for (int k = 19; k >= 3; k -= 2) p = p * z + 1.0 / (double)k;
    double n = (double)e;
    return n * ln2_hi + (2.0 * s + (2.0 * s * z * p + n * ln2_lo));
}

/* x <= 0; 0 where the result would be subnormal. x = n ln 2 + r with |r| <= 0.35, Taylor to r^14 leaves 1e-18. */
static double exp_d(double x) {
    if (!(x > -708.0)) return 0.0;
    int64_t n = (int64_t)(x * 0x1.71547652b82fep+0 - 0.5); /* truncation rounds to nearest, as x <= 0 */
    double r = (x - (double)n * ln2_hi) - (double)n * ln2_lo, p = 1.0;
    for (int k = 14; k >= 1; k--) p = 1.0 + p * r / (double)k;
    uint64_t b = (uint64_t)(n + 1023) << 52;
    double scale;
    memcpy(&scale, &b, sizeof scale);
    return p * scale;
}

/* The cosine of a uniform angle. Top bits: sign, sine or cosine of the first octant; below: where in the octant, x in
 * (0, pi/4). Taylor: the first term left out is below 3e-18. */
static double cos_uniform(uint64_t w) {
    double x = unit(w << 2) * 0x1.921fb54442d18p-1, z = x * x, p;
    if (w >> 62 & 1) {
        p = 1.0;
        for (int k = 16; k >= 2; k -= 2) p = 1.0 - p * z / (double)(k * (k - 1)); /* cosine */
    } else {
        p = 1.0;
        for (int k = 17; k >= 3; k -= 2) p = 1.0 - p * z / (double)(k * (k - 1)); /* sine */
        p = p * x;
    }
    return w >> 63 ? -p : p;
}

/* ---- single numbers ---------------------------------------------------------------------------------------------- */

/* Box-Muller, one of the two coordinates; all four words. */
static double gauss(const draw *d) {
    return sqrt(-2.0 * log_d(unit(word64(d, 0)))) * cos_uniform(word64(d, 1));
}

double hdo__rng_double(hdo_stream s, uint64_t i) {
    draw d = first(s, i);
    return unit(word64(&d, 0));
}

double hdo__rng_gauss(hdo_stream s, uint64_t i) {
    draw d = first(s, i);
    return gauss(&d);
}

/* a * b = high * 2^64 + low, without a 128-bit type. */
static uint64_t mul_wide(uint64_t a, uint64_t b, uint64_t *low) {
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t mid = a1 * b0 + (a0 * b0 >> 32), mid2 = a0 * b1 + (uint32_t)mid;
    *low = a * b;
    return a1 * b1 + (mid >> 32) + (mid2 >> 32);
}

/* Lemire, "Fast random integer generation in an interval" (2019): the high half of bound * word, except for the
 * 2^64 mod bound words that would make some results likelier. Attempts: words 0, 1 of the block, then words 2, 3, then
 * the same of the next block (see top). */
uint64_t hdo__rng_below(hdo_stream s, uint64_t i, uint64_t bound) {
    draw d = first(s, i);
    for (int half = 0;; half ^= 1) {
        uint64_t low, high = mul_wide(word64(&d, half), bound, &low);
        if (low >= bound || low >= (0 - bound) % bound) return high; /* the first test spares the division */
        if (half == 1) again(&d);
    }
}

/* Marsaglia and Tsang, "A simple method for generating gamma variables" (2000). An attempt takes two blocks: a normal
 * from the first, a uniform from words 0, 1 of the second. At most 1 in 20 fails (shape 1), so the loop ends. Below
 * shape 1: Gamma(shape) = Gamma(shape + 1) U^(1 / shape), with U from words 2, 3 of the last block, unused so far. */
double hdo__rng_gamma(hdo_stream s, uint64_t i, double shape) {
    double a = shape < 1.0 ? shape + 1.0 : shape;
    double m = a - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * m), v;
    draw d = first(s, i);
    for (;; again(&d)) {
        double x = gauss(&d), t = 1.0 + c * x;
        again(&d);
        if (t <= 0.0) continue;
        v = t * t * t;
        double u = unit(word64(&d, 0));
        if (u < 1.0 - 0.0331 * (x * x) * (x * x)) break; /* the paper's squeeze: 98 in 100 need no log */
        if (log_d(u) < 0.5 * x * x + m * (1.0 - v + log_d(v))) break;
    }
    double g = m * v;
    return shape < 1.0 ? g * exp_d(log_d(unit(word64(&d, 1))) / shape) : g;
}

double hdo__rng_chi2(hdo_stream s, uint64_t i, double dof) {
    return 2.0 * hdo__rng_gamma(s, i, 0.5 * dof);
}

/* ---- permutations ------------------------------------------------------------------------------------------------ */

/* Step k draws at position k of the stream. */
void hdo__rng_permutation(hdo_stream s, uint32_t n, uint32_t *out) {
    for (uint32_t k = 0; k < n; k++) out[k] = k;
    for (uint32_t k = 0; k + 1 < n; k++) {
        uint32_t j = k + (uint32_t)hdo__rng_below(s, k, n - k), t = out[k];
        out[k] = out[j];
        out[j] = t;
    }
}

/* Feistel network on 2 * half_bits bits, the smallest such domain that holds n; points that land outside 0 .. n-1 are
 * sent through again until they do not (at most 4 turns on average, the domain being below 4 n). The round keys are
 * blocks 0 .. 3 of the stream, two words a round; the round function is the finaliser of MurmurHash3 with a key before
 * and a key in the middle. Eight rounds: four make a Feistel network of random functions a strong permutation (Luby
 * and Rackoff 1988), the rest is margin for halves of a few bits. With n = 4, halves of one bit, each of the 24
 * permutations still comes within 4 in 100 of its share over keys. */
#define PERM_ROUNDS 8

hdo_perm hdo__perm(hdo_stream s, uint64_t n) {
    hdo_perm p = {s, n, 0};
    while (p.half_bits < 20 && (uint64_t)1 << 2 * p.half_bits < n) p.half_bits++;
    return p;
}

static uint32_t mix(uint32_t x, uint32_t a, uint32_t b) {
    x ^= a;
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= b;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    return x;
}

uint64_t hdo__perm_at(const hdo_perm *p, uint64_t i) {
    uint32_t key[2 * PERM_ROUNDS];
    for (uint32_t b = 0; b < PERM_ROUNDS / 2; b++) {
        draw d = first(p->s, b);
        memcpy(key + 4 * b, d.w, sizeof d.w);
    }
    const uint32_t h = p->half_bits, mask = ((uint32_t)1 << h) - 1;
    do {
        uint32_t left = (uint32_t)(i >> h) & mask, right = (uint32_t)i & mask;
        for (int r = 0; r < PERM_ROUNDS; r++) {
            uint32_t t = left ^ (mix(right, key[2 * r], key[2 * r + 1]) & mask);
            left = right;
            right = t;
        }
        i = (uint64_t)left << h | right;
    } while (i >= p->n);
    return i;
}
