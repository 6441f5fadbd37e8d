/* SPDX-License-Identifier: Apache-2.0
 *
 * The local step: learning rate as a pure function of the step, and how an estimate becomes a move.
 */
#ifndef HDO_UPDATE_UPDATE_H
#define HDO_UPDATE_UPDATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/split.h"
#include "base/status.h"
#include "base/team.h"
#include "hdo/experimental/config.h"

typedef struct hdo_schedule {
    int kind; /* HDO_SCHEDULE_* */
    double lr;
    int64_t warmup; /* W: rises linearly over steps 0 .. W-1 */
    int64_t steps;  /* T: cosine falls to 0 over the T steps after the warm-up: step W + k has cos(pi k / T), or
                     cos(pi (k + 1) / T) as in the authors' code */
    int n_points;   /* file: (step, rate) pairs, steps rising; owned */
    double *point;  /* (n_points, 2) */
} hdo_schedule;

/* Reads "step rate" lines ('#' starts a comment). Rates are absolute; steps count from the end of the warm-up. */
HDO_LAB hdo_status hdo__schedule_load(hdo_schedule *s, const char *path, hdo_error *e);
HDO_LAB void hdo__schedule_clear(hdo_schedule *s);

/* Learning rate of step t = 0, 1, ..., W + T - 1. */
HDO_LAB double hdo__schedule_lr(const hdo_schedule *s, int64_t t);

typedef struct hdo_update {
    double momentum;
    int momentum_kind; /* HDO_MOMENTUM_EMA: g <- m g + (1-m) G; HDO_MOMENTUM_HEAVY_BALL: g <- m g + G */
    double weight_decay;
} hdo_update;

/* x <- x - lr g. G (d) is the estimate and may be overwritten; mom (d) is the node's momentum, NULL without. In the
 * ranges `zero` the estimate is zero in every step and G not looked at: momentum stays zero and x where it is, so they
 * are skipped, but for weight decay. Returns |G|^2, so that G is read once. */
typedef struct hdo_move {
    size_t d;
    hdo_ranges zero; /* where G is known to be 0 */
    float *x, *G;    /* (d) */
    float *momentum; /* (d), or NULL */
} hdo_move;
double hdo__update_apply(const hdo_update *u, double lr, const hdo_move *m, hdo_work *w);
size_t hdo__update_work_bytes(size_t d); /* of w's arena */

/* w_t / S_t of weights w_k = (1 - rate)^-k, k = 1 .. t: what the newest one counts in their mean. */
double hdo__newest_weight(double rate, double t);

#endif
