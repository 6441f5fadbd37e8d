/* SPDX-License-Identifier: Apache-2.0 — a folder of its own for the tests of one program: group setup and teardown. */
#ifndef HDO_TESTS_FOLDER_HELP_H
#define HDO_TESTS_FOLDER_HELP_H

#include <stdio.h>
#include <stdlib.h>

static char folder[] = "/tmp/hdo-test-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

#endif
