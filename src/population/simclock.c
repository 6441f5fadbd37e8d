/* SPDX-License-Identifier: Apache-2.0
 *
 * The time model of the simulator: what the run would have cost on machines of given speed. A node's clock runs by its
 * oracle calls; partners wait for each other and for the bytes, and an exact average waits for everybody.
 */
#include <math.h>

#include "population/population.h"

/* Seconds an exchange takes on the node's side. */
static double exchange_s(const hdo_population *p, int node) {
    const hdo_class_config *c = &p->problem->config->population[hdo__population_class(p, node)];
    double bytes = (double)(p->models.len * sizeof(float));
    return c->latency_s + (c->bandwidth > 0.0 ? bytes / c->bandwidth : 0.0);
}

static void meet_all(hdo_population *p) {
    double latest = 0.0, cost = 0.0;
    for (int i = 0; i < p->n; i++) {
        latest = fmax(latest, p->clock_s[i]);
        cost = fmax(cost, exchange_s(p, i));
    }
    for (int i = 0; i < p->n; i++) p->clock_s[i] = latest + cost;
}

void hdo__population_advance_clocks(hdo_population *p, const hdo_plan *plan) {
    if (p->clock_s == NULL) return;
    for (int k = 0; k < p->n_active; k++) {
        int node = p->active[k];
        const hdo_class_config *c = &p->problem->config->population[hdo__population_class(p, node)];
        const hdo_node_result *res = &p->result[node];
        p->clock_s[node] +=
            (double)res->forward * c->forward_s + (double)res->backward * c->backward_s + (double)res->jvp * c->jvp_s;
    }
    if (plan->allreduce) meet_all(p);
    for (int k = 0; k < plan->n_pairs; k++) {
        double *a = &p->clock_s[plan->pairs[k].a], *b = &p->clock_s[plan->pairs[k].b];
        *a = *b = fmax(*a, *b) + fmax(exchange_s(p, plan->pairs[k].a), exchange_s(p, plan->pairs[k].b));
    }
}
