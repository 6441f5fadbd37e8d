/* SPDX-License-Identifier: Apache-2.0 — which row of the table in docs/theory.md 3.2 predicts an estimator. */
#ifndef HDO_LAB_CHECK_THEORY_ROW_H
#define HDO_LAB_CHECK_THEORY_ROW_H

#include "estimator/estimator.h"
#include "hdo/lab/theory.h"

static inline hdo_theory_est hdo__theory_row(hdo_est_family f) {
    static const hdo_theory_est row[] = {[HDO_EST_GRADIENT] = HDO_THEORY_FO,
                                         [HDO_EST_FORWARD] = HDO_THEORY_FM,
                                         [HDO_EST_ONE_SIDED] = HDO_THEORY_FD1,
                                         [HDO_EST_CENTRAL] = HDO_THEORY_FD2,
                                         [HDO_EST_COMPLEX] = HDO_THEORY_CSTEP};
    return row[f];
}

#endif
