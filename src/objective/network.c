/* SPDX-License-Identifier: Apache-2.0
 *
 * Objective over a network: mlp, cnn2, cnn3, resnet18, transformer, custom, and logistic in the authors' reading. All
 * arithmetic is the engine's (src/nn); this file checks what comes from outside (sizes, labels, tokens), turns sums
 * into means and the layout into the interface's tensors.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/explog.h"
#include "nn/nn.h"
#include "objective/adapter.h"
#include "objective/front_data.h"
#include "objective/network.h"
#include "objective/train.h"

typedef struct network {
    hdo_objective base;
    hdo_net *net;     /* what is walked with a node's numbers */
    hdo_net *front;   /* model.train: the layers below it, which no node changes; NULL: none */
    hdo_net *plain;   /* model.train: layout of the whole model; NULL: everything is trained */
    hdo_whole whole;  /* its tensors */
    const float *old; /* the whole model that frozen numbers are taken from; borrowed */
    float *zero;
    int vocab;
    size_t n_in; /* of a sample as it comes */
    hdo_choice init;
    hdo_tensor *rows; /* (n_tensors + n_buffers), then the same of the whole */
    char kink[HDO_KINK_MAX];
} network;

static const network *self(const hdo_objective *f) {
    return (const network *)f;
}

const hdo_net *hdo__network_net(const hdo_objective *f) {
    return self(f->inner != NULL ? f->inner : f)->net;
}

static void network_destroy(hdo_objective *f) {
    network *o = (network *)f;
    hdo__free(o->net);
    hdo__free(o->front);
    hdo__free(o->plain);
    hdo__free(o->zero);
    hdo__free(o->rows);
    hdo__free(o);
}

static size_t front_bytes(const network *o, int batch) {
    return o->front != NULL ? hdo__arena_round((size_t)batch * o->net->value[0].n * sizeof(float)) : 0;
}

static size_t network_work_bytes(const hdo_objective *f, int batch, int k) {
    const network *o = self(f);
    size_t rest = hdo__net_work(o->net, batch, k);
    size_t front = o->front != NULL ? hdo__net_work_for(o->front, HDO_PASS_LOSS, batch, 1) : 0;
    return front_bytes(o, batch) + (front > rest ? front : rest);
}

static size_t network_pass_bytes(const hdo_objective *f, unsigned needs, int batch, int k) {
    static const struct {
        unsigned need;
        int pass;
    } uses[] = {{HDO_CAN_LOSS, HDO_PASS_LOSS},
                {HDO_CAN_LOSS, HDO_PASS_MANY},
                {HDO_CAN_GRAD, HDO_PASS_GRAD},
                {HDO_CAN_JVP, HDO_PASS_JVP},
                {HDO_CAN_COMPLEX, HDO_PASS_CPLX}};
    const network *o = self(f);
    size_t most = 0;
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        size_t n = (needs & uses[i].need) != 0 ? hdo__net_work_for(o->net, uses[i].pass, batch, k) : 0;
        if (n > most) most = n;
    }
    return front_bytes(o, batch) + most;
}

static hdo_status network_init(const hdo_objective *f, uint64_t seed, float *x) {
    const network *o = self(f);
    hdo__net_init(o->plain != NULL ? o->plain : o->net, o->init.id, o->init.arg, seed, x);
    return HDO_OK;
}

/* ---- a part of the model is trained ---- */

static void network_adopt(hdo_objective *f, const float *model) {
    network *o = (network *)f;
    o->old = o->net->base = model;
    if (o->front != NULL) o->front->base = model;
}

/* Copies the trained tensors between a row and the whole model. */
static void copy_trained(const network *o, float *x, float *model, bool out) {
    const hdo_layout *part[2] = {&o->net->params, &o->net->buffers}, *all[2] = {&o->plain->params, &o->plain->buffers};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < part[k]->n; i++) {
            if (part[k]->row[i].frozen) continue;
            float *mine = x + part[k]->row[i].off + (k == 0 ? 0 : o->base.d);
            float *its = model + all[k]->row[i].off + (k == 0 ? 0 : o->whole.d);
            memcpy(out ? its : mine, out ? mine : its, part[k]->row[i].len * sizeof(float));
        }
}

static void network_part(const hdo_objective *f, uint64_t seed, const float *model, float *x) {
    (void)seed;
    copy_trained(self(f), x, (float *)model, false); /* only read */
}

static void network_join(const hdo_objective *f, const float *x, float *model) {
    const network *o = self(f);
    memcpy(model, o->old, (o->whole.d + o->whole.n_buf) * sizeof(float));
    copy_trained(o, (float *)x, model, true); /* only read */
}

/* ---- samples ---- */

/* The engine trusts its samples; here is where trust is earned. */
static hdo_status samples_init(const network *o, const hdo_batch *b, hdo_net_samples *s) {
    if (b->size < 1 || b->label == NULL) return HDO_E_DATA;
    bool seen = o->front != NULL && b->front != NULL, tokens = o->vocab > 0 && !seen;
    if (!seen && (tokens ? b->tok == NULL : b->in == NULL)) return HDO_E_DATA;
    for (int i = 0; i < b->size; i++)
        if (b->label[i] < 0 || b->label[i] >= o->net->classes) return HDO_E_DATA;
    size_t n = tokens ? (size_t)b->size * o->n_in : 0;
    for (size_t i = 0; i < n; i++)
        if (b->tok[i] < 0 || b->tok[i] >= o->vocab) return HDO_E_DATA;
    *s = (hdo_net_samples){.size = b->size,
                           .in = tokens ? NULL : b->in,
                           .tok = tokens ? b->tok : NULL,
                           .label = b->label,
                           .seed = b->seed,
                           .node = (uint32_t)(b->node < 0 ? 0 : b->node),
                           .step = (uint64_t)b->step,
                           .train = b->train};
    return HDO_OK;
}

static const float *run_front(const network *o, const hdo_net_samples *s, hdo_work *w) {
    float *out = hdo__arena_floats(w->arena, (size_t)s->size * o->net->value[0].n);
    hdo__net_logits(o->front, s, o->old, w, out);
    return out;
}

static hdo_status network_features(const hdo_objective *f, hdo_dataset **ds) {
    const network *o = self(f);
    if (o->front == NULL) return HDO_OK;
    hdo_status st = hdo__features_wrap(o->front, o->old, ds);
    return st == HDO_E_UNSUPPORTED ? HDO_OK : st;
}

static hdo_status network_prepare(const hdo_objective *f, hdo_batch *b, hdo_work *w) {
    const network *o = self(f);
    hdo_net_samples s;
    if (o->front == NULL || b->front != NULL) return HDO_OK;
    hdo_status st = samples_init(o, b, &s);
    if (st == HDO_OK) b->front = run_front(o, &s, w);
    return st;
}

/* What o->net reads, with memory of the arena if the front has not been run yet: callers mark and rewind. */
static hdo_status begin(const network *o, const hdo_batch *b, hdo_work *w, hdo_net_samples *s) {
    hdo_status st = samples_init(o, b, s);
    if (st != HDO_OK || o->front == NULL) return st;
    s->in = b->front != NULL ? b->front : run_front(o, s, w);
    s->tok = NULL;
    return HDO_OK;
}

/* ---- passes ---- */

static hdo_status network_loss(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, double *loss,
                               float *buf) {
    hdo_net_samples s;
    size_t mark = hdo__arena_mark(w->arena);
    hdo_status st = begin(self(f), b, w, &s);
    if (st != HDO_OK) return st;
    hdo__net_loss(self(f)->net, &s, x, w, loss, NULL, buf);
    *loss /= (double)s.size;
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

static hdo_status network_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                               double *loss, float *buf) {
    hdo_net_samples s;
    size_t mark = hdo__arena_mark(w->arena);
    hdo_status st = begin(self(f), b, w, &s);
    if (st != HDO_OK) return st;
    hdo__net_grad(self(f)->net, &s, x, w, g, loss, buf);
    *loss /= (double)s.size;
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

static hdo_status network_jvp(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                              int k, hdo_work *w, double *loss, double *dloss, float *buf) {
    hdo_net_samples s;
    size_t mark = hdo__arena_mark(w->arena);
    hdo_status st = begin(self(f), b, w, &s);
    if (st != HDO_OK) return st;
    hdo__net_jvp(self(f)->net, &s, x, u, first, k, w, loss, dloss, buf);
    *loss /= (double)s.size;
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

static hdo_status network_loss_many(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                    int first, int k, float nu, hdo_work *w, double *loss) {
    hdo_net_samples s;
    size_t mark = hdo__arena_mark(w->arena);
    hdo_status st = begin(self(f), b, w, &s);
    if (st != HDO_OK) return st;
    hdo__net_loss_many(self(f)->net, &s, x, u, first, k, nu, w, loss);
    for (int r = 0; r < k; r++) loss[r] /= (double)s.size;
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

static hdo_status network_complex_step(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                       int first, int k, double nu, hdo_work *w, double *slope) {
    hdo_net_samples s;
    size_t mark = hdo__arena_mark(w->arena);
    hdo_status st = begin(self(f), b, w, &s);
    if (st != HDO_OK) return st;
    hdo__net_complex(self(f)->net, &s, x, u, first, k, nu, w, slope);
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

static hdo_status network_evaluate(const hdo_objective *f, const hdo_batch *b, const float *X, size_t ld, int K,
                                   hdo_work *w, double *loss_sum, int64_t *correct) {
    hdo_net_samples s;
    hdo_batch still = *b;
    size_t mark = hdo__arena_mark(w->arena);
    if (b->train && b->front != b->in) still.front = NULL; /* it may have dropped something */
    still.train = false;
    hdo_status st = begin(self(f), &still, w, &s);
    if (st != HDO_OK) return st;
    hdo__net_evaluate(self(f)->net, &s, X, ld, K, w, loss_sum, correct);
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

/* S t = p (t - <p, t>) for one sample: t the difference of two logits, p the softmax of z. */
static void pull_of(size_t C, const float *z, const float *minus, double scale, float *t) {
    float top = z[0];
    double sum = 0.0, mean = 0.0;
    for (size_t c = 1; c < C; c++) top = z[c] > top ? z[c] : top;
    for (size_t c = 0; c < C; c++) {
        double p = hdo__exp((double)z[c] - (double)top);
        sum += p;
        mean += p * ((double)t[c] - (double)minus[c]);
    }
    mean /= sum;
    for (size_t c = 0; c < C; c++) {
        double p = hdo__exp((double)z[c] - (double)top) / sum;
        t[c] = (float)(p * scale * ((double)t[c] - (double)minus[c] - mean));
    }
}

/* The logits are continuous where the loss has kinks: their differences stay true where differences of gradients are
 * dominated by the few samples that cross one. */
static hdo_status network_gauss_newton(const hdo_objective *f, const hdo_batch *b, const float *x, const float *up,
                                       const float *down, double h, hdo_work *w, float *slope, float *g) {
    const hdo_net *net = self(f)->net;
    hdo_net_samples s;
    size_t mark = hdo__arena_mark(w->arena);
    hdo_status st = begin(self(f), b, w, &s);
    if (st != HDO_OK) return st;
    size_t C = (size_t)net->classes, cells = (size_t)s.size * C;
    float *z = slope + cells, *minus = z + cells;
    hdo__net_logits(net, &s, up, w, slope);
    hdo__net_logits(net, &s, down, w, minus);
    hdo__net_logits(net, &s, x, w, z);
    for (size_t i = 0; i < (size_t)s.size; i++)
        pull_of(C, z + i * C, minus + i * C, 1.0 / (2.0 * h * (double)s.size), slope + i * C);
    s.pull = slope;
    double unused;
    hdo__net_grad(net, &s, x, w, g, &unused, NULL);
    hdo__ranges_clear(f->idle, 0, f->d, g);
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}

static const hdo_objective_ops network_ops = {
    .name = "network",
    .destroy = network_destroy,
    .work_bytes = network_work_bytes,
    .pass_bytes = network_pass_bytes,
    .init = network_init,
    .adopt = network_adopt,
    .part = network_part,
    .join = network_join,
    .features = network_features,
    .prepare = network_prepare,
    .loss = network_loss,
    .grad = network_grad,
    .jvp = network_jvp,
    .loss_many = network_loss_many,
    .complex_step = network_complex_step,
    .gauss_newton = network_gauss_newton,
    .evaluate = network_evaluate,
};

/* ---- constructor ---- */

static hdo_status build(const hdo_objective_args *p, hdo_net *net, hdo_error *e) {
    const hdo_model_config *m = &p->config->model;
    bool authors = m->reading.id == HDO_READING_AUTHORS, custom = strcmp(m->name, "custom") == 0;
    const char *text = custom ? m->layers : hdo__model_text(m->name, authors);
    char resized[8192];
    if (text == NULL) return hdo__fail(e, HDO_E_CONFIG, "model.name: \"%s\" is not a network.", m->name);
    if (custom && text[0] == '\0')
        return hdo__fail(e, HDO_E_CONFIG,
                         "model.layers: a custom network needs its layers, for example "
                         "\"linear 128, relu, linear classes\".");
    bool tokens = p->train->vocab > 0;
    if (strcmp(m->name, "transformer") == 0 && !tokens)
        return hdo__fail(e, HDO_E_CONFIG,
                         "model.name: the transformer reads tokens; data.name must be a token data set "
                         "such as brackets.");
    if (!custom && strcmp(m->name, "transformer") != 0 && tokens)
        return hdo__fail(e, HDO_E_CONFIG,
                         "model.name: \"%s\" reads numbers, the data set holds tokens; use transformer "
                         "or custom.",
                         m->name);
    int full = (int)(m->resize > 0 ? m->resize : m->input_size);
    if (strcmp(m->name, "resnet18") == 0 && m->input_size > 0 &&
        (p->train->shape[1] != full || p->train->shape[2] != full || full != m->input_size)) {
        int n = snprintf(resized, sizeof resized, "input: resize %d crop %d, %s", full, (int)m->input_size, text);
        assert(n > 0 && (size_t)n < sizeof resized); /* the description of resnet18 is half as long */
        (void)n;
        text = resized;
    }
    hdo_net_words words = {.classes = p->train->classes, .dropout = m->dropout};
    hdo_status st = hdo__net_parse(net, text, &words, e);
    if (st != HDO_OK && !custom) hdo__error_prefix(e, "model %s does not fit the data", m->name);
    if (st == HDO_OK) net->fresh = m->dropout_mask.id == HDO_MASK_FRESH;
    for (int k = 0; k < p->config->n_classes; k++) {
        const hdo_choice *u = &p->config->population[k].directions;
        if (u->id == HDO_DIRECTIONS_LOW_RANK && (int)u->arg > net->rank) net->rank = (int)u->arg;
    }
    return st;
}

/* model.train: freezes what is not trained and cuts off what lies below it. */
static hdo_status freeze(const hdo_objective_args *p, network *o, hdo_net *net, hdo_train *how, hdo_error *e) {
    const char *text = p->config->model.train;
    bool trained[HDO_PARAMS_MAX];
    if (hdo__train_is_all(text)) return HDO_OK;
    hdo_status st = hdo__train_parse(text, net, how, e);
    if (st != HDO_OK) return st;
    for (int i = 0; i < net->params.n && net->fresh; i++)
        if (how[i].how > HDO_TRAIN_PLAIN)
            return hdo__fail(e, HDO_E_UNSUPPORTED,
                             "model.train has lora or scales, which need one dropout mask for an estimate; leave "
                             "model.dropout_mask at shared");
    o->plain = hdo__alloc(sizeof *o->plain);
    if (o->plain == NULL) return HDO_E_MEMORY;
    *o->plain = *net;
    for (int i = 0; i < net->params.n; i++) trained[i] = how[i].how != HDO_TRAIN_FROZEN;
    hdo__net_freeze(net, trained);
    o->front = hdo__net_split_front(net);
    if (o->front != NULL) hdo__net_plan(o->front);
    o->zero = hdo__alloc((hdo__net_longest_frozen(net) + 1) * sizeof(float));
    net->zero = o->zero;
    return o->zero != NULL ? HDO_OK : HDO_E_MEMORY;
}

/* Rows of the layout that are in use; returns how many. */
static int tensors_of(const hdo_layout *t, hdo_tensor *out) {
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        const hdo_param *row = &t->row[i];
        if (row->frozen) continue;
        hdo_tensor *to = &out[n++];
        *to =
            (hdo_tensor){.name = row->name, .off = row->off, .len = row->len, .n_dim = row->n_dim, .split = row->split};
        memcpy(to->dim, row->dim, sizeof to->dim);
    }
    return n;
}

static hdo_status describe(const hdo_objective_args *p, network *o, hdo_net *net) {
    size_t all = (size_t)(net->params.n + net->buffers.n);
    o->rows = hdo__alloc(sizeof(hdo_tensor) * 2 * all);
    if (o->rows == NULL) return HDO_E_MEMORY;
    int n = tensors_of(&net->params, o->rows), m = tensors_of(&net->buffers, o->rows + n);
    if (o->plain != NULL) {
        hdo_tensor *rows = o->rows + all;
        o->whole = (hdo_whole){.d = o->plain->params.total, .n_buf = o->plain->buffers.total, .tensors = rows};
        o->whole.n_tensors = tensors_of(&o->plain->params, rows);
        o->whole.buffers = rows + o->whole.n_tensors;
        o->whole.n_buffers = tensors_of(&o->plain->buffers, rows + o->whole.n_tensors);
    }
    hdo__net_kink(net, o->kink);
    o->base = (hdo_objective){.ops = &network_ops,
                              .d = net->params.total,
                              .n_buf = net->buffers.total,
                              .tensors = o->rows,
                              .n_tensors = n,
                              .buffers = o->rows + n,
                              .n_buffers = m,
                              .whole = o->plain != NULL ? &o->whole : NULL,
                              .idle = hdo__net_idle(net),
                              .has_accuracy = true,
                              .usual_loss = log((double)p->train->classes),
                              .model = p->config->model.name,
                              .kink = o->kink[0] != '\0' ? o->kink : NULL,
                              .eval_models = 64,
                              .eval_batch = 256};
    return HDO_OK;
}

/* lora and scales stand before the network. */
static hdo_status adapt(network *o, const hdo_train *how, hdo_objective **out, hdo_error *e) {
    hdo_train of[HDO_PARAMS_MAX]; /* of the tensors that are trained */
    int n = 0;
    bool any = false;
    *out = &o->base;
    for (int i = 0; o->plain != NULL && i < o->net->params.n; i++) {
        if (how[i].how == HDO_TRAIN_FROZEN) continue;
        any = any || how[i].how != HDO_TRAIN_PLAIN;
        of[n++] = how[i];
    }
    return any ? hdo__adapter_create(&o->base, of, o->net->k, out, e) : HDO_OK;
}

hdo_status hdo__network_create(const hdo_objective_args *p, hdo_objective **out, hdo_error *e) {
    *out = NULL;
    if (p->train == NULL) return hdo__fail(e, HDO_E_CONFIG, "model.name: \"%s\" needs data.", p->config->model.name);
    const hdo_dataset *ds = p->train;
    bool tokens = ds->vocab > 0;
    network *o = hdo__alloc(sizeof *o);
    if (o == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory while building model %s.", p->config->model.name);
    hdo_net *net = hdo__net_create(hdo__kernels(p->config->kernels.id), tokens ? 1 : ds->shape[0],
                                   tokens ? 1 : ds->shape[1], tokens ? ds->n_in : ds->shape[2], ds->vocab, ds->classes);
    *o = (network){.net = net, .vocab = ds->vocab, .n_in = (size_t)ds->n_in, .init = p->config->model.init};
    hdo_train how[HDO_PARAMS_MAX];
    hdo_status st = net != NULL ? build(p, net, e) : HDO_E_MEMORY;
    if (st == HDO_OK) st = freeze(p, o, net, how, e);
    if (st == HDO_OK) {
        hdo__net_plan(net);
        st = describe(p, o, net);
    }
    if (st == HDO_OK) return adapt(o, how, out, e);
    if (st == HDO_E_MEMORY) hdo__fail(e, st, "out of memory while building model %s.", p->config->model.name);
    network_destroy(&o->base);
    return st;
}
