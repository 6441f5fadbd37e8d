/* SPDX-License-Identifier: Apache-2.0 — slices of addressed directions. */
#include "base/dir.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/vec.h"

enum { TILE = 2048 };

static void fill_axis(const hdo_dirs *u, int r, size_t off, size_t len, float *out) {
    size_t j = u->axes != NULL ? (size_t)hdo__perm_at(u->axes, (uint64_t)r) : (size_t)r;
    memset(out, 0, len * sizeof(float));
    if (j >= off && j - off < len) out[j - off] = 1.0f;
}

static void draw(const hdo_dirs *u, int r, size_t off, size_t len, float *out) {
    hdo_stream s = u->s;
    s.sub = (uint32_t)r;
    if (u->dist == HDO_DIST_RADEMACHER) {
        hdo__rng_rademacher(s, off, len, out);
        return;
    }
    hdo__rng_normal(s, off, len, out);
    if (u->dist == HDO_DIST_SPHERE) {
        assert(u->scale != NULL && r >= u->scale_from);
        hdo__scale(len, u->scale[r - u->scale_from], out);
    }
}

static void fill_inside(const hdo_dirs *u, int r, size_t off, size_t len, float *out) {
    size_t end = off + len, from = off;
    for (size_t at = off, n; (n = hdo__outside(u->idle, &at, end, len)) > 0; from = at += n) {
        memset(out + (from - off), 0, (at - from) * sizeof(float));
        draw(u, r, at, n, out + (at - off));
    }
    memset(out + (from - off), 0, (end - from) * sizeof(float));
}

static size_t window_end(const hdo_dirs *u) {
    return u->hi > 0 ? u->hi : u->d;
}

void hdo__dirs_fill(const hdo_dirs *u, int r, size_t off, size_t len, float *out) {
    assert(off + len <= u->d);
    if (u->dist == HDO_DIST_AXES) {
        fill_axis(u, r, off, len, out);
        return;
    }
    if (u->dist == HDO_DIST_GIVEN) {
        memcpy(out, u->given + (size_t)r * u->stride + off, len * sizeof(float));
        return;
    }
    if (u->hi == 0 || (off >= u->lo && off + len <= u->hi)) {
        fill_inside(u, r, off, len, out);
        return;
    }
    size_t from = off > u->lo ? off : u->lo, to = off + len < u->hi ? off + len : u->hi;
    if (from >= to) {
        memset(out, 0, len * sizeof(float));
        return;
    }
    memset(out, 0, (from - off) * sizeof(float));
    fill_inside(u, r, from, to - from, out + (from - off));
    memset(out + (to - off), 0, (off + len - to) * sizeof(float));
}

void hdo__dirs_sphere_scale(const hdo_dirs *u, int k, float *scale) {
    float tile[TILE];
    double live = (double)hdo__count_outside(u->idle, u->lo, window_end(u));
    for (int r = 0; r < k; r++) {
        hdo_stream s = u->s;
        s.sub = (uint32_t)(u->scale_from + r);
        double sum = 0.0;
        for (size_t off = u->lo, n; (n = hdo__outside(u->idle, &off, window_end(u), TILE)) > 0; off += n) {
            hdo__rng_normal(s, off, n, tile);
            sum += hdo__sumsq(n, tile);
        }
        scale[r] = sum > 0.0 ? (float)sqrt(live / sum) : 0.0f;
    }
}
