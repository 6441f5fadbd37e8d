/* SPDX-License-Identifier: Apache-2.0 — hdo compare: two groups of runs at equal steps, oracle calls, bytes or time. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "hdo/lab/report.h"

static const char help_text[] =
    "Usage: hdo compare A B [--metric METRIC] [--at AXIS[=VALUE]] [--json]\n\n"
    "The difference A - B of two groups of runs, with a 95 % confidence interval over seeds. A group is a run folder, "
    "or a\n"
    "folder of runs that differ in the seed (as --seeds writes them). The same seeds in both groups are compared in "
    "pairs,\n"
    "which is sharper; otherwise Welch's test is used. One run on a side gives a difference without confidence.\n\n"
    "  --metric METRIC    what to compare (default: val/loss_mean)\n"
    "  --at AXIS[=VALUE]  at equal what: step, cost (weighted passes: forward 1, forward mode 2, gradient 3), "
    "interactions,\n"
    "                     bytes_exchanged, sim_time, time/wall, oracle/forward, ...; at VALUE of it, or at the largest "
    "one\n"
    "                     all runs reached (default: step); an axis that does not move in a run is refused\n"
    "  --json             one JSON document\n\n"
    "Example: hdo compare runs/24fo+256zo runs/24fo --at cost\n";

static int print_json(const hdo_difference *d, const char *metric, const char *axis, double x) {
    hdo_json j;
    hdo__json_init(&j, false);
    hdo__json_object(&j, NULL);
    hdo__json_int(&j, "schema_version", 1);
    hdo__json_text(&j, "metric", metric);
    hdo__json_text(&j, "axis", axis);
    hdo__json_real(&j, "at", x);
    hdo__json_int(&j, "n_a", d->n_a);
    hdo__json_int(&j, "n_b", d->n_b);
    hdo__json_bool(&j, "paired", d->paired);
    hdo__json_real(&j, "a", d->a);
    hdo__json_real(&j, "a_se", d->n_a > 1 ? d->a_se : (double)NAN);
    hdo__json_real(&j, "b", d->b);
    hdo__json_real(&j, "b_se", d->n_b > 1 ? d->b_se : (double)NAN);
    hdo__json_real(&j, "diff", d->diff);
    hdo__json_real(&j, "low", d->low);
    hdo__json_real(&j, "high", d->high);
    hdo__json_real(&j, "p", d->p);
    hdo__json_end(&j, '}');
    return cli_json(&j);
}

static void print_side(char side, const char *dir, double mean, double se, int n) {
    printf("  %c  %-40s %10.5g", side, dir, mean);
    if (n > 1) printf(" +- %.2g", se);
    printf("  (%d run%s)\n", n, n > 1 ? "s" : "");
}

int cmd_compare(int argc, char **argv) {
    enum { METRIC = 256, AT, JSON };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"metric", required_argument, NULL, METRIC},
                                          {"at", required_argument, NULL, AT},
                                          {"json", no_argument, NULL, JSON},
                                          {NULL, 0, NULL, 0}};
    const char *metric = "val/loss_mean";
    char axis[64] = "step";
    double at = -1.0, x = 0.0;
    bool json = false;
    for (int o; (o = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        switch (o) {
        case 'h': fputs(help_text, stdout); return 0;
        case METRIC: metric = optarg; break;
        case AT: {
            char *eq = NULL, *end = NULL;
            snprintf(axis, sizeof axis, "%s", optarg);
            for (char *p = axis; *p != '\0'; p++) eq = *p == '=' ? p : eq;
            if (eq != NULL) {
                *eq = '\0';
                at = strtod(eq + 1, &end);
                if (end == eq + 1 || *end != '\0' || !(at >= 0.0))
                    return cli_usage_error("compare", "--at takes AXIS or AXIS=VALUE; got '%s'", optarg);
            }
            break;
        }
        case JSON: json = true; break;
        default: return cli_usage_error("compare", "the options are not right");
        }
    }
    if (optind + 2 != argc) return cli_usage_error("compare", "two groups of runs are compared; got %d", argc - optind);
    const char *a = argv[optind], *b = argv[optind + 1];
    hdo_error e = {0};
    hdo_difference d;
    if (hdo_compare_runs(a, b, metric, axis, at, &d, &x, &e) != HDO_OK) return cli_fail(&e);
    if (json) return print_json(&d, metric, axis, x);
    printf("%s at %s = %.6g\n", metric, axis, x);
    print_side('A', a, d.a, d.a_se, d.n_a);
    print_side('B', b, d.b, d.b_se, d.n_b);
    if (isfinite(d.low)) {
        printf("  A - B = %.4g, 95 %% between %.4g and %.4g (p = %.2g, %s): %s\n", d.diff, d.low, d.high, d.p,
               d.paired ? "same seeds in pairs" : "Welch",
               d.low > 0.0    ? "A is larger"
               : d.high < 0.0 ? "A is smaller"
                              : "no clear difference");
    } else {
        printf("  A - B = %.4g; with one run on a side there is no telling how much of it is chance\n", d.diff);
    }
    return 0;
}
