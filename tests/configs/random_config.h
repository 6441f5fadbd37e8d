/* SPDX-License-Identifier: Apache-2.0 — a number becomes a configuration, always the same one. */
#ifndef HDO_TESTS_RANDOM_CONFIG_H
#define HDO_TESTS_RANDOM_CONFIG_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_MAX = 8192 };

typedef struct rnd {
    uint64_t s;
} rnd;

uint64_t rnd_next(rnd *r);
int rnd_below(rnd *r, int n);

/* Tables, pictures, an edge list and a schedule for configurations to name, into the folder. False: not written. */
int random_files(const char *folder);

/* Configuration number `number` as YAML; `folder` holds the files. Settings that the others leave without effect are
 * refused, so they are taken out again, but for one configuration in thirty. */
void random_config(uint64_t number, const char *folder, char text[TEXT_MAX]);

#endif
