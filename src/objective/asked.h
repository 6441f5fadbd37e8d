/* SPDX-License-Identifier: Apache-2.0
 *
 * An objective nobody computes here: its values are told from outside (hdo_ask, hdo_tell). Every evaluation of an
 * estimate is a question with a number, 0, 1, ...; the estimate is run against the answers told so far. At an answer
 * that is missing it is broken off, and once all answers are there it is run again from its beginning, which gives the
 * same questions in the same order. So every estimator works as it is, and nothing of its inside is kept.
 */
#ifndef HDO_OBJECTIVE_ASKED_H
#define HDO_OBJECTIVE_ASKED_H

#include "config/own.h"
#include "objective/objective.h"

typedef enum hdo_asked_kind { HDO_ASKED_LOSS = 1, HDO_ASKED_GRADIENT, HDO_ASKED_SLOPE } hdo_asked_kind;

typedef struct hdo_asked_question {
    hdo_asked_kind kind;
    bool out, told; /* handed out; answered */
    double value;   /* the answer: a loss or a slope */
    float *x;       /* (d): where */
    float *other;   /* (d): the direction of a slope; the gradient that was told */
} hdo_asked_question;

typedef struct hdo_asked_node { /* the estimate a node has under way */
    hdo_asked_question *question;
    int n, cap;
    int next;     /* the next question of this pass */
    int open;     /* asked and not told */
    bool missing; /* an answer was missing in this pass */
    bool ahead;   /* its questions do not depend on answers: it may go on to the next ones without them */
    bool strayed; /* it asked another question than in the pass before */
} hdo_asked_node;

typedef struct hdo_asked {
    hdo_objective base;
    hdo_table_def *table;
    hdo_tensor *tensors;
    int n;
    hdo_asked_node *node; /* (n) */
} hdo_asked;

/* Over a table without callbacks but `start`, for n nodes. */
bool hdo__own_is_asked(const hdo_table_def *t);
hdo_status hdo__asked_create(hdo_table_def *t, int n, hdo_objective **out, hdo_error *e);
/* NULL: f is another kind of objective. */
hdo_asked *hdo__asked_of(const hdo_objective *f);

void hdo__asked_begin(hdo_asked *a, int node, bool ahead);             /* a new estimate: no questions yet */
void hdo__asked_pass(hdo_asked *a, int node);                          /* the estimate is about to be run */
static inline bool hdo__asked_complete(const hdo_asked *a, int node) { /* the pass met no missing answer */
    return !a->node[node].missing && !a->node[node].strayed;
}

#endif
