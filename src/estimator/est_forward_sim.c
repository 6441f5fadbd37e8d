/* SPDX-License-Identifier: Apache-2.0
 *
 * forward-sim: the paper's simulation of forward mode. One gradient g by reverse mode, then literally
 *
 *     G = (1/rv) sum_r (u_r . g) u_r                       whole: one u over all coordinates
 *     G_l = (1/rv) sum_r (u_{l,r} . g_l) u_{l,r}           per-tensor: the same for every tensor l by itself
 *
 * A slope needs all of its direction before the direction can be used. Two ways, the same directions, by size:
 *
 *   small d   A few directions at a time are written out: one task a direction draws it and takes u.g tile by tile,
 *             then one task a tile of G adds them. Every number is drawn once; what is kept fits a cache.
 *   large d   Slopes first, drawing and forgetting; then the tile pass that all estimators share draws again. Drawing
 *             twice costs about what writing a long direction to memory and reading it back would, without the memory.
 */
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"

enum {
    TILE = 2048,
    GROUP = 8,     /* directions written out together */
    KEEP = 1 << 20 /* numbers they may have together: 4 MiB; measured with bench_estimator */
};

typedef struct sim_job {
    const hdo_dirs *u;
    int first, k;
    size_t lo, hi;
    const float *g; /* (d) the gradient */
    float *dir;     /* (k, hi - lo), or NULL: not kept */
    double *c;      /* (k) slopes */
    double rv;
    float *out;
} sim_job;

static int group_size(size_t d) {
    size_t n = KEEP / d;
    return n > GROUP ? GROUP : (int)n; /* 0: large d */
}

static size_t sim_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)s;
    (void)batch;
    size_t kept = (size_t)group_size(f->d) * f->d;
    return hdo__arena_round(f->d * sizeof(float)) + hdo__arena_round(kept * sizeof(float)) + hdo__slopes_work_bytes();
}

/* c[r] = u_r . g over the window; the direction is kept if there is room for it. */
static void slope_task(void *ctx, int r, hdo_work *w) {
    const sim_job *j = ctx;
    float tile[TILE];
    double c = 0.0;
    (void)w;
    for (size_t off = j->lo; off < j->hi; off += TILE) {
        size_t len = j->hi - off < TILE ? j->hi - off : TILE;
        float *u = j->dir != NULL ? j->dir + (size_t)r * (j->hi - j->lo) + (off - j->lo) : tile;
        hdo__dirs_fill(j->u, j->first + r, off, len, u);
        c += hdo__dot(len, u, j->g + off);
    }
    j->c[r] = c;
}

static void add_task(void *ctx, int task, hdo_work *w) {
    const sim_job *j = ctx;
    size_t off = (size_t)task * TILE, n = j->hi - j->lo, len = n - off < TILE ? n - off : TILE;
    (void)w;
    for (int r = 0; r < j->k; r++) {
        hdo__axpy(len, (float)(j->c[r] / j->rv), j->dir + (size_t)r * n + off, j->out + j->lo + off);
    }
}

static void small_block(sim_job *j, const hdo_estimator *s, hdo_dirs *u, int group, hdo_team *team, float *scale) {
    for (j->first = 0; j->first < s->rv; j->first += group) {
        j->k = s->rv - j->first < group ? s->rv - j->first : group;
        hdo__scale_directions(u, j->first, j->k, team, scale);
        hdo__team_run(team, j->k, slope_task, j);
        hdo__team_run(team, (int)((j->hi - j->lo + TILE - 1) / TILE), add_task, j);
    }
}

typedef struct large_ctx {
    const float *g;
    hdo_work *w;
} large_ctx;

static hdo_status large_slopes(void *ctx, const hdo_dirs *u, int first, int k, double *slope) {
    const large_ctx *c = ctx;
    sim_job j = {.u = u, .first = first, .k = k, .lo = u->lo, .hi = u->hi, .g = c->g, .c = slope};
    hdo__team_run(c->w->team, k, slope_task, &j);
    return HDO_OK;
}

static hdo_status sim_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                               float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena);
    int group = group_size(f->d);
    float *grad = hdo__arena_floats(w->arena, f->d);
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->grad(f, q->batch, q->x, w, grad, &info->loss, f->n_buf > 0 ? g + f->d : NULL);
    info->backward = 1;
    if (st == HDO_OK && group == 0) {
        large_ctx c = {grad, w};
        st = hdo__estimate_slopes(s, f, q, w, large_slopes, &c, g);
    } else if (st == HDO_OK) {
        float *dir = hdo__arena_floats(w->arena, (size_t)group * f->d);
        double c[GROUP];
        float scale[GROUP];
        memset(g, 0, f->d * sizeof(float));
        for (int b = 0; b < hdo__block_count(s, f); b++) {
            hdo_block block = hdo__block_at(s, f, b);
            hdo_dirs u = hdo__request_dirs(s, f, q);
            u.lo = block.lo;
            u.hi = block.hi;
            sim_job j = {.u = &u, .lo = u.lo, .hi = u.hi, .g = grad, .dir = dir, .c = c, .rv = s->rv, .out = g};
            small_block(&j, s, &u, group, w->team, scale);
        }
    }
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_forward_sim = {
    .name = "forward-sim",
    .help = "forward mode as the paper simulates it: one gradient, then rv literal random vectors",
    .needs = HDO_CAN_GRAD,
    .zeroth = true,
    .theory = HDO_THEORY_FM,
    .work_bytes = sim_work_bytes,
    .estimate = sim_estimate,
};
