/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything the library has to offer its own laboratory and commands: the stable interface and the structs behind it.
 *
 * Experimental: may change or vanish in any version.
 */
#ifndef HDO_EXPERIMENTAL_ALL_H
#define HDO_EXPERIMENTAL_ALL_H

#include "hdo/experimental/config.h"
#include "hdo/experimental/data.h"
#include "hdo/experimental/number.h"
#include "hdo/experimental/run.h"
#include "hdo/hdo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One thing `hdo doctor` reports on. */
typedef struct hdo_feature {
    const char *name;
    bool present;
    char detail[128];  /* version or what is in use */
    const char *gives; /* what it is good for */
} hdo_feature;
/* Fills at most cap features, returns how many there are. */
HDO_API int hdo_feature_list(hdo_feature *out, int cap);

#ifdef __cplusplus
}
#endif

#endif
