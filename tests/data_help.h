/* SPDX-License-Identifier: Apache-2.0 — what the tests of readers share: a small IDX pair, a folder, a sentence. */
#ifndef HDO_TESTS_DATA_HELP_H
#define HDO_TESTS_DATA_HELP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define assert_says(e, word)                                                                                           \
    do {                                                                                                               \
        if (strstr((e).msg, word) == NULL) fail_msg("says: %s", (e).msg);                                              \
    } while (0)

static const uint8_t idx_images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                                     0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255};
static const uint8_t idx_labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 4, 1};

/* A folder of its own for every test that writes files. */
static void make_dir(char dir[64]) {
    snprintf(dir, 64, "/tmp/hdo-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

#endif
