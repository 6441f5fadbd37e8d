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
#include "objective/network.h"

typedef struct network {
    hdo_objective base;
    hdo_net *net;
    hdo_choice init;
    hdo_tensor *rows; /* (n_tensors + n_buffers) */
    char kink[HDO_KINK_MAX];
} network;

static const network *self(const hdo_objective *f) {
    return (const network *)f;
}

const hdo_net *hdo__network_net(const hdo_objective *f) {
    return self(f)->net;
}

static void network_destroy(hdo_objective *f) {
    network *o = (network *)f;
    hdo__free(o->net);
    hdo__free(o->rows);
    hdo__free(o);
}

static size_t network_work_bytes(const hdo_objective *f, int batch, int k) {
    return hdo__net_work(self(f)->net, batch, k);
}

static hdo_status network_init(const hdo_objective *f, uint64_t seed, float *x) {
    hdo__net_init(self(f)->net, self(f)->init.id, self(f)->init.arg, seed, x);
    return HDO_OK;
}

/* The engine trusts its samples; here is where trust is earned. */
static hdo_status samples_init(const network *o, const hdo_batch *b, hdo_net_samples *s) {
    if (b->size < 1 || b->label == NULL) return HDO_E_DATA;
    bool tokens = o->net->vocab > 0;
    if (tokens ? b->tok == NULL : b->in == NULL) return HDO_E_DATA;
    for (int i = 0; i < b->size; i++)
        if (b->label[i] < 0 || b->label[i] >= o->net->classes) return HDO_E_DATA;
    size_t n = tokens ? (size_t)b->size * o->net->value[0].n : 0;
    for (size_t i = 0; i < n; i++)
        if (b->tok[i] < 0 || b->tok[i] >= o->net->vocab) return HDO_E_DATA;
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

static hdo_status network_loss(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, double *loss,
                               float *buf) {
    hdo_net_samples s;
    hdo_status st = samples_init(self(f), b, &s);
    if (st != HDO_OK) return st;
    hdo__net_loss(self(f)->net, &s, x, w, loss, NULL, buf);
    *loss /= (double)s.size;
    return HDO_OK;
}

static hdo_status network_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                               double *loss, float *buf) {
    hdo_net_samples s;
    hdo_status st = samples_init(self(f), b, &s);
    if (st != HDO_OK) return st;
    hdo__net_grad(self(f)->net, &s, x, w, g, loss, buf);
    *loss /= (double)s.size;
    return HDO_OK;
}

static hdo_status network_jvp(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u, int first,
                              int k, hdo_work *w, double *loss, double *dloss, float *buf) {
    hdo_net_samples s;
    hdo_status st = samples_init(self(f), b, &s);
    if (st != HDO_OK) return st;
    hdo__net_jvp(self(f)->net, &s, x, u, first, k, w, loss, dloss, buf);
    *loss /= (double)s.size;
    return HDO_OK;
}

static hdo_status network_loss_many(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                    int first, int k, float nu, hdo_work *w, double *loss) {
    hdo_net_samples s;
    hdo_status st = samples_init(self(f), b, &s);
    if (st != HDO_OK) return st;
    hdo__net_loss_many(self(f)->net, &s, x, u, first, k, nu, w, loss);
    for (int r = 0; r < k; r++) loss[r] /= (double)s.size;
    return HDO_OK;
}

static hdo_status network_complex_step(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                       int first, int k, double nu, hdo_work *w, double *slope) {
    hdo_net_samples s;
    hdo_status st = samples_init(self(f), b, &s);
    if (st != HDO_OK) return st;
    hdo__net_complex(self(f)->net, &s, x, u, first, k, nu, w, slope);
    return HDO_OK;
}

static hdo_status network_evaluate(const hdo_objective *f, const hdo_batch *b, const float *X, size_t ld, int K,
                                   hdo_work *w, double *loss_sum, int64_t *correct) {
    hdo_net_samples s;
    hdo_status st = samples_init(self(f), b, &s);
    if (st != HDO_OK) return st;
    hdo__net_evaluate(self(f)->net, &s, X, ld, K, w, loss_sum, correct);
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
    hdo_status st = samples_init(self(f), b, &s);
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
    return HDO_OK;
}

static const hdo_objective_ops network_ops = {
    .name = "network",
    .destroy = network_destroy,
    .work_bytes = network_work_bytes,
    .init = network_init,
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
    if (st == HDO_OK) {
        net->fresh = m->dropout_mask.id == HDO_MASK_FRESH;
        hdo__net_plan(net);
    }
    return st;
}

static void tensors_of(const hdo_layout *t, hdo_tensor *out) {
    for (int i = 0; i < t->n; i++) {
        const hdo_param *row = &t->row[i];
        out[i] =
            (hdo_tensor){.name = row->name, .off = row->off, .len = row->len, .n_dim = row->n_dim, .split = row->split};
        memcpy(out[i].dim, row->dim, sizeof out[i].dim);
    }
}

hdo_status hdo__network_create(const hdo_objective_args *p, hdo_objective **out, hdo_error *e) {
    *out = NULL;
    if (p->train == NULL) return hdo__fail(e, HDO_E_CONFIG, "model.name: \"%s\" needs data.", p->config->model.name);
    const hdo_dataset *ds = p->train;
    bool tokens = ds->vocab > 0;
    network *o = hdo__alloc(sizeof *o);
    hdo_net *net = hdo__net_create(hdo__kernels(p->config->kernels.id), tokens ? 1 : ds->shape[0],
                                   tokens ? 1 : ds->shape[1], tokens ? ds->n_in : ds->shape[2], ds->vocab, ds->classes);
    hdo_status st = HDO_E_MEMORY;
    if (o == NULL || net == NULL) goto fail;
    st = build(p, net, e);
    if (st != HDO_OK) goto fail;
    o->rows = hdo__alloc(sizeof(hdo_tensor) * (size_t)(net->params.n + net->buffers.n));
    if (o->rows == NULL) {
        st = HDO_E_MEMORY;
        goto fail;
    }
    tensors_of(&net->params, o->rows);
    tensors_of(&net->buffers, o->rows + net->params.n);
    o->net = net;
    o->init = p->config->model.init;
    hdo__net_kink(net, o->kink);
    o->base = (hdo_objective){.ops = &network_ops,
                              .d = net->params.total,
                              .n_buf = net->buffers.total,
                              .tensors = o->rows,
                              .n_tensors = net->params.n,
                              .buffers = o->rows + net->params.n,
                              .n_buffers = net->buffers.n,
                              .idle = hdo__net_idle(net),
                              .has_accuracy = true,
                              .usual_loss = log((double)p->train->classes),
                              .model = p->config->model.name,
                              .kink = o->kink[0] != '\0' ? o->kink : NULL,
                              .eval_models = 64,
                              .eval_batch = 256};
    *out = &o->base;
    return HDO_OK;
fail:
    if (st == HDO_E_MEMORY) hdo__fail(e, st, "out of memory while building model %s.", p->config->model.name);
    hdo__free(net);
    hdo__free(o);
    return st;
}
