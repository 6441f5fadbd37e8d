/* SPDX-License-Identifier: Apache-2.0 — what follows from the numbers of a check, in words, with the reason. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lab/check/lab.h"

void hdo__check_note(hdo_check_result *r, hdo_check_level level, int cls, const char *fmt, ...) {
    if (r->n_notes == HDO_CHECK_NOTES_MAX) return;
    hdo_check_note *n = &r->note[r->n_notes++];
    *n = (hdo_check_note){.level = level, .cls = cls};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(n->text, sizeof n->text, fmt, ap);
    va_end(ap);
}

static void derivatives(hdo_check_result *r) {
    const hdo_check_agreement *a = &r->agreement;
    if (!isfinite(a->loss)) {
        hdo__check_note(r, HDO_CHECK_PROBLEM, -1,
                        "The loss at the starting point is not finite: look at the data and at model.init first.");
        return;
    }
    if (a->jvp_error >= 2e-2 || a->complex_error >= 2e-2 || a->central_error >= 2e-2) {
        hdo__check_note(
            r, HDO_CHECK_PROBLEM, -1,
            "Derivatives disagree (forward mode %.1e, complex step %.1e, central difference %.1e off %s): kinks at "
            "the starting "
            "point, or a wrong derivative. Estimators built on the wrong one will not learn.",
            a->jvp_error, a->complex_error, a->central_error, a->reference);
    }
}

static void about_nu(const hdo_class_config *cc, hdo_check_result *r, int k) {
    const hdo_check_class *c = &r->cls[k];
    const hdo_check_sweep *w = &r->sweep;
    const hdo_estimator_ops *ops = hdo__estimator_find(cc->estimator);
    if (ops == NULL) return; /* one's own: its nu is its own affair */
    bool central = ops->family == HDO_EST_CENTRAL;
    if (!ops->difference) return;
    double lo = central ? w->lo_central : w->lo_one, hi = central ? w->hi_central : w->hi_one;
    double best = central ? w->nu_central : w->nu_one;
    if (ops == &hdo__est_debiased) { /* no bias to fear, so a larger step; its finest should clear the floor */
        double finest = ldexp(c->nu, -(int)cc->debias_levels);
        if (finest < lo) {
            hdo__check_note(
                r, HDO_CHECK_ADVICE, k,
                "Class '%s': the finest step of debiased is nu / 2^%d = %.1e, below %.1e where round-off takes over; "
                "set nu to %.1e "
                "or debias_levels lower.",
                c->name, (int)cc->debias_levels, finest, lo, best * 16.0);
        }
        return;
    }
    if (c->slope_error > 0.3) {
        hdo__check_note(
            r, HDO_CHECK_PROBLEM, k,
            "Class '%s': at nu = %.1e a slope is off by %.0f %% (%s); nu between %.1e and %.1e keeps it near the least "
            "possible, %.1e is best.",
            c->name, c->nu, 100.0 * c->slope_error, c->nu < best ? "round-off of the losses" : "curvature", lo, hi,
            best);
    } else if (c->slope_error > 0.02 && (c->nu < lo || c->nu > hi)) { /* below that the directions are the noise */
        hdo__check_note(r, HDO_CHECK_ADVICE, k,
                        "Class '%s': nu = %.1e works (slopes off by %.1e), but %.1e is better: %s shows.", c->name,
                        c->nu, c->slope_error, best, c->nu < best ? "round-off" : "curvature");
    } else if (c->nu < lo || c->nu > hi) {
        hdo__check_note(
            r, HDO_CHECK_INFO, k,
            "Class '%s': nu = %.1e is outside %.1e to %.1e, where slopes are most exact; they are off by %.1e only, "
            "less "
            "than the noise of the directions.",
            c->name, c->nu, lo, hi, c->slope_error);
    }
}

static void about_lr(const hdo_class_config *cc, hdo_check_result *r, int k) {
    const hdo_check_class *c = &r->cls[k];
    if (!(c->lr_max > 0.0) || cc->lr.id != HDO_NUMBER) return;
    if (c->lr > c->lr_max) { /* the curvature at the start is not that of later: only far above it is a verdict */
        bool far = c->lr > 4.0 * c->lr_max;
        hdo__check_note(
            r, far ? HDO_CHECK_PROBLEM : HDO_CHECK_ADVICE, k,
            "Class '%s': lr = %g is above %.2g, where a step of a lone node along the sharpest direction no longer "
            "lowers "
            "the expected loss%s; try %.2g to %.2g%s.",
            c->name, c->lr, c->lr_max, c->zeroth ? " (tr H / rv, the noise along the curvature, counts)" : "",
            0.1 * c->lr_best, c->lr_best, c->zeroth && c->rv_useful > (double)c->rv ? ", or a larger rv" : "");
    } else if (c->lr > c->lr_best) {
        hdo__check_note(
            r, HDO_CHECK_ADVICE, k,
            "Class '%s': lr = %g is above %.2g, the best step of a lone node at the start. It leaves no room for "
            "noise, label "
            "skew or a loss that grows steeper; try %.2g to %.2g%s.",
            c->name, c->lr, c->lr_best, 0.1 * c->lr_best, c->lr_best,
            c->zeroth && c->rv_useful > (double)c->rv ? ", or a larger rv" : "");
    } else if (c->lr < 0.003 * c->lr_best) {
        hdo__check_note(
            r, HDO_CHECK_ADVICE, k,
            "Class '%s': lr = %g is far below %.2g, the best step of a lone node: slow, if data noise allows more.",
            c->name, c->lr, c->lr_best);
    }
}

static void about_rv(hdo_check_result *r, int k) {
    const hdo_check_class *c = &r->cls[k];
    if (!c->zeroth || !(c->rv_useful >= 1.0)) return;
    if ((double)c->rv < 0.1 * c->rv_useful) {
        hdo__check_note(
            r, HDO_CHECK_ADVICE, k,
            "Class '%s': the loss bends in about %.0f directions (tr H / L); with rv = %lld the step must be some "
            "%.0f times "
            "smaller than that of back-propagation. A larger rv up to %.0f pays in full.",
            c->name, c->rv_useful, (long long)c->rv, 1.0 + (c->rv_useful + 1.0) / (double)c->rv, c->rv_useful);
    } else if ((double)c->rv < c->rv_useful) {
        hdo__check_note(
            r, HDO_CHECK_INFO, k,
            "Class '%s': rv = %lld is below %.0f (tr H / L); more directions up to that allow a larger step.", c->name,
            (long long)c->rv, c->rv_useful);
    } else if ((double)c->rv > 4.0 * c->rv_useful && c->rv > 8 && strcmp(c->estimator, "forward-law") != 0) {
        hdo__check_note(
            r, HDO_CHECK_INFO, k,
            "Class '%s': rv = %lld is well above %.0f (tr H / L), beyond which more directions hardly allow a larger "
            "step; they "
            "still reduce noise as 1/rv.",
            c->name, (long long)c->rv, c->rv_useful);
    }
}

static void about_batch(hdo_check_result *r, int k) {
    const hdo_check_class *c = &r->cls[k];
    if (c->least_shard > 0 && c->batch > c->least_shard) {
        hdo__check_note(
            r, HDO_CHECK_ADVICE, k,
            "Class '%s': batch = %lld, but a node of it holds %lld samples only: its batches repeat them. A smaller "
            "batch, or "
            "a milder data.split.",
            c->name, (long long)c->batch, (long long)c->least_shard);
    }
    if (c->data_noise > 10.0 && isfinite(c->data_noise)) {
        hdo__check_note(
            r, HDO_CHECK_INFO, k,
            "Class '%s': the noise of a batch of %lld is %.0f times the gradient (squared); both are equal at a batch "
            "of "
            "%.0f.",
            c->name, (long long)c->batch, c->data_noise, ceil((double)c->batch * c->data_noise));
    }
}

static void about_bias(hdo_check_result *r, int k) {
    const hdo_check_class *c = &r->cls[k];
    if (c->bias > 0.1 && c->bias > 3.0 * c->bias_se) {
        hdo__check_note(
            r, HDO_CHECK_PROBLEM, k,
            "Class '%s': the mean of the estimate is off the gradient by %.0f %% of its length (noise %.1g %%).",
            c->name, 100.0 * c->bias, 100.0 * c->bias_se);
    }
    double off = fabs(c->variance - c->variance_theory), se = fmax(c->variance_se, 1e-6);
    if (c->zeroth && c->slope_error < 0.1 && off > 5.0 * se && off > 0.25 * c->variance_theory &&
        c->variance_theory > 0.0) {
        hdo__check_note(
            r, HDO_CHECK_ADVICE, k,
            "Class '%s': variance %.3g against %.3g predicted (standard error %.1g): a strongly curved loss, or "
            "a fault in the estimator.",
            c->name, c->variance, c->variance_theory, se);
    }
}

static void about_kind(const hdo_class_config *cc, hdo_check_result *r, int k) {
    const hdo_check_class *c = &r->cls[k];
    if (cc->streams.id == HDO_STREAMS_SHARED && cc->count > 1) {
        hdo__check_note(
            r, HDO_CHECK_ADVICE, k,
            "Class '%s': all %lld nodes draw the same directions, so averaging them does not average the noise "
            "of the directions; streams: independent does.",
            c->name, (long long)cc->count);
    }
    if (strcmp(cc->estimator, "forward-sim") == 0 && cc->distribution.id == HDO_DIST_GAUSSIAN && cc->rv > 4 &&
        (cc->streams.id != HDO_STREAMS_SHARED || cc->count < 2)) {
        hdo__check_note(
            r, HDO_CHECK_INFO, k,
            "Class '%s': forward-law draws the same random variable as forward-sim from one vector instead of %lld.",
            c->name, (long long)cc->rv);
    }
    if (c->per_tensor && c->zeroth && c->forward > 1 && r->n_tensors > 1 && strcmp(cc->estimator, "fd-coord") != 0) {
        hdo__check_note(
            r, HDO_CHECK_INFO, k,
            "Class '%s': per-tensor directions perturb each of the %d tensors by itself: %lld forward passes an "
            "estimate.",
            c->name, r->n_tensors, (long long)c->forward);
    }
    if (strcmp(cc->estimator, "fd-coord") == 0 && c->forward > 20000) {
        hdo__check_note(r, HDO_CHECK_ADVICE, k,
                        "Class '%s': fd-coord takes %lld forward passes an estimate; coords limits them.", c->name,
                        (long long)c->forward);
    }
}

void hdo__check_advise(const hdo_config *cfg, hdo_check_result *r) {
    derivatives(r);
    for (int k = 0; k < r->n_classes; k++) {
        const hdo_class_config *cc = &cfg->population[k];
        about_nu(cc, r, k);
        about_lr(cc, r, k);
        about_rv(r, k);
        about_batch(r, k);
        about_bias(r, k);
        about_kind(cc, r, k);
    }
}
