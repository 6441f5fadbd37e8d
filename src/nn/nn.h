/* SPDX-License-Identifier: Apache-2.0
 *
 * The network engine. A network is a short list of layers run in order; residual links are layers with a second input.
 * Layers are stateless: everything lives in the flat parameter vector, in the batch, or in the arena. Five passes:
 *
 *   loss       forward, keeps nothing (activations of at most two layers and a pending residual are alive)
 *   grad       reverse mode: forward keeping what the backward walk needs, then the walk
 *   jvp        forward mode: one primal and G tangents walk together, keeping nothing
 *   loss_many  K forwards with perturbed weights x + nu u_r, made from addressed directions
 *   cplx       forward at the complex point x + i nu u_r. A value is a + i nu t: a where forward mode has the primal, t
 *              where it has the tangent, so both share walk and memory, and forward mode is the limit nu = 0. Sums and
 *              products (linear, conv, ...) are one function for both; what is not linear has its own (kernels/cplx.h)
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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dir.h"
#include "base/split.h"
#include "base/status.h"
#include "base/team.h"
#include "kernels/kernels.h"
#include "nn/nn_simd.h"

enum {
    HDO_LAYERS_MAX = 160,
    HDO_VALUES_MAX = HDO_LAYERS_MAX + 1,
    HDO_PARAMS_MAX = 256,
    HDO_PARAM_NAME_MAX = 64,
    HDO_GROUP_MAX = 8, /* most tangents that walk together */
    HDO_LANES = 8      /* gradient buffers: chunks of one lane add up in order, lanes add up in order */
};

/* ---- layout: one row per tensor ---- */

enum { HDO_FILL_CONST = 1, HDO_FILL_UNIFORM, HDO_FILL_NORMAL };
enum { HDO_ROLE_WEIGHT = 1, HDO_ROLE_BIAS, HDO_ROLE_NORM, HDO_ROLE_BUFFER }; /* what `model.init` may override */

typedef struct hdo_param {
    char name[HDO_PARAM_NAME_MAX]; /* PyTorch's: "layer1.0.bn1.weight" */
    size_t off, len;               /* buffers: offsets count from d */
    int n_dim, dim[4];
    hdo_split split; /* how it is stored */
    int role;
    int fill;   /* HDO_FILL_*: the model's own initialiser */
    double arg; /* constant, half-width of the uniform, or standard deviation */
    int fan_in; /* of the layer, for he */
} hdo_param;

typedef struct hdo_layout {
    hdo_param row[HDO_PARAMS_MAX];
    int n;
    size_t total;
} hdo_layout;

/* Appends prefix.suffix; returns its number, or -1 (table full, name too long or taken). */
int hdo__layout_add(hdo_layout *t, const char *prefix, const char *suffix, int role, int n_dim, const int dim[4]);
int hdo__layout_find(const hdo_layout *t, const char *name); /* -1: not there */

/* ---- layers ---- */

typedef struct hdo_net hdo_net;
typedef struct hdo_layer hdo_layer;

typedef struct hdo_value { /* what flows between layers, per sample */
    size_t n;              /* numbers */
    int C, H, W;           /* channels, height, width; a sequence: positions H, width W, C = 1 */
    bool seq;              /* (T, D) sequence: linear layers act on every position */
} hdo_value;

/* The samples of a pass. */
typedef struct hdo_net_samples {
    int size;
    const float *in;      /* (size, n_in), or NULL */
    const int32_t *tok;   /* (size, n_in), or NULL */
    const int32_t *label; /* (size) */
    uint64_t seed;        /* address of the dropout masks, with node and step */
    uint32_t node;
    uint64_t step;
    bool train; /* batch statistics and dropout, or running statistics and none */
    const float
        *pull; /* (size, classes): hdo__net_grad pulls this back instead of the loss's slope; NULL: the loss's */
} hdo_net_samples;

/* One walk over samples lo .. lo + B - 1. */
typedef struct hdo_pass {
    const hdo_net *net;
    const hdo_net_samples *s;
    int lo, B;
    const float *x;     /* (d) */
    const float *stats; /* (n_buf): running statistics */
    float *stats_out;   /* (n_buf): updated ones, or NULL */
    uint64_t mask_seed;
    bool wide; /* the whole batch in one walk, with the team inside the layers */

    /* loss_many on large networks: weights are x + nu u_r, made tile by tile. u == NULL: weights are x itself. */
    const hdo_dirs *u;
    int r;
    double nu;

    /* jvp: G tangents u_r .. u_{r+G-1}; du (G, d) when they are written out, NULL when slices are made as needed. cplx:
     * the same with G = 1 and nu > 0. */
    int G;
    const float *du;

    /* grad */
    float *g; /* (d) */
    bool add; /* g is added to, not overwritten */

    hdo_work *work;
} hdo_pass;

/* A value and its tangents, or a complex value: in, out (B, n); tin, tout (G, B, n). tin == NULL: zero. */
typedef void (*hdo_tangent_fn)(const hdo_layer *l, const hdo_pass *p, const float *in, const float *tin,
                               const float *in2, const float *tin2, float *out, float *tout);

/* Contracts. `in` and `in2` are (B, n), `out` (B, n), tangents (G, B, n). A layer whose inplace is set must work with
 * out == in (dout == din in reverse); the engine aliases them where the value dies. */
typedef struct hdo_layer_ops {
    const char *name;
    bool inplace;     /* forward and forward-mode */
    bool inplace_bwd; /* reverse: din may be dout */
    bool needs_in;    /* the backward walk reads in */
    bool needs_out;   /* the backward walk reads out (also when a ReLU is fused) */

    /* Scratch bytes any pass over B samples with G tangents takes. */
    size_t (*work)(const hdo_layer *l, const hdo_net *net, int B, int G);

    /* aux: what the backward walk needs besides in and out; NULL outside grad. */
    void (*fwd)(const hdo_layer *l, const hdo_pass *p, const float *in, const float *in2, float *out, float *aux);

    /* dout is the layer's to destroy. din == NULL: nobody asks. */
    void (*bwd)(const hdo_layer *l, const hdo_pass *p, const float *in, const float *out, const float *aux, float *dout,
                float *din);

    /* Both called for layers behind the first parameter only. */
    hdo_tangent_fn jvp;
    hdo_tangent_fn cplx; /* may be jvp where that is exact: sums, and products that mind p->nu */
} hdo_layer_ops;

enum { HDO_ACT_RELU = 1, HDO_ACT_GELU, HDO_ACT_SIGMOID };

struct hdo_layer {
    const hdo_layer_ops *ops;
    int in, in2, out; /* value numbers; in2: -1 unless the layer has two inputs */
    int weight, bias; /* rows of the layout, or -1 */
    int buffer;       /* running mean; the variance is the next row; -1 */
    bool relu;        /* fused at the end */
    int number;       /* position: part of the address of dropout masks */
    int rows, n_in,
        n_out;    /* linear: rows per sample and widths; norms: positions per channel (rows), channels (n_out) */
    hdo_conv geo; /* conv, pool: geometry; B is filled per pass */
    int act;
    int heads;
    float p, eps;
    size_t aux, aux_fixed; /* floats a sample, floats a batch; at most one is not zero */
};

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
    bool couples; /* batch-norm: training passes couple the samples */
    bool fresh;   /* a new dropout mask for every perturbed evaluation (authors' reading) */
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
    bool small;        /* perturbed weights are written out once a task: (d) floats; otherwise tile by tile */
};

/* ---- building: every family's constructor; returns the new value, or -1 ---- */
int hdo__net_layer(hdo_net *net, const hdo_layer_ops *ops, int in, int in2, hdo_value out); /* -> layer number or -1 */
int hdo__linear_add(hdo_net *net, const char *name, int in, int n_out, bool bias);
int hdo__conv_add(hdo_net *net, const char *name, int in, int O, int kernel, int stride, int pad, bool bias);
int hdo__act_add(hdo_net *net, int in, int act);
int hdo__batchnorm_add(hdo_net *net, const char *name, int in);
int hdo__layernorm_add(hdo_net *net, const char *name, int in, bool bias);
int hdo__maxpool_add(hdo_net *net, int in, int kernel, int stride, int pad);
int hdo__avgpool_add(hdo_net *net, int in);
int hdo__embed_add(hdo_net *net, const char *name, int in, int width);
int hdo__position_add(hdo_net *net, const char *name, int in);
int hdo__attention_add(hdo_net *net, int in, int heads, double dropout);
int hdo__dropout_add(hdo_net *net, int in, double p);
int hdo__residual_add(hdo_net *net, int in, int in2);
int hdo__resize_add(hdo_net *net, int in, int size, int crop); /* the centre crop x crop of size x size */

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

/* ---- helpers of the families ---- */

/* linear.c: a convolution with one position whose kernel covers the whole picture, (O, C H W) over the live taps. */
extern const hdo_layer_ops hdo__cover_ops;

/* Weights [off, off + len) of the pass: x itself, or a perturbed tile taken from the arena (caller marks, rewinds). */
const float *hdo__pass_weights(const hdo_pass *p, size_t off, size_t len);
/* The same slice of tangent r (0 .. G-1). */
const float *hdo__pass_tangent(const hdo_pass *p, int r, size_t off, size_t len);
/* Rows of a weight matrix that make a tile of about 64 K floats; all of them when no tile is needed. */
int hdo__pass_tile(const hdo_pass *p, int rows, size_t row_len, bool tangent);
size_t hdo__tile_bytes(const hdo_net *net, int rows, size_t row_len); /* arena bytes of one such tile */

static inline hdo_ranges hdo__net_idle(const hdo_net *net) {
    return (hdo_ranges){net->idle, net->n_idle};
}
static inline const hdo_param *hdo__param(const hdo_net *net, int row) {
    return &net->params.row[row];
}

/* The stream of masks of layer l; a number in it is addressed by the place of the sample in the batch. */
hdo_stream hdo__mask_stream(const hdo_pass *p, const hdo_layer *l);

/* Wide passes spread pieces of a layer over the pass's team: piece k covers [k n / pieces, (k + 1) n / pieces) of n
 * items. Only work whose every number comes out the same whatever the cut is spread like this, so the bits do not
 * depend on the threads; hdo__pieces says how many pieces of samples there are. */
typedef void (*hdo_piece)(void *ctx, int lo, int hi, hdo_work *w);
int hdo__pieces(const hdo_pass *p, int n);
void hdo__pass_pieces(const hdo_pass *p, int n, int pieces, hdo_piece fn, void *ctx);

#endif
