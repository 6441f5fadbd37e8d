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
    HDO_JSON_INTS(j, {"d", (int64_t)k->d}, {"live", (int64_t)k->live});
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

/* null unless there is one: zero and less stand for "none". */
static double positive(double v) {
    return v > 0.0 ? v : (double)NAN;
}
static double known(bool ok, double v) {
    return ok ? v : (double)NAN;
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
        HDO_JSON_REALS(j, {"lr", c->eta}, {"nu", positive(c->nu)}, {"nu_best", positive(c->nu_best)},
                       {"omega", c->est.omega}, {"rho", c->est.rho}, {"kappa", c->est.kappa}, {"bias", c->est.b},
                       {"bias_f", c->est.b_f}, {"noise", c->noise});
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
    HDO_JSON_REALS(
        j, {"distance", a->a_T}, {"gamma", a->Gamma_T}, {"mg", a->MG_T},
        {"distance_limit", known(a->sc_applies, fmin(a->limit.a, a->limit.Phi))}, {"radius", a->limit.radius},
        {"value", known(a->fy.ok, a->fy.f_y)}, {"value_start", known(a->fy.ok, a->fy.init)},
        {"value_heterogeneity", known(a->fy.ok, a->fy.het)}, {"value_noise", known(a->fy.ok, a->fy.noise)},
        {"value_bias", known(a->fy.ok, a->fy.bias)}, {"rate", known(a->fy.ok, a->fy.rate)}, {"delta", a->sys.delta},
        {"eps", a->lyap.eps}, {"lr_max_consensus", a->sc_eta_consensus}, {"lr_max_descent", a->sc_eta_descent},
        {"lr_max_bounded", a->sc_eta_bounded}, {"lr_max_ok", a->sc_eta_ok}, {"lr_best", positive(a->sc_eta_best)},
        {"value_best", a->sc_best}, {"T_min", positive((double)a->sc_T_min)});
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
    HDO_JSON_REALS(j, {"grad", known(a->grad.ok, a->grad.total)}, {"grad_start", known(a->grad.ok, a->grad.init)},
                   {"grad_heterogeneity", known(a->grad.ok, a->grad.het)},
                   {"grad_noise", known(a->grad.ok, a->grad.noise)}, {"grad_bias", known(a->grad.ok, a->grad.bias)},
                   {"gamma_mean", known(a->grad.ok, a->grad.Gav)}, {"lr_max_bound", a->nc_eta_bound},
                   {"lr_max_ok", a->nc_eta_ok}, {"lr_best", positive(a->nc_eta_best)}, {"grad_best", a->nc_best},
                   {"T_min", positive((double)a->nc_T_min)});
    hdo__json_end(j, '}');
}

static void put_paper(hdo_json *j, const hdo_assessment *a) {
    hdo__json_object(j, "published");
    for (int k = 0; k < 2; k++) {
        hdo__json_object(j, k == 0 ? "noise_terms_convex" : "noise_terms_non_convex");
        HDO_JSON_REALS(j, {"heterogeneity", a->paper_noise[k].het}, {"gradient_noise", a->paper_noise[k].noise},
                       {"bias", a->paper_noise[k].bias});
        hdo__json_end(j, '}');
    }
    HDO_JSON_REALS(j, {"distance", known(a->paper.ok, a->paper.a_bound)}, {"T_min", positive((double)a->paper_T_min)});
    hdo__json_end(j, '}');
}

char *hdo_assessment_json(const hdo_assessment *a) {
    static const char *const levels[] = {"note", "step", "broken"};
    hdo_json j;
    hdo__json_begin(&j, true, 1);
    hdo__json_text(&j, "quality", hdo_known_name(a->quality));
    HDO_JSON_INTS(&j, {"n", a->n}, {"n0", a->n0}, {"n1", a->n1}, {"T", a->T});
    HDO_JSON_REALS(&j, {"lr_mean", a->eta}, {"theta", a->theta});
    hdo__json_bool(&j, "unequal_steps", a->weighted);
    hdo__json_real(&j, "lambda", a->lambda);
    put_constants(&j, a);
    put_classes(&j, a);
    put_convex(&j, a);
    put_nonconvex(&j, a);
    put_paper(&j, a);
    if (a->n0 > 0 && a->n1 > 0) {
        hdo__json_object(&j, "zeroth_order");
        HDO_JSON_REALS(&j, {"a0", a->a0}, {"a1", a->a1}, {"noise_ratio", a->help.noise_ratio},
                       {"threshold", a->help.threshold}, {"match", a->help.match}, {"pair", a->help.pair},
                       {"parallel", a->help.parallel}, {"weighted", a->help.weighted}, {"lr_ratio", a->help.eta_ratio},
                       {"rv_needed", a->rv_needed});
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
    return hdo__json_finish(&j);
}
