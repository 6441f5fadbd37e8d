/* SPDX-License-Identifier: Apache-2.0
 *
 * libhdo: hybrid decentralised optimisation.
 *
 * One model is trained by a population of nodes. Some back-propagate (first order), others can only run the model
 * forward (zeroth order). There is no coordinator: nodes take local steps and average with random partners.
 *
 *     hdo_config c;
 *     hdo_config_default(&c);
 *     hdo_config_set(&c, "population.zo.count", "28", HDO_FROM_FLAG, &err);
 *     hdo_run *run;
 *     hdo_run_create(&run, &c, NULL, &err);
 *     hdo_stop why = HDO_RUNNING;
 *     while (why == HDO_RUNNING) hdo_run_advance(run, 100, &why, &err);
 *     printf("%g\n", hdo_run_last_row(run)->all.loss_mean);
 *     hdo_run_destroy(run);
 */
#ifndef HDO_HDO_H
#define HDO_HDO_H

#include "hdo/config.h"
#include "hdo/data.h"
#include "hdo/json.h"
#include "hdo/run.h"
#include "hdo/status.h"

#ifdef __cplusplus
extern "C" {
#endif

HDO_API const char *hdo_version(void);
/* `git describe` of the sources it was built from, "unknown" without; "-dirty" behind it: with changes of their own. */
HDO_API const char *hdo_commit(void);

/* Configurations that come with the program: the YAML text of one, or NULL; and all names, NULL-terminated. */
HDO_API const char *hdo_preset(const char *name);
HDO_API const char *const *hdo_preset_names(void);

/* One thing `hdo doctor` reports on. */
typedef struct hdo_feature {
    const char *name;
    bool present;
    char detail[128];  /* version or what is in use */
    const char *gives; /* what it is good for */
} hdo_feature;
/* Fills at most cap features, returns how many there are. */
HDO_API int hdo_features(hdo_feature *out, int cap);

#ifdef __cplusplus
}
#endif

#endif
