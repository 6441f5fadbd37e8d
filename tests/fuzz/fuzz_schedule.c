/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: schedule files. */
#define _GNU_SOURCE
#include <math.h>

#include "fuzz.h"
#include "update/update.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    hdo_schedule s = {.kind = HDO_SCHEDULE_FILE, .warmup = 2};
    hdo_status st = hdo__schedule_load(&s, file_of(data, size), &e);
    require_sentence(st, &e);
    if (st == HDO_OK) {
        double most = 0.0;
        for (int k = 0; k < s.n_points; k++) {
            most = fmax(most, s.point[2 * k + 1]);
            require(k == 0 || s.point[2 * k] > s.point[2 * k - 2], "steps do not rise");
        }
        for (int64_t t = 0; t < 50; t++) {
            double lr = hdo__schedule_lr(&s, t);
            require(lr >= 0.0 && lr <= most * (1.0 + 1e-12), "a rate outside of the file's");
        }
    }
    hdo__schedule_clear(&s);
    return 0;
}
