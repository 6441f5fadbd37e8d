/* SPDX-License-Identifier: Apache-2.0
 *
 * What a layer is: all a layer's file (linear.c, attention.c, ...) has to know. A layer is stateless. It computes from
 * what the walk hands it, up to five ways:
 *
 *   fwd    out from in
 *   bwd    din and the gradient of its parameters from dout, and from what fwd kept
 *   jvp    forward mode: out, and for each of G directions the tangent of out from the tangents of in and parameters
 *   cplx   out at the complex point in + i nu tin, parameters x + i nu u: real part in out, imaginary part over nu in
 *          tout. So it shares walk and memory with jvp, whose limit it is; sums and products are one function for both
 *   work   how much scratch these take
 *
 * Shapes stand behind pointers: B samples, G tangents, n numbers a sample. All is row-major.
 */
#ifndef HDO_NN_LAYER_H
#define HDO_NN_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dir.h"
#include "base/split.h"
#include "base/team.h"
#include "kernels/kernels.h"
#include "nn/nn_simd.h"

enum { HDO_GROUP_MAX = 8 }; /* most tangents that walk together */

typedef struct hdo_net hdo_net;
typedef struct hdo_layer hdo_layer;

typedef struct hdo_value { /* what flows between layers, per sample */
    size_t n;              /* numbers */
    int C, H, W;           /* channels, height, width; a sequence: positions H, width W, C = 1 */
    bool seq;              /* (T, D) sequence: linear layers act on every position */
} hdo_value;

/* ---- the arguments of a layer's functions ---- */

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

/* One walk over samples lo .. lo + B - 1. Layers read B, G, nu, s, work, k and v; the rest is for the helpers below. */
typedef struct hdo_pass {
    const hdo_net *net;
    const hdo_kernels *k; /* products, convolutions, attention */
    const hdo_nn_simd *v; /* element-wise loops */
    const hdo_net_samples *s;
    int lo, B;
    hdo_work *work;
    bool wide; /* the whole batch in one walk, with the team inside the layers */

    const float *x;     /* (d) */
    const float *stats; /* (n_buf): running statistics */
    float *stats_out;   /* (n_buf): updated ones, or NULL */
    uint64_t mask_seed;

    /* loss_many on large networks: weights are x + nu u_r, made tile by tile. u == NULL: weights are x itself. */
    const hdo_dirs *u;
    int r;
    double nu;

    /* jvp: G tangents u_r .. u_{r+G-1}; du (G, d) when they are written out, NULL when slices are made as needed. cplx:
     * the same with G = 1 and nu > 0. */
    int G;
    const float *du;

    /* loss_many along directions of low rank: the G copies of the activations, perturbed by u_r .. u_{r+G-1}, stand
     * where forward mode has its tangents, and go through products with x itself together. */
    bool many;

    /* grad */
    float *g; /* (d) */
    bool add; /* g is added to, not overwritten */
} hdo_pass;

/* What a layer reads and writes. A layer whose inplace is set works with out == in (inplace_bwd: din == dout). */
typedef struct hdo_io {
    const float *in, *in2;   /* (B, n): in2 of layers with two inputs */
    float *out;              /* (B, n); bwd only reads it */
    float *aux;              /* what fwd keeps for bwd besides in and out; NULL outside grad */
    const float *tin, *tin2; /* (G, B, n): tangents; NULL: zero */
    float *tout;             /* (G, B, n) */
    float *dout;             /* (B, n); bwd may destroy it */
    float *din;              /* (B, n); NULL: nobody asks */
} hdo_io;

typedef void hdo_layer_fn(const hdo_layer *l, const hdo_pass *p, const hdo_io *io);

typedef struct hdo_layer_ops {
    const char *name;
    bool inplace;     /* forward and forward-mode */
    bool inplace_bwd; /* reverse: din may be dout */
    bool needs_in;    /* bwd reads in */
    bool needs_out;   /* bwd reads out (also when a ReLU is fused) */
    bool fuses_relu;  /* a ReLU behind it becomes l->relu */
    bool couples;     /* a training pass couples the samples */
    hdo_layer_fn *fwd, *bwd;
    hdo_layer_fn *jvp, *cplx; /* called for layers behind the first parameter only; cplx may be jvp */
    /* Products only, or NULL. tout (G, B, n) = the layer with weights x + nu u_{r+g}, where u has factors at its
     * weight, of tin (G, B, n), or of in if tin is NULL: the copies are all the same. */
    hdo_layer_fn *many;
    /* Scratch bytes any pass over B samples with G tangents takes; NULL: none. */
    size_t (*work)(const hdo_layer *l, const hdo_net *net, int B, int G);
} hdo_layer_ops;

enum { HDO_ACT_RELU = 1, HDO_ACT_GELU, HDO_ACT_SIGMOID };

struct hdo_layer {
    const hdo_layer_ops *ops;
    int in, in2, out;      /* value numbers; in2: -1 unless the layer has two inputs */
    size_t n;              /* numbers a sample of out */
    int weight, bias;      /* its tensors, or -1 */
    int mean, var;         /* its running statistics, or -1 */
    bool relu;             /* fused at the end */
    int number;            /* position: part of the address of dropout masks */
    int rows, n_in, n_out; /* rows per sample and widths; batch-norm: positions per channel (rows), channels (n_out) */
    hdo_conv geo;          /* conv, pool: geometry; B is filled per pass */
    int act;
    int heads;
    float p, eps;
    size_t aux, aux_fixed; /* floats a sample, floats a batch; at most one is not zero */
};

/* ---- tensors: `tensor` is l->weight or l->bias; one that is not there (-1) is NULL ---- */

/* Its numbers, of the point x. */
const float *hdo__numbers(const hdo_pass *p, int tensor);
size_t hdo__numbers_len(const hdo_net *net, int tensor);
bool hdo__frozen(const hdo_net *net, int tensor); /* nobody trains it (or it is not there) */
/* Where its gradient goes; NULL: it is frozen. */
float *hdo__gradient(const hdo_pass *p, int tensor);
/* Its numbers for a forward pass: those of x, or perturbed ones x + nu u_r in the arena (mark before, rewind after). */
const float *hdo__weights(const hdo_pass *p, int tensor);
/* Its tangent along direction r < G; may take memory of the arena likewise. Frozen: zeros, for vectors. */
const float *hdo__tangent(const hdo_pass *p, int r, int tensor);

/* Where directions of low rank have factors for the tensor (base/dir.h); NULL: nowhere. */
const hdo_tensor *hdo__factors_at(const hdo_pass *p, int tensor, int *m, int *n);

/* A matrix (rows, len), all at once or, where its numbers are made as they are needed, in tiles of rows:
 *
 *     for (hdo_tile t = hdo__weight_tiles(p, l->weight, O, I); hdo__tile_next(&t);)
 *         ... rows t.lo .. t.lo + t.n - 1 are t.w (t.n, I) ...
 *
 * Memory of a tile is given back by the next turn. */
typedef struct hdo_tile {
    int lo, n;
    const float *w;
    /* private */
    const hdo_pass *pass;
    int tensor, r, rows, most;
    size_t len, mark;
} hdo_tile;
hdo_tile hdo__weight_tiles(const hdo_pass *p, int tensor, int rows, size_t len);
hdo_tile hdo__tangent_tiles(const hdo_pass *p, int r, int tensor, int rows, size_t len);
bool hdo__tile_next(hdo_tile *t);
size_t hdo__tile_bytes(const hdo_net *net, int rows, size_t len); /* for work: arena bytes of one such tile */

/* Does the layer normalise by the batch? In training, unless it is frozen. */
bool hdo__by_batch(const hdo_layer *l, const hdo_pass *p);
/* Running statistics, l->mean and l->var: as they are, and where new ones go (NULL: nowhere). */
const float *hdo__stats(const hdo_pass *p, int buffer);
float *hdo__stats_out(const hdo_pass *p, int buffer);

/* The stream of masks of layer l; a number in it is addressed by the place of the sample in the batch. */
hdo_stream hdo__mask_stream(const hdo_pass *p, const hdo_layer *l);

/* Wide passes spread pieces of a layer over the pass's team: piece k covers [k n / pieces, (k + 1) n / pieces) of n
 * items. Only work whose every number comes out the same whatever the cut is spread like this, so the bits do not
 * depend on the threads; hdo__pieces says how many pieces of samples there are. */
typedef void (*hdo_piece)(void *ctx, int lo, int hi, hdo_work *w);
int hdo__pieces(const hdo_pass *p, int n);
void hdo__pass_pieces(const hdo_pass *p, int n, int pieces, hdo_piece fn, void *ctx);

/* ---- building: constructors return the number of the new value, or -1 ---- */

enum { HDO_FILL_CONST = 1, HDO_FILL_UNIFORM, HDO_FILL_NORMAL };
enum { HDO_ROLE_WEIGHT = 1, HDO_ROLE_BIAS, HDO_ROLE_NORM, HDO_ROLE_BUFFER }; /* what `model.init` may override */
enum { HDO_PARAM_NAME_MAX = 64 };

typedef struct hdo_param {         /* a tensor */
    char name[HDO_PARAM_NAME_MAX]; /* PyTorch's: "layer1.0.bn1.weight" */
    size_t off, len;               /* buffers: offsets count from d. Frozen: place in net->base (freeze.c) */
    bool frozen;                   /* not trained: one copy for all nodes */
    int n_dim, dim[4];
    hdo_split split; /* how it is stored */
    int role;
    int fill;   /* HDO_FILL_*: the model's own initialiser; 0: constant */
    double arg; /* constant, half-width of the uniform, or standard deviation */
    int fan_in; /* of the layer, for he */
} hdo_param;

const hdo_value *hdo__net_value(const hdo_net *net, int value);
const hdo_kernels *hdo__net_kernels(const hdo_net *net);
int hdo__net_rank(const hdo_net *net);  /* the largest of directions of low rank; 0: none */
int hdo__net_vocab(const hdo_net *net); /* 0: the input is no token sequence */

/* A new layer from value in (and in2, or -1), with ops, in, in2, out and n set; NULL: too many. */
hdo_layer *hdo__net_layer(hdo_net *net, const hdo_layer_ops *ops, int in, int in2, hdo_value out);
/* A tensor prefix.suffix with the shape, role and initialiser of `like`; returns its number, or -1 (table full, name
 * too long or taken). */
int hdo__net_param(hdo_net *net, const char *prefix, const char *suffix, hdo_param like);
int hdo__net_buffer(hdo_net *net, const char *prefix, const char *suffix, hdo_param like);
/* weight and, if wanted, bias of a layer as PyTorch starts them: uniform in +-1/sqrt(fan_in). false: no room. */
bool hdo__net_uniform(hdo_net *net, hdo_layer *l, const char *name, hdo_param weight, bool bias);

/* A ReLU behind value v goes into the layer that makes it, if that one can and nobody else has seen v: true. */
bool hdo__net_fuse_relu(hdo_net *net, int v);
/* The ReLU that was fused into the layer that makes v, if any, is taken back: true. */
bool hdo__net_take_relu(hdo_net *net, int v);

/* The constructors, each last in its file. */
typedef struct hdo_conv_words {
    int channels, kernel, stride, pad;
    bool bias;
} hdo_conv_words;
int hdo__linear_add(hdo_net *net, const char *name, int in, int n_out, bool bias);
int hdo__conv_add(hdo_net *net, const char *name, int in, hdo_conv_words c);
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

extern const hdo_layer_ops hdo__cover_ops; /* linear.c: a convolution whose kernel covers the whole picture */

#endif
