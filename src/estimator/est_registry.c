/* SPDX-License-Identifier: Apache-2.0 — the registry of estimators: names, options, and who may work with what. */
#include <stdio.h>
#include <string.h>

#include "config/names.h"
#include "estimator/estimator.h"

const hdo_estimator_ops *const hdo__estimators[] = {
#define HDO_X(id, name, zeroth, vectors) &hdo__est_##id,
    HDO_ESTIMATOR_LIST(HDO_X)
#undef HDO_X
        NULL};

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
                           .rank = k->directions.id == HDO_DIRECTIONS_LOW_RANK ? (int)k->directions.arg : 0,
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
    if (s->rank > 0 && (s->ops->gaussian || s->ops->axes || s->distribution != HDO_DIST_GAUSSIAN)) {
        return hdo__fail(
            e, HDO_E_UNSUPPORTED,
            "class '%s': directions are low-rank, which needs an estimator that draws random vectors, and "
            "gaussian ones; use fd, fd-central, debiased, forward or forward-sim with distribution gaussian",
            class_name);
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
