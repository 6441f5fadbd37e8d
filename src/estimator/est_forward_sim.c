/* SPDX-License-Identifier: Apache-2.0
 *
 * forward-sim: the paper's simulation of forward mode. One gradient g by reverse mode, then literally
 *
 *     G = (1/rv) sum_r (u_r . g) u_r                       whole: one u over all coordinates
 *     G_l = (1/rv) sum_r (u_{l,r} . g_l) u_{l,r}           per-tensor: the same for every tensor l by itself
 *
 * A slope needs all of its direction before the direction can be used, so a few directions at a time are written out:
 * tasks (direction, piece) draw and take u.g tile by tile, then tasks (piece) of G add the directions, tile by tile.
 * Every number is drawn once. What is kept is up to 8 directions while they fit a cache, one direction for large d.
 * Drawing again instead of keeping was tried: 2.0 ns a number against 1.25 at d = 11 million, where one direction is
 * 45 MB, and 1.9 against 1.03 at d = 7850 (one Zen core, normals by themselves 0.85).
 *
 * Where no loss depends on x (f->idle) directions have no part.
 *
 * Sphere: u = s z with s = sqrt(n)/|z|, n numbers, so (u.g) u = s^2 (z.g) z: |z|^2 is taken along with z.g, no pass of
 * its own.
 */
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"

enum {
    TILE = 2048,    /* drawn, used and added in the first-level cache */
    PIECE = 32768,  /* numbers of a task */
    GROUP = 8,      /* directions written out together, */
    KEEP = 1 << 20, /* as long as they are at most so many numbers: 4 MiB */
};

typedef struct sim_job {
    const hdo_dirs *u;
    int first, k; /* directions first .. first + k - 1 */
    size_t lo, hi;
    int pieces;
    double live;            /* sphere: numbers of a direction that are drawn; 0: not on the sphere */
    const float *g;         /* (d) the gradient */
    float *dir;             /* (k, hi - lo) */
    double *along, *length; /* (k, pieces) parts of z.g and |z|^2 */
    double c[GROUP];        /* what the directions are multiplied with */
    float *out;
} sim_job;

static int group_size(size_t d) {
    size_t n = KEEP / d;
    return n > GROUP ? GROUP : n < 1 ? 1 : (int)n;
}

static size_t piece_count(size_t len) {
    return (len + PIECE - 1) / PIECE;
}

static size_t sim_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)s;
    (void)batch;
    size_t group = (size_t)group_size(f->d);
    return hdo__arena_round(f->d * sizeof(float)) + hdo__arena_round(group * f->d * sizeof(float)) +
           2 * hdo__arena_round(group * piece_count(f->d) * sizeof(double));
}

static void draw_task(void *ctx, int task, hdo_work *w) {
    const sim_job *j = ctx;
    int r = task / j->pieces, piece = task % j->pieces;
    size_t n = j->hi - j->lo, off = (size_t)piece * PIECE, end = n - off < PIECE ? n : off + PIECE;
    float *dir = j->dir + (size_t)r * n;
    double along = 0.0, length = 0.0;
    (void)w;
    for (size_t at = j->lo + off, len; (len = hdo__outside(j->u->idle, &at, j->lo + end, TILE)) > 0; at += len) {
        float *z = dir + (at - j->lo);
        hdo__dirs_fill(j->u, j->first + r, at, len, z);
        along += hdo__dot(len, z, j->g + at);
        if (j->live > 0.0) length += hdo__sumsq(len, z);
    }
    j->along[task] = along;
    j->length[task] = length;
}

static void add_task(void *ctx, int piece, hdo_work *w) {
    const sim_job *j = ctx;
    size_t n = j->hi - j->lo, off = (size_t)piece * PIECE, end = n - off < PIECE ? n : off + PIECE;
    (void)w;
    for (size_t at = j->lo + off, len; (len = hdo__outside(j->u->idle, &at, j->lo + end, TILE)) > 0; at += len)
        for (int r = 0; r < j->k; r++)
            hdo__axpy(len, (float)j->c[r], j->dir + (size_t)r * n + (at - j->lo), j->out + at);
}

static void add_group(sim_job *j, double rv, hdo_team *team) {
    hdo__team_run(team, j->k * j->pieces, draw_task, j);
    for (int r = 0; r < j->k; r++) {
        double along = 0.0, length = 0.0;
        for (int p = 0; p < j->pieces; p++) {
            along += j->along[r * j->pieces + p];
            length += j->length[r * j->pieces + p];
        }
        double s2 = !(j->live > 0.0) ? 1.0 : length > 0.0 ? j->live / length : 0.0;
        j->c[r] = s2 * along / rv;
    }
    hdo__team_run(team, j->pieces, add_task, j);
}

static hdo_status sim_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                               float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena), pieces = piece_count(f->d);
    int group = group_size(f->d);
    float *grad = hdo__arena_floats(w->arena, f->d);
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->grad(f, q->batch, q->x, w, grad, &info->loss, f->n_buf > 0 ? g + f->d : NULL);
    hdo_dirs u = hdo__request_dirs(s, f, q);
    sim_job j = {.u = &u, .g = grad, .out = g};
    bool sphere = u.dist == HDO_DIST_SPHERE;
    if (sphere) u.dist = HDO_DIST_GAUSSIAN;
    j.dir = hdo__arena_floats(w->arena, (size_t)group * f->d);
    j.along = hdo__arena_doubles(w->arena, (size_t)group * pieces);
    j.length = hdo__arena_doubles(w->arena, (size_t)group * pieces);
    memset(g, 0, f->d * sizeof(float));
    for (int b = 0; b < hdo__block_count(s, f) && st == HDO_OK; b++) {
        hdo_block block = hdo__block_at(s, f, b);
        j.lo = block.lo;
        j.hi = block.hi;
        j.pieces = (int)piece_count(block.hi - block.lo);
        j.live = sphere ? (double)hdo__count_outside(u.idle, block.lo, block.hi) : 0.0;
        for (j.first = 0; j.first < s->rv && st == HDO_OK; j.first += group) {
            if (hdo__request_given_up(q)) st = HDO_E_STOPPED;
            j.k = s->rv - j.first < group ? s->rv - j.first : group;
            add_group(&j, s->rv, w->team);
        }
    }
    hdo__info_simulated(s, f, info);
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_forward_sim = {
    .name = "forward-sim",
    .help = "forward mode as the paper simulates it: one gradient, then rv literal random vectors",
    .needs = HDO_CAN_GRAD,
    .zeroth = true,
    .family = HDO_EST_FORWARD,
    .work_bytes = sim_work_bytes,
    .estimate = sim_estimate,
};
