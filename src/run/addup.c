/* SPDX-License-Identifier: Apache-2.0
 *
 * What the members of a fleet have left behind, added up. The promise of the exchange is that it only moves things from
 * one to the other: over the members that have a summary, what they moved between each other's last lives adds up to
 * rounding, whoever else has died (fleet/flow.h).
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "hdo/experimental/fleet.h"

static json_t *summary_of(const char *dir) {
    char path[HDO_PATH_MAX + 64];
    json_t *o = hdo__path_join(path, sizeof path, dir, "summary.json") ? json_load_file(path, 0, NULL) : NULL;
    if (o != NULL && !json_is_object(json_object_get(o, "fleet"))) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static uint64_t id_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text != NULL ? strtoull(text, NULL, 16) : 0;
}

/* Is the partner of this flow one of the lives that have a summary? */
static bool among(json_t *const *all, int n, const json_t *flow) {
    uint64_t partner = id_of(flow, "partner") & ~(uint64_t)255;
    json_int_t epoch = json_integer_value(json_object_get(flow, "epoch"));
    for (int k = 0; k < n; k++) {
        const json_t *f = json_object_get(all[k], "fleet"), *own = json_array_get(json_object_get(f, "flows"), 0);
        if (all[k] == NULL || own == NULL) continue; /* met nobody */
        if ((id_of(own, "node") & ~(uint64_t)255) == partner &&
            json_integer_value(json_object_get(f, "epoch")) == epoch)
            return true;
    }
    return false;
}

static int64_t whole(const json_t *o, const char *key) {
    return (int64_t)json_integer_value(json_object_get(o, key));
}

hdo_status hdo_fleet_add_up(const char *const *dir, int n, hdo_fleet_sums *s, hdo_error *e) {
    json_t **all = calloc((size_t)n + 1, sizeof(json_t *)), *flow;
    size_t i;
    double net = 0.0, gross = 0.0, nodes = 0.0, d = 1.0;
    *s = (hdo_fleet_sums){0};
    if (all == NULL) return hdo__fail(e, HDO_E_MEMORY, "out of memory");
    for (int k = 0; k < n; k++) all[k] = summary_of(dir[k]);
    for (int k = 0; k < n; k++) {
        const json_t *f = json_object_get(all[k], "fleet");
        if (all[k] == NULL) continue;
        s->members++;
        s->steps += whole(all[k], "steps");
        s->exchanges += whole(f, "exchanges");
        s->expired += whole(f, "expired");
        s->missed += whole(f, "missed");
        s->bytes += whole(f, "bytes");
        s->loss += json_number_value(json_object_get(json_object_get(all[k], "final"), "val_loss_mean"));
        nodes += (double)whole(f, "nodes");
        d = (double)whole(all[k], "d");
        json_array_foreach(json_object_get(f, "flows"), i, flow) {
            double moved = json_number_value(json_object_get(flow, "moved"));
            if (!among(all, n, flow)) continue;
            net += moved;
            gross += fabs(moved);
        }
    }
    for (int k = 0; k < n; k++) json_decref(all[k]);
    free(all);
    s->exchanges /= 2; /* each has two halves */
    s->loss /= s->members > 0 ? (double)s->members : 1.0;
    s->drift = fabs(net) / (sqrt(d) * (nodes > 0.0 ? nodes : 1.0));
    s->drift_relative = gross > 0.0 ? fabs(net) / gross : 0.0;
    return s->members > 0 ? HDO_OK : hdo__fail(e, HDO_E_DATA, "no member has left a summary");
}
