/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: metrics.jsonl, read back as a curve. */
#define _GNU_SOURCE
#include "fuzz.h"
#include "hdo/lab/report.h"

static const char *run_folder(const uint8_t *data, size_t size) {
    static char path[64];
    if (path[0] == '\0') {
        snprintf(path, sizeof path, "%s/metrics.jsonl", make_fuzz_dir());
        if (symlink(file_of(data, 0), path) != 0) abort();
    }
    (void)file_of(data, size);
    return fuzz_dir;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    hdo_curve c;
    const char *dir = run_folder(data, size);
    hdo_status st = hdo_curve_load(&c, dir, "step", "val/loss_mean", &e);
    require_sentence(st, &e);
    if (st == HDO_OK) {
        require(c.n_points >= 0 && c.n_runs == 1, "accepted, but no curve");
        for (int k = 0; k < c.n_points; k++) require(c.se[k] == 0.0 || c.se[k] != c.se[k], "one run has no error");
        hdo_curve_clear(&c);
    }
    return 0;
}
