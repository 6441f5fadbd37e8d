/* SPDX-License-Identifier: Apache-2.0
 *
 * Formulas that a run and the theory about it share.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_FORMULAS_H
#define HDO_EXPERIMENTAL_FORMULAS_H

#include <stdbool.h>
#include <stddef.h>

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How fast mixing forgets disagreement: E Gamma' <= lambda Gamma (docs/theory.md 3.3). */
HDO_API double hdo_lambda_matching(int n); /* a random matching of all nodes, perfect or near it */
HDO_API double hdo_lambda_pair(int n);     /* one uniform edge of the complete graph */

/* The theorem's rate for T steps of n nodes on an ell-strongly convex f: 8 log T / (T ell) where all nodes step, and
 * 4 n log T / (T ell) where one pair does. */
HDO_API double hdo_theorem_rate(bool pairs, double n, double T, double ell);

/* Eigenvalue j < d of model quadratic: from smoothness down to convexity in a geometric sequence. */
HDO_API double hdo_quadratic_eigenvalue(double smoothness, double convexity, size_t d, size_t j);

#ifdef __cplusplus
}
#endif

#endif
