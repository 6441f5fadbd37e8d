/* SPDX-License-Identifier: Apache-2.0
 *
 * Which assumption fails, and by how much: the list of docs/theory.md 8, checked against a wired run. Decides whether a
 * bound applies at all (sc_holds, nc_holds).
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lab/study/study_internal.h"

static void warn(hdo_assessment *a, int number, hdo_warning_level level, const char *fmt, ...) HDO_PRINTF(4, 5);
static void warn(hdo_assessment *a, int number, hdo_warning_level level, const char *fmt, ...) {
    if (a->n_warnings == HDO_WARNINGS_MAX) return;
    hdo_warning *w = &a->warnings[a->n_warnings++];
    w->number = number;
    w->level = level;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->text, sizeof w->text, fmt, ap);
    va_end(ap);
    if (level == HDO_WARN_BROKEN) a->sc_holds = a->nc_holds = false;
}

static void about_problem(const hdo_study *s, hdo_assessment *a) {
    const hdo_constants *k = &a->constants;
    if (!k->same_hessian && k->convex && k->ell.value > 0.0) {
        warn(a, 1, HDO_WARN_NOTE, "the f^i have different Hessians: heterogeneity is measured at x* (mode O)");
    }
    if (!a->sc_known && k->grow > 1.5) {
        warn(a, 1, HDO_WARN_NOTE,
             "heterogeneity grows along the run, up to %.2g times its value at the start: the bound is local", k->grow);
    }
    if (!k->balanced) {
        warn(a, 2, HDO_WARN_NOTE,
             "the classes do not each hold all data in equal shares (data.split): weaker constants, "
             "and first-order nodes alone would minimise another objective");
    }
    if (k->ell.value > 0.0 && !(k->ell_loc.value > 0.0)) {
        warn(a, 3, HDO_WARN_NOTE, "no strong convexity of the single f^i is known: ell_loc = 0");
    }
    if (k->convex && !(k->ell.value > 0.0)) {
        warn(a, 3, HDO_WARN_NOTE,
             "convex but not strongly convex (ell = 0): only the non-convex bound applies; logistic-l2 "
             "with model.l2 > 0 would be strongly convex");
    }
    if (!k->convex) warn(a, 3, HDO_WARN_NOTE, "not convex: only the bound on the mean squared gradient applies");
    if (a->quality == HDO_MEASURED) {
        warn(a, 1, HDO_WARN_NOTE,
             "some constants are measured, at %d points%s: lower estimates, so the bounds are estimates", k->points,
             k->probe_diverged ? " (the probe run diverged: use a smaller lr)" : "");
    }
    if (a->quality == HDO_UNKNOWN) {
        warn(a, 1, HDO_WARN_NOTE, "some constants are unknown: use --measure, or give them (--L, --ell, --sigma, ...)");
    }
    if (s->run->problem.train != NULL) {
        warn(a, 8, HDO_WARN_NOTE,
             "batches are cut from shuffled passes over the shard: within a pass they depend on the "
             "past a little, while the theory draws each one afresh");
    }
}

static void about_estimators(const hdo_study *s, hdo_assessment *a) {
    for (int k = 0; k < a->n_classes; k++) {
        const hdo_assess_class *c = &a->cls[k];
        const hdo_estimator *est = &s->run->population.classes[k].estimator;
        if (c->count == 0) continue;
        if (!c->covered) {
            warn(a, 12, HDO_WARN_BROKEN, "class '%s': estimator '%s' has no constants in the theory for this model",
                 c->name, c->estimator);
        }
        if (c->zo && est->streams == HDO_STREAMS_SHARED && c->count > 1) {
            warn(a, 8, HDO_WARN_BROKEN,
                 "class '%s': all nodes draw the same directions (streams: shared); estimates of "
                 "different nodes must be independent",
                 c->name);
        }
        if (c->nu > 0.0 && c->nu < 0.999 * c->nu_best) {
            warn(a, 7, HDO_WARN_NOTE,
                 "class '%s': nu = %.3g is below %.3g, where rounding of the loss (df = %.2g) takes "
                 "over; use nu = %.3g",
                 c->name, c->nu, c->nu_best, a->constants.df.value, c->nu_best);
        }
        if (est->ops->family == HDO_EST_COMPLEX && s->run->problem.objective->kink != NULL) {
            warn(a, 7, HDO_WARN_BROKEN, "class '%s': complex step on a model with kinks is not analytic", c->name);
        }
        bool second = est->ops->family == HDO_EST_CENTRAL || est->ops->family == HDO_EST_COMPLEX;
        if (second && !isfinite(a->constants.L2.value)) {
            warn(a, 7, HDO_WARN_NOTE, "class '%s': L2 is unknown, so %s", c->name,
                 est->ops->family == HDO_EST_COMPLEX ? "the complex step has no bound at all"
                                                     : "the bias bound falls back to nu L sqrt(d)");
        }
    }
    if (a->weighted) {
        warn(
            a, 13, a->constants.balanced ? HDO_WARN_NOTE : HDO_WARN_BROKEN,
            a->constants.balanced
                ? "classes step differently: strongly convex bounds are those of the rescaled problem (mode O, L times "
                  "the largest weight); there is no non-convex bound"
                : "classes step differently and are not balanced: the run minimises another weighting of the f^i");
    }
    if (a->n0 > 0 && a->n1 > 0 && !a->weighted && a->a1 > 0.0 && a->help.noise_ratio > a->help.threshold) {
        warn(a, 11, HDO_WARN_NOTE,
             "zeroth-order nodes increase the noise: a0/a1 = %.3g is above 2 + n0/n1 = %.3g; use "
             "rv >= %.0f, or steps in the ratio eta0/eta1 = a1/a0 = %.3g (lr: balanced)",
             a->help.noise_ratio, a->help.threshold, ceil(a->rv_needed), a->help.eta_ratio);
    }
}

static void about_run(const hdo_study *s, hdo_assessment *a) {
    const hdo_config *c = &s->config;
    const hdo_run *r = s->run;
    for (int k = 0; k < c->n_classes; k++) {
        const hdo_class_config *p = &c->population[k];
        if (p->count == 0) continue;
        if (p->momentum > 0.0) {
            warn(a, 10, HDO_WARN_BROKEN, "class '%s': momentum %.3g is outside the theory", p->name, p->momentum);
        }
        if (p->weight_decay > 0.0) {
            warn(a, 10, HDO_WARN_BROKEN, "class '%s': weight decay %.3g changes the objective outside f", p->name,
                 p->weight_decay);
        }
        if (p->schedule.id != HDO_SCHEDULE_CONSTANT) {
            warn(a, 10, HDO_WARN_BROKEN, "class '%s': the step size is not constant", p->name);
        }
    }
    if (c->warmup > 0)
        warn(a, 10, HDO_WARN_BROKEN, "%lld warm-up steps without exchange, rising step", (long long)c->warmup);
    if (c->mixing.period > 1 && r->population.n > 1) {
        warn(a, 10, HDO_WARN_BROKEN, "%lld local steps between exchanges; the theory exchanges after each",
             (long long)c->mixing.period);
    }
    if (r->population.churn.active) warn(a, 10, HDO_WARN_BROKEN, "nodes come and go, or exchanges get lost (churn)");
    if (c->mixing.average.id == HDO_AVERAGE_NOISE) {
        warn(a, 10, HDO_WARN_BROKEN, "averages weighted by noise: the mean model is not kept by an exchange");
    }
    if (r->problem.objective->n_buf > 0)
        warn(a, 10, HDO_WARN_NOTE, "batch-norm statistics make a batch loss depend on its batch");
    if (r->population.n > 1 && a->lambda >= 1.0 - 1e-9) {
        warn(a, 6, HDO_WARN_BROKEN, "nodes never agree under mixing '%s': the disagreement is not contracted",
             c->mixing.kind);
    }
    bool graph = r->population.mixer.vertex != NULL && !r->population.mixer.graph.complete;
    if (graph && a->mix.kind == HDO_THEORY_PAIR_GRAPH &&
        r->population.mixer.graph.degree_min != r->population.mixer.graph.degree_max) {
        warn(a, 6, HDO_WARN_BROKEN,
             "degrees %d to %d: nodes step unequally often, so a weighted average of the f^i is "
             "minimised",
             r->population.mixer.graph.degree_min, r->population.mixer.graph.degree_max);
    }
    if (a->lambda_error > 0.0) {
        warn(a, 6, HDO_WARN_NOTE, "contraction of the mixing is sampled: lambda %.4g includes its error %.2g",
             a->lambda, a->lambda_error);
    }
}

static void about_steps(hdo_assessment *a) {
    if (a->sc_known) {
        const hdo_sys_coef *y = &a->sys;
        if (y->delta <= 0.0) {
            warn(a, 4, HDO_WARN_STEP, "step too large for consensus: delta = %.3g <= 0; largest eta %.4g", y->delta,
                 a->sc_eta_consensus);
        } else if (!a->lyap.ok) {
            warn(a, 4, HDO_WARN_STEP, "step too large for descent: no bound on f(y_T); largest eta %.4g",
                 a->sc_eta_descent);
        }
        if (!a->limit.bounded) {
            warn(a, 4, HDO_WARN_STEP,
                 "the strongly convex theorem does not apply: spectral radius %.4g must be below 1, eta = %.4g at most "
                 "%.4g",
                 a->limit.radius, a->eta, a->sc_eta_bounded);
        }
        if (a->sc_T_min < 0 || a->T < a->sc_T_min) {
            char published[64] = "";
            if (a->paper_T_min > 0)
                snprintf(published, sizeof published, "; published: %lld", (long long)a->paper_T_min);
            if (a->paper_T_min < 0) snprintf(published, sizeof published, "; published: never");
            warn(a, 5, HDO_WARN_NOTE,
                 "T = %lld is below %lld, the smallest T at which the step of the theorem, ~ ln T/T, "
                 "meets the repaired conditions%s",
                 (long long)a->T, (long long)a->sc_T_min, published);
        }
    }
    if (a->nc_known && !a->grad.ok) {
        warn(a, 4, HDO_WARN_STEP,
             "step too large for the non-convex bound (delta %.3g, hc %.3g, eps %.3g); largest eta %.4g", a->grad.delta,
             a->grad.hc, a->grad.eps, a->nc_eta_bound);
    }
    if (a->constants.Gamma_0.value > 0.0) {
        warn(a, 9, HDO_WARN_NOTE, "models differ at the start: Gamma_0 = %.3g", a->constants.Gamma_0.value);
    }
}

void hdo__assess_warn(const hdo_study *s, hdo_assessment *a) {
    a->sc_holds = a->sc_known;
    a->nc_holds = a->nc_known;
    about_run(s, a);
    about_estimators(s, a);
    about_problem(s, a);
    about_steps(a);
}
