/* SPDX-License-Identifier: Apache-2.0 — a plan as JSON. */
#include <math.h>

#include "hdo/experimental/json.h"
#include "lab/study/study_internal.h"

static void put_option(hdo_json *j, const char *key, const hdo_plan_option *o) {
    hdo__json_object(j, key);
    HDO_JSON_INTS(j, {"zo", o->n0}, {"rv", o->rv});
    HDO_JSON_REALS(j, {"lr_fo", o->eta1}, {"lr_zo", o->eta0}, {"nu", o->nu}, {"round_s", o->round_s}, {"rounds", o->T},
                   {"bound", o->bound}, {"start", o->start}, {"noise", o->noise}, {"node_noise", o->a0});
    hdo__json_end(j, '}');
}

char *hdo_fleet_plan_json(const hdo_fleet_plan *p) {
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    hdo__json_bool(&j, "worth_adding", p->worth);
    hdo__json_real(&j, "gain", p->gain);
    hdo__json_text(&j, "reason", p->reason);
    hdo__json_text(&j, "bound_on", p->convex ? "f(y_T) - f*" : "mean |grad f(mu)|^2");
    hdo__json_text(&j, "quality", hdo_known_name(p->quality));
    hdo__json_object(&j, "fleet");
    HDO_JSON_INTS(&j, {"fo", p->fleet.fo}, {"zo", p->fleet.zo}, {"rv_max", p->fleet.rv_max});
    HDO_JSON_REALS(&j, {"fo_speed", p->fleet.fo_speed}, {"zo_speed", p->fleet.zo_speed}, {"time", p->fleet.time},
                   {"traffic", p->fleet.traffic > 0.0 ? p->fleet.traffic : (double)NAN},
                   {"energy", p->fleet.energy > 0.0 ? p->fleet.energy : (double)NAN}, {"fo_joules", p->fleet.fo_joules},
                   {"zo_joules", p->fleet.zo_joules});
    hdo__json_end(&j, '}');
    put_option(&j, "without", &p->without);
    put_option(&j, "best", &p->best);
    put_option(&j, "best_equal_steps", &p->equal);
    hdo__json_array(&j, "by_zo");
    for (int k = 0; k < p->n_rows; k++) put_option(&j, NULL, &p->rows[k]);
    hdo__json_end(&j, ']');
    HDO_JSON_REALS(&j, {"node_noise_fo", p->a1}, {"threshold", p->threshold}, {"rv_needed", p->rv_needed},
                   {"memory_needed", p->memory_needed});
    hdo__json_bool(&j, "memory_ok", p->memory_ok);
    if (p->sim.done) {
        hdo__json_object(&j, "simulation");
        hdo__json_int(&j, "seeds", p->sim.seeds);
        HDO_JSON_REALS(&j, {"scale", p->sim.scale}, {"tuned_without", p->sim.tuned_without},
                       {"tuned_with", p->sim.tuned_with}, {"without", p->sim.without},
                       {"without_se", p->sim.without_se}, {"with", p->sim.with}, {"with_se", p->sim.with_se});
        hdo__json_bool(&j, "agrees", p->sim.agrees);
        hdo__json_end(&j, '}');
    } else {
        hdo__json_text(&j, "simulation", NULL);
    }
    return hdo__json_finish(&j);
}
