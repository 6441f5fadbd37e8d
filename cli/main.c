/* SPDX-License-Identifier: Apache-2.0 — hdo: a table of commands. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

const cli_command cli_commands[] = {
    {"run", cmd_run, "run a population described by a configuration or preset"},
    {"demo", cmd_demo, "a hybrid population against its parts, on generated data, in a minute"},
    {"paper", cmd_paper, "the paper's seven experiments, their figures and claims"},
    {"plot", cmd_plot, "draw the curves of runs (svg, png, pdf; the .csv and .gp stay)"},
    {"report", cmd_report, "a self-contained page of runs"},
    {"compare", cmd_compare, "the difference of two groups of runs, with confidence"},
    {"verify", cmd_verify, "make stored runs again and compare them, bit for bit"},
    {"eval", cmd_eval, "loss, accuracy and confusion of a stored model or weights"},
    {"sweep", cmd_sweep, "grid and random search over settings, with early stopping"},
    {"theory", cmd_theory, "bounds on a problem: constants, step sizes, warnings, measured against runs"},
    {"plan", cmd_plan, "are zeroth-order nodes worth adding to a fleet, and how?"},
    {"check", cmd_check, "derivatives, step nu and estimators of a configuration, before it runs"},
    {"explain", cmd_explain, "what became of a run: who went first when it diverged, and why"},
    {"config", cmd_config, "show, check or describe configurations"},
    {"data", cmd_data, "obtain, verify, import and look at data sets"},
    {"bench", cmd_bench, "how fast this build is on this machine, beside the machine's limits"},
    {"weights", cmd_weights, "what is in a weights file; models of runs as weights files"},
    {"doctor", cmd_doctor, "what is here, what is missing, and what it would give"},
    {"version", cmd_version, "print the version"},
    {NULL, NULL, NULL},
};

static void usage(FILE *out) {
    fprintf(out,
            "hdo %s: hybrid decentralised optimisation\n\n"
            "Trains one model with a population in which some nodes back-propagate and others only run the\n"
            "model forward; nodes take local steps and average with random partners.\n\n"
            "Usage: hdo COMMAND [ARGUMENTS]\n\nCommands:\n",
            hdo_version());
    for (const cli_command *c = cli_commands; c->name != NULL; c++) fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fprintf(
        out,
        "\nStart with:\n"
        "  hdo demo                                        a hybrid population in a minute\n"
        "  hdo run demo --population 8fo+24zo -o runs/a    one run of your own\n"
        "  hdo COMMAND --help                              everything about a command\n\n"
        "Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 data missing or damaged, 4 diverged,\n"
        "5 engine, 6 objective, 7 a process of --seeds, sweep or paper was killed, 130 and 143 after a signal with\n"
        "everything saved.\n");
}

static const cli_command *find(const char *name) {
    for (const cli_command *c = cli_commands; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0) return c;
    }
    return NULL;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); /* a closed pipe becomes an error of write, handled in cli_finish */
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "help") == 0) {
        const cli_command *c = argc > 2 ? find(argv[2]) : NULL;
        if (c != NULL) {
            char help[] = "--help";
            char *sub[] = {argv[2], help, NULL};
            return cli_finish(c->run(2, sub));
        }
        usage(stdout);
        return cli_finish(0);
    }
    if (strcmp(name, "-V") == 0 || strcmp(name, "--version") == 0) name = "version";
    const cli_command *c = find(name);
    if (c == NULL) return cli_usage_error("", "there is no command '%s'", name);
    return cli_finish(c->run(argc - 1, argv + 1));
}
