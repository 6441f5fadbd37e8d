/* SPDX-License-Identifier: Apache-2.0 — the registry of objectives and the wrappers that hold asserts and defaults. */
#include "objective/objective.h"

#include <assert.h>
#include <string.h>

#include "base/vec.h"
#include "config/names.h"
#include "objective/network.h"
#include "objective/registry.h"

/* The text's softmax regression has code of its own; the authors' adds batch-norm and a sigmoid and is a network. */
static hdo_status logistic_create(const hdo_objective_args *p, hdo_objective **out, hdo_error *e) {
    bool authors = p->config->model.reading.id == HDO_READING_AUTHORS;
    return authors ? hdo__network_create(p, out, e) : hdo__logistic_create(p, out, e);
}

const hdo_objective_entry hdo__objectives[] = {
#define HDO_X(name, data, create) {name, data, create},
    HDO_MODEL_LIST(HDO_X)
#undef HDO_X
        {NULL, false, NULL}};

const hdo_objective_entry *hdo__objective_find(const char *name) {
    for (const hdo_objective_entry *o = hdo__objectives; o->name != NULL; o++) {
        if (strcmp(o->name, name) == 0) return o;
    }
    return NULL;
}

unsigned hdo__objective_can(const hdo_objective *f) {
    unsigned can = HDO_CAN_LOSS;
    if (f->ops->grad != NULL) can |= HDO_CAN_GRAD;
    if (f->ops->jvp != NULL) can |= HDO_CAN_JVP;
    if (f->ops->complex_step != NULL) can |= HDO_CAN_COMPLEX;
    if (f->ops->span != NULL) can |= HDO_CAN_SPAN;
    return can;
}

void hdo__objective_destroy(hdo_objective *f) {
    if (f != NULL) f->ops->destroy(f);
}

hdo_whole hdo__objective_whole(const hdo_objective *f) {
    if (f->whole != NULL) return *f->whole;
    return (hdo_whole){f->d, f->n_buf, f->tensors, f->n_tensors, f->buffers, f->n_buffers};
}

hdo_status hdo__objective_prepare(const hdo_objective *f, hdo_batch *b, hdo_work *w) {
    return f->ops->prepare != NULL ? f->ops->prepare(f, b, w) : HDO_OK;
}

size_t hdo__objective_live(const hdo_objective *f) {
    return hdo__count_outside(f->idle, 0, f->d);
}

hdo_status hdo__objective_grad(const hdo_objective *f, const hdo_batch *b, const float *x, hdo_work *w, float *g,
                               double *loss, float *buf) {
    hdo__ranges_clear(f->idle, 0, f->d, g);
    return f->ops->grad(f, b, x, w, g, loss, buf);
}

size_t hdo__objective_work_bytes(const hdo_objective *f, int batch, int k) {
    size_t copy = f->ops->loss_many == NULL ? hdo__arena_round((f->d + f->n_buf) * sizeof(float)) : 0;
    return f->ops->work_bytes(f, batch, k) + copy;
}

size_t hdo__objective_pass_bytes(const hdo_objective *f, unsigned needs, int batch, int k) {
    if (f->ops->pass_bytes != NULL) return f->ops->pass_bytes(f, needs, batch, k);
    return hdo__objective_work_bytes(f, batch, k);
}

hdo_status hdo__objective_loss_many(const hdo_objective *f, const hdo_batch *b, const float *x, const hdo_dirs *u,
                                    int first, int k, float nu, hdo_work *w, double *loss) {
    assert(k >= 1);
    if (f->ops->loss_many != NULL) return f->ops->loss_many(f, b, x, u, first, k, nu, w, loss);
    size_t mark = hdo__arena_mark(w->arena);
    float *y = hdo__arena_floats(w->arena, f->d + f->n_buf);
    if (f->n_buf > 0) memcpy(y + f->d, x + f->d, f->n_buf * sizeof(float));
    hdo_status st = HDO_OK;
    for (int r = 0; r < k && st == HDO_OK; r++) {
        hdo__dirs_fill(u, first + r, 0, f->d, y);
        hdo__axpby(f->d, 1.0f, x, nu, y); /* y = x + nu u */
        st = f->ops->loss(f, b, y, w, &loss[r], NULL);
    }
    hdo__arena_rewind(w->arena, mark);
    return st;
}
