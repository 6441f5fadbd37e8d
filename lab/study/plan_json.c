/* SPDX-License-Identifier: Apache-2.0 — a plan as JSON. */
#include <math.h>

#include "hdo/experimental/json.h"
#include "lab/study/study_internal.h"

static void put_option(hdo_json *j, const char *key, const hdo_plan_option *o) {
    hdo__json_object(j, key);
    hdo__json_int(j, "zo", o->n0);
    hdo__json_int(j, "rv", o->rv);
    hdo__json_real(j, "lr_fo", o->eta1);
    hdo__json_real(j, "lr_zo", o->eta0);
    hdo__json_real(j, "nu", o->nu);
    hdo__json_real(j, "round_s", o->round_s);
    hdo__json_real(j, "rounds", o->T);
    hdo__json_real(j, "bound", o->bound);
    hdo__json_real(j, "start", o->start);
    hdo__json_real(j, "noise", o->noise);
    hdo__json_real(j, "node_noise", o->a0);
    hdo__json_end(j, '}');
}

char *hdo_fleet_plan_json(const hdo_fleet_plan *p) {
    hdo_json j;
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
    hdo__json_bool(&j, "worth_adding", p->worth);
    hdo__json_real(&j, "gain", p->gain);
    hdo__json_text(&j, "reason", p->reason);
    hdo__json_text(&j, "bound_on", p->convex ? "f(y_T) - f*" : "mean |grad f(mu)|^2");
    hdo__json_text(&j, "quality", hdo_known_name(p->quality));
    hdo__json_object(&j, "fleet");
    hdo__json_int(&j, "fo", p->fleet.fo);
    hdo__json_int(&j, "zo", p->fleet.zo);
    hdo__json_int(&j, "rv_max", p->fleet.rv_max);
    hdo__json_real(&j, "fo_speed", p->fleet.fo_speed);
    hdo__json_real(&j, "zo_speed", p->fleet.zo_speed);
    hdo__json_real(&j, "time", p->fleet.time);
    hdo__json_end(&j, '}');
    put_option(&j, "without", &p->without);
    put_option(&j, "best", &p->best);
    put_option(&j, "best_equal_steps", &p->equal);
    hdo__json_array(&j, "by_zo");
    for (int k = 0; k < p->n_rows; k++) put_option(&j, NULL, &p->rows[k]);
    hdo__json_end(&j, ']');
    hdo__json_real(&j, "node_noise_fo", p->a1);
    hdo__json_real(&j, "threshold", p->threshold);
    hdo__json_real(&j, "rv_needed", p->rv_needed);
    hdo__json_real(&j, "memory_needed", p->memory_needed);
    hdo__json_bool(&j, "memory_ok", p->memory_ok);
    if (p->sim.done) {
        hdo__json_object(&j, "simulation");
        hdo__json_int(&j, "seeds", p->sim.seeds);
        hdo__json_real(&j, "scale", p->sim.scale);
        hdo__json_real(&j, "without", p->sim.without);
        hdo__json_real(&j, "without_se", p->sim.without_se);
        hdo__json_real(&j, "with", p->sim.with);
        hdo__json_real(&j, "with_se", p->sim.with_se);
        hdo__json_bool(&j, "agrees", p->sim.agrees);
        hdo__json_end(&j, '}');
    } else {
        hdo__json_text(&j, "simulation", NULL);
    }
    hdo__json_end(&j, '}');
    if (j.failed) hdo__json_clear(&j);
    return j.text;
}
