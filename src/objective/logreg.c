/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax regression: F(W, b) = mean over the batch of cross-entropy(x W' + b, label) [ + l2 |(W, b)|^2 / 2 ].
 *
 * Written apart from the layer engine because it is the convex yardstick of the paper (280 nodes, batch 2): the
 * minibatch is two rows, so the cost is reading W once and writing the gradient once. Evaluation: logreg_eval.c.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/explog.h"
#include "base/vec.h"
#include "kernels/cplx.h"
#include "objective/logreg.h"
#include "objective/registry.h"

typedef hdo_logreg logistic;

void hdo__logreg_logits(const hdo_logreg *f, int B, const float *in, const float *x, float *z) {
    const float *bias = x + (size_t)f->C * (size_t)f->p;
    for (int i = 0; i < B; i++) memcpy(z + (size_t)i * (size_t)f->C, bias, (size_t)f->C * sizeof(float));
    f->kernels->gemm(false, true, B, f->C, f->p, 1.0f, in, f->p, x, f->p, 1.0f, z, f->C);
}

static void logits(const logistic *f, int B, const float *in, const float *x, float *z) {
    hdo__logreg_logits(f, B, in, x, z);
}

/* Mean cross-entropy of logits z + nu zu, both (B, C); zu NULL: of z. dz (B, C), or NULL, receives its gradient. From
 * the logits on everything is double, on one path for F(x) and F(x + nu u): their difference is then good to 1e-16 /
 * nu. */
static double cross_entropy(int B, int C, const float *z, const float *zu, double nu, const int32_t *label, float *dz) {
    double sum = 0.0;
    for (int i = 0; i < B; i++) {
        const float *zi = z + (size_t)i * (size_t)C, *ui = zu != NULL ? zu + (size_t)i * (size_t)C : NULL;
        double top = -HUGE_VAL, total = 0.0, own = 0.0;
        for (int c = 0; c < C; c++) {
            double v = (double)zi[c] + (ui != NULL ? nu * (double)ui[c] : 0.0);
            top = v > top || isnan(v) ? v : top; /* a NaN stays visible */
            if (c == label[i]) own = v;
        }
        for (int c = 0; c < C; c++) total += hdo__exp((double)zi[c] + (ui != NULL ? nu * (double)ui[c] : 0.0) - top);
        double lse = hdo__log(total) + top;
        sum += lse - own;
        if (dz == NULL) continue;
        for (int c = 0; c < C; c++) {
            double p = hdo__exp((double)zi[c] - lse);
            dz[(size_t)i * (size_t)C + (size_t)c] = (float)((p - (c == label[i] ? 1.0 : 0.0)) / (double)B);
        }
    }
    return sum / (double)B;
}

double hdo__logreg_regulariser(const hdo_logreg *f, const float *x) {
    return f->l2 > 0.0 ? 0.5 * f->l2 * hdo__sumsq(f->base.d, x) : 0.0;
}

static double regulariser(const logistic *f, const float *x) {
    return hdo__logreg_regulariser(f, x);
}

static hdo_status lr_loss(const hdo_objective *o, const hdo_batch *b, const float *x, hdo_work *w, double *loss,
                          float *buf) {
    const logistic *f = (const logistic *)o;
    (void)buf;
    assert(b->size >= 1);
    size_t mark = hdo__arena_mark(w->arena);
    float *z = hdo__arena_floats(w->arena, (size_t)b->size * (size_t)f->C);
    logits(f, b->size, b->in, x, z);
    *loss = cross_entropy(b->size, f->C, z, NULL, 0.0, b->label, NULL) + regulariser(f, x);
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

static hdo_status lr_grad(const hdo_objective *o, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                          double *loss, float *buf) {
    const logistic *f = (const logistic *)o;
    (void)buf;
    assert(b->size >= 1);
    size_t mark = hdo__arena_mark(w->arena), n = (size_t)b->size * (size_t)f->C;
    float *z = hdo__arena_floats(w->arena, n), *dz = hdo__arena_floats(w->arena, n);
    logits(f, b->size, b->in, x, z);
    *loss = cross_entropy(b->size, f->C, z, NULL, 0.0, b->label, dz) + regulariser(f, x);
    /* dW (C, p) = dz' in;  db = column sums of dz */
    f->kernels->gemm(true, false, f->C, f->p, b->size, 1.0f, dz, f->C, b->in, f->p, 0.0f, g, f->p);
    float *gb = g + (size_t)f->C * (size_t)f->p;
    for (int c = 0; c < f->C; c++) {
        double s = 0.0;
        for (int i = 0; i < b->size; i++) s += (double)dz[(size_t)i * (size_t)f->C + (size_t)c];
        gb[c] = (float)s;
    }
    if (f->l2 > 0.0) hdo__axpy(o->d, (float)f->l2, x, g);
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

/* One direction at a time: du (B, C) = in U_W' + u_b, then <dz, du>. The direction is written out once (d numbers). */
static hdo_status lr_jvp(const hdo_objective *o, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                         int k, hdo_work *w, double *loss, double *dloss, float *buf) {
    const logistic *f = (const logistic *)o;
    (void)buf;
    size_t mark = hdo__arena_mark(w->arena), n = (size_t)b->size * (size_t)f->C;
    float *z = hdo__arena_floats(w->arena, n), *dz = hdo__arena_floats(w->arena, n);
    float *dir = hdo__arena_floats(w->arena, o->d);
    logits(f, b->size, b->in, x, z);
    *loss = cross_entropy(b->size, f->C, z, NULL, 0.0, b->label, dz) + regulariser(f, x);
    for (int r = 0; r < k; r++) {
        hdo__dirs_fill(u, first + r, 0, o->d, dir);
        logits(f, b->size, b->in, dir, z);
        dloss[r] = hdo__dot(n, dz, z);
        if (f->l2 > 0.0) dloss[r] += f->l2 * hdo__dot(o->d, x, dir);
    }
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

/* logits(x + nu u) = logits(x) + nu logits(u): the perturbed weights are never formed, so x + nu u is not rounded. */
static hdo_status lr_loss_many(const hdo_objective *o, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                               int k, float nu, hdo_work *w, double *loss) {
    const logistic *f = (const logistic *)o;
    size_t mark = hdo__arena_mark(w->arena), n = (size_t)b->size * (size_t)f->C;
    float *z = hdo__arena_floats(w->arena, n), *zu = hdo__arena_floats(w->arena, n);
    float *dir = hdo__arena_floats(w->arena, o->d);
    logits(f, b->size, b->in, x, z);
    double reg = regulariser(f, x);
    for (int r = 0; r < k; r++) {
        hdo__dirs_fill(u, first + r, 0, o->d, dir);
        logits(f, b->size, b->in, dir, zu);
        loss[r] = cross_entropy(b->size, f->C, z, zu, (double)nu, b->label, NULL) + reg;
        if (f->l2 > 0.0) {
            double a = (double)nu;
            loss[r] += f->l2 * (a * hdo__dot(o->d, x, dir) + 0.5 * a * a * hdo__sumsq(o->d, dir));
        }
    }
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

/* Im F(x + i nu u) / nu: the logits are z + i nu t with t = logits(u). The l2 term gives <x, u> exactly. */
static hdo_status lr_complex_step(const hdo_objective *o, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                  int first, int k, double nu, hdo_work *w, double *slope) {
    const logistic *f = (const logistic *)o;
    size_t mark = hdo__arena_mark(w->arena), n = (size_t)b->size * (size_t)f->C;
    float *z = hdo__arena_floats(w->arena, n), *t = hdo__arena_floats(w->arena, n);
    float *dir = hdo__arena_floats(w->arena, o->d);
    logits(f, b->size, b->in, x, z);
    for (int r = 0; r < k; r++) {
        hdo__dirs_fill(u, first + r, 0, o->d, dir);
        logits(f, b->size, b->in, dir, t);
        slope[r] = hdo__cplx_xent(b->size, f->C, nu, z, t, b->label) / (double)b->size;
        if (f->l2 > 0.0) slope[r] += f->l2 * hdo__dot(o->d, x, dir);
    }
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

/* torch.nn.Linear: weights and bias uniform in +-1/sqrt(p). */
static hdo_status lr_init(const hdo_objective *o, uint64_t seed, float *x) {
    const logistic *f = (const logistic *)o;
    size_t nw = (size_t)f->C * (size_t)f->p;
    double bound = 1.0 / sqrt((double)f->p);
    hdo_stream sw = hdo__stream(seed, HDO_RNG_INIT, 0, 0, 0), sb = hdo__stream(seed, HDO_RNG_INIT, 0, 0, 1);
    memset(x, 0, o->d * sizeof(float));
    switch (f->init.id) {
    case HDO_INIT_PYTORCH:
        hdo__rng_uniform(sw, 0, nw, x);
        hdo__rng_uniform(sb, 0, (size_t)f->C, x + nw);
        for (size_t i = 0; i < o->d; i++) x[i] = (float)(bound * (2.0 * (double)x[i] - 1.0));
        break;
    case HDO_INIT_HE:
        hdo__rng_normal(sw, 0, nw, x);
        hdo__scale(nw, (float)sqrt(2.0 / (double)f->p), x);
        break;
    case HDO_INIT_NORMAL:
        hdo__rng_normal(sw, 0, nw, x);
        hdo__scale(nw, (float)f->init.arg, x);
        break;
    default: /* zero */ break;
    }
    return HDO_OK;
}

static size_t lr_work_bytes(const hdo_objective *o, int batch, int k) {
    const logistic *f = (const logistic *)o;
    (void)k;
    size_t n = hdo__arena_round((size_t)batch * (size_t)f->C * sizeof(float));
    size_t train = 2 * n + hdo__arena_round(o->d * sizeof(float));
    size_t eval = hdo__logreg_evaluate_work(f, batch);
    return train > eval ? train : eval;
}

static void lr_destroy(hdo_objective *o) {
    hdo__logreg_forget((logistic *)o);
    hdo__free(o);
}

static const hdo_objective_ops logistic_ops = {
    .name = "logistic",
    .destroy = lr_destroy,
    .work_bytes = lr_work_bytes,
    .init = lr_init,
    .loss = lr_loss,
    .grad = lr_grad,
    .jvp = lr_jvp,
    .loss_many = lr_loss_many,
    .complex_step = lr_complex_step,
    .span = &hdo__logreg_span,
    .evaluate = hdo__logreg_evaluate,
};

hdo_status hdo__logistic_create(const hdo_objective_args *p, hdo_objective **out, hdo_error *e) {
    const hdo_model_config *m = &p->config->model;
    if (p->train->vocab > 0) {
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "model '%s' needs real inputs, but data '%s' is a sequence of tokens; use transformer",
                         m->name, p->config->data.name);
    }
    logistic *f = hdo__alloc(sizeof *f);
    if (f == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the objective");
    f->p = p->train->n_in;
    f->C = p->train->classes;
    f->l2 = strcmp(m->name, "logistic-l2") == 0 ? m->l2 : 0.0;
    f->init = m->init;
    f->kernels = hdo__kernels(p->config->kernels.id);
    size_t nw = (size_t)f->p * (size_t)f->C;
    f->tensor[0] = (hdo_tensor){.name = "weight", .off = 0, .len = nw, .n_dim = 2, .dim = {f->C, f->p}};
    f->tensor[1] = (hdo_tensor){.name = "bias", .off = nw, .len = (size_t)f->C, .n_dim = 1, .dim = {f->C}};
    f->base = (hdo_objective){.ops = &logistic_ops,
                              .d = nw + (size_t)f->C,
                              .tensors = f->tensor,
                              .n_tensors = 2,
                              .has_accuracy = true,
                              .usual_loss = log((double)f->C),
                              .model = m->name,
                              .eval_models = HDO_LOGREG_EVAL_MODELS,
                              .eval_batch = HDO_LOGREG_EVAL_BATCH};
    hdo_status st = hdo__logreg_look(f, p->val, e);
    if (st != HDO_OK) {
        lr_destroy(&f->base);
        return st;
    }
    *out = &f->base;
    return HDO_OK;
}
