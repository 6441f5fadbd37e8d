/* SPDX-License-Identifier: Apache-2.0 — quadratic problems for the tests of the study folder. */
#ifndef HDO_TESTS_STUDY_HELP_H
#define HDO_TESTS_STUDY_HELP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/all.h"
#include "hdo/lab/study.h"

static inline void set(hdo_config *c, const char *key, const char *value) {
    hdo_error e = {0};
    if (hdo_config_set_from(c, key, value, HDO_FROM_FLAG, &e) != HDO_OK) {
        fprintf(stderr, "%s=%s: %s\n", key, value, e.msg);
        abort();
    }
}

typedef struct quad_case {
    const char *name, *mixing, *estimator;
    int fo, zo, rv;
    double lr, lr_zo; /* lr_zo 0: the same */
    double ell, noise, spread, start;
    int64_t steps;
    const char *nu; /* NULL: eta/sqrt(d) */
} quad_case;

/* d = 20, L = 1. */
static inline void quad_config(hdo_config *c, const quad_case *q) {
    hdo_config_default(c);
    set(c, "model", "quadratic");
    set(c, "data", "none");
    c->model.dim = 20;
    c->model.smoothness = 1.0;
    c->model.convexity = q->ell;
    c->model.noise = q->noise;
    c->model.spread = q->spread;
    c->model.start = q->start;
    c->steps = q->steps;
    c->threads = 2;
    set(c, "mixing", q->mixing);
    c->population[0].count = q->fo; /* fo and zo of the default configuration */
    c->population[1].count = q->zo;
    set(c, "population.zo.estimator", q->estimator);
    if (strncmp(q->estimator, "fd", 2) == 0 || q->nu != NULL)
        set(c, "population.zo.nu", q->nu != NULL ? q->nu : "eta/sqrt(d)");
    for (int k = 0; k < c->n_classes; k++) {
        c->population[k].batch = 1;
        c->population[k].rv = q->rv;
        c->population[k].lr = (hdo_choice){HDO_NUMBER, k == 1 && q->lr_zo > 0.0 ? q->lr_zo : q->lr};
    }
}

#endif
