/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: NumPy arrays, a pair of inputs and labels. */
#include "data/data_impl.h"
#include "fuzz.h"

/* First two bytes: where to cut the rest into inputs and labels. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    if (size < 2) return 0;
    const size_t rest = size - 2, cut = ((size_t)data[0] | (size_t)data[1] << 8) % (rest + 1);
    hdo_table r;
    hdo_status st =
        hdo__npy_parse(&r, &(hdo_file_pair){data + 2, cut, data + 2 + cut, rest - cut, "inputs", "labels"}, &e);
    require_sentence(st, &e);
    if (st == HDO_OK) check_rows(&r);
    hdo__table_clear(&r);
    return 0;
}
