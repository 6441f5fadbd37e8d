/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation of softmax regression: many models on one batch. If the validation set has a background (kernels/sparse.h)
 * only what differs from it is multiplied; otherwise the weights are stacked to (C K, p) and it is one product. Which
 * of the two it is depends on the data set alone.
 */
#include <string.h>

#include "objective/logreg.h"

enum {
    LOOK = 256,   /* samples that decide */
    ENOUGH = 1024 /* exponentials in one go */
};

static hdo_batch take(const hdo_dataset *val, int64_t first, int n, int64_t *idx, float *in, int32_t *label) {
    hdo_batch b = {.size = n, .node = -1};
    for (int i = 0; i < n; i++) idx[i] = first + i;
    hdo__batch_gather(&b, val, idx, NULL, in, label);
    return b;
}

void hdo__logreg_forget(hdo_logreg *f) {
    for (int k = 0; k < f->n_pieces; k++) {
        hdo__sparse_free(&f->piece[k].lists);
        hdo__free(f->piece[k].label);
    }
    hdo__free(f->piece);
    f->piece = NULL;
    f->n_pieces = 0;
    f->base.known = NULL;
}

/* All pieces of a set with a background. */
static hdo_status keep(hdo_logreg *f, const hdo_dataset *val, int64_t *idx, hdo_arena *a) {
    const int B = HDO_LOGREG_EVAL_BATCH;
    int n = (int)((val->count + B - 1) / B);
    f->piece = hdo__alloc((size_t)n * sizeof *f->piece);
    if (f->piece == NULL) return HDO_E_MEMORY;
    for (; f->n_pieces < n; f->n_pieces++) {
        hdo_logreg_piece *p = &f->piece[f->n_pieces];
        size_t mark = hdo__arena_mark(a);
        int64_t first = (int64_t)f->n_pieces * B;
        int size = (int)(val->count - first < B ? val->count - first : B);
        p->label = hdo__alloc((size_t)size * sizeof *p->label);
        if (p->label == NULL) return HDO_E_MEMORY;
        float *in = hdo__arena_floats(a, (size_t)size * (size_t)f->p);
        take(val, first, size, idx, in, p->label);
        hdo_sparse lists = hdo__sparse_make(size, f->p, in, f->background, a);
        hdo_status st = hdo__sparse_copy(&lists, &p->lists);
        hdo__arena_rewind(a, mark);
        if (st != HDO_OK) {
            hdo__free(p->label);
            return st;
        }
    }
    f->base.known = val;
    return HDO_OK;
}

hdo_status hdo__logreg_look(hdo_logreg *f, const hdo_dataset *val, hdo_error *e) {
    f->sparse = false;
    bool samples = val != NULL && val->ops != NULL && val->count > 0; /* without ops it is a mere shape */
    if (!samples || f->kernels->sparse_logits == NULL) return HDO_OK;
    int n = val->count < LOOK ? (int)val->count : LOOK;
    const size_t B = HDO_LOGREG_EVAL_BATCH, p = (size_t)f->p;
    int32_t label[LOOK];
    hdo_arena a = {0};
    hdo_status st = hdo__arena_init(&a, hdo__arena_round(B * sizeof(int64_t)) +
                                            hdo__arena_round(B * p * sizeof(float)) + hdo__sparse_bytes((int)B, f->p));
    if (st == HDO_OK) {
        int64_t *idx = hdo__arena_take(&a, B * sizeof *idx);
        size_t mark = hdo__arena_mark(&a);
        float *in = hdo__arena_floats(&a, (size_t)n * p);
        take(val, 0, n, idx, in, label);
        f->sparse = hdo__sparse_background(n, f->p, in, &f->background);
        hdo__arena_rewind(&a, mark);
        if (f->sparse) st = keep(f, val, idx, &a);
    }
    hdo__arena_clear(&a);
    return st == HDO_OK ? st : hdo__fail(e, st, "out of memory for the %lld validation samples", (long long)val->count);
}

/* What is known of a batch, or NULL. */
static const hdo_logreg_piece *known(const hdo_logreg *f, const hdo_batch *b) {
    if (b->whole == NULL || b->whole != f->base.known || b->first % HDO_LOGREG_EVAL_BATCH != 0) return NULL;
    const hdo_logreg_piece *p = &f->piece[b->first / HDO_LOGREG_EVAL_BATCH];
    return p->lists.B == b->size ? p : NULL;
}

/* Samples whose exponentials are taken in one go: few models make short rows. */
static int together_of(size_t rows) {
    return rows >= ENOUGH ? 1 : (int)(ENOUGH / rows);
}

size_t hdo__logreg_evaluate_work(const hdo_logreg *f, int batch) {
    size_t rows = (size_t)HDO_LOGREG_EVAL_MODELS * (size_t)f->C, p = (size_t)f->p;
    size_t product = f->sparse ? hdo__sparse_bytes(batch, f->p) + f->kernels->sparse_work(batch, f->p)
                               : hdo__arena_round(rows * p * sizeof(float));
    return product + hdo__arena_round((size_t)batch * rows * sizeof(float)) +
           hdo__arena_round((rows > ENOUGH ? rows : (size_t)ENOUGH) * sizeof(float)) +
           hdo__arena_round(HDO_LOGREG_EVAL_MODELS * sizeof(double));
}

/* z (size, C, K) from one product of all weights. */
static void dense_logits(const hdo_logreg *f, const hdo_batch *b, const float *X, size_t ld, int K, float *z,
                         hdo_arena *a) {
    size_t mark = hdo__arena_mark(a), C = (size_t)f->C, rows = (size_t)K * C, p = (size_t)f->p;
    float *W = hdo__arena_floats(a, rows * p);
    for (size_t r = 0; r < rows; r++) {
        const float *x = X + r % (size_t)K * ld;
        memcpy(W + r * p, x + r / (size_t)K * p, p * sizeof(float));
        z[r] = x[C * p + r / (size_t)K];
    }
    for (int i = 1; i < b->size; i++) memcpy(z + (size_t)i * rows, z, rows * sizeof(float));
    f->kernels->gemm(false, true, b->size, (int)rows, f->p, 1.0f, b->in, f->p, W, f->p, 1.0f, z, (int)rows);
    hdo__arena_rewind(a, mark);
}

hdo_status hdo__logreg_evaluate(const hdo_objective *o, const hdo_batch *b, const float *X, size_t ld, int K,
                                hdo_work *w, double *loss_sum, int64_t *correct) {
    const hdo_logreg *f = (const hdo_logreg *)o;
    size_t mark = hdo__arena_mark(w->arena), rows = (size_t)K * (size_t)f->C;
    float *z = hdo__arena_floats(w->arena, (size_t)b->size * rows);
    int together = together_of(rows);
    float *e = hdo__arena_floats(w->arena, (size_t)together * rows);
    double *loss = hdo__arena_doubles(w->arena, (size_t)K);
    memset(loss, 0, (size_t)K * sizeof *loss);
    const hdo_logreg_piece *piece = known(f, b);
    const int32_t *label = piece != NULL ? piece->label : b->label;
    if (piece != NULL) {
        f->kernels->sparse_logits(&piece->lists, K, f->C, X, ld, z, w->arena);
    } else if (f->sparse) {
        size_t here = hdo__arena_mark(w->arena);
        hdo_sparse lists = hdo__sparse_make(b->size, f->p, b->in, f->background, w->arena);
        f->kernels->sparse_logits(&lists, K, f->C, X, ld, z, w->arena);
        hdo__arena_rewind(w->arena, here);
    } else {
        dense_logits(f, b, X, ld, K, z, w->arena);
    }
    for (int i = 0, n; i < b->size; i += n) {
        float *zi = z + (size_t)i * rows;
        n = together < b->size - i ? together : b->size - i;
        for (int j = 0; j < n; j++) f->kernels->score_top(K, f->C, zi + (size_t)j * rows, label[i + j], correct);
        f->kernels->vexp((size_t)n * rows, zi, e);
        for (int j = 0; j < n; j++) {
            const float *own = zi + (size_t)j * rows + (size_t)label[i + j] * (size_t)K;
            f->kernels->score_loss(K, f->C, e + (size_t)j * rows, own, loss);
        }
    }
    for (int k = 0; k < K; k++)
        loss_sum[k] += loss[k] + (double)b->size * hdo__logreg_regulariser(f, X + (size_t)k * ld);
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}
