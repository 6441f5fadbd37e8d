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
 * Two passes over pieces of 32768 numbers, the tasks of the team: draw z and take z.g and |g|^2 while both are in the
 * cache, then the linear combination. Partial sums are added in the order of the pieces.
 */
#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"

enum { PIECE = 32768, INNER = 2048 }; /* INNER: z and g meet in the first-level cache */

typedef struct law_job {
    const hdo_dirs *u;
    size_t lo, hi;
    const float *g;        /* (d) the gradient */
    float *out;            /* (d) z, then the estimate */
    double *along, *norm2; /* per piece: z.g and |g|^2 */
    float a, b;            /* estimate = a g + b z */
} law_job;

static size_t piece_count(size_t len) {
    return (len + PIECE - 1) / PIECE;
}

static size_t law_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    (void)s;
    (void)batch;
    return hdo__arena_round(f->d * sizeof(float)) + 2 * hdo__arena_round(piece_count(f->d) * sizeof(double));
}

static void draw_task(void *ctx, int task, hdo_work *w) {
    const law_job *j = ctx;
    size_t off = j->lo + (size_t)task * PIECE, end = j->hi - off < PIECE ? j->hi : off + PIECE;
    double along = 0.0, norm2 = 0.0;
    (void)w;
    for (size_t len; off < end; off += len) {
        len = end - off < INNER ? end - off : INNER;
        hdo__dirs_fill(j->u, 0, off, len, j->out + off);
        along += hdo__dot(len, j->out + off, j->g + off);
        norm2 += hdo__sumsq(len, j->g + off);
    }
    j->along[task] = along;
    j->norm2[task] = norm2;
}

static void mix_task(void *ctx, int task, hdo_work *w) {
    const law_job *j = ctx;
    size_t off = j->lo + (size_t)task * PIECE, len = j->hi - off < PIECE ? j->hi - off : PIECE;
    (void)w;
    hdo__axpby(len, j->a, j->g + off, j->b, j->out + off);
}

static void draw_block(law_job *j, double rv, double chi, hdo_team *team) {
    int pieces = (int)piece_count(j->hi - j->lo);
    double along = 0.0, norm2 = 0.0;
    hdo__team_run(team, pieces, draw_task, j);
    for (int k = 0; k < pieces; k++) {
        along += j->along[k];
        norm2 += j->norm2[k];
    }
    if (!(norm2 > 0.0)) { /* g = 0 gives G = 0; a NaN gradient stays visible */
        memcpy(j->out + j->lo, j->g + j->lo, (j->hi - j->lo) * sizeof(float));
        return;
    }
    double norm = sqrt(norm2), root = sqrt(chi);
    j->a = (float)((chi - root * along / norm) / rv);
    j->b = (float)(norm * root / rv);
    hdo__team_run(team, pieces, mix_task, j);
}

static hdo_status law_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                               float *g, hdo_estimate_info *info) {
    size_t mark = hdo__arena_mark(w->arena), pieces = piece_count(f->d);
    float *grad = hdo__arena_floats(w->arena, f->d);
    hdo_dirs u = hdo__request_dirs(s, f, q);
    law_job j = {.u = &u, .g = grad, .out = g};
    j.along = hdo__arena_doubles(w->arena, pieces);
    j.norm2 = hdo__arena_doubles(w->arena, pieces);
    hdo__keep_buffers(f, q, g);
    hdo_status st = f->ops->grad(f, q->batch, q->x, w, grad, &info->loss, f->n_buf > 0 ? g + f->d : NULL);
    for (int b = 0; b < hdo__block_count(s, f) && st == HDO_OK; b++) {
        hdo_block block = hdo__block_at(s, f, b);
        j.lo = block.lo;
        j.hi = block.hi;
        draw_block(&j, s->rv, hdo__rng_chi2(hdo__sibling_stream(&u, HDO_RNG_CHI), (uint64_t)b, s->rv), w->team);
    }
    info->backward = 1;
    hdo__arena_rewind(w->arena, mark);
    return st;
}

const hdo_estimator_ops hdo__est_forward_law = {
    .name = "forward-law",
    .help = "the law of forward-sim from one Gaussian vector, O(d) whatever rv",
    .needs = HDO_CAN_GRAD,
    .zeroth = true,
    .gaussian = true,
    .theory = HDO_THEORY_FM,
    .work_bytes = law_work_bytes,
    .estimate = law_estimate,
};
