/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: the state of a checkpoint, as JSON.
 *
 * Whatever it says, it is loaded into a run of the same shape, or refused with a sentence. A checkpoint seals it with a
 * hash, so that only what a run wrote comes this far.
 */
#define _GNU_SOURCE
#include "fuzz.h"
#include "record/ckstate.h"
#include "run/run_internal.h"

static hdo_run *make(void) {
    static const char yaml[] = "model: {name: quadratic, dim: 3}\nsteps: 3\nthreads: 1\n"
                               "population: {fo: {count: 2, estimator: fo, momentum: 0.5}}\neval: {every: 0}\n";
    hdo_error e;
    hdo_config c;
    hdo_run *r;
    hdo_config_default(&c);
    require(hdo_config_load_bytes(&c, "fuzz", yaml, sizeof yaml - 1, &e) == HDO_OK, e.msg);
    require(hdo_run_create(&r, &c, NULL, &e) == HDO_OK, e.msg);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static hdo_run *r;
    hdo_error e = {HDO_OK, ""};
    hdo_state_head head;
    if (r == NULL) r = make();
    char *text = text_of(data, size);
    hdo_status st = hdo__state_read_head(text, "fuzz", &head, &e);
    require_sentence(st, &e);
    if (st == HDO_OK) require(head.step >= 0 && head.n >= 0 && head.d >= 0, "a head below zero");
    e = (hdo_error){HDO_OK, ""};
    st = hdo__state_load(&r->record, text, "fuzz", &e);
    require_sentence(st, &e);
    free(text);
    return 0;
}
