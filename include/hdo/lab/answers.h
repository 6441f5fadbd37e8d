/* SPDX-License-Identifier: Apache-2.0
 *
 * The laboratory for programs in other languages: a configuration in, a JSON text out, no structs. Texts are the
 * caller's (hdo_free); NULL: it failed, and e says why. Experimental: may change or vanish in any version.
 */
#ifndef HDO_ANSWERS_H
#define HDO_ANSWERS_H

#include "hdo/hdo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `hdo check --json`: derivatives, steps, estimators, and a trial of a few dozen steps. */
HDO_API char *hdo_lab_check(const hdo_config *c, hdo_error *e);

/* `hdo predict --json`: what populations will reach. population: "4fo+4zo", ..., NULL; an empty list: that of c.
 * horizon: steps; 0: those of c. */
HDO_API char *hdo_lab_predict(const hdo_config *c, const char *const *population, int64_t horizon, hdo_error *e);

/* `hdo plan --json`: are zeroth-order nodes worth adding? option: names and values of the command's options in turn
 * ("fo", "4", "zo", "28", "zo-speed", "3", ..., NULL); sizes in MB, as there. */
HDO_API char *hdo_lab_plan(const hdo_config *c, const char *const *option, hdo_error *e);

/* hdo_run_new (dir NULL) and hdo_run_resume, also for configurations with `auto` rates, weights or partners. */
HDO_API hdo_status hdo_lab_run_open(hdo_run **run, const hdo_config *c, const char *dir, hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
