/* SPDX-License-Identifier: Apache-2.0 — hdo help, hdo version. */
#include "cli.h"

typedef struct help_options {
    cli_common common;
    bool man;
} help_options;

static const cli_option options[] = {
    {"man", 0, CLI_FLAG, NULL, "the page as man reads it: hdo help --man run | man -l -",
     .target = offsetof(help_options, man)},
    {.name = NULL},
};

static int run_help(int argc, char **argv) {
    help_options o = {.man = false};
    int code = cli_parse(&cmd_help, argc, argv, &o);
    if (code >= 0) return code;
    const cli_command *c = o.common.n_words > 0 ? cli_find(o.common.word[0]) : NULL;
    if (c == NULL && o.common.n_words > 0) return cli_no_command(o.common.word[0]);
    if (o.man) {
        cli_man(c);
    } else if (c != NULL) {
        cli_help(c);
    } else {
        cli_help_all();
    }
    return 0;
}

const cli_command cmd_help = {
    .name = "help",
    .summary = "what a command does: its options, examples and exit codes",
    .run = run_help,
    .usage = "[COMMAND] [--man]",
    .about = "The same as hdo COMMAND --help; without COMMAND, all commands. Keys of configurations: hdo config help.",
    .options = options,
    .examples = "hdo help run",
    .most = 1,
    .single = "one command at a time",
    .size = sizeof(help_options),
};

static int run_version(int argc, char **argv) {
    cli_common o = {0};
    int code = cli_parse(&cmd_version, argc, argv, &o);
    if (code >= 0) return code;
    printf("hdo %s\n", hdo_version());
    return 0;
}

const cli_command cmd_version = {
    .name = "version",
    .summary = "print the version",
    .run = run_version,
    .usage = "",
    .about = "Prints the version. hdo doctor also says what this build can do.",
    .size = sizeof(cli_common),
};
