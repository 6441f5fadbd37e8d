/* SPDX-License-Identifier: Apache-2.0 — hdo compare: two groups of runs at equal steps, oracle calls, bytes or time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "hdo/lab/report.h"

typedef struct compare_options {
    cli_common common;
    const char *metric, *at;
} compare_options;

#define AT(member) offsetof(compare_options, member)
static const cli_option options[] = {
    {"metric", 0, CLI_TEXT, "METRIC", "what to compare (default: val/loss_mean)", .target = AT(metric)},
    {"at", 0, CLI_TEXT, "AXIS[=VALUE]",
     "at equal what: step, cost (weighted passes: forward 1, forward mode 2, gradient 3), interactions, "
     "bytes_exchanged, sim_time, time/wall, oracle/forward, ...; at VALUE of it, or at the largest one all runs "
     "reached "
     "(default: step); an axis that does not move in a run is refused",
     .target = AT(at)},
    {.name = NULL},
};

static int print_json(const hdo_difference *d, const char *metric, const char *axis, double x) {
    hdo_json j;
    hdo__json_begin(&j, false, 1);
    hdo__json_text(&j, "metric", metric);
    hdo__json_text(&j, "axis", axis);
    hdo__json_real(&j, "at", x);
    HDO_JSON_INTS(&j, {"n_a", d->n_a}, {"n_b", d->n_b});
    hdo__json_bool(&j, "paired", d->paired);
    HDO_JSON_REALS(&j, {"a", d->a}, {"a_se", d->n_a > 1 ? d->a_se : (double)NAN}, {"b", d->b},
                   {"b_se", d->n_b > 1 ? d->b_se : (double)NAN}, {"diff", d->diff}, {"low", d->low}, {"high", d->high},
                   {"p", d->p});
    hdo__json_end(&j, '}');
    return cli_json(&j);
}

static void print_side(char side, const char *dir, double mean, double se, int n) {
    printf("  %c  %-40s %10.5g", side, dir, mean);
    if (n > 1) printf(" +- %.2g", se);
    printf("  (%d run%s)\n", n, n > 1 ? "s" : "");
}

/* AXIS or AXIS=VALUE; false if VALUE is not a number, 0 or more. */
static bool split_axis(const char *text, char *axis, size_t cap, double *at) {
    snprintf(axis, cap, "%s", text);
    char *eq = strrchr(axis, '='), *end = NULL;
    if (eq == NULL) return true;
    *eq = '\0';
    *at = strtod(eq + 1, &end);
    return end != eq + 1 && *end == '\0' && *at >= 0.0;
}

static void print_text(const hdo_difference *d, const compare_options *o, const char *axis, double x) {
    printf("%s at %s = %.6g\n", o->metric, axis, x);
    print_side('A', o->common.word[0], d->a, d->a_se, d->n_a);
    print_side('B', o->common.word[1], d->b, d->b_se, d->n_b);
    if (isfinite(d->low)) {
        printf("  A - B = %.4g, 95 %% between %.4g and %.4g (p = %.2g, %s): %s\n", d->diff, d->low, d->high, d->p,
               d->paired ? "same seeds in pairs" : "Welch",
               d->low > 0.0    ? "A is larger"
               : d->high < 0.0 ? "A is smaller"
                               : "no clear difference");
    } else {
        printf("  A - B = %.4g; with one run on a side there is no telling how much of it is chance\n", d->diff);
    }
}

static int run_compare(int argc, char **argv) {
    compare_options o = {.metric = "val/loss_mean", .at = "step"};
    char axis[64];
    double x = -1.0;
    int code = cli_parse(&cmd_compare, argc, argv, &o);
    if (code >= 0) return code;
    if (!split_axis(o.at, axis, sizeof axis, &x))
        return cli_usage_error("compare", "--at takes AXIS or AXIS=VALUE; got '%s'", o.at);
    hdo_error e = {0};
    hdo_difference d;
    if (hdo_compare_runs(o.common.word[0], o.common.word[1], o.metric, axis, &x, &d, &e) != HDO_OK) return cli_fail(&e);
    if (o.common.json) return print_json(&d, o.metric, axis, x);
    print_text(&d, &o, axis, x);
    return 0;
}

const cli_command cmd_compare = {
    .name = "compare",
    .summary = "the difference of two groups of runs, with confidence",
    .run = run_compare,
    .usage = "A B [--metric METRIC] [--at AXIS[=VALUE]] [--json]",
    .about =
        "The difference A - B of two groups of runs, with a 95 % confidence interval over seeds. A group is a run "
        "folder, or a folder of runs that differ in the seed (as --seeds writes them). The same seeds in both groups "
        "are compared in pairs, which is sharper; otherwise Welch's test is used. One run on a side gives a "
        "difference without confidence.",
    .options = options,
    .common = CLI_JSON,
    .examples = "hdo compare runs/24fo+256zo runs/24fo --at cost",
    .least = 2,
    .most = 2,
    .missing = "two groups of runs are compared: give two folders",
    .single = "two groups of runs are compared",
    .size = sizeof(compare_options),
};
