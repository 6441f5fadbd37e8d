/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters: a few numbers that move many. The inner objective is a network trained in part; here its trained tensors
 * are functions of the node's row,
 *
 *   plain        W = what the row has
 *   lora(R)      W = W0 + B A     B (O, R), A (R, I); at the start B = 0, A uniform in +-1/sqrt(I)   (Hu et al., 2021)
 *   scales       W = diag(c) W0   c (O); at the start 1
 *
 * with W0 the frozen start and W read as a matrix (O, I) of a linear layer, or of a convolution's filters. Every pass
 * makes W from the row and asks the inner objective; gradients come back through dB = dW A', dA = B' dW, dc = <dW, W0>
 * row by row, tangents go through dW = dB A + B dA. A tensor that is stored in two parts (base/split.h) has its adapter
 * on the live part; A is then stored in two parts as well. There are no complex points: a product of two perturbed
 * factors is not what `complex-step` asks of a row.
 */
#include "objective/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"

enum { NAME_MAX_ = HDO_PARAM_NAME_MAX + 16, GROUP = 8 };

typedef struct piece { /* one tensor of the inner objective */
    hdo_train how;
    size_t at, len;    /* its place in the inner row */
    int O, I;          /* the live part as a matrix */
    size_t a, b;       /* of the outer row: A or c or the tensor itself; B */
    size_t a_len, a_I; /* A with its idle part; fan-in of the whole tensor */
    size_t home;       /* of W0 in the whole model */
} piece;

typedef struct adapter {
    hdo_objective base;
    hdo_objective *inner;
    const hdo_kernels *k;
    const float *old; /* the whole model at the start, borrowed */
    piece *pieces;    /* (inner->n_tensors) */
    hdo_tensor *rows; /* (2 inner->n_tensors + n_buffers) */
    char (*names)[NAME_MAX_];
    hdo_range *idle;
} adapter;

static const adapter *self(const hdo_objective *f) {
    return (const adapter *)f;
}

static size_t floats(size_t n) {
    return hdo__arena_round(n * sizeof(float));
}
static size_t inner_len(const adapter *o) {
    return o->inner->d + o->inner->n_buf;
}

/* ---- the map and its derivatives ---- */

/* e (inner row) = what the outer row x stands for. */
static void map(const adapter *o, const float *x, float *e) {
    for (int t = 0; t < o->inner->n_tensors; t++) {
        const piece *p = &o->pieces[t];
        const float *W0 = o->old + p->home;
        float *W = e + p->at;
        if (p->how.how == HDO_TRAIN_PLAIN) {
            memcpy(W, x + p->a, p->len * sizeof(float));
            continue;
        }
        memcpy(W, W0, p->len * sizeof(float));
        if (p->how.how == HDO_TRAIN_LORA) {
            int r = p->how.rank;
            o->k->gemm(false, false, p->O, p->I, r, 1.0f, x + p->b, r, x + p->a, p->I, 1.0f, W, p->I);
            continue;
        }
        for (int i = 0; i < p->O; i++) hdo__scale((size_t)p->I, x[p->a + (size_t)i], W + (size_t)i * (size_t)p->I);
    }
    memcpy(e + o->inner->d, x + o->base.d, o->inner->n_buf * sizeof(float));
}

/* t (inner d) = the slope of the map at x along u (outer d). */
static void push(const adapter *o, const float *x, const float *u, float *t) {
    for (int i = 0; i < o->inner->n_tensors; i++) {
        const piece *p = &o->pieces[i];
        const float *W0 = o->old + p->home;
        float *T = t + p->at;
        if (p->how.how == HDO_TRAIN_PLAIN) {
            memcpy(T, u + p->a, p->len * sizeof(float));
            continue;
        }
        memset(T, 0, p->len * sizeof(float));
        if (p->how.how == HDO_TRAIN_LORA) {
            int r = p->how.rank;
            o->k->gemm(false, false, p->O, p->I, r, 1.0f, u + p->b, r, x + p->a, p->I, 0.0f, T, p->I);
            o->k->gemm(false, false, p->O, p->I, r, 1.0f, x + p->b, r, u + p->a, p->I, 1.0f, T, p->I);
            continue;
        }
        for (size_t c = 0, I = (size_t)p->I; c < (size_t)p->O; c++) hdo__axpy(I, u[p->a + c], W0 + c * I, T + c * I);
    }
}

/* g (outer d) = the transposed slope of the map at x, applied to ge (inner d). Idle numbers are left alone. */
static void pull(const adapter *o, const float *x, const float *ge, float *g) {
    for (int t = 0; t < o->inner->n_tensors; t++) {
        const piece *p = &o->pieces[t];
        const float *W0 = o->old + p->home, *dW = ge + p->at;
        size_t I = (size_t)p->I;
        int r = p->how.rank;
        switch (p->how.how) {
        case HDO_TRAIN_PLAIN: memcpy(g + p->a, dW, p->len * sizeof(float)); break;
        case HDO_TRAIN_LORA:
            o->k->gemm(false, true, p->O, r, p->I, 1.0f, dW, p->I, x + p->a, p->I, 0.0f, g + p->b, r);
            o->k->gemm(true, false, r, p->I, p->O, 1.0f, x + p->b, r, dW, p->I, 0.0f, g + p->a, p->I);
            break;
        default:
            for (size_t c = 0; c < (size_t)p->O; c++) g[p->a + c] = (float)hdo__dot(I, dW + c * I, W0 + c * I);
        }
    }
}

/* ---- the whole model ---- */

static void adapter_destroy(hdo_objective *f) {
    adapter *o = (adapter *)f;
    hdo__objective_destroy(o->inner);
    hdo__free(o->pieces);
    hdo__free(o->rows);
    hdo__free(o->names);
    hdo__free(o->idle);
    hdo__free(o);
}

static hdo_status adapter_init(const hdo_objective *f, uint64_t seed, float *model) {
    return self(f)->inner->ops->init(self(f)->inner, seed, model);
}

static void adapter_adopt(hdo_objective *f, const float *model) {
    adapter *o = (adapter *)f;
    o->old = model;
    o->inner->ops->adopt(o->inner, model);
}

static void adapter_part(const hdo_objective *f, uint64_t seed, const float *model, float *x) {
    const adapter *o = self(f);
    for (int t = 0; t < o->inner->n_tensors; t++) {
        const piece *p = &o->pieces[t];
        if (p->how.how == HDO_TRAIN_PLAIN) memcpy(x + p->a, model + p->home, p->len * sizeof(float));
        for (int i = 0; i < p->O && p->how.how == HDO_TRAIN_SCALES; i++) x[p->a + (size_t)i] = 1.0f;
        if (p->how.how != HDO_TRAIN_LORA) continue;
        float bound = (float)(1.0 / sqrt((double)p->a_I));
        hdo__rng_uniform(hdo__stream(seed, HDO_RNG_INIT, 1, 0, (uint32_t)t), 0, p->a_len, x + p->a);
        for (size_t i = 0; i < p->a_len; i++) x[p->a + i] = bound * (2.0f * x[p->a + i] - 1.0f);
        memset(x + p->b, 0, (size_t)p->O * (size_t)p->how.rank * sizeof(float));
    }
    const hdo_whole *w = o->base.whole;
    for (int i = 0; i < o->base.n_buffers; i++)
        for (int k = 0; k < w->n_buffers; k++)
            if (strcmp(w->buffers[k].name, o->base.buffers[i].name) == 0)
                memcpy(x + f->d + o->base.buffers[i].off, model + w->d + w->buffers[k].off,
                       w->buffers[k].len * sizeof(float));
}

static void adapter_join(const hdo_objective *f, const float *x, float *model) {
    const adapter *o = self(f);
    float *e = hdo__alloc((inner_len(o) + 1) * sizeof(float));
    if (e == NULL) abort(); /* as an arena that runs out: joining happens once, with the whole model beside it */
    map(o, x, e);
    o->inner->ops->join(o->inner, e, model);
    hdo__free(e);
}

static hdo_status adapter_features(const hdo_objective *f, hdo_dataset **ds) {
    return self(f)->inner->ops->features(self(f)->inner, ds);
}
static hdo_status adapter_prepare(const hdo_objective *f, hdo_batch *b, hdo_work *w) {
    return hdo__objective_prepare(self(f)->inner, b, w);
}

/* ---- passes ---- */

/* Tangents at a time: they are written out. */
static int group_of(const adapter *o) {
    return o->inner->d <= (size_t)1 << 19 ? GROUP : 2;
}

/* What a pass takes beside the inner one's: inner rows, tangents or gradients, an outer row. */
static size_t own_bytes(const adapter *o, int k) {
    size_t group = (size_t)(k < group_of(o) ? k : group_of(o));
    return (group > 3 ? group + 1 : 4) * floats(inner_len(o)) + floats(o->base.d + o->base.n_buf);
}

static size_t adapter_work_bytes(const hdo_objective *f, int batch, int k) {
    return own_bytes(self(f), k) + hdo__objective_work_bytes(self(f)->inner, batch, k);
}

static size_t adapter_pass_bytes(const hdo_objective *f, unsigned needs, int batch, int k) {
    const adapter *o = self(f);
    int tangents = k < group_of(o) ? k : group_of(o);
    size_t rows = (needs & HDO_CAN_GRAD) != 0 ? 2 : (needs & HDO_CAN_JVP) != 0 ? (size_t)tangents + 1 : 1;
    return rows * floats(inner_len(o)) + floats(f->d + f->n_buf) + hdo__objective_pass_bytes(o->inner, needs, batch, k);
}

static float *mapped(const adapter *o, const float *x, hdo_work *w) {
    float *e = hdo__arena_floats(w->arena, inner_len(o));
    map(o, x, e);
    return e;
}

static hdo_status adapter_loss(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, double *loss,
                               float *buf) {
    const adapter *o = self(f);
    size_t mark = hdo__arena_mark(w->arena);
    hdo_status st = o->inner->ops->loss(o->inner, b, mapped(o, x, w), w, loss, buf);
    hdo__arena_rewind(w->arena, mark);
    return st;
}

static hdo_status adapter_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                               double *loss, float *buf) {
    const adapter *o = self(f);
    size_t mark = hdo__arena_mark(w->arena);
    float *e = mapped(o, x, w), *ge = hdo__arena_floats(w->arena, o->inner->d);
    hdo_status st = o->inner->ops->grad(o->inner, b, e, w, ge, loss, buf);
    pull(o, x, ge, g);
    hdo__arena_rewind(w->arena, mark);
    return st;
}

static hdo_status adapter_jvp(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                              int k, hdo_work *w, double *loss, double *dloss, float *buf) {
    const adapter *o = self(f);
    size_t mark = hdo__arena_mark(w->arena), d = o->inner->d;
    float *e = mapped(o, x, w), *dir = hdo__arena_floats(w->arena, f->d);
    int group = k < group_of(o) ? k : group_of(o);
    float *T = hdo__arena_floats(w->arena, (size_t)group * d);
    hdo_status st = HDO_OK;
    for (int r = 0; r < k && st == HDO_OK; r += group) {
        int n = k - r < group ? k - r : group;
        for (int i = 0; i < n; i++) {
            hdo__dirs_fill(u, first + r + i, 0, f->d, dir);
            push(o, x, dir, T + (size_t)i * d);
        }
        hdo_dirs inner = {.dist = HDO_DIST_GIVEN, .d = d, .given = T, .stride = d};
        st = o->inner->ops->jvp(o->inner, b, e, &inner, 0, n, w, loss, dloss + r, r == 0 ? buf : NULL);
    }
    hdo__arena_rewind(w->arena, mark);
    return st;
}

typedef struct many_job {
    const adapter *o;
    const hdo_batch *b;
    const float *x;
    const hdo_dirs *u;
    int first;
    float nu;
    double *loss;
    hdo_status st; /* only failures are written */
} many_job;

static void many_task(void *ctx, int r, hdo_work *w) {
    many_job *j = ctx;
    const hdo_objective *f = &j->o->base;
    float *y = hdo__arena_floats(w->arena, f->d + f->n_buf);
    hdo__dirs_fill(j->u, j->first + r, 0, f->d, y);
    hdo__axpby(f->d, 1.0f, j->x, j->nu, y); /* x + nu u */
    memcpy(y + f->d, j->x + f->d, f->n_buf * sizeof(float));
    hdo_status st = adapter_loss(f, j->b, y, w, &j->loss[r], NULL);
    if (st != HDO_OK) j->st = st;
}

static hdo_status adapter_loss_many(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                    int first, int k, float nu, hdo_work *w, double *loss) {
    size_t mark = hdo__arena_mark(w->arena);
    hdo_batch ready = *b;
    hdo_status st = adapter_prepare(f, &ready, w);
    many_job j = {.o = self(f), .b = &ready, .x = x, .u = u, .first = first, .nu = nu, .loss = loss};
    if (st == HDO_OK) hdo__team_run(w->team, k, many_task, &j);
    hdo__arena_rewind(w->arena, mark);
    return st == HDO_OK ? j.st : st;
}

static hdo_status adapter_gauss_newton(const hdo_objective *f, const hdo_batch *b, const float *x, const float *up,
                                       const float *down, double h, hdo_work *w, float *slope, float *g) {
    const adapter *o = self(f);
    size_t mark = hdo__arena_mark(w->arena);
    float *e = mapped(o, x, w), *ge = hdo__arena_floats(w->arena, o->inner->d);
    const float *eu = mapped(o, up, w), *ed = mapped(o, down, w);
    hdo_status st = o->inner->ops->gauss_newton(o->inner, b, e, eu, ed, h, w, slope, ge);
    hdo__ranges_clear(f->idle, 0, f->d, g);
    pull(o, x, ge, g);
    hdo__arena_rewind(w->arena, mark);
    return st;
}

static hdo_status adapter_evaluate(const hdo_objective *f, const hdo_batch *b, const float *X, size_t ld, int K,
                                   hdo_work *w, double *loss_sum, int64_t *correct) {
    const adapter *o = self(f);
    hdo_status st = HDO_OK;
    for (int k = 0; k < K && st == HDO_OK; k++) {
        size_t mark = hdo__arena_mark(w->arena);
        float *e = mapped(o, X + (size_t)k * ld, w);
        st = o->inner->ops->evaluate(o->inner, b, e, inner_len(o), 1, w, loss_sum + k, correct + k);
        hdo__arena_rewind(w->arena, mark);
    }
    return st;
}

static const hdo_objective_ops adapter_ops = {
    .name = "adapter",
    .destroy = adapter_destroy,
    .work_bytes = adapter_work_bytes,
    .pass_bytes = adapter_pass_bytes,
    .init = adapter_init,
    .adopt = adapter_adopt,
    .part = adapter_part,
    .join = adapter_join,
    .features = adapter_features,
    .prepare = adapter_prepare,
    .loss = adapter_loss,
    .grad = adapter_grad,
    .jvp = adapter_jvp,
    .loss_many = adapter_loss_many,
    .gauss_newton = adapter_gauss_newton,
    .evaluate = adapter_evaluate,
};

/* ---- constructor ---- */

static const hdo_tensor *named(const hdo_whole *w, const char *name) {
    for (int i = 0; i < w->n_tensors; i++)
        if (strcmp(w->tensors[i].name, name) == 0) return &w->tensors[i];
    return NULL;
}

/* Appends a tensor of the outer row; "a.weight" with suffix "lora_A.weight" is "a.lora_A.weight". */
static hdo_tensor *add_row(adapter *o, const char *name, const char *suffix, size_t len) {
    hdo_tensor *row = &o->rows[o->base.n_tensors];
    char *to = o->names[o->base.n_tensors++];
    const char *dot = strrchr(name, '.');
    int stem = suffix != NULL && dot != NULL ? (int)(dot - name) + 1 : (int)strlen(name);
    snprintf(to, NAME_MAX_, "%.*s%s", stem, name, suffix != NULL ? suffix : "");
    *row = (hdo_tensor){.name = to, .off = o->base.d, .len = len, .n_dim = 1, .dim = {(int)len}};
    o->base.d += len;
    return row;
}

static void add_lora(adapter *o, piece *p, const hdo_tensor *m) {
    const hdo_split *s = &m->split;
    int r = p->how.rank;
    p->a_I = m->len / (size_t)m->dim[0];
    p->a_len = (size_t)r * p->a_I;
    hdo_tensor *A = add_row(o, m->name, "lora_A.weight", p->a_len);
    p->a = A->off;
    A->n_dim = m->n_dim;
    memcpy(A->dim, m->dim, sizeof A->dim);
    A->dim[0] = r;
    A->split = *s;
    if (s->kh > 0) o->idle[o->base.idle.n++] = (hdo_range){p->a + (size_t)r * (size_t)p->I, p->a + p->a_len};
    hdo_tensor *B = add_row(o, m->name, "lora_B.weight", (size_t)p->O * (size_t)r);
    p->b = B->off;
    B->n_dim = m->n_dim;
    for (int i = 0; i < 4; i++) B->dim[i] = i == 0 ? p->O : i == 1 ? r : i < m->n_dim ? 1 : 0;
}

static void add_piece(adapter *o, int t, hdo_train how) {
    const hdo_tensor *m = &o->inner->tensors[t];
    const hdo_split *s = &m->split;
    piece *p = &o->pieces[t];
    size_t live = s->kh > 0 ? m->len / (size_t)(s->kh * s->kw) * (size_t)(s->h * s->w) : m->len;
    *p = (piece){.how = how, .at = m->off, .len = m->len, .O = m->dim[0], .home = named(o->base.whole, m->name)->off};
    p->I = (int)(live / (size_t)p->O);
    if (how.how == HDO_TRAIN_LORA) {
        add_lora(o, p, m);
    } else if (how.how == HDO_TRAIN_SCALES) {
        p->a = add_row(o, m->name, "scale", (size_t)p->O)->off;
    } else {
        hdo_tensor *row = add_row(o, m->name, NULL, m->len);
        p->a = row->off;
        row->n_dim = m->n_dim;
        memcpy(row->dim, m->dim, sizeof row->dim);
        row->split = *s;
        if (s->kh > 0) o->idle[o->base.idle.n++] = (hdo_range){p->a + live, p->a + m->len};
    }
}

hdo_status hdo__adapter_create(hdo_objective *inner, const hdo_train *how, const hdo_kernels *k, hdo_objective **out,
                               hdo_error *e) {
    size_t n = (size_t)inner->n_tensors;
    adapter *o = hdo__alloc(sizeof *o);
    if (o == NULL) {
        hdo__objective_destroy(inner);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory while building model %s.", inner->model);
    }
    *o = (adapter){.base = *inner, .inner = inner, .k = k};
    o->pieces = hdo__alloc(n * sizeof *o->pieces);
    o->rows = hdo__alloc(2 * n * sizeof *o->rows);
    o->names = hdo__alloc(2 * n * sizeof *o->names);
    o->idle = hdo__alloc(n * sizeof *o->idle);
    if (o->pieces == NULL || o->rows == NULL || o->names == NULL || o->idle == NULL) {
        adapter_destroy(&o->base);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory while building an adapter.");
    }
    o->base.ops = &adapter_ops;
    o->base.inner = inner;
    o->base.d = 0;
    o->base.tensors = o->rows;
    o->base.n_tensors = 0;
    o->base.idle = (hdo_ranges){o->idle, 0};
    for (int t = 0; t < inner->n_tensors; t++) add_piece(o, t, how[t]);
    *out = &o->base;
    return HDO_OK;
}
