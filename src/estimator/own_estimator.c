/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimators of one's own (<hdo/estimator.h>): the table of ops over the user's table, and the oracle its callback
 * asks. The oracle counts passes as our estimators do. Points and directions that the user has as vectors go to the
 * objective as directions that are given (HDO_DIST_GIVEN): a point p is 0 + 1 p.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/vec.h"
#include "config/own_call.h"
#include "estimator/estimator.h"
#include "hdo/hdo.h"

#define SCRATCH_MAX ((size_t)1 << 32)
#define SCRATCH_PER_DIM_MAX ((size_t)1 << 20)

typedef struct own_ops { /* hangs on the table: the table's `more` */
    hdo_estimator_ops ops;
    hdo_table_def *table;
} own_ops;

struct hdo_oracle {
    const hdo_estimator *s;
    const hdo_objective *f;
    const hdo_request *q;
    hdo_work *w;
    hdo_estimate_info *info;
    void *scratch;
    const float *zero; /* (d) */
    hdo_status st;     /* of the last question that failed */
    double sum;        /* of all losses, for their mean where none is at x */
    int64_t losses;
    bool at_x; /* info->loss is the loss at x */
};

/* ---- what an estimate may ask ---- */

static int answer(hdo_oracle *o, hdo_status st) {
    if (st == HDO_OK) return 0;
    o->st = st;
    return st == HDO_E_SKIPPED ? 1 : -1;
}

/* A question that makes no sense. */
static int wrong(hdo_oracle *o) {
    return o != NULL ? answer(o, HDO_E_MISUSE) : -1;
}

static void note_loss(hdo_oracle *o, const float *x, double loss) {
    o->sum += loss;
    o->losses++;
    if (o->at_x || x == NULL || memcmp(x, o->q->x, o->f->d * sizeof(float)) != 0) return;
    o->info->loss = loss;
    o->at_x = true;
}

size_t hdo_oracle_dim(const hdo_oracle *o) {
    return o != NULL ? o->f->d : 0;
}

int hdo_oracle_rv(const hdo_oracle *o) {
    return o != NULL ? o->s->rv : 0;
}

double hdo_oracle_nu(const hdo_oracle *o) {
    return o != NULL ? hdo__request_nu(o->s, o->f, o->q) : 0.0;
}

double hdo_oracle_rate(const hdo_oracle *o) {
    return o != NULL ? o->q->eta : 0.0;
}

void *hdo_oracle_scratch(hdo_oracle *o) {
    return o != NULL ? o->scratch : NULL;
}

int hdo_oracle_loss(hdo_oracle *o, const float *x, double *loss) {
    if (o == NULL || x == NULL || loss == NULL) return wrong(o);
    o->info->forward++;
    o->info->cost++;
    hdo_status st = o->f->ops->loss(o->f, o->q->batch, x, o->w, loss, NULL);
    if (st == HDO_OK) note_loss(o, x, *loss);
    return answer(o, st);
}

/* As many at once as the arena was sized for. */
static int at_once(const hdo_oracle *o) {
    return o->s->rv < 1 ? 1 : o->s->rv < HDO_DIRS_AT_ONCE ? o->s->rv : HDO_DIRS_AT_ONCE;
}

int hdo_oracle_losses(hdo_oracle *o, const float *points, size_t stride, int count, double *loss) {
    if (o == NULL || points == NULL || loss == NULL || count < 0 || stride < o->f->d) return wrong(o);
    hdo_dirs u = {.dist = HDO_DIST_GIVEN, .d = o->f->d, .given = points, .stride = stride};
    hdo_status st = HDO_OK;
    o->info->forward += count;
    o->info->cost += count;
    for (int first = 0, k; first < count && st == HDO_OK; first += k) {
        k = count - first < at_once(o) ? count - first : at_once(o);
        st = hdo__objective_loss_many(o->f, o->q->batch, o->zero, &u, first, k, 1.0f, o->w, loss + first);
    }
    for (int r = 0; r < count && st == HDO_OK; r++) note_loss(o, NULL, loss[r]);
    return answer(o, st);
}

int hdo_oracle_gradient(hdo_oracle *o, const float *x, double *loss, float *g) {
    if (o == NULL || x == NULL || loss == NULL || g == NULL) return wrong(o);
    if (o->f->ops->grad == NULL) return answer(o, HDO_E_UNSUPPORTED);
    o->info->backward++;
    o->info->cost += HDO_COST_GRADIENT;
    hdo_status st = hdo__objective_grad(o->f, o->q->batch, x, o->w, g, loss, NULL);
    if (st == HDO_OK) note_loss(o, x, *loss);
    return answer(o, st);
}

int hdo_oracle_slopes(hdo_oracle *o, const float *x, const float *directions, size_t stride, int count, double *loss,
                      double *slope) {
    if (o == NULL || x == NULL || directions == NULL || loss == NULL || slope == NULL || count < 0 || stride < o->f->d)
        return wrong(o);
    if (o->f->ops->jvp == NULL) return answer(o, HDO_E_UNSUPPORTED);
    hdo_dirs u = {.dist = HDO_DIST_GIVEN, .d = o->f->d, .given = directions, .stride = stride};
    hdo_status st = HDO_OK;
    o->info->jvp += count;
    o->info->cost += (int64_t)count * HDO_COST_JVP;
    for (int first = 0, k; first < count && st == HDO_OK; first += k) {
        k = count - first < at_once(o) ? count - first : at_once(o);
        st = o->f->ops->jvp(o->f, o->q->batch, x, &u, first, k, o->w, loss, slope + first, NULL);
    }
    if (st == HDO_OK && count > 0) note_loss(o, x, *loss);
    return answer(o, st);
}

int hdo_oracle_direction(hdo_oracle *o, int r, float *u) {
    if (o == NULL || u == NULL || r < 0) return wrong(o);
    hdo_dirs dirs = hdo__request_dirs(o->s, o->f, o->q);
    float scale;
    if (dirs.dist == HDO_DIST_SPHERE) {
        dirs.scale_from = r;
        hdo__dirs_sphere_scale(&dirs, 1, &scale);
        dirs.scale = &scale;
    }
    hdo__dirs_fill(&dirs, r, 0, o->f->d, u);
    return 0;
}

int hdo_oracle_normals(hdo_oracle *o, uint32_t stream, size_t count, float *z) {
    if (o == NULL || (z == NULL && count > 0)) return wrong(o);
    hdo_stream s = hdo__stream(o->q->seed, HDO_RNG_OWN, o->q->node, (uint64_t)o->q->step, stream);
    if (count > 0) hdo__rng_normal(s, 0, count, z);
    return 0;
}

/* ---- the table ---- */

static size_t scratch_bytes(const hdo_estimator_def *def, size_t d) {
    return def->scratch + def->scratch_per_dim * d;
}

static size_t own_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    const own_ops *own = (const own_ops *)(const void *)s->ops;
    (void)batch;
    return hdo__arena_round(scratch_bytes(&own->table->def.estimator, f->d)) + hdo__arena_round(f->d * sizeof(float));
}

static hdo_status own_estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w,
                               float *g, hdo_estimate_info *info) {
    const own_ops *own = (const own_ops *)(const void *)s->ops;
    const hdo_estimator_def *def = &own->table->def.estimator;
    size_t mark = hdo__arena_mark(w->arena);
    float *zero = hdo__arena_floats(w->arena, f->d);
    memset(zero, 0, f->d * sizeof(float));
    hdo_oracle o = {.s = s, .f = f, .q = q, .w = w, .info = info, .zero = zero};
    o.scratch = hdo__arena_take(w->arena, scratch_bytes(def, f->d));
    hdo__keep_buffers(f, q, g);
    hdo_caller k;
    hdo__call_begin(&k, own->table, (int64_t)q->node, q->step, q->seed, w->thread);
    int result = def->estimate(own->table->user, &k.call, &o, q->x, g);
    bool passed_on = result != 0 && o.st != HDO_OK && o.st != HDO_E_MISUSE;
    hdo_status st = hdo__call_end(&k, passed_on ? 0 : result, q->complaint);
    if (passed_on) st = o.st;
    if (!o.at_x) info->loss = o.losses > 0 ? o.sum / (double)o.losses : 0.0;
    hdo__arena_rewind(w->arena, mark);
    return st;
}

/* ---- bringing one ---- */

static unsigned needs_of(const hdo_estimator_def *def) {
    unsigned can = HDO_CAN_LOSS;
    if ((def->needs & HDO_NEED_GRADIENT) != 0) can |= HDO_CAN_GRAD;
    if ((def->needs & HDO_NEED_SLOPES) != 0) can |= HDO_CAN_JVP;
    return can;
}

static hdo_status check(const hdo_estimator_def *d, hdo_error *e) {
    enum { ALL_NEEDS = HDO_NEED_LOSS | HDO_NEED_LOSSES | HDO_NEED_GRADIENT | HDO_NEED_SLOPES };
    if (d->estimate == NULL)
        return hdo__fail(e, HDO_E_MISUSE, "the table of estimator '%s' has no 'estimate', which is required", d->name);
    if ((d->needs & ~(unsigned)ALL_NEEDS) != 0)
        return hdo__fail(e, HDO_E_MISUSE, "the table of estimator '%s' has needs %#x, but only HDO_NEED_... are known",
                         d->name, d->needs);
    if (d->scratch > SCRATCH_MAX || d->scratch_per_dim > SCRATCH_PER_DIM_MAX)
        return hdo__fail(e, HDO_E_MISUSE,
                         "the table of estimator '%s' asks for %zu bytes of scratch and %zu for each number", d->name,
                         d->scratch, d->scratch_per_dim);
    return HDO_OK;
}

hdo_status hdo_config_use_estimator(hdo_config *c, const hdo_estimator_def *def, void *user, hdo_error *e) {
    hdo_estimator_def d;
    if (c == NULL || def == NULL) return hdo__misuse(e, "hdo_config_use_estimator", "a configuration and a table");
    hdo__own_read(&d, sizeof d, def);
    hdo_own_args a = HDO_OWN_ARGS(HDO_OWN_ESTIMATOR, d, def, user);
    hdo_status st = hdo__own_check_head(&a, e);
    if (st == HDO_OK) st = check(&d, e);
    if (st != HDO_OK) return st;
    own_ops *own = calloc(1, sizeof *own);
    if (own == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the table of an estimator");
    st = hdo__own_bring(c, &a, &own->table, e);
    if (st != HDO_OK) {
        free(own);
        return st;
    }
    bool gradient = (d.needs & HDO_NEED_GRADIENT) != 0, slopes = (d.needs & HDO_NEED_SLOPES) != 0;
    own->ops = (hdo_estimator_ops){.name = own->table->name,
                                   .help = "an estimator of one's own",
                                   .needs = needs_of(&d),
                                   .zeroth = d.uses_directions != 0,
                                   .difference = !gradient && !slopes,
                                   .family = gradient ? HDO_EST_GRADIENT
                                             : slopes ? HDO_EST_FORWARD
                                                      : HDO_EST_ONE_SIDED,
                                   .work_bytes = own_work_bytes,
                                   .estimate = own_estimate};
    own->table->more = own;
    return HDO_OK;
}

const hdo_estimator_ops *hdo__estimator_of(const hdo_config *c, const char *name) {
    const hdo_table_def *t = hdo__own_find(c->own, HDO_OWN_ESTIMATOR, name);
    return t != NULL ? &((const own_ops *)t->more)->ops : hdo__estimator_find(name);
}
