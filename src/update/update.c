/* SPDX-License-Identifier: Apache-2.0 — schedules, momentum, the step. */
#include "update/update.h"

#include <math.h>

#include "base/vec.h"

double hdo__schedule_lr(const hdo_schedule *s, int64_t t) {
    if (t < s->warmup) return s->lr * (double)(t + 1) / (double)s->warmup;
    if (s->kind == HDO_SCHEDULE_COSINE && s->steps > 0) {
        double pi = 3.14159265358979323846;
        return s->lr * 0.5 * (1.0 + cos(pi * (double)(t - s->warmup) / (double)s->steps));
    }
    return s->lr;
}

void hdo__update_apply(const hdo_update *u, size_t d, double lr, float *x, float *G, float *mom) {
    if (u->weight_decay > 0.0) hdo__axpy(d, (float)u->weight_decay, x, G);
    if (mom != NULL) {
        double gain = u->momentum_kind == HDO_MOMENTUM_EMA ? 1.0 - u->momentum : 1.0;
        hdo__axpby(d, (float)gain, G, (float)u->momentum, mom); /* mom = gain G + m mom */
        G = mom;
    }
    hdo__axpy(d, (float)-lr, G, x);
}
