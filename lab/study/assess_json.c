/* SPDX-License-Identifier: Apache-2.0 — constants and bounds of a problem as JSON. Unknown and infinite become null. */
#include <math.h>
#include <stdio.h>

#include "hdo/experimental/json.h"
#include "lab/study/study_internal.h"

static void put_constant(hdo_json *j, const char *key, hdo_constant c) {
    hdo__json_object(j, key);
    hdo__json_real(j, "value", c.how == HDO_UNKNOWN ? (double)NAN : c.value);
    hdo__json_text(j, "how", hdo_known_name(c.how));
    hdo__json_end(j, '}');
}

static void put_constants(hdo_json *j, const hdo_assessment *a) {
    const hdo_constants *k = &a->constants;
    hdo__json_object(j, "constants");
    hdo__json_int(j, "d", (int64_t)k->d);
    hdo__json_int(j, "live", (int64_t)k->live);
    hdo__json_bool(j, "quadratic", k->quad);
    hdo__json_bool(j, "convex", k->convex);
    hdo__json_bool(j, "balanced", k->balanced);
    put_constant(j, "L", k->L);
    put_constant(j, "L_F", k->L_F);
    put_constant(j, "L2", k->L2);
    put_constant(j, "ell", k->ell);
    put_constant(j, "ell_loc", k->ell_loc);
    put_constant(j, "df", k->df);
    put_constant(j, "f_star", k->f_star);
    put_constant(j, "F", k->F);
    put_constant(j, "a_0", k->a_0);
    put_constant(j, "Gamma_0", k->Gamma_0);
    hdo__json_end(j, '}');
}

/* Zero and less stand for "there is none". */
static void put_positive(hdo_json *j, const char *key, double v) {
    hdo__json_real(j, key, v > 0.0 ? v : (double)NAN);
}

static void put_if(hdo_json *j, const char *key, bool known, double v) {
    hdo__json_real(j, key, known ? v : (double)NAN);
}

static void put_classes(hdo_json *j, const hdo_assessment *a) {
    hdo__json_array(j, "classes");
    for (int k = 0; k < a->n_classes; k++) {
        const hdo_assess_class *c = &a->cls[k];
        hdo__json_object(j, NULL);
        hdo__json_text(j, "name", c->name);
        hdo__json_int(j, "count", c->count);
        hdo__json_text(j, "estimator", c->estimator);
        hdo__json_int(j, "rv", c->rv);
        hdo__json_bool(j, "covered", c->covered);
        hdo__json_real(j, "lr", c->eta);
        put_positive(j, "nu", c->nu);
        put_positive(j, "nu_best", c->nu_best);
        hdo__json_real(j, "omega", c->est.omega);
        hdo__json_real(j, "rho", c->est.rho);
        hdo__json_real(j, "kappa", c->est.kappa);
        hdo__json_real(j, "bias", c->est.b);
        hdo__json_real(j, "bias_f", c->est.b_f);
        hdo__json_real(j, "noise", c->noise);
        put_constant(j, "sigma", a->constants.sigma[k]);
        put_constant(j, "varsigma_U", a->constants.varsigma_U[k]);
        put_constant(j, "varsigma_O", a->constants.varsigma_O[k]);
        hdo__json_end(j, '}');
    }
    hdo__json_end(j, ']');
}

static void put_convex(hdo_json *j, const hdo_assessment *a) {
    if (!a->sc_known) {
        hdo__json_text(j, "strongly_convex", NULL);
        return;
    }
    hdo__json_object(j, "strongly_convex");
    hdo__json_bool(j, "assumptions_hold", a->sc_holds);
    hdo__json_bool(j, "applies", a->sc_applies);
    hdo__json_text(j, "mode", a->sc.mode == HDO_THEORY_MODE_U ? "U" : "O");
    hdo__json_real(j, "distance", a->a_T);
    hdo__json_real(j, "gamma", a->Gamma_T);
    hdo__json_real(j, "mg", a->MG_T);
    put_if(j, "distance_limit", a->sc_applies, fmin(a->limit.a, a->limit.Phi));
    hdo__json_real(j, "radius", a->limit.radius);
    put_if(j, "value", a->fy.ok, a->fy.f_y);
    put_if(j, "value_start", a->fy.ok, a->fy.init);
    put_if(j, "value_heterogeneity", a->fy.ok, a->fy.het);
    put_if(j, "value_noise", a->fy.ok, a->fy.noise);
    put_if(j, "value_bias", a->fy.ok, a->fy.bias);
    put_if(j, "rate", a->fy.ok, a->fy.rate);
    hdo__json_real(j, "delta", a->sys.delta);
    hdo__json_real(j, "eps", a->lyap.eps);
    hdo__json_real(j, "lr_max_consensus", a->sc_eta_consensus);
    hdo__json_real(j, "lr_max_descent", a->sc_eta_descent);
    hdo__json_real(j, "lr_max_bounded", a->sc_eta_bounded);
    hdo__json_real(j, "lr_max_ok", a->sc_eta_ok);
    put_positive(j, "lr_best", a->sc_eta_best);
    hdo__json_real(j, "value_best", a->sc_best);
    put_positive(j, "T_min", (double)a->sc_T_min);
    hdo__json_end(j, '}');
}

static void put_nonconvex(hdo_json *j, const hdo_assessment *a) {
    if (!a->nc_known) {
        hdo__json_text(j, "non_convex", NULL);
        return;
    }
    hdo__json_object(j, "non_convex");
    hdo__json_bool(j, "assumptions_hold", a->nc_holds);
    hdo__json_bool(j, "exists", a->grad.ok);
    put_if(j, "grad", a->grad.ok, a->grad.total);
    put_if(j, "grad_start", a->grad.ok, a->grad.init);
    put_if(j, "grad_heterogeneity", a->grad.ok, a->grad.het);
    put_if(j, "grad_noise", a->grad.ok, a->grad.noise);
    put_if(j, "grad_bias", a->grad.ok, a->grad.bias);
    put_if(j, "gamma_mean", a->grad.ok, a->grad.Gav);
    hdo__json_real(j, "lr_max_bound", a->nc_eta_bound);
    hdo__json_real(j, "lr_max_ok", a->nc_eta_ok);
    put_positive(j, "lr_best", a->nc_eta_best);
    hdo__json_real(j, "grad_best", a->nc_best);
    put_positive(j, "T_min", (double)a->nc_T_min);
    hdo__json_end(j, '}');
}

static void put_paper(hdo_json *j, const hdo_assessment *a) {
    hdo__json_object(j, "published");
    for (int k = 0; k < 2; k++) {
        hdo__json_object(j, k == 0 ? "noise_terms_convex" : "noise_terms_non_convex");
        hdo__json_real(j, "heterogeneity", a->paper_noise[k].het);
        hdo__json_real(j, "gradient_noise", a->paper_noise[k].noise);
        hdo__json_real(j, "bias", a->paper_noise[k].bias);
        hdo__json_end(j, '}');
    }
    hdo__json_real(j, "distance", a->paper.ok ? a->paper.a_bound : (double)NAN);
    put_positive(j, "T_min", (double)a->paper_T_min);
    hdo__json_end(j, '}');
}

char *hdo_assessment_json(const hdo_assessment *a) {
    static const char *const levels[] = {"note", "step", "broken"};
    hdo_json j;
    hdo__json_init(&j, true);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
    hdo__json_text(&j, "quality", hdo_known_name(a->quality));
    hdo__json_int(&j, "n", a->n);
    hdo__json_int(&j, "n0", a->n0);
    hdo__json_int(&j, "n1", a->n1);
    hdo__json_int(&j, "T", a->T);
    hdo__json_real(&j, "lr_mean", a->eta);
    hdo__json_real(&j, "theta", a->theta);
    hdo__json_bool(&j, "unequal_steps", a->weighted);
    hdo__json_real(&j, "lambda", a->lambda);
    put_constants(&j, a);
    put_classes(&j, a);
    put_convex(&j, a);
    put_nonconvex(&j, a);
    put_paper(&j, a);
    if (a->n0 > 0 && a->n1 > 0) {
        hdo__json_object(&j, "zeroth_order");
        hdo__json_real(&j, "a0", a->a0);
        hdo__json_real(&j, "a1", a->a1);
        hdo__json_real(&j, "noise_ratio", a->help.noise_ratio);
        hdo__json_real(&j, "threshold", a->help.threshold);
        hdo__json_real(&j, "match", a->help.match);
        hdo__json_real(&j, "pair", a->help.pair);
        hdo__json_real(&j, "parallel", a->help.parallel);
        hdo__json_real(&j, "weighted", a->help.weighted);
        hdo__json_real(&j, "lr_ratio", a->help.eta_ratio);
        hdo__json_real(&j, "rv_needed", a->rv_needed);
        hdo__json_end(&j, '}');
    }
    hdo__json_array(&j, "warnings");
    for (int k = 0; k < a->n_warnings; k++) {
        hdo__json_object(&j, NULL);
        hdo__json_int(&j, "number", a->warnings[k].number);
        hdo__json_text(&j, "level", levels[a->warnings[k].level]);
        hdo__json_text(&j, "text", a->warnings[k].text);
        hdo__json_end(&j, '}');
    }
    hdo__json_end(&j, ']');
    hdo__json_end(&j, '}');
    if (j.failed) hdo__json_clear(&j);
    return j.text;
}
