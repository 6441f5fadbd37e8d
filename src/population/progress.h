/* SPDX-License-Identifier: Apache-2.0
 *
 * How far a run is: steps, counts, the figures of the last step, times, the outcome. Engines advance it, the record
 * keeps it.
 */
#ifndef HDO_POPULATION_PROGRESS_H
#define HDO_POPULATION_PROGRESS_H

#include "hdo/experimental/run.h"

typedef struct hdo_counts { /* so far, over all nodes; of the own nodes while ranks do not wait for each other */
    int64_t interactions, bytes, forward, backward, jvp, cost, failed;
} hdo_counts;
enum { HDO_COUNTS = sizeof(hdo_counts) / sizeof(int64_t) };

typedef struct hdo_progress {
    int64_t step;
    hdo_counts counts;
    double start_loss; /* mean validation loss before the first step; NaN: not evaluated */
    double train_loss; /* of the last step: mean minibatch loss of those that stepped */
    double mg;         /* (1/n) sum |G_i|^2 over all nodes, each with its newest estimate */
    double mg_active;  /* over those that stepped: in pairwise time an unbiased estimate of M^G at this very step */
    hdo_stop stop;
    unsigned said;                  /* HDO_SAY_...: what the ranks agreed on after the last step */
    double start_s, step_s, eval_s; /* when the run began (sessions before a resume included); seconds spent */
    double session_s;               /* when this process took the run up */
    double limit_s;                 /* seconds this process may spend on it; 0: as stop.time_s says */
} hdo_progress;

#endif
