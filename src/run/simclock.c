/* SPDX-License-Identifier: Apache-2.0
 *
 * The time model of the simulator: what the run would have cost on machines of given speed. A node's clock runs by its
 * oracle calls; partners wait for each other and for the bytes, and an exact average waits for everybody.
 */
#include <math.h>

#include "run/run_internal.h"

/* Seconds an exchange takes on the node's side. */
static double exchange_s(const hdo_run *r, int node) {
    const hdo_class_config *c = &r->config.population[hdo__problem_class(&r->problem, node)];
    double bytes = (double)(r->rows.len * sizeof(float));
    return c->latency_s + (c->bandwidth > 0.0 ? bytes / c->bandwidth : 0.0);
}

static void meet_all(hdo_run *r) {
    double latest = 0.0, cost = 0.0;
    for (int i = 0; i < r->mixer.n; i++) {
        latest = fmax(latest, r->clock_s[i]);
        cost = fmax(cost, exchange_s(r, i));
    }
    for (int i = 0; i < r->mixer.n; i++) r->clock_s[i] = latest + cost;
}

void hdo__run_advance_clocks(hdo_run *r, const hdo_plan *plan) {
    if (r->clock_s == NULL) return;
    for (int k = 0; k < r->n_active; k++) {
        int node = r->active[k];
        const hdo_class_config *c = &r->config.population[hdo__problem_class(&r->problem, node)];
        const hdo_node_result *res = &r->result[node];
        r->clock_s[node] +=
            (double)res->forward * c->forward_s + (double)res->backward * c->backward_s + (double)res->jvp * c->jvp_s;
    }
    if (plan->allreduce) meet_all(r);
    for (int k = 0; k < plan->n_pairs; k++) {
        double *a = &r->clock_s[plan->pairs[k].a], *b = &r->clock_s[plan->pairs[k].b];
        *a = *b = fmax(*a, *b) + fmax(exchange_s(r, plan->pairs[k].a), exchange_s(r, plan->pairs[k].b));
    }
}
