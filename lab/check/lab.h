/* SPDX-License-Identifier: Apache-2.0
 *
 * The bench of `hdo check`: the user's objective, data and starting point, without a population. Parts of a check:
 *
 *   lab.c        problem, estimators, batches               slopes.c   agreement of oracles, sweep over nu, curvature
 *   health.c     one class: bias, variance, time, memory    advice.c   what follows from the numbers, in words
 *   checkup.c    the whole                                  check_report.c  JSON and figure
 */
#ifndef HDO_CHECK_LAB_H
#define HDO_CHECK_LAB_H

#include "base/team.h"
#include "estimator/estimator.h"
#include "hdo/lab/check.h"
#include "lab/check/theory_row.h"
#include "problem/problem.h"

typedef struct hdo_lab {
    const hdo_config *config;
    const hdo_check_options *options;
    hdo_problem problem;
    hdo_objective *f; /* the problem's */
    hdo_estimator estimator[HDO_CLASSES_MAX];
    hdo_team team;
    hdo_work work; /* with the whole team */
    float *x;      /* (d + n_buf) starting point */
    float *g;      /* (d + n_buf) gradient of the check's batch, or the class's */
    float *v[3];   /* (d + n_buf) vectors in passing */
    double *mean;  /* (d) */
    int batch_max;
    hdo_arena batch; /* of hdo__lab_batch */
} hdo_lab;

hdo_status hdo__lab_open(hdo_lab *l, const hdo_config *c, const hdo_check_options *o, hdo_error *e);
void hdo__lab_close(hdo_lab *l);

/* Batch number t of that size for a node; it lives until the next call. */
hdo_batch hdo__lab_batch(hdo_lab *l, int node, int64_t t, int size);
int hdo__lab_batch_size(const hdo_lab *l); /* of the check as a whole: the largest of the classes, at least 32 */

/* Directions for the check itself, apart from those of any node. */
hdo_dirs hdo__lab_dirs(const hdo_lab *l);

hdo_status hdo__check_slopes(hdo_lab *l, hdo_check_result *r, hdo_error *e);
hdo_status hdo__check_class(hdo_lab *l, int k, const hdo_check_result *r, hdo_check_class *out, hdo_error *e);
void hdo__check_note(hdo_check_result *r, hdo_check_level level, int cls, const char *fmt, ...) HDO_PRINTF(4, 5);
void hdo__check_advise(const hdo_config *c, hdo_check_result *r);

#endif
