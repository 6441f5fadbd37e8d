/* SPDX-License-Identifier: Apache-2.0
 *
 * What the estimators share: the address of a node's directions, blocks of x, and the average of slope times direction.
 *
 * Tiles. sum_r c_r u_r is made tile by tile: 2048 numbers of g stay in the first-level cache while every direction adds
 * its part, so a direction is drawn, used and forgotten (a tile costs 2 microseconds to draw, 0.15 to add). Tiles are
 * the tasks of the team. The order of the additions is r = 0, 1, ... for every coordinate, whatever the threads.
 */
#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"

enum { TILE = 2048 };

hdo_dirs hdo__request_dirs(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q) {
    /* streams: shared = the authors' code, where every node draws the same directions in a step */
    uint32_t node = s->streams == HDO_STREAMS_SHARED ? 0 : q->node;
    return (hdo_dirs){.s = hdo__stream(q->seed, HDO_RNG_DIRECTION, node, (uint64_t)q->step, 0),
                      .dist = s->distribution,
                      .d = f->d,
                      .idle = f->idle,
                      .rank = s->rank,
                      .tensors = f->tensors,
                      .n_tensors = f->n_tensors};
}

hdo_stream hdo__sibling_stream(const hdo_dirs *u, hdo_purpose purpose) {
    hdo_stream s = u->s;
    s.who = hdo__stream(0, purpose, u->s.who & 0xffffffu, 0, 0).who;
    s.sub = 0;
    return s;
}

double hdo__request_nu(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q) {
    if (s->nu.id == HDO_NU_ETA_SQRT_D) return q->eta / sqrt((double)f->d); /* Theorem 1: nu = eta / c, c = sqrt(d) */
    return s->nu.arg;
}

void hdo__keep_buffers(const hdo_objective *f, const hdo_request *q, float *g) {
    if (f->n_buf > 0) memcpy(g + f->d, q->x + f->d, f->n_buf * sizeof(float));
}

int hdo__block_count(const hdo_estimator *s, const hdo_objective *f) {
    return s->directions == HDO_DIRECTIONS_PER_TENSOR ? f->n_tensors : 1;
}

hdo_block hdo__block_at(const hdo_estimator *s, const hdo_objective *f, int b) {
    if (s->directions != HDO_DIRECTIONS_PER_TENSOR) return (hdo_block){0, f->d, -1};
    return (hdo_block){f->tensors[b].off, f->tensors[b].off + f->tensors[b].len, b};
}

/* ---- sum_r c_r u_r ---- */

typedef struct combine_job {
    const hdo_dirs *u;
    int first, k;
    const double *c;
    size_t lo, hi;
    float *g;
} combine_job;

static void combine_task(void *ctx, int task, hdo_work *w) {
    const combine_job *j = ctx;
    float tile[TILE];
    size_t off = j->lo + (size_t)task * TILE, end = j->hi - off < TILE ? j->hi : off + TILE;
    (void)w;
    for (size_t len; (len = hdo__outside(j->u->idle, &off, end, TILE)) > 0; off += len)
        for (int r = 0; r < j->k; r++) {
            hdo__dirs_fill(j->u, j->first + r, off, len, tile);
            hdo__axpy(len, (float)j->c[r], tile, j->g + off);
        }
}

void hdo__combine(const hdo_dirs *u, int first, int k, const double *c, hdo_work *w, float *g) {
    if (u->rank > 0) {
        hdo__combine_low_rank(u, first, k, c, w->team, g);
        return;
    }
    combine_job j = {u, first, k, c, u->lo, u->hi > 0 ? u->hi : u->d, g};
    hdo__team_run(w->team, (int)((j.hi - j.lo + TILE - 1) / TILE), combine_task, &j);
}

/* ---- sphere: |z_r| before the first use of u_r ---- */

typedef struct scale_job {
    const hdo_dirs *u;
    float *scale;
} scale_job;

static void scale_task(void *ctx, int r, hdo_work *w) {
    const scale_job *j = ctx;
    hdo_dirs one = *j->u;
    (void)w;
    one.scale_from += r;
    hdo__dirs_sphere_scale(&one, 1, j->scale + r);
}

void hdo__scale_directions(hdo_dirs *u, int first, int k, hdo_team *team, float *scale) {
    if (u->dist != HDO_DIST_SPHERE) return;
    u->scale_from = first;
    scale_job j = {u, scale};
    hdo__team_run(team, k, scale_task, &j);
    u->scale = scale;
}

/* ---- slopes, then directions ---- */

size_t hdo__slopes_work_bytes(const hdo_estimator *s, const hdo_objective *f) {
    return hdo__combine_low_rank_bytes(s, f) + hdo__arena_round(HDO_DIRS_AT_ONCE * sizeof(double)) +
           hdo__arena_round(HDO_DIRS_AT_ONCE * sizeof(float));
}

hdo_status hdo__estimate_slopes(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                                hdo_slope_fn fn, void *ctx, float *g) {
    size_t mark = hdo__arena_mark(w->arena);
    double *c = hdo__arena_doubles(w->arena, HDO_DIRS_AT_ONCE);
    float *scale = hdo__arena_floats(w->arena, HDO_DIRS_AT_ONCE);
    hdo_status st = HDO_OK;
    memset(g, 0, f->d * sizeof(float));
    for (int b = 0; b < hdo__block_count(s, f) && st == HDO_OK; b++) {
        hdo_block block = hdo__block_at(s, f, b);
        hdo_dirs u = hdo__request_dirs(s, f, q);
        u.lo = block.lo;
        u.hi = block.hi;
        for (int first = 0; first < s->rv && st == HDO_OK; first += HDO_DIRS_AT_ONCE) {
            int k = s->rv - first < HDO_DIRS_AT_ONCE ? s->rv - first : HDO_DIRS_AT_ONCE;
            if (hdo__request_given_up(q)) {
                st = HDO_E_STOPPED;
                break;
            }
            hdo__scale_directions(&u, first, k, w->team, scale);
            st = fn(ctx, &u, first, k, c);
            for (int r = 0; r < k; r++) c[r] /= (double)s->rv;
            if (st == HDO_OK) hdo__combine(&u, first, k, c, w, g);
        }
    }
    hdo__arena_rewind(w->arena, mark);
    return st;
}
