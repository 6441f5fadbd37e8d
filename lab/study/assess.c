/* SPDX-License-Identifier: Apache-2.0
 *
 * A problem and its constants -> the bounds of <hdo/lab/theory.h>. Classes may step differently: a population in which
 * class k steps with eta w_k (mean weight 1) is one in which all step with eta on the objectives w_k f^i. Smoothness
 * becomes max(w) L, noise, bias and heterogeneity of class k scale with w_k, and f is unchanged if the classes are
 * balanced (docs/theory.md 3.10).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/study/study_internal.h"

#define SHARE 0.25

hdo_theory_est hdo__class_kind(const hdo_estimator *s, bool *covered) {
    *covered = strcmp(s->ops->name, "debiased") != 0;
    return hdo__theory_row(s->ops->family);
}

/* Coordinate differences on a quadratic: a biased gradient, m of d coordinates kept and weighed by d/m. */
static hdo_est_const coordinates(const hdo_estimator *s, const hdo_constants *k, double nu) {
    double d = (double)k->d, m = s->coords > 0 && (double)s->coords < d ? (double)s->coords : d;
    double off = (nu * k->L_F.value / 2.0 + 2.0 * k->df.value / nu) * sqrt(d), thin = d / m - 1.0;
    return (hdo_est_const){
        .omega = 2.0 * thin, .rho = 1.0 + 2.0 * thin, .kappa = 2.0 * thin * off * off, .b = off, .b_f = HUGE_VAL};
}

hdo_est_const hdo__class_est(const hdo_estimator *s, const hdo_constants *k, double eta, double *nu) {
    bool covered;
    hdo_est_params p = hdo_theory_est_default(hdo__class_kind(s, &covered), k->live);
    *nu = s->nu.id == HDO_NU_ETA_SQRT_D ? eta / sqrt((double)k->d) : s->nu.arg;
    if (p.kind == HDO_THEORY_FO || p.kind == HDO_THEORY_FM) *nu = 0.0;
    if (s->ops->axes) return coordinates(s, k, *nu);
    p.rv = s->rv;
    p.nu = *nu;
    p.L = isfinite(k->L.value) ? k->L.value : 0.0;
    p.L_F = k->L_F.value;
    p.L2 = k->L2.value;
    p.df = k->df.value;
    p.quad = k->quad;
    if (p.kind == HDO_THEORY_FM && s->directions == HDO_DIRECTIONS_PER_TENSOR) p.d_max = k->live_max;
    hdo_est_const c = hdo_theory_est_const(&p);
    /* Signs instead of Gaussians: |u|^2 = d exactly, smaller moments, but the mean is no smoothed gradient. The
     * remainder is at most nu L d/2, and E|u.v| <= 1. */
    if (s->distribution == HDO_DIST_RADEMACHER && s->ops->difference && !k->quad) {
        c.b = *nu * p.L * (double)k->live / 2.0 + 2.0 * p.df / *nu;
        c.b_f = HUGE_VAL;
    }
    return c;
}

/* Everything equal: mode U where the Hessians agree. Unequal steps turn w_k f^i into objectives that no longer agree.
 */
hdo_theory_mode hdo__study_mode(const hdo_constants *k) {
    return k->same_hessian ? HDO_THEORY_MODE_U : HDO_THEORY_MODE_O;
}

hdo_theory_problem hdo__study_problem(const hdo_pop_spec *p, const hdo_constants *k, const hdo_mix_const *mix,
                                      hdo_theory_mode mode, double *eta_mean) {
    double sum = 0.0, w_min = HUGE_VAL, w_max = 0.0, n = 0.0;
    int present = 0;
    for (int c = 0; c < p->n_classes; c++) {
        sum += (double)p->count[c] * p->eta[c];
        n += (double)p->count[c];
        present += p->count[c] > 0;
    }
    *eta_mean = sum / n;
    hdo_pop_class cls[HDO_CLASSES_MAX] = {{0}};
    for (int c = 0; c < p->n_classes; c++) {
        double w = p->eta[c] / *eta_mean;
        if (fabs(w - 1.0) < 1e-12) w = 1.0;
        if (p->count[c] > 0) {
            w_min = fmin(w_min, w);
            w_max = fmax(w_max, w);
        }
        cls[c] = (hdo_pop_class){.count = p->count[c],
                                 .is_zo = p->zo[c],
                                 .est = p->est[c],
                                 .sigma = w * p->sigma[c],
                                 .varsigma = w * p->varsigma[c]};
        cls[c].est.kappa *= w * w;
        cls[c].est.b *= w;
        cls[c].est.b_f *= w;
    }
    bool equal = w_min == w_max;
    hdo_pop_const pop = hdo_theory_pop_const(cls, (size_t)p->n_classes);
    /* omega multiplies gradients of w_k f^i, which is w_k L-smooth: measured in the common L' = w_max L, a factor
     * (w_k/w_max)^2 in front of Gamma and w_k/w_max in front of e (co-coercivity). Z keeps the plain omega. */
    for (int c = 0; c < p->n_classes && !equal; c++) {
        double omega = p->est[c].omega * p->eta[c] / (*eta_mean * w_max);
        if (c == 0) pop.omega_max = pop.omega_bar = 0.0;
        if (p->count[c] > 0) pop.omega_max = fmax(pop.omega_max, omega);
        pop.omega_bar += (double)p->count[c] / n * omega;
    }
    /* Strong convexity of the parts enters as (1/n) sum w_i (ell_loc/2)|X_i - x*|^2. Either every weight is at least
     * w_min, or the mean weight 1 is kept and the cross term costs c a + var(w)/c Gamma (Young), c = SHARE. */
    double spread = 0.0, L = w_max * k->L.value, ell_loc = w_min * k->ell_loc.value;
    for (int c = 0; c < p->n_classes; c++) {
        double w = p->eta[c] / *eta_mean - 1.0;
        spread += (double)p->count[c] / n * w * w;
    }
    if (!equal && w_min < 1.0 - SHARE) {
        ell_loc = (1.0 - SHARE) * k->ell_loc.value;
        L += k->ell_loc.value * fmax(0.0, spread / SHARE + 1.0 - SHARE - w_min);
    }
    return (hdo_theory_problem){.pop = pop,
                                .mix = *mix,
                                .L = L,
                                .ell = k->ell.value,
                                .ell_loc = ell_loc,
                                .mode = equal ? mode : HDO_THEORY_MODE_O,
                                .balanced = equal && (k->balanced || present == 1)};
}

hdo_status hdo__study_mix(const hdo_run *r, hdo_mix_const *mix, double *lambda, double *error, hdo_error *e) {
    int n = r->population.n;
    hdo_spectrum sp = {.lambda = 0.0};
    *error = 0.0;
    hdo_theory_mix kind = HDO_THEORY_GOSSIP;
    if (n > 1 && !r->population.mixer.ops->allreduce) {
        hdo_status st = hdo__mixer_spectrum(&r->population.mixer, &sp);
        if (st != HDO_OK) return hdo__fail(e, st, "the contraction of the mixing could not be computed");
        bool one = !r->population.mixer.ops->all_step;
        bool graph = r->population.mixer.vertex != NULL && !r->population.mixer.graph.complete;
        if (graph) kind = one ? HDO_THEORY_PAIR_GRAPH : HDO_THEORY_GOSSIP;
        if (!graph && r->population.mixer.ops->match != NULL) kind = one ? HDO_THEORY_PAIR : HDO_THEORY_MATCH;
        *error = sp.error;
    }
    *lambda = isfinite(sp.lambda) ? fmin(1.0, sp.lambda + *error) : 1.0;
    if (hdo_theory_mix_check(kind, n, *lambda, NULL) != HDO_OK) { /* no contraction: the weakest that is one */
        kind = HDO_THEORY_GOSSIP;
        *lambda = 1.0 - 1e-12;
    }
    *mix = hdo_theory_mix_const(kind, n, *lambda);
    return HDO_OK;
}

static void label(hdo_assessment *a, hdo_constant c) {
    if (c.how < a->quality) a->quality = c.how;
}

static bool fill_classes(const hdo_study *s, hdo_assessment *a) {
    bool all = true;
    double k3 = a->constants.balanced ? 2.0 : 3.0;
    hdo_theory_mode mode = hdo__study_mode(&s->k);
    for (int k = 0; k < a->n_classes; k++) {
        const hdo_class *c = &s->run->population.classes[k];
        hdo_assess_class *o = &a->cls[k];
        snprintf(o->name, sizeof o->name, "%s", s->config.population[k].name);
        snprintf(o->estimator, sizeof o->estimator, "%s", c->estimator.ops->name);
        o->count = c->count;
        o->rv = c->estimator.ops->zeroth ? c->estimator.rv : 0;
        o->zo = c->estimator.ops->zeroth;
        o->eta = c->schedule.lr;
        hdo__class_kind(&c->estimator, &o->covered);
        if (c->estimator.ops->axes) o->covered = s->k.quad;
        o->est = hdo__class_est(&c->estimator, &s->k, o->eta, &o->nu);
        if (c->estimator.ops->difference && !isfinite(s->k.L.value)) o->est.b = o->est.b_f = o->est.kappa = (double)NAN;
        if (c->estimator.ops->difference && s->k.df.value > 0.0) {
            o->nu_best = hdo_theory_nu_best(s->k.live, fmax(s->k.L_F.value, s->k.L.value), s->k.df.value);
        }
        o->sigma = s->k.sigma[k].value;
        o->varsigma = s->k.convex && mode == HDO_THEORY_MODE_O && isfinite(s->k.varsigma_O[k].value)
                          ? s->k.varsigma_O[k].value
                          : s->k.varsigma_U[k].value;
        o->noise = hdo_theory_node_noise(&o->est, o->sigma, o->varsigma, k3);
        if (o->count == 0) continue;
        all = all && o->covered;
        a->n += o->count;
        *(o->zo ? &a->n0 : &a->n1) += o->count;
        label(a, s->k.sigma[k]);
    }
    return all;
}

static void strongly_convex(const hdo_study *s, hdo_assessment *a, const hdo_pop_spec *p, bool covered) {
    const hdo_constants *k = &a->constants;
    a->sc = hdo__study_problem(p, k, &a->mix, hdo__study_mode(k), &a->eta);
    a->theta = a->mix.tf * a->eta;
    a->sc_known = covered && k->convex && k->ell.value > 0.0 && isfinite(k->L.value) && isfinite(k->a_0.value) &&
                  isfinite(a->sc.pop.z2) && isfinite(a->sc.pop.V0) &&
                  hdo_theory_problem_check(&a->sc, true, NULL) == HDO_OK;
    a->a_T = a->Gamma_T = a->MG_T = a->sc_best = HUGE_VAL;
    a->MG_scale = 1.0;
    if (!a->sc_known) return;
    (void)s;
    for (int c = 0; c < a->n_classes; c++) {
        if (a->cls[c].count > 0) a->MG_scale = fmax(a->MG_scale, 1.0 / (a->cls[c].weight * a->cls[c].weight));
    }
    a->sys = hdo_theory_sys_coef(&a->sc, a->eta);
    a->lyap = hdo_theory_sc_lyap(&a->sys, 0.5);
    a->limit = hdo_theory_sc_radius(&a->sys);
    a->sc_applies = a->limit.bounded;
    a->fy = hdo_theory_sc_weighted(&a->sys, k->a_0.value, k->Gamma_0.value, a->T > 0 ? a->T : 1, 0.5);
    hdo_sc_iter it;
    hdo_theory_sc_iter_init(&it, &a->sys, k->a_0.value, k->Gamma_0.value);
    for (int64_t t = 0; t < a->T && a->sc_applies; t++) {
        double was = it.a, apart = it.Gamma;
        hdo_theory_sc_iter_next(&it);
        if (it.a == was && it.Gamma == apart) break; /* settled to the last bit */
    }
    if (a->sc_applies) {
        a->a_T = it.a;
        a->Gamma_T = it.Gamma;
        a->MG_T = a->MG_scale * hdo_theory_mg_bound(&a->sc, it.a, it.Gamma);
    }
    a->sc_eta_consensus = hdo_theory_eta_max(&a->sc, HDO_THEORY_COND_CONSENSUS);
    a->sc_eta_descent = hdo_theory_eta_max(&a->sc, HDO_THEORY_COND_DESCENT);
    a->sc_eta_bounded = hdo_theory_eta_max(&a->sc, HDO_THEORY_COND_BOUNDED);
    a->sc_eta_ok = hdo_theory_eta_max(&a->sc, HDO_THEORY_COND_SC_OK);
    a->sc_T_min = hdo_theory_sc_t_min(&a->sc);
    hdo_theory_sc_eta_best(&a->sc, k->a_0.value, k->Gamma_0.value, a->T > 0 ? a->T : 1, &a->sc_eta_best, &a->sc_best);
    label(a, k->L);
    label(a, k->ell);
    label(a, k->a_0);
}

static void non_convex(const hdo_study *s, hdo_assessment *a, const hdo_pop_spec *p, bool covered) {
    const hdo_constants *k = &a->constants;
    double U[HDO_CLASSES_MAX], eta;
    for (int c = 0; c < a->n_classes; c++) U[c] = s->k.varsigma_U[c].value;
    hdo_pop_spec q = *p;
    q.varsigma = U;
    a->nc = hdo__study_problem(&q, k, &a->mix, HDO_THEORY_MODE_U, &eta);
    a->nc_known = covered && !a->weighted && isfinite(k->L.value) && isfinite(k->F.value) && isfinite(a->nc.pop.z2) &&
                  isfinite(a->nc.pop.V0) && hdo_theory_problem_check(&a->nc, false, NULL) == HDO_OK;
    a->nc_best = HUGE_VAL;
    if (!a->nc_known) return;
    double T = a->T > 0 ? (double)a->T : 1.0;
    a->grad = hdo_theory_nc_bound(&a->nc, a->eta, k->F.value, k->Gamma_0.value, T);
    a->nc_eta_bound = hdo_theory_eta_max(&a->nc, HDO_THEORY_COND_NC_BOUND);
    a->nc_eta_ok = hdo_theory_eta_max(&a->nc, HDO_THEORY_COND_NC_OK);
    a->nc_T_min = hdo_theory_nc_t_min(&a->nc, k->live);
    hdo_theory_nc_eta_best(&a->nc, k->F.value, k->Gamma_0.value, T, &a->nc_eta_best, &a->nc_best);
    label(a, k->L);
    label(a, k->F);
}

/* The published statement knows two groups: root mean squares over the classes of each. */
static void published(hdo_assessment *a) {
    hdo_paper_params p = {.n0 = a->n0,
                          .n1 = a->n1,
                          .d = a->constants.live,
                          .L = a->constants.L.value,
                          .ell = a->constants.ell.value,
                          .a_0 = a->constants.a_0.value,
                          .c = sqrt((double)a->constants.d)};
    double s[2] = {0, 0}, z[2] = {0, 0};
    for (int k = 0; k < a->n_classes; k++) {
        const hdo_assess_class *c = &a->cls[k];
        if (c->count == 0) continue;
        double share = (double)c->count / (double)(c->zo ? a->n0 : a->n1);
        s[c->zo] += share * c->sigma * c->sigma;
        z[c->zo] += share * c->varsigma * c->varsigma;
        if (c->nu > 0.0) p.c = c->eta / c->nu;
    }
    p.sigma1 = sqrt(s[0]);
    p.sigma0 = sqrt(s[1]);
    p.varsigma1 = sqrt(z[0]);
    p.varsigma0 = sqrt(z[1]);
    const hdo_paper_noise unknown = {.het = (double)NAN, .noise = (double)NAN, .bias = (double)NAN};
    a->paper_noise[0] = a->paper_noise[1] = unknown;
    if (!isfinite(p.L) || !isfinite(s[0] + s[1] + z[0] + z[1])) return;
    a->paper_noise[0] = hdo_theory_paper_noise(&p, a->eta, 1);
    a->paper_noise[1] = hdo_theory_paper_noise(&p, a->eta, 2);
    bool pair = a->mix.kind == HDO_THEORY_PAIR;
    if (a->sc_known && pair && !a->weighted) {
        a->paper = hdo_theory_paper_sc(&p, a->eta, (double)(a->T > 0 ? a->T : 1));
        a->paper_T_min = hdo_theory_paper_t_min(&p);
    }
}

/* docs/theory.md 3.8, between the mean zeroth-order and the mean first-order node. */
static void helpful(hdo_assessment *a) {
    double s[2] = {0, 0}, z[2] = {0, 0}, noise[2] = {0, 0};
    for (int k = 0; k < a->n_classes; k++) {
        const hdo_assess_class *c = &a->cls[k];
        if (c->count == 0) continue;
        double share = (double)c->count / (double)(c->zo ? a->n0 : a->n1);
        noise[c->zo] += share * c->noise;
        s[c->zo] += share * c->sigma * c->sigma;
        z[c->zo] += share * c->varsigma * c->varsigma;
    }
    a->a1 = noise[0];
    a->a0 = noise[1];
    const double nan = (double)NAN;
    a->help = (hdo_zo_help){.noise_ratio = nan, .threshold = nan, .match = nan, .pair = nan, .parallel = nan};
    a->help.weighted = a->help.eta_ratio = a->rv_needed = a->early = nan;
    if (a->n0 == 0 || a->n1 == 0 || !isfinite(a->a0 + a->a1) || !(a->a1 > 0.0)) return;
    a->help = hdo_theory_zo_help(a->n0, a->n1, a->a0, a->a1, sqrt(z[1]), sqrt(z[0]), a->sc.pop.B > 0.0);
    a->rv_needed = hdo_theory_zo_rv(a->constants.live, a->n0, a->n1, sqrt(s[1]), sqrt(s[0]), sqrt(z[1]),
                                    a->constants.balanced ? 2.0 : 3.0);
    a->early = hdo_theory_zo_early(a->sc_known ? &a->sc : &a->nc);
}

hdo_status hdo_study_assess(hdo_study *s, hdo_assessment *a, hdo_error *e) {
    memset(a, 0, sizeof *a);
    a->constants = s->k;
    a->quality = HDO_CERTIFIED;
    a->n_classes = s->run->population.n_classes;
    a->T = s->config.steps;
    hdo_status st = hdo__population_wants_noise(&s->run->population, 0)
                        ? hdo__population_measure_noise(&s->run->population, 0, e)
                        : HDO_OK; /* lr: balanced */
    if (st == HDO_OK) st = hdo__study_mix(s->run, &a->mix, &a->lambda, &a->lambda_error, e);
    if (st != HDO_OK) return st;
    bool covered = fill_classes(s, a), zo[HDO_CLASSES_MAX];
    int count[HDO_CLASSES_MAX];
    double eta[HDO_CLASSES_MAX], sigma[HDO_CLASSES_MAX], varsigma[HDO_CLASSES_MAX], mean = 0.0;
    hdo_est_const est[HDO_CLASSES_MAX];
    for (int k = 0; k < a->n_classes; k++) {
        const hdo_assess_class *c = &a->cls[k];
        count[k] = c->count;
        zo[k] = c->zo;
        eta[k] = c->eta;
        sigma[k] = c->sigma;
        varsigma[k] = c->varsigma;
        est[k] = c->est;
        mean += (double)c->count * c->eta / (double)a->n;
    }
    for (int k = 0; k < a->n_classes; k++) {
        a->cls[k].weight = a->cls[k].eta / mean;
        a->weighted = a->weighted || (count[k] > 0 && fabs(a->cls[k].weight - 1.0) > 1e-12);
    }
    hdo_pop_spec p = {a->n_classes, count, zo, est, eta, sigma, varsigma};
    strongly_convex(s, a, &p, covered);
    non_convex(s, a, &p, covered);
    published(a);
    helpful(a);
    hdo__assess_warn(s, a);
    return HDO_OK;
}
