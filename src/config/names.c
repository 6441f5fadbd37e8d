/* SPDX-License-Identifier: Apache-2.0 — the names of the lists in names.h, for help, checks and schema. */
#include "config/names.h"

#include <string.h>

#include "hdo/experimental/config.h"

static const hdo_estimator_name estimators[] = {
#define HDO_X(id, name, zeroth, vectors) {name, zeroth, vectors},
    HDO_ESTIMATOR_LIST(HDO_X)
#undef HDO_X
};

const hdo_estimator_name *hdo__estimator_named(const char *name) {
    for (size_t i = 0; i < sizeof estimators / sizeof estimators[0]; i++) {
        if (strcmp(estimators[i].name, name) == 0) return &estimators[i];
    }
    return NULL;
}

const char *const *hdo_names(const char *kind) {
#define HDO_ESTIMATOR(id, name, zeroth, vectors) name,
#define HDO_MODEL(name, data, create) name,
#define HDO_MIXING(table, name) name,
#define HDO_DATA(name, open, state, about) name,
    static const char *const estimator_names[] = {HDO_ESTIMATOR_LIST(HDO_ESTIMATOR) NULL};
    static const char *const models[] = {HDO_MODEL_LIST(HDO_MODEL) NULL};
    static const char *const mixings[] = {HDO_MIXING_LIST(HDO_MIXING) NULL};
    static const char *const data_sets[] = {HDO_DATA_LIST(HDO_DATA) NULL};
    if (kind == NULL) return NULL;
    if (strcmp(kind, "estimator") == 0) return estimator_names;
    if (strcmp(kind, "model") == 0) return models;
    if (strcmp(kind, "mixing") == 0) return mixings;
    if (strcmp(kind, "preset") == 0) return hdo_preset_names();
    return strcmp(kind, "data") == 0 ? data_sets : NULL;
}
