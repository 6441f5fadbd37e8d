/* SPDX-License-Identifier: Apache-2.0 — slices of addressed directions. */
#include "base/dir.h"

#include <assert.h>
#include <math.h>

#include "base/vec.h"

enum { TILE = 2048 };

void hdo__dirs_fill(const hdo_dirs *u, int r, size_t off, size_t len, float *out) {
    assert(off + len <= u->d);
    hdo_stream s = u->s;
    s.sub = (uint32_t)r;
    if (u->dist == HDO_DIST_RADEMACHER) {
        hdo__rng_rademacher(s, off, len, out);
        return;
    }
    hdo__rng_normal(s, off, len, out);
    if (u->dist == HDO_DIST_SPHERE) {
        assert(u->scale != NULL);
        hdo__scale(len, u->scale[r], out);
    }
}

void hdo__dirs_sphere_scale(const hdo_dirs *u, int k, float *scale) {
    float tile[TILE];
    for (int r = 0; r < k; r++) {
        hdo_stream s = u->s;
        s.sub = (uint32_t)r;
        double sum = 0.0;
        for (size_t off = 0; off < u->d; off += TILE) {
            size_t len = u->d - off < TILE ? u->d - off : TILE;
            hdo__rng_normal(s, off, len, tile);
            sum += hdo__sumsq(len, tile);
        }
        scale[r] = sum > 0.0 ? (float)sqrt((double)u->d / sum) : 0.0f;
    }
}
