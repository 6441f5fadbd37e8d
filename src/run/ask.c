/* SPDX-License-Identifier: Apache-2.0 — ask and tell: runs whose oracle is the caller (engine/engine_ask.c). */
#include "engine/engine_ask.h"
#include "hdo/hdo.h"
#include "run/run_internal.h"

_Static_assert((int)HDO_QUESTION_LOSS == (int)HDO_ASKED_LOSS && (int)HDO_QUESTION_GRADIENT == (int)HDO_ASKED_GRADIENT &&
                   (int)HDO_QUESTION_SLOPE == (int)HDO_ASKED_SLOPE,
               "kinds of questions have the same numbers inside and outside");

/* The engine of a run that is asked, entered. */
static hdo_status enter(hdo_run *r, const char *function, hdo_asking **g, hdo_error *e) {
    hdo_status st = hdo__run_enter(r, function, e);
    if (st != HDO_OK) return st;
    *g = hdo__asking_of(r->engine);
    if (*g != NULL) return HDO_OK;
    st = hdo__fail(e, HDO_E_MISUSE,
                   "%s is for runs whose objective has no callbacks; this one computes for itself: use hdo_run_advance",
                   function);
    return hdo__run_leave(r, st);
}

static int hand_out(hdo_asking *g, const hdo_run *r, int max, hdo_question *out) {
    int n = 0;
    for (; n < max; n++) {
        int node;
        uint64_t id;
        const hdo_asked_question *q = hdo__asking_next(g, &id, &node);
        if (q == NULL) break;
        out[n] = (hdo_question){.id = id,
                                .node = node,
                                .step = r->population.batches[node],
                                .kind = (hdo_question_kind)q->kind,
                                .dim = r->problem.objective->d,
                                .x = q->x,
                                .direction = q->kind == HDO_ASKED_SLOPE ? q->other : NULL};
    }
    return n;
}

hdo_status hdo_ask(hdo_run *r, int max, hdo_question *questions, int *count, hdo_stop *why, hdo_error *e) {
    hdo_asking *g;
    if (count != NULL) *count = 0;
    if (r == NULL || count == NULL || questions == NULL || max < 1)
        return hdo__fail(e, HDO_E_MISUSE,
                         "hdo_ask needs a run, room for one question or more, and a place for their number");
    hdo_status st = enter(r, "hdo_ask", &g, e);
    if (st != HDO_OK) return st;
    st = hdo__run_go_on(r, e);
    if (st == HDO_OK && r->progress.stop == HDO_RUNNING) *count = hand_out(g, r, max, questions);
    while (st == HDO_OK && r->progress.stop == HDO_RUNNING && *count == 0 && hdo__asking_hurry(g)) {
        st = hdo__run_go_on(r, e);
        if (st == HDO_OK && r->progress.stop == HDO_RUNNING) *count = hand_out(g, r, max, questions);
    }
    if (why != NULL) *why = r->progress.stop;
    return hdo__run_leave(r, st);
}

hdo_status hdo_tell(hdo_run *r, uint64_t id, double value, const float *gradient, hdo_error *e) {
    hdo_asking *g;
    hdo_status st = enter(r, "hdo_tell", &g, e);
    return st == HDO_OK ? hdo__run_leave(r, hdo__asking_tell(g, id, value, gradient, e)) : st;
}

hdo_status hdo_tell_failed(hdo_run *r, uint64_t id, hdo_error *e) {
    hdo_asking *g;
    hdo_status st = enter(r, "hdo_tell_failed", &g, e);
    return st == HDO_OK ? hdo__run_leave(r, hdo__asking_fail(g, id, e)) : st;
}
