/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast mixing forgets disagreement, in closed form: E Gamma' <= lambda Gamma (docs/theory.md 3.3).
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_MIXING_H
#define HDO_EXPERIMENTAL_MIXING_H

#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

HDO_API double hdo_lambda_matching(int n); /* a random matching of all nodes, perfect or near it */
HDO_API double hdo_lambda_pair(int n);     /* one uniform edge of the complete graph */

#ifdef __cplusplus
}
#endif

#endif
