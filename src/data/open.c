/* SPDX-License-Identifier: Apache-2.0 — the registry of data sets: one line each. */
#include <stdlib.h>
#include <string.h>

#include "config/names.h"
#include "data/data_impl.h"
#include "data/store.h"

static hdo_status open_none(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e) {
    (void)c, (void)train, (void)val, (void)e;
    return HDO_OK;
}

const hdo_data_entry hdo__data_entries[] = {
#define HDO_X(name, open, state, about) {name, open, (int)(state), about},
    HDO_DATA_LIST(HDO_X)
#undef HDO_X
        {NULL, NULL, 0, NULL}};

const hdo_data_entry *hdo__data_find(const char *name) {
    for (const hdo_data_entry *d = hdo__data_entries; d->name != NULL; d++) {
        if (strcmp(d->name, name) == 0) return d;
    }
    return NULL;
}

/* Settings of one data set have no meaning for another: say so instead of passing over them. */
static hdo_status check_settings(const hdo_data_config *c, hdo_error *e) {
    if (c->law.id == HDO_LAW_AUTHORS && strcmp(c->name, "brackets") != 0) {
        return hdo__fail(e, HDO_E_CONFIG, "data.law is 'authors', a law of brackets, but data.name is '%s'", c->name);
    }
    const bool cifar = strcmp(c->name, "cifar10") == 0;
    if (c->scaling.id == HDO_SCALING_TWICE && !cifar) {
        return hdo__fail(e, HDO_E_CONFIG, "data.scaling is 'twice', which is for cifar10, but data.name is '%s'",
                         c->name);
    }
    if (c->augment_val && !cifar) {
        return hdo__fail(e, HDO_E_CONFIG, "data.augment_val is for cifar10, but data.name is '%s'", c->name);
    }
    return HDO_OK;
}

bool hdo__validation_set(const hdo_data_config *c) {
    return c->validation > 0 && c->validation != HDO_VALIDATION_DEFAULT;
}

/* Settings of the user's own files go with those. */
static hdo_status check_own(const hdo_data_config *c, bool own, hdo_error *e) {
    const bool share = hdo__validation_set(c);
    if (c->label[0] != '\0' && strcmp(c->name, "csv") != 0)
        return hdo__fail(e, HDO_E_CONFIG,
                         "data.label is '%s', but only csv has columns to choose from; data.name is %s", c->label,
                         c->name);
    if (share && !own)
        return hdo__fail(e, HDO_E_CONFIG,
                         "data.validation is %g, but %s has its own validation samples; it goes with csv, libsvm, npy "
                         "and idx",
                         c->validation, c->name);
    if (share && c->val > 0)
        return hdo__fail(e, HDO_E_CONFIG,
                         "data.validation is %g and data.val is %lld: both say how many samples to hold out; set one",
                         c->validation, (long long)c->val);
    return HDO_OK;
}

hdo_status hdo__data_open(const hdo_data_config *c, hdo_dataset **train, hdo_dataset **val, hdo_error *e) {
    *train = NULL;
    *val = NULL;
    const hdo_data_entry *d = hdo__data_find(c->name);
    if (d == NULL) return hdo__fail(e, HDO_E_CONFIG, "there is no data set '%s'; 'hdo data list' shows them", c->name);
    hdo_status st = check_settings(c, e);
    if (st == HDO_OK) st = check_own(c, d->state == (int)HDO_DATA_OWN, e);
    if (st == HDO_OK) st = d->open(c, train, val, e);
    if (st == HDO_OK && c->pretext.id == HDO_PRETEXT_ROTATION) {
        if (*train == NULL) {
            st = hdo__fail(e, HDO_E_CONFIG, "data.pretext: rotation needs images; data.name is '%s'", c->name);
        }
        if (st == HDO_OK) st = hdo__turned_wrap(train, c->name, e);
        if (st == HDO_OK) st = hdo__turned_wrap(val, c->name, e);
    }
    if (st != HDO_OK) {
        hdo__dataset_destroy(*train);
        hdo__dataset_destroy(*val);
        *train = NULL;
        *val = NULL;
    }
    return st;
}

void hdo__dataset_destroy(hdo_dataset *ds) {
    if (ds != NULL) ds->ops->destroy(ds);
}

hdo_status hdo__dataset_gather(const hdo_dataset *ds, const int64_t *idx, int n, const hdo_stream *augment, float *in,
                               int32_t *tok, int32_t *label) {
    if (ds->ops->gather == NULL) return ds->ops->try_gather(ds, idx, n, augment, in, tok, label);
    ds->ops->gather(ds, idx, n, augment, in, tok, label);
    return HDO_OK;
}
