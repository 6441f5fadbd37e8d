/* SPDX-License-Identifier: Apache-2.0 — the registry of engines, and what they share. */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* The first that fits is taken. */
const hdo_engine_ops *const hdo__engines[] = {&hdo__engine_ask, &hdo__engine_fleet, &hdo__engine_async,
                                              &hdo__engine_sync, NULL};

const hdo_engine_ops *hdo__engine_for(const hdo_engine *parts) {
    int k = 0;
    while (!hdo__engines[k]->fits(parts)) k++; /* the last one fits always */
    return hdo__engines[k];
}

_Static_assert((int)HDO_ASK_STOP == (int)HDO_SAY_STOP && (int)HDO_ASK_SAVE == (int)HDO_SAY_SAVE,
               "what a caller may ask for has the same numbers as what ranks say");
unsigned hdo__engine_opinion(const hdo_engine *g) {
    unsigned say = g->hooks->asked != NULL ? g->hooks->asked(g->hooks->ctx) & (HDO_SAY_STOP | HDO_SAY_SAVE) : 0;
    double now = hdo__now_s(), limit = g->progress->limit_s > 0.0 ? g->progress->limit_s : g->config->stop.time_s,
           every = g->config->checkpoint.every_s;
    if (limit > 0.0 && now - g->progress->session_s > limit) say |= HDO_SAY_TIMEOUT;
    if (every > 0.0 && now - g->record->saved_s >= every) say |= HDO_SAY_SAVE;
    if (g->transport->rank != 0) say &= ~(unsigned)HDO_SAY_SAVE; /* a signal comes to all, not in the same step */
    return say;
}

hdo_status hdo__engine_check(hdo_population *p, hdo_error *e) {
    const hdo_config *c = p->problem->config;
    const char *text = c->mpi.slow;
    p->slow = 1.0;
    bool own_pace = c->mpi.async || c->engine.id == HDO_ENGINE_FLEET;
    const char *what = c->mpi.async ? "mpi.async" : "engine fleet";
    if (c->mpi.async && c->engine.id != HDO_ENGINE_MPI)
        return hdo__fail(e, HDO_E_CONFIG, "mpi.async needs engine: mpi");
    bool partners = c->mixing.partners.id == HDO_PARTNERS_AUTO ||
                    (c->engine.id == HDO_ENGINE_FLEET && c->mixing.partners.id != HDO_PARTNERS_ANY);
    if (own_pace && (!p->mixer.ops->all_step || p->mixer.ops->allreduce || c->mixing.average.id != HDO_AVERAGE_EQUAL ||
                     partners || c->eval.weighted > 0.0 || p->churn.active || p->clock_s != NULL)) {
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "%s needs mixing matching, graph or none, in which all nodes step, with equal averages; and "
                         "neither chosen partners, churn, a time model nor eval.weighted",
                         what);
    }
    if (c->engine.id == HDO_ENGINE_FLEET && strcmp(c->mixing.kind, "graph") == 0)
        return hdo__fail(e, HDO_E_UNSUPPORTED,
                         "engine fleet has no graph: partners are drawn from all who are there (mixing.kind matching)");
    for (int k = 0; k < p->n_classes && own_pace; k++) {
        if (p->classes[k].balanced || p->classes[k].chosen)
            return hdo__fail(e, HDO_E_UNSUPPORTED, "%s and measured rates (lr: balanced, auto) do not go together",
                             what);
    }
    if (text[0] == '\0') return HDO_OK;
    int rank, used = 0;
    double factor;
    if (sscanf(text, "%d:%lf%n", &rank, &factor, &used) != 2 || text[used] != '\0' || rank < 0 ||
        !(factor >= 1.0 && factor <= 1e6)) {
        return hdo__fail(e, HDO_E_CONFIG,
                         "mpi.slow is '%s', but must be RANK:FACTOR with a factor of 1 or more, such as 2:4", text);
    }
    if (rank == p->transport->rank && c->engine.id == HDO_ENGINE_MPI)
        p->slow = factor; /* not when resumed in one process */
    return HDO_OK;
}

void hdo__engine_say_skips(const hdo_engine *g, int64_t before) {
    hdo_error why = {.msg = "another rank knows why"};
    if (before > 0 || g->progress->counts.failed == 0) return;
    hdo__problem_fail(g->problem, HDO_E_SKIPPED, &why, "no sentence");
    hdo__log(g->log, HDO_LOG_WARN, "a node left out its step %lld (%s); such steps are counted in oracle/failed",
             (long long)g->progress->step, why.msg);
}
