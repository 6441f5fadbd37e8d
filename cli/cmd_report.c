/* SPDX-License-Identifier: Apache-2.0 — hdo report: a self-contained page of runs. */
#include <getopt.h>
#include <string.h>

#include "cli.h"
#include "hdo/lab/report.h"

static const char help_text[] =
    "Usage: hdo report RUN... [-o FILE.html] [--title TEXT] [--x METRIC]\n\n"
    "One HTML file with figures, final figures and configurations of runs, to keep or to send: nothing in it needs "
    "the\n"
    "network. A RUN is a run folder, or a folder of runs that differ in the seed: then lines are means with standard "
    "errors.\n\n"
    "  -o, --output FILE  default: report.html\n"
    "  --title TEXT       heading of the page\n"
    "  --x METRIC         axis of the figures: step, interactions, cost, bytes_exchanged, sim_time, "
    "time/wall\n\n"
    "Example: hdo report runs/8fo runs/24zo runs/8fo+24zo -o hybrid.html --x bytes_exchanged\n";

int cmd_report(int argc, char **argv) {
    enum { TITLE = 256, X };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"title", required_argument, NULL, TITLE},
                                          {"x", required_argument, NULL, X},
                                          {NULL, 0, NULL, 0}};
    const char *output = "report.html", *title = "Hybrid decentralised optimisation: runs", *x = "step";
    for (int o; (o = getopt_long(argc, argv, "ho:", longs, NULL)) != -1;) {
        switch (o) {
        case 'h': fputs(help_text, stdout); return 0;
        case 'o': output = optarg; break;
        case TITLE: title = optarg; break;
        case X: x = optarg; break;
        default: return cli_usage_error("report", "the options are not right");
        }
    }
    if (optind == argc) return cli_usage_error("report", "which runs? Give one or more run folders");
    hdo_error e = {0};
    if (hdo_report_write((const char *const *)argv + optind, argc - optind, title, x, output, &e) != HDO_OK)
        return cli_fail(&e);
    printf("%s\n", output);
    return 0;
}
