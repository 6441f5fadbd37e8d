/* SPDX-License-Identifier: Apache-2.0 — hdo theory: what can be promised about a run, and whether it keeps the promise.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_theory.h"
#include "drive.h"
#include "hdo/lab/report.h"

enum { N_CONSTANTS = 9 };

typedef struct theory_options {
    cli_common common;
    const char *output;
    bool measure, run, scaling, quick;
    int64_t seeds;
    double value[N_CONSTANTS]; /* NaN: not given */
} theory_options;

#define AT(member) offsetof(theory_options, member)
#define CONSTANT(k) .target = AT(value[k]), .lo = 0, .hi = HUGE_VAL, .takes = "a number, 0 or more"
static const cli_option options[] = {
    {"measure", 0, CLI_FLAG, NULL, "measure the constants of the problem first (quadratics: known exactly without it)",
     .target = AT(measure)},
    {"run", 0, CLI_FLAG, NULL,
     "run the problem over seeds and hold the measured curves against their bounds; exit code 1 if a mean lies above "
     "its "
     "bound by more than 4 standard errors although the assumptions hold",
     .target = AT(run)},
    {"seeds", 0, CLI_INT, "N", "seeds of --run (default 50; problems with data: 10)", .target = AT(seeds), .lo = 2,
     .hi = 100000, .takes = "a number of seeds, 2 or more"},
    {"output", 'o', CLI_TEXT, "BASE", "figures BASE-gamma.svg, BASE-distance.svg, ... (with .png, .pdf, .csv, .gp)",
     .target = AT(output)},
    {"scaling", 0, CLI_FLAG, NULL,
     "speed-up in n, the d n0 = O(n) threshold: fitted exponents with error bars (minutes)", .target = AT(scaling)},
    {"quick", 0, CLI_FLAG, NULL, "with --scaling: seconds, larger error bars", .target = AT(quick)},
    {.name = "", .kind = CLI_HEADING, .help = "Constants you know better than the program (they replace its own):"},
    {"L", 0, CLI_REAL, "X", "smoothness", CONSTANT(0)},
    {"ell", 0, CLI_REAL, "X", "strong convexity of f", CONSTANT(1)},
    {"ell-loc", 0, CLI_REAL, "X", "strong convexity of every f^i", CONSTANT(2)},
    {"L2", 0, CLI_REAL, "X", "Lipschitz constant of the Hessian", CONSTANT(3)},
    {"sigma", 0, CLI_REAL, "X", "gradient noise of every class", CONSTANT(4)},
    {"varsigma", 0, CLI_REAL, "X", "heterogeneity of every class", CONSTANT(5)},
    {"distance", 0, CLI_REAL, "X", "|mu_0 - x*|", CONSTANT(6)},
    {"gap", 0, CLI_REAL, "X", "f(mu_0) - f*", CONSTANT(7)},
    {"df", 0, CLI_REAL, "X", "error of one loss value", CONSTANT(8)},
    {.name = "", .kind = CLI_HEADING, .help = "As everywhere:"},
    {.name = NULL},
};

static const struct {     /* value k goes there */
    size_t offset;        /* of the hdo_constant */
    bool per_class, root; /* root: the option is the square root of the constant */
} constants[N_CONSTANTS] = {
    {offsetof(hdo_constants, L), false, false},       {offsetof(hdo_constants, ell), false, false},
    {offsetof(hdo_constants, ell_loc), false, false}, {offsetof(hdo_constants, L2), false, false},
    {offsetof(hdo_constants, sigma), true, false},    {offsetof(hdo_constants, varsigma_U), true, false},
    {offsetof(hdo_constants, a_0), false, true},      {offsetof(hdo_constants, F), false, false},
    {offsetof(hdo_constants, df), false, false}};

/* ---- hooks ---- */

bool cli_study_tick(void *ctx, const char *what, int64_t done, int64_t total) {
    cli_study_progress *p = ctx;
    if (p->what == NULL || strcmp(p->what, what) != 0) {
        if (p->what != NULL) cli_progress_end(&p->bar);
        p->what = what;
        cli_progress_start(&p->bar, what, total);
    }
    cli_progress_step(&p->bar, done, NULL);
    return cli_signal() == 0;
}

void cli_study_end(cli_study_progress *p) {
    if (p->what != NULL) cli_progress_end(&p->bar);
    p->what = NULL;
}

int cli_study_fail(const hdo_error *e) {
    int code = cli_fail(e);
    return cli_signal() == 0 ? code : cli_stop_code(HDO_STOPPED);
}

/* ---- what the user knows better ---- */

static void put(hdo_constant *c, double v) {
    c->value = v;
    c->how = HDO_GIVEN;
}

static void override(const theory_options *o, hdo_constants *k) {
    for (int i = 0; i < N_CONSTANTS; i++) {
        if (isnan(o->value[i])) continue;
        hdo_constant *c = (hdo_constant *)((char *)k + constants[i].offset);
        double v = constants[i].root ? o->value[i] * o->value[i] : o->value[i];
        for (int n = 0; n < (constants[i].per_class ? HDO_CLASSES_MAX : 1); n++) {
            put(c + n, v);
            if (c == k->varsigma_U) put(&k->varsigma_O[n], v);
        }
        if (c == &k->L && k->L_F.how != HDO_CERTIFIED)
            put(&k->L_F, fmax(v, k->L_F.how == HDO_MEASURED ? k->L_F.value : v));
        if (c == &k->ell && v > 0.0) k->convex = true;
    }
}

/* ---- scaling ---- */

static void print_law(const hdo_law *w) {
    printf("%s\n", w->statement);
    printf("  exponent %.4f +- %.4f (%d points, %d seeds, chi2/dof %.1f; errors of points at least %g %%), theory %g\n",
           w->exponent, w->exponent_se, w->n_points, w->seeds, w->chi2, 100.0 * w->floor, w->expected);
    printf("  off by %.4f = %.1f standard errors; limit 3 of them, and an allowance of %.4f: %s\n", w->off, w->off_se,
           w->allowance, hdo_law_verdict_text(w->verdict));
    printf("  allowance for finite steps: %s\n", w->allowance_why);
    printf("  %14s %14s %12s %14s\n", w->x_label, "measured", "se", "law");
    for (int i = 0; i < w->n_points; i++)
        printf("  %14.4g %14.5g %12.2g %14.5g\n", w->x[i], w->mean[i], w->se[i], w->predicted[i]);
    printf("\n");
}

static int scaling(const theory_options *o) {
    cli_study_progress p = {0};
    hdo_study_hooks hooks = {.ctx = &p, .tick = cli_study_tick};
    hdo_law law[HDO_LAWS];
    hdo_error e = {0};
    hdo_status st = hdo_scaling_run(o->quick, (int)o->common.threads, &hooks, law, &e);
    cli_study_end(&p);
    if (st == HDO_OK && o->output != NULL) {
        st = hdo_scaling_figures(law, HDO_LAWS, o->output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e);
    }
    if (st != HDO_OK) return cli_study_fail(&e);
    bool all = true;
    for (int k = 0; k < HDO_LAWS; k++) all = all && law[k].verdict != HDO_LAW_DISAGREES;
    if (o->common.json) {
        cli_print(hdo_scaling_json(law, HDO_LAWS), "\n");
    } else {
        for (int k = 0; k < HDO_LAWS; k++) print_law(&law[k]);
        printf(
            "An exponent agrees if it is off by at most 3 standard errors. The laws are limits of small steps: by how "
            "much the\nsteps taken here may move an exponent is its allowance, computed from the sizes alone.\n");
        if (o->output != NULL) printf("figures: %s-*.svg\n", o->output);
    }
    return all ? 0 : 1;
}

/* ---- the command ---- */

static int compare(const theory_options *o, hdo_study *s, const hdo_config *c, cli_study_progress *p) {
    hdo_comparison *cmp = calloc(1, sizeof *cmp);
    hdo_error e = {0};
    if (cmp == NULL) return 1;
    int seeds = o->seeds > 0 ? (int)o->seeds : strcmp(c->model.name, "quadratic") == 0 ? 50 : 10;
    hdo_status st = hdo_study_compare(s, seeds, cmp, &e);
    cli_study_end(p);
    bool drawn = st == HDO_OK && o->output != NULL;
    if (drawn) st = hdo_comparison_figures(cmp, o->output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e);
    int code = st == HDO_OK ? (cmp->violated ? 1 : 0) : cli_study_fail(&e);
    if (st == HDO_OK && o->common.json) {
        cli_print(hdo_comparison_json(cmp), "\n");
    } else if (st == HDO_OK) {
        cli_print_comparison(cmp, o->output);
    }
    if (st == HDO_OK && cmp->violated) {
        cli_style y = cli_style_for(stderr);
        fprintf(
            stderr,
            "%shdo: A MEASURED MEAN EXCEEDS ITS BOUND although the assumptions hold.%s Either a constant is too small\n"
            "(%s constants), or the simulator or the theory is wrong. See the table above.\n",
            y.red, y.off, hdo_known_name(cmp->assessment.quality));
    }
    hdo_comparison_clear(cmp);
    free(cmp);
    return code;
}

static int study(void *ctx, hdo_config *c) {
    const theory_options *o = ctx;
    cli_study_progress p = {0};
    hdo_study_hooks hooks = {.ctx = &p, .tick = cli_study_tick};
    hdo_error e = {0};
    hdo_study *s = NULL;
    hdo_assessment *a = malloc(sizeof *a);
    if (a == NULL) return 1;
    int code = 0;
    hdo_status st = hdo_study_create(&s, c, &hooks, &e);
    if (st == HDO_OK && (o->measure || o->run)) st = hdo_study_measure(s, NULL, &e);
    cli_study_end(&p);
    if (st == HDO_OK) override(o, hdo_study_constants(s));
    if (st == HDO_OK && o->run) {
        code = compare(o, s, c, &p);
    } else if (st == HDO_OK) {
        st = hdo_study_assess(s, a, &e);
        if (st == HDO_OK && o->common.json) {
            cli_print(hdo_assessment_json(a), "\n");
        } else if (st == HDO_OK) {
            cli_print_assessment(c, a, o->measure);
        }
    }
    hdo_study_destroy(s);
    free(a);
    return st == HDO_OK ? code : cli_study_fail(&e);
}

static int run_theory(int argc, char **argv) {
    theory_options o = {.seeds = 0};
    for (int k = 0; k < N_CONSTANTS; k++) o.value[k] = (double)NAN;
    int code = cli_parse(&cmd_theory, argc, argv, &o);
    if (code >= 0) return code;
    if (o.common.n_words == 0 && !o.scaling)
        return cli_usage_error(
            "theory", "which configuration? Give a YAML file or a preset, for example: hdo theory theory-pair");
    cli_catch_signals();
    return o.scaling ? scaling(&o) : cli_with_config(o.common.word[0], &o.common, study, &o);
}

const cli_command cmd_theory = {
    .name = "theory",
    .summary = "bounds on a problem: constants, step sizes, warnings, measured against runs",
    .run = run_theory,
    .usage = "CONFIG|PRESET [--measure] [--run [--seeds N] [-o BASE]] [OPTIONS]\n--scaling [--quick] [-o BASE]",
    .about =
        "Evaluates the convergence bounds on a problem: second moments and biases of every estimator, the consensus "
        "bound, the strongly convex and the non-convex rate, their noise terms, admissible step sizes, the smallest T, "
        "and every assumption that fails. docs/theory.md has the statements.",
    .options = options,
    .common = CLI_CONFIG | CLI_THREADS | CLI_JSON | CLI_TALK,
    .examples = "hdo theory theory-pair                          everything about a small hybrid on a quadratic\n"
                "hdo theory theory-match --run -o figures/match  measured curves below their bounds\n"
                "hdo theory demo --measure                       constants of a problem with data",
    .exit_codes =
        "0 ok, 1 failed, or a measured mean exceeds its bound, or an exponent disagrees, 2 usage or configuration, "
        "3 data missing or damaged.",
    .presets = true,
    .most = 1,
    .single = "one configuration at a time",
    .size = sizeof(theory_options),
};
