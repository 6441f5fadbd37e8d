/* SPDX-License-Identifier: Apache-2.0 — leaving, returning, lost messages, stragglers, the outage of a class. */
#include "topo/churn.h"

#include <string.h>

#include "base/arena.h"
#include "base/rng.h"

enum { SUB_PRESENCE = 0, SUB_EXCHANGE = 1, SUB_STRAGGLE = 2 };

static hdo_stream stream(const hdo_churn *c, int64_t t, uint32_t sub) {
    return hdo__stream(c->seed, HDO_RNG_CHURN, 0, (uint64_t)t, sub);
}

static hdo_status find_outage(hdo_churn *c, const hdo_config *config, hdo_error *e) {
    int first = 0;
    if (config->churn.outage[0] == '\0') return HDO_OK;
    for (int k = 0; k < config->n_classes; k++) {
        int count = (int)config->population[k].count;
        if (strcmp(config->population[k].name, config->churn.outage) == 0) {
            c->outage_first = first;
            c->outage_last = first + count;
            return HDO_OK;
        }
        first += count;
    }
    return hdo__fail(e, HDO_E_CONFIG, "churn.outage names class '%s', which is not in the population",
                     config->churn.outage);
}

hdo_status hdo__churn_init(hdo_churn *c, const hdo_config *config, int n, hdo_error *e) {
    const hdo_churn_config *k = &config->churn;
    *c = (hdo_churn){.leave = k->leave,
                     .back = k->back,
                     .loss = k->loss,
                     .straggle = k->straggle,
                     .fresh = k->model.id == HDO_RETURN_FRESH,
                     .outage_from = k->outage_from,
                     .outage_to = k->outage_to,
                     .seed = (uint64_t)config->seed,
                     .n = n};
    hdo_status st = find_outage(c, config, e);
    if (st != HDO_OK) return st;
    c->active = k->leave > 0.0 || k->loss > 0.0 || k->straggle > 0.0 || c->outage_last > c->outage_first;
    if (!c->active) return HDO_OK;
    c->away = hdo__alloc((size_t)n);
    c->draw = hdo__alloc((size_t)n * sizeof(float));
    if (c->away == NULL || c->draw == NULL) {
        hdo__churn_clear(c);
        return hdo__fail(e, HDO_E_MEMORY, "out of memory for the presence of %d nodes", n);
    }
    return HDO_OK;
}

void hdo__churn_clear(hdo_churn *c) {
    hdo__free(c->away);
    hdo__free(c->draw);
    *c = (hdo_churn){0};
}

static bool in_outage(const hdo_churn *c, int64_t t, int node) {
    return node >= c->outage_first && node < c->outage_last && t >= c->outage_from && t < c->outage_to;
}

bool hdo__churn_away(const hdo_churn *c, int64_t t, int node) {
    return c->active && (c->away[node] != 0 || in_outage(c, t, node));
}

int hdo__churn_step(hdo_churn *c, int64_t t, int32_t *back) {
    int n_back = 0;
    if (!c->active) return 0;
    if (c->leave > 0.0) hdo__rng_uniform(stream(c, t, SUB_PRESENCE), 0, (size_t)c->n, c->draw);
    for (int i = 0; i < c->n; i++) {
        bool was = c->away[i] != 0 || in_outage(c, t - 1, i);
        if (c->leave > 0.0) {
            double u = (double)c->draw[i];
            if (c->away[i] != 0) {
                c->away[i] = u >= c->back;
            } else {
                c->away[i] = u < c->leave;
            }
        }
        if (was && !hdo__churn_away(c, t, i)) back[n_back++] = i;
    }
    return n_back;
}

int hdo__churn_filter_nodes(const hdo_churn *c, int64_t t, int32_t *list, int n) {
    if (!c->active) return n;
    int kept = 0;
    for (int k = 0; k < n; k++) {
        if (hdo__churn_away(c, t, list[k])) continue;
        if (c->straggle > 0.0 && hdo__rng_double(stream(c, t, SUB_STRAGGLE), (uint64_t)list[k]) < c->straggle) continue;
        list[kept++] = list[k];
    }
    return kept;
}

int hdo__churn_filter_pairs(const hdo_churn *c, int64_t t, hdo_pair *pairs, int n) {
    if (!c->active) return n;
    int kept = 0;
    for (int k = 0; k < n; k++) {
        if (hdo__churn_away(c, t, pairs[k].a) || hdo__churn_away(c, t, pairs[k].b)) continue;
        if (c->loss > 0.0 && hdo__rng_double(stream(c, t, SUB_EXCHANGE), (uint64_t)k) < c->loss) continue;
        pairs[kept++] = pairs[k];
    }
    return kept;
}
