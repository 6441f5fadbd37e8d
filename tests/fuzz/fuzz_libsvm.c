/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: LIBSVM files. */
#include "data/data_impl.h"
#include "fuzz.h"

/* The input as training file, and a second time as validation file of the first: its first half, then all of it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    hdo_table train, val;
    hdo_status st = hdo__libsvm_parse(&train, (const char *)data, size / 2, NULL, 1 << 22, "train", &e);
    require_sentence(st, &e);
    if (st == HDO_OK) {
        check_rows(&train);
        st = hdo__libsvm_parse(&val, (const char *)data + size / 2, size - size / 2, &train, 1 << 22, "val", &e);
        if (st == HDO_OK) {
            check_rows(&val);
            require(val.classes == train.classes && val.n_in >= train.n_in, "validation does not fit training");
        }
        hdo__table_clear(&val);
    }
    hdo__table_clear(&train);
    st = hdo__libsvm_parse(&train, (const char *)data, size, NULL, 1 << 22, "all", &e);
    if (st == HDO_OK) check_rows(&train);
    hdo__table_clear(&train);
    return 0;
}
