/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: CIFAR-10 PNG sheets. */
#include "data/data_impl.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    const uint8_t label[4] = {1, 2, 3, 4};
    uint8_t out[4 * HDO_CIFAR_ROW];
    for (int rows = 1; rows <= 4; rows++) {
        hdo_status st = hdo__cifar_sheet_decode(data, size, label, rows, out, "fuzz", &e);
        require_sentence(st, &e);
        if (st == HDO_OK) require(out[0] == 1, "the label is not in its place");
    }
    return 0;
}
