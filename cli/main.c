/* SPDX-License-Identifier: Apache-2.0 — hdo: finds the command and hands over. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

int main(int argc, char **argv) {
    setvbuf(stderr, NULL, _IOLBF, 0); /* a sentence goes out whole: a job that ends at once must not cut it */
    signal(SIGPIPE, SIG_IGN);         /* a closed pipe becomes an error of write, handled in cli_finish */
    if (argc < 2) {
        dup2(STDERR_FILENO, STDOUT_FILENO); /* not what was asked for */
        cli_help_all();
        cli_finish(0);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0) name = "help";
    if (strcmp(name, "-V") == 0 || strcmp(name, "--version") == 0) name = "version";
    const cli_command *c = cli_find(name);
    return cli_finish(c != NULL ? c->run(argc - 1, argv + 1) : cli_no_command(name));
}
