/* SPDX-License-Identifier: Apache-2.0
 *
 * Conformance suites: does a table of one's own keep the promises of <hdo/objective.h> and its siblings? For the tests
 * of whoever writes one:
 *
 *     char *report;
 *     hdo_error e;
 *     if (hdo_test_objective(&def, user, NULL, &report, &e) != HDO_OK) puts(e.msg);
 *     puts(report);
 *     hdo_free(report);
 *
 * Each returns HDO_OK when everything holds and HDO_E_FAILED otherwise, with the first fault as a sentence in e.
 * *report (report may be NULL) becomes a text with a line for every check, "ok ..." or "FAILED ..."; free it with
 * hdo_free. It is NULL after HDO_E_MISUSE and HDO_E_MEMORY. def->destroy is not called. The table is called from this
 * thread, and from four at once if it has HDO_ANY_THREAD. Everything drawn is drawn from fixed seeds.
 */
#ifndef HDO_TEST_H
#define HDO_TEST_H

#include "hdo/hdo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* start, loss and gradient are finite and the same every time, whatever is asked in between; x is left alone and read
 * no further than dim; losses are those of loss, to the bit, however points are grouped; gradient and slopes agree with
 * differences of losses and with each other; metrics agree with loss; threads do not disturb each other. c: whose data
 * an objective with HDO_WANT_DATA is tested on; NULL: those of a new configuration (generated ones). */
HDO_API hdo_status hdo_test_objective(const hdo_objective_def *def, void *user, const hdo_config *c, char **report,
                                      hdo_error *e);

/* Samples are finite, labels and tokens in range, the same every time, alone or in any company; label is what gather
 * says; nothing is written beyond the rows asked for; threads do not disturb each other. */
HDO_API hdo_status hdo_test_dataset(const hdo_dataset_def *def, void *user, char **report, hdo_error *e);

#ifdef __cplusplus
}
#endif

#endif
