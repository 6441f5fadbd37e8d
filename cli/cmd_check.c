/* SPDX-License-Identifier: Apache-2.0 — hdo check: is this configuration healthy before it runs? */
#include "cmd_check.h"

#include <stdlib.h>

#include "hdo/lab/predict.h"
#include "hdo/lab/report.h"

typedef struct check_options {
    cli_common common;
    const char *output;
    hdo_check_options how;
} check_options;

#define AT(member) offsetof(check_options, member)
static const cli_option options[] = {
    {"output", 'o', CLI_TEXT, "BASE", "write the sweep over nu as BASE.svg, .png, .pdf, and BASE.csv and .gp",
     .target = AT(output)},
    {"time", 0, CLI_DURATION, "S", "seconds for the estimates of one class (default 2)", .target = AT(how.time_s),
     .lo = 0, .hi = 1e6, .takes = "seconds, for example 5"},
    {"directions", 0, CLI_INT32, "N", "random directions for slopes (default 16)", .target = AT(how.directions),
     .lo = 2, .hi = 256},
    {"samples", 0, CLI_INT32, "N", "estimates per class at most (default 400)", .target = AT(how.samples), .lo = 2,
     .hi = 1000000},
    {"try", 0, CLI_INT32, "N", "steps of the trial (default 60; 0: none), with a warm-up of 20 at most",
     .target = AT(how.try_steps), .lo = 0, .hi = 1000000, .takes = "a number of steps, 0 for none"},
    {"try-time", 0, CLI_DURATION, "S", "seconds for it at most (default 20)", .target = AT(how.try_s),
     .lo = CLI_POSITIVE, .hi = 1e6, .takes = "seconds, for example 5"},
    {.name = NULL},
};

/* Prints and draws what was found; 1 if there is a problem among it. */
static int tell(const check_options *o, const hdo_check_result *r) {
    hdo_error e = {0};
    if (!o->common.json) {
        check_print(r);
    } else if (cli_print(hdo_check_json(r), "\n") != 0) {
        return 1;
    }
    if (o->output != NULL) {
        if (hdo_check_figure(r, o->output, HDO_FORMAT_SVG | HDO_FORMAT_PNG | HDO_FORMAT_PDF, &e) != HDO_OK)
            return cli_fail(&e);
        cli_note("figure in %s.svg, .png, .pdf", o->output);
    }
    for (int i = 0; i < r->n_notes; i++) {
        if (r->note[i].level == HDO_CHECK_PROBLEM) return 1;
    }
    return 0;
}

static int check(void *ctx, hdo_config *c) {
    const check_options *o = ctx;
    hdo_error e = {.code = HDO_E_MEMORY};
    hdo_check_result *r = malloc(sizeof *r);
    hdo_status st = r != NULL ? HDO_OK : HDO_E_MEMORY;
    cli_note("checking derivatives, steps and %d classes", c->n_classes);
    if (st == HDO_OK) st = hdo_check(c, &o->how, r, &e);
    if (st == HDO_OK) st = hdo_check_horizon(c, r, &e);
    if (st == HDO_OK && o->how.try_steps > 0) {
        cli_note("trying the population for %d steps, %.0f s at most", o->how.try_steps, o->how.try_s);
        st = hdo_check_try(c, &o->how, r, &e);
    }
    int code = st == HDO_OK ? tell(o, r) : cli_fail(&e);
    free(r);
    return code;
}

static int run_check(int argc, char **argv) {
    check_options o = {.how = hdo_check_default()};
    int code = cli_parse(&cmd_check, argc, argv, &o);
    return code >= 0 ? code : cli_with_config(o.common.word[0], &o.common, check, &o);
}

const cli_command cmd_check = {
    .name = "check",
    .summary = "derivatives, step nu and estimators of a configuration, before it runs",
    .run = run_check,
    .usage = "CONFIG|PRESET [OPTIONS]",
    .about = "Looks at a configuration at its starting point, on its own model and data: do gradient, forward mode and "
             "differences agree; which step nu the losses allow; what each class's estimator does against theory "
             "(cosine, bias, variance); which lr and rv fit, by the directions the run will learn; memory and time. "
             "Then it tries the population for a few "
             "steps. For runs that do not learn, and before runs that take long.",
    .options = options,
    .common = CLI_CONFIG | CLI_PIECEWISE | CLI_THREADS | CLI_JSON | CLI_TALK,
    .examples = "hdo check demo --set population.zo.estimator=fd --set population.zo.nu=1e-7",
    .exit_codes = "0 advice at most, 1 there is a problem (a population that diverged in the trial is one), 2 an "
                  "impossible configuration, 3 missing data.",
    .presets = true,
    .least = 1,
    .most = 1,
    .missing = "which configuration? Give a YAML file or a preset, for example: hdo check demo",
    .single = "one configuration at a time",
    .size = sizeof(check_options),
};
