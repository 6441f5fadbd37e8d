/* SPDX-License-Identifier: Apache-2.0 — the registry of estimators and what they share. */
#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "estimator/estimator.h"

const hdo_estimator_ops *const hdo__estimators[] = {
    &hdo__est_fo,
    &hdo__est_fd,
    &hdo__est_forward_sim,
    &hdo__est_forward_law,
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
                           .distribution = k->distribution.id};
}

hdo_status hdo__estimator_check(const hdo_estimator *s, const hdo_objective *f, const char *class_name, hdo_error *e) {
    static const struct {
        unsigned bit;
        const char *what;
    } oracles[] = {{HDO_CAN_GRAD, "a gradient by back-propagation"},
                   {HDO_CAN_JVP, "forward-mode derivatives"},
                   {HDO_CAN_COMPLEX, "evaluation at complex points (an analytic model)"}};
    unsigned missing = s->ops->needs & ~hdo__objective_can(f);
    for (size_t i = 0; i < sizeof oracles / sizeof oracles[0]; i++) {
        if ((missing & oracles[i].bit) == 0) continue;
        return hdo__fail(e, HDO_E_UNSUPPORTED, "class '%s': estimator '%s' needs %s, which model '%s' does not offer",
                         class_name, s->ops->name, oracles[i].what, f->ops->name);
    }
    if (s->ops->gaussian && s->distribution != HDO_DIST_GAUSSIAN) {
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "class '%s': estimator '%s' is exact in law for gaussian directions only; use forward-sim for others",
                         class_name, s->ops->name);
    }
    return HDO_OK;
}

hdo_dirs hdo__request_dirs(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q) {
    /* streams: shared = the authors' code, where every node draws the same directions in a step */
    uint32_t node = s->streams == HDO_STREAMS_SHARED ? 0 : q->node;
    return (hdo_dirs){.s = hdo__stream(q->seed, HDO_RNG_DIRECTION, node, (uint64_t)q->step, 0),
                      .dist = s->distribution,
                      .d = f->d};
}

double hdo__request_nu(const hdo_estimator *s, const hdo_objective *f, const hdo_request *q) {
    if (s->nu.id == HDO_NU_ETA_SQRT_D) return q->eta / sqrt((double)f->d); /* Theorem 1: nu = eta / c, c = sqrt(d) */
    return s->nu.arg;
}

void hdo__keep_buffers(const hdo_objective *f, const hdo_request *q, float *g) {
    if (f->n_buf > 0) memcpy(g + f->d, q->x + f->d, f->n_buf * sizeof(float));
}

void hdo__combine(const hdo_dirs *u, int rv, const double *c, float *g) {
    enum { TILE = 2048 }; /* 8 KiB: tile and the part of g it meets stay in the first-level cache */
    float tile[TILE];
    memset(g, 0, u->d * sizeof(float));
    for (size_t off = 0; off < u->d; off += TILE) {
        size_t len = u->d - off < TILE ? u->d - off : TILE;
        for (int r = 0; r < rv; r++) {
            hdo__dirs_fill(u, r, off, len, tile);
            hdo__axpy(len, (float)(c[r] / (double)rv), tile, g + off);
        }
    }
}
