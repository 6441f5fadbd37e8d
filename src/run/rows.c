/* SPDX-License-Identifier: Apache-2.0 — the rows of a run, kept in memory on request. */
#include "run/run_internal.h"

hdo_status hdo_run_keep_rows(hdo_run *r, hdo_error *e) {
    size_t count;
    if (hdo_run_rows(r, &count) != NULL) return HDO_OK;
    if (r->n_sinks == HDO_SINKS_MAX)
        return hdo__fail(e, HDO_E_FAILED, "a run writes to at most %d places", HDO_SINKS_MAX);
    hdo_status st = hdo__sink_memory_create(&r->sinks[r->n_sinks], e);
    if (st == HDO_OK) r->n_sinks++;
    return st;
}

const hdo_row *hdo_run_rows(const hdo_run *r, size_t *count) {
    *count = 0;
    for (int k = 0; k < r->n_sinks; k++) {
        const hdo_row *rows = hdo__sink_memory_rows(r->sinks[k], count);
        if (rows != NULL) return rows;
    }
    return NULL;
}
