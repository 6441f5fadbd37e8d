/* SPDX-License-Identifier: Apache-2.0 — libFuzzer: any bytes as a safetensors file; what is accepted is read in full.
 */
#include "fuzz.h"
#include "hdo/experimental/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    hdo_tensors *t;
    hdo_error e = {HDO_OK, ""};
    hdo_status st = hdo_tensors_parse(&t, data, len, &e);
    require_sentence(st, &e);
    if (st != HDO_OK) return 0;
    double sum = 0;
    for (int i = 0; i < hdo_tensors_count(t); i++) {
        const hdo_tensor_info *r = hdo_tensors_at(t, i);
        if (hdo_tensors_find(t, r->name) < 0) abort();
        float *x = malloc((size_t)r->count * sizeof(float) + 1); /* count is bounded by the bytes present */
        if (x == NULL) abort();
        if (hdo_tensors_read(t, i, x) == HDO_OK)
            for (uint64_t k = 0; k < r->count; k++) sum += (double)x[k];
        free(x);
    }
    const char *key, *value;
    for (int i = 0; hdo_tensors_note_at(t, i, &key, &value); i++) sum += (double)*key;
    hdo_tensors_close(t);
    volatile double sink = sum; /* keep the reads */
    (void)sink;
    return 0;
}
