/* SPDX-License-Identifier: Apache-2.0 — the registry of estimators: names, options, and who may work with what. */
#include <stdio.h>
#include <string.h>

#include "config/options.h"
#include "estimator/estimator.h"

const hdo_estimator_ops *const hdo__estimators[] = {
    &hdo__est_fo,
    &hdo__est_fd,
    &hdo__est_fd_central,
    &hdo__est_fd_coord,
    &hdo__est_debiased,
    &hdo__est_forward,
    &hdo__est_complex_step,
    &hdo__est_forward_sim,
    &hdo__est_forward_law,
    &hdo__est_fd_law,
    NULL,
};

const hdo_estimator_ops *hdo__estimator_find(const char *name) {
    for (int i = 0; hdo__estimators[i] != NULL; i++) {
        if (strcmp(hdo__estimators[i]->name, name) == 0) return hdo__estimators[i];
    }
    return NULL;
}

hdo_estimator hdo__estimator_make(const hdo_estimator_ops *ops, const hdo_class_config *k) {
    return (hdo_estimator){.ops = ops,
                           .rv = (int)k->rv,
                           .nu = k->nu,
                           .directions = k->directions.id,
                           .streams = k->streams.id,
                           .distribution = k->distribution.id,
                           .coords = k->coords,
                           .levels = (int)k->debias_levels,
                           .ratio = k->debias_ratio,
                           .allow_piecewise = k->allow_piecewise};
}

hdo_status hdo__estimator_check(const hdo_estimator *s, const hdo_objective *f, const char *class_name, hdo_error *e) {
    static const struct {
        unsigned bit;
        const char *what;
    } oracles[] = {{HDO_CAN_GRAD, "a gradient by back-propagation"},
                   {HDO_CAN_JVP, "forward-mode derivatives"},
                   {HDO_CAN_COMPLEX, "evaluation at complex points (an analytic model)"},
                   {HDO_CAN_SPAN, "a loss that sees a direction through a few numbers only (softmax regression)"}};
    unsigned missing = s->ops->needs & ~hdo__objective_can(f);
    for (size_t i = 0; i < sizeof oracles / sizeof oracles[0]; i++) {
        if ((missing & oracles[i].bit) == 0) continue;
        return hdo__fail(e, HDO_E_UNSUPPORTED, "class '%s': estimator '%s' needs %s, which model '%s' does not offer",
                         class_name, s->ops->name, oracles[i].what, f->model);
    }
    if (s->ops->gaussian && s->distribution != HDO_DIST_GAUSSIAN) {
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "class '%s': estimator '%s' is exact in law for gaussian directions only; use %s for others",
                         class_name, s->ops->name, (s->ops->needs & HDO_CAN_GRAD) != 0 ? "forward-sim" : "fd");
    }
    if (s->ops->axes && s->distribution != HDO_DIST_GAUSSIAN) {
        return hdo__fail(
            e, HDO_E_UNSUPPORTED,
            "class '%s': estimator '%s' goes along the coordinates, so a distribution of random vectors has no "
            "meaning; leave it at gaussian",
            class_name, s->ops->name);
    }
    if ((s->ops->needs & HDO_CAN_COMPLEX) != 0 && f->kink != NULL && !s->allow_piecewise) {
        return hdo__fail(
            e, HDO_E_UNSUPPORTED,
            "class '%s': estimator '%s' needs an analytic model, but '%s' has a kink (%s); use forward, or "
            "take the slope of the active piece with --allow-piecewise "
            "(population.%s.allow_piecewise: true)",
            class_name, s->ops->name, f->model, f->kink, class_name);
    }
    return HDO_OK;
}

/* With shared streams all nodes have one S = (1/rv) sum_r u_r u_r', and G_i = S g_i. An estimator that is exact in law
 * has no vectors to share: every G_i would have its law, but not together. One node alone has nobody to agree with. */
hdo_status hdo__streams_check(const hdo_config *c, hdo_error *e) {
    int64_t sharing = 0;
    const hdo_class_config *law = NULL;
    for (int k = 0; k < c->n_classes; k++) {
        const hdo_class_config *p = &c->population[k];
        const hdo_estimator_ops *ops = hdo__estimator_find(p->estimator);
        if (ops == NULL || !ops->zeroth || p->streams.id != HDO_STREAMS_SHARED || p->count == 0) continue;
        sharing += p->count;
        if (ops->gaussian && law == NULL) law = p;
    }
    if (law == NULL || sharing < 2) return HDO_OK;
    char key[3 * HDO_NAME_MAX], where[HDO_PATH_MAX + 32];
    snprintf(key, sizeof key, "population.%s.streams", law->name);
    hdo__config_where(c, key, where, sizeof where);
    bool grad = (hdo__estimator_find(law->estimator)->needs & HDO_CAN_GRAD) != 0;
    return hdo__fail(
        e, HDO_E_CONFIG,
        "%s%s is 'shared' for %lld nodes in all, but population.%s.estimator is '%s', which draws no vectors "
        "that nodes could share; use estimator %s, or streams: independent",
        where, key, (long long)sharing, law->name, law->estimator, grad ? "forward-sim" : "fd");
}

hdo_status hdo__estimate(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q, hdo_work *w, float *g,
                         hdo_estimate_info *info) {
    hdo_status st = s->ops->estimate(s, f, q, w, g, info);
    hdo__ranges_clear(f->idle, 0, f->d, g);
    return st;
}

size_t hdo__estimator_work_bytes(const hdo_estimator *s, const hdo_objective *f, int batch) {
    int k = s->rv < HDO_DIRS_AT_ONCE ? s->rv : HDO_DIRS_AT_ONCE;
    return s->ops->work_bytes(s, f, batch) + hdo__objective_work_bytes(f, batch, s->ops->axes ? HDO_DIRS_AT_ONCE : k);
}
