/* SPDX-License-Identifier: Apache-2.0 — hdo run: what it prints about results. */
#ifndef HDO_RUN_TEXT_H
#define HDO_RUN_TEXT_H

#include "cli.h"

void run_print_result(const hdo_config *c, const hdo_run *r, hdo_stop why, const char *dir);
void run_print_plan_json(const hdo_config *c, const hdo_run_info *i);

typedef struct moments {
    int n;
    double sum, sum2;
} moments;
typedef struct run_group { /* several seeds */
    moments loss, acc, mu; /* of the runs that did not diverge */
    int seeds, diverged;
    int code; /* the worst exit code */
} run_group;
void run_collect(run_group *g, const hdo_row *row, int code);
void run_print_seeds(const run_group *g, const char *dir, bool json);

#endif
