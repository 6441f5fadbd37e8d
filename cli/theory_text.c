/* SPDX-License-Identifier: Apache-2.0 — the texts of hdo theory: numbers with the sentence that says what they mean. */
#include <math.h>
#include <string.h>

#include "cmd_theory.h"

static const char *num(double v, char buf[32]) {
    if (isnan(v)) {
        snprintf(buf, 32, "-");
    } else if (!isfinite(v)) {
        snprintf(buf, 32, "none");
    } else {
        snprintf(buf, 32, "%.4g", v);
    }
    return buf;
}

static void heading(const char *text) {
    cli_style s = cli_style_for(stdout);
    printf("\n%s%s%s\n", s.bold, text, s.off);
}

static void constant(const char *name, const char *meaning, hdo_constant c) {
    char b[32];
    if (c.how == HDO_UNKNOWN) {
        printf("  %-10s %-12s %-10s %s\n", name, "-", "unknown", meaning);
    } else {
        printf("  %-10s %-12s %-10s %s\n", name, num(c.value, b), hdo_known_name(c.how), meaning);
    }
}

void cli_print_constants(const hdo_config *c, const hdo_constants *k) {
    heading("Constants of the problem");
    printf("  %s, d = %zu", c->model.name, k->d);
    if (k->live < k->d) printf(" (a loss depends on %zu)", k->live);
    printf(", %s, %s\n",
           k->quad     ? "quadratic"
           : k->convex ? "convex"
                       : "not convex",
           k->balanced ? "every class has the same objective (balanced)" : "classes differ (not balanced)");
    constant("L", "every f^i has an L-Lipschitz gradient", k->L);
    constant("L_F", "the same for a single batch", k->L_F);
    constant("ell", "f is ell-strongly convex", k->ell);
    constant("ell_loc", "every f^i is ell_loc-strongly convex", k->ell_loc);
    if (!k->quad) constant("L2", "Lipschitz constant of the Hessian", k->L2);
    if (!k->quad) constant("df", "error of one loss value (rounding)", k->df);
    constant("a_0", "|mu_0 - x*|^2, squared distance of the start", k->a_0);
    constant("F", "f(mu_0) - f*, excess loss of the start", k->F);
    for (int i = 0; i < c->n_classes; i++) {
        char name[HDO_NAME_MAX + 16];
        if (c->population[i].count == 0) continue;
        snprintf(name, sizeof name, "sigma %s", c->population[i].name);
        constant(name, "gradient noise of a batch, root mean square", k->sigma[i]);
        snprintf(name, sizeof name, "vsig %s", c->population[i].name);
        if (k->varsigma_U[i].how != HDO_UNKNOWN)
            constant(name, "heterogeneity: |grad f^i - grad f| over the class", k->varsigma_U[i]);
        snprintf(name, sizeof name, "vsig* %s", c->population[i].name);
        if (!k->same_hessian && k->varsigma_O[i].how != HDO_UNKNOWN) {
            constant(name, "heterogeneity at x*: |grad f^i(x*)|", k->varsigma_O[i]);
        }
    }
    if (k->points > 0) printf("  measured at %d point%s", k->points, k->points > 1 ? "s" : "");
    if (k->points > 0 && k->a_0.how != HDO_UNKNOWN) printf("; |grad f| at the minimiser found: %.2g", k->grad_star);
    if (k->points > 0) printf("\n");
}

static void print_classes(const hdo_assessment *a) {
    char b[5][32];
    heading("Estimators: variance <= omega |grad f^i|^2 + rho sigma^2 + kappa, |bias| <= b");
    printf("  %-8s %6s %-13s %6s %9s %9s %9s %9s %9s %10s %10s\n", "class", "nodes", "estimator", "rv", "lr", "nu",
           "omega", "rho", "kappa", "b", "noise a");
    for (int k = 0; k < a->n_classes; k++) {
        const hdo_assess_class *c = &a->cls[k];
        if (c->count == 0) continue;
        printf("  %-8s %6d %-13s %6d %9.3g %9.3g %9s %9s %9s %10s %10s\n", c->name, c->count, c->estimator, c->rv,
               c->eta, c->nu, num(c->est.omega, b[0]), num(c->est.rho, b[1]), num(c->est.kappa, b[2]),
               num(c->est.b, b[3]), num(c->noise, b[4]));
    }
    printf("  E|G|^2 = variance + |mean|^2: one estimate has second moment (1 + omega)|grad f^i|^2 + rho sigma^2 + "
           "kappa.\n");
}

static void print_mixing(const hdo_config *c, const hdo_assessment *a) {
    heading("Communication");
    printf("  %s, n = %d: one exchange shrinks the disagreement to lambda = %.4g of itself%s;\n", c->mixing.kind, a->n,
           a->lambda, a->lambda_error > 0.0 ? " (sampled)" : "");
    printf("  the mean model moves by theta = %.4g a round (eta = %.4g%s).\n", a->theta, a->eta,
           a->weighted ? ", mean of unequal steps" : "");
}

static void print_convex_bounds(const hdo_assessment *a) {
    char b[4][32];
    printf("  after T = %lld rounds                  E|mu - x*|^2 <= %-10s E Gamma <= %-10s E M^G <= %s\n",
           (long long)a->T, num(a->a_T, b[0]), num(a->Gamma_T, b[1]), num(a->MG_T, b[2]));
    printf("  for ever                               E|mu - x*|^2 <= %-10s spectral radius %.6g, heterogeneity in mode "
           "%s\n",
           num(fmin(a->limit.a, a->limit.Phi), b[0]), a->limit.radius, a->sc.mode == HDO_THEORY_MODE_U ? "U" : "O");
    if (a->fy.ok) {
        printf("  weighted average y_T                   E f(y_T) - f* <= %s, contracting by %.3g a round\n",
               num(a->fy.f_y, b[0]), a->fy.rate);
        printf("    of which  start %s | heterogeneity %s | gradient noise %s | bias %s\n", num(a->fy.init, b[0]),
               num(a->fy.het, b[1]), num(a->fy.noise, b[2]), num(a->fy.bias, b[3]));
    } else {
        printf("  weighted average y_T                   no bound at this step size\n");
    }
}

/* The condition, its value here, its limit. */
static void print_not_applying(const hdo_assessment *a) {
    char b[32];
    printf(
        "  The strongly convex theorem does not apply here: spectral radius %.4g, must be below 1; lr = %.4g, at most "
        "%s.\n",
        a->limit.radius, a->eta, num(a->sc_eta_bounded, b));
    if (a->T < a->sc_T_min)
        printf("  The step ~ ln T/T (lr: theorem) meets its condition from T = %lld on; here T = %lld.\n",
               (long long)a->sc_T_min, (long long)a->T);
}

static void print_convex(const hdo_assessment *a) {
    char b[4][32];
    if (!a->sc_known) return;
    heading(a->sc_holds ? "Strongly convex bounds"
                        : "Strongly convex bounds (AN ASSUMPTION FAILS: formal values only)");
    if (a->sc_applies) {
        print_convex_bounds(a);
    } else {
        print_not_applying(a);
    }
    printf("  largest step                           consensus %s, descent %s, bounded %s, comfortable %s\n",
           num(a->sc_eta_consensus, b[0]), num(a->sc_eta_descent, b[1]), num(a->sc_eta_bounded, b[2]),
           num(a->sc_eta_ok, b[3]));
    printf("  best step for this T                   lr = %s, where E f(y_T) - f* <= %s\n", num(a->sc_eta_best, b[0]),
           num(a->sc_best, b[1]));
    printf("  smallest T for lr ~ ln T/T             %lld", (long long)a->sc_T_min);
    if (a->paper_T_min > 0) printf(" (published conditions: %lld)", (long long)a->paper_T_min);
    if (a->paper_T_min < 0) printf(" (published conditions: never)");
    printf("\n");
    if (a->paper.ok)
        printf("  published constants                    E|mu - x*|^2 <= %s\n", num(a->paper.a_bound, b[0]));
}

static void print_nonconvex(const hdo_assessment *a) {
    char b[4][32];
    if (!a->nc_known) return;
    heading(a->nc_holds ? "Non-convex bound" : "Non-convex bound (AN ASSUMPTION FAILS: formal values only)");
    if (a->grad.ok) {
        printf("  mean over T = %lld rounds              E|grad f(mu)|^2 <= %s, E Gamma <= %s\n", (long long)a->T,
               num(a->grad.total, b[0]), num(a->grad.Gav, b[1]));
        printf("    of which  start %s | heterogeneity %s | gradient noise %s | bias %s\n", num(a->grad.init, b[0]),
               num(a->grad.het, b[1]), num(a->grad.noise, b[2]), num(a->grad.bias, b[3]));
    } else {
        printf("  no bound at this step size: delta %.3g (must be > 0), hc %.3g (<= 1), eps %.3g (> 0)\n",
               a->grad.delta, a->grad.hc, a->grad.eps);
    }
    printf("  largest step                           exists %s, comfortable %s\n", num(a->nc_eta_bound, b[0]),
           num(a->nc_eta_ok, b[1]));
    printf("  best step for this T                   lr = %s, where the mean is <= %s\n", num(a->nc_eta_best, b[0]),
           num(a->nc_best, b[1]));
    printf("  smallest T for lr ~ n/sqrt(dT)         %lld\n", (long long)a->nc_T_min);
}

static void print_help(const hdo_assessment *a) {
    const hdo_zo_help *h = &a->help;
    if (isnan(a->paper_noise[0].noise)) return;
    heading("The published noise terms, hidden constants set to one");
    printf(
        "  heterogeneity eta (d n0 vs0^2 + n1 vs1^2)/n^2 = %.3g, gradient noise eta (d n0 s0^2 + n1 s1^2)/n^2 = %.3g,\n"
        "  bias eta^2 (L d n0/n)^k = %.3g (convex, k = 1), %.3g (non-convex, k = 2)\n",
        a->paper_noise[0].het, a->paper_noise[0].noise, a->paper_noise[0].bias, a->paper_noise[1].bias);
    if (a->n0 == 0 || a->n1 == 0 || !(h->threshold > 0.0)) return;
    heading("Do the zeroth-order nodes help?");
    printf("  one zeroth-order node has %.4g times the noise of a first-order node; at equal parallel time they pay "
           "below\n"
           "  2 + n0/n1 = %.4g: %s. Noise with/without them: %.3g",
           h->noise_ratio, h->threshold, h->noise_ratio < h->threshold ? "they help" : "they hurt, with equal steps",
           h->match);
    printf(" (matchings), %.3g (pairs).\n", h->parallel);
    if (isfinite(a->rv_needed)) printf("  Forward mode pays from rv = %.0f on. ", ceil(a->rv_needed));
    printf("With lr_zo/lr_fo = %.3g they always help: %.3g.\n", h->eta_ratio, h->weighted);
}

static void print_warnings(const hdo_assessment *a) {
    static const char *const words[] = {"note", "step", "FAILS"};
    cli_style s = cli_style_for(stdout);
    if (a->n_warnings == 0) return;
    heading("What to keep in mind (numbers: docs/theory.md 8)");
    for (int level = HDO_WARN_BROKEN; level >= HDO_WARN_NOTE; level--) {
        for (int k = 0; k < a->n_warnings; k++) {
            const hdo_warning *w = &a->warnings[k];
            if ((int)w->level != level) continue;
            printf("  %s%-5s%s %2d ", level == HDO_WARN_BROKEN ? s.red : "", words[level],
                   level == HDO_WARN_BROKEN ? s.off : "", w->number);
            cli_print_wrapped(11, 11, w->text);
        }
    }
}

void cli_print_assessment(const hdo_config *c, const hdo_assessment *a, bool measured) {
    printf("%d nodes: %d first-order, %d zeroth-order; constants: %s\n", a->n, a->n1, a->n0,
           hdo_known_name(a->quality));
    cli_print_constants(c, &a->constants);
    print_classes(a);
    print_mixing(c, a);
    print_convex(a);
    print_nonconvex(a);
    if (!a->sc_known && !a->nc_known) {
        printf("\nNo bound can be evaluated: constants are unknown.%s\n",
               measured ? "" : " Add --measure, or give them: --L, --sigma, --varsigma, --gap, ...");
    }
    print_help(a);
    print_warnings(a);
}

void cli_print_comparison(const hdo_comparison *c, const char *figures) {
    cli_style s = cli_style_for(stdout);
    char b[5][32];
    printf("%d seeds, %lld rounds, constants: %s%s\n", c->seeds, (long long)c->t[c->n_points - 1],
           hdo_known_name(c->assessment.quality), c->diverged > 0 ? "; SOME RUNS DIVERGED" : "");
    printf("  %-32s %11s %10s %11s %9s %16s  %s\n", "at the end", "measured", "se", "bound", "slack", "tightest (t)",
           "verdict");
    for (int q = 0; q < HDO_QUANTITIES; q++) {
        const hdo_bound_check *v = &c->verdict[q];
        if (!v->measured) continue;
        bool convex = q == HDO_Q_DISTANCE || q == HDO_Q_GAMMA || q == HDO_Q_MG || q == HDO_Q_VALUE;
        bool beyond = convex && c->assessment.sc_known && !c->assessment.sc_applies;
        const char *word = beyond        ? "does not apply"
                           : !v->bounded ? "no bound"
                           : v->violated ? (v->holds ? "VIOLATED" : "above, assumptions fail")
                           : v->holds    ? "below its bound"
                                         : "below, assumptions fail";
        char tight[48] = "-";
        if (v->bounded) snprintf(tight, sizeof tight, "%.3g (%lld)", v->tightest, (long long)v->tightest_t);
        printf("  %-32s %11s %10s %11s %9s %16s  %s%s%s\n", hdo_quantity_title((hdo_quantity)q), num(v->mean, b[0]),
               num(v->se, b[1]), num(v->bound, b[2]), num(v->bounded ? v->slack : (double)NAN, b[3]), tight,
               v->violated && v->holds ? s.red : "", word, v->violated && v->holds ? s.off : "");
    }
    if (c->assessment.sc_known && !c->assessment.sc_applies) print_not_applying(&c->assessment);
    printf("  slack = bound / measured. A mean is above its bound only if it is so by more than 4 standard errors.\n");
    if (figures != NULL) printf("figures: %s-*.svg (with .png, .pdf, .csv, .gp)\n", figures);
    print_warnings(&c->assessment);
}
