/* SPDX-License-Identifier: Apache-2.0 — seconds on a clock that never jumps. */
#ifndef HDO_BASE_CLOCK_H
#define HDO_BASE_CLOCK_H

#include <time.h>

static inline double hdo__now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
