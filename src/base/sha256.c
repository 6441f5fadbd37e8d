/* SPDX-License-Identifier: Apache-2.0 — SHA-256, straight from FIPS 180-4; by its instructions where a machine has
 * them. */
#include "base/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/simd.h"

#ifdef HDO_HAVE_AVX2_BUILD
#include <immintrin.h>
#endif

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t x, int n) {
    return (x >> n) | (x << (32 - n));
}

/* One round: d and h change, the others are read. kw is the round constant plus the message word. */
static inline void round_one(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f, uint32_t g,
                             uint32_t *h, uint32_t kw) {
    uint32_t t1 = *h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + kw;
    uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    *d += t1;
    *h = t1 + t2;
}

static void compress(uint32_t h[8], const unsigned char *p) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
        uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], k = h[7];
    for (int i = 0; i < 64; i += 8) { /* eight rounds: the letters rotate through the arguments instead of in memory */
        round_one(a, b, c, &d, e, f, g, &k, K[i] + w[i]);
        round_one(k, a, b, &c, d, e, f, &g, K[i + 1] + w[i + 1]);
        round_one(g, k, a, &b, c, d, e, &f, K[i + 2] + w[i + 2]);
        round_one(f, g, k, &a, b, c, d, &e, K[i + 3] + w[i + 3]);
        round_one(e, f, g, &k, a, b, c, &d, K[i + 4] + w[i + 4]);
        round_one(d, e, f, &g, k, a, b, &c, K[i + 5] + w[i + 5]);
        round_one(c, d, e, &f, g, k, a, &b, K[i + 6] + w[i + 6]);
        round_one(b, c, d, &e, f, g, k, &a, K[i + 7] + w[i + 7]);
    }
    const uint32_t v[8] = {a, b, c, d, e, f, g, k};
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

#ifdef HDO_HAVE_AVX2_BUILD
/* The same, four rounds a turn. The instructions want the state as (a b e f) and (c d g h). */
__attribute__((target("sha,sse4.1"))) static void compress_sha(uint32_t h[8], const unsigned char *p, size_t blocks) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i *state = (__m128i *)(void *)h;
    __m128i t = _mm_shuffle_epi32(_mm_loadu_si128(state), 0xb1);
    __m128i u = _mm_shuffle_epi32(_mm_loadu_si128(state + 1), 0x1b);
    __m128i abef = _mm_alignr_epi8(t, u, 8), cdgh = _mm_blend_epi16(u, t, 0xf0);
    for (; blocks > 0; blocks--, p += 64) {
        __m128i was0 = abef, was1 = cdgh, w[4];
        for (int i = 0; i < 16; i++) {
            if (i < 4) {
                w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)), swap);
            } else {
                __m128i last = w[(i + 3) & 3], seven = _mm_alignr_epi8(last, w[(i + 2) & 3], 4);
                w[i & 3] = _mm_add_epi32(_mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]), seven);
                w[i & 3] = _mm_sha256msg2_epu32(w[i & 3], last);
            }
            __m128i kw = _mm_add_epi32(w[i & 3], _mm_loadu_si128((const __m128i *)(const void *)(K + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, kw);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(kw, 0x0e));
        }
        abef = _mm_add_epi32(abef, was0);
        cdgh = _mm_add_epi32(cdgh, was1);
    }
    t = _mm_shuffle_epi32(abef, 0x1b);
    u = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128(state, _mm_blend_epi16(t, u, 0xf0));
    _mm_storeu_si128(state + 1, _mm_alignr_epi8(u, t, 8));
}
#endif

static void compress_all(uint32_t h[8], const unsigned char *p, size_t blocks) {
#ifdef HDO_HAVE_AVX2_BUILD
    if (hdo__simd_sha()) {
        compress_sha(h, p, blocks);
        return;
    }
#endif
    for (; blocks > 0; blocks--, p += 64) compress(h, p);
}

void hdo__sha256_init(hdo_sha256 *c) {
    static const uint32_t h0[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(c->h, h0, sizeof h0);
    c->bytes = 0;
}

void hdo__sha256_update(hdo_sha256 *c, const void *data, size_t len) {
    const unsigned char *p = data;
    size_t have = (size_t)(c->bytes % 64);
    c->bytes += len;
    if (have > 0) {
        size_t take = 64 - have < len ? 64 - have : len;
        memcpy(c->block + have, p, take);
        p += take;
        len -= take;
        if (have + take < 64) return;
        compress_all(c->h, c->block, 1);
    }
    compress_all(c->h, p, len / 64);
    if (len % 64 > 0) memcpy(c->block, p + len / 64 * 64, len % 64);
}

void hdo__sha256_final(hdo_sha256 *c, unsigned char out[32]) {
    uint64_t bits = c->bytes * 8;
    unsigned char tail[72] = {0x80};
    size_t have = (size_t)(c->bytes % 64);
    size_t pad = have < 56 ? 56 - have : 120 - have;
    unsigned char len[8];
    for (int i = 0; i < 8; i++) len[i] = (unsigned char)(bits >> (56 - 8 * i));
    hdo__sha256_update(c, tail, pad);
    hdo__sha256_update(c, len, 8);
    for (int i = 0; i < 32; i++) out[i] = (unsigned char)(c->h[i / 4] >> (24 - 8 * (i % 4)));
}

void hdo__sha256_hex(const unsigned char digest[32], char hex[65]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 32; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[64] = '\0';
}

void hdo__sha256_bytes(const void *p, size_t len, char hex[65]) {
    hdo_sha256 c;
    unsigned char digest[32];
    hdo__sha256_init(&c);
    hdo__sha256_update(&c, p, len);
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, hex);
}

hdo_status hdo__sha256_file(const char *path, char hex[65], hdo_error *e) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) return hdo__fail(e, HDO_E_IO, "cannot read '%s': %s", path, strerror(errno));
    hdo_sha256 c;
    hdo__sha256_init(&c);
    unsigned char buf[16384];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, f)) > 0) hdo__sha256_update(&c, buf, n);
    int bad = ferror(f);
    fclose(f);
    if (bad) return hdo__fail(e, HDO_E_IO, "reading '%s' failed: %s", path, strerror(errno));
    unsigned char digest[32];
    hdo__sha256_final(&c, digest);
    hdo__sha256_hex(digest, hex);
    return HDO_OK;
}
