/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of seeds: DIR/seed-N for every seed, and DIR/seeds.txt, which says which there are to be, so that a killed
 * `hdo run --seeds` can be taken up with those it had not begun.
 */
#ifndef HDO_CLI_SEEDS_H
#define HDO_CLI_SEEDS_H

#include "pool.h"

typedef struct cli_seed_set {
    int n, cap;
    int64_t *seed;
    cli_job *job; /* dir, label and resume are set */
} cli_seed_set;

bool cli_seeds_folder(const char *dir); /* are there seeds in it, and no run? */
/* Adds a seed unless it is there; its job goes on with what DIR/seed-N holds. */
bool cli_seeds_add(cli_seed_set *s, const char *dir, int64_t seed, hdo_error *e);
/* All seeds of a folder; c: the configuration of one of its runs. */
bool cli_seeds_find(const char *dir, cli_seed_set *s, hdo_config *c, hdo_error *e);
bool cli_seeds_note(const char *dir, const cli_seed_set *s, hdo_error *e); /* writes seeds.txt */
void cli_seeds_clear(cli_seed_set *s);

#endif
