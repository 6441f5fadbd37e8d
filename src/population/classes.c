/* SPDX-License-Identifier: Apache-2.0 — the classes of the configuration: estimator, rate and update of each. */
#include <math.h>
#include <string.h>

#include "hdo/experimental/formulas.h"
#include "population/population.h"

static hdo_status theorem_rate(const hdo_population *p, const char *class_name, double *lr, hdo_error *e) {
    const hdo_model_config *m = &p->problem->config->model;
    double ell = strcmp(m->name, "quadratic") == 0 ? m->convexity : strcmp(m->name, "logistic-l2") == 0 ? m->l2 : 0.0;
    if (!(ell > 0.0)) {
        return hdo__fail(
            e, HDO_E_CONFIG,
            "population.%s.lr is 'theorem', which needs a strongly convex model (quadratic, logistic-l2) with "
            "a positive constant; give a number instead",
            class_name);
    }
    double T = (double)p->problem->config->steps, n = (double)p->n;
    if (T < 2.0)
        return hdo__fail(e, HDO_E_CONFIG, "population.%s.lr is 'theorem', which needs at least 2 steps", class_name);
    bool pairs = strcmp(p->problem->config->mixing.kind, "pairwise") == 0;
    *lr = hdo_theorem_rate(pairs, n, T, ell);
    return HDO_OK;
}

static hdo_status wire_rate(hdo_population *p, hdo_class *c, const hdo_class_config *cc, hdo_error *e) {
    c->schedule = (hdo_schedule){.kind = cc->schedule.id,
                                 .lr = cc->lr.arg,
                                 .warmup = p->problem->config->warmup,
                                 .steps = p->problem->config->steps};
    c->noise = 1.0;
    c->balanced = cc->lr.id == HDO_LR_BALANCED;
    c->chosen = cc->lr.id == HDO_LR_AUTO;
    if (cc->lr.id == HDO_LR_THEOREM) return theorem_rate(p, cc->name, &c->schedule.lr, e);
    if (cc->schedule.id == HDO_SCHEDULE_FILE) return hdo__schedule_load(&c->schedule, cc->schedule_file, e);
    return HDO_OK;
}

hdo_status hdo__population_wire_classes(hdo_population *p, hdo_error *e) {
    p->n_classes = p->problem->config->n_classes;
    for (int k = 0; k < p->n_classes; k++) {
        const hdo_class_config *cc = &p->problem->config->population[k];
        hdo_class *c = &p->classes[k];
        *c = (hdo_class){.first = p->problem->class_first[k], .count = (int)cc->count, .batch = (int)cc->batch};
        const hdo_estimator_ops *ops = hdo__estimator_of(p->problem->config, cc->estimator);
        if (ops == NULL) return hdo__fail(e, HDO_E_CONFIG, "estimator '%s' does not exist", cc->estimator);
        c->estimator = hdo__estimator_make(ops, cc);
        hdo_status st = hdo__estimator_check(&c->estimator, p->problem->objective, cc->name, e);
        if (st != HDO_OK) return st;
        st = wire_rate(p, c, cc, e);
        if (st != HDO_OK) return st;
        c->update = (hdo_update){
            .momentum = cc->momentum, .momentum_kind = cc->momentum_kind.id, .weight_decay = cc->weight_decay};
    }
    return HDO_OK;
}

void hdo__population_set_rates(hdo_population *p, int64_t step) {
    for (int k = 0; k < p->n_classes; k++) p->lr[k] = hdo__schedule_lr(&p->classes[k].schedule, step);
}
