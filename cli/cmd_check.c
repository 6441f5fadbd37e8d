/* SPDX-License-Identifier: Apache-2.0 — hdo check: is this configuration healthy before it runs? */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "hdo/lab/check.h"
#include "hdo/lab/report.h"

static const char help_text[] =
    "Usage: hdo check CONFIG|PRESET [OPTIONS]\n\n"
    "Looks at a configuration at its starting point, on its own model and data: do gradient, forward mode and "
    "differences\n"
    "agree; which step nu the losses allow; what each class's estimator does against theory (cosine, bias, variance); "
    "which\n"
    "lr and rv fit; memory and time. Then it tries the population for a few steps. For runs that do not learn, and "
    "before\n"
    "runs that take long.\n\n"
    "  --set KEY=VALUE      any configuration key, repeatable\n"
    "  --population P       counts by class, for example 24fo+256zo\n"
    "  --json               print one JSON document\n"
    "  -o, --output BASE    write the sweep over nu as BASE.svg, .png, .pdf, and BASE.csv and .gp\n"
    "  --time S             seconds for the estimates of one class (default 2)\n"
    "  --directions N       random directions for slopes (default 16)\n"
    "  --samples N          estimates per class at most (default 400)\n"
    "  --try N              steps of the trial (default 60; 0: none), with a warm-up of 20 at most\n"
    "  --try-time S         seconds for it at most (default 20)\n"
    "  --allow-piecewise    complex-step accepts models with kinks: allow_piecewise=true for every class that uses it\n"
    "  -q, --quiet          no notes on progress;  --color auto|always|never\n\n"
    "Exit code 1 if there is a problem (a population that diverged in the trial is one), 0 if there is advice at most; "
    "an\n"
    "impossible configuration is 2, missing data 3.\n\n"
    "Example: hdo check demo --set population.zo.estimator=fd --set population.zo.nu=1e-7\n";

typedef struct check_args {
    const char *source, *population, *output;
    char *set[64];
    int n_set;
    bool json, piecewise;
    hdo_check_options options;
} check_args;

/* ---- text ---- */

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
    printf("  one estimate         ");
    print_time(c->time_s);
    printf(", %.2f MB; %lld forward, %lld backward, %lld jvp; all nodes of the class ", (double)c->memory_bytes / 1e6,
           (long long)c->forward, (long long)c->backward, (long long)c->jvp);
    print_time(c->time_s * (double)c->count);
    printf(" a step on one thread\n");
}

static void print_result(const hdo_check_result *r) {
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

/* ---- arguments ---- */

static bool seconds(const char *text, double *out) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= 0.0 && v <= 1e6)) return false;
    *out = v;
    return true;
}

enum { POPULATION = 256, SET, JSON, TIME, DIRECTIONS, SAMPLES, TRY, TRY_TIME, PIECEWISE, COLOUR };

/* An option with a number; returns what it takes when it is not one. */
static const char *take_number(check_args *a, int option, const char *text) {
    hdo_check_options *o = &a->options;
    int64_t v = 0;
    switch (option) {
    case TIME: return seconds(text, &o->time_s) ? NULL : "--time takes seconds, for example 5";
    case TRY_TIME: return seconds(text, &o->try_s) && o->try_s > 0.0 ? NULL : "--try-time takes seconds, for example 5";
    case DIRECTIONS:
        if (!cli_int(text, 2, 256, &v)) return "--directions takes 2 to 256";
        o->directions = (int)v;
        return NULL;
    case SAMPLES:
        if (!cli_int(text, 2, 1000000, &v)) return "--samples takes 2 to 1000000";
        o->samples = (int)v;
        return NULL;
    default:
        if (!cli_int(text, 0, 1000000, &v)) return "--try takes a number of steps, 0 for none";
        o->try_steps = (int)v;
        return NULL;
    }
}

static int parse(int argc, char **argv, check_args *a) {
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"population", required_argument, NULL, POPULATION},
                                          {"set", required_argument, NULL, SET},
                                          {"output", required_argument, NULL, 'o'},
                                          {"json", no_argument, NULL, JSON},
                                          {"time", required_argument, NULL, TIME},
                                          {"directions", required_argument, NULL, DIRECTIONS},
                                          {"samples", required_argument, NULL, SAMPLES},
                                          {"try", required_argument, NULL, TRY},
                                          {"try-time", required_argument, NULL, TRY_TIME},
                                          {"allow-piecewise", no_argument, NULL, PIECEWISE},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"color", required_argument, NULL, COLOUR},
                                          {NULL, 0, NULL, 0}};
    for (int o; (o = getopt_long(argc, argv, "ho:q", longs, NULL)) != -1;) {
        const char *wrong;
        switch (o) {
        case 'h': fputs(help_text, stdout); return 0;
        case 'o': a->output = optarg; break;
        case 'q': cli_set_quiet(true); break;
        case POPULATION: a->population = optarg; break;
        case SET:
            if (a->n_set == (int)(sizeof a->set / sizeof a->set[0]))
                return cli_usage_error("check", "too many --set; write a file");
            a->set[a->n_set++] = optarg;
            break;
        case JSON: a->json = true; break;
        case TIME:
        case TRY_TIME:
        case DIRECTIONS:
        case SAMPLES:
        case TRY:
            if ((wrong = take_number(a, o, optarg)) != NULL)
                return cli_usage_error("check", "%s; got '%s'", wrong, optarg);
            break;
        case PIECEWISE: a->piecewise = true; break;
        case COLOUR: cli_colour(optarg); break;
        default: return cli_usage_error("check", "the options are not right");
        }
    }
    if (optind < argc) a->source = argv[optind++];
    if (optind < argc) return cli_usage_error("check", "one configuration at a time, but got '%s' too", argv[optind]);
    if (a->source == NULL)
        return cli_usage_error("check",
                               "which configuration? Give a YAML file or a preset, for example: hdo check demo");
    return -1;
}

int cmd_check(int argc, char **argv) {
    check_args a = {.options = hdo_check_default()};
    int code = parse(argc, argv, &a);
    if (code >= 0) return code;
    hdo_config *c = malloc(sizeof *c);
    hdo_check_result *r = malloc(sizeof *r);
    hdo_error e = {0};
    hdo_status st = c != NULL && r != NULL ? cli_config(c, a.source, a.population, a.n_set, a.set, &e) : HDO_E_MEMORY;
    if (st == HDO_OK && a.piecewise) st = cli_allow_piecewise(c, &e);
    if (st == HDO_OK) {
        cli_note("checking derivatives, steps and %d classes", c->n_classes);
        st = hdo_check(c, &a.options, r, &e);
        if (st == HDO_OK && a.options.try_steps > 0) {
            cli_note("trying the population for %d steps, %.0f s at most", a.options.try_steps, a.options.try_s);
            st = hdo_check_try(c, &a.options, r, &e);
        }
    }
    if (st == HDO_OK && a.json) {
        char *text = hdo_check_json(r);
        if (text != NULL) puts(text);
        free(text);
    } else if (st == HDO_OK) {
        print_result(r);
    }
    if (st == HDO_OK && a.output != NULL) {
        st = hdo_check_figure(r, a.output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e);
        if (st == HDO_OK) cli_note("figure in %s.svg, .png, .pdf", a.output);
    }
    e.code = st;
    bool problem = false;
    for (int i = 0; st == HDO_OK && i < r->n_notes; i++) problem = problem || r->note[i].level == HDO_CHECK_PROBLEM;
    code = st != HDO_OK ? cli_fail(&e) : problem ? 1 : 0;
    free(c);
    free(r);
    return code;
}
