/* SPDX-License-Identifier: Apache-2.0 — predictions as JSON. */
#include "hdo/experimental/json.h"
#include "lab/predict/predict_internal.h"

static void put_classes(hdo_json *j, const hdo_prediction *p) {
    hdo__json_object(j, "classes");
    for (int k = 0; k < p->n_classes; k++) {
        const hdo_predicted_class *c = &p->cls[k];
        hdo__json_object(j, c->name);
        hdo__json_int(j, "count", c->count);
        hdo__json_real(j, "lr", c->lr);
        hdo__json_real(j, "weight", c->weight);
        hdo__json_real(j, "noise_ratio", c->noise_ratio);
        hdo__json_real(j, "lr_max", c->lr_max);
        hdo__json_real(j, "lr_best", c->lr_best);
        hdo__json_real(j, "effective_dim", c->effective_dim);
        hdo__json_real(j, "share", c->share);
        hdo__json_bool(j, "stable", c->stable);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, '}');
}

char *hdo_predictions_json(const hdo_prediction *p, int n) {
    hdo_json j;
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
    hdo__json_array(&j, "predictions");
    for (int i = 0; i < n; i++) {
        const hdo_prediction *q = &p[i];
        hdo__json_object(&j, NULL);
        hdo__json_text(&j, "population", q->population);
        hdo__json_int(&j, "horizon", q->horizon);
        hdo__json_real(&j, "val_loss_mu", q->val_loss_mu);
        hdo__json_real(&j, "val_loss_mean", q->val_loss_mean);
        hdo__json_real(&j, "val_loss_free", q->val_loss_free);
        hdo__json_real(&j, "noise_mu", q->noise_mu);
        hdo__json_real(&j, "noise_best", q->noise_best);
        hdo__json_real(&j, "spread", q->spread);
        hdo__json_real(&j, "pace", q->pace);
        hdo__json_bool(&j, "stable", q->stable);
        put_classes(&j, q);
        hdo__json_array(&j, "curve");
        for (int k = 0; k < q->n_points; k++) {
            hdo__json_object(&j, NULL);
            hdo__json_real(&j, "step", q->step[k]);
            hdo__json_real(&j, "val_loss_mu", q->mu[k]);
            hdo__json_real(&j, "val_loss_mean", q->mean[k]);
            hdo__json_real(&j, "val_loss_free", q->free_of[k]);
            hdo__json_end(&j, '}');
        }
        hdo__json_end(&j, ']');
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    hdo__json_end(&j, '}');
    if (j.failed) hdo__json_clear(&j);
    return j.text;
}

static void put_choice(hdo_json *j, const char *key, const hdo_fleet_choice *o) {
    hdo__json_object(j, key);
    hdo__json_int(j, "zo", o->n0);
    hdo__json_int(j, "rv", o->rv);
    hdo__json_bool(j, "stable", o->ok);
    hdo__json_real(j, "lr_fo", o->eta1);
    hdo__json_real(j, "lr_zo", o->eta0);
    hdo__json_real(j, "round_s", o->round_s);
    hdo__json_real(j, "rounds", o->T);
    hdo__json_real(j, "val_loss_mu", o->loss);
    hdo__json_real(j, "val_loss_free", o->free_of);
    hdo__json_real(j, "noise_mu", o->noise);
    hdo__json_end(j, '}');
}

char *hdo_fleet_prediction_json(const hdo_fleet_prediction *p) {
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
    hdo__json_end(&j, '}');
    if (j.failed) hdo__json_clear(&j);
    return j.text;
}
