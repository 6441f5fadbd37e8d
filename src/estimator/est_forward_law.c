/* SPDX-License-Identifier: Apache-2.0
 *
 * forward-law: the random variable of forward-sim, exactly in law, from ONE Gaussian vector (docs/theory.md, section on
 * exact sampling). With chi ~ chi-square(rv) and z ~ N(0, I) independent,
 *
 *     (1/rv) sum_r (u_r . g) u_r  =law=  ((chi - sqrt(chi) z.ghat) / rv) g  +  (|g| sqrt(chi) / rv) z,  ghat = g/|g|.
 *
 * O(d) whatever rv. Per tensor: the same for every tensor with its own chi. It uses the gradient, so it simulates a
 * forward-mode node at first-order cost; a device that cannot back-propagate uses fd or forward.
 *
 * z is needed only together with z.g, which would take two walks over all of z. But z.g is a sum over tiles of g, and
 * its terms are independent normals: they are drawn first, and each tile of z is then drawn given its term,
 *
 *     z_t = n_t + ((s_t - n_t.g_t) / |g_t|^2) g_t,    n_t ~ N(0, I),  s_t ~ N(0, |g_t|^2),
 *
 * which has the law of z and z_t.g_t = s_t. So g is read once for its norms and once to be replaced by the estimate, z
 * never leaves the first-level cache, and there is no second vector. Sums are taken in the order of the tiles. Tiles no
 * loss depends on (f->idle) are passed over.
 *
 * A tile with |g_t| <= 2^-52 |g| keeps z_t = n_t. What it has in common with z.g is s_t/|g|, less than one rounding of
 * the sum z.ghat in double, so the law is the same, and nothing is divided by the norm of a tile that underflows: the
 * factor of g stays below 2^53 (|z_t| + sqrt(chi)), whatever the gradient. Such tiles are the rule in softmax
 * regression with saturated classes, whose gradients are denormal beside others of order one.
 */
#include <math.h>

#include "base/vec.h"
#include "estimator/estimator.h"

enum { TILE = 2048, TILES_PER_TASK = 16 };
/* Numbers drawn between two requests for g, and how long a vector must be (1 MB) for g to be in memory by then. */
enum { PART = 512, FAR = 1 << 18, LINE = 64 / sizeof(float) };

typedef struct law_job {
    const hdo_dirs *u;
    hdo_stream along; /* of the s_t, addressed by the first coordinate of the tile */
    size_t lo, hi;
    float *g;          /* (d) the gradient, then the estimate */
    double *norm2, *s; /* per tile */
    double a, b;       /* estimate = a g + b z */
    double least;      /* tiles with |g_t|^2 up to this have no visible part in z.g */
} law_job;

static size_t tile_count(size_t len) {
    return (len + TILE - 1) / TILE;
}

static size_t law_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)s;
    (void)batch;
    return 2 * hdo__arena_round(tile_count(f->d) * sizeof(double));
}

typedef struct tile {
    size_t index, off, len;
} tile;

static tile tile_at(const law_job *j, size_t index) {
    size_t off = j->lo + index * TILE;
    return (tile){index, off, j->hi - off < TILE ? j->hi - off : TILE};
}

static size_t last_of(const law_job *j, int task) {
    size_t all = tile_count(j->hi - j->lo), last = ((size_t)task + 1) * TILES_PER_TASK;
    return last < all ? last : all;
}

static void norm_task(void *ctx, int task, hdo_work *w) {
    const law_job *j = ctx;
    (void)w;
    for (size_t k = (size_t)task * TILES_PER_TASK; k < last_of(j, task); k++) {
        tile t = tile_at(j, k);
        j->norm2[k] = j->s[k] = 0.0;
        if (hdo__all_inside(j->u->idle, t.off, t.len)) continue;
        hdo__ranges_clear(j->u->idle, t.off, t.off + t.len, j->g);
        j->norm2[k] = hdo__sumsq(t.len, j->g + t.off);
        j->s[k] = sqrt(j->norm2[k]) * hdo__rng_gauss(j->along, t.off);
    }
}

/* The normals of a tile. Making them leaves memory unused, so g is asked for meanwhile, a part at a time: all lines at
 * once would wait for each other. With 11 M coordinates that saves a tenth of the walk. Parts end at multiples of PART,
 * where slices have no ragged ends. */
static void draw_tile(const law_job *j, tile t, float *z) {
    if (j->hi - j->lo <= FAR) {
        hdo__dirs_fill(j->u, 0, t.off, t.len, z);
        return;
    }
    for (size_t off = t.off, end = t.off + t.len, to; off < end; off = to) {
        to = off / PART * PART + PART < end ? off / PART * PART + PART : end;
        for (size_t i = off; i < to; i += LINE) __builtin_prefetch(j->g + i, 1);
        hdo__dirs_fill(j->u, 0, off, to - off, z + (off - t.off));
    }
}

static void mix_task(void *ctx, int task, hdo_work *w) {
    const law_job *j = ctx;
    _Alignas(HDO_ALIGN) float z[TILE];
    (void)w;
    for (size_t k = (size_t)task * TILES_PER_TASK; k < last_of(j, task); k++) {
        tile t = tile_at(j, k);
        float *g = j->g + t.off;
        if (hdo__all_inside(j->u->idle, t.off, t.len)) continue;
        draw_tile(j, t, z);
        double given = j->norm2[k] > j->least ? (j->s[k] - hdo__dot(t.len, z, g)) / j->norm2[k] : 0.0;
        hdo__axpby(t.len, (float)j->b, z, (float)(j->a + j->b * given), g);
    }
}

static void draw_block(law_job *j, double rv, double chi, hdo_team *team) {
    size_t tiles = tile_count(j->hi - j->lo);
    int tasks = (int)((tiles + TILES_PER_TASK - 1) / TILES_PER_TASK);
    double along = 0.0, norm2 = 0.0;
    hdo__team_run(team, tasks, norm_task, j);
    for (size_t k = 0; k < tiles; k++) {
        along += j->s[k];
        norm2 += j->norm2[k];
    }
    if (!(norm2 > 0.0)) return; /* g = 0 gives G = 0; a NaN gradient stays visible */
    double norm = sqrt(norm2), root = sqrt(chi);
    j->a = (chi - root * along / norm) / rv;
    j->b = norm * root / rv;
    j->least = 0x1p-104 * norm2;
    hdo__team_run(team, tasks, mix_task, j);
}

static hdo_status law_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                               float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena), tiles = tile_count(f->d);
    hdo_dirs u = hdo__request_dirs(s, f, q);
    law_job j = {.u = &u, .along = hdo__sibling_stream(&u, HDO_RNG_ALONG), .g = g};
    j.norm2 = hdo__arena_doubles(w->arena, tiles);
    j.s = hdo__arena_doubles(w->arena, tiles);
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->grad(f, q->batch, q->x, w, g, &info->loss, f->n_buf > 0 ? g + f->d : NULL);
    for (int b = 0; b < hdo__block_count(s, f) && st == HDO_OK; b++) {
        hdo_block block = hdo__block_at(s, f, b);
        j.lo = block.lo;
        j.hi = block.hi;
        draw_block(&j, s->rv, hdo__rng_chi2(hdo__sibling_stream(&u, HDO_RNG_CHI), (uint64_t)b, s->rv), w->team);
    }
    hdo__info_simulated(s, f, info);
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_forward_law = {
    .name = "forward-law",
    .help = "the law of forward-sim from one Gaussian vector, O(d) whatever rv",
    .needs = HDO_CAN_GRAD,
    .zeroth = true,
    .gaussian = true,
    .family = HDO_EST_FORWARD,
    .work_bytes = law_work_bytes,
    .estimate = law_estimate,
};
