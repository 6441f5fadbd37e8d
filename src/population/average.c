/* SPDX-License-Identifier: Apache-2.0
 *
 * The mixing of a step: pairs exchange their models and both take the average, equal or weighted by the noise of their
 * classes; or all nodes take the mean.
 */
#include <string.h>

#include "base/vec.h"
#include "population/population.h"

hdo_status hdo__exchange_begin(hdo_population *p, const hdo_plan *plan, int64_t step, hdo_error *e) {
    hdo_transport *t = p->transport;
    p->in_exchange = !plan->allreduce && t->ranks > 1;
    return plan->allreduce ? HDO_OK : t->ops->exchange_begin(t, plan, &p->models, step, e);
}

void hdo__exchange_ready(hdo_population *p, int node, const hdo_work *w) {
    if (!p->in_exchange) return;
    p->transport->ops->exchange_ready(p->transport, &p->models, node, w->arena == &p->team->arena[0]);
}

typedef struct pairs_ctx {
    hdo_population *p;
    const hdo_plan *plan;
    bool weighted;
} pairs_ctx;

double hdo__population_weight(const hdo_population *p, int k) {
    bool equal = p->problem->config->mixing.average.id == HDO_AVERAGE_EQUAL || p->mixer.ops->match == NULL;
    return equal ? 1.0 : 1.0 / p->classes[k].noise;
}

/* Weights 1/a of the classes: sum of x_i / a_i over nodes is what this conserves. */
static void average_weighted(hdo_population *p, hdo_pair pair, float *mine, float *peer) {
    bool a_is_mine = hdo__population_has(p, pair.a);
    int local = a_is_mine ? pair.a : pair.b, other = a_is_mine ? pair.b : pair.a;
    double wl = hdo__population_weight(p, hdo__population_class(p, local)),
           wo = hdo__population_weight(p, hdo__population_class(p, other));
    hdo__average_weighted(p->models.len, wl / (wl + wo), mine, wo / (wl + wo), peer);
}

static void average_pair(void *ctx, int k, hdo_work *w) {
    const pairs_ctx *c = ctx;
    hdo_population *p = c->p;
    (void)w;
    if (p->mine[k] == NULL) return;
    if (c->weighted) {
        average_weighted(p, c->plan->pairs[k], p->mine[k], p->peer[k]);
    } else {
        hdo__average(p->models.len, p->mine[k], p->peer[k]);
    }
}

/* Pairs of two local nodes, or those with one. */
static hdo_status average_pairs(hdo_population *p, const hdo_plan *plan, bool far, hdo_error *e) {
    hdo_transport *t = p->transport;
    hdo_status st = HDO_OK;
    for (int k = 0; k < plan->n_pairs && st == HDO_OK; k++) {
        bool is_far = hdo__transport_local(t, plan->pairs[k].a) != hdo__transport_local(t, plan->pairs[k].b);
        p->mine[k] = NULL;
        if (is_far == far) st = t->ops->exchange_wait(t, plan, &p->models, k, &p->mine[k], &p->peer[k], e);
    }
    pairs_ctx c = {p, plan, p->problem->config->mixing.average.id != HDO_AVERAGE_EQUAL};
    if (st == HDO_OK) hdo__population_tasks(p, plan->n_pairs, average_pair, &c);
    return st;
}

static hdo_status take_mean(hdo_population *p, hdo_error *e) {
    hdo_status st = hdo__population_mean(p, NULL, e);
    for (int i = 0; i < p->models.count && st == HDO_OK; i++) {
        memcpy(p->models.X + (size_t)i * p->models.ld, p->mean.model, p->models.len * sizeof(float));
    }
    return st;
}

hdo_status hdo__population_mix(hdo_population *p, const hdo_plan *plan, hdo_counts *counts, hdo_error *e) {
    hdo_transport *t = p->transport;
    hdo_status st;
    int64_t interactions = plan->n_pairs, models = 2 * (int64_t)plan->n_pairs;
    if (plan->allreduce) {
        st = take_mean(p, e);
        interactions = p->n / 2;
        models = 2 * (int64_t)(p->n - 1);
    } else {
        t->ops->exchange_send(t, &p->models);
        st = average_pairs(p, plan, false, e); /* those at hand first: meanwhile the others' models come */
        if (st == HDO_OK && t->ranks > 1) st = average_pairs(p, plan, true, e);
    }
    if (st != HDO_OK) return st;
    counts->interactions += interactions;
    counts->bytes += models * (int64_t)(p->models.len * sizeof(float));
    return HDO_OK;
}
