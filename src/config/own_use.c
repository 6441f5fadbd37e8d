/* SPDX-License-Identifier: Apache-2.0 — an objective, a data set or a sink of one's own joins a configuration. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/names.h"
#include "config/own.h"
#include "config/value.h"

/* The head of the table is sound when these are called: name and size are there. A member the user's headers did not
 * have is 0 in the copy. */

static hdo_status check_tensors(const hdo_objective_def *d, hdo_error *e) {
    size_t sum = 0;
    for (int i = 0; i < d->n_tensors; i++) {
        const hdo_tensor_def *t = &d->tensors[i];
        size_t len = 1;
        if (t->name == NULL || t->n_dim < 1 || t->n_dim > 4)
            return hdo__fail(e, HDO_E_MISUSE, "objective '%s': tensor %d has no name, or not 1 to 4 dimensions",
                             d->name, i);
        for (int k = 0; k < t->n_dim; k++) {
            if (t->dim[k] < 1 || (size_t)t->dim[k] > d->dim / len)
                return hdo__fail(e, HDO_E_MISUSE, "objective '%s': tensor '%.64s' does not fit into dim = %zu", d->name,
                                 t->name, d->dim);
            len *= (size_t)t->dim[k];
        }
        sum += len;
    }
    if (d->n_tensors > 0 && sum != d->dim)
        return hdo__fail(e, HDO_E_MISUSE, "objective '%s': its tensors have %zu numbers, but dim is %zu", d->name, sum,
                         d->dim);
    return HDO_OK;
}

static hdo_status check_objective(const hdo_objective_def *d, hdo_error *e) {
    const unsigned data = (unsigned)(HDO_WANT_DATA | HDO_WANT_INDICES);
    if (d->dim < 1 || d->dim > INT_MAX)
        return hdo__fail(e, HDO_E_MISUSE, "objective '%s': dim is %zu, but must be 1 to %d", d->name, d->dim, INT_MAX);
    bool asked = d->loss == NULL && d->losses == NULL; /* hdo_ask and hdo_tell */
    if (asked && (d->gradient != NULL || d->slopes != NULL || d->metrics != NULL))
        return hdo__fail(e, HDO_E_MISUSE,
                         "objective '%s' has neither loss nor losses; one of them is required, unless there are no "
                         "callbacks at all and the run is asked and told (hdo_ask)",
                         d->name);
    if (asked && (d->flags & data) != 0)
        return hdo__fail(e, HDO_E_MISUSE, "objective '%s' is asked and told: it has no data of ours", d->name);
    if ((d->flags & ~(data | (unsigned)(HDO_ANY_THREAD | HDO_HAS_ACCURACY))) != 0)
        return hdo__fail(e, HDO_E_UNSUPPORTED, "objective '%s' has flags this version does not know (0x%x)", d->name,
                         d->flags);
    if ((d->flags & data) == data)
        return hdo__fail(e, HDO_E_MISUSE, "objective '%s' wants data both gathered and as indices; choose one",
                         d->name);
    if ((d->flags & (unsigned)HDO_HAS_ACCURACY) != 0 && d->metrics == NULL)
        return hdo__fail(e, HDO_E_MISUSE, "objective '%s' has HDO_HAS_ACCURACY, but no metrics to count with", d->name);
    bool counts = d->train_count != 0 || d->val_count != 0;
    if (counts && (d->flags & (unsigned)HDO_WANT_INDICES) == 0)
        return hdo__fail(e, HDO_E_MISUSE, "objective '%s' has train_count or val_count, which go with HDO_WANT_INDICES",
                         d->name);
    if (counts && (d->train_count < 1 || d->val_count < 1))
        return hdo__fail(e, HDO_E_MISUSE, "objective '%s': train_count and val_count are both above 0, or both 0",
                         d->name);
    if (d->n_tensors < 0 || (d->n_tensors > 0 && d->tensors == NULL))
        return hdo__fail(e, HDO_E_MISUSE, "objective '%s' has %d tensors, but no list of them", d->name, d->n_tensors);
    return check_tensors(d, e);
}

/* Tensors and their names into memory of the table's own. */
static hdo_status copy_tensors(hdo_table_def *t, hdo_error *e) {
    hdo_objective_def *d = &t->def.objective;
    size_t n = (size_t)d->n_tensors, bytes = n * sizeof(hdo_tensor_def);
    if (n == 0) return HDO_OK;
    for (size_t i = 0; i < n; i++) bytes += strlen(d->tensors[i].name) + 1;
    hdo_tensor_def *copy = malloc(bytes);
    if (copy == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the tensors of '%s'", t->name);
    char *text = (char *)(copy + n);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(d->tensors[i].name) + 1;
        copy[i] = d->tensors[i];
        copy[i].name = memcpy(text, d->tensors[i].name, len);
        text += len;
    }
    d->tensors = copy;
    t->more = copy;
    return HDO_OK;
}

/* A key that follows from a table: as if a foundation had said it. */
void hdo__own_set_text(hdo_config *c, const char *key, const char *value) {
    hdo_slot s;
    if (hdo__slot_find(c, key, &s, NULL) != HDO_OK) return;
    snprintf(hdo__slot_place(c, s), hdo__slot_option(s)->cap, "%s", value);
    c->origin[s.row][s.col] = (hdo_origin){.source = HDO_FROM_BASE};
}

hdo_status hdo_config_use_objective(hdo_config *c, const hdo_objective_def *def, void *user, hdo_error *e) {
    if (c == NULL || def == NULL) return hdo__misuse(e, "hdo_config_use_objective", "a configuration and a table");
    hdo_objective_def d;
    hdo_table_def *t;
    hdo__own_read(&d, sizeof d, def);
    hdo_own_args a = HDO_OWN_ARGS(HDO_OWN_OBJECTIVE, d, def, user);
    hdo_status st = hdo__own_check_head(&a, e);
    if (st == HDO_OK) st = check_objective(&d, e);
    if (st != HDO_OK) return st;
    a.destroy = NULL; /* until nothing can fail any more the user's pointer stays his */
    hdo_own *before = c->own;
    hdo__own_keep(before);
    st = hdo__own_bring(c, &a, &t, e);
    if (st == HDO_OK) st = copy_tensors(t, e);
    if (st != HDO_OK) {
        hdo__own_drop(c->own); /* of the two holds on `before` one stays, or the new set goes */
        c->own = before;
        return st;
    }
    hdo__own_drop(before);
    t->destroy = d.destroy;
    hdo__own_set_text(c, "model.name", t->name);
    hdo__own_set_text(c, "model.identity", t->identity);
    return HDO_OK;
}

static hdo_status check_dataset(const hdo_dataset_def *d, hdo_error *e) {
    bool flat = d->shape[0] == 0 && d->shape[1] == 0 && d->shape[2] == 0;
    if (d->gather == NULL) return hdo__fail(e, HDO_E_MISUSE, "data set '%s' has no gather, which is required", d->name);
    if (d->train_count < 1 || d->val_count < 1)
        return hdo__fail(e, HDO_E_MISUSE, "data set '%s' has %lld training and %lld validation samples; both need 1",
                         d->name, (long long)d->train_count, (long long)d->val_count);
    if (d->n_in < 1 || d->classes < 1 || d->vocab < 0)
        return hdo__fail(e, HDO_E_MISUSE,
                         "data set '%s' has n_in %d, classes %d, vocab %d; the first two are 1 or more, the last 0 or "
                         "more",
                         d->name, d->n_in, d->classes, d->vocab);
    if (!flat && (d->shape[0] < 1 || d->shape[1] < 1 || d->shape[2] < 1 ||
                  (int64_t)d->shape[0] * d->shape[1] * d->shape[2] != d->n_in))
        return hdo__fail(e, HDO_E_MISUSE, "data set '%s': its shape %d x %d x %d is not n_in = %d", d->name,
                         d->shape[0], d->shape[1], d->shape[2], d->n_in);
    if ((d->flags & ~(unsigned)HDO_ANY_THREAD) != 0)
        return hdo__fail(e, HDO_E_UNSUPPORTED, "data set '%s' has flags this version does not know (0x%x)", d->name,
                         d->flags);
    return HDO_OK;
}

hdo_status hdo_config_use_dataset(hdo_config *c, const hdo_dataset_def *def, void *user, hdo_error *e) {
    if (c == NULL || def == NULL) return hdo__misuse(e, "hdo_config_use_dataset", "a configuration and a table");
    hdo_dataset_def d;
    hdo_table_def *t;
    hdo__own_read(&d, sizeof d, def);
    hdo_own_args a = HDO_OWN_ARGS(HDO_OWN_DATASET, d, def, user);
    hdo_status st = hdo__own_check_head(&a, e);
    if (st == HDO_OK) st = check_dataset(&d, e);
    if (st == HDO_OK) st = hdo__own_bring(c, &a, &t, e);
    if (st != HDO_OK) return st;
    hdo__own_set_text(c, "data.name", t->name);
    hdo__own_set_text(c, "data.identity", t->identity);
    return HDO_OK;
}

hdo_status hdo_config_use_sink(hdo_config *c, const hdo_sink_def *def, void *user, hdo_error *e) {
    if (c == NULL || def == NULL) return hdo__misuse(e, "hdo_config_use_sink", "a configuration and a table");
    hdo_sink_def d;
    hdo_table_def *t;
    hdo__own_read(&d, sizeof d, def);
    hdo_own_args a = {
        .kind = HDO_OWN_SINK, .def = def, .size = sizeof d, .flags = d.flags, .user = user, .destroy = d.destroy};
    hdo_status st = hdo__own_check_head(&a, e);
    if (st == HDO_OK && d.row == NULL)
        st = hdo__fail(e, HDO_E_MISUSE, "the table of sink '%s' has no 'row', which is required", d.name);
    return st == HDO_OK ? hdo__own_bring(c, &a, &t, e) : st;
}
