/* SPDX-License-Identifier: Apache-2.0 — hdo check: its findings in words. */
#include "cmd_check.h"

#include <math.h>
#include <string.h>

static void print_error(const char *name, double v) {
    if (isfinite(v)) printf("  %-20s %.1e\n", name, v);
}

static void print_slopes(const hdo_check_result *r, const cli_style *s) {
    const hdo_check_agreement *a = &r->agreement;
    const hdo_check_sweep *w = &r->sweep;
    printf("%sDerivatives%s along %d random directions, batch of %d, loss %.4f", s->bold, s->off, a->directions,
           a->batch, a->loss);
    if (isfinite(a->grad_norm)) printf(", |gradient| %.4g", a->grad_norm);
    printf(": %s%s%s\n", a->ok ? s->green : s->red, a->ok ? "they agree" : "they do not agree", s->off);
    printf("  relative to          %s\n", a->reference);
    print_error("forward mode", a->jvp_error);
    print_error("complex step", a->complex_error);
    print_error("central difference", a->central_error);
    printf("\n%sStep nu%s: relative error of a slope\n  %-12s", s->bold, s->off, "nu");
    for (int i = 0; i < w->n; i += 4) printf(" %8.0e", w->nu[i]);
    printf("\n  %-12s", "one-sided");
    for (int i = 0; i < w->n; i += 4) printf(" %8.1e", w->one_sided[i]);
    printf("\n  %-12s", "central");
    for (int i = 0; i < w->n; i += 4) printf(" %8.1e", w->central[i]);
    printf("\n  best: one-sided %.1e (good from %.1e to %.1e), central %.1e (%.1e to %.1e)\n", w->nu_one, w->lo_one,
           w->hi_one, w->nu_central, w->lo_central, w->hi_central);
    printf("  round-off of a loss %.1e", w->df);
    if (isfinite(w->nu_theory)) printf("; theory for one-sided differences: %.1e", w->nu_theory);
    printf("\n\n%sCurvature%s: ", s->bold, s->off);
    if (isfinite(r->curvature.L)) printf("largest eigenvalue L about %.3g, ", r->curvature.L);
    printf("trace %.3g +- %.1g", r->curvature.trace, r->curvature.trace_se);
    if (isfinite(r->curvature.dimension))
        printf(", so the loss bends in about %.0f directions", fmax(1.0, r->curvature.dimension));
    printf("\n");
}

static void print_time(double t) {
    if (t < 1e-3) {
        printf("%.1f us", 1e6 * t);
    } else if (t < 1.0) {
        printf("%.1f ms", 1e3 * t);
    } else {
        printf("%.2f s", t);
    }
}

static void print_class(const hdo_check_class *c, const cli_style *s) {
    printf("\n%s%s%s: %lld nodes, %s", s->bold, c->name, s->off, (long long)c->count, c->estimator);
    if (c->zeroth && strcmp(c->estimator, "fd-coord") != 0)
        printf(", rv %lld, %s", (long long)c->rv, c->per_tensor ? "per-tensor" : "whole");
    printf(", batch %lld, lr %g, loss %.4f\n", (long long)c->batch, c->lr, c->loss);
    if (isfinite(c->cosine)) {
        printf("  cosine to gradient   %-10.4g theory %.4g   (%d estimates)\n", c->cosine, c->cosine_theory,
               c->samples);
        printf("  variance / |g|^2     %-10.4g theory %.4g   (standard error %.1g)\n", c->variance, c->variance_theory,
               c->variance_se);
        if (c->bias > 2.0 * c->bias_se) {
            printf("  bias / |g|           %-10.1e", c->bias);
        } else {
            printf("  bias / |g|           below %-4.1e", fmax(2.0 * c->bias_se, 1e-7));
        }
        if (isfinite(c->bias_bound)) printf(" bound %.1e", c->bias_bound);
        printf("\n");
    } else {
        printf("  theory               cosine %.4g, variance / |g|^2 %.4g (no gradient, or a zero one, to measure "
               "against)\n",
               c->cosine_theory, c->variance_theory);
    }
    if (c->slope_error > 0.0) printf("  slopes at nu %-7.1e off by %.1e\n", c->nu, c->slope_error);
    if (isfinite(c->data_noise)) printf("  noise of the batch   %.3g |g|^2\n", c->data_noise);
    if (isfinite(c->lr_best))
        printf("  lr                   %.2g to %.2g for a lone node; above %.2g it climbs\n", 0.1 * c->lr_best,
               c->lr_best, c->lr_max);
    if (isfinite(c->rv_useful)) {
        printf("  rv                   a larger step up to %.0f", c->rv_useful);
        if (isfinite(c->rv_data)) printf("; as quiet as the batch at %.0f", c->rv_data);
        printf("\n");
    }
    if (isfinite(c->noise_ratio))
        printf("  noise where learnt   %.3g times that of a first-order node\n", c->noise_ratio);
    printf("  one estimate         ");
    print_time(c->time_s);
    printf(", %.2f MB; %lld forward, %lld backward, %lld jvp; all nodes of the class ", (double)c->memory_bytes / 1e6,
           (long long)c->forward, (long long)c->backward, (long long)c->jvp);
    print_time(c->time_s * (double)c->count);
    printf(" a step on one thread\n");
}

void check_print(const hdo_check_result *r) {
    cli_style s = cli_style_for(stdout);
    printf("%s on %s: d = %lld in %d tensors", r->model, r->data, (long long)r->d, r->n_tensors);
    if (r->live < r->d) printf(" (a loss depends on %lld, the others meet padding only)", (long long)r->live);
    printf(", %lld nodes\n\n", (long long)r->n);
    print_slopes(r, &s);
    for (int k = 0; k < r->n_classes; k++) print_class(&r->cls[k], &s);
    const hdo_check_trial *t = &r->trial;
    if (t->steps > 0) {
        printf("\n%sTrial%s of %lld steps (%.1f s): ", s.bold, s.off, (long long)t->steps, t->time_s);
        if (t->diverged) {
            printf("%sdiverged%s\n", s.red, s.off);
        } else {
            printf("mean loss from %.4g to %.4g\n", t->loss_start, t->loss_end);
        }
    }
    printf("\n%sNotes%s\n", s.bold, s.off);
    for (int i = 0; i < r->n_notes; i++) {
        const hdo_check_note *n = &r->note[i];
        const char *mark = n->level == HDO_CHECK_PROBLEM ? "problem" : n->level == HDO_CHECK_ADVICE ? "advice" : "info";
        printf("  %s%-8s%s %s\n", n->level == HDO_CHECK_PROBLEM ? s.red : s.dim, mark, s.off, n->text);
    }
    if (r->n_notes == 0) printf("  nothing to complain about\n");
}
