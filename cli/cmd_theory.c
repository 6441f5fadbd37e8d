/* SPDX-License-Identifier: Apache-2.0 — hdo theory: what can be promised about a run, and whether it keeps the promise.
 */
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "hdo/lab/report.h"
#include "cmd_theory.h"

static const char help_text[] =
    "Usage: hdo theory CONFIG|PRESET [--measure] [--run [--seeds N] [-o BASE]] [OPTIONS]\n"
    "       hdo theory --scaling [--quick] [-o BASE]\n\n"
    "Evaluates the convergence bounds on a problem: second moments and biases of every estimator, the consensus "
    "bound,\n"
    "the strongly convex and the non-convex rate, their noise terms, admissible step sizes, the smallest T, and every\n"
    "assumption that fails. docs/theory.md has the statements.\n\n"
    "  --measure            measure the constants of the problem first (quadratics: known exactly without it)\n"
    "  --run                run the problem over seeds and hold the measured curves against their bounds; exit code 1 "
    "if\n"
    "                       a mean lies above its bound by more than 4 standard errors although the assumptions hold\n"
    "  --seeds N            seeds of --run (default 50; problems with data: 10)\n"
    "  -o, --output BASE    figures BASE-gamma.svg, BASE-distance.svg, ... (with .png, .pdf, .csv, .gp)\n"
    "  --scaling            speed-up in n, the d n0 = O(n) threshold: fitted exponents with error bars (minutes)\n"
    "  --quick              with --scaling: seconds, larger error bars\n"
    "  --population P, --set KEY=VALUE   as for hdo run\n"
    "  --json               one JSON document instead of text\n"
    "  -q, --quiet          no progress;  --color auto|always|never\n\n"
    "Constants you know better than the program (they replace its own):\n"
    "  --L X  --ell X  --ell-loc X  --L2 X   smoothness, strong convexity of f and of every f^i, Lipschitz Hessian\n"
    "  --sigma X  --varsigma X               gradient noise and heterogeneity of every class\n"
    "  --distance X  --gap X  --df X         |mu_0 - x*|, f(mu_0) - f*, error of one loss value\n\n"
    "Examples:\n"
    "  hdo theory theory-pair                          everything about a small hybrid on a quadratic\n"
    "  hdo theory theory-match --run -o figures/match  measured curves below their bounds\n"
    "  hdo theory demo --measure                       constants of a problem with data\n";

enum { SET = 256, POPULATION, MEASURE, RUN, SEEDS, SCALING, QUICK, JSON, COLOUR, CONSTANT };

static const struct {
    const char *name;
    size_t offset;        /* of the hdo_constant */
    bool per_class, root; /* root: the flag is the square root of the constant */
} flags[] = {{"L", offsetof(hdo_constants, L), false, false},
             {"ell", offsetof(hdo_constants, ell), false, false},
             {"ell-loc", offsetof(hdo_constants, ell_loc), false, false},
             {"L2", offsetof(hdo_constants, L2), false, false},
             {"sigma", offsetof(hdo_constants, sigma), true, false},
             {"varsigma", offsetof(hdo_constants, varsigma_U), true, false},
             {"distance", offsetof(hdo_constants, a_0), false, true},
             {"gap", offsetof(hdo_constants, F), false, false},
             {"df", offsetof(hdo_constants, df), false, false}};
enum { N_FLAGS = (int)(sizeof flags / sizeof flags[0]) };

typedef struct options {
    const char *source, *population, *output;
    char *set[64];
    int n_set;
    bool measure, run, scaling, quick, json;
    int64_t seeds;
    double value[N_FLAGS]; /* NaN: not given */
} options;

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
    if (cli_signal() == 0) return code;
    return cli_signal() == SIGTERM ? EXIT_SIGTERM : EXIT_SIGINT;
}

/* ---- what the user knows better ---- */

static void put(hdo_constant *c, double v) {
    c->value = v;
    c->how = HDO_GIVEN;
}

static void override(const options *o, hdo_constants *k) {
    for (int i = 0; i < N_FLAGS; i++) {
        if (isnan(o->value[i])) continue;
        hdo_constant *c = (hdo_constant *)((char *)k + flags[i].offset);
        double v = flags[i].root ? o->value[i] * o->value[i] : o->value[i];
        for (int n = 0; n < (flags[i].per_class ? HDO_CLASSES_MAX : 1); n++) {
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

static int scaling(const options *o, const hdo_study_hooks *hooks, cli_study_progress *p) {
    hdo_law law[HDO_LAWS];
    hdo_error e = {0};
    hdo_status st = hdo_scaling_run(o->quick, 0, hooks, law, &e);
    cli_study_end(p);
    if (st == HDO_OK && o->output != NULL) {
        st = hdo_scaling_figures(law, HDO_LAWS, o->output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e);
    }
    if (st != HDO_OK) return cli_study_fail(&e);
    bool all = true;
    for (int k = 0; k < HDO_LAWS; k++) all = all && law[k].verdict != HDO_LAW_DISAGREES;
    if (o->json) {
        char *text = hdo_scaling_json(law, HDO_LAWS);
        if (text != NULL) puts(text);
        free(text);
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

static int compare(const options *o, hdo_study *s, const hdo_config *c, cli_study_progress *p) {
    hdo_comparison *cmp = calloc(1, sizeof *cmp);
    hdo_error e = {0};
    if (cmp == NULL) return 1;
    int seeds = o->seeds > 0 ? (int)o->seeds : strcmp(c->model.name, "quadratic") == 0 ? 50 : 10;
    hdo_status st = hdo_study_compare(s, seeds, cmp, &e);
    cli_study_end(p);
    bool drawn = st == HDO_OK && o->output != NULL;
    if (drawn) st = hdo_comparison_figures(cmp, o->output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e);
    int code = st == HDO_OK ? (cmp->violated ? 1 : 0) : cli_study_fail(&e);
    if (st == HDO_OK && o->json) {
        char *text = hdo_comparison_json(cmp);
        if (text != NULL) puts(text);
        free(text);
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

static int study(const options *o, const hdo_config *c, const hdo_study_hooks *hooks, cli_study_progress *p) {
    hdo_error e = {0};
    hdo_study *s = NULL;
    hdo_assessment *a = malloc(sizeof *a);
    if (a == NULL) return 1;
    int code = 0;
    hdo_status st = hdo_study_create(&s, c, hooks, &e);
    if (st == HDO_OK && (o->measure || o->run)) st = hdo_study_measure(s, NULL, &e);
    cli_study_end(p);
    if (st == HDO_OK) override(o, hdo_study_constants(s));
    if (st == HDO_OK && o->run) {
        code = compare(o, s, c, p);
    } else if (st == HDO_OK) {
        st = hdo_study_assess(s, a, &e);
        if (st == HDO_OK && o->json) {
            char *text = hdo_assessment_json(a);
            if (text != NULL) puts(text);
            free(text);
        } else if (st == HDO_OK) {
            cli_print_assessment(c, a, o->measure);
        }
    }
    hdo_study_destroy(s);
    free(a);
    return st == HDO_OK ? code : cli_study_fail(&e);
}

static int parse(int argc, char **argv, options *o) {
    static const struct option fixed[] = {{"help", no_argument, NULL, 'h'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"set", required_argument, NULL, SET},
                                          {"population", required_argument, NULL, POPULATION},
                                          {"measure", no_argument, NULL, MEASURE},
                                          {"run", no_argument, NULL, RUN},
                                          {"seeds", required_argument, NULL, SEEDS},
                                          {"scaling", no_argument, NULL, SCALING},
                                          {"quick", no_argument, NULL, QUICK},
                                          {"json", no_argument, NULL, JSON},
                                          {"color", required_argument, NULL, COLOUR}};
    enum { N_FIXED = (int)(sizeof fixed / sizeof fixed[0]) };
    struct option longs[N_FIXED + N_FLAGS + 1] = {{0}};
    memcpy(longs, fixed, sizeof fixed);
    for (int i = 0; i < N_FLAGS; i++) {
        longs[N_FIXED + i] = (struct option){flags[i].name, required_argument, NULL, CONSTANT + i};
        o->value[i] = (double)NAN;
    }
    for (int k; (k = getopt_long(argc, argv, "ho:q", longs, NULL)) != -1;) {
        switch (k) {
        case 'h': fputs(help_text, stdout); return 0;
        case 'o': o->output = optarg; break;
        case 'q': cli_set_quiet(true); break;
        case SET:
            if (o->n_set == 64) return cli_usage_error("theory", "too many settings on the command line (64 at most)");
            o->set[o->n_set++] = optarg;
            break;
        case POPULATION: o->population = optarg; break;
        case MEASURE: o->measure = true; break;
        case RUN: o->run = true; break;
        case SEEDS:
            if (!cli_int(optarg, 2, 100000, &o->seeds)) {
                return cli_usage_error("theory", "--seeds takes a number of seeds, 2 or more; got '%s'", optarg);
            }
            break;
        case SCALING: o->scaling = true; break;
        case QUICK: o->quick = true; break;
        case JSON: o->json = true; break;
        case COLOUR: cli_colour(optarg); break;
        default: {
            if (k < CONSTANT || k >= CONSTANT + N_FLAGS) return cli_usage_error("theory", "the options are not right");
            char *end;
            double v = strtod(optarg, &end);
            if (end == optarg || *end != '\0' || !(v >= 0.0) || !isfinite(v)) {
                return cli_usage_error("theory", "--%s takes a number, 0 or more; got '%s'", flags[k - CONSTANT].name,
                                       optarg);
            }
            o->value[k - CONSTANT] = v;
        }
        }
    }
    if (optind < argc) o->source = argv[optind++];
    if (optind < argc) return cli_usage_error("theory", "one configuration at a time, but got '%s' too", argv[optind]);
    if (o->source == NULL && !o->scaling) {
        return cli_usage_error(
            "theory", "which configuration? Give a YAML file or a preset, for example: hdo theory theory-pair");
    }
    return -1;
}

int cmd_theory(int argc, char **argv) {
    options o = {0};
    int code = parse(argc, argv, &o);
    if (code >= 0) return code;
    cli_study_progress p = {0};
    hdo_study_hooks hooks = {.ctx = &p, .tick = cli_study_tick};
    cli_catch_signals();
    if (o.scaling) return scaling(&o, &hooks, &p);
    hdo_config *c = malloc(sizeof *c);
    hdo_error e = {0};
    if (c == NULL) return 1;
    if (cli_config(c, o.source, o.population, o.n_set, o.set, &e) != HDO_OK) {
        free(c);
        return cli_fail(&e);
    }
    code = study(&o, c, &hooks, &p);
    free(c);
    return code;
}
