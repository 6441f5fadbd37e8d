/* SPDX-License-Identifier: Apache-2.0 — small runs for the tests of the loop. */
#ifndef HDO_TESTS_RUN_HELP_H
#define HDO_TESTS_RUN_HELP_H

#include <string.h>

#include "hdo/experimental/all.h"

static inline void set(hdo_config *c, const char *key, const char *value) {
    hdo_error e = {0};
    if (hdo_config_set_from(c, key, value, HDO_FROM_FLAG, &e) != HDO_OK) fail_msg("%s=%s: %s", key, value, e.msg);
}

static inline void base_config(hdo_config *c, const char *model, const char *population) {
    hdo_error e = {0};
    hdo_config_default(c);
    set(c, "model", model);
    if (strcmp(model, "quadratic") != 0) {
        set(c, "data.train", "500");
        set(c, "data.val", "200");
    }
    set(c, "steps", "20");
    set(c, "eval.every", "5");
    assert_int_equal(hdo_config_population(c, population, &e), HDO_OK);
}

static inline hdo_run *make(const hdo_config *c) {
    hdo_error e = {0};
    hdo_run *r = NULL;
    if (hdo_run_create(&r, c, NULL, &e) != HDO_OK) fail_msg("%s", e.msg);
    return r;
}

static inline hdo_stop finish(hdo_run *r) {
    hdo_error e = {0};
    hdo_stop why = HDO_RUNNING;
    while (why == HDO_RUNNING) {
        if (hdo_run_advance(r, 7, &why, &e) != HDO_OK) fail_msg("%s", e.msg);
    }
    return why;
}

#endif
