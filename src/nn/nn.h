/* SPDX-License-Identifier: Apache-2.0
 *
 * The network engine. A network is a short list of layers (layer.h) run in order; residual links are layers with a
 * second input. Everything lives in the flat parameter vector, in the batch, or in the arena. Five passes:
 *
 *   loss       forward, keeps nothing (activations of at most two layers and a pending residual are alive)
 *   grad       reverse mode: forward keeping what the backward walk needs, then the walk
 *   jvp        forward mode: one primal and G tangents walk together, keeping nothing
 *   loss_many  K forwards with perturbed weights x + nu u_r, made from addressed directions
 *   cplx       K forwards at complex points x + i nu u_r
 *
 * A layer family is one file with its passes side by side and its constructor last. Plan, then run: sizes, offsets and
 * chunk lengths are settled by hdo__net_plan; a pass only computes, and takes all memory from the arena.
 *
 * Bits never depend on the number of threads: the batch is cut in chunks whose length depends only on the network, and
 * partial results are summed in chunk order. Networks whose training pass couples the samples (batch-norm) run the
 * whole batch as one chunk and spread fixed pieces of every layer instead.
 */
#ifndef HDO_NN_NN_H
#define HDO_NN_NN_H

#include "base/status.h"
#include "nn/layer.h"

enum {
    HDO_LAYERS_MAX = 160,
    HDO_VALUES_MAX = HDO_LAYERS_MAX + 1,
    HDO_PARAMS_MAX = 256,
    HDO_LANES = 8 /* gradient buffers: chunks of one lane add up in order, lanes add up in order */
};

typedef struct hdo_layout { /* one row per tensor */
    hdo_param row[HDO_PARAMS_MAX];
    int n;
    size_t total; /* numbers of the rows that are trained */
} hdo_layout;

int hdo__layout_find(const hdo_layout *t, const char *name); /* -1: not there */

/* Where values live: offsets in floats per sample, multiples of 16 so that offset * B stays aligned. */
typedef struct hdo_net_plan {
    int first, last;          /* layers first .. last - 1 */
    int root[HDO_VALUES_MAX]; /* values computed in place share the memory of their root */
    size_t off[HDO_VALUES_MAX], total;
    /* grad only */
    int groot[HDO_VALUES_MAX];   /* gradients made in place share the memory of their root; -1: none */
    size_t goff[HDO_VALUES_MAX]; /* gradients with respect to values */
    size_t aoff[HDO_LAYERS_MAX]; /* aux, per sample or (aux_fixed) absolute in the fixed block */
    size_t fixed;                /* floats of the fixed block */
    size_t tmp;                  /* floats a sample: a second contribution before it is added */
    bool second[HDO_LAYERS_MAX]; /* the gradient of `in` was already written by a later layer */
    bool second2[HDO_LAYERS_MAX];
} hdo_net_plan;

struct hdo_net {
    hdo_layer layer[HDO_LAYERS_MAX];
    hdo_value value[HDO_VALUES_MAX]; /* value[0]: the input */
    int n_layers, n_values;
    hdo_layout params, buffers;
    bool pinned[HDO_VALUES_MAX]; /* a name refers to the value (`save`): nothing may be fused into its producer */
    int classes, vocab;
    const float *base; /* frozen tensors; NULL: none is */
    const float *zero; /* as many zeros as the longest frozen tensor has numbers: its tangent */
    bool couples;      /* batch-norm: training passes couple the samples */
    bool fresh;        /* a new dropout mask for every perturbed evaluation (authors' reading) */
    const hdo_kernels *k;
    const hdo_nn_simd *v; /* element-wise loops */

    /* Settled by hdo__net_plan. */
    hdo_range idle[HDO_PARAMS_MAX]; /* parameters no loss depends on: taps that only ever meet padding */
    int n_idle;
    bool live[HDO_VALUES_MAX]; /* depends on parameters: has a tangent and a gradient */
    hdo_net_plan all, front, tail, grad;
    hdo_net_plan rest; /* all but the first layer, which evaluation may share between models */
    int cut;           /* first layer of the tail; the front runs in short runs of samples that stay in cache */
    int chunk;         /* samples of a forward task */
    int sub;           /* samples of a run through the front */
    int gchunk;        /* samples of a grad chunk */
    int group;         /* tangents that walk together */
    int jsub;          /* samples of a forward-mode run through the front */
    int rank;          /* of the directions of low rank it may see, the largest; 0: none. Set before the plan */
    bool small;        /* perturbed weights are written out once a task: (d) floats; otherwise tile by tile */
};

/* The layer language (docs/models.md): parses text into net, whose input value is set. */
typedef struct hdo_net_words {
    int classes;
    double dropout; /* what `dropout` without a number means */
} hdo_net_words;
hdo_status hdo__net_parse(hdo_net *net, const char *text, const hdo_net_words *words, hdo_error *e);

/* The description of a model by name ("mlp", ...), authors' reading or the text's; NULL: no such network. */
const char *hdo__model_text(const char *name, bool authors);

/* Empty network for images or vectors (vocab 0) or token sequences. NULL: out of memory. Free with hdo__free. */
hdo_net *hdo__net_create(const hdo_kernels *k, int C, int H, int W, int vocab, int classes);
void hdo__net_plan(hdo_net *net); /* after the last layer */

/* x (d) and, behind it, buffers (n_buf). init: HDO_INIT_*, arg its number. */
void hdo__net_init(const hdo_net *net, int init, double arg, uint64_t seed, float *x);

/* ---- freeze.c: a network of which only some tensors are trained. Before hdo__net_plan ---- */

/* Tensor i of params is trained iff trained[i]. The trained ones close ranks: d falls, offsets change. The others, and
 * the buffers of batch-norms that are frozen whole, stay at their old places, in net->base, which the caller sets.
 * A frozen batch-norm uses its running statistics, in training too. */
void hdo__net_freeze(hdo_net *net, const bool *trained);
/* The layers below the lowest trained one, as a network of its own whose result is what `net` reads from then on; NULL:
 * there is none (or out of memory: net still works). Free with hdo__free. */
hdo_net *hdo__net_split_front(hdo_net *net);
size_t hdo__net_longest_frozen(const hdo_net *net);   /* numbers of zero */
bool hdo__net_may_cut(const hdo_net *net, int layer); /* all before reaches the rest through the value it reads */

/* ---- passes; x (d + n_buf): statistics stand behind the parameters ---- */

/* Bytes of the caller's arena and of every arena of its team, for one pass over such a batch (k directions, or k models
 * for evaluation) or for any of them. Shared results (sums, lanes of gradients) live in the caller's arena, activations
 * and written-out directions in the arena of the thread that runs the task; sizing both alike is simple and safe. */
enum { HDO_PASS_LOSS, HDO_PASS_GRAD, HDO_PASS_JVP, HDO_PASS_CPLX, HDO_PASS_MANY, HDO_PASS_EVAL };
size_t hdo__net_work_for(const hdo_net *net, int pass, int batch, int k);
size_t hdo__net_work(const hdo_net *net, int batch, int k);

/* Sum of the losses over the samples; correct may be NULL; stats_out (n_buf) may be NULL. */
void hdo__net_loss(const hdo_net *net, const hdo_net_samples *s, const float *x, hdo_work *w, double *sum,
                   int64_t *correct, float *stats_out);
/* g (d) of the MEAN loss, overwritten but for the idle parameters, which are left alone. */
void hdo__net_grad(const hdo_net *net, const hdo_net_samples *s, const float *x, hdo_work *w, float *g, double *sum,
                   float *stats_out);
/* slope[r] of the MEAN loss along u_{first + r}. */
void hdo__net_jvp(const hdo_net *net, const hdo_net_samples *s, const float *x, const hdo_dirs *u, int first, int k,
                  hdo_work *w, double *sum, double *slope, float *stats_out);
void hdo__net_loss_many(const hdo_net *net, const hdo_net_samples *s, const float *x, const hdo_dirs *u, int first,
                        int k, float nu, hdo_work *w, double *sum);
/* slope[r] = Im F(x + i nu u_{first + r}) / nu of the MEAN loss F. Kinks: the real part picks the piece. */
void hdo__net_complex(const hdo_net *net, const hdo_net_samples *s, const float *x, const hdo_dirs *u, int first, int k,
                      double nu, hdo_work *w, double *slope);
/* The first layer with a kink: "ReLU behind fc1", "max-pool at the input"; an empty string: the network is analytic. */
enum { HDO_KINK_MAX = HDO_PARAM_NAME_MAX + 16 };
void hdo__net_kink(const hdo_net *net, char text[HDO_KINK_MAX]);
/* K models, rows of X: adds to sum[K], correct[K]. Evaluation mode whatever s->train says. */
void hdo__net_evaluate(const hdo_net *net, const hdo_net_samples *s, const float *X, size_t ld, int K, hdo_work *w,
                       double *sum, int64_t *correct);

/* Logits of the whole batch, (size, classes): for tests and predictions. Uses the chunks of hdo__net_loss. */
void hdo__net_logits(const hdo_net *net, const hdo_net_samples *s, const float *x, hdo_work *w, float *logits);

/* ---- softmax cross-entropy over logits (B, C); sums in double ---- */
double hdo__xent_loss(int B, int C, const float *z, const int32_t *label, int64_t *correct);
/* Also dz (B, C) = scale (softmax - onehot). */
double hdo__xent_grad(int B, int C, const float *z, const int32_t *label, float scale, float *dz);
/* Also slope[r] += sum over samples of <softmax - onehot, tz_r>; tz (G, B, C). */
double hdo__xent_jvp(int B, int C, const float *z, const int32_t *label, int G, const float *tz, double *slope);

static inline hdo_ranges hdo__net_idle(const hdo_net *net) {
    return (hdo_ranges){net->idle, net->n_idle};
}
static inline const hdo_param *hdo__param(const hdo_net *net, int row) {
    return &net->params.row[row];
}

#endif
