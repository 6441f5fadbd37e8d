/* SPDX-License-Identifier: Apache-2.0 — which version this is. */
#include "hdo/experimental/all.h"

const char *hdo_version(void) {
    return HDO_VERSION;
}
