/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation of softmax regression: many models on one batch. If the validation set has a background (kernels/sparse.h)
 * only what differs from it is multiplied; otherwise the weights are stacked to (C K, p) and it is one product. Which
 * of the two it is depends on the data set alone.
 */
#include <stdlib.h>
#include <string.h>

#include "objective/logreg.h"

enum { LOOK = 256 }; /* samples that decide */

hdo_status hdo__logreg_look(hdo_logreg *f, const hdo_dataset *val, hdo_error *e) {
    f->sparse = false;
    bool samples = val != NULL && val->ops != NULL && val->count > 0; /* without ops it is a mere shape */
    if (!samples || f->kernels->sparse_logits == NULL) return HDO_OK;
    int n = val->count < LOOK ? (int)val->count : LOOK;
    int64_t idx[LOOK];
    int32_t label[LOOK];
    float *in = malloc((size_t)n * (size_t)f->p * sizeof *in);
    if (in == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for a look at the validation samples");
    for (int i = 0; i < n; i++) idx[i] = i;
    hdo_batch b = {.size = n, .node = -1};
    hdo__batch_gather(&b, val, idx, NULL, in, label);
    f->sparse = hdo__sparse_background(n, f->p, in, &f->background);
    free(in);
    return HDO_OK;
}

size_t hdo__logreg_evaluate_work(const hdo_logreg *f, int batch) {
    size_t rows = (size_t)HDO_LOGREG_EVAL_MODELS * (size_t)f->C, p = (size_t)f->p;
    size_t product = f->sparse ? hdo__sparse_bytes(batch, f->p) + f->kernels->sparse_work(batch, f->p)
                               : hdo__arena_round(rows * p * sizeof(float));
    return product + hdo__arena_round((size_t)batch * rows * sizeof(float)) + hdo__arena_round(rows * sizeof(float)) +
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
    float *e = hdo__arena_floats(w->arena, rows);
    double *loss = hdo__arena_doubles(w->arena, (size_t)K);
    memset(loss, 0, (size_t)K * sizeof *loss);
    if (f->sparse) {
        size_t here = hdo__arena_mark(w->arena);
        hdo_sparse lists = hdo__sparse_make(b->size, f->p, b->in, f->background, w->arena);
        f->kernels->sparse_logits(&lists, K, f->C, X, ld, z, w->arena);
        hdo__arena_rewind(w->arena, here);
    } else {
        dense_logits(f, b, X, ld, K, z, w->arena);
    }
    for (int i = 0; i < b->size; i++) {
        float *zi = z + (size_t)i * rows;
        f->kernels->score_top(K, f->C, zi, b->label[i], correct);
        f->kernels->vexp(rows, zi, e);
        f->kernels->score_loss(K, f->C, e, zi + (size_t)b->label[i] * (size_t)K, loss);
    }
    for (int k = 0; k < K; k++)
        loss_sum[k] += loss[k] + (double)b->size * hdo__logreg_regulariser(f, X + (size_t)k * ld);
    hdo__arena_rewind(w->arena, mark);
    return HDO_OK;
}
