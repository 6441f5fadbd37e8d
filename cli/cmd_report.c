/* SPDX-License-Identifier: Apache-2.0 — hdo report: a self-contained page of runs. */
#include "cli.h"
#include "hdo/lab/report.h"

typedef struct report_options {
    cli_common common;
    const char *output, *title, *x;
} report_options;

#define AT(member) offsetof(report_options, member)
static const cli_option options[] = {
    {"output", 'o', CLI_TEXT, "FILE", "default: report.html", .target = AT(output)},
    {"title", 0, CLI_TEXT, "TEXT", "heading of the page", .target = AT(title)},
    {"x", 0, CLI_TEXT, "METRIC", "axis of the figures: step, interactions, cost, bytes_exchanged, sim_time, time/wall",
     .target = AT(x), .words = CLI_AXES},
    {.name = NULL},
};

static int run_report(int argc, char **argv) {
    report_options o = {.output = "report.html", .title = "Hybrid decentralised optimisation: runs", .x = "step"};
    int code = cli_parse(&cmd_report, argc, argv, &o);
    if (code >= 0) return code;
    hdo_error e = {0};
    const char *const *runs = (const char *const *)o.common.word;
    if (hdo_report_write(runs, o.common.n_words, o.title, o.x, o.output, &e) != HDO_OK) return cli_fail(&e);
    printf("%s\n", o.output);
    return 0;
}

const cli_command cmd_report = {
    .name = "report",
    .summary = "a self-contained page of runs",
    .run = run_report,
    .usage = "RUN... [-o FILE.html] [--title TEXT] [--x METRIC]",
    .about =
        "One HTML file with figures, final figures and configurations of runs, to keep or to send: nothing in it needs "
        "the network. A RUN is a run folder, or a folder of runs that differ in the seed: then lines are means with "
        "standard errors.",
    .options = options,
    .examples = "hdo report runs/8fo runs/24zo runs/8fo+24zo -o hybrid.html --x bytes_exchanged",
    .least = 1,
    .most = -1,
    .missing = "which runs? Give one or more run folders",
    .size = sizeof(report_options),
};
