/* SPDX-License-Identifier: Apache-2.0
 *
 * A study and what it knows without measuring: all about quadratics, the structure of everything else.
 */
#include <math.h>
#include <string.h>

#include "lab/study/study_internal.h"

const char *hdo_known_name(hdo_known k) {
    static const char *const names[] = {"unknown", "measured", "given", "certified"};
    return names[k];
}

hdo_status hdo__study_tick(const hdo_study_hooks *h, const char *what, int64_t done, int64_t total, hdo_error *e) {
    if (h->tick == NULL || h->tick(h->ctx, what, done, total)) return HDO_OK;
    return hdo__fail(e, HDO_E_FAILED, "interrupted while working on: %s", what);
}

static void unknown(hdo_constants *k) {
    const hdo_constant none = {HUGE_VAL, HDO_UNKNOWN};
    k->L = k->L_F = k->L2 = k->F = k->a_0 = k->f_star = none;
    k->ell = k->ell_loc = (hdo_constant){0.0, HDO_UNKNOWN};
    k->df = (hdo_constant){0.0, HDO_UNKNOWN};
    k->Gamma_0 = (hdo_constant){0.0, HDO_CERTIFIED}; /* wiring gives every node the same start */
    for (int c = 0; c < HDO_CLASSES_MAX; c++) k->sigma[c] = k->varsigma_U[c] = k->varsigma_O[c] = none;
    k->grow = 1.0;
}

/* Every class by itself has the objective f: it holds all data in equal shares, or there is only one class. */
static bool is_balanced(const hdo_run *r) {
    int split = r->config.data.split.id, classes = 0;
    for (int k = 0; k < r->population.n_classes; k++) classes += r->population.classes[k].count > 0;
    if (classes <= 1 || r->problem.train == NULL || split == HDO_SPLIT_SHARED) return true;
    if (split == HDO_SPLIT_SINGLE) return false;
    for (int k = 0; k < r->population.n_classes; k++) {
        const hdo_class *c = &r->population.classes[k];
        int64_t m = c->count > 0 ? hdo__shard_count(r->problem.shards, c->first) : 0;
        if (m * c->count != r->problem.train->count && c->count > 0) return false;
        for (int i = 0; i < c->count; i++) {
            if (hdo__shard_count(r->problem.shards, c->first + i) != m) return false;
        }
    }
    return true;
}

/* objective/quadratic.c: one diagonal Hessian for all, centres in opposite pairs inside every class, x* = 0, f* = 0. */
static hdo_status quadratic_constants(hdo_study *s, hdo_error *e) {
    const hdo_model_config *m = &s->config.model;
    hdo_constants *k = &s->k;
    const hdo_constant zero = {0.0, HDO_CERTIFIED};
    k->quad = k->convex = k->same_hessian = k->balanced = true;
    k->L = k->L_F = (hdo_constant){m->smoothness, HDO_CERTIFIED};
    k->ell = k->ell_loc = (hdo_constant){k->d > 1 ? m->convexity : m->smoothness, HDO_CERTIFIED};
    k->L2 = k->df = k->f_star = zero;
    k->a_0 = (hdo_constant){m->start * m->start, HDO_CERTIFIED};
    k->F = (hdo_constant){0.5 * m->smoothness * m->start * m->start, HDO_CERTIFIED};
    s->x_star = hdo__alloc(k->d * sizeof(double));
    if (s->x_star == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the minimiser");
    hdo_exact_oracle o;
    hdo_status st = hdo__oracle_init(&o, s->run, 0, e);
    for (int c = 0; c < s->run->population.n_classes && st == HDO_OK; c++) {
        double z2 = 0.0;
        if (s->run->population.classes[c].count > 0) st = hdo__oracle_spread(&o, c, 0, s->x_star, NULL, &z2, e);
        k->varsigma_O[c] = k->varsigma_U[c] = (hdo_constant){sqrt(z2), HDO_CERTIFIED};
        k->sigma[c] = (hdo_constant){m->noise / sqrt((double)s->run->population.classes[c].batch), HDO_CERTIFIED};
    }
    if (st == HDO_OK) hdo__oracle_clear(&o);
    return st;
}

hdo_status hdo_study_create(hdo_study **out, const hdo_config *c, const hdo_study_hooks *hooks, hdo_error *e) {
    *out = NULL;
    hdo_study *s = hdo__alloc(sizeof *s);
    if (s == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory for the study");
    s->config = *c;
    hdo_config_as_base(&s->config); /* run_create below checks c as it was given; studies change copies of it */
    if (hooks != NULL) s->hooks = *hooks;
    hdo_status st = hdo_run_create(&s->run, c, NULL, e);
    if (st == HDO_OK) {
        const hdo_objective *f = s->run->problem.objective;
        s->config.model = s->run->config.model; /* with what plug-ins said of themselves */
        s->config.data = s->run->config.data;
        s->config.own = s->run->config.own;
        s->k.d = f->d;
        s->k.live = hdo__objective_live(f);
        for (int i = 0; i < f->n_tensors; i++) {
            size_t lo = f->tensors[i].off, live = hdo__count_outside(f->idle, lo, lo + f->tensors[i].len);
            s->k.live_max = live > s->k.live_max ? live : s->k.live_max;
        }
        unknown(&s->k);
        s->k.balanced = is_balanced(s->run);
        s->k.convex = hdo__is_softmax_regression(&s->config);
        if (strcmp(s->config.model.name, "quadratic") == 0) st = quadratic_constants(s, e);
    }
    if (st != HDO_OK) {
        hdo_study_destroy(s);
        return st;
    }
    *out = s;
    return HDO_OK;
}

void hdo_study_destroy(hdo_study *s) {
    if (s == NULL) return;
    hdo_run_destroy(s->run);
    hdo__free(s->x_star);
    hdo__free(s);
}

hdo_constants *hdo_study_constants(hdo_study *s) {
    return &s->k;
}
