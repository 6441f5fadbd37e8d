/* SPDX-License-Identifier: Apache-2.0 — hdo-node: hdo node as a program by itself, for small devices
 * (tools/build-node). */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

const cli_command *const cli_commands[] = {&cmd_node, NULL};

int main(int argc, char **argv) {
    setvbuf(stderr, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "node") == 0) { /* as hdo has it */
        argc--;
        argv++;
    }
    return cli_finish(cmd_node.run(argc, argv));
}
