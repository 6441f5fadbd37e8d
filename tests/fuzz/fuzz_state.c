/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: the state file of a checkpoint, beside whole tensors.
 *
 * Whatever it says, a restored run has sane counters, or the checkpoint is refused with a sentence.
 */
#define _GNU_SOURCE
#include "fuzz.h"
#include "hdo/hdo.h"

static char state[128];

/* A run of three steps whose newest state file is the input. */
static void make(const uint8_t *data) {
    static const char yaml[] = "model: {name: quadratic, dim: 3}\ndata: none\nsteps: 3\nthreads: 1\n"
                               "population: {fo: {count: 2, estimator: fo, momentum: 0.5}}\neval: {every: 0}\n";
    hdo_error e;
    hdo_config c;
    hdo_run *r;
    hdo_stop why;
    hdo_config_default(&c);
    char sub[64];
    snprintf(sub, sizeof sub, "%s/run", make_fuzz_dir());
    require(hdo_config_load_text(&c, "fuzz", yaml, sizeof yaml - 1, &e) == HDO_OK, e.msg);
    require(hdo_run_create(&r, &c, NULL, &e) == HDO_OK, e.msg);
    require(hdo_run_attach_dir(r, sub, false, NULL, &e) == HDO_OK, e.msg);
    require(hdo_run_advance(r, 3, &why, &e) == HDO_OK, e.msg);
    require(hdo_run_write_summary(r, &e) == HDO_OK, e.msg);
    hdo_run_destroy(r);
    snprintf(state, sizeof state, "%s/run/checkpoints/step-000000003.json", fuzz_dir);
    require(unlink(state) == 0 && symlink(file_of(data, 0), state) == 0, "the state file is elsewhere");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    hdo_run *r = NULL;
    char sub[64];
    if (state[0] == '\0') make(data);
    (void)file_of(data, size);
    snprintf(sub, sizeof sub, "%s/run", fuzz_dir);
    hdo_status st = hdo_run_resume(&r, sub, 1, NULL, &e);
    require_sentence(st, &e);
    if (st == HDO_OK) require(hdo_run_step(r) >= 0, "a negative step");
    hdo_run_destroy(r);
    return 0;
}
