/* SPDX-License-Identifier: Apache-2.0 — who is here in a step, who meets whom, and who takes a local step. */
#include <string.h>

#include "population/population.h"

void hdo__population_churn(hdo_population *p, int64_t step) {
    int n = hdo__churn_step(&p->churn, step, p->returned);
    size_t d = p->problem->objective->d, len = d + p->problem->objective->n_buf;
    for (int k = 0; k < n && p->fresh != NULL; k++) {
        if (!hdo__population_has(p, p->returned[k])) continue;
        size_t at = (size_t)(p->returned[k] - p->models.first) * p->models.ld;
        memcpy(p->models.X + at, p->fresh, len * sizeof(float));
        if (p->momentum != NULL) memset(p->momentum + at, 0, d * sizeof(float));
    }
}

/* Everybody steps, or in pairwise time the pair; less those that are away or too slow. */
void hdo__population_meet(hdo_population *p, int64_t step, hdo_plan *plan) {
    hdo__mixer_plan(&p->mixer, step, plan);
    p->n_active = 0;
    if (plan->all_step) {
        for (int i = 0; i < p->n; i++) p->active[p->n_active++] = i;
    } else {
        for (int k = 0; k < plan->n_pairs; k++) {
            p->active[p->n_active++] = plan->pairs[k].a;
            p->active[p->n_active++] = plan->pairs[k].b;
        }
    }
    p->n_active = hdo__churn_filter_nodes(&p->churn, step, p->active, p->n_active);
    plan->n_pairs = hdo__churn_filter_pairs(&p->churn, step, p->mixer.pairs, plan->n_pairs);
    p->n_own = 0;
    for (int k = 0; k < p->n_active; k++) {
        if (hdo__population_has(p, p->active[k])) p->own[p->n_own++] = p->active[k];
    }
}
