/* SPDX-License-Identifier: Apache-2.0 — libFuzzer target: CSV tables. */
#include "data/data_impl.h"
#include "fuzz.h"

/* The input as training file, and a second time as validation file of the first: its first half, then all of it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hdo_error e = {HDO_OK, ""};
    hdo_table train, val;
    hdo_status st = hdo__csv_parse(&train, (const char *)data, size / 2, NULL, 1 << 22, "train", &e);
    require_sentence(st, &e);
    if (st == HDO_OK) {
        check_rows(&train);
        st = hdo__csv_parse(&val, (const char *)data + size / 2, size - size / 2, &train, 1 << 22, "val", &e);
        if (st == HDO_OK) {
            check_rows(&val);
            require(val.classes == train.classes && val.n_in >= train.n_in, "validation does not fit training");
        }
        hdo__table_clear(&val);
    }
    hdo__table_clear(&train);
    st = hdo__csv_parse(&train, (const char *)data, size, NULL, 1 << 22, "all", &e);
    if (st == HDO_OK) check_rows(&train);
    hdo__table_clear(&train);
    static const char *const label[] = {"last", "1", "2", "70000", "a", "label"};
    for (size_t k = 0; k < sizeof label / sizeof label[0]; k++) {
        e.msg[0] = 0;
        st = hdo__csv_parse_label(&train, (const char *)data, size, NULL, label[k], "labelled", &e);
        require_sentence(st, &e);
        if (st == HDO_OK) check_rows(&train);
        hdo__table_clear(&train);
    }
    return 0;
}
