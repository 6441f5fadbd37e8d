/* SPDX-License-Identifier: Apache-2.0
 *
 * Who went first when a run diverges. Averaging hands a lost model on, so that soon all nodes are lost; what helps is
 * to know the first. Every node leaves a trail of two own steps and a partner: enough to tell, at the first loss beyond
 * the limit, whether the node lost itself or took its partner's model.
 */
#ifndef HDO_RECORD_FATE_H
#define HDO_RECORD_FATE_H

#include "base/json.h"
#include "topo/mixer.h"

struct hdo_record;

enum { HDO_MET_NOBODY = -1, HDO_MET_ALL = -2 };

typedef struct hdo_trail { /* of one node */
    double g, before;      /* |G| of its newest estimate, and of the one before that; 0: none */
    int32_t met;           /* with whom it averaged after the newest */
    uint32_t steps;        /* steps done when the newest was over; 0: it has none */
} hdo_trail;

typedef enum hdo_fate_what {
    HDO_FATE_NONE,
    HDO_FATE_LOSS,       /* minibatch loss above the limit */
    HDO_FATE_INFINITE,   /* minibatch loss not finite */
    HDO_FATE_ESTIMATE,   /* loss finite, estimate not */
    HDO_FATE_VALIDATION, /* validation loss above the limit or not finite */
} hdo_fate_what;

typedef struct hdo_fate {
    hdo_fate_what what;
    int node;     /* where it was seen first ... */
    int64_t step; /* ... with that many steps done */
    double loss;  /* its loss there */
    int first;    /* whose own step led there: node itself, or a partner it averaged with */
    hdo_trail step_of_first;
    double x_norm; /* of the first one's model when it was seen */
    int lost[16];  /* per class: nodes beyond the limit at the last evaluation */
} hdo_fate;

/* After every step, before the counter moves on: looks for the first loss beyond the limit and keeps the trails. */
hdo_status hdo__fate_step(struct hdo_record *r, const hdo_plan *plan, hdo_error *e);
/* The same of this rank's nodes alone, without a word to the others (asynchronous runs). True: found one in this step;
 * the norm of its model (x_norm) is left to the caller. */
bool hdo__fate_own(struct hdo_record *r, const hdo_plan *plan);
/* The end of an asynchronous run, all ranks together: the earliest that any of them found, and everybody's trail. */
hdo_status hdo__fate_join(struct hdo_record *r, hdo_error *e);
/* After an evaluation: forgets a node that recovered; finds one if the row alone shows that the run diverged. */
hdo_status hdo__fate_row(struct hdo_record *r, hdo_error *e);
/* "divergence": {...} of summary.json. */
void hdo__fate_put(hdo_json *j, const struct hdo_record *r);

#endif
