/* SPDX-License-Identifier: Apache-2.0 — predictions as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hdo/experimental/json.h"
#include "lab/predict/predict_internal.h"

static void put_classes(hdo_json *j, const hdo_prediction *p) {
    hdo__json_object(j, "classes");
    for (int k = 0; k < p->n_classes; k++) {
        const hdo_predicted_class *c = &p->cls[k];
        hdo__json_object(j, c->name);
        hdo__json_int(j, "count", c->count);
        HDO_JSON_REALS(j, {"lr", c->lr}, {"weight", c->weight}, {"noise_ratio", c->noise_ratio}, {"lr_max", c->lr_max},
                       {"lr_best", c->lr_best}, {"effective_dim", c->effective_dim}, {"share", c->share});
        hdo__json_bool(j, "stable", c->stable);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, '}');
}

char *hdo_predictions_json(const hdo_prediction *p, int n) {
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    hdo__json_array(&j, "predictions");
    for (int i = 0; i < n; i++) {
        const hdo_prediction *q = &p[i];
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, "population", q->population);
        hdo__json_int(&j, "horizon", q->horizon);
        HDO_JSON_REALS(&j, {"val_loss_mu", q->val_loss_mu}, {"val_loss_mean", q->val_loss_mean},
                       {"val_loss_free", q->val_loss_free}, {"noise_mu", q->noise_mu}, {"noise_best", q->noise_best},
                       {"spread", q->spread}, {"pace", q->pace});
        hdo__json_bool(&j, "stable", q->stable);
        put_classes(&j, q);
        hdo__json_array(&j, "curve");
        for (int k = 0; k < q->n_points; k++) {
            hdo__json_object(&j, NULL);
            HDO_JSON_REALS(&j, {"step", q->step[k]}, {"val_loss_mu", q->mu[k]}, {"val_loss_mean", q->mean[k]},
                           {"val_loss_free", q->free_of[k]});
            hdo__json_end(&j, '}');
        }
        hdo__json_end(&j, ']');
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    return hdo__json_finish(&j);
}

static void put_choice(hdo_json *j, const char *key, const hdo_fleet_choice *o) {
    hdo__json_object(j, key);
    HDO_JSON_INTS(j, {"zo", o->n0}, {"rv", o->rv});
    hdo__json_bool(j, "stable", o->ok);
    HDO_JSON_REALS(j, {"lr_fo", o->eta1}, {"lr_zo", o->eta0}, {"round_s", o->round_s}, {"rounds", o->T},
                   {"seconds", o->seconds}, {"bytes", o->bytes}, {"joules", o->joules}, {"val_loss_mu", o->loss},
                   {"val_loss_free", o->free_of}, {"noise_mu", o->noise});
    hdo__json_end(j, '}');
}

static char *prediction_json(const hdo_fleet_prediction *p) {
    hdo_json j;
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_bool(&j, "worth_adding", p->worth);
    hdo__json_real(&j, "scale", p->scale);
    put_choice(&j, "without", &p->without);
    put_choice(&j, "best", &p->best);
    hdo__json_array(&j, "by_zo");
    for (int i = 0; i < p->n_rows; i++) put_choice(&j, NULL, &p->rows[i]);
    hdo__json_end(&j, ']');
    return hdo__json_finish(&j);
}

/* The plan by bounds with the answer in the place of theirs and the prediction as its last member. */
char *hdo_plan_answer_json(const hdo_plan_answer *a) {
    hdo_fleet_plan *p = malloc(sizeof *p);
    if (p == NULL) return NULL;
    *p = a->plan;
    p->worth = a->worth;
    if (a->predicted) p->sim = a->prediction.sim;
    char *plan = hdo_fleet_plan_json(p), *more = a->predicted ? prediction_json(&a->prediction) : NULL, *text = NULL;
    char *end = plan != NULL ? strrchr(plan, '}') : NULL;
    if (end != NULL && (more != NULL || !a->predicted)) {
        while (end > plan && (end[-1] == '\n' || end[-1] == ' ')) end--;
        *end = '\0';
        size_t cap = strlen(plan) + (more != NULL ? strlen(more) : 4) + 64;
        text = malloc(cap);
        if (text != NULL)
            snprintf(text, cap, "%s,\n  \"worth_by_bounds\": %s,\n  \"prediction\": %s\n}", plan,
                     a->plan.worth ? "true" : "false", more != NULL ? more : "null");
    }
    free(plan);
    free(more);
    free(p);
    return text;
}
