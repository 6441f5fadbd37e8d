/* SPDX-License-Identifier: Apache-2.0
 *
 * An objective over a table of one's own. Which oracles the table has decides which passes there are, and so which
 * estimators are allowed. Perturbed points are laid out in rows, as many as fit into a bounded room, and handed over in
 * one call: batching is the speed of zeroth-order nodes.
 */
#include "objective/own_objective.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "config/own_call.h"

enum { ROOM_BYTES = 1 << 23, EVAL_MODELS = 64, EVAL_BATCH = 256, LINE = HDO_ALIGN / (int)sizeof(float) };

typedef struct own {
    hdo_objective base;
    hdo_objective_ops ops; /* with the passes this table has */
    hdo_table_def *table;
    const hdo_objective_def *def;
    hdo_tensor *tensors;
    size_t ld; /* numbers from point to point */
} own;

hdo_samples hdo__own_samples(const hdo_batch *b) {
    return (hdo_samples){.struct_size = sizeof(hdo_samples),
                         .count = b->size,
                         .index = b->index,
                         .inputs = b->n_in > 0 ? b->in : NULL,
                         .tokens = b->n_in > 0 ? b->tok : NULL,
                         .labels = b->n_in > 0 ? b->label : NULL,
                         .n_in = (size_t)b->n_in,
                         .train = b->train ? 1 : 0};
}

static void begin(hdo_caller *k, const own *o, const hdo_batch *b, const hdo_work *w) {
    hdo__call_begin(k, o->table, b->node, b->train ? b->step : -1, b->seed, w->thread);
}

/* Losses at rows of points. */
static hdo_status ask_losses(const own *o, const hdo_batch *b, const float *points, size_t stride, int count,
                             const hdo_work *w, double *loss) {
    hdo_samples s = hdo__own_samples(b);
    hdo_caller k;
    int st = 0;
    begin(&k, o, b, w);
    if (o->def->losses != NULL) {
        st = o->def->losses(o->table->user, &k.call, &s, points, stride, count, loss);
    } else {
        for (int r = 0; r < count && st == 0; r++)
            st = o->def->loss(o->table->user, &k.call, &s, points + (size_t)r * stride, &loss[r]);
    }
    return hdo__call_end(&k, st, o->base.complaint);
}

static hdo_status own_loss(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, double *loss,
                           float *buf) {
    const own *o = (const own *)f;
    (void)buf;
    if (o->def->loss == NULL) return ask_losses(o, b, x, o->ld, 1, w, loss);
    hdo_samples s = hdo__own_samples(b);
    hdo_caller k;
    begin(&k, o, b, w);
    return hdo__call_end(&k, o->def->loss(o->table->user, &k.call, &s, x, loss), f->complaint);
}

static hdo_status own_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                           double *loss, float *buf) {
    const own *o = (const own *)f;
    hdo_samples s = hdo__own_samples(b);
    hdo_caller k;
    (void)buf;
    begin(&k, o, b, w);
    return hdo__call_end(&k, o->def->gradient(o->table->user, &k.call, &s, x, loss, g), f->complaint);
}

/* ---- many points ---- */

/* Rows that are laid out at once. */
static int rows_at_once(const own *o, int k) {
    size_t fit = (size_t)ROOM_BYTES / (o->ld * sizeof(float));
    return fit < 1 ? 1 : fit < (size_t)k ? (int)fit : k;
}

typedef struct many { /* directions first .. first + k, in pieces of `piece`: each a task */
    const own *o;
    const hdo_batch *b;
    const float *x;
    const hdo_dirs *u;
    int first, k, piece;
    float nu;
    double *loss, *at_x;
    hdo_status *st; /* a piece each */
} many;

/* points: x + nu u; directions: u. */
static void lay_out(const many *m, int first, int n, bool points, float *rows) {
    for (int r = 0; r < n; r++) {
        float *row = rows + (size_t)r * m->o->ld;
        hdo__dirs_fill(m->u, m->first + first + r, 0, m->o->base.d, row);
        if (points) hdo__axpby(m->o->base.d, 1.0f, m->x, m->nu, row);
    }
}

static hdo_status losses_of(const many *m, int first, int n, hdo_work *w) {
    size_t mark = hdo__arena_mark(w->arena);
    int room = rows_at_once(m->o, n);
    float *rows = hdo__arena_floats(w->arena, (size_t)room * m->o->ld);
    hdo_status st = HDO_OK;
    for (int at = first; at < first + n && st == HDO_OK; at += room) {
        int some = first + n - at < room ? first + n - at : room;
        lay_out(m, at, some, true, rows);
        st = ask_losses(m->o, m->b, rows, m->o->ld, some, w, m->loss + at);
    }
    hdo__arena_rewind(w->arena, mark);
    return st;
}

static void losses_task(void *ctx, int task, hdo_work *w) {
    const many *m = ctx;
    int first = task * m->piece, n = m->k - first < m->piece ? m->k - first : m->piece;
    m->st[task] = losses_of(m, first, n, w);
}

/* Values do not depend on how points are grouped, so pieces may follow the number of threads. */
static hdo_status own_loss_many(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                int first, int k, float nu, hdo_work *w, double *loss) {
    enum { PIECES = 64 };
    hdo_status st[PIECES] = {HDO_OK};
    int threads = w->team->threads < PIECES ? w->team->threads : PIECES;
    const own *o = (const own *)f;
    many m = {.o = o, .b = b, .x = x, .u = u, .first = first, .k = k, .nu = nu, .loss = loss, .st = st};
    if (threads < 2 || !o->table->any_thread) return losses_of(&m, 0, k, w);
    m.piece = (k + threads - 1) / threads;
    int pieces = (k + m.piece - 1) / m.piece;
    hdo__team_run(w->team, pieces, losses_task, &m);
    for (int i = 0; i < pieces; i++)
        if (st[i] == HDO_E_OBJECTIVE || (st[i] != HDO_OK && st[0] == HDO_OK)) st[0] = st[i]; /* the worst */
    return st[0];
}

/* ---- slopes ---- */

static hdo_status own_slopes(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                             int k, hdo_work *w, double *loss, double *dloss, float *buf) {
    const own *o = (const own *)f;
    size_t mark = hdo__arena_mark(w->arena);
    int room = rows_at_once(o, k);
    float *rows = hdo__arena_floats(w->arena, (size_t)room * o->ld);
    many m = {.o = o, .u = u, .first = first};
    hdo_samples s = hdo__own_samples(b);
    hdo_status st = HDO_OK;
    (void)buf;
    for (int at = 0; at < k && st == HDO_OK; at += room) {
        int some = k - at < room ? k - at : room;
        hdo_caller c;
        lay_out(&m, at, some, false, rows);
        begin(&c, o, b, w);
        st = hdo__call_end(&c, o->def->slopes(o->table->user, &c.call, &s, x, rows, o->ld, some, loss, dloss + at),
                           f->complaint);
    }
    hdo__arena_rewind(w->arena, mark);
    return st;
}

/* Without slopes of its own: of the gradient. */
static hdo_status gradient_slopes(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                  int first, int k, hdo_work *w, double *loss, double *dloss, float *buf) {
    const own *o = (const own *)f;
    size_t mark = hdo__arena_mark(w->arena);
    float *g = hdo__arena_floats(w->arena, o->ld), *row = hdo__arena_floats(w->arena, o->ld);
    hdo_status st = own_grad(f, b, x, w, g, loss, buf);
    for (int r = 0; r < k && st == HDO_OK; r++) {
        hdo__dirs_fill(u, first + r, 0, f->d, row);
        dloss[r] = hdo__dot(f->d, row, g);
    }
    hdo__arena_rewind(w->arena, mark);
    return st;
}

/* ---- evaluation ---- */

static hdo_status own_metrics(const own *o, const hdo_batch *b, const float *x, const hdo_work *w, double *loss_sum,
                              int64_t *correct) {
    hdo_samples s = hdo__own_samples(b);
    hdo_caller k;
    double sum = 0.0;
    int64_t right = 0;
    begin(&k, o, b, w);
    hdo_status st = hdo__call_end(&k, o->def->metrics(o->table->user, &k.call, &s, x, &sum, &right), o->base.complaint);
    *loss_sum += sum;
    if (o->base.has_accuracy) *correct += right;
    return st;
}

/* A model whose evaluation failed is left out of the row: see HDO_NO_LOSS. */
static hdo_status own_evaluate(const hdo_objective *f, const hdo_batch *b, const float *X, size_t ld, int K,
                               hdo_work *w, double *loss_sum, int64_t *correct) {
    const own *o = (const own *)f;
    hdo_batch whole = *b;
    whole.node = -1;
    whole.train = false;
    hdo_status st = HDO_OK;
    for (int k = 0; k < K && (st == HDO_OK || st == HDO_E_SKIPPED); k++) {
        const float *x = X + (size_t)k * ld;
        double loss = 0.0;
        if (o->def->metrics != NULL) {
            st = own_metrics(o, &whole, x, w, &loss, &correct[k]);
        } else {
            st = own_loss(f, &whole, x, w, &loss, NULL);
            if (b->size > 0) loss *= (double)b->size;
        }
        if (st == HDO_OK) loss_sum[k] += loss;
        if (st == HDO_E_SKIPPED) correct[k] = HDO_NO_LOSS;
    }
    return st == HDO_E_SKIPPED ? HDO_OK : st;
}

/* ---- life ---- */

hdo_status hdo__own_start(hdo_table_def *t, const hdo_objective *f, uint64_t seed, float *x) {
    memset(x, 0, f->d * sizeof(float));
    if (t->def.objective.start == NULL) return HDO_OK;
    hdo_caller k;
    hdo__call_begin(&k, t, -1, -1, seed, 0);
    int result = t->def.objective.start(t->user, &k.call, x);
    return hdo__call_end(&k, result > 0 ? -result : result, f->complaint); /* without a start there is no run */
}

static hdo_status own_init(const hdo_objective *f, uint64_t seed, float *x) {
    return hdo__own_start(((const own *)f)->table, f, seed, x);
}

static size_t own_work_bytes(const hdo_objective *f, int batch, int k) {
    const own *o = (const own *)f;
    size_t rows = (size_t)rows_at_once(o, k < 1 ? 1 : k);
    (void)batch;
    return hdo__arena_round((rows > 2 ? rows : 2) * (o->ld + LINE) * sizeof(float));
}

static void own_destroy(hdo_objective *f) {
    own *o = (own *)f;
    hdo__complaint_free(f->complaint);
    hdo__table_drop(o->table);
    free(o->tensors);
    free(o);
}

hdo_tensor *hdo__own_tensors(const hdo_objective_def *d, hdo_objective *f) {
    int n = d->n_tensors > 0 ? d->n_tensors : 1;
    hdo_tensor *tensors = calloc((size_t)n, sizeof *tensors);
    if (tensors == NULL) return NULL;
    tensors[0] = (hdo_tensor){.name = "x", .len = d->dim, .n_dim = 1, .dim = {(int)d->dim}};
    for (int i = 0, at = 0; i < d->n_tensors; i++) {
        hdo_tensor *t = &tensors[i];
        *t = (hdo_tensor){.name = d->tensors[i].name, .off = (size_t)at, .len = 1, .n_dim = d->tensors[i].n_dim};
        for (int k = 0; k < t->n_dim; k++) {
            t->dim[k] = (int)d->tensors[i].dim[k];
            t->len *= (size_t)d->tensors[i].dim[k];
        }
        at += (int)t->len;
    }
    f->tensors = tensors;
    f->n_tensors = n;
    return tensors;
}

hdo_status hdo__own_objective_create(hdo_table_def *t, hdo_objective **out, hdo_error *e) {
    own *o = calloc(1, sizeof *o);
    if (o == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the objective");
    const hdo_objective_def *d = &t->def.objective;
    hdo__table_keep(t);
    o->table = t;
    o->def = d;
    o->ld = (d->dim + LINE - 1) / LINE * LINE;
    o->ops = (hdo_objective_ops){.name = t->name,
                                 .destroy = own_destroy,
                                 .work_bytes = own_work_bytes,
                                 .init = own_init,
                                 .loss = own_loss,
                                 .grad = d->gradient != NULL ? own_grad : NULL,
                                 .jvp = d->slopes != NULL     ? own_slopes
                                        : d->gradient != NULL ? gradient_slopes
                                                              : NULL,
                                 .loss_many = own_loss_many,
                                 .evaluate = own_evaluate};
    o->base = (hdo_objective){.ops = &o->ops,
                              .d = d->dim,
                              .has_accuracy = d->metrics != NULL && (d->flags & (unsigned)HDO_HAS_ACCURACY) != 0,
                              .usual_loss = d->usual_loss > 0.0 ? d->usual_loss : 1.0,
                              .model = t->name,
                              .eval_models = EVAL_MODELS,
                              .eval_batch = EVAL_BATCH,
                              .complaint = hdo__complaint_new()};
    o->tensors = hdo__own_tensors(d, &o->base);
    if (o->base.complaint == NULL || o->tensors == NULL) {
        own_destroy(&o->base);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the objective");
    }
    *out = &o->base;
    return HDO_OK;
}
