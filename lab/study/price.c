/* SPDX-License-Identifier: Apache-2.0 — what a round of a fleet costs, and how many rounds its budgets allow. */
#include <math.h>
#include <string.h>

#include "lab/study/study_internal.h"

/* Forward passes of one estimate; a directional derivative or a complex pass costs about two, see docs/planner.md. */
double hdo__fleet_passes(const hdo_estimator_ops *ops, int rv) {
    if (ops->family == HDO_EST_ONE_SIDED) return (strcmp(ops->name, "debiased") == 0 ? 3.0 : 1.0) * rv + 1.0;
    if (ops->family == HDO_EST_GRADIENT) return 3.0;
    return 2.0 * rv;
}

/* A round lasts as long as its slowest node; in it all nodes meet in pairs, and both send their model. */
hdo_price hdo__fleet_price(const hdo_fleet *f, const hdo_estimator_ops *ops, int n0, int rv, double model_bytes) {
    int n = f->fo + n0;
    double passes = n0 > 0 ? hdo__fleet_passes(ops, rv) : 0.0;
    double fo = f->fo > 0 ? 1.0 / f->fo_speed : 0.0, zo = n0 > 0 ? passes / f->zo_speed : 0.0;
    double exchange = f->latency + (f->bandwidth > 0.0 ? model_bytes / f->bandwidth : 0.0);
    return (hdo_price){.seconds = fmax(fo, zo) + (n > 1 ? exchange : 0.0),
                       .bytes = 2.0 * (n / 2) * model_bytes,
                       .joules = f->fo * f->fo_joules + n0 * passes * f->zo_joules};
}

double hdo__fleet_rounds(const hdo_fleet *f, const hdo_price *p, double share) {
    double T = f->time * share / p->seconds;
    if (f->traffic > 0.0 && p->bytes > 0.0) T = fmin(T, f->traffic * share / p->bytes);
    if (f->energy > 0.0 && p->joules > 0.0) T = fmin(T, f->energy * share / p->joules);
    return T;
}
