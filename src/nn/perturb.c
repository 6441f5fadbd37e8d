/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes along directions: forward mode in groups of tangents that share one primal, complex points, which share
 * nothing because the real part depends on the direction too, and perturbed losses. Directions
 * are addressed, never stored beyond the task: small networks write out the ones a task works on, large ones ask for
 * slices inside their layers.
 */
#include <assert.h>
#include <string.h>

#include "base/vec.h"
#include "kernels/cplx.h"
#include "nn/walk.h"

typedef struct dir_job {
    const hdo_net *net;
    const hdo_net_samples *s;
    const float *x;
    const hdo_dirs *u;
    int first, k;
    double nu;
    double *sum;   /* loss_many: (k); jvp: (1) */
    double *slope; /* (k) */
    float *stats_out;
    bool wide;
} dir_job;

/* ---- jvp: tasks are groups of directions; complex points: tasks are directions ---- */

/* The pass of a task along G directions from first + r0 on. */
static hdo_pass pass_along(const dir_job *j, int r0, int G, hdo_work *w) {
    hdo_pass p = hdo__pass_init(j->net, j->s, j->x, w);
    p.u = j->u;
    p.r = j->first + r0;
    p.G = G;
    if (j->net->small) {
        size_t d = j->net->params.total;
        float *du = hdo__arena_floats(w->arena, (size_t)G * d);
        for (int r = 0; r < G; r++) hdo__dirs_fill(j->u, p.r + r, 0, d, du + (size_t)r * d);
        p.du = du;
    }
    return p;
}

/* Samples of a chunk and of a run through the front: all of them where directions are not written out. */
static void cut(const hdo_net *net, const hdo_net_samples *s, int *chunk, int *sub) {
    bool one = hdo__whole_batch(net, s) || !net->small;
    *chunk = one || s->size < net->chunk ? s->size : net->chunk;
    *sub = one ? s->size : net->jsub;
}

static void jvp_task(void *ctx, int task, hdo_work *w) {
    dir_job *j = ctx;
    const hdo_net *net = j->net;
    int r0 = task * net->group, G = j->k - r0 < net->group ? j->k - r0 : net->group, size = j->s->size, chunk, sub;
    cut(net, j->s, &chunk, &sub);
    hdo_pass p = pass_along(j, r0, G, w);
    p.stats_out = task == 0 ? j->stats_out : NULL;
    float *z = hdo__arena_floats(w->arena, (size_t)chunk * (size_t)net->classes);
    float *tz = hdo__arena_floats(w->arena, (size_t)chunk * (size_t)net->classes * (size_t)G);
    double slope[HDO_GROUP_MAX] = {0}, sum = 0;
    for (int lo = 0; lo < size; lo += chunk) {
        int n = size - lo < chunk ? size - lo : chunk;
        hdo__chunk_tangent(&p, lo, n, sub, z, tz);
        sum += hdo__xent_jvp(n, net->classes, z, j->s->label + lo, G, tz, slope);
    }
    for (int r = 0; r < G; r++) j->slope[r0 + r] = slope[r] / (double)size;
    if (task == 0) *j->sum = sum;
}

void hdo__net_jvp(const hdo_net *net, const hdo_net_samples *s, const float *x, const hdo_dirs *u, int first, int k,
                  hdo_work *w, double *sum, double *slope, float *stats_out) {
    assert(k >= 1);
    dir_job j = {.net = net, .s = s, .x = x, .u = u, .first = first, .k = k, .sum = sum, .slope = slope};
    bool updates = stats_out != NULL && hdo__whole_batch(net, s);
    j.stats_out = updates ? stats_out : NULL;
    hdo__team_run(w->team, hdo__chunks(k, net->group), jvp_task, &j);
    if (stats_out != NULL && !updates && net->buffers.total > 0)
        memcpy(stats_out, x + net->params.total, net->buffers.total * sizeof(float));
}

static void complex_task(void *ctx, int r, hdo_work *w) {
    dir_job *j = ctx;
    const hdo_net *net = j->net;
    int size = j->s->size, chunk, sub;
    cut(net, j->s, &chunk, &sub);
    hdo_pass p = pass_along(j, r, 1, w);
    p.nu = j->nu;
    float *a = hdo__arena_floats(w->arena, (size_t)chunk * (size_t)net->classes);
    float *t = hdo__arena_floats(w->arena, (size_t)chunk * (size_t)net->classes);
    double sum = 0;
    for (int lo = 0; lo < size; lo += chunk) {
        int n = size - lo < chunk ? size - lo : chunk;
        hdo__chunk_tangent(&p, lo, n, sub, a, t);
        sum += hdo__cplx_xent(n, net->classes, p.nu, a, t, j->s->label + lo);
    }
    j->slope[r] = sum / (double)size;
}

void hdo__net_complex(const hdo_net *net, const hdo_net_samples *s, const float *x, const hdo_dirs *u, int first, int k,
                      double nu, hdo_work *w, double *slope) {
    assert(k >= 1 && nu > 0.0);
    dir_job j = {.net = net, .s = s, .x = x, .u = u, .first = first, .k = k, .nu = nu, .slope = slope};
    hdo__team_run(w->team, k, complex_task, &j);
}

/* ---- loss_many: tasks are directions ---- */

/* Masks of perturbed evaluation r: those of the batch, or (fresh) others for every evaluation. */
static uint64_t mask_seed(const hdo_net *net, const hdo_net_samples *s, int r) {
    return net->fresh ? s->seed + 0x9e3779b97f4a7c15u * ((uint64_t)r + 1) : s->seed;
}

static double perturbed_loss(const dir_job *j, int r, hdo_work *w) {
    const hdo_net *net = j->net;
    hdo_pass p = hdo__pass_init(net, j->s, j->x, w);
    size_t mark = hdo__arena_mark(w->arena), d = net->params.total;
    int size = j->s->size;
    bool one = hdo__whole_batch(net, j->s) || !net->small;
    p.mask_seed = mask_seed(net, j->s, j->first + r);
    p.wide = j->wide;
    if (net->small) {
        float *xp = hdo__arena_floats(w->arena, d);
        hdo__dirs_fill(j->u, j->first + r, 0, d, xp);
        hdo__axpby(d, 1.0f, j->x, (float)j->nu, xp); /* x + nu u */
        p.x = xp;
    } else {
        p.u = j->u;
        p.r = j->first + r;
        p.nu = j->nu;
    }
    double sum = 0;
    if (one) {
        sum = hdo__chunk_loss(&p, 0, size, size, NULL);
    } else {
        for (int lo = 0; lo < size; lo += net->chunk)
            sum += hdo__chunk_loss(&p, lo, size - lo < net->chunk ? size - lo : net->chunk, net->sub, NULL);
    }
    hdo__arena_rewind(w->arena, mark);
    return sum;
}

static void many_task(void *ctx, int r, hdo_work *w) {
    dir_job *j = ctx;
    j->sum[r] = perturbed_loss(j, r, w);
}

/* Directions of low rank: tasks are groups of them that walk together. */
static void group_task(void *ctx, int task, hdo_work *w) {
    dir_job *j = ctx;
    const hdo_net *net = j->net;
    int r0 = task * net->group, G = j->k - r0 < net->group ? j->k - r0 : net->group, size = j->s->size, chunk, sub;
    size_t classes = (size_t)net->classes;
    cut(net, j->s, &chunk, &sub);
    hdo_pass p = hdo__pass_init(net, j->s, j->x, w);
    p.u = j->u;
    p.r = j->first + r0;
    p.G = G;
    p.nu = j->nu;
    p.many = true;
    float *z = hdo__arena_floats(w->arena, (size_t)chunk * classes * (size_t)(G + 1)),
          *tz = z + (size_t)chunk * classes;
    for (int r = 0; r < G; r++) j->sum[r0 + r] = 0;
    for (int lo = 0; lo < size; lo += chunk) {
        int n = size - lo < chunk ? size - lo : chunk;
        hdo__chunk_tangent(&p, lo, n, sub, z, tz);
        for (int r = 0; r < G; r++)
            j->sum[r0 + r] +=
                hdo__xent_loss(n, net->classes, tz + (size_t)r * (size_t)n * classes, j->s->label + lo, NULL);
    }
}

void hdo__net_loss_many(const hdo_net *net, const hdo_net_samples *s, const float *x, const hdo_dirs *u, int first,
                        int k, float nu, hdo_work *w, double *sum) {
    assert(k >= 1);
    dir_job j = {.net = net, .s = s, .x = x, .u = u, .first = first, .k = k, .nu = (double)nu, .sum = sum};
    /* Small convolutions have few weights to perturb and many results to correct: direction by direction. */
    bool together = !net->small || net->cut == 0;
    if (together && u->rank > 0 && u->rank <= net->rank && !net->fresh) {
        hdo__team_run(w->team, (k + net->group - 1) / net->group, group_task, &j);
        return;
    }
    if (k == 1 && hdo__whole_batch(net, s)) {
        j.wide = true;
        sum[0] = perturbed_loss(&j, 0, w); /* the team works inside the layers */
        return;
    }
    hdo__team_run(w->team, k, many_task, &j);
}
