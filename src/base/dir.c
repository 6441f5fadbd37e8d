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

/* ---- low rank: factors stand where plain numbers would: a (rank, m) from the offset of the tensor on, then b ---- */

static bool is_matrix(const hdo_tensor *t, int rank, int *m, int *n) {
    if (t->n_dim < 2) return false;
    size_t rows = (size_t)t->dim[0], cols = hdo__tensor_live(t) / rows;
    *m = (int)rows;
    *n = (int)cols;
    return (size_t)rank * (rows + cols) < rows * cols;
}

const hdo_tensor *hdo__dirs_matrix(const hdo_dirs *u, size_t off, int *m, int *n) {
    for (int t = 0; t < u->n_tensors && u->rank > 0; t++)
        if (u->tensors[t].off == off) return is_matrix(&u->tensors[t], u->rank, m, n) ? &u->tensors[t] : NULL;
    return NULL;
}

/* Numbers [from, from + len) of factor a_q (b: false) or b_q. */
static void factor(const hdo_dirs *u, int r, const hdo_tensor *t, int q, bool b, size_t from, size_t len, float *out) {
    size_t m = (size_t)t->dim[0], n = hdo__tensor_live(t) / m, rank = (size_t)u->rank;
    hdo_stream s = u->s;
    s.sub = (uint32_t)r;
    hdo__rng_normal(s, t->off + (b ? rank * m + (size_t)q * n : (size_t)q * m) + from, len, out);
    if (!b) hdo__scale(len, (float)(1.0 / sqrt((double)u->rank)), out);
}

void hdo__dirs_factor_rows(const hdo_dirs *u, int r, const hdo_tensor *t, int i0, int rows, float c, float *a,
                           float *b) {
    size_t m = (size_t)rows, n = hdo__tensor_live(t) / (size_t)t->dim[0];
    for (int q = 0; q < u->rank; q++) {
        factor(u, r, t, q, false, (size_t)i0, m, a + (size_t)q * m);
        factor(u, r, t, q, true, 0, n, b + (size_t)q * n);
    }
    hdo__scale((size_t)u->rank * m, c, a);
}

void hdo__dirs_factors(const hdo_dirs *u, int r, const hdo_tensor *t, float *a, float *b) {
    hdo__dirs_factor_rows(u, r, t, 0, t->dim[0], 1.0f, a, b);
}

/* out += numbers [from, from + len) of the matrix (m, n), in blocks of rows and columns. */
static void add_product(const hdo_dirs *u, int r, const hdo_tensor *t, size_t from, size_t len, float *out, size_t n) {
    enum { SIDE = 512 };
    float a[SIDE], b[SIDE];
    size_t last = (from + len - 1) / n;
    for (size_t i0 = from / n; i0 <= last; i0 += SIDE) {
        size_t rows = last + 1 - i0 < SIDE ? last + 1 - i0 : SIDE;
        for (size_t c = 0; c < n; c += SIDE) {
            size_t w = n - c < SIDE ? n - c : SIDE;
            for (int q = 0; q < u->rank; q++) {
                factor(u, r, t, q, false, i0, rows, a);
                factor(u, r, t, q, true, c, w, b);
                for (size_t i = 0; i < rows; i++) {
                    size_t lo = (i0 + i) * n + c, hi = lo + w; /* the part of this row that is asked for */
                    size_t at = lo > from ? lo : from, end = hi < from + len ? hi : from + len;
                    if (at < end) hdo__axpy(end - at, a[i], b + (at - lo), out + (at - from));
                }
            }
        }
    }
}

static void fill_plain(const hdo_dirs *u, int r, size_t off, size_t len, float *out);

static void fill_low_rank(const hdo_dirs *u, int r, size_t off, size_t len, float *out) {
    for (int k = 0; k < u->n_tensors; k++) {
        const hdo_tensor *t = &u->tensors[k];
        size_t lo = off > t->off ? off : t->off, end = off + len, hi = end < t->off + t->len ? end : t->off + t->len;
        int m, n;
        if (lo >= hi) continue;
        if (!is_matrix(t, u->rank, &m, &n)) {
            fill_plain(u, r, lo, hi - lo, out + (lo - off));
            continue;
        }
        size_t live = t->off + hdo__tensor_live(t), stop = hi < live ? hi : live;
        memset(out + (lo - off), 0, (hi - lo) * sizeof(float));
        if (lo < stop) add_product(u, r, t, lo - t->off, stop - lo, out + (lo - off), (size_t)n);
    }
}

static void fill_inside(const hdo_dirs *u, int r, size_t off, size_t len, float *out) {
    (u->rank > 0 ? fill_low_rank : fill_plain)(u, r, off, len, out);
}

static void fill_plain(const hdo_dirs *u, int r, size_t off, size_t len, float *out) {
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
