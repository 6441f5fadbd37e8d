/* SPDX-License-Identifier: Apache-2.0 — hdo explain: what became of a run, and why. */
#include <getopt.h>
#include <stdlib.h>

#include "cli.h"
#include "hdo/lab/explain.h"

static const char help_text[] =
    "Usage: hdo explain RUN... [--check] [--json]\n\n"
    "Says in plain sentences what became of a stored run. One that diverged: which class, node and step went first, "
    "whether\n"
    "others took its model by averaging, and why. One that ended well: from where to where, and how far apart its "
    "nodes are.\n\n"
    "  --check   look at the stored configuration as hdo check does (seconds; needs the data), and say which rates it "
    "allows\n"
    "  --json    one JSON document a run, with the sentences and the figures behind them\n\n"
    "Exit code 0 whatever became of the run; 3 when there is none in the folder.\n\n"
    "Example: hdo explain runs/mine\n";

int cmd_explain(int argc, char **argv) {
    enum { JSON = 256, CHECK };
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'},
                                          {"json", no_argument, NULL, JSON},
                                          {"check", no_argument, NULL, CHECK},
                                          {NULL, 0, NULL, 0}};
    bool json = false, check = false;
    for (int o; (o = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        switch (o) {
        case 'h': fputs(help_text, stdout); return 0;
        case JSON: json = true; break;
        case CHECK: check = true; break;
        default: return cli_usage_error("explain", "the options are not right");
        }
    }
    if (optind >= argc)
        return cli_usage_error("explain", "which run? Give its folder, for example: hdo explain runs/mine");
    for (int i = optind; i < argc; i++) {
        hdo_error e = {0};
        char *text = NULL;
        if (hdo_explain(argv[i], json, check, &text, &e) != HDO_OK) return cli_fail(&e);
        if (argc - optind > 1 && !json) printf("%s%s\n", i > optind ? "\n" : "", argv[i]);
        fputs(text, stdout);
        if (json) putchar('\n');
        free(text);
    }
    return 0;
}
